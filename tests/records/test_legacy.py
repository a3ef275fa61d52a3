"""Messages of v0 and v1, and their wrappers."""

from __future__ import annotations

import builder
import pytest
from reading import read

import kafkalog
from kafkalog.errors import Reason
from kafkalog.records.selection import Selection


def test_the_same_record_in_all_three_formats() -> None:
    v0 = builder.message(0, b"tech", b"for good", magic=0)
    assert len(v0) == 38
    assert int.from_bytes(v0[12:16], "big") == 533337200
    v1 = builder.message(1, b"tech", b"for good", magic=1, timestamp=1_600_000_000_000)
    v2 = builder.batch_v2(
        [builder.record_v2(key=b"tech", value=b"for good")],
        base_offset=2,
        base_timestamp=1_600_000_000_001,
        max_timestamp=1_600_000_000_001,
    )
    reading = read(v0 + v1 + v2)
    assert reading.error is None
    c = reading.columns
    assert c.key.to_pylist() == [b"tech"] * 3
    assert c.value.to_pylist() == [b"for good"] * 3
    assert c.offset.tolist() == [0, 1, 2]
    assert c.timestamp.tolist() == [-1, 1_600_000_000_000, 1_600_000_000_001]
    assert c.timestamp_type.tolist() == [-1, 0, 0]


@pytest.mark.parametrize("start", range(5))
def test_a_wrapper_at_offset_0_is_not_passed_over_for_its_offset(start: int) -> None:
    # as librdkafka writes it: the offsets inside stand as they are, the one outside says nothing
    inner = [builder.message(i, None, b"v", magic=1, timestamp=i) for i in range(4)]
    data = builder.wrapper(inner, offset=0, magic=1, codec=builder.GZIP) + builder.message(4, None, b"v", magic=0)
    got = read(data, ("offset",), selection=Selection(start_offset=start))
    assert got.error is None
    assert got.columns["offset"].tolist() == list(range(start, 5))  # type: ignore[union-attr]


@pytest.mark.parametrize("magic", [0, 1])
def test_an_unknown_codec_is_named_before_what_it_may_have_made_of_the_message(magic: int) -> None:
    message = builder.message(0, b"k", b"v", magic=magic, attributes=5)
    at = 23 if magic == 0 else 31
    reading = read(builder.fix_crc(message[:at] + b"\x7f" + message[at + 1 :]))
    assert isinstance(reading.error, kafkalog.UnsupportedError)
    assert reading.error.reason is Reason.UNKNOWN_CODEC
