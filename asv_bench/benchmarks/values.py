"""Typed values: Avro, Protobuf and JSON to Arrow, next to loops of fastavro and protobuf, and Arrow's JSON reader."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.json

from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.formats.json_text import JsonValues
from kafkalog.values.payloads import Payloads

from .common import CpuTimed, Libraries

with Libraries() as libraries:
    import fastavro
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    from kafkalog.values.formats.protobuf.types import ProtoSchema
    from kafkalog.values.formats.protobuf.values import ProtobufValues

N = 20_000
KINDS = ["long", "int", "string", "string", "double", "boolean", ["null", "string"], ["null", "long"], "float", "bytes"]
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(KINDS)],
}


def rows() -> list[dict[str, Any]]:
    """Ten fields of mixed types."""
    return [
        {
            "f0": 2**40 + i,
            "f1": i,
            "f2": f"customer-{i % 1000}",
            "f3": "a text of some length",
            "f4": i / 7,
            "f5": i % 2 == 0,
            "f6": None if i % 3 else "note",
            "f7": None if i % 2 else i,
            "f8": i / 2,
            "f9": b"bytes",
        }
        for i in range(N)
    ]


class Avro(CpuTimed):
    """Avro of ten fields."""

    def setup(self) -> None:
        libraries.require()
        self.schema = fastavro.parse_schema(SCHEMA)
        self.values = []
        for row in rows():
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self.schema, row)
            self.values.append(out.getvalue())
        self.payloads = Payloads.of(pa.array(self.values, pa.binary()))
        self.reader = AvroValues(json.dumps(SCHEMA))
        self.one_field = AvroValues(json.dumps(SCHEMA), paths=[("f2",)])

    def time_all_fields(self) -> None:
        self.reader.decode(self.payloads)

    def time_one_field(self) -> None:
        self.one_field.decode(self.payloads)

    def time_fastavro_loop(self) -> None:
        schema = self.schema
        pa.array(
            [fastavro.schemaless_reader(io.BytesIO(value), schema, None) for value in self.values], self.reader.type
        )


PROTO_TYPES = ["int64", "int32", "string", "string", "double", "bool", "string", "int64", "float", "bytes"]
PROTO = f"""syntax = "proto3"; message Order {{
    {" ".join(f"{'optional ' * (i in (6, 7))}{kind} f{i} = {i + 1};" for i, kind in enumerate(PROTO_TYPES))} }}"""


class Protobuf(CpuTimed):
    """Protobuf of the same ten fields."""

    def setup(self) -> None:
        libraries.require()
        file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
        message = file.message_type.add(name="Order")
        for i, kind in enumerate(PROTO_TYPES):
            number = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
            field = message.field.add(name=f"f{i}", number=i + 1, type=number, label=1)
            if i in (6, 7):
                field.proto3_optional, field.oneof_index = True, i - 6
                message.oneof_decl.add(name=f"_f{i}")
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        self.message = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
        self.values = [self.message(**row).SerializeToString() for row in rows()]
        self.payloads = Payloads.of(pa.array(self.values, pa.binary()))
        order = ProtoSchema(PROTO).messages[0]
        self.reader, self.one_field = ProtobufValues(order), ProtobufValues(order, [("f2",)])

    def time_all_fields(self) -> None:
        self.reader.decode(self.payloads)

    def time_one_field(self) -> None:
        self.one_field.decode(self.payloads)

    def time_protobuf_loop(self) -> None:
        names = [field.name for field in self.reader.type]
        parsed = [self.message.FromString(value) for value in self.values]
        for name in names:
            pa.array([getattr(one, name) for one in parsed], self.reader.type.field(name).type)


class Json(CpuTimed):
    """JSON of nine fields."""

    def setup(self) -> None:
        self.values = [json.dumps({name: row[name] for name in row if name != "f9"}).encode() for row in rows()]
        self.payloads = Payloads.of(pa.array(self.values, pa.binary()))
        self.reader = JsonValues()
        self.reader.learn(self.payloads)

    def time_learn(self) -> None:
        JsonValues().learn(self.payloads)

    def time_all_fields(self) -> None:
        self.reader.decode(self.payloads)

    def time_pyarrow_reader(self) -> None:
        pyarrow.json.read_json(
            io.BytesIO(b"\n".join(self.values)), read_options=pyarrow.json.ReadOptions(use_threads=False)
        )
