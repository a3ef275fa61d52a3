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
from itertools import groupby
from typing import Any, Final

from kafkalog.protocol.definitions import Message, MessageField, messages


class MessageError(ValueError):
    """Bytes are not the message that they should be."""


class UnknownVersionError(MessageError):
    """A message has a version that is newer than the definitions."""


class MessageReader:
    """A position in bytes; each method reads on from it, and raises `MessageError` if the bytes do not allow it."""

    __slots__ = ("at", "data", "n_items")

    def __init__(self, data: bytes, at: int = 0, n_items: int = 0) -> None:
        self.data, self.at, self.n_items = data, at, n_items

    def take(self, n: int) -> bytes:
        """Read `n` bytes."""
        at = self.at
        if not 0 <= n <= len(self.data) - at:
            raise MessageError(f"ends early: {n} bytes wanted at {at} of {len(self.data)}")
        self.at = at + n
        return self.data[at : at + n]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read numbers."""
        at = self.at
        if layout.size > len(self.data) - at:
            raise MessageError(f"ends early: {layout.size} bytes wanted at {at} of {len(self.data)}")
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)

    def uvarint(self) -> int:
        """Read an unsigned varint of at most five bytes; its low 32 bits count."""
        at = self.at
        if at < len(self.data) and self.data[at] < 0x80:  # as nearly all
            self.at = at + 1
            return self.data[at]
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


Read = Callable[[MessageReader], Any]

MAX_ITEMS: Final = 1_000_000
"""Items that all arrays of a message may have together."""

_INT8, _INT16, _INT32 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i")
NUMBERS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
"""Types of fixed size, and their letters in `struct`."""


def decode_message(name: str, version: int, data: bytes, *, start: int = 0, whole: bool = True) -> dict[str, Any]:
    """Decode the message of a name such as ``OffsetCommitValue``, which begins at `start`, after its version.

    The dict has all fields of all versions; those that this version lacks have their default. Numbers are int or float,
    a `uuid` is Kafka's text of 22 characters. Raises UnknownVersionError for a version that is not in the definitions,
    and MessageError for other bytes, and for more of them if the message is the `whole`.
    """
    reader = MessageReader(data, start)
    fields: dict[str, Any] = _decoder(name, version)(reader)
    if whole and reader.at < len(data):
        raise MessageError(f"{reader.rest()} bytes after the end of {name}")
    return fields


@cache
def _decoder(name: str, version: int) -> Read:
    message: Message = messages()[name]
    if version not in message.versions:
        known = message.versions
        raise UnknownVersionError(f"{name} has version {version}; known are {known.first} to {known.last}")
    return _struct(message.fields, version, version in message.flexible)


def number_runs(
    fields: tuple[MessageField, ...], version: int
) -> list[tuple[list[MessageField], struct.Struct | None]]:
    """The fields of a version without a tag; numbers that follow each other are together, with their layout."""
    untagged = [field for field in fields if version in field.versions and version not in field.tagged]
    runs: list[tuple[list[MessageField], struct.Struct | None]] = []
    for is_number, group in groupby(untagged, lambda field: field.type in NUMBERS):
        run = list(group)
        if is_number:
            runs.append((run, _layout(*(field.type for field in run))))
        else:
            runs += [([field], None) for field in run]
    return runs


def _struct(fields: tuple[MessageField, ...], version: int, flexible: bool) -> Read:
    """A reader of the fields of a struct, in their order; tagged ones follow them."""
    plain: list[tuple[tuple[str, ...], struct.Struct | Read]] = []
    for run, layout in number_runs(fields, version):
        plain.append((tuple(field.name for field in run), layout or _value(run[0], version, flexible)))
    tagged: dict[int, tuple[str, Read]] = {}
    defaults = {field.name: field.default for field in fields}
    for field in fields:
        if version in field.tagged:
            tagged[field.tag] = field.name, _value(field, version, flexible)

    def read(reader: MessageReader) -> dict[str, Any]:
        # fields that this version lacks, and tagged ones that are absent, keep their defaults
        values = defaults.copy()
        for names, step in plain:
            if isinstance(step, struct.Struct):
                values.update(zip(names, reader.unpack(step), strict=True))
            else:
                values[names[0]] = step(reader)
        if flexible:
            for _ in range(reader.uvarint()):
                tag = reader.uvarint()
                content = MessageReader(reader.take(reader.uvarint()), 0, reader.n_items)
                # a tag that the definitions lack comes from a newer Kafka: tagged fields are made to be passed over
                if tag in tagged:
                    name, part = tagged[tag]
                    values[name] = part(content)
                    if content.rest():
                        raise MessageError(f"{content.rest()} bytes after the end of {name}")
                    reader.n_items = content.n_items
        return values

    return read


def _layout(*types: str) -> struct.Struct:
    return struct.Struct(">" + "".join(map(NUMBERS.__getitem__, types)))


def _value(field: MessageField, version: int, flexible: bool) -> Read:
    nullable = version in field.nullable
    if field.type.startswith("[]"):
        return _array(field, _item(field, field.type[2:], version, flexible), flexible, nullable)
    if field.type in ("string", "bytes"):
        return _sized(field, flexible, nullable)
    read = _item(field, field.type, version, flexible)
    if field.type == "struct" and nullable:
        # what is in front of it says whether it is null
        if version in field.tagged:
            return lambda reader: read(reader) if reader.uvarint() else None
        return lambda reader: None if reader.unpack(_INT8)[0] < 0 else read(reader)
    return read


def _item(field: MessageField, kind: str, version: int, flexible: bool) -> Read:
    if kind in NUMBERS:
        layout = _layout(kind)
        return lambda reader: reader.unpack(layout)[0]
    if kind == "uuid":
        return lambda reader: base64.urlsafe_b64encode(reader.take(16)).decode().rstrip("=")
    if kind == "string":
        return _sized(field, flexible, nullable=False)
    return _struct(field.fields, version, flexible)


def _length(reader: MessageReader, fixed: struct.Struct, flexible: bool) -> int:
    """A length in front of a string, bytes or an array; -1 is null."""
    if not flexible:
        n: int = reader.unpack(fixed)[0]
        return n
    at, data = reader.at, reader.data
    if at < len(data) and data[at] < 0x80:  # as nearly all
        reader.at = at + 1
        return data[at] - 1
    return reader.uvarint() - 1


def _sized(field: MessageField, flexible: bool, nullable: bool) -> Read:
    is_text = field.type != "bytes"
    fixed = _INT16 if is_text else _INT32
    name = field.name

    def read(reader: MessageReader) -> str | bytes | None:
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


def _array(field: MessageField, item: Read, flexible: bool, nullable: bool) -> Read:
    name, letter = field.name, NUMBERS.get(field.type[2:])

    def read(reader: MessageReader) -> list[Any] | None:
        n = _length(reader, _INT32, flexible)
        if n == -1 and nullable:
            return None
        # each item takes a byte at least
        left = len(reader.data) - reader.at
        if not 0 <= n <= left:
            raise MessageError(f"{name} claims {n} items in {left} bytes")
        # an item may take one byte there and hundreds here: items are counted before they are made
        reader.n_items += n
        if reader.n_items > MAX_ITEMS:
            raise MessageError(f"more than {MAX_ITEMS} items in arrays")
        if n and letter is not None:
            return [*reader.unpack(struct.Struct(f">{n}{letter}"))]
        return [item(reader) for _ in range(n)] if n else []

    return read
