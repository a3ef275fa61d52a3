"""Random values of Kafka Connect and Debezium: as they are written, and as decoded columns show them."""

import base64
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONNECT = "org.apache.kafka.connect.data."


def unscaled(decimal):
    """A decimal as Debezium's VariableScaleDecimal.fromLogical has it."""
    sign, digits, exponent = decimal.as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    return {"scale": -exponent, "value": whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)}


def number(chance):
    digits = str(chance.getrandbits(chance.choice([1, 30, 200, 400])))
    return Decimal(f"{chance.choice('-+')}{digits}E{chance.choice([0, 3, -2, -40])}")


class Enveloped:
    """Random schemas and payloads as Kafka Connect's JsonConverter writes them, and the values in Python."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._n = 0
        self._names = []
        self.schema = self.struct(0)

    def struct(self, depth):
        self._n += 1
        fields = [self.schema_of(depth + 1) | {"field": f"f{i}"} for i in range(self.random.randrange(1, 5))]
        return {"type": "struct", "fields": fields, "optional": False, "name": f"s{self._n}"}

    def schema_of(self, depth):
        chance = self.random
        names = ["int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"]
        names += ["Decimal", "wide", "Date", "Time", "Timestamp", "scaled"]
        names += ["array", "map", "pairs", "struct"] * (depth < 3)
        name = chance.choice(names)
        optional = chance.random() < 0.4
        if name == "struct":
            return self.struct(depth) | {"optional": optional}
        if name == "array":
            return {"type": "array", "items": self.schema_of(depth + 1), "optional": optional}
        if name in ("map", "pairs"):
            keys = {"type": "string" if name == "map" else "int32", "optional": False}
            return {"type": "map", "keys": keys, "values": self.schema_of(depth + 1), "optional": optional}
        if name in ("Decimal", "wide"):
            parameters = {"scale": "2"} if name == "Decimal" else {"scale": "3", "connect.decimal.precision": "60"}
            return {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": parameters, "optional": optional}
        if name == "scaled":
            fields = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
            more = {"fields": fields, "name": "io.debezium.data.VariableScaleDecimal"}
            return {"type": "struct", "optional": optional, **more}
        times = {"Date": "int32", "Time": "int32", "Timestamp": "int64"}
        if name in times:
            return {"type": times[name], "name": f"{CONNECT}{name}", "version": 1, "optional": optional}
        return {"type": name, "optional": optional}

    def value_of(self, schema):
        """A payload, and the value that columns have."""
        chance, kind, name = self.random, schema["type"], schema.get("name", "")
        if schema.get("optional") and chance.random() < 0.3:
            return None, None
        if name.endswith("connect.data.Decimal"):
            scale = int(schema["parameters"]["scale"])
            whole = chance.getrandbits(chance.choice([3, 100, 120])) * chance.choice([1, -1])
            decimal = Decimal(f"{whole}E{-scale}")
            if abs(whole) < 10**12 and chance.random() < 0.3:  # decimal.format=NUMERIC
                return float(decimal), decimal
            data = whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)
            return base64.b64encode(data).decode(), decimal
        if name.endswith("VariableScaleDecimal"):
            found = number(chance)
            one = unscaled(found)
            return {"scale": one["scale"], "value": base64.b64encode(one["value"]).decode()}, found
        if name.endswith("data.Date"):
            days = chance.randrange(-10_000, 30_000)
            return days, EPOCH.date() + timedelta(days)
        if name.endswith("data.Time"):
            moment = chance.randrange(86_400_000)
            return moment, (EPOCH + timedelta(milliseconds=moment)).time()
        if name.endswith("data.Timestamp"):
            moment = chance.randrange(-(2**40), 2**41)
            return moment, EPOCH + timedelta(milliseconds=moment)
        return self.plain_value(kind, schema)

    def plain_value(self, kind, schema):
        chance = self.random
        if kind.startswith("int"):
            bits = int(kind[3:])
            whole = chance.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))
            return whole, whole
        if kind in ("float", "double"):
            real = chance.choice([0.5, -1.0, 2**20, 1e10])
            return real, float(real)
        if kind == "boolean":
            return (chance.random() < 0.5,) * 2
        if kind == "string":
            return (chance.choice(["", "é", '","payload":{"', "x" * 20]),) * 2
        if kind == "bytes":
            data = chance.randbytes(chance.randrange(5))
            return base64.b64encode(data).decode(), data
        if kind == "array":
            pairs = [self.value_of(schema["items"]) for _ in range(chance.randrange(3))]
            return [one for one, _ in pairs], [two for _, two in pairs]
        if kind == "map":
            is_text = schema["keys"]["type"] == "string"
            keys = ["a", "b.c"] if is_text else [1, -2]
            items = [(key, self.value_of(schema["values"])) for key in keys[: chance.randrange(3)]]
            written = [[key, one] for key, (one, _) in items]
            return dict(written) if is_text else written, [(key, two) for key, (_, two) in items]
        pairs = {one["field"]: self.value_of(one) for one in schema["fields"]}
        return {key: one for key, (one, _) in pairs.items()}, {key: two for key, (_, two) in pairs.items()}
