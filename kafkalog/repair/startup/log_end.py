"""The log end offset of a segment as a broker finds it: from the last index entry on, without any check.

Mirrors `LogSegment.readNextOffset`, `FileRecords.searchForOffsetFromPosition` and `FileLogInputStream`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, ReadError
from kafkalog.log.segment import Segment
from kafkalog.storage.source import ByteSource, PreadSource

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
    target, position = _last_entry(segment)
    last = None
    with segment.open() as source:
        for batch in _walk(source, position):
            if last is None and batch.last_offset < target:
                continue
            last = batch.last_offset
    return segment.base_offset if last is None else last + 1


def _last_entry(segment: Segment) -> tuple[int, int]:
    """Offset of the last index entry, and the position from which a broker looks for it."""
    try:
        source = PreadSource(segment.sidecar_path(kf.INDEX_SUFFIX))
    except ReadError:
        return segment.base_offset, 0
    with source:
        n = source.size // kf.OFFSET_INDEX_DTYPE.itemsize
        if source.size > kf.MAX_RELATIVE_OFFSET:
            raise IndexTooLarge(f"its index has {source.size} bytes: a broker cannot map it")
        if not n:
            return segment.base_offset, 0
        wanted = _entry(source, n - 1)[0]
        target = segment.base_offset + wanted
        # the last entry at or below the offset, found as a broker does: by a binary search that trusts the order
        low, high = 0, n - 1
        if _entry(source, 0)[0] > wanted:
            return target, 0
        while low < high:
            middle = (low + high + 1) // 2
            found = _entry(source, middle)[0]
            if found > wanted:
                high = middle - 1
            elif found < wanted:
                low = middle
            else:
                low = high = middle
        return target, max(_entry(source, low)[1], 0)


def _entry(source: ByteSource, number: int) -> tuple[int, int]:
    """An entry of an offset index: its relative offset, and the position."""
    size = kf.OFFSET_INDEX_DTYPE.itemsize
    offset, position = struct.unpack(">ii", source.window(number * size, (number + 1) * size))
    return offset, position


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


def is_walkable(segment: Segment) -> str:
    """Why a broker cannot walk a segment's headers, as it does to replay producers; "" if it can."""
    try:
        for _ in segment.iter_batches():
            pass
    except KafkalogError:
        with segment.open() as source:
            try:
                for _ in _walk(source, 0):
                    pass
            except CorruptRecord as error:
                return str(error)
    return ""
