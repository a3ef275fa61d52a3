"""Reads only headers: of all batches, or of those outside of a range of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.header_rows import HeaderRows
from kafkalog._kernels.header_walk import read_headers
from kafkalog.errors import Limits
from kafkalog.records.batch_table import BatchTable, Window, columns_of
from kafkalog.records.columns import RecordColumns
from kafkalog.records.header import BatchHeader
from kafkalog.records.header_walk import WINDOW_BYTES
from kafkalog.records.readers.batch_reader import RUN_BYTES, BatchReader, readable_descriptor
from kafkalog.records.readers.record_reader import RecordReader
from kafkalog.records.selection import Selection
from kafkalog.storage.source import NO_BYTES, Bytes, ByteSource

_LEAST_ROWS, _MOST_ROWS = 2**6, 2**12
_FIRST_WINDOW_BYTES: Final = 2**18
_HEAD_BYTES: Final = 128  # a header and a control record
_LEAST_SKIPPED: Final = 2**18  # fetching this many bytes is faster than another request


class HeaderReader(BatchReader):
    """Reads the headers of batches, and skips the rest of large batches, while the file is in the page cache.

    The windows have no bytes, and their checksums were not compared. ``needed(batches)`` is bool[n]: batches whose
    bytes are needed, which are left to `walk`; None for all. By default no bytes are needed.
    """

    def __init__(
        self,
        needed: Callable[[BatchTable], npt.NDArray[np.bool_] | None] | None = None,
        *,
        limits: Limits,
        stop_at: int = 0,
    ) -> None:
        super().__init__(limits=limits, stop_at=stop_at)
        self._needed, self._n_rows, self._is_used = needed, _LEAST_ROWS, True
        self.first_window_bytes: int | None = _FIRST_WINDOW_BYTES

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        # in a preallocated file, only a checksum reveals a half-written batch
        if not self._is_used or source.is_preallocated:
            return None
        descriptor, head = readable_descriptor(source, position), None
        if source.fetches_ranges:
            head = _large_head(source, position)
            if head is None:
                return None
        elif descriptor is None or source.is_preallocated:
            if source.descriptor is None:
                self.stop()
            return None
        rows, stop = HeaderRows(self._n_rows), min(position + RUN_BYTES, source.size)
        of = -1 if descriptor is None else descriptor
        n = read_headers(of, position, stop, previous_offset, self._limits.max_batch_bytes, self._stop_at, rows, head)
        if n <= 0:
            if n < 0:
                self.stop()
            return None
        batches = BatchTable(*(column.copy() for column in columns_of(rows)))
        window = Window(NO_BYTES, position, batches, next_offset=rows.next_offset)
        if self._needed is not None:
            needed = self._needed(batches)
            if needed is None:
                self.stop()
                return None
            first = int(needed.argmax())
            if needed[first]:
                return self._before(window, first)
        self._n_rows, self.first_window_bytes = min(2 * self._n_rows, _MOST_ROWS), _FIRST_WINDOW_BYTES
        return window

    def stop(self) -> None:
        self._is_used, self.first_window_bytes = False, None

    def _before(self, window: Window, row: int) -> Window | None:
        """The batches of a window before one that is needed."""
        # read few headers at a time if needed batches lie among others
        self._n_rows = _LEAST_ROWS
        if not row:
            self.first_window_bytes = min(2 * (self.first_window_bytes or WINDOW_BYTES), WINDOW_BYTES)
            return None
        self.first_window_bytes = _FIRST_WINDOW_BYTES
        following = window.batches.last_offset if window.batches.magic[row] < 2 else window.batches.base_offset
        return window.first(row)._replace(next_offset=int(following[row]))


def _large_head(source: ByteSource, position: int) -> Bytes | None:
    """The first bytes of a batch that is large enough to skip; None for others."""
    if position + _HEAD_BYTES > source.size:
        return None
    head = source.window(position, position + _HEAD_BYTES)
    return head if BatchHeader(head).size_in_bytes >= _LEAST_SKIPPED else None


class RangeReader(BatchReader):
    """Reads the records of batches within a range of times, and only headers of those before it.

    Batches after the range are left to `walk`: their headers do not exclude them, but few of their records will be
    selected, and `walk` copies only those. `headers` must leave to `records` the batches that the selection does not
    exclude.
    """

    def __init__(self, selection: Selection, headers: HeaderReader, records: RecordReader, *, limits: Limits) -> None:
        super().__init__(limits=limits)
        self._selection, self._headers, self._records = selection, headers, records
        self._is_inside = self._is_behind = False
        self.first_window_bytes = records.first_window_bytes
        # the end of a range of times is unknown
        records.plans = selection.end_timestamp is None or selection.end_offset is not None

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """See `BatchReader.read`. Some of the windows have records."""
        if not self._is_inside:
            window = self._headers.read(source, position, previous_offset)
            if window is not None:
                self._is_behind = False
                self._records.restart()
                return window
            if self._is_behind:
                return None
        window = self._records.read(source, position, previous_offset)
        if window is not None:
            last = window.batches[-1:]
            mask, end = self._selection.batch_mask(last), self._selection.end_timestamp
            self._is_behind = end is not None and int(last.base_timestamp[0]) >= end
            self._is_inside = (mask is None or bool(mask[0])) and not self._is_behind
            if self._is_behind:
                self._records.close()
        return window

    def stop(self) -> None:
        self._headers.stop()
        self._records.stop()

    def close(self) -> None:
        self._records.close()


def records_in_range(
    selection: Selection,
    records: RecordColumns,
    batches: BatchTable,
    mask: npt.NDArray[np.bool_] | None,
    names: Sequence[str],
) -> RecordColumns | None:
    """The records of needed batches whose timestamps are in the selection's range, without added columns.

    None if the headers do not determine which records belong to which batch.
    """
    rows = selection.rows_in_time(records.timestamp, records.timestamp_type)
    if mask is not None and not mask.all():
        counts = batches.n_user_records
        if counts.min() < 0 or counts.sum() != records.n_records:
            return None
        of_wanted = np.repeat(mask, counts)
        rows = np.flatnonzero(of_wanted) if rows is None else rows[of_wanted[rows]]
    records = RecordColumns(records.n_records, {name: records[name] for name in names}, is_known=True)
    return records if rows is None or rows.size == records.n_records else records.take(rows)
