"""A segment as a broker reads it while it loads a log: headers alone, without any check, from where an index leads.

Mirrors `LogSegment.read` and `readNextOffset`, `OffsetIndex.lookup`, `FileRecords.searchForOffsetFromPosition` and
`FileLogInputStream`. `log.segment` is the strict reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, ReadError, Reason
from kafkalog.log.segment import Segment
from kafkalog.repair.startup.compressed_messages import base_offset
from kafkalog.repair.startup.forecast import LoadFailure
from kafkalog.storage.source import ByteSource, PreadSource

# Records.HEADER_SIZE_UP_TO_MAGIC and LegacyRecord.RECORD_OVERHEAD_V0: all that a broker asks of a header here
_MAGIC_END = 17
_MIN_SIZE = 14
_JAVA_BYTE_MAX = 127  # a larger byte is negative in Java, so a v0 or v1 message
_WARM_ENTRIES = 1024  # of 8,192 bytes: AbstractIndex looks at the last entries first
_N_ENTRY_BYTES = kf.OFFSET_INDEX_DTYPE.itemsize


@dataclass(slots=True)
class BatchHeader:
    """What a broker knows of a batch before it reads its records."""

    position: int
    size_in_bytes: int
    head: bytes
    """The first 61 bytes; fewer at the end of the file."""

    @property
    def is_v2(self) -> bool:
        """Whether a broker reads it as v2: any magic above 1 that is not negative."""
        return 1 < self.head[16] <= _JAVA_BYTE_MAX

    @property
    def is_compressed_message(self) -> bool:
        """Whether it is a v0 or v1 message with others inside."""
        return not self.is_v2 and self.head[17] & 7 != 0

    @property
    def offset(self) -> int:
        """Of a v2 batch the base offset, of a v0 or v1 message its own or that of the last one inside."""
        return int.from_bytes(self.head[:8], "big", signed=True)

    @property
    def last_offset(self) -> int:
        """Offset of the last record; past the largest number it goes on with the smallest, as in Java."""
        if not self.is_v2:
            return self.offset
        return _java_long(self.offset + self.field(23, 4))

    def field(self, start: int, size: int) -> int:
        """A signed number of a v2 header.

        Raises
        ------
        LoadFailure
            The file ends within the header.
        """
        if len(self.head) < kf.RECORD_BATCH_OVERHEAD:
            detail = f"the file ends within the header of the batch at {self.position}"
            raise LoadFailure("KafkaException", detail)
        return int.from_bytes(self.head[start : start + size], "big", signed=True)


class LoadedSegment:
    """A segment in a broker's memory.

    Parameters
    ----------
    segment : Segment
    broker : {"4.3", "2.8"}
    n_bytes : int, optional
        Size of its `.log`; default: of the file.
    entries : OFFSET_INDEX_DTYPE[n], optional
        Its offset index; default: that of the file.
    """

    def __init__(
        self,
        segment: Segment,
        broker: str,
        n_bytes: int | None = None,
        entries: npt.NDArray[np.void] | None = None,
    ) -> None:
        self.segment, self._broker = segment, broker
        self.base_offset = segment.base_offset
        self.size_in_bytes = segment.size_in_bytes if n_bytes is None else n_bytes
        self._entries = entries

    @property
    def entries(self) -> npt.NDArray[np.void]:
        """OFFSET_INDEX_DTYPE[n]: the offset index. Its preallocated zeros take no memory.

        Raises
        ------
        LoadFailure
            The file is too large to be mapped.
        """
        if self._entries is None:
            self._entries = _index(self.segment)
        return self._entries

    def next_offset(self) -> int:
        """The offset that a broker would give to the next record of its last segment.

        Raises
        ------
        LoadFailure
            The broker does not start.

        Notes
        -----
        Nothing checks the index: if its last entry leads behind the end, the log ends at the segment's base offset.
        Source: LogSegment.readNextOffset, Kafka 4.3.
        """
        entries = self.entries
        last = self.base_offset + (int(entries["relative_offset"][-1]) if entries.size else 0)
        end = None
        for batch in self.read(last, self.size_in_bytes) or ():
            end = batch.last_offset
        return self.base_offset if end is None else _java_long(end + 1)

    def read(self, start_offset: int, end_position: int) -> Iterator[BatchHeader] | None:
        """The batches from an offset up to a position; None if the offset lies behind the end.

        Source: LogSegment.read, FileRecords.slice, Kafka 4.3.
        """
        start = self.position_of(start_offset)
        if start is None:
            return None
        if end_position < start:
            raise LoadFailure("IllegalArgumentException", f"reads from {start} to {end_position}")
        return self.batches(start, end_position)

    def batches(self, start: int, end: int) -> Iterator[BatchHeader]:
        """The batches between two positions, by their headers. Source: FileLogInputStream.nextBatch, Kafka 4.3."""
        with self.segment.open() as source:
            yield from self._batches(source, start, min(end, self.size_in_bytes))

    def content(self, batch: BatchHeader) -> bytes:
        """All bytes of a batch."""
        with self.segment.open() as source:
            return _content(source, batch)

    def _batches(self, source: ByteSource, position: int, end: int) -> Iterator[BatchHeader]:
        if source.size < end:  # a running broker has cleaned it since
            detail = f"has {source.size} bytes, had {end}"
            raise FileChangedError(Reason.FILE_CHANGED, detail, path=self.segment.path)
        while position < end - _MAGIC_END:
            head = source.window(position, min(position + kf.RECORD_BATCH_OVERHEAD, self.size_in_bytes)).tobytes()
            size = int.from_bytes(head[8:12], "big", signed=True)
            if size < _MIN_SIZE:
                detail = f"found record size {size} smaller than the minimum of {_MIN_SIZE} at {position}"
                raise LoadFailure("CorruptRecordException", detail)
            if position > end - kf.LOG_OVERHEAD - size:
                return
            yield BatchHeader(position, kf.LOG_OVERHEAD + size, head)
            position += kf.LOG_OVERHEAD + size

    def position_of(self, offset: int) -> int | None:
        """Position of the batch that holds an offset, or of the first one behind it; None if there is none.

        Notes
        -----
        4.3 looks at base offsets, 2.8 at last offsets. For the base offset of v0 and v1 messages 4.3 looks inside.
        Source: LogSegment.translateOffset, FileRecords.searchForOffsetFromPosition, Kafka 4.3.
        """
        start = max(self.index_position(offset), 0)
        previous = None
        with self.segment.open() as source:
            for batch in self._batches(source, start, self.size_in_bytes):
                if self._broker == "2.8":
                    if batch.last_offset >= offset:
                        return batch.position
                    continue
                base = batch.offset
                if batch.is_compressed_message:
                    base = base_offset(_content(source, batch), batch.position)
                if base > offset and previous is not None and previous.last_offset >= offset:
                    return previous.position
                if base >= offset:
                    return batch.position
                previous = batch
            return previous.position if previous is not None and previous.last_offset >= offset else None

    def index_position(self, offset: int) -> int:
        """The position that the index has for an offset, by a binary search that trusts the order.

        Source: OffsetIndex.lookup, AbstractIndex.indexSlotRangeFor, Kafka 4.3.
        """
        entries = self.entries
        offsets = entries["relative_offset"]
        wanted = offset - self.base_offset
        if not entries.size:
            return 0
        low, high = max(entries.size - 1 - _WARM_ENTRIES, 0), entries.size - 1
        if offsets[low] >= wanted:
            if offsets[0] > wanted:
                return 0
            low, high = 0, low
        while low < high:
            middle = (low + high + 1) // 2
            found = int(offsets[middle])
            if found > wanted:
                high = middle - 1
            elif found < wanted:
                low = middle
            else:
                low = high = middle
        return int(entries["position"][low])


def _index(segment: Segment) -> npt.NDArray[np.void]:
    path = segment.sidecar_path(kf.INDEX_SUFFIX)
    try:
        source = PreadSource(path)
    except ReadError:
        return np.empty(0, kf.OFFSET_INDEX_DTYPE)
    with source:
        if source.size > kf.MAX_RELATIVE_OFFSET:
            detail = f"its index has {source.size} bytes: a broker cannot map it"
            raise LoadFailure("IllegalArgumentException", detail)
        entries = np.zeros(source.size // _N_ENTRY_BYTES, kf.OFFSET_INDEX_DTYPE)
        if entries.size and not source.is_preallocated:
            return np.memmap(path, kf.OFFSET_INDEX_DTYPE, "r", shape=entries.shape)
        # a running broker trims a preallocated one as it rolls, and touching what is gone then kills the process
        n_bytes = min(source.data_end(), entries.nbytes)
        entries.view(np.uint8)[:n_bytes] = source.window(0, n_bytes)
        return entries


def _content(source: ByteSource, batch: BatchHeader) -> bytes:
    return source.window(batch.position, batch.position + batch.size_in_bytes).tobytes()


def _java_long(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
