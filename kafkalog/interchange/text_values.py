"""Converts columns of text, as many tools write it, to numbers, timestamps, byte strings and headers.

Arrow converts numbers and timestamps, a whole column at once. A value that cannot be converted raises `UnwritableError`
with its line.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kafkalog import format as kf
from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.arrow_input import CUT_TO_NONE
from kafkalog.interchange.table_types import json_integer, json_real
from kafkalog.interchange.text_output import bytes_list

HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.large_binary(), nullable=False), pa.field("value", pa.large_binary())])
)

JSON_HEADERS_TYPE: Final = pa.list_(pa.list_(pa.string()))

Decoder = Callable[[str | bytes], bytes]

# pandas writes integers as 1.0 in a column with missing values
_NUMBER: Final = r"^[+-]?[0-9]+(\.0+)?$"
_BEYOND_MICROSECONDS: Final = r"\.[0-9]{6}0*[1-9]"
_MICROSECONDS: Final = r"(\.[0-9]{6})[0-9]+"
_ZONED_TYPE: Final = pa.timestamp("us", "UTC")
_ZONED: Final = r":[0-9.]+(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_NULL: Final = "; in CSV, null (--null) sets the text for null"
_NO_NUMBER: Final = f"must be a whole number, not {{}}{_NULL}"
_NO_MOMENT: Final = f"must be milliseconds or ISO 8601 with Z or an offset, not {{}}{_NULL}"
_TOO_LARGE: Final = "does not fit 64 bits: {}"
_CUT_TO_NONE: Final = f"{CUT_TO_NONE}: {{}}"
_NO_ZONE: Final = "has no time zone: set naive_timezone (--timezone), or write Z or an offset: {}"
_FINER: Final = (
    "is finer than a millisecond, which Kafka cannot store; truncate_timestamps (--truncate-timestamps) cuts it off: {}"
)


class SourceColumn:
    """A column of a text file, for error messages; `where` returns the place of a row, such as ``"line 7"``."""

    def __init__(self, name: str, where: Callable[[int], str]) -> None:
        self.name, self.where = name, where

    def refused(self, row: int, what: str, *, reason: Reason = Reason.COLUMN_VALUE) -> UnwritableError:
        return UnwritableError(reason, f"{self.where(row)}: {self.name} {what}")


def shown(value: Any) -> str:
    text = repr(value[:80] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def texts_of(values: pa.Array, column: SourceColumn) -> pa.Array:
    """Convert bytes to text; raises UnwritableError for bytes that are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(values.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise column.refused(row, f"is not UTF-8: {shown(value)}") from error
        raise


def json_object(text: bytes, line: int, *, keeps_digits: bool = False) -> dict[str, Any]:
    """The object in a line; raises UnwritableError for anything else.

    With `keeps_digits`, numbers that Python has no exact one for are `kafkalog.interchange.table_types.Digits`.
    """
    try:
        found = (_EXACT if keeps_digits else _JSON).decode(text.decode())
    except (ValueError, RecursionError) as error:
        is_torn = isinstance(error, json.JSONDecodeError) and not text.rstrip().endswith(b"}")
        hint = " (expected an object per line; jq -c converts other JSON)" if is_torn else ""
        raise UnwritableError(Reason.COLUMN_VALUE, f"line {line}: not a JSON object: {error}{hint}") from error
    if not isinstance(found, dict):
        hint = " (jq -c '.[]' writes its items as lines)" if isinstance(found, list) else ""
        raise UnwritableError(
            Reason.COLUMN_VALUE, f"line {line}: a JSON object is expected, not {type(found).__name__}{hint}"
        )
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


# json.loads would create a decoder for each line
_JSON: Final = json.JSONDecoder(object_pairs_hook=_once)
_EXACT: Final = json.JSONDecoder(object_pairs_hook=_once, parse_int=json_integer, parse_float=json_real)


def json_types(objects: Iterable[dict[str, Any]], usual: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Types for `json_table`, by the first value of each name that is not null; `usual` has those of nulls."""
    values: dict[str, Any] = {}
    for each in objects:
        if None in values.values() or not values.keys() >= each.keys():
            values |= {name: value for name, value in each.items() if values.get(name) is None}
    known = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), list: JSON_HEADERS_TYPE}
    return {
        name: usual.get(name, pa.string()) if value is None else known.get(type(value), pa.null())
        for name, value in values.items()
    }


def json_table(data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """JSON lines as columns of these types, read by Arrow; None unless they have these names and types alone.

    It reads what Python's decoder reads, and several times as fast.
    """
    # Arrow cares neither where lines end nor whether text is UTF-8: an object has to begin and end in each line
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text[:-1] == ord("\n"))
    is_crlf = bool(ends.size) and data[ends[0] - 1] == ord("\r")
    if data[:1] != b"{" or data[-3:].rstrip()[-1:] != b"}" or (text[ends + 1] != ord("{")).any():
        return None
    if (text[ends - is_crlf - 1] != ord("}")).any() or (is_crlf and (text[ends - 1] != ord("\r")).any()):
        return None
    try:
        if not data.isascii():
            data.decode()
        table = pa.json.read_json(
            pa.BufferReader(data),
            pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pa.json.ParseOptions(explicit_schema=pa.schema(types.items()), unexpected_field_behavior="error"),
        )
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return None
    return table if table.num_rows == ends.size + 1 else None


def whole_numbers(texts: pa.Array, column: SourceColumn) -> pa.Array:
    """Convert text to int64. Null and empty text become null."""
    texts = _trimmed(texts)
    _refuse(pc.invert(pc.match_substring_regex(texts, _NUMBER)), texts, column, _NO_NUMBER)
    return _integers(texts, column)


def milliseconds(
    texts: pa.Array, column: SourceColumn, *, naive_timezone: str | None = None, truncate: bool = False
) -> pa.Array:
    """Convert text to int64 milliseconds since 1970. Text is a whole number of milliseconds, or ISO 8601.

    Null and empty text become null. The number -1 stays -1 (no timestamp). Text without Z or an offset is in
    `naive_timezone`, and rejected without one. Text finer than a millisecond is rejected unless `truncate`.

    >>> texts = pa.array(["1700000000000", "2023-11-14T22:13:20Z", "2300-01-01 00:00:00+01", None])
    >>> milliseconds(texts, SourceColumn("timestamp", lambda row: f"line {row + 2}")).to_pylist()
    [1700000000000, 1700000000000, 10413788400000, None]
    """
    texts = _trimmed(texts)
    nothing = pa.scalar(None, texts.type)
    is_number, is_zoned = (pc.match_substring_regex(texts, one) for one in (_NUMBER, _ZONED))
    numbers = _integers(pc.if_else(is_number, texts, nothing), column)
    # Arrow reads times with a zone or without one, never both in one cast, and microseconds in all years
    is_finer = pc.match_substring_regex(texts, _BEYOND_MICROSECONDS)
    short = pc.replace_substring_regex(pc.if_else(is_number, nothing, texts), _MICROSECONDS, r"\1")
    moments = _converted(pc.if_else(is_zoned, short, nothing), column, _NO_MOMENT, _ZONED_TYPE).view(pa.int64())
    short = pc.if_else(is_zoned, nothing, short)
    local = _converted(short, column, _NO_MOMENT, pa.timestamp("us"))
    if naive_timezone is None:
        _refuse(local.is_valid(), texts, column, _NO_ZONE)
    elif naive_timezone != "UTC" and local.null_count < len(local):
        # UTC needs no time zone database, which minimal containers lack
        what = f"is not a valid time in {naive_timezone}: {{}}"
        local = _converted(short, column, what, pa.timestamp("us"), naive_timezone)
    moments = pc.coalesce(moments, local.view(pa.int64()))
    whole, rest = np.divmod(pc.fill_null(moments, 0).to_numpy(zero_copy_only=False), 1000)
    if not truncate:
        _refuse(pc.or_(pc.fill_null(is_finer, False), pa.array(rest != 0)), texts, column, _FINER)
    _refuse(pa.array((rest != 0) & (whole == kf.NO_TIMESTAMP)), texts, column, _CUT_TO_NONE)
    return pc.coalesce(numbers, pc.if_else(moments.is_valid(), pa.array(whole), pa.scalar(None, pa.int64())))


def _refuse(bad: pa.Array, values: Sequence[Any], column: SourceColumn, what: str) -> None:
    place = pc.index(bad, True).as_py()
    if place >= 0:
        value = values[place]
        raise column.refused(place, what.format(shown(value.as_py() if isinstance(value, pa.Scalar) else value)))


def _trimmed(texts: pa.Array) -> pa.Array:
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, pa.scalar("", texts.type)), pa.scalar(None, texts.type), texts)


def _integers(texts: pa.Array, column: SourceColumn) -> pa.Array:
    digits = pc.replace_substring_regex(texts, r"^\+?(-?[0-9]+)(\.0+)?$", r"\1")
    return _converted(digits, column, _TOO_LARGE, pa.int64())


def _converted(
    texts: pa.Array, column: SourceColumn, what: str, kind: pa.DataType, zone: str | None = None
) -> pa.Array:
    """Cast text, and assume a time zone; raises UnwritableError for the first text that Arrow refuses."""

    def convert(some: pa.Array) -> pa.Array:
        found = pc.cast(some, kind)
        return found if zone is None else pc.assume_timezone(found, zone)

    try:
        return convert(texts)
    except pa.ArrowInvalid:
        for row in range(len(texts)):
            try:
                convert(texts.slice(row, 1))
            except pa.ArrowInvalid as error:
                raise column.refused(row, what.format(shown(texts[row].as_py()))) from error
        raise


def _base64(text: str | bytes) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        data = text.encode() if isinstance(text, str) else text
        if b"\n" not in data:
            raise
        # in several lines, as Postgres' encode(), the base64 tool and MIME write it
        return binascii.a2b_base64(data.replace(b"\r", b"").replace(b"\n", b""), strict_mode=True)


def _hex(text: str | bytes) -> bytes:
    # Postgres writes bytea as \\x00ff
    return binascii.unhexlify(text[2:] if text[:2] in ("\\x", b"\\x") else text)


def _utf8(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


DECODERS: Final[dict[str, Decoder]] = {"base64": _base64, "hex": _hex, "utf8": _utf8}


def byte_strings(texts: pa.Array, column: SourceColumn, encoding: str) -> pa.Array:
    """Decode a binary array of text; raises UnwritableError as `bytes_array` does."""
    return texts if encoding == "utf8" else bytes_array(bytes_list(texts), column, encoding)


def tagged_strings(texts: pa.Array, column: SourceColumn) -> pa.Array:
    """A binary array of text in UTF-8, with the bytes of values that are ``{"base64": ...}`` as a whole."""
    if not pc.any(pc.starts_with(texts, _TAG)).as_py():
        return texts
    return bytes_array([_tagged(text) for text in bytes_list(texts)], column, "utf8")


_TAG: Final = '{"base64":'


def _tagged(text: bytes | None) -> bytes | dict[str, str] | None:
    if text is None or not text.startswith(_TAG.encode()):
        return text
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if list(found) == ["base64"] and isinstance(found["base64"], str) else text


def bytes_array(values: Sequence[Any], column: SourceColumn, encoding: str) -> pa.Array:
    """Decode text to large_binary; raises UnwritableError for text that is not in this encoding."""
    decode = DECODERS[encoding]
    try:
        if all(value is None or type(value) in (str, bytes) for value in values):
            plain = [None if value is None else decode(value) if value else b"" for value in values]
            return pa.array(plain, pa.large_binary())
    except ValueError:
        pass  # decode one by one below, to find the value
    decoded = [_decoded(value, row, column, decode, encoding) for row, value in enumerate(values)]
    return pa.array(decoded, pa.large_binary())


def _decoded(value: Any, row: int, column: SourceColumn, decode: Decoder, encoding: str) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            return decode(value)
        if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
            return _base64(value["base64"])
    except ValueError as error:
        hint = "; for text, use encoding='utf8' (--encoding utf8)" if encoding != "utf8" else ""
        raise column.refused(row, f"is not {encoding}: {shown(value)}: {error}{hint}") from error
    hint = "; to load values of any type, use value_format='json' (--value-format json)"
    what = f"must be text in {encoding} or null, not {shown(value)}{hint}"
    raise column.refused(row, what, reason=Reason.COLUMN_TYPE)


def header_lists(values: Sequence[Any] | int, column: SourceColumn, encoding: str) -> pa.Array:
    """Headers from ``[[name, value], ...]``, either parsed or as JSON text; or none, so many times."""
    decode = DECODERS[encoding]
    rows: list[list[tuple[bytes | None, bytes | None]]] = []
    for row, value in enumerate([[]] * values if isinstance(values, int) else values):
        pairs = [] if value == [] or value in (None, "", "[]", b"", b"[]") else _pairs(value, row, column)
        names = [_decoded(name, row, column, _utf8, "utf8") for name, _ in pairs]
        contents = [_decoded(inner, row, column, decode, encoding) for _, inner in pairs]
        rows.append(list(zip(names, contents, strict=True)))
    return pa.array(rows, HEADERS_TYPE)


def _pairs(value: Any, row: int, column: SourceColumn) -> list[tuple[str, Any]]:
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise column.refused(row, f"is no JSON: {error}") from error
    if isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        return [(pair[0], pair[1]) for pair in value]
    # as kcat writes them
    if isinstance(value, list) and len(value) % 2 == 0 and all(isinstance(one, str) for one in value[::2]):
        return list(zip(value[::2], value[1::2], strict=True))
    raise column.refused(row, f'must be a list of ["name", "value"], not {shown(value)}', reason=Reason.COLUMN_TYPE)
