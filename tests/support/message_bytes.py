"""Encodes messages by their definitions: what the decoder is to read."""

from __future__ import annotations

import base64
import random
import struct
from typing import Any

from kafkalog.protocol.definitions import Field, Versions

NONE = Versions(0, -1)


def uvarint(n: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def made_up(fields: tuple[Field, ...], version: int, rng: random.Random) -> dict[str, Any]:
    """Random values of fields; those that the version lacks have their default."""
    values = {}
    for field in fields:
        is_there = version in field.versions or version in field.tagged
        tagged_away = version in field.tagged and rng.random() < 0.5
        values[field.name] = _some(field, version, rng) if is_there and not tagged_away else field.default
    return values


def _some(field: Field, version: int, rng: random.Random) -> Any:
    if version in field.nullable and rng.random() < 0.3:
        return None
    if field.type.startswith("[]"):
        item = Field(field.name, field.type[2:], field.versions, NONE, NONE, -1, None, field.fields)
        return [_some(item, version, rng) for _ in range(rng.randint(0, 3))]
    if field.type == "struct":
        return made_up(field.fields, version, rng)
    if field.type == "string":
        return rng.choice(("", "x", "käse", "long" * 40))
    if field.type == "bytes":
        return rng.randbytes(rng.randint(0, 200))
    if field.type == "uuid":
        return rng.choice(("A" * 22, "RxLbS2aoRLmJ9xc1exUYuQ"))
    if field.type == "bool":
        return rng.random() < 0.5
    if field.type == "float64":
        return rng.random()
    bits = int(field.type.removeprefix("u").removeprefix("int"))
    return rng.getrandbits(bits - 1) * (1 if field.type.startswith("u") else rng.choice((1, -1)))


def encoded(fields: tuple[Field, ...], values: dict[str, Any], version: int, flexible: bool) -> bytes:
    """The bytes of fields, as Kafka writes them."""
    out = bytearray()
    tagged = {}
    for field in fields:
        value = values[field.name]
        if version in field.tagged:
            if value != field.default or value is None:
                tagged[field.tag] = _part(field, value, version, flexible, tagged=True)
        elif version in field.versions:
            out += _part(field, value, version, flexible)
    if flexible:
        out += uvarint(len(tagged))
        for tag, content in sorted(tagged.items()):
            out += uvarint(tag) + uvarint(len(content)) + content
    return bytes(out)


def _part(field: Field, value: Any, version: int, flexible: bool, tagged: bool = False) -> bytes:
    def length(n: int, size: int) -> bytes:
        return uvarint(n + 1) if flexible else n.to_bytes(size, "big", signed=True)

    if field.type.startswith("[]"):
        if value is None:
            return length(-1, 4)
        item = Field(field.name, field.type[2:], field.versions, NONE, NONE, -1, None, field.fields)
        return length(len(value), 4) + b"".join(_part(item, part, version, flexible) for part in value)
    if field.type == "struct":
        front = b""
        if version in field.nullable:
            if value is None:
                return b"\0" if tagged else b"\xff"
            front = b"\x01"
        return front + encoded(field.fields, value, version, flexible)
    if field.type == "string":
        return length(-1, 2) if value is None else length(len(value.encode()), 2) + value.encode()
    if field.type == "bytes":
        return length(-1, 4) if value is None else length(len(value), 4) + value
    if field.type == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    if field.type == "bool":
        return bytes([value])
    if field.type == "float64":
        return struct.pack(">d", value)
    unsigned = field.type.startswith("u")
    bits = int(field.type.removeprefix("u").removeprefix("int"))
    return int(value).to_bytes(bits // 8, "big", signed=not unsigned)
