"""Encoded values decode to what they were made of, here and with the libraries of the formats."""

import io
import json

import fastavro
import pyarrow as pa
import pytest
from avro_cases import AvroCase
from effort import trials
from proto_cases import ProtoCase

from kafkalog.interchange.text_output import plain_values
from kafkalog.values.encoding import EncodeError, ValueEncoder
from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.formats.protobuf.types import ProtoSchema
from kafkalog.values.formats.protobuf.values import ProtobufValues
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError


def decoded(reader, values):
    found = reader.decode(Payloads.of(pa.array(values, pa.binary())))
    assert not found.failures
    return plain_values(found.array)


def test_random_values_of_avro_are_those_that_fastavro_reads():
    for seed in range(trials(100, 500)):
        case = AvroCase(seed)
        text, parsed = json.dumps(case.schema), fastavro.parse_schema(case.schema)
        written = []
        for _ in range(4):
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, parsed, case.value()[0])
            written.append(stream.getvalue())
        values = decoded(AvroValues(text), written)
        encoder = ValueEncoder("avro", text)
        again = [encoder.encode(one) for one in values]
        assert decoded(AvroValues(text), again) == values, seed
        for one, other in zip(again, written, strict=True):
            assert one is not None
            pair = [fastavro.schemaless_reader(io.BytesIO(data), parsed, None) for data in (one, other)]
            assert pair[0] == pair[1], seed


def test_random_messages_of_protobuf_decode_to_the_same():
    for seed in range(trials(6, 150)):
        case = ProtoCase(seed)
        source = next(iter(case.files.values()))
        try:
            message = ProtoSchema(source, case.files.get).message_named(case.descriptor.full_name)
        except SchemaError:
            continue
        reader = ProtobufValues(message)
        written = [case.value()[0].SerializeToString() for _ in range(4)]
        values = decoded(reader, written)
        encoder = ValueEncoder("protobuf", source, message=case.descriptor.full_name, imports=case.files.get)
        assert decoded(reader, [encoder.encode(one) for one in values]) == values, seed


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("int", 2**31, "int"),
        ("int", 1.5, "int"),
        ("long", True, "long"),
        ("long", "x", "long"),
        ("string", 5, "text"),
        ("bytes", "?", "base64"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "one of A"),
        ({"type": "fixed", "name": "F", "size": 2}, "AAAA", "2 bytes"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "2026-01-01T00:00:00.0001Z", "times in ms"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "soon", "ISO 8601"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}, "123.4", "3 digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}, "1.23", "3 digits"),
        ({"type": "array", "items": "int"}, {"a": 1}, "a list"),
        (["null", "int"], "x", "int"),
        ("null", 1, "null"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused_with_its_field(kind, value, why):
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})
    with pytest.raises(EncodeError):
        ValueEncoder("avro", schema).encode({"a": value})


def test_fields_that_the_schema_lacks_are_refused():
    with pytest.raises(EncodeError):
        ValueEncoder("avro", '{"type":"record","name":"R","fields":[]}').encode({"b": 1})
    with pytest.raises(EncodeError):
        ValueEncoder("protobuf", 'syntax = "proto3"; message M { M a = 1; }').encode({"a": {"b": 1}})


def test_frames():
    assert ValueEncoder("json", schema_id=258).encode({"a": 1}) == b'\0\0\0\1\2{"a":1}'
    assert ValueEncoder("json").encode(None) is None
    source = 'syntax = "proto3"; message A { int32 x = 1; } message B { message C { int32 x = 1; } }'
    assert ValueEncoder("protobuf", source, schema_id=1).encode({"x": 1}) == b"\0\0\0\0\1\0\x08\1"
    inner = ValueEncoder("protobuf", source, message="B.C", schema_id=1)
    assert inner.encode({"x": 1}) == b"\0\0\0\0\1\4\2\0\x08\1"


def test_options_that_do_not_go_together(tmp_path):
    for arguments, message in (
        (("yaml",), "must be one of"),
        (("avro",), "needs a schema"),
        (("json", '"int"'), "takes no schema"),
    ):
        with pytest.raises(ValueError, match=message):
            ValueEncoder(*arguments)
    with pytest.raises(ValueError):
        ValueEncoder("avro", '"int"', message="M")
    with pytest.raises(ValueError, match="schema_id"):
        ValueEncoder("json", schema_id=-1)
    (tmp_path / "s.avsc").write_text('"long"')
    assert ValueEncoder("avro", tmp_path / "s.avsc").encode(-1) == b"\1"


def test_two_members_of_a_oneof_are_an_error():
    proto = """syntax = "proto3"; message M { int32 id = 1; oneof pay { string iban = 2; string card = 3; }
        optional string note = 4; M inner = 5; repeated M many = 6; }"""
    encoder = ValueEncoder("protobuf", proto, message="M")
    both = {"iban": "DE00", "card": "1"}
    for value, where in (
        (both, "the value has both"),
        ({"inner": both}, "inner has both"),
        ({"many": [both]}, "many has both"),
    ):
        with pytest.raises(EncodeError, match=where):
            encoder.encode(value)
    assert encoder.encode({"iban": "DE00", "card": None, "note": "x"}) == b"\x12\4DE00\x22\1x"


@pytest.mark.parametrize(
    "encoder",
    [
        ValueEncoder("avro", '"float"'),
        ValueEncoder("float"),
        ValueEncoder("avro", '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "float"}]}'),
        ValueEncoder("protobuf", 'syntax = "proto3"; message M { float f = 1; }'),
    ],
)
def test_numbers_out_of_the_range_of_floats_are_errors(encoder):
    try:
        wrap = {"f": 1.0} if encoder.encode({"f": 1.0}) is not None else None
    except EncodeError:
        wrap = None
    for value in (1e300, -1e39, 10**400, "1e300", "1e999", True, "x"):
        with pytest.raises(EncodeError):
            encoder.encode(value if wrap is None else {"f": value})
    for value in (3.4028234e38, "Infinity", float("-inf"), "NaN", 1):
        assert encoder.encode(value if wrap is None else {"f": value}) is not None
