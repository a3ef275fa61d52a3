"""What Debezium and Kafka Connect write: decimals with a scale of their own, and JSON with schemas."""

import base64
import io
import json
import random
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from connect_cases import CONNECT, Enveloped, number, unscaled
from effort import thinned

import kafkalog
from kafkalog import DecodeWarning
from kafkalog.values.encoding import ValueEncoder

AMOUNT = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.version": 1,
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "server.inventory.t",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "amount", "type": ["null", AMOUNT], "default": None},
        {"name": "sum", "type": "io.debezium.data.VariableScaleDecimal"},
        {"name": "all", "type": {"type": "array", "items": ["null", "io.debezium.data.VariableScaleDecimal"]}},
    ],
}


def avro(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def test_decimals_with_a_scale_of_their_own_keep_all_digits(tmp_path):
    chance = random.Random(5)
    rows = [
        {"id": i, "amount": chance.choice([None, number(chance)]), "sum": number(chance), "all": [None, number(chance)]}
        for i in range(50)
    ]
    values = [
        avro(
            ROW,
            {
                "id": row["id"],
                "amount": None if row["amount"] is None else unscaled(row["amount"]),
                "sum": unscaled(row["sum"]),
                "all": [None if one is None else unscaled(one) for one in row["all"]],
            },
        )
        for row in rows
    ]
    kafkalog.write_table({"value": [*values, None]}, tmp_path / "log", topic="t")
    decode = {"value": {"format": "avro", "schema": json.dumps(ROW), "framed": False}}
    table = kafkalog.read_table(tmp_path / "log", decode=decode, columns=["value"])
    assert table.schema.field("value").type.field("sum").type == pa.string()
    found = table.column("value").to_pylist()
    assert found.pop() is None
    assert all("E" not in row["sum"] for row in found)
    read = [
        {
            **row,
            "amount": row["amount"] and Decimal(row["amount"]),
            "sum": Decimal(row["sum"]),
            "all": [one and Decimal(one) for one in row["all"]],
        }
        for row in found
    ]
    assert read == rows
    for columns in (["value.amount"], ["value.sum", "offset"], ["value.all"]):
        alone = kafkalog.read_table(tmp_path / "log", decode=decode, columns=columns)
        name = columns[0].removeprefix("value.")
        assert alone.column(columns[0]).to_pylist()[:-1] == [row[name] for row in found]
    encoder = ValueEncoder("avro", json.dumps(ROW))
    again = [json.loads(json.dumps(row)) for row in found]
    kafkalog.write_table({"value": [encoder.encode(row) for row in again]}, tmp_path / "again", topic="t")
    assert kafkalog.read_table(tmp_path / "again", decode=decode, columns=["value"]).column(0).to_pylist() == found
    bare = ValueEncoder("avro", json.dumps(AMOUNT))
    wanted = avro(AMOUNT, unscaled(Decimal("-1.50")))
    assert bare.encode("-1.50") == bare.encode({"scale": 2, "value": "/2o="}) == wanted


def test_a_decimal_without_a_number_is_null_and_the_rest_stays(tmp_path):
    value = avro(ROW, {"id": 1, "amount": {"scale": 2, "value": b""}, "sum": unscaled(Decimal("2.5")), "all": []})
    kafkalog.write_table({"value": [value]}, tmp_path / "log", topic="t")
    decode = {"value": {"format": "avro", "schema": json.dumps(ROW), "framed": False}}
    with pytest.warns(DecodeWarning):
        table = kafkalog.read_table(tmp_path / "log", decode=decode, columns=["value", "value_error"])
    assert table.to_pylist() == [
        {
            "value": {"id": 1, "amount": None, "sum": "2.5", "all": []},
            "value_error": "amount: a decimal has no number",
        }
    ]


def test_another_record_of_that_name_stays_a_record(tmp_path):
    other = AMOUNT | {"fields": [{"name": "scale", "type": "long"}, {"name": "value", "type": "bytes"}]}
    kafkalog.write_table({"value": [avro(other, {"scale": 1, "value": b"\5"})]}, tmp_path / "log", topic="t")
    decode = {"value": {"format": "avro", "schema": json.dumps(other), "framed": False}}
    table = kafkalog.read_table(tmp_path / "log", decode=decode, columns=["value"])
    assert table.column(0).to_pylist() == [{"scale": 1, "value": b"\5"}]


def plain(value, schema):
    """A value of a column, with the decimals that are text as numbers."""
    if value is None:
        return None
    if schema.get("name", "").endswith("VariableScaleDecimal"):
        return Decimal(value)
    if schema["type"] == "array":
        return [plain(one, schema["items"]) for one in value]
    if schema["type"] == "map":
        return [(key, plain(one, schema["values"])) for key, one in value]
    if schema["type"] == "struct":
        return {one["field"]: plain(value[one["field"]], one) for one in schema["fields"]}
    return value


@pytest.mark.parametrize("seed", thinned(range(30), 5))
def test_json_of_connect_is_decoded_by_its_schema(seed, tmp_path):
    case = Enveloped(seed)
    pairs = [case.value_of(case.schema) for _ in range(20)]
    style = {"separators": (",", ":")} if seed % 2 else {}
    values = [json.dumps({"schema": case.schema, "payload": payload}, **style).encode() for payload, _ in pairs]
    values.append(json.dumps({"payload": pairs[0][0], "schema": case.schema}).encode())
    kafkalog.write_table({"value": [*values, None, b'{"schema":null,"payload":null}']}, tmp_path / "log", topic="t")
    options = {"decode": {"value": "connectjson"}}
    table = kafkalog.read_table(tmp_path / "log", columns=["value", "value_error"], **options)
    assert table.column("value_error").to_pylist() == [None] * 23
    found = table.column("value").to_pylist()
    assert [plain(one, case.schema) for one in found[:20]] == [value for _, value in pairs]
    assert found[20:] == [found[0], None, None]
    for field in case.schema["fields"]:
        name = f"value.{field['field']}"
        alone = kafkalog.read_table(tmp_path / "log", columns=[name], **options).column(0).to_pylist()
        assert alone == [one and one[field["field"]] for one in found]


def test_what_does_not_match_its_schema_is_null_and_named(tmp_path):
    schema = {
        "type": "struct",
        "fields": [
            {"type": "int8", "field": "a"},
            {
                "type": "bytes",
                "name": f"{CONNECT}Decimal",
                "parameters": {"scale": "1"},
                "field": "d",
                "optional": True,
            },
            {"type": "int32", "name": f"{CONNECT}Time", "field": "t", "optional": True},
        ],
    }

    def value(**payload):
        return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()

    values = [
        value(a=1),
        value(a=300, d="?", t=86_400_000),
        value(d=1.25),
        value(a=1, d=base64.b64encode(b"\x7f" * 20).decode(), t=5),
        b'{"a": 1}',
        b'{"schema":{"type":"int"},"payload":1}',
        b'{"schema":null,"payload":1}',
        value(a=2)[:-1],
        b'{"schema":{"type":"string"},"payload":5}',
        b'{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal"},"payload":5}',
    ]
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="t")
    with pytest.warns(DecodeWarning):
        table = kafkalog.read_table(
            tmp_path / "log", decode={"value": "connectjson"}, columns=["value.a", "value.t", "value_error"]
        )
    no_value = "does not match its schema: "
    assert table.column("value_error").to_pylist() == [
        None,
        f"{no_value}a is not of type int8; d is not bytes in base64; {no_value}t is not of type int32",
        f"{no_value}a is missing; d: a decimal does not fit its precision",
        "d: a decimal does not fit its precision",
        "not an object of schema and payload, as Kafka Connect writes with schemas.enable=true",
        "its schema is invalid: there is no type 'int'",
        "the value has no schema",
        "not JSON",
        f"{no_value}the value is not of type string",
        "its schema is invalid: a Decimal has no scale",
    ]
