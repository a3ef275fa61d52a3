"""Reads the records of a range of times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kafkalog.errors import Limits
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.columns import RecordColumns
from kafkalog.records.readers.batch_reader import BatchReader
from kafkalog.records.readers.header_reader import HeaderReader
from kafkalog.records.readers.record_reader import RecordReader
from kafkalog.records.selection import Selection
from kafkalog.storage.source import ByteSource


class RangeReader(BatchReader):
    """Reads the records of batches in the range of times, and the headers alone of those before it.

    Batches after the range are left to `walk`: their headers do not rule them out, but few of their records will be
    selected, and only those are copied then.

    Parameters
    ----------
    selection : Selection
    headers, records : HeaderReader, RecordReader
        What reads the two. `headers` has to leave to `records` what the selection does not rule out.
    """

    def __init__(self, selection: Selection, headers: HeaderReader, records: RecordReader, *, limits: Limits) -> None:
        super().__init__(limits=limits)
        self._selection, self._headers, self._records = selection, headers, records
        self._is_inside = self._is_behind = False
        records.plans = selection.end_timestamp is None  # where that ends is not known

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
        """See `BatchReader.stop`."""
        self._headers.stop()
        self._records.stop()

    def close(self) -> None:
        """See `BatchReader.close`."""
        self._records.close()


def records_in_range(
    selection: Selection,
    records: RecordColumns,
    batches: BatchTable,
    mask: npt.NDArray[np.bool_] | None,
    names: Sequence[str],
) -> RecordColumns | None:
    """The records of the wanted batches whose timestamps are in the range of a selection, without columns added for it.

    None if the headers do not say which records are of which batch.
    """
    rows = selection.rows_in_time(records.timestamp, records.timestamp_type)
    if mask is not None and not mask.all():
        counts = np.where(batches.is_control, 0, batches.records_count)
        if counts.min() < 0 or counts.sum() != records.n_records:
            return None
        of_wanted = np.repeat(mask, counts)
        rows = np.flatnonzero(of_wanted) if rows is None else rows[of_wanted[rows]]
    records = RecordColumns(records.n_records, {name: records[name] for name in names}, is_known=True)
    return records if rows is None or rows.size == records.n_records else records.take(rows)
