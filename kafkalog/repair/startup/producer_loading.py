"""The producers of a partition while a broker loads it: which snapshots it takes and deletes, and what it dies of.

Mirrors `UnifiedLog.rebuildProducerState`, `ProducerStateManager` and `ProducerAppendInfo`, batch by batch. Where all
that is replayed is intact, only the offsets of the snapshots matter, and batches are not replayed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.records.batch_table import BatchTable
from kafkalog.repair.startup.control_records import marker
from kafkalog.repair.startup.forecast import LoadFailure
from kafkalog.repair.startup.segment_reading import BatchHeader, LoadedSegment
from kafkalog.state.producers import PRODUCER_ID_EXPIRATION_MS, hash_order, with_markers

_Value = TypeVar("_Value")
Replay = Literal["skip", "check", "exact"]


class NotPlain(Exception):
    """Batches have to be replayed one by one."""


class ReplayCheck:
    """Looks for what makes a broker stop in a replay, so that batches have to be replayed one by one.

    Attributes
    ----------
    is_plain : bool
        False if there is a marker that stops a broker, or a producer that is transactional only now and then.
    """

    def __init__(self) -> None:
        self.is_plain = True
        self._always: set[int] = set()
        self._never: set[int] = set()

    def add(self, batches: BatchTable, coordinator_epoch: npt.NDArray[np.int32]) -> None:
        """Look at batches of producers, with the coordinator epochs of the markers among them."""
        is_control = batches.is_control
        is_marker = is_control & (batches.records_count != 0)
        is_wrong = (batches.codec != 0) | (coordinator_epoch < 0) | (batches.control_type < 0)
        is_wrong |= batches.control_type > kf.ControlRecordType.COMMIT
        is_transactional = (batches.attributes & kf.TRANSACTIONAL_BIT) != 0
        self._always.update(np.unique(batches.producer_id[~is_control & is_transactional]).tolist())
        self._never.update(np.unique(batches.producer_id[~is_control & ~is_transactional]).tolist())
        self.is_plain &= not (is_marker & is_wrong).any() and self._always.isdisjoint(self._never)

    def add_open(self, producer_id: int) -> None:
        """A transaction of a producer is open: its next batch has to be transactional."""
        self._always.add(producer_id)
        self.is_plain &= producer_id not in self._never


class ProducerLoading:
    """The producer snapshots of a partition while it is loaded.

    Parameters
    ----------
    snapshots : mapping of int to PRODUCER_SNAPSHOT_DTYPE[n] or None
        The snapshots that are there, by offset; None for one that cannot be read.
    broker : {"4.3", "2.8"}
    now_ms : int, optional
        The broker's clock; default: no producer expires.
    replay : {"skip", "check", "exact"}
        "exact": batch by batch. "check": `NotPlain` is raised where that is needed. "skip": no batch is looked at.
    seen : ReplayCheck, optional
        Has looked at batches already that are replayed here, of segments that were read before.

    Attributes
    ----------
    snapshots : dict of int to PRODUCER_SNAPSHOT_DTYPE[n] or None
        Those that are there now.
    taken : set of int
        Offsets of those that were taken here, if they are still there. Their content is known with "exact" only.
    aborted : dict of int to TRANSACTION_INDEX_DTYPE[n]
        The transaction index of each segment that was recovered, by its base offset; with "exact" only.
    begun : set of int
        First offsets of the transactions that are open in the snapshots that were loaded, and of some that begin later.
    """

    def __init__(
        self,
        snapshots: Mapping[int, npt.NDArray[np.void] | None],
        broker: str,
        now_ms: int | None,
        *,
        replay: Replay,
        seen: ReplayCheck | None = None,
    ) -> None:
        self.snapshots = dict(snapshots)
        self.taken: set[int] = set()
        self.aborted: dict[int, npt.NDArray[np.void]] = {}
        self.indexed: set[int] = set()
        self.begun: set[int] = set()
        self.is_exact = replay == "exact"
        self._is_checked = replay == "check"
        self._first = frozenset(snapshots)
        self._broker, self._now = broker, now_ms
        self._last = (-1, -1)
        self._check = seen or ReplayCheck()

    def begin_recovery(self, loaded: Collection[LoadedSegment], base_offset: int, log_start: int) -> _Manager:
        """The producers before a segment, when others are loaded. Source: LogLoader.recoverSegment, Kafka 4.3."""
        if self._is_checked and self._last[0] < base_offset < self._last[1]:
            raise NotPlain  # the segment before says that it ends behind this base offset
        manager = _Manager(self)
        self._rebuild(manager, loaded, log_start, base_offset)
        return manager

    def recover(self, manager: _Manager, segment: LoadedSegment, found: RecoveredSegment) -> None:
        """Replay a segment that is recovered, up to where it is cut.

        Raises
        ------
        LoadFailure
            The broker does not start.

        Notes
        -----
        Source: LogSegment.recover, LogSegment.updateProducerState, Kafka 4.3.
        """
        if not self.is_exact:
            if self._is_checked and found.unnoticed is not None:
                raise NotPlain
            for batches, coordinator_epoch in found.replay if self._is_checked else ():
                self._check.add(batches, coordinator_epoch)
            if self._is_checked and not self._check.is_plain:
                raise NotPlain
            self._last = segment.base_offset, found.next_offset
            if not found.is_emptied:
                manager.map_end = found.map_end_offset
                manager.take()
            return
        stop = found.n_replayed_bytes if found.is_emptied else found.n_valid_bytes
        ended: list[tuple[int, int, int, int]] = []
        for batch in segment.batches(0, stop):
            if not batch.is_v2:
                continue
            producer_id = batch.field(43, 8)
            if producer_id >= 0:
                appended = _Append(producer_id, manager.producers.get(producer_id))
                transaction = appended.append(batch, segment, self._broker)
                manager.update(appended)
                if transaction is not None:
                    first, last, is_abort = transaction
                    stable = manager.last_stable_offset(producer_id, last)
                    if is_abort:
                        if ended and ended[-1][2] >= last:
                            raise LoadFailure("IllegalArgumentException", "aborted transactions do not end in order")
                        ended.append((producer_id, first, last, stable))
                    manager.complete(first)
            manager.map_end = batch.last_offset + 1
        if not found.is_emptied:
            manager.take()
        entries = [(0, *one) for one in ended if not found.is_emptied]
        if ended:
            self.indexed.add(segment.base_offset)
        self.aborted[segment.base_offset] = np.array(entries, kf.TRANSACTION_INDEX_DTYPE)

    def remove(self, base_offsets: Iterable[int]) -> None:
        """Segments behind damage are deleted, with their snapshots.

        The broker knows the snapshots that were there when it began, and those that it took under the same names.
        Source: LogLoader.deleteProducerSnapshotsAsync, Kafka 4.3.
        """
        for base in base_offsets:
            if base in self._first:
                self.delete(base)

    def load(self, loaded: list[LoadedSegment], log_start: int, log_end: int, *, is_clean: bool) -> None:
        """The log is loaded, once all is recovered.

        Raises
        ------
        LoadFailure
            The broker does not start.

        Notes
        -----
        Source: ProducerStateManager.removeStraySnapshots, LogLoader.load, Kafka 4.3.
        """
        bases = [segment.base_offset for segment in loaded]
        strays = sorted(self.snapshots.keys() - set(bases))
        for stray in strays:
            if stray != strays[-1] or stray < max(bases, default=0):
                self.delete(stray)
        manager = _Manager(self)
        if is_clean and not self.snapshots:
            # the state is forgotten; these spare the next start a replay
            for offset in [*bases[-2:], log_end]:
                manager.map_end = offset
                manager.take()
        else:
            self._rebuild(manager, loaded, log_start, log_end)
        if self.is_exact and manager.unstable:
            self._look_up(max(min(manager.unstable), log_start), loaded, log_end)
        elif self._is_checked:
            try:
                for first in self.begun:
                    self._look_up(max(first, log_start), loaded, log_end)
            except LoadFailure as failure:
                raise NotPlain from failure

    def _look_up(self, offset: int, loaded: list[LoadedSegment], log_end: int) -> None:
        """Find the first offset of a transaction in the log, whatever is in the way.

        Source: UnifiedLog.maybeIncrementFirstUnstableOffset, LocalLog.read, Kafka 4.3; Log.read, Kafka 2.8.
        """
        if offset > log_end and self._broker == "2.8":
            detail = f"a transaction begins at {offset}, beyond the log end offset {log_end}"
            raise LoadFailure("OffsetOutOfRangeException", detail)
        if offset >= log_end:
            return
        floor = max((one.base_offset for one in loaded if one.base_offset <= offset), default=None)
        for one in loaded:
            if floor is not None and one.base_offset >= floor and one.position_of(offset) is not None:
                return

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A snapshot that is loaded has an open transaction."""
        self.begun.add(first_offset)
        self._check.add_open(producer_id)

    def delete(self, offset: int) -> None:
        """A snapshot is deleted, if it is there."""
        self.snapshots.pop(offset, None)
        self.taken.discard(offset)

    def _rebuild(self, manager: _Manager, loaded: Collection[LoadedSegment], log_start: int, end: int) -> None:
        """Source: UnifiedLog.rebuildProducerState, Kafka 4.3."""
        manager.truncate_and_reload(log_start, end, self._now)
        if end > manager.map_end and end > 0:
            loaded = [*loaded]
            bases = [segment.base_offset for segment in loaded]
            floor = max((base for base in bases if base <= manager.map_end), default=None)
            last = max((base for base in bases if base <= end), default=None)
            for number, segment in enumerate(loaded):
                base = segment.base_offset
                if base >= end or (floor is not None and base < floor):
                    continue
                start = max(base, manager.map_end, log_start)
                manager.map_end = start
                if base in bases[-2:]:
                    manager.take()
                following = bases[number + 1] if number + 1 < len(bases) else None
                if self.is_exact:
                    self._replay(manager, segment, start, end if base == last else None)
                elif self._is_checked:
                    self._pass(segment, start, end if base == last else None, following)
        manager.map_end = end
        manager.take()

    def _replay(self, manager: _Manager, segment: LoadedSegment, start: int, end: int | None) -> None:
        """Source: UnifiedLog.loadProducersFromRecords, Kafka 4.3."""
        position = segment.size_in_bytes
        if end is not None:
            found = segment.position_of(end)
            position = position if found is None else found
        appended: dict[int, _Append] = {}
        completed = []
        for batch in segment.read(start, position) or ():
            producer_id = batch.field(43, 8) if batch.is_v2 else -1
            if producer_id < 0:
                continue
            if producer_id not in appended:
                appended[producer_id] = _Append(producer_id, manager.producers.get(producer_id))
            transaction = appended[producer_id].append(batch, segment, self._broker)
            if transaction is not None:
                completed.append(transaction[0])
        for one in _in_hash_order(appended):
            manager.update(one)
        for first in completed:
            manager.complete(first)

    def _pass(self, segment: LoadedSegment, start: int, end: int | None, following: int | None) -> None:
        """Make sure that nothing in a segment stops a replay, or raise NotPlain."""
        one, begins = segment.segment, {0}
        position, next_offset = 0, segment.base_offset
        wanted = {segment.index_position(offset) for offset in (start, end) if offset is not None}
        try:
            with one.open() as source:
                for window in one.iter_windows(source):
                    batches = window.batches
                    if not len(batches):
                        continue
                    if batches.base_offset[0] < next_offset or ((batches.magic < 2) & (batches.codec != 0)).any():
                        raise NotPlain
                    begins.update(wanted.intersection(batches.position.tolist()))
                    position, next_offset = int(batches.next_position[-1]), int(batches.last_offset[-1]) + 1
                    rows = np.flatnonzero((batches.producer_id >= 0) & (batches.magic >= 2))
                    begun = rows[(batches.attributes[rows] & kf.TRANSACTIONAL_BIT) != 0][:1]
                    self.begun.update(batches.base_offset[begun].tolist())
                    self._check.add(*with_markers(window, batches[rows]))
                    if not self._check.is_plain:
                        raise NotPlain
                    source.release(window.data, window.start)
        except KafkalogError as error:
            raise NotPlain from error
        limit = end if following is None else following
        is_over = limit is not None and next_offset > limit
        if is_over or position != segment.size_in_bytes or not wanted <= begins:
            raise NotPlain


@dataclass(slots=True)
class _Entry:
    """Source: ProducerStateEntry, Kafka 4.3."""

    producer_epoch: int = -1
    coordinator_epoch: int = -1
    timestamp: int = -1
    first_offset: int | None = None
    """Of the transaction that is open."""
    batch: tuple[int, int, int] | None = None
    """Last sequence, last offset and offset delta of the last batch."""

    def change_epoch(self, epoch: int) -> None:
        """A new epoch forgets the batches."""
        if epoch != self.producer_epoch:
            self.producer_epoch, self.batch = epoch, None


class _Append:
    """Batches of a producer that are replayed at a time. Source: ProducerAppendInfo, Kafka 4.3."""

    def __init__(self, producer_id: int, entry: _Entry | None) -> None:
        old = entry or _Entry()
        self.producer_id = producer_id
        self.entry = _Entry(old.producer_epoch, old.coordinator_epoch, old.timestamp, old.first_offset)
        self.started: list[int] = []

    def append(self, batch: BatchHeader, segment: LoadedSegment, broker: str) -> tuple[int, int, bool] | None:
        """Replay a batch; returns first and last offset of the transaction that it ends, and whether it is aborted."""
        try:
            return self._append(batch, segment, broker)
        except LoadFailure as failure:
            failure.path, failure.position = segment.segment.path, batch.position
            raise

    def _append(self, batch: BatchHeader, segment: LoadedSegment, broker: str) -> tuple[int, int, bool] | None:
        attributes, epoch = batch.head[22], batch.field(51, 2)
        if attributes & kf.CONTROL_BIT:
            end = marker(batch, segment.content(batch), broker)
            if end is None:
                return None
            first = self.entry.first_offset
            self.entry.change_epoch(epoch)
            self.entry.coordinator_epoch, self.entry.timestamp = end.coordinator_epoch, end.timestamp
            self.entry.first_offset = None
            return None if first is None else (first, batch.offset, end.is_abort)
        is_transactional = attributes & kf.TRANSACTIONAL_BIT != 0
        delta, sequence = batch.field(23, 4), batch.field(53, 4)
        self.entry.change_epoch(epoch)
        self.entry.batch = _last_sequence(sequence, delta), batch.last_offset, _int(batch.last_offset - batch.offset)
        self.entry.timestamp = batch.field(35, 8)
        if self.entry.first_offset is not None and not is_transactional:
            detail = f"the batch at {batch.position} is in no transaction, though producer {self.producer_id} has one"
            raise LoadFailure("InvalidTxnStateException", detail)
        if self.entry.first_offset is None and is_transactional:
            self.entry.first_offset = batch.offset
            self.started.append(batch.offset)
        return None


@dataclass(slots=True)
class _Manager:
    """Source: ProducerStateManager, Kafka 4.3."""

    files: ProducerLoading
    producers: dict[int, _Entry] = field(default_factory=dict)
    ongoing: dict[int, int] = field(default_factory=dict)
    """Producer ids by the first offset of a transaction."""
    completed: set[int] = field(default_factory=set)
    """First offsets of those that ended here: the high watermark is still where the log starts."""
    map_end: int = 0
    snapshot_end: int = 0

    def truncate_and_reload(self, log_start: int, end: int, now_ms: int | None) -> None:
        """Delete the snapshots out of range, and load the newest one that can be read."""
        files = self.files
        if files.snapshots and (min(files.snapshots) <= log_start or max(files.snapshots) > end):
            for offset in [one for one in files.snapshots if not log_start < one <= end]:
                files.delete(offset)
        if not end:
            self.map_end = max(self.map_end, log_start)
            self.snapshot_end = max(files.snapshots, default=log_start)
            return
        while files.snapshots:
            newest = max(files.snapshots)
            entries = files.snapshots[newest]
            if entries is None and newest not in files.taken:
                files.delete(newest)
                continue
            for entry in [] if entries is None else entries.tolist():
                self._load(entry, now_ms)
            self.map_end = self.snapshot_end = newest
            return
        self.map_end = self.snapshot_end = log_start

    def _load(self, entry: tuple[int, ...], now_ms: int | None) -> None:
        producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, begun = entry
        first = begun if begun >= 0 else None
        if first is None and now_ms is not None and now_ms - timestamp >= PRODUCER_ID_EXPIRATION_MS:
            return
        batch = (sequence, last_offset, delta) if last_offset >= 0 else None
        self.producers[producer_id] = _Entry(epoch, coordinator_epoch, timestamp, first, batch)
        if first is not None:
            self.ongoing[first] = producer_id
            self.files.begin(producer_id, first)

    def update(self, appended: _Append) -> None:
        """Take what was replayed of a producer."""
        new = appended.entry
        old = self.producers.setdefault(appended.producer_id, new)
        old.change_epoch(new.producer_epoch)
        old.batch = new.batch or old.batch
        old.coordinator_epoch, old.timestamp = new.coordinator_epoch, new.timestamp
        old.first_offset = new.first_offset
        self.ongoing.update(dict.fromkeys(appended.started, appended.producer_id))

    def last_stable_offset(self, producer_id: int, last_offset: int) -> int:
        """Once a transaction of a producer has ended."""
        others = (first for first, other in self.ongoing.items() if other != producer_id)
        return min(others, default=last_offset + 1)

    def complete(self, first_offset: int) -> None:
        """A transaction has ended."""
        if self.ongoing.pop(first_offset, None) is None:
            detail = f"a transaction ends that did not begin at {first_offset}"
            raise LoadFailure("IllegalArgumentException", detail)
        self.completed.add(first_offset)

    @property
    def unstable(self) -> set[int]:
        """First offsets of the transactions that a reader of committed records waits for."""
        return {*self.ongoing, *self.completed}

    def take(self) -> None:
        """Write a snapshot, if its offset is a new one."""
        if self.map_end <= self.snapshot_end:
            return
        self.snapshot_end = self.map_end
        self.files.snapshots[self.map_end] = self._entries() if self.files.is_exact else None
        self.files.taken.add(self.map_end)

    def _entries(self) -> npt.NDArray[np.void]:
        rows = []
        for producer_id, one in _in_hash_order({key: (key, value) for key, value in self.producers.items()}):
            first = kf.NO_OFFSET if one.first_offset is None else one.first_offset
            sequence, last_offset, delta = one.batch or _NO_BATCH
            state = one.timestamp, one.coordinator_epoch, first
            rows.append((producer_id, one.producer_epoch, sequence, last_offset, delta, *state))
        return np.array(rows, kf.PRODUCER_SNAPSHOT_DTYPE)


def _in_hash_order(values: dict[int, _Value]) -> list[_Value]:
    order = hash_order(np.array([*values], np.int64)).tolist()
    ordered = [*values.values()]
    return [ordered[row] for row in order]


def _last_sequence(sequence: int, delta: int) -> int:
    """Source: DefaultRecordBatch.lastSequence, incrementSequence, Kafka 4.3."""
    if sequence == -1:
        return -1
    return _int(delta - (2**31 - 1 - sequence) - 1 if sequence > 2**31 - 1 - delta else sequence + delta)


def _int(number: int) -> int:
    """The number as Java's int keeps it."""
    return (number + 2**31) % 2**32 - 2**31


_NO_BATCH = (-1, -1, 0)
