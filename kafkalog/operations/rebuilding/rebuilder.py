"""Does the work of a rebuild: reads segments ahead in threads and writes their derived files in order.

Mirrors `LogLoader.recoverLog` and `UnifiedLog.rebuildProducerState`. It does not change `.log` files; a `RebuildTarget`
decides where files are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

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
from kafkalog.log.directory import Directory
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.index_interval import IndexInterval, index_interval, max_index_bytes
from kafkalog.operations.rebuilding.rebuilt_files import Damaged, RebuildReport, Skipped
from kafkalog.operations.rebuilding.target import RebuildTarget, compared
from kafkalog.scanning.ordered_pool import OrderedPool, Pending
from kafkalog.state import leader_epochs
from kafkalog.state.checkpoints import encode_checkpoint, read_leader_epochs
from kafkalog.state.producers import (
    PRODUCER_ID_EXPIRATION_MS,
    ProducerSnapshot,
    ProducerState,
    encode_snapshot,
    kept_snapshots,
    newest_snapshot,
)
from kafkalog.state.transactions import ENDED_DTYPE, aborted_entries
from kafkalog.storage.location import Place, local_path, parent_of
from kafkalog.survey.startup import Kind, RebuiltFile
from kafkalog.survey.topics import TopicSettings

KINDS: tuple[Kind, ...] = ("offset", "time", "txn", "snapshot", "epochs")

_REPLAYED = frozenset({"txn", "snapshot"})


@dataclass(slots=True)
class Work:
    """The plan and the progress of one partition."""

    partition: Partition
    only: frozenset[int] | None
    kinds: frozenset[str]
    interval: IndexInterval
    replay: ProducerReplay
    segments: list[Segment]
    max_index_bytes: int
    found: list[RecoveredSegment] = field(default_factory=list)
    stopped_by: Finding | None = None
    """Damage, or a file that could not be read or written: later segments are left as they are."""
    damaged_at: int | None = None
    """Base offset of the first damaged segment that keeps its files: producers cannot be replayed from there on."""
    needs_producers: bool = False
    """Whether the batches of producers are passed to the target, replayed or not."""
    passes: frozenset[int] = frozenset()
    """Base offsets of segments after which the work goes on although they are cut."""
    passed_snapshots: frozenset[int] = frozenset()
    """Offsets of snapshots that are written, too, if the replay on the way to the first segment takes them."""

    def file(self, base_offset: int, suffix: str) -> Path:
        return local_path(self.partition.path) / kf.segment_file_name(base_offset, suffix)


def _shortened(finding: Finding) -> Finding:
    """Add to a finding what happens if a broker starts without recovering the segment."""
    if not finding.damage:
        return finding
    detail = (
        "its indexes also end there: without recovery, as after a clean shutdown, a broker serves the rest, but"
        " finds no times in it, and retention counts from the last entry"
    )
    return replace(finding, detail=f"{finding.detail}; {detail}")


RUN_AGAIN: Final = "all that could be written is in place; run it again for the rest, once the cause is gone"


class Rebuilder:
    """Reads segments ahead and passes their derived files to a target in order; fills `report`.

    With `is_in_place`, `target` replaces the existing files, or would in a dry run. `configs` is what is known of
    clusters' metadata, by log dir; others are read when they are needed. For the callables see `reindex`.
    """

    def __init__(
        self,
        report: RebuildReport,
        target: RebuildTarget,
        *,
        is_in_place: bool,
        damaged: Damaged,
        limits: Limits,
        progress: Callable[[int], object] = lambda n_bytes: None,
        on_file: Callable[[RebuiltFile], object] = lambda file: None,
        configs: dict[Place, TopicSettings] | None = None,
    ) -> None:
        self._report, self._target, self._is_in_place, self._damaged = report, target, is_in_place, damaged
        self._limits, self._progress, self._on_file = limits, progress, on_file
        self._failed: list[KafkalogError] = []
        self._reported: set[Finding] = set()
        self._configs = {} if configs is None else configs

    def plan(
        self,
        partition: Partition,
        only: frozenset[int] | None,
        kinds: frozenset[str],
        given: int | None,
        now_ms: int | None,
    ) -> Work:
        """Plan the work on a partition: kinds, settings, segments to read, and the producer state before them."""
        interval = IndexInterval(given, "given") if given is not None else self._interval(partition)
        self._report.intervals[partition.path.absolute().name] = interval
        segments, newest = partition.segments, None
        if only is not None:
            kinds, segments, newest = self._plan_segments(partition, only, kinds)
        replay = ProducerReplay(partition.log_start_offset, now_ms=now_ms, newest=newest, limits=self._limits)
        # no cluster metadata if the caller set the interval: they are not read for this setting alone
        configs = self._configs.get(partition.path.absolute().parent)
        return Work(partition, only, kinds, interval, replay, segments, max_index_bytes(partition, configs))

    def run(self, works: Iterable[Work], threads: int) -> None:
        """Rebuild the planned partitions. In place, a WriteError is raised after all other partitions are done."""
        with OrderedPool(threads, "kafkalog-rebuild") as pool:
            # twice as many segments as threads, so that no thread is idle while files are written
            for step in pool.ahead(self._steps(pool, works), 2 * threads):
                self._take_step(*step)
        if self._failed:
            first, *others = self._failed
            first.add_note(RUN_AGAIN)
            for error in others:
                first.add_note(f"also {error}")
            raise first

    def _steps(
        self, pool: OrderedPool, works: Iterable[Work]
    ) -> Iterator[tuple[Work, Segment | None, Pending[RecoveredSegment] | None]]:
        """Submit segments for reading, in order; a step without a segment ends each partition."""
        for work in works:
            for segment in work.segments:
                if work.stopped_by is not None:
                    break
                yield work, segment, pool.submit(partial(self._recover, work, segment))
            yield work, None, None

    def _take_step(self, work: Work, segment: Segment | None, pending: Pending[RecoveredSegment] | None) -> None:
        try:
            if segment is None or pending is None:
                self._finish(work)
            else:
                self._receive(work, segment, pending)
        except (WriteError, OutputExistsError, UnsafePathError) as error:
            # an output appears whole or not at all; in place, each partition that can be done counts
            if not self._is_in_place:
                raise
            self._failed.append(error)
            work.found.clear()  # no snapshots or epochs for this partition
            if segment is not None:
                why = f"{Path(error.path or segment.path).name} before it could not be written"
                self._stop(work, segment, error.to_finding(), why)

    def _receive(self, work: Work, segment: Segment, pending: Pending[RecoveredSegment]) -> None:
        # read ahead, before the damage in an earlier segment was known
        if work.stopped_by is not None:
            return
        try:
            found = pending.result()
        except KafkalogError as error:
            why, problem = f"{segment.path.name} before it could not be read to its end", error.to_finding()
            self._stop(work, segment, problem, f"{why} ({problem.reason.value})")
            self._find(problem)
            return
        self._take(work, found)

    def _find(self, finding: Finding) -> None:
        """Report a finding about a segment once: a segment is read again for the producers of each that follows."""
        if finding not in self._reported:
            self._reported.add(finding)
            self._report.findings.add(finding)

    def _recover(self, work: Work, segment: Segment) -> RecoveredSegment:
        with_producers = work.needs_producers or not _REPLAYED.isdisjoint(work.kinds)
        return recover(segment, work.interval.n_bytes, with_producers=with_producers, progress=self._progress)

    def _take(self, work: Work, found: RecoveredSegment) -> None:
        """Write the files of a recovered segment. Segments must come in order, for the replay of producers."""
        n_files = len(self._report.files)
        base = found.segment.base_offset
        self._report.n_bytes_read += found.n_valid_bytes
        damage = found.finding if found.finding is not None and found.finding.damage else found.unnoticed
        if self._damaged == "keep" and damage is not None:
            self._report.findings.add(damage)
            self._keep_files(work, found.segment)
            return
        kinds = work.kinds
        if work.damaged_at is None:
            work.found.append(found)
        else:
            kinds -= _REPLAYED
        aborted = np.empty(0, kf.TRANSACTION_INDEX_DTYPE)
        is_wanted = work.only is None or base in work.only
        if kinds & _REPLAYED:
            aborted = work.replay.feed(found, is_recovered=is_wanted)
        self._target.look(found)
        # freed at once: a long log has many segments, and each replay may be large
        found.replay = []
        if is_wanted:
            if "offset" in kinds:
                self._put_index(work, found, kf.INDEX_SUFFIX, "offset", found.offset_entries)
            if "time" in kinds:
                self._put_index(work, found, kf.TIME_INDEX_SUFFIX, "time", found.time_entries)
            # without entries no file is created, but an existing one is emptied
            if "txn" in kinds and (aborted.size or found.segment.has_sidecar(kf.TRANSACTION_INDEX_SUFFIX)):
                self._put_index(work, found, kf.TRANSACTION_INDEX_SUFFIX, "txn", aborted)
        found.drop_entries()
        if found.finding is not None:
            is_shortened = self._is_in_place and any(one.change == "changed" for one in self._report.files[n_files:])
            self._find(_shortened(found.finding) if is_shortened else found.finding)
            if (found.is_cut and base not in work.passes) or found.is_emptied:
                why = f"a broker's recovery deletes it, because of the damage in {found.segment.path.name}"
                self._stop(work, found.segment, found.finding, why)

    def _put_index(
        self, work: Work, found: RecoveredSegment, suffix: str, kind: Kind, entries: npt.NDArray[np.void]
    ) -> None:
        path = found.segment.sidecar_path(suffix)
        # a broker fails at AbstractIndex.isFull before an entry that does not fit, and AbstractIndex.resize cannot
        # shrink an index below its entries; a `.txnindex` has no limit
        if kind == "txn" or entries.size <= work.max_index_bytes // entries.dtype.itemsize:
            self._put(path, kind, entries.tobytes(), entries.size)
            return
        detail = (
            f"not written: it needs {entries.nbytes} bytes, but segment.index.bytes is {work.max_index_bytes}. A broker"
            " fails to recover such a segment, and does not start if it is the last one. Use a larger index interval"
        )
        self._report.findings.add(Finding(Reason.INDEX_SIZE, detail, path=str(path)))

    def _keep_files(self, work: Work, segment: Segment) -> None:
        """Keep the files of a damaged segment, and those files of later segments that depend on its lost batches."""
        why = (
            'its .log is damaged, so its old files stay; damaged="cut" (--damaged cut) writes indexes that end before'
            " the damage"
        )
        if work.only is None or segment.base_offset in work.only:
            self._skip(segment, work.kinds & {"offset", "time", "txn"}, why)
        if work.damaged_at is not None:
            return
        work.damaged_at = segment.base_offset
        why = f"the damage in {segment.path.name} hides what producers did before it"
        for later in work.segments[work.segments.index(segment) + 1 :]:
            if work.only is None or later.base_offset in work.only:
                self._skip(later, work.kinds & {"txn"}, why)
        at = str(work.partition.path)
        if "snapshot" in work.kinds:
            self._report.skipped.append(Skipped(at, "snapshot", why))
        if "epochs" in work.kinds and not work.found:
            self._report.skipped.append(
                Skipped(at, "epochs", f"no segment comes before the damage in {segment.path.name}")
            )

    def _stop(self, work: Work, segment: Segment, problem: Finding, why: str) -> None:
        """Stop this partition: the files of later segments are kept and reported as skipped."""
        work.stopped_by = problem
        for later in work.segments[work.segments.index(segment) + 1 :]:
            self._report.skipped.extend(Skipped(str(later.path), kind, why) for kind in KINDS[:3] if kind in work.kinds)

    def _finish(self, work: Work) -> None:
        """Write the files of the partition itself, and make everything durable."""
        if work.found:
            self._put_common(work)
        self._target.sync()

    def _put_common(self, work: Work) -> None:
        """Write producer snapshots and leader epochs."""
        log_end_offset = work.found[-1].next_offset
        bases = [found.segment.base_offset for found in work.found]
        if work.damaged_at is not None:
            log_end_offset = work.damaged_at  # the last reliable snapshot is at the damaged segment's base offset
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
            if work.only is None and work.stopped_by is None and work.damaged_at is None:
                self._remove_strays(work, snapshots)
        if "epochs" in work.kinds:
            self._put_epochs(work, log_end_offset)

    @staticmethod
    def _snapshots_of(work: Work, only: frozenset[int]) -> set[int]:
        """Offsets of the snapshots at the start and at the end of the named segments."""
        all_bases = [one.base_offset for one in work.partition.segments]
        ends = [*all_bases[1:], work.found[-1].next_offset]
        return (
            set(only) | work.passed_snapshots | {end for base, end in zip(all_bases, ends, strict=True) if base in only}
        )

    def _remove_strays(self, work: Work, kept: Iterable[int]) -> None:
        names = {kf.segment_file_name(offset, kf.PRODUCER_SNAPSHOT_SUFFIX) for offset in kept}
        # left there, an old snapshot after the last rebuilt one would be the newest, and a broker would start from it
        for name in Directory.or_empty(work.partition.path).snapshots:
            if name not in names:
                path = local_path(work.partition.path) / name
                backup = self._target.remove(path) if self._is_in_place else None
                self._note(RebuiltFile(str(path), "snapshot", 0, 0, "removed", None if backup is None else str(backup)))

    def _put_epochs(self, work: Work, log_end_offset: int) -> None:
        path = work.partition.path / kf.LEADER_EPOCH_CHECKPOINT
        existing, is_there = None, True
        try:
            existing = read_leader_epochs(path)
            is_there = existing is not None
        except KafkalogError as error:
            self._report.findings.add(error.to_finding())
        found = leader_epochs.epochs_of(found.epochs for found in work.found)
        merged = leader_epochs.merge(
            existing,
            found,
            None if work.stopped_by is not None or work.damaged_at is not None else log_end_offset,
            covered_to=max((one.map_end_offset for one in work.found if one.epochs), default=0),
        )
        if work.partition.log_start_offset > work.found[0].segment.base_offset:
            merged = leader_epochs.truncate_from_start(merged, work.partition.log_start_offset)
        if merged or is_there:
            self._put(path, "epochs", encode_checkpoint(merged), len(merged))

    def _put(self, place: Place, kind: Kind, data: bytes, n_entries: int) -> None:
        path = local_path(place)
        change = compared(path, data)
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
        root = parent_of(partition.path)
        if root not in self._configs:
            self._configs[root] = settings = TopicSettings.of([root], limits=self._limits)
            for finding in settings.findings:
                self._report.findings.add(finding)
        return index_interval(partition, self._configs[root])

    def _plan_segments(
        self, partition: Partition, only: frozenset[int], kinds: frozenset[str]
    ) -> tuple[frozenset[str], list[Segment], ProducerSnapshot | None]:
        """Plan a rebuild of some segments: the kinds, the segments to read, the newest snapshot before these.

        Earlier segments are read only to replay the producers.
        """
        named = [one for one in partition.segments if one.base_offset in only]
        first = named[0]
        before = [one for one in partition.segments if one.base_offset <= named[-1].base_offset]
        self._skip(first, kinds & {"epochs"}, "leader epochs belong to the whole partition: name its directory")
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
            why = "the state of its producers before the segment is unknown: no snapshot has it"
            self._skip(first, kinds & _REPLAYED, why)
            return kinds - _REPLAYED, named, None
        return kinds, before, None

    def _newest_snapshot(self, partition: Partition, upto: int) -> ProducerSnapshot | None:
        bases = {one.base_offset for one in partition.segments}

        def report(error: KafkalogError) -> None:
            self._find(error.to_finding(damage=isinstance(error, SidecarError)))

        # one at the log start offset is deleted by a broker, not loaded (ProducerStateManager.truncateAndReload)
        start = partition.log_start_offset + 1
        return newest_snapshot(partition.path, start, upto, report=report, wanted=bases.__contains__)

    def _skip(self, segment: Segment, kinds: Iterable[str], why: str) -> None:
        self._report.skipped.extend(Skipped(str(segment.path), kind, why) for kind in KINDS if kind in set(kinds))


class ProducerReplay:
    """Replays recovered segments, which must come in order, and collects producer snapshots.

    Does what `LogLoader.recoverSegment` and `UnifiedLog.rebuildProducerState` do around each segment: the state is
    loaded from the newest snapshot, and new snapshots are taken at the segment's base offset and at its end. A broker
    drops idle producers when it loads a snapshot; this class does so only for a given time.

    Snapshots at or below `log_start_offset` are dropped. Producers expire by `now_ms`, the broker's clock; None: never.
    `newest` is the state before the first segment. `snapshots` has entries (PRODUCER_SNAPSHOT_DTYPE) by end offset.
    """

    def __init__(
        self,
        log_start_offset: int,
        *,
        now_ms: int | None = None,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        newest: ProducerSnapshot | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.snapshots: dict[int, npt.NDArray[np.void]] = {}
        self._log_start_offset, self._now, self._expiration = log_start_offset, now_ms, expiration_ms
        self._newest, self._limits = newest, limits
        self._end: tuple[int, ProducerState] | None = None
        self._was_recovered = True

    def feed(self, found: RecoveredSegment, *, is_recovered: bool = True) -> npt.NDArray[np.void]:
        """Replay a segment, and return the entries of its `.txnindex` (TRANSACTION_INDEX_DTYPE).

        `is_recovered` is False for a segment that a broker only replays on the way to a later one.
        """
        base = found.segment.base_offset
        # loaded again for each segment, as a broker does: it forgets producers that have expired by then
        is_carried = self._end is not None and not self._was_recovered and self._end[0] <= base
        # a broker does not replay what lies before the log start offset
        if is_carried and (base > self._log_start_offset or not is_recovered):
            assert self._end is not None
            state, last_snapshot = self._end[1], max(self.snapshots, default=self._log_start_offset)
        else:
            state, last_snapshot = self._load(base)
        self._was_recovered = is_recovered
        if base > last_snapshot:
            last_snapshot = self._take(base, state)
        ended = [np.empty(0, ENDED_DTYPE)]
        for batches, coordinator_epoch in found.replay:
            if not is_recovered and len(batches) and batches.last_offset[0] < self._log_start_offset:
                is_left = batches.last_offset >= self._log_start_offset
                batches, coordinator_epoch = batches[is_left], coordinator_epoch[is_left]
            # offsets, not positions: a transaction may have begun in an earlier segment
            ended.append(state.update(batches, log_position=batches.base_offset, coordinator_epoch=coordinator_epoch))
        if found.map_end_offset > last_snapshot:
            self._take(found.map_end_offset, state)
        self._end = found.map_end_offset, state
        return aborted_entries(np.concatenate(ended))

    def finish(self, base_offsets: list[int], log_end_offset: int) -> dict[int, npt.NDArray[np.void]]:
        """The snapshots that remain after a broker loaded the log: at base offsets and at the log end offset."""
        there = filter(log_end_offset.__ge__, self.snapshots)
        kept = kept_snapshots(there, base_offsets, start=self._log_start_offset, end=log_end_offset)
        self.snapshots = {offset: self.snapshots[offset] for offset in kept}
        if log_end_offset:
            state, last_snapshot = self._load(log_end_offset)
            if log_end_offset > last_snapshot:
                self._take(log_end_offset, state)
        return self.snapshots

    def _load(self, offset: int) -> tuple[ProducerState, int]:
        """The state of the newest snapshot at or below an offset, and the snapshot's offset."""
        usable = [at for at in self.snapshots if self._log_start_offset < at <= offset]
        if self._end is not None and self._end[0] > offset not in usable:
            # the segment before claims to end after it: a broker drops that snapshot, and replays the segment again
            self.snapshots.pop(self._end[0], None)
            return self._end[1], max(usable, default=self._log_start_offset)
        snapshot = ProducerSnapshot(max(usable), self.snapshots[max(usable)]) if usable else self._newest
        if not offset or snapshot is None:
            return ProducerState(limits=self._limits), self._log_start_offset if offset else 0
        loaded = ProducerState(snapshot, now_ms=self._now, expiration_ms=self._expiration, limits=self._limits)
        return loaded, snapshot.end_offset or 0

    def _take(self, offset: int, state: ProducerState) -> int:
        self.snapshots[offset] = state.entries()
        return offset
