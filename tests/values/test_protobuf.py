"""Protobuf values whose schemas are looked up, beside Confluent's serializer and deserializer."""

import uuid
import warnings

import pyarrow as pa
import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("grpc_tools")

from proto_cases import ProtoCase, canonical, shown

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.system_topics.schemas import SchemaReference
from kafkalog.values.schemas import SchemaText

ORDER = """syntax = "proto3"; package shop; import "common/money.proto";
message Other { message Inner { string x = 1; } }
message Order { int32 id = 1; common.Money price = 2; string note = 3; State s = 4; enum State { NEW = 0; PAID = 1; } }
"""
MONEY = 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'
V2 = ORDER.replace("int32 id", "int64 id").replace("string note = 3;", "optional string customer = 5;")


class Registered:
    """Schemas as a registry that speaks with Confluent's client has them, but as source."""

    def __init__(self, client):
        self._client = client
        self.sources = {}

    def _schema(self, found):
        import base64

        from google.protobuf import descriptor_pb2

        one = found.schema if hasattr(found, "schema") else found
        references = [SchemaReference(ref.name, ref.subject, ref.version) for ref in one.references or ()]
        name = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(one.schema_str)).name
        return SchemaText("PROTOBUF", self.sources.get(name, one.schema_str), references)

    def by_id(self, schema_id):
        return self._schema(self._client.get_schema(schema_id, fmt="serialized"))

    def by_guid(self, guid):
        return self._schema(self._client.get_schema_by_guid(guid, fmt="serialized"))

    def find(self, subject, version):
        return self._schema(self._client.get_version(subject, version, fmt="serialized"))


@pytest.mark.parametrize(
    ("n_schemas", "n_each"), [(6, 10), pytest.param(100, 100, marks=pytest.mark.slow)], ids=["few", "10,000"]
)
def test_values_of_confluents_serializer_come_back(tmp_path, n_schemas, n_each):
    with warnings.catch_warnings(record=True):  # libraries that it imports warn about themselves
        registry = pytest.importorskip("confluent_kafka.schema_registry")
        module = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = registry.SchemaRegistryClient.new_client({"url": "mock://protobuf"})
    source = Registered(client)
    values = []
    headers = []
    expected = []
    context = SerializationContext("orders", MessageField.VALUE, [])
    for number in range(n_schemas):
        case = ProtoCase(7000 + number, has_maps=False)  # Python counts their entries as messages, Java does not
        if number % 2:  # as a registry has them; else as the client sends them
            source.sources |= case.files
        in_header = number % 3 == 2
        options = {
            "auto.register.schemas": True,
            "subject.name.strategy": lambda ctx, name, number=number: f"orders-{number % 40}-{name}",
        }
        if in_header:
            options["schema.id.serializer"] = registry.header_schema_id_serializer
        write = module.ProtobufSerializer(case.root, client, options)
        read = module.ProtobufDeserializer(case.root, {}, client)
        for i in range(n_each):
            given, shown_as = case.value()
            context.headers = []
            data = write(given, context)
            if not i and len(data) > 6:
                assert canonical(shown(read(data, context))) == canonical(shown_as)
            values.append(data)
            headers.append([{"key": name, "value": one} for name, one in context.headers])
            expected.append(canonical(shown_as))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table({"value": pa.array(values, pa.binary()), "headers": pa.array(headers, kind)})
    kafkalog.write_table(table, tmp_path / "log", topic="orders")
    path = tmp_path / "log" / "orders-0"
    for first in range(0, len(values), n_each):  # a schema at a time: together they would be one wide struct
        stop = first + n_each
        options = {"start_offset": first, "end_offset": stop, "columns": ["value"], "schemas": source}
        found = kafkalog.read_table(path, decode={"value": "protobuf"}, **options)
        assert [canonical(one) for one in found.column("value").to_pylist()] == expected[first:stop]


def framed(key, indexes, payload):
    return (
        (b"\0" + key.to_bytes(4, "big") if isinstance(key, int) else b"\1" + uuid.UUID(key).bytes) + indexes + payload
    )


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("log")
    values = [
        framed(1, b"\2\2", b"\x08\1\x12\2\x08\5\x1a\1a"),
        framed(2, b"\2\2", b"\x08\2\x20\1\x2a\1c"),
        None,
        framed(1, b"\4\0\0", b"\n\1x"),
        framed(1, b"\0", b""),
        framed(1, b"\2\x0c", b""),
        framed(1, b"\2\2", b"\x08"),
        framed(1, b"\xff\xff\xff\xff\xff", b""),
    ]
    with PartitionWriter(root / "orders-0") as writer:
        writer.append({"value": values})
    schemas = root / "schemas"
    (schemas / "common").mkdir(parents=True)
    (schemas / "1.proto").write_text(ORDER)
    (schemas / "2.proto").write_text(V2)
    (schemas / "common" / "money.proto").write_text(MONEY)
    return root


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
def test_messages_of_all_versions_have_one_type(log_dir):
    options = {"decode": {"value": "protobuf"}, "schemas": log_dir / "schemas", "columns": ["value", "value_error"]}
    table = kafkalog.read_table(log_dir / "orders-0", **options)
    nothing = {"id": None, "price": None, "note": None, "s": None, "customer": None, "x": None}
    assert table.column("value").to_pylist() == [
        {**nothing, "id": 1, "price": {"cents": 5}, "note": "a", "s": "NEW"},
        {**nothing, "id": 2, "s": "PAID", "customer": "c"},
        None,
        {**nothing, "x": "x"},
        nothing,
        *[None] * 3,
    ]
    assert table.schema.field("value").type.field("id").type == pa.int64()
    assert table.column("value_error").to_pylist() == [
        *[None] * 5,
        "schema 1: it has no message at the indexes 6",
        "the bytes end inside the value",
        "the message indexes are damaged",
    ]
    part = kafkalog.read_table(
        log_dir / "orders-0", **{**options, "columns": ["value.price.cents"]}, filters="value.id == 1"
    )
    assert part.to_pylist() == [{"value.price.cents": 5}]


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
def test_a_note_says_that_times_are_truncated(tmp_path):
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }'
    decode = {"value": {"format": "protobuf", "schema": text, "framed": False}}
    for nanos, notes in ((b"\xe8\x07", []), (b"\xe9\x07", ["value: times finer than a microsecond are truncated"])):
        log = tmp_path / nanos.hex()
        kafkalog.write_table({"value": [b"\n\3\x10" + nanos]}, log, topic="t")
        scan = kafkalog.scan(log, decode=decode, columns=["value"])
        assert scan.to_table().column(0).cast(pa.struct([("t", pa.int64())])).to_pylist() == [{"t": 1}]
        assert [one.detail for one in scan.findings] == notes


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
def test_a_given_schema_and_message(log_dir, tmp_path):
    given = {"format": "protobuf", "schema": ORDER, "message": "Order"}
    options = {"schemas": log_dir / "schemas", "columns": ["value"]}
    table = kafkalog.read_table(log_dir / "orders-0", decode={"value": given}, end_offset=1, **options)
    assert table.column(0).to_pylist()[0]["note"] == "a"
    table = kafkalog.read_table(
        log_dir / "orders-0", decode={"value": {"format": "protobuf", "schema": ORDER}}, end_offset=5, **options
    )
    assert table.column(0).to_pylist()[3] == {"id": None, "price": None, "note": None, "s": None, "x": "x"}
    with PartitionWriter(tmp_path / "bare-0") as writer:
        writer.append({"value": [b"\x08\5", None, b"\x08"]})
    bare = {"format": "protobuf", "schema": MONEY, "framed": False}
    found = kafkalog.read_table(tmp_path / "bare-0", decode={"value": bare}, columns=["value"])
    assert found.column(0).to_pylist() == [{"cents": 5}, None, None]
    for wrong, why in (
        ({"schema": "message {;"}, "line 1 of the schema"),
        ({"schema": MONEY, "message": "Nothing"}, "it has no message 'Nothing'; there are common.Money"),
        ({"framed": False}, "values without a frame name no schema"),
    ):
        with pytest.raises(ValueError, match=why):
            kafkalog.scan(tmp_path / "bare-0", decode={"value": {"format": "protobuf", **wrong}}, schemas={})
    with pytest.raises(ValueError, match="json"):
        kafkalog.scan(tmp_path / "bare-0", decode={"value": {"format": "json", "message": "A"}})


NESTED = """syntax = "proto3"; package shop;
message Zoo { int32 z = 1; message Cage { int32 c = 1; } map<string, Cage> cages = 2; message Aviary { int32 a = 1; } }
message Ark { int32 k = 1; }
message ZooKeeper { int32 w = 1; }
"""


def test_the_message_is_the_one_that_glue_and_apicurio_select(tmp_path):
    from google.protobuf import message_factory
    from proto_cases import compiled, pool_of

    file = pool_of(compiled({"zoo.proto": NESTED})).FindFileByName("zoo.proto")
    messages = []
    left = [*file.message_types_by_name.values()]
    while left:
        one = left.pop(0)
        messages.append(one)
        left += one.nested_types
    messages.sort(key=lambda one: one.full_name)
    assert [one.full_name for one in messages[:2]] == ["shop.Ark", "shop.Zoo"]
    key = "0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab"
    options = {"decode": {"value": "protobuf"}, "schemas": {key: ("PROTOBUF", NESTED), 7: ("PROTOBUF", NESTED)}}
    for number, one in enumerate(messages):
        name = one.fields[0].name
        if one.GetOptions().map_entry:
            continue
        data = message_factory.GetMessageClass(one)(**{name: 5}).SerializeToString()
        short = one.full_name.removeprefix("shop.").encode()
        values = [
            b"\3\0" + uuid.UUID(key).bytes + bytes([number]) + data,
            b"\0\0\0\0\7" + bytes([len(short) + 2, 10, len(short)]) + short + data,
        ]
        kafkalog.write_table({"value": values}, tmp_path / str(number), topic="t")
        table = kafkalog.read_table(tmp_path / str(number), columns=[f"value.{name}"], **options)
        assert table.column(0).to_pylist() == [5, 5]
    kafkalog.write_table({"value": [b"\3\0" + uuid.UUID(key).bytes + b"\x20"]}, tmp_path / "log", topic="t")
    with pytest.warns(kafkalog.DecodeWarning, match="no message with the number 32"):
        kafkalog.read_table(tmp_path / "log", columns=["value"], **options)
