"""Where a segment ends: for a broker that loads it without recovery, and by the last intact batch.

Mirrors `LogSegment.readNextOffset`, `FileRecords.searchForOffsetFromPosition` and `FileLogInputStream`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog import format as kf
from kafkalog.errors import CorruptionError, KafkalogError, ReadError, Reason
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import valid_crcs
from kafkalog.records.decode import decode
from kafkalog.records.header import MAGIC_END, BatchHeader
from kafkalog.records.header_walk import walk
from kafkalog.storage.files import last_entry
from kafkalog.storage.source import BufferSource, Bytes, ByteSource

# Records.HEADER_SIZE_UP_TO_MAGIC and LegacyRecord.RECORD_OVERHEAD_V0: all that a broker asks of a header here
_MIN_SIZE = 14
_WINDOW_BYTES = 2**20


def end_as_loaded(segment: Segment) -> int:
    """The log end offset that a broker finds in its last segment without recovering it.

    It begins at the last entry of the offset index, padding or not, and reads headers without any check. If it does not
    find the offset of that entry, the log ends where the segment begins, and new records take the old offsets. Raises
    CorruptionError where the broker does not start: a size is too small, as in zeros, or a v0 or v1 message cannot be
    decompressed.
    """
    target, start = _last_entry(segment)
    with segment.open() as source:
        last = None
        for position, header in _headers(segment, source, start):
            if last is None and header.is_message and header.attributes & kf.CODEC_MASK:
                _look_inside(segment, source.window(position, position + header.size_in_bytes).copy(), position)
            last_offset = header.offset + (0 if header.is_message else header.last_offset_delta)
            if last is not None or last_offset >= target:
                last = last_offset
    return segment.base_offset if last is None else last + 1


def _look_inside(segment: Segment, data: Bytes, position: int) -> None:
    """Raise if a compressed v0 or v1 message cannot be decompressed, which a broker does for its base offset."""
    data[16] = data[16] if data[16] < 2 else 1  # a negative magic is read as 1
    try:
        for window in walk(BufferSource(data), limits=segment.limits):
            error = decode(window, ("offset",), check_crcs=False, limits=segment.limits).error
            if error is not None:
                raise error
    except KafkalogError as error:
        detail = f"{error.detail}, where a broker looks for the end of the log"
        raise CorruptionError(error.reason, detail, path=segment.path, position=position) from error


def _last_entry(segment: Segment) -> tuple[int, int]:
    """Offset and position of the last entry of the offset index. Source: AbstractIndex, OffsetIndex, Kafka 4.3."""
    size = kf.OFFSET_INDEX_DTYPE.itemsize
    path = segment.sidecar_path(kf.INDEX_SUFFIX)
    try:
        entry = last_entry(path, size) or bytes(size)
    except ReadError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        entry = bytes(size)
    relative, position = (int.from_bytes(entry[at : at + 4], "big", signed=True) for at in (0, 4))
    return segment.base_offset + relative, position


def _headers(segment: Segment, source: ByteSource, start: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from a position on."""
    position = start if start >= 0 else source.size
    window_start, window = 0, b""
    while position + MAGIC_END < source.size:
        if not window_start <= position <= window_start + len(window) - kf.RECORD_BATCH_OVERHEAD:
            stop = min(position + _WINDOW_BYTES, source.size)
            window_start, window = position, source.window(position, stop).tobytes()
        header = BatchHeader(window[position - window_start : position - window_start + kf.RECORD_BATCH_OVERHEAD])
        size = header.size_in_bytes
        if size < kf.LOG_OVERHEAD + _MIN_SIZE:
            detail = (
                f"size {size - kf.LOG_OVERHEAD}, expected at least {_MIN_SIZE}; a broker does not recover this segment"
            )
            raise CorruptionError(Reason.SIZE_TOO_SMALL, detail, path=segment.path, position=position)
        if position + size > source.size:
            return
        yield position, header
        position += size


def end_before_start(segment: Segment) -> int | None:
    """The offset after the last intact batch of a segment; None if it cannot be read. Damage alone takes a walk."""
    try:
        return segment.next_offset
    except KafkalogError as error:
        return None if error.position is None else last_intact_end(segment)


def unreadable(segment: Segment) -> KafkalogError | None:
    """Why nothing of a segment can be read: without permission, or if somebody compressed it; None if it can be."""
    if segment.error is not None:
        return segment.error
    try:
        segment.next_offset  # noqa: B018 - reads the first batches
    except KafkalogError as error:
        return error if error.to_finding().is_unreadable else None
    return None


def last_intact_end(segment: Segment) -> int:
    """The offset after the last batch of a segment whose header is intact, damage before it or not."""
    end = segment.base_offset
    try:
        with segment.open() as source:
            for window in segment.iter_windows(source, on_corruption="skip"):
                end = max(end, int(window.batches.last_offset.max(initial=end - 1)) + 1)
                source.release(window.data, window.start)
    except KafkalogError:
        pass  # the bytes from there on cannot be read
    return end


def split_bases(segment: Segment) -> tuple[list[int], int] | None:
    """The base offsets of the segments into which a broker splits one whose offsets reach too far, and their end.

    A single one if it need not be split. None if it is damaged: then the broker may fail. Source:
    UnifiedLog.splitOverflowedSegment, LogSegment.appendFromFile, Kafka 4.3.
    """
    bases: list[int] = []
    end = segment.base_offset
    try:
        with segment.open() as source:
            for window in segment.iter_windows(source):
                if not valid_crcs(window).all():
                    return None
                firsts, lasts = window.batches.base_offset.tolist(), window.batches.last_offset.tolist()
                for first, last in zip(firsts, lasts, strict=True):
                    if last < end:
                        return None
                    if not bases or last - bases[-1] > kf.MAX_RELATIVE_OFFSET:
                        bases.append(first)
                    end = last + 1
                source.release(window.data, window.start)
    except KafkalogError:
        return None
    is_near = end - 1 - segment.base_offset <= kf.MAX_RELATIVE_OFFSET
    return ([segment.base_offset] if is_near else bases), end
