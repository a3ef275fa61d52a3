"""The state an append continues from: the end of a partition's log, its producers, epochs and topic id.

The last segment is read as a broker's recovery reads it, so that records are never appended after damage. The producer
state comes from the newest usable snapshot and the batches written since. Mirrors the part of `LogLoader.load` that
runs before a log accepts appends. This module changes no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Finding, Limits, Reason, SidecarError, TruncatedTailError
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import read_leader_epochs, read_topic_id
from kafkalog.state.producers import ProducerState, newest_snapshot
from kafkalog.storage.files import file_status
from kafkalog.storage.listing import Listing


@dataclass(slots=True)
class LogEnd:
    """The end of a partition's log."""

    next_offset: int
    """The log end offset: the offset of the next record."""
    producers: ProducerState
    """The producers' state at `next_offset`."""
    leader_epochs: npt.NDArray[np.void] | None = None
    """LEADER_EPOCH_DTYPE[n]. The entries of `leader-epoch-checkpoint`; None without the file."""
    topic_id: str | None = None
    """The topic id in `partition.metadata`; None without the file."""
    latest_epoch: int = kf.NO_EPOCH
    """The newest leader epoch; -1 for none."""
    max_timestamp: int = kf.NO_TIMESTAMP
    """The largest timestamp of the last segment, ms; -1 for none."""
    last: Segment | None = None
    """The last segment; None if the directory has none."""
    is_last_empty: bool = False
    """Whether the last segment holds no batch and begins at `next_offset`. A new segment replaces it."""
    tail: RecoveredSegment | None = None
    """The last segment, if no clean shutdown left it: its `.log` has to be cut or its indexes rewritten."""
    _stamp: tuple[tuple[str, ...], int] = field(default=((), 0))

    @property
    def replaced_base_offset(self) -> int | None:
        """Base offset of the empty last segment, which a new segment replaces; None if the last one is not empty."""
        return self.last.base_offset if self.is_last_empty and self.last is not None else None

    def is_unchanged(self, path: Path) -> bool:
        """Whether the partition has not been written to since this was read."""
        return log_stamp(path) == self._stamp


def read_log_end(
    path: Path, *, index_interval_bytes: int, truncate_tail: bool, limits: Limits = DEFAULT_LIMITS
) -> LogEnd:
    """Read the end of a partition's log.

    `index_interval_bytes` is for the indexes of a last segment that is recovered. Raises TruncatedTailError if the last
    segment ends in a torn batch or in zeros, or its indexes end in zeros, unless `truncate_tail` allows to cut them;
    CorruptionError if a segment that must be read is damaged; SidecarError if a checkpoint is invalid, or the log
    cleaner's output is only partly moved into place.
    """
    partition = Partition(path, limits=limits)
    # taken before anything is read, so that `is_unchanged` notices every later write
    stamp = log_stamp(path)
    epochs = read_leader_epochs(path / kf.LEADER_EPOCH_CHECKPOINT)
    if any(finding.reason is Reason.SWAP_FILE for finding in partition.findings):
        detail = "the log cleaner did not finish a replacement; a broker finishes it at its next start"
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
    # a broker rebuilds all indexes of a segment that has no offset index
    if found.is_cut or _is_allocated_ahead(last) or last.read_index(OffsetIndex) is None:
        log.tail = found
    # a record below the log start offset would count as deleted
    log.next_offset = max(found.next_offset, partition.log_start_offset)
    log.is_last_empty = not found.n_valid_bytes and log.next_offset == last.base_offset
    # a crash may come between a batch of a new epoch and the checkpoint
    log.latest_epoch = max([log.latest_epoch, *(epoch for epoch, _ in found.epochs)])
    if found.time_entries.size:
        log.max_timestamp = int(found.time_entries["timestamp"][-1])
    log.producers = _producers(partition, found, log.next_offset, index_interval_bytes)
    return log


def log_stamp(path: Path) -> tuple[tuple[str, ...], int]:
    """What changes when a partition is appended to: the names of its `.log` files, and the size of the last one."""
    names = tuple(name for name in Listing(path).names if name.endswith(kf.LOG_SUFFIX))
    return names, file_status(path / names[-1]).st_size if names else 0


def _judge(found: RecoveredSegment, truncate_tail: bool) -> None:
    """Raise if a broker's recovery would cut the segment, unless it cuts only a torn tail and `truncate_tail` is set.

    A `TruncatedTailError` is raised for a torn tail, a `CorruptionError` for any other damage.
    """
    finding = found.finding
    if finding is None:
        return
    is_tail = not found.is_emptied and (finding.is_torn or _is_last_batch(finding, found.segment))
    if is_tail and truncate_tail:
        return
    hint = "truncate_tail=True cuts it off" if is_tail else "nothing is appended after damage"
    kind = TruncatedTailError if is_tail else CorruptionError
    raise kind.about(finding, f"{finding.detail}; {hint}")


def _is_last_batch(finding: Finding, segment: Segment) -> bool:
    """Whether a checksum mismatch is in the last batch of the file: a write that did not reach the disk completely."""
    if finding.reason is not Reason.CRC_MISMATCH or finding.position is None or finding.length is None:
        return False
    return finding.position + finding.length == segment.size_in_bytes


def _is_allocated_ahead(segment: Segment) -> bool:
    """Whether an index ends in preallocated zeros, which are harmless only while the segment is the last one."""
    offset_index, time_index = segment.read_index(OffsetIndex), segment.read_index(TimeIndex)
    if offset_index is not None and offset_index.padding_bytes:
        return True
    if time_index is None:
        return False
    # zeros are an entry, too: that of timestamp 0 at the base offset, which no other entry can stand before
    is_entry = not len(time_index) and time_index.padding_bytes == time_index.dtype.itemsize
    return bool(time_index.padding_bytes) and not is_entry


def _producers(
    partition: Partition, last: RecoveredSegment, next_offset: int, index_interval_bytes: int
) -> ProducerState:
    """The producer state of the newest snapshot, updated with the batches after it."""
    snapshot = newest_snapshot(partition.path, partition.log_start_offset, next_offset)
    state = ProducerState(snapshot, limits=partition.limits)
    since = partition.log_start_offset if snapshot is None else snapshot.end_offset or 0
    for segment in partition.segments:
        is_last = segment.is_last
        stop = next_offset if is_last else partition.segments[partition.segments.index(segment) + 1].base_offset
        # all its batches are in the snapshot
        if stop <= since:
            continue
        found = last if is_last else recover(segment, index_interval_bytes)
        if found.finding is not None and not is_last:
            raise CorruptionError(
                found.finding.reason,
                f"{found.finding.detail}; without a producer snapshot, the whole log must be readable",
                path=found.finding.path,
                position=found.finding.position,
            )
        for batches, coordinator_epoch in found.replay:
            # the snapshot may lie inside of the segment: the batches before it must not count twice
            rows = np.flatnonzero(batches.base_offset >= since)
            told = batches[rows]
            state.update(told, log_position=told.base_offset, coordinator_epoch=coordinator_epoch[rows])
    return state
