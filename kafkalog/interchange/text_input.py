"""Reads CSV and JSON lines into record batches: those of an export, and similar files from other tools.

The counterpart of `kafkalog.interchange.text_output`. `kafkalog.interchange.text_values` converts text to values.
`kafkalog.interchange.arrow_input` decides what the columns mean; it gets the same columns as from a Parquet file.
Files are read in bounded parts, and error messages have the line number.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from kafkalog.column_names import ALL_COLUMNS
from kafkalog.errors import Reason, UnknownNameError, UnwritableError
from kafkalog.interchange.arrow_buffers import no_rows
from kafkalog.interchange.arrow_output import HEADER_FIELD
from kafkalog.interchange.table_types import json_text
from kafkalog.interchange.text_output import bytes_list, check_encoding
from kafkalog.interchange.text_values import (
    HEADERS_TYPE,
    JSON_HEADERS_TYPE,
    SourceColumn,
    byte_strings,
    bytes_array,
    header_lists,
    json_object,
    json_table,
    json_types,
    milliseconds,
    shown,
    tagged_strings,
    texts_of,
    whole_numbers,
)

BYTES_ROLES: Final = ("key", "value")
NUMBER_ROLES: Final = ("offset", "partition", "timestamp_type")

MAX_LINE_BYTES: Final = 256 * 2**20
"""A longer line is rejected. Records of 100 MiB are plausible, and base64 makes them a third larger."""
_READ_BYTES: Final = 4 * 2**20
_MOST_LINES: Final = 2**15
CSV_BLOCK_BYTES: Final = 4 * 2**20
_MAX_NAMES_BYTES: Final = 2**20
_END_BYTES: Final = 2**16
_UNEVEN: Final = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
"""Arrow's error message about a row; rows count from 1."""
_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(BYTES_ROLES, pa.large_binary()),
    **dict.fromkeys((*NUMBER_ROLES, "timestamp"), pa.int64()),
    "headers": HEADERS_TYPE,
    "topic": pa.large_string(),
    "is_control": pa.bool_(),
}
JSON_ROW: Final = "__row"
"""A column with the JSON text of what rows have besides columns of records."""
_TYPED: Final = "__role."
_RECORD_ROLES: Final = ("key", "timestamp", "headers", "offset", "partition", "topic")
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_TOKENS: Final = (_NUMBER, "^(true|false)$")
"""Text that is a number or a boolean of JSON as it stands."""
_LONG_FRACTION: Final = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]*[1-9]")
_DOUBLE_DIGITS: Final = 17
_NO_HEADERS: Final = pa.array([b"[]", b"", None], pa.binary())
_JSON_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys((*BYTES_ROLES, "topic"), pa.string()),
    **dict.fromkeys((*NUMBER_ROLES, "timestamp"), pa.int64()),
    "headers": JSON_HEADERS_TYPE,
    "is_control": pa.bool_(),
}

OF_DECODING: Final = ("key_error", "key_bytes", "value_error", "value_bytes")
"""Columns of an export with decoded keys and values: why they did not decode, and what they were."""
TYPE_ROLE: Final = "timestamp_type"
_OF_EXPORTS: Final = frozenset({TYPE_ROLE, *OF_DECODING})
"""Columns that only exports have."""

# returns the columns of a schema that are wanted; raises UnwritableError for columns that cannot be used
Names = Callable[[pa.Schema], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How text is converted to values.

    `roles` are those of columns by name: ``{"payload": "value"}``; the role of any other column is its name. `encoding`
    is that of keys, values and header values. A JSON object ``{"base64": ...}`` overrides it for one value, in CSV
    with utf8 only. Default: base64 for what an export wrote, utf8 for other rows. Without rows,
    other files need a choice: they seldom have base64, and text such as ``abcd`` is valid base64. `null` is unquoted
    text that means null in CSV.
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None
    null: str = ""
    naive_timezone: str | None = None
    truncate_timestamps: bool = False
    has_rows: bool = False
    """The file has rows of any columns, for `kafkalog.operations.loading.rows`."""
    headers_of_rows: Sequence[str] = ()
    """Columns of rows that become headers."""
    text_columns: Sequence[str] = ()
    """Roles of `key` and `value` whose cells are text, and not JSON."""
    is_key_decoded: bool = False
    """Whether the keys of rows are values to encode, and not bytes."""
    is_key_unclear: bool = False
    is_value_decoded: bool = True
    """Whether the values of rows are values to encode, and not bytes in a column `value`."""
    of_value: Collection[str] = ()
    """Columns named like those of a record that are in the value of a row: an option says what the record has."""
    left_out: Collection[str] = ()
    """Columns that are not in the value of a row; `for_columns` finds them."""
    kept_as_text: Collection[str] = ()
    """Columns of rows in CSV that stay text."""
    guesses_types: bool = False
    """Whether columns of such rows in CSV become numbers and booleans where all their values are some."""

    def __post_init__(self) -> None:
        if self.encoding is not None:
            check_encoding(self.encoding)

    def for_columns(self, names: Sequence[str]) -> TextOptions:
        """These options with an encoding, for a file with columns of these names."""
        if self.has_rows:
            value = {role: name for name, role in self.roles.items()}.get("value", "value")
            left_out = columns_of_records(names, value, self.of_value)
            named = replace(self, left_out=left_out - self.roles.keys())
            if named != self:
                return named.for_columns(names)
        default = "base64" if not _OF_EXPORTS.isdisjoint(names) else "utf8" if self.has_rows else None
        if self.encoding is not None or default is None:
            return self
        # an export with rows has base64 keys, unless it decoded them
        is_key_unclear = self.has_rows and default == "base64" and not self.is_key_decoded and "key" not in self.roles
        return replace(self, encoding=default, is_key_unclear=is_key_unclear)

    def check_key(self, n_keys: int) -> None:
        """Raise UnwritableError for keys that may be text or base64."""
        if self.is_key_unclear and n_keys:
            detail = (
                "keys of an export may be text or base64: choose key_format, as in the export (--key-format), or"
                " encoding base64 (--encoding base64)"
            )
            raise UnwritableError(Reason.COLUMN_TYPE, detail)

    def row_roles(self, names: Sequence[str]) -> dict[str, str]:
        """Which columns of rows supply what a record has, by role; `value` is one of them if a column has values.

        Raises UnwritableError if a column that is named is not there.
        """
        named = {role: name for name, role in self.roles.items()}
        check_columns((*named.values(), *self.headers_of_rows), names)
        usual = ((role, named.get(role, role)) for role in (*_RECORD_ROLES, TYPE_ROLE, "value", *OF_DECODING))
        roles = {role: name for role, name in usual if name in names and (role in named or name in self.left_out)}
        headers = {f"{HEADER_FIELD}{name}": name for name in self.headers_of_rows}
        return roles | {name: name for name in names if name.startswith(HEADER_FIELD)} | headers

    def fields_of_rows(self, names: Iterable[str]) -> list[str]:
        """The columns that are in the value of a row: all but those of records, unless they are named for a record."""
        left_out = {*self.left_out, *self.headers_of_rows}
        return [name for name in names if name not in left_out and not name.startswith(HEADER_FIELD)]

    def wanted_roles(self, names: Sequence[str], wanted: Names) -> dict[str, str]:
        """The wanted columns in their order, and their roles."""
        named = set(self.roles.values())
        roles = {name: self.roles.get(name, "" if name in named else name) for name in names}
        kept = set(wanted(pa.schema([(name, _type_of(role)) for name, role in roles.items()])))
        chosen = {name: role for name, role in roles.items() if name in kept}
        encoded = [name for name, role in chosen.items() if has_bytes(role) or role == "headers"]
        if encoded and self.encoding is None:
            detail = "may be text or base64: choose encoding utf8 (--encoding utf8), or base64, as an export writes"
            raise UnwritableError(Reason.COLUMN_TYPE, f"{' and '.join(encoded)} {detail}")
        return chosen


def has_bytes(role: str) -> bool:
    """Whether columns of a role are byte strings: keys, values, and values of one header."""
    return role in (*BYTES_ROLES, "key_bytes", "value_bytes") or role.startswith(HEADER_FIELD)


def columns_of_records(names: Collection[str], value: str, of_value: Collection[str]) -> frozenset[str]:
    """The columns of rows that are not in their value, of all that there are: those of records.

    `value` is the column with the value, if it is there. What only exports have is of a record in exports alone. The
    columns `of_value` are in the value, unless it is a column of its own or the rows are an export.
    """
    is_export = not _OF_EXPORTS.isdisjoint(names)
    usual = {*_RECORD_ROLES, "value", *(ALL_COLUMNS if is_export else ()), *(OF_DECODING if value in names else ())}
    return frozenset(usual.difference(() if is_export or value in names else of_value))


def _type_of(role: str) -> pa.DataType:
    return pa.large_binary() if has_bytes(role) else _TYPES.get(role, pa.null())


def check_columns(wanted: Iterable[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise UnknownNameError(f"there is no column {name!r}: there are {', '.join(names)}")


def read_json_lines(stream: BinaryIO, options: TextOptions, wanted: Names) -> Iterator[pa.RecordBatch]:
    """Read the wanted columns of JSON objects, one per line; blank lines are skipped.

    A name that is missing in a line is null there, except the value: a null value is a tombstone, and has to be given
    explicitly. Raises UnwritableError with the line number if a line is no object, or a value cannot be that of a
    record.
    """
    usual = {**_JSON_TYPES, **{name: _JSON_TYPES[role] for name, role in options.roles.items()}}
    types: dict[str, pa.DataType] = {}
    roles: dict[str, str] = {}
    for first_line, data in _blocks(stream):
        columns: list[pa.Array] | None = None
        # all types are explicit: guessed ones depend on where a block ends
        if not types:
            types = json_types(
                [json_object(text, line) for line, text in itertools.islice(_lines(first_line, data), 1)], usual
            )
            options = options.for_columns(list(types))
        # a whole block at once where it is regular, and line by line where it is not
        table = json_table(data, types)
        if table is not None:
            roles = roles or options.wanted_roles(list(types), wanted)
            with contextlib.suppress(UnwritableError):  # reading line by line finds which line it is
                columns = _arrow_columns(table, roles, options)
        if columns is None:
            texts = list(_lines(first_line, data))
            if not texts:
                continue
            lines = [line for line, _ in texts]
            objects = [json_object(text, line) for line, text in texts]
            found = json_types(objects, usual)
            if not roles or not types.keys() >= found.keys():
                roles = options.wanted_roles(list({**types, **found}), wanted)
            types.update(found)
            columns = []
            for name, role in roles.items():
                column = SourceColumn(name, partial(_line, lines))
                if role == "value":
                    _refuse_absent(objects, column)
                columns.append(_json_column(role, [each.get(name) for each in objects], column, options))
        yield pa.RecordBatch.from_arrays(columns, names=list(roles))


def read_json_rows(stream: BinaryIO, options: TextOptions) -> Iterator[pa.RecordBatch]:
    """Read rows from JSON objects, one per line: columns of records by their names, and `JSON_ROW`.

    Raises UnwritableError if a line is not an object, or a value cannot be that of a record's column.
    """
    roles: dict[str, str] = {}
    own: set[str] = set()
    for first_line, data in _blocks(stream):
        texts = list(_lines(first_line, data))
        if not texts:
            continue
        lines = [line for line, _ in texts]
        objects = [json_object(text, line, keeps_digits=True) for line, text in texts]
        there = list(dict.fromkeys(name for each in objects for name in each))
        if not roles:
            options = options.for_columns(there)
            roles, own = options.row_roles(there), {*options.of_value} - {*options.left_out}
        elif late := sorted({name for name in there if name in _RECORD_ROLES} - {*roles, *options.roles, *own}):
            raise _refused(
                Reason.COLUMN_UNKNOWN, first_line, f"{late[0]} is missing in earlier lines; it must be in all lines"
            )
        made = {}
        for role, name in roles.items():
            if role != "value" or not options.is_value_decoded:
                column = SourceColumn(name, partial(_line, lines))
                made[role] = _json_row_column(role, [each.get(name) for each in objects], column, options)
        made[JSON_ROW] = _json_texts(_decoded_values(objects, roles, options))
        yield pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _json_row_column(role: str, cells: list[Any], column: SourceColumn, options: TextOptions) -> pa.Array:
    """The function that returns a part of the record of each row."""
    if role == "key":
        options.check_key(len(cells) - cells.count(None))
        if options.is_key_decoded:
            return _json_texts(cells)
    if (column.name in options.roles and role == "key") or column.name in options.headers_of_rows:
        return _texts(cells)
    return _json_column(role, cells, column, options)


def _decoded_values(
    objects: Sequence[Mapping[str, object]], roles: Mapping[str, str], options: TextOptions
) -> Sequence[object]:
    """The values to encode: a field of each line, or all fields that are none of the record; else none."""
    if not options.is_value_decoded:
        return [None] * len(objects)
    if "value" in roles:
        return [each.get(roles["value"]) for each in objects]
    return [{name: each[name] for name in options.fields_of_rows(each)} for each in objects]


def _json_texts(values: Iterable[Any]) -> pa.Array:
    return pa.array([None if value is None else json_text(value) for value in values], pa.large_string())


def _texts(values: Iterable[Any]) -> pa.Array:
    """Strings as they are, and other values as JSON text."""
    texts = [one if one is None or isinstance(one, str) else json_text(one) for one in values]
    return pa.array(texts, pa.large_string())


def _arrow_columns(table: pa.Table, roles: Mapping[str, str], options: TextOptions) -> list[pa.Array] | None:
    """The columns of lines that Arrow has read; None where each line has to be looked at."""
    columns = []
    for name, role in roles.items():
        values = table.column(name).combine_chunks()
        is_usual = values.type == _JSON_TYPES.get(role, pa.string()) or (
            role == "timestamp" and values.type == pa.string()
        )
        if not is_usual or (role == "value" and values.null_count):  # a null value may be one that is not there
            return None
        columns.append(_arrow_column(role, values, SourceColumn(name, str), options))
    return columns


def _arrow_column(role: str, values: pa.Array, column: SourceColumn, options: TextOptions) -> pa.Array:
    if has_bytes(role):
        return byte_strings(values.cast(pa.binary()), column, _encoding(options))
    if role == "headers":
        return header_lists(values.to_pylist() if len(values.flatten()) else len(values), column, _encoding(options))
    if role == "timestamp" and values.type == pa.string():
        return _milliseconds(values, column, options)
    return pc.fill_null(values, False) if role == "is_control" else values.cast(_TYPES[role])


def _encoding(options: TextOptions) -> str:
    assert options.encoding is not None
    return options.encoding


def _line(lines: list[int], row: int) -> str:
    return f"line {lines[row]}"


def _blocks(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Number of the first line, and bytes of whole lines: a bounded number of both at a time."""
    line = 1
    while data := stream.read(_READ_BYTES):
        n_begun = len(data) - data.rfind(b"\n") - 1
        if n_begun:
            rest = stream.readline(max(MAX_LINE_BYTES + 1 - n_begun, 1))
            # a file without line ends must not be read into memory whole
            if n_begun + len(rest) > MAX_LINE_BYTES:
                line += data.count(b"\n")
                raise _refused(Reason.BATCH_TOO_LARGE, line, f"it is longer than {MAX_LINE_BYTES} bytes")
            data += rest
        if line == 1:
            # Windows tools put it before the first line
            data = data.removeprefix(codecs.BOM_UTF8)
        n_lines = data.count(b"\n")
        if n_lines <= _MOST_LINES:
            yield line, data
        else:
            pieces = data.split(b"\n")
            for first in range(0, n_lines + 1, _MOST_LINES):
                yield line + first, b"\n".join(pieces[first : first + _MOST_LINES])
        line += n_lines


def _lines(first: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and text of each line that is not blank; `first` is the number of the first."""
    for line, text in enumerate(io.BytesIO(data), first):
        if not text.isspace():
            yield line, text.removesuffix(b"\n")


def _refuse_absent(objects: Sequence[dict[str, Any]], column: SourceColumn) -> None:
    """Raise UnwritableError for a line without a value: it would be written as a tombstone, and delete a key."""
    for row, each in enumerate(objects):
        if column.name not in each:
            name = json.dumps(column.name, ensure_ascii=False)
            what = f"is missing here and present in other lines (for a tombstone, write {name}: null)"
            raise column.refused(row, what, reason=Reason.COLUMN_MISSING)


def _json_column(role: str, values: list[Any], column: SourceColumn, options: TextOptions) -> pa.Array:
    if has_bytes(role):
        return bytes_array(values, column, _encoding(options))
    if role == "headers":
        return header_lists(values, column, _encoding(options))
    if role == "topic" or role in OF_DECODING:
        return _topics(values, column)
    if role in NUMBER_ROLES:
        return whole_numbers(_texts(values), column)
    if role == "timestamp":
        return _milliseconds(_texts(values), column, options)
    return pa.array([value is True for value in values], pa.bool_())  # is_control


def _milliseconds(texts: pa.Array, column: SourceColumn, options: TextOptions) -> pa.Array:
    return milliseconds(texts, column, naive_timezone=options.naive_timezone, truncate=options.truncate_timestamps)


def _topics(values: Sequence[Any], column: SourceColumn) -> pa.Array:
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise column.refused(row, f"must be text, not {shown(value)}", reason=Reason.COLUMN_TYPE)
    return pa.array(values, pa.large_string())


class LongRowError(UnwritableError):
    """A row of CSV is longer than a block; it can be read with larger blocks."""


def read_csv(
    stream: BinaryIO,
    options: TextOptions,
    wanted: Names,
    *,
    block_bytes: int = CSV_BLOCK_BYTES,
    reopened: Callable[[], AbstractContextManager[BinaryIO]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the wanted columns of CSV whose first line has the names, separated by commas, semicolons, tabs or bars.

    `reopened` opens the stream from its start, to find the line of a rejected row. Without it the message has the
    number of the row. Raises LongRowError if a row does not fit into a block: retry with larger blocks. Raises
    UnwritableError with the line or row if the text is not CSV, or a value cannot be that of a record.
    """
    names, first_line, delimiter = _csv_names(stream)
    options = options.for_columns(names)
    check_columns(options.kept_as_text, names)
    roles = options.row_roles(names) if options.has_rows else options.wanted_roles(names, wanted)
    # columns are checked even if there is no row
    if not options.has_rows:
        yield no_rows(pa.schema([(name, _type_of(role)) for name, role in roles.items()]))
    is_single = len(names) == 1  # with a single column, an empty line is a null

    def where(row: int, n_lines: int = 0) -> str:
        if reopened is not None:
            with reopened() as again:
                line = _line_of_row(again, first_line, row, delimiter, has_blank_rows=is_single)
            if line is not None:
                return f"line {line + n_lines}"
        return f"row {row + 1}"

    def where_in_batch(row: int) -> str:
        return where(n_done + row)

    left = _ArrowInput(stream)
    n_done = 0
    batch = None
    try:
        with pa.csv.open_csv(
            pa.PythonFile(left, mode="r"),
            pa.csv.ReadOptions(column_names=names, block_size=block_bytes, use_threads=False),
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=not is_single),
            pa.csv.ConvertOptions(
                # as bytes: what Arrow would guess of a key or a value is not what was written
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[options.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ) as reader:
            for batch in reader:
                if options.has_rows:
                    made = _csv_row_columns(batch, roles, where_in_batch, options)
                else:
                    made = {
                        name: _csv_column(role, batch.column(name), SourceColumn(name, where_in_batch), options)
                        for name, role in roles.items()
                    }
                yield pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
                n_done += batch.num_rows
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):
            raise _not_csv(str(error), where, n_done, block_bytes) from error
    if batch is not None and batch.num_rows:
        *others, last = [column[-1].as_py() for column in batch.columns]
        if last is not None and left.ends_in_quotes(last):
            n_lines = sum(value.count(b"\n") for value in others if value is not None)
            what = f"{where(n_done - 1, n_lines)}: a quote has no end; the file may be cut off"
            raise UnwritableError(Reason.COLUMN_VALUE, what)


def _not_csv(text: str, where: Callable[[int], str], n_done: int, block_bytes: int) -> UnwritableError:
    """The exception for Arrow's message about a row after the first `n_done`."""
    uneven = _UNEVEN.search(text)
    if uneven is not None:
        what = f"expected {uneven[2]} columns, not {uneven[3]}: {shown(uneven[4])}"
        return UnwritableError(Reason.COLUMN_VALUE, f"{where(int(uneven[1]) - 1)}: {what}")
    if "straddling object" in text:
        what = f"this or a later row is longer than {block_bytes} bytes, or has a quote without end"
        return LongRowError(Reason.BATCH_TOO_LARGE, f"{where(n_done)}: {what}")
    what = f"this or a later row is not CSV: {' '.join(text.split())}"
    return UnwritableError(Reason.COLUMN_VALUE, f"{where(n_done)}: {what}")


class _ArrowInput(io.RawIOBase):
    """The rest of a stream as a file for Arrow, which would close the stream itself."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._held = self._end = b""
        self._n_quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        data = self._held + self._stream.read(n - len(self._held))
        # Arrow drops the LF of a CR LF that is split between blocks, even in quotes: hold back a CR at the end
        self._held = b"\r" if len(data) > 1 and data.endswith(b"\r") else b""
        data = data[: len(data) - len(self._held)]
        self._n_quotes += data.count(b'"')
        if data:
            self._end = (self._end + data[-_END_BYTES:])[-_END_BYTES:]
        return data

    def ends_in_quotes(self, value: bytes) -> bool:
        """Whether the last value begins with a quote and does not end with one. Arrow accepts that."""
        text = b'"' + value.replace(b'"', b'""')
        # an odd number alone proves nothing: an unquoted value may contain a quote
        return self._n_quotes % 2 == 1 and (len(text) > _END_BYTES or self._end.endswith(text))


def _line_of_row(stream: BinaryIO, first_line: int, row: int, delimiter: str, *, has_blank_rows: bool) -> int | None:
    """The line in which a row begins, None if it is not found. Row 0 begins at `first_line` or after it."""
    reader = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="\n"), delimiter=delimiter)
    line = 0
    with contextlib.suppress(csv.Error):  # such as a value beyond the limit of this parser
        for cells in reader:
            if line + 1 >= first_line and (cells or has_blank_rows):
                if row == 0:
                    return line + 1
                row -= 1
            line = reader.line_num
    return None


def _csv_names(stream: BinaryIO) -> tuple[list[str], int, str]:
    """Read the names of the columns; return them, the number of the next line, and what separates columns."""
    lines = itertools.tee(_first_lines(stream))
    reader, delimiter = csv.reader(lines[0], strict=True), ","
    try:
        names = next(reader, [])
        if len(names) == 1:  # some tools separate by something else
            delimiter = next((one for one in ";\t|" if one in names[0]), ",")
            names = next(csv.reader(lines[1], strict=True, delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error) as error:
        problem = "it ends in CR alone" if "new-line" in str(error) else error
        raise UnwritableError(Reason.COLUMN_VALUE, f"line 1 must have the column names: {problem}") from error
    if not any(names):
        raise UnwritableError(Reason.COLUMN_MISSING, "line 1 must have the column names, but it is empty")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise UnwritableError(Reason.COLUMN_TWICE, f"there is more than one column {', '.join(map(repr, twice))}")
    return names, reader.line_num + 1, delimiter


def _first_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines of the header (names may contain line ends), read lazily; raises csv.Error beyond a limit of bytes."""
    encoding, left = "utf-8-sig", _MAX_NAMES_BYTES
    while text := stream.readline(left):
        left -= len(text)
        if not left:
            raise csv.Error(f"it is longer than {_MAX_NAMES_BYTES} bytes")
        yield text.decode(encoding)
        encoding = "utf-8"


def _csv_column(role: str, values: pa.Array, column: SourceColumn, options: TextOptions) -> pa.Array:
    if has_bytes(role):
        encoding = _encoding(options)
        return tagged_strings(values, column) if encoding == "utf8" else byte_strings(values, column, encoding)
    if role == "headers":
        has_none = pc.all(pc.is_in(values, _NO_HEADERS)).as_py()
        return header_lists(len(values) if has_none else bytes_list(values), column, _encoding(options))
    texts = texts_of(values, column)
    if role in NUMBER_ROLES:
        return whole_numbers(texts, column)
    if role == "timestamp":
        return _milliseconds(texts, column, options)
    if role == "is_control":
        return pc.is_in(pc.utf8_lower(texts), pa.array(["true", "t", "1"]))
    return texts


def _csv_json(values: pa.Array, column: SourceColumn, *, is_text: bool) -> pa.Array:
    """Cells as JSON: those of a column of text are strings, whatever they look like."""
    encode = json_text if is_text else _json_of
    cells = texts_of(values, column).to_pylist()
    return pa.array([None if cell is None else encode(cell) for cell in cells], pa.large_string())


def _csv_row_columns(
    batch: pa.RecordBatch, roles: Mapping[str, str], where: Callable[[int], str], options: TextOptions
) -> dict[str, pa.Array]:
    """The columns of a row that are part of its record, by role, and the other columns as text."""
    made = {}
    for role, name in roles.items():
        values, column = batch.column(name), SourceColumn(name, where)
        if role == "key":
            options.check_key(len(values) - values.null_count)
        is_decoded = options.is_value_decoded if role == "value" else role == "key" and options.is_key_decoded
        if is_decoded:
            is_text = role in options.text_columns or name in options.kept_as_text
            made[f"{_TYPED}{JSON_ROW if role == 'value' else role}"] = _csv_json(values, column, is_text=is_text)
        elif name in options.headers_of_rows or (name in options.roles and role == "key"):
            made[f"{_TYPED}{role}"] = texts_of(values, column)
        else:
            made[f"{_TYPED}{role}"] = _csv_column(role, values, column, options)
    if "value" not in roles and options.is_value_decoded:
        fields = options.fields_of_rows(batch.schema.names)
        made |= {name: texts_of(batch.column(name), SourceColumn(name, where)) for name in fields}
    return made


def _json_of(text: str) -> str:
    """A cell with a value: JSON text as it is, and other text as JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return json_text(text)
    return text


def token_columns(batches: Iterable[pa.RecordBatch]) -> tuple[set[str], dict[str, str]]:
    """The columns of text whose values are all numbers, or all booleans, as JSON has them.

    Also returns the columns that have numbers which JSON's readers would print in another way, as 12E12 and 1.10, with
    such a number: these columns stay text.
    """
    left: dict[str, list[str]] = {}
    changed: dict[str, str] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not name.startswith(_TYPED) and column.null_count < len(column):
                patterns = left.get(name, list(_TOKENS))
                left[name] = [one for one in patterns if pc.all(pc.match_substring_regex(column, one)).as_py()]
                odd = _changed_numbers(column) if _NUMBER in left[name] and name not in changed else []
                if odd:
                    changed[name] = odd[0]
    numbers = {name for name, patterns in left.items() if patterns}
    return numbers - changed.keys(), {name: text for name, text in changed.items() if name in numbers}


def _changed_numbers(column: pa.Array) -> list[str]:
    """Numbers that are not printed as they are written."""
    # whole numbers have any number of digits
    odd = column.filter(pc.invert(pc.match_substring_regex(column, "^(0|-?[1-9][0-9]*)$")))
    return [text for text in pc.unique(odd.drop_null()).to_pylist() if not _is_printed_back(text)]


def _is_printed_back(text: str) -> bool:
    # a fraction of more digits than a double has: JSON's readers may keep them
    return repr(float(text)) == text or (len(text) > _DOUBLE_DIGITS and _LONG_FRACTION.fullmatch(text) is not None)


def rows_of_text(batch: pa.RecordBatch, tokens: Collection[str]) -> pa.RecordBatch:
    """The columns of records in rows of CSV, and `JSON_ROW`; cells of the columns in `tokens` are JSON already."""
    made, fields = {}, {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name.startswith(_TYPED):
            role = name.removeprefix(_TYPED)
            made[role] = column
        else:
            cells = column.to_pylist()
            encode = str if name in tokens else json_text
            fields[name] = ["null" if cell is None else encode(cell) for cell in cells]
    if JSON_ROW not in made:
        template = "{" + ",".join(f"{json_text(name).replace('%', '%%')}:%s" for name in fields) + "}"
        rows = zip(*fields.values(), strict=True) if fields else [()] * batch.num_rows
        made[JSON_ROW] = pa.array([template % row for row in rows], pa.large_string())
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _refused(reason: Reason, line: int, detail: str) -> UnwritableError:
    return UnwritableError(reason, f"line {line}: {detail}")
