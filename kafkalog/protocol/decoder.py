"""Decode a message of Kafka's into a dict of its fields.

A decoder is built once for a message and version. Every length is compared with the bytes that are left before it is
used, and the items of all arrays of a message are counted: an empty one takes a byte there and hundreds here. Mirrors
the classes that Kafka's `MessageDataGenerator` makes, and `ByteBufferAccessor`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import groupby, repeat
from typing import Any, Final, NamedTuple

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
        number = 0
        for shift, byte in zip(_SHIFTS, self.data[self.at : self.at + len(_SHIFTS)], strict=False):
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at += shift // 7 + 1
                return number & 0xFFFFFFFF
        if self.rest() < len(_SHIFTS):
            raise MessageError(f"ends early, in a number at {self.at} of {len(self.data)}")
        raise MessageError(f"an overlong number at {self.at}")

    def length(self, layout: struct.Struct | None, least: int) -> int:
        """Read the length in front of a string, bytes or an array: a number, or a varint above `least`."""
        if layout is None:
            return self.uvarint() + least
        n: int = self.unpack(layout)[0]
        return n

    def rest(self) -> int:
        """Bytes that are left."""
        return len(self.data) - self.at


_SHIFTS: Final = range(0, 35, 7)
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


# how a field is read, or several numbers that follow each other
_NUMBERS, _VALUE, _CONTENT, _ARRAY, _TAGS = range(5)


class _FieldReader(NamedTuple):
    kind: int
    names: Any
    """The name of the field; a tuple of them for numbers."""
    part: Any
    """The layout of numbers; the reader of a value; what turns bytes into content; or the reader of some items."""
    layout: struct.Struct | None = None
    """Of a length in front; None for a varint."""
    least: int = -1
    """What a varint of 0 stands for: a length of -1, which is null."""
    nullable: bool = False


def _struct(fields: tuple[MessageField, ...], version: int, flexible: bool) -> Read:
    """A reader of the fields of a struct, in their order; tagged ones follow them."""
    steps = [
        _step(run[0], version, flexible)
        if layout is None
        else _FieldReader(_NUMBERS, tuple(field.name for field in run), layout)
        for run, layout in number_runs(fields, version)
    ]
    if flexible:
        tagged = {
            field.tag: (field.name, _reader([_step(field, version, flexible)], {}))
            for field in fields
            if version in field.tagged
        }
        steps.append(_FieldReader(_TAGS, "the tag section", partial(_read_tagged, tagged), least=0))
    # fields that this version lacks, and tagged ones that are absent, keep their defaults
    return _reader(steps, {field.name: field.default for field in fields})


def _reader(steps: Sequence[_FieldReader], defaults: dict[str, Any]) -> Read:
    """A reader of these fields: one loop, since a call for each would take longer than all else."""

    def read(reader: MessageReader) -> dict[str, Any]:
        values, data, at = defaults.copy(), reader.data, reader.at
        names: Any = ""
        try:
            for kind, names, part, layout, least, nullable in steps:
                if kind == _NUMBERS:
                    values.update(zip(names, part.unpack_from(data, at), strict=True))
                    at += part.size
                    continue
                if kind == _VALUE:
                    reader.at = at
                    values[names], at = part(reader), reader.at
                    continue
                # the others begin with a length, nearly always a varint of one byte
                if layout is None and data[at] < 0x80:
                    n, at = data[at] + least, at + 1
                else:
                    reader.at = at
                    n, at = reader.length(layout, least), reader.at
                if n == -1 and nullable:
                    values[names] = None
                elif not 0 <= n <= len(data) - at:
                    raise _wrong_length(kind, names, n, at, len(data))
                elif kind == _CONTENT:
                    values[names] = part(data[at : at + n])
                    at += n
                elif n:
                    reader.at = at
                    values |= part(reader, names, n)
                    at = reader.at
                elif kind == _ARRAY:
                    values[names] = []
        except UnicodeDecodeError as error:
            raise MessageError(f"{names} is not UTF-8: {error.reason}") from None
        except (struct.error, IndexError):
            raise MessageError(f"ends early, at {at} of {len(data)}") from None
        reader.at = at
        return values

    return read


def _wrong_length(kind: int, name: str, n: int, at: int, end: int) -> MessageError:
    if kind != _CONTENT:  # each item takes a byte at least
        return MessageError(f"{name} claims {n} items in {end - at} bytes")
    if n < 0:
        return MessageError(f"{name} has a length of {n}")
    return MessageError(f"ends early: {n} bytes wanted at {at} of {end}")


def _read_tagged(tagged: Mapping[int, tuple[str, Read]], reader: MessageReader, _name: str, n: int) -> dict[str, Any]:
    """Read the tagged fields after a struct, `n` of them."""
    values: dict[str, Any] = {}
    for _ in range(n):
        tag = reader.uvarint()
        content = MessageReader(reader.take(reader.uvarint()), 0, reader.n_items)
        # a tag that the definitions lack comes from a newer Kafka: tagged fields are made to be passed over
        if tag in tagged:
            name, read = tagged[tag]
            values |= read(content)
            if content.rest():
                raise MessageError(f"{content.rest()} bytes after the end of {name}")
            reader.n_items = content.n_items
    return values


def _layout(*types: str) -> struct.Struct:
    return struct.Struct(">" + "".join(map(NUMBERS.__getitem__, types)))


def _step(field: MessageField, version: int, flexible: bool) -> _FieldReader:
    """How a field is read that may be null in some versions."""
    nullable = version in field.nullable
    if field.type.startswith("[]"):
        items = _items(field, version, flexible)
        return _FieldReader(_ARRAY, field.name, items, None if flexible else _INT32, nullable=nullable)
    if field.type in ("string", "bytes"):
        return _content(field, flexible, nullable)
    read = _item(field, field.type, version, flexible)
    if field.type != "struct" or not nullable:
        return _FieldReader(_VALUE, field.name, read)
    # what is in front of it says whether it is null
    if version in field.tagged:
        return _FieldReader(_VALUE, field.name, lambda reader: read(reader) if reader.uvarint() else None)
    return _FieldReader(_VALUE, field.name, lambda reader: None if reader.unpack(_INT8)[0] < 0 else read(reader))


def _content(field: MessageField, flexible: bool, nullable: bool) -> _FieldReader:
    """How a string or bytes are read, with the length in front."""
    part, fixed = (bytes, _INT32) if field.type == "bytes" else (bytes.decode, _INT16)
    return _FieldReader(_CONTENT, field.name, part, None if flexible else fixed, nullable=nullable)


def _item(field: MessageField, kind: str, version: int, flexible: bool) -> Read:
    if kind in NUMBERS:
        layout = _layout(kind)
        return lambda reader: reader.unpack(layout)[0]
    if kind == "uuid":
        return _uuid
    if kind == "struct":
        return _struct(field.fields, version, flexible)
    text = _reader([_content(field, flexible, nullable=False)], {})
    return lambda reader: text(reader)[field.name]


def _uuid(reader: MessageReader) -> str:
    start, stop, end = reader.at, reader.at + 16, len(reader.data)
    if stop > end:
        raise MessageError(f"ends early: 16 bytes wanted at {start} of {end}")
    reader.at = stop
    return base64.urlsafe_b64encode(reader.data[start:stop]).decode().rstrip("=")


def _items(field: MessageField, version: int, flexible: bool) -> Callable[[MessageReader, str, int], dict[str, Any]]:
    """A reader of the items of an array."""
    kind = field.type[2:]
    letter, item = NUMBERS.get(kind), _item(field, kind, version, flexible)
    size = struct.calcsize(f">{letter or ''}")

    def read(reader: MessageReader, name: str, n: int) -> dict[str, Any]:
        # an item may take one byte there and hundreds here: items are counted before they are made
        reader.n_items += n
        if reader.n_items > MAX_ITEMS:
            raise MessageError(f"more than {MAX_ITEMS} items in arrays")
        if letter is None:
            return {name: [*map(item, repeat(reader, n))]}
        numbers = struct.unpack_from(f">{n}{letter}", reader.data, reader.at)
        reader.at += n * size
        return {name: [*numbers]}

    return read
