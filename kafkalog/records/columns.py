"""Records as NumPy columns: one array per fixed-width column; keys, values and headers as columns of byte strings.

Decoding returns these columns and encoding takes them.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, overload

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.html import Leading, PublicAbstract
from kafkalog.read_methods import ArrowMethods
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, Slice, ViewColumn, held_bytes, row_numbers
from kafkalog.text import counted

FIXED_COLUMNS: Final[dict[str, npt.DTypeLike]] = {
    "offset": np.int64,
    "timestamp": np.int64,
    "timestamp_type": np.int8,
    "leader_epoch": np.int32,
    "producer_id": np.int64,
    "producer_epoch": np.int16,
    "sequence": np.int32,
    "is_transactional": np.bool_,
    "is_control": np.bool_,
    "compression": np.int8,
    "batch_base_offset": np.int64,
    "batch_position": np.int64,
}
"""Columns with one number per record, and their dtypes. Timestamps are milliseconds."""

BINARY_COLUMNS: Final = ("key", "value")
HEADERS: Final = "headers"
ALL_COLUMNS: Final = (*FIXED_COLUMNS, *BINARY_COLUMNS, HEADERS)

_NO_TYPE: Final = np.array(kf.TimestampType.NO_TIMESTAMP_TYPE, np.int8)

Column = npt.NDArray[Any] | BinaryColumn | ViewColumn | HeadersColumn


def lacks_timestamp(timestamps: npt.NDArray[np.int64], types: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """bool[n]: records without a timestamp; one of -1 in a format that has timestamps is a timestamp."""
    lacking: npt.NDArray[np.bool_] = (timestamps == kf.NO_TIMESTAMP) & (types == kf.TimestampType.NO_TIMESTAMP_TYPE)
    return lacking


def is_masked(column: object) -> bool:
    # importing numpy.ma takes 10 ms: avoid it for other arrays
    return type(column) is not np.ndarray and isinstance(column, np.ma.MaskedArray)


class _MappingMethod(partial[Any]):
    """A method of records as a mapping, whose name may be meant as that of a column."""

    column: str

    def _refuse(self, *_: object) -> NoReturn:
        """Raise TypeError: a column may be meant."""
        one = self.column
        raise TypeError(f"records.{one}s is a method of the mapping; did you mean records.{one}, the column of {one}s?")

    __array__ = __eq__ = __ne__ = __len__ = __iter__ = __getitem__ = __contains__ = _refuse
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<method {self.column}s of RecordColumns as a mapping; records.{self.column} is a column>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        meant = f"did you mean records.{self.column}.{name}?"
        raise AttributeError(f"records.{self.column}s is a method; {meant}", name=name, obj=None)


class _Keys(_MappingMethod):
    column = "key"


class _Values(_MappingMethod):
    column = "value"


def _has_axes(index: object) -> bool:
    """Whether an index is one for several axes, or several names; a tuple of numbers is rows."""
    return isinstance(index, tuple) and any(isinstance(one, (str, slice, list, np.ndarray)) for one in index)


def _not_rows(index: object) -> str:
    """The message about an index of records that is neither rows nor columns."""
    if isinstance(index, (bool, np.bool_)):
        return f"{index} is neither rows nor a column; did you mean records[records.key == b'...']?"
    if not isinstance(index, tuple):
        row = int(cast(int, index))
        one, value = f"records[{row}:{row + 1 or ''}] is one record", f"records.offset[{row}] is a value of it"
        return f"{one}, {value}; records['offset'] is a column"
    names = [one for one in index if isinstance(one, str)]
    if names and len(names) == len(index):
        return f"several columns are a list: records[{names}]"
    rows = f"records[{names[0]!r}][rows]" if names else "records[rows]"
    return f"records have one axis: rows and columns are taken one after the other, {rows}"


class RecordColumns(ArrowMethods, Leading, Mapping[str, Column], metaclass=PublicAbstract):
    """Records as named columns that own their memory.

    A mapping from column name to `numpy.ndarray` (one number per record), `BinaryColumn` (key, value) or
    `HeadersColumn`. Columns are also attributes. It contains only the columns that were requested.
    ``records[10:20]``, ``records[mask]`` and ``records[numbers]`` are records again; a slice shares the memory.
    ``records[["key", "value"]]`` has these columns alone. ``len(records)`` is the number of records.

    Parameters
    ----------
    n_records : int
    columns : mapping of str to array, column or list
        Lists become columns: of bytes and None for key and value, of lists of (name, value) for headers.
    is_known : bool
        Whether these are columns of `n_records` rows already; nothing is checked then.

    Notes
    -----
    `timestamp` is in milliseconds; -1 if a record has none. `timestamp_type` is -1 for format v0, which has no
    timestamps. `keys` and `values` are the methods of a mapping; `key` and `value` are the columns.

    Examples
    --------
    >>> from kafkalog import RecordColumns
    >>> RecordColumns(2, {"offset": [7, 8], "value": [b"a", None]}).value.to_pylist()
    [b'a', None]
    """

    __slots__ = ("_columns", "n_records")
    _led = ()
    _led_untyped = ("to_", "slice", "from_")

    # for editors and type checkers; views (`binary_type=pa.binary_view()`) have the methods of `BinaryColumn`, too
    topic: npt.NDArray[np.str_]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    timestamp_type: npt.NDArray[np.int8]
    leader_epoch: npt.NDArray[np.int32]
    producer_id: npt.NDArray[np.int64]
    producer_epoch: npt.NDArray[np.int16]
    sequence: npt.NDArray[np.int32]
    is_transactional: npt.NDArray[np.bool_]
    is_control: npt.NDArray[np.bool_]
    compression: npt.NDArray[np.int8]
    batch_base_offset: npt.NDArray[np.int64]
    batch_position: npt.NDArray[np.int64]
    key: BinaryColumn
    value: BinaryColumn
    headers: HeadersColumn

    def __init__(self, n_records: int, columns: Mapping[str, Column], *, is_known: bool = False) -> None:
        self.n_records = n_records
        self._columns = dict(columns)
        for name, given in () if is_known else columns.items():
            column = self._columns[name] = _column_of(name, given)
            if len(column) != n_records:
                raise ValueError(f"column {name!r} has {len(column)} rows, not {n_records}")

    @overload
    def __getitem__(self, name: str) -> Column: ...

    @overload
    def __getitem__(
        self, name: Slice | Sequence[int] | Sequence[bool] | list[str] | npt.NDArray[Any]
    ) -> RecordColumns: ...

    def __getitem__(self, name: str | Slice | Sequence[int] | Sequence[bool] | list[str] | npt.NDArray[Any]) -> Any:
        if isinstance(name, str):
            if name not in self._columns:
                raise KeyError(self._unknown(name))
            return self._columns[name]
        if isinstance(name, slice):
            start, stop, step = name.indices(self.n_records)
            return self.slice(start, stop) if step == 1 else self.take(name)
        if isinstance(name, list) and name and isinstance(name[0], str):
            return RecordColumns(self.n_records, {one: self[one] for one in cast(list[str], name)})
        if isinstance(name, (bool, np.bool_, int, np.integer)) or _has_axes(name):
            raise TypeError(_not_rows(name))
        return self.take(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_columns")[name]
        except KeyError:
            if name.startswith("_") or name in ALL_COLUMNS:
                raise AttributeError(self._unknown(name)) from None
            from kafkalog.words import same_attribute, unknown_attribute

            if same := same_attribute(self, name):
                return getattr(self, same)
            meant = unknown_attribute(self, name)
            raise AttributeError(f"{self._unknown(name)}; {meant}", name=name, obj=None) from None

    def _unknown(self, name: str) -> str:
        """The message about a name that is no column."""
        message = f"no column {name!r} here; there are {', '.join(self._columns)}"
        if name in ALL_COLUMNS:
            return f"{message} (ask for it with columns=[..., {name!r}])"
        _, dot, header = name.partition("headers.")
        return f"{message}; use records.headers[{header!r}]" if dot and HEADERS in self._columns else message

    def datetimes(self) -> npt.NDArray[np.datetime64]:
        """datetime64[ms][n]: the timestamps, NaT for a record without one. A copy.

        Examples
        --------
        >>> import numpy as np
        >>> from kafkalog import RecordColumns
        >>> RecordColumns(2, {"timestamp": np.array([-1, 0])}).datetimes().tolist()
        [None, datetime.datetime(1970, 1, 1, 0, 0)]
        """
        timestamps: npt.NDArray[np.int64] = self.timestamp
        times = timestamps.astype("datetime64[ms]")
        times[lacks_timestamp(timestamps, self.get("timestamp_type", _NO_TYPE))] = np.datetime64("NaT")  # type: ignore[arg-type]
        return times

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    # a mapping's own make the message of an error for each column that is not there
    def __contains__(self, name: object) -> bool:
        return name in self._columns

    if not TYPE_CHECKING:

        def get(self, name: str, default: Any = None) -> Any:
            return self._columns.get(name, default)

    # views of the dict: a mapping's own would take the number of records for that of columns
    if TYPE_CHECKING:

        def keys(self) -> KeysView[str]: ...

        def values(self) -> ValuesView[Column]: ...

    else:

        @property
        def keys(self) -> _MappingMethod:
            """``records.keys()`` are the names of the columns; ``records.key`` is the column of keys."""
            return _Keys(self._columns.keys)

        @property
        def values(self) -> _MappingMethod:
            """``records.values()`` are the columns; ``records.value`` is the column of values."""
            return _Values(self._columns.values)

    def items(self) -> ItemsView[str, Column]:
        """The names of the columns, and the columns."""
        return self._columns.items()

    def __len__(self) -> int:
        """Number of records, as for data frames and tables, though iteration is over the names of columns."""
        return self.n_records

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    def __repr__(self) -> str:
        return f"RecordColumns({counted(self.n_records, 'record')}: {', '.join(self._columns)})"

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if not all(isinstance(column, np.ndarray) for column in self._columns.values()):
            raise TypeError(
                "records are several columns, not one array: records.offset is one, to_numpy() a structured array of"
                " numbers, to_pandas() a DataFrame, and RecordColumns.concatenate([...]) joins records"
            )
        if copy is False:
            raise ValueError("records become an array by a copy")
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype)

    def to_numpy(self) -> npt.NDArray[np.void]:
        """Return a structured array of the columns that are arrays: all but keys, values and headers. A copy.

        Examples
        --------
        >>> from kafkalog import RecordColumns
        >>> records = RecordColumns(2, {"offset": [7, 8], "partition": [0, 1], "value": [b"a", b"b"]})
        >>> records.to_numpy().tolist()
        [(7, 0), (8, 1)]
        """
        columns = {name: column for name, column in self._columns.items() if isinstance(column, np.ndarray)}
        dtype = np.dtype([(name, column.dtype) for name, column in columns.items()])
        table = np.ma.empty if any(map(is_masked, columns.values())) else np.empty
        records = cast("npt.NDArray[np.void]", table(self.n_records, dtype))
        for name, column in columns.items():
            records[name] = column
        return records

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns as plain arrays, without a copy, as `numpy.savez` takes them.

        Keys and values are ``key.offsets``, ``key.data`` and, if there are nulls, ``key.validity``; headers are
        ``headers.offsets``, ``headers.key.offsets`` and so on. `from_arrays` is the way back. Without it,
        ``numpy.savez(file, **records)`` would pickle an object per value.
        """
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, column in self._columns.items():
            if isinstance(column, np.ndarray):
                arrays[name] = np.asarray(column)
                if is_masked(column):
                    arrays[f"{name}.mask"] = np.ma.getmaskarray(column)
            else:
                arrays |= {f"{name}.{part}": array for part, array in column.to_arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> RecordColumns:
        """Return the records of arrays that `to_arrays` named, such as those of a file that `numpy.load` opens.

        Examples
        --------
        >>> import io
        >>> import numpy as np
        >>> from kafkalog import RecordColumns
        >>> file = io.BytesIO()
        >>> np.savez(file, **RecordColumns(2, {"value": [b"a", None]}).to_arrays())
        >>> with np.load(io.BytesIO(file.getvalue())) as saved:
        ...     RecordColumns.from_arrays(saved).value.to_pylist()
        [b'a', None]
        """
        stems = {name.removesuffix(".offsets") for name in arrays if name.endswith(".offsets")}
        headers = {stem for stem in stems if stems.issuperset(f"{stem}.{part}" for part in BINARY_COLUMNS)}
        strings = {stem for stem in stems if f"{stem}.data" in arrays}
        columns: dict[str, Column] = {}
        for name in arrays:
            stem, _, part = name.rpartition(".")
            if stem in headers:
                keys, values = (_strings_of(f"{stem}.{one}", arrays) for one in BINARY_COLUMNS)
                columns[stem] = HeadersColumn(arrays[name], keys, values)
            elif stem in strings:
                if part == "offsets" and stem.rpartition(".")[0] not in headers:
                    columns[stem] = _strings_of(stem, arrays)
            elif f"{name}.mask" in arrays:
                columns[name] = np.ma.MaskedArray(arrays[name], arrays[f"{name}.mask"])
            elif part != "mask" or stem not in arrays:
                columns[name] = arrays[name]
        return cls(len(next(iter(columns.values()), ())), columns)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all columns; those of a slice are those of its rows, which it shares."""
        return sum(held_bytes(one) if isinstance(one, np.ndarray) else one.nbytes for one in self._columns.values())

    def __reduce__(self) -> Any:
        return RecordColumns, (self.n_records, self._columns)

    def slice(self, start: int, stop: int) -> RecordColumns:
        """Return records `start` to `stop`; shares the memory."""
        start = min(max(start, 0), self.n_records)
        stop = max(min(stop, self.n_records), start)
        return RecordColumns(
            stop - start,
            {
                name: column[start:stop] if isinstance(column, np.ndarray) else column.slice(start, stop)
                for name, column in self._columns.items()
            },
        )

    def take(self, rows: Slice | npt.ArrayLike) -> RecordColumns:
        """Return a copy of the records with these numbers.

        Parameters
        ----------
        rows : slice, array_like of int or bool
            Negative numbers count from the end. A mask has one truth value per record.

        Raises
        ------
        IndexError
            A number lies outside, or a mask has another length.
        TypeError
            Neither whole numbers nor truth values.
        """
        rows = row_numbers(rows, self.n_records)
        return RecordColumns(
            rows.size,
            {
                name: column[rows] if isinstance(column, np.ndarray) else column.take(rows)
                for name, column in self._columns.items()
            },
        )

    @classmethod
    def concatenate(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """Concatenate records; `parts` must not be empty, and all must have the same columns."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Column] = {}
        for name, first in parts[0].items():
            these: list[Any] = [part[name] for part in parts]
            if any(map(is_masked, these)):
                columns[name] = np.ma.concatenate(these)  # type: ignore[no-untyped-call]
            elif isinstance(first, np.ndarray):
                columns[name] = np.concatenate(these)
            else:
                columns[name] = type(first).concatenate(these)
        return cls(sum(part.n_records for part in parts), columns)

    @classmethod
    def empty(cls, columns: Sequence[str]) -> RecordColumns:
        """Return columns of zero records."""
        return cls(0, {name: _empty_column(name) for name in columns})


def _strings_of(name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> BinaryColumn:
    return BinaryColumn(arrays[f"{name}.offsets"], arrays[f"{name}.data"], arrays.get(f"{name}.validity"))


def _column_of(name: str, values: Any) -> Column:
    """A column of a list, and anything else as it is."""
    if not isinstance(values, (list, tuple)):
        return cast(Column, values)
    if name in BINARY_COLUMNS:
        return BinaryColumn.of(values)
    return HeadersColumn.of(values) if name == HEADERS else np.array(values, FIXED_COLUMNS.get(name))


def _empty_column(name: str) -> Column:
    if name in FIXED_COLUMNS:
        return np.empty(0, FIXED_COLUMNS[name])
    offsets, data = np.zeros(1, np.int64), np.empty(0, np.uint8)
    binary = BinaryColumn(offsets, data)
    return binary if name in BINARY_COLUMNS else HeadersColumn(offsets.copy(), binary, binary)


def sized_slices(columns: RecordColumns, max_bytes: int, max_records: int | None = None) -> Iterator[RecordColumns]:
    """Yield slices of at most `max_records` records, and `max_bytes` of keys, values and headers, if not of one record.

    Views of strings do not count: they are not copied.
    """
    n = columns.n_records
    step = max_records or n
    n_bytes = 0
    for column in columns.values():
        if isinstance(column, BinaryColumn):
            n_bytes += column.data.size
        elif isinstance(column, HeadersColumn):
            n_bytes += column.key.data.size + column.value.data.size
    ends = _byte_ends(columns) if n_bytes > max_bytes else None
    start = 0
    while start < n:
        stop = min(start + step, n)
        if ends is not None:
            stop = min(stop, max(int(np.searchsorted(ends, ends[start] + max_bytes, "right")) - 1, start + 1))
        yield columns if stop - start == n else columns.slice(start, stop)
        start = stop


def _byte_ends(columns: RecordColumns) -> npt.NDArray[np.int64]:
    """The bytes of strings before each record, and of all."""
    ends = np.zeros(columns.n_records + 1, np.int64)
    for column in columns.values():
        if isinstance(column, BinaryColumn):
            ends += column.offsets - column.offsets[0]
        elif isinstance(column, HeadersColumn):
            for part in (column.key, column.value):
                ends += part.offsets[column.offsets] - part.offsets[column.offsets[0]]
    return ends
