"""Compares two replicas of a partition: the first batch in which they differ, and which of them would truncate.

Mirrors what a follower does before it fetches (`AbstractFetcherThread`): leader epochs decide. Segment boundaries do
not matter, nor where the logs begin: replicas delete old segments at different times. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.wire import STATUS
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Limits, NotKafkaError, Reason
from kafkalog.html import JsonFields
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import BatchTable, valid_crcs
from kafkalog.records.spans import batch_error
from kafkalog.state.leader_epochs import LeaderEpochs, LogProgress
from kafkalog.survey.origins import known_losses

Side = Literal["a", "b"]

_COMPARED: Final = ("base_offset", "last_offset", "partition_leader_epoch", "magic", "size_in_bytes", "crc")


@dataclass(frozen=True, slots=True)
class ReplicaBatch:
    """A batch of one of the replicas."""

    path: str
    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


@dataclass(frozen=True, slots=True)
class ReplicaDiff(JsonFields):
    """How two replicas of a partition differ."""

    _json_properties = ("ok", "equal_to", "continues")

    a: str
    b: str
    """Their paths."""
    start_offset: int
    """The first offset that both have."""
    end_offset_a: int
    end_offset_b: int
    """Their log end offsets. One may lag; that is no difference."""
    n_batches: int
    """Batches that are the same."""
    offset: int | None = None
    """The first offset from which on they differ; None if they do not."""
    batch_a: ReplicaBatch | None = None
    batch_b: ReplicaBatch | None = None
    """The first batches that differ."""
    leader: Side | None = None
    """The one with the later leader epoch, or, of two with the same, the longer one; None if that decides nothing."""
    truncate_to: int | None = None
    """The offset to which the other would truncate before it fetched from the leader; None if it would keep all."""
    is_kept: bool = False
    """Whether a difference would stay, since the leader epochs do not show it: one of the two is damaged, or was
    written by something else than a broker. Except in a compacted topic, see `is_compacted`.
    """
    is_compacted: bool = False
    """Whether the log cleaner may have made the difference: each broker compacts its replica at times of its own."""
    lost_in: Side | None = None
    """The one that lacks these records since the command that made it, such as salvage, reported them as lost."""
    note: str = ""
    """That the directories are of different partitions, which have nothing in common; empty for replicas of one."""

    @property
    def equal_to(self) -> int:
        """The offset up to which the replicas are the same; excluded."""
        return min(self.end_offset_a, self.end_offset_b) if self.offset is None else self.offset

    @property
    def continues(self) -> Side | None:
        """The longer replica, which continues where the other ends; None if both end there, or if they differ."""
        if self.offset is not None or self.end_offset_a == self.end_offset_b:
            return None
        return "a" if self.end_offset_a > self.end_offset_b else "b"

    @property
    def ok(self) -> bool:
        """Whether the replicas are the same as far as both reach."""
        return self.offset is None


def diff(
    a: str | os.PathLike[str] | Partition,
    b: str | os.PathLike[str] | Partition,
    *,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> ReplicaDiff:
    """Compare two replicas of a partition, batch by batch.

    Parameters
    ----------
    a, b : path-like or Partition
        Partition directories.
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes compared since the last call.
    limits : Limits

    Returns
    -------
    ReplicaDiff

    Raises
    ------
    NotKafkaError
        A path is not a partition directory.
    KafkalogError
        A replica is damaged, or cannot be read: salvage it first.

    Notes
    -----
    Batches are the same if their offsets, leader epochs and checksums are; each checksum is compared with the bytes. A
    compacted partition may differ in batches that one replica has cleaned already.

    Source: AbstractFetcherThread.getOffsetTruncationState, LeaderEpochFileCache.endOffsetFor, Kafka 4.3.

    Examples
    --------
    >>> kafkalog.diff("tests/golden/log_dir/p-multi-0", "tests/golden/log_dir/p-multi-0").ok
    True
    """
    one, other = (_partition(path, limits, f"{a} {b}") for path in (a, b))
    # replicas delete old segments each by itself
    start = max(one.log_start_offset, other.log_start_offset)
    ends = one.log_end_offset, other.log_end_offset
    left, right = _ReplicaBatches(one, start, progress), _ReplicaBatches(other, start, progress)
    n_same = 0
    while True:
        n = min(left.n_ready(), right.n_ready())
        if not n:
            break
        same = left.peek(n, right)
        n_equal = n if same.all() else int(np.argmin(same))
        n_same += n_equal
        left.skip(n_equal)
        right.skip(n_equal)
        if n_equal < n:
            break
    paths, note = (str(one.path), str(other.path)), _other_partitions(one, other)
    in_a, in_b = left.first(), right.first()
    if in_a is None or in_b is None:
        return ReplicaDiff(*paths, start, *ends, n_same, note=note)
    leader, truncate_to = _truncation((one, other), ends)
    offset = min(in_a.base_offset, in_b.base_offset)
    is_kept = truncate_to is None or truncate_to > offset
    offset = max(offset, start)
    lost_in = _lacking((one, other), offset)
    ends_there = max(in_a.last_offset, in_b.last_offset) + 1
    is_compacted = is_kept and lost_in is None and any(replica.is_compacted(ends_there) for replica in (one, other))
    found = ReplicaDiff(*paths, start, *ends, n_same, offset, in_a, in_b, leader, truncate_to, is_kept)
    return replace(found, is_compacted=is_compacted, lost_in=lost_in, note=note)


def _other_partitions(one: Partition, other: Partition) -> str:
    """The note about two directories of different partitions; empty if they are of one, or have other names."""
    keys = one.topic_partition, other.topic_partition
    if None in keys or keys[0] == keys[1]:
        return ""
    where = "diff compares replicas of one partition, whose directories have the same name"
    return f"{keys[0]} and {keys[1]} are different partitions; {where}"


def _lacking(replicas: tuple[Partition, Partition], offset: int) -> Side | None:
    """Which replica lacks an offset since the command that made it has reported that as lost."""
    sides: tuple[Side, Side] = ("a", "b")
    for side, replica in zip(sides, replicas, strict=True):
        for lost in known_losses(replica.path):
            first, end = lost.first_offset, lost.end_offset
            if first is not None and first <= offset and (end is None or offset < end):
                return side
    return None


def _partition(path: str | os.PathLike[str] | Partition, limits: Limits, both: str) -> Partition:
    opened = path if isinstance(path, Partition) else open_path(path, limits=limits)
    if not isinstance(opened, Partition):
        what, more = "not a partition directory: name one, such as orders-0 in a log dir", ""
        if isinstance(opened, LogDir) and len(opened):
            first = min(opened, key=lambda key: (key.topic.startswith("_"), key))
            what = f"a log dir, not a partition directory: name one, such as {opened[first].path}"
            more = f", or use kafkalog diff --content {both} (kafkalog.comparing.content.compare(a, b)) for log dirs"
        raise NotKafkaError(Reason.NOT_KAFKA, what + more, path=os.fspath(str(path)))
    return opened


class _ReplicaBatches:
    """The batches of a replica from an offset on, whose checksums are right."""

    def __init__(self, partition: Partition, start: int, progress: Callable[[int], object]) -> None:
        self._partition, self._start, self._progress = partition, start, progress
        self._tables = self._walk()
        self._path = ""
        self._table = BatchTable.empty()
        self._done = 0

    def n_ready(self) -> int:
        """How many batches can be compared now; 0 at the end of the log."""
        while self._done == len(self._table):
            following = next(self._tables, None)
            if following is None:
                return 0
            (self._path, self._table), self._done = following, 0
        return len(self._table) - self._done

    def peek(self, n: int, other: _ReplicaBatches) -> npt.NDArray[np.bool_]:
        """bool[n]: which of the next batches are the same here and there."""
        same = np.ones(n, np.bool_)
        for name in _COMPARED:
            here, there = getattr(self._table, name), getattr(other._table, name)
            same &= here[self._done : self._done + n] == there[other._done : other._done + n]
        return same

    def skip(self, n: int) -> None:
        """Pass over batches."""
        self._done += n

    def first(self) -> ReplicaBatch | None:
        """The next batch, None at the end of the log."""
        if not self.n_ready():
            return None
        table, row = self._table, self._done
        last = int(table.last_offset[row])
        base = int(table.base_offset[row]) if table.base_offset[row] >= 0 else last
        position, epoch = int(table.position[row]), int(table.partition_leader_epoch[row])
        return ReplicaBatch(self._path, position, base, last, epoch, int(table.crc[row]))

    def _walk(self) -> Iterator[tuple[str, BatchTable]]:
        for segment in self._partition.segments:
            try:
                yield from self._walk_segment(segment)
            except CorruptionError as error:
                hint = "kafkalog diff --content compares the intact records, kafkalog salvage saves them"
                raise type(error).about(error, f"{error.detail} ({hint})") from None

    def _walk_segment(self, segment: Segment) -> Iterator[tuple[str, BatchTable]]:
        with segment.open() as source:
            for window in segment.iter_windows(source):
                batches = window.batches
                valid = valid_crcs(window)
                if not valid.all():
                    raise batch_error(STATUS["CRC_MISMATCH"], batches, int(np.argmin(valid)), str(segment.path))
                self._progress(int(batches.size_in_bytes.sum(dtype=np.int64)))
                source.release(window.data, window.start)
                yield str(segment.path), batches[batches.last_offset >= self._start]


def _truncation(replicas: tuple[Partition, Partition], ends: tuple[int, int]) -> tuple[Side | None, int | None]:
    """Which replica leads, and where the other truncates; None if it keeps all."""
    epochs = [one.epoch_cache.entries.tolist() for one in replicas]
    if not epochs[0] or not epochs[1]:
        return None, None
    rank = [LogProgress(entries[-1][0], end) for entries, end in zip(epochs, ends, strict=True)]
    if rank[0] == rank[1]:
        return None, None
    leader = 0 if rank[0] > rank[1] else 1
    end = truncate(
        epochs[1 - leader], ends[1 - leader], LeaderEpochs(replicas[leader].epoch_cache.entries), ends[leader]
    )
    return ("a", "b")[leader], end if end < ends[1 - leader] else None


def truncate(follower: list[tuple[int, int]], end: int, leader: LeaderEpochs, leader_end: int) -> int:
    """The offset at which a follower's log (up to `end`) ends after it has truncated to match the leader's."""
    while True:
        known = [(epoch, start) for epoch, start in follower if start < end]
        if not known:
            return end
        # a follower asks again with the epoch that it was named, until both know it (KIP-279)
        said = leader.truncation_for(known[-1][0], end, leader_end)
        if said.truncate_to < 0:
            return known[-1][1]  # the leader knows nothing this old: only the epochs before it are left
        if said.is_final:
            return said.truncate_to
        own_end = next((start for epoch, start in known if epoch > said.leader_epoch), end)
        end = min(said.truncate_to, own_end, known[-1][1])
