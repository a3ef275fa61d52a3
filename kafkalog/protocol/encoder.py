"""Encode a message of Kafka's from a dict of its fields: the reverse of `decoder`.

Mirrors the classes that Kafka's `MessageDataGenerator` makes, and `ByteBufferAccessor`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

from kafkalog.protocol.decoder import NUMBERS
from kafkalog.protocol.definitions import MessageField, messages
from kafkalog.protocol.framing import FRAME_VERSION


def encode_message(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encode the message of a name such as ``OffsetCommitValue``; `fields` have the types of `decode_message`.

    A field that is left out has its default, one that the version lacks is not written. Raises ValueError if the
    version is not known, or the message has no field of a name.
    """
    message = messages()[name]
    if version not in message.versions:
        raise ValueError(f"{name} has no version {version}")
    return _struct(message.fields, fields, version, version in message.flexible)


def encode_metadata_record(kind: str, version: int, **fields: Any) -> bytes:
    """Encode the value of a record of `__cluster_metadata`, such as ``Topic``."""
    name = f"{kind}Record"
    numbers = FRAME_VERSION, messages()[name].key or 0, version
    return b"".join(map(uvarint, numbers)) + encode_message(name, version, fields)


def encode_keyed_record(
    kind: str, version: int, key: Mapping[str, Any], value: Mapping[str, Any]
) -> tuple[bytes, bytes]:
    """Encode key and value of a record of a coordinator's topic, such as ``OffsetCommit``."""
    # in front of the key stands the type of the record; the key itself has version 0
    number = messages()[f"{kind}Key"].key or 0
    return (
        struct.pack(">h", number) + encode_message(f"{kind}Key", 0, key),
        struct.pack(">h", version) + encode_message(f"{kind}Value", version, value),
    )


def uvarint(number: int) -> bytes:
    """Encode a number of at least 0 in 7 bits a byte, the lowest first, as Protobuf does as well."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _struct(fields: tuple[MessageField, ...], values: Mapping[str, Any], version: int, flexible: bool) -> bytes:
    unknown = values.keys() - {field.name for field in fields}
    if unknown:
        raise ValueError(f"no field {sorted(unknown)[0]!r}")
    out, tagged = bytearray(), {}
    for field in fields:
        value = values.get(field.name, field.default)
        if version in field.tagged:
            if value != field.default:
                tagged[field.tag] = _value(field, value, version, flexible)
        elif version in field.versions:
            out += _value(field, value, version, flexible)
    if flexible:
        out += uvarint(len(tagged))
        for tag, content in sorted(tagged.items()):
            out += uvarint(tag) + uvarint(len(content)) + content
    return bytes(out)


def _value(field: MessageField, value: Any, version: int, flexible: bool) -> bytes:
    if value is None and version not in field.nullable:
        raise ValueError(f"{field.name} may not be null")
    if field.type.startswith("[]"):
        items = () if value is None else value
        content = b"".join(_item(field, field.type[2:], one, version, flexible) for one in items)
        return _length(None if value is None else len(items), ">i", flexible) + content
    if field.type == "struct" and version in field.nullable:
        is_null = value is None
        head = uvarint(not is_null) if version in field.tagged else struct.pack(">b", -1 if is_null else 1)
        return head if is_null else head + _struct(field.fields, value, version, flexible)
    return _item(field, field.type, value, version, flexible)


def _item(field: MessageField, kind: str, value: Any, version: int, flexible: bool) -> bytes:
    if kind in NUMBERS:
        return struct.pack(">" + NUMBERS[kind], value)
    if kind == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    if kind == "struct":
        return _struct(field.fields, value, version, flexible)
    content = value.encode() if isinstance(value, str) else value
    size = _length(None if content is None else len(content), ">h" if kind == "string" else ">i", flexible)
    return size + (content or b"")


def _length(n: int | None, fixed: str, flexible: bool) -> bytes:
    """A length in front of a string, bytes or an array; None is null."""
    if flexible:
        return uvarint(0 if n is None else n + 1)
    return struct.pack(fixed, -1 if n is None else n)
