"""Numbers and timestamps as other tools write them: each exactly, or refused with its line."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import fails_with

from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.text_values import SourceColumn, milliseconds, texts_of, whole_numbers

AT = SourceColumn("at", lambda row: f"line {row + 2}")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def read(*texts, **options):
    """Texts as `milliseconds` reads them, in two types."""
    found = milliseconds(pa.array(texts, pa.string()), AT, **options).to_pylist()
    assert milliseconds(pa.array(texts, pa.large_string()), AT, **options).to_pylist() == found
    return found


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("-1", -1),
        ("+7", 7),
        ("007", 7),
        ("1700000000000.0", 1_700_000_000_000),
        (" 5", 5),
        ("9223372036854775807", 2**63 - 1),
        ("", None),
        (None, None),
        ("1970-01-01T00:00:00Z", 0),
        ("2024-02-29T12:34:56Z", 1_709_210_096_000),
        ("2024-02-29 12:34:56.7+00", 1_709_210_096_700),
        ("2024-02-29T12:34:56.789000000-01:30", 1_709_215_496_789),
        ("2024-02-29T12:34Z", 1_709_210_040_000),
        ("2300-01-01T00:00:00.001000Z", 10_413_792_000_001),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_a_timestamp_is_milliseconds_or_iso_8601(text, number):
    assert read(text) == [number]
    assert read("3", text, "1970-01-01T00:00:00.005+00:00", "4") == [3, number, 5, 4]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0x10", "must be milliseconds or ISO 8601 with Z or an offset"),
        ("1.5", "must be milliseconds"),
        ("٣", "must be milliseconds"),
        ("\\N", "--null"),
        ("2024-02-30T00:00:00Z", "must be milliseconds"),
        ("2024-01-01T24:00:00Z", "must be milliseconds"),
        ("2024-01-01T00:00:00+24:00", "must be milliseconds"),
        ("2024-01-01T00:00:00Z!", "must be milliseconds"),
        ("2024-01-01T00:00:00", "has no time zone"),
        ("2024-01-01", "has no time zone"),
        ("2024-01-01T00:00:00.123456789012Z", "is finer than a millisecond"),
        ("9223372036854775808", "does not fit 64 bits"),
    ],
)
def test_what_is_no_timestamp_is_refused_with_its_line_and_itself(text, what):
    for before in ([], ["17", "2024-01-01T00:00:00Z"], ["17", None], ["2024-01-01T00:00:00Z"] * 3):
        with pytest.raises(UnwritableError) as caught:
            milliseconds(pa.array([*before, text, "18"]), AT)
        assert caught.value.detail.startswith(f"line {len(before) + 2}: at {what.partition('--')[0]}")
        assert what in caught.value.detail
        assert repr(text) in caught.value.detail
        assert caught.value.reason is Reason.COLUMN_VALUE


NUMBERS = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.lists(st.none() | NUMBERS | st.tuples(MOMENTS, st.sampled_from("T "), ZONES), min_size=1))
def test_any_mixture_is_read_as_datetime_reads_it(values):
    texts, expected = [], []
    for value in values:
        if isinstance(value, tuple):
            moment = value[0].replace(tzinfo=value[2])
            texts.append(moment.isoformat(value[1]))
            expected.append((moment - EPOCH) // MILLISECOND)
        else:
            texts.append(None if value is None else str(value))
            expected.append(value)
    assume(not any(number == -1 and "." in (text or "") for text, number in zip(texts, expected, strict=True)))
    assert read(*texts, truncate=True) == expected


def test_a_time_before_1970_is_one_but_none_is_cut_to_no_timestamp():
    assert read("-5000", "1969-12-31T23:59:55Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z") == [
        *(-5000, -5000, -62_135_596_800_000, -1)
    ]
    with pytest.raises(UnwritableError, match="line 3: at is cut to -1, which means no timestamp"):
        read("7", "1969-12-31T23:59:59.9995Z", truncate=True)


def test_what_is_finer_than_a_millisecond_is_cut_off_where_that_is_wanted():
    texts = [f"{year}-01-01T00:00:00.{digits}Z" for year in (2024, 2300) for digits in ("1239", "123999", "123999999")]
    for text, number in zip(texts, [1_704_067_200_123] * 3 + [10_413_792_000_123] * 3, strict=True):
        assert read(text, truncate=True) == [number]
    assert read(*texts, "7", truncate=True)[2:] == [1_704_067_200_123, *[10_413_792_000_123] * 3, 7]


def test_naive_moments_are_of_the_zone_that_is_said():
    texts = ["2024-07-01T12:00:00", "2024-01-01 12:00:00.5", "2300-01-01", "2024-07-01T12:00"]
    moments = [datetime(2024, 7, 1, 12), datetime(2024, 1, 1, 12, 0, 0, 500_000), datetime(2300, 1, 1)]
    for name in ("UTC", "Europe/Berlin", "America/St_Johns"):
        wanted = [(moment.replace(tzinfo=ZoneInfo(name)) - EPOCH) // MILLISECOND for moment in moments]
        found = read(*texts, "5", "2024-01-01T00:00:00Z", naive_timezone=name)
        assert found == [*wanted, wanted[0], 5, 1_704_067_200_000]
        assert milliseconds(pa.array(texts), AT, naive_timezone=name).to_pylist() == found[:4]
    for text in ("2024-03-31T02:30:00", "2024-10-27T02:30:00"):
        for others in ([], ["7"], ["2024-01-01"]):
            with fails_with("column_value"):
                milliseconds(pa.array([*others, text, "2024-01-01"]), AT, naive_timezone="Europe/Berlin")
    assert milliseconds(pa.array(["1970-01-01"]), AT, naive_timezone="Europe/Berlin").to_pylist() == [-3_600_000]


def test_whole_numbers_are_decimal():
    texts = ["0", "-5", "007", None, "", "9223372036854775807"]
    assert whole_numbers(pa.array(texts), AT).to_pylist() == [0, -5, 7, None, None, 2**63 - 1]
    assert whole_numbers(pa.array([*texts, "+3", "5.0"]), AT).to_pylist()[-2:] == [3, 5]
    for text in ("0x10", "0X10", "1.5", "abc", "1e3", "NULL"):
        with fails_with("column_value"):
            whole_numbers(pa.array(["1", text]), AT)
    with fails_with("column_value"):
        whole_numbers(pa.array(["9223372036854775808"]), AT)


@given(st.lists(st.sampled_from([b"a", "é".encode(), None, b"\xff", b"\xc3"]), max_size=9))
def test_text_is_utf8_or_its_first_line_that_is_not_is_told(values):
    bad = [row for row, value in enumerate(values) if value in (b"\xff", b"\xc3")]
    column = pa.array(values, pa.binary())
    if not bad:
        assert texts_of(column, AT).cast(pa.binary()).to_pylist() == values
        return
    with fails_with("column_value"):
        texts_of(column, AT)
