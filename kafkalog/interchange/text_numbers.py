"""Text to numbers: whole numbers and timestamps as other tools write them, a column at a time.

Columns that are all digits, or all ISO 8601 of one kind, are taken whole; any other mixture a value at a time, and what
is no number there is said with its line. Which column is what is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog import format as kf
from kafkalog.errors import Reason, UnwritableError

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
_UNITS: Final = {"ms": 1, "us": 1000, "ns": 1_000_000}
_N_FIRST: Final = 64
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_CYCLE_DAYS: Final = 146_097
"""Days of the 400 years after which the calendar is the same again."""

# where some are missing, pandas writes whole numbers as 1.0
_WHOLE: Final = re.compile(r"([+-]?\d{1,30})(?:\.0{1,30})?", re.ASCII)
_MOMENT: Final = re.compile(
    r"(\d{4}|[+-]\d{4,9})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?(?:([Zz])|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_NULLS: Final = ("\\N", "NULL", "null", "None", "NaN", "nan", "NaT", "NA", "N/A")
_NO_ZONE: Final = "has no time zone: say which one it is in (naive_timezone, --timezone), or write Z or an offset"
_FINER: Final = (
    "is finer than a millisecond, which is all that Kafka keeps "
    "(truncate_timestamps, --truncate-timestamps cuts it off)"
)


class Place:
    """A column of some rows, and which lines of the file they are.

    Parameters
    ----------
    name : str
    line : callable
        The line that a row begins in.
    """

    def __init__(self, name: str, line: Callable[[int], int]) -> None:
        self.name, self.line = name, line

    def refused(self, row: int, what: str, *, reason: Reason = Reason.COLUMN_VALUE) -> UnwritableError:
        """What is wrong with what a row holds."""
        return UnwritableError(reason, f"line {self.line(row)}: {self.name} {what}")


def shown(value: Any) -> str:
    """A value for a message, not too long."""
    text = repr(value[:80] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def texts_of(column: pa.Array, place: Place) -> pa.Array:
    """Bytes as text; UnwritableError for what is not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        row = _first_refused(lambda part: part.cast(pa.string()), column)
        raise place.refused(row, f"is not UTF-8: {shown(column[row].as_py())}") from error


def whole_numbers(texts: pa.Array, place: Place) -> pa.Array:
    """Text as int64; null where there is none.

    Parameters
    ----------
    texts : pyarrow.StringArray
    place : Place
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
                raise place.refused(row, f"is a whole number, not {shown(text)}{_null_hint(text)}")
            numbers[row] = _fitting(number, row, text, place)
    return integer_array(numbers, texts.is_valid().to_numpy(zero_copy_only=False))


def milliseconds(
    texts: pa.Array, place: Place, *, naive_timezone: str | None = None, truncate: bool = False
) -> pa.Array:
    """Timestamps as int64 milliseconds since 1970: each a whole number of them, or ISO 8601.

    Parameters
    ----------
    texts : pyarrow.StringArray or pyarrow.LargeStringArray
        Null and empty are no timestamp.
    place : Place
    naive_timezone : str, optional
        Where those without Z or an offset are from; without it they are refused.
    truncate : bool
        Whether what is finer than a millisecond may be cut off, downwards.

    Returns
    -------
    pyarrow.Int64Array
        -1 (no timestamp) where a number says so.

    Raises
    ------
    UnwritableError
        With the line and the value.

    Examples
    --------
    >>> texts = pa.array(["1700000000000", "2023-11-14T22:13:20Z", "2300-01-01 00:00:00+01", None])
    >>> milliseconds(texts, Place("timestamp", lambda row: row + 2)).to_pylist()
    [1700000000000, 1700000000000, 10413788400000, None]
    """
    texts = _without_empty(texts)
    found = _quick(texts, naive_timezone, truncate)
    if found is None:
        found = _quick_mixture(texts, naive_timezone, truncate)
    return _one_by_one(texts, place, naive_timezone, truncate) if found is None else found


def refuse_early(numbers: pa.Array, values: Sequence[Any], place: Place) -> None:
    """UnwritableError for timestamps before 1970."""
    early = np.asarray(pc.less(pc.fill_null(numbers, 0), kf.NO_TIMESTAMP).to_numpy(zero_copy_only=False), np.bool_)
    if early.any():
        row = int(np.argmax(early))
        raise _early(row, values[row], place)


def integer_array(numbers: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Numbers, null where they are not valid."""
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [bitmap, pa.py_buffer(numbers)])


def _without_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, pa.scalar("", texts.type)), pa.scalar(None, texts.type), texts)


def _quick(texts: pa.Array, naive_timezone: str | None, truncate: bool) -> pa.Array | None:
    """All of them, if they are of one kind, and there is nothing to refuse."""
    found, lowest = _quick_numbers(texts), kf.NO_TIMESTAMP
    if found is None:
        found, lowest = _quick_moments(texts, naive_timezone, truncate), 0
    if found is None:
        return None
    least = pc.min(found).as_py()
    return found if least is None or least >= lowest else None


def _quick_mixture(texts: pa.Array, naive_timezone: str | None, truncate: bool) -> pa.Array | None:
    """All of them, if digits are one kind and the others, too, are of one."""
    is_number = pc.match_substring_regex(texts, "^-?[0-9]+$")
    numbers = np.zeros(len(texts), np.int64)
    for mask in (is_number, pc.invert(is_number)):
        found = _quick(texts.filter(mask), naive_timezone, truncate)
        if found is None:
            return None
        numbers[pc.fill_null(mask, False).to_numpy(zero_copy_only=False)] = found.to_numpy()
    return integer_array(numbers, texts.is_valid().to_numpy(zero_copy_only=False))


def _quick_numbers(texts: pa.Array) -> pa.Array | None:
    """All of them as numbers, if they are nothing but digits."""
    try:
        numbers = _cast(texts, pa.int64())
    except pa.ArrowInvalid:
        return None
    # Arrow takes 0x10 for a number, too
    is_hex = any(pc.any(pc.starts_with(texts, prefix)).as_py() for prefix in ("0x", "0X"))
    return None if is_hex else numbers


def _quick_moments(texts: pa.Array, naive_timezone: str | None, truncate: bool) -> pa.Array | None:
    """All of them as milliseconds, if Arrow takes them all for one kind of ISO 8601."""
    for zone in ("UTC", None):
        for unit, divisor in _UNITS.items():
            try:
                moments = _cast(texts, pa.timestamp(unit, zone))
                if zone is None:
                    if naive_timezone is None:
                        return None
                    moments = _zoned(moments, naive_timezone)
            except pa.ArrowInvalid:
                continue
            numbers = moments.view(pa.int64())
            if divisor == 1:
                return numbers
            valid = numbers.is_valid().to_numpy(zero_copy_only=False)
            whole, rest = np.divmod(pc.fill_null(numbers, 0).to_numpy(), divisor)
            return integer_array(whole, valid) if truncate or not rest.any() else None
    return None


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    pc.cast(texts[:_N_FIRST], kind)  # what cannot be cast takes long, each value anew
    return pc.cast(texts, kind)


def _zoned(moments: pa.Array, zone: str) -> pa.Array:
    return moments if zone == "UTC" else pc.assume_timezone(moments, zone)


def _one_by_one(texts: pa.Array, place: Place, naive_timezone: str | None, truncate: bool) -> pa.Array:
    values = texts.to_pylist()
    numbers = np.zeros(len(values), np.int64)
    naive = []
    for row, text in enumerate(values):
        if text is None:
            continue
        number = _whole(text)
        if number is not None:
            if number < kf.NO_TIMESTAMP:
                raise _early(row, text, place)
            numbers[row] = _fitting(number, row, text, place)
            continue
        moment = _moment(text)
        if moment is None:
            what = "milliseconds, nor ISO 8601 with Z or an offset"
            raise place.refused(row, f"is neither {what}: {shown(text)}{_null_hint(text)}")
        number, is_finer, is_naive = moment
        if is_finer and not truncate:
            raise place.refused(row, f"{_FINER}: {shown(text)}")
        if is_naive:
            if naive_timezone is None:
                raise place.refused(row, f"{_NO_ZONE}: {shown(text)}")
            naive.append(row)
        elif number < 0:
            raise _early(row, text, place)
        numbers[row] = _fitting(number, row, text, place)
    if naive:
        assert naive_timezone is not None
        moments = pa.array(numbers[naive]).view(pa.timestamp("ms"))
        try:
            numbers[naive] = _zoned(moments, naive_timezone).view(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            row = naive[_first_refused(lambda part: _zoned(part, naive_timezone), moments)]
            problem = " ".join(str(error).split())
            raise place.refused(row, f"is no time of {naive_timezone}: {shown(values[row])}: {problem}") from error
        for row in naive:
            if numbers[row] < 0:
                raise _early(row, values[row], place)
    return integer_array(numbers, texts.is_valid().to_numpy(zero_copy_only=False))


def _whole(text: str) -> int | None:
    found = _WHOLE.fullmatch(text.strip())
    return None if found is None else int(found[1])


def _moment(text: str) -> tuple[int, bool, bool] | None:
    """Milliseconds of ISO 8601, whether it is finer than that, and whether it is without a zone."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day = map(int, found.group(1, 2, 3))
    hour, minute, second = (int(part or 0) for part in found.group(4, 5, 6))
    utc, sign = found.group(8, 9)
    ahead_hours, ahead_minutes = (int(part or 0) for part in found.group(10, 11))
    if hour > 23 or minute > 59 or second > 59 or ahead_hours > 23 or ahead_minutes > 59:
        return None
    alike = 2000 + year % 400
    try:
        days = date(alike, month, day).toordinal() - _EPOCH_DAY + (year - alike) // 400 * _CYCLE_DAYS
    except ValueError:
        return None
    fraction = found[7] or ""
    ahead = 60 * ahead_hours + ahead_minutes
    minutes = 60 * (24 * days + hour) + minute - (-ahead if sign == "-" else ahead)
    number = 1000 * (60 * minutes + second) + int(fraction[:3].ljust(3, "0"))
    return number, bool(fraction[3:].strip("0")), utc is None and sign is None


def _fitting(number: int, row: int, text: str, place: Place) -> int:
    if not _LONG_MIN <= number <= _LONG_MAX:
        raise place.refused(row, f"does not fit 64 bits: {shown(text)}")
    return number


def _early(row: int, value: object, place: Place) -> UnwritableError:
    return place.refused(row, f"is before 1970, which no record's timestamp can be: {shown(value)}")


def _null_hint(text: str) -> str:
    return " (null, --null, says what stands for null in CSV)" if text.strip() in _NULLS else ""


def _first_refused(convert: Callable[[pa.Array], object], values: pa.Array) -> int:
    """The first of the values, of which one at least cannot be converted, that cannot."""
    start, stop = 0, len(values)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            convert(values.slice(start, middle - start))
            start = middle
        except pa.ArrowInvalid:
            stop = middle
    return start
