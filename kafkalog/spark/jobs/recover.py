"""`kafkalog.recover` as a Spark job: executors read the segments, then write the copy of each partition."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Findings, KafkalogError, Limits
from kafkalog.log.log_dir import is_partition_directory
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.log.recovery import recover as recover_segment
from kafkalog.log.segment import Segment
from kafkalog.parsing import parse_milliseconds
from kafkalog.repair.placement import PartitionOutput, Placed, Placement
from kafkalog.repair.recovering.recover import RecoveryRun, finish_root, plan_recovery
from kafkalog.repair.recovering.report import RecoveredPartition, RecoveryReport
from kafkalog.repair.startup.load_plan import LoadPlan, RootOffsets
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.jobs.reindex import intervals_of
from kafkalog.spark.jobs.tables import (
    FILE_FIELDS,
    FOUND_FIELDS,
    PICKLED_RESULTS,
    PLACE_FIELDS,
    add_findings,
    batch_of,
    error_data,
    finding_rows,
    frame_of,
    run_now,
)
from kafkalog.spark.jobs.task_outputs import task_output, task_outputs
from kafkalog.spark.jobs.two_passes import two_passes
from kafkalog.storage.broker_lock import refuse_if_locked

SCHEMA: Final = pa.schema(
    [
        *PLACE_FIELDS,
        pa.field("error", pa.string()),
        pa.field("log_start_offset", pa.int64()),
        pa.field("log_end_offset", pa.int64()),
        pa.field("n_bytes", pa.int64()),
        pa.field("n_bytes_lost", pa.int64()),
        pa.field(
            "segments",
            pa.list_(
                pa.struct(
                    [
                        pa.field("name", pa.string()),
                        pa.field("base_offset", pa.int64()),
                        pa.field("action", pa.string()),
                        pa.field("n_bytes_before", pa.int64()),
                        pa.field("n_bytes", pa.int64()),
                    ]
                )
            ),
        ),
        pa.field("files", pa.list_(pa.struct(FILE_FIELDS))),
        *FOUND_FIELDS,
    ]
)


@dataclass(frozen=True, slots=True)
class _About:
    """What both passes have to know of a partition."""

    number: int
    interval: int
    """Its `index.interval.bytes`."""
    offsets: RootOffsets
    """The checkpointed offsets of this partition."""
    unflushed_from: int | None
    lone: frozenset[int]
    """See `LoadPlan`."""

    def reads(self, segment: Segment) -> bool:
        """Whether a segment is recovered."""
        start, base = self.unflushed_from, segment.base_offset
        return base in self.lone or (start is not None and start <= base < 2**63 - 1)


def recover(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    all_segments: bool = False,
    index_interval_bytes: int | None = None,
    now: int | datetime | None = None,
    task_bytes: int = 4 * TASK_BYTES,
    limits: Limits = DEFAULT_LIMITS,
    in_place: bool = False,
    backup: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Do what a broker's recovery does after a crash, into a copy; runs before it returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like
        A log dir, or a partition directory; must be the same on the driver and the executors.
    output : path-like, optional
        Directory to create with the recovered copy, on a file system that driver and executors share.
    dry_run, all_segments, index_interval_bytes, now, limits
        See `kafkalog.recover`, which also recovers in place.
    task_bytes : int
        About how many bytes of `.log` files a task reads; at least one segment.
    in_place, backup
        Not for a job, whose tasks would change a disk while no one process holds its lock: raises `ValueError`.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: path, topic, partition, error (why it could not be recovered), log_start_offset,
        log_end_offset, n_bytes, n_bytes_lost, segments (name, base_offset, action, n_bytes_before, n_bytes), files
        (path, kind, n_entries, n_bytes, change), findings, seconds.

    Raises
    ------
    KafkalogError
        See `kafkalog.recover`. The output does not appear.

    Notes
    -----
    The output has the same bytes as that of `kafkalog.recover`. A crash leaves it absent or complete.

    Examples
    --------
    >>> kafkalog.spark.recover(spark, "/backup/kafka", output="/new/kafka").show()  # doctest: +SKIP
    """
    if in_place or backup is not None:
        raise ValueError(
            "a job recovers into a copy (output=); in place, kafkalog.recover(path, in_place=True, backup=...) does it,"
            " on the machine that has the disk"
        )
    report, seconds = run_recover(
        spark, path, output=output, dry_run=dry_run, all_segments=all_segments,
        index_interval_bytes=index_interval_bytes, now=now, task_bytes=task_bytes, limits=limits,
    )  # fmt: skip
    rows = [_row(one, report, seconds.get(one.path, 0.0)) for one in report.partitions]
    return frame_of(spark, pa.Table.from_batches([batch_of(rows, SCHEMA)], SCHEMA))


def run_recover(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None,
    dry_run: bool,
    all_segments: bool,
    index_interval_bytes: int | None,
    now: int | datetime | None,
    task_bytes: int,
    limits: Limits,
) -> tuple[RecoveryReport, Mapping[str, float]]:
    """Recover as `recover` does; returns the report, and the seconds of the second pass by partition."""
    root = Path(path)
    placement = Placement(output, False, None, dry_run, None)
    is_partition = is_partition_directory(root)
    refuse_if_locked([root.absolute().parent if is_partition else root])
    now_ms = None if now is None else parse_milliseconds("now", now)
    report = RecoveryReport(is_written=not dry_run, findings=Findings(limits.max_findings))
    plans = plan_recovery(root, report, all_segments=all_segments, limits=limits)
    seconds: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        placed = placement.enter(stack, root, [plan.path for plan in plans])
        outputs = None if placed.staged is None else stack.enter_context(task_outputs(placed.staged))
        place = None if outputs is None else outputs.path
        intervals = intervals_of(spark, [plan.partition for plan in plans], index_interval_bytes, task_bytes, limits)
        heads = [
            (plan.partition, _about(number, plan, interval.n_bytes))
            for number, (plan, interval) in enumerate(zip(plans, intervals, strict=True))
        ]

        def of_segment(segment: Segment, about: _About) -> RecoveredSegment | None:
            if not about.reads(segment):
                return None
            try:
                return recover_segment(segment, about.interval, with_producers=True)
            except KafkalogError:
                return None  # the second pass reads it again, and decides what the error means for the partition

        def of_partition(
            partition: Partition, about: _About, found: list[RecoveredSegment | None]
        ) -> list[dict[str, Any]]:
            start = time.monotonic()
            try:
                # planned again in the task: a plan lists files, and would be large to send
                plan = LoadPlan(partition.path, about.offsets, ignores_recovery_point=all_segments, limits=limits)
                one = _recover(plan, about, found, place, index_interval_bytes, now_ms)
            except KafkalogError as error:
                return [{"number": about.number, "error": error_data(error)}]
            return [{"number": about.number, "data": pickle.dumps((one, time.monotonic() - start))}]

        table = run_now(two_passes(spark, heads, of_segment, of_partition, PICKLED_RESULTS, task_bytes=task_bytes))
        for data in table.sort_by("number")["data"]:
            one, taken = pickle.loads(data.as_py())
            report.partitions += one.partitions
            add_findings(report.findings, one.findings)
            seconds |= {row.path: taken for row in one.partitions}
        if outputs is not None:
            # tasks write a partition into a directory of its name, also where only one is named
            outputs.gather((str(number) for number in range(len(plans))), levels=2 if is_partition else 1)
        finish_root(root, placed, report)
    return report, seconds


def _about(number: int, plan: LoadPlan, interval: int) -> _About:
    key = plan.partition.topic_partition
    offsets = RootOffsets()
    if key is not None:
        # of this partition alone: a log dir may have thousands
        offsets = RootOffsets({key: plan.recovery_point}, {key: plan.negative_start or plan.log_start})
    return _About(number, interval, offsets, plan.unflushed_from, frozenset(plan.lone))


def _recover(
    plan: LoadPlan,
    about: _About,
    found: list[RecoveredSegment | None],
    staged: str | None,
    given: int | None,
    now_ms: int | None,
) -> RecoveryReport:
    """Recover one partition in a task, from what the first pass has read."""
    known = {
        segment.base_offset: one for segment, one in zip(plan.partition.segments, found, strict=True) if one is not None
    }

    def read(segment: Segment, interval: int, with_producers: bool) -> RecoveredSegment:
        # indexes depend on the interval: with another one the first pass does not count
        one = known.get(segment.base_offset) if interval == about.interval else None
        if one is None:
            return recover_segment(segment, interval, with_producers=with_producers)
        one.segment = segment
        return one

    report = RecoveryReport(findings=Findings(plan.partition.limits.max_findings))
    with contextlib.ExitStack() as stack:
        placed = Placed(plan.path.parent, is_partition=False, removes_last_first=True)
        if staged is not None:
            placed.staged = stack.enter_context(task_output(staged, str(about.number)))

        def make(plan: LoadPlan) -> PartitionOutput:
            return placed.partition(plan.path, plan.files.names)

        run = RecoveryRun(report, make, given, now_ms, plan.partition.limits, read)
        run.recover([plan], 1, lambda n_bytes: None, lambda row: None)
    return report


def _row(one: RecoveredPartition, report: RecoveryReport, seconds: float) -> dict[str, Any]:
    key: kf.TopicPartition | None = one.topic_partition
    directory = os.path.abspath(one.path)
    findings = [
        row
        for row in report.findings.rows
        if row.path is not None and directory in (os.path.abspath(row.path), os.path.dirname(os.path.abspath(row.path)))
    ]
    names = ("path", "error", "log_start_offset", "log_end_offset", "n_bytes", "n_bytes_lost", "segments", "files")
    return {
        **{name: value for name, value in one.as_dict().items() if name in names},
        "topic": None if key is None else key.topic,
        "partition": None if key is None else key.partition,
        "findings": finding_rows(findings),
        "seconds": seconds,
    }
