"""Spark on a log dir next to Spark on Parquet and Spark's own Kafka source, and next to what Spark can take at all.

    python asv_bench/spark_side_by_side.py > asv_bench/SPARK.md

All sides read the same records, take turns in one run, and the least seconds of each count. The ceiling is what the
same record batches take when they are made beforehand: `mapInArrow` that hands out Arrow out of a mapped file. A broker
on loopback serves the same segments to the Kafka source; its jars come as those of `tests/conformance` do; without
them, or without a JDK, that side is left out. stdout is the table, stderr the progress.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import spark_logs

import kafkalog.spark as jobs
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task
from kafkalog.spark import types

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "support")]

CEILING, SCAN, SOURCE, PARQUET, KAFKA = "ceiling", "scan job", "data source", "Parquet", "Kafka source"
SIDES = (CEILING, SCAN, SOURCE, PARQUET, KAFKA)
QUERIES = {
    "full scan to noop": types.KAFKA_COLUMNS,
    "count()": ("offset",),
    "groupBy(partition)": ("partition", "offset", "timestamp"),
}
TASK_BYTES = 2**25


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shapes", nargs="+", default=["B"], help="of records: see shapes.py (default: %(default)s)")
    parser.add_argument("--mib", type=int, default=32, help="of a segment, before compression (%(default)s)")
    parser.add_argument("--segments", type=int, default=8, help="(%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="of which the first is not counted (%(default)s)")
    parser.add_argument("--rebuild-segments", type=int, default=400, help="(%(default)s)")
    parser.add_argument("--rebuild-mib", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--no-kafka", action="store_true", help="leave the Kafka source out")
    chosen = parser.parse_args(arguments)
    given = " ".join(sys.argv[1:] if arguments is None else arguments)
    lines = [
        "# Spark on log dirs",
        "",
        f"    python asv_bench/spark_side_by_side.py {given}".rstrip(),
        "",
        f"- local[2] on {os.cpu_count()} processors, {platform.system()}, PySpark {_spark_version()}; page cache warm",
        f"- the least seconds of {chosen.rounds - 1} rounds in which all sides take turns, after one to warm up",
        "- ceiling: the same Arrow record batches, made beforehand, through `mapInArrow`",
        "- only the columns that a query needs are asked for: all seven, `offset`, and three",
        "",
    ]
    for shape in chosen.shapes:
        with tempfile.TemporaryDirectory(prefix="kafkalog-spark-") as folder, ExitStack() as stack:
            made = spark_logs.make(Path(folder, "logs"), shape, chosen.mib, chosen.partitions, chosen.segments)
            lines += _queries(made, Path(folder), stack, shape, chosen)
    with tempfile.TemporaryDirectory(prefix="kafkalog-spark-") as folder:
        lines += _rebuilds(Path(folder), chosen)
    print("\n".join(lines))
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _spark_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def _queries(made: spark_logs.Made, folder: Path, stack: ExitStack, shape: str, chosen: Any) -> list[str]:
    jars, server = "", ""
    if not chosen.no_kafka:
        try:
            jars, server = _serve(made, folder, chosen.partitions, stack)
        except BaseException as problem:
            if isinstance(problem, KeyboardInterrupt):
                raise
            say(f"without the Kafka source: {problem}")
    conf = {"spark.driver.memory": "2g"}
    if jars:
        conf["spark.jars"] = jars.replace(os.pathsep, ",")
    spark = spark_logs.start("local[2]", **conf)
    stack.callback(spark.stop)
    jobs.register(spark)
    say(f"{shape}: {made.n_records:,} records, {made.n_bytes >> 20} MiB; Parquet and Arrow of the same")
    jobs.export(spark, made.path, folder / "parquet", task_bytes=TASK_BYTES)
    tasks = plan(made.path, task_bytes=TASK_BYTES).tasks
    sides: dict[str, Callable[[tuple[str, ...]], Any]] = {
        CEILING: lambda columns: _premade(spark, folder, tasks, columns),
        SCAN: lambda columns: jobs.scan(spark, made.path, columns=columns, task_bytes=TASK_BYTES),
        SOURCE: lambda columns: (
            spark.read.format("kafkalog")
            .option("taskBytes", TASK_BYTES)
            .schema(types.spark_schema(columns))
            .load(str(made.path))
        ),
        PARQUET: lambda columns: spark.read.parquet(str(folder / "parquet")),
    }
    if server:
        sides[KAFKA] = lambda columns: (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", server)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .option("minPartitions", len(tasks))
            .load()
        )
    for columns in QUERIES.values():
        _premade(spark, folder, tasks, columns)
    best: dict[tuple[str, str], float] = {}
    for number in range(chosen.rounds):
        say(f"{shape}: round {number + 1} of {chosen.rounds}")
        for query, columns in QUERIES.items():
            for side, read in sides.items():
                start = time.monotonic()
                n = _ask(read(columns), query)
                seconds = time.monotonic() - start
                if n is not None and n != made.n_records:
                    raise AssertionError(f"{side} counts {n} records, not {made.n_records}")
                if number:
                    best[query, side] = min(best.get((query, side), seconds), seconds)
    title = f"## {made.n_records:,} records of shape {shape}, {made.n_bytes / 2**20:.0f} MiB, {len(tasks)} tasks"
    rows = []
    for query in QUERIES:
        row = [query]
        for side in SIDES:
            seconds = best.get((query, side))
            row.append("" if seconds is None else f"{seconds:.2f} s, {made.n_records / seconds / 1e6:.2f} M/s")
        ours = best[query, SCAN]
        row.append(f"{ours / best[query, CEILING]:.2f}")
        kafka = best.get((query, KAFKA))
        row.append("" if kafka is None else f"{kafka / ours:.1f}")
        row.append("" if kafka is None else f"{kafka / best[query, SOURCE]:.1f}")
        row.append(f"{best[query, PARQUET] / ours:.2f}")
        rows.append(row)
    heading = ["query", *SIDES, "scan job / ceiling", "times as fast as Kafka's", "data source, too", "as Parquet"]
    return [
        title,
        "",
        *_table(heading, rows),
        "",
        "Aims: scan job / ceiling at most 1.3, 3 times as fast as Kafka's.",
        "",
    ]


def _ask(frame: Any, query: str) -> int | None:
    from pyspark.sql import functions

    if query == "count()":
        return int(frame.count())
    if query == "groupBy(partition)":
        rows = frame.groupBy("partition").agg(
            functions.max("offset").alias("last"), functions.min("timestamp"), functions.count("*").alias("n")
        )
        return sum(row.n for row in rows.collect())
    frame.write.format("noop").mode("overwrite").save()
    return None


def _premade(spark: Any, folder: Path, tasks: Sequence[Any], columns: tuple[str, ...]) -> Any:
    """A DataFrame of the record batches that a scan makes, out of files."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = types.arrow_schema(columns)
    home = folder / f"premade-{len(columns)}"
    if not home.exists():
        home.mkdir()
        for number, task in enumerate(tasks):
            with pa.OSFile(str(home / f"{number}.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                for batch in read_task(task, columns=types.record_columns(columns)):
                    for part in types.split(types.to_spark(batch, schema)):
                        writer.write_batch(part)
    place = str(home)

    def work(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows:
            for number in row.column(0).to_pylist():
                with pa.memory_map(f"{place}/{number}.arrow") as file:
                    reader = pa.ipc.open_file(file)
                    for at in range(reader.num_record_batches):
                        yield reader.get_batch(at)

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(work, from_arrow_schema(schema))


def _serve(made: spark_logs.Made, folder: Path, n_partitions: int, stack: ExitStack) -> tuple[str, str]:
    """Jars of the Kafka source, and the address of a broker that has the same segments."""
    from conformance.jars import java, spark_connector
    from conformance.kafka import Broker, Client

    home = folder / "broker"
    home.mkdir()
    say("a broker that serves the same segments")
    broker = Broker(home, **{"log.retention.ms": -1, "num.recovery.threads.per.data.dir": 2})
    stack.callback(lambda: broker.is_running and broker.stop())
    client = stack.enter_context(Client(home))
    broker.start()
    client.server = broker.address
    topic = {"name": "orders", "partitions": n_partitions, "configs": {"retention.ms": "-1"}}
    client.ask("create", topics=[topic])
    broker.stop()
    for number in range(n_partitions):
        there = broker.log_dir / f"orders-{number}"
        for path in (made.path / there.name).iterdir():
            shutil.copyfile(path, there / path.name)
    broker.start()
    client.server = broker.address
    client.ask("ready")
    return spark_connector(java()), broker.address


def _rebuilds(folder: Path, chosen: Any) -> list[str]:
    """A rebuild with one core and with two, in sessions that take turns."""
    made = spark_logs.make(folder / "logs", "B", chosen.rebuild_mib, 40, chosen.rebuild_segments)
    best: dict[str, float] = {}
    for number in range(2):
        for master in ("local[1]", "local[2]"):
            say(f"rebuild of {made.n_segments} segments, {master}")
            spark = spark_logs.start(master)
            try:
                jobs.reindex(spark, made.path / "orders-0", dry_run=True)
                start = time.monotonic()
                jobs.reindex(spark, made.path, output=folder / f"out-{number}-{master}", task_bytes=TASK_BYTES)
                seconds = time.monotonic() - start
            finally:
                spark.stop()
            best[master] = min(best.get(master, seconds), seconds)
    size = made.n_bytes / 2**20
    rows = [[master, f"{seconds:.1f}", f"{size / seconds:.0f}"] for master, seconds in best.items()]
    rows.append(["ratio", f"{best['local[1]'] / best['local[2]']:.2f}", ""])
    title = f"## Rebuild of {made.n_segments} segments over 40 partitions, {size:.0f} MiB"
    return [title, "", *_table(["master", "seconds", "MiB/s"], rows), ""]


def _table(heading: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heading, ["---", *["---:"] * (len(heading) - 1)], *rows)]


if __name__ == "__main__":
    sys.exit(main())
