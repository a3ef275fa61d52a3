"""Reads keys and values as the decoders of Kafka's tool read them: as text, or as numbers."""

from __future__ import annotations

from kafkalog.interchange.arrow_output import java_string
from kafkalog.operations.dumping.options import DECODERS

_NUMBER_SIZES = {"integer": 4, "long": 8}


def number_size(decoder: str | None) -> int:
    """Return how many bytes a decoder reads as a number; 0 for a decoder of text."""
    return 0 if decoder is None else _NUMBER_SIZES.get(DECODERS[decoder], 0)


def decoded(value: bytes | None, decoder: str | None, offset: int) -> bytes | str | int | None:
    """Decode the key or the value of the record at an offset; without a decoder return the bytes.

    Raises
    ------
    ValueError
        It is shorter than its decoder needs.
    """
    if value is None or decoder is None:
        return value
    size = number_size(decoder)
    if not size:
        return java_string(value)
    if len(value) < size:
        raise too_short(value, decoder, offset)
    return int.from_bytes(value[:size], "big", signed=True)


def too_short(value: bytes, decoder: str | None, offset: int) -> ValueError:
    """Return the error for a value that is shorter than its decoder needs."""
    name = "string" if decoder is None else DECODERS[decoder]
    size = number_size(decoder)
    return ValueError(f"offset {offset}: {len(value)} bytes where the {name} decoder needs {size}")
