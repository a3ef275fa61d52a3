"""Filters on decoded columns: which wait, and what they compare with."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from kafkalog.scanning.conditions.filter_text import parse_filter
from kafkalog.values.conditions import matching, split_filters


def test_filters_are_divided_into_those_before_and_after():
    split = split_filters("offset > 3", {"value"}, parse_filter)
    assert split == ([[("offset", ">", 3)]], None)
    split = split_filters(["offset > 3", "value.a == x"], {"value"}, parse_filter)
    assert split == ([[("offset", ">", 3)]], [[("value.a", "==", "x")]])
    either = [[("offset", "<", 3), ("value.a", "=", 1)], [("key", "==", b"k")]]
    before, after = split_filters(either, {"value"}, parse_filter)
    assert before == [[("offset", "<", 3)], [("key", "==", b"k")]]
    assert after == [[("offset", "<", 3), ("value.a", "==", 1)], [("key", "==", b"k")]]
    assert split_filters([[("value.a", "==", 1)], [("offset", "==", 2)]], {"value"}, parse_filter).before is None


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([("value.a", "?", 1)], "no operation"),
        ([("value.a", "==")], "needs a value"),
        ([("value.a", "==", None)], "is null"),
        ([[("value.a", "==", 1)], [("headers", "is null")]], "filters on headers are"),
        ([[("value.a", "==", 1)], [("headers", "has")]], "filters on headers are"),
    ],
)
def test_conditions_that_are_none_say_why(filters, message):
    with pytest.raises(ValueError, match=message):
        split_filters(filters, {"value"}, parse_filter)


def test_patterns_and_their_negations():
    kind = pa.struct([("t", pa.string()), ("b", pa.binary()), ("n", pa.int64())])
    rows = [{"t": "user-1", "b": b"a.c", "n": 1}, {"t": "USER-2", "b": b"abc", "n": 2}, {"t": None, "b": None}]
    columns = {"value": pa.array(rows, kind)}
    for text, expected in (
        ("value.t like 'user-_'", [0]),
        ("value.t not like 'user-%'", [1]),
        ("value.t matches '(?i)^user-[0-9]$'", [0, 1]),
        ("value.b !~ '^a[.]c$'", [1]),
        ("not value.b contains .", [1]),
        ("value.t not starts_with user", [1]),
        ("value.n between 2 and 3 or value.t is null", [1, 2]),
        ("not (value.n == 1 or value.t == x)", [1]),
    ):
        groups = split_filters(text, {"value"}, parse_filter).after
        assert groups is not None
        assert matching(groups, columns, 3).nonzero()[0].tolist() == expected, text
    for text, message in (("value.t matches '('", "not a valid pattern"), ("value.n like 1", "with text and bytes")):
        groups = split_filters(text, {"value"}, parse_filter).after
        with pytest.raises(ValueError, match=message):
            matching(groups or [], columns, 3)


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
BEGIN, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "low", "high", "value"),
    [
        (pa.int8(), 1, 100, "5"),
        (pa.int64(), 1, 2**62, 2**40),
        (pa.float32(), 0.5, 1.5, "0.75"),
        (pa.float64(), 0.5, 1.5, 1),
        (pa.string(), "a", "é", "b"),
        (pa.binary(), b"a", b"\xff", "b"),
        (pa.binary(2), b"aa", b"\xff\xff", b"bb"),
        (pa.decimal128(9, 2), Decimal("1.25"), Decimal("9.50"), "1.5"),
        (pa.date32(), date(2026, 1, 1), date(2026, 12, 1), "2026-11-22"),
        (pa.time32("ms"), time(1), time(23), "12:00:00"),
        (pa.timestamp("ms", "UTC"), BEGIN, END, NOON),
        (
            pa.timestamp("us", "UTC"),
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2027, 1, 1, tzinfo=UTC),
            "2026-11-22T12:00Z",
        ),
        (pa.timestamp("us"), datetime(2026, 1, 1), datetime(2027, 1, 1), "2026-11-22T12:00"),
    ],
    ids=str,
)
def test_values_compare_in_the_type_of_the_field(kind, low, high, value):
    columns = {"value": pa.array([{"a": low}, {"a": high}, {"a": None}, None], pa.struct([("a", kind)]))}
    for operation, expected in (("<", [0]), (">=", [1]), ("!=", [0, 1]), ("==", [])):
        assert matching([[("value.a", operation, value)]], columns, 4).nonzero()[0].tolist() == expected
    assert matching([[("value.a", "in", [value, None])]], columns, 4).nonzero()[0].tolist() == [2, 3]
    assert matching([[("value.a", "not in", [value])]], columns, 4).nonzero()[0].tolist() == [0, 1, 2, 3]


def test_booleans_and_what_does_not_compare():
    columns = {"value": pa.array([True, False, None]), "key": pa.array([{"a": [1]}])}
    assert matching([[("value", "==", "true")]], columns, 3).tolist() == [True, False, False]
    for term in (
        ("value", "==", 1),
        ("key.a", "==", 1),
        ("key", "==", 1),
        ("value", "contains", "x"),
    ):
        with pytest.raises(ValueError):
            matching([[term]], columns, 3)


@pytest.mark.parametrize(
    ("operation", "value", "expected"),
    [("==", "0.1", [0]), (">", 0.1, [1]), ("in", [0.1], [0]), ("==", 0.10000000149011612, [0]), ("==", 0.10000001, [])],
)
def test_single_precision_numbers_are_found_by_the_digits_that_are_shown(operation, value, expected):
    columns = {"value": pa.array([0.1, 0.2, None], pa.float32())}
    assert matching([[("value", operation, value)]], columns, 3).nonzero()[0].tolist() == expected
