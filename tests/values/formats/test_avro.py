"""Avro: the kernel's columns against fastavro, and against bytes and schemas that mean harm."""

import io
import json
import random

import fastavro
import pyarrow as pa
import pytest
from avro_cases import AvroCase
from effort import fuzz_inputs

from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError, TooWideError, narrow_array


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(schema, values, **options):
    reader = AvroValues(json.dumps(schema), **options)
    found = reader.decode(Payloads.of(pa.array(values, pa.binary())))
    found.array.validate(full=True)
    assert found.array.type == reader.type
    assert len(found.array) == len(values)
    return found


def record(*fields):
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.mark.parametrize("seed", range(60))
def test_random_schemas_come_back_as_fastavro_wrote_them(seed):
    case = AvroCase(seed)
    pairs = [case.value() for _ in range(8)]
    values = [written(case.schema, given) for given, _ in pairs]
    values.insert(3, None)
    expected = [shown for _, shown in pairs]
    expected.insert(3, None)
    found = decoded(case.schema, values)
    assert not found.failures
    assert found.array.to_pylist() == expected
    for name in [one["name"] for one in case.schema["fields"]]:
        part = decoded(case.schema, values, paths=[(name,)])
        assert part.array.equals(narrow_array(found.array, part.array.type))


def test_a_value_that_breaks_off_is_null_and_the_others_stay():
    schema = record(("a", {"type": "array", "items": "string"}), ("m", {"type": "map", "values": "long"}))
    good = written(schema, {"a": ["x", "yy"], "m": {"k": 7}})
    shown = {"a": ["x", "yy"], "m": [("k", 7)]}
    for cut in range(len(good)):
        found = decoded(schema, [good, good[:cut], good])
        assert found.array.to_pylist() == [shown, None, shown]
        assert [*found.failures] == [1]
    found = decoded(schema, [good + b"\0"])
    assert found.failures == {0: "bytes are left after the value"}


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("int", b"\xff\xff\xff\xff\x7f", "an int has more than 32 bits"),
        ("long", b"\xff" * 11, "a variable-length integer is too long"),
        ("boolean", b"\2", "a boolean is neither 0 nor 1"),
        ("string", b"\4\xff\xff", "a string is not UTF-8"),
        ("string", b"\1", "a length is negative or larger than what is left"),
        ("bytes", b"\xfe\xff\xff\xff\x0f", "a length is negative or larger than what is left"),
        (["null", "int"], b"\4", "a union has no such branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "an enum has no such symbol"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f", "an array or a map has too many items"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\0", "an array or a map has too many items"),
        ({"type": "map", "values": "int"}, b"\xfe\xff\xff\xff\x0f", "an array or a map has too many items"),
        ({"type": "int", "logicalType": "time-millis"}, b"\1", "a time is not within a day"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\4\x7f\xff", "a decimal does not fit"),
    ],
)
def test_bytes_that_mean_harm_are_null_with_a_reason(kind, data, why):
    found = decoded(record(("f", kind)), [data])
    if found.failures:
        assert found.array.to_pylist() == [None]
        assert found.failures[0].startswith(why)
    else:
        assert found.array.to_pylist() == [{"f": None}]
        assert found.faults[0].startswith(f"f: {why}")
    assert bool(found.faults) == why.startswith(("a string", "an enum", "a time", "a decimal"))


def test_whether_a_value_decodes_does_not_depend_on_the_fields_that_are_wanted():
    rng = random.Random(18)
    kinds = ["int", "long", "string", "bytes", "boolean", "float", "double", ["null", "string"]]
    kinds += [["int", "null"], "null", ["null", "long", "string"], {"type": "fixed", "name": "F", "size": 5}]
    lengths = [
        b"\0",
        b"\2",
        b"\x0e",
        b"\x10",
        b"\x7f",
        b"\x80\1",
        b"\xfe\1",
        b"\xff" * 4 + b"\x0f",
        b"\xff" * 9 + b"\1",
    ]
    pieces = [*lengths, b"a text", b"\xc3\xa9", b"\xff", bytes(8), b"\xff" * 10]
    reasons = set()
    for _ in range(60):
        schema = record(*((f"f{at}", rng.choice(kinds[:-1])) for at in range(rng.randrange(1, 6))), ("last", kinds[-1]))
        values = [b"".join(rng.choices(pieces, k=rng.randrange(12))) for _ in range(60)]
        found = decoded(schema, values)
        reasons.update(found.failures.values())
        for name in (schema["fields"][0]["name"], "last"):
            part = decoded(schema, values, paths=[(name,)])
            assert part.failures == found.failures
            narrowed = narrow_array(found.array, part.array.type)
            assert repr(part.array.to_pylist()) == repr(narrowed.to_pylist())  # NaN equals no NaN
    assert len(reasons) > 6


@pytest.mark.parametrize("precision", [1, 2, 9, 18, 19, 37, 38, 39, 40, 57, 75, 76])
def test_decimals_have_at_most_their_digits(precision):
    schema = record(("f", {"type": "bytes", "logicalType": "decimal", "precision": precision}))
    largest = 10**precision - 1
    wraps = 2 ** (128 if precision <= 38 else 256)  # what 16 or 32 bytes would show as a small number
    for number in (0, 1, largest // 7, largest, largest + 1, 2 * largest, wraps - 1, wraps, wraps // 2, 10**90):
        for one in (number, -number):
            data = one.to_bytes(one.bit_length() // 8 + 1, "big", signed=True)
            fits = abs(one) <= largest
            found = decoded(schema, [written(record(("f", "bytes")), {"f": data})])
            assert found.array.to_pylist() == [{"f": one if fits else None}], one
            assert found.faults == ({} if fits else {0: "f: a decimal does not fit its precision"})
            beside = record(("f", schema["fields"][0]["type"]), ("g", "int"))
            value = written(record(("f", "bytes"), ("g", "int")), {"f": data, "g": 7})
            passed_over = decoded(beside, [value], paths=[("g",)])
            assert (passed_over.array.to_pylist(), passed_over.failures) == ([{"g": 7}], {})
            assert decoded(beside, [value]).array.to_pylist() == [{"f": one if fits else None, "g": 7}]


def test_a_time_of_day_is_less_than_a_day():
    for kind, name, day in (("int", "time-millis", 86_400_000), ("long", "time-micros", 86_400_000_000)):
        schema = record(("f", {"type": kind, "logicalType": name}))
        last, behind = (written(record(("f", kind)), {"f": number}) for number in (day - 1, day))
        assert decoded(schema, [last, behind, last]).faults == {1: "f: a time is not within a day"}
        beside = record(("f", schema["fields"][0]["type"]), ("g", "boolean"))
        passed_over = decoded(beside, [last + b"\1", behind + b"\1", last + b"\1"], paths=[("g",)])
        assert passed_over.array.to_pylist() == [{"g": True}] * 3


def test_items_without_bytes_are_at_most_1024_in_all_blocks():
    schema = record(("f", {"type": "array", "items": "null"}))

    def blocks(*counts):
        return b"".join(written("long", count) for count in (*counts, 0))

    few, many = [blocks(1024), blocks(1000, 24)], [blocks(1025), blocks(1000, 25)]
    found = decoded(schema, [*few, *many])
    assert [*found.failures] == [2, 3]
    assert found.array.to_pylist()[:2] == [{"f": [None] * 1024}] * 2


def test_records_within_themselves_become_json_text():
    tree = record(("v", "int"), ("next", ["null", "R"]), ("more", {"type": "map", "values": "R"}))
    value = {"v": 1, "next": {"v": 2, "next": None, "more": {"k": {"v": 3, "next": None, "more": {}}}}, "more": {}}
    found = decoded(tree, [written(tree, value), None])
    (shown, nothing) = found.array.to_pylist()
    assert nothing is None
    assert shown["v"] == 1
    assert json.loads(shown["next"]) == value["next"]


def test_recursion_in_the_bytes_is_bounded():
    chain = record(("next", ["null", "R"]))
    found = decoded(chain, [b"\2" * n + b"\0" for n in (1_000_000, 50, 49, 10)])
    assert found.failures == dict.fromkeys((0, 1), "the value is nested too deeply")
    assert found.array.is_valid().to_pylist() == [False, False, True, True]


def test_a_short_schema_with_too_many_fields_is_refused():
    bomb = record(("x", "int")) | {"name": "L0"}
    for level in range(1, 40):
        fields = [{"name": "a", "type": bomb}, {"name": "b", "type": f"L{level - 1}"}]
        bomb = {"type": "record", "name": f"L{level}", "fields": fields}
    with pytest.raises(TooWideError):
        AvroValues(json.dumps(bomb))
    with pytest.raises(SchemaError):
        AvroValues("[" * 100_000)
    with pytest.raises(SchemaError):
        AvroValues('{"type": "array", "items": ' * 100 + '"int"' + "}" * 100)


def test_rows_that_would_fill_memory_are_null():
    # each byte of the array makes a row of 2000 nulls
    wide = {"type": "record", "name": "W", "fields": [{"name": f"f{i}", "type": "long"} for i in range(2000)]}
    schema = record(("a", {"type": "array", "items": ["null", wide]}))
    n = 200_000
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", n)
    found = decoded(schema, [b"\0", out.getvalue() + b"\0" * n + b"\0", b"\0"])
    assert found.array.to_pylist() == [{"a": []}, None, {"a": []}]
    assert found.failures == {1: "the value takes too much memory"}


def test_schemas_that_are_none_say_why():
    for text in (
        "{",
        "[]",
        '["null", "null"]',
        '"nothing"',
        '{"type": "record", "name": "R"}',
        '{"type": "fixed"}',
        "7",
    ):
        with pytest.raises(SchemaError):
            AvroValues(text)


def test_names_of_other_schemas_resolve():
    other = {"type": "record", "name": "x.Money", "fields": [{"name": "cents", "type": "long"}]}
    reader = AvroValues(json.dumps(record(("price", "x.Money"))), [json.dumps(other)])
    found = reader.decode(Payloads.of(pa.array([b"\x10"], pa.binary())))
    assert found.array.to_pylist() == [{"price": {"cents": 8}}]


def test_any_bytes_decode_or_are_null_with_a_reason():
    rng = random.Random(18)
    for number in range(max(fuzz_inputs() // 40, 20)):
        case = AvroCase(number)
        good = [written(case.schema, case.value()[0]) for _ in range(10)]
        mutants = []
        for _ in range(40):
            data = bytearray(rng.choice(good))
            for _ in range(rng.randrange(1, 4)):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            mutants.append(bytes(data[: rng.randrange(len(data) + 1)]) if rng.random() < 0.3 else bytes(data))
        found = decoded(case.schema, [*mutants])
        for field in found.array.type:
            alone = decoded(case.schema, [*mutants], paths=[(field.name,)])
            assert alone.failures == found.failures
            narrow, whole = (one.array.field(field.name) for one in (alone, found))
            # dates may be outside of Python's years; NaN equals no NaN
            assert narrow.is_null().equals(whole.is_null())
            assert f"{narrow}" == f"{whole}"
        valid = found.array.is_valid().to_pylist()
        assert [row for row, one in enumerate(valid) if not one] == sorted(found.failures)


def test_a_fault_of_one_field_leaves_the_others():
    inner = {"type": "record", "name": "N", "fields": [{"name": "s", "type": "string"}]}
    schema = record(
        ("s", "string"),
        ("e", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ("d", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 2}]),
        ("n", inner),
        ("l", {"type": "array", "items": "string"}),
        ("m", {"type": "map", "values": {"type": "map", "values": "string"}}),
        ("u", ["null", "string", "int"]),
        ("last", "int"),
    )
    bad = b"\2\xff"
    good = [b"\2x", b"\0", b"\2\2\5", b"\2x", b"\2\2x\0", b"\2\2k\2\2a\2v\0\0", b"\2\2x", b"\x0e"]
    value = {"s": "x", "e": "A", "d": 5, "n": {"s": "x"}, "l": ["x"], "m": {"k": {"a": "v"}}}
    value |= {"u": {"string": "x", "int": None}, "last": 7}
    faults = [
        (0, bad, {"s": None}, "s: a string is not UTF-8"),
        (1, b"\2", {"e": None}, "e: an enum has no such symbol"),
        (2, b"\2\4\x7f\xff", {"d": None}, "d: a decimal does not fit its precision"),
        (3, bad, {"n": {"s": None}}, "n.s: a string is not UTF-8"),
        (4, b"\6\2a\2\xff\2b\0", {"l": ["a", None, "b"]}, "l[]: a string is not UTF-8"),
        (5, b"\2\2k\4\2a\2v\2\xff\2w\0\0", {"m": {"k": None}}, "m{}: a string is not UTF-8"),
        (5, b"\4\2\xff\0\2k\2\2a\2v\0\0", {"m": None}, "m: a string is not UTF-8"),
        (5, b"\2\2k\2\2a\2\xff\0\0", {"m": {"k": {"a": None}}}, "m{}{}: a string is not UTF-8"),
        (6, b"\2\2\xff", {"u": {"string": None, "int": None}}, "u.string: a string is not UTF-8"),
    ]
    values = [b"".join(good)] + [b"".join([*good[:at], data, *good[at + 1 :]]) for at, data, _, _ in faults]
    found = decoded(schema, [*values, values[1][:-1]])
    rows = found.array.to_pylist(maps_as_pydicts="strict")
    assert rows == [value, *(value | change for _, _, change, _ in faults), None]
    assert found.faults == {row: why for row, (_, _, _, why) in enumerate(faults, 1)}
    assert found.failures == {len(values): "the bytes end inside the value"}
    many = decoded(schema, values * 500)
    assert many.array.to_pylist(maps_as_pydicts="strict") == rows[:-1] * 500
    assert len(many.faults) == 500 * len(faults)
