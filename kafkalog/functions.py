"""Helpers that functions for `where=` and `extract=` may call to read keys, values and headers.

Every read is checked: reading past the end raises `IndexError`, and the record counts as failed. The helpers take
`uint8` arrays and work compiled or not, so a function can be tested on ``numpy.frombuffer(b"...", numpy.uint8)``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from kafkalog.text import missing_in_module

__all__ = [
    *("Headers", "contains", "ends_with", "equals", "f32_of_bits", "f64_of_bits", "find", "get_header", "has_header"),
    *("parse_float", "parse_int", "read_float", "read_int", "read_uint", "read_uvarint", "starts_with"),
]

Bytes = npt.NDArray[np.uint8]


_POWERS = np.array([float(f"1e{n}") for n in range(309)])


class Headers(NamedTuple):
    """The headers of one record: see `has_header` and `get_header`."""

    data: Bytes
    """The record's bytes, starting at its first header."""
    n_headers: int
    """Number of headers."""


TEXT_IS_NOT_BYTES = 'a str equals no bytes; write b"...", as in functions.equals(key, b"abc")'


def _check_bytes(text: bytes) -> None:
    """Raise TypeError for a str: no byte equals its characters. Compiled code is checked while it is compiled."""
    if isinstance(text, str):
        raise TypeError(TEXT_IS_NOT_BYTES)


def equals(data: Bytes, text: bytes) -> bool:
    """Whether `data` equals `text`."""
    _check_bytes(text)
    return data.size == len(text) and starts_with(data, text)


def starts_with(data: Bytes, text: bytes) -> bool:
    """Whether `data` starts with `text`."""
    _check_bytes(text)
    if data.size < len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110 - numba has no all()
        if data[i] != text[i]:
            return False
    return True


def ends_with(data: Bytes, text: bytes) -> bool:
    """Whether `data` ends with `text`."""
    _check_bytes(text)
    if data.size < len(text):
        return False
    start = data.size - len(text)
    for i in range(len(text)):  # noqa: SIM110
        if data[start + i] != text[i]:
            return False
    return True


def find(data: Bytes, text: bytes, start: int = 0) -> int:
    """Position of the first occurrence of `text` at or after `start`; -1 if there is none."""
    _check_bytes(text)
    size = len(text)
    at = max(start, 0)
    if size == 0:
        return at if at <= data.size else -1
    while at <= data.size - size:  # `at + size` could overflow, this cannot
        if data[at] == text[0]:
            i = 1
            while i < size and data[at + i] == text[i]:
                i += 1
            if i == size:
                return at
        at += 1
    return -1


def contains(data: Bytes, text: bytes) -> bool:
    """Whether `text` occurs in `data`."""
    return find(data, text, 0) >= 0


def read_uint(data: Bytes, at: int, n_bytes: int, little_endian: bool = False) -> int:
    """The unsigned integer of 1, 2 or 4 bytes at a position."""
    if n_bytes > 4:
        raise ValueError("an unsigned integer has 1, 2 or 4 bytes")
    return _bits(data, at, n_bytes, little_endian)


def read_int(data: Bytes, at: int, n_bytes: int, little_endian: bool = False) -> int:
    """The signed integer of 1, 2, 4 or 8 bytes at a position."""
    bits = _bits(data, at, n_bytes, little_endian)
    # the bits above those that were read are those of the sign
    above = 64 - 8 * n_bytes
    return np.int64(bits) << above >> above  # type: ignore[return-value]


def read_float(data: Bytes, at: int, n_bytes: int, little_endian: bool = False) -> float:
    """The float of 4 or 8 bytes at a position."""
    if n_bytes == 4:
        return f32_of_bits(read_uint(data, at, 4, little_endian))
    if n_bytes == 8:
        return f64_of_bits(read_int(data, at, 8, little_endian))
    raise ValueError("a float has 4 or 8 bytes")


def _bits(data: Bytes, at: int, n_bytes: int, little_endian: bool) -> int:
    if n_bytes not in (1, 2, 4, 8):
        raise ValueError("an integer has 1, 2, 4 or 8 bytes")
    _check(data, at, n_bytes)
    value = np.int64(0)
    for i in range(n_bytes):
        value = value << 8 | np.int64(data[at + (n_bytes - 1 - i if little_endian else i)])
    return value  # type: ignore[return-value]


def read_uvarint(data: Bytes, at: int) -> tuple[int, int]:
    """A variable-length integer as in Protobuf, below 2^63, and the position after it."""
    value = np.int64(0)
    shift = 0
    while shift < 63:
        byte = np.int64(read_uint(data, at, 1))
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at  # type: ignore[return-value]
        shift += 7
    raise ValueError("a variable-length integer is too long")


def parse_int(data: Bytes, at: int = 0) -> int:
    """The decimal integer that begins at a position, after any spaces; it ends at the first other character."""
    at = _skip_spaces(data, at)
    negative = at < data.size and data[at] == 45
    if at < data.size and (data[at] == 45 or data[at] == 43):
        at += 1
    first = at
    value = np.int64(0)
    while at < data.size and 48 <= data[at] <= 57:
        digit = np.int64(data[at]) - 48
        # Collect the negated value: int64 has one more negative number than positive ones
        if value < -922337203685477580 or (value == -922337203685477580 and digit > (8 if negative else 7)):
            raise OverflowError("the number does not fit 64 bits")
        value = value * 10 - digit
        at += 1
    if at == first:
        raise ValueError("no number here")
    return value if negative else -value  # type: ignore[return-value]


def parse_float(data: Bytes, at: int = 0) -> float:
    """The decimal number that begins at a position, such as ``-12.5e3``; it ends at the first other character.

    Exact for up to 15 digits and powers of ten up to 22; beyond, the last digit may be off.
    """
    at = _skip_spaces(data, at)
    sign, at = _read_sign(data, at)
    digits = np.int64(0)
    n_digits = 0
    power = 0
    seen_point = False
    while at < data.size:
        byte = data[at]
        if byte == 46 and not seen_point:
            seen_point = True
        elif 48 <= byte <= 57:
            n_digits += 1
            # more digits than a float holds are counted, not collected
            if digits < 100000000000000000:
                digits = digits * 10 + (np.int64(byte) - 48)
                if seen_point:
                    power -= 1
            elif not seen_point:
                power += 1
        else:
            break
        at += 1
    if n_digits == 0:
        raise ValueError("no number here")
    return sign * _times_power(float(digits), power + _read_exponent(data, at))


def _read_sign(data: Bytes, at: int) -> tuple[int, int]:
    """1 or -1, and the position after the sign, if there is one."""
    if at < data.size and data[at] == 45:
        return -1, at + 1
    if at < data.size and data[at] == 43:
        return 1, at + 1
    return 1, at


def _read_exponent(data: Bytes, at: int) -> int:
    """The exponent of a decimal number, such as ``e-3``; 0 without one."""
    if at >= data.size or (data[at] != 101 and data[at] != 69):
        return 0
    sign, at = _read_sign(data, at + 1)
    exponent = 0
    while at < data.size and 48 <= data[at] <= 57:
        # an exponent of many digits must not overflow; beyond 308 the result is 0 or infinity anyway
        exponent = min(exponent * 10 + (int(data[at]) - 48), 10000)
        at += 1
    return sign * exponent


def _times_power(value: float, power: int) -> float:
    """A number times a power of ten."""
    if power < 0:
        # in two steps: 10**320 is no float, but a long number times 10**-320 is one
        low = max(power, -308)
        return value / float(_POWERS[-low]) / float(_POWERS[min(low - power, 308)])
    if power > 0 and value > 0:
        return value * float(_POWERS[power]) if power <= 308 else np.inf
    return value


def has_header(headers: Headers, name: bytes) -> bool:
    """Whether the record has a header with that key."""
    found, _, _ = _last_header(headers, name)
    return found


def get_header(headers: Headers, name: bytes) -> Bytes:
    """The value of the last header with that key; empty if the value is null or there is no such header."""
    _, start, stop = _last_header(headers, name)
    return headers.data[start:stop]


def _last_header(headers: Headers, name: bytes) -> tuple[bool, int, int]:
    _check_bytes(name)
    data = headers.data
    at = 0
    found, start, stop = False, 0, 0
    for _ in range(headers.n_headers):
        size, at = _read_zigzag(data, at)
        if size < 0 or size > data.size - at:
            raise IndexError("read past the end")
        key = at
        at += size
        matches = size == len(name) and starts_with(data[key:at], name)
        size, at = _read_zigzag(data, at)
        if size > data.size - at:
            raise IndexError("read past the end")
        end = at + max(size, 0)
        if matches:
            found, start, stop = True, at, end
        at = end
    return found, start, stop


def _check(data: Bytes, at: int, n: int) -> None:
    """Raise `IndexError` unless `n` bytes follow `at`; checked without adding to `at`, which could overflow."""
    if at < 0 or at > data.size - n:
        raise IndexError("read past the end")


def _read_zigzag(data: Bytes, at: int) -> tuple[int, int]:
    value, at = read_uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _skip_spaces(data: Bytes, at: int) -> int:
    if at < 0:
        raise IndexError("read before the start")
    while at < data.size and data[at] == 32:
        at += 1
    return at


def f32_of_bits(bits: int) -> float:
    """The 32-bit float with these bits."""
    return float(struct.unpack("<f", struct.pack("<I", int(bits)))[0])


def f64_of_bits(bits: int) -> float:
    """The 64-bit float with these bits, given as a signed integer."""
    return float(struct.unpack("<d", struct.pack("<q", int(bits)))[0])


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__"])


HELPERS: dict[str, Any] = {
    name: value for name, value in list(globals().items()) if getattr(value, "__module__", "") == __name__
}
"""Every function and class of this module by name, for the compiler of user functions."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        missing_in_module(__name__, __all__, name)
