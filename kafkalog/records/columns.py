"""Records as NumPy columns: one array per fixed-width column; keys, values and headers as columns of byte strings.

Decoding returns these columns and encoding takes them.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, Final, cast, overload

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.html import PublicNames
from kafkalog.read_methods import ArrowMethods
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, Slice, ViewColumn, row_numbers
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
DEFAULT_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
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


class RecordColumns(ArrowMethods, PublicNames, Mapping[str, Column]):
    """Records as named columns that own their memory.

    A mapping from column name to `numpy.ndarray` (one number per record), `BinaryColumn` (key, value) or
    `HeadersColumn`. Columns are also attributes. It contains only the columns that were requested.
    ``records[10:20]``, ``records[mask]`` and ``records[numbers]`` are records again; a slice shares the memory.
    ``records[["key", "value"]]`` has these columns alone. ``len(records)`` is the number of records.

    Notes
    -----
    `timestamp` is in milliseconds; -1 if a record has none. `timestamp_type` is -1 for format v0, which has no
    timestamps. A list becomes a column. ``is_known=True`` skips this and the check that all columns have `n_records`
    rows.
    """

    __slots__ = ("_columns", "n_records")

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
        if isinstance(name, (int, np.integer)):
            raise TypeError(f"records[{name}:{name + 1 or ''}] is one record; records['offset'] is a column")
        if isinstance(name, list) and name and isinstance(name[0], str):
            return RecordColumns(self.n_records, {one: self._columns[one] for one in cast(list[str], name)})
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
            raise AttributeError(self._unknown(name) + (f"; {meant}" if meant else "")) from None

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
    def keys(self) -> KeysView[str]:
        return self._columns.keys()

    def values(self) -> ValuesView[Column]:
        return self._columns.values()

    def items(self) -> ItemsView[str, Column]:
        return self._columns.items()

    def __len__(self) -> int:
        """Number of records, as for data frames and tables, though iteration is over the names of columns."""
        return self.n_records

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    def __repr__(self) -> str:
        return f"RecordColumns({counted(self.n_records, 'record')}: {', '.join(self._columns)})"

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        raise TypeError(
            "records are several columns, not one array: records.offset is one, to_pandas() a DataFrame,"
            " and RecordColumns.concatenate([...]) joins records"
        )

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
