"""Converts record batches to lines of text: JSON objects and CSV rows.

Values are converted to text column by column, and then joined by row. Both formats keep every detail: null and empty
differ, headers keep their order and their duplicates, and timestamps are the milliseconds of the file (null if the
message format has no timestamps, -1 if the record has none).
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kafkalog.column_names import ALL_COLUMNS, DEFAULT_COLUMNS
from kafkalog.interchange.arrow_buffers import numbers_of
from kafkalog.interchange.json_fields import json_paths, text_with_json

Encoding = Literal["base64", "utf8", "hex"]
ENCODINGS: Final = get_args(Encoding)

BYTES_TYPES: Final = (pa.binary(), pa.large_binary(), pa.binary_view())

BYTES_COLUMNS: Final = ("key", "value")

RECORD_COLUMNS: Final = frozenset(ALL_COLUMNS) - {"key", "value"}
"""Columns of which the name says the type."""

Headers = list[dict[str, Any]]

_encode_raw = json.JSONEncoder(ensure_ascii=False).encode
# DEL and C1 controls, bidi marks and controls, line and paragraph separators: terminals and editors interpret them
_OBEYED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_QUOTED: Final = '",\r\n'
"""Characters for which a CSV value is in quotes."""
_FORMULA_STARTS: Final = tuple("=+-@\t\r\uff0b\uff0d\uff1d\uff20")


def encode_json(value: Any) -> str:
    r"""A value as readable JSON on one line, without characters that a terminal or an editor would interpret.

    >>> print(encode_json(["caf\u00e9", "\u202egnp", "\x9b31m"]))
    ["café", "\u202egnp", "\u009b31m"]
    """
    text = _encode_raw(value)
    return text if text.isascii() and "\x7f" not in text else _OBEYED.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def check_encoding(encoding: str) -> None:
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}")


class LineFormat(ABC):
    """Converts records to machine-readable lines, with bytes in one of `ENCODINGS`."""

    def __init__(
        self, columns: Sequence[str] | None = None, *, encoding: str = "base64", embeds_json: bool = False
    ) -> None:
        check_encoding(encoding)
        self._embeds_json = embeds_json
        """Whether JSON text in a field is the JSON itself in the lines; see `kafkalog.interchange.json_fields`."""
        self.columns: Sequence[str] = DEFAULT_COLUMNS if columns is None else columns
        self._encoding = encoding

    def lines(self, batch: pa.RecordBatch) -> str:
        """The records, one line each. The batch has at least the columns of this format."""
        texts = [self._texts(name, batch.column(name), batch) for name in self.columns]
        template = self._template
        return "".join([template % row for row in zip(*texts, strict=True)])

    def _json_paths(self, name: str, batch: pa.RecordBatch) -> Collection[tuple[str, ...]] | None:
        return json_paths(batch.schema.field(name)) if self._embeds_json else None

    @property
    @abstractmethod
    def _template(self) -> str:
        """A line with one ``%s`` per column."""

    @abstractmethod
    def _texts(self, name: str, column: pa.Array, batch: pa.RecordBatch) -> list[str]:
        """The text of each value of a column, as it appears in the lines."""


class JsonLines(LineFormat):
    """Writes one JSON object per record.

    Bytes are strings; with `utf8`, those that are not valid become ``{"base64": ...}``. Headers are lists of ``[name,
    value]``.
    """

    @property
    def _template(self) -> str:
        return "{" + ", ".join(f"{json.dumps(name).replace('%', '%%')}: %s" for name in self.columns) + "}\n"

    def _texts(self, name: str, column: pa.Array, batch: pa.RecordBatch) -> list[str]:
        if column.type in BYTES_TYPES:
            return self._bytes(column)
        if name == "headers":
            encode = ENCODERS[self._encoding]
            return _header_texts(column, encode)
        if name not in RECORD_COLUMNS:
            return _json_of_values(column, self._json_paths(name, batch))
        return _scalar_texts(name, column, null="null", quote=encode_json)

    def _bytes(self, column: pa.Array) -> list[str]:
        if self._encoding == "utf8":
            return [encode_json(_utf8(value)) for value in bytes_list(column)]
        return _plain_texts(column, self._encoding, template='"%s"', null="null")


class CsvRows(LineFormat):
    """Writes one CSV row per record (RFC 4180, but lines end in a newline).

    `null` is written without quotes. By default it is empty; an empty value is always ``""``. Values are in quotes only
    where they must be: when they are empty, hold a quote, a comma or a line end, or read like `null`. Headers are the
    JSON text that `JsonLines` has, ``[]`` for none.

    `escape_formulas` puts ``'`` before text that a spreadsheet would run as a formula: text that begins with ``= + -
    @``, a tab or a carriage return. Loading the file does not remove it.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        encoding: str = "base64",
        null: str = "",
        escape_formulas: bool = False,
        embeds_json: bool = False,
    ) -> None:
        super().__init__(columns, encoding=encoding, embeds_json=embeds_json)
        self._escape_formulas = escape_formulas
        if any(char in null for char in _QUOTED):
            raise ValueError(f"null is written without quotes, so it may hold none, nor commas or line ends: {null!r}")
        self._null = null

    @property
    def header(self) -> str:
        return self.row(self.columns)

    def row(self, texts: Iterable[str | None]) -> str:
        """A row of texts, where None is null."""
        return ",".join([self._null if text is None else self._quote(text) for text in texts]) + "\n"

    @property
    def _template(self) -> str:
        return ",".join(["%s"] * len(self.columns)) + "\n"

    def _texts(self, name: str, column: pa.Array, batch: pa.RecordBatch) -> list[str]:
        if column.type in BYTES_TYPES:
            return self._bytes(column)
        if name == "headers":
            encode = ENCODERS["hex" if self._encoding == "hex" else "base64"]
            if self._encoding == "utf8":
                encode = _utf8
            texts = _header_texts(column, encode)
            return [text if text == "[]" else self._quote(text) for text in texts]
        if name not in RECORD_COLUMNS:
            return self._values(name, column, self._json_paths(name, batch))
        return _scalar_texts(name, column, null=self._null, quote=self._quote)

    def _values(self, name: str, column: pa.Array, paths: Collection[tuple[str, ...]] | None) -> list[str]:
        """Decoded values: text as it is, others as JSON; text at the paths is the JSON that it holds."""
        if paths:
            texts = _json_of_values(column, paths)
            valid = _is_valid(column)
            return [self._quote(text) if valid[row] else self._null for row, text in enumerate(texts)]
        # a whole value that is text, but could be other JSON: 1 and "1"
        is_told_apart = paths is not None and name in BYTES_COLUMNS and pt.is_string(column.type)
        as_text = _text_or_json if is_told_apart else str
        return [
            self._null
            if value is None
            else self._quote(as_text(value) if isinstance(value, str) else encode_json(value))
            for value in plain_values(column)
        ]

    def _bytes(self, column: pa.Array) -> list[str]:
        quote = self._quote
        if self._encoding == "utf8":
            values = (_told_apart(_utf8(value)) for value in bytes_list(column))
            return [self._null if value is None else quote(value) for value in values]
        texts = _plain_texts(column, self._encoding, template="%s", null=self._null)
        if self._null == "" and not self._escape_formulas:
            # base64 and hex need no quotes: only an empty value must differ from null
            if column.null_count == 0:
                return [text or '""' for text in texts]
            return ['""' if not text and valid else text for text, valid in zip(texts, _is_valid(column), strict=True)]
        return [quote(text) if valid else text for text, valid in zip(texts, _is_valid(column), strict=True)]

    def _quote(self, text: str) -> str:
        if self._escape_formulas and text.startswith(_FORMULA_STARTS):
            text = f"'{text}"
        if not text or text == self._null or any(char in text for char in _QUOTED):
            return '"' + text.replace('"', '""') + '"'
        return text


def _json_of_values(column: pa.Array, paths: Collection[tuple[str, ...]] | None) -> list[str]:
    """Values as JSON; text at the paths is the JSON that it holds."""
    if not paths:
        return [encode_json(value) for value in plain_values(column)]
    texts = [text_with_json(value, paths, encode_json) for value in plain_values(column)]
    return [text if text.isascii() and "\x7f" not in text else _OBEYED.sub(_escaped, text) for text in texts]


def _text_or_json(text: str) -> str:
    """Text as it is, or as JSON if it is some itself."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return encode_json(text)


def bytes_list(column: pa.Array) -> list[bytes | None]:
    """A binary column as a list of `bytes` and None; several times as fast as `to_pylist`."""
    if column.type not in _OFFSET_SIZES:
        values: list[bytes | None] = column.to_pylist()
        return values
    raw = _slices(column)
    return raw if not column.null_count else [b if v else None for b, v in zip(raw, _is_valid(column), strict=True)]


def plain_values(array: pa.Array) -> list[Any]:
    """Values as what JSON has: maps are dicts, bytes base64, times ISO 8601, numbers that JSON lacks text."""
    return list(_python_values(array))


def _python_values(array: pa.Array) -> Iterator[Any]:
    kind = array.type
    valid = array.is_valid().to_pylist()
    if pt.is_struct(kind):
        names = [field.name for field in kind]
        columns = [plain_values(array.field(i)) for i in range(kind.num_fields)]
        rows: Iterable[Any] = zip(*columns, strict=True) if columns else [()] * len(array)
        for is_valid, row in zip(valid, rows, strict=True):
            yield dict(zip(names, row, strict=True)) if is_valid else None
    elif pt.is_list(kind) or pt.is_map(kind):
        offsets = array.offsets.to_pylist()
        first = offsets[0]
        items = plain_values((array.values if pt.is_list(kind) else array.items).slice(first, offsets[-1] - first))
        keys = plain_values(array.keys.slice(first, offsets[-1] - first)) if pt.is_map(kind) else None
        for i, is_valid in enumerate(valid):
            span = slice(offsets[i] - first, offsets[i + 1] - first)
            mine = items[span]
            yield None if not is_valid else mine if keys is None else dict(zip(keys[span], mine, strict=True))
    else:
        yield from _scalars(array)


def _scalars(array: pa.Array) -> Iterator[Any]:
    kind = array.type
    if pt.is_timestamp(kind) or pt.is_date(kind):
        yield from _moments(array)
    elif pt.is_decimal(kind):
        for value in array.to_pylist():  # without an exponent, which Arrow and Python write for small numbers
            yield None if value is None else format(value, "f")
    elif pt.is_temporal(kind):
        yield from array.cast(pa.string()).to_pylist()
    elif pt.is_floating(kind):
        numbers = array.to_pylist()
        if kind == pa.float32():  # 0.1 is 0.1, not 0.10000000149011612
            shortest = array.to_numpy(zero_copy_only=False).astype(str)
            numbers = [None if one is None else float(text) for one, text in zip(numbers, shortest, strict=True)]
        for number in numbers:
            # as Jackson, Spark and Protobuf write them
            yield number if number is None or math.isfinite(number) else NOT_FINITE[str(number)]
    elif pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        for value in array.to_pylist():
            yield None if value is None else base64.b64encode(value).decode("ascii")
    else:
        yield from array.to_pylist()


NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""The text of numbers that JSON lacks, by Python's."""


def _moments(array: pa.Array) -> Iterator[str | None]:
    """Dates and times as ISO 8601, years beyond 9999 with more digits; the number that has no date is text, too."""
    kind = array.type
    unit: Any
    unit, zone = (kind.unit, "Z" if kind.tz else "") if pt.is_timestamp(kind) else ("D", "")
    numbers = numbers_of(array if unit != "D" else array.cast(pa.date32())).astype(np.int64)
    texts = np.datetime_as_string(numbers.astype(f"datetime64[{unit}]"), unit=unit).tolist()
    for text, number, is_valid in zip(texts, numbers.tolist(), array.is_valid().to_pylist(), strict=True):
        # the least number is no time to NumPy
        yield None if not is_valid else f"{text}{zone}" if text != "NaT" else str(number)


def encoded_values(array: pa.Array, encoding: str, *, is_json: bool) -> list[Any]:
    """As `plain_values`, with bytes in one of `ENCODINGS`; each value is shown in one way only.

    With `utf8`, bytes that are not text become ``{"base64": ...}``. Where this is text itself and no JSON, text that
    begins alike is also encoded so.
    """
    if array.type not in BYTES_TYPES:
        return plain_values(array)
    values = map(ENCODERS[encoding], array.to_pylist())
    if is_json or encoding != "utf8":
        return [*values]
    return [_told_apart(one) for one in values]


_OBJECT: Final = '{"base64":'


def _told_apart(value: str | dict[str, str] | None) -> str | None:
    if isinstance(value, str) and value.startswith(_OBJECT):
        value = {"base64": base64.b64encode(value.encode()).decode("ascii")}
    return encode_json(value) if isinstance(value, dict) else value


def text_of_bytes(batch: pa.RecordBatch, encoding: str) -> pa.RecordBatch:
    """The batch with its columns of bytes as text; see `encoded_values`."""
    columns = [
        pa.array(encoded_values(column, encoding, is_json=False), pa.string()) if column.type in BYTES_TYPES else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def headers_list(column: Any) -> list[Headers]:
    """A column of headers: for each record a list of dicts with `key` and `value`."""
    if len(column) and column.offsets[0] == column.offsets[-1]:
        return [[]] * len(column)  # fast path: records without any header are usual
    rows: list[Headers] = column.to_pylist()
    return rows


_OFFSET_SIZES: Final[dict[pa.DataType, Literal["i", "q"]]] = {pa.binary(): "i", pa.large_binary(): "q"}


def _slices(column: pa.Array, *, copy: bool = True) -> list[Any]:
    """The bytes of each value, null or not; or views of them."""
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return [b""] * len(column)
    at = memoryview(offsets).cast("B").cast(_OFFSET_SIZES[column.type])[column.offset : column.offset + len(column) + 1]
    first = at[0]
    whole = data.slice(first, at[-1] - first)
    whole = whole.to_pybytes() if copy else memoryview(whole)
    return [whole[start - first : stop - first] for start, stop in itertools.pairwise(at.tolist())]


def _is_valid(column: pa.Array) -> list[bool]:
    valid: list[bool] = column.is_valid().to_pylist()
    return valid


def _plain_texts(column: pa.Array, encoding: str, *, template: str, null: str) -> list[str]:
    """Bytes as base64 or hex in the template, an empty value as empty text; null as `null` without the template."""
    values = _slices(column, copy=False) if column.type in _OFFSET_SIZES else bytes_list(column)
    if encoding == "hex":
        encoded = [(value or b"").hex() for value in values]
    else:
        encode = binascii.b2a_base64
        encoded = [str(encode(value, newline=False), "ascii") if value else "" for value in values]
    if template != "%s":
        encoded = [template % text for text in encoded]
    if column.null_count:
        return [text if valid else null for valid, text in zip(_is_valid(column), encoded, strict=True)]
    return encoded


def _scalar_texts(name: str, column: pa.Array, *, null: str, quote: Callable[[str], str]) -> list[str]:
    if name == "timestamp":
        column = column.cast(pa.int64())
    values = column.to_pylist()
    if pa.types.is_boolean(column.type):
        return ["true" if value else "false" for value in values]
    if pa.types.is_string(column.type):
        # names of topics and codecs: a handful of values in many rows
        known = {value: null if value is None else quote(value) for value in set(values)}
        return [known[value] for value in values]
    if column.null_count:
        return [null if value is None else str(value) for value in values]
    return list(map(str, values))


def header_pairs(headers: Iterable[tuple[str, bytes | None]], encode: Callable[[bytes | None], Any]) -> list[list[Any]]:
    """The headers of a record as JSON has them: pairs, in their order, since names may repeat."""
    return [[name, encode(value)] for name, value in headers]


def _header_texts(column: pa.Array, encode: Callable[[bytes | None], Any]) -> list[str]:
    return [
        encode_json(header_pairs(((one["key"], one["value"]) for one in headers), encode)) if headers else "[]"
        for headers in headers_list(column)
    ]


def _utf8(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


ENCODERS: Final[dict[str, Callable[[bytes | None], Any]]] = {
    "base64": lambda value: None if value is None else base64.b64encode(value).decode("ascii"),
    "hex": lambda value: None if value is None else value.hex(),
    "utf8": _utf8,
}
"""Convert bytes for JSON: to text or, where they are not valid `utf8`, to an object ``{"base64": ...}``."""
