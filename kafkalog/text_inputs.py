"""Lines of text to record batches: the CSV and the JSON lines of an export, and files that others wrote like them.

The counterpart of `kafkalog.text_formats`. Key, value and header values are decoded from base64 or hex, or taken as
UTF-8; everything else is left to `kafkalog.arrow_input`, which sees the same columns as in a Parquet file. What is read
at a time is bounded, and what is wrong is said with its line.
"""

from __future__ import annotations

import binascii
import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from kafkalog.arrow import binary_array
from kafkalog.columns import BinaryColumn, HeadersColumn
from kafkalog.errors import Reason, UnwritableError
from kafkalog.text_formats import bytes_list, check_encoding

BYTES_ROLES: Final = ("key", "value")
NUMBER_ROLES: Final = ("offset", "partition")

MAX_LINE_BYTES: Final = 256 * 2**20
"""A longer line is refused: a record may be 100 MiB as it stands, and more in base64."""
_READ_BYTES: Final = 4 * 2**20
CSV_BLOCK_BYTES: Final = 4 * 2**20

_HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.large_binary(), nullable=False), pa.field("value", pa.large_binary())])
)

Decoder = Callable[[str | bytes], bytes]


def _base64(text: str | bytes) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def _hex(text: str | bytes) -> bytes:
    return binascii.unhexlify(text)


def _utf8(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


DECODERS: Final[dict[str, Decoder]] = {"base64": _base64, "hex": _hex, "utf8": _utf8}


def read_json_lines(stream: BinaryIO, roles: dict[str, str], *, encoding: str = "base64") -> Iterator[pa.RecordBatch]:
    """Record batches out of JSON objects, one a line.

    Parameters
    ----------
    stream : binary file
    roles : dict of str to str
        What columns are, by name: ``{"payload": "value"}``. Those that are not named are what they are called.
    encoding : {"base64", "utf8", "hex"}
        Of keys, values and header values; ``{"base64": ...}`` says its own.

    Raises
    ------
    UnwritableError
        A line that is no object, or a value that is none of a record's; with the line.
    """
    check_encoding(encoding)
    names: dict[str, None] = {}
    line = 1
    while rows := _lines(stream, line):
        objects = [_object(text, line + i) for i, text in enumerate(rows)]
        for each in objects:
            names.update(dict.fromkeys(each))
        columns = {}
        for name in names:
            values = [each.get(name) for each in objects]
            columns[name] = _json_column(roles.get(name, name), name, values, line, encoding)
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        line += len(rows)


def _lines(stream: BinaryIO, line: int) -> list[bytes]:
    """The next lines, of not too many bytes."""
    rows: list[bytes] = []
    n_bytes = 0
    while n_bytes < _READ_BYTES:
        text = stream.readline(MAX_LINE_BYTES + 1)
        if not text:
            break
        if len(text) > MAX_LINE_BYTES:
            raise _refused(Reason.BATCH_TOO_LARGE, line + len(rows), f"it is longer than {MAX_LINE_BYTES} bytes")
        n_bytes += len(text) + 100
        rows.append(text)
    return rows


def _object(text: bytes, line: int) -> dict[str, Any]:
    if not text.strip():
        raise _refused(Reason.COLUMN_VALUE, line, "it is empty where a JSON object is expected")
    try:
        found = json.loads(text.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _refused(Reason.COLUMN_VALUE, line, f"it is no JSON object: {error}") from error
    if not isinstance(found, dict):
        raise _refused(Reason.COLUMN_VALUE, line, f"a JSON object is expected, not {type(found).__name__}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _json_column(role: str, name: str, values: list[Any], line: int, encoding: str) -> pa.Array:
    if role in BYTES_ROLES:
        return _bytes_array(values, name, line, encoding)
    if role == "headers":
        return _headers_array(values, name, line, encoding)
    if role in (*NUMBER_ROLES, "timestamp") and not (role == "timestamp" and any(isinstance(v, str) for v in values)):
        for i, value in enumerate(values):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise _refused(Reason.COLUMN_TYPE, line + i, f"{name} is a whole number, not {_shown(value)}")
            if value is not None and not -(2**63) <= value < 2**63:
                raise _refused(Reason.COLUMN_VALUE, line + i, f"{name} does not fit 64 bits: {_shown(value)}")
        return _integers(values)
    if role == "timestamp":
        values = [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
    if role == "timestamp" or all(value is None or isinstance(value, str) for value in values):
        for i, value in enumerate(values):
            if value is not None and not isinstance(value, str):
                raise _refused(Reason.COLUMN_TYPE, line + i, f"{name} is text in other lines, not {_shown(value)}")
        texts = _strings(values, name, line)
        return _moments(texts, name) if role == "timestamp" else texts
    if all(value is None or isinstance(value, bool) for value in values):
        return pa.array(values, pa.bool_())
    return pa.nulls(len(values))  # of a column that no record has: whether that is right is not decided here


def _strings(values: Sequence[str | None], name: str, line: int) -> pa.Array:
    try:
        return binary_array(_binary([None if v is None else v.encode() for v in values]), pa.large_binary()).cast(
            pa.large_string()
        )
    except UnicodeEncodeError as error:
        raise UnwritableError(
            Reason.COLUMN_VALUE, f"column {name!r}, behind line {line}: half a surrogate is no text"
        ) from error


def _integers(values: list[int | None]) -> pa.Array:
    valid = np.array([value is not None for value in values], np.bool_)
    numbers = np.array([value or 0 for value in values], np.int64)
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(values), [bitmap, pa.py_buffer(numbers)])


def _binary(values: Sequence[bytes | None]) -> BinaryColumn:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join([value for value in values if value]), np.uint8)
    valid = None
    if any(value is None for value in values):
        valid = np.array([value is not None for value in values], np.bool_)
    return BinaryColumn(offsets, data, valid)


def _bytes_array(values: Sequence[Any], name: str, line: int, encoding: str) -> pa.Array:
    decode = DECODERS[encoding]
    try:
        if all(value is None or type(value) in (str, bytes) for value in values):
            plain = [None if value is None else decode(value) if value else b"" for value in values]
            return binary_array(_binary(plain), pa.large_binary())
    except ValueError:
        pass  # the value that is to blame is found below
    decoded = [_decoded(value, decode, encoding, name, line + i) for i, value in enumerate(values)]
    return binary_array(_binary(decoded), pa.large_binary())


def _decoded(value: Any, decode: Decoder, encoding: str, name: str, line: int) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            return decode(value)
        if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
            return _base64(value["base64"])
    except ValueError as error:
        hint = " (encoding, --encoding, says what it is)" if encoding != "utf8" else ""
        raise _refused(
            Reason.COLUMN_VALUE, line, f"{name} is not {encoding}: {_shown(value)}: {error}{hint}"
        ) from error
    raise _refused(Reason.COLUMN_TYPE, line, f"{name} is text in {encoding}, or null, not {_shown(value)}")


def _headers_array(values: Sequence[Any], name: str, line: int, encoding: str) -> pa.Array:
    """Headers out of ``[[name, value], ...]``, as JSON or as JSON text."""
    decode = DECODERS[encoding]
    offsets = np.zeros(len(values) + 1, np.int64)
    keys: list[bytes | None] = []
    contents: list[bytes | None] = []
    for i, value in enumerate(values):
        for pair in () if value in (None, "", "[]", b"[]") else _pairs(value, name, line + i):
            try:
                keys.append(pair[0].encode())
            except UnicodeEncodeError as error:
                detail = f"{name}: half a surrogate is no name: {_shown(pair[0])}"
                raise _refused(Reason.COLUMN_VALUE, line + i, detail) from error
            contents.append(_decoded(pair[1], decode, encoding, name, line + i))
        offsets[i + 1] = len(keys)
    return headers_array_of(HeadersColumn(offsets, _binary(keys), _binary(contents)))


def headers_array_of(column: HeadersColumn) -> pa.Array:
    """Headers in Arrow, with the bytes of their names as they are."""
    items = pa.StructArray.from_arrays(
        [binary_array(column.key, pa.large_binary()), binary_array(column.value, pa.large_binary())],
        fields=list(_HEADERS_TYPE.value_type),
    )
    offsets = pa.py_buffer(column.offsets.astype(np.int32))
    return pa.Array.from_buffers(_HEADERS_TYPE, len(column), [None, offsets], 0, children=[items])


def _pairs(value: Any, name: str, line: int) -> list[tuple[str, Any]]:
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise _refused(Reason.COLUMN_VALUE, line, f"{name} is no JSON: {error}") from error
    if isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        return [(pair[0], pair[1]) for pair in value]
    raise _refused(Reason.COLUMN_TYPE, line, f'{name} is a list of ["name", "value"], not {_shown(value)}')


class LongRowError(UnwritableError):
    """A row of CSV that is longer than a block."""


def read_csv(
    stream: BinaryIO,
    roles: dict[str, str],
    *,
    encoding: str = "base64",
    null: str = "",
    block_bytes: int = CSV_BLOCK_BYTES,
) -> Iterator[pa.RecordBatch]:
    r"""Record batches out of CSV with a line of names.

    Parameters
    ----------
    stream : binary file
    roles : dict of str to str
        See `read_json_lines`.
    encoding : {"base64", "utf8", "hex"}
        Of keys and values; header values are base64 where this is, or where `utf8` could not show them.
    null : str
        What stands for null where it is not in quotes.
    block_bytes : int
        Read at a time; any row of this length fits.

    Raises
    ------
    LongRowError
        A row is longer: it may be read with larger blocks.
    UnwritableError
        The text is no CSV, or a value is none of a record's.
    """
    check_encoding(encoding)
    names = _csv_names(stream)
    types = {name: _csv_type(roles.get(name, name)) for name in names}
    line = 2
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, types[name]) for name in names], names=names)
    yield _decoded_batch(empty, roles, 2, encoding)  # columns are judged also where there are no records
    try:
        with pa.csv.open_csv(
            pa.PythonFile(_Counted(stream), mode="r"),
            pa.csv.ReadOptions(column_names=names, block_size=block_bytes, use_threads=False),
            # of a single column an empty line is a null
            pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1),
            pa.csv.ConvertOptions(
                column_types=types, null_values=[null], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        ) as reader:
            for batch in reader:
                yield _decoded_batch(batch, roles, line, encoding)
                line += batch.num_rows
    except pa.ArrowInvalid as error:
        text = " ".join(str(error).split())
        if line == 2 and text.startswith("Empty CSV"):
            return
        if "straddling object" in text:
            detail = f"behind line {line - 1}: a row is longer than {block_bytes} bytes"
            raise LongRowError(Reason.BATCH_TOO_LARGE, detail) from error
        raise UnwritableError(Reason.COLUMN_VALUE, f"no CSV of records (behind line {line - 1}): {text}") from error


class _Counted(io.RawIOBase):
    """What is left of a stream, for Arrow, which would close it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        return self._stream.read(n)


def _csv_names(stream: BinaryIO) -> list[str]:
    text = stream.readline(2**20)
    try:
        line = text.decode("utf-8-sig")
        names = next(csv.reader([line]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnwritableError(Reason.COLUMN_VALUE, f"line 1 is no line of column names: {error}") from error
    if not any(names):
        raise UnwritableError(Reason.COLUMN_MISSING, "line 1 is no line of column names: it is empty")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise UnwritableError(Reason.COLUMN_TWICE, f"there is more than one column {', '.join(map(repr, twice))}")
    return names


def _csv_type(role: str) -> pa.DataType:
    if role in NUMBER_ROLES:
        return pa.int64()
    return pa.binary() if role in BYTES_ROLES or role == "headers" else pa.string()


def _decoded_batch(batch: pa.RecordBatch, roles: dict[str, str], line: int, encoding: str) -> pa.RecordBatch:
    arrays = []
    for name in batch.schema.names:
        column = batch.column(name)
        role = roles.get(name, name)
        if role in BYTES_ROLES:
            column = column if encoding == "utf8" else _bytes_array(bytes_list(column), name, line, encoding)
        elif role == "headers":
            column = _headers_array(bytes_list(column), name, line, encoding)
        elif role == "timestamp":
            column = _moments(column, name)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _moments(texts: pa.Array, name: str) -> pa.Array:
    """Timestamps out of text: milliseconds, or ISO 8601; none where there is no text."""
    texts = pc.if_else(pc.equal(texts, pa.scalar("", texts.type)), pa.scalar(None, texts.type), texts)
    try:
        return pc.cast(texts, pa.int64())
    except pa.ArrowInvalid:
        pass
    for kind in (pa.timestamp("ns", "UTC"), pa.timestamp("ns")):
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid as error:
            problem = error
    text = " ".join(str(problem).split())
    raise UnwritableError(
        Reason.COLUMN_VALUE, f"column {name!r}: milliseconds, or ISO 8601 with Z or an offset, are expected: {text}"
    ) from problem


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refused(reason: Reason, line: int, detail: str) -> UnwritableError:
    return UnwritableError(reason, f"line {line}: {detail}")
