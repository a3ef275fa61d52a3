"""Decode a message of Kafka's into a dict of its fields.

A decoder is built once for a message and version. Every length is compared with the bytes that are left before it is
used, and the items of all arrays of a message are counted: an empty one takes a byte there and hundreds here. Mirrors
the classes that Kafka's `MessageDataGenerator` makes, and `ByteBufferAccessor`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kafkalog.messages.definitions import Field, Message, messages


class MessageError(ValueError):
    """Bytes are not the message that they should be."""


class UnknownVersionError(MessageError):
    """A message has a version that is newer than the definitions."""


class Reader:
    """A position in bytes; each method reads on from it, and raises `MessageError` if the bytes do not allow it."""

    __slots__ = ("at", "data", "n_items")

    def __init__(self, data: bytes, n_items: int = 0) -> None:
        self.data, self.at, self.n_items = data, 0, n_items

    def take(self, n: int) -> bytes:
        """Read `n` bytes."""
        at = self.at
        if not 0 <= n <= len(self.data) - at:
            raise MessageError(f"ends early: {n} bytes wanted at {at} of {len(self.data)}")
        self.at = at + n
        return self.data[at : at + n]

    def unpack(self, layout: struct.Struct) -> Any:
        """Read one number."""
        at = self.at
        if layout.size > len(self.data) - at:
            raise MessageError(f"ends early: {layout.size} bytes wanted at {at} of {len(self.data)}")
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)[0]

    def uvarint(self) -> int:
        """Read an unsigned varint of at most five bytes; its low 32 bits count."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFFFFFF
        raise MessageError(f"an overlong number at {self.at - 5}")

    def rest(self) -> int:
        """Bytes that are left."""
        return len(self.data) - self.at


Read = Callable[[Reader], Any]

MAX_ITEMS: Final = 1_000_000
"""Items that all arrays of a message may have together."""

_INT16, _INT32, _UINT32 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">I")
_NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": _INT16,
    "uint16": struct.Struct(">H"),
    "int32": _INT32,
    "uint32": _UINT32,
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}


def decode_message(name: str, version: int, data: bytes, *, whole: bool = True) -> dict[str, Any]:
    """Decode a whole message.

    Parameters
    ----------
    name : str
        Of the message, such as ``OffsetCommitValue``.
    version : int
    data : bytes
        What follows the version.
    whole : bool
        Whether bytes behind the message are an error.

    Returns
    -------
    dict
        Values by field name, all fields of all versions: those that this version lacks have their default. Numbers
        are int or float, ``string`` is str, ``bytes`` is bytes, a ``uuid`` is Kafka's text of 22 characters.

    Raises
    ------
    UnknownVersionError
        The version is not in the definitions.
    MessageError
        The bytes are not such a message, or go on behind it.
    """
    message = messages()[name]
    if version not in message.versions:
        known = message.versions
        raise UnknownVersionError(f"{name} has version {version}; known are {known.first} to {known.last}")
    reader = Reader(data)
    fields: dict[str, Any] = _decoder(name, version)(reader)
    if whole and reader.rest():
        raise MessageError(f"{reader.rest()} bytes behind the end of {name}")
    return fields


@cache
def _decoder(name: str, version: int) -> Read:
    message: Message = messages()[name]
    return _struct(message.fields, version, version in message.flexible)


def _struct(fields: tuple[Field, ...], version: int, flexible: bool) -> Read:
    """A reader of the fields of a struct, in their order; tagged ones follow them."""
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    defaults = {field.name: field.default for field in fields}
    for field in fields:
        if version in field.versions or version in field.tagged:
            part = field.name, _value(field, version, flexible)
            if version in field.tagged:
                tagged[field.tag] = part
            else:
                plain.append(part)

    def read(reader: Reader) -> dict[str, Any]:
        values = defaults.copy()
        for name, part in plain:
            values[name] = part(reader)
        if flexible:
            for _ in range(reader.uvarint()):
                tag = reader.uvarint()
                content = Reader(reader.take(reader.uvarint()), reader.n_items)
                if tag in tagged:
                    name, part = tagged[tag]
                    values[name] = part(content)
                    if content.rest():
                        raise MessageError(f"{content.rest()} bytes behind the end of {name}")
                    reader.n_items = content.n_items
        return values

    return read


def _value(field: Field, version: int, flexible: bool) -> Read:
    nullable = version in field.nullable
    if field.type.startswith("[]"):
        return _array(_item(field, field.type[2:], version, flexible), field.name, flexible, nullable)
    if field.type in ("string", "bytes"):
        return _sized(field, flexible, nullable)
    read = _item(field, field.type, version, flexible)
    if field.type == "struct" and nullable:
        # what is in front of it says whether it is null
        if version in field.tagged:
            return lambda reader: read(reader) if reader.uvarint() else None
        return lambda reader: None if reader.unpack(_NUMBERS["int8"]) < 0 else read(reader)
    return read


def _item(field: Field, kind: str, version: int, flexible: bool) -> Read:
    if kind in _NUMBERS:
        layout = _NUMBERS[kind]
        return lambda reader: reader.unpack(layout)
    if kind == "bool":
        return lambda reader: reader.take(1) != b"\0"
    if kind == "uuid":
        return lambda reader: base64.urlsafe_b64encode(reader.take(16)).decode().rstrip("=")
    if kind == "string":
        return _sized(field, flexible, nullable=False)
    return _struct(field.fields, version, flexible)


def _length(reader: Reader, fixed: struct.Struct, flexible: bool) -> int:
    """A length in front of a string, bytes or an array; -1 is null."""
    n: int = reader.uvarint() - 1 if flexible else reader.unpack(fixed)
    return n


def _sized(field: Field, flexible: bool, nullable: bool) -> Read:
    is_text = field.type != "bytes"
    fixed = _INT16 if is_text else _INT32
    name = field.name

    def read(reader: Reader) -> str | bytes | None:
        n = _length(reader, fixed, flexible)
        if n < 0:
            if n == -1 and nullable:
                return None
            raise MessageError(f"{name} has a length of {n}")
        content = reader.take(n)
        try:
            return content.decode() if is_text else content
        except UnicodeDecodeError as error:
            raise MessageError(f"{name} is not UTF-8: {error.reason}") from None

    return read


def _array(item: Read, name: str, flexible: bool, nullable: bool) -> Read:
    def read(reader: Reader) -> list[Any] | None:
        n = _length(reader, _INT32, flexible)
        if n == -1 and nullable:
            return None
        # each item takes a byte at least
        if not 0 <= n <= reader.rest():
            raise MessageError(f"{name} claims {n} items in {reader.rest()} bytes")
        reader.n_items += n
        if reader.n_items > MAX_ITEMS:
            raise MessageError(f"more than {MAX_ITEMS} items in arrays")
        return [item(reader) for _ in range(n)]

    return read
