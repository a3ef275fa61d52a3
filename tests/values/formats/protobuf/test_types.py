"""Schemas of Protobuf: source against protoc, descriptors against source, and texts that mean harm."""

import base64
import random
from pathlib import Path

import pytest
from effort import fuzz_inputs

pytest.importorskip("google.protobuf")
pytest.importorskip("grpc_tools")

from proto_cases import ProtoCase, compiled

from kafkalog.values.formats.protobuf.descriptors import parse_descriptor
from kafkalog.values.formats.protobuf.proto_text import parse_source
from kafkalog.values.formats.protobuf.types import ProtoSchema
from kafkalog.values.formats.protobuf.well_known import WELL_KNOWN
from kafkalog.values.types import SchemaError


def shape(one, around=()):
    """All that decoding needs of a message; maps' entries have no name in source."""
    if one.name in around:
        return one.name
    around = (*around, one.name)
    fields = [
        (
            *(inner.name, inner.number, inner.scalar, inner.is_repeated, inner.oneof, inner.is_group),
            one.is_entry or inner.has_presence,
            inner.message and shape(inner.message, around),
            inner.enum and (inner.enum.name, inner.enum.names, inner.enum.is_closed),
        )
        for inner in one.fields
    ]
    nested = [(shape(inner, around), inner.is_hidden) for inner in one.nested if not inner.name.endswith("Entry")]
    return "" if one.is_entry else one.name, fields, [] if one.is_entry else nested


def in_base64(files):
    return {one.name: base64.b64encode(one.SerializeToString()).decode() for one in compiled(files).file}


EDITION = """edition = "2023";
package a.b;
option features.field_presence = IMPLICIT;
import "google/protobuf/descriptor.proto";
import public "google/protobuf/timestamp.proto";
extend google.protobuf.FieldOptions { string tag = 50000; }
message A {
    option deprecated = true; reserved 40, 50 to max; reserved q, w; extensions 30 to 35 [verification = UNVERIFIED];
    .a.b.A.message msg = 1 [(tag) = "x; }", json_name = "m", features.field_presence = EXPLICIT];
    message message { int32 enum = 1 [features.field_presence = EXPLICIT]; .a.b.A.message.Sub s = 2; message Sub {} ; }
    string repeated = 2; int32 map = 7; int32 group = 8; int32 one_of = 14;
    map<string, b.A.X> m_m = 3; repeated .a.b.E e = 15;
    message M {
        M m = 1 [features.message_encoding = DELIMITED]; int32 r = 0x2 [features.field_presence = LEGACY_REQUIRED];
    }
    enum X { option allow_alias = true; x = 0; y = 0; reserved 4, 6 to max; z = -0x7 [deprecated = true]; }
    oneof choice { int32 c1 = 011; google.protobuf.Timestamp c2 = 12; }
}
/* a comment */ enum E { option features.enum_type = CLOSED; Z = 010; }
service S { rpc F (stream A) returns (A) { option deprecated = true; } rpc G(A) returns (A); }
"""


@pytest.mark.parametrize("seed", range(12))
def test_source_says_what_protoc_says(seed):
    files = ProtoCase(seed).files if seed else {"edition.proto": EDITION}
    name = next(iter(files))
    ours, protocs = ProtoSchema(files[name], files.get), in_base64(files)
    theirs = ProtoSchema(protocs[name], protocs.get)
    assert [shape(one) for one in ours.messages if not one.is_hidden] == [shape(one) for one in theirs.messages]


def test_well_known_files_say_what_protobuf_says():
    import google.type
    import grpc_tools

    roots = [Path(grpc_tools.__file__).parent / "_proto", Path(next(iter(google.type.__path__))).parents[1]]
    n_known = 0
    for name, text in WELL_KNOWN.items():
        path = next((root / name for root in roots if (root / name).exists()), None)
        if path is not None:
            theirs = ProtoSchema(path.read_text(), WELL_KNOWN.get)
            assert {one.name: shape(one) for one in ProtoSchema(text).messages} == {
                one.name: shape(one) for one in theirs.messages
            }
            n_known += 1
    assert n_known == len(WELL_KNOWN) - 1  # Confluent's Decimal is in no package here


def test_indexes_lead_to_messages_as_java_counts_them_and_as_python_does():
    text = """message A { map<int32, int32> m = 1; optional group G = 2 { optional int32 x = 1; }
        message B { message C {} message D {} } } message E {}"""
    schema = ProtoSchema(text)
    assert schema.message_at((0,)).name == "A"
    assert schema.message_at((1,)).name == "E"
    assert schema.message_at((0, 0, 1)).name == "A.B.D"
    assert schema.message_at((0, 2, 1)).name == "A.B.D"  # entries and groups counted
    # the last one: B and C take no index 1, and Python's count leads to the entries of the map
    for indexes in ((0, 3), (0, 1)):
        with pytest.raises(SchemaError, match=f"no message at the indexes {', '.join(map(str, indexes))}"):
            schema.message_at(indexes)
    with pytest.raises(SchemaError, match="no message 'F'; there are A, E"):
        schema.message_named("F")
    assert schema.message_named("A.B").name == "A.B"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x", "line 1 of the schema: message, enum or another declaration is expected, not 'x'"),
        ("\n\nmessage A {", "line 3 of the schema: a name is expected, not the end"),
        ("message A { int32 a = 0; }", "a number from 1 to 536870911 is expected, not '0'"),
        ("message A { int32 a = 1; int32 a = 2; }", "A has a field twice"),
        ("message A { int32 a = 1; int32 b = 1; }", "A has a field twice"),
        ("message A {} message A {}", "A is defined twice"),
        ("message A { map<float, int32> m = 1; }", "A.m is a map with keys of type float"),
        ("syntax = proto3;", "a text in quotes is expected"),
        ("\0", "is not expected"),
        ("message A { int32 a = 99999999999999999999999999; }", "a whole number is expected"),
        ("message A {" * 10_000, "nested more than 32 deep"),
        ("enum E {}", "the enum E has no value"),
        ("/* ", "is not expected"),
        ("message A { option x = { ", "more is expected, not the end"),
        ("message A { int32 a = 1 [x = {]; }", "expected"),
        ("message A { reserved }", "';' is expected"),
        (";" * 500_000, "the schema has more than 400000 words"),
        (" " * 1_000_000 + "{", "a name is expected"),
        ("CgF4", "must be a number|must be bytes|syntax|expected|no such"),
    ],
)
def test_texts_that_are_no_schema_say_why(text, reason):
    if text == "CgF4":  # a descriptor of a file with a name alone
        assert ProtoSchema(text).messages == []
        return
    with pytest.raises(SchemaError, match=reason.replace("(", r"\(")):
        ProtoSchema(text)


def test_a_type_twice_through_two_imports_and_imports_in_circles():
    files = {"a": 'import "b"; message A { optional B b = 1; }', "b": 'import "a"; import "b"; message B {}'}
    with pytest.raises(SchemaError, match="A is defined twice"):
        ProtoSchema(files["a"], files.get)
    files["b"] = 'import "b"; message B {}'
    assert ProtoSchema(files["a"], files.get).messages[0].fields[0].message is not None
    with pytest.raises(SchemaError, match="imports more than 300 files"):
        ProtoSchema('import "0";', lambda name: f'import "{int(name) + 1}";')


def test_any_text_is_a_schema_or_refused():
    rng = random.Random(18)
    words = EDITION.split()
    data = base64.b64decode(in_base64({"edition.proto": EDITION})["edition.proto"])
    for _ in range(max(fuzz_inputs(10) // 2, 20)):  # of which each makes two texts
        mutant = [*words]
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            mutant[rng.randrange(len(mutant))] = rng.choice([*words, "{", "}", ";", "=", "[", '"', "/*", "-1", ""])
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        for text in (" ".join(mutant), base64.b64encode(broken).decode()):
            try:
                ProtoSchema(text)
            except SchemaError:
                continue


def test_source_is_no_descriptor():
    assert parse_descriptor("message A {}") is None
    assert parse_descriptor("abc") is None
    assert parse_source("").messages == []
    with pytest.raises(SchemaError, match="the bytes end inside a field"):
        parse_descriptor("IgVh")
