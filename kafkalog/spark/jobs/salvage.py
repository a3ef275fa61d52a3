"""`kafkalog.salvage` as a Spark job: a task per partition, and the report on the driver."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Findings, KafkalogError, Limits
from kafkalog.log.partition import Partition
from kafkalog.repair.salvaging.report import SalvagedPartition, SalvageReport
from kafkalog.repair.salvaging.salvage import begin_salvage, finish_output, salvage_partition
from kafkalog.scanning.ordered_pool import OrderedPool
from kafkalog.spark.jobs.tables import (
    FOUND_FIELDS,
    PICKLED_RESULTS,
    PLACE_FIELDS,
    add_findings,
    batch_of,
    error_data,
    finding_rows,
    frame_of,
    map_tasks,
    run_now,
)
from kafkalog.spark.jobs.task_outputs import task_output, task_outputs
from kafkalog.storage.staging import StagedDirectory, staged_directory

_SUMS: Final = (
    "size_in_bytes", "n_bytes_kept", "n_bytes_lost", "n_bytes_padding", "n_bytes_suspect", "n_batches_kept",
    "n_batches_suspect", "n_batches_undecodable", "n_records_kept",
)  # fmt: skip
SCHEMA: Final = pa.schema(
    [
        *PLACE_FIELDS,
        pa.field("ok", pa.bool_()),
        pa.field("output", pa.string()),
        pa.field("quarantine", pa.string()),
        pa.field("start_offset", pa.int64()),
        pa.field("end_offset", pa.int64()),
        *(pa.field(name, pa.int64()) for name in _SUMS),
        pa.field("n_lost", pa.int64()),
        *FOUND_FIELDS,
    ]
)


def salvage(
    spark: SparkSession,
    path: Any,
    *,
    output: str | os.PathLike[str] | None = None,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    records: bool = False,
    dry_run: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> DataFrame:
    """Save every intact record batch of damaged logs, a task per partition; runs before it returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        Must be the same on the driver and the executors.
    output : path-like, optional
        The directory to create, on a file system that driver and executors share. Not needed for a dry run.
    topics, partitions, records, dry_run, limits
        See `kafkalog.salvage`.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: path, topic, partition, ok (nothing is lost), output, quarantine, start_offset,
        end_offset, the sums over its segments (size_in_bytes, n_bytes_kept, n_bytes_lost, n_bytes_padding,
        n_bytes_suspect, n_batches_kept, n_batches_suspect, n_batches_undecodable, n_records_kept), n_lost (holes),
        findings, seconds. A last row without a path has the findings about no partition, if there are any.
        `salvage.json` in the output has the rest.

    Raises
    ------
    KafkalogError
        See `kafkalog.salvage`. The output does not appear.

    Notes
    -----
    The output has the same bytes as that of `kafkalog.salvage`. A crash leaves it absent or complete.

    Examples
    --------
    >>> kafkalog.spark.salvage(spark, "/mnt/disk/kafka", output="/new/salvaged").show()  # doctest: +SKIP
    """
    report, of_tasks = run_salvage(
        spark, path, output=output, topics=topics, partitions=partitions, records=records, dry_run=dry_run,
        limits=limits,
    )  # fmt: skip
    rows = [_row(one, report, *of_task) for one, of_task in zip(report.partitions, of_tasks, strict=True)]
    told = sum(len(findings.rows) for findings, _ in of_tasks)
    if others := report.findings.rows[: max(len(report.findings.rows) - told, 0)]:
        rows.append({"ok": not any(one.damage for one in others), "findings": finding_rows(others), "seconds": 0.0})
    return frame_of(spark, pa.Table.from_batches([batch_of(rows, SCHEMA)], SCHEMA))


def run_salvage(
    spark: SparkSession,
    path: Any,
    *,
    output: Any,
    topics: Any,
    partitions: Any,
    records: bool,
    dry_run: bool,
    limits: Limits,
) -> tuple[SalvageReport, list[tuple[Findings, float]]]:
    """Salvage as `salvage` does; returns the report, and the findings and the seconds of each partition."""
    report = SalvageReport(is_written=not dry_run)
    opened, chosen, target = begin_salvage(
        path, report, output=output, topics=topics, partitions=partitions, limits=limits
    )
    if not chosen:
        return report, []
    with contextlib.ExitStack() as stack:
        staged = None if dry_run else stack.enter_context(staged_directory(target))
        outputs = None if staged is None else stack.enter_context(task_outputs(staged))
        place = None if outputs is None else outputs.path

        def work(task: tuple[int, Partition, frozenset[int] | None]) -> Iterator[pa.RecordBatch]:
            row: dict[str, Any] = {"number": task[0]}
            try:
                row["data"] = pickle.dumps(_salvage(*task, target=target, staged=place, records=records, limits=limits))
            except KafkalogError as error:
                row["error"] = error_data(error)
            yield batch_of([row], PICKLED_RESULTS)

        tasks = [(number, partition, only) for number, (partition, only) in enumerate(chosen)]
        table = run_now(map_tasks(spark, tasks, work, PICKLED_RESULTS)).sort_by("number")
        starts: dict[kf.TopicPartition, int] = {}
        of_tasks = []
        for (partition, _), data in zip(chosen, table["data"], strict=True):
            salvaged, start, findings, taken = pickle.loads(data.as_py())
            report.partitions.append(salvaged)
            add_findings(report.findings, findings)
            of_tasks.append((findings, taken))
            if start is not None and partition.topic_partition is not None:
                starts[partition.topic_partition] = start
        if staged is not None and outputs is not None:
            outputs.gather(str(number) for number in range(len(tasks)))
            finish_output(staged, report, opened, starts)
    return report, of_tasks


def _salvage(
    number: int,
    partition: Partition,
    only: frozenset[int] | None,
    *,
    target: Path,
    staged: str | None,
    records: bool,
    limits: Limits,
) -> tuple[SalvagedPartition, int | None, Findings, float]:
    """Salvage one partition in a task."""
    begin = time.monotonic()
    findings = Findings(DEFAULT_LIMITS.max_findings)
    with contextlib.ExitStack() as stack:
        # no threads: Spark gives a task one core
        pool = stack.enter_context(OrderedPool(0, "kafkalog-salvage"))
        directory: StagedDirectory | None = (
            None if staged is None else stack.enter_context(task_output(staged, str(number)))
        )
        salvaged, start = salvage_partition(
            partition, only, target, directory, pool, records=records, note=findings.add, limits=limits
        )
    return salvaged, start, findings, time.monotonic() - begin


def _row(one: SalvagedPartition, report: SalvageReport, findings: Findings, seconds: float) -> dict[str, Any]:
    parsed = kf.parse_partition_directory(os.path.basename(os.path.abspath(one.path)))
    key = None if parsed is None else parsed.topic_partition
    return {
        "path": one.path,
        "topic": None if key is None else key.topic,
        "partition": None if key is None else key.partition,
        "ok": not findings.n_damage,
        "output": one.output if report.is_written else None,
        "quarantine": one.quarantine if report.is_written else None,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        **{name: one.total(name) for name in _SUMS},
        "n_lost": len(one.lost) + one.n_more_lost,
        "findings": finding_rows(findings.rows),
        "seconds": seconds,
    }
