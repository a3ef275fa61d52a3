"""Columns of byte strings (keys, values) and of headers: the bytes of all rows in one array, and where each begins.

A column owns its memory, whatever its origin. Rows are taken as a one-dimensional NumPy array takes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.columns as kernels
from kafkalog._kernels.fill import view_strings
from kafkalog._kernels.filters import OPERATIONS, match_bytes
from kafkalog.html import Leading, PublicType
from kafkalog.read_methods import ArrowMethods
from kafkalog.storage.source import Bytes
from kafkalog.text import counted

_INLINE: Final = 12
"""Bytes of a value that a view has itself."""
_MOST_INT32: Final = 2**31 - 1
OUTSIDE_COLUMN: Final = "a value does not lie within the bytes of its column"
_MOST_NAMES: Final = 20

_set: Final = object.__setattr__

Slice = slice
"""The type, in classes that have a method of this name."""
Rows = int | slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
"""Rows to take: a slice, numbers (negative ones count from the end), or a mask with a truth value per row."""


def row_numbers(rows: slice | npt.ArrayLike, n: int) -> npt.NDArray[np.int64]:
    """Return the numbers of rows, 0 to ``n - 1``, for all that indexes a one-dimensional NumPy array.

    Parameters
    ----------
    rows : slice, array_like of int or bool
        Negative numbers count from the end. A mask has one truth value per row.
    n : int
        Number of rows.

    Returns
    -------
    int64[...]

    Raises
    ------
    IndexError
        A number lies outside, or a mask has another length.
    TypeError
        Neither whole numbers nor truth values.
    """
    if isinstance(rows, slice):
        return np.arange(*rows.indices(n), dtype=np.int64)
    if callable(rows):
        name = getattr(rows, "__name__", type(rows).__name__)
        raise TypeError(f"rows are whole numbers, a mask or a slice, not a method: call it, {name}()")
    numbers = np.asarray(rows)
    if numbers.ndim != 1:
        raise IndexError(f"rows have one dimension, not {numbers.ndim}")
    if numbers.dtype == np.bool_:
        if numbers.size != n:
            raise IndexError(f"a mask of {numbers.size} rows for {n} rows")
        return np.flatnonzero(numbers).astype(np.int64, copy=False)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"rows are whole numbers, a mask or a slice, not {numbers.dtype}")
    numbers = np.ascontiguousarray(numbers, np.int64)
    if not numbers.size:
        return numbers
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < -n or highest >= n:
        raise IndexError(f"row {lowest if lowest < -n else highest} of {n}")
    return np.where(numbers < 0, numbers + n, numbers) if lowest < 0 else numbers


Value = TypeVar("Value")


class _RowsOf(ArrowMethods, Leading, Generic[Value], metaclass=PublicType):
    """A column that takes rows as a one-dimensional NumPy array does."""

    __slots__ = ()
    _led = ()
    _led_untyped = ("to_", "as_", "slice", "of", "with_header")

    def __len__(self) -> int:
        raise NotImplementedError

    def _value(self, row: int) -> Value:
        """The value of a row that exists."""
        raise NotImplementedError

    def _named(self, name: str | bytes) -> Any:
        raise TypeError(f"rows are whole numbers, a mask or a slice, not {name!r}")

    def slice(self, start: int, stop: int) -> Self:
        raise NotImplementedError

    def take(self, rows: Slice | npt.ArrayLike) -> Self:
        raise NotImplementedError

    def to_pylist(self) -> list[Value]:
        raise NotImplementedError

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The column as plain arrays, which `numpy.savez` takes; `RecordColumns.from_arrays` is the way back."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of memory of its arrays; those of a slice are those of its rows, which it shares."""
        return sum(map(held_bytes, self.to_arrays().values()))

    @overload
    def __getitem__(self, row: int) -> Value: ...

    @overload
    def __getitem__(self, row: Slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]) -> Self: ...

    def __getitem__(self, row: Rows) -> Value | Self:
        n = len(self)
        if isinstance(row, Slice) and row.step in (None, 1):  # without a copy
            start, stop, _ = row.indices(n)
            return self.slice(start, max(start, stop))
        if not isinstance(row, (int, np.integer)):
            return self._named(row) if isinstance(row, (str, bytes)) else self.take(row)
        if not -n <= row < n:
            raise IndexError(f"row {row} of {n}")
        return self._value(int(row) % n)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.to_pylist())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f"the values of a {type(self).__name__} become an array by a copy")
        return self.to_numpy(dtype)

    def to_numpy(self, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
        """Return the values as an array of objects, or of another dtype."""
        return _objects(self.to_pylist()) if dtype is None else np.array(self.to_pylist(), dtype)


class _Strings(_RowsOf[bytes | None]):
    """A column of byte strings, in one form or another."""

    __slots__ = ()

    validity: npt.NDArray[np.bool_] | None

    def __repr__(self) -> str:
        size = counted(int(self.lengths.sum()), "byte")
        return f"{type(self).__name__}({counted(len(self), 'value')}, {size}, {self.null_count} null)"

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64[n]: bytes of each value; 0 for null."""
        raise NotImplementedError

    def is_null(self) -> npt.NDArray[np.bool_]:
        """bool[n]: True for null, such as the value of a tombstone."""
        return np.zeros(len(self), np.bool_) if self.validity is None else ~self.validity

    def is_valid(self) -> npt.NDArray[np.bool_]:
        """bool[n]: False for null; `validity` is the same where there are nulls, and None for a column without."""
        return ~self.is_null()

    @property
    def null_count(self) -> int:
        """Number of null values."""
        return 0 if self.validity is None else int(self.validity.size - np.count_nonzero(self.validity))

    def to_numpy(self, dtype: npt.DTypeLike | None = None, *, null: bytes | str | None = None) -> npt.NDArray[Any]:
        """Return the values as an array.

        Parameters
        ----------
        dtype : dtype_like, optional
            Default: objects, with None for null. ``"S"`` is bytes, which end before zeros at their end; ``"U"`` and
            `numpy.dtypes.StringDType` are text, decoded as UTF-8. ``"S16"`` cuts longer values, as in NumPy.
        null : bytes or str, optional
            What stands for null values.

        Raises
        ------
        ValueError
            A value is null, and neither `null` nor the dtype (``StringDType(na_object=None)``) says what stands for
            it; or a value is not UTF-8. The message has the row.

        Notes
        -----
        ``numpy.asarray(column, dtype="S")`` without a size asks for objects first and makes the text ``None`` of nulls;
        a column is not told the dtype. ``to_numpy("S", null=b"")`` is safe.

        Examples
        --------
        >>> from kafkalog import BinaryColumn
        >>> BinaryColumn.of([b"a", None]).to_numpy("S", null=b"-").tolist()
        [b'a', b'-']
        >>> BinaryColumn.of([b"a", b"b"]).to_numpy(str).tolist()
        ['a', 'b']
        """
        wanted = np.dtype(np.object_ if dtype is None else dtype)
        values: list[Any] = self.to_pylist()
        if null is not None:
            values = [null if value is None else value for value in values]
        if wanted == np.object_:
            return _objects(values)
        if None in values and getattr(wanted, "na_object", self) is self:  # of None, NumPy would make a text
            meant = "pass null=b'', or select rows first" if wanted.kind in "SUT" else "select rows first"
            raise ValueError(f"row {values.index(None)} is null, and {wanted} has no nulls: {meant}")
        return np.array(_texts(values) if wanted.kind in "UT" else values, wanted)

    def factorize(self) -> tuple[npt.NDArray[np.int32], BinaryColumn]:
        """Number the distinct values, as `pandas.factorize` does.

        Returns
        -------
        codes : int32[n]
            The number of each value, in the order of their first rows; -1 for null.
        values : BinaryColumn
            The distinct values.

        Examples
        --------
        >>> from kafkalog import BinaryColumn
        >>> codes, values = BinaryColumn.of([b"b", b"a", None, b"b"]).factorize()
        >>> codes.tolist(), values.to_pylist()
        ([0, 1, -1, 0], [b'b', b'a'])
        """
        encoded = as_binary(cast(Any, self)).to_arrow().dictionary_encode()
        return encoded.indices.fill_null(-1).to_numpy(), BinaryColumn.of(encoded.dictionary.to_pylist())

    def argsort(
        self, axis: int | None = -1, kind: str | None = None, order: object = None, *, stable: bool | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the row numbers in the order of the values, nulls last; `np.argsort` calls it.

        The parameters are those of `numpy.argsort`, and change nothing: there is one axis, and the sort is stable.
        """
        codes, values = self.factorize()
        places = np.full(len(values) + 1, len(values))  # the last one is for -1
        places[np.argsort(np.asarray(values))] = np.arange(len(values))
        return np.argsort(places[codes], kind="stable")

    def _equal_to(self, value: bytes) -> npt.NDArray[np.bool_]:
        raise NotImplementedError

    def __eq__(self, other: object) -> Any:
        """bool[n]: which values are these bytes, or those of a column or list in the same rows; null equals null."""
        if isinstance(other, bytes):
            return self._equal_to(other)
        if isinstance(other, (list, tuple)):
            other = BinaryColumn.of(other)
        if isinstance(other, _Strings):
            if len(self) != len(other):
                raise ValueError(f"{len(self)} values are compared with {len(other)}")
            codes, _ = BinaryColumn.concatenate([as_binary(cast(Any, one)) for one in (self, other)]).factorize()
            return codes[: len(self)] == codes[len(self) :]
        if isinstance(other, str):
            raise TypeError(f"the values are bytes: compare with {other.encode()!r}")
        return self.is_null() if other is None else NotImplemented

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    __hash__ = object.__hash__  # a column is a key by its identity


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class BinaryColumn(_Strings):
    """A column of byte strings, stored as offsets and bytes like Arrow's large_binary."""

    offsets: npt.NDArray[np.int64]
    """int64[n + 1]. Value `i` is ``data[offsets[i]:offsets[i + 1]]``."""
    data: Bytes
    validity: npt.NDArray[np.bool_] | None = None
    """bool[n]. False for null; None if no value is null. Kafka distinguishes null from empty."""

    def __init__(
        self, offsets: npt.NDArray[np.int64], data: Bytes, validity: npt.NDArray[np.bool_] | None = None
    ) -> None:
        # of the two arrays by position, either may be meant as the first; __post_init__ takes longer than the check
        if data.itemsize != 1 or offsets.itemsize == 1:
            dtypes = f"{offsets.dtype} and {data.dtype}"
            raise TypeError(f"a BinaryColumn is made of offsets (int64) and data (uint8), not of {dtypes}")
        _set(self, "offsets", offsets)
        _set(self, "data", data)
        _set(self, "validity", validity)

    def __len__(self) -> int:
        return self.offsets.size - 1

    def _value(self, row: int) -> bytes | None:
        if self.validity is not None and not self.validity[row]:
            return None
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def as_dtype(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """View values of one size as numbers or records, without a copy.

        Parameters
        ----------
        dtype : dtype_like
            Of this size, such as ``">i8"`` or ``[("id", ">i8"), ("kind", "u1")]``. Big-endian is what serializers of
            Kafka write.

        Returns
        -------
        dtype[n]
            Shares the memory of the column.

        Raises
        ------
        ValueError
            A value is null or has another size. The message has its row.

        Examples
        --------
        >>> from kafkalog.records.byte_columns import BinaryColumn
        >>> BinaryColumn.of([bytes(7) + b"\\1", bytes(7) + b"\\2"]).as_dtype(">i8").tolist()
        [1, 2]
        """
        wanted = np.dtype(dtype)
        odd = (np.diff(self.offsets) != wanted.itemsize) | self.is_null()
        if odd.any():
            row = int(odd.argmax())
            value = self[row]
            has = "is null" if value is None else f"has {counted(len(value), 'byte')}"
            raise ValueError(f"row {row} {has}, and {wanted} has {wanted.itemsize}: select rows first")
        return self.data[self.offsets[0] : self.offsets[-1]].view(wanted)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        sizes = np.diff(self.offsets)
        return sizes if self.validity is None else np.where(self.validity, sizes, 0)

    def _equal_to(self, value: bytes) -> npt.NDArray[np.bool_]:
        n = len(self)
        if n > 1 and self.offsets[-1] > _MOST_INT32:  # the kernel takes positions of 32 bits
            return np.concatenate([self.slice(0, n // 2) == value, self.slice(n // 2, n) == value])
        mask = np.ones(n, np.uint8) if self.validity is None else self.validity.astype(np.uint8)
        data, start = np.ascontiguousarray(self.data), self.offsets[:-1].astype(np.int32)
        sizes, needle = np.diff(self.offsets).astype(np.int32), np.frombuffer(value, np.uint8)
        match_bytes(data, start, sizes, OPERATIONS["=="], needle, mask)
        return mask.view(np.bool_)

    def to_pylist(self) -> list[bytes | None]:
        """The values as `bytes` and None."""
        data = self.data.tobytes()
        at = self.offsets.tolist()
        values: list[bytes | None] = [data[start:stop] for start, stop in itertools.pairwise(at)]
        if self.validity is not None:
            for row in np.flatnonzero(~self.validity).tolist():
                values[row] = None
        return values

    def slice(self, start: int, stop: int) -> BinaryColumn:
        """Return rows `start` to `stop`, with offsets that begin at 0; shares the bytes."""
        offsets = self.offsets[start : stop + 1]
        first, validity = offsets[0], self.validity
        data = self.data[first : offsets[-1]]
        return BinaryColumn(offsets - first, data, None if validity is None else validity[start:stop])

    def take(self, rows: Slice | npt.ArrayLike) -> BinaryColumn:
        """Return a copy of the rows with these numbers; see `row_numbers`."""
        rows = row_numbers(rows, len(self))
        size = np.diff(self.offsets)
        offsets = np.zeros(rows.size + 1, np.int64)
        np.cumsum(size[rows], out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        bytes_, places = np.ascontiguousarray(self.data), np.ascontiguousarray(self.offsets, np.int64)
        if kernels.gather(places, bytes_, rows, offsets, data) != rows.size:
            raise ValueError(OUTSIDE_COLUMN)
        return BinaryColumn(offsets, data, None if self.validity is None else self.validity[rows])

    @classmethod
    def of(cls, values: Sequence[bytes | None] | npt.NDArray[Any]) -> BinaryColumn:
        """Make a column of values: bytes and None, or an array of values of one size, which are their bytes.

        Arrays are structured, or of big-endian numbers (``array.astype(">i8")``), or rows of uint8.
        """
        if isinstance(values, np.ndarray):
            if (data := fixed_size_bytes(values)) is not None:
                return cls(np.arange(len(values) + 1) * (data.size // max(len(values), 1)), data)
            if values.dtype.kind not in "OS":
                meant = "astype('>i8') makes numbers in big-endian order, which are their bytes"
                raise TypeError(f"values are bytes, not {values.dtype}{f'; {meant}' * (values.dtype.kind in 'iuf')}")
            values = cast(list[bytes | None], values.tolist())
        offsets = np.zeros(len(values) + 1, np.int64)
        content = [value or b"" for value in values]
        np.cumsum([*map(len, content)], out=offsets[1:])
        validity = np.array([value is not None for value in values], np.bool_)
        try:
            data = np.frombuffer(b"".join(content), np.uint8)
        except TypeError as error:
            text = next((value for value in cast(Sequence[object], content) if isinstance(value, str)), None)
            raise TypeError(str(error) if text is None else f"values are bytes: write {text.encode()!r}") from None
        return cls(offsets, data, None if validity.all() else validity)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {"offsets": self.offsets, "data": self.data}
        return arrays if self.validity is None else {**arrays, "validity": self.validity}

    @classmethod
    def concatenate(cls, parts: Sequence[BinaryColumn]) -> BinaryColumn:
        """Concatenate the rows of several columns."""
        offsets = _concatenate_offsets([part.offsets for part in parts])
        return cls(offsets, np.concatenate([part.data for part in parts]), _concatenate_validity(parts))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ViewColumn(_Strings):
    """A column of byte strings as views into buffers, like Arrow's binary_view."""

    views: Bytes
    """uint8[16 * n]. For each value its size (int32), then its bytes (up to 12), or the first four of them, the number
    of a buffer and a position there (int32 each)."""
    buffers: tuple[Bytes, ...]
    validity: npt.NDArray[np.bool_] | None = None
    """bool[n]. False for null; None if no value is null."""

    def __len__(self) -> int:
        return self.views.size // 16

    def _value(self, row: int) -> bytes | None:
        if self.validity is not None and not self.validity[row]:
            return None
        view = self.views[16 * row : 16 * row + 16].tobytes()
        size = int.from_bytes(view[:4], "little")
        if size <= _INLINE:
            return view[4 : 4 + size]
        number, start = (int.from_bytes(view[at : at + 4], "little") for at in (8, 12))
        return self.buffers[number][start : start + size].tobytes()

    def to_pylist(self) -> list[bytes | None]:
        """The values as `bytes` and None."""
        return [self[row] for row in range(len(self))]

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return as_binary(self).to_arrays()

    @property
    def nbytes(self) -> int:
        """Bytes of memory of its views and of the buffers that these point into."""
        return sum(map(held_bytes, (self.views, *self.buffers, *([] if self.validity is None else [self.validity]))))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        sizes = np.ascontiguousarray(self.views).view(np.int32)[::4].astype(np.int64)
        return sizes if self.validity is None else np.where(self.validity, sizes, 0)

    def _equal_to(self, value: bytes) -> npt.NDArray[np.bool_]:
        return np.fromiter((item == value for item in self.to_pylist()), np.bool_, len(self))

    def slice(self, start: int, stop: int) -> ViewColumn:
        """Return rows `start` to `stop`; shares the memory."""
        validity = None if self.validity is None else self.validity[start:stop]
        return ViewColumn(self.views[16 * start : 16 * stop], self.buffers, validity)

    def take(self, rows: Slice | npt.ArrayLike) -> ViewColumn:
        """Return the rows with these numbers, see `row_numbers`; shares the buffers."""
        rows = row_numbers(rows, len(self))
        views = self.views.reshape(-1, 16)[rows].ravel()
        return ViewColumn(views, self.buffers, None if self.validity is None else self.validity[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[ViewColumn]) -> ViewColumn:
        """Concatenate the rows of several columns; shares their buffers."""
        words = np.concatenate([part.views for part in parts]).view(np.int32).reshape(-1, 4)
        row = n_buffers = 0
        for part in parts:
            own = words[row : row + len(part)]
            own[own[:, 0] > _INLINE, 2] += n_buffers  # the number of a buffer; shorter values have their bytes there
            row, n_buffers = row + len(part), n_buffers + len(part.buffers)
        buffers = tuple(buffer for part in parts for buffer in part.buffers)
        return cls(words.reshape(-1).view(np.uint8), buffers, _concatenate_validity(parts))


def as_views(column: BinaryColumn | ViewColumn) -> ViewColumn:
    """A column's byte strings as views into its bytes."""
    if isinstance(column, ViewColumn):
        return column
    views = np.empty(16 * len(column), np.uint8)
    view_strings(column.offsets.astype(np.int64, copy=False), column.data, views)
    return ViewColumn(views, (column.data,), column.validity)


def as_binary(column: BinaryColumn | ViewColumn) -> BinaryColumn:
    """A column's byte strings one after another."""
    return column if isinstance(column, BinaryColumn) else BinaryColumn.of(column.to_pylist())


@dataclass(frozen=True, eq=False, slots=True)
class HeadersColumn(_RowsOf[list[tuple[bytes, bytes | None]]]):
    """The headers of records: for each record a list of keys and values, in order, with duplicates.

    ``headers["trace-id"]`` is the value of the last header of that name, null for a record without one. It raises
    KeyError if no record has one, so that a misspelt name is noticed; ``headers.get("trace-id")`` is null for all then.
    In a window of `kafkalog.Scan.iter_numpy` use ``get``: other windows may have the header. Other indexes take rows.
    """

    offsets: npt.NDArray[np.int64]
    """int64[n + 1]. Record `i` has the headers ``offsets[i]:offsets[i + 1]`` of `key` and `value`."""
    key: BinaryColumn
    """The stored bytes, never null; Kafka specifies UTF-8."""
    value: BinaryColumn

    def __len__(self) -> int:
        return self.offsets.size - 1

    def _value(self, row: int) -> list[tuple[bytes, bytes | None]]:
        return [
            (cast(bytes, self.key[i]), self.value[i]) for i in range(int(self.offsets[row]), int(self.offsets[row + 1]))
        ]

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, row: str | bytes) -> BinaryColumn: ...  # type: ignore[overload-overlap]

        @overload
        def __getitem__(self, row: int) -> list[tuple[bytes, bytes | None]]: ...

        @overload
        def __getitem__(self, row: Slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]) -> Self: ...

        def __getitem__(self, row: str | bytes | Rows) -> Any: ...

    def names(self) -> list[str]:
        """The distinct names of headers, in the order of their first records."""
        return [cast(bytes, name).decode(errors="backslashreplace") for name in self.key.factorize()[1].to_pylist()]

    def _named(self, name: str | bytes) -> BinaryColumn:
        if len(self) and not (self.key == _as_bytes(name)).any():
            names = ", ".join(self.names()[:_MOST_NAMES]) or "none"
            meant = f"headers.get({name!r}) is a column of nulls then"
            raise KeyError(f"no record has a header {name!r}; there are {names}; {meant}")
        return self.get(name)

    def get(self, name: str | bytes) -> BinaryColumn:
        """For each record the value of its last header of that name; null without one."""
        headers = np.flatnonzero(self.key == _as_bytes(name))
        last = np.full(len(self), -1)
        last[np.searchsorted(self.offsets, headers, "right") - 1] = headers  # the last of equal numbers counts
        validity = last >= 0
        values = self.value.take(last[validity])
        offsets = np.zeros(len(self) + 1, np.int64)
        offsets[1:][validity] = np.diff(values.offsets)
        if values.validity is not None:
            validity[validity] = values.validity
        return BinaryColumn(np.cumsum(offsets), values.data, None if validity.all() else validity)

    def __repr__(self) -> str:
        return f"HeadersColumn({counted(len(self), 'record')}, {counted(len(self.key), 'header')})"

    @classmethod
    def none(cls, n: int) -> HeadersColumn:
        """`n` records without headers."""
        starts = zeros(n + 1)
        empty = BinaryColumn(starts[:1], np.empty(0, np.uint8))
        return cls(starts, empty, empty)

    @classmethod
    def of(
        cls, records: Sequence[Sequence[tuple[bytes | str, bytes | None]] | Mapping[bytes | str, bytes | None]]
    ) -> HeadersColumn:
        """Make a column of the headers of records, as `to_pylist` returns them or dicts; keys may be text."""
        lists = [[*headers.items()] if isinstance(headers, Mapping) else headers for headers in records]
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(headers) for headers in lists], out=offsets[1:])
        pairs = [pair for headers in lists for pair in headers]
        keys = [_as_bytes(key) for key, _ in pairs]
        return cls(offsets, BinaryColumn.of(keys), BinaryColumn.of([value for _, value in pairs]))

    def to_pylist(self) -> list[list[tuple[bytes, bytes | None]]]:
        """One list of (key, value) pairs per record."""
        pairs = list(zip(self.key.to_pylist(), self.value.to_pylist(), strict=True))
        at = self.offsets.tolist()
        return [cast(Any, pairs[start:stop]) for start, stop in itertools.pairwise(at)]

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        parts = {"key": self.key.to_arrays(), "value": self.value.to_arrays()}
        named = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {"offsets": self.offsets, **named}

    def slice(self, start: int, stop: int) -> HeadersColumn:
        """Return records `start` to `stop`; shares the bytes."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return HeadersColumn(offsets - first, self.key.slice(first, last), self.value.slice(first, last))

    def take(self, rows: Slice | npt.ArrayLike) -> HeadersColumn:
        """Return a copy of the records with these numbers; see `row_numbers`."""
        rows = row_numbers(rows, len(self))
        count = np.diff(self.offsets)[rows]
        offsets = np.zeros(rows.size + 1, np.int64)
        np.cumsum(count, out=offsets[1:])
        headers = np.repeat(self.offsets[rows] - offsets[:-1], count) + np.arange(offsets[-1])
        return HeadersColumn(offsets, self.key.take(headers), self.value.take(headers))

    def with_header(self, name: bytes, values: BinaryColumn) -> HeadersColumn:
        """Append a header to those of each record, unless its value is null."""
        rows = np.arange(len(self)) if values.validity is None else np.flatnonzero(values.validity)
        keys = BinaryColumn(np.arange(rows.size + 1) * len(name), np.tile(np.frombuffer(name, np.uint8), rows.size))
        every = np.concatenate([np.repeat(np.arange(len(self)), np.diff(self.offsets)), rows])
        order = np.argsort(every, kind="stable")
        key, value = (
            BinaryColumn.concatenate(pair).take(order) for pair in ([self.key, keys], [self.value, values.take(rows)])
        )
        return HeadersColumn(np.searchsorted(every[order], np.arange(len(self) + 1)), key, value)

    @classmethod
    def concatenate(cls, parts: Sequence[HeadersColumn]) -> HeadersColumn:
        """Concatenate the rows of several columns."""
        return cls(
            _concatenate_offsets([part.offsets for part in parts]),
            BinaryColumn.concatenate([part.key for part in parts]),
            BinaryColumn.concatenate([part.value for part in parts]),
        )


def fixed_size_bytes(values: npt.NDArray[Any]) -> Bytes | None:
    """The bytes of an array whose values are written as they are: structured, big-endian, rows of uint8; else None."""
    is_swapped = values.dtype != values.dtype.newbyteorder("=") and values.dtype.kind in "iuf"
    if values.dtype.kind == "V" or is_swapped or (values.ndim == 2 and values.dtype == np.uint8):
        return np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return None


def held_bytes(array: npt.NDArray[Any]) -> int:
    """Bytes of memory of an array; an array that repeats one value, such as a topic, holds it once."""
    return array.itemsize if 0 in array.strides and array.size else array.nbytes


def _objects(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    objects = np.empty(len(values), object)  # NumPy's own bytes drop zeros at the end
    objects[:] = values
    return objects


def _as_bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def _texts(values: Sequence[bytes | str | None]) -> list[str | None]:
    texts: list[str | None] = []
    for row, value in enumerate(values):
        try:
            texts.append(value.decode() if isinstance(value, bytes) else value)
        except UnicodeDecodeError as error:
            raise ValueError(f"row {row} is not UTF-8: {error}") from None
    return texts


def _concatenate_validity(parts: Sequence[BinaryColumn] | Sequence[ViewColumn]) -> npt.NDArray[np.bool_] | None:
    if all(part.validity is None for part in parts):
        return None
    return np.concatenate([np.ones(len(part), np.bool_) if part.validity is None else part.validity for part in parts])


def _concatenate_offsets(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    offsets = np.empty(sum(part.size - 1 for part in parts) + 1, np.int64)
    offsets[0] = 0
    row = 0
    for part in parts:
        offsets[row + 1 : row + part.size] = part[1:] + (offsets[row] - part[0])
        row += part.size - 1
    return offsets


def zeros(n: int) -> npt.NDArray[np.int64]:
    """int64[n] of zeros, read-only and shared: most records have no headers, and clearing new memory takes time."""
    global _zeros  # two threads may both replace it: either array is right
    if _zeros.size < n:
        _zeros = np.zeros(2 * n, np.int64)
        _zeros.flags.writeable = False
    return _zeros[:n]


_zeros: npt.NDArray[np.int64] = np.zeros(0, np.int64)
