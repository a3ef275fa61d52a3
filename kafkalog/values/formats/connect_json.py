"""Decodes JSON of Kafka Connect with schemas: objects of `schema` and `payload`.

The schema gives the payload's type. `org.apache.kafka.connect.data.Decimal` becomes a decimal, also from base64; Date,
Time and Timestamp become dates and times. Debezium's VariableScaleDecimal becomes text with all digits. Other names of
types mean nothing here: Debezium's times stay numbers. A missing field is null, even if its schema has a default.

Source: JsonConverter, JsonSchema, Decimal, Kafka 4.3; VariableScaleDecimal, Debezium 3.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kafkalog.interchange.table_types import Digits, Path, json_text
from kafkalog.values.formats.avro_texts import digits_text
from kafkalog.values.formats.avro_types import DAY_MS, VARIABLE_SCALE
from kafkalog.values.formats.json_schema import MISSING, NOT_OF_TYPE
from kafkalog.values.formats.json_text import NotJson, parse
from kafkalog.values.mixed_fields import NOT_FINITE
from kafkalog.values.payloads import Faults
from kafkalog.values.types import MOST_DEPTH, MOST_FIELDS, SchemaError

_Json = Any
"""A parsed value of JSON."""
_Read = Callable[[_Json, Path, Faults], _Json]
"""Converts a parsed value for Arrow; a value that does not fit is null, and `Faults` receives it."""

_BEGIN, _BETWEEN = b'{"schema":', b',"payload":'
_INTEGERS: Final = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64()}
_REALS: Final = {"float": pa.float32(), "double": pa.float64()}
_CONNECT: Final = "org.apache.kafka.connect.data."
_TIMES: Final = {
    ("int32", f"{_CONNECT}Date"): pa.date32(),
    ("int32", f"{_CONNECT}Time"): pa.time32("ms"),
    ("int64", f"{_CONNECT}Timestamp"): pa.timestamp("ms", "UTC"),
}
_MOST_DIGITS: Final = 76
_DIGITS: Final = 38
"""Precision of decimals whose schema names none."""
_MOST_SCHEMAS: Final = 10_000


class ConnectSchema(NamedTuple):
    """A schema, as a type and a function."""

    type: pa.DataType
    read: _Read


class ConnectValues:
    """Parses values; each schema is compiled once."""

    def __init__(self) -> None:
        self._by_start: dict[bytes, ConnectSchema] = {}
        self._by_text: dict[str, ConnectSchema | str] = {}

    def parse(self, data: bytes) -> tuple[ConnectSchema | None, _Json] | str:
        """The schema of a value, and its payload as parsed JSON; None for a null without schema; or a reason."""
        # writers put the same schema in front of each value
        start = data[: data.find(_BETWEEN) + len(_BETWEEN)]
        known = self._by_start.get(start)
        if known is not None and data.endswith(b"}"):
            payload = _parsed(data[len(start) : -1])
            if not isinstance(payload, NotJson):
                return known, payload
        value = _parsed(data)
        if isinstance(value, NotJson):
            return value.why
        if not isinstance(value, dict) or value.keys() != {"schema", "payload"}:
            return "not an object of schema and payload, as Kafka Connect writes with schemas.enable=true"
        if value["schema"] is None:
            return (None, None) if value["payload"] is None else "the value has no schema"
        schema = self._compiled(value["schema"])
        if isinstance(schema, str):
            return schema
        if start.startswith(_BEGIN) and _is_schema(start, value["schema"]) and len(self._by_start) < _MOST_SCHEMAS:
            self._by_start[start] = schema
        return schema, value["payload"]

    def _compiled(self, schema: _Json) -> ConnectSchema | str:
        text = json_text(schema)
        if text not in self._by_text:
            if len(self._by_text) >= _MOST_SCHEMAS:
                return f"there are more than {_MOST_SCHEMAS} schemas"
            try:
                self._by_text[text] = _Compiler().compile(schema, 0)
            except SchemaError as error:
                self._by_text[text] = f"its schema is invalid: {error}"
        return self._by_text[text]


def _parsed(data: bytes) -> _Json:
    return parse(data)


def _is_schema(start: bytes, schema: _Json) -> bool:
    """Whether the first bytes of a value are those of a schema, and not of a name in it."""
    found = parse(start[len(_BEGIN) : -len(_BETWEEN)])
    return not isinstance(found, NotJson) and bool(json_text(found) == json_text(schema))


class _Compiler:
    def __init__(self) -> None:
        self._n_types = 0

    def compile(self, schema: _Json, depth: int) -> ConnectSchema:
        self._n_types += 1
        if depth > MOST_DEPTH or self._n_types > MOST_FIELDS:
            raise SchemaError("it has too many fields, or is nested too deeply")
        if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
            raise SchemaError("a type is an object with the name of a type")
        kind, name = schema["type"], schema.get("name")
        found = self._plain(kind, name, schema) or self._nested(kind, name, schema, depth)
        is_optional = schema.get("optional", False) is not False or schema.get("default") is not None
        return ConnectSchema(found.type, partial(_or_null, found.read, is_optional))

    def _plain(self, kind: str, name: _Json, schema: dict[str, _Json]) -> ConnectSchema | None:
        if kind in _INTEGERS:
            bits = _INTEGERS[kind].bit_width
            limits = (0, DAY_MS - 1) if name == f"{_CONNECT}Time" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            return ConnectSchema(_TIMES.get((kind, name), _INTEGERS[kind]), partial(_whole, kind, limits))
        if kind in _REALS:
            return ConnectSchema(_REALS[kind], partial(_real, kind))
        if kind == "boolean":
            return ConnectSchema(pa.bool_(), partial(_instance, bool, kind))
        if kind == "string":
            return ConnectSchema(pa.string(), partial(_instance, str, kind))
        if kind == "bytes":
            return _decimal(schema) if name == f"{_CONNECT}Decimal" else ConnectSchema(pa.binary(), _bytes)
        return None

    def _nested(self, kind: str, name: _Json, schema: dict[str, _Json], depth: int) -> ConnectSchema:
        if kind == "array":
            items = self.compile(schema.get("items"), depth + 1)
            return ConnectSchema(pa.list_(items.type), partial(_list, items.read))
        if kind == "map":
            keys, values = (self.compile(schema.get(part), depth + 1) for part in ("keys", "values"))
            # objects have text for keys; other keys are written as pairs
            return ConnectSchema(pa.map_(keys.type, values.type), partial(_map, keys.read, values.read))
        if kind != "struct":
            raise SchemaError(f"there is no type {kind!r}")
        inner = self._fields(schema.get("fields"), depth)
        types = {own: one.type for own, one in inner.items()}
        if name == VARIABLE_SCALE and types == _SCALE_AND_VALUE:
            return ConnectSchema(pa.string(), _variable_scale)
        return ConnectSchema(
            pa.struct([*types.items()]), partial(_struct, {own: one.read for own, one in inner.items()})
        )

    def _fields(self, fields: _Json, depth: int) -> dict[str, ConnectSchema]:
        if not isinstance(fields, list):
            raise SchemaError("a struct has no list of fields")
        inner: dict[str, ConnectSchema] = {}
        for field in fields:
            own = field.get("field") if isinstance(field, dict) else None
            if not isinstance(own, str) or own in inner:
                raise SchemaError("a field has no name, or a struct has a field twice")
            inner[own] = self.compile(field, depth + 1)
        return inner


_SCALE_AND_VALUE: Final = {"scale": pa.int32(), "value": pa.binary()}


def _decimal(schema: dict[str, _Json]) -> ConnectSchema:
    """A decimal. Its schema has the scale, and Debezium adds the precision."""
    parameters = schema.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    try:
        scale = int(parameters["scale"])
        precision = int(parameters.get("connect.decimal.precision") or max(_DIGITS, scale))
    except (KeyError, TypeError, ValueError):
        raise SchemaError("a Decimal has no scale") from None
    if not -(2**31) <= scale < 2**31:
        raise SchemaError("the scale of a Decimal is out of range")
    if not 1 <= precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        return ConnectSchema(pa.string(), partial(_scaled, scale, None))
    make = pa.decimal128 if precision <= _DIGITS else pa.decimal256
    return ConnectSchema(make(precision, scale), partial(_scaled, scale, precision))


def _fault(why: str, path: Path, faults: Faults) -> None:
    faults.append((path, why))


def _not(kind: str, path: Path, faults: Faults) -> None:
    _fault(NOT_OF_TYPE.format("{}", kind), path, faults)


def _or_null(read: _Read, is_optional: bool, value: _Json, path: Path, faults: Faults) -> _Json:
    if value is not None:
        return read(value, path, faults)
    if not is_optional:
        _fault(MISSING, path, faults)
    return None


def _whole(kind: str, limits: tuple[int, int], value: _Json, path: Path, faults: Faults) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and limits[0] <= value <= limits[1]:
        return value
    _not(kind, path, faults)
    return None


def _real(kind: str, value: _Json, path: Path, faults: Faults) -> float | None:
    if isinstance(value, Digits):
        return float(value.text)
    if (isinstance(value, (int, float)) and not isinstance(value, bool)) or value in NOT_FINITE:
        return float(value)
    _not(kind, path, faults)
    return None


def _instance(expected: type, kind: str, value: _Json, path: Path, faults: Faults) -> _Json:
    if isinstance(value, expected):
        return value
    _not(kind, path, faults)
    return None


def _bytes(value: _Json, path: Path, faults: Faults) -> bytes | None:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    _fault("{} is not bytes in base64", path, faults)
    return None


def _scaled(scale: int, precision: int | None, value: _Json, path: Path, faults: Faults) -> Decimal | str | None:
    """A decimal from base64 of its unscaled number, or from a number; as text without a precision."""
    if isinstance(value, str):
        data = _bytes(value, path, faults)
        if not data:
            if data is not None:
                _not("Decimal", path, faults)
            return None
        text = digits_text(data, scale)
    elif isinstance(value, (int, float, Digits)) and not isinstance(value, bool):
        text = value.text if isinstance(value, Digits) else repr(value)
    else:
        _not("Decimal", path, faults)
        return None
    if precision is None:
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    if not any(digits):
        return Decimal(0)
    shift = scale + exponent if isinstance(exponent, int) else precision
    n_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if len(digits) + shift > precision or -shift > n_zeros:
        _fault("a decimal does not fit its precision", path, faults)
        return None
    # Python's contexts would round it
    return Decimal((sign, digits[: len(digits) + min(shift, 0)] + (0,) * max(shift, 0), -scale))


def _variable_scale(value: _Json, path: Path, faults: Faults) -> str | None:
    inside = Faults()
    if isinstance(value, dict):
        scale = _whole("int32", (-(2**31), 2**31 - 1), value.get("scale"), path, inside)
        data = _bytes(value.get("value"), path, inside)
        if scale is not None and data:
            return digits_text(data, scale)
    _not("VariableScaleDecimal", path, faults)
    return None


def _list(read: _Read, value: _Json, path: Path, faults: Faults) -> list[_Json] | None:
    if isinstance(value, list):
        return [read(item, (*path, "[]"), faults) for item in value]
    _not("array", path, faults)
    return None


def _map(read_key: _Read, read: _Read, value: _Json, path: Path, faults: Faults) -> list[tuple[_Json, _Json]] | None:
    pairs = [*value.items()] if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        _not("map", path, faults)
        return None
    bad_keys = Faults()
    found = [(read_key(key, (*path, "{key}"), bad_keys), read(item, (*path, "{}"), faults)) for key, item in pairs]
    if bad_keys or any(key is None for key, _ in found):
        _fault("does not match its schema: {} has keys of another type", path, faults)
        return None
    return found


def _struct(inner: dict[str, _Read], value: _Json, path: Path, faults: Faults) -> dict[str, _Json] | None:
    if isinstance(value, dict):
        return {name: read(value.get(name), (*path, name), faults) for name, read in inner.items()}
    _not("struct", path, faults)
    return None
