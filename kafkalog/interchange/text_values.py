"""Converts columns of text, as many tools write it, to numbers, timestamps, byte strings and headers.

Arrow converts numbers and timestamps in the usual forms, digits and ISO 8601, a whole column at once. Other forms are
converted value by value. A value that cannot be converted raises `UnwritableError` with its line.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from json.scanner import make_scanner
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kafkalog import format as kf
from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.arrow_buffers import decoded_base64
from kafkalog.interchange.arrow_output import binary_array
from kafkalog.interchange.table_types import json_integer, json_real
from kafkalog.interchange.text_output import bytes_list
from kafkalog.records.columns import BinaryColumn

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_N_FIRST: Final = 64

HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.large_binary(), nullable=False), pa.field("value", pa.large_binary())])
)

JSON_HEADERS_TYPE: Final = pa.list_(pa.list_(pa.string()))

Decoder = Callable[[str | bytes], bytes]

_DIGITS: Final = "^-?[0-9]+$"
# pandas writes integers as 1.0 in a column with missing values
_WHOLE: Final = re.compile(r"([+-]?\d{1,30})(?:\.0{1,30})?", re.ASCII)
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[Tt ]\d\d(?::\d\d){0,2})?)(?:[.,](\d+))?([Zz]|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_NULLS: Final = ("\\N", "NULL", "null", "None", "NaN", "nan", "NaT", "NA", "N/A")
_TOO_LARGE: Final = "does not fit 64 bits"
_TOO_EARLY: Final = "is before 1970, which no record's timestamp can be"
_NO_ZONE: Final = "has no time zone: set naive_timezone (--timezone), or write Z or an offset"
_FINER: Final = (
    "is finer than a millisecond, which Kafka cannot store; truncate_timestamps (--truncate-timestamps) cuts it off"
)


class SourceColumn:
    """A column of a text file, for error messages about its values.

    Parameters
    ----------
    where : callable
        Returns the place of a row in the file: ``"line 7"``.
    """

    def __init__(self, name: str, where: Callable[[int], str]) -> None:
        self.name, self.where = name, where

    def refused(self, row: int, what: str, *, reason: Reason = Reason.COLUMN_VALUE) -> UnwritableError:
        """The exception for a value that cannot be converted."""
        return UnwritableError(reason, f"{self.where(row)}: {self.name} {what}")


def shown(value: Any) -> str:
    """A value for a message, shortened."""
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
        content = text.decode().strip(" \t\r\n")
        try:
            found, end = (_scan_digits if keeps_digits else _scan_json)(content, 0)
        except StopIteration:
            end = -1
        if end != len(content):
            found = _JSON.decode(content)  # raises, with the reason and the column
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
_scan_json: Final = make_scanner(_JSON)  # type: ignore[arg-type]
_DIGITS_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_int=json_integer, parse_float=json_real)
_scan_digits: Final = make_scanner(_DIGITS_DECODER)  # type: ignore[arg-type]


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
    """Convert text to int64. Null and empty text become null.

    Parameters
    ----------
    texts : pyarrow.StringArray
    column : SourceColumn
    """
    texts = _without_empty(texts)
    found = _quick_numbers(texts)
    if found is not None:
        return found
    values = texts.to_pylist()
    numbers = np.zeros(len(values), np.int64)
    for row, text in enumerate(values):
        if text is not None:
            number = _whole(text)
            if number is None:
                raise column.refused(row, f"must be a whole number, not {shown(text)}{_null_hint(text)}")
            numbers[row] = _fitting(number, row, text, column)
    return integer_array(numbers, texts.is_valid().to_numpy(zero_copy_only=False))


def milliseconds(
    texts: pa.Array, column: SourceColumn, *, naive_timezone: str | None = None, truncate: bool = False
) -> pa.Array:
    """Convert text to int64 milliseconds since 1970. Text is a whole number of milliseconds, or ISO 8601.

    Parameters
    ----------
    texts : pyarrow.StringArray or pyarrow.LargeStringArray
        Null and empty text become null.
    naive_timezone : str, optional
        Time zone of timestamps without Z or an offset. Without it they are rejected.
    truncate : bool
        Whether to round timestamps finer than a millisecond down. Otherwise they are rejected.

    Returns
    -------
    pyarrow.Int64Array
        The number -1 stays -1 (no timestamp).

    Raises
    ------
    UnwritableError
        A text is not a timestamp, or is rejected. The message has its line.

    Examples
    --------
    >>> texts = pa.array(["1700000000000", "2023-11-14T22:13:20Z", "2300-01-01 00:00:00+01", None])
    >>> milliseconds(texts, SourceColumn("timestamp", lambda row: f"line {row + 2}")).to_pylist()
    [1700000000000, 1700000000000, 10413788400000, None]
    """
    texts = _without_empty(texts)
    found = _quick(texts, naive_timezone, truncate)
    return _one_by_one(texts, column, naive_timezone, truncate) if found is None else found


def refuse_early(numbers: pa.Array, values: Sequence[Any], column: SourceColumn) -> None:
    """Raise UnwritableError for timestamps before 1970, except -1, which means no timestamp."""
    early = np.asarray(pc.less(pc.fill_null(numbers, 0), kf.NO_TIMESTAMP).to_numpy(zero_copy_only=False), np.bool_)
    if early.any():
        row = int(np.argmax(early))
        raise column.refused(row, f"{_TOO_EARLY}: {shown(values[row])}")


def integer_array(numbers: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> pa.Array:
    """An Arrow int64 array with nulls where `valid` is False."""
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [bitmap, pa.py_buffer(numbers)])


def _without_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, pa.scalar("", texts.type)), pa.scalar(None, texts.type), texts)


def _quick_numbers(texts: pa.Array) -> pa.Array | None:
    """All texts as numbers; None if one is not just digits."""
    if pc.all(pc.match_substring_regex(texts, _DIGITS)).as_py() is False:
        return None
    try:
        return _cast(texts, pa.int64())
    except pa.ArrowInvalid:
        return None


def _quick(texts: pa.Array, naive_timezone: str | None, truncate: bool) -> pa.Array | None:
    """All texts as milliseconds; None unless they are digits or one kind of ISO 8601, with nothing to reject."""
    nothing = pa.scalar(None, texts.type)
    is_number = pc.match_substring_regex(texts, _DIGITS)
    numbers = _quick_numbers(pc.if_else(is_number, texts, nothing))
    moments = _quick_moments(pc.if_else(is_number, nothing, texts), naive_timezone, truncate)
    if numbers is None or moments is None:
        return None
    is_early = [pc.any(pc.less(numbers, kf.NO_TIMESTAMP)).as_py(), pc.any(pc.less(moments, 0)).as_py()]
    return None if any(is_early) else pc.coalesce(numbers, moments)


def _quick_moments(texts: pa.Array, naive_timezone: str | None, truncate: bool) -> pa.Array | None:
    """All texts as milliseconds; None unless Arrow reads them all as one kind of ISO 8601."""
    # Arrow reads times with a zone or without one, never both in one cast
    for zone in ("UTC", None):
        # nanoseconds end in 2262, and microseconds lack the last digits of some texts
        for unit, per_millisecond in (("us", 1000), ("ns", 1_000_000)):
            try:
                moments = _cast(texts, pa.timestamp(unit, zone))
                if zone is None:
                    if naive_timezone is None:
                        return None
                    moments = _zoned(moments, naive_timezone)
            except pa.ArrowInvalid:
                continue
            valid = moments.is_valid().to_numpy(zero_copy_only=False)
            whole, rest = np.divmod(pc.fill_null(moments.view(pa.int64()), 0).to_numpy(), per_millisecond)
            return integer_array(whole, valid) if truncate or not rest.any() else None
    return None


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    pc.cast(texts[:_N_FIRST], kind)  # a failing cast of a whole column is slow, so try it on a few values first
    return pc.cast(texts, kind)


def _zoned(moments: Any, zone: str) -> Any:
    # UTC needs no time zone database, which minimal containers lack
    return moments if zone == "UTC" else pc.assume_timezone(moments, zone)


def _one_by_one(texts: pa.Array, column: SourceColumn, naive_timezone: str | None, truncate: bool) -> pa.Array:
    values = texts.to_pylist()
    numbers = np.zeros(len(values), np.int64)
    naive = []
    for row, text in enumerate(values):
        if text is None:
            continue
        number, is_naive, lowest = _whole(text), False, kf.NO_TIMESTAMP
        if number is None:
            moment, lowest = _moment(text), 0
            if moment is None:
                what = "must be milliseconds or ISO 8601 with Z or an offset"
                raise column.refused(row, f"{what}, not {shown(text)}{_null_hint(text)}")
            number, is_finer, is_naive = moment
            if is_finer and not truncate:
                raise column.refused(row, f"{_FINER}: {shown(text)}")
        if is_naive and naive_timezone is None:
            raise column.refused(row, f"{_NO_ZONE}: {shown(text)}")
        if is_naive:
            naive.append(row)
        elif number < lowest:
            raise column.refused(row, f"{_TOO_EARLY}: {shown(text)}")
        numbers[row] = _fitting(number, row, text, column)
    # local times are converted together: a zone's rules are looked up once
    if naive and naive_timezone is not None:
        for row, number in zip(naive, _in_zone(numbers, naive, naive_timezone, values, column), strict=True):
            if number < 0:
                raise column.refused(row, f"{_TOO_EARLY}: {shown(values[row])}")
            numbers[row] = number
    return integer_array(numbers, texts.is_valid().to_numpy(zero_copy_only=False))


def _in_zone(
    numbers: npt.NDArray[np.int64], rows: list[int], zone: str, texts: list[str], column: SourceColumn
) -> list[int]:
    """Local times of these rows as milliseconds since 1970."""
    moments = pa.array(numbers[rows]).view(pa.timestamp("ms"))
    try:
        return _zoned(moments, zone).view(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        for row, moment in zip(rows, moments, strict=True):
            try:
                _zoned(moment, zone)
            except pa.ArrowInvalid as error:
                problem = " ".join(str(error).split())
                raise column.refused(row, f"is not a valid time in {zone}: {shown(texts[row])}: {problem}") from error
        raise


def _whole(text: str) -> int | None:
    found = _WHOLE.fullmatch(text.strip())
    return None if found is None else int(found[1])


def _moment(text: str) -> tuple[int, bool, bool] | None:
    """Milliseconds of an ISO 8601 text, whether it is finer than that, and whether it has no zone; None for others."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return None
    whole, fraction, zone = (part or "" for part in found.groups())
    try:
        moment = datetime.fromisoformat(f"{whole}{zone}".upper())
    except ValueError:
        return None
    utc = moment if zone else moment.replace(tzinfo=UTC)
    number = (utc - _EPOCH) // _MILLISECOND + int(fraction[:3].ljust(3, "0"))
    return number, bool(fraction[3:].strip("0")), not zone


def _fitting(number: int, row: int, text: str, column: SourceColumn) -> int:
    if not -(2**63) <= number < 2**63:
        raise column.refused(row, f"{_TOO_LARGE}: {shown(text)}")
    return number


def _null_hint(text: str) -> str:
    return " (null, --null, sets the text for null in CSV)" if text.strip() in _NULLS else ""


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


def text_array(values: Sequence[str | None], column: SourceColumn) -> pa.Array:
    """Strings as large_string; raises UnwritableError for one with a lone surrogate, which UTF-8 cannot encode."""
    encoded = []
    for row, value in enumerate(values):
        try:
            encoded.append(None if value is None else value.encode())
        except UnicodeEncodeError as error:
            raise column.refused(row, f"has half a surrogate, which is not valid text: {shown(value)}") from error
    return binary_array(_binary(encoded), pa.large_binary()).cast(pa.large_string())


def _binary(values: Sequence[bytes | None]) -> BinaryColumn:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join([value for value in values if value]), np.uint8)
    valid = None
    if any(value is None for value in values):
        valid = np.array([value is not None for value in values], np.bool_)
    return BinaryColumn(offsets, data, valid)


def byte_strings(texts: pa.Array, column: SourceColumn, encoding: str) -> pa.Array:
    """Decode a binary array of text, whole where it can be; raises UnwritableError as `bytes_array` does."""
    if encoding == "utf8":
        return texts
    found = decoded_base64(texts) if encoding == "base64" else None
    return bytes_array(bytes_list(texts), column, encoding) if found is None else found


def bytes_array(values: Sequence[Any], column: SourceColumn, encoding: str) -> pa.Array:
    """Decode text to large_binary; raises UnwritableError for text that is not in this encoding."""
    decode = DECODERS[encoding]
    try:
        if all(value is None or type(value) in (str, bytes) for value in values):
            plain = [None if value is None else decode(value) if value else b"" for value in values]
            return binary_array(_binary(plain), pa.large_binary())
    except ValueError:
        pass  # decode one by one below, to find the value
    decoded = [_decoded(value, row, column, decode, encoding) for row, value in enumerate(values)]
    return binary_array(_binary(decoded), pa.large_binary())


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
    n = values if isinstance(values, int) else len(values)
    offsets = np.zeros(n + 1, np.int64)
    keys: list[bytes | None] = []
    contents: list[bytes | None] = []
    for row, value in enumerate(() if isinstance(values, int) else values):
        for pair in () if value == [] or value in (None, "", "[]", b"", b"[]") else _pairs(value, row, column):
            try:
                keys.append(pair[0].encode())
            except UnicodeEncodeError as error:
                what = f"has half a surrogate in a name, which is not valid text: {shown(pair[0])}"
                raise column.refused(row, what) from error
            contents.append(_decoded(pair[1], row, column, decode, encoding))
        offsets[row + 1] = len(keys)
    names, texts = binary_array(_binary(keys), pa.large_binary()), binary_array(_binary(contents), pa.large_binary())
    items = pa.StructArray.from_arrays([names, texts], fields=list(HEADERS_TYPE.value_type))
    ends = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(HEADERS_TYPE, n, [None, ends], 0, children=[items])


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
