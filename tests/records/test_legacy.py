"""Messages of v0 and v1, and their wrappers."""

from __future__ import annotations

from typing import Any

import builder
import numpy as np
import pytest
from reading import read

import kafkalog
from kafkalog._kernels.legacy import walk_message_set
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import Reason
from kafkalog.records.selection import Selection


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


@pytest.mark.parametrize("codec", range(1, 8))
def test_a_message_of_any_codec_inside_a_wrapper_is_nested(codec: int) -> None:
    nested = builder.message(0, codec=codec, value=b"x")
    reading = read(builder.wrapper([nested], offset=0))
    assert reading.error is not None
    assert reading.error.reason is Reason.LEGACY_NESTED


@pytest.mark.parametrize(
    ("wrapper_offset", "expected"), [(2, [0, 1, 2]), (12, [10, 11, 12]), (0, [0, 1, 2]), (1, "LEGACY_WRAPPER_OFFSET")]
)
def test_offsets_in_a_wrapper_count_from_its_own(wrapper_offset: int, expected: list[int] | str) -> None:
    # without keys and values: none is shorter
    data = np.frombuffer(b"".join(builder.message(i, magic=1) for i in range(3)), np.uint8)
    columns: list[Any] = [np.zeros(3, dtype) for dtype in ("i8", "i8", "i1", "i4", "i4", "i4", "i4")]
    status, n, _ = walk_message_set(data, 0, data.size, wrapper_offset, 1, 0, 0, *columns)
    assert n == 3
    assert (columns[0].tolist() if status == STATUS["OK"] else status) == (
        STATUS[expected] if isinstance(expected, str) else expected
    )
