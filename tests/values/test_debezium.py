"""What Debezium and Kafka Connect write: decimals with a scale of their own, in Avro."""

import io
import json
import random
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

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


def unscaled(number):
    """A decimal as Debezium's VariableScaleDecimal.fromLogical has it."""
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    return {"scale": -exponent, "value": whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)}


def avro(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def number(chance):
    digits = str(chance.getrandbits(chance.choice([1, 30, 200, 400])))
    return Decimal(f"{chance.choice('-+')}{digits}E{chance.choice([0, 3, -2, -40])}")


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
