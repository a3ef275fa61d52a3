"""`kafkalog.verify` as a Spark job: executors check each segment, then each partition across its segments.

The first of `two_passes` checks checksums and indexes. The second checks what needs the segments of a partition in
order: transaction indexes, leader epochs, snapshots.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog import format as kf
from kafkalog.errors import Finding, Limits
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.verifying.report import VerifiedPartition, VerifiedSegment
from kafkalog.operations.verifying.segment import SegmentCheck
from kafkalog.operations.verifying.verify import partitions_to_verify, verified_partition
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.jobs.finished_tasks import FinishedTasks, key_of
from kafkalog.spark.jobs.tables import (
    FOUND_FIELDS,
    MAX_FINDINGS,
    PLACE_FIELDS,
    batch_of,
    finding_rows,
    frame_of,
    run_now,
)
from kafkalog.spark.jobs.two_passes import two_passes
from kafkalog.survey.evidence import LogDirState

_GAP: Final = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("is_compacted", pa.bool_())])
_LOST: Final = pa.struct(
    [
        ("n_findings", pa.int64()),
        ("n_records", pa.int64()),
        ("certainty", pa.string()),
        ("n_unknown", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
    ]
)
SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        *PLACE_FIELDS,
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        pa.field("n_batches", pa.int64()),
        pa.field("ok", pa.bool_()),
        pa.field("n_damage", pa.int64()),
        pa.field("lost", _LOST),
        pa.field("gaps", pa.list_(_GAP)),
        *FOUND_FIELDS,
    ]
)

_SIDECARS: Final = (kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX)


def verify(
    spark: SparkSession,
    path: Any,
    *,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    indexes_only: bool = False,
    deep: bool = False,
    index_interval_bytes: int | None = None,
    task_bytes: int = 4 * TASK_BYTES,
    work_dir: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
) -> DataFrame:
    """Verify log dirs; the job runs before this returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        Must be the same on the driver and the executors.
    topics, partitions, indexes_only, deep, index_interval_bytes
        See `kafkalog.verify`.
    task_bytes : int
        About how many bytes of `.log` files a task checks; at least one segment.
    work_dir : path-like, optional
        A directory to make, shared with the executors, for the results of finished tasks. A job that failed or was
        killed then resumes when it is run again. Removed when the job has succeeded. Default: write nothing.
    limits : Limits, optional
        `max_findings` are kept for each segment, by default 100; further ones are only counted.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each segment (`kind` is "segment"), for each partition ("partition": `ok` is about the whole
        partition, the findings are about its other files), and one for the log dirs ("log_dir"): kind, path, topic,
        partition, base_offset, last_offset, size_in_bytes, n_batches, ok, n_damage, lost (of
        a partition: the fields of `kafkalog.Loss`), gaps (of a partition, between segments: start, end,
        is_compacted), findings (of reason, detail, path, position, length,
        base_offset, last_offset, damage), seconds.

    Raises
    ------
    NotKafkaError, ReadError
        There is nothing to verify. A file inside that cannot be read is a finding.

    Examples
    --------
    >>> kafkalog.spark.verify(spark, "/backup/kafka").where("not ok").show()  # doctest: +SKIP
    """
    if indexes_only and deep:
        raise ValueError("deep decodes records, indexes_only does not even compute checksums: choose one")
    if limits is None:
        limits = Limits(max_findings=MAX_FINDINGS)
    found: list[Finding] = []
    chosen = partitions_to_verify(path, topics, partitions, limits, found)
    check = SegmentCheck(
        crcs=not indexes_only,
        deep=deep,
        interval_bytes=index_interval_bytes,
        limits=limits,
        progress=lambda n_bytes: None,
    )
    options = (indexes_only, deep, index_interval_bytes, limits)
    with contextlib.ExitStack() as stack:
        finished = None
        if work_dir is not None:
            finished = FinishedTasks(os.path.realpath(work_dir))
            stack.enter_context(finished.held())

        def of_segment(segment: Segment, around: LogDirState) -> tuple[VerifiedSegment, float]:
            return _check(segment, around, check, finished, options)

        def of_partition(partition: Partition, around: LogDirState, found: list[Any]) -> list[dict[str, Any]]:
            start = time.monotonic()
            segments = [segment for segment, _ in found]
            verified = verified_partition(partition, segments, around, indexes_only=indexes_only, limits=limits)
            return list(_rows(verified, [*(taken for _, taken in found), time.monotonic() - start]))

        heads = [(one, LogDirState.of(one)) for one in chosen]
        table = run_now(two_passes(spark, heads, of_segment, of_partition, SCHEMA, task_bytes=task_bytes))
    table = table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("path", "ascending")])
    root = batch_of([_row("log_dir", None, None, None, found, 0, 0.0)], SCHEMA)
    return frame_of(spark, pa.Table.from_batches([*table.to_batches(), root], SCHEMA))


def _check(
    segment: Segment, around: LogDirState, check: SegmentCheck, finished: FinishedTasks | None, options: tuple[Any, ...]
) -> tuple[VerifiedSegment, float]:
    """Return the result of a segment and the seconds it took, from the finished tasks if an earlier run checked it."""
    key = ""
    if finished is not None:
        files = [str(segment.sidecar_path(suffix)) for suffix in _SIDECARS]
        # whether it is the last segment decides what a torn tail means
        key = key_of("verify", options, segment.is_last, around, files=files)
        done: tuple[VerifiedSegment, float] | None = finished.find(key)
        if done is not None:
            return done
    start = time.monotonic()
    result = check.run(segment, around), time.monotonic() - start
    if finished is not None:
        finished.put(key, result)
    return result


def _rows(verified: VerifiedPartition, seconds: Sequence[float]) -> Iterator[dict[str, Any]]:
    key = verified.topic_partition
    for segment, taken in zip(verified.segments, seconds, strict=False):
        row = _row("segment", segment.path, key, segment, segment.findings, segment.n_more_findings, taken)
        yield row
    n_more = verified.n_more_findings - sum(segment.n_more_findings for segment in verified.segments)
    row = _row("partition", verified.path, key, None, verified.findings, n_more, seconds[-1])
    ok = verified.ok and not n_more
    yield {**row, "ok": ok, "lost": verified.loss.as_dict(), "gaps": [asdict(gap) for gap in verified.gaps]}


def _row(
    kind: str,
    path: str | None,
    key: kf.TopicPartition | None,
    segment: VerifiedSegment | None,
    findings: Sequence[Finding],
    n_more: int,
    seconds: float,
) -> dict[str, Any]:
    n_damage = sum(finding.damage for finding in findings) + n_more
    return {
        "kind": kind,
        "path": path,
        "topic": None if key is None else key.topic,
        "partition": None if key is None else key.partition,
        "base_offset": None if segment is None else segment.base_offset,
        "last_offset": None if segment is None else segment.last_offset,
        "size_in_bytes": None if segment is None else segment.size_in_bytes,
        "n_batches": None if segment is None else segment.n_batches,
        "ok": not n_damage,
        "n_damage": n_damage,
        "findings": finding_rows(findings),
        "seconds": seconds,
    }
