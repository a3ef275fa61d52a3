"""Collects records that arrive in parts into columns of their own; kernels can append to these, without a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.growing_columns import GrowingHeaders, GrowingRecords, GrowingStrings
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, ViewColumn
from kafkalog.records.columns import Column, RecordColumns, is_masked
from kafkalog.storage.buffer_pool import GrowingArray

APPENDED: Final = frozenset(("offset", "timestamp", "timestamp_type", "key", "value", "headers"))
"""The columns that a kernel can append."""


_MANY: Final = 2  # expected parts


class Appended(NamedTuple):
    """Records that a kernel appended to `GatheredRecords.growing`; they count once they are added."""

    n_records: int
    first_offset: int | None
    """None if offsets were not asked for."""
    timestamp_type: int


class GatheredRecords:
    """Records that arrive in parts of the same columns; memory holds the result and one part.

    A single part is not copied. `names` are the columns if there is no part.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.n_records = 0
        self._names = names
        self._single: RecordColumns | None = None
        self._n_parts = 1.0
        self._columns: dict[str, _Gathered] | None = None
        self._growing: GrowingRecords | None = None

    @property
    def is_empty(self) -> bool:
        return not self.n_records

    def add(self, part: RecordColumns | Appended, n_parts: float = 1) -> None:
        """Add records. `n_parts` is the estimated number of parts like the first, to get huge pages from the start."""
        if isinstance(part, Appended):
            assert self._growing is not None
            assert self._columns is not None
            self._growing.take()
            for name, column in self._columns.items():
                if name == "timestamp_type":
                    column.add(np.broadcast_to(np.int8(part.timestamp_type), part.n_records))
                elif isinstance(column, _GatheredHeaders):
                    column.n += part.n_records
        elif self.is_empty:  # nor did a kernel append any, if it tried
            self._single, self._n_parts = part, n_parts
            self._columns = self._growing = None
            if n_parts > _MANY:  # its memory is free for the next one
                self._begin(part)
        else:
            self._append(part)
        self.n_records += part.n_records
        if self._growing is not None:
            self._growing.n = self.n_records

    @property
    def growing(self) -> GrowingRecords:
        """The columns for a kernel to append to; what it appends counts once it is added."""
        if self._growing is None:
            if self._columns is None:
                self._begin(RecordColumns.empty(self._names) if self._single is None else self._single)
            columns: Any = self._columns
            offset, timestamp, key, value, headers = (
                columns[name].growing if name in columns else None
                for name in ("offset", "timestamp", "key", "value", "headers")
            )
            self._growing = GrowingRecords(offset, timestamp, key, value, headers)
            self._growing.n = self.n_records
        return self._growing

    def _append(self, part: RecordColumns) -> None:
        if self._columns is None:
            self._begin(part if self._single is None else self._single)
        for name, gathered in (self._columns or {}).items():
            gathered.add(part[name])

    def _begin(self, like: RecordColumns) -> None:
        n = self._n_parts
        self._columns = {name: _GATHERED.get(type(column), _GatheredFixed)(column, n) for name, column in like.items()}
        single, self._single = self._single, None
        if single is not None:
            self._append(single)

    def finish(self) -> RecordColumns:
        """The records; none may be added after that."""
        if self._single is not None:
            columns = {name: _owned(column) for name, column in self._single.items()}
            return RecordColumns(self.n_records, columns, is_known=True)
        if self._columns is None:
            return RecordColumns.empty(self._names)
        self._growing = None
        return RecordColumns(self.n_records, {name: gathered.finish() for name, gathered in self._columns.items()})


def _owned(column: Column) -> Column:
    """A column of numbers that its owner may write to."""
    return column.copy() if isinstance(column, np.ndarray) and not column.flags.writeable else column


class _Gathered(Protocol):
    def __init__(self, column: Any, n_parts: float) -> None: ...
    def add(self, column: Any) -> None: ...
    def finish(self) -> Column: ...


class _GatheredFixed:
    """Numbers; those of some parts may be masked."""

    def __init__(self, column: npt.NDArray[Any], n_parts: float) -> None:
        self._data = GrowingArray(column.dtype, n_parts * column.size)
        self._mask: GrowingArray | None = None

    @property
    def growing(self) -> Any:
        return self._data.growing

    def add(self, column: npt.NDArray[Any]) -> None:
        if is_masked(column) and self._mask is None:
            self._mask = GrowingArray(np.bool_)
            self._mask.extend(len(self._data))[:] = False
        if self._mask is not None:
            self._mask.extend(len(column))[:] = np.ma.getmaskarray(column)
        self._data.extend(len(column))[:] = column  # includes masked elements of masked arrays

    def finish(self) -> npt.NDArray[Any]:
        data = self._data.finish()
        return data if self._mask is None else np.ma.MaskedArray(data, self._mask.finish())


def _add_offsets(array: GrowingArray, offsets: npt.NDArray[np.int64], end: int) -> None:
    """Append the ends of consecutive strings; those before end at `end`."""
    np.add(offsets[1:], end - int(offsets[0]), out=array.extend(offsets.size - 1))


class _GatheredBinary:
    def __init__(self, column: BinaryColumn, n_parts: float, growing: GrowingStrings | None = None) -> None:
        if growing is None:
            growing = GrowingStrings(int(n_parts * column.offsets.size), int(n_parts * column.data.size))
        self.growing = growing
        self._offsets = GrowingArray(np.int64, growing=growing.offsets)
        self._data = GrowingArray(np.uint8, growing=growing.data)
        self._validity = GrowingArray(np.bool_, growing=growing.validity)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def add(self, column: BinaryColumn) -> None:
        n_null = column.null_count
        if n_null and not self.growing.n_null:
            self._validity.extend(len(self))[:] = True
        self.growing.n_null += n_null
        if self.growing.n_null:
            self._validity.extend(len(column))[:] = True if column.validity is None else column.validity
        _add_offsets(self._offsets, column.offsets, len(self._data))
        data = column.data[column.offsets[0] : column.offsets[-1]]
        self._data.extend(data.size)[:] = data

    def finish(self) -> BinaryColumn:
        validity = self._validity.finish() if self.growing.n_null else None
        return BinaryColumn(self._offsets.finish(), self._data.finish(), validity)


class _GatheredHeaders:
    """Headers; no offsets are written as long as no record has any."""

    def __init__(self, column: HeadersColumn, n_parts: float) -> None:
        self.growing = growing = GrowingHeaders(int(n_parts * column.offsets.size))
        self._offsets = GrowingArray(np.int64, growing=growing.offsets)
        self._key, self._value = (
            _GatheredBinary(part, n_parts, growing=strings)
            for part, strings in ((column.key, growing.key), (column.value, growing.value))
        )
        self.n = 0

    def add(self, column: HeadersColumn) -> None:
        if not len(self._offsets) and len(column.key):
            self._offsets.extend(self.n + 1)[:] = 0
        if len(self._offsets):
            _add_offsets(self._offsets, column.offsets, len(self._key))
        self.n += len(column)
        self._key.add(column.key)
        self._value.add(column.value)

    def finish(self) -> HeadersColumn:
        if not len(self._offsets):
            return HeadersColumn.none(self.n)
        return HeadersColumn(self._offsets.finish(), self._key.finish(), self._value.finish())


class _GatheredViews:
    """Views; their buffers are kept, and not copied."""

    def __init__(self, column: ViewColumn, n_parts: float) -> None:
        self._parts: list[ViewColumn] = []

    def add(self, column: ViewColumn) -> None:
        self._parts.append(column)

    def finish(self) -> ViewColumn:
        return ViewColumn.concatenate(self._parts)


_GATHERED: dict[type, type[_Gathered]] = {
    BinaryColumn: _GatheredBinary,
    HeadersColumn: _GatheredHeaders,
    ViewColumn: _GatheredViews,
}
