"""Decoded keys and values in Spark: structs of the same values that `kafkalog.read_table` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
import kafkalog.spark
from kafkalog import PartitionWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; Customer c = 2; repeated uint32 n = 3; google.protobuf.Timestamp t = 4; }
message Customer { optional string name = 1; }"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def test_values_are_structs_and_filters_are_on_their_fields(spark: SparkSession, log: Path) -> None:
    kafkalog.spark.register(spark)
    path = {"json": str(log / "json-0"), "proto": str(log / "proto-0")}
    reader = spark.read.format("kafkalog").options(valueFormat="json", keyFormat="long")
    frame = reader.load(path["json"])
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,customer:struct<name:string>>"
    rows = frame.select("offset", "key", "value").collect()
    assert [row["key"] for row in rows] == [*range(101)]
    assert [row["value"] and row["value"].asDict(recursive=True) for row in rows] == [
        *({"id": i, "customer": {"name": f"c{i % 3}"}} for i in range(100)),
        None,
    ]
    some = reader.options(
        columns="offset,value.customer.name,value_error", filters='[["value.id", ">=", 98], ["offset", "<", 1000]]'
    ).load(path["json"])
    assert [tuple(row) for row in some.collect()] == [(98, "c2", None), (99, "c0", None)]
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


def options_of(**given: str) -> Any:
    pytest.importorskip("pyspark")
    from kafkalog.spark.source_options import parse_options

    return parse_options({"path": "/nowhere", **given})


def test_options_that_do_not_go_together_say_why() -> None:
    for given, why in (
        ({"valueSchema": "x.avsc"}, "a schema needs a format: give the option valueFormat"),
        ({"schemas": "/x"}, "schemas is for decoding: give the option valueFormat or keyFormat"),
        ({"valueFormat": "xml"}, "no format 'xml' to decode the value by"),
        ({"valueFormat": "json", "framed": "maybe"}, "framed must be true or false, not 'maybe'"),
        ({"valueFormat": "json", "columns": "offset,key.id"}, "no column 'key.id'"),
        ({"columns": "value.id"}, "no column 'value.id'"),
    ):
        with pytest.raises(ValueError, match=why):
            options_of(**given)
    found = options_of(valueFormat="json", columns="value.a", filters='[["value.a", "==", "x"], ["key", "==", "k"]]')
    assert found.columns == ("value.a",)
    assert found.filters == [[("key", "==", b"k")]]
    assert found.decode.conditions == [[("value.a", "==", "x")]]
