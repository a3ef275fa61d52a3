"""JSON Schemas: the types that they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.values.formats.json_schema import schema_type
from kafkalog.values.types import SchemaError

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": ["null", "number"]},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "paid": {"type": "boolean"},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "any": {},
        "either": {"type": ["string", "integer"]},
        "far": {"$ref": "other.json"},
    },
    "definitions": {
        "line": {"type": "object", "properties": {"sku": {"type": "string"}, "of": {"$ref": "#/definitions/line"}}}
    },
}


def test_what_a_schema_says_is_a_type_and_the_rest_is_left_to_the_values() -> None:
    assert schema_type(json.dumps(ORDER)) == pa.struct(
        {
            "id": pa.int64(),
            "total": pa.float64(),
            "note": pa.string(),
            "paid": pa.bool_(),
            "lines": pa.list_(pa.struct({"sku": pa.string()})),
        }
    )
    for text in ("true", "7", "{}", '{"$ref": "#"}', '{"type": {}}', '{"allOf": []}'):
        assert schema_type(text) == pa.null()


def test_schemas_that_mean_harm_are_refused() -> None:
    with pytest.raises(SchemaError, match="not JSON"):
        schema_type("[" * 100_000)
    levels: dict[str, Any] = {"l0": {"type": "integer"}}
    for level in range(1, 40):
        inner = {"$ref": f"#/definitions/l{level - 1}"}
        levels[f"l{level}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    with pytest.raises(SchemaError, match="more than 4096 fields"):
        schema_type(json.dumps({"$ref": "#/definitions/l39", "definitions": levels}))


def test_columns_have_the_fields_of_their_schemas(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "orders-0") as writer:
        writer.append({"value": [b'\0\0\0\0\7{"id": 1, "extra": "x"}', b'\0\0\0\0\7{"id": 2, "total": 3}']})
    options: dict[str, Any] = {"columns": ["value"], "schemas": {7: ("JSON", json.dumps(ORDER))}}
    table = kafkalog.read_table(tmp_path / "orders-0", decode={"value": "jsonschema"}, **options)
    nothing = {"note": None, "paid": None, "lines": None, "extra": None, "total": None}
    assert table.column("value").to_pylist() == [
        {**nothing, "id": 1, "extra": "x"},
        {**nothing, "id": 2, "total": 3.0},
    ]
