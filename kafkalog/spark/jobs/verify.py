"""`kafkalog.verify` as a Spark job: executors check each segment, then each partition across its segments."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog import format as kf
from kafkalog.errors import Finding, Limits, Loss
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.verifying.report import VerifiedPartition, VerifiedSegment
from kafkalog.operations.verifying.segment import SegmentCheck
from kafkalog.operations.verifying.verify import partitions_to_verify, verified_partition
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.runner import (
    FOUND_FIELDS,
    MAX_FINDINGS,
    PLACE_FIELDS,
    Piece,
    absolute,
    files_of,
    finding_rows,
    frame_of,
    results,
    row_type,
)
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.losses import Lost, OffsetGap

_NUMBERS: Final = ("base_offset", "last_offset", "size_in_bytes", "n_batches")
SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        *PLACE_FIELDS,
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
        pa.field("ok", pa.bool_()),
        pa.field("n_damage", pa.int64()),
        pa.field("lost", row_type(Loss)),
        pa.field("losses", pa.list_(row_type(Lost))),
        pa.field("gaps", pa.list_(row_type(OffsetGap))),
        *FOUND_FIELDS,
    ]
)


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
    limits: Limits | None = None,
) -> DataFrame:
    """Verify log dirs; the job runs before this returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path, topics, partitions, indexes_only, deep, index_interval_bytes
        See `kafkalog.verify`.
    task_bytes : int
        About how many bytes of `.log` files a task checks; at least one segment.
    limits : Limits, optional
        `max_findings` are kept for each segment, by default 100; further ones are only counted.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each segment (`kind` is "segment"), for each partition ("partition": `ok` is about the whole
        partition, the findings are about its other files), and one for the log dirs ("log_dir").

    Raises
    ------
    NotKafkaError, ReadError
        There is nothing to verify, or an executor cannot open what the driver has listed.

    Examples
    --------
    >>> kafkalog.spark.verify(spark, "/backup/kafka").where("not ok").show()  # doctest: +SKIP
    """
    if indexes_only and deep:
        raise ValueError("deep (--deep) and indexes_only (--indexes-only) exclude each other")
    limits = limits or Limits(max_findings=MAX_FINDINGS)
    found: list[Finding] = []
    chosen = partitions_to_verify(absolute(path), topics, partitions, limits, found)
    heads = [(one, LogDirState.of(one)) for one in chosen]
    check = SegmentCheck(
        crcs=not indexes_only, deep=deep, interval_bytes=index_interval_bytes, limits=limits, progress=lambda n: None
    )
    pieces = [Piece((one, state), one.size_in_bytes, files_of(one)) for whole, state in heads for one in whole.segments]
    checked = iter(results(spark, pieces, partial(_check, check), task_bytes=task_bytes))
    wholes = [Piece((*head, [next(checked) for _ in head[0].segments]), head[0].size_in_bytes) for head in heads]
    across = partial(_check_across, indexes_only=indexes_only, limits=limits)
    # reads little but transaction indexes, epochs and snapshots
    verified = results(spark, wholes, across, task_bytes=16 * task_bytes)
    root = _row("log_dir", None, None, None, found, 0, 0.0)
    return frame_of(spark, [*(row for rows in verified for row in rows), root], SCHEMA)


def _check(check: SegmentCheck, about: tuple[Segment, LogDirState]) -> tuple[VerifiedSegment, float]:
    """Return the result of a segment, and the seconds it took."""
    start = time.monotonic()
    return check.run(*about), time.monotonic() - start


def _check_across(
    about: tuple[Partition, LogDirState, list[tuple[VerifiedSegment, float]]], *, indexes_only: bool, limits: Limits
) -> list[dict[str, Any]]:
    start = time.monotonic()
    partition, state, checked = about
    segments = [segment for segment, _ in checked]
    verified = verified_partition(partition, segments, state, indexes_only=indexes_only, limits=limits)
    return list(_rows(verified, [*(taken for _, taken in checked), time.monotonic() - start]))


def _rows(verified: VerifiedPartition, seconds: Sequence[float]) -> Iterator[dict[str, Any]]:
    key = verified.topic_partition
    for segment, taken in zip(verified.segments, seconds, strict=False):
        yield _row("segment", segment.path, key, segment, segment.findings, segment.n_more_findings, taken)
    n_more = verified.n_more_findings - sum(segment.n_more_findings for segment in verified.segments)
    row = _row("partition", verified.path, key, None, verified.findings, n_more, seconds[-1])
    ok = verified.ok and not n_more
    losses = [one.as_dict() for one in verified.losses]
    gaps = [asdict(gap) for gap in verified.gaps]
    yield {**row, "ok": ok, "lost": verified.loss.as_dict(), "losses": losses, "gaps": gaps}


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
        **{name: getattr(segment, name, None) for name in _NUMBERS},
        "ok": not n_damage,
        "n_damage": n_damage,
        "findings": finding_rows(findings),
        "seconds": seconds,
    }
