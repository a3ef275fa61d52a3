"""Parses Avro schemas, resolves names, and rejects schemas that cannot be decoded.

Source: the Avro specification 1.12; Schema.Parser, Avro 1.12.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kafkalog.text import MILLISECONDS
from kafkalog.values.formats.avro_texts import big_decimal_texts, uuid_texts
from kafkalog.values.types import SchemaError

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_MOST_DEPTH: Final = 64
_MOST_TYPES: Final = 20_000
_MOST_BYTES: Final = 2**20
"""Upper bound for the computed minimum size of a type."""
_MOST_DIGITS: Final = 2**24
"""Maximum precision of a decimal."""


class LogicalType(NamedTuple):
    """How values of a logical type are checked, decoded, and written from text."""

    kinds: tuple[str, ...]
    """The types that it may annotate."""
    arrow: pa.DataType | None = None
    """The type of its columns; None for decimals, by their precision, and for those that become text or fields."""
    size: int = 0
    """Of a fixed that it annotates; 0 for any."""
    to_text: Callable[[pa.Array], pa.Array] | None = None
    """Makes text of its bytes."""
    per_ms: int = 0
    """Of a time of day, which is below a day: its units in a millisecond."""

    @property
    def unit(self) -> str:
        """The unit of a date or a time, as NumPy names it."""
        return "D" if self.arrow == pa.date32() else str(self.arrow.unit)  # type: ignore[union-attr]


LOGICAL_TYPES: Final = {
    "date": LogicalType(("int",), pa.date32()),
    "time-millis": LogicalType(("int",), pa.time32("ms"), per_ms=1),
    "time-micros": LogicalType(("long",), pa.time64("us"), per_ms=1000),
    "timestamp-millis": LogicalType(("long",), pa.timestamp("ms", "UTC")),
    "timestamp-micros": LogicalType(("long",), pa.timestamp("us", "UTC")),
    "timestamp-nanos": LogicalType(("long",), pa.timestamp("ns", "UTC")),
    "local-timestamp-millis": LogicalType(("long",), pa.timestamp("ms")),
    "local-timestamp-micros": LogicalType(("long",), pa.timestamp("us")),
    "local-timestamp-nanos": LogicalType(("long",), pa.timestamp("ns")),
    "decimal": LogicalType(("bytes", "fixed")),
    "big-decimal": LogicalType(("bytes",), to_text=big_decimal_texts),
    "uuid": LogicalType(("fixed",), size=16, to_text=uuid_texts),
    "duration": LogicalType(("fixed",), size=12),
}
NO_LOGICAL: Final = LogicalType(())
DAY_MS: Final = MILLISECONDS["d"]


@dataclass(slots=True, eq=False)
class AvroType:
    """A type of a schema. A recursive type is its own descendant."""

    kind: str
    """One of `PRIMITIVES`, or record, enum, fixed, array, map, union."""
    name: str = ""
    """The full name of a record, an enum or a fixed."""
    fields: list[tuple[str, AvroType]] = field(default_factory=list)
    """list of (str, AvroType): the fields of a record."""
    inner: list[AvroType] = field(default_factory=list)
    """The items of an array, the values of a map, the branches of a union."""
    symbols: list[str] = field(default_factory=list)
    """The symbols of an enum."""
    aliases: list[str] = field(default_factory=list)
    """Other names of a record, an enum or a fixed."""
    field_aliases: dict[str, list[str]] = field(default_factory=dict)
    """Other names of the fields of a record."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """The default values of fields that have one, as JSON."""
    default: str | None = None
    """The symbol of an enum for others."""
    size: int = 0
    """The size of a fixed."""
    logical: str | None = None
    """The logical type, if it is valid for this type."""
    precision: int = 0
    scale: int = 0
    """Precision and scale of a decimal."""

    @property
    def form(self) -> LogicalType:
        """Its logical type; `NO_LOGICAL` for none."""
        return LOGICAL_TYPES.get(self.logical or "", NO_LOGICAL)


def parse_schema(text: str, referred: Iterable[str] = ()) -> AvroType:
    """Parse a schema, with those that it refers to; raises SchemaError."""
    parser = _SchemaParser()
    for other in referred:
        parser.parse(_json(other))
    return parser.parse(_json(text))


def _json(text: str) -> Any:
    if text.strip() in PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}; it begins {text[:30]!r}") from None


def _union(branches: list[AvroType]) -> AvroType:
    if not branches or any(branch.kind == "union" for branch in branches):
        raise SchemaError("a union has no branch, or a union for one")
    if sum(branch.kind == "null" for branch in branches) > 1:
        raise SchemaError("a union has null twice")
    return AvroType("union", inner=branches)


class _SchemaParser:
    def __init__(self) -> None:
        self._names: dict[str, AvroType] = {}
        self._n_types = 0

    def parse(self, schema: Any) -> AvroType:
        return self._type(schema, "", 0)

    def _type(self, schema: Any, namespace: str, depth: int) -> AvroType:
        self._n_types += 1
        if depth > _MOST_DEPTH or self._n_types > _MOST_TYPES:
            raise SchemaError("the schema is nested too deeply, or has too many types")
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return _union([self._type(branch, namespace, depth + 1) for branch in schema])
        if not isinstance(schema, dict):
            raise SchemaError(f"a type is a name, a list or an object, not {schema!r}")
        kind = schema.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(schema, "record" if kind == "error" else kind, namespace, depth)
        if kind in ("array", "map"):
            inner = schema.get("items" if kind == "array" else "values")
            return AvroType(kind, inner=[self._type(inner, namespace, depth + 1)])
        if isinstance(kind, str) and kind in PRIMITIVES:
            one = AvroType(kind)
            _take_logical_type(one, schema)
            return one
        return self._type(kind, namespace, depth + 1)  # {"type": {...}}, or a name

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        # look up a name in the enclosing namespace first, then without one
        for full in [name] if "." in name or not namespace else [f"{namespace}.{name}", name]:
            if full in self._names:
                return self._names[full]
        raise SchemaError(f"the schema names a type {name!r} that it does not define")

    def _define(self, schema: dict[str, Any], kind: str, namespace: str, depth: int) -> AvroType:
        name, own = schema.get("name"), schema.get("namespace")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"a {kind} has no name")
        if "." in name:
            namespace = name.rpartition(".")[0]
        elif isinstance(own, str):
            namespace = own
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        # register it before its fields, which may name it
        found = self._names[full] = AvroType(kind, full, aliases=_names(schema))
        if kind == "record":
            self._take_fields(found, schema.get("fields"), namespace, depth)
        elif kind == "enum":
            _take_symbols(found, schema)
        else:
            _take_size(found, schema)
            _take_logical_type(found, schema)
        return found

    def _take_fields(self, found: AvroType, fields: Any, namespace: str, depth: int) -> None:
        if not isinstance(fields, list):
            raise SchemaError(f"{found.name} has no list of fields")
        for one in fields:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise SchemaError(f"a field of {found.name} has no name")
            name = one["name"]
            found.fields.append((name, self._type(one.get("type"), namespace, depth + 1)))
            found.field_aliases[name] = _names(one)
            if "default" in one:
                found.defaults[name] = one["default"]
        if len({name for name, _ in found.fields}) < len(found.fields):
            raise SchemaError(f"{found.name} has a field twice")
        if found.name == VARIABLE_SCALE and [(name, one.kind) for name, one in found.fields] == _SCALE_AND_VALUE:
            found.logical = VARIABLE_SCALE


def _take_symbols(found: AvroType, schema: dict[str, Any]) -> None:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
        raise SchemaError(f"{found.name} has no list of symbols")
    found.symbols = symbols
    found.default = schema.get("default") if schema.get("default") in symbols else None


def _take_size(found: AvroType, schema: dict[str, Any]) -> None:
    size = schema.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MOST_BYTES:
        raise SchemaError(f"{found.name} has no size")
    found.size = size


def _names(schema: dict[str, Any]) -> list[str]:
    aliases = schema.get("aliases")
    return [one for one in aliases if isinstance(one, str)] if isinstance(aliases, list) else []


VARIABLE_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
"""Debezium's record for a decimal with a scale of its own."""
_SCALE_AND_VALUE: Final = [("scale", "int"), ("value", "bytes")]
DURATION: Final = ("months", "days", "millis")
"""The parts of a duration, each an unsigned little-endian number of four bytes."""


def _take_logical_type(one: AvroType, schema: dict[str, Any]) -> None:
    """Set the logical type; ignore an invalid one, as the specification requires."""
    logical = schema.get("logicalType")
    known = LOGICAL_TYPES.get(logical) if isinstance(logical, str) else None
    if known is None or one.kind not in known.kinds:
        return
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
            return
        if not 1 <= precision <= _MOST_DIGITS:
            return
        one.precision, one.scale = precision, scale
    if known.size and one.size != known.size:
        return
    one.logical = logical


def least_bytes(one: AvroType, known: dict[int, int]) -> int:
    """Minimum bytes of a value; 0 for a recursive occurrence. `known` caches results."""
    if id(one) in known:
        return known[id(one)]
    known[id(one)] = 0
    if one.kind == "record":
        size = min(sum(least_bytes(inner, known) for _, inner in one.fields), _MOST_BYTES)
    else:
        size = {"null": 0, "float": 4, "double": 8, "fixed": one.size}.get(one.kind, 1)
    known[id(one)] = size
    return size
