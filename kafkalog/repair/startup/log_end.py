"""The log end offset of a segment as a broker finds it: from the last index entry on, without any check.

Mirrors `LogSegment.readNextOffset`, `FileRecords.searchForOffsetFromPosition` and `FileLogInputStream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.log.segment import Segment
from kafkalog.storage.source import ByteSource, size_of

_MAGIC_END = 17
_MIN_SIZE = 14


class CorruptRecord(Exception):
    """Where a broker throws CorruptRecordException while it walks batches; the message says why."""

    java_name = "CorruptRecordException"


class IndexTooLarge(CorruptRecord):
    """Where a broker cannot map an index, which ends its start, too."""

    java_name = "IllegalArgumentException"


class _Batch(NamedTuple):
    position: int
    last_offset: int


def next_offset(segment: Segment) -> int:
    """The offset that a broker would give to the next record of its last segment.

    Raises
    ------
    CorruptRecord
        The broker does not start.

    Notes
    -----
    Nothing checks the index: if its last entry leads behind the end, the log ends at the segment's base offset.
    Source: LogSegment.readNextOffset, Kafka 4.3.
    """
    return _end(segment, *_last_entry(segment))


def end_behind(segment: Segment, entries: npt.NDArray[np.void]) -> int:
    """The same with other entries of the offset index, in order."""
    if not entries.size:
        return _end(segment, segment.base_offset, 0)
    return _end(segment, segment.base_offset + int(entries["relative_offset"][-1]), int(entries["position"][-1]))


def _end(segment: Segment, target: int, position: int) -> int:
    last = None
    with segment.open() as source:
        for batch in _walk(source, position):
            if last is None and batch.last_offset < target:
                continue
            last = batch.last_offset
    return segment.base_offset if last is None else last + 1


def _last_entry(segment: Segment) -> tuple[int, int]:
    """Offset of the last index entry, and the position from which a broker looks for it."""
    entries = _index(segment)
    if not entries.size:
        return segment.base_offset, 0
    target = segment.base_offset + int(entries["relative_offset"][-1])
    return target, _position_of(entries, int(entries["relative_offset"][-1]))


def _index(segment: Segment) -> npt.NDArray[np.void]:
    """The entries, mapped: a file that is preallocated, or longer than any index, takes no memory."""
    path = segment.sidecar_path(kf.INDEX_SUFFIX)
    try:
        n_bytes = size_of(path)
        if n_bytes > kf.MAX_RELATIVE_OFFSET:
            raise IndexTooLarge(f"its index has {n_bytes} bytes: a broker cannot map it")
        n = n_bytes // kf.OFFSET_INDEX_DTYPE.itemsize
        return np.memmap(path, kf.OFFSET_INDEX_DTYPE, "r", shape=(n,)) if n else np.empty(0, kf.OFFSET_INDEX_DTYPE)
    except OSError:
        return np.empty(0, kf.OFFSET_INDEX_DTYPE)


def _position_of(entries: npt.NDArray[np.void], wanted: int) -> int:
    """The position at or below an offset, found as a broker does: by a binary search that trusts the order."""
    low, high = 0, entries.size - 1
    if not entries.size or entries["relative_offset"][0] > wanted:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        found = int(entries["relative_offset"][middle])
        if found > wanted:
            high = middle - 1
        elif found < wanted:
            low = middle
        else:
            low = high = middle
    return max(int(entries["position"][low]), 0)


def _walk(source: ByteSource, position: int) -> Iterator[_Batch]:
    """Batches from a position on, by their headers alone."""
    while position < source.size - _MAGIC_END:
        head = source.window(position, min(position + kf.RECORD_BATCH_OVERHEAD, source.size)).tobytes()
        size = int.from_bytes(head[8:12], "big", signed=True)
        if size < _MIN_SIZE:
            raise CorruptRecord(f"found record size {size} smaller than the minimum of {_MIN_SIZE} at {position}")
        if position > source.size - kf.LOG_OVERHEAD - size:
            return
        last = int.from_bytes(head[:8], "big", signed=True)
        if 1 < head[16] <= 127:  # a magic byte above 127 is negative in Java, so a v0 or v1 message
            last += int.from_bytes(head[23:27], "big", signed=True)
        yield _Batch(position, last)
        position += kf.LOG_OVERHEAD + size


def is_walkable(segment: Segment, start_offset: int, end_offset: int) -> str:
    """Why a broker cannot walk a segment's headers between two offsets, to replay producers; "" if it can."""
    end = 0
    try:
        for batches in segment.iter_batches():
            end = int(batches.next_position[-1])
        if end == segment.size_in_bytes:
            return ""
    except KafkalogError:
        pass
    with segment.open() as source:
        try:
            for batch in _walk(source, _position_of(_index(segment), start_offset - segment.base_offset)):
                if batch.last_offset >= end_offset:
                    break
        except CorruptRecord as error:
            return str(error)
    return ""
