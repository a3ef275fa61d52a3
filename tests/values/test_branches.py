"""Fields that name the branch of a union, or the member of a oneof, that is set."""

import io
import json
import random

import fastavro
import pyarrow as pa
import pytest
from proto_cases import ProtoCase

import kafkalog
from kafkalog.cli import main
from kafkalog.values.encoding import EncodeError, ValueEncoder
from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.formats.avro_resolution import ReaderSchema, ResolvedValues
from kafkalog.values.formats.protobuf.types import new_message
from kafkalog.values.formats.protobuf.values import ProtobufValues
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError

LEAF = {"type": "record", "name": "x.Leaf", "fields": [{"name": "n", "type": ["int", "string"]}]}
EVENT = ["null", "long", LEAF, {"type": "array", "items": ["null", "string", "double"]}]
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "a", "type": EVENT}, {"name": "b", "type": ["null", "int"]}, {"name": "c", "type": "x.Leaf"}],
}


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def leaf(chance):
    n = chance.choice([5, "five"])
    name = "int" if n == 5 else "string"
    return {"n": n}, {"n": {"int": None, "string": None, name: n, "__branch": name}}


def event(chance):
    """A value, and what a column has."""
    name = chance.choice([None, "long", "Leaf", "array"])
    if name is None:
        return None, None
    if name == "array":
        value = [chance.choice([None, "s", 0.5]) for _ in range(3)]
        names = {"s": "string", 0.5: "double"}
        shown = [one and {"string": None, "double": None, names[one]: one, "__branch": names[one]} for one in value]
    else:
        value, shown = (7, 7) if name == "long" else leaf(chance)
    return value, {"long": None, "Leaf": None, "array": None, name: shown, "__branch": name}


def test_unions_of_avro_name_their_branch(tmp_path):
    chance = random.Random(1)
    values, expected = [], []
    for _ in range(60):
        (a, shown_a), (c, shown_c) = event(chance), leaf(chance)
        values.append(written(ROW, {"a": a, "b": 1, "c": c}))
        expected.append({"a": shown_a, "b": 1, "c": shown_c})
    kafkalog.write_table({"value": [*values, None]}, tmp_path / "log", topic="t")
    how = {"format": "avro", "schema": json.dumps(ROW), "framed": False, "branches": True}
    for given in (how, how | {"reader_schema": json.dumps(ROW)}):
        options = {"decode": {"value": given}}
        assert kafkalog.read_table(tmp_path / "log", columns=["value"], **options).column(0).to_pylist() == [
            *expected,
            None,
        ]
        for name, get in {
            "value.a.__branch": lambda row: row["a"] and row["a"]["__branch"],
            "value.c.n.__branch": lambda row: row["c"]["n"]["__branch"],
            "value.a.long": lambda row: row["a"] and row["a"]["long"],
        }.items():
            found = kafkalog.read_table(tmp_path / "log", columns=[name], **options).column(0).to_pylist()
            assert found == [*map(get, expected), None]
        wanted = [at for at, row in enumerate(expected) if row["a"] and row["a"]["__branch"] == "Leaf"]
        found = kafkalog.read_table(tmp_path / "log", columns=["offset"], filters="value.a.__branch == Leaf", **options)
        assert found.column(0).to_pylist() == wanted


def test_values_with_names_of_branches_are_encoded_again():
    encoder = ValueEncoder("avro", json.dumps(["null", "int", "string"]))
    assert encoder.encode({"int": None, "string": "x", "__branch": "string"}) == written(["null", "int", "string"], "x")
    with pytest.raises(EncodeError, match="the value has several branches of a union: int, string"):
        encoder.encode({"int": 1, "string": "x"})
    proto = 'syntax = "proto3"; message M { oneof choice { string a = 1; int32 b = 2; } }'
    assert ValueEncoder("protobuf", proto).encode({"a": None, "b": 5, "choice__branch": "b"}) == b"\x10\5"


def test_a_value_that_is_a_union_names_its_branch(tmp_path, capsys):
    other = {"type": "record", "name": "Other", "fields": []}
    union = [LEAF, other]
    (tmp_path / "event.avsc").write_text(json.dumps(union))
    values = [written(union, ("x.Leaf", {"n": 5})), written(union, ("Other", {}))]
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="t")
    decoding = ["--value-format", "avro", "--schema", str(tmp_path / "event.avsc"), "--no-frame", "--branches"]
    assert main(["cat", str(tmp_path / "log"), *decoding, "--columns", "value.__branch"]) == 0
    assert capsys.readouterr().out.splitlines() == ['value.__branch="Leaf"', 'value.__branch="Other"']


def test_a_single_type_that_is_a_union_elsewhere_names_its_branch():
    found = AvroValues('"int"', unions=[()], branches=True).decode(Payloads.of(pa.array([b"\2"])))
    assert found.array.to_pylist() == [{"int": 1, "__branch": "int"}]
    reader = ReaderSchema('["int", "string"]', branches=True)
    resolved = ResolvedValues('"int"', (), reader).decode(Payloads.of(pa.array([b"\2", None], pa.binary())))
    assert resolved.array.to_pylist() == [{"int": 1, "string": None, "__branch": "int"}, None]


def test_a_branch_of_that_name_is_refused(tmp_path):
    union = ["int", {"type": "record", "name": "__branch", "fields": []}]
    with pytest.raises(SchemaError, match="it has a field '__branch', which branches would add"):
        AvroValues(json.dumps(union), branches=True)
    with pytest.raises(ValueError, match="json has no branches"):
        kafkalog.scan(tmp_path, decode={"value": {"format": "json", "branches": True}})


def members(message, shown):
    """Compare the fields that name members with what Google's library says; return how many there are."""
    n = 0
    optional = [f"{one.name}__branch" for one in message.DESCRIPTOR.oneofs if one.name.startswith("_")]
    assert not any(name in shown for name in optional)
    for oneof in message.DESCRIPTOR.oneofs:
        if not oneof.name.startswith("_"):
            assert shown[f"{oneof.name}__branch"] == message.WhichOneof(oneof.name)
            n += message.WhichOneof(oneof.name) is not None
    for field in message.DESCRIPTOR.fields:
        inside = shown.get(field.name)
        if field.message_type is not None and isinstance(inside, dict) and not field.is_repeated:
            n += members(getattr(message, field.name), inside)
    return n


def test_members_of_oneofs_are_those_of_googles_library():
    n = 0
    for seed in range(30):
        case = ProtoCase(seed)
        data = [case.value()[0].SerializeToString() for _ in range(20)]
        root = case.root.DESCRIPTOR
        decoder = ProtobufValues(root, branches=True)
        decoded = decoder.decode(Payloads.of(pa.array(data, pa.binary())))
        assert not decoded.failures
        decoded.array.validate(full=True)
        found = decoded.array.to_pylist()
        for row, one in enumerate(data):
            n += members(new_message(root, one), found[row])
        for field in decoded.array.type:
            if field.name.endswith("__branch"):
                alone = ProtobufValues(root, [(field.name,)], branches=True)
                part = alone.decode(Payloads.of(pa.array(data, pa.binary()))).array.to_pylist()
                assert [row[field.name] for row in part] == [row[field.name] for row in found]
    assert n > 50


def test_the_member_that_is_set_can_be_selected(tmp_path):
    proto = """syntax = "proto3";
        message M { oneof choice { string a = 1; int32 b = 2; Empty e = 3; } optional int32 c = 4; message Empty {} }"""
    values = [b"\x0a\1x", b"\x10\0", b"\x1a\0", b"", b"\x0a\1x\x10\5"]
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="t")
    how = {"format": "protobuf", "schema": proto, "framed": False, "branches": True}
    names = ["a", "b", "e", None, "b"]
    for columns in (["value.choice__branch"], ["value.choice__branch", "value.a"], ["value.c", "value.choice__branch"]):
        table = kafkalog.read_table(tmp_path / "log", decode={"value": how}, columns=columns)
        assert table.column("value.choice__branch").to_pylist() == names
    found = kafkalog.read_table(
        tmp_path / "log", decode={"value": how}, columns=["value"], filters="value.choice__branch == b"
    )
    assert found.column(0).to_pylist() == [
        {"a": None, "b": 0, "e": None, "c": None, "choice__branch": "b"},
        {"a": None, "b": 5, "e": None, "c": None, "choice__branch": "b"},
    ]
