"""`kafkalog.reindex` as a Spark job: executors read the segments, then write the files of each partition.

The first pass reads the batches of each segment, which is the expensive part, and keeps the results in a shared
directory. The second pass does what needs the segments of a partition in order: producers, aborted transactions, leader
epochs, and the point at which damage ends a recovery. It also writes each file in one step, as without Spark.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.choosing import check_paths, choose
from kafkalog.operations.rebuilding.index_interval import IndexInterval, index_interval, max_index_bytes
from kafkalog.operations.rebuilding.rebuilder import Rebuilder, is_replayed
from kafkalog.operations.rebuilding.reindex import DEFAULT_KINDS, check_options
from kafkalog.operations.rebuilding.report import Damaged, Kind, RebuildReport, RebuiltFile, Skipped
from kafkalog.operations.rebuilding.target import DryRun, InPlace, OutputDirectory, Target
from kafkalog.parsing import parse_milliseconds
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.jobs.finished_tasks import FinishedTasks, job_directory, key_of
from kafkalog.spark.jobs.tables import (
    FILE_FIELDS,
    FOUND_FIELDS,
    PLACE_FIELDS,
    batch_of,
    error_data,
    finding_rows,
    frame_of,
    map_tasks,
    pack,
    run_now,
)
from kafkalog.spark.jobs.task_outputs import task_output, task_outputs
from kafkalog.spark.jobs.two_passes import two_passes
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import staged_directory

SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        *PLACE_FIELDS,
        pa.field("base_offset", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("index_interval_bytes", pa.int64()),
        pa.field("interval_origin", pa.string()),
        pa.field("files", pa.list_(pa.struct([*FILE_FIELDS, pa.field("backup", pa.string())]))),
        pa.field("skipped", pa.list_(pa.struct([pa.field("kind", pa.string()), pa.field("why", pa.string())]))),
        *FOUND_FIELDS,
        pa.field("error", pa.binary()),
    ]
)

_INTERVALS: Final = pa.schema([("partition", pa.int32()), ("n_bytes", pa.int64()), ("origin", pa.string())])


@dataclass(slots=True)
class _Found:
    """The result of reading a segment: stored under `key`, or pickled in `data`; neither if it failed."""

    key: str | None = None
    data: bytes | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Writing:
    """Which files to write, and where."""

    kinds: frozenset[str]
    outputs: str | None
    backup: bool
    damaged: Damaged
    dry_run: bool
    now_ms: int | None
    limits: Limits
    finished: FinishedTasks | None
    index_sizes: dict[str, int]


def reindex(
    spark: SparkSession,
    path: Any,
    *,
    kinds: Iterable[Kind] | Kind = DEFAULT_KINDS,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: bool | None = None,
    damaged: Damaged = "keep",
    index_interval_bytes: int | None = None,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | None = None,
    dry_run: bool = False,
    now: int | datetime | None = None,
    task_bytes: int = 4 * TASK_BYTES,
    work_dir: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> DataFrame:
    """Rebuild the derived files of partitions, byte for byte as a broker's recovery does; runs before it returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        Log dirs or partition directories; must be the same on the driver and the executors.
    kinds, output, in_place, backup, damaged, index_interval_bytes, topics, partitions, dry_run, now, limits
        See `kafkalog.reindex`. The driver holds the locks of log dirs and partitions.
    task_bytes : int
        About how many bytes of `.log` files a task reads; at least one segment.
    work_dir : path-like, optional
        A directory for the results of the first pass, on a shared file system. A job that failed or was killed resumes
        when it is run again. Removed when the job has succeeded. Default: a hidden directory beside `output`, or beside
        the log dir; none for a dry run.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each segment (`kind` is "segment"), and one for the other files of each partition: kind, path, topic,
        partition, base_offset, size_in_bytes, status ("changed", "same", "damaged" if the `.log` is, "skipped"),
        index_interval_bytes, interval_origin, files (path, kind, n_entries, n_bytes, change, backup), skipped (kind,
        why), findings, seconds.

    Raises
    ------
    KafkalogError
        See `kafkalog.reindex`.

    Notes
    -----
    After a crash of the driver or of executors, each file in place is either as it was or complete, `output` does not
    exist, and `work_dir` has the results of finished tasks.

    Examples
    --------
    >>> kafkalog.spark.reindex(spark, "/backup/kafka", in_place=True).show()  # doctest: +SKIP
    """
    wanted = check_options(kinds, output=output, in_place=in_place, backup=backup, damaged=damaged, dry_run=dry_run)
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    if isinstance(opened, Segment):
        raise ValueError(f"{opened.path} is one segment: a job is for partitions and log dirs")
    found = list(choose(opened, topics, partitions))
    if some := [one.partition.path for one in found if one.only is not None]:
        raise ValueError(f"segments of {some[0]} were named: a job is for partitions and log dirs")
    chosen = [one.partition for one in found]
    roots = check_paths(opened, found, output=output, dry_run=dry_run)
    if work_dir is None and not dry_run and roots:
        work_dir = job_directory(roots[0] if output is None else output)
    elif work_dir is not None:
        check_outside(work_dir, roots)
    # the stack unwinds in reverse: `output` is published, locks are released, and only then the results are removed
    with contextlib.ExitStack() as stack:
        finished = None
        if work_dir is not None:
            finished = FinishedTasks(os.path.realpath(work_dir))
            stack.enter_context(finished.held())
        if in_place and not dry_run:
            stack.enter_context(hold_locks(roots))
            stack.enter_context(hold_partitions(one.path for one in chosen))
            if finished is not None:
                # the locks are given back when nobody writes under them any more
                stack.enter_context(finished.waits_for_attempts())
        outputs = None
        if output is not None and not dry_run:
            outputs = stack.enter_context(task_outputs(stack.enter_context(staged_directory(output))))
        now_ms = None if now is None else parse_milliseconds("now", now)
        # as without Spark, the cluster's metadata are not read for this setting alone
        sizes = index_sizes(chosen, limits) if index_interval_bytes is None else {}
        place = None if outputs is None else outputs.path
        writing = _Writing(wanted, place, backup is not False, damaged, dry_run, now_ms, limits, finished, sizes)
        intervals = intervals_of(spark, chosen, index_interval_bytes, task_bytes, limits)
        with_producers = is_replayed(wanted)

        def of_segment(segment: Segment, interval: IndexInterval) -> _Found:
            return _read(segment, interval.n_bytes, finished, with_producers=with_producers)

        def of_partition(partition: Partition, interval: IndexInterval, found: list[_Found]) -> list[dict[str, Any]]:
            try:
                return _write(partition, interval, found, writing)
            except KafkalogError as error:
                return [{"kind": "error", "error": error_data(error)}]

        heads = list(zip(chosen, intervals, strict=True))
        table = run_now(two_passes(spark, heads, of_segment, of_partition, SCHEMA, task_bytes=task_bytes))
        if outputs is not None:
            outputs.gather(one.path.absolute().name for one in chosen)
    table = table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("path", "ascending")])
    return frame_of(spark, table)


def index_sizes(chosen: Sequence[Partition], limits: Limits) -> dict[str, int]:
    """Return the `segment.index.bytes` of partitions by path, where the cluster's metadata say another than Kafka's."""
    configs: dict[Path, ClusterMetadata | None] = {}
    found = {}
    for partition in chosen:
        root = partition.path.absolute().parent
        if root not in configs:
            configs[root] = read_cluster_metadata(root, limits=limits)
        found[str(partition.path)] = max_index_bytes(partition, configs[root])
    return {path: size for path, size in found.items() if size != LogConfig().segment_index_bytes}


def intervals_of(
    spark: SparkSession, chosen: Sequence[Partition], given: int | None, task_bytes: int, limits: Limits
) -> list[IndexInterval]:
    """Return the `index.interval.bytes` of each partition; executors find it, as that may need reading segments."""
    if given is not None:
        return [IndexInterval(given, "given")] * len(chosen)
    configs: dict[Path, ClusterMetadata | None] = {}
    tasks: dict[int, list[tuple[int, Partition, ClusterMetadata | None]]] = {}
    groups = pack([one.size_in_bytes for one in chosen], task_bytes)
    for number, (partition, group) in enumerate(zip(chosen, groups, strict=True)):
        root = partition.path.absolute().parent
        if root not in configs:
            configs[root] = read_cluster_metadata(root, limits=limits)
        tasks.setdefault(group, []).append((number, partition, configs[root]))

    def work(task: list[tuple[int, Partition, ClusterMetadata | None]]) -> Iterator[pa.RecordBatch]:
        rows = []
        for number, partition, known in task:
            n_bytes, origin = index_interval(partition, known)
            rows.append({"partition": number, "n_bytes": n_bytes, "origin": origin})
        yield batch_of(rows, _INTERVALS)

    found = run_now(map_tasks(spark, list(tasks.values()), work, _INTERVALS)).sort_by("partition")
    return [IndexInterval(row["n_bytes"], row["origin"]) for row in found.to_pylist()]


def _read(segment: Segment, interval: int, finished: FinishedTasks | None, *, with_producers: bool) -> _Found:
    start = time.monotonic()
    key = None
    if finished is not None:
        key = key_of("recover", interval, with_producers, segment.is_last, files=[segment.path])
        if finished.has(key):
            return _Found(key, seconds=time.monotonic() - start)
    try:
        found = recover(segment, interval, with_producers=with_producers)
    except KafkalogError:
        return _Found()  # the second pass reads the segment again, and decides what the error means for the partition
    if finished is None or key is None:
        return _Found(data=pickle.dumps(found), seconds=time.monotonic() - start)
    finished.put(key, found)
    return _Found(key, seconds=time.monotonic() - start)


def _write(
    partition: Partition,
    interval: IndexInterval,
    states: Sequence[_Found],
    writing: _Writing,
) -> list[dict[str, Any]]:
    report = RebuildReport()
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        if writing.finished is not None and writing.outputs is None and not writing.dry_run:
            stack.enter_context(writing.finished.attempt())
        rebuilder = Rebuilder(
            report,
            _target(partition, writing, stack),
            is_in_place=writing.outputs is None,
            damaged=writing.damaged,
            limits=writing.limits,
            read=_reader(partition, states, writing.finished),
        )
        work = rebuilder.plan(partition, None, writing.kinds, interval, writing.now_ms)
        work.max_index_bytes = writing.index_sizes.get(str(partition.path), work.max_index_bytes)
        rebuilder.run([work], 1)
    return list(_rows(partition, interval, states, report, time.monotonic() - start))


def _target(partition: Partition, writing: _Writing, stack: contextlib.ExitStack) -> Target:
    if writing.dry_run:
        return DryRun()
    if writing.outputs is None:
        return InPlace(backup=writing.backup)
    return OutputDirectory(stack.enter_context(task_output(writing.outputs, partition.path.absolute().name)))


def _reader(
    partition: Partition, states: Sequence[_Found], finished: FinishedTasks | None
) -> Callable[[Segment, int, bool], RecoveredSegment]:
    by_offset = {segment.base_offset: state for segment, state in zip(partition.segments, states, strict=True)}

    def read(segment: Segment, interval: int, with_producers: bool) -> RecoveredSegment:
        state = by_offset[segment.base_offset]
        found: RecoveredSegment | None = None
        if state.data is not None:
            found = pickle.loads(state.data)
            state.data = None  # free the memory before the next segment
        elif state.key is not None and finished is not None:
            found = finished.find(state.key)
        if found is None:
            found = recover(segment, interval, with_producers=with_producers)
        found.segment = segment
        return found

    return read


def _rows(
    partition: Partition,
    interval: IndexInterval,
    states: Sequence[_Found],
    report: RebuildReport,
    seconds: float,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each segment with its own files and findings, then one for the rest."""
    names = [segment.path.name.removesuffix(kf.LOG_SUFFIX) for segment in partition.segments]
    of: dict[str, tuple[list[RebuiltFile], list[Skipped], list[Finding]]] = {name: ([], [], []) for name in names}
    rest: tuple[list[RebuiltFile], list[Skipped], list[Finding]] = ([], [], [])
    for file in report.files:
        of.get(_stem(file.path), rest)[0].append(file)
    for one in report.skipped:
        of.get(_stem(one.path), rest)[1].append(one)
    for finding in report.findings.rows:
        of.get(_stem(finding.path or ""), rest)[2].append(finding)
    for segment, name, state in zip(partition.segments, names, states, strict=True):
        yield _row("segment", partition, interval, *of[name], state.seconds, segment)
    yield _row("partition", partition, interval, *rest, seconds, None)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _row(
    kind: str,
    partition: Partition,
    interval: IndexInterval,
    files: Sequence[RebuiltFile],
    skipped: Sequence[Skipped],
    findings: Sequence[Finding],
    seconds: float,
    segment: Segment | None,
) -> dict[str, Any]:
    key = partition.topic_partition
    if any(finding.damage for finding in findings):
        status = "damaged"
    elif any(file.change != "same" for file in files):
        status = "changed"
    else:
        status = "skipped" if skipped and not files else "same"
    return {
        "kind": kind,
        "path": str(partition.path if segment is None else segment.path),
        "topic": None if key is None else key.topic,
        "partition": None if key is None else key.partition,
        "base_offset": None if segment is None else segment.base_offset,
        "size_in_bytes": None if segment is None else segment.size_in_bytes,
        "status": status,
        "index_interval_bytes": interval.n_bytes,
        "interval_origin": interval.origin,
        "files": [file.as_dict() for file in files],
        "skipped": [{"kind": one.kind, "why": one.why} for one in skipped],
        "findings": finding_rows(findings),
        "seconds": seconds,
        "error": None,
    }
