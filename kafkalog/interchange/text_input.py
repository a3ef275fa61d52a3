"""Lines of text to record batches: the CSV and the JSON lines of an export, and files that others wrote like them.

The counterpart of `kafkalog.interchange.text_output`. Key, value and header values are decoded from base64 or hex, or taken as
UTF-8; numbers and timestamps are those of `kafkalog.interchange.text_numbers`; everything else is left to `kafkalog.interchange.arrow_input`,
which sees the same columns as in a Parquet file. What is read at a time is bounded, and what is wrong is said with its
line.
"""

from __future__ import annotations

import binascii
import codecs
import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.arrow_output import binary_array
from kafkalog.interchange.csv_lines import RowLines, WatchedStream
from kafkalog.interchange.text_numbers import (
    Place,
    integer_array,
    milliseconds,
    refuse_early,
    shown,
    texts_of,
    whole_numbers,
)
from kafkalog.interchange.text_output import bytes_list, check_encoding
from kafkalog.records.columns import BinaryColumn, HeadersColumn

BYTES_ROLES: Final = ("key", "value")
NUMBER_ROLES: Final = ("offset", "partition")

MAX_LINE_BYTES: Final = 256 * 2**20
"""A longer line is refused: a record may be 100 MiB as it stands, and more in base64."""
_READ_BYTES: Final = 4 * 2**20
CSV_BLOCK_BYTES: Final = 4 * 2**20
_MAX_NAMES_BYTES: Final = 2**20
_UNEVEN: Final = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
"""What Arrow says about a row; it counts from 1."""

_HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.large_binary(), nullable=False), pa.field("value", pa.large_binary())])
)
_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(BYTES_ROLES, pa.large_binary()),
    **dict.fromkeys((*NUMBER_ROLES, "timestamp"), pa.int64()),
    "headers": _HEADERS_TYPE,
    "topic": pa.large_string(),
    "is_control": pa.bool_(),
}
"""What columns become, by what they are."""

Decoder = Callable[[str | bytes], bytes]
Names = Callable[[pa.Schema], Sequence[str]]
"""Which columns of a schema are wanted; UnwritableError for columns that nothing can be made of."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How texts become values.

    Parameters
    ----------
    roles : mapping of str to str
        What columns are, by name: ``{"payload": "value"}``. Those that are not named are what they are called.
    encoding : {"base64", "utf8", "hex"}
        Of keys, values and header values. In JSON ``{"base64": ...}`` says its own; in CSV header values are base64
        where this is, or where `utf8` could not show them.
    null : str
        What stands for null in CSV where it is not in quotes.
    naive_timezone, truncate_timestamps
        See `kafkalog.interchange.arrow_input.record_slices`.
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "base64"
    null: str = ""
    naive_timezone: str | None = None
    truncate_timestamps: bool = False

    def __post_init__(self) -> None:
        check_encoding(self.encoding)

    def wanted_roles(self, names: Sequence[str], wanted: Names) -> dict[str, str]:
        """The columns that count, in their order, and what they are."""
        named = set(self.roles.values())
        roles = {name: self.roles.get(name, "" if name in named else name) for name in names}
        kept = set(wanted(pa.schema([(name, _TYPES.get(role, pa.null())) for name, role in roles.items()])))
        return {name: role for name, role in roles.items() if name in kept}


def _base64(text: str | bytes) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        data = text.encode() if isinstance(text, str) else text
        if b"\n" not in data:
            raise
        # in lines, as encode() of Postgres, base64 and MIME write it
        return binascii.a2b_base64(data.replace(b"\r", b"").replace(b"\n", b""), strict_mode=True)


def _hex(text: str | bytes) -> bytes:
    # Postgres writes its bytes as \\x00ff
    return binascii.unhexlify(text[2:] if text[:2] in ("\\x", b"\\x") else text)


def _utf8(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


DECODERS: Final[dict[str, Decoder]] = {"base64": _base64, "hex": _hex, "utf8": _utf8}


def read_json_lines(stream: BinaryIO, options: TextOptions, wanted: Names) -> Iterator[pa.RecordBatch]:
    """Record batches out of JSON objects, one a line; blank lines are passed over.

    Parameters
    ----------
    stream : binary file
    options : TextOptions
    wanted : callable
        Which columns count; the others are not looked at.

    Raises
    ------
    UnwritableError
        A line that is no object, or a value that is none of a record's; with the line.

    Notes
    -----
    What a line does not name is null, but for the value: null there is a tombstone, and has to be said.
    """
    names: dict[str, None] = {}
    roles: dict[str, str] = {}
    for lines, texts in _lines(stream):
        objects = [_object(text, line) for text, line in zip(texts, lines, strict=True)]
        n_known = len(names)
        for each in objects:
            names.update(dict.fromkeys(each))
        if len(names) > n_known or not roles:
            roles = options.wanted_roles(list(names), wanted)
        columns = []
        for name, role in roles.items():
            place = Place(name, lines.__getitem__)
            if role == "value":
                _refuse_absent(objects, place)
            columns.append(_json_column(role, [each.get(name) for each in objects], place, options))
        yield pa.RecordBatch.from_arrays(columns, names=list(roles))


def _lines(stream: BinaryIO) -> Iterator[tuple[list[int], list[bytes]]]:
    """Lines that are not blank, of not too many bytes at a time, and which they are."""
    line, n_bytes = 0, 0
    lines: list[int] = []
    texts: list[bytes] = []
    while text := stream.readline(MAX_LINE_BYTES + 1):
        line += 1
        if len(text) > MAX_LINE_BYTES:
            raise _refused(Reason.BATCH_TOO_LARGE, line, f"it is longer than {MAX_LINE_BYTES} bytes")
        if line == 1:
            text = text.removeprefix(codecs.BOM_UTF8)
        if not text.isspace() and text:
            lines.append(line)
            texts.append(text)
            n_bytes += len(text) + 100
        if n_bytes >= _READ_BYTES:
            yield lines, texts
            lines, texts, n_bytes = [], [], 0
    if texts:
        yield lines, texts


def _object(text: bytes, line: int) -> dict[str, Any]:
    try:
        found = json.loads(text.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        is_torn = isinstance(error, json.JSONDecodeError) and not text.rstrip().endswith(b"}")
        hint = " (an object a line is expected: jq -c makes that of others)" if is_torn else ""
        raise _refused(Reason.COLUMN_VALUE, line, f"it is no JSON object: {error}{hint}") from error
    if not isinstance(found, dict):
        hint = " (jq -c '.[]' makes lines of its items)" if isinstance(found, list) else ""
        raise _refused(Reason.COLUMN_VALUE, line, f"a JSON object is expected, not {type(found).__name__}{hint}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _refuse_absent(objects: Sequence[dict[str, Any]], place: Place) -> None:
    """A line without a value is a mistake: it would be a tombstone, and delete."""
    for row, each in enumerate(objects):
        if place.name not in each:
            name = json.dumps(place.name, ensure_ascii=False)
            what = f"is not there, as it is in other lines (a tombstone has to say so: {name}: null)"
            raise place.refused(row, what, reason=Reason.COLUMN_MISSING)


def _json_column(role: str, values: list[Any], place: Place, options: TextOptions) -> pa.Array:
    if role in BYTES_ROLES:
        return _bytes_array(values, place, options.encoding)
    if role == "headers":
        return _headers_array(values, place, options.encoding)
    if role == "topic":
        return _topics(values, place)
    if role in NUMBER_ROLES:
        return _numbers(values, place)
    if role == "timestamp":
        return _timestamps(values, place, options)
    return pa.array([value is True for value in values], pa.bool_())  # is_control


def _numbers(values: Sequence[Any], place: Place) -> pa.Array:
    numbers = np.zeros(len(values), np.int64)
    for row, value in enumerate(values):
        if value is not None:
            numbers[row] = _number(value, row, place)
    return integer_array(numbers, np.array([value is not None for value in values], np.bool_))


def _number(value: Any, row: int, place: Place) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise place.refused(row, f"is a whole number, not {shown(value)}", reason=Reason.COLUMN_TYPE)
    if not -(2**63) <= value < 2**63:
        raise place.refused(row, f"does not fit 64 bits: {shown(value)}")
    return value


def _timestamps(values: Sequence[Any], place: Place, options: TextOptions) -> pa.Array:
    if any(isinstance(value, str) for value in values):
        texts = [
            value if value is None or isinstance(value, str) else str(_number(value, row, place))
            for row, value in enumerate(values)
        ]
        return _milliseconds(_strings(texts, place), place, options)
    numbers = _numbers(values, place)
    refuse_early(numbers, values, place)
    return numbers


def _milliseconds(texts: pa.Array, place: Place, options: TextOptions) -> pa.Array:
    return milliseconds(texts, place, naive_timezone=options.naive_timezone, truncate=options.truncate_timestamps)


def _topics(values: Sequence[Any], place: Place) -> pa.Array:
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise place.refused(row, f"is text, not {shown(value)}", reason=Reason.COLUMN_TYPE)
    return _strings(values, place)


def _strings(values: Sequence[str | None], place: Place) -> pa.Array:
    encoded = []
    for row, value in enumerate(values):
        try:
            encoded.append(None if value is None else value.encode())
        except UnicodeEncodeError as error:
            raise place.refused(row, f"holds half a surrogate, which is no text: {shown(value)}") from error
    return binary_array(_binary(encoded), pa.large_binary()).cast(pa.large_string())


def _binary(values: Sequence[bytes | None]) -> BinaryColumn:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join([value for value in values if value]), np.uint8)
    valid = None
    if any(value is None for value in values):
        valid = np.array([value is not None for value in values], np.bool_)
    return BinaryColumn(offsets, data, valid)


def _bytes_array(values: Sequence[Any], place: Place, encoding: str) -> pa.Array:
    decode = DECODERS[encoding]
    try:
        if all(value is None or type(value) in (str, bytes) for value in values):
            plain = [None if value is None else decode(value) if value else b"" for value in values]
            return binary_array(_binary(plain), pa.large_binary())
    except ValueError:
        pass  # the value that is to blame is found below
    decoded = [_decoded(value, row, place, decode, encoding) for row, value in enumerate(values)]
    return binary_array(_binary(decoded), pa.large_binary())


def _decoded(value: Any, row: int, place: Place, decode: Decoder, encoding: str) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            return decode(value)
        if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
            return _base64(value["base64"])
    except ValueError as error:
        hint = " (encoding, --encoding, says what it is)" if encoding != "utf8" else ""
        raise place.refused(row, f"is not {encoding}: {shown(value)}: {error}{hint}") from error
    hint = " (make it text, with tojson of jq for example, and say that it is utf8: encoding, --encoding)"
    what = f"is text in {encoding}, or null, not {shown(value)}{hint}"
    raise place.refused(row, what, reason=Reason.COLUMN_TYPE)


def _headers_array(values: Sequence[Any], place: Place, encoding: str) -> pa.Array:
    """Headers out of ``[[name, value], ...]``, as JSON or as JSON text."""
    decode = DECODERS[encoding]
    offsets = np.zeros(len(values) + 1, np.int64)
    keys: list[bytes | None] = []
    contents: list[bytes | None] = []
    for row, value in enumerate(values):
        for pair in () if value in (None, "", "[]", b"", b"[]") else _pairs(value, row, place):
            try:
                keys.append(pair[0].encode())
            except UnicodeEncodeError as error:
                what = f"has half a surrogate in a name, which is no text: {shown(pair[0])}"
                raise place.refused(row, what) from error
            contents.append(_decoded(pair[1], row, place, decode, encoding))
        offsets[row + 1] = len(keys)
    return headers_array_of(HeadersColumn(offsets, _binary(keys), _binary(contents)))


def headers_array_of(column: HeadersColumn) -> pa.Array:
    """Headers in Arrow, with the bytes of their names as they are."""
    items = pa.StructArray.from_arrays(
        [binary_array(column.key, pa.large_binary()), binary_array(column.value, pa.large_binary())],
        fields=list(_HEADERS_TYPE.value_type),
    )
    offsets = pa.py_buffer(column.offsets.astype(np.int32))
    return pa.Array.from_buffers(_HEADERS_TYPE, len(column), [None, offsets], 0, children=[items])


def _pairs(value: Any, row: int, place: Place) -> list[tuple[str, Any]]:
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise place.refused(row, f"is no JSON: {error}") from error
    if isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        return [(pair[0], pair[1]) for pair in value]
    raise place.refused(row, f'is a list of ["name", "value"], not {shown(value)}', reason=Reason.COLUMN_TYPE)


class LongRowError(UnwritableError):
    """A row of CSV that is longer than a block."""


def read_csv(
    stream: BinaryIO, options: TextOptions, wanted: Names, *, block_bytes: int = CSV_BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    r"""Record batches out of CSV with a line of names.

    Parameters
    ----------
    stream : binary file
    options, wanted
        See `read_json_lines`.
    block_bytes : int
        Read at a time; any row of this length fits.

    Raises
    ------
    LongRowError
        A row is longer: it may be read with larger blocks.
    UnwritableError
        The text is no CSV, or a value is none of a record's; with the line.
    """
    names, line = _csv_names(stream)
    try:
        roles = options.wanted_roles(names, wanted)
    except UnwritableError as error:
        if len(names) == 1 and set(names[0]) & set(";\t|"):
            error.add_note("only commas stand between columns here")
        elif "" in names and error.reason is Reason.COLUMN_UNKNOWN:
            error.add_note("a column without a name is the index that pandas writes unless index=False")
        raise
    # columns are judged also where there are no records
    yield pa.RecordBatch.from_arrays([pa.nulls(0, _TYPES[role]) for role in roles.values()], names=list(roles))
    watched = WatchedStream(stream, line)
    is_single = len(names) == 1  # of a single column an empty line is a null
    lines = RowLines(watched, line, has_blank=not is_single)
    n_done, last = 0, None
    try:
        with pa.csv.open_csv(
            pa.PythonFile(watched, mode="r"),
            pa.csv.ReadOptions(column_names=names, block_size=block_bytes, use_threads=False),
            pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not is_single),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[options.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ) as reader:
            for batch in reader:
                yield _decoded_batch(batch, roles, lines, options)
                lines.skip(batch)
                n_done += batch.num_rows
                last = batch.column(batch.num_columns - 1)[-1:]
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):
            raise _no_csv(str(error), lines, n_done, block_bytes) from error
    open_line = None if last is None else watched.open_quote(last.to_pylist()[0])
    if open_line is not None:
        raise _refused(Reason.COLUMN_VALUE, open_line, "a quote has no end: is the file whole?")


def _no_csv(text: str, lines: RowLines, n_done: int, block_bytes: int) -> UnwritableError:
    """What Arrow finds wrong behind so many rows."""
    uneven = _UNEVEN.search(text)
    if uneven is not None:
        line = lines.line_ahead(int(uneven[1]) - 1 - n_done)
        what = f"{uneven[2]} columns are expected, not {uneven[3]}: {shown(uneven[4])}"
        return _refused(Reason.COLUMN_VALUE, line, what)
    line = lines.line_ahead(0)
    if "straddling object" in text:
        what = f"this row, or one behind it, is longer than {block_bytes} bytes, or has a quote without end"
        return LongRowError(Reason.BATCH_TOO_LARGE, f"line {line}: {what}")
    return _refused(Reason.COLUMN_VALUE, line, f"this or what is behind it is no CSV: {' '.join(text.split())}")


def _csv_names(stream: BinaryIO) -> tuple[list[str], int]:
    """The names of the columns, and the line behind them."""
    reader = csv.reader(_first_lines(stream), strict=True)
    try:
        names = next(reader, [])
    except (UnicodeDecodeError, csv.Error) as error:
        problem = "it ends in CR alone" if "new-line" in str(error) else error
        raise UnwritableError(Reason.COLUMN_VALUE, f"line 1 is no line of column names: {problem}") from error
    if not any(names):
        raise UnwritableError(Reason.COLUMN_MISSING, "line 1 is no line of column names: it is empty")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise UnwritableError(Reason.COLUMN_TWICE, f"there is more than one column {', '.join(map(repr, twice))}")
    return names, reader.line_num + 1


def _first_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines as they are asked for, of not too many bytes."""
    encoding, left = "utf-8-sig", _MAX_NAMES_BYTES
    while text := stream.readline(left):
        left -= len(text)
        if not left:
            raise csv.Error(f"it is longer than {_MAX_NAMES_BYTES} bytes")
        yield text.decode(encoding)
        encoding = "utf-8"


def _decoded_batch(
    batch: pa.RecordBatch, roles: Mapping[str, str], lines: RowLines, options: TextOptions
) -> pa.RecordBatch:
    arrays = [
        _csv_column(role, batch.column(name), Place(name, lambda row: lines.line(batch, row)), options)
        for name, role in roles.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(roles))


def _csv_column(role: str, column: pa.Array, place: Place, options: TextOptions) -> pa.Array:
    if role in BYTES_ROLES:
        return column if options.encoding == "utf8" else _bytes_array(bytes_list(column), place, options.encoding)
    if role == "headers":
        return _headers_array(bytes_list(column), place, options.encoding)
    texts = texts_of(column, place)
    if role in NUMBER_ROLES:
        return whole_numbers(texts, place)
    if role == "timestamp":
        return _milliseconds(texts, place, options)
    if role == "is_control":
        return pc.is_in(pc.utf8_lower(texts), pa.array(["true", "t", "1"]))
    return texts


def _refused(reason: Reason, line: int, detail: str) -> UnwritableError:
    return UnwritableError(reason, f"line {line}: {detail}")
