"""Spark where clusters end: 10,000 partitions, and one partition with 60 % of the bytes.

    python asv_bench/spark_limits.py

The first table has the peak of resident memory of each process; the driver's heap has 512 MiB. The second table
compares the longest task with the median.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import spark_logs

import kafkalog
import kafkalog.spark as jobs

N_PARTITIONS = 10_000


def main() -> int:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="kafkalog-limits-") as folder:
        many, skewed = Path(folder, "many"), Path(folder, "skewed")
        make_many(many)
        spark_logs.make(skewed, "B", 16, 1, 30, topic="large")
        spark_logs.make(skewed, "B", 16, 20, 20, topic="small")
        ui = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
        spark = spark_logs.start("local[2]", **{"spark.driver.memory": "512m"}, **ui)
        try:
            jobs.register(spark)
            print(f"## {N_PARTITIONS:,} partitions\n")
            print("| query | seconds | driver's Python MiB | JVM MiB | largest worker MiB |\n|---|---:|---:|---:|---:|")
            for name, step in steps(spark, many, Path(folder, "many-out")).items():
                start = time.monotonic()
                with spark_logs.Memory(spark) as memory:
                    step()
                figures = [one >> 20 for one in (memory.driver, memory.jvm, memory.worker)]
                print(f"| {name} | {time.monotonic() - start:.0f} | {' | '.join(map(str, figures))} |", flush=True)
            print("\n## One partition with 60 % of the bytes\n")
            print("| query | tasks | median s | longest s | longest / median |\n|---|---:|---:|---:|---:|")
            known = {one["stageId"] for one in stages(spark)}
            for name, step in steps(spark, skewed, Path(folder, "skewed-out")).items():
                step()
                new = [one for one in stages(spark) if one["stageId"] not in known]
                known |= {one["stageId"] for one in new}
                tasks = max((stages(spark, f"/{one['stageId']}/{one['attemptId']}/taskList") for one in new), key=len)
                taken = [task["duration"] / 1000 for task in tasks]
                middle, most = statistics.median(taken), max(taken)
                print(f"| {name} | {len(taken)} | {middle:.2f} | {most:.2f} | {most / middle:.1f} |", flush=True)
        finally:
            spark.stop()
    return 0


def make_many(root: Path) -> None:
    """Make partitions of 50 records each, all of them links to the files of one."""
    first = root / "orders-0"
    kafkalog.write_table(pa.table({"topic": ["orders"] * 50, "value": [b"x" * 200] * 50}), root)
    for number in range(1, N_PARTITIONS):
        directory = root / f"orders-{number}"
        directory.mkdir()
        for path in first.iterdir():
            os.link(path, directory / path.name)


def steps(spark: Any, path: Path, out: Path) -> dict[str, Callable[[], Any]]:
    """The queries; each reads everything."""

    def read(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    return {
        "data source": lambda: read(spark.read.format("kafkalog").load(str(path))),
        "scan": lambda: read(jobs.scan(spark, path)),
        "verify": lambda: jobs.verify(spark, path),
        "export": lambda: jobs.export(spark, path, out),
    }


def stages(spark: Any, more: str = "") -> list[Any]:
    """The stages, or the tasks of one, from Spark's REST API."""
    port = spark.sparkContext.uiWebUrl.rpartition(":")[2]
    url = f"http://127.0.0.1:{port}/api/v1/applications/{spark.sparkContext.applicationId}/stages{more}?length=100000"
    found: list[Any] = json.load(urllib.request.urlopen(url))
    return found


if __name__ == "__main__":
    sys.exit(main())
