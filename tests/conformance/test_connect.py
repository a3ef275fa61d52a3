"""JSON with schemas, as Kafka Connect's own converter reads it."""

import base64
import json
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from conformance.kafka import run_java
from connect_cases import EPOCH, Enveloped

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]
N_SCHEMAS = 200


def millis(moment):
    return str(round((moment - EPOCH).total_seconds() * 1000))


def shown(value, schema):
    """A value of a column as `Connect.java` prints it."""
    if value is None:
        return "null"
    if schema.get("name", "").endswith("VariableScaleDecimal"):
        return str(Decimal(value))
    if schema["type"] == "struct":
        return "{" + ",".join(f"{one['field']}={shown(value[one['field']], one)}" for one in schema["fields"]) + "}"
    if schema["type"] == "array":
        return "[" + ",".join(shown(one, schema["items"]) for one in value) + "]"
    if schema["type"] == "map":
        pairs = [f"{shown(key, schema['keys'])}:{shown(one, schema['values'])}" for key, one in value]
        return "<" + ",".join(sorted(pairs)) + ">"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return millis(value)
    if isinstance(value, date):
        return millis(datetime.combine(value, time(), EPOCH.tzinfo))
    if isinstance(value, time):
        return millis(datetime.combine(EPOCH.date(), value, EPOCH.tzinfo))
    if isinstance(value, float):
        return {2.0**20: "1048576.0", 1e10: "1.0E10"}.get(value, str(value))
    if not isinstance(value, Decimal):
        return str(value)
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def flat(schema):
    """The schema with decimals with a scale of their own left out: the converter has them as structs."""
    if schema["type"] == "struct":
        fields = [one for one in schema["fields"] if "io.debezium" not in one.get("name", "")]
        return schema | {"fields": [flat(one) for one in fields]}
    if schema["type"] == "array":
        return schema | {"items": flat(schema["items"])}
    return schema | {"values": flat(schema["values"])} if schema["type"] == "map" else schema


def has_scaled(schema):
    return "io.debezium" in json.dumps(schema)


def test_values_are_those_of_kafkas_converter(tmp_path):
    values, schemas = [], []
    for seed in range(1000, 1000 + N_SCHEMAS):
        case = Enveloped(seed)
        case.schema = flat(case.schema)
        if has_scaled(case.schema):
            continue
        for _ in range(5):
            payload, _ = case.value_of(case.schema)
            values.append(json.dumps({"schema": case.schema, "payload": payload}).encode())
            schemas.append(case.schema)
    given = [base64.b64encode(value).decode() for value in values]
    theirs = run_java(Path(__file__).with_name("Connect.java"), given=given).splitlines()
    assert len(theirs) == len(values)
    for at, (value, schema) in enumerate(zip(values, schemas, strict=True)):
        kafkalog.write_table({"value": [value]}, tmp_path / str(at), topic="t")
        table = kafkalog.read_table(tmp_path / str(at), decode={"value": "connectjson"}, columns=["value"])
        assert shown(table.column(0).to_pylist()[0], schema) == theirs[at], value
