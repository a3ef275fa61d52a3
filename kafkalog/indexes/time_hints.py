"""Finds where reading a segment for a time may begin, or end, by its time index.

An entry means that no record up to its offset is younger than its timestamp. A missing entry means nothing, so an
index that was cut, or that a running broker has not written to the end, leaves nothing out. An entry counts if

- timestamps and offsets rise over the whole index;
- the index begins where the offset index does: a broker that finds no time index continues with an empty one, which
  knows nothing of the records before;
- the batch at its offset is intact, and has its timestamp: so it is of this log.

A few batches cannot show whether a record before the entry is younger than the entry says. No broker writes such an
entry. By default scans do not rely on that: the headers of all batches decide.

Source: LogSegment.append, TimeIndex.maybeAppend, LogSegment.findOffsetByTimestamp, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.records.header_walk import intact_batch_at, is_chain, walk

if TYPE_CHECKING:
    from kafkalog.errors import Limits
    from kafkalog.records.batch_table import BatchTable
    from kafkalog.storage.source import ByteSource


AnyIndex = TypeVar("AnyIndex", OffsetIndex, TimeIndex)


class IndexedSegment(Protocol):
    """The attributes of a `Segment` that are used here."""

    base_offset: int
    has_base_offset: bool
    limits: Limits

    def open(self) -> ByteSource:
        """The bytes of the `.log`."""

    def index_or_none(self, kind: type[AnyIndex]) -> AnyIndex | None:
        """An index, None if there is none or it cannot be read."""


_WINDOW_BYTES: Final = 2**16
_CHAIN_BYTES: Final = 2**18
_MOST_BYTES: Final = 2**20
"""An entry is not checked if its batch is this far past the entry of the offset index before it."""


def position_of_younger(segment: IndexedSegment, timestamp: int) -> int:
    """The position of a batch before which all records of a segment are older than a timestamp; 0 for none.

    Also 0 if a file cannot be read, or is damaged where it is read.
    """
    found = _entry_at(segment, timestamp, -1)
    return 0 if found is None else found[0]


def offset_past(segment: IndexedSegment, timestamp: int, *, is_appended: bool = False) -> int | None:
    """The offset after a record at or past a timestamp, of the first entry of the time index that tells of one.

    None without one, or if a file cannot be read, or is damaged where it is read. With `is_appended` also if a producer
    set the timestamp.
    """
    found = _entry_at(segment, timestamp, 0)
    return None if found is None or found[2] < is_appended else found[1] + 1


def _entry_at(segment: IndexedSegment, timestamp: int, step: int) -> tuple[int, int, bool] | None:
    """The position of the batch of an entry of the time index, the entry's offset, and whether a broker set its time.

    None if the entry does not count.

    The entry is the first one at or past a timestamp, or so many steps after that.
    """
    if not segment.has_base_offset:
        return None
    times, offsets = segment.index_or_none(TimeIndex), segment.index_or_none(OffsetIndex)
    if times is None or offsets is None or not len(times) or not len(offsets):
        return None
    is_whole = segment.base_offset <= times.offset[0] <= offsets.offset[0] and times.timestamp[0] >= 0
    if not is_whole or not _rises(times.timestamp) or not _rises(times.offset):
        return None
    entry = int(np.searchsorted(times.timestamp, timestamp, side="left")) + step
    if not 0 <= entry < len(times):
        return None
    offset = int(times.offset[entry])
    try:
        with segment.open() as source:
            start = int(offsets.lookup([offset])[0])
            batch = _batch_of(source, offset, start, segment.limits) if 0 <= start < source.size else None
            # the batch must be the one that the entry was made for: else what lies before it is not known to be older
            if batch is None or batch.max_timestamp[0] != times.timestamp[entry]:
                return None
            position = int(batch.position[0])
            # what looks like batches may be the value of a record: then none follows after it
            is_appended = bool(batch.attributes[0] & kf.TIMESTAMP_TYPE_BIT)
            return (position, offset, is_appended) if is_chain(source, position, _CHAIN_BYTES) else None
    except KafkalogError:
        return None


def _rises(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _batch_of(source: ByteSource, offset: int, position: int, limits: Limits) -> BatchTable | None:
    """The intact batch that holds an offset, at or after a position."""
    stop = min(position + _MOST_BYTES, source.size)
    for window in walk(source, start=position, stop=stop, window_bytes=_WINDOW_BYTES, limits=limits):
        rows = np.flatnonzero(window.batches.last_offset >= offset)
        source.release(window.data, window.start)
        if rows.size:
            found, _ = intact_batch_at(source, int(window.batches.position[rows[0]]), limits.max_batch_bytes)
            if found is None:
                return None
            source.release(found.data, found.start)
            return found.batches if found.batches.base_offset[0] <= offset <= found.batches.last_offset[0] else None
    return None
