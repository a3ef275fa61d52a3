"""Converts record columns to Arrow, and defines the Arrow types of all record columns.

Arrow data returned to users owns its memory. The exception are `binary_view` columns, if the caller requests them: they
point into buffers that they keep alive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog import format as kf
from kafkalog._kernels.record_windows import KINDS
from kafkalog.column_names import CONTEXT_COLUMNS, DEFAULT_COLUMNS
from kafkalog.records.batch_columns import Form
from kafkalog.records.batch_table import may_lack_timestamps
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, ViewColumn, as_views, zeros
from kafkalog.records.columns import FIXED_COLUMNS, RecordColumns, is_masked, lacks_timestamp
from kafkalog.records.readers.record_windows import BatchFields

TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")

HEADER_FIELD: Final = "headers."
"""How the name of a column with the values of one header begins, such as ``headers.trace-id``."""

INT32_MAX = 2**31 - 1
_BOOL, _VIEW, _LARGE = pa.bool_(), pa.binary_view(), pa.large_binary()

_TYPES: Final[dict[str, pa.DataType]] = {
    **{name: pa.from_numpy_dtype(np.dtype(dtype)) for name, dtype in FIXED_COLUMNS.items()},
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": TIMESTAMP,
    "compression": pa.string(),
    "segment": pa.string(),
}


def record_schema(columns: Sequence[str] = DEFAULT_COLUMNS, binary_type: pa.DataType | None = None) -> pa.Schema:
    """The schema of records: columns of `ALL_COLUMNS` in the order given, with fixed types.

    Key, value and header values are `pa.binary()` (default), `pa.large_binary()` or `pa.binary_view()`.
    """
    return _record_schema(tuple(columns), check_binary_type(binary_type))


@lru_cache(64)
def _record_schema(columns: tuple[str, ...], binary: pa.DataType) -> pa.Schema:
    headers = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", binary)]))
    types = {**_TYPES, "key": binary, "value": binary, "headers": headers}
    return pa.schema([pa.field(name, types[name]) for name in columns])


STORED_NAMES: Final = {b"kafkalog": b"as stored"}
"""Metadata of the field of header names that are bytes of a log, which need not be UTF-8."""


def stored_names_schema(schema: pa.Schema) -> pa.Schema:
    """A schema of records in which header names are bytes: to copy records exactly."""
    place = schema.get_field_index("headers")
    if place < 0:
        return schema
    name, value = schema.field(place).type.value_type
    pair = pa.struct([pa.field(name.name, pa.binary(), metadata=STORED_NAMES), value])
    return schema.set(place, pa.field("headers", pa.list_(pair)))


def extend_schema(schema: pa.Schema, dtypes: Mapping[str, np.dtype[Any]]) -> pa.Schema:
    """A schema with the derived columns added; they are nullable."""
    if not dtypes:
        return schema
    return pa.schema([*schema, *(pa.field(name, pa.from_numpy_dtype(dtype)) for name, dtype in dtypes.items())])


def check_binary_type(binary_type: pa.DataType | None) -> pa.DataType:
    """The type itself, `pa.binary()` for None. Raises ValueError for any other type than the three for bytes."""
    binary_type = pa.binary() if binary_type is None else binary_type
    known = (pa.binary(), pa.large_binary(), pa.binary_view())
    if not isinstance(binary_type, pa.DataType) or binary_type not in known:
        raise ValueError(f"binary_type must be pa.binary(), pa.large_binary() or pa.binary_view(), not {binary_type}")
    return binary_type


def batch_fields(
    schema: pa.Schema, topic_partition: kf.TopicPartition | None, segment: str | None
) -> BatchFields | None:
    """What the kernel needs to make record batches of a segment; None if it does not make all columns of the schema."""
    topic, partition = topic_partition or (None, None)
    constants = {"topic": ("text", topic), "partition": ("number", partition), "segment": ("text", segment)}
    fields = []
    for name in schema.names:
        kind, value = constants.get(name, (name, None))
        if kind not in KINDS:
            return None
        fields.append((KINDS[kind], value))
    return BatchFields(fields, schema, pa.RecordBatch._import_from_c)


class ArrowWriter:
    """Turns the record columns of one segment into record batches of a schema from `record_schema`.

    `n_bad_header_keys` counts header keys that are not UTF-8. Invalid bytes become U+FFFD, as in Java.
    """

    def __init__(
        self, schema: pa.Schema, topic_partition: kf.TopicPartition | None = None, segment: str | None = None
    ) -> None:
        self.schema = schema
        # each access to a schema's fields creates new Python objects: do it once
        self._fields: list[tuple[str, pa.DataType]] = [(field.name, field.type) for field in schema]
        topic, partition = topic_partition or (None, None)
        self._context = {"topic": topic, "partition": partition, "segment": segment}
        self._repeated: dict[str, pa.Array] = {}
        self.n_bad_header_keys = 0

    def batch(self, columns: RecordColumns) -> pa.RecordBatch:
        """One record batch of all records.

        Raises ValueError if a `binary` column would exceed 2 GiB: slice first, or use `large_binary`.
        """
        n = columns.n_records
        arrays = [self._array(name, kind, columns, n) for name, kind in self._fields]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, kind: pa.DataType, columns: RecordColumns, n: int) -> pa.Array:
        if name in CONTEXT_COLUMNS:
            return self._repeat(name, kind, n)
        column = columns[name]
        if isinstance(column, (BinaryColumn, ViewColumn)):
            return binary_array(column, kind)
        if isinstance(column, HeadersColumn):
            if not len(column.key):
                return self._repeat(name, kind, n)
            array, n_bad = headers_array(column, kind)
            self.n_bad_header_keys += n_bad
            return array
        if name == "timestamp":
            return _timestamps(column, columns["timestamp_type"])  # type: ignore[arg-type]
        if name == "compression":
            return _strings(kf.CODEC_NAMES).take(_fixed(column, pa.int8()))
        if is_masked(column):
            return _fixed(np.ma.getdata(column), kind, ~np.ma.getmaskarray(column))
        return _fixed(column, kind)

    def _repeat(self, name: str, kind: pa.DataType, n: int) -> pa.Array:
        """The segment's value, or empty headers, `n` times: a slice of a cached array."""
        array = self._repeated.get(name)
        if array is None or len(array) < n:
            # at most twice as long as needed: a slice keeps the whole array alive
            size = 1 << max(n - 1, 0).bit_length()
            array = repeated(self._context[name], kind, size) if name in self._context else _empty_lists(kind, size)
            self._repeated[name] = array
        return array.slice(0, n)


def form_needed(schema: pa.Schema) -> Form:
    """The form in which byte strings are to be decoded for a schema."""
    types = list(schema.types)
    if "headers" in schema.names:
        types.append(schema.field("headers").type.value_type.field("value").type)
    return "views" if _VIEW in types else "numpy" if _LARGE in types else "arrow"


def columns_needed(schema: pa.Schema) -> list[str]:
    """Columns to decode for a schema. `timestamp` needs `timestamp_type`, which tells a missing timestamp from -1."""
    names = [name for name in schema.names if name not in CONTEXT_COLUMNS]
    if "timestamp" in names and "timestamp_type" not in names:
        names.append("timestamp_type")
    return names


# pa.array() and pa.scalar() import pandas if it is installed, which takes a fifth of a second and 50 MiB. Arrays built
# from buffers do not.


def _fixed(column: Any, kind: pa.DataType, validity: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of numbers without copying, or of booleans packed to bits."""
    if kind.id == _BOOL.id:
        data = np.packbits(column, bitorder="little")
    else:
        data = np.ascontiguousarray(column)
    return pa.Array.from_buffers(kind, column.size, [bitmap(validity), pa.py_buffer(data)])


def _timestamps(stamps: npt.NDArray[np.int64], types: npt.NDArray[np.int8]) -> pa.Array:
    present = None
    if may_lack_timestamps(types):
        present = ~lacks_timestamp(stamps, types)
    return _fixed(stamps, TIMESTAMP, present)


def repeated(value: str | int | None, kind: pa.DataType, n: int) -> pa.Array:
    """The same text or number `n` times."""
    if value is None:
        return pa.nulls(n, kind)
    if isinstance(value, int):
        return _fixed(np.full(n, value, np.int32), kind)
    text = value.encode()
    return _string_array(np.arange(0, (n + 1) * len(text), max(len(text), 1), dtype=np.int32)[: n + 1], text * n)


def _strings(values: Sequence[str]) -> pa.Array:
    texts = [value.encode() for value in values]
    return _string_array(np.cumsum([0, *map(len, texts)], dtype=np.int32), b"".join(texts))


def _string_array(offsets: npt.NDArray[np.int32], data: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), offsets.size - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def bitmap(validity: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Arrow's validity of an array; None if all are valid."""
    return None if validity is None or validity.all() else pa.py_buffer(np.packbits(validity, bitorder="little"))


def binary_array(column: BinaryColumn | ViewColumn, kind: pa.DataType) -> pa.Array:
    """A binary column as an Arrow array of `binary`, `large_binary`, `string` or `binary_view`."""
    n = len(column)
    valid, n_null = None, 0
    if column.validity is not None:
        valid, n_null = bitmap(column.validity), column.null_count
    if kind.id == _VIEW.id:
        column = as_views(column)
        buffers = [pa.py_buffer(buffer) for buffer in (column.views, *column.buffers)]
        return pa.Array.from_buffers(kind, n, [valid, *buffers], n_null)
    if isinstance(column, ViewColumn):
        raise TypeError(f"views cannot be an array of {kind}")
    if kind.id == _LARGE.id:
        offsets: npt.NDArray[Any] = column.offsets.astype(np.int64, copy=False)
    else:
        # offsets of 32 bits would wrap around
        if column.data.size > INT32_MAX:
            raise ValueError(f"{column.data.size} bytes do not fit a {kind} array; use binary_type=pa.large_binary()")
        offsets = column.offsets.astype(np.int32, copy=False)
    return pa.Array.from_buffers(kind, n, [valid, pa.py_buffer(offsets), pa.py_buffer(column.data)], n_null)


def headers_array(column: HeadersColumn, kind: pa.DataType) -> tuple[pa.Array, int]:
    """Headers as an Arrow list of structs, and the number of keys that are not UTF-8."""
    if not len(column.key):
        return _empty_lists(kind, len(column)), 0
    struct = kind.value_type
    key_type = struct.field("key").type
    keys, n_bad = _utf8(column.key) if key_type == pa.string() else (binary_array(column.key, key_type), 0)
    values = binary_array(column.value, struct.field("value").type)
    items = pa.StructArray.from_arrays([keys, values], fields=list(struct))
    if column.offsets[-1] > INT32_MAX:
        raise ValueError("too many headers for one Arrow array; ask for smaller batches")
    offsets = pa.py_buffer(column.offsets.astype(np.int32, copy=False))
    return pa.Array.from_buffers(kind, len(column), [None, offsets], 0, children=[items]), n_bad


def header_values(headers: pa.Array, name: str) -> pa.Array:
    """The value of the last header of a name, for each record; null for a record without one."""
    import pyarrow.compute as pc  # slow to import

    n, items = len(headers), headers.values
    if not n or not len(items):
        return pa.nulls(n, headers.type.value_type.field("value").type)
    offsets = headers.offsets.to_numpy()
    places = np.flatnonzero(pc.equal(items.field(0), name).to_numpy(zero_copy_only=False))
    rows = np.searchsorted(offsets, places, side="right") - 1
    mine = (rows >= 0) & (rows < n)
    last = np.zeros(n, np.int64)
    last[rows[mine]] = places[mine]  # of several places of a row the last one counts
    found = np.zeros(n, np.bool_)
    found[rows[mine]] = True
    values, taken = items.field(1), _fixed(last, pa.int64(), found)
    # Arrow takes nothing of views
    return values.cast(_LARGE).take(taken).cast(_VIEW) if values.type.id == _VIEW.id else values.take(taken)


def _empty_lists(kind: pa.DataType, n: int) -> pa.Array:
    offsets = pa.py_buffer(zeros(n + 1).view(np.int32)[: n + 1])
    return pa.Array.from_buffers(kind, n, [None, offsets], 0, children=[_nothing(kind.value_type)])


@lru_cache(maxsize=8)
def _nothing(kind: pa.DataType) -> pa.Array:
    return pa.nulls(0, kind)


def _utf8(column: BinaryColumn) -> tuple[pa.Array, int]:
    if not column.data.size or column.data.max() < 0x80:
        return binary_array(column, pa.string()), 0
    keys = binary_array(column, pa.string())
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return _mended(column)
    return keys, 0


def _mended(column: BinaryColumn) -> tuple[pa.Array, int]:
    """Text with U+FFFD for invalid UTF-8, and the number of values changed. Done in parts, to bound memory."""
    chunks: list[pa.Array] = []
    n_bad = 0
    for start in range(0, len(column), _MENDED_AT_ONCE):
        values = [value or b"" for value in column.slice(start, min(start + _MENDED_AT_ONCE, len(column))).to_pylist()]
        texts = [java_string(value) for value in values]
        n_bad += sum(text.encode() != value for text, value in zip(texts, values, strict=True))
        chunks.append(_strings(texts))
    return pa.concat_arrays(chunks), n_bad


_MENDED_AT_ONCE = 2**16
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_string(value: bytes) -> str:
    """Decode bytes like Java's `new String(bytes, UTF_8)`.

    Each invalid sequence becomes one U+FFFD. An encoded surrogate is one sequence.
    """
    return _SURROGATE.sub("\ufffd".encode(), value).decode("utf-8", "replace")
