"""Datasets: what a query of an engine costs next to the same filters in a scan, by CPU seconds and by bytes read.

One topic of four, one hour of 48; the least CPU seconds of 15 or 25 rounds in turns over those of our own filters, on
an Intel Xeon. The engine's own part is the same query over the found records in memory. The bytes read are the same.

| 4,000,000 records a topic (237 MiB) | dataset | DuckDB | Polars | DataFusion |
| --- | --- | --- | --- | --- |
| rows of three columns | 1.01 | 1.20, 1.23 | 1.21 | 1.13, 1.17 |
| without the engine's own part | 1.01 | 0.99, 1.03 | 0.96 | 0.89, 0.94 |
| count and largest offset | | 1.07, 1.11 | 1.18, 1.20 | 1.14, 1.19 |
| without the engine's own part | | 0.97, 1.01 | 0.94, 0.97 | 0.88 |

With 1,000,000 records a topic (59 MiB) our own filters take 8 to 9 ms, and an engine's own part 1.7 to 4.2: rows 1.04,
1.44 to 1.48, 1.33 to 1.36, 1.23 to 1.25; without that part 1.04, 1.13 to 1.16, 0.89 to 0.94, 0.85 to 0.87. Counts 1.33
to 1.38, 1.35 to 1.40, 1.44; without it 1.11 to 1.16, 0.96 to 0.98, 0.97.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapes

import kafkalog

from .common import CpuTimed, Libraries

with Libraries() as libraries:
    import datafusion
    import duckdb
    import polars as pl

N_TOPICS, N_RECORDS = 4, 1_000_000
HOUR = 3_600_000
START = 1_700_000_000_000
ROUNDS = 7


def make_log(path: Path) -> str:
    """Topics of two days each."""
    if not path.exists():
        staged = path.with_suffix(".tmp")  # a run that is stopped leaves no half of a log to measure
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        stamps = START + np.arange(N_RECORDS) * (48 * HOUR // N_RECORDS)
        keys = pc.binary_join_element_wise("user-", pa.array(np.arange(N_RECORDS) % 5000).cast(pa.string()), "")
        value = pa.array([b"a value of an order, as long as this text is"]).take(pa.array(np.zeros(N_RECORDS, int)))
        for number in range(N_TOPICS):
            table = pa.table({"key": keys.cast(pa.binary()), "value": value, "timestamp": pa.array(stamps)})
            with kafkalog.PartitionWriter(staged / f"topic{number}-0", config=kafkalog.LogConfig()) as writer:
                writer.append(table)
        staged.rename(path)
    return str(path)


class Pushdown(CpuTimed):
    """One topic, one hour, in ways to ask for it."""

    params = (
        [
            *("filters", "expression", "dataset", "duckdb", "polars", "datafusion"),
            *("count by duckdb", "count by polars", "count by datafusion"),
        ],
    )
    param_names = ("way",)

    def setup_cache(self) -> str:
        return make_log(shapes.cache_dir() / f"pushdown-{N_TOPICS}-{N_RECORDS}")

    setup_cache.timeout = 600

    def setup(self, path: str, way: str) -> None:
        libraries.require()
        first, last = (pa.scalar(START + n * HOUR, pa.timestamp("ms", "UTC")) for n in (40, 41))
        field = pc.field
        wanted = (field("topic") == "topic1") & (field("timestamp") >= first) & (field("timestamp") < last)
        filters = [("topic", "==", "topic1"), ("timestamp", ">=", first.as_py()), ("timestamp", "<", last.as_py())]
        columns = ["offset", "key", "value"]
        log = kafkalog.scan(path)
        during = f"timestamp >= '{first.as_py()}' and timestamp < '{last.as_py()}'"
        sql = f"select \"offset\", key, value from {{}} where topic = 'topic1' and {during}"
        count = f"select count(*), max(\"offset\") from {{}} where topic = 'topic1' and {during}"

        connection = duckdb.connect()
        connection.register("log", log.to_dataset())
        answer = kafkalog.read_table(log.target, columns=["topic", "timestamp", *columns], filters=wanted)
        connection.register("answer", answer)
        session = datafusion.SessionContext()
        session.register_dataset("log", log.to_dataset())
        session.register_dataset("answer", pa.dataset.dataset(answer))

        def found_by_polars(dataset: pa.dataset.Dataset) -> pl.LazyFrame:
            one, other = pl.lit(first.as_py()), pl.lit(last.as_py())
            frame = pl.scan_pyarrow_dataset(dataset)
            return frame.filter(
                (pl.col("topic") == "topic1") & (pl.col("timestamp") >= one) & (pl.col("timestamp") < other)
            )

        def by_polars(dataset: pa.dataset.Dataset) -> int:
            return found_by_polars(dataset).select(columns).collect().height

        def count_by_polars(dataset: pa.dataset.Dataset) -> tuple[int, ...]:
            return found_by_polars(dataset).select(pl.len(), pl.col("offset").max()).collect().row(0)

        def count_by_filters() -> tuple[int, ...]:
            offsets = kafkalog.read_table(log.target, columns=["offset"], filters=filters).column(0)
            return len(offsets), pc.max(offsets).as_py()

        def count_by_datafusion(table: str) -> tuple[int, ...]:
            return tuple(column[0].as_py() for column in session.sql(count.format(table)).to_arrow_table().columns)

        ways: dict[str, Callable[[], object]] = {
            "filters": lambda: kafkalog.read_table(log.target, columns=columns, filters=filters).num_rows,
            "expression": lambda: kafkalog.read_table(log.target, columns=columns, filters=wanted).num_rows,
            "dataset": lambda: log.to_dataset().to_table(columns=columns, filter=wanted).num_rows,
            "duckdb": lambda: len(connection.sql(sql.format("log")).to_arrow_table()),
            "polars": lambda: by_polars(log.to_dataset()),
            "datafusion": lambda: session.sql(sql.format("log")).to_arrow_table().num_rows,
            "count by duckdb": lambda: connection.sql(count.format("log")).fetchall()[0],
            "count by polars": lambda: count_by_polars(log.to_dataset()),
            "count by datafusion": lambda: count_by_datafusion("log"),
        }
        # what the engine does with the same records in memory is its own part
        alone: dict[str, Callable[[], object]] = {
            "duckdb": lambda: len(connection.sql(sql.format("answer")).to_arrow_table()),
            "polars": lambda: by_polars(pa.dataset.dataset(answer)),
            "datafusion": lambda: session.sql(sql.format("answer")).to_arrow_table().num_rows,
            "count by duckdb": lambda: connection.sql(count.format("answer")).fetchall()[0],
            "count by polars": lambda: count_by_polars(pa.dataset.dataset(answer)),
            "count by datafusion": lambda: count_by_datafusion("answer"),
        }
        self.engine = alone.get(way, lambda: 0)
        is_count = way.startswith("count")
        self.ours, self.way = count_by_filters if is_count else ways["filters"], ways[way]
        self.scans = kafkalog.scan(path, columns=["offset"] if is_count else columns, filters=filters), log
        if self.ours() != self.way():
            raise AssertionError(f"{way} finds other records")

    def time_query(self, path: str, way: str) -> None:
        self.way()

    def spent(self) -> dict[str, float]:
        """CPU seconds of each call, taken in turns; the least of some rounds."""
        calls = {"ours": self.ours, "way": self.way, "engine": self.engine}
        spent: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                before = time.process_time()
                call()
                spent[name].append(time.process_time() - before)
        return {name: min(seconds) for name, seconds in spent.items()}

    def track_ratio(self, path: str, way: str) -> float:
        """CPU seconds over those of our own filters."""
        spent = self.spent()
        return spent["way"] / spent["ours"]

    track_ratio.unit = "engine / filters, CPU time"

    def track_ratio_without_engine(self, path: str, way: str) -> float:
        """The same without what the engine spends on a query of the same records in memory."""
        spent = self.spent()
        return (spent["way"] - spent["engine"]) / spent["ours"]

    track_ratio_without_engine.unit = "engine / filters, CPU time"

    def track_bytes_ratio(self, path: str, way: str) -> float:
        """Bytes of `.log` files read over those that our own filters read."""
        n_bytes = []
        for scan, call in zip(self.scans, (self.scans[0].to_table, self.way), strict=True):
            counts: list[int] = []
            scan.progress = counts.append
            call()
            scan.progress = None
            n_bytes.append(sum(counts))
        return n_bytes[1] / n_bytes[0] if way not in ("filters", "expression") else 1.0

    track_bytes_ratio.unit = "engine / filters, bytes read"
