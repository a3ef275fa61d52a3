"""Filters as text."""

from datetime import UTC, datetime

import pytest

from kafkalog.scanning.conditions.filter_text import parse_condition, parse_filter

MOMENT = datetime(2023, 11, 14, 22, 18, 0, 400, UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key == abc", ("key", "==", "abc")),
        ("key=abc", ("key", "=", "abc")),
        ("  key   !=   a b  ", ("key", "!=", "a b")),
        ('key == "null"', ("key", "==", "null")),
        ("key == ' a '", ("key", "==", " a ")),
        ('key == ""', ("key", "==", "")),
        ("key == 0x00ff", ("key", "==", b"\x00\xff")),
        ('key == "0x00ff"', ("key", "==", "0x00ff")),
        ("value == base64:AAE=", ("value", "==", b"\x00\x01")),
        ("offset >= 5", ("offset", ">=", 5)),
        ("offset in 1, 2,3", ("offset", "in", [1, 2, 3])),
        ("key not in a,null,'b,c'", ("key", "not in", ["a", None, "b,c"])),
        ("key in ('a', 'b')", ("key", "in", ["a", "b"])),
        ("key in ['a)', b]", ("key", "in", ["a)", "b"])),
        ("offset not in (1,2)", ("offset", "not in", [1, 2])),
        ("key in (a),(b)", ("key", "in", ["(a)", "(b)"])),
        ("key in '(a)'", ("key", "in", ["(a)"])),
        ('value contains "id": 5', ("value", "contains", '"id": 5')),
        ("key IS  NOT NULL", ("key", "is not null")),
        ("value is null", ("value", "is null")),
        ("headers has trace", ("headers", "has", "trace")),
        ("headers has not trace", ("headers", "has not", "trace")),
        ("headers.trace == 0x01", ("headers.trace", "==", b"\x01")),
        ('headers."a b" == x', ("headers.a b", "==", "x")),
        ("value.amount > 5", ("value.amount", ">", "5")),
        ("value starts_with {", ("value", "starts_with", "{")),
        ("is_control == TRUE", ("is_control", "==", True)),
        ("timestamp == 5000", ("timestamp", "==", 5000)),
        ("timestamp <= 2023-11-15T00:18:00.0004+02:00", ("timestamp", "<=", MOMENT)),
        ("timestamp_type in CreateTime,1", ("timestamp_type", "in", ["CreateTime", 1])),
        ("key starts_with base64:aw==", ("key", "starts_with", b"k")),
        ("offset == -1", ("offset", "==", -1)),
        ("timestamp_type == create_time", ("timestamp_type", "==", "create_time")),
        ("timestamp_type == 1", ("timestamp_type", "==", 1)),
        ("compression == zstd", ("compression", "==", "zstd")),
        ("topic == 5", ("topic", "==", "5")),
        ("partition == 5", ("partition", "==", 5)),
        ("value contains salt and pepper", ("value", "contains", "salt and pepper")),
        ("value contains 'a and key == b'", ("value", "contains", "a and key == b")),
        ("value contains a and b == c", ("value", "contains", "a and b == c")),
        ("value contains 'a & b = c'", ("value", "contains", "a & b = c")),
        ('key == "it\'s"', ("key", "==", "it's")),
        ("key == 'it's'", ("key", "==", "it's")),
        ('value == "{"a": 1, "b": "c"}"', ("value", "==", '{"a": 1, "b": "c"}')),
        ('key == "a""b"', ("key", "==", 'a""b')),
        ('key in "a & b = c","d"', ("key", "in", ["a & b = c", "d"])),
    ],
)
def test_a_condition_is_a_tuple_of_the_columns_type(text, expected):
    assert parse_condition(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key", "COLUMN OP VALUE"),
        ("key ? a", "COLUMN OP VALUE"),
        ("key instant", "COLUMN OP VALUE"),
        ("key resembles a%", "OP is one of ==, .*, starts_with, "),
        ("key in ()", "a list of values is expected"),
        ("key == NULL", "write 'key is null', or put the text in quotes"),
        ("key is null or key == a", "one condition"),
        ("key ==", 'a value is expected; the empty one is ""'),
        ("key in ,", "a list of values is expected"),
        ("key is null 5", "not '5'"),
        ("key == null", "write 'key is null'"),
        ("key != null", "write 'key is not null'"),
        ("offset == five", "offset must be a whole number, such as offset >= 42, not 'five'"),
        ("is_control == 1", "is_control must be true or false, not '1'"),
        ("key == 0x0", "'0x0' is not hex"),
        ("key == base64:a", "'base64:a' is not base64"),
        ("key == a and offset > 5", "one condition"),
        ("key == 'a' AND value contains 'b'", "one condition"),
        ("key == a or value is null", "one condition"),
        ("offset > 5 && headers has b", "one condition"),
        ('key == "a" & value == "b"', "'&' joins no conditions; write and, or put the text in quotes"),
        ("key == 'a'|value == 'b'", "is no condition on a column; conditions are joined by and, or"),
        ('key == "a" or "b"', 'after "a", \'or "b"\' is no condition'),
        ('key == "a" and vaule == "b"', 'after "a", \'and vaule == "b"\' is no condition'),
        ('key == "a" value == "b"', "is no condition"),
        ("value contains a & b = c", "write and, or put the text in quotes"),
    ],
)
def test_what_is_none_is_refused_with_what_was_expected(text, message):
    with pytest.raises(ValueError, match=message):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("offset between 5 and 9", [[("offset", ">=", 5), ("offset", "<=", 9)]]),
        ("not (key == a or value is null)", [[("key", "!=", "a"), ("value", "is not null")]]),
        ("not (key == a and value is null)", [[("key", "!=", "a")], [("value", "is not null")]]),
        ("key == rock and roll", [[("key", "==", "rock and roll")]]),
        ("key == rock and roll and offset > 5", [[("key", "==", "rock and roll"), ("offset", ">", 5)]]),
        ("key == 'a' or value contains x) y", [[("key", "==", "a")], [("value", "contains", "x) y")]]),
        ("(key == a or key==b) and offset<3",
         [[("key", "==", "a"), ("offset", "<", 3)], [("key", "==", "b"), ("offset", "<", 3)]]),
        ("not key in a,b", [[("key", "not in", ["a", "b"])]]),
        ("key in (1,2) OR offset in 1, 2", [[("key", "in", ["1", "2"])], [("offset", "in", [1, 2])]]),
        ("key like 'a%' && value !~ ^x", [[("key", "like", "a%"), ("value", "not matches", "^x")]]),
        ("value.n not between 1 and 2", [[("value.n", "<", "1")], [("value.n", ">", "2")]]),
        ("not value.n not between 1 and 2", [[("value.n", ">=", "1"), ("value.n", "<=", "2")]]),
        ("not not headers has x", [[("headers", "has", "x")]]),
        ("not key starts_with a", [[("key", "not starts_with", "a")]]),
        ("key not like '%(a or b)'", [[("key", "not like", "%(a or b)")]]),
        ("topic == not", [[("topic", "==", "not")]]),
    ],
)  # fmt: skip
def test_conditions_are_joined(text, expected):
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(key == a", "lacks a closing parenthesis"),
        ("offset == 1) or key == b", "must be a whole number, such as offset >= 42, not"),
        ("key is null or", "expected"),
        ("offset between 5", "LEAST and MOST"),
        ("not headers.a == b", "several headers may have the name"),
        ("(" * 60 + "key == a" + ")" * 60, "too deeply"),
        (" and ".join(f"(offset == {i} or offset == -{i})" for i in range(9)), "more than 256"),
    ],
)
def test_what_is_no_filter_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_filter(text)
