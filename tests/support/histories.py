"""Topics of random values over versions of a schema, some of them with faults."""

import io
import json
import random
from decimal import Decimal

import fastavro

from kafkalog import PartitionWriter

PROTO = """syntax = "proto2"; enum E { A = 0; B = 5; } message N { optional string s = 1; optional int32 i = 2; }
    message M { optional int32 a = 1; optional string b = 2; optional N c = 3; optional double d = 4;
        repeated string l = 5; map<string, E> m = 6; optional E e = 7; }"""
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
_KINDS = {
    "int": lambda r: r.randrange(-3, 4),
    "long": lambda r: r.choice([0, 2, 2**40]),
    "string": lambda r: r.choice(["", "x", "2", "é"]),
    "double": lambda r: r.choice([0.5, 2.0, -1e300]),
    "boolean": lambda r: r.random() < 0.5,
}


class History:
    """A topic of values; `options` are those of `kafkalog.scan` that decode it."""

    def __init__(self, seed, folder):
        self.random = random.Random(seed)
        self.kind = ("json", "avro", "protobuf")[seed % 3]
        values, self.options = getattr(self, f"_{self.kind}")()
        self.path = folder
        folder.mkdir(exist_ok=True)
        with PartitionWriter(self.path / "t-0") as writer:
            writer.append({"value": values})

    def _json(self):
        pool = [b"1", b"2", b"-7", b"0.5", b'"x"', b'"2"', b"null", b"true", b'"\\u00e9"', b"[1]", b'{"s":"x"}']
        pool += [b"9007199254740993", b"9" * 40, b"0.1234567890123456789", b'"\xff"', b'"\\ud83d"', b"1e999", b"oops"]
        names = [b'"a"', b'"b"', b'"c"', b'"d"', b'"\xc3\xa9"']
        pools = {name: self.random.sample(pool, self.random.randrange(1, 6)) for name in names}
        values = [
            None
            if self.random.random() < 0.05
            else b"{%s}"
            % b",".join(
                name + b":" + self.random.choice(pools[name])
                for name in self.random.choices(names, k=self.random.randrange(4))
            )
            for _ in range(60)
        ]
        if self.random.random() < 0.5:
            return values, {"decode": {"value": "json"}}
        kinds = ["integer", "number", "string", "boolean"]
        schema = {name: {"type": self.random.choice(kinds)} for name in ("a", "b", "c")}
        text = json.dumps({"type": "object", "properties": schema, "required": self.random.sample("abc", 1)})
        return values, {"decode": {"value": {"format": "jsonschema", "schema": text, "framed": False}}}

    def _avro(self):
        schemas, values = {}, []
        for version in range(self.random.randrange(1, 4)):
            fields = self.random.sample("abcdn", self.random.randrange(2, 6))
            kinds = {name: self._avro_kind(name.upper()) for name in fields}
            schema = {
                "type": "record",
                "name": "R",
                "fields": [{"name": name, "type": kind} for name, (kind, _) in kinds.items()],
            }
            schemas[version] = json.dumps(schema)
            parsed = fastavro.parse_schema(schema)
            for _ in range(30):
                out = io.BytesIO()
                fastavro.schemaless_writer(out, parsed, {name: value() for name, (_, value) in kinds.items()})
                values.append(b"\0\0\0\0" + bytes([version]) + self._mutant(out.getvalue()))
        return [*values, None], {"decode": {"value": "avro"}, "schemas": schemas}

    def _avro_kind(self, suffix):
        name = self.random.choice([*_KINDS, "enum", "decimal", "nullable", "union", "list", "map", "record"])
        plain = self.random.choice([*_KINDS])

        def one():
            return _KINDS[plain](self.random)

        if name in _KINDS:
            return name, lambda: _KINDS[name](self.random)
        return {
            "enum": ({"type": "enum", "name": f"E{suffix}", "symbols": ["A", "B"]}, lambda: self.random.choice("AB")),
            "decimal": (_DECIMAL, lambda: Decimal(self.random.randrange(-999, 1000)) / 10),
            "nullable": (["null", plain], lambda: one() if self.random.random() < 0.6 else None),
            "union": (["null", "string", "int"], lambda: self.random.choice([None, "x", 2])),
            "list": ({"type": "array", "items": plain}, lambda: [one() for _ in range(self.random.randrange(3))]),
            "map": ({"type": "map", "values": plain}, lambda: {"k": one()}),
            "record": (
                {"type": "record", "name": f"N{suffix}", "fields": [{"name": "s", "type": plain}]},
                lambda: {"s": one()},
            ),
        }[name]

    def _protobuf(self):
        pieces = [
            b"\x08\2",
            b"\x12\1x",
            b"\x12\1\xff",
            b"\x1a\3\n\1x",
            b"\x1a\3\n\1\xff",
            b"\x1a\2\x10\7",
            b"\x1a\2\n\7",
        ]
        pieces += [
            b"\x21" + bytes(8),
            b"\x2a\1x",
            b"\x2a\2\xff\xff",
            b"\x32\5\n\1k\x10\5",
            b"\x32\5\n\1k\x10\x09",
            b"\x38\5",
        ]
        pieces += [b"\x32\5\n\1\xff\x10\0", b"\x38\4", b"\x78\1"]
        values = [b"".join(self.random.choices(pieces, k=self.random.randrange(6))) for _ in range(60)]
        values = [self._mutant(one) for one in values]
        given = {"format": "protobuf", "schema": PROTO, "message": "M", "framed": False}
        return [*values, None], {"decode": {"value": given}}

    def _mutant(self, data):
        if not data or self.random.random() < 0.6:
            return data
        at = self.random.randrange(len(data))
        return data[:at] + bytes([self.random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])]) + data[at + 1 :]
