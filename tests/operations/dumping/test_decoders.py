"""Decoders read keys and values as Kafka's tool reads them."""

from __future__ import annotations

import pytest

from kafkalog.operations.dumping.decoders import decoded


def test_numbers_are_the_first_bytes_and_text_is_javas() -> None:
    value = b"\xff\xff\xff\xfe\0\0\0\1\7"
    assert decoded(value, "integer", 0) == -2
    assert decoded(value, "kafka.serializer.LongDecoder", 0) == -(2**33) + 1
    assert decoded(b"a\xff", "string", 0) == "a\ufffd"
    assert decoded(value, None, 0) is value
    assert decoded(None, "long", 0) is None


def test_a_number_that_is_too_short_is_misuse() -> None:
    with pytest.raises(ValueError, match="offset 7: 3 bytes"):
        decoded(b"abc", "integer", 7)
