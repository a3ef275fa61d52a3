"""The export job to a table, next to Spark that reads or copies Parquet of the same disk, and to its Kafka source.

    python asv_bench/spark_to_table.py --mib 64 >> asv_bench/SPARK.md

All sides but the one that only reads write the same columns of the same records as Parquet with zstd. They take turns
in one run, and the least seconds of each count. The job also writes a Delta and an Iceberg table. stdout is a table
for SPARK.md, stderr the progress.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import spark_logs
from spark_side_by_side import TASK_BYTES, _serve, say

import kafkalog.spark as jobs
from kafkalog.spark import types

JOB, DELTA, ICEBERG, KAFKA = "export job", "to Delta", "to Iceberg", "Kafka source"
READ, COPY = "Parquet, read only", "copy of Parquet"
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", default="B", help="of records: see shapes.py (default: %(default)s)")
    parser.add_argument("--mib", type=int, default=32, help="of a segment, before compression (%(default)s)")
    parser.add_argument("--segments", type=int, default=8, help="(%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="of which the first is not counted (%(default)s)")
    parser.add_argument("--no-kafka", action="store_true", help="leave the Kafka source out")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kafkalog-spark-") as folder, ExitStack() as stack:
        made = spark_logs.make(Path(folder, "logs"), chosen.shape, chosen.mib, chosen.partitions, chosen.segments)
        jars, server = ("", "") if chosen.no_kafka else _serve(made, Path(folder), chosen.partitions, stack)
        conf = {"spark.driver.memory": "2g", "spark.sql.parquet.compression.codec": "zstd"}
        if jars:
            conf["spark.jars"] = jars.replace(os.pathsep, ",")
        spark = spark_logs.start("local[2]", **conf)
        stack.callback(spark.stop)
        best = _best(_sides(spark, made.path, Path(folder), server), Path(folder), chosen.rounds)
    size = f"{made.n_records:,} records of shape {chosen.shape}, {made.n_bytes / 2**20:.0f} MiB"
    print(f"\n## A log to a table: {size}\n\n| side | seconds | M records/s | of the job |\n|---|---:|---:|---:|")
    for side, seconds in best.items():
        print(f"| {side} | {seconds:.2f} | {made.n_records / seconds / 1e6:.2f} | {seconds / best[JOB]:.2f} |")
    return 0


def _sides(spark: Any, log: Path, folder: Path, server: str) -> dict[str, Callable[[Path], Any]]:
    """What each side does to write a table below a folder."""
    jobs.export(spark, log, folder / "parquet", columns=COLUMNS, task_bytes=TASK_BYTES)

    def job(to: Any, **options: Any) -> None:
        jobs.export(spark, log, to, columns=COLUMNS, task_bytes=TASK_BYTES, resume=True, **options)

    def parquet() -> Any:
        return spark.read.parquet(str(folder / "parquet"))

    def iceberg(folder: Path) -> None:
        import pyiceberg.catalog
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir()
        catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        pyiceberg.catalog.load_catalog = lambda name: catalog
        job("lake.kafka.orders", format="iceberg")

    sides: dict[str, Callable[[Path], Any]] = {
        JOB: job,
        DELTA: lambda to: job(to, format="delta"),
        ICEBERG: iceberg,
        READ: lambda to: parquet().write.format("noop").mode("overwrite").save(),
        COPY: lambda to: parquet().write.parquet(str(to)),
    }
    if server:
        frame = spark.read.format("kafka").option("kafka.bootstrap.servers", server).option("subscribe", "orders")
        frame = frame.option("minPartitions", 8)
        sides[KAFKA] = lambda to: frame.load().select(*COLUMNS).write.parquet(str(to))
    assert set(COLUMNS) <= set(types.KAFKA_COLUMNS)
    return sides


def _best(sides: dict[str, Callable[[Path], Any]], folder: Path, n_rounds: int) -> dict[str, float]:
    """The least seconds of each side, which take turns."""
    best: dict[str, float] = {}
    for number in range(n_rounds):
        say(f"round {number + 1} of {n_rounds}")
        for side, write in sides.items():
            start = time.monotonic()
            write(folder / "out")
            seconds = time.monotonic() - start
            shutil.rmtree(folder / "out", ignore_errors=True)  # of what only reads there is none
            if number:
                best[side] = min(best.get(side, seconds), seconds)
    return best


if __name__ == "__main__":
    sys.exit(main())
