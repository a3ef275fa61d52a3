"""Text and numbers as Kafka's serializers write them."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from kafkalog.values.formats.plain import TYPES, decode_plain
from kafkalog.values.payloads import Payloads

NUMBERS = {"short": (">h", [0, -1, 32767, -32768]), "int": (">i", [0, -1, 2**31 - 1]), "long": (">q", [0, -(2**63)])}
NUMBERS |= {"float": (">f", [0.0, -1.5, float("inf")]), "double": (">d", [0.1, -1e300])}  # type: ignore[dict-item]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_big_endian_and_of_exactly_their_size(name: str) -> None:
    layout, numbers = NUMBERS[name]
    whole: list[Any] = [struct.pack(layout, number) for number in numbers]
    size = struct.calcsize(layout)
    array = pa.array([b"junk", *whole, None, b"", b"\0" * (size - 1), b"\0" * (size + 1)], pa.binary())
    for values in (array[1:], array[1:].cast(pa.large_binary()), array.cast(pa.binary_view())[1:]):
        decoded = decode_plain(name, Payloads.of(values))
        decoded.array.validate(full=True)
        assert decoded.array.type == TYPES[name]
        assert decoded.array.to_pylist() == [*numbers, None, None, None, None]
        n = len(numbers)
        assert decoded.failures == dict.fromkeys(range(n + 1, n + 4), f"a {name} has {size} bytes")


def test_bytes_that_are_not_utf8_are_null() -> None:
    array = pa.array(["é".encode(), b"\xff", None, b"", b"x"], pa.binary())
    decoded = decode_plain("utf8", Payloads.of(array))
    assert decoded.array.to_pylist() == ["é", None, None, "", "x"]
    assert decoded.failures == {1: "not UTF-8"}
    assert decode_plain("utf8", Payloads.of(array[3:])).array.to_pylist() == ["", "x"]


def test_uuids_are_text() -> None:
    one = b"0b7d6f0e-8a3d-4f3e-9a5e-0123456789AB"
    decoded = decode_plain("uuid", Payloads.of(pa.array([one, b"no", one + b"0", None], pa.binary())))
    assert decoded.array.to_pylist() == [one.decode(), None, None, None]
    assert decoded.failures == {1: "no UUID", 2: "no UUID"}
