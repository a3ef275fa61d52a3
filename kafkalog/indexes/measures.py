"""How good one sparse offset index is: the gaps between its entries, and the bytes that a lookup scans.

An index is a list of entries (offset, position), be it read from a file or made by the rule by which brokers make one
(`EntryRule`), and is measured against the batches of its segment, a window at a time. Sums are kept, never rows: the
work for another index is in proportion to its entries, the memory is constant.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.indexes import build_entries
from kafkalog.indexes.distribution import Distribution, Spread

if TYPE_CHECKING:
    from kafkalog.records.batch_table import BatchTable

Numbers = npt.NDArray[np.int64]

_MIB: Final = 2**20
_MOST_OFFSET: Final = 2**63 - 2
_OFFSET_ENTRY: Final = kf.OFFSET_INDEX_DTYPE.itemsize
_TIME_ENTRY: Final = kf.TIME_INDEX_DTYPE.itemsize


@dataclass(frozen=True, slots=True)
class IndexMeasures:
    """What an offset index costs and what it is good for.

    Attributes
    ----------
    index_interval_bytes : int or None
        The setting that it was made with; None for an index as it is on disk.
    size_in_bytes : int
        Of the log that it covers.
    n_entries : int
    n_time_entries : int or None
        Of the time index beside it; None where there is none.
    gap_bytes, gap_offsets, gap_ms : Spread
        Of the stretches into which the entries cut a segment, from its start to the first entry and from the last entry
        to its end included; a lookup through an index of today's brokers passes over one at most, through one of
        before Kafka 4, which were made append by append, over a little more. Milliseconds are those between the largest
        timestamps up to each entry, where batches have any; stretches over which these do not rise count as 0.
    expected_scan_by_offset : float or None
        Bytes that a lookup passes over: from the position that the index gives to the start of the batch that holds
        the offset. The mean over all offsets that batches hold (from base to last offset of each, so offsets in a
        batch that compaction emptied count, those between batches do not), each as likely as any other. Without
        offsets None.
    expected_scan_by_byte : float or None
        The same for a byte of the log, each as likely as any other: the batch around it is looked up by its base
        offset, as a consumer does that goes on where it ended.
    worst_scan : int
        The most that a lookup of an offset passes over.
    gaps : Distribution or None
        The gaps in bytes, where they are kept for drawing.
    """

    index_interval_bytes: int | None
    size_in_bytes: int
    n_entries: int
    n_time_entries: int | None
    gap_bytes: Spread
    gap_offsets: Spread
    gap_ms: Spread
    expected_scan_by_offset: float | None
    expected_scan_by_byte: float | None
    worst_scan: int
    gaps: Distribution | None = field(default=None, repr=False, compare=False)

    @property
    def index_bytes(self) -> int:
        """Bytes of the entries of both indexes; what is allocated ahead does not count."""
        return self.n_entries * _OFFSET_ENTRY + (self.n_time_entries or 0) * _TIME_ENTRY

    @property
    def index_bytes_per_log_byte(self) -> float | None:
        """What the indexes add to the log; None for an empty log."""
        return self.index_bytes / self.size_in_bytes if self.size_in_bytes else None

    @property
    def entries_per_mib(self) -> float | None:
        """Entries of the offset index to a MiB of log; None for an empty log."""
        return self.n_entries * _MIB / self.size_in_bytes if self.size_in_bytes else None

    def as_dict(self) -> dict[str, Any]:
        """The fields and properties, for JSON."""
        values: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Spread):
                values[name] = asdict(value)
            elif name != "gaps":
                values[name] = value
        values["index_bytes"] = self.index_bytes
        values["index_bytes_per_log_byte"] = self.index_bytes_per_log_byte
        values["entries_per_mib"] = self.entries_per_mib
        return values


class EntryRule:
    """Which batches of a segment get an index entry, a window at a time.

    Parameters
    ----------
    index_interval_bytes : int

    Notes
    -----
    A batch gets one if more than so many bytes lie between its start and that of the last batch with one, or the start
    of the segment. Source: LogSegment.recover, and LogSegment.append for one batch an append, Kafka 4.3.

    Examples
    --------
    >>> rule = EntryRule(4096)
    >>> rule.rows([0, 4000, 4097, 8193]).tolist(), rule.rows([8194, 20000]).tolist()
    ([2], [0, 1])
    """

    def __init__(self, index_interval_bytes: int) -> None:
        if not 0 <= index_interval_bytes < 2**31:
            raise ValueError(f"index.interval.bytes must be from 0 to 2**31 - 1, not {index_interval_bytes}")
        self.index_interval_bytes = index_interval_bytes
        # the segment starts at position 0, with no entry
        self._carried = np.array([0, 0, -1, -1, -1, -1, -1], np.int64)
        self._n_rows = 0

    def rows(self, position: npt.ArrayLike) -> Numbers:
        """int64[k]: numbers of the rows with an entry, of batches at these rising positions."""
        positions = np.ascontiguousarray(position, np.int64)
        n = positions.size
        # only the positions decide: the number of a row stands for its offset, and there are no timestamps
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
        rows: Numbers = chosen[:n_chosen].astype(np.int64) - self._n_rows
        self._n_rows += n
        return rows


class Rows:
    """A window of batches with the sums that all indexes are measured by.

    Parameters
    ----------
    batches : BatchTable
        Not empty.
    previous_offset : int
        The last one before.
    timestamp : int
        The largest one before, -1 for none.

    Attributes
    ----------
    first_offset, last_offset : int64[n]
        Of each batch; rising even where those in the file are not.
    position : int64[n]
    timestamp : int64[n]
        The largest up to and with each batch, -1 for none.
    n_offsets, n_bytes : int64[n + 1]
        Of the batches before each, and of all.
    offset_places, byte_places : float
        Positions from that of the first batch on, summed over offsets and over bytes.
    """

    def __init__(self, batches: BatchTable, previous_offset: int, timestamp: int) -> None:
        self.position = batches.position
        self.last_offset = np.minimum(
            np.maximum.accumulate(np.maximum(batches.last_offset, previous_offset)), _MOST_OFFSET
        )
        lowest = np.concatenate([np.array([previous_offset], np.int64), self.last_offset[:-1]]) + 1
        # the first offset in a compressed v0 or v1 message is not known: it is taken to follow the batch before
        self.first_offset = np.clip(
            np.where(batches.base_offset >= 0, batches.base_offset, lowest), lowest, self.last_offset + 1
        )
        self.timestamp = np.maximum.accumulate(np.maximum(batches.max_timestamp, timestamp))
        counts, sizes = self.last_offset - self.first_offset + 1, batches.size_in_bytes.astype(np.int64)
        self.n_offsets, self.n_bytes = _sums(counts), _sums(sizes)
        places = (self.position - self.position[0]).astype(np.float64)
        self.offset_places, self.byte_places = _product(counts, places), _product(sizes, places)
        self.end_position = int(batches.next_position[-1])


class IndexMeter:
    """Measures one index of one segment, or, by `merge`, of several.

    Parameters
    ----------
    index_interval_bytes : int, optional
        See `IndexMeasures`.

    Attributes
    ----------
    n_time_entries : int or None
        Those that a broker makes beside the offset entries; to be set where there is a file.
    misleading : (int, int) or None
        Offset and position of the first entry that points after the batch that holds its offset: a lookup through it
        finds nothing, and the figures mean nothing.
    """

    def __init__(self, index_interval_bytes: int | None = None) -> None:
        self.index_interval_bytes = index_interval_bytes
        self.n_entries = 0
        self.n_time_entries: int | None = 0
        self.misleading: tuple[int, int] | None = None
        self._size = 0
        self._gaps = {name: Distribution() for name in ("bytes", "offsets", "ms")}
        self._n_offsets = 0
        self._n_bytes = 0
        self._passed_by_offset = 0.0
        self._passed_by_byte = 0.0
        self._worst = 0
        # the entry before the next one: position, offset, largest timestamp
        self._position = 0
        self._offset: int | None = None
        self._timestamp = -1
        self._indexed_timestamp = -1

    def feed(self, rows: Rows, offset: Numbers, position: Numbers) -> None:
        """Count a window, and the entries up to its last offset that were not fed before, strictly rising."""
        if self._offset is None:
            self._offset = int(rows.first_offset[0])
        if self._timestamp < 0:
            self._timestamp = _first_known(rows.timestamp)
        row = np.searchsorted(rows.last_offset, offset, side="left")
        if self.misleading is None and (behind := rows.position[row] < position).any():
            wrong = int(np.argmax(behind))
            self.misleading = int(offset[wrong]), int(position[wrong])
        self._feed_lookups(rows, offset, position, row)
        if offset.size:
            self._feed_gaps(rows.timestamp[row], offset, position)
        self.n_entries += offset.size

    def _feed_lookups(self, rows: Rows, offset: Numbers, position: Numbers, row: Numbers) -> None:
        """A lookup starts at the largest entry at or below its offset; offsets between two entries share a start."""
        start = np.concatenate([np.array([self._position], np.int64), position])
        place = (start - rows.position[0]).astype(np.float64)
        n_before = rows.n_offsets[row] + np.clip(offset - rows.first_offset[row], 0, np.diff(rows.n_offsets)[row])
        bounds = _between(n_before, int(rows.n_offsets[-1]))
        n_offsets = np.diff(bounds)
        self._passed_by_offset += rows.offset_places - _product(n_offsets, place)
        self._n_offsets += int(rows.n_offsets[-1])
        asked = np.searchsorted(rows.first_offset, offset, side="left")
        n_bytes = np.diff(_between(rows.n_bytes[asked], int(rows.n_bytes[-1])))
        self._passed_by_byte += rows.byte_places - _product(n_bytes, place)
        self._n_bytes += int(rows.n_bytes[-1])
        used = n_offsets > 0
        farthest = np.searchsorted(rows.n_offsets, bounds[1:][used] - 1, side="right") - 1
        self._worst = max(self._worst, int((rows.position[farthest] - start[used]).max(initial=0)))

    def _feed_gaps(self, timestamp: Numbers, offset: Numbers, position: Numbers) -> None:
        self._gap("bytes", _steps(self._position, position))
        self._gap("offsets", _steps(self._offset or 0, offset))
        known = timestamp[timestamp >= 0]
        if known.size:
            self._gap("ms", _steps(self._timestamp, known))
            self._timestamp = int(known[-1])
        if self.n_time_entries is not None:
            self.n_time_entries += int(np.count_nonzero(_steps(self._indexed_timestamp, timestamp) > 0))
        self._indexed_timestamp = int(timestamp[-1])
        self._position, self._offset = int(position[-1]), int(offset[-1])

    def _gap(self, name: str, gaps: Numbers) -> None:
        self._gaps[name].add(np.maximum(gaps, 0))

    def finish(self, position: int, offset: int, timestamp: int) -> None:
        """End the segment at a position, with its last offset and its largest timestamp (-1 for none)."""
        self._size = position
        if self._offset is None:
            return
        self._gap("bytes", np.array([position - self._position]))
        self._gap("offsets", np.array([offset + 1 - self._offset]))
        if timestamp >= 0:
            self._gap("ms", np.array([timestamp - self._timestamp]))
        if self.n_time_entries is not None:
            self.n_time_entries += timestamp > self._indexed_timestamp

    def merge(self, other: IndexMeter) -> None:
        """Count another segment, which is finished."""
        self._size += other._size
        self.n_entries += other.n_entries
        if other.n_time_entries is not None:
            self.n_time_entries = (self.n_time_entries or 0) + other.n_time_entries
        for name, gaps in self._gaps.items():
            gaps.merge(other._gaps[name])
        self._n_offsets += other._n_offsets
        self._n_bytes += other._n_bytes
        self._passed_by_offset += other._passed_by_offset
        self._passed_by_byte += other._passed_by_byte
        self._worst = max(self._worst, other._worst)

    def measures(self, *, keep_gaps: bool = False) -> IndexMeasures:
        """The figures."""
        return IndexMeasures(
            self.index_interval_bytes,
            self._size,
            self.n_entries,
            self.n_time_entries,
            self._gaps["bytes"].spread(),
            self._gaps["offsets"].spread(),
            self._gaps["ms"].spread(),
            self._passed_by_offset / self._n_offsets if self._n_offsets else None,
            self._passed_by_byte / self._n_bytes if self._n_bytes else None,
            self._worst,
            self._gaps["bytes"] if keep_gaps else None,
        )


def _product(counts: Numbers, places: npt.NDArray[np.float64]) -> float:
    # not np.dot, which may wake threads that cost more than they do
    return float((counts * places).sum())


def _sums(values: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])


def _steps(before: int, values: Numbers) -> Numbers:
    steps: Numbers = values - np.concatenate([np.array([before], np.int64), values[:-1]])
    return steps


def _between(inner: Numbers, end: int) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), inner, np.array([end], np.int64)])


def _first_known(timestamp: Numbers) -> int:
    """The first that is one, -1 for none."""
    row = int(np.argmax(timestamp >= 0))
    return max(int(timestamp[row]), -1)
