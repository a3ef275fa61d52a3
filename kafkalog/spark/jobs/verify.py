"""`kafkalog.verify` as a Spark job: segments by executors, then what spans the segments of each partition.

What costs, the checksums and the indexes, is done for each segment on its own. What is light but needs a partition's
segments in their order (transaction indexes, leader epochs, snapshots) is done in a second pass, a task for some
partitions.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog import format as kf
from kafkalog.errors import Finding, Limits
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.verifying.segment import SegmentCheck, Surroundings, VerifiedSegment
from kafkalog.operations.verifying.verify import VerifiedPartition, partitions_to_verify, verified_partition
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.jobs.ledger import Ledger, key_of
from kafkalog.spark.jobs.tables import (
    FINDING,
    MAX_FINDINGS,
    batch_of,
    finding_rows,
    frame_of,
    map_groups,
    map_tasks,
    pack,
    run_now,
)

_GAP: Final = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("is_compacted", pa.bool_())])
SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("path", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        pa.field("n_batches", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("n_damage", pa.int64()),
        pa.field("gaps", pa.list_(_GAP)),
        pa.field("findings", pa.list_(FINDING)),
        pa.field("seconds", pa.float64()),
    ]
)

_STATES: Final = pa.schema(
    [("group", pa.int32()), ("partition", pa.int32()), ("segment", pa.int32()), ("data", pa.binary())]
)
_GROUP_FACTOR: Final = 16  # how much faster headers are walked than checksums are computed, about
_SIDECARS: Final = (kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX)


@dataclass(frozen=True, slots=True)
class _Checking:
    """A segment to check, and which one it is."""

    group: int
    partition: int
    number: int
    segment: Segment
    around: Surroundings


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
    """Verify log dirs, at once.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        As driver and executors both have it.
    topics, partitions, indexes_only, deep, index_interval_bytes
        As `kafkalog.verify`.
    task_bytes : int
        About how many bytes of `.log` files a task checks, but a segment at least.
    work_dir : path-like, optional
        A directory to make, shared with the executors, for what is done: a job that failed or was killed then goes on
        where it was when it is run again. It is removed when all is done. Default: verifying writes nothing.
    limits : Limits, optional
        `max_findings` are kept a segment; by default 100, the rest is counted.

    Returns
    -------
    pyspark.sql.DataFrame
        A row a segment (`kind` is "segment"), one for each partition ("partition": its status is that of all of it,
        its findings are about its other files), and one for the log dirs ("log_dir"): kind, path, topic, partition,
        base_offset, last_offset, size_in_bytes, n_batches, status ("ok" or "damaged"), n_damage, gaps (of
        a partition, between segments: start, end, is_compacted), findings (of reason, detail, path, position, length,
        base_offset, last_offset, damage), seconds.

    Raises
    ------
    NotKafkaError, ReadError
        There is nothing to verify. What cannot be read inside is a finding.

    Examples
    --------
    >>> kafkalog.spark.verify(spark, "/backup/kafka").where("status != 'ok'").show()  # doctest: +SKIP
    """
    if indexes_only and deep:
        raise ValueError("deep decodes records, indexes_only does not even compute checksums: choose one")
    if limits is None:
        limits = Limits(max_findings=MAX_FINDINGS)
    found: list[Finding] = []
    chosen = partitions_to_verify(path, topics, partitions, limits, found)
    groups = pack([one.size_in_bytes for one in chosen], _GROUP_FACTOR * task_bytes)
    arounds = [Surroundings.of(one) for one in chosen]
    checks = [
        _Checking(group, partition, number, segment, around)
        for partition, (one, group, around) in enumerate(zip(chosen, groups, arounds, strict=True))
        for number, segment in enumerate(one.segments)
    ]
    tasks: dict[int, list[_Checking]] = {}
    numbers = pack([one.segment.size_in_bytes for one in checks], task_bytes)
    for one_check, number in zip(checks, numbers, strict=True):
        tasks.setdefault(number, []).append(one_check)
    check = SegmentCheck(
        crcs=not indexes_only,
        deep=deep,
        interval_bytes=index_interval_bytes,
        limits=limits,
        progress=lambda n_bytes: None,
    )
    options = (indexes_only, deep, index_interval_bytes, limits)
    with contextlib.ExitStack() as stack:
        ledger = None
        if work_dir is not None:
            ledger = Ledger(os.path.realpath(work_dir))
            stack.enter_context(ledger.held())

        def check_segments(task: list[_Checking]) -> Iterator[pa.RecordBatch]:
            for one in task:
                result = _check(one, check, ledger, options)
                yield _state(one.group, one.partition, one.number, result)

        def finish(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for partition, around, segments in _by_partition(rows):
                start = time.monotonic()
                verified = verified_partition(
                    partition,
                    [segment for segment, _ in segments],
                    around,
                    indexes_only=indexes_only,
                    limits=limits,
                )
                seconds = [*(taken for _, taken in segments), time.monotonic() - start]
                yield batch_of(list(_rows(verified, seconds)), SCHEMA)

        heads = zip(chosen, arounds, strict=True)
        wholes = [
            _state(group, number, -1, head) for number, (head, group) in enumerate(zip(heads, groups, strict=True))
        ]
        states = map_tasks(spark, list(tasks.values()), check_segments, _STATES)
        states = states.union(frame_of(spark, pa.Table.from_batches(wholes, _STATES)))
        table = run_now(map_groups(states, "group", max(groups, default=0) + 1, finish, SCHEMA))
    table = table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("path", "ascending")])
    root = batch_of([_row("log_dir", None, None, None, found, 0, 0.0)], SCHEMA)
    return frame_of(spark, pa.Table.from_batches([*table.to_batches(), root], SCHEMA))


def _check(
    one: _Checking, check: SegmentCheck, ledger: Ledger | None, options: tuple[Any, ...]
) -> tuple[VerifiedSegment, float]:
    key = ""
    if ledger is not None:
        files = [str(one.segment.sidecar_path(suffix)) for suffix in _SIDECARS]
        key = key_of("verify", options, one.segment.is_last, one.around, files=files)
        done: tuple[VerifiedSegment, float] | None = ledger.find(key)
        if done is not None:
            return done
    start = time.monotonic()
    result = check.run(one.segment, one.around), time.monotonic() - start
    if ledger is not None:
        ledger.put(key, result)
    return result


def _state(group: int, partition: int, segment: int, value: Any) -> pa.RecordBatch:
    row = {"group": group, "partition": partition, "segment": segment, "data": pickle.dumps(value)}
    return batch_of([row], _STATES)


def _by_partition(
    rows: Iterable[pa.RecordBatch],
) -> Iterator[tuple[Partition, Surroundings, list[tuple[VerifiedSegment, float]]]]:
    """Partitions with what was found in their segments, in order."""
    found: dict[int, dict[int, bytes]] = {}
    for batch in rows:
        for row in batch.to_pylist():
            found.setdefault(row["partition"], {})[row["segment"]] = row["data"]
    for number in sorted(found):
        segments = found.pop(number)
        partition, around = pickle.loads(segments.pop(-1))
        yield partition, around, [pickle.loads(segments[one]) for one in sorted(segments)]


def _rows(verified: VerifiedPartition, seconds: Sequence[float]) -> Iterator[dict[str, Any]]:
    key = verified.topic_partition
    for segment, taken in zip(verified.segments, seconds, strict=False):
        row = _row("segment", segment.path, key, segment, segment.findings, segment.n_more_findings, taken)
        yield row
    n_more = verified.n_more_findings - sum(segment.n_more_findings for segment in verified.segments)
    row = _row("partition", verified.path, key, None, verified.findings, n_more, seconds[-1])
    status = "ok" if verified.is_ok and not n_more else "damaged"
    yield {**row, "status": status, "gaps": [asdict(gap) for gap in verified.gaps]}


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
        "status": "damaged" if n_damage else "ok",
        "n_damage": n_damage,
        "findings": finding_rows(findings),
        "seconds": seconds,
    }
