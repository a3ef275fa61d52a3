"""A value of each type of Avro, Protobuf and Kafka Connect, and what they become: the tables of a page.

``PYTHONPATH=tests/support python tests/support/value_types.py`` writes the tables of ``docs/value-types.md`` again.
"""

import base64
import copy
import csv
import io
import json
import re
import tempfile
from pathlib import Path

import fastavro
from google.protobuf import message_factory
from proto_cases import compiled, pool_of

import kafkalog

PAGE = Path(__file__).parents[2] / "docs" / "value-types.md"
_SCALED = "io.debezium.data.VariableScaleDecimal"
_BY_ITSELF = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
_UUID = bytes.fromhex("0b7d6f0e8a3d4f3e9a5e0123456789ab")


def _logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def _fixed(name, size, **more):
    return {"type": "fixed", "name": name, "size": size, **more}


AVRO = {
    "`boolean`": ("boolean", True),
    "`int`": ("int", 5),
    "`long`": ("long", 2**60),
    "`float`": ("float", 0.5),
    "`double`": ("double", 0.1),
    "`string`": ("string", "é"),
    "`bytes`": ("bytes", b"\xff\0"),
    "`fixed`": (_fixed("F", 2), b"\xff\0"),
    "`enum`": ({"type": "enum", "name": "E", "symbols": ["NEW"]}, "NEW"),
    "`array` of int": ({"type": "array", "items": "int"}, [1, 2]),
    "`map` of int": ({"type": "map", "values": "int"}, {"a": 1}),
    "`record`": ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, {"a": 1}),
    "union of null and int": (["null", "int"], 5),
    "union of int and string": (["int", "string"], "x"),
    "`date`": (_logical("int", "date"), 20_000),
    "`time-millis`": (_logical("int", "time-millis"), 5),
    "`time-micros`": (_logical("long", "time-micros"), 5),
    "`timestamp-millis`": (_logical("long", "timestamp-millis"), 1_700_000_000_123),
    "`timestamp-micros`": (_logical("long", "timestamp-micros"), 1_700_000_000_123_456),
    "`timestamp-nanos`": (_logical("long", "timestamp-nanos"), 1_700_000_000_123_456_789),
    "`local-timestamp-millis`": (_logical("long", "local-timestamp-millis"), 1_700_000_000_123),
    "`decimal`, 10 digits": (_logical("bytes", "decimal", precision=10, scale=2), b"\x04\xd2"),
    "`decimal`, 60 digits": (_logical("bytes", "decimal", precision=60, scale=2), b"\x04\xd2"),
    "`decimal`, 80 digits": (_logical("bytes", "decimal", precision=80, scale=2), b"\x04\xd2"),
    "`big-decimal`": (_logical("bytes", "big-decimal"), b"\x04\x04\xd2\x04"),
    "`uuid` of a string": (_logical("string", "uuid"), "0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab"),
    "`uuid` of a fixed": (_fixed("U", 16, logicalType="uuid"), _UUID),
    "`duration`": (_fixed("D", 12, logicalType="duration"), bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])),
    "Debezium's `VariableScaleDecimal`": (
        {"type": "record", "name": _SCALED, "fields": _BY_ITSELF},
        {"scale": 2, "value": b"\x04\xd2"},
    ),
}
_PROTO = """syntax = "proto3"; package p;
import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message Inner { int32 a = 1; }
enum State { NEW = 0; }
message M {
"""
PROTOBUF = {
    "`int32`, `sint32`, `sfixed32`": ("int32", {"f": 5}),
    "`uint32`, `fixed32`": ("uint32", {"f": 5}),
    "`int64`, `sint64`, `sfixed64`": ("int64", {"f": 2**60}),
    "`uint64`, `fixed64`": ("uint64", {"f": 2**63}),
    "`float`": ("float", {"f": 0.5}),
    "`double`": ("double", {"f": 0.1}),
    "`bool`": ("bool", {"f": True}),
    "`string`": ("string", {"f": "é"}),
    "`bytes`": ("bytes", {"f": b"\xff\0"}),
    "an enum": ("State", {"f": 0}),
    "an enum's number without name": ("State", {"f": 7}),
    "a message": ("Inner", {"f": {"a": 1}}),
    "`repeated int32`": ("repeated int32", {"f": [1, 2]}),
    "`map<string, int32>`": ("map<string, int32>", {"f": {"a": 1}}),
    "`google.protobuf.Timestamp`": (
        "google.protobuf.Timestamp",
        {"f": {"seconds": 1_700_000_000, "nanos": 123_456_000}},
    ),
    "`google.protobuf.Int64Value`": ("google.protobuf.Int64Value", {"f": {"value": 5}}),
    "`google.protobuf.Struct`": ("google.protobuf.Struct", {"f": {"a": 1}}),
    "`google.protobuf.Any`": ("google.protobuf.Any", {"f": {"type_url": "x/p.Inner", "value": b"\x08\1"}}),
}
_DATA = "org.apache.kafka.connect.data."
CONNECT = {
    "`int8`": ({"type": "int8"}, 5),
    "`int64`": ({"type": "int64"}, 2**60),
    "`float`": ({"type": "float"}, 0.5),
    "`double`": ({"type": "double"}, 0.1),
    "`string`": ({"type": "string"}, "é"),
    "`bytes`": ({"type": "bytes"}, base64.b64encode(b"\xff\0").decode()),
    "`array` of int32": ({"type": "array", "items": {"type": "int32"}}, [1, 2]),
    "`map` of int32": ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, {"a": 1}),
    "Connect's `Decimal`": ({"type": "bytes", "name": f"{_DATA}Decimal", "parameters": {"scale": "2"}}, "BNI="),
    "Connect's `Date`": ({"type": "int32", "name": f"{_DATA}Date"}, 20_000),
    "Connect's `Time`": ({"type": "int32", "name": f"{_DATA}Time"}, 5),
    "Connect's `Timestamp`": ({"type": "int64", "name": f"{_DATA}Timestamp"}, 1_700_000_000_123),
    "Debezium's `MicroTimestamp`": (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        1_700_000_000_123_456,
    ),
    "Debezium's `VariableScaleDecimal`": (
        {
            "type": "struct",
            "name": _SCALED,
            "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
        },
        {"scale": 2, "value": "BNI="},
    ),
}


def _physical(schema):
    """A schema without logical types, so that fastavro writes the values as they are here."""
    if isinstance(schema, list):
        return [*map(_physical, schema)]
    if not isinstance(schema, dict):
        return schema
    return {name: part for name, part in schema.items() if name not in ("logicalType", "precision", "scale")}


def _avro():
    fields = [{"name": f"f{at}", "type": kind} for at, (kind, _) in enumerate(AVRO.values())]
    schema = {"type": "record", "name": "Row", "fields": fields}
    physical = schema | {"fields": [one | {"type": _physical(one["type"])} for one in copy.deepcopy(fields)]}
    out = io.BytesIO()
    value = {f"f{at}": one for at, (_, one) in enumerate(AVRO.values())}
    fastavro.schemaless_writer(out, fastavro.parse_schema(physical), value)
    return out.getvalue(), {"format": "avro", "schema": json.dumps(schema), "framed": False}


def _protobuf():
    fields = [f"{kind} f{at} = {at + 1};" for at, (kind, _) in enumerate(PROTOBUF.values())]
    source = f"{_PROTO}{' '.join(fields)} }}"
    pool = pool_of(compiled({"m.proto": source}))
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))()
    for at, (kind, value) in enumerate(PROTOBUF.values()):
        if kind == "google.protobuf.Struct":
            getattr(message, f"f{at}").update(value["f"])
        else:
            message.MergeFrom(type(message)(**{f"f{at}": value["f"]}))
    return message.SerializeToString(), {"format": "protobuf", "schema": source, "message": "M", "framed": False}


def _connect():
    fields = [kind | {"field": f"f{at}"} for at, (kind, _) in enumerate(CONNECT.values())]
    payload = {f"f{at}": value for at, (_, value) in enumerate(CONNECT.values())}
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode(), "connectjson"


def table(names, value, how):
    """The lines of a table: what a value with a field for each name becomes."""
    options = {"decode": {"value": how}, "columns": [f"value.f{at}" for at in range(len(names))]}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        kafkalog.write_table({"value": [value]}, log, topic="t")
        schema = kafkalog.scan(log, **options).schema
        for name in ("rows.jsonl", "rows.csv"):
            kafkalog.export(log, Path(folder, name), **options)
        (line,) = Path(folder, "rows.jsonl").read_text().splitlines()
        _, cells = csv.reader(io.StringIO(Path(folder, "rows.csv").read_text()))
    yield "| type | Arrow | JSON lines | CSV |"
    yield "|---|---|---|---|"
    for field, name, cell in zip(schema, names, cells, strict=True):
        kind = str(field.type).replace("|", "\\|").replace("element: ", "").replace("item: ", "")
        shown = line[line.index(f'"{field.name}":') + len(field.name) + 3 :].lstrip()
        text = shown[: json.JSONDecoder().raw_decode(shown)[1]]
        yield f"| {name} | `{kind}` | `{text}` | {f'`{cell}`' if cell else 'empty'} |"


def tables():
    """The tables of the page, by format."""
    return {
        "Avro": "\n".join(table(AVRO, *_avro())),
        "Protobuf": "\n".join(table(PROTOBUF, *_protobuf())),
        "Kafka Connect": "\n".join(table(CONNECT, *_connect())),
    }


def written(page):
    """The page with its tables written again."""
    for name, text in tables().items():
        before, _, after = page.partition(f"\n## {name}\n")
        old = re.search(r"^\|.*\|$(\n\|.*\|$)+", after, re.MULTILINE)
        page = f"{before}\n## {name}\n{after[: old.start()]}{text}{after[old.end() :]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
