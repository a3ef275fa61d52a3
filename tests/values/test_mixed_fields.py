"""Conditions on fields of mixed type, and on bytes: compared with what Python's json reads."""

import json
import random
from decimal import Decimal

import pyarrow as pa
import pytest

import kafkalog
from kafkalog.errors import ConditionError
from kafkalog.scanning.conditions.filter_text import parse_filter
from kafkalog.values.conditions import matching, split_filters

_SIGNS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
}


def _offsets(path, filters, **options):
    table = kafkalog.read_table(path, decode={"value": "json"}, columns=["offset"], filters=filters, **options)
    return table.column("offset").to_pylist()


def _written(path, values):
    with kafkalog.PartitionWriter(f"{path}/t-0") as writer:
        writer.append({"value": [json.dumps(value).encode() for value in values]})


@pytest.mark.parametrize("extra", [[], [9007199254740993], ["n/a"], [{"b": 1}], [[1]], [True], [None]])
def test_numbers_compare_as_numbers_whatever_else_the_field_has(tmp_path, extra):
    numbers = [10, 9, 0.5, 100]
    _written(tmp_path, [{"a": one} for one in numbers + extra])
    for sign, holds in _SIGNS.items():
        for limit in (9, 50, 0.5, 100):
            expected = [
                i
                for i, one in enumerate(numbers + extra)
                if isinstance(one, (int, float)) and not isinstance(one, bool) and holds(one, limit)
            ]
            assert _offsets(tmp_path, f"value.a {sign} {limit}") == expected, (sign, limit)
            assert _offsets(tmp_path, [("value.a", sign, limit)]) == expected, (sign, limit)
    assert _offsets(tmp_path, "value.a between 5 and 20") == [0, 1]
    assert _offsets(tmp_path, "value.a is null") == ([4] if extra == [None] else [])


def test_text_compares_with_text_alone(tmp_path):
    _written(tmp_path, [{"a": one} for one in (1, "1", "n/a", True, "true", None, {"x": 5}, '{"x":5}', ["n/a"])])
    for condition, expected in (
        ("value.a == n/a", [2]),
        ("value.a == 'n/a'", [2]),
        ("value.a == 1", [0]),
        ("value.a == '1'", [1]),
        ("value.a == true", [3]),
        ("value.a == 'true'", [4]),
        ("value.a != 1", [1, 2, 3, 4, 6, 7, 8]),
        ("value.a in 1,n/a", [0, 2]),
        ("value.a not in 1,n/a,null", [1, 3, 4, 6, 7, 8]),
        ("value.a >= n", [2, 4, 7]),
        ("value.a starts_with n", [2]),
        ("value.a contains n/", [2, 8]),
        ("value.a is not null", [0, 1, 2, 3, 4, 6, 7, 8]),
        ("value.a.x == 5", [6]),
    ):
        assert _offsets(tmp_path, condition) == expected, condition
    assert _offsets(tmp_path, [("value.a", "==", "1")]) == [1]
    assert _offsets(tmp_path, [("value.a", "in", [Decimal(1), True])]) == [0, 3]
    with pytest.raises(ConditionError, match="several types"):
        _offsets(tmp_path, [("value.a", "==", object())])


def test_the_meaning_of_a_condition_does_not_depend_on_other_records():
    chance = random.Random(53)
    pool = [None, True, False, 0, 1, -7, 2**63, 10**30, 0.25, -1e300, "", "1", "true", "x", "é", {"b": 1}, [1, "x"]]
    for _ in range(200):
        values = chance.choices(pool, k=12)
        texts = pa.array([None if one is None else json.dumps(one) for one in values])
        literal = chance.choice([one for one in pool if isinstance(one, (int, float, str))])
        sign = chance.choice([*_SIGNS, "!="])

        def same_kind(one, literal=literal):
            numbers = [isinstance(x, (int, float)) and not isinstance(x, bool) for x in (one, literal)]
            return all(numbers) or (not any(numbers) and type(one) is type(literal))

        def holds(one, sign=sign, literal=literal):
            if one is None:
                return False
            if sign == "!=":
                return not (same_kind(one) and one == literal)
            if isinstance(literal, bool) and sign != "==":
                return False
            return same_kind(one) and _SIGNS[sign](one, literal)

        mask = matching([[("value", sign, literal)]], {"value": texts}, len(values), [("value",)])
        assert mask.tolist() == [holds(one) for one in values], (values, sign, literal)


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(2)])
def test_literals_of_bytes_mean_bytes_in_decoded_fields(kind):
    ids = pa.array([b"\xff\x00", b"ab", b"\x07\x08", b"0x"], kind)
    columns = {"value": pa.StructArray.from_arrays([ids], ["id"])}
    for text, expected in (
        ("value.id == 0xff00", [0]),
        ("value.id == 0XFF00", [0]),
        ("value.id == base64:/wA=", [0]),
        ("value.id == 0xff", []),
        ("value.id != 0xff00", [1, 2, 3]),
        ("value.id in 0xff00,ab", [0, 1]),
        ("value.id not in 0xff00,base64:Bwg=", [1, 3]),
        ("value.id starts_with 0xff", [0]),
        ("value.id contains 0x08", [2]),
        ("value.id >= 0xff", [0]),
        ("value.id == '0x'", [3]),
    ):
        groups = split_filters(text, {"value"}, parse_filter).after
        assert matching(groups or [], columns, 4).nonzero()[0].tolist() == expected, text
    groups = split_filters("value.id == 0xzz", {"value"}, parse_filter).after
    with pytest.raises(ConditionError, match="not hex"):
        matching(groups or [], columns, 4)
    groups = split_filters([("value.id", "==", "0x")], {"value"}, parse_filter).after
    assert matching(groups or [], columns, 4).nonzero()[0].tolist() == [3]
