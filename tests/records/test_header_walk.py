"""Bytes that are no batch have the same reason for those who walk and for those who set bytes apart."""

import pytest
from builder import batch_v2
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Reason
from kafkalog.format import RECORD_BATCH_OVERHEAD
from kafkalog.records.header import MAGIC_END
from kafkalog.records.header_walk import reason_of, walk
from kafkalog.storage.source import BufferSource

GOOD = batch_v2(payload=b"x", last_offset_delta=0)


def sized(size, magic):
    return bytes(8) + size.to_bytes(4, "big", signed=True) + bytes(4) + bytes([magic]) + b"\1" * 20


@settings(max_examples=examples(300), deadline=None)
@example(sized(-1, 0))
@example(sized(20, 1))
@example(sized(48, 2))
@example(sized(13, 2))
@example(sized(60, 9))
@example(sized(10**6, 2))
@example(b"\1" * 17)
@given(
    st.one_of(
        st.binary(min_size=1, max_size=100),
        st.builds(sized, st.integers(-100, 13) | st.integers(26, 100), st.integers(0, 4)),
    )
)
def test_salvage_and_readers_give_bytes_at_the_end_the_same_reason(rest):
    source = BufferSource(GOOD + rest)
    start, head = len(GOOD), rest[:RECORD_BATCH_OVERHEAD]
    is_unwritten = len(rest) > MAGIC_END and not any(rest)
    found = reason_of(source, start, source.size, source.size, head, is_unwritten=is_unwritten, limits=DEFAULT_LIMITS)
    windows = walk(source)
    assert len(next(windows).batches) == 1
    with pytest.raises(KafkalogError) as raised:
        next(windows)
    assert raised.value.position == start
    # only a walk knows the offset before, and checks the last offset of a whole header
    assert raised.value.reason in (found, Reason.OFFSET_ORDER, Reason.HEADER_INCONSISTENT)


@pytest.mark.parametrize(("size", "reason"), [(40, Reason.CRC_MISMATCH), (10**6, Reason.SIZE_EXCEEDS_FILE)])
def test_a_size_past_the_end_is_no_torn_batch_where_batches_follow(size, reason):
    rest = sized(size, 0)
    source = BufferSource(rest + GOOD)
    end = len(rest)
    head = rest[:RECORD_BATCH_OVERHEAD]
    assert reason_of(source, 0, end, source.size, head, is_unwritten=False, limits=DEFAULT_LIMITS) is reason
