"""Values whose schemas are looked up: in a log's own `_schemas`, in a directory, in a mapping; and their versions."""

import io
import json
import uuid
import warnings

import fastavro
import pyarrow as pa
import pytest
from avro_cases import AvroCase

import kafkalog
from kafkalog import DecodeWarning, PartitionWriter
from kafkalog.cli import main

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}]}
C = {"type": "record", "name": "C", "fields": [{"name": "n", "type": "string"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "customer",
            "type": ["null", C],
        },
    ],
}
GUID = "0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab"


def avro(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(key, payload):
    return (b"\0" + key.to_bytes(4, "big") if isinstance(key, int) else b"\1" + uuid.UUID(key).bytes) + payload


def schema_record(schema_id, version, schema, **more):
    """A record as Confluent's registry writes it."""
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": version, "magic": 1}
    value = {"subject": "orders-value", "version": version, "id": schema_id, "schema": json.dumps(schema)}
    return json.dumps(key).encode(), json.dumps({**value, "deleted": False, **more}).encode()


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("log")
    noop = b'{"keytype":"NOOP","magic":0}', b""
    schemas = [noop, schema_record(1, 1, V1), schema_record(2, 2, V2, guid=GUID), (b"junk", b"{")]
    with PartitionWriter(root / "_schemas-0") as writer:
        writer.append({"key": [key for key, _ in schemas], "value": [value for _, value in schemas]})
    values = [
        framed(1, avro(V1, {"id": 1, "note": "one"})),
        framed(2, avro(V2, {"id": 2**40, "customer": {"n": "Ann"}})),
        None,
        framed(GUID, avro(V2, {"id": 3, "customer": None})),
        framed(9, b"unknown"),
        framed(1, b"\2"),
        b"plain",
    ]
    with PartitionWriter(root / "orders-0") as writer:
        writer.append({"value": values})
    return root


BROKEN = pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
UNIFIED = [
    {"id": 1, "note": "one", "customer": None},
    {"id": 2**40, "note": None, "customer": {"n": "Ann"}},
    None,
    {"id": 3, "note": None, "customer": None},
    None,
    None,
    None,
]
REASONS = [
    None,
    None,
    None,
    None,
    "no schema 9 is known",
    "the bytes end inside the value",
    "no schema id: the first byte is not 0, 1 or 3 (without ids: framed=False, --no-frame)",
]


@BROKEN
@pytest.mark.parametrize("place", ["log dir", "partition", "segment"])
def test_schemas_come_from_the_topic_beside_and_versions_are_unified(log_dir, place):
    segment = next((log_dir / "orders-0").glob("*.log"))
    path = {"log dir": log_dir, "partition": log_dir / "orders-0", "segment": segment}[place]
    topics = {"topics": "orders"} if place == "log dir" else {}
    table = kafkalog.read_table(path, decode={"value": "avro"}, columns=["value", "value_error"], **topics)
    assert table.column("value").to_pylist() == UNIFIED
    assert table.column("value_error").to_pylist() == REASONS
    customer = pa.struct([("n", pa.string())])
    assert table.schema.field("value").type == pa.struct(
        [("id", pa.int64()), ("note", pa.string()), ("customer", customer)]
    )


@BROKEN
def test_fields_alone_are_decoded_and_filtered(log_dir):
    table = kafkalog.read_table(
        log_dir / "orders-0", decode={"value": "avro"}, columns=["offset", "value.customer.n"], filters="value.id > 1"
    )
    assert table.to_pylist() == [{"offset": 1, "value.customer.n": "Ann"}, {"offset": 3, "value.customer.n": None}]


@BROKEN
def test_schemas_come_from_files_or_a_mapping(log_dir, tmp_path):
    (tmp_path / "1.avsc").write_text(json.dumps(V1))
    (tmp_path / "2.avsc").write_text(json.dumps(V2))
    (tmp_path / f"{GUID}.avsc").write_text(json.dumps(V2))
    by_key = {1: json.dumps(V1), 2: ("AVRO", json.dumps(V2)), GUID: json.dumps(V2)}
    for schemas in (tmp_path, by_key, kafkalog.schemas(log_dir)):
        table = kafkalog.read_table(log_dir / "orders-0", decode={"value": "avro"}, schemas=schemas, columns=["value"])
        assert table.column("value").to_pylist() == UNIFIED


def test_a_given_schema_needs_no_frame(tmp_path):
    with PartitionWriter(tmp_path / "bare-0") as writer:
        writer.append({"value": [avro(V1, {"id": 1, "note": "a"}), None, avro(V1, {"id": 2, "note": "b"})]})
    (tmp_path / "order.avsc").write_text(json.dumps(V1))
    for schema in (tmp_path / "order.avsc", json.dumps(V1)):
        how = {"format": "avro", "schema": schema, "framed": False}
        assert not kafkalog.scan(tmp_path / "bare-0", decode={"value": how})._decoding.needs_to_learn
        table = kafkalog.read_table(tmp_path / "bare-0", decode={"value": how}, columns=["value"])
        assert table.column("value").to_pylist() == [{"id": 1, "note": "a"}, None, {"id": 2, "note": "b"}]
    with pytest.raises(ValueError, match="type"):
        kafkalog.scan(tmp_path / "bare-0", decode={"value": {"format": "avro", "schema": "{\n}"}})


def test_a_schema_refers_to_others(tmp_path):
    money = {"type": "record", "name": "x.Money", "fields": [{"name": "cents", "type": "long"}]}
    price = {"type": "record", "name": "P", "fields": [{"name": "price", "type": "x.Money"}]}
    (tmp_path / "7.avsc").write_text(json.dumps(price))
    (tmp_path / "money.avsc").write_text(json.dumps(money))
    schemas = tmp_path / "log" / "_schemas-0"
    records = [
        schema_record(1, 1, money),
        schema_record(7, 2, price, references=[{"name": "x.Money", "subject": "orders-value", "version": 1}]),
    ]
    schemas.parent.mkdir()
    with PartitionWriter(schemas) as writer:
        writer.append({"key": [key for key, _ in records], "value": [value for _, value in records]})
    with PartitionWriter(tmp_path / "log" / "p-0") as writer:
        writer.append({"value": [framed(7, b"\x10")]})
    table = kafkalog.read_table(tmp_path / "log" / "p-0", decode={"value": "avro"}, columns=["value.price.cents"])
    assert table.column(0).to_pylist() == [8]
    # the topic of another log dir
    (tmp_path / "log" / "p-0").rename(tmp_path / "p-0")
    table = kafkalog.read_table(tmp_path / "p-0", value_format="avro", schemas=tmp_path / "log")
    assert table["value"].to_pylist() == [{"price": {"cents": 8}}]


def test_a_plan_divides_decoded_records_with_one_type(log_dir):
    import pickle

    scan = kafkalog.scan(log_dir, topics="orders", decode={"value": "avro"}, columns=["value"], end_offset=4)
    parts = pickle.loads(pickle.dumps(scan.plan()))
    assert pa.concat_tables(part.to_table() for part in parts).column("value").to_pylist() == UNIFIED[:4]


@pytest.mark.parametrize(
    ("n_schemas", "n_each"), [(20, 10), pytest.param(100, 100, marks=pytest.mark.slow)], ids=["few", "10,000"]
)
def test_values_of_confluent_serializers_come_back(tmp_path, n_schemas, n_each):
    with warnings.catch_warnings(record=True):  # a library that it imports warns about itself, whatever the filters are
        registry = pytest.importorskip("confluent_kafka.schema_registry")
        avro_module = pytest.importorskip("confluent_kafka.schema_registry.avro")
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = registry.SchemaRegistryClient.new_client({"url": "mock://values"})
    known = {}
    values = []
    headers = []
    expected = []
    context = SerializationContext("orders", MessageField.VALUE, [])
    for number in range(n_schemas):
        case = AvroCase(5000 + number)
        in_header = number % 3 == 2
        options = {"auto.register.schemas": True, "subject.name.strategy": lambda ctx, name: name}
        if in_header:
            options["schema.id.serializer"] = registry.header_schema_id_serializer
        write = avro_module.AvroSerializer(client, json.dumps(case.schema), conf=options)
        read = avro_module.AvroDeserializer(client)
        for i in range(n_each):
            given, shown = case.value()
            context.headers = []
            data = write(given, context)
            key = str(uuid.UUID(bytes=context.headers[0][1][1:17])) if in_header else int.from_bytes(data[1:5], "big")
            known[key] = json.dumps(case.schema)
            if not i and len(data) > 5:  # shorter ones it refuses, also where the header has the id
                assert read(data, context) is not None
            values.append(data)
            headers.append([{"key": name, "value": one} for name, one in context.headers])
            expected.append(shown)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table({"value": pa.array(values, pa.binary()), "headers": pa.array(headers, kind)})
    kafkalog.write_table(table, tmp_path / "log", topic="orders")
    path = tmp_path / "log" / "orders-0"
    for first in range(0, len(values), n_each):  # a schema at a time: together they would be one wide struct
        stop = first + n_each
        options = {"start_offset": first, "end_offset": stop, "columns": ["value"], "schemas": known}
        found = kafkalog.read_table(path, decode={"value": "avro"}, **options)
        assert found.column("value").to_pylist() == expected[first:stop]


RIDER = {"type": "record", "name": "Rider", "namespace": "acme", "fields": [{"name": "city", "type": "string"}]}
RIDE = {"type": "record", "name": "Ride", "fields": [{"name": "r", "type": "acme.Rider"}]}
PLAIN = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def registered(root, *rows, references=()):
    keys, values = [], []
    for subject, number, schema in rows:
        keys.append({"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1})
        kind, text = ("AVRO", json.dumps(schema)) if isinstance(schema, dict) else schema
        values.append({"subject": subject, "version": 1, "id": number, "schemaType": kind, "schema": text})
        if subject.endswith("rides-value"):
            values[-1]["references"] = references
    table = {"key": [json.dumps(one).encode() for one in keys], "value": [json.dumps(one).encode() for one in values]}
    kafkalog.write_table(table, root, topic="_schemas")
    return root


@pytest.mark.parametrize(
    ("subject", "topic", "is_chosen"),
    [
        (":.partner:riders-value", "riders", True),
        (":.partner:acme.Rider", "riders", True),
        (":.partner:riders-acme.Rider", "riders", True),
        (":.partner:riders-value", "others", False),
        (":.partner:riders-key", "riders", False),
        (":.partner:orders-value", "orders", False),
    ],
)
def test_an_id_of_two_contexts_is_that_of_the_topics_subject(tmp_path, subject, topic, is_chosen):
    root = registered(tmp_path / "log", ("orders-value", 1, PLAIN), (subject, 1, RIDER))
    value = b"\0\0\0\0\1" + avro(RIDER, {"city": "Oslo"})
    kafkalog.write_table({"value": [value]}, root, topic=topic)
    options = {"topics": topic, "decode": {"value": "avro"}, "columns": ["value", "value_error"]}
    directory = tmp_path / "schemas"
    kafkalog.schemas(root).write(directory)
    for schemas in (None, kafkalog.schemas(root), directory):
        scan = kafkalog.scan(root, **options, schemas=schemas)
        with pytest.warns(DecodeWarning):
            (row,) = scan.to_table().to_pylist()
        assert row["value"] == ({"city": "Oslo"} if is_chosen else None)
        assert ("ambiguous" in (row["value_error"] or "")) != is_chosen
        for context in (".partner", ":.partner:", "partner"):
            (row,) = kafkalog.read_table(root, **options, schemas=schemas, schema_context=context).to_pylist()
            assert row["value"] == {"city": "Oslo"}
        (row,) = kafkalog.read_table(root, **options, schemas=schemas, schema_context=".").to_pylist()
        assert row["value"] == {"id": "Oslo"}
    with pytest.raises(ValueError, match="schema_context"):
        kafkalog.scan(root, **options, schemas={1: json.dumps(RIDER)}, schema_context=".partner")


def test_the_command_chooses_a_context(tmp_path, capsys):
    root = registered(tmp_path / "log", ("orders-value", 1, PLAIN), (":.partner:riders-value", 1, RIDER))
    kafkalog.write_table({"value": [b"\0\0\0\0\1" + avro(RIDER, {"city": "Oslo"})]}, root, topic="riders")
    command = ["cat", str(root), "-t", "riders", "--value-format", "avro", "--json", "--columns", "value"]
    for more, expected in (([], "city"), (["--schema-context", ".partner"], "city"), (["--schema-context", "."], "id")):
        assert main([*command, *more]) == 0
        assert json.loads(capsys.readouterr().out) == {"value": {expected: "Oslo"}}


@pytest.mark.parametrize("reference", ["acme.Rider", ":.partner:acme.Rider"])
def test_references_are_looked_up_in_the_context_of_what_refers(tmp_path, reference):
    other = {**RIDER, "fields": [{"name": "wrong", "type": "int"}]}
    root = registered(
        tmp_path / "log",
        ("acme.Rider", 5, other), (":.partner:acme.Rider", 6, RIDER), (":.partner:rides-value", 7, RIDE),
        references=[{"name": "acme.Rider", "subject": reference, "version": 1}],
    )  # fmt: skip
    kafkalog.write_table({"value": [b"\0\0\0\0\7" + avro(RIDER, {"city": "Oslo"})]}, root, topic="rides")
    table = kafkalog.read_table(root, topics="rides", decode={"value": "avro"}, columns=["value"])
    assert table.to_pylist() == [{"value": {"r": {"city": "Oslo"}}}]


def test_protobuf_and_json_schemas_of_two_contexts(tmp_path):
    protos = [
        'syntax = "proto3"; message A { string a = 1; }',
        'syntax = "proto3"; package p; message B { string b = 1; }',
    ]
    texts = [json.dumps({"title": name, "type": "object", "properties": {name: {"type": "string"}}}) for name in "xy"]
    root = registered(
        tmp_path / "log",
        ("a-value", 1, ("PROTOBUF", protos[0])), (":.c:p.B", 1, ("PROTOBUF", protos[1])),
        ("x-value", 2, ("JSON", texts[0])), (":.c:y", 2, ("JSON", texts[1])),
    )  # fmt: skip
    kafkalog.write_table({"value": [b"\0\0\0\0\1\0\x0a\1v"]}, root, topic="b")
    kafkalog.write_table({"value": [b'\0\0\0\0\2{"z": "v"}']}, root, topic="z")
    with pytest.warns(DecodeWarning, match=r":\.c:p\.B"):
        table = kafkalog.read_table(root, topics="b", decode={"value": "protobuf"}, columns=["value"])
    assert table.to_pylist() == [{"value": {"b": "v"}}]
    with pytest.warns(DecodeWarning, match=":.c:y"):
        table = kafkalog.read_table(root, topics="z", decode={"value": "jsonschema"}, columns=["value"])
    assert table.to_pylist() == [{"value": {"y": None, "z": "v"}}]
