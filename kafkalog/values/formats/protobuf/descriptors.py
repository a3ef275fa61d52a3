"""`FileDescriptorProto`: a schema as a Protobuf message, which clients without the source register in base64.

Source: descriptor.proto of Protobuf 35.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from kafkalog.values.formats.protobuf.proto_text import (
    MOST_DEPTH,
    EnumText,
    FieldText,
    FileText,
    MessageText,
)
from kafkalog.values.types import SchemaError

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}")
_TYPES: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("", "", "bytes", "uint32", "", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_GROUP: Final = 10
_LABELS: Final = ("", "optional", "required", "repeated")
_EDITIONS: Final = {998: "proto2", 999: "proto3", 1000: "2023", 1001: "2024"}
_FEATURES: Final = {
    1: ("features.field_presence", ("", "EXPLICIT", "IMPLICIT", "LEGACY_REQUIRED")),
    2: ("features.enum_type", ("", "OPEN", "CLOSED")),
    5: ("features.message_encoding", ("", "LENGTH_PREFIXED", "DELIMITED")),
}

Item = tuple[int, int, int | bytes]
"""A field of a message: its number, its type on the wire, and its value; bytes unless it is a varint."""


def fields_of(data: bytes) -> Iterator[Item]:
    """Yield the fields of a message in wire order.

    Raises
    ------
    SchemaError
        The bytes are not a message.
    """
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        start = at
        if wire == 0:
            value, at = read_varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            size, start = read_varint(data, at)
            at = start + size
        elif wire == 3:
            stop, at = _group_end(data, at, number)
            yield number, wire, data[start:stop]
            continue
        elif wire in (1, 5):
            at = start + (8 if wire == 1 else 4)
        else:
            raise SchemaError("a field has a type that does not exist")
        if at > len(data):
            raise SchemaError("the bytes end inside a field")
        yield number, wire, data[start:at]


def _group_end(data: bytes, at: int, number: int) -> tuple[int, int]:
    """End of a group's fields, and the position after the group."""
    open_groups = [number]
    stop = at
    while open_groups:
        stop = at
        tag, at = read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            at = read_varint(data, at)[1]
        elif wire == 2:
            size, at = read_varint(data, at)
            at += size
        elif wire == 3:
            open_groups.append(tag >> 3)
        elif wire == 4 and open_groups.pop() == tag >> 3:
            continue
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise SchemaError("a group has no end")
    return stop, at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned number. Return it and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value & (2**64 - 1), at
    raise SchemaError("a number is too long")


def parse_descriptor(text: str) -> FileText | None:
    """Parse a descriptor in base64; None if the text is not one.

    Raises
    ------
    SchemaError
        The descriptor is damaged.
    """
    if not _BASE64.fullmatch(text.strip()):
        return None
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    found = FileText()
    for number, _, value in fields_of(data):
        if number == 2:
            found.package = _text(value)
        elif number == 3:
            found.imports.append(_text(value))
        elif number == 4:
            found.messages.append(_message(_bytes(value), 1))
        elif number == 5:
            found.enums.append(_enum(_bytes(value)))
        elif number == 8:
            _options(found.options, value, 50)
        elif number == 12:
            found.syntax = _text(value)
        elif number == 14:
            found.syntax = _EDITIONS.get(_number(value), "2023")
    return found


def _message(data: bytes, depth: int) -> MessageText:
    if depth > MOST_DEPTH:
        raise SchemaError(f"messages are nested more than {MOST_DEPTH} deep")
    found = MessageText("")
    for number, _, value in fields_of(data):
        if number == 1:
            found.name = _text(value)
        elif number == 2:
            found.fields.append(_field(_bytes(value)))
        elif number == 3:
            found.nested.append(_message(_bytes(value), depth + 1))
        elif number == 4:
            found.enums.append(_enum(_bytes(value)))
        elif number == 7:
            _options(found.options, value, 12)
            if any(inner == 7 and of_entry for inner, _, of_entry in fields_of(_bytes(value))):
                found.options["map_entry"] = "true"
                found.is_hidden = True
        elif number == 8:
            found.n_oneofs += 1
    groups = {one.type.rpartition(".")[2] for one in found.fields if one.is_group}
    for inner in found.nested:
        # descriptors do not mark the message of a group, which Java's indexes do not count
        inner.is_hidden |= inner.name in groups
    return found


def _field(data: bytes) -> FieldText:
    found = FieldText("", 0, "")
    type_name = ""
    is_optional = False
    for number, _, value in fields_of(data):
        if number == 1:
            found.name = _text(value)
        elif number == 3:
            found.number = _number(value)
        elif number == 4:
            label = _number(value)
            # every field has a label here; "optional" counts only if its own bit is set
            found.label = _LABELS[label] if label in (2, 3) else ""
        elif number == 5:
            kind = _number(value)
            found.type = _TYPES[kind] if kind < len(_TYPES) else ""
            found.is_group = kind == _GROUP
        elif number == 6:
            type_name = _text(value)
        elif number == 8:
            _options(found.options, value, 21)
        elif number == 9:
            found.oneof = _number(value)
        elif number == 17:
            is_optional = bool(value)
    if is_optional:
        found.label, found.oneof = "optional", -1
    found.type = found.type or type_name
    return found


def _enum(data: bytes) -> EnumText:
    found = EnumText("")
    for number, _, value in fields_of(data):
        if number == 1:
            found.name = _text(value)
        elif number == 2:
            name, of_name = "", 0
            for inner, _, one in fields_of(_bytes(value)):
                if inner == 1:
                    name = _text(one)
                elif inner == 2:
                    of_name = _number(one)
            found.values.append((name, (of_name & 0xFFFFFFFF ^ 2**31) - 2**31))
        elif number == 3:
            _options(found.options, value, 7)
    return found


def _options(options: dict[str, str], value: int | bytes, features_at: int) -> None:
    for number, _, features in fields_of(_bytes(value)):
        if number != features_at:
            continue
        for inner, _, one in fields_of(_bytes(features)):
            name, words = _FEATURES.get(inner, ("", ()))
            if name and 0 < _number(one) < len(words):
                options[name] = words[_number(one)]


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise SchemaError("a field of a descriptor is a number, but must be bytes")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise SchemaError("a field of a descriptor is bytes, but must be a number")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise SchemaError("a descriptor has a name that is not UTF-8") from None
