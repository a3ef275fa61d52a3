"""Checks whether a broker can use everything in a log dir: batches, indexes, snapshots, checkpoints.

Each segment is read once, one window at a time; several segments are read at the same time. Transaction indexes depend
on earlier segments, so partitions that have any are walked a second time, headers only. Damage is reported and skipped.
Files are only read.

Mirrors the checks of `LogLoader`, `LogSegment.recover` and `DumpLogSegments --index-sanity-check`, and adds others.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Unpack, cast

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, Limits, ReadError, Reason
from kafkalog.log.log_dir import LogDir, is_partition_directory
from kafkalog.log.open import PlaceOfFiles, notes_apart, partitions_of, removed_from
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.verifying.partition import check_partition, check_root
from kafkalog.operations.verifying.segment import SegmentCheck
from kafkalog.operations.verifying.values import verify_values
from kafkalog.operations.verifying.verified_partitions import Verification, VerifiedPartition, VerifiedSegment
from kafkalog.parsing import optional_integer, thread_count
from kafkalog.scanning.options import OPENING, FormatOptions, with_formats
from kafkalog.scanning.ordered_pool import OrderedPool, Pending
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, kind_of
from kafkalog.storage.removals import is_gone, removed_directory, was_replaced
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.next_steps import paths_read
from kafkalog.survey.startup_root import root_problems
from kafkalog.system_topics.coordinator_load import load_failure
from kafkalog.values.options import Decode
from kafkalog.values.schemas import SchemasOption

_AHEAD: Final = 2
_TICK: Final = 0.1


Subject = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment


class VerifyOptions(FormatOptions, PlaceOfFiles, total=False):
    """The keyword arguments of `verify`, next to those for decoding."""

    topics: str | Sequence[str] | None
    partitions: int | Sequence[int] | None
    indexes_only: bool
    deep: bool
    index_interval_bytes: int | None
    threads: int | None
    limits: Limits
    progress: Callable[[int], object]


def verify(
    path: Subject,
    *,
    decode: Mapping[str, Decode] | None = None,
    schemas: SchemasOption | None = None,
    schema_context: str | None = None,
    **options: Unpack[VerifyOptions],
) -> Verification:
    """Verify the files under a path: checksums of all batches, indexes, producer snapshots, checkpoints.

    Parameters
    ----------
    path : path-like, sequence of path-like, LogDir, Partition or Segment
    decode, schemas, schema_context : optional
        See `kafkalog.scan`. With `decode`, all keys or values are decoded too: `Verification.values` has the first one
        of each topic that does not decode, how many there are, and why. Such a record counts as damage.
    topics : str or sequence of str, optional
    partitions : int or sequence of int, optional
        Partition numbers of each topic.
    indexes_only : bool
        Only walk batch headers, and check the indexes against them; compute no checksum.
    deep : bool
        Also decode every record: a batch with a valid checksum may still hold records that cannot be decoded.
    index_interval_bytes : int, optional
        The topics' `index.interval.bytes`, used to find an index that is too sparse. Default: see
        `OffsetIndex.check`.
    threads : int, optional
        Segments read at the same time; default: the number of processors, up to four.
    limits : Limits
    progress : callable
        Called with the number of further bytes of `.log` files that are done.
    storage_options, tiered, tiered_keys, value_format, key_format : optional
        See `kafkalog.scan`.

    Returns
    -------
    Verification

    Raises
    ------
    NotKafkaError, ReadError
        There is nothing to verify. A file inside that cannot be read is a finding.

    Notes
    -----
    Files of healthy brokers of any version are never reported as damage. These include sparse indexes of followers and
    the cleaner, reopened segments, preallocated files of a running or crashed broker, and truncated leader epochs. A
    torn tail of the last segment is normal, not damage, unless the log dir was shut down cleanly: then no broker
    truncates it.

    Examples
    --------
    >>> kafkalog.verify("tests/golden/log_dir", topics="p-txn")
    Verification(1 partition, 6 segments, OK)
    """
    result = Verification()
    decode = with_formats(decode, options) or None
    elsewhere = {name: options.get(name) for name in OPENING}
    # what is left has the names of `iter_verify`, which refuses others
    checking: dict[str, Any] = {
        name: value for name, value in options.items() if name not in (*OPENING, *FormatOptions.__annotations__)
    }
    limits = options.get("limits", DEFAULT_LIMITS)
    if any(elsewhere.values()):
        path = open_path(cast(Any, path), limits=limits, **cast(PlaceOfFiles, elsewhere))
    elif not isinstance(path, (LogDir, Partition, Segment)):
        path = LogDir([path] if isinstance(path, (str, os.PathLike)) else path, limits=limits)
    result.log_dirs = paths_read(cast(Any, path))
    for partition in iter_verify(path, into=result, **checking):
        result.partitions.append(partition)
    if decode is not None:
        chosen = {name: checking.get(name) for name in ("topics", "partitions", "threads")}
        result.values = verify_values(path, decode=decode, schemas=schemas, schema_context=schema_context, **chosen)
    return result


def iter_verify(
    path: Subject,
    *,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    indexes_only: bool = False,
    deep: bool = False,
    index_interval_bytes: int | None = None,
    threads: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], object] = lambda n_bytes: None,
    into: Verification | None = None,
) -> Iterator[VerifiedPartition]:
    """Like `verify`, but yields one partition at a time; findings about the log dirs are added to `into`."""
    n_threads = thread_count(threads)
    optional_integer("index_interval_bytes", index_interval_bytes, 0)
    found: list[Finding] = []
    if not isinstance(path, (LogDir, Partition, Segment)):
        path = LogDir([path] if isinstance(path, (str, os.PathLike)) else path, limits=limits)
    chosen = partitions_to_verify(path, topics, partitions, limits, found)
    if into is not None:
        into.own_findings += found
    bar = _Bar(progress)
    check = SegmentCheck(
        crcs=not indexes_only, deep=deep, interval_bytes=index_interval_bytes, limits=limits, progress=bar.add
    )
    segments: list[VerifiedSegment] = []
    with OrderedPool(n_threads) as pool:
        try:
            # a few ahead: results of finished segments stay in memory until their partition is yielded
            for step in pool.ahead(_plan(chosen, check, pool), _AHEAD * n_threads):
                if step.segment is not None:
                    while not step.segment.wait(_TICK):
                        bar.report()
                    segments.append(step.segment.result())
                    continue
                bar.report()
                row = verified_partition(
                    step.partition, segments, step.around, indexes_only=indexes_only, limits=limits, deep=deep
                )
                segments = []
                removed = _removed(step.partition, row)
                if removed is not None:
                    finding = removed_from(path, removed)
                    if finding is None:
                        raise removed
                    # the findings were about a partition that is half deleted
                    row = replace(row, segments=[], own_findings=[finding], n_more_findings=0, gaps=[])
                yield row
        finally:
            check.stop()  # the caller may stop iterating early: do not read the remaining segments


def _removed(partition: Partition, row: VerifiedPartition) -> ReadError | None:
    """The error about a partition that a running broker removed while it was checked."""
    identity = partition.segments[0].directory if partition.segments else None
    is_removed = (
        is_gone(partition.path)
        or any(finding.reason is Reason.PARTITION_REMOVED for finding in row.findings)
        or was_replaced(partition.path, identity)
    )
    return removed_directory(partition.path, identity=identity) if is_removed else None


class _Step(NamedTuple):
    """A segment of a partition, being checked; or None after the last one."""

    partition: Partition
    around: LogDirState
    segment: Pending[VerifiedSegment] | None


def _plan(partitions: Iterable[Partition], check: SegmentCheck, pool: OrderedPool) -> Iterator[_Step]:
    for partition in partitions:
        around = LogDirState.of(partition)
        for segment in partition.segments:
            yield _Step(partition, around, pool.submit(partial(check.run, segment, around)))
        yield _Step(partition, around, None)


def verified_partition(
    partition: Partition,
    segments: list[VerifiedSegment],
    around: LogDirState,
    *,
    indexes_only: bool,
    limits: Limits,
    deep: bool = False,
) -> VerifiedPartition:
    """Check a partition across its segments, after each segment has been checked."""
    findings = Findings(limits.max_findings)
    _ = partition.log_start_offset  # the partition reads its checkpoint here, and adds what it finds
    for finding in partition.findings:
        if finding.reason in (Reason.OFFSET_GAP, Reason.SEGMENT_MISSING):
            continue  # what readers only note is checked below
        # harmless to a reader, but fatal to a broker at start-up, or not read by it
        name = os.path.basename(finding.path or "")
        is_unread = name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None
        is_fatal = finding.reason is Reason.UNKNOWN_FILE and (is_unread or kf.is_fatal_name(name))
        findings.add(replace(finding, damage=True) if is_fatal and os.path.isfile(finding.path or "") else finding)
    gaps = check_partition(partition, segments, around, findings.add, indexes_only=indexes_only)
    failure = load_failure(partition.path, partition.topic_partition, limits, damage=True) if deep else None
    if failure is not None:
        findings.add(failure)
    return VerifiedPartition(
        path=str(partition.path),
        topic_partition=partition.topic_partition,
        kind=partition.kind,
        segments=segments,
        own_findings=findings.rows,
        n_more_findings=findings.n_more + sum(segment.n_more_findings for segment in segments),
        gaps=gaps,
    )


class _Bar:
    """Adds up the progress of worker threads; only the calling thread calls `progress`."""

    def __init__(self, progress: Callable[[int], object]) -> None:
        self._progress, self._lock, self._done = progress, threading.Lock(), 0

    def add(self, n: int) -> None:
        with self._lock:
            self._done += n

    def report(self) -> None:
        with self._lock:
            done, self._done = self._done, 0
        if done:
            self._progress(done)


def partitions_to_verify(
    path: Subject,
    topics: str | Sequence[str] | None,
    numbers: int | Sequence[int] | None,
    limits: Limits,
    found: list[Finding],
) -> list[Partition]:
    """Return the partitions to verify; add findings about the log dirs, and partitions that cannot be opened."""
    if not isinstance(path, (LogDir, Partition, Segment)):
        path = LogDir([path] if isinstance(path, (str, os.PathLike)) else path, limits=limits)
    if isinstance(path, LogDir):
        found += _of_log_dirs(path, limits)
        found += notes_apart(path, topics, numbers, are_read=True)
    chosen = []
    for partition in partitions_of(path, topics, numbers, set_apart=True):
        if isinstance(partition, Partition):
            chosen.append(partition)
        elif partition.reason is Reason.PARTITION_REMOVED and removed_from(path, partition) is None:
            raise partition
        elif partition.reason is not Reason.PARTITION_REMOVED or not kf.is_deleted_directory(
            os.path.basename(partition.path or "")
        ):
            found.append(partition.to_finding())
    return chosen


def _of_log_dirs(opened: LogDir, limits: Limits) -> list[Finding]:
    """The findings about log dirs themselves; log dirs of one broker are checked together, as it loads them."""
    directories = (path for path in opened.paths if kind_of(path) == "directory")
    listings = {root: listing for root in directories if (listing := Listing.or_empty(root)).names}
    roots = [one for one in listings if not is_partition_directory(one, [*listings[one].entries.values()])]
    brokers: dict[object, list[Place]] = {}
    for root in roots:
        brokers.setdefault(opened.broker_of(root) or root, []).append(root)
    found: dict[str | None, Finding] = {}
    for group in brokers.values():
        for problem in root_problems(group, limits=limits):
            # any directory may lie next to a copy of partitions
            if kf.META_PROPERTIES in listings[group[0]].entries or problem.reason is not Reason.UNKNOWN_FILE:
                found.setdefault(problem.path, problem.to_finding())
    formatted = filter(lambda root: kf.META_PROPERTIES in listings[root].entries, roots)
    rest = itertools.chain.from_iterable(map(check_root, formatted))
    return [*found.values(), *(one for one in [*opened.findings, *rest] if one.path not in found)]
