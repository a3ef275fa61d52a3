"""Protobuf: the kernel's columns against Google's library, and against bytes and schemas that mean harm."""

import json
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from effort import thinned, trials

pytest.importorskip("google.protobuf")
pytest.importorskip("grpc_tools")

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from proto_cases import ProtoCase, canonical, shown

from kafkalog.values.formats.protobuf.nested_text import message_text
from kafkalog.values.formats.protobuf.types import ProtoSchema, new_message
from kafkalog.values.formats.protobuf.values import ProtobufValues, last_of_each_key
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError, TooWideError, field_at, narrow_array

PROTO3 = 'syntax = "proto3"; '
TIMESTAMP = f'{PROTO3}import "google/protobuf/timestamp.proto"; '


def decoded(reader, values):
    found = reader.decode(Payloads.of(pa.array(values, pa.binary())))
    found.array.validate(full=True)
    assert found.array.type == reader.type
    assert len(found.array) == len(values)
    valid = found.array.is_valid().to_pylist()
    assert [row for row, one in enumerate(valid) if not one and values[row] is not None] == sorted(found.failures)
    return found


def of(text, *values, **options):
    return decoded(ProtobufValues(ProtoSchema(text).messages[0], **options), [*values])


def one(text, value):
    found = of(text, value)
    assert not found.failures
    return found.array.to_pylist()[0]


def why(text, value):
    found = of(text, b"", value, b"")
    if 1 in found.failures:
        assert found.array.is_valid().to_pylist() == [True, False, True]
        return found.failures[1]
    assert found.array.is_valid().to_pylist() == [True, True, True]
    return found.faults[1].partition(": ")[2]


def message_of(case):
    return ProtoSchema(next(iter(case.files.values())), case.files.get).message_named(case.descriptor.full_name)


def assert_same_with_single_fields(message, found, values):
    """Assert that fields have the same values if no others are decoded."""
    for field in found.array.type:
        paths = [(field.name,)] + [
            (field.name, one.name) for one in (field.type if pa.types.is_struct(field.type) else ())
        ]
        for path in paths:
            alone = decoded(ProtobufValues(message, [path]), values)
            assert alone.failures == found.failures
            narrow, whole = (field_at(one.array, path).to_pylist() for one in (alone, found))
            assert repr(narrow) == repr(whole), path  # NaN equals no NaN


@pytest.mark.parametrize("seed", thinned(range(300), 60))
def test_random_schemas_come_back_as_googles_library_wrote_them(seed):
    case = ProtoCase(seed)
    message = message_of(case)
    pairs = [case.value() for _ in range(8)]
    values = [given.SerializeToString() for given, _ in pairs]
    expected = [canonical(one) for _, one in pairs]
    values.insert(3, None)
    expected.insert(3, canonical(None))
    found = decoded(ProtobufValues(message), values)
    assert not found.failures
    assert [canonical(one) for one in found.array.to_pylist()] == expected
    for inner in message.fields:
        part = decoded(ProtobufValues(message, [(inner.name,)]), values)
        assert part.array.equals(narrow_array(found.array, part.array.type))


def test_any_bytes_decode_as_googles_library_decodes_them():
    rng = random.Random(18)
    n_trials = trials(6, 150)
    n_good = 0
    for number in range(n_trials):
        case = ProtoCase(1000 + number, has_maps=number % 2 == 0)
        good = [case.value()[0].SerializeToString() for _ in range(10)]
        mutants = []
        for _ in range(100):
            data = bytearray(rng.choice(good)) + (rng.choice(good) if rng.random() < 0.3 else b"")
            for _ in range(rng.randrange(1, 4)):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            mutants.append(bytes(data[: rng.randrange(len(data) + 1)]) if rng.random() < 0.3 else bytes(data))
        found = decoded(ProtobufValues(message_of(case)), mutants)
        assert_same_with_single_fields(message_of(case), found, mutants)
        for row, (value, data) in enumerate(zip(found.array.to_pylist(), mutants, strict=True)):
            message = case.root()
            try:
                message.ParseFromString(data)
            except DecodeError:
                assert row in found.failures or row in found.faults
                continue
            reasons = [found.failures[row]] if row in found.failures else []
            reasons += [fault.partition(": ")[2] for fault in found.faults.get(row, "").split("; ") if fault]
            # proto2 does not check texts, and libraries merge messages
            are_known = ("a timestamp", "a message is written in several") + ("a string is not UTF-8",) * case.is_proto2
            assert all(reason.startswith(are_known) for reason in reasons), reasons
            if reasons:
                continue
            if number % 2 == 0:  # upb leaves out entries of maps with unknown fields, Java does not
                continue
            n_good += 1
            assert canonical(value) == canonical(shown(message))
    assert n_good > 5 * n_trials


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("int32", b"\x08" + b"\xff" * 11, "a variable-length integer is too long"),
        ("int32", b"\x08" + b"\xff" * 10 + b"\1", "a variable-length integer is too long"),
        ("int32", b"\x08", "the bytes end inside the value"),
        ("int32", b"\x00\x00", "a field has no number, or a type that does not exist"),
        ("int32", b"\x88\x80\x80\x80\x80\0\1", "a field has no number, or a type that does not exist"),
        ("int32", b"\x88\x80\x80\x80\x10\1", "a field has no number, or a type that does not exist"),  # 2^32 + 8
        ("int32", b"\x0e", "a field has no number, or a type that does not exist"),
        ("fixed64", b"\x09123", "the bytes end inside the value"),
        ("string", b"\n\2\xff\xff", "a string is not UTF-8"),
        ("string", b"\n\x05abc", "a length is larger than what is left"),
        ("bytes", b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", "a length is larger than what is left"),
        ("repeated fixed32", b"\n\3abc", "the numbers of a list do not fill its bytes"),
        ("repeated int32", b"\n\1\x80", "the bytes end inside the value"),
        ("int32", b"\x14", "a group ends that has not begun"),
        ("int32", b"\x13\x1c", "a group ends that has not begun"),
        ("int32", b"\x13", "the bytes end inside the value"),
        ("int32", b"\x13" * 200, "the value is nested too deeply"),
    ],
)
def test_bytes_that_mean_harm_are_null_with_a_reason(kind, data, reason):
    assert why(f"{PROTO3} message A {{ {kind} f = 1; }}", data) == reason


def test_the_last_member_of_a_oneof_counts_whatever_is_asked_for():
    text = f"""{PROTO3} message A {{ oneof o {{ int32 i = 1; string s = 2; B b = 3; }} }}
        message B {{ int32 x = 1; int32 y = 2; }}"""
    values = [b"\x08\1\x12\1a", b"\x12\1a\x08\0", b"\x1a\2\x08\1\x08\1\x1a\2\x10\2", b""]
    expected = [
        {"i": None, "s": "a", "b": None},
        {"i": 0, "s": None, "b": None},
        {"i": None, "s": None, "b": {"x": 0, "y": 2}},
        {"i": None, "s": None, "b": None},
    ]
    assert of(text, *values).array.to_pylist() == expected
    for name in ("i", "s", "b"):
        part = of(text, *values, paths=[(name,)]).array.to_pylist()
        assert part == [{name: one[name]} for one in expected]


def test_a_message_in_several_parts_is_refused_but_not_one_from_before_another_member_of_its_oneof():
    text = """message A { oneof o { B a = 1; B b = 2; E e = 3; } }
        message B { optional int32 x = 1; } enum E { ONE = 1; }"""
    assert why(text, b"\n\2\x08\1" * 2) == "a message is written in several parts"
    shown = {"b": None, "e": None}
    assert one(text, b"\n\2\x08\1\x12\0\n\2\x08\2") == {"a": {"x": 2}} | shown
    assert one(text, b"\n\2\x08\1\x18\1\n\2\x08\2") == {"a": {"x": 2}} | shown
    # a number that a closed enum does not have is no member
    assert why(text, b"\n\2\x08\1\x18\7\n\2\x08\2") == "a message is written in several parts"


def test_closed_enums_drop_numbers_and_open_ones_show_them():
    fields = "{label}E e = 1; repeated E r = 2; enum E {{ option allow_alias = true; A = 0; B = 5; C = 5; D = -1; }}"
    data = b"\x08\5\x08\7" + b"\x12\x0d" + b"\7\0\5" + b"\xff" * 9 + b"\1"
    opened = f"{PROTO3} message A {{ {fields.format(label='')} }}"
    closed = f"message A {{ {fields.format(label='optional ')} }}"
    assert one(opened, data) == {
        "e": "7",
        "r": ["7", "A", "B", "D"],
    }
    assert one(closed, data) == {"e": "B", "r": ["A", "B", "D"]}


def test_times_and_wrappers():
    text = f"""{TIMESTAMP} import "google/protobuf/wrappers.proto";
        message A {{ google.protobuf.Timestamp t = 1; google.protobuf.Int32Value w = 2;
        google.protobuf.StringValue s = 3; repeated google.protobuf.Timestamp ts = 4; }}"""
    found = of(text, b"", b"\n\4\x08\1\x10\2" + b"\x12\0" + b"\x1a\3\n\1x" + b"\x22\0")
    assert found.array.type == pa.struct(
        [
            ("t", pa.timestamp("us", "UTC")),
            ("w", pa.int32()),
            ("s", pa.string()),
            ("ts", pa.list_(pa.timestamp("us", "UTC"))),
        ]
    )
    first, second = found.array.to_pylist()
    assert first == {"t": None, "w": None, "s": None, "ts": []}
    assert (second["w"], second["s"], second["ts"][0]) == (0, "x", datetime(1970, 1, 1, tzinfo=UTC))
    assert second["t"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "what is below a microsecond is cut off"
    assert why(text, b"\n\x07\x08\xff\xff\xff\xff\xff\x0f").startswith("a timestamp is not within")
    assert why(text, b"\n\2\x10\xff" + b"\xff" * 8 + b"\1").startswith(("a field", "the bytes"))


def test_times_reach_from_year_1_to_9999():
    text = f"{TIMESTAMP} message A {{ google.protobuf.Timestamp t = 1; A in = 2; }}"
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    for moment in (first, last, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)):
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
        for off in (0, -1 if moment == first else 1):
            message = Timestamp(seconds=seconds + off, nanos=moment.microsecond * 1000 + 999).SerializeToString()
            data = b"\n" + bytes([len(message)]) + message
            if off and moment in (first, last):
                assert why(text, data).startswith("a timestamp is not within the years 1 to 9999")
            else:
                assert one(text, data)["t"] == moment + timedelta(seconds=off)
                inner = json.loads(one(text, b"\x12" + bytes([len(data)]) + data)["in"])["t"]
                assert datetime.fromisoformat(inner) == moment + timedelta(seconds=off)


def test_nanoseconds_are_less_than_a_second_and_other_fields_of_a_timestamp_are_passed_over():
    text = f"{TIMESTAMP} message A {{ google.protobuf.Timestamp t = 1; }}"
    for nanos in (999_999_999, 10**9):
        message = b"\x18\7" + Timestamp(seconds=1, nanos=nanos).SerializeToString() + b"\x18\7"
        data = b"\n" + bytes([len(message)]) + message
        if nanos < 10**9:
            assert one(text, data)["t"] == datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC)
        else:
            assert "nanoseconds" in why(text, data)


def test_messages_within_themselves_become_json_text():
    text = f"""{TIMESTAMP} message Tree {{ int64 v = 1; Tree left = 2; repeated Tree more = 3; bytes raw = 4;
        map<bool, Tree> by = 5; E e = 6; google.protobuf.Timestamp t = 7; repeated sint32 p = 8; double d = 9;
        oneof o {{ int32 x = 10; string y = 11; }} enum E {{ Z = 0; ONE = 1; }} }}"""
    leaf = {"v": 0, "left": None, "more": [], "raw": "", "by": {}, "e": "Z", "t": None, "p": [], "d": 0.0}
    leaf |= {"x": None, "y": None}
    inner = b"\x08" + b"\xff" * 9 + b"\1" + b"\x12\2\x08\1" + b"\x1a\0" + b"\x22\1x" + b"\x2a\4\x08\1\x12\0" + b"\x30\1"
    inner += b"\x3a\4\x08\1\x10\5" + b"\x42\2\1\2" + b"\x49" + b"\0\0\0\0\0\0\xf0\x7f" + b"\x50\1\x5a\1z"
    value = b"\x12" + bytes([len(inner)]) + inner
    found = one(text, value)
    assert found["v"] == 0
    expected = {"v": -1, "left": {**leaf, "v": 1}, "more": [leaf], "raw": "eA==", "by": {"true": leaf}, "e": "ONE"}
    expected |= {"t": "1970-01-01T00:00:01.000000005Z", "p": [-1, 1], "d": "Infinity", "x": None, "y": "z"}
    assert json.loads(found["left"]) == expected
    message = ProtoSchema(text).messages[0]
    assert json.loads(message_text(message, inner)) == json.loads(found["left"])
    chain = b""
    for _ in range(150):
        size = len(chain)
        chain = b"\x12" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + chain
    assert why(text, chain) == "the value is nested too deeply"


def test_structs_of_google_are_json():
    text = f"""{PROTO3} import "google/protobuf/struct.proto";
        message A {{ google.protobuf.Struct s = 1; google.protobuf.Value v = 2; google.protobuf.ListValue l = 3; }}"""
    from google.protobuf import struct_pb2

    given = {"a": [1.5, None, True, {"b": "c"}], "e": {}}
    struct = struct_pb2.Struct()
    struct.update(given)
    data = struct.SerializeToString()
    found = one(text, b"\n" + bytes([len(data)]) + data + b"\x12\2\x08\0")
    assert json.loads(found["s"]) == given
    assert found["v"] == "null"
    assert found["l"] is None
    assert ProtobufValues(ProtoSchema(text).messages[0]).type.field("l").type == pa.string()


def test_a_short_schema_with_too_many_fields_is_refused():
    text = f"{PROTO3} message L0 {{ int32 x = 1; }}"
    for level in range(1, 40):
        text += f"message L{level} {{ L{level - 1} a = 1; L{level - 1} b = 2; }}"
    with pytest.raises(TooWideError):
        ProtobufValues(ProtoSchema(text).message_named("L39"))
    with pytest.raises(SchemaError):
        ProtobufValues(ProtoSchema(f"{PROTO3} message A {{ Nowhere n = 1; }}").messages[0])


def test_rows_that_would_fill_memory_are_null():
    # each two bytes make a row of 2000 numbers
    text = f"{PROTO3} message A {{ repeated W w = 1; }} message W {{ "
    text += " ".join(f"int64 f{i} = {i};" for i in range(1, 2000)) + " }"
    found = of(text, b"", b"\n\0" * 100_000, b"")
    assert found.failures == {1: "the value takes too much memory"}
    assert found.array.to_pylist() == [{"w": []}, None, {"w": []}]


def test_the_last_of_each_key():
    kind = pa.map_(pa.string(), pa.int32())
    array = pa.array([[("a", 1), ("b", 2), ("a", 3)], None, [], [("a", 4)]], kind)
    assert last_of_each_key(array).to_pylist() == [[("b", 2), ("a", 3)], None, [], [("a", 4)]]
    lists = pa.array([[[("a", 1), ("a", 2)]]], pa.list_(kind))
    assert last_of_each_key(lists).to_pylist() == [[[("a", 2)]]]


FAULTY = """syntax = "proto2"; enum E { A = 0; B = 5; }
    message N { optional string s = 1; repeated int32 n = 2; map<string, E> m = 3; }
    message M { map<string, E> m = 1; map<string, N> x = 2; repeated N r = 3; optional N one = 4; optional string t = 5;
        repeated string l = 6; map<int32, string> ms = 8; repeated fixed32 fx = 9; optional int32 i = 10;
        oneof o { string a = 11; N b = 12; } }"""


@pytest.mark.parametrize(
    ("data", "expected", "fault"),
    [
        (b"\x2a\4caf\xe9", {"t": None}, "t: a string is not UTF-8"),
        (b"\x2a\1\xff\x2a\1a", {"t": "a"}, "t: a string is not UTF-8"),
        (b"\x22\4\n\2\xff\xff", {"one": {"s": None, "n": [], "m": {}}}, "one.s: a string is not UTF-8"),
        (b"\x22\2\n\5", {"one": None}, "one: a length is larger than what is left"),
        (b"\x22\0\x22\0\x22\0", {"one": None}, "one: a message is written in several parts"),
        (
            b"\x1a\2\n\5\x1a\3\n\1a",
            {"r": [None, {"s": "a", "n": [], "m": {}}]},
            "r[]: a length is larger than what is left",
        ),
        (b"\x32\1a\x32\1\xff\x32\1b", {"l": ["a", None, "b"]}, "l[]: a string is not UTF-8"),
        (b"\x4a\4abcd\x4a\3abc", {"fx": None}, "fx: the numbers of a list do not fill its bytes"),
        (b"\x12\5\n\1k\x12\x09", {"x": None}, "x: a length is larger than what is left"),
        (b"\n\5\n\1\xff\x10\0", {"m": None}, "m: a string is not UTF-8"),
        (b"\x42\5\x08\1\x12\1\xff", {"ms": {1: None}}, "ms{}: a string is not UTF-8"),
        (b"\x5a\1\xff\x62\0", {"a": None, "b": {"s": None, "n": [], "m": {}}}, "a: a string is not UTF-8"),
    ],
)
def test_a_fault_of_one_field_leaves_the_others(data, expected, fault):
    message = ProtoSchema(FAULTY).message_named("M")
    good = b"\x2a\1x\x50\1"
    values = [good, data + b"\x50\7", None, good, b"\x50\7" + data]
    found = decoded(ProtobufValues(message), values)
    rows = found.array.to_pylist(maps_as_pydicts="strict")
    empty = {
        "m": {},
        "x": {},
        "r": [],
        "one": None,
        "t": None,
        "l": [],
        "ms": {},
        "fx": [],
        "i": 7,
        "a": None,
        "b": None,
    }
    assert rows[1] == rows[4] == empty | expected
    assert rows[0] == rows[3] == empty | {"t": "x", "i": 1}
    assert (found.failures, found.faults) == ({}, {1: fault, 4: fault})
    assert_same_with_single_fields(message, found, values)


def test_an_entry_that_neither_counts_nor_decodes_takes_nothing_else_with_it():
    message = ProtoSchema(FAULTY).message_named("M")
    broken = b"\x10\x09\x0f"  # an unknown number, then a type that does not exist
    data = [b"\x22\x08\n\1x\x1a\3" + broken, b"\n\3" + broken, b"\x22\3\n\1y", b"\n\5\n\1a\x10\5"]
    found = decoded(ProtobufValues(message), data)
    rows = found.array.to_pylist()
    assert [row["one"] and row["one"]["s"] for row in rows] == ["x", None, "y", None]
    assert [row["m"] for row in rows] == [[], None, [], [("a", "B")]]
    assert sorted(found.faults) == [0, 1]
    assert_same_with_single_fields(message, found, data)


def test_an_entry_with_an_unknown_number_of_a_closed_enum_does_not_count():
    def entry(key, number):
        return b"\n\5\n\1" + key + b"\x10" + bytes([number])

    message = ProtoSchema(FAULTY).message_named("M")
    data = [entry(b"a", 0) + entry(b"b", 9) + entry(b"c", 5), entry(b"b", 9), entry(b"a", 5) + entry(b"b", 9)]
    found = decoded(ProtobufValues(message), data)
    names = {0: "A", 5: "B"}
    wanted = [{key: names[number] for key, number in new_message(message, one).m.items()} for one in data]
    assert (
        found.array.field("m").to_pylist(maps_as_pydicts="strict") == wanted == [{"a": "A", "c": "B"}, {}, {"a": "B"}]
    )
