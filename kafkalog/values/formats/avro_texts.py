"""Bytes of Avro's logical types that become text: decimals of any size, and UUIDs."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.arrow_output import bitmap
from kafkalog.interchange.table_types import text_array
from kafkalog.values.formats.program import UnfitBytesError

_MOST_ZEROS: Final = 10_000
_UUID_SIZE: Final = 36


def decimal_texts(scale: int, array: pa.Array) -> pa.Array:
    """Unscaled big-endian numbers as text with all digits."""
    return text_array([None if data is None else digits_text(data, scale) for data in array.to_pylist()])


def big_decimal_texts(array: pa.Array) -> pa.Array:
    """Numbers with their own scale as text; raises UnfitBytesError for bytes that are none.

    Source: Conversions.BigDecimalConversion, Avro 1.12.
    """
    return text_array([None if data is None else _big_decimal(data) for data in array.to_pylist()])


def variable_scale_texts(array: pa.Array) -> pa.Array:
    """Structs of a scale and an unscaled big-endian number as text with all digits.

    Raises UnfitBytesError for a number without bytes. Source: VariableScaleDecimal.toLogical, Debezium 3.
    """
    pairs = array.to_pylist()
    return text_array([None if pair is None else _variable_scale(pair["value"], pair["scale"]) for pair in pairs])


def _variable_scale(data: bytes, scale: int) -> str:
    if not data:
        raise UnfitBytesError("a decimal has no number")
    return digits_text(data, scale)


def _big_decimal(data: bytes) -> str:
    size, at = _long(data, 0)
    if not 0 < size <= len(data) - at:
        raise UnfitBytesError("a big-decimal has no number")
    scale, end = _long(data, at + size)
    if end != len(data) or not -(2**31) <= scale < 2**31:
        raise UnfitBytesError("a big-decimal has no scale")
    return digits_text(data[at : at + size], scale)


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise UnfitBytesError("a big-decimal is too short")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise UnfitBytesError("a variable-length integer is too long")


def digits_text(data: bytes, scale: int) -> str:
    """A big-endian number with a scale as text.

    It has no exponent, as in Java's BigDecimal.toPlainString, unless it had very many zeros.
    """
    number = int.from_bytes(data, "big", signed=True)
    # Python converts no int of more than 4300 digits to text
    digits = str(Decimal(abs(number)))
    sign = "-" if number < 0 else ""
    if not -_MOST_ZEROS <= scale <= _MOST_ZEROS + len(digits):
        return f"{sign}{digits}E{-scale}"
    if scale <= 0:
        return f"{sign}{digits}{'0' * -scale if number else ''}"
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def uuid_texts(array: pa.Array) -> pa.Array:
    """UUIDs of 16 bytes as text, such as ``0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab``."""
    n, valid = len(array), validity(array)
    data = np.frombuffer(array.buffers()[1] or b"", np.uint8)[16 * array.offset :][: 16 * n].reshape(n, 16)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    halves = np.stack([digits[data >> 4], digits[data & 15]], axis=2).reshape(n, 32)
    texts = np.full((n, _UUID_SIZE), ord("-"), np.uint8)
    at = 0
    for begin, end in ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36)):
        texts[:, begin:end] = halves[:, at : at + end - begin]
        at += end - begin
    offsets = np.arange(0, _UUID_SIZE * (n + 1), _UUID_SIZE, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), n, [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(texts)])
