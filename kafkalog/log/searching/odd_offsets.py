"""Finds which of two neighbouring batches has a wrong offset, if their offsets contradict each other.

No checksum covers the base offset of a batch, so one flipped bit changes the offsets of an otherwise intact batch. The
header walk detects this only at the next batch, whose offset does not increase, although that batch is usually right.
The batches around the two decide which is wrong. Other files also count: the offset index, the name of the next
segment, and producer snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kafkalog.errors import DEFAULT_LIMITS, WRONG_CHECKSUM, CorruptionError, Reason
from kafkalog.format import LOG_OVERHEAD, MESSAGE_V0_OVERHEAD
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.log.searching.consistent_batches import first_offset_at
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.header import BatchHeader
from kafkalog.records.header_walk import intact_headers_at, window_of
from kafkalog.storage.location import Place
from kafkalog.storage.source import ByteSource
from kafkalog.text import offset_range

_N_FOLLOWING: Final = 8
_IDENTITY: Final = ("last_offset", "size_in_bytes", "crc")


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Evidence about the offsets of a segment from other files."""

    offset_index: OffsetIndex | None = None
    next_base_offset: int | None = None
    """Base offset of the next segment, from its file name."""
    end_offsets: frozenset[int] = frozenset()
    """Log end offsets at which producer snapshots were taken, from their file names, and those of checkpoints."""

    def offset_at(self, position: int) -> int | None:
        """The offset in the index for a position; None if there is no entry.

        It is the last offset of the batch there, or of several batches in one append.
        """
        if self.offset_index is None:
            return None
        rows = np.flatnonzero(self.offset_index.position == position)
        return int(self.offset_index.offset[rows[0]]) if rows.size else None

    def exclude(self, offset: int) -> bool:
        """Whether the next segment begins at an offset or before it, so that no batch of this segment has it."""
        return self.next_base_offset is not None and self.next_base_offset <= offset


def odd_end(
    window: Window, source: ByteSource, previous: int | None, max_batch_bytes: int, witnesses: Callable[[], Witnesses]
) -> Reason | None:
    """Whether the last batch of a window is wrong, and not the batch after it.

    `previous` is the last offset before the window, None if the bytes before it were not read. The evidence is asked
    for only at a contradiction, or at a gap before the last batch of a segment. Returns `OFFSET_ORDER` or
    `OFFSET_OUTSIDE_SEGMENT` for a wrong offset, `CRC_MISMATCH` if the batch is damaged; None if nothing contradicts it.
    """
    last, position = window.batches.end_offset - 1, window.batches.end_position
    following = offset_at(source, position, window)
    if following is not None and following > last:
        return None
    before = int(window.batches.last_offset[-2]) if len(window.batches) > 1 else previous
    batch = window.batches[-1:]
    follower = None if following is None else intact_headers_at(source, position, max_batch_bytes)
    if follower is not None:
        if intact_headers_at(source, int(batch.position[0]), max_batch_bytes) is None:
            return Reason.CRC_MISMATCH
        is_odd = not _is_copy(batch, follower) and _contradicts(batch, follower, before, source, witnesses)
        return Reason.OFFSET_ORDER if is_odd else None
    if before is None or batch.first_offset <= before + 1:
        return None
    first = _first_offset(batch, source)
    if first <= before + 1:
        return None
    if following is not None and following == before + 1 + last - first + 1:
        # the next one is damaged too, but its offset shows where this one belongs; torn bytes show nothing
        return Reason.OFFSET_ORDER if offsets_from(source, position, 1, is_whole=True) else None
    return odd_last(before, first, last, witnesses())


def odd_last(before: int, first: int, last: int, known: Witnesses) -> Reason | None:
    """Whether the last batch of a segment has a wrong offset, where a gap is between it and the batch before.

    An index entry alone proves nothing. But a broker that shut down took a producer snapshot at the log end, and wrote
    it to its checkpoints: if the batch would end there without the gap before it, its offset is wrong.
    """
    if known.next_base_offset is not None:
        return Reason.OFFSET_OUTSIDE_SEGMENT if known.exclude(last) else None
    if last + 1 in known.end_offsets:
        return None
    is_odd = before + 1 + last - first + 1 == max(known.end_offsets, default=-1)
    return Reason.OFFSET_ORDER if is_odd else None


def _is_copy(batch: BatchTable, follower: BatchTable) -> bool:
    """Whether a batch and the batch after it are the same."""
    return all((getattr(batch, name) == getattr(follower, name))[0] for name in _IDENTITY)


def _first_offset(batch: BatchTable, source: ByteSource) -> int:
    """The first offset of a batch: only the records of a compressed message of v0 or v1 say where it begins."""
    if batch.base_offset[0] >= 0:
        return batch.first_offset
    inside = first_offset_at(source, int(batch.position[0]), DEFAULT_LIMITS)
    return batch.first_offset if inside is None else inside


def _contradicts(
    batch: BatchTable,
    follower: BatchTable,
    before: int | None,
    source: ByteSource,
    witnesses: Callable[[], Witnesses],
) -> bool:
    """Whether `batch` is wrong, and not `follower`, the intact batch after it with a smaller offset."""
    base, last, first = int(batch.base_offset[0]), int(batch.last_offset[0]), batch.first_offset
    if before is not None:
        if base == before + 1:
            return False
        if follower.first_offset <= before:  # the follower is wrong, unless both are among copies
            return witnesses().exclude(first)
        if follower.first_offset == before + 1 + last - first + 1:
            return True  # the batch would fit exactly between its neighbours
    known = witnesses()
    indexed = known.offset_at(int(batch.position[0]))
    if indexed is not None:
        return indexed < last
    indexed = known.offset_at(int(follower.position[0]))
    if indexed is not None:
        return indexed >= int(follower.last_offset[0])
    if known.exclude(last):
        return True
    # no evidence: the batch is wrong if at least half of the next batches are below it
    following = offsets_from(source, int(follower.position[0]))
    return 2 * sum(offset <= last for offset in following) >= len(following)


def offsets_from(source: ByteSource, position: int, n: int = _N_FOLLOWING, *, is_whole: bool = False) -> list[int]:
    """Base offsets of the next few batches, in any order, as far as their size fields lead from one to the next.

    With `is_whole`, without a batch that is cut by the end of the file.
    """
    offsets: list[int] = []
    while len(offsets) < n and position + LOG_OVERHEAD + MESSAGE_V0_OVERHEAD <= source.size:
        data = window_of(source, position, position + LOG_OVERHEAD + MESSAGE_V0_OVERHEAD)
        header = BatchHeader(data)
        source.release(data, position)
        if len(header) < LOG_OVERHEAD + MESSAGE_V0_OVERHEAD:
            break  # the file was truncated meanwhile
        is_cut = is_whole and position + header.size_in_bytes > source.size
        if header.size_in_bytes < LOG_OVERHEAD + MESSAGE_V0_OVERHEAD or header.magic > 2 or is_cut:
            break
        offsets.append(header.offset)
        position += header.size_in_bytes
    return offsets


def offset_at(source: ByteSource, position: int, window: Window) -> int | None:
    """Return the offset field at a position, of which a window may have the bytes; None at the end of the file."""
    at = position - window.start
    if at + 8 <= window.data.size:
        return BatchHeader(window.data[at : at + 8]).offset
    if position + 8 > source.size:
        return None
    if window.next_offset is not None:
        return window.next_offset
    data = window_of(source, position, position + 8)
    if data.size < 8:
        return None  # the file was truncated meanwhile
    offset = BatchHeader(data).offset
    source.release(data, position)
    return offset


def odd_end_error(window: Window, reason: Reason, path: Place) -> CorruptionError:
    """Return the error about the last batch of a window, which is wrong although the walk accepted it."""
    odd = window.batches[-1:]
    first, last = int(odd.base_offset[0]), int(odd.last_offset[0])
    offsets = offset_range(first, last + 1)
    details = {
        Reason.OFFSET_ORDER: f"its offsets, {offsets}, contradict those around it; no checksum covers them",
        Reason.OFFSET_OUTSIDE_SEGMENT: f"its offsets, {offsets}, reach into the next segment",
    }
    return CorruptionError(
        reason,
        details.get(reason, WRONG_CHECKSUM),
        path=path,
        position=int(odd.position[0]),
        base_offset=first,
        length=int(odd.size_in_bytes[0]),
    )
