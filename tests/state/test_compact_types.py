"""Fields of flexible messages, read one behind the other."""

from __future__ import annotations

import pytest

from kafkalog.state.compact_types import CompactReader


def test_fields_are_read_one_behind_the_other() -> None:
    data = b"\xff\xfe\x00\x00\x00\x07\x03ab\x00\x03\x00\x00\x00\x01\x00\x00\x00\x02\x01\x00\x01x"
    reader = CompactReader(data)
    assert reader.integer(2) == -2
    assert reader.int32() == 7
    assert reader.string() == "ab"
    assert reader.string() is None
    assert reader.int32s() == [1, 2]
    reader.tags()
    with pytest.raises(ValueError, match="ends early"):
        reader.take(1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x80\x80\x80\x80\x01", "overlong"),
        (b"\x00", "an array of -1"),
        (b"\xff\xff\xff\xff\x0f", "an array of 4294967294"),
        (b"\x80", "ends early"),
    ],
)
def test_an_array_that_cannot_be_is_refused_before_anything_is_made_of_it(data: bytes, message: str) -> None:
    reader = CompactReader(data)
    with pytest.raises(ValueError, match=message):
        reader.array(reader.int32)
