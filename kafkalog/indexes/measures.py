"""Measures one sparse offset index: the gaps between its entries, and the bytes that a lookup scans.

An index is a list of entries (offset, position), read from a file or made by the rule of a broker. It is measured
against the batches of its segment, one window at a time. Only sums are kept: memory is constant, and the work for
another index grows with its entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.html import JsonFields
from kafkalog.indexes.distribution import Distribution, Spread

if TYPE_CHECKING:
    from kafkalog.records.batch_table import BatchTable

Numbers = npt.NDArray[np.int64]

_MIB: Final = 2**20
_MOST_OFFSET: Final = 2**63 - 2
_OFFSET_ENTRY: Final = kf.OFFSET_INDEX_DTYPE.itemsize
_TIME_ENTRY: Final = kf.TIME_INDEX_DTYPE.itemsize


@dataclass(frozen=True, slots=True)
class IndexMeasures(JsonFields):
    """The size of an offset index, and the cost of lookups through it."""

    _json_properties: ClassVar[tuple[str, ...]] = ("index_bytes", "index_bytes_per_log_byte", "entries_per_mib")
    _json_without: ClassVar[tuple[str, ...]] = ("gaps",)

    index_interval_bytes: int | None
    """The setting that the index was made with; None for an index as it is on disk."""
    size_in_bytes: int
    """Size of the log that the index covers."""
    n_entries: int
    n_time_entries: int | None
    """Entries of the time index of the same segment; None if there is none."""
    gap_bytes: Spread
    """Gaps between entries in bytes, including those from the start of the segment to the first entry and from the last
    entry to the end. A lookup scans at most one gap; with indexes from before Kafka 4, which have one entry per append,
    a little more."""
    expected_scan_by_offset: float | None
    """Bytes that a lookup scans: from the position that the index gives to the start of the batch that holds the
    offset. The mean over all offsets of all batches, equally weighted. A batch has the offsets from its base to its
    last offset, even if compaction emptied it; offsets between batches do not count. None without offsets."""
    worst_scan: int
    """Maximum number of bytes that a lookup of an offset scans."""
    gaps: tuple[Numbers, Numbers] = field(repr=False, compare=False)
    """Sizes of gaps, rounded down by less than 1.6 %, and how many have each."""

    @property
    def index_bytes(self) -> int:
        """Bytes of the entries of both indexes, without preallocated space."""
        return self.n_entries * _OFFSET_ENTRY + (self.n_time_entries or 0) * _TIME_ENTRY

    @property
    def index_bytes_per_log_byte(self) -> float | None:
        """Index bytes per byte of log; None for an empty log."""
        return self.index_bytes / self.size_in_bytes if self.size_in_bytes else None

    @property
    def entries_per_mib(self) -> float | None:
        """Entries of the offset index per MiB of log; None for an empty log."""
        return self.n_entries * _MIB / self.size_in_bytes if self.size_in_bytes else None


class MeasuredWindow:
    """A window of batches, not empty, with the sums that the measures of all indexes need.

    `previous_offset` is the last offset before the window, `timestamp` the largest timestamp before it, -1 for none.
    Offsets are corrected to rise if those in the file do not. `timestamp` becomes the largest up to each batch.
    `n_offsets`, int64[n + 1], counts the offsets before each batch, then all.
    """

    def __init__(self, batches: BatchTable, previous_offset: int, timestamp: int) -> None:
        self.position = batches.position
        self.last_offset = np.minimum(
            np.maximum.accumulate(np.maximum(batches.last_offset, previous_offset)), _MOST_OFFSET
        )
        lowest = np.concatenate([np.array([previous_offset], np.int64), self.last_offset[:-1]]) + 1
        # the first offset in a compressed v0 or v1 message is not known: assume that it follows the previous batch
        self.first_offset = np.clip(
            np.where(batches.base_offset >= 0, batches.base_offset, lowest), lowest, self.last_offset + 1
        )
        self.timestamp = np.maximum.accumulate(np.maximum(batches.max_timestamp, timestamp))
        counts = self.last_offset - self.first_offset + 1
        self.n_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        # positions relative to the first batch, so that a sum of floats over all offsets does not lose the small ones
        places = (self.position - self.position[0]).astype(np.float64)
        self.offset_places = _product(counts, places)
        self.end_position = batches.end_position


class IndexMeter:
    """Measures one index of one segment, or, by `merge`, of several.

    `n_time_entries` counts the time entries that a broker makes along with the offset entries; the caller overwrites it
    if there is a `.timeindex`. `misleading` is the first entry (offset, position) that points after the batch that
    holds its offset: a lookup through it misses the batch, so the figures are invalid.
    """

    def __init__(self, index_interval_bytes: int | None = None) -> None:
        self.index_interval_bytes = index_interval_bytes
        self.n_entries = 0
        self.n_time_entries: int | None = 0
        self.misleading: tuple[int, int] | None = None
        self._size = 0
        self._gaps = Distribution()
        self._n_offsets = 0
        self._passed = 0.0
        self._worst = 0
        self._is_fed = False
        # the last entry seen: position, largest timestamp
        self._position = 0
        self._timestamp = -1

    def feed(self, rows: MeasuredWindow, offset: Numbers, position: Numbers) -> None:
        """Count a window, and the entries up to its last offset that were not fed before. They rise strictly."""
        self._is_fed = True
        row = np.searchsorted(rows.last_offset, offset, side="left")
        if self.misleading is None and (behind := rows.position[row] < position).any():
            wrong = int(np.argmax(behind))
            self.misleading = int(offset[wrong]), int(position[wrong])
        self._feed_lookups(rows, offset, position, row)
        if offset.size:
            timestamp = rows.timestamp[row]
            self._gaps.add(np.maximum(_steps(self._position, position), 0))
            if self.n_time_entries is not None:
                self.n_time_entries += int(np.count_nonzero(_steps(self._timestamp, timestamp) > 0))
            self._position, self._timestamp = int(position[-1]), int(timestamp[-1])
        self.n_entries += offset.size

    def _feed_lookups(self, rows: MeasuredWindow, offset: Numbers, position: Numbers, row: Numbers) -> None:
        """Count the bytes that lookups scan.

        A lookup starts at the largest entry at or below its offset; offsets between two entries share a start.
        """
        start = np.concatenate([np.array([self._position], np.int64), position])
        place = (start - rows.position[0]).astype(np.float64)
        n_before = rows.n_offsets[row] + np.clip(offset - rows.first_offset[row], 0, np.diff(rows.n_offsets)[row])
        bounds = np.concatenate([np.zeros(1, np.int64), n_before, rows.n_offsets[-1:]])
        n_offsets = np.diff(bounds)
        self._passed += rows.offset_places - _product(n_offsets, place)
        self._n_offsets += int(rows.n_offsets[-1])
        used = n_offsets > 0
        farthest = np.searchsorted(rows.n_offsets, bounds[1:][used] - 1, side="right") - 1
        self._worst = max(self._worst, int((rows.position[farthest] - start[used]).max(initial=0)))

    def finish(self, position: int, timestamp: int) -> None:
        """End the segment, given its end position and largest timestamp (-1 for none)."""
        self._size = position
        if not self._is_fed:
            return
        self._gaps.add(np.maximum(np.array([position - self._position]), 0))
        if self.n_time_entries is not None:
            self.n_time_entries += timestamp > self._timestamp

    def merge(self, other: IndexMeter) -> None:
        """Add the measures of another segment; `finish` has been called on it."""
        self._size += other._size
        self.n_entries += other.n_entries
        if other.n_time_entries is not None:
            self.n_time_entries = (self.n_time_entries or 0) + other.n_time_entries
        self._gaps.merge(other._gaps)
        self._n_offsets += other._n_offsets
        self._passed += other._passed
        self._worst = max(self._worst, other._worst)

    def measures(self) -> IndexMeasures:
        """The figures."""
        return IndexMeasures(
            self.index_interval_bytes,
            self._size,
            self.n_entries,
            self.n_time_entries,
            self._gaps.spread(),
            self._passed / self._n_offsets if self._n_offsets else None,
            self._worst,
            self._gaps.histogram(),
        )


def _product(counts: Numbers, places: npt.NDArray[np.float64]) -> float:
    # not np.dot: it may start BLAS threads, which cost more than they save here
    return float((counts * places).sum())


def _steps(before: int, values: Numbers) -> Numbers:
    steps: Numbers = values - np.concatenate([np.array([before], np.int64), values[:-1]])
    return steps
