"""Builds the entries of a segment's offset and time index from its batches.

Mirrors `LogSegment.recover`. Nothing is written to files here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.indexes import build_entries
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import Reason

if TYPE_CHECKING:
    from kafkalog.records.batch_table import BatchTable

# state that the kernel carries from table to table: the slots used here, and its values before the first batch
_MAX_TIMESTAMP, _MAX_TIMESTAMP_OFFSET, _LAST_TIME_ENTRY, _LAST_TIME_ENTRY_OFFSET = 2, 3, 4, 5
_AT_START: Final = (0, -1, -1, -1, -1, -1)


class EntryRule:
    """Decides which batches of a segment get an index entry, one table at a time.

    A batch gets an entry if it starts more than `index_interval_bytes` after the last batch with an entry, or after the
    start of the segment. Source: LogSegment.recover, and LogSegment.append for one batch an append, Kafka 4.3.
    """

    def __init__(self, index_interval_bytes: int) -> None:
        if not 0 <= index_interval_bytes < 2**31:
            raise ValueError(f"index.interval.bytes must be from 0 to 2**31 - 1, not {index_interval_bytes}")
        self.index_interval_bytes = index_interval_bytes
        self._carried = np.array(_AT_START, np.int64)
        self._n_rows = 0

    def rows(self, position: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """int64[k]: row numbers of the batches with an entry. The positions rise from call to call."""
        positions = np.ascontiguousarray(position, np.int64)
        n = positions.size
        # only positions matter: row numbers take the place of offsets, and there are no timestamps
        numbers, none = np.arange(self._n_rows, self._n_rows + n), np.full(n, -1, np.int64)
        chosen, spare = np.empty(n, np.int32), np.empty(n, np.int32)
        _, _, n_chosen, _ = build_entries(
            positions,
            numbers,
            none,
            0,
            self.index_interval_bytes,
            self._carried,
            chosen,
            spare,
            none.copy(),
            spare.copy(),
        )
        rows: npt.NDArray[np.int64] = chosen[:n_chosen].astype(np.int64) - self._n_rows
        self._n_rows += n
        return rows


class IndexBuilder:
    """Builds the offset index and time index of a segment whose batches come one table at a time.

    `index_interval_bytes` is the topic's setting.
    """

    def __init__(self, base_offset: int, index_interval_bytes: int = kf.INDEX_INTERVAL_BYTES) -> None:
        if index_interval_bytes < 0:
            raise ValueError(f"index_interval_bytes must not be negative, not {index_interval_bytes}")
        self.base_offset, self.index_interval_bytes = base_offset, index_interval_bytes
        self._carried = np.array(_AT_START, np.int64)
        self._offset_entries: list[npt.NDArray[np.void]] = []
        self._time_entries: list[npt.NDArray[np.void]] = []

    def feed(self, batches: BatchTable) -> tuple[int, Reason | None]:
        """Add the next batches of the segment.

        Returns how many were added, and why the one after those was not. The reason is `offset_outside_segment` or
        `offset_order`, None if all were added.
        """
        n = len(batches)
        offset, position = np.empty(n, np.int32), np.empty(n, np.int32)
        timestamp, timestamp_offset = np.empty(n, np.int64), np.empty(n, np.int32)
        status, n_rows, n_offset, n_time = build_entries(
            batches.position,
            batches.last_offset,
            batches.max_timestamp,
            self.base_offset,
            self.index_interval_bytes,
            self._carried,
            offset,
            position,
            timestamp,
            timestamp_offset,
        )
        if n_offset:
            entries = np.empty(n_offset, kf.OFFSET_INDEX_DTYPE)
            entries["relative_offset"], entries["position"] = offset[:n_offset], position[:n_offset]
            self._offset_entries.append(entries)
        if n_time:
            entries = np.empty(n_time, kf.TIME_INDEX_DTYPE)
            entries["timestamp"], entries["relative_offset"] = timestamp[:n_time], timestamp_offset[:n_time]
            self._time_entries.append(entries)
        if n_rows == n:
            return n, None
        return n_rows, Reason.OFFSET_ORDER if status == STATUS["OFFSET_ORDER"] else Reason.OFFSET_OUTSIDE_SEGMENT

    @property
    def ends_in_order(self) -> bool:
        """Whether a broker can add the final time entry: its offset must not lie before that of the last entry."""
        return bool(self._carried[_MAX_TIMESTAMP_OFFSET] >= self._carried[_LAST_TIME_ENTRY_OFFSET])

    def offset_entries(self) -> npt.NDArray[np.void]:
        """OFFSET_INDEX_DTYPE[n]: the entries of the `.index`."""
        return _joined(self._offset_entries, kf.OFFSET_INDEX_DTYPE)

    def time_entries(self) -> npt.NDArray[np.void]:
        """TIME_INDEX_DTYPE[n]: the entries of the `.timeindex`; the last one has the segment's largest timestamp."""
        largest, offset = int(self._carried[_MAX_TIMESTAMP]), int(self._carried[_MAX_TIMESTAMP_OFFSET])
        # the final entry is what a broker adds on a roll or a close, if the largest timestamp has risen since the last
        is_new = largest > self._carried[_LAST_TIME_ENTRY]
        final = np.array([(largest, offset - self.base_offset)] if is_new else [], kf.TIME_INDEX_DTYPE)
        return _joined([*self._time_entries, final], kf.TIME_INDEX_DTYPE)


def _joined(entries: list[npt.NDArray[np.void]], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Join arrays in the byte order of the file, which `np.concatenate` of structured arrays does not keep."""
    return np.concatenate([np.empty(0, np.uint8), *(one.view(np.uint8) for one in entries)]).view(dtype)


def build(batches: BatchTable, base_offset: int, index_interval_bytes: int) -> IndexBuilder:
    """A builder with all batches of a segment. Raises ValueError if a broker would not build the indexes."""
    builder = IndexBuilder(base_offset, index_interval_bytes)
    n, reason = builder.feed(batches)
    if reason is not None:
        raise ValueError(f"batch {n} (offset {batches.last_offset[n]}): {reason.value}")
    return builder
