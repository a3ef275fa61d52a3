"""What several types have in common, and arrays of it."""

from decimal import Decimal

import pyarrow as pa
import pytest

from kafkalog.interchange.table_types import LossCounts
from kafkalog.values.types import MOST_DEPTH, CommonType, TooWideError, check_width, field_at, narrow_type, wider


def unified(*arrays):
    common = CommonType()
    for array in arrays:
        common.add(array.type)
    found = []
    for array in arrays:
        lost = LossCounts()
        fit = common.fit(array, lost.report)
        assert lost.found == []
        fit.validate(full=True)
        assert fit.type == common.type
        found += fit.to_pylist()
    return found


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int16(), pa.uint16(), pa.int32()),
        (pa.uint32(), pa.uint64(), pa.uint64()),
        (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.string(), pa.binary(), pa.binary()),
        (pa.binary(4), pa.binary(5), pa.binary()),
        (pa.decimal128(9, 2), pa.decimal128(9, 4), pa.decimal128(11, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 38)),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("ms"), None),
        (pa.time32("ms"), pa.time64("us"), pa.time64("us")),
        (pa.string(), pa.int64(), None),
        (pa.bool_(), pa.int32(), None),
    ],
)
def test_the_wider_type_of_two(one, other, both):
    assert wider(one, other) == wider(other, one) == both


def test_values_of_all_versions_fit():
    first = pa.array([{"a": 1, "l": [{"x": 1}], "m": [("k", 1)]}, None], pa.struct([
        ("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.int32())]))), ("m", pa.map_(pa.string(), pa.int32())),
    ]))  # fmt: skip
    second = pa.array([{"a": 2**40, "l": [{"y": "t"}, None], "m": [("k", 2**40)], "n": Decimal("1.5")}], pa.struct([
        ("a", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.string())]))), ("m", pa.map_(pa.string(), pa.int64())),
        ("n", pa.decimal128(3, 1)),
    ]))  # fmt: skip
    expected = [
        {"a": 1, "l": [{"x": 1, "y": None}], "m": [("k", 1)], "n": None},
        None,
        {"a": 2**40, "l": [{"x": None, "y": "t"}, None], "m": [("k", 2**40)], "n": Decimal("1.5")},
    ]
    assert unified(first, second) == expected
    assert unified(first[1:], second) == expected[1:]
    assert unified(first[:1], second[:0]) == expected[:1]


def test_sliced_lists_and_maps_fit():
    lists = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int32()))
    maps = pa.array([[("a", 1)], [("b", 2)], None], pa.map_(pa.string(), pa.int32()))
    assert unified(lists[1:], pa.array([[2**40]], pa.list_(pa.int64()))) == [[2, 3], None, [4], [2**40]]
    assert unified(maps[1:], pa.array([[("c", 0.5)]], pa.map_(pa.string(), pa.float64()))) == [
        [("b", 2.0)],
        None,
        [("c", 0.5)],
    ]


def test_what_does_not_go_together_is_json_text():
    numbers = pa.array([{"a": 1}, {"a": None}], pa.struct([("a", pa.int64())]))
    structs = pa.array([{"a": {"b": b"\0", "t": 0}}], pa.struct([
        ("a", pa.struct([("b", pa.binary()), ("t", pa.timestamp("ms", "UTC"))]))
    ]))  # fmt: skip
    assert unified(numbers, structs) == [
        {"a": "1"},
        {"a": None},
        {"a": '{"b":"AA==","t":"1970-01-01T00:00:00.000Z"}'},
    ]


def test_nested_fields_are_null_where_what_is_around_them_is():
    array = pa.array([{"a": {"b": 1}}, {"a": None}, None], pa.struct([("a", pa.struct([("b", pa.int64())]))]))
    assert field_at(array, ["a", "b"]).to_pylist() == [1, None, None]
    assert field_at(array[1:], ["a", "b"]).to_pylist() == [None, None]
    with pytest.raises(KeyError):
        field_at(array, ["a", "c"])


def test_types_are_narrowed_to_paths():
    kind = pa.struct([("a", pa.struct([("b", pa.int64()), ("c", pa.int64())])), ("d", pa.int64())])
    assert narrow_type(kind, [("a", "c")]) == pa.struct([("a", pa.struct([("c", pa.int64())]))])
    assert narrow_type(kind, [("a",), ("a", "c")]) == pa.struct([("a", kind.field("a").type)])
    assert narrow_type(kind, None) == narrow_type(kind, [()]) == kind


def test_deep_and_wide_types_are_refused():
    deep = pa.int64()
    for _ in range(MOST_DEPTH + 1):
        deep = pa.list_(deep)
    with pytest.raises(TooWideError):
        check_width(deep)
    with pytest.raises(TooWideError):
        check_width(pa.struct([(f"f{i}", pa.int64()) for i in range(5000)]))
