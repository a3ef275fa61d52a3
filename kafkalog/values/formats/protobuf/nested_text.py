"""Converts messages to JSON text: recursive ones, and the JSON types of `google.protobuf`.

Fields have the names of the schema; absent ones are null or have their default value, as in columns.
Bytes are base64, numbers are numbers (text if not finite), and times are text.
"""

from __future__ import annotations

import base64
import math
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kafkalog.interchange.table_types import json_text
from kafkalog.interchange.text_output import NOT_FINITE
from kafkalog.values.formats.protobuf.descriptors import fields_of, read_varint
from kafkalog.values.formats.protobuf.types import ProtoField, ProtoMessage

DYNAMIC: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIXED: Final = {"float": "<f", "double": "<d", "fixed32": "<I", "fixed64": "<Q", "sfixed32": "<i", "sfixed64": "<q"}
_ZEROS: Final = {"bool": False, "string": "", "bytes": "", "float": 0.0, "double": 0.0}


def message_text(message: ProtoMessage, data: bytes) -> str:
    """A message as JSON text. The kernel has checked the bytes."""
    return json_text(_message(message, data))


def _message(message: ProtoMessage, data: bytes) -> Any:
    by_number = {one.number: one for one in message.fields}
    found: dict[int, Any] = {}
    parts: dict[int, bytes] = {}
    for number, wire, value in fields_of(data):
        one = by_number.get(number)
        if one is None:
            continue
        items = _items(one, wire, value)
        if not items:
            continue
        # the last member of a oneof on the wire counts
        if one.oneof >= 0:
            for other in message.fields:
                if other.oneof == one.oneof and other is not one:
                    found.pop(other.number, None)
                    parts.pop(other.number, None)
        if one.is_repeated:
            found.setdefault(number, []).extend(items)
        elif one.message is not None:
            # repeated occurrences of a message are merged
            parts[number] = parts.get(number, b"") + items[0]
        else:
            found[number] = items[0]
    for number, part in parts.items():
        inner = by_number[number].message
        if inner is not None:
            found[number] = _message(inner, part)
    return _shown(message, found)


def _shown(message: ProtoMessage, found: dict[int, Any]) -> Any:
    """The fields found, in JSON's form."""
    if message.name == "google.protobuf.Value":
        number = next(iter(found), 1)
        return None if number == 1 else found[number]
    if message.name in ("google.protobuf.Struct", "google.protobuf.ListValue"):
        whole = _with_defaults(message, found)
        return whole["fields" if message.name.endswith("Struct") else "values"]
    if message.name == _TIMESTAMP:
        seconds, nanos = found.get(1, 0), found.get(2, 0)
        moment = _EPOCH + timedelta(seconds=seconds)
        return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}" + (f".{nanos:09}".rstrip("0") if nanos else "") + "Z"
    if message.name.startswith("google.protobuf.") and message.name.endswith("Value") and len(message.fields) == 1:
        return _with_defaults(message, found)["value"]
    return _with_defaults(message, found)


def _with_defaults(message: ProtoMessage, found: dict[int, Any]) -> dict[str, Any]:
    shown = {}
    for one in message.fields:
        if one.is_repeated and one.message is not None and one.message.is_entry:
            shown[one.name] = dict(found.get(one.number, ()))
        elif one.is_repeated:
            shown[one.name] = found.get(one.number, [])
        else:
            shown[one.name] = found[one.number] if one.number in found else default(one)
    return shown


def default(one: ProtoField) -> Any:
    """The value of an absent field."""
    return None if one.has_presence else _zero(one)


def _items(one: ProtoField, wire: int, value: int | bytes) -> list[Any]:
    """The items of a field: several if packed, none if the wire type is wrong."""
    if one.message is not None:
        if wire != (3 if one.is_group else 2) or isinstance(value, int):
            return []
        if not one.is_repeated:
            return [value]
        return [_entry(one.message, value) if one.message.is_entry else _message(one.message, value)]
    if one.scalar in ("string", "bytes"):
        if wire != 2 or isinstance(value, int):
            return []
        return [value.decode() if one.scalar == "string" else base64.b64encode(value).decode()]
    if one.scalar in _FIXED:
        width = struct.calcsize(_FIXED[one.scalar])
        if isinstance(value, int) or (wire != (5 if width == 4 else 1) and not (wire == 2 and one.is_repeated)):
            return []
        items = [numbers[0] for numbers in struct.iter_unpack(_FIXED[one.scalar], value)]
        return [item if math.isfinite(item) else NOT_FINITE[str(item)] for item in items]
    if wire == 0 and isinstance(value, int):
        numbers = [value]
    elif wire == 2 and one.is_repeated and not isinstance(value, int):
        numbers, at = [], 0
        while at < len(value):
            number, at = read_varint(value, at)
            numbers.append(number)
    else:
        return []
    return [item for item in (_number(one, number) for number in numbers) if item is not None]


def _entry(entry: ProtoMessage, data: bytes) -> tuple[str, Any]:
    """An entry of a map; keys are text in JSON."""
    found = _message(entry, data)
    inner = entry.fields[0] if entry.fields[0].number == 2 else entry.fields[1]
    value = found["value"]
    if value is None:  # entries cannot be null
        value = _message(inner.message, b"") if inner.message is not None else _zero(inner)
    key = _zero(next(one for one in entry.fields if one.number == 1)) if found["key"] is None else found["key"]
    return str(key).lower() if isinstance(key, bool) else str(key), value


def _zero(one: ProtoField) -> Any:
    if one.enum is not None:
        return next(iter(one.enum.names.values()))
    return _ZEROS.get(one.scalar, 0)


def _number(one: ProtoField, value: int) -> Any:
    """A varint as a value of the field's type; None for a number that a closed enum does not have."""
    if one.scalar == "bool":
        return value != 0
    if one.scalar == "uint64":
        return value
    if one.scalar == "uint32":
        return value & 0xFFFFFFFF
    if one.scalar in ("sint32", "sint64"):
        value &= 0xFFFFFFFF if one.scalar == "sint32" else 2**64 - 1
        return (value >> 1) ^ -(value & 1)
    if one.scalar == "int64":
        return value - 2**64 if value >= 2**63 else value
    value = (value & 0xFFFFFFFF ^ 2**31) - 2**31
    if one.enum is None:
        return value
    name = one.enum.names.get(value)
    return None if name is None and one.enum.is_closed else name or str(value)
