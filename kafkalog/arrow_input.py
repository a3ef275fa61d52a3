"""Arrow to record columns: anything that speaks Arrow comes in, slices of RecordColumns go out.

The counterpart of `kafkalog.arrow`. Types are taken leniently (any kind of string or bytes, any width of integers, any
unit of timestamps, lists and maps for headers) and values exactly: what would have to be cut, rounded or guessed is
refused with the column and the row. Bytes are shared with Arrow's buffers where they lie one behind the other, and
memory does not grow with the stream. Nothing here knows files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog import format as kf
from kafkalog.columns import BinaryColumn, Column, HeadersColumn, RecordColumns, zeros
from kafkalog.errors import Reason, UnwritableError

SLICE_BYTES: Final = 4 * 2**20
SLICE_ROWS: Final = 2**16
DECODED_BYTES: Final = 16 * 2**20
"""About what values of dictionaries and runs, of which there may be few, take once there is one for each row."""

WRITTEN_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
"""What records are made of; only `value` has to be there."""
PLACE_COLUMNS: Final = ("topic", "partition")
READ_COLUMNS: Final = (
    *PLACE_COLUMNS,
    "timestamp_type",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "is_transactional",
    "is_control",
    "compression",
    "batch_base_offset",
    "batch_position",
    "segment",
)
"""What a scan gives besides; writing makes it anew, so it is passed over."""

_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_LONG_MAX: Final = 2**63 - 1
_EMPTY: Final = np.empty(0, np.uint8)

_BYTES_TYPES: Final = "binary, string, large_binary, large_string, binary_view, string_view, fixed_size_binary"


def record_slices(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    ignore_columns: Sequence[str] | bool = (),
    naive_timezone: str | None = None,
    truncate_timestamps: bool = False,
    max_bytes: int = SLICE_BYTES,
) -> Iterator[RecordColumns]:
    """Records out of anything that speaks Arrow, a slice at a time.

    Parameters
    ----------
    data : object
        With ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, pandas, Polars, DuckDB, a `kafkalog.Scan`), a
        dict of arrays, a pyarrow dataset, or RecordColumns.
    columns : dict of str to str, optional
        Names of the input's columns by what they are: ``{"timestamp": "created_at"}``.
    ignore_columns : sequence of str, or bool
        Columns of the input to leave out; True for all that are not known.
    naive_timezone : str, optional
        Where timestamps without a time zone are from, "UTC" for example; without it they are refused.
    truncate_timestamps : bool
        Whether what is finer than a millisecond may be cut off, downwards.
    max_bytes : int
        About the bytes of keys, values and headers in a slice. A record is never cut.

    Yields
    ------
    RecordColumns
        `timestamp` (-1 for none), `key`, `value`, `headers`, and `offset` where the input has one. They may share
        memory with the input.

    Raises
    ------
    UnwritableError
        A column of another type, one that is not known, a value that a record cannot hold; `row` counts from the
        beginning of the data.
    TypeError
        `data` is nothing of all that.
    """
    if isinstance(data, RecordColumns):
        yield from cut(data, max_bytes)
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
            yield from cut(reader.read(part, row), max_bytes)
            row += part.num_rows


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A record batch in parts of not too many rows, nor too many bytes once each row has its own."""
    batch, sizes = _with_sizes(batch)
    for start in range(0, batch.num_rows, SLICE_ROWS):
        part = batch.slice(start, SLICE_ROWS)
        if not sizes:
            yield part
            continue
        end = np.zeros(part.num_rows + 1, np.int64)
        for place, size in sizes.items():
            np.add(end[1:], size[_indices(part.column(place), size.size)], out=end[1:])
        np.cumsum(end, out=end)
        row = 0
        while row < part.num_rows:
            stop = max(row + 1, int(np.searchsorted(end, end[row] + DECODED_BYTES, "right")) - 1)
            yield part.slice(row, stop - row)
            row = stop


def _with_sizes(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, npt.NDArray[np.int64]]]:
    """A batch whose dictionaries and runs can be decoded, and how many bytes each of their values has, by column."""
    columns, sizes = list(batch.columns), {}
    for place, array in enumerate(columns):
        if not isinstance(array, pa.DictionaryArray | pa.RunEndEncodedArray) or not _has_bytes(array.type.value_type):
            continue
        try:
            array.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowIndexError):
            continue  # said by `plain_column`, with the rows
        columns[place] = array = _decodable(array)
        values = array.dictionary if isinstance(array, pa.DictionaryArray) else array.values
        if len(values):
            lengths = pc.fill_null(pc.binary_length(values), 0)
            sizes[place] = np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), sizes


def _indices(array: pa.Array, n_values: int) -> npt.NDArray[np.int64]:
    """Which value each row has; any for a null."""
    if isinstance(array, pa.DictionaryArray):
        found, _ = integer_values(array.indices, "")
    else:
        ends = np.asarray(array.run_ends.to_numpy(zero_copy_only=False), np.int64)
        found = np.searchsorted(ends, np.arange(array.offset, array.offset + len(array)), "right")
    return np.clip(found, 0, n_values - 1)


def cut(columns: RecordColumns, max_bytes: int = SLICE_BYTES) -> Iterator[RecordColumns]:
    """Columns in slices of about so many bytes, one record at least each."""
    end = np.zeros(columns.n_records + 1, np.int64)
    for column in columns.values():
        if isinstance(column, BinaryColumn):
            end += column.offsets - column.offsets[0]
        elif isinstance(column, HeadersColumn):
            for part in (column.key, column.value):
                end += part.offsets[column.offsets] - part.offsets[column.offsets[0]]
    start = 0
    while start < columns.n_records:
        if end[-1] - end[start] <= max_bytes:
            stop = columns.n_records
        else:
            stop = max(start + 1, int(np.searchsorted(end, end[start] + max_bytes, "right")) - 1)
        whole = start == 0 and stop == columns.n_records
        yield columns if whole else columns.slice(start, stop)
        start = stop


def open_batches(data: Any) -> pa.RecordBatchReader:
    """Data as a stream of record batches.

    Raises
    ------
    TypeError
        It is nothing that speaks Arrow.
    UnwritableError
        It does, but its values have no type in common.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    try:
        return _open(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise UnwritableError(Reason.COLUMN_TYPE, _one_line(error)) from error


def _open(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, Mapping):
        return pa.table({name: _as_array(name, values) for name, values in data.items()}).to_reader()
    if type(data).__module__.partition(".")[0] == "pandas":
        if not hasattr(data, "columns"):
            raise TypeError(f"a pandas DataFrame is expected, not a {type(data).__name__}")
        # an index with a name is a column like the others; one without is a row number
        named = any(name is not None for name in data.index.names)
        return pa.Table.from_pandas(data, preserve_index=named).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return _open(pa.record_batch(data))
    if hasattr(data, "scanner") and hasattr(data, "schema"):
        return data.scanner().to_reader()
    if hasattr(data, "to_reader"):
        return data.to_reader()
    hint = "; collect() it first" if hasattr(data, "collect") else ""
    raise TypeError(
        "records are a table that speaks Arrow (pyarrow, pandas, Polars, DuckDB ...) or a dict of arrays, "
        f"not {type(data).__name__}{hint}"
    )


def _as_array(name: Any, values: Any) -> Any:
    """A column of a dict; headers may be lists of (key, value)."""
    if isinstance(values, np.ndarray | list | tuple) and name == "headers":
        first = next((pair for headers in values if headers is not None for pair in headers), None)
        if isinstance(first, tuple):
            return pa.array(list(values), type=pa.map_(pa.binary(), pa.binary()))
    if isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(values, "__arrow_c_stream__"):
        return values
    return pa.array(values)


class ColumnReader:
    """Turns record batches of one schema into record columns.

    Parameters
    ----------
    schema : pyarrow.Schema
    columns, ignore_columns, naive_timezone, truncate_timestamps
        See `record_slices`.

    Attributes
    ----------
    names : dict of str to str
        Names of the input's columns by what they are, those that are there.

    Raises
    ------
    UnwritableError
        Columns that are not known, are there twice, or have another type.
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
        self._timezone, self._truncate = naive_timezone, truncate_timestamps
        self._checks_control = "is_control" in schema.names and "is_control" not in self.names.values()
        for name, source in self.names.items():
            kind = schema.field(source).type
            if name == "timestamp" and pa.types.is_timestamp(kind) and kind.tz is None and naive_timezone is None:
                _refuse_column(
                    Reason.COLUMN_TYPE,
                    source,
                    f"{kind} has no time zone: say which one it is in (naive_timezone, --timezone), or make it an aware"
                    " one",
                )
            if not _CHECKS[name](_storage(kind)):
                _refuse_column(Reason.COLUMN_TYPE, source, f"{name} takes {_EXPECTED[name]}, not {kind}")

    def read(self, batch: pa.RecordBatch, first_row: int = 0) -> RecordColumns:
        """The records of a batch: `timestamp`, `key`, `value`, `headers`, and `offset` where there is one.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
        first_row : int
            Its place in the whole, for messages.
        """
        n = batch.num_rows
        if self._checks_control:
            self._refuse_control(batch, first_row)
        columns: dict[str, Column] = {}
        if "offset" in self.names:
            columns["offset"] = self._offsets(batch, first_row)
        columns["timestamp"] = self._timestamps(batch, first_row)
        for name in ("key", "value"):
            source = self.names.get(name)
            columns[name] = nulls(n) if source is None else binary_column(plain_column(batch, source, first_row))
        source = self.names.get("headers")
        columns["headers"] = (
            HeadersColumn.none(n)
            if source is None
            else _headers(plain_column(batch, source, first_row), source, first_row)
        )
        return RecordColumns(n, columns)

    def integers(self, name: str, batch: pa.RecordBatch, first_row: int = 0) -> npt.NDArray[np.int64]:
        """A column of numbers that are neither null nor negative: `offset` or `partition`."""
        source = self.names[name]
        values, valid = integer_values(plain_column(batch, source, first_row), source, first_row)
        if valid is not None:
            _refuse_row(source, first_row, ~valid, "is null")
        _refuse_row(source, first_row, values < 0, "is negative")
        return values

    def _offsets(self, batch: pa.RecordBatch, first_row: int) -> npt.NDArray[np.int64]:
        return self.integers("offset", batch, first_row)

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
            values = np.where(valid, values, 0)
        values = self._milliseconds(values, unit, source, first_row)
        if valid is not None:
            values = np.where(valid, values, kf.NO_TIMESTAMP)
        _refuse_row(source, first_row, values < kf.NO_TIMESTAMP, "is before 1970, which no record's timestamp can be")
        return values

    def _aware(self, array: pa.Array, source: str) -> pa.Array:
        if self._timezone == "UTC":
            return array
        try:
            return pc.assume_timezone(array, self._timezone)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            _refuse_column(Reason.COLUMN_VALUE, source, f"in time zone {self._timezone}: {_one_line(error)}")

    def _milliseconds(
        self, values: npt.NDArray[np.int64], unit: int, source: str, first_row: int
    ) -> npt.NDArray[np.int64]:
        if unit == 1000:
            return values
        if unit == 1:
            far = (values > _LONG_MAX // 1000) | (values < -(_LONG_MAX // 1000))
            _refuse_row(source, first_row, far, "is further away than milliseconds in 64 bits reach")
            return values * 1000
        whole, rest = np.divmod(values, unit // 1000)
        if not self._truncate:
            _refuse_row(
                source,
                first_row,
                rest != 0,
                "is finer than a millisecond, which is all that Kafka keeps (truncate_timestamps, "
                "--truncate-timestamps cuts it off)",
            )
        return np.asarray(whole, np.int64)

    def _refuse_control(self, batch: pa.RecordBatch, first_row: int) -> None:
        array = batch.column("is_control")
        if pa.types.is_boolean(array.type):
            rows = np.asarray(pc.fill_null(array, False).to_numpy(zero_copy_only=False), np.bool_)
            _refuse_row("is_control", first_row, rows, "is set: markers are no records to write (leave them out)")


def _match(schema: pa.Schema, wanted: dict[str, str], ignore: Sequence[str] | bool) -> dict[str, str]:
    """Which column is what; UnwritableError for columns that nothing can be made of."""
    present = schema.names
    twice = sorted({name for name in present if present.count(name) > 1})
    if twice:
        raise UnwritableError(Reason.COLUMN_TWICE, f"there is more than one column {_listed(twice)}")
    for name, source in wanted.items():
        if name not in (*WRITTEN_COLUMNS, *PLACE_COLUMNS):
            raise ValueError(f"columns names {name!r}, which is none of {', '.join(WRITTEN_COLUMNS + PLACE_COLUMNS)}")
        if source not in present:
            raise UnwritableError(
                Reason.COLUMN_MISSING, f"there is no column {source!r} to be the {name}: there are {_listed(present)}"
            )
    taken = set(wanted.values())
    names = dict(wanted)
    ignored = set() if isinstance(ignore, bool) else {ignore} if isinstance(ignore, str) else set(ignore)
    for name in (*WRITTEN_COLUMNS, *PLACE_COLUMNS):
        if name not in names and name in present and name not in taken and name not in ignored:
            names[name] = name
    if "value" not in names:
        raise UnwritableError(
            Reason.COLUMN_MISSING,
            _no_value(names, present),
        )
    unknown = [
        name
        for name in present
        if name not in names.values() and name not in READ_COLUMNS and name not in WRITTEN_COLUMNS
        if name not in ignored
    ]
    if unknown and ignore is not True:
        raise UnwritableError(
            Reason.COLUMN_UNKNOWN,
            f"a record has no column {_listed(unknown)}: drop it, say what it is (columns={{...}}, --timestamp-column "
            "...) or leave it out (ignore_columns=[...], --ignore-columns)",
        )
    return names


def _no_value(names: Mapping[str, str], present: Sequence[str]) -> str:
    others = [name for name, source in names.items() if source == "value"]
    if others:
        return f"column 'value' is to be the {others[0]}, and no column is left to be the value (columns={{...}})"
    if "value" in present:
        return "column 'value' is left out (ignore_columns), and a record has to have one"
    near = next((repr(name) for name in present if name.strip().lower() == "value"), "")
    hint = f"{near} is to be named (columns={{...}}, --value-column)" if near else "a column of nulls makes tombstones"
    return f"there is no column 'value': there are {_listed(present) or 'none'} ({hint})"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type below: of what a dictionary or a run holds, of what an extension stores."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def plain_column(batch: pa.RecordBatch, name: str, first_row: int) -> pa.Array:
    """A column in its plain form, checked down to its values: what a file or another library says may be wrong."""
    array = batch.column(name)
    try:
        array.validate(full=True)
        return _plain(array)
    except (pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowNotImplementedError) as error:
        where = f"rows {first_row} to {first_row + batch.num_rows - 1}: {_one_line(error)}"
        raise UnwritableError(Reason.COLUMN_VALUE, f"column {name!r}: {where}") from error


def _plain(array: pa.Array) -> pa.Array:
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = _decodable(array).dictionary_decode()
        elif isinstance(array, pa.RunEndEncodedArray):
            array = pc.run_end_decode(_decodable(array))
        else:
            return array


def _decodable(array: pa.Array) -> pa.Array:
    """A dictionary or runs of views, which Arrow decodes of no type, as such of large strings or bytes."""
    kind = array.type.value_type
    if not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
        return array
    large = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    if isinstance(array, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(array.indices, pc.cast(array.dictionary, large))
    runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, pc.cast(array.values, large))
    return runs.slice(array.offset, len(array))


def integer_values(
    array: pa.Array, name: str, first_row: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """An array of integers as int64, and which are not null; None for all."""
    n = len(array)
    if pa.types.is_null(array.type):
        return np.zeros(n, np.int64), np.zeros(n, np.bool_)
    width = array.type.bit_width // 8
    kind = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    data = array.buffers()[1]
    values = np.zeros(0, f"{kind}{width}")
    if n and data is not None:
        values = np.frombuffer(data, values.dtype, n, array.offset * width)
    valid = validity(array)
    if values.dtype == np.uint64:
        late = values > _LONG_MAX
        _refuse_row(name, first_row, late if valid is None else late & valid, "is beyond 2^63 - 1")
    return values.astype(np.int64, copy=False), valid


def validity(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None for all."""
    n = len(array)
    if not n or not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:  # an array of type null
        return np.zeros(n, np.bool_)
    first = array.offset // 8
    bits = np.frombuffer(bitmap, np.uint8, (array.offset + n + 7) // 8 - first, first)
    shift = array.offset % 8
    return np.unpackbits(bits, bitorder="little")[shift : shift + n].view(np.bool_)


def nulls(n: int) -> BinaryColumn:
    """Nothing but nulls."""
    return BinaryColumn(zeros(n + 1), _EMPTY, np.zeros(n, np.bool_))


def binary_column(array: pa.Array) -> BinaryColumn:
    """An array of bytes or text as a column; it shares the bytes where they lie one behind the other."""
    kind = array.type
    n = len(array)
    if pa.types.is_null(kind):
        return nulls(n)
    if pa.types.is_fixed_size_binary(kind):
        return _fixed_size(array)
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind) or _is_large(kind)):
        array = pc.cast(array, pa.large_binary())  # of views, which lie anywhere
    valid = validity(array)
    column = _variable(array, valid)
    if valid is not None and np.diff(column.offsets)[~valid].any():
        column = _variable(pc.fill_null(array, b"" if _is_bytes(array.type) else ""), valid)  # bytes below a null
    return column


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def _has_bytes(kind: pa.DataType) -> bool:
    return _is_bytes_like(kind) and not pa.types.is_null(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _variable(array: pa.Array, valid: npt.NDArray[np.bool_] | None) -> BinaryColumn:
    n = len(array)
    if not n:
        return BinaryColumn(zeros(1), _EMPTY)
    _, offsets_buffer, data = array.buffers()
    width = 8 if _is_large(array.type) else 4
    offsets = np.frombuffer(offsets_buffer, f"i{width}", n + 1, array.offset * width)
    first, size = int(offsets[0]), int(offsets[-1]) - int(offsets[0])
    offsets = offsets - np.asarray(first, offsets.dtype) if first else offsets
    column = np.frombuffer(data, np.uint8, size, first) if data is not None and size else _EMPTY
    return BinaryColumn(offsets.astype(np.int64, copy=False), column, valid)


def _fixed_size(array: pa.Array) -> BinaryColumn:
    n, width = len(array), array.type.byte_width
    valid = validity(array)
    if not n or not width:
        return BinaryColumn(zeros(n + 1), _EMPTY, valid)
    data = np.frombuffer(array.buffers()[1], np.uint8, n * width, array.offset * width)
    if valid is None:
        return BinaryColumn(np.arange(0, (n + 1) * width, width, dtype=np.int64), data)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(valid * width, out=offsets[1:])
    return BinaryColumn(offsets, data.reshape(n, width)[valid].ravel(), valid)


def _headers(array: pa.Array, source: str, first_row: int) -> HeadersColumn:
    """Lists of key and value, or maps."""
    n = len(array)
    if pa.types.is_null(array.type):
        return HeadersColumn.none(n)
    offsets, items = _lists(array)
    if not offsets[-1]:
        return HeadersColumn.none(n)
    if pa.types.is_null(items.type):
        _refuse_header(source, first_row, offsets, np.ones(len(items), np.bool_), "is null")
    present = validity(items)
    if present is not None:
        _refuse_header(source, first_row, offsets, ~present, "is null")
    key, value = (_plain(items.field(items.type.get_field_index(name))) for name in ("key", "value"))
    keys = binary_column(key)
    if keys.validity is not None:
        _refuse_header(source, first_row, offsets, ~keys.validity, "has no key")
    if not (pa.types.is_string(key.type) or pa.types.is_large_string(key.type)):  # text was checked with the rest
        _refuse_bad_text(keys, source, first_row, offsets)
    return HeadersColumn(offsets, keys, binary_column(value))


def _lists(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Where each list begins in its items, from 0 on; a null list is an empty one."""
    if pa.types.is_map(array.type):
        pair = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
        array = array.cast(pa.list_(pair))
    lengths, valid = integer_values(pc.list_value_length(array), "headers")
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths if valid is None else np.where(valid, lengths, 0), out=offsets[1:])
    return offsets, _plain(array.flatten())


def _refuse_bad_text(keys: BinaryColumn, source: str, first_row: int, offsets: npt.NDArray[np.int64]) -> None:
    """Kafka's header keys are text; bytes that are not would read as something else."""
    if not keys.data.size or keys.data.max() < 0x80:
        return
    bad = np.zeros(len(keys), np.bool_)
    for place, key in enumerate(keys.to_pylist()):
        try:
            (key or b"").decode()
        except UnicodeDecodeError:
            bad[place] = True
            break
    _refuse_header(source, first_row, offsets, bad, "has a key that is not UTF-8")


def _refuse_header(
    source: str, first_row: int, offsets: npt.NDArray[np.int64], bad: npt.NDArray[np.bool_], what: str
) -> None:
    if bad.any():
        place = int(np.argmax(bad))
        row = int(np.searchsorted(offsets, place, "right")) - 1
        number = place - int(offsets[row])
        detail = f"column {source!r}, row {first_row + row}: header {number} {what}"
        raise UnwritableError(Reason.COLUMN_VALUE, detail, row=first_row + row)


def _refuse_row(source: str, first_row: int, bad: npt.NDArray[np.bool_], what: str) -> None:
    if bad.any():
        row = first_row + int(np.argmax(bad))
        raise UnwritableError(Reason.COLUMN_VALUE, f"column {source!r}, row {row} {what}", row=row)


def _refuse_column(reason: Reason, source: str, what: str) -> NoReturn:
    raise UnwritableError(reason, f"column {source!r}: {what}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _is_bytes_like(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_null(kind)
        or types.is_binary(kind)
        or types.is_string(kind)
        or _is_large(kind)
        or types.is_binary_view(kind)
        or types.is_string_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind))


def _is_headers(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(kind):
        return True
    if types.is_map(kind):
        return _is_bytes_like(_storage(kind.key_type)) and _is_bytes_like(_storage(kind.item_type))
    if not (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
        or types.is_fixed_size_list(kind)
    ):
        return False
    item = _storage(kind.value_type)
    if types.is_null(item):
        return True  # how a list of nothing but empty lists is typed
    if not types.is_struct(item) or sorted(field.name for field in item) != ["key", "value"]:
        return False
    return all(_is_bytes_like(_storage(field.type)) for field in item)


_EXPECTED: Final = {
    "offset": "integers",
    "timestamp": "timestamps, or integers of milliseconds",
    "key": _BYTES_TYPES,
    "value": _BYTES_TYPES,
    "headers": "a list of structs of key and value, or a map, of strings or bytes",
    "topic": "strings",
    "partition": "integers",
}
_CHECKS: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "offset": _is_integer,
    "timestamp": _is_moment,
    "key": _is_bytes_like,
    "value": _is_bytes_like,
    "headers": _is_headers,
    "topic": _is_bytes_like,
    "partition": _is_integer,
}
