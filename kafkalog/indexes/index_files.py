"""The sparse indexes of a segment as arrays: viewed, not parsed, and searched many queries at a time.

An index is a hint. Nothing here believes one: `lookup` says what the entries say, and who acts on an entry checks the
batch that it points at (see `kafkalog.log.segment`). Mirrors the reading half of `OffsetIndex`, `TimeIndex`,
`TransactionIndex`. `IndexBuilder` makes entries anew out of batches, as `LogSegment.recover` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.indexes import build_entries, look_up
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import Finding, Reason
from kafkalog.indexes.checks import OffsetIndexCheck, TimeIndexCheck
from kafkalog.indexes.measures import IndexMeasures
from kafkalog.indexes.statistics import measure_index
from kafkalog.indexes.transaction_check import TransactionIndexCheck
from kafkalog.storage.source import Bytes, open_source

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kafkalog.records.batch_table import BatchTable

INDEX_INTERVAL_BYTES: Final = 4096
"""Default of a topic's `index.interval.bytes`."""


def integers(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Queries as an int64 array; TypeError for numbers with a fraction and for dates, whose unit would be guessed."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"whole numbers are expected (times in milliseconds), not {array.dtype}")
    return array.astype(np.int64, copy=False)


class _Index:
    """Entries of one index file.

    Attributes
    ----------
    entries : structured array
        The entries as they lie in the file, big-endian; zero padding behind them is left out.
    base_offset : int
        Of the segment.
    path : str or None
    padding_bytes : int
        Bytes of zeros behind the entries: a live or crashed broker's file is allocated ahead.
    """

    dtype: ClassVar[np.dtype[np.void]]

    def __init__(
        self, data: Bytes, base_offset: int, *, path: str | None = None, size_in_bytes: int | None = None
    ) -> None:
        entry = self.dtype.itemsize
        whole = data[: data.size // entry * entry]
        size = data.size if size_in_bytes is None else size_in_bytes
        n = _used(whole, entry)
        self.entries: npt.NDArray[np.void] = whole[: n * entry].view(self.dtype)
        self.odd_bytes = size % entry
        self.padding_bytes = size - self.odd_bytes - n * entry
        self.base_offset = base_offset
        self.path = path

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        base_offset: int,
        *,
        memory_map: bool = False,
        max_entries: int | None = None,
    ) -> Self:
        """View an index file, mapped or read.

        Parameters
        ----------
        path : path-like
        base_offset : int
            Of the segment.
        memory_map : bool
        max_entries : int, optional
            More cannot be there: an active segment's index is allocated ahead, mostly zeros, and not read whole.
        """
        with open_source(path, memory_map=memory_map) as source:
            stop = source.size if max_entries is None else min(source.size, max_entries * cls.dtype.itemsize)
            return cls(source.window(0, stop), base_offset, path=source.path, size_in_bytes=source.size)

    def __len__(self) -> int:
        return self.entries.size

    def __getitem__(self, item: Any) -> Any:
        return self.entries[item]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.entries, dtype, copy=copy)

    def __repr__(self) -> str:
        padding = f", {self.padding_bytes} bytes of padding" if self.padding_bytes else ""
        return f"{type(self).__name__}({len(self)} entries{padding}, base_offset={self.base_offset})"

    def findings(self) -> list[Finding]:
        """What is plainly wrong with the file itself: a size that is not a number of entries."""
        if not self.odd_bytes:
            return []
        detail = f"{self.odd_bytes} bytes more than a multiple of {self.dtype.itemsize}"
        return [Finding(Reason.INDEX_SIZE, detail, path=self.path, base_offset=self.base_offset)]

    def padding_findings(self, *, is_last: bool = False, used: int = 0) -> list[Finding]:
        """Zeros behind the entries, where they are not normal; `used` bytes of them are an entry."""
        padding = self.padding_bytes - used
        if is_last or padding <= 0:
            return []
        detail = (
            f"{padding} bytes of zeros behind {len(self)} entries, where nobody appends any more: a broker that starts"
            " takes them for entries at the base offset, and lookups for late offsets begin at the start of the segment"
        )
        return [Finding(Reason.INDEX_PADDING, detail, path=self.path, base_offset=self.base_offset)]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The entries as contiguous native columns, offsets absolute."""
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """A `pyarrow.Table` of `columns`."""
        import pyarrow as pa

        return pa.table(self.columns())

    def to_pandas(self) -> pd.DataFrame:
        """A `pandas.DataFrame` of `columns`."""
        return self.to_arrow().to_pandas()


def _used(data: Bytes, entry: int) -> int:
    """Entries up to the last that is not all zeros.

    An entry of zeros never carries anything: that the segment begins at position 0 is known without it.
    """
    end = data.size
    while end:
        start = max(0, end - 2**16)
        nonzero = np.flatnonzero(data[start:end])
        if nonzero.size:
            return (start + int(nonzero[-1])) // entry + 1
        end = start
    return 0


class _Search:
    """What stands beside the largest key at or below each of many queries.

    Parameters
    ----------
    keys : int64[n]
    values : int64[n]
    nothing : int
        For queries below all keys.
    """

    def __init__(self, keys: npt.NDArray[np.int64], values: npt.NDArray[np.int64], nothing: int) -> None:
        self._keys = keys
        self._values = np.concatenate([np.array([nothing], np.int64), values])
        self._is_sorted = bool((keys[1:] >= keys[:-1]).all())

    def __call__(self, queries: npt.ArrayLike) -> npt.NDArray[np.int64]:
        asked = integers(queries)
        found = np.empty(asked.shape, np.int64)
        flat = np.ascontiguousarray(asked).reshape(-1)
        look_up(self._keys, self._values, self._is_sorted, flat, found.reshape(-1))
        return found


class OffsetIndex(_Index):
    """`.index`: (last offset of a batch, its position), 8 bytes an entry.

    Notes
    -----
    ``i32 offset - base_offset | i32 position``. Source: OffsetIndex, Kafka 4.3.

    Examples
    --------
    >>> index = OffsetIndex(np.frombuffer(bytes.fromhex("0000000a00001000"), np.uint8), 100)
    >>> index
    OffsetIndex(1 entries, base_offset=100)
    >>> index.lookup([105, 110, 2000]).tolist()
    [0, 4096, 4096]
    """

    dtype = kf.OFFSET_INDEX_DTYPE

    @classmethod
    def build(
        cls, batches: BatchTable, base_offset: int, *, index_interval_bytes: int = INDEX_INTERVAL_BYTES
    ) -> OffsetIndex:
        """The index that a broker's recovery makes for a segment.

        Parameters
        ----------
        batches : BatchTable
            All of the segment's.
        base_offset : int
        index_interval_bytes : int
            The topic's `index.interval.bytes`.

        Raises
        ------
        ValueError
            Where a broker gives up: offsets do not rise from entry to entry, or lie outside the segment.

        Notes
        -----
        An entry for each batch that begins more than `index_interval_bytes` behind the one of the entry before (or the
        start of the segment). Source: LogSegment.recover, Kafka 4.3.
        """
        return _build(batches, base_offset, index_interval_bytes)[0]

    @cached_property
    def offset(self) -> npt.NDArray[np.int64]:
        """int64[n]: last offset of each indexed batch, absolute."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    @cached_property
    def position(self) -> npt.NDArray[np.int64]:
        """int64[n]: start of the batch in the `.log`, bytes."""
        return self.entries["position"].astype(np.int64)

    @cached_property
    def _floors(self) -> _Search:
        return _Search(self.offset, np.arange(len(self), dtype=np.int64), -1)

    @cached_property
    def _positions(self) -> _Search:
        return _Search(self.offset, self.position, 0)

    def floor(self, offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """int64[m]: number of the largest entry at or below each offset, -1 for none."""
        return self._floors(offsets)

    def lookup(self, offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """int64[m]: position to scan from for each offset, 0 where no entry is small enough (`OffsetIndex.lookup`)."""
        return self._positions(offsets)

    def statistics(self, batches: BatchTable | Iterable[BatchTable]) -> IndexMeasures:
        """How good the index is for the batches of its segment: its gaps, its size, what a lookup passes over.

        Parameters
        ----------
        batches : BatchTable, or iterable of BatchTable
            All of the segment, in order, such as `Segment.iter_batches`.

        Returns
        -------
        IndexMeasures

        Raises
        ------
        SidecarError
            The entries do not rise, or one points behind the batch that holds its offset.

        Examples
        --------
        >>> segment = kafkalog.open("tests/golden/log_dir/p-multi-0").segments[0]
        >>> measures = segment.offset_index.statistics(segment.iter_batches())
        >>> measures.n_entries, measures.gap_bytes.max, measures.worst_scan
        (3, 5281, 5281)
        """
        return measure_index(self, batches)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        return {"offset": self.offset, "position": self.position}

    def check(
        self,
        batches: Iterable[BatchTable],
        *,
        time_index: TimeIndex | None = None,
        interval_bytes: int | None = None,
        is_last: bool = False,
    ) -> list[Finding]:
        """Whether the entries are those that a broker writes for these batches.

        Parameters
        ----------
        batches : iterable of BatchTable
            The whole segment, such as `Segment.iter_batches()`; a window of it at a time is enough.
        time_index : TimeIndex, optional
            Of the same segment.
        interval_bytes : int, optional
            The topic's `index.interval.bytes`, if it is known.
        is_last : bool
            Whether zeros behind the entries are normal: in the segment that a broker appends to, or did when it
            crashed.

        Returns
        -------
        list of Finding
            A row for each kind of fault, with the first entry that has it and what a broker does with it; empty for an
            index that never misleads, by whichever version of Kafka.

        Examples
        --------
        >>> segment = kafkalog.open("tests/golden/log_dir/p-txn-0").segments[0]
        >>> segment.offset_index.check(segment.iter_batches())
        []
        """
        check = OffsetIndexCheck(self, time_index=time_index, interval_bytes=interval_bytes)
        for table in batches:
            check.feed(table)
        return [*self.findings(), *self.padding_findings(is_last=is_last), *check.finish()]


class TimeIndex(_Index):
    """`.timeindex`: (largest timestamp so far, last offset of the batch that reached it), 12 bytes an entry.

    Notes
    -----
    ``i64 timestamp ms | i32 offset - base_offset``. Source: TimeIndex, Kafka 4.3.
    """

    dtype = kf.TIME_INDEX_DTYPE

    @classmethod
    def build(
        cls, batches: BatchTable, base_offset: int, *, index_interval_bytes: int = INDEX_INTERVAL_BYTES
    ) -> TimeIndex:
        """The index that a broker's recovery makes for a segment; parameters and errors as `OffsetIndex.build`.

        Notes
        -----
        With each entry of the offset index the largest timestamp so far, if it is larger than that of the entry before,
        and at the end the largest of the segment. Source: LogSegment.recover, TimeIndex.maybeAppend, Kafka 4.3.
        """
        return _build(batches, base_offset, index_interval_bytes)[1]

    @cached_property
    def timestamp(self) -> npt.NDArray[np.int64]:
        """int64[n]: milliseconds."""
        return self.entries["timestamp"].astype(np.int64)

    @cached_property
    def offset(self) -> npt.NDArray[np.int64]:
        """int64[n]: absolute."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    @cached_property
    def _offsets(self) -> _Search:
        return _Search(self.timestamp, self.offset, self.base_offset)

    def lookup(self, timestamps: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """int64[m]: offset of the largest entry at or below each timestamp, the base offset for none.

        What the entries say, which may be wrong (`TimeIndex.lookup`); `Segment.find_timestamps` answers rightly.
        """
        return self._offsets(timestamps)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        return {"timestamp": self.timestamp, "offset": self.offset}

    def check(
        self, batches: Iterable[BatchTable], *, offset_index: OffsetIndex | None = None, is_last: bool = False
    ) -> list[Finding]:
        """Whether the entries are those that a broker writes for these batches.

        Parameters
        ----------
        batches : iterable of BatchTable
            The whole segment; a window of it at a time is enough.
        offset_index : OffsetIndex, optional
            Of the same segment: an entry there goes with one here.
        is_last : bool
            Whether the segment is the last one, where the largest timestamp may still be missing, and zeros behind the
            entries are normal.

        Returns
        -------
        list of Finding
            See `OffsetIndex.check`.
        """
        check = TimeIndexCheck(self, offset_index=offset_index, is_last=is_last)
        for table in batches:
            check.feed(table)
        found = check.finish()
        used = self.dtype.itemsize if check.starts_with_zeros else 0
        return [*self.findings(), *self.padding_findings(is_last=is_last, used=used), *found]


class TransactionIndex(_Index):
    """`.txnindex`: aborted transactions whose abort marker lies in the segment, 34 bytes an entry.

    Notes
    -----
    ``i16 version | i64 producerId | i64 firstOffset | i64 lastOffset | i64 lastStableOffset``. Source: AbortedTxn,
    Kafka 4.3.
    """

    dtype = kf.TRANSACTION_INDEX_DTYPE

    def check(self, batches: Iterable[BatchTable]) -> list[Finding]:
        """Whether the entries are the aborted transactions of these batches.

        Parameters
        ----------
        batches : iterable of BatchTable
            From where the earliest of the transactions began, or from the start of the partition, to the end of the
            segment; a window of it at a time is enough.

        Returns
        -------
        list of Finding
            See `OffsetIndex.check`. `kafkalog.verify` checks the indexes of a whole partition in one pass.
        """
        check = TransactionIndexCheck([self.entries["first_offset"].astype(np.int64)])
        is_before = True
        for table in batches:
            row = int(np.searchsorted(table.last_offset, self.base_offset)) if is_before else 0
            if is_before:
                check.feed(table[:row])
            if row < len(table):
                if is_before:
                    check.begin(self.entries, self.path, self.base_offset)
                    is_before = False
                check.feed(table[row:])
        if is_before:
            check.begin(self.entries, self.path, self.base_offset)
        return [*self.findings(), *self.padding_findings(), *check.finish()]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        return {name: self.entries[name].astype(self.dtype[name].newbyteorder("=")) for name in self.dtype.names or ()}


class IndexBuilder:
    """Offset index and time index of a segment whose batches come a table at a time.

    Parameters
    ----------
    base_offset : int
        Of the segment.
    index_interval_bytes : int
        The topic's `index.interval.bytes`.
    """

    def __init__(self, base_offset: int, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        if index_interval_bytes < 0:
            raise ValueError(f"index_interval_bytes must not be negative, not {index_interval_bytes}")
        self.base_offset, self.index_interval_bytes = base_offset, index_interval_bytes
        self._carried = np.full(_N_CARRIED, -1, np.int64)
        self._offset_entries: list[npt.NDArray[np.void]] = []
        self._time_entries: list[npt.NDArray[np.void]] = []

    def feed(self, batches: BatchTable) -> tuple[int, Reason | None]:
        """Take the next batches of the segment.

        Returns
        -------
        n_batches : int
            How many were taken.
        reason : Reason or None
            Why not all: `offset_outside_segment` or `offset_order`.
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
        """Whether a broker can add the largest timestamp at the end: its offset must not lie before the last entry."""
        return bool(self._carried[4] >= self._carried[6])

    def offset_entries(self) -> npt.NDArray[np.void]:
        """OFFSET_INDEX_DTYPE[n]: what the `.index` holds."""
        return _joined(self._offset_entries, kf.OFFSET_INDEX_DTYPE)

    def time_entries(self) -> npt.NDArray[np.void]:
        """TIME_INDEX_DTYPE[n]: what the `.timeindex` holds, the largest timestamp of all at its end."""
        largest, offset, last = (int(number) for number in self._carried[3:6])
        final = np.array([(largest, offset - self.base_offset)] if largest > last else [], kf.TIME_INDEX_DTYPE)
        return _joined([*self._time_entries, final], kf.TIME_INDEX_DTYPE)


def _joined(entries: list[npt.NDArray[np.void]], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """As one array, in the file's byte order, which `np.concatenate` does not keep."""
    return np.concatenate([np.empty(0, np.uint8), *(one.view(np.uint8) for one in entries)]).view(dtype)


def _build(batches: BatchTable, base_offset: int, index_interval_bytes: int) -> tuple[OffsetIndex, TimeIndex]:
    builder = IndexBuilder(base_offset, index_interval_bytes)
    n, reason = builder.feed(batches)
    if reason is not None:
        raise ValueError(f"batch {n} (offset {batches.last_offset[n]}): {reason.value}")
    return (
        OffsetIndex(builder.offset_entries().view(np.uint8), base_offset),
        TimeIndex(builder.time_entries().view(np.uint8), base_offset),
    )


_N_CARRIED: Final = 7
