"""Random Avro schemas with values: as fastavro writes them, and as decoded columns show them."""

import random
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AvroCase:
    """A random schema."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._n_names = 0
        self.schema = self._record(3)

    def _name(self, prefix):
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def _record(self, depth):
        n = self.random.randrange(1, 7)
        fields = [{"name": f"f{i}", "type": self._type(depth - 1)} for i in range(n)]
        return {"type": "record", "name": self._name("R"), "namespace": "a.b", "fields": fields}

    def _type(self, depth, in_union=False):
        kinds = ["boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed"]
        kinds += ["date", "timestamp-millis", "timestamp-micros", "decimal", "fixed-decimal", "uuid"]
        if depth > 0:
            kinds += ["array", "map", "record"] + (["nullable", "nullable", "union"] if not in_union else [])
        kind = self.random.choice(kinds)
        if kind == "enum":
            return {"type": "enum", "name": self._name("E"), "symbols": ["A", "B", "LONGER"]}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name("F"), "size": self.random.randrange(1, 9)}
        if kind == "date":
            return {"type": "int", "logicalType": "date"}
        if kind.startswith("timestamp"):
            return {"type": "long", "logicalType": kind}
        if kind == "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": self.random.choice([9, 38, 50]), "scale": 2}
        if kind == "fixed-decimal":
            size, name = 8, self._name("F")
            return {"type": "fixed", "name": name, "size": size, "logicalType": "decimal", "precision": 12, "scale": 3}
        if kind == "uuid":
            return {"type": "string", "logicalType": "uuid"}
        if kind == "array":
            return {"type": "array", "items": self._type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self._type(depth - 1)}
        if kind == "record":
            return self._record(depth)
        if kind == "nullable":
            pair = ["null", self._type(depth - 1, in_union=True)]
            return pair if self.random.random() < 0.7 else pair[::-1]
        if kind == "union":
            branches = ["null"] * (self.random.random() < 0.5) + ["long", "string", self._record(depth - 1)]
            self.random.shuffle(branches)
            return branches
        return kind

    def value(self):
        """A value for fastavro, and the same as a decoded column shows it."""
        return self._value(self.schema)

    def _value(self, schema):
        rng = self.random
        if isinstance(schema, list):
            return self._union_value(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        if logical == "date":
            value = date(1970, 1, 1) + timedelta(days=rng.randrange(-10_000, 40_000))
        elif logical == "timestamp-millis":
            value = EPOCH + timedelta(milliseconds=rng.randrange(-(10**11), 10**13))
        elif logical == "timestamp-micros":
            value = EPOCH + timedelta(microseconds=rng.randrange(-(10**14), 10**16))
        elif logical == "decimal":
            digits = min(schema["precision"], 18)
            value = Decimal(rng.randrange(-(10**digits) + 1, 10**digits)).scaleb(-schema["scale"])
        elif logical == "uuid":
            value = f"0b7d6f0e-8a3d-4f3e-9a5e-{rng.randrange(2**40):012x}"
            return uuid.UUID(value), value
        elif kind == "record":
            pairs = {one["name"]: self._value(one["type"]) for one in schema["fields"]}
            return {name: one[0] for name, one in pairs.items()}, {name: one[1] for name, one in pairs.items()}
        elif kind == "array":
            items = [self._value(schema["items"]) for _ in range(rng.randrange(4))]
            return [one[0] for one in items], [one[1] for one in items]
        elif kind == "map":
            entries = [(f"k{i}", self._value(schema["values"])) for i in range(rng.randrange(3))]
            return {name: one[0] for name, one in entries}, [(name, one[1]) for name, one in entries]
        elif kind == "enum":
            value = rng.choice(schema["symbols"])
        elif kind == "fixed":
            value = rng.randbytes(schema["size"])
        else:
            value = self._primitive(kind)
        return value, value

    def _union_value(self, schema):
        branch = self.random.choice(schema)
        if branch == "null":
            return None, None
        given, shown = self._value(branch)
        others = [one for one in schema if one != "null"]
        if len(others) == 1:
            return given, shown
        names = [one if isinstance(one, str) else one["name"] for one in others]
        name = branch if isinstance(branch, str) else branch["name"]
        full = branch if isinstance(branch, str) else f"a.b.{name}"
        return (full, given), {one: shown if one == name else None for one in names}

    def _primitive(self, kind):
        rng = self.random
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "int":
            return rng.choice([0, -1, 63, 64, 2**31 - 1, -(2**31), rng.randrange(-1000, 1000)])
        if kind == "long":
            return rng.choice([0, -1, 2**63 - 1, -(2**63), rng.randrange(-(2**40), 2**40)])
        if kind == "float":
            return rng.choice([0.0, -1.5, 2.0**100, float("inf")])
        if kind == "double":
            return rng.random() * 10 ** rng.randrange(-300, 300)
        if kind == "bytes":
            return rng.randbytes(rng.randrange(6))
        return rng.choice(["", "x", "käse", "\U0001f9c0", "a longer text than eight bytes"])
