"""What counts as a timestamp, and the search for the first record at or after many of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builder import batch_v2, record_v2

from kafkalog.errors import CorruptionError
from kafkalog.log.lookups.timestamp_search import TimestampSearch, parse_timestamps
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import BufferSource

MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, 5),
        (np.int32(5), 5),
        (2**63 - 1, 2**63 - 1),
        ("latest", -1),
        ("earliest", -2),
        ("max-timestamp", -3),
        (MOMENT, MS),
        (MOMENT.astimezone(timezone(timedelta(hours=-7))), MS),
        (MOMENT + timedelta(microseconds=1), MS + 1),
        (MOMENT + timedelta(microseconds=1000), MS + 1),
        (pd.Timestamp(MOMENT), MS),
        ([], []),
        ([3, 1, 2], [3, 1, 2]),
        ((1, "latest", MOMENT), [1, -1, MS]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (np.array([1, 2], np.uint16), [1, 2]),
        (np.array([7], ">i8"), [7]),
        (pd.Series([MOMENT, MOMENT]), [MS, MS]),
        (np.array(["earliest", MOMENT], object), [-2, MS]),
    ],
)
def test_milliseconds_names_and_moments_are_questions(given: Any, expected: Any) -> None:
    parsed = parse_timestamps(given)
    assert parsed.dtype == np.int64
    assert parsed.dtype.isnative
    assert parsed.tolist() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (datetime(2023, 11, 14), "naive"),
        ([1, datetime(2023, 11, 14)], "naive"),
        (pd.Timestamp("2023-11-14"), "naive"),
        (np.datetime64("2023-11-14"), "no zone"),
        (np.array(["2023-11-14"], "M8[ms]"), "no zone"),
        (-1, "milliseconds from 0"),
        ([5, -3], "milliseconds from 0"),
        (2**63, "milliseconds from 0"),
        ([1, 2**64], "milliseconds from 0"),
        (np.array([2**63], np.uint64), "milliseconds from 0"),
        (MOMENT.replace(year=1969), "milliseconds from 0"),
        ("newest", "not 'newest'; or one of earliest, latest, max-timestamp"),
        ("2023-11-14T00:00:00", "time zone"),
    ],
)
def test_what_is_no_moment_is_a_value_error_that_says_why(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_timestamps(given)


@pytest.mark.parametrize("given", [1.5, [1.0, 2.0], None, True, [True, False], np.array([True]), b"latest", [object()]])
def test_what_is_no_timestamp_at_all_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match="timestamp is milliseconds, a time as text or an aware datetime, not"):
        parse_timestamps(given)


def searched(data: bytes, timestamps: list[int], **options: Any) -> TimestampSearch:
    search = TimestampSearch(np.array(timestamps, np.int64), **options)
    for window in walk(BufferSource(data)):
        search.feed(window)
    return search


def batch(base_offset: int, stamps: list[int], largest: int | None = None, **options: Any) -> bytes:
    records = [record_v2(i, stamp, b"k", b"v") for i, stamp in enumerate(stamps)]
    largest = max(stamps) if largest is None else largest
    return batch_v2(records, base_offset=base_offset, max_timestamp=largest, **options)


def test_batches_that_no_answer_needs_are_not_decoded() -> None:
    good, bad = batch(0, [10]), batch(1, [20], crc=7)
    search = searched(good + bad + batch(2, [30]), [5, 10, 21, 30])
    assert search.found["offset"].tolist() == [0, 0, 2, 2]
    assert search.is_done
    assert search.position.tolist() == [0, 0, len(good + bad), len(good + bad)]
    with pytest.raises(CorruptionError, match="crc_mismatch"):
        searched(good + bad, [15])
