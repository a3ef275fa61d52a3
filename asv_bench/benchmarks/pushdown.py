"""Datasets: what a query of an engine costs beside the same filters in a scan, by CPU seconds and by bytes read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import shapes

import kafkalog

from .common import CpuTimed

N_TOPICS, N_RECORDS = 4, 1_000_000
HOUR = 3_600_000
START = 1_700_000_000_000
ROUNDS = 7


def make_log(path: Path) -> str:
    """Topics of two days each."""
    if not path.exists():
        path.mkdir(parents=True)
        stamps = START + np.arange(N_RECORDS) * (48 * HOUR // N_RECORDS)
        keys = pc.binary_join_element_wise("user-", pa.array(np.arange(N_RECORDS) % 5000).cast(pa.string()), "")
        value = pa.array([b"a value of an order, as long as this text is"]).take(pa.array(np.zeros(N_RECORDS, int)))
        for number in range(N_TOPICS):
            table = pa.table({"key": keys.cast(pa.binary()), "value": value, "timestamp": pa.array(stamps)})
            with kafkalog.PartitionWriter(path / f"topic{number}-0", config=kafkalog.LogConfig()) as writer:
                writer.append(table)
    return str(path)


class Pushdown(CpuTimed):
    """One topic, one hour, in ways to ask for it."""

    params = (["filters", "expression", "dataset", "duckdb", "polars"],)
    param_names = ("way",)

    def setup_cache(self) -> str:
        return make_log(shapes.cache_dir() / f"pushdown-{N_TOPICS}-{N_RECORDS}")

    setup_cache.timeout = 600

    def setup(self, path: str, way: str) -> None:
        first, last = (pa.scalar(START + n * HOUR, pa.timestamp("ms", "UTC")) for n in (40, 41))
        field = pc.field
        wanted = (field("topic") == "topic1") & (field("timestamp") >= first) & (field("timestamp") < last)
        filters = [("topic", "==", "topic1"), ("timestamp", ">=", first.as_py()), ("timestamp", "<", last.as_py())]
        columns = ["offset", "key", "value"]
        log = kafkalog.scan(path)
        during = f"timestamp >= '{first.as_py()}' and timestamp < '{last.as_py()}'"
        sql = f"select \"offset\", key, value from log where topic = 'topic1' and {during}"

        connection = duckdb.connect()
        connection.register("log", log.to_dataset())

        def by_polars() -> int:
            one, other = pl.lit(first.as_py()), pl.lit(last.as_py())
            frame = pl.scan_pyarrow_dataset(log.to_dataset())
            found = frame.filter(
                (pl.col("topic") == "topic1") & (pl.col("timestamp") >= one) & (pl.col("timestamp") < other)
            )
            return found.select(columns).collect().height

        ways: dict[str, Callable[[], int]] = {
            "filters": lambda: kafkalog.read_table(log.target, columns=columns, filters=filters).num_rows,
            "expression": lambda: kafkalog.read_table(log.target, columns=columns, filters=wanted).num_rows,
            "dataset": lambda: log.to_dataset().to_table(columns=columns, filter=wanted).num_rows,
            "duckdb": lambda: len(connection.sql(sql).to_arrow_table()),
            "polars": by_polars,
        }
        self.ours, self.way = ways["filters"], ways[way]
        if self.ours() != self.way():
            raise AssertionError(f"{way} finds other records")

    def time_query(self, path: str, way: str) -> None:
        self.way()

    def track_ratio(self, path: str, way: str) -> float:
        """CPU seconds over those of our own filters; the least of some rounds of each, in turns."""
        spent: dict[str, list[float]] = {"ours": [], "way": []}
        for _ in range(ROUNDS):
            for name, call in (("ours", self.ours), ("way", self.way)):
                before = time.process_time()
                call()
                spent[name].append(time.process_time() - before)
        return min(spent["way"]) / min(spent["ours"])

    track_ratio.unit = "x"
