"""Values decoded to a reader's schema, next to fastavro."""

import copy
import datetime
import io
import json
import pickle
import random
import warnings
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from effort import thinned
from fastavro.read import SchemaResolutionError

import kafkalog
from kafkalog import DecodeWarning
from kafkalog.cli import main
from kafkalog.values.formats.avro_resolution import ReaderSchema, ResolvedValues
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError, field_at

SCALARS = ["boolean", "int", "long", "float", "double", "string", "bytes"]
WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"]}


class Pair:
    """A random schema of a writer, and one of a reader that evolved from it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._n = 0
        self.writer = self.record(0)
        self.reader = self.evolved(self.writer)

    def _name(self, kind):
        self._n += 1
        return f"{kind}{self._n}"

    def record(self, depth):
        fields = [{"name": f"f{i}", "type": self.type(depth + 1)} for i in range(self.random.randrange(1, 6))]
        return {"type": "record", "name": self._name("R"), "namespace": "x", "fields": fields}

    def type(self, depth, *, in_union=False):
        kinds = [*SCALARS, "enum", "fixed"] + ["record", "array", "map"] * (depth < 3)
        kind = self.random.choice(kinds + ["union"] * (not in_union) * 3)
        if kind == "union":
            branches = {}
            for _ in range(self.random.randrange(1, 4)):
                one = self.type(depth, in_union=True)
                branches.setdefault(one if isinstance(one, str) else one["type"], one)
            found = [*branches.values()]
            return ["null", *found] if self.random.random() < 0.7 else found
        if kind == "enum":
            return {"type": "enum", "name": self._name("E"), "symbols": ["A", "B", "C"]}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name("F"), "size": 3}
        if kind == "array":
            return {"type": "array", "items": self.type(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth + 1)}
        return self.record(depth) if kind == "record" else kind

    def value(self, schema):
        chance = self.random
        if isinstance(schema, list):
            return self.value(chance.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return {one["name"]: self.value(one["type"]) for one in schema["fields"]}
        if kind == "enum":
            return chance.choice(schema["symbols"])
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(chance.randrange(3))]
        if kind == "map":
            return {name: self.value(schema["values"]) for name in "ab"[: chance.randrange(3)]}
        return {
            "null": None,
            "boolean": chance.random() < 0.5,
            "int": chance.choice([0, -1, 2**30, -(2**31)]),  # which floats hold
            "long": chance.choice([0, 5, 2**40, -(2**63)]),
            "float": chance.choice([0.5, -2.0]),
            "double": chance.choice([0.1, 1e300]),
            "string": chance.choice(["", "é"]),
            "bytes": chance.choice([b"", b"\xff", b"a"]),
            "fixed": b"abc",
        }[kind]

    def evolved(self, schema):
        chance = self.random
        if isinstance(schema, list):
            found = [self.evolved(one) for one in schema]
            if chance.random() < 0.2:
                found = found[1:] or found
            if chance.random() < 0.2:
                chance.shuffle(found)
            if len({str(one if isinstance(one, str) else one["type"]) for one in found}) < len(found):
                return copy.deepcopy(schema)
            return found[0] if len(found) == 1 and chance.random() < 0.5 else found
        if isinstance(schema, str):
            if chance.random() < 0.2:
                schema = chance.choice(WIDER.get(schema, [schema]))
            return chance.choice(SCALARS) if chance.random() < 0.03 else schema
        schema = copy.deepcopy(schema)
        if schema["type"] == "record":
            schema["fields"] = self.fields(schema["fields"])
        elif schema["type"] == "enum" and chance.random() < 0.5:
            schema["symbols"] = chance.choice([["C", "A"], ["A", "D"], ["B", "C", "A", "X"]])
            if chance.random() < 0.7:
                schema["default"] = schema["symbols"][0]
        for part in ("items", "values"):
            if part in schema:
                schema[part] = self.evolved(schema[part])
        return schema

    def fields(self, fields):
        chance = self.random
        found = []
        for one in fields:
            if chance.random() < 0.15:
                continue
            one["type"] = self.evolved(one["type"])
            if isinstance(one["type"], (str, dict)) and chance.random() < 0.15:
                one["type"] = ["null", one["type"]]
            if chance.random() < 0.2:
                one["aliases"] = ["other", one["name"]]
                one["name"] = f"new_{one['name']}"
            found.append(one)
        more = [("int", 7), (["null", "string"], None), ("string", "x"), ({"type": "array", "items": "long"}, [1, 2])]
        for number in range(chance.randrange(3)):
            kind, default = chance.choice(more)
            one = {"name": f"more{number}", "type": copy.deepcopy(kind)}
            found.append(one | ({"default": default} if chance.random() < 0.9 else {}))
        chance.shuffle(found)
        return found


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


def plain(value, schema):
    """A value of a column as fastavro returns it: without the names of branches."""
    if value is None:
        return None
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) == 1:
            return plain(value, others[0])
        found = [(one, item) for one, item in zip(others, value.values(), strict=True) if item is not None]
        assert len(found) == 1
        return plain(found[0][1], found[0][0])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {one["name"]: plain(value[one["name"]], one["type"]) for one in schema["fields"]}
    if kind == "array":
        return [plain(one, schema["items"]) for one in value]
    if kind == "map":
        return {name: plain(one, schema["values"]) for name, one in value}
    return value


def is_ambiguous(schema):
    """Whether fastavro may take a wider branch of a union though there is the same one."""
    if isinstance(schema, list):
        names = [one for one in schema if isinstance(one, str)]
        return (
            len(set(names) & {"int", "long", "float", "double"}) > 1
            or {"string", "bytes"} <= set(names)
            or any(map(is_ambiguous, schema))
        )
    if isinstance(schema, str):
        return False
    inner = [one["type"] for one in schema.get("fields", ())] + [
        schema[one] for one in ("items", "values") if one in schema
    ]
    return any(map(is_ambiguous, inner))


@pytest.mark.parametrize("block", thinned(range(50), 25))
def test_values_are_those_of_fastavro(block):
    n_compared = n_refused = 0
    for seed in range(100 * block, 100 * block + 100):
        pair = Pair(seed)
        if is_ambiguous(pair.reader):
            continue
        values = [pair.value(pair.writer) for _ in range(6)]
        data = [written(pair.writer, value) for value in values]
        reader = pickle.loads(pickle.dumps(ReaderSchema(json.dumps(pair.reader))))
        resolved = ResolvedValues(json.dumps(pair.writer), (), reader)
        decoded = resolved.decode(Payloads.of(pa.array([*data, None], pa.binary())))
        decoded.array.validate(full=True)
        assert decoded.array.type == resolved.type
        found = decoded.array.to_pylist()
        for row, one in enumerate(data):
            why = decoded.failures.get(row) or decoded.faults.get(row)
            try:
                expected = fastavro.schemaless_reader(
                    io.BytesIO(one), copy.deepcopy(pair.writer), copy.deepcopy(pair.reader)
                )
            except (SchemaResolutionError, UnicodeDecodeError):
                # as in Java, the types of items only matter if there are any
                assert why is not None or "[]" in str(values[row]) or "{}" in str(values[row]), (seed, row)
                n_refused += 1
                continue
            assert why is None, (seed, row, why)
            assert plain(found[row], pair.reader) == expected, (seed, row)
            n_compared += 1
        for field in decoded.array.type:
            part = ResolvedValues(json.dumps(pair.writer), (), reader, [(field.name,)])
            alone = part.decode(Payloads.of(pa.array([*data, None], pa.binary())))
            assert field_at(alone.array, [field.name]).to_pylist() == field_at(decoded.array, [field.name]).to_pylist()
    assert n_compared > 100
    assert n_refused > 5


V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "day", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": ["null", "long"]},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "LOST"]}},
    ],
}
READER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "number", "aliases": ["id"], "type": "double"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {
            "name": "state",
            "type": {"type": "enum", "name": "S", "symbols": ["OTHER", "NEW"], "default": "OTHER"},
            "default": "NEW",
        },
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {
            "name": "inner",
            "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 3}]},
            "default": {},
        },
    ],
}


def test_all_versions_have_the_readers_fields(tmp_path, capsys):
    values = [
        b"\0\0\0\0\1" + written(V1, {"id": 1, "day": 1}),
        b"\0\0\0\0\2" + written(V2, {"id": 2**40, "state": "LOST"}),
        None,
        b"\0\0\0\0\2" + written(V2, {"id": None, "state": "NEW"}),
    ]
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="t")
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "1.avsc").write_text(json.dumps(V1))
    (schemas / "2.avsc").write_text(json.dumps(V2))
    (tmp_path / "reader.avsc").write_text(json.dumps(READER))
    decode = {"value": {"format": "avro", "reader_schema": tmp_path / "reader.avsc"}}
    options = {"decode": decode, "schemas": schemas}
    assert not kafkalog.scan(tmp_path / "log", **options)._decoding.needs_to_learn
    with pytest.warns(DecodeWarning, match="number is null, which the reader's schema does not allow"):
        table = kafkalog.read_table(tmp_path / "log", columns=["value", "value_error"], **options)
    rest = {"raw": b"\xff", "inner": {"x": 3}}
    day = datetime.date(1970, 1, 2)
    assert table.column("value").to_pylist() == [
        {"number": 1.0, "day": day, "state": "NEW", **rest},
        {"number": float(2**40), "day": None, "state": "OTHER", **rest},
        None,
        {"number": None, "day": None, "state": "NEW", **rest},
    ]
    assert table.column("value_error").to_pylist()[:3] == [None] * 3
    for name in ("number", "day", "state", "raw", "inner", "inner.x"):
        with warnings.catch_warnings():
            # faults of other fields are not named
            warnings.simplefilter("ignore" if name == "number" else "error")
            alone = kafkalog.read_table(tmp_path / "log", columns=[f"value.{name}"], **options).column(0)
        assert alone.to_pylist() == field_at(table.column("value").combine_chunks(), name.split(".")).to_pylist()
    found = kafkalog.read_table(tmp_path / "log", columns=["offset"], filters="value.state == OTHER", **options)
    assert found.column(0).to_pylist() == [1]
    decoding = ["--value-format", "avro", "--reader-schema", str(tmp_path / "reader.avsc"), "--schemas", str(schemas)]
    assert main(["cat", str(tmp_path / "log"), *decoding, "--columns", "value.number", "-n", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == ["value.number=1.0", f"value.number={float(2**40)}"]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", {"type": "int", "logicalType": "time-millis"}, 5, datetime.time(0, 0, 0, 5000)),
        ("int", {"type": "long", "logicalType": "time-micros"}, 5, datetime.time(0, 0, 0, 5)),
        ("int", {"type": "long", "logicalType": "time-micros"}, -5, "a time is not within a day"),
        ({"type": "int", "logicalType": "date"}, "int", 5, 5),
        ("bytes", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, b"\5", Decimal("0.5")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}, "bytes", Decimal("0.5"), b"\5"),
        ("string", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "5", "does not take"),
        ("bytes", "string", b"\xff", "a string is not UTF-8"),
        ("bytes", ["string", "bytes"], b"\xff", {"string": None, "bytes": b"\xff"}),
        (["null", "int"], "int", None, "is null, which the reader's schema does not allow"),
        ("null", ["null", "int"], None, None),
        ("null", "int", None, "is null"),
        ("int", "null", 5, "is of type int, which"),
    ],
)
def test_the_readers_types_count(writer, reader, value, expected):
    resolved = ResolvedValues(json.dumps(writer), (), ReaderSchema(json.dumps(reader)))
    decoded = resolved.decode(Payloads.of(pa.array([written(writer, value)])))
    if isinstance(expected, str):
        assert expected in decoded.failures[0]
    else:
        assert not decoded.failures
        assert decoded.array.to_pylist() == [expected]


def test_schemas_that_cannot_be_resolved_say_why(tmp_path):
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"], "default": None}]}
    wrong = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}
    with pytest.raises(SchemaError, match="T is recursive"):
        ReaderSchema(json.dumps(tree))
    with pytest.raises(SchemaError, match=r"the default of R\.a is not of its type"):
        ReaderSchema(json.dumps(wrong))
    with pytest.raises(SchemaError, match="T is recursive"):
        ResolvedValues(json.dumps(tree), (), ReaderSchema(json.dumps(V1)))
    many = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for number in range(1, 40):  # 2**39 fields
        inner = [{"name": "a", "type": many}, {"name": "b", "type": f"R{number - 1}"}]
        many = {"type": "record", "name": f"R{number}", "fields": inner}
    with pytest.raises(SchemaError, match="more than 4096 fields"):
        ReaderSchema(json.dumps(many))
    kafkalog.write_table({"value": [b""]}, tmp_path / "log", topic="t")
    with pytest.raises(ValueError, match="json has no reader's schema"):
        kafkalog.scan(tmp_path / "log", decode={"value": {"format": "json", "reader_schema": "{}"}})
    how = {"format": "avro", "schema": json.dumps(V1), "reader_schema": json.dumps(tree)}
    with pytest.raises(ValueError, match="recursive"):
        kafkalog.scan(tmp_path / "log", decode={"value": how})
