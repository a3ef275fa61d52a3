"""Decoded keys and values in Spark: structs of the same values that `kafkalog.read_table` gives."""

import json

import pytest

import kafkalog
import kafkalog.spark
from kafkalog import PartitionWriter
from kafkalog.values.options import ColumnFormat

PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; Customer c = 2; repeated uint32 n = 3; google.protobuf.Timestamp t = 4; }
message Customer { optional string name = 1; }"""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    root = tmp_path_factory.mktemp("decoded")
    with PartitionWriter(root / "json-0") as writer:
        values = [json.dumps({"id": i, "customer": {"name": f"c{i % 3}"}}).encode() for i in range(100)]
        writer.append({"key": [i.to_bytes(8, "big") for i in range(101)], "value": [*values, b"oops"]})
    orders = [b"\x08" + bytes([i]) + b"\x12\4\n\2c%d" % (i % 3) + b"\x1a\1\7\x22\2\x08\1" for i in range(1, 50)]
    with PartitionWriter(root / "proto-0") as writer:
        writer.append({"value": [b"\0\0\0\0\7\0" + one for one in orders]})
    (root / "schemas").mkdir()
    (root / "schemas" / "7.proto").write_text(PROTO)
    return root


@pytest.mark.spark
def test_values_are_structs_and_filters_are_on_their_fields(spark, log):
    kafkalog.spark.register(spark)
    path = {"json": str(log / "json-0"), "proto": str(log / "proto-0")}
    reader = spark.read.format("kafkalog").options(valueFormat="json", keyFormat="long", onDecodeError="null")
    frame = reader.load(path["json"])
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,customer:struct<name:string>>"
    rows = frame.select("offset", "key", "value").collect()
    assert [row["key"] for row in rows] == [*range(101)]
    assert [row["value"] and row["value"].asDict(recursive=True) for row in rows] == [
        *({"id": i, "customer": {"name": f"c{i % 3}"}} for i in range(100)),
        None,
    ]
    some = reader.options(
        columns="offset,value.customer.name,value_error", filters='["value.id >= 98", "offset < 1000"]'
    ).load(path["json"])
    assert some.schema["value"].dataType.simpleString() == "struct<customer:struct<name:string>>"
    found = some.select("offset", "value.customer.name", "value_error").collect()
    assert [tuple(row) for row in found] == [(98, "c2", None), (99, "c0", None)]
    given = {"format": "protobuf", "schema": PROTO, "message": "Order"}
    table = kafkalog.read_table(path["proto"], decode={"value": given}, columns=["value"])
    for options in (
        {"schemas": str(log / "schemas")},
        {"valueSchema": PROTO, "valueMessage": "Order"},
    ):
        orders = spark.read.format("kafkalog").options(valueFormat="protobuf", **options).load(path["proto"])
        found = orders.selectExpr("value.id", "value.c.name", "value.n", "CAST(value.t AS bigint)").collect()
        assert [tuple(row) for row in found] == [
            (one["id"], one["c"]["name"], one["n"], 1) for one in table.column("value").to_pylist()
        ]


def options_of(**given):
    pytest.importorskip("pyspark")
    from kafkalog.spark.source_options import parse_options

    return parse_options({"path": "/nowhere", **given})


def test_options_that_do_not_go_together_say_why():
    for given, why in (
        ({"valueSchema": "x.avsc"}, "a schema needs a format: give the option valueFormat"),
        ({"schemas": "/x"}, "schemas is for decoding: give the option valueFormat or keyFormat"),
        ({"schemaContext": ".a"}, "schemaContext is for decoding: give the option valueFormat or keyFormat"),
        ({"valueFormat": "xml"}, "no format 'xml' to decode the value by"),
        ({"valueFormat": "json", "framed": "maybe"}, "framed must be true or false, not 'maybe'"),
        ({"valueFormat": "json", "columns": "offset,key.id"}, "no column 'key.id'"),
        ({"columns": "value.id"}, "no column 'value.id'"),
        ({"onDecodeError": "skip"}, "onDecodeError is for decoding: give the option valueFormat or keyFormat"),
        ({"valueFormat": "json", "onDecodeError": "raise"}, "onDecodeError must be fail or null or skip, not 'raise'"),
    ):
        with pytest.raises(ValueError, match=why):
            options_of(**given)
    found = options_of(valueFormat="json", columns="value.a", filters='["value.a == x", "key == k"]')
    assert found.columns == ("value.a",)
    assert found.reading["filters"] == [[("key", "==", "k")]]
    assert found.decode.conditions == [[("value.a", "==", "x")]]
    assert options_of(valueFormat="avro", schemaContext=".partner").decode.context == ".partner"
    given = {"readerSchema": '"int"', "idSize": "8", "branches": "true", "keyFormat": "protobuf"}
    formats = options_of(valueFormat="avro", **given).decode.formats
    assert formats["value"] == ColumnFormat("avro", id_size=8, reader_schema='"int"', branches=True)
    assert formats["key"] == ColumnFormat("protobuf", id_size=8, branches=True)


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
SCHEMAS = (
    "id bigint, customer struct<name:string>",
    "struct<id: long, `customer`: struct<name string>>",
    json.dumps(JSON_SCHEMA),
)


def unread(monkeypatch):
    """Whatever reads records fails."""
    from kafkalog.spark import reader

    def fails(*_):
        raise AssertionError("records are read")

    monkeypatch.setattr(reader, "_records", fails)
    monkeypatch.setattr(reader, "_planned", fails)


@pytest.mark.parametrize("given", SCHEMAS)
def test_nothing_is_read_for_types_that_are_declared(log, monkeypatch, given):
    pytest.importorskip("pyspark")
    from kafkalog.spark.data_source import KafkaLogSource

    unread(monkeypatch)
    source = KafkaLogSource({"path": str(log / "json-0"), "valueFormat": "json", "valueSchema": given})
    schema = source.schema()
    assert schema["value"].dataType.simpleString() == "struct<id:bigint,customer:struct<name:string>>"
    source.reader(schema)
    assert source.streamReader(schema).initialOffset() == {"json": {"0": 101}}


def test_nothing_is_read_again_for_types_that_were_learned(log, monkeypatch):
    pytest.importorskip("pyspark")
    from kafkalog.spark.data_source import KafkaLogSource

    source = KafkaLogSource({"path": str(log / "json-0"), "valueFormat": "json"})
    schema = source.schema()
    unread(monkeypatch)
    source.reader(schema)
    # a record of another type would end a stream for good
    with pytest.raises(ValueError, match="must be known before it starts") as refused:
        source.streamReader(schema)
    advised = str(refused.value).partition("valueSchema: ")[2]
    source = KafkaLogSource({"path": str(log / "json-0"), "valueFormat": "json", "valueSchema": advised})
    assert source.schema()["value"].dataType == schema["value"].dataType
    source.streamReader(source.schema())


@pytest.mark.slow
@pytest.mark.spark
def test_a_users_schema_prunes_structs_and_what_does_not_fit_is_null(spark, log):
    kafkalog.spark.register(spark)

    def load(schema, **options):
        reader = spark.read.format("kafkalog").options(valueFormat="json", onDecodeError="null", **options)
        return reader.schema(schema).load(str(log / "json-0"))

    frame = load("offset bigint, value struct<customer:struct<name:string>>")
    found = frame.where("offset < 3 or offset = 100").select("offset", "value.customer.name").orderBy("offset")
    assert [tuple(row) for row in found.collect()] == [(0, "c0"), (1, "c1"), (2, "c2"), (100, None)]
    # a field of another type is null, and the others stay
    values = [row.value for row in load("value struct<id:bigint,customer:string>, offset bigint").collect()]
    assert sorted(tuple(value) for value in values if value is not None) == [(i, None) for i in range(100)]
    assert values.count(None) == 1
    # numbers of another width, and a field that no value has
    frame = load("value struct<id:tinyint,none:double>, offset bigint").where("offset in (0, 99)").orderBy("offset")
    assert [tuple(row.value) for row in frame.collect()] == [(0, None), (99, None)]
    with pytest.raises(Exception, match=r"value\.id"):
        load("value struct<id:string>", valueSchema=SCHEMAS[0]).count()
    with pytest.raises(Exception, match=r"value\.other"):
        load("value struct<other:string>", valueSchema=SCHEMAS[0]).count()
    orders = spark.read.format("kafkalog").options(valueFormat="protobuf", schemas=str(log / "schemas"))
    frame = orders.schema("value struct<c:struct<name:string>,id:bigint>").load(str(log / "proto-0"))
    assert [tuple(row) for row in frame.select("value.id", "value.c.name").limit(2).collect()] == [(1, "c1"), (2, "c2")]


@pytest.mark.spark
def test_values_without_a_common_type_are_text_as_without_spark(spark, tmp_path):
    kafkalog.spark.register(spark)
    with PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": [b'{"a": 1, "n": null, "e": {}}', b'{"a": "x", "n": null, "e": {}}']})
    frame = spark.read.format("kafkalog").options(valueFormat="json").load(str(tmp_path))
    table = kafkalog.read_table(tmp_path, decode={"value": "json"}, columns=["value"])
    assert [row.a for row in frame.select("value.a").collect()] == [one["a"] for one in table["value"].to_pylist()]


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_decodes_json(spark, log, tmp_path):
    kafkalog.spark.register(spark)
    options = {"valueFormat": "json", "startingOffsets": "earliest", "valueSchema": SCHEMAS[0], "onDecodeError": "null"}
    reader = spark.readStream.format("kafkalog").options(**options)
    stream = reader.load(str(log / "json-0")).select("value.customer.name")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    assert writer.trigger(availableNow=True).start(str(tmp_path / "names")).awaitTermination(250)
    found = spark.read.parquet(str(tmp_path / "names")).groupBy("name").count().collect()
    assert {row.name: row["count"] for row in found} == {"c0": 34, "c1": 33, "c2": 33, None: 1}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    root = tmp_path_factory.mktemp("faulty")
    with PartitionWriter(root / "t-0") as writer:
        writer.append({"value": [b'{"a": 1}', b"oops", b'{"a": "text"}', b'{"a": 2}']})
    return root


def tasks_of(faulty, **options):
    """The rows that the tasks of a query read, without Spark."""
    pytest.importorskip("pyspark")
    from kafkalog.spark.data_source import KafkaLogSource

    source = KafkaLogSource({"path": str(faulty), "valueFormat": "json", "valueSchema": "a bigint", **options})
    reader = source.reader(source.schema())
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [row["value"] and row["value"]["a"] for batch in batches for row in batch.to_pylist()]


def test_values_that_do_not_decode_fail_unless_they_are_accepted(faulty):
    for options in ({}, {"onDecodeError": "fail"}, {"onDecodeError": "fail", "columns": "value,value_error"}):
        with pytest.raises(kafkalog.ReadError, match="2 of the values that this task reads do not decode") as at:
            tasks_of(faulty, **options)
        assert at.value.path is not None
        assert at.value.base_offset == 1
    with pytest.warns(kafkalog.DecodeWarning, match="null in the result"):
        assert tasks_of(faulty, onDecodeError="null") == [1, None, None, 2]
    with pytest.warns(kafkalog.DecodeWarning, match="left out of the result"):
        assert tasks_of(faulty, onDecodeError="SKIP") == [1, 2]
    with pytest.warns(kafkalog.DecodeWarning):
        assert tasks_of(faulty, columns="value,value_error") == [1, None, None, 2]
    # what is not read does not fail
    assert tasks_of(faulty, columns="value.a", filters='["offset in 0,3"]') == [1, 2]


@pytest.mark.slow
@pytest.mark.spark
def test_the_driver_counts_what_does_not_decode(spark, faulty):
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    kafkalog.spark.register(spark)
    reader = spark.read.format("kafkalog").options(valueFormat="json", valueSchema="a bigint")
    with pytest.raises(Exception, match="2 of the values that this task reads do not decode"):
        reader.load(str(faulty)).collect()
    seen = Observation()
    frame = reader.options(columns="offset,value,value_error").load(str(faulty))
    frame = frame.observe(seen, F.count("value_error").alias("n_undecoded"))
    assert sum(row.a for row in frame.select("value.a").collect() if row.a is not None) == 3
    assert seen.get == {"n_undecoded": 2}
    assert [row.a for row in reader.option("onDecodeError", "skip").load(str(faulty)).select("value.a").collect()] == [
        1,
        2,
    ]
