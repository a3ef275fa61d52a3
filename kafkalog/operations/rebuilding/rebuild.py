"""Indexes, producer snapshots and leader epochs anew, out of `.log` files alone, as a broker's recovery makes them.

`rebuild_indexes` goes through segments in order: `recovery` reads them (several at a time), `ProducerReplay` follows
the producers, and a `Target` takes the files as they are made. Mirrors `LogLoader.recoverLog`; no `.log` is touched.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    Limits,
    OutputExistsError,
    Reason,
    SidecarError,
    UnsafePathError,
    WriteError,
)
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.choosing import check_places, choose
from kafkalog.operations.rebuilding.index_interval import IndexInterval, index_interval, max_index_bytes
from kafkalog.operations.rebuilding.outputs import Target, old_content, target_for
from kafkalog.operations.rebuilding.report import Change, Damaged, Kind, RebuildReport, RebuiltFile, Skipped
from kafkalog.operations.rebuilding.snapshots import ProducerReplay
from kafkalog.scanning.filters import milliseconds
from kafkalog.state import epoch_cache as leader_epochs
from kafkalog.state.checkpoints import encode_checkpoint, read_leader_epochs
from kafkalog.state.cluster_metadata import ClusterConfigs, read_cluster_configs
from kafkalog.state.producers import ProducerSnapshot, encode_snapshot, read_snapshot
from kafkalog.storage.broker_lock import hold_locks

KINDS: tuple[Kind, ...] = ("offset", "time", "txn", "snapshot", "epochs")
DEFAULT_KINDS: tuple[Kind, ...] = ("offset", "time", "txn")
DAMAGED: tuple[Damaged, ...] = ("keep", "cut")

_REPLAYED = frozenset({"txn", "snapshot"})


@dataclass(slots=True)
class _Work:
    """A partition, or segments of it, and how far it is."""

    partition: Partition
    only: frozenset[int] | None
    kinds: frozenset[str]
    interval: IndexInterval
    replay: ProducerReplay
    segments: list[Segment]
    max_index_bytes: int
    found: list[RecoveredSegment] = field(default_factory=list)
    is_stopped: bool = False
    damaged_at: int | None = None
    """Base offset of the first damaged segment that is left as it is: what producers did is known up to there."""

    def file(self, base_offset: int, suffix: str) -> Path:
        return self.partition.path / kf.segment_file_name(base_offset, suffix)


def rebuild_indexes(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    *,
    kinds: Iterable[Kind] | Kind = DEFAULT_KINDS,
    out: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: bool | None = None,
    damaged: Damaged = "keep",
    index_interval_bytes: int | None = None,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    jobs: int = 1,
    dry_run: bool = False,
    now: int | datetime | None = None,
    progress: Callable[[int], object] = lambda n_bytes: None,
    on_file: Callable[[RebuiltFile], object] = lambda file: None,
    limits: Limits = DEFAULT_LIMITS,
) -> RebuildReport:
    """Make the derived files of segments anew, byte for byte as a broker's recovery does.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        A `.log` file, a partition directory or a log dir.
    kinds : iterable of {"offset", "time", "txn", "snapshot", "epochs"}, or one of them
        `.index`, `.timeindex`, `.txnindex` (default), `.snapshot` of producers and `leader-epoch-checkpoint`.
    out : path-like, optional
        A directory to make, with a directory a partition.
    in_place : bool
        Replace the files that are there, each in one step.
    backup : bool, optional
        Keep what is replaced or removed in place, as ``NAME.kafkalog-backup`` beside it; the report's files say where.
        Default: True in place.
    damaged : {"keep", "cut"}
        A segment whose `.log` is damaged keeps the files it has. With "cut" its indexes end before the damage, as those
        of a broker that recovers the segment, and the files of later segments, which recovery deletes, are kept.
    index_interval_bytes : int, optional
        The topics' `index.interval.bytes`. Default: what the log dir's `__cluster_metadata-0` says, else a value that
        the existing indexes agree with, else 4096; the report says which.
    topics, partitions : iterable, optional
        Only these topics and partition numbers.
    jobs : int
        Segments to read at a time.
    dry_run : bool
        Only report what would change.
    now : int (ms) or aware datetime, optional
        The time at which a broker would rebuild: producers that were idle for `producer.id.expiration.ms` (a day) by
        then are left out of snapshots. Default: nothing expires, so that the result does not depend on the day.
    progress : callable
        Told how many more bytes are done.
    on_file : callable
        Given each row of the report's `files` as soon as the file is there.
    limits : Limits

    Returns
    -------
    RebuildReport

    Raises
    ------
    UnsafePathError
        A broker holds the lock of the log dir; or `out` lies in it.
    OutputExistsError
        `out` is there already.
    WriteError
        A file could not be written. In place, those before it are there, and the other partitions are done all the
        same; `out` is absent.

    Notes
    -----
    Where a `.log` is damaged, recovery cuts it, and deletes all later segments. Here no `.log` is touched; a finding
    says where the damage is. A broker that does not recover the segment, as after a clean shutdown, reads on behind the
    damage with the indexes that it has: so they are kept unless ``damaged="cut"``, and later segments get indexes of
    offsets and times. Their transaction indexes and snapshots are kept, for they depend on what the damage hides. A
    partition of a log dir that cannot be opened is a finding, and keeps none of the others from being rebuilt.

    A crash (SIGKILL, power cut) leaves each file in place as it was or complete, and `out` absent or complete.

    A broker drops idle producers from a snapshot whenever it loads one, by its own clock; so one that still holds them
    serves it as well. To get the very bytes of a broker's recovery, give its time as `now`.

    A segment alone gets no leader epochs, which are the whole partition's. Its producers are replayed from the newest
    usable snapshot or the start of the log; where neither is there, the report says what was left out.

    Source: LogSegment.recover, LogLoader.recoverLog, UnifiedLog.rebuildProducerState, Kafka 4.3.

    Examples
    --------
    >>> report = kafkalog.rebuild_indexes("tests/golden/log_dir/p-multi-0", dry_run=True)
    >>> report.count("same"), report.intervals
    (5, {'p-multi-0': IndexInterval(n_bytes=4096, origin='existing indexes')})
    """
    wanted = check_options(kinds, out=out, in_place=in_place, backup=backup, damaged=damaged, dry_run=dry_run)
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    report = RebuildReport(is_written=not dry_run)
    chosen = list(choose(opened, topics, partitions, report.findings.add))
    if not chosen:
        return report
    roots = check_places(opened, chosen, out=out, dry_run=dry_run)
    now_ms = None if now is None else milliseconds("now", now)
    with contextlib.ExitStack() as stack:
        if in_place and not dry_run:
            stack.enter_context(hold_locks(roots))
        target = stack.enter_context(target_for(out, in_place=in_place, backup=backup is not False, dry_run=dry_run))
        rebuilder = Rebuilder(
            report,
            target,
            is_in_place=out is None,
            damaged=damaged,
            limits=limits,
            progress=progress,
            on_file=on_file,
        )
        rebuilder.run((rebuilder.plan(one, only, wanted, index_interval_bytes, now_ms) for one, only in chosen), jobs)
    return report


def check_options(
    kinds: Iterable[str], *, out: object, in_place: bool, backup: bool | None, damaged: str, dry_run: bool
) -> frozenset[str]:
    """What is wanted; a ValueError where options make no sense."""
    wanted = frozenset([kinds] if isinstance(kinds, str) else kinds)
    if unknown := sorted(wanted - set(KINDS)):
        raise ValueError(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    if not wanted:
        raise ValueError("no kinds: nothing to rebuild")
    if in_place + (out is not None) != 1 and not (dry_run and not in_place and out is None):
        raise ValueError("say where to: one of out=, in_place=True and dry_run=True")
    if backup and not in_place:
        raise ValueError("backup=True goes with in_place=True")
    if damaged not in DAMAGED:
        raise ValueError(f"damaged is {' or '.join(map(repr, DAMAGED))}, not {damaged!r}")
    return wanted


def is_replayed(kinds: Iterable[str]) -> bool:
    """Whether any of the kinds needs to know what producers did."""
    return not _REPLAYED.isdisjoint(kinds)


def _shortened(finding: Finding) -> Finding:
    """With what to know before a broker is started that does not recover the segment."""
    if not finding.damage:
        return finding
    detail = (
        "its indexes end there, too: without recovery, as after a clean shutdown, a broker serves what lies behind, but"
        " finds no times there, and retention counts from the last entry"
    )
    return replace(finding, detail=f"{finding.detail}; {detail}")


class Rebuilder:
    """Goes through segments, several ahead, and hands out files in order.

    Parameters
    ----------
    report : RebuildReport
        What was done is added to it.
    target : Target
    is_in_place : bool
    damaged : {"keep", "cut"}
    limits : Limits
    progress, on_file : callable
        As `rebuild_indexes`.
    read : callable, optional
        ``read(segment, index_interval_bytes, with_producers)`` gives what `recover` gives, from where it has been kept.
    """

    def __init__(
        self,
        report: RebuildReport,
        target: Target,
        *,
        is_in_place: bool,
        damaged: Damaged,
        limits: Limits,
        progress: Callable[[int], object] = lambda n_bytes: None,
        on_file: Callable[[RebuiltFile], object] = lambda file: None,
        read: Callable[[Segment, int, bool], RecoveredSegment] | None = None,
    ) -> None:
        self._report, self._target, self._is_in_place, self._damaged = report, target, is_in_place, damaged
        self._read = read
        self._limits, self._progress, self._on_file = limits, progress, on_file
        self._failed: list[KafkalogError] = []
        self._configs: dict[Path, ClusterConfigs | None] = {}

    def plan(
        self,
        partition: Partition,
        only: frozenset[int] | None,
        kinds: frozenset[str],
        given: int | IndexInterval | None,
        now_ms: int | None,
    ) -> _Work:
        """What is to be done in a partition."""
        if isinstance(given, IndexInterval):
            interval = given
        else:
            interval = IndexInterval(given, "given") if given is not None else self._interval(partition)
        self._report.intervals[partition.path.absolute().name] = interval
        segments, newest = partition.segments, None
        if only is not None:
            kinds, segments, newest = self._plan_segments(partition, only, kinds)
        replay = ProducerReplay(partition.log_start_offset, now_ms=now_ms, newest=newest, limits=self._limits)
        # what was not read for the interval is not read for this
        configs = self._configs.get(partition.path.absolute().parent)
        return _Work(partition, only, kinds, interval, replay, segments, max_index_bytes(partition, configs))

    def run(self, works: Iterable[_Work], jobs: int) -> None:
        """Rebuild all.

        Raises
        ------
        WriteError, UnsafePathError
            A file could not be written; in place, when all other partitions are done.
        """
        waiting: deque[tuple[_Work, Segment | None, Future[RecoveredSegment] | None]] = deque()
        with ThreadPoolExecutor(jobs, thread_name_prefix="kafkalog-rebuild") as pool:
            try:
                for work in works:
                    for segment in work.segments:
                        # as many again wait their turn, lest a reader stand still while files are written
                        while sum(future is not None for _, _, future in waiting) >= 2 * jobs:
                            self._next(waiting)
                        if work.is_stopped:
                            break
                        waiting.append((work, segment, pool.submit(self._recover, work, segment)))
                    waiting.append((work, None, None))
                while waiting:
                    self._next(waiting)
            finally:
                for _, _, future in waiting:
                    if future is not None:
                        future.cancel()
        if self._failed:
            first, *others = self._failed
            first.add_note("all that could be written is in place; run it again for the rest, once the cause is gone")
            for error in others:
                first.add_note(f"also {error}")
            raise first

    def _next(self, waiting: deque[tuple[_Work, Segment | None, Future[RecoveredSegment] | None]]) -> None:
        work, segment, future = waiting.popleft()
        try:
            if segment is None or future is None:
                self._finish(work)
            else:
                self._receive(work, segment, future)
        except (WriteError, OutputExistsError, UnsafePathError) as error:
            if not self._is_in_place:
                raise
            self._failed.append(error)
            work.found.clear()  # nothing more of this partition
            if segment is not None:
                self._stop(work, segment, f"behind {Path(error.path or segment.path).name}, which could not be written")

    def _receive(self, work: _Work, segment: Segment, future: Future[RecoveredSegment]) -> None:
        try:
            found = future.result()
        except KafkalogError as error:
            if not work.is_stopped:
                why = f"behind {segment.path.name}, which could not be read to its end ({error.reason.value})"
                self._stop(work, segment, why)
                self._report.findings.add(error.to_finding())
            return
        if not work.is_stopped:
            self._take(work, found)

    def _recover(self, work: _Work, segment: Segment) -> RecoveredSegment:
        with_producers = is_replayed(work.kinds)
        if self._read is not None:
            return self._read(segment, work.interval.n_bytes, with_producers)
        return recover(segment, work.interval.n_bytes, with_producers=with_producers, progress=self._progress)

    def _take(self, work: _Work, found: RecoveredSegment) -> None:
        """Write the files of a segment."""
        n_files = len(self._report.files)
        base = found.segment.base_offset
        self._report.n_bytes_read += found.n_valid_bytes
        if self._damaged == "keep" and found.finding is not None and found.finding.damage:
            self._report.findings.add(found.finding)
            self._leave(work, found.segment)
            return
        kinds = work.kinds
        if work.damaged_at is None:
            work.found.append(found)
        else:
            kinds -= _REPLAYED
        aborted = work.replay.feed(found) if kinds & _REPLAYED else np.empty(0, kf.TRANSACTION_INDEX_DTYPE)
        found.replay = []
        if work.only is None or base in work.only:
            if "offset" in kinds:
                self._put_index(work, found, kf.INDEX_SUFFIX, "offset", found.offset_entries)
            if "time" in kinds:
                self._put_index(work, found, kf.TIME_INDEX_SUFFIX, "time", found.time_entries)
            # no file is made for no entries, but one that is there is emptied
            if "txn" in kinds and (aborted.size or found.segment.sidecar_path(kf.TRANSACTION_INDEX_SUFFIX).exists()):
                self._put_index(work, found, kf.TRANSACTION_INDEX_SUFFIX, "txn", aborted)
        found.drop_entries()
        if found.finding is not None:
            is_shortened = self._is_in_place and any(one.change == "changed" for one in self._report.files[n_files:])
            self._report.findings.add(_shortened(found.finding) if is_shortened else found.finding)
        if found.is_cut or found.is_emptied:
            why = f"behind the damage in {found.segment.path.name}: recovery deletes it"
            self._stop(work, found.segment, why)

    def _put_index(
        self, work: _Work, found: RecoveredSegment, suffix: str, kind: Kind, entries: npt.NDArray[np.void]
    ) -> None:
        path = found.segment.sidecar_path(suffix)
        # AbstractIndex.isFull, before each entry; and AbstractIndex.resize cannot cut what is in use
        if kind == "txn" or entries.size <= work.max_index_bytes // entries.dtype.itemsize:
            self._put(path, kind, entries.tobytes(), entries.size)
            return
        detail = (
            f"not written: {entries.nbytes} bytes are needed, and segment.index.bytes is {work.max_index_bytes}; a"
            " broker fails when it recovers such a segment, and does not start where it is the last one. Take a larger"
            " index interval"
        )
        self._report.findings.add(Finding(Reason.INDEX_SIZE, detail, path=str(path)))

    def _leave(self, work: _Work, segment: Segment) -> None:
        """Keep the files of a damaged segment, and those of later ones that depend on what it hides."""
        why = 'its .log is damaged, and it keeps the files it has (damaged="cut", --damaged cut: they end there)'
        if work.only is None or segment.base_offset in work.only:
            self._skip(segment, work.kinds & {"offset", "time", "txn"}, why)
        if work.damaged_at is not None:
            return
        work.damaged_at = segment.base_offset
        why = f"behind the damage in {segment.path.name}, which hides what producers did"
        for later in work.segments[work.segments.index(segment) + 1 :]:
            if work.only is None or later.base_offset in work.only:
                self._skip(later, work.kinds & {"txn"}, why)
        at = str(work.partition.path)
        if "snapshot" in work.kinds:
            self._report.skipped.append(Skipped(at, "snapshot", why))
        if "epochs" in work.kinds and not work.found:
            self._report.skipped.append(Skipped(at, "epochs", f"no segment before the damage in {segment.path.name}"))

    def _stop(self, work: _Work, segment: Segment, why: str) -> None:
        """Leave what is behind a segment alone."""
        work.is_stopped = True
        for later in work.segments[work.segments.index(segment) + 1 :]:
            self._report.skipped.extend(Skipped(str(later.path), kind, why) for kind in KINDS[:3] if kind in work.kinds)

    def _finish(self, work: _Work) -> None:
        """What is the partition's: snapshots, and leader epochs."""
        if work.found:
            self._put_common(work)
        self._target.settle()

    def _put_common(self, work: _Work) -> None:
        log_end_offset = work.found[-1].next_offset
        bases = [found.segment.base_offset for found in work.found]
        if work.damaged_at is not None:
            log_end_offset = work.damaged_at  # the last snapshot is the one at the damaged segment's base
            bases.append(log_end_offset)
        if "snapshot" in work.kinds:
            snapshots = work.replay.finish(bases, log_end_offset)
            wanted = snapshots.keys() if work.only is None else self._snapshots_of(work, work.only)
            for offset, entries in sorted(snapshots.items()):
                if offset in wanted:
                    self._put(
                        work.file(offset, kf.PRODUCER_SNAPSHOT_SUFFIX),
                        "snapshot",
                        encode_snapshot(entries),
                        entries.size,
                    )
            if work.only is None and not work.is_stopped and work.damaged_at is None:
                self._remove_strays(work, snapshots)
        if "epochs" in work.kinds:
            self._put_epochs(work, log_end_offset)

    @staticmethod
    def _snapshots_of(work: _Work, only: frozenset[int]) -> set[int]:
        """Offsets of the snapshots at the beginning and at the end of segments that were named."""
        all_bases = [one.base_offset for one in work.partition.segments]
        ends = [*all_bases[1:], work.found[-1].next_offset]
        return set(only) | {end for base, end in zip(all_bases, ends, strict=True) if base in only}

    def _remove_strays(self, work: _Work, kept: Iterable[int]) -> None:
        names = {kf.segment_file_name(offset, kf.PRODUCER_SNAPSHOT_SUFFIX) for offset in kept}
        for path in sorted(work.partition.path.glob(f"*{kf.PRODUCER_SNAPSHOT_SUFFIX}")):
            if path.name not in names and kf.parse_base_offset(path.name) is not None:
                backup = self._target.remove(path) if self._is_in_place else None
                self._note(RebuiltFile(str(path), "snapshot", 0, 0, "removed", None if backup is None else str(backup)))

    def _put_epochs(self, work: _Work, log_end_offset: int) -> None:
        path = work.partition.path / kf.LEADER_EPOCH_CHECKPOINT
        existing = None
        try:
            existing = read_leader_epochs(path)
        except KafkalogError as error:
            self._report.findings.add(error.to_finding())
        found = leader_epochs.epochs_of(found.epochs for found in work.found)
        merged = leader_epochs.merge(
            existing,
            found,
            None if work.is_stopped or work.damaged_at is not None else log_end_offset,
            covered_to=max((one.map_end_offset for one in work.found if one.epochs), default=0),
        )
        if work.partition.log_start_offset > work.found[0].segment.base_offset:
            merged = leader_epochs.truncate_from_start(merged, work.partition.log_start_offset)
        if merged or path.exists():
            self._put(path, "epochs", encode_checkpoint(merged), len(merged))

    def _put(self, path: Path, kind: Kind, data: bytes, n_entries: int) -> None:
        old = old_content(path)
        change: Change = "same" if old == data else "changed" if path.exists() else "new"
        backup = None
        if change == "same":
            self._target.keep(path, data)
        else:
            backup = self._target.put(path, data)
        self._note(RebuiltFile(str(path), kind, n_entries, len(data), change, None if backup is None else str(backup)))

    def _note(self, file: RebuiltFile) -> None:
        self._report.files.append(file)
        self._on_file(file)

    def _interval(self, partition: Partition) -> IndexInterval:
        root = partition.path.absolute().parent
        if root not in self._configs:
            self._configs[root] = configs = read_cluster_configs(root, limits=self._limits)
            for finding in configs.findings if configs is not None else ():
                self._report.findings.add(finding)
        return index_interval(partition, self._configs[root])

    def _plan_segments(
        self, partition: Partition, only: frozenset[int], kinds: frozenset[str]
    ) -> tuple[frozenset[str], list[Segment], ProducerSnapshot | None]:
        """What of the kinds can be made for some segments, which segments to read for it, and the state before."""
        named = [one for one in partition.segments if one.base_offset in only]
        first = named[0]
        before = [one for one in partition.segments if one.base_offset <= named[-1].base_offset]
        self._skip(first, kinds & {"epochs"}, "leader epochs are the whole partition's: name the directory")
        kinds -= {"epochs"}
        if not kinds & _REPLAYED:
            return kinds, named, None
        newest = self._newest_snapshot(partition, first.base_offset)
        if newest is not None:
            start = newest.end_offset or 0
            number = max((number for number, one in enumerate(before) if one.base_offset <= start), default=0)
            if before[number].base_offset == start:
                return kinds, before[number:], newest
        if first.base_offset and before[0] is first and partition.topic_partition is None:
            why = "a segment alone does not tell what its producers did before, and no snapshot does"
            self._skip(first, kinds & _REPLAYED, why)
            return kinds - _REPLAYED, named, None
        return kinds, before, None

    def _newest_snapshot(self, partition: Partition, upto: int) -> ProducerSnapshot | None:
        paths = sorted(partition.path.glob(f"*{kf.PRODUCER_SNAPSHOT_SUFFIX}"), reverse=True)
        bases = {one.base_offset for one in partition.segments}
        for path in paths:
            offset = kf.parse_base_offset(path.name)
            if offset is None or not partition.log_start_offset <= offset <= upto or offset not in bases:
                continue
            try:
                return read_snapshot(path)
            except KafkalogError as error:
                self._report.findings.add(error.to_finding(damage=isinstance(error, SidecarError)))
        return None

    def _skip(self, segment: Segment, kinds: Iterable[str], why: str) -> None:
        self._report.skipped.extend(Skipped(str(segment.path), kind, why) for kind in KINDS if kind in set(kinds))
