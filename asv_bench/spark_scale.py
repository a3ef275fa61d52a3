"""Spark jobs over many segments: do driver and workers stay small, and do tasks follow bytes, not files?

    python asv_bench/spark_scale.py >> asv_bench/SPARK.md

Makes a log dir of 400 segments (at least 2 GiB) over 40 partitions in a temporary directory, and verifies, rebuilds
and exports it, twice: in tasks of a size, and of four times that. Fails if a result is wrong, a Python worker takes
over 512 MiB, the driver grows by more than 64 MiB, or there are more tasks than bytes ask for.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import spark_logs

import kafkalog.spark as jobs

WORKER_BYTES = 512 * 2**20
DRIVER_GROWTH = 64 * 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", type=int, default=400, help="(%(default)s)")
    parser.add_argument("--partitions", type=int, default=40, help="(%(default)s)")
    parser.add_argument("--mib", type=int, default=6, help="of a segment, before compression (%(default)s)")
    parser.add_argument("--shape", default="B", help="of records: see shapes.py (%(default)s)")
    parser.add_argument("--master", default="local[2]", help="(%(default)s)")
    parser.add_argument("--task-mib", type=int, default=64, help="bytes a task (%(default)s)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kafkalog-scale-") as folder:
        made = spark_logs.make(Path(folder, "logs"), chosen.shape, chosen.mib, chosen.partitions, chosen.segments)
        spark = spark_logs.start(chosen.master, **{"spark.driver.memory": "768m"})
        try:
            problems = run(spark, made, Path(folder), chosen.task_mib << 20, chosen.partitions)
        finally:
            spark.stop()
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def run(
    spark: Any,
    made: spark_logs.Made,
    folder: Path,
    task_bytes: int,
    n_partitions: int,
    factors: Sequence[int] = (1, 4),
) -> list[str]:
    """Do all jobs, in tasks of so many times a size; what was wrong."""
    print(f"\n## {made.n_segments} segments over {n_partitions} partitions, {made.n_bytes / 2**30:.2f} GiB,", end=" ")
    print(f"{made.n_records:,} records; {spark.sparkContext.master}\n")
    print("Memory is resident memory at its peak. Tasks are those of all passes of a job.\n")
    print("| job | MiB a task | tasks | seconds | MiB/s | driver MiB | grown by | JVM MiB | largest worker MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    problems: list[str] = []
    jobs.verify(spark, made.path / "orders-0")  # starts workers
    for factor in factors:
        size = factor * task_bytes
        out = folder / f"export-{factor}"
        steps: dict[str, Callable[[], Any]] = {
            "verify": lambda size=size: jobs.verify(spark, made.path, task_bytes=size),
            "rebuild": lambda size=size, factor=factor: jobs.reindex(
                spark, made.path, output=folder / f"indexes-{factor}", task_bytes=size
            ),
            "export": lambda size=size, out=out: jobs.export(
                spark, made.path, out, partition_by=["topic", "partition"], task_bytes=size
            ),
        }
        for name, step in steps.items():
            n_tasks, seconds, memory, rows, grown = measure(spark, f"{name}-{factor}", step)
            figures = [memory.driver, grown, memory.jvm, memory.worker]
            print(
                f"| {name} | {size >> 20} | {n_tasks} | {seconds:.1f} | {made.n_bytes / 2**20 / seconds:.0f} | "
                + " | ".join(f"{figure / 2**20:.0f}" for figure in figures)
                + " |",
                flush=True,
            )
            if memory.worker > WORKER_BYTES:
                problems.append(f"{name}: a worker took {memory.worker >> 20} MiB")
            if grown > DRIVER_GROWTH:
                problems.append(f"{name}: the driver grew by {grown >> 20} MiB")
            # segments, partitions, and the settings of partitions
            most = 3 * (made.n_bytes // size + 2) + 16
            if not 0 < n_tasks <= most:
                problems.append(f"{name}: {n_tasks} tasks for {made.n_bytes // size} times the bytes of one")
            problems += check(name, rows, made, folder, factor)
    return problems


def measure(spark: Any, group: str, step: Callable[[], Any]) -> tuple[int, float, spark_logs.Memory, list[Any], int]:
    """Tasks, seconds, peaks of memory, rows, and by how much the driver has grown."""
    gc.collect()
    context = spark.sparkContext
    context.setJobGroup(group, group)
    before = spark_logs._resident(os.getpid(), "VmRSS")
    start = time.monotonic()
    with spark_logs.Memory(spark) as memory:
        frame = step()
    seconds = time.monotonic() - start
    tracker = context.statusTracker()
    n_tasks = 0
    for job in tracker.getJobIdsForGroup(group):
        for stage in tracker.getJobInfo(job).stageIds:
            found = tracker.getStageInfo(stage)
            n_tasks += found.numCompletedTasks if found is not None else 0
    return n_tasks, seconds, memory, frame.collect(), max(memory.driver - before, 0)


def check(name: str, rows: list[Any], made: spark_logs.Made, folder: Path, factor: int) -> list[str]:
    """Whether a job did what it should."""
    if name == "verify":
        segments = [row for row in rows if row.kind == "segment"]
        if len(segments) != made.n_segments:
            return [f"verify: {len(segments)} segments, not {made.n_segments}"]
        return [f"{row.path}: {row.findings[:1]}" for row in segments if not row.ok][:3]
    if name == "export":
        n = sum(row.n_records for row in rows)
        return [] if n == made.n_records else [f"export: {n} records, not {made.n_records}"]
    out = folder / f"indexes-{factor}"
    wrong = [
        path
        for path in made.path.rglob("*.index")
        if path.read_bytes() != (out / path.relative_to(made.path)).read_bytes()
    ]
    return [f"{wrong[0]} was rebuilt otherwise, and {len(wrong) - 1} more"] if wrong else []


if __name__ == "__main__":
    sys.exit(main())
