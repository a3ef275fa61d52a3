"""Encode a message of Kafka's from a dict of its fields: the reverse of `decoder`.

A writer is built once for a message and version. Mirrors the classes that Kafka's `MessageDataGenerator` makes, and
`ByteBufferAccessor`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from kafkalog.protocol.decoder import NUMBERS, number_runs
from kafkalog.protocol.definitions import MessageField, messages
from kafkalog.protocol.framing import FRAME_VERSION


def encode_message(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encode the message of a name such as ``OffsetCommitValue``; `fields` have the types of `decode_message`.

    A field that is left out has its default, one that the version lacks is not written. Raises ValueError if the
    version is not known, or the message has no field of a name.
    """
    return _writer(name, version)(fields)


@cache
def _writer(name: str, version: int) -> Write:
    message = messages()[name]
    if version not in message.versions:
        raise ValueError(f"{name} has no version {version}")
    return _struct(message.fields, version, version in message.flexible)


def encode_metadata_record(kind: str, version: int, **fields: Any) -> bytes:
    """Encode the value of a record of `__cluster_metadata`, such as ``Topic``."""
    return _frame(kind, version) + _writer(f"{kind}Record", version)(fields)


@cache
def _frame(kind: str, version: int) -> bytes:
    """What is in front of a message of `__cluster_metadata`."""
    return b"".join(map(uvarint, (FRAME_VERSION, messages()[f"{kind}Record"].key or 0, version)))


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
    if number < len(_SMALL):
        return _SMALL[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _struct(fields: tuple[MessageField, ...], version: int, flexible: bool) -> Write:
    """A writer of the fields of a struct, in their order; tagged ones follow them."""
    defaults = {field.name: field.default for field in fields}
    plain: list[tuple[list[str], struct.Struct | Write]] = []
    for run, layout in number_runs(fields, version):
        plain.append(([field.name for field in run], layout or _value(run[0], version, flexible)))
    tagged = sorted(
        (field.tag, field.name, _value(field, version, flexible)) for field in fields if version in field.tagged
    )

    def write(given: Mapping[str, Any]) -> bytes:
        if not given.keys() <= defaults.keys():
            raise ValueError(f"no field {min(given.keys() - defaults.keys())!r}")
        values = {**defaults, **given}
        out = bytearray()
        for names, step in plain:
            if not isinstance(step, struct.Struct):
                out += step(values[names[0]])
                continue
            numbers = [*map(values.__getitem__, names)]
            if None in numbers:
                raise _no_null(names[numbers.index(None)])
            out += step.pack(*numbers)
        if flexible:
            present = [(tag, step(values[name])) for tag, name, step in tagged if values[name] != defaults[name]]
            out += uvarint(len(present))
            for tag, content in present:
                out += uvarint(tag) + uvarint(len(content)) + content
        return bytes(out)

    return write


def _value(field: MessageField, version: int, flexible: bool) -> Write:
    """A writer of a field, which may be null in some versions."""
    name, nullable = field.name, version in field.nullable
    if field.type.startswith("[]"):
        return _array(field, version, flexible, nullable)
    if field.type in ("string", "bytes"):
        return _sized(name, ">h" if field.type == "string" else ">i", flexible, nullable)
    item = _item(field, field.type, version, flexible)
    if field.type == "struct" and nullable:
        # what is in front of it says whether it is null
        absent, head = (uvarint(0), uvarint(1)) if version in field.tagged else (b"\xff", b"\x01")
        return lambda value: absent if value is None else head + item(value)

    def write(value: Any) -> bytes:
        if value is None:
            raise _no_null(name)
        return item(value)

    return write


def _no_null(name: str) -> ValueError:
    return ValueError(f"{name} may not be null")


def _item(field: MessageField, kind: str, version: int, flexible: bool) -> Write:
    if kind in NUMBERS:
        return struct.Struct(">" + NUMBERS[kind]).pack
    if kind == "uuid":
        return lambda value: base64.urlsafe_b64decode(value + "==")
    if kind == "struct":
        return _struct(field.fields, version, flexible)
    return _sized(field.name, ">h" if kind == "string" else ">i", flexible, nullable=False)


def _sized(name: str, fixed: str, flexible: bool, nullable: bool) -> Write:
    """A writer of a string or bytes, with the length in front."""

    def write(value: str | bytes | None) -> bytes:
        if value is None:
            if not nullable:
                raise _no_null(name)
            return _length(None, fixed, flexible)
        content = value.encode() if isinstance(value, str) else value
        return _length(len(content), fixed, flexible) + content

    return write


def _array(field: MessageField, version: int, flexible: bool, nullable: bool) -> Write:
    name, kind = field.name, field.type[2:]
    letter = NUMBERS.get(kind)
    item = _item(field, kind, version, flexible)

    def write(items: Any) -> bytes:
        if items is None:
            if not nullable:
                raise _no_null(name)
            return _length(None, ">i", flexible)
        content = b"".join(map(item, items)) if letter is None else struct.pack(f">{len(items)}{letter}", *items)
        return _length(len(items), ">i", flexible) + content

    return write


def _length(n: int | None, fixed: str, flexible: bool) -> bytes:
    """A length in front of a string, bytes or an array; None is null."""
    if not flexible:
        return struct.pack(fixed, -1 if n is None else n)
    number = 0 if n is None else n + 1
    return _SMALL[number] if number < len(_SMALL) else uvarint(number)


Write = Callable[[Any], bytes]
_SMALL: Final = tuple(bytes([number]) for number in range(0x80))
"""Varints of one byte."""
