"""Converts Arrow to record columns: from any Arrow-compatible object to slices of RecordColumns.

The counterpart of `kafkalog.interchange.arrow_output`. Many types are accepted: any kind of string or bytes, any width
of integers, any unit of timestamps, lists and maps for headers. Values are converted exactly: one that would have to be
cut, rounded or guessed is rejected with its column and row. Memory does not grow with the stream.

`kafkalog.interchange.arrow_streams` opens streams, and `kafkalog.interchange.arrow_values` converts arrays. Nothing
here knows files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog import format as kf
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.errors import Reason, UnknownNameError, UnwritableError
from kafkalog.interchange.arrow_output import HEADER_FIELD
from kafkalog.interchange.arrow_streams import open_batches
from kafkalog.interchange.arrow_values import (
    BYTES_TYPES,
    LONG_MAX,
    binary_column,
    decodable,
    has_bytes,
    headers_column,
    integer_values,
    is_bytes_like,
    is_headers,
    nulls,
    one_line,
    plain_column,
    refuse_column,
    refuse_row,
    storage_type,
)
from kafkalog.records.byte_columns import HeadersColumn
from kafkalog.records.columns import BINARY_COLUMNS, Column, RecordColumns, sized_slices

SLICE_BYTES: Final = 4 * 2**20
SLICE_ROWS: Final = 2**16
DECODED_BYTES: Final = 16 * 2**20
"""Approximate memory for decoding a dictionary, where few values may expand to many rows."""

WRITTEN_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
"""The columns of a record to write; only `value` is required."""
PLACE_COLUMNS: Final = ("topic", "partition")
_TYPE: Final = "timestamp_type"
CUT_TO_NONE: Final = "is cut to -1, which means no timestamp: leave it out, or round it up"
"""Of a time within the last millisecond before 1970."""
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}


class InputOptions(TypedDict, total=False):
    """The keyword arguments of `record_slices` about columns."""

    columns: Mapping[str, str]
    ignore_columns: Sequence[str] | bool
    naive_timezone: str | None
    truncate_timestamps: bool


def record_slices(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    ignore_columns: Sequence[str] | bool = (),
    naive_timezone: str | None = None,
    truncate_timestamps: bool = False,
    max_bytes: int = SLICE_BYTES,
) -> Iterator[RecordColumns]:
    """Read records from any Arrow-compatible object, one slice of about `max_bytes` at a time; a record is never cut.

    The data is an object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, pandas, Polars, DuckDB, a
    `kafkalog.Scan`), a dict of arrays, a pyarrow dataset, or RecordColumns; TypeError for any other. `columns` names
    the input's columns by role: ``{"timestamp": "created_at"}``. `ignore_columns` are left out; True means all unknown
    ones. Timestamps without a zone are in `naive_timezone`; without it they are rejected. Timestamps finer than a
    millisecond are rejected too, unless `truncate_timestamps` rounds them down.

    A slice has `timestamp` (-1 for null, and for -1 ms, which a scan returns for a record without timestamp), `key`,
    `value`, `headers`, and `offset` if the input has it. They may share memory with the input.

    Raises UnwritableError if a column has another type, or is unknown, or a value does not fit a record. `row` counts
    from the beginning of the data.
    """
    if isinstance(data, RecordColumns):
        yield from sized_slices(data, max_bytes)
        return
    row = 0
    batches = open_batches(data)
    reader = ColumnReader(
        batches.schema,
        columns=columns,
        ignore_columns=ignore_columns,
        naive_timezone=naive_timezone,
        truncate_timestamps=truncate_timestamps,
    )
    for batch in batches:
        for part in slices(batch):
            yield from sized_slices(reader.read(part, row), max_bytes)
            row += part.num_rows


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a record batch by rows, so that its dictionaries take at most about `DECODED_BYTES` when they are decoded."""
    rows = SLICE_ROWS
    for array in batch.columns:
        if isinstance(array, pa.DictionaryArray) and has_bytes(array.type.value_type):
            try:
                array.validate(full=True)
            except (pa.ArrowInvalid, pa.ArrowIndexError):
                continue  # invalid: `plain_column` raises for it, with the rows
            largest = pc.max(pc.binary_length(decodable(array).dictionary)).as_py() or 1
            rows = min(rows, max(DECODED_BYTES // largest, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


class ColumnReader:
    """Turns record batches of one schema into record columns; the options are those of `record_slices`.

    `names` are the input's columns by role, for the roles that the input has. Raises UnwritableError if a column is
    unknown, occurs twice, or has another type.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        columns: Mapping[str, str] | None = None,
        ignore_columns: Sequence[str] | bool = (),
        naive_timezone: str | None = None,
        truncate_timestamps: bool = False,
    ) -> None:
        self.names = _match(schema, dict(columns or {}), ignore_columns)
        taken = set(self.names.values())
        ignored = set(schema.names) if ignore_columns is True else _ignored(ignore_columns)
        self._header_names = [
            name for name in schema.names if name.startswith(HEADER_FIELD) and name not in taken and name not in ignored
        ]
        self._timezone, self._truncate = naive_timezone, truncate_timestamps
        self._checks_control = "is_control" in schema.names and "is_control" not in self.names.values()
        for name, source in self.names.items():
            kind = schema.field(source).type
            if name == "timestamp" and pa.types.is_timestamp(kind) and kind.tz is None and naive_timezone is None:
                refuse_column(
                    Reason.COLUMN_TYPE,
                    source,
                    f"{kind} has no time zone: set naive_timezone (--timezone), or use a type with a zone",
                )
            if not _CHECKS[name](storage_type(kind)):
                what = f"{name} takes {_EXPECTED[name]}, not {kind}{_as_bytes(name, kind)}"
                refuse_column(Reason.COLUMN_TYPE, source, what)

    def read(self, batch: pa.RecordBatch, first_row: int = 0) -> RecordColumns:
        """The records of a batch: `timestamp`, `key`, `value`, `headers`; `offset` and `timestamp_type` if it has them.

        Messages count rows from `first_row`.
        """
        n = batch.num_rows
        if self._checks_control:
            self._refuse_control(batch, first_row)
        columns: dict[str, Column] = {}
        if "offset" in self.names:
            columns["offset"] = self._offsets(batch, first_row)
        columns["timestamp"] = self._timestamps(batch, first_row)
        if _TYPE in self.names:
            types, _ = integer_values(plain_column(batch, self.names[_TYPE], first_row), _TYPE, first_row)
            columns[_TYPE] = (types == kf.TimestampType.LOG_APPEND_TIME).astype(np.int8)
        for name in ("key", "value"):
            source = self.names.get(name)
            columns[name] = nulls(n) if source is None else binary_column(plain_column(batch, source, first_row))
        source = self.names.get("headers")
        headers = (
            HeadersColumn.none(n)
            if source is None
            else headers_column(plain_column(batch, source, first_row), source, first_row)
        )
        for name in self._header_names:
            values = binary_column(plain_column(batch, name, first_row))
            headers = headers.with_header(name.removeprefix(HEADER_FIELD).encode(), values)
        columns["headers"] = headers
        return RecordColumns(n, columns)

    def integers(self, name: str, batch: pa.RecordBatch, first_row: int = 0) -> npt.NDArray[np.int64]:
        """The values of `offset` or `partition`. Raises for null and negative numbers."""
        source = self.names[name]
        values, valid = integer_values(plain_column(batch, source, first_row), source, first_row)
        if valid is not None:
            refuse_row(source, first_row, ~valid, "is null")
        refuse_row(source, first_row, values < 0, "is negative")
        return values

    def _offsets(self, batch: pa.RecordBatch, first_row: int) -> npt.NDArray[np.int64]:
        offsets = self.integers("offset", batch, first_row)
        what = "is 2^63 - 1, the largest offset: the next record would have none"
        refuse_row(self.names["offset"], first_row, offsets == LONG_MAX, what)
        return offsets

    def _timestamps(self, batch: pa.RecordBatch, first_row: int) -> npt.NDArray[np.int64]:
        source = self.names.get("timestamp")
        if source is None:
            return np.full(batch.num_rows, kf.NO_TIMESTAMP, np.int64)
        array = plain_column(batch, source, first_row)
        if pa.types.is_null(array.type):
            return np.full(batch.num_rows, kf.NO_TIMESTAMP, np.int64)
        unit = 1000
        if pa.types.is_timestamp(array.type):
            unit = _PER_SECOND[array.type.unit]
            if array.type.tz is None:
                array = self._aware(array, source)
            array = array.view(pa.int64())
        values, valid = integer_values(array, source, first_row)
        if valid is not None:
            # the value at a null may be any number
            values = np.where(valid, values, 0)
        values = self._milliseconds(values, unit, source, first_row)
        return values if valid is None else np.where(valid, values, kf.NO_TIMESTAMP)

    def _aware(self, array: pa.Array, source: str) -> pa.Array:
        if self._timezone == "UTC":
            return array
        try:
            return pc.assume_timezone(array, self._timezone)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            refuse_column(Reason.COLUMN_VALUE, source, f"in time zone {self._timezone}: {one_line(error)}")

    def _milliseconds(
        self, values: npt.NDArray[np.int64], unit: int, source: str, first_row: int
    ) -> npt.NDArray[np.int64]:
        if unit == 1000:
            return values
        if unit == 1:
            far = (values > LONG_MAX // 1000) | (values < -(LONG_MAX // 1000))
            refuse_row(source, first_row, far, "does not fit milliseconds in 64 bits")
            return values * 1000
        whole, rest = np.divmod(values, unit // 1000)
        if not self._truncate:
            refuse_row(
                source,
                first_row,
                rest != 0,
                "is finer than a millisecond, which Kafka cannot store; "
                "truncate_timestamps (--truncate-timestamps) cuts it off",
            )
        refuse_row(source, first_row, (rest != 0) & (whole == kf.NO_TIMESTAMP), CUT_TO_NONE)
        return np.asarray(whole, np.int64)

    def _refuse_control(self, batch: pa.RecordBatch, first_row: int) -> None:
        array = batch.column("is_control")
        if pa.types.is_boolean(array.type):
            rows = np.asarray(pc.fill_null(array, False).to_numpy(zero_copy_only=False), np.bool_)
            refuse_row("is_control", first_row, rows, "is set: markers cannot be written; leave them out")


def _match(schema: pa.Schema, wanted: dict[str, str], ignore: Sequence[str] | bool) -> dict[str, str]:
    """Find the column for each role; raises UnwritableError for columns that cannot be used."""
    present = schema.names
    twice = sorted({name for name in present if present.count(name) > 1})
    if twice:
        raise UnwritableError(Reason.COLUMN_TWICE, f"there is more than one column {_listed(twice)}")
    for name, source in wanted.items():
        if name not in (*WRITTEN_COLUMNS, *PLACE_COLUMNS):
            raise ValueError(f"columns: no role {name!r}; there are {', '.join(WRITTEN_COLUMNS + PLACE_COLUMNS)}")
        if source not in present:
            raise UnknownNameError(f"no column {source!r} for the {name}; there are {_listed(present)}")
    taken = set(wanted.values())
    # a column that is named for one role does not fill the role of its own name
    names = dict(wanted)
    ignored = _ignored(ignore)
    for name in (*WRITTEN_COLUMNS, *PLACE_COLUMNS):
        if name not in names and name in present and name not in taken and name not in ignored:
            names[name] = name
    # as an export has it; a column of this name in another type means something else
    is_type = _TYPE in present and "timestamp" in names and _TYPE not in taken | ignored
    if is_type and pa.types.is_integer(schema.field(_TYPE).type):
        names[_TYPE] = _TYPE
    if "value" not in names:
        raise UnwritableError(
            Reason.COLUMN_MISSING,
            _no_value(names, present),
        )
    known = {*names.values(), *ALL_COLUMNS, *ignored}
    unknown = [name for name in present if name not in known and not name.startswith(HEADER_FIELD)]
    # an unknown column may be a misspelt one, whose values would be lost unsaid
    if unknown and ignore is not True:
        raise UnwritableError(
            Reason.COLUMN_UNKNOWN,
            f"unknown column {_listed(unknown)}: name its role (columns={{...}}, --timestamp-column and so on), or"
            " leave it out (ignore_columns=[...], --ignore-columns)",
        )
    return names


def _as_bytes(name: str, kind: pa.DataType) -> str:
    """How values of another type become bytes."""
    hint = "; encode it with value_format (--value-format json)" if name == "value" else ""
    if name in BINARY_COLUMNS and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        hint += "; a NumPy array in big-endian order, as from astype('>i8'), is written as its bytes"
    return hint


def _ignored(ignore: Sequence[str] | bool) -> set[str]:
    return set() if isinstance(ignore, bool) else {ignore} if isinstance(ignore, str) else set(ignore)


def _no_value(names: Mapping[str, str], present: Sequence[str]) -> str:
    others = [name for name, source in names.items() if source == "value"]
    if others:
        return (
            f"column 'value' is used as the {others[0]}:"
            f" name another column for the value (columns={{...}}, --value-column)"
        )
    if "value" in present:
        return "column 'value' is left out (ignore_columns), but a record needs a value"
    hint = "name it (columns={...}, --value-column), or encode whole rows (value_format='json', --value-format json)"
    for name in present:
        if name.strip().lower() == "value":
            hint = f"to use {name!r}, name it (columns={{...}}, --value-column)"
    return f"no column 'value'; there are {_listed(present) or 'none'}: {hint}"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind))


_EXPECTED: Final = {
    "offset": "integers",
    "timestamp": "timestamps, or integers of milliseconds",
    "key": BYTES_TYPES,
    "value": BYTES_TYPES,
    "headers": "a list of structs of key and value, or a map, of strings or bytes",
    "topic": "strings",
    "partition": "integers",
    _TYPE: "integers",
}
_CHECKS: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "offset": _is_integer,
    "timestamp": _is_moment,
    "key": is_bytes_like,
    "value": is_bytes_like,
    "headers": is_headers,
    "topic": is_bytes_like,
    "partition": _is_integer,
    _TYPE: _is_integer,
}
