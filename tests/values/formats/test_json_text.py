"""JSON: what the kernel gives, and what is parsed value by value, are the same."""

from __future__ import annotations

import json
import math
import random
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from effort import fuzz_inputs
from guard import Guard
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.interchange.table_types import Digits
from kafkalog.values.formats.json_text import JsonValues, _JsonProgram, parse
from kafkalog.values.formats.plain import TYPES, decode_plain
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import MOST_DEPTH, MOST_FIELDS, TooWideError


def decoded(values):
    payloads = Payloads.of(pa.array(values, pa.binary()))
    reader = JsonValues()
    reader.learn(payloads)
    found = reader.decode(payloads)
    found.array.validate(full=True)
    assert found.array.type == reader.common.type
    return reader, found


def test_objects_have_all_fields_of_all_values():
    _, found = decoded([b'{"a": 1}', None, b'{"b": [1.5, 2]}', b'{"a": 2.5, "b": []}', b"{}"])
    assert found.array.to_pylist() == [
        {"a": 1.0, "b": None},
        None,
        {"a": None, "b": [1.5, 2.0]},
        {"a": 2.5, "b": []},
        {"a": None, "b": None},
    ]


def test_types_that_do_not_go_together_become_json_text():
    reader, found = decoded([b'{"a": 1}', b'{"a": "x"}', b'{"a": {"b": [1]}}', b"{}"])
    assert reader.common.as_text == {("a",)}
    assert found.array.to_pylist() == [{"a": "1"}, {"a": '"x"'}, {"a": '{"b":[1]}'}, {"a": None}]
    reader, found = decoded([b'[1, "x", {"a": 1}]', b"[null]"])
    assert found.array.to_pylist() == [["1", '"x"', '{"a":1}'], [None]]
    _, found = decoded([b"1", b'{"a": 1}'])
    assert found.array.to_pylist() == ["1", '{"a":1}']


def test_numbers_of_python_and_a_byte_order_mark_are_read():
    _, found = decoded([b'{"a": NaN, "b": 1}', b'\xef\xbb\xbf{"a": 1}', b'{"a": -Infinity, "b": 2}'])
    assert not found.failures
    assert str(found.array.to_pylist()) == "[{'a': nan, 'b': 1}, {'a': 1.0, 'b': None}, {'a': -inf, 'b': 2}]"
    _, mixed = decoded([b'{"a": Infinity}', b'{"a": "x"}', b'{"a": 9007199254740993}'])
    assert [row["a"] for row in mixed.array.to_pylist()] == ["Infinity", '"x"', "9007199254740993"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a": 1', "not JSON"),
        (b"", "not JSON"),
        (b'{"a": 1} {"a": 2}', "not JSON"),
        (b'{"a": 1}{"a": 2}', "not JSON"),
        (b'{"a": nan}', "not JSON"),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"a": 1}', "not JSON"),
        (b'{"a": \xff}', "not UTF-8"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, f"JSON nested more than {MOST_DEPTH} deep"),
        (b"[" * 100_000, f"JSON nested more than {MOST_DEPTH} deep"),
    ],
)
def test_what_is_not_json_is_null_beside_what_is(value, why):
    _, found = decoded([b'{"a": 1}', value, b'{"a": 2}'])
    assert found.failures == {1: why}
    assert found.array.to_pylist() == [{"a": 1}, None, {"a": 2}]


_HALF = "text that is not UTF-8, or has half a pair of surrogates"


@pytest.mark.parametrize(
    ("value", "expected", "why"),
    [
        (b'{"a": 1, "b": "x", "a": 2}', {"a": None, "b": "x"}, "a: twice in a JSON object"),
        (b'{"a": 3, "b": "\xff"}', {"a": 3, "b": None}, f"b: {_HALF}"),
        (b'{"a": 3, "b": "cut \\ud83d"}', {"a": 3, "b": None}, f"b: {_HALF}"),
        (b'{"\\ude00": 1, "a": 3, "b": "\\u00e9"}', {"a": 3, "b": "\u00e9"}, None),
        (b'{"\xff": 1, "a": 3}', {"a": 3, "b": None}, None),
        (b'{"a": "four", "b": "q"}', {"a": None, "b": "q"}, "a: another type than the values before have"),
        (b'{"a": 1, "b": [2]}', {"a": 1, "b": None}, "b: another type than the values before have"),
        (b'{"a": 3, "c": 1}', {"a": 3, "b": None}, "c: a field that the values before did not have"),
        (b'{"a": 3, "b": "\xe9", "c": "\\ud800"}', {"a": 3, "b": None}, None),
    ],
)
def test_a_fault_of_one_field_leaves_the_others(value, expected, why):
    reader, _ = decoded([b'{"a": 1, "b": "x"}'])
    payloads = Payloads.of(pa.array([b'{"a": 1, "b": "x"}', value], pa.binary()))
    found = reader.decode(payloads)
    assert found.array.to_pylist() == [{"a": 1, "b": "x"}, expected]
    assert not found.failures
    assert [*found.faults] == [1]
    assert why is None or found.faults == {1: why}
    for name in ("a", "b"):
        assert reader.decode(payloads, [(name,)]).array.to_pylist()[1] == {name: expected[name]}
    learned = JsonValues()
    learned.learn(payloads)
    assert learned.decode(payloads).array.to_pylist()[1]["a"] == (expected["a"] if b"four" not in value else '"four"')


def test_an_escape_beside_a_number_of_many_digits(tmp_path):
    """Both in one value among others."""
    values = [b'{"a": "x", "n": 1}'] * 100 + [
        b'{"a": "\\u00e9", "n": 0.12345678901234567890123}',
        b'{"a": "z", "n": 2.5}',
    ]
    _, found = decoded(values)
    assert not found.failures
    assert found.array[100].as_py() == {"a": "\u00e9", "n": 0.12345678901234567890123}
    _, found = decoded([b'{"a": "\\u00e9", "n": ' + b"9" * 50 + b"}"])
    assert found.array.to_pylist() == [{"a": "\u00e9", "n": "9" * 50}]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["9223372036854775808", "1"], [Decimal(2**63), Decimal(1)]),
        (["-18446744073709551615", "18446744073709551614"], [Decimal(1 - 2**64), Decimal(2**64 - 2)]),
        (["9" * 38, "-1"], [Decimal("9" * 38), Decimal(-1)]),
        (["9" * 39, "1"], ["9" * 39, "1"]),
        (["9007199254740993", "0.5"], ["9007199254740993", "0.5"]),
        (["0.5", "9007199254740993"], ["0.5", "9007199254740993"]),
        (["1", "0.5", "9007199254740992", "1152921504606846976"], [1.0, 0.5, 2.0**53, 2.0**60]),
        (["9007199254740993", "18446744073709551615"], [Decimal(2**53 + 1), Decimal(2**64 - 1)]),
        (["18446744073709551615", "0.5"], ["18446744073709551615", "0.5"]),
        (["1e400", "2.5"], ["1e400", "2.5"]),
        (["1e-400", "0e-400", "-0.0"], ["1e-400", "0.0", "-0.0"]),
        (["0.1", "0.30000000000000004", "0.100000000000000000"], [0.1, 0.1 + 0.2, 0.1]),
        (["1" * 100_000], ["1" * 100_000]),
    ],
)
def test_numbers_keep_their_digits(texts, expected):
    for form in ("%s", '{"a": %s}', '[{"b": [%s]}]', '{"a": {"b": %s}}'):
        _, found = decoded([(form % text).encode() for text in texts])
        assert not found.failures
        assert not found.lost
        array = found.array
        while pa.types.is_nested(array.type):
            array = array.flatten()
            array = array[0] if isinstance(array, list) else array
        assert array.to_pylist() == expected


def test_fractions_that_a_double_does_not_hold_are_reported():
    _, found = decoded([b'{"a": [0.12345678901234567890, 1]}', b'{"a": [0.5]}', b'{"a": [3.141592653589793238, 1.0]}'])
    assert found.array.to_pylist() == [{"a": [0.12345678901234568, 1.0]}, {"a": [0.5]}, {"a": [math.pi, 1.0]}]
    assert [(one.path, one.n, one.rows.tolist()) for one in found.lost] == [(("a", "[]"), 2, [0, 2])]


def test_too_many_fields_are_refused():
    values = [json.dumps({f"f{i}-{k}": 1 for k in range(100)}).encode() for i in range(MOST_FIELDS // 100 + 1)]
    with pytest.raises(TooWideError):
        JsonValues().learn(Payloads.of(pa.array(values, pa.binary())))


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
TREES = st.recursive(
    SCALARS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def fits(value, found):
    """Whether a decoded value says what the JSON value does: fields more are null, clashing types JSON text."""
    if isinstance(value, dict) and isinstance(found, dict):
        return all(fits(value.get(name), one) for name, one in found.items()) and value.keys() <= found.keys()
    if isinstance(value, list) and isinstance(found, list):
        return len(value) == len(found) and all(map(fits, value, found))
    if isinstance(value, int) and isinstance(found, float):
        return float(value) == found
    return value == found or (isinstance(found, str) and json.loads(found) == value)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), TREES, max_size=3) | TREES, max_size=6))
def test_any_json_comes_back(values):
    _, found = decoded([json.dumps(value).encode() for value in values])
    assert not found.failures
    for value, one in zip(values, found.array.to_pylist(), strict=True):
        assert fits(value, one)


def test_a_field_that_was_not_learned_is_a_fault_unless_fields_are_chosen():
    reader, _ = decoded([b'{"a": 1}'])
    grown = Payloads.of(pa.array([b'{"a": 2}', b'{"a": 3, "b": 4}'], pa.binary()))
    found = reader.decode(grown)
    assert (found.array.to_pylist(), [*found.faults]) == ([{"a": 2}, {"a": 3}], [1])
    assert reader.decode(grown, [("a",)]).array.to_pylist() == [{"a": 2}, {"a": 3}]


def comparable(value):
    """A value of Python in which NaN is equal to NaN."""
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    return "NaN" if value != value else value


def test_mutants_are_decoded_as_one_by_one(monkeypatch):
    rng = random.Random(18)
    good = [
        b'{"a": 1, "b": "x y", "c": [1, 2.5], "d": {"e": null}, "f": [{"g": true}, {}]}',
        b'{"a": -7, "b": "\\u00e9\\n\\ud83d\\ude00", "c": [], "f": [null, {"g": false, "h": "\xc3\xa9"}]}',
        b'{"x": [{"y": "z"}], "c": [1e3, 0.1, -0.25e-7], "a": 0}',
        b"{}",
    ]
    parts = [bytes([one]) for one in b'"{}[],:\\\n \0\xff']
    parts += [b"NaN", b"-Inf", b"1e5", b"null", b"true", b"00", b"-0", b"1.5", b"\xc3\xa9", b"}{", b"9" * 19]
    parts += [b"\\ud800", b"\\u0000", b'"a":1', b'"a":"x"', b'"new":[1]']
    for _ in range(max(fuzz_inputs() // 20, 20)):
        values = [rng.choice(good) for _ in range(20)]
        for _ in range(rng.choice([0, 1, 1, 2, 10])):
            row = rng.randrange(20)
            data = bytearray(values[row] or b"")
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.choice(parts)
            values[row] = rng.choice([bytes(data), bytes(data), bytes(data[:at]), b"{" + bytes(data) + b"}", None])
        reader, found = decoded(values)
        monkeypatch.setattr(JsonValues, "_program", lambda *_, **__: None)
        one_by_one, expected = decoded(values)
        monkeypatch.undo()
        assert found.failures == expected.failures, values
        assert comparable(found.array.to_pylist()) == comparable(expected.array.to_pylist()), values
        assert reader.common.type == one_by_one.common.type, values


def taken(values, kind, as_text=frozenset()):
    """What the kernel makes of values; each ends where memory does."""
    program = _JsonProgram(kind, pa.string() if as_text else kind, as_text)
    found = []
    for value in values:
        data = GUARD.ending(value.encode() if isinstance(value, str) else value)
        decoded = program.decode(Payloads(data, np.zeros(1, np.int64), np.full(1, data.size)))
        decoded.array.validate(full=True)
        found.append("OTHER" if decoded.failures else decoded.array[0].as_py())
    return found


GUARD = Guard()


@pytest.mark.parametrize(
    ("kind", "good", "others"),
    [
        (pa.int64(), ["0", " -1\n", "9223372036854775807", "-9223372036854775808"],
         ["9223372036854775808", "-9223372036854775809", "1.0", "1e2", "01", "-", "+1", "true", '"1"', "1" * 22]),
        (pa.float64(), ["1", "0.1", "-2.5e-3", "1E+22", "0.30000000000000004", "9007199254740992"],
         ["9007199254740993", "123456789012345678901234567890", "0.123456789012345678", "1.", ".5", "1e", "1e+", "0x1",
          "NaN", "Infinity", "-", "1e400", "5e-324", '""']),
        (pa.bool_(), ["true", "false", "null"], ["tru", "falsey", "1", "TRUE", "nul"]),
        (pa.string(), ['"x"', '""', '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00e9\\ud83d\\ude00"', '"é and more"'],
         ['"', '"\\"', '"\\x"', '"\\u12"', '"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"',
          '"a\nb"', '"12345678\t"', "1", b'"\xff"']),
        (pa.null(), ["null"], ["0", "nulls", "[]"]),
        (pa.list_(pa.int64()), ["[]", "[1, null ,2]", "null"], ["[", "[1", "[1,]", "[,1]", "[1 2]", "{}", '["1"]']),
        (pa.list_(pa.null()), ["[]", "[null,null]"], ["[1]"]),
        (pa.struct({"a": pa.int64(), "é\n": pa.string()}),
         ["{}", '{"a":1}', '{"é\\n": "x", "a": null}', '{"\\u0061":2}', " { } "],
         ["{", '{"a"', '{"a":', '{"a":1', '{"a":1,}', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}', '{"b":1}',
          "{a:1}", '{"a" 1}', "[]"]),
        (pa.struct([]), ["{}"], ['{"a":1}']),
    ],
)  # fmt: skip
def test_the_kernel_takes_values_of_its_type(kind, good, others):
    fields = {field.name: None for field in kind} if pa.types.is_struct(kind) else {}
    for text, value in zip(good, taken([*good], kind), strict=True):
        expected = json.loads(text, parse_int=float if kind == pa.float64() else int)
        assert value == ({**fields, **expected} if isinstance(expected, dict) else expected)
    assert taken(others, kind) == ["OTHER"] * len(others)


def test_the_text_of_any_value_is_json_and_compact():
    good = ['[1.0, {"a" : ["\\u00e9"]}]', "true", '"x"', " -1e2 ", "{}", "[ ]", "null"]
    assert taken([*good], pa.string(), frozenset({()})) == [
        '[1.0,{"a":["é"]}]',
        "true",
        '"x"',
        "-100.0",
        "{}",
        "[]",
        None,
    ]
    others = [
        '{"a":1,"a":2}',
        '{"a":[1,}',
        "[1",
        '"\\ud800"',
        "[" * 65 + "]" * 65,
        "[01]",
        "[nul]",
        "{1:2}",
        '{"a"}',
        "x",
    ]
    assert taken([*others], pa.string(), frozenset({()})) == ["OTHER"] * len(others)


def test_doubles_are_the_nearest_ones():
    rng = random.Random(18)
    texts = [repr(struct.unpack("d", rng.randbytes(8))[0]) for _ in range(3000)]
    texts = [text for text in texts if text not in ("nan", "inf", "-inf")]
    texts += [f"{rng.randrange(10 ** rng.randrange(1, 25))}e{rng.randrange(-345, 310)}" for _ in range(3000)]
    for _ in range(3000):  # in the middle between two doubles, and beside it
        middle = format((2 * rng.getrandbits(53) + 1) * Decimal(2) ** rng.randrange(-60, 9), "f")
        texts += [middle, middle + ("" if "." in middle else ".") + "1", middle[:20].rstrip(".")]
    payloads = Payloads.of(pa.array([text.encode() for text in texts], pa.binary()))
    found = _JsonProgram(pa.float64(), pa.float64(), frozenset()).decode(payloads)
    values = [(text, value) for text, value in zip(texts, found.array.to_pylist(), strict=True) if value is not None]
    assert [text for text, value in values if struct.pack("d", value) != struct.pack("d", float(text))] == []
    # others have more digits than a double tells apart, and are parsed one by one
    assert len(values) > 5000
    others = [text for text, value in zip(texts, found.array.to_pylist(), strict=True) if value is None]
    parsed = [(text, parse(text.encode())) for text in others]
    reals = [(text, one.real if isinstance(one, Digits) else one) for text, one in parsed if not isinstance(one, int)]
    assert [text for text, real in reals if real is not None and real != float(text)] == []
    assert sum(real is not None for _, real in reals) + len(values) > 8000


def test_few_bytes_that_stand_for_many_columns_take_little_memory():
    wide = json.dumps({f"f{i}": 1 for i in range(4000)})
    reader, _ = decoded([b"[" + wide.encode() + b"]"])
    bomb = b"[" + b"{}," * 300_000 + b"{}]"
    found = reader.decode(Payloads.of(pa.array([bomb, b"[]"], pa.binary())))
    assert found.failures == {0: "the value takes too much memory"}
    assert found.array.to_pylist() == [None, []]


def test_brackets_in_texts_are_not_nested():
    value = json.dumps({"a": "[{" * 100 + '\\" ['}).encode()
    assert parse(value) == json.loads(value)
    assert decoded([value, b"{}"])[1].array.to_pylist() == [json.loads(value), {"a": None}]


NUMBERS = {"short": (">h", [0, -1, 32767, -32768]), "int": (">i", [0, -1, 2**31 - 1]), "long": (">q", [0, -(2**63)])}
NUMBERS |= {"float": (">f", [0.0, -1.5, float("inf")]), "double": (">d", [0.1, -1e300])}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_big_endian_and_of_exactly_their_size(name):
    layout, numbers = NUMBERS[name]
    whole = [struct.pack(layout, number) for number in numbers]
    size = struct.calcsize(layout)
    array = pa.array([b"junk", *whole, None, b"", b"\0" * (size - 1), b"\0" * (size + 1)], pa.binary())
    for values in (array[1:], array[1:].cast(pa.large_binary()), array.cast(pa.binary_view())[1:]):
        decoded = decode_plain(name, Payloads.of(values))
        decoded.array.validate(full=True)
        assert decoded.array.type == TYPES[name]
        assert decoded.array.to_pylist() == [*numbers, None, None, None, None]
        n = len(numbers)
        assert decoded.failures == dict.fromkeys(range(n + 1, n + 4), f"a {name} has {size} bytes")


def test_bytes_that_are_not_utf8_are_null():
    array = pa.array(["é".encode(), b"\xff", None, b"", b"x"], pa.binary())
    decoded = decode_plain("utf8", Payloads.of(array))
    assert decoded.array.to_pylist() == ["é", None, None, "", "x"]
    assert decoded.failures == {1: "not UTF-8"}
    assert decode_plain("utf8", Payloads.of(array[3:])).array.to_pylist() == ["", "x"]


def test_uuids_are_text():
    one = b"0b7d6f0e-8a3d-4f3e-9a5e-0123456789AB"
    decoded = decode_plain("uuid", Payloads.of(pa.array([one, b"no", one + b"0", None], pa.binary())))
    assert decoded.array.to_pylist() == [one.decode(), None, None, None]
    assert decoded.failures == {1: "no UUID", 2: "no UUID"}
