"""Schemas of Protobuf: source, descriptors, standard imports, and texts that mean harm."""

import base64
import random
import sys

import pytest
from effort import fuzz_inputs

pytest.importorskip("google.protobuf")
pytest.importorskip("grpc_tools")

from google.protobuf import descriptor_pb2
from proto_cases import ProtoCase, compiled

from kafkalog import Reason, UnsupportedError
from kafkalog.values.formats.protobuf.types import ProtoSchema
from kafkalog.values.types import SchemaError


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


@pytest.mark.parametrize("seed", range(4))
def test_descriptors_in_base64_are_the_same_as_source_also_mixed(seed):
    files = ProtoCase(seed).files if seed else {"edition.proto": EDITION}
    name, *others = files
    binary = in_base64(files)
    expected = ProtoSchema(files[name], files.get)
    for main, find in (
        (binary[name], binary.get),
        (binary[name], {one: files[one] for one in others}.get),
        (files[name], {one: binary[one] for one in others}.get),
    ):
        found = ProtoSchema(main, find)
        assert [one.full_name for one in found.messages] == [one.full_name for one in expected.messages]
        for one, other in zip(found.messages, expected.messages, strict=True):
            ours, theirs = descriptor_pb2.DescriptorProto(), descriptor_pb2.DescriptorProto()
            one.CopyToProto(ours)
            other.CopyToProto(theirs)
            assert ours == theirs


def test_standard_imports_need_no_registry():
    names = ("google/protobuf/any.proto", "google/type/money.proto", "confluent/meta.proto")
    text = 'syntax = "proto3"; ' + " ".join(f'import "{name}";' for name in names)
    text += """ import "confluent/type/decimal.proto"; message A { option (confluent.message_meta).doc = "a";
        google.protobuf.Any any = 1; google.type.Money money = 2;
        confluent.type.Decimal d = 3 [(confluent.field_meta) = { params: [ { key: "precision" value: "9" } ] }]; }"""
    found = {one.name: one.message_type.full_name for one in ProtoSchema(text).messages[0].fields}
    assert found == {"any": "google.protobuf.Any", "money": "google.type.Money", "d": "confluent.type.Decimal"}


def test_an_import_that_nobody_supplies_matters_only_if_its_types_are_used():
    text = 'syntax = "proto3"; import "acme/money.proto"; message A { %s }'
    assert ProtoSchema(text % "int32 x = 1;").messages[0].full_name == "A"
    with pytest.raises(SchemaError, match=r'"acme.Money" is not defined.*; not found: acme/money.proto'):
        ProtoSchema(text % "acme.Money m = 1;")
    with pytest.raises(SchemaError, match=r"line 1 of acme/money.proto"):
        ProtoSchema(text % "int32 x = 1;", {"acme/money.proto": "message"}.get)
    for name in ("/etc/passwd", "../x.proto", "a/../../x", ""):
        with pytest.raises(SchemaError, match="name"):
            ProtoSchema(f'import "{name}";')


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'kafkalog\[protobuf\]'") as caught:
        ProtoSchema('syntax = "proto3"; message Unseen {}')
    assert caught.value.reason == Reason.NOT_INSTALLED


def test_indexes_lead_to_messages_as_java_counts_them_and_as_python_does():
    text = """message A { map<int32, int32> m = 1; optional group G = 2 { optional int32 x = 1; }
        message B { message C {} message D {} } } message E {}"""
    schema = ProtoSchema(text)
    assert schema.message_at((0,)).full_name == "A"
    assert schema.message_at((1,)).full_name == "E"
    assert schema.message_at((0, 0, 1)).full_name == "A.B.D"
    assert schema.message_at((0, 2, 1)).full_name == "A.B.D"  # entries and groups counted
    # the last one: B and C take no index 1, and Python's count leads to the entries of the map
    for indexes in ((0, 3), (0, 1)):
        with pytest.raises(SchemaError):
            schema.message_at(indexes)
    with pytest.raises(SchemaError):
        schema.message_named("F")
    assert schema.message_named("A.B").full_name == "A.B"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x", "line 1 of the schema: Expected top-level statement"),
        ("\n\nmessage A {", "line 3 of the schema: Reached end of input"),
        (
            "message A { optional int32 a = 1; optional int32 b = 1; }",
            "line 1 of the schema: Field number 1 has already",
        ),
        ("message A { reserved }", "line 1 of the schema: Expected"),
        ("\0", "line 1 of the schema: "),
        ("message A {" * 10_000, "line 1 of the schema: Reached maximum recursion limit"),
        (" " * 1_000_000 + "{", "line 1 of the schema: Expected"),
        ('import "b"; message A {}', "line 1 of b: Expected"),
        ('import "a"; import "a/b";', "cannot be written for protoc"),
        ("IgVh", "the bytes are not a FileDescriptorProto"),
    ],
)
def test_texts_that_are_no_schema_say_why(text, reason):
    with pytest.raises(SchemaError, match=reason):
        ProtoSchema(text, lambda name: "b" if name == "b" else None)


def test_imports_in_circles_and_without_end():
    files = {"a": 'import "b"; message A { optional B b = 1; }', "b": 'import "a"; message B {}'}
    with pytest.raises(SchemaError):
        ProtoSchema(files["a"], files.get)
    with pytest.raises(SchemaError):
        ProtoSchema('import "0";', lambda name: f'import "{int(name) + 1}";')


@pytest.mark.slow
def test_any_text_is_a_schema_or_refused():
    rng = random.Random(18)
    words = EDITION.split()
    data = base64.b64decode(in_base64({"edition.proto": EDITION})["edition.proto"])
    for _ in range(min(fuzz_inputs(100), 100)):  # each makes two processes
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
