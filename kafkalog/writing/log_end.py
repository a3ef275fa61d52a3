"""The state an append continues from: the end of a partition's log, its producers, epochs and topic id.

Its last segment is read as a broker's recovery reads it, so that nothing is put behind damage; producers are known from
the newest snapshot that can be used and from what was written since. Nothing is changed here. Mirrors the part of
`LogLoader.load` that comes before a log takes appends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    Finding,
    Limits,
    Reason,
    SidecarError,
    TruncatedTailError,
)
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import read_leader_epochs, read_topic_id
from kafkalog.state.producers import ProducerState, newest_snapshot
from kafkalog.storage.source import file_status


@dataclass(slots=True)
class LogEnd:
    """The end of a partition's log.

    Attributes
    ----------
    next_offset : int
        Where it goes on.
    producers : ProducerState
    leader_epochs : LEADER_EPOCH_DTYPE[n] or None
        Its `leader-epoch-checkpoint`.
    topic_id : str or None
        Its `partition.metadata`.
    latest_epoch : int
        The newest leader epoch; -1 for none.
    max_timestamp : int
        The largest of the last segment; -1 for none.
    last : Segment or None
    is_last_empty : bool
        Whether the last segment holds nothing, and begins where the log goes on: a new one takes its place.
    tail : RecoveredSegment or None
        The last segment, if it was not left by a clean shutdown: it has to be cut, or its indexes are made anew.
    """

    next_offset: int
    producers: ProducerState
    leader_epochs: npt.NDArray[np.void] | None = None
    topic_id: str | None = None
    latest_epoch: int = kf.NO_EPOCH
    max_timestamp: int = kf.NO_TIMESTAMP
    last: Segment | None = None
    is_last_empty: bool = False
    tail: RecoveredSegment | None = None
    _stamp: tuple[tuple[str, ...], int] = field(default=((), 0))

    @property
    def replaced_base_offset(self) -> int | None:
        """Base offset of the empty last segment, whose place a new one takes; None where the last is not empty."""
        return self.last.base_offset if self.is_last_empty and self.last is not None else None

    def is_unchanged(self, path: Path) -> bool:
        """Whether nobody wrote to the partition since."""
        return log_stamp(path) == self._stamp


def read_log_end(
    path: Path, *, index_interval_bytes: int, truncate_tail: bool, limits: Limits = DEFAULT_LIMITS
) -> LogEnd:
    """Read the end of a partition's log.

    Parameters
    ----------
    path : Path
        The directory.
    index_interval_bytes : int
        For indexes of a segment that has to be cut.
    truncate_tail : bool
        Whether that is allowed.
    limits : Limits

    Raises
    ------
    TruncatedTailError
        The last segment ends in a torn batch or in zeros, or its indexes do, and `truncate_tail` is False.
    CorruptionError
        It is damaged.
    """
    partition = Partition(path, limits=limits)
    stamp = log_stamp(path)
    epochs = read_leader_epochs(path / kf.LEADER_EPOCH_CHECKPOINT)
    if any(finding.reason is Reason.SWAP_FILE for finding in partition.findings):
        detail = "the cleaner's output is half moved into place: a broker finishes that when it starts"
        raise SidecarError(Reason.SWAP_FILE, detail, path=path)
    log = LogEnd(0, ProducerState(limits=limits), epochs, read_topic_id(path), _stamp=stamp)
    if epochs is not None and epochs.size:
        log.latest_epoch = int(epochs["epoch"].max())
    if not partition.segments:
        log.next_offset = partition.log_start_offset
        return log
    log.last = last = partition.segments[-1]
    found = recover(last, index_interval_bytes)
    _judge(found, truncate_tail)
    if _is_allocated_ahead(last) and not truncate_tail:
        detail = "its indexes end in zeros: the broker was not shut down cleanly; truncate_tail=True trims them"
        raise TruncatedTailError(Reason.INDEX_PADDING, detail, path=last.path)
    # a broker makes all indexes of a segment anew that has no offset index
    if found.is_cut or _is_allocated_ahead(last) or last.read_index(OffsetIndex) is None:
        log.tail = found
    log.next_offset = max(found.next_offset, partition.log_start_offset)
    log.is_last_empty = not found.n_valid_bytes and log.next_offset == last.base_offset
    log.latest_epoch = max([log.latest_epoch, *(epoch for epoch, _ in found.epochs)])
    if found.time_entries.size:
        log.max_timestamp = int(found.time_entries["timestamp"][-1])
    log.producers = _producers(partition, found, log.next_offset, index_interval_bytes)
    return log


def log_stamp(path: Path) -> tuple[tuple[str, ...], int]:
    """By what it is seen that somebody wrote to a partition: its segments, and the size of the last one."""
    names = tuple(sorted(name for name in os.listdir(path) if name.endswith(kf.LOG_SUFFIX)))
    return names, file_status(path / names[-1]).st_size if names else 0


def _judge(found: RecoveredSegment, truncate_tail: bool) -> None:
    """Refuse a segment that a broker's recovery would cut, unless only its torn tail goes, and may."""
    finding = found.finding
    if finding is None:
        return
    is_tail = not found.is_emptied and (
        finding.reason in (Reason.PARTIAL_TAIL, Reason.ZERO_FILL) or _is_last_batch(finding, found.segment)
    )
    if is_tail and truncate_tail:
        return
    hint = "truncate_tail=True cuts it off" if is_tail else "nothing is appended behind damage"
    kind = TruncatedTailError if is_tail else CorruptionError
    raise kind(
        finding.reason,
        f"{finding.detail}; {hint}",
        path=finding.path,
        position=finding.position,
        base_offset=finding.base_offset,
        length=finding.length,
    )


def _is_last_batch(finding: Finding, segment: Segment) -> bool:
    """Whether a wrong checksum is that of the last batch, of which not all came to the disk."""
    if finding.reason is not Reason.CRC_MISMATCH or finding.position is None or finding.length is None:
        return False
    return finding.position + finding.length == segment.size_in_bytes


def _is_allocated_ahead(segment: Segment) -> bool:
    """Whether indexes end in zeros, which is harmless only as long as the segment is the last one."""
    indexes = (segment.read_index(OffsetIndex), segment.read_index(TimeIndex))
    return any(index is not None and index.padding_bytes for index in indexes)


def _producers(
    partition: Partition, last: RecoveredSegment, next_offset: int, index_interval_bytes: int
) -> ProducerState:
    """The newest snapshot, and what was written since."""
    snapshot = newest_snapshot(partition.path, partition.log_start_offset, next_offset)
    state = ProducerState(snapshot, limits=partition.limits)
    since = partition.log_start_offset if snapshot is None else snapshot.end_offset or 0
    for segment in partition.segments:
        is_last = segment is partition.segments[-1]
        stop = next_offset if is_last else partition.segments[partition.segments.index(segment) + 1].base_offset
        if stop <= since:
            continue
        found = last if is_last else recover(segment, index_interval_bytes)
        if found.finding is not None and not is_last:
            raise CorruptionError(
                found.finding.reason,
                f"{found.finding.detail}; without a snapshot of the producers all of the log has to be read",
                path=found.finding.path,
                position=found.finding.position,
            )
        for batches, coordinator_epoch in found.replay:
            rows = np.flatnonzero(batches.base_offset >= since)
            told = batches[rows]
            state.update(told, place=told.base_offset, coordinator_epoch=coordinator_epoch[rows])
    return state
