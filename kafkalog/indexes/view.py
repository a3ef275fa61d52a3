"""Views the entries of a segment's sparse indexes as arrays, without parsing, and searches many queries at a time.

All numbers are big-endian, and entries follow one another without a header::

    .index      | offset - base_offset  i32 | position in the .log  i32 |                                  8 bytes
    .timeindex  | timestamp in ms  i64      | offset - base_offset  i32 |                                 12 bytes
    .txnindex   | version  i16 | producer id  i64 | first offset  i64 | last offset  i64 | last stable offset  i64 |
                                                                                                          34 bytes

A broker preallocates the files that it appends to, so zeros may follow the entries. An index is a hint: a search
returns the contents of the entries unchecked. `kafkalog.log.segment` checks the batch at an entry's position before it
uses the entry.

Mirrors the reading half of `OffsetIndex`, `TimeIndex` and `TransactionIndex`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.buffer_pool import populate
from kafkalog._kernels.indexes import look_up
from kafkalog.errors import Finding, Reason
from kafkalog.state.entries import WrittenWhole, entries_of, integers, times
from kafkalog.storage.files import open_source
from kafkalog.storage.source import Bytes

_KINDS: Final = {
    kf.LOG_SUFFIX: "kafkalog.open(path), which has the indexes of a segment",
    kf.INDEX_SUFFIX: "kafkalog.OffsetIndex.open(path)",
    kf.TIME_INDEX_SUFFIX: "kafkalog.TimeIndex.open(path)",
    kf.TRANSACTION_INDEX_SUFFIX: "kafkalog.TransactionIndex.open(path)",
    kf.PRODUCER_SNAPSHOT_SUFFIX: "kafkalog.ProducerSnapshot.open(path)",
}
"""What opens a file, by the end of its name. The bytes of one kind could be those of another."""


class IndexEntries(WrittenWhole):
    """Entries of one index file.

    Attributes
    ----------
    entries : structured array
        The entries as they are in the file, big-endian, without the zeros after them.
    base_offset : int
        Base offset of the segment.
    padding_bytes : int
        Bytes of zeros after the entries: a broker preallocates the file, and trims it when it closes the segment.
    """

    dtype: ClassVar[np.dtype[np.void]]
    suffix: ClassVar[str]
    _rising: ClassVar[Mapping[str, bool]] = {}
    """The fields that never fall from entry to entry, and whether two entries have different ones."""

    def __init__(
        self,
        data: Bytes | npt.NDArray[np.void] | bytes | bytearray | memoryview,
        base_offset: int | None = None,
        *,
        path: str | None = None,
        size_in_bytes: int | None = None,
    ) -> None:
        data = self._bytes_of(data)
        if base_offset is None:
            raise TypeError(f"{type(self).__name__} needs base_offset, that of its segment")
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
    def _bytes_of(cls, data: Any) -> Bytes:
        """The entries as they are in a file: uint8."""
        if isinstance(data, (bytes, bytearray, memoryview)):
            return np.frombuffer(data, np.uint8)
        if not isinstance(data, np.ndarray):
            hint = f"; {cls.__name__}.open reads a file" if isinstance(data, (str, os.PathLike)) else ""
            raise TypeError(f"entries are an array or bytes, not {type(data).__name__}{hint}")
        if data.dtype == np.uint8:
            return data
        if data.dtype.names == cls.dtype.names and data.ndim == 1:
            # an array in the machine's byte order has the same fields
            return np.ascontiguousarray(data, cls.dtype).view(np.uint8)
        raise TypeError(f"entries are uint8 or have the dtype {cls.__name__}.dtype, not {data.dtype}")

    @classmethod
    def from_columns(cls, base_offset: int, **columns: npt.ArrayLike) -> Self:
        """Make an index of columns: those that `columns` returns, with absolute offsets.

        Parameters
        ----------
        base_offset : int
            Base offset of the segment.
        **columns : array_like of int
            All columns of the index, of one length; `version` may be left out.

        Raises
        ------
        TypeError
            A column is missing, is not of this index, or is not of whole numbers.
        ValueError
            Columns have several lengths, a number does not fit its field, or no broker writes such an index: an offset
            is below the base offset, a position is negative, or offsets, positions or times do not rise.

        Examples
        --------
        >>> from kafkalog.indexes.index_files import OffsetIndex
        >>> OffsetIndex.from_columns(100, offset=[110, 120], position=[4096, 8200]).lookup([115]).tolist()
        [4096]
        """
        entries = entries_of(cls.__name__, cls.dtype, columns, base_offset)
        for field, is_strict in cls._rising.items():
            _check_rising(field, entries[field].astype(np.int64), base_offset, is_strict=is_strict)
        return cls(entries, base_offset)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexEntries) or self.suffix != other.suffix:
            return NotImplemented
        return self.base_offset == other.base_offset and self.tobytes() == other.tobytes()

    __hash__ = None  # type: ignore[assignment]

    def tobytes(self) -> bytes:
        """The entries as they are in a file, without padding."""
        return self.entries.tobytes()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        base_offset: int | None = None,
        *,
        memory_map: bool = False,
        max_entries: int | None = None,
    ) -> Self:
        """View an index file, mapped or read.

        Parameters
        ----------
        base_offset : int, optional
            Base offset of the segment. Default: the number in the file's name.
        memory_map : bool
            Whether the entries are views of the mapped file, which is opened sooner if it is large. The file must not
            be cut while they are used.
        max_entries : int, optional
            Maximum number of entries for a segment of this size. The rest is preallocated space, and is not read.

        Raises
        ------
        ValueError
            The name has no base offset, or is that of another kind of file.
        """
        kind = os.path.splitext(path)[1]
        if kind != cls.suffix and kind in _KINDS:
            raise ValueError(f"{os.fspath(path)}: {cls.__name__} is in {cls.suffix} files; use {_KINDS[kind]}")
        if base_offset is None:
            base_offset = kf.parse_base_offset(os.path.basename(path))
            if base_offset is None:
                raise ValueError(f"{os.fspath(path)}: the name has no base offset; pass base_offset")
        entry = cls.dtype.itemsize
        with open_source(path, memory_map=memory_map) as source:
            # a broker makes an index of 10 MiB, most of it a hole; the last entry before it may reach into it
            stop = min(-(-source.data_end() // entry) * entry, source.size)
            if max_entries is not None:
                stop = min(stop, max_entries * entry)
            mapping = source.mapping(for_views=True)
            whole = source.window(0, stop) if mapping is None or not populate(mapping[:stop]) else mapping[:stop]
            return cls(whole, base_offset, path=source.path, size_in_bytes=source.size)

    def __repr__(self) -> str:
        padding = f", {self.padding_bytes} bytes of padding" if self.padding_bytes else ""
        return f"{type(self).__name__}({len(self)} entries{padding}, base_offset={self.base_offset})"

    def findings(self) -> list[Finding]:
        """The finding for a file size that is not a whole number of entries, if any."""
        if not self.odd_bytes:
            return []
        detail = f"{self.odd_bytes} bytes after the last whole entry of {self.dtype.itemsize} bytes"
        return [Finding(Reason.INDEX_SIZE, detail, path=self.path, base_offset=self.base_offset)]

    def padding_findings(self, *, is_last: bool = False, used: int = 0) -> list[Finding]:
        """The finding for zeros after the entries, unless `is_last`; `used` bytes of them are an entry of zeros."""
        padding = self.padding_bytes - used
        if is_last or padding <= 0:
            return []
        detail = (
            f"{padding} zero bytes after {len(self)} entries of a closed segment: a broker reads them as entries at the"
            " base offset, and lookups of late offsets scan from the start of the segment"
        )
        return [Finding(Reason.INDEX_PADDING, detail, path=self.path, base_offset=self.base_offset)]


class OffsetEntries(IndexEntries):
    """Entries of a `.index`: the last offset of a batch, and its position."""

    dtype = kf.OFFSET_INDEX_DTYPE
    suffix = kf.INDEX_SUFFIX
    _rising: ClassVar[Mapping[str, bool]] = {"relative_offset": True, "position": True}

    @cached_property
    def offset(self) -> npt.NDArray[np.int64]:
        """int64[n]: last offset of each indexed batch, absolute."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    @cached_property
    def position(self) -> npt.NDArray[np.int64]:
        """int64[n]: start of the batch in the `.log`, bytes."""
        return self.entries["position"].astype(np.int64)

    @cached_property
    def _floors(self) -> _FloorSearch:
        return _FloorSearch(self.offset, np.arange(len(self), dtype=np.int64), -1)

    @cached_property
    def _positions(self) -> _FloorSearch:
        return _FloorSearch(self.offset, self.position, 0)

    def floor(self, offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """int64[m]: number of the largest entry at or below each offset, -1 for none."""
        return self._floors(offsets)

    def lookup(self, offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """int64[m]: position to scan from for each offset; 0 if all entries are above it (`OffsetIndex.lookup`)."""
        return self._positions(offsets)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        return {"offset": self.offset, "position": self.position}


class TimeEntries(IndexEntries):
    """Entries of a `.timeindex`: the largest timestamp so far, and the last offset of the batch that has it."""

    dtype = kf.TIME_INDEX_DTYPE
    suffix = kf.TIME_INDEX_SUFFIX
    _rising: ClassVar[Mapping[str, bool]] = {"relative_offset": False, "timestamp": False}

    @cached_property
    def timestamp(self) -> npt.NDArray[np.int64]:
        """int64[n]: milliseconds."""
        return self.entries["timestamp"].astype(np.int64)

    @cached_property
    def offset(self) -> npt.NDArray[np.int64]:
        """int64[n]: last offset of the batch, absolute."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    @cached_property
    def _offsets(self) -> _FloorSearch:
        return _FloorSearch(self.timestamp, self.offset, self.base_offset)

    def lookup(self, timestamps: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """int64[m]: offset of the largest entry at or below each timestamp, the base offset for none.

        Timestamps are milliseconds, datetime64 in UTC, or aware datetimes.
        Entries are not checked and may be wrong (`TimeIndex.lookup`). `Segment.find_timestamps` is always right.
        """
        # a time between two milliseconds is above the entry of the first
        return self._offsets(times(timestamps, is_rounded_up=False))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        return {"timestamp": self.timestamp, "offset": self.offset}


class _FloorSearch:
    """Finds the value of the largest key at or below each of many queries; `nothing` for queries below all keys."""

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


def _check_rising(field: str, values: npt.NDArray[np.int64], base_offset: int, *, is_strict: bool) -> None:
    """Raise ValueError for numbers that are below zero (but times), or below the one before."""
    name = field.removeprefix("relative_")
    base = base_offset if name != field else 0
    if field != "timestamp" and (values < 0).any():
        limit = f"base_offset, {base}" if base else "0"
        raise ValueError(f"{name} {base + int(values.min())} is below {limit}")
    falls = np.flatnonzero((np.less_equal if is_strict else np.less)(values[1:], values[:-1]))
    if falls.size:
        first, second = (base + int(values[falls[0] + n]) for n in (0, 1))
        raise ValueError(f"{name} {second} comes after {first}: the numbers of an index rise")


def _used(data: Bytes, entry: int) -> int:
    """Number of entries up to the last one that is not all zeros.

    An entry of zeros looks like padding. It only means that the segment begins at position 0, so nothing is
    lost without it.
    """
    end = data.size
    while end:
        start = max(0, end - 2**16)
        nonzero = np.flatnonzero(data[start:end])
        if nonzero.size:
            return (start + int(nonzero[-1])) // entry + 1
        end = start
    return 0
