"""Converts Arrow arrays of many types to columns of numbers, byte strings and headers.

Values are converted exactly; one that cannot be is rejected with its column and row. Bytes are shared with Arrow's
buffers where they are contiguous. `kafkalog.interchange.arrow_input` decides which column of the input has which role.
"""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.arrow_output import STORED_NAMES
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, zeros
from kafkalog.text import offset_range

LONG_MAX: Final = 2**63 - 1
BYTES_TYPES: Final = "binary, string, large_binary, large_string, binary_view, string_view, fixed_size_binary"
"""Types accepted as byte strings, also as values of a dictionary, or in an extension type."""
_EMPTY: Final = np.empty(0, np.uint8)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The plain type: the value type of a dictionary, the storage type of an extension."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def is_bytes_like(kind: pa.DataType) -> bool:
    """Whether a type, as `storage_type` returns it, has byte strings as values, or only nulls."""
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


def is_headers(kind: pa.DataType) -> bool:
    """Whether a type can hold headers: lists of structs of key and value, or maps."""
    types = pa.types
    if types.is_null(kind):
        return True
    if types.is_map(kind):
        return is_bytes_like(storage_type(kind.key_type)) and is_bytes_like(storage_type(kind.item_type))
    if not (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
        or types.is_fixed_size_list(kind)
    ):
        return False
    item = storage_type(kind.value_type)
    if types.is_null(item):
        return True  # the type of a column that has only empty lists
    if not types.is_struct(item) or sorted(field.name for field in item) != ["key", "value"]:
        return False
    return all(is_bytes_like(storage_type(field.type)) for field in item)


def plain_column(batch: pa.RecordBatch, name: str, first_row: int) -> pa.Array:
    """A column in its plain form. It is fully validated, because a file or another library may give invalid data."""
    array = batch.column(name)
    try:
        array.validate(full=True)
        return _plain(array)
    except (pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowNotImplementedError) as error:
        where = f"rows {offset_range(first_row, first_row + batch.num_rows)}: {one_line(error)}"
        raise UnwritableError(Reason.COLUMN_VALUE, f"column {name!r}: {where}") from error


def _plain(array: pa.Array) -> pa.Array:
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = decodable(array).dictionary_decode()
        else:
            return array


def decodable(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Convert view values of a dictionary to large ones: Arrow cannot decode views."""
    kind = array.type.value_type
    if not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
        return array
    large = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    return pa.DictionaryArray.from_arrays(array.indices, pc.cast(array.dictionary, large))


def integer_values(
    array: pa.Array, name: str, first_row: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """An array of integers as int64, and a mask of those that are not null; None if none is null."""
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
        late = values > LONG_MAX
        refuse_row(name, first_row, late if valid is None else late & valid, "is beyond 2^63 - 1")
    return values.astype(np.int64, copy=False), valid


def nulls(n: int) -> BinaryColumn:
    return BinaryColumn(zeros(n + 1), _EMPTY, np.zeros(n, np.bool_))


def binary_column(array: pa.Array) -> BinaryColumn:
    """An array of bytes or text as a column. The bytes are shared where they are contiguous."""
    kind = array.type
    n = len(array)
    if pa.types.is_null(kind):
        return nulls(n)
    if pa.types.is_fixed_size_binary(kind):
        return _fixed_size(array)
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind) or _is_large(kind)):
        array = pc.cast(array, pa.large_binary())  # the bytes of views are not contiguous
    valid = validity(array)
    column = _variable(array, valid)
    if valid is not None and np.diff(column.offsets)[~valid].any():
        # Arrow allows any bytes under a null; the columns here need null values to be empty
        column = _variable(pc.fill_null(array, b"" if _is_bytes(array.type) else ""), valid)
    return column


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def has_bytes(kind: pa.DataType) -> bool:
    return is_bytes_like(kind) and not pa.types.is_null(kind)


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


def headers_column(array: pa.Array, source: str, first_row: int) -> HeadersColumn:
    """An array of lists of key and value, or of maps, as a column of headers."""
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
    is_text = pa.types.is_string(key.type) or pa.types.is_large_string(key.type)  # text was checked with the rest
    if not is_text and not has_stored_names(array.type):
        _refuse_bad_text(keys, source, first_row, offsets)
    return HeadersColumn(offsets, keys, binary_column(value))


def has_stored_names(headers: pa.DataType) -> bool:
    """Whether a type of headers is `stored_headers_type`: their names are bytes of a log, whatever they are."""
    pair = headers.value_type if pa.types.is_list(headers) else None
    return pair is not None and pa.types.is_struct(pair) and pair.field(0).metadata == STORED_NAMES


def _lists(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Offsets of the lists in their items, from 0 on, and the items. A null list counts as empty."""
    if pa.types.is_map(array.type):
        pair = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
        array = array.cast(pa.list_(pair))
    lengths, valid = integer_values(pc.list_value_length(array), "headers")
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths if valid is None else np.where(valid, lengths, 0), out=offsets[1:])
    return offsets, _plain(array.flatten())


def _refuse_bad_text(keys: BinaryColumn, source: str, first_row: int, offsets: npt.NDArray[np.int64]) -> None:
    """Raise for header keys that are not UTF-8: Kafka's header keys are strings, and clients would change the bytes."""
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


def refuse_row(source: str, first_row: int, bad: npt.NDArray[np.bool_], what: str) -> None:
    """Raise UnwritableError for the first bad row, if there is one."""
    if bad.any():
        row = first_row + int(np.argmax(bad))
        raise UnwritableError(Reason.COLUMN_VALUE, f"column {source!r}, row {row} {what}", row=row)


def refuse_column(reason: Reason, source: str, what: str) -> NoReturn:
    raise UnwritableError(reason, f"column {source!r}: {what}")


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
