"""JSON Schemas: the types that they say."""

import json
import random
import warnings

import pyarrow as pa
import pytest

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.values.formats.json_schema import schema_type
from kafkalog.values.formats.json_text import JsonValues
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError

ORDER = {
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


def test_what_a_schema_says_is_a_type_and_the_rest_is_left_to_the_values():
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


def test_schemas_that_mean_harm_are_refused():
    with pytest.raises(SchemaError):
        schema_type("[" * 100_000)
    levels = {"l0": {"type": "integer"}}
    for level in range(1, 40):
        inner = {"$ref": f"#/definitions/l{level - 1}"}
        levels[f"l{level}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    with pytest.raises(SchemaError):
        schema_type(json.dumps({"$ref": "#/definitions/l39", "definitions": levels}))


def test_columns_have_the_fields_of_their_schemas(tmp_path):
    with PartitionWriter(tmp_path / "orders-0") as writer:
        writer.append({"value": [b'\0\0\0\0\7{"id": 1, "extra": "x"}', b'\0\0\0\0\7{"id": 2, "total": 3}']})
    options = {"columns": ["value"], "schemas": {7: ("JSON", json.dumps(ORDER))}}
    table = kafkalog.read_table(tmp_path / "orders-0", decode={"value": "jsonschema"}, **options)
    nothing = {"note": None, "paid": None, "lines": None, "extra": None, "total": None}
    assert table.column("value").to_pylist() == [
        {**nothing, "id": 1, "extra": "x"},
        {**nothing, "id": 2, "total": 3.0},
    ]


STRICT = {
    "type": "object",
    "required": ["id", "who", "rest", "maybe"],
    "properties": {
        "id": {"type": "integer"},
        "who": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        },
        "lines": {
            "type": "array",
            "items": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}},
        },
        "rate": {"type": "number"},
        "paid": {"type": "boolean"},
        "maybe": {"type": ["null", "string"]},
        "rest": {},
    },
}
GOOD = {"id": 1, "who": {"name": "Ann"}, "rest": 1, "maybe": None}
UNFIT = {
    "no field": ({"who": {"name": "Ann"}}, "id is missing"),
    "null": (GOOD | {"id": None}, "id is missing"),
    "no inner field": (GOOD | {"who": {"age": 3}}, "who.name is missing"),
    "no field in a list": (GOOD | {"lines": [{"sku": "a"}, {}]}, "lines[].sku is missing"),
    "text": (GOOD | {"id": "1"}, "id is not of type integer"),
    "fraction": (GOOD | {"id": 1.5}, "id is not of type integer"),
    "truth": (GOOD | {"id": True}, "id is not of type integer"),
    "number": (GOOD | {"who": {"name": 7}}, "who.name is not of type string"),
    "list": (GOOD | {"who": []}, "who is not of type object"),
    "object": (GOOD | {"lines": {}}, "lines is not of type array"),
    "truth for a rate": (GOOD | {"rate": False}, "rate is not of type number"),
    "item": (GOOD | {"lines": [7]}, "lines[] is not of type object"),
    "one for a truth": (GOOD | {"paid": 1}, "paid is not of type boolean"),
    "no object": ([], "the value is not of type object"),
}


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", UNFIT)
def test_a_field_that_does_not_conform_to_its_schema_is_null_with_a_reason(name, mixed):
    value, why = UNFIT[name]
    said = schema_type(json.dumps(STRICT))
    some = [
        GOOD,
        GOOD | {"rate": 1, "more": "x"},
        *([{**GOOD, "id": 2.0}, GOOD | {"who": {"name": "B", "age": 1.0}}] * mixed),
    ]
    payloads = Payloads.of(pa.array([json.dumps(one).encode() for one in (*some, value)], pa.binary()))
    reader = JsonValues()
    reader.learn(payloads, said)
    found = reader.decode(payloads, None, said)
    assert (found.faults | found.failures) == {len(some): f"does not match its schema: {why}"}
    rows = found.array.to_pylist()
    if name == "no object":
        assert rows[-1] is None
    else:  # the others stay
        field = why.split(" ")[0].split("[")[0].split(".")[0]
        for other in GOOD.keys() - {field}:
            assert rows[-1][other] == value.get(other) or other == "who"
    assert [row["id"] for row in rows[:-1]] == [1, 1, 2, 1][: len(some)]
    assert found.array.type.field("id").type == pa.int64()
    assert found.array.type.field("who").type == pa.struct({"name": pa.string(), "age": pa.int64()})
    assert rows[1]["more"] == "x"
    for column in found.array.type.names:
        narrow = reader.decode(payloads, [(column,)], said).array
        assert narrow.field(column).to_pylist() == [row and row[column] for row in rows] or name == "no object"


def test_values_are_checked_against_the_version_that_they_name(tmp_path):
    one = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    two = {"type": "object", "properties": {"n": {"type": "number"}, "m": {"type": "string"}}}
    texts = [(1, b'{"n":1}'), (1, b'{"n":1.5}'), (2, b'{"n":1.5}'), (2, b"{}"), (1, b"{}"), (3, b'{"z":[]}'), (2, b"7")]
    keys = [{"keytype": "SCHEMA", "subject": "s", "version": n, "magic": 1} for n in (1, 2)]
    about = [{**key, "id": key["version"], "schemaType": "JSON", "deleted": False} for key in keys]
    records = [
        json.dumps({**one_of, "schema": json.dumps(text)}).encode()
        for one_of, text in zip(about, (one, two), strict=True)
    ]
    with PartitionWriter(tmp_path / "_schemas-0") as writer:
        writer.append({"key": [json.dumps(key).encode() for key in keys], "value": records})
    with PartitionWriter(tmp_path / "orders-0") as writer:
        writer.append({"value": [b"\0" + key.to_bytes(4, "big") + text for key, text in texts]})
    options = {
        "topics": "orders",
        "decode": {"value": "jsonschema"},
        "columns": ["value", "value_error"],
    }
    with pytest.warns(kafkalog.DecodeWarning):
        table = kafkalog.read_table(tmp_path, **options)
    none = {"m": None, "z": None}
    assert table.column("value").to_pylist() == [
        {"n": 1.0, **none},
        {"n": None, **none},
        {"n": 1.5, **none},
        {"n": None, **none},
        {"n": None, **none},
        {"n": None, "m": None, "z": []},
        None,
    ]
    no = "does not match its schema: "
    assert table.column("value_error").to_pylist() == [
        None,
        f"{no}n is not of type integer",
        None,
        None,
        f"{no}n is missing",
        None,
        f"{no}the value is not of type object",
    ]


class JsonCase:
    """A random schema of an object, and values of it."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        self.schema = {"title": f"T{seed}", **self._object(0)}

    def _object(self, depth):
        names = self._random.sample(["id", "é", "a b", 'q"', "x.y", "\U0001f600", "n", "m"], self._random.randint(1, 5))
        needed = [name for name in names if self._random.random() < 0.5]
        return {"type": "object", "properties": {name: self._any(depth) for name in names}, "required": needed}

    def _any(self, depth):
        kind = self._random.choice(["integer", "number", "string", "boolean", "object", "array"][: 6 - 2 * (depth > 2)])
        if kind == "object":
            return self._object(depth + 1)
        if kind == "array":
            return {"type": "array", "items": self._any(depth + 1)}
        return {"type": [kind, "null"] if self._random.random() < 0.3 else kind}

    def value(self, schema=None, is_needed=False):
        """A value; fields that need not be there are missing at times."""
        schema = self.schema if schema is None else schema
        kind, rng = schema["type"], self._random
        if isinstance(kind, list):
            if rng.random() < 0.3 and not is_needed:
                return None
            kind = kind[0]
        if kind == "object":
            there = [one for one in schema["properties"] if one in schema["required"] or rng.random() < 0.7]
            # null stands for a field that is not there, so one that has to be there is not null
            return {one: self.value(schema["properties"][one], one in schema["required"]) for one in there}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(rng.randint(0, 3))]
        if kind == "string":
            return "".join(rng.choices('aé"\\\n\t\U0001f600 /\x7f', k=rng.randint(0, 8)))
        number = rng.choice([0.1, -2.5e-7, 1e300, 3.0, rng.uniform(-1e9, 1e9)])
        return {"integer": rng.randint(-(2**63), 2**63 - 1), "number": number, "boolean": rng.random() < 0.5}[kind]


def full(value, schema):
    """A value with null for each field that is not there."""
    if isinstance(value, dict):
        return {name: full(value.get(name), one) for name, one in schema["properties"].items()}
    return [full(one, schema["items"]) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("n_schemas", "n_each"), [(12, 10), pytest.param(100, 100, marks=pytest.mark.slow)], ids=["few", "10,000"]
)
def test_values_of_confluents_serializer_come_back(tmp_path, n_schemas, n_each):
    with warnings.catch_warnings(record=True):  # libraries that it imports warn about themselves
        registry = pytest.importorskip("confluent_kafka.schema_registry")
        module = pytest.importorskip("confluent_kafka.schema_registry.json_schema")
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = registry.SchemaRegistryClient.new_client({"url": "mock://json"})
    context = SerializationContext("orders", MessageField.VALUE, [])
    values = []
    expected = []
    known = {}
    for number in range(n_schemas):
        case = JsonCase(9000 + number)
        text = json.dumps(case.schema)
        options = {"auto.register.schemas": True, "subject.name.strategy": lambda ctx, name: name, "validate": False}
        write = module.JSONSerializer(text, client, conf=options)
        read = module.JSONDeserializer(text, schema_registry_client=client, conf={"validate": False})
        for _ in range(n_each):
            data = write(case.value(), context)
            values.append(data)
            known[int.from_bytes(data[1:5], "big")] = ("JSON", text)
            expected.append(full(read(data, context), case.schema))
    with PartitionWriter(tmp_path / "orders-0") as writer:
        writer.append({"value": values})
    for first in range(0, len(values), n_each):  # a schema at a time: together they would be one wide struct
        table = kafkalog.read_table(
            tmp_path / "orders-0",
            decode={"value": "jsonschema"},
            schemas=known,
            columns=["value"],
            start_offset=first,
            end_offset=first + n_each,
        )
        assert table.column("value").to_pylist() == expected[first : first + n_each]
