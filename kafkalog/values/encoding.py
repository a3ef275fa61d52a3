"""Encodes JSON-like values as text, numbers, JSON, Avro or Protobuf: the counterpart of `decoding`.

Decoded values round-trip: times are ISO 8601, bytes are base64, and numbers that JSON lacks are text.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from kafkalog.interchange.table_types import json_text
from kafkalog.protocol.encoder import uvarint
from kafkalog.values.formats.avro_types import DURATION, VARIABLE_SCALE, AvroType, parse_schema
from kafkalog.values.formats.program import BRANCH
from kafkalog.values.formats.protobuf.nested_text import ANY, DYNAMIC, TIMESTAMP, WRAPPERS
from kafkalog.values.formats.protobuf.types import TYPES, Descriptor, ProtoSchema, is_map, new_message
from kafkalog.values.options import NUMBERS, schema_text

FORMATS: Final = ("json", "avro", "protobuf", "utf8", *NUMBERS)
_PER_SECOND: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_RANGES: Final = {
    "short": (-(2**15), 2**15),
    **dict.fromkeys(("int32", "sint32", "sfixed32", "int"), (-(2**31), 2**31)),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "long"), (-(2**63), 2**63)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64)),
}


class EncodeError(ValueError):
    """A value does not fit its schema."""


class ValueEncoder:
    """Encodes values in one of `FORMATS`; Avro and Protobuf need a schema, whose first message is the default.

    With `schema_id`, values have Confluent's wire format. `imports` returns the text of a file that a Protobuf schema
    imports. Raises ValueError if an option is missing, or the schema is invalid.
    """

    def __init__(
        self,
        format: str,
        schema: Any = None,
        *,
        message: str | None = None,
        schema_id: int | None = None,
        imports: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        if format not in FORMATS:
            raise ValueError(f"the format must be one of {', '.join(FORMATS)}, not {format!r}")
        self.format = format
        has_schema = format in ("avro", "protobuf")
        if (schema is not None) != has_schema:
            need = "needs a schema (schema, --schema)" if has_schema else "takes no schema"
            raise ValueError(f"the format {format} {need}")
        if message is not None and format != "protobuf":
            raise ValueError(f"{format} has no messages; give the message of protobuf")
        if schema_id is not None and not 0 <= schema_id < 2**31:
            raise ValueError(f"schema_id must be 0 to 2147483647, not {schema_id}")
        self._frame = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
        self._encode: Callable[[Any], bytes]
        if format == "json":
            self._encode = lambda value: json_text(value).encode()
        elif not has_schema:
            self._encode = functools.partial(_plain, format)
        elif format == "avro":
            kind = parse_schema(schema_text(schema))
            # Source: AbstractKafkaAvroSerializer.serializeImpl, Confluent Schema Registry 8.1: no length
            is_rest = kind.kind == "bytes" and schema_id is not None
            self._encode = lambda value: b"".join(_avro(kind, value, "")[is_rest:])
        else:
            proto = ProtoSchema(schema_text(schema), imports)
            chosen = proto.message_at((0,)) if message is None else proto.message_named(message)
            if schema_id is not None:
                self._frame += _indexes(proto.indexes_of(chosen))
            self._encode = lambda value: _message(chosen, value)

    def encode(self, value: Any) -> bytes | None:
        """Encode a value; null becomes a tombstone. Raises EncodeError if the value does not fit the schema."""
        return None if value is None else self._frame + self._encode(value)


def _plain(format: str, value: Any) -> bytes:
    """Text as it is and other values as JSON text; or a number as Kafka's serializers write it."""
    if format == "utf8":
        return (value if isinstance(value, str) else json_text(value)).encode()
    try:
        number = _real(value, "", format) if format in ("float", "double") else _whole(value, format, "")
        return struct.pack(NUMBERS[format], number)
    except (TypeError, ValueError, OverflowError, struct.error):
        raise _wrong("", value, format) from None


def _indexes(path: list[int]) -> bytes:
    """Message indexes in the wire format; empty for the first message."""
    return b"\0" if path == [0] else b"".join(_zigzag(number) for number in (len(path), *path))


def _wrong(where: str, value: object, kind: str) -> EncodeError:
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    return EncodeError(f"{where.lstrip('.') or 'the value'} is {shown}, but its schema has {kind}")


def _avro(kind: AvroType, value: Any, where: str) -> list[bytes]:
    """Encode a value, as parts."""
    if kind.kind == "union":
        return _union(kind, value, where)
    if kind.kind == "null":
        if value is not None:
            raise _wrong(where, value, "null")
        return []
    if kind.logical == "decimal":
        data = _decimal(kind, value, where)
        return [data] if kind.kind == "fixed" else [_zigzag(len(data)), data]
    if kind.logical in _LOGICAL:
        return _LOGICAL[kind.logical](kind, value, where)
    if kind.kind in ("int", "long"):
        return [_zigzag(_moment(kind, value, where))]
    if kind.kind in ("float", "double"):
        return [struct.pack("<f" if kind.kind == "float" else "<d", _real(value, where, kind.kind))]
    if kind.kind == "boolean":
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise _wrong(where, value, "boolean")
        return [b"\1" if value else b"\0"]
    if kind.kind in ("bytes", "string"):
        data = _text(value, where) if kind.kind == "string" else _bytes(value, where)
        return [_zigzag(len(data)), data]
    if kind.kind == "fixed":
        data = _bytes(value, where)
        if len(data) != kind.size:
            raise _wrong(where, value, f"{kind.size} bytes")
        return [data]
    if kind.kind == "enum":
        if value not in kind.symbols:
            raise _wrong(where, value, f"one of {', '.join(kind.symbols)}")
        return [_zigzag(kind.symbols.index(value))]
    return _avro_nested(kind, value, where)


def _avro_nested(kind: AvroType, given: object, where: str) -> list[bytes]:
    value: Any = _parsed(given)
    parts: list[bytes] = []
    if kind.kind == "record":
        if not isinstance(value, dict):
            raise _wrong(where, value, f"the record {kind.name}")
        for name in value.keys() - {name for name, _ in kind.fields}:
            raise EncodeError(f"{where.lstrip('.') or 'the value'} has a field {name!r}, which its schema lacks")
        for name, inner in kind.fields:
            parts += _avro(inner, value.get(name), f"{where}.{name}")
        return parts
    if not isinstance(value, list if kind.kind == "array" else dict):
        raise _wrong(where, value, f"a {'list' if kind.kind == 'array' else 'map'}")
    if value:
        parts.append(_zigzag(len(value)))
    if isinstance(value, list):
        for one in value:
            parts += _avro(kind.inner[0], one, f"{where}[]")
    else:
        for name, one in value.items():
            key = str(name).encode()
            parts += [_zigzag(len(key)), key, *_avro(kind.inner[0], one, f"{where}.{name}")]
    return [*parts, b"\0"]


def _union(kind: AvroType, value: Any, where: str) -> list[bytes]:
    n_others = sum(one.kind != "null" for one in kind.inner)
    if n_others > 1 and isinstance(value, dict):
        branch = _named_branch(kind, value, where)
        if branch is not None:
            number, inner = branch
            return [_zigzag(number), *_avro(kind.inner[number], inner, where)]
    for number, one in enumerate(kind.inner):
        if (one.kind == "null") == (value is None):
            try:
                return [_zigzag(number), *_avro(one, value, where)]
            except EncodeError:
                if n_others == 1:
                    raise
    raise _wrong(where, value, "a union of other types")


def _named_branch(kind: AvroType, value: dict[str, Any], where: str) -> tuple[int, Any] | None:
    """The branch of a union that a struct has, as in decoded columns: a field for each branch, one of them not null."""
    named = {(one.name.rpartition(".")[2] or one.kind): number for number, one in enumerate(kind.inner)}
    named |= {one.name or one.kind: number for number, one in enumerate(kind.inner)}
    if not value.keys() - {BRANCH} <= named.keys():
        return None
    given = [name for name, inner in value.items() if inner is not None and name in named]
    if len(given) > 1:
        raise EncodeError(f"{where.lstrip('.') or 'the value'} has several branches of a union: {', '.join(given)}")
    return (named[given[0]], value[given[0]]) if given else None


def _parsed(value: object) -> Any:
    """Nested values may be JSON text in files of other formats."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _whole(value: object, kind: str, where: str) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise _wrong(where, value, kind) from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    low, high = _RANGES[kind]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
        raise _wrong(where, value, kind)
    return value


def _moment(kind: AvroType, value: object, where: str) -> int:
    """A number, or the number for a date or time."""
    if kind.logical is None or not isinstance(value, str) or value.lstrip("-").isdecimal():
        return _whole(value, kind.kind, where)
    is_time = kind.form.per_ms > 0
    return _number_of(f"1970-01-01T{value}" if is_time else value, kind.form.unit, where, value)


def _number_of(text: str, unit: str, where: str, value: object) -> int:
    """An ISO 8601 text in units since 1970."""
    whole, _, digits = text.removesuffix("Z").partition(".")
    try:
        if unit == "D":
            return int(np.datetime64(whole, "D").astype(np.int64))
        seconds = int(np.datetime64(whole, "s").astype(np.int64))
    except ValueError:
        raise _wrong(where, value, "a date or a time, ISO 8601 in UTC") from None
    places = len(str(_PER_SECOND[unit])) - 1
    if digits[places:].strip("0"):
        raise _wrong(where, value, f"times in {unit}")
    return seconds * _PER_SECOND[unit] + int(digits[:places].ljust(places, "0") or 0)


def _decimal(kind: AvroType, value: object, where: str) -> bytes:
    """The unscaled number; Python's contexts would round it."""
    try:
        sign, digits, exponent = Decimal(str(value)).as_tuple()
    except InvalidOperation:
        raise _wrong(where, value, "a decimal") from None
    if not isinstance(exponent, int):  # NaN or infinite
        raise _wrong(where, value, "a decimal")
    shift = exponent + kind.scale
    n_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    is_zero = not any(digits)
    if not is_zero and (len(digits) + shift > kind.precision or -shift > n_zeros):
        raise _wrong(where, value, f"decimals of {kind.precision} digits, {kind.scale} of them after the point")
    kept = digits[: len(digits) + min(shift, 0)] + (0,) * max(shift, 0)
    number = 0 if is_zero else int(Decimal((sign, kept, 0)))
    size = kind.size if kind.kind == "fixed" else number.bit_length() // 8 + 1
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise _wrong(where, value, f"decimals of {size} bytes") from None


def _big_decimal(kind: AvroType, value: object, where: str) -> list[bytes]:
    """Source: Conversions.BigDecimalConversion, Avro 1.12."""
    number, scale = _scaled(value, where)
    return [_zigzag(sum(map(len, number)) + len(scale)), *number, scale]


def _scaled(value: object, where: str) -> tuple[list[bytes], bytes]:
    """The unscaled number as Avro's bytes, and the scale as an int."""
    try:
        sign, digits, exponent = Decimal(str(value)).as_tuple()
    except InvalidOperation:
        raise _wrong(where, value, "a decimal") from None
    if not isinstance(exponent, int) or not -(2**31) < exponent < 2**31:
        raise _wrong(where, value, "a decimal")
    number = int(Decimal((sign, digits, 0)))
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    return [_zigzag(len(data)), data], _zigzag(-exponent)


def _variable_scale(kind: AvroType, value: object, where: str) -> list[bytes]:
    """A decimal with a scale of its own; a struct of both is a record as any other."""
    if isinstance(_parsed(value), dict):
        return _avro_nested(kind, value, where)
    number, scale = _scaled(value, where)
    return [scale, *number]


def _fixed_uuid(kind: AvroType, value: object, where: str) -> list[bytes]:
    try:
        return [value if isinstance(value, bytes) else uuid.UUID(_text(value, where).decode()).bytes]
    except ValueError:
        raise _wrong(where, value, "a UUID") from None


def _duration(kind: AvroType, given: object, where: str) -> list[bytes]:
    value: Any = _parsed(given)
    if not isinstance(value, dict) or value.keys() != set(DURATION):
        raise _wrong(where, value, f"a duration: {', '.join(DURATION)}")
    return [struct.pack("<3I", *(_whole(value[name], "uint32", f"{where}.{name}") for name in DURATION))]


_LOGICAL: Final = {
    "big-decimal": _big_decimal,
    "uuid": _fixed_uuid,
    "duration": _duration,
    VARIABLE_SCALE: _variable_scale,
}


def _real(value: Any, where: str, kind: str) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)  # JSON has infinities and NaN as text
    except (TypeError, ValueError, OverflowError):
        raise _wrong(where, value, kind) from None
    is_finite = not math.isinf(number)
    if not is_finite and not isinstance(value, float) and not _INFINITE.fullmatch(str(value)):
        raise _wrong(where, value, kind)
    if is_finite and kind == "float":
        try:
            struct.pack("<f", number)
        except OverflowError:
            raise _wrong(where, value, kind) from None
    return number


_INFINITE: Final = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


def _text(value: object, where: str) -> bytes:
    if not isinstance(value, str):
        raise _wrong(where, value, "text")
    return value.encode()


def _bytes(value: object, where: str) -> bytes:
    try:
        return value if isinstance(value, bytes) else base64.b64decode(_text(value, where), validate=True)
    except binascii.Error:
        raise _wrong(where, value, "bytes, as base64") from None


def _zigzag(number: int) -> bytes:
    return uvarint((number << 1 ^ number >> 63) & (2**64 - 1))


def _message(kind: Descriptor, value: object) -> bytes:
    message = new_message(kind)
    _fill(message, value, "")
    if not message.IsInitialized():
        raise EncodeError(f"the value lacks required fields: {', '.join(message.FindInitializationErrors())}")
    data: bytes = message.SerializeToString()
    return data


def _fill(message: Any, value: object, where: str) -> None:
    """Set the fields of a message of Google's library."""
    kind = message.DESCRIPTOR
    value = _fields_of(kind, value, where)
    if kind.full_name in DYNAMIC:
        _fill_dynamic(message, value, where)
        return
    if not isinstance(value, dict):
        raise _wrong(where, value, f"the message {kind.full_name}")
    members: dict[str, str] = {}
    for name, inner in value.items():
        one, inside = kind.fields_by_name.get(name), f"{where}.{name}"
        if one is None:
            raise EncodeError(f"{where.lstrip('.') or 'the value'} has a field {name!r}, which its schema lacks")
        if inner is None:
            continue
        if one.containing_oneof is not None:
            other = members.setdefault(one.containing_oneof.name, name)
            if other != name:
                raise EncodeError(f"{where.lstrip('.') or 'the value'} has both {other!r} and {name!r} of a oneof")
        target = getattr(message, name)
        if is_map(one):
            _fill_map(target, one, inner, inside)
        elif one.is_repeated:
            _fill_list(target, one, inner, inside)
        elif one.message_type is not None:
            target.SetInParent()
            _fill(target, inner, inside)
        else:
            setattr(message, name, _scalar(one, inner, inside))


def _fill_map(target: Any, one: Any, entries: object, where: str) -> None:
    """Set the entries of a field of a message that is a map."""
    keys, items = (one.message_type.fields_by_name[part] for part in ("key", "value"))
    for text, item in entries.items() if isinstance(entries, dict) else ():
        key = _scalar(keys, text, where)
        if items.message_type is not None:
            _fill(target[key], item, where)
        else:
            target[key] = _scalar(items, item, where)


def _fill_list(target: Any, one: Any, given: object, where: str) -> None:
    """Append the items of a repeated field; a value that is no list is the only item."""
    for item in given if isinstance(given, list) else [given]:
        if one.message_type is not None:
            _fill(target.add(), item, where)
        else:
            target.append(_scalar(one, item, where))


def _fields_of(kind: Descriptor, given: object, where: str) -> Any:
    """The fields of a message, also of those that columns show in another form."""
    if kind.full_name == TIMESTAMP and isinstance(given, str):
        nanos = _number_of(given, "ns", where, given)
        return {"seconds": nanos // 10**9, "nanos": nanos % 10**9}
    value = _parsed(given)
    if kind.full_name == ANY and isinstance(value, dict):
        return {name: inner for name, inner in value.items() if name != "content"}  # it is in the bytes, too
    if kind.full_name in WRAPPERS and len(kind.fields) == 1 and not isinstance(value, dict):
        return {kind.fields[0].name: value}
    if isinstance(value, dict) and kind.oneofs:
        branches = {f"{oneof.name}{BRANCH}" for oneof in kind.oneofs} - set(kind.fields_by_name)
        return {name: inner for name, inner in value.items() if name not in branches}
    return value


def _fill_dynamic(message: Any, value: Any, where: str) -> None:
    """Set the fields of a message that holds JSON of any type."""
    from google.protobuf import json_format

    try:
        json_format.ParseDict(value, message)
    except json_format.ParseError:
        raise _wrong(where, value, message.DESCRIPTOR.full_name) from None


def _scalar(one: Any, value: object, where: str) -> Any:
    kind = TYPES[one.type]
    if kind == "string":
        return _text(value, where).decode()
    if kind == "bytes":
        return _bytes(value, where)
    if kind in ("float", "double"):
        return _real(value, where, kind)
    if kind == "enum":
        known = one.enum_type.values_by_name.get(value) if isinstance(value, str) else None
        return _whole(value, "int32", where) if known is None else known.number
    if kind == "bool":
        if isinstance(value, str) and value in ("true", "false"):  # a key of a map
            value = value == "true"
        if not isinstance(value, bool):
            raise _wrong(where, value, "bool")
        return value
    return _whole(value, kind, where)
