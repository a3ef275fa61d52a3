"""Encode a message of Kafka's from a dict of its fields: the reverse of `decoder`.

A writer is built once for a message and version. Mirrors the classes that Kafka's `MessageDataGenerator` makes, and
`ByteBufferAccessor`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

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


class _Varints(dict[int, bytes]):
    """The varints of one byte are kept, and others made."""

    def __missing__(self, number: int) -> bytes:
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes([*out, number])


_VARINTS: Final = _Varints({number: bytes([number]) for number in range(0x80)})


def uvarint(number: int) -> bytes:
    """Encode a number of at least 0 in 7 bits a byte, the lowest first, as Protobuf does as well."""
    return _VARINTS[number]


# how a field is written, or several numbers that follow each other
_NUMBERS, _VALUE, _CONTENT, _ARRAY, _NUMBER_ARRAY = range(5)


class _FieldWriter(NamedTuple):
    kind: int
    names: Any
    """The name of the field; a list of them for numbers."""
    part: Any
    """The layout of numbers, the letter of those in an array, or what turns a value into bytes; None for bytes."""
    layout: struct.Struct | None = None
    """Of a length in front; None for a varint."""
    nullable: bool = False


def _struct(fields: tuple[MessageField, ...], version: int, flexible: bool) -> Write:
    """A writer of the fields of a struct, in their order; tagged ones follow them."""
    defaults = {field.name: field.default for field in fields}
    steps = [
        _step(run[0], version, flexible)
        if layout is None
        else _FieldWriter(_NUMBERS, [field.name for field in run], layout)
        for run, layout in number_runs(fields, version)
    ]
    tagged = sorted(
        (field.tag, field.name, _step(field, version, flexible)) for field in fields if version in field.tagged
    )

    def write(given: Mapping[str, Any]) -> bytes:
        if not given.keys() <= defaults.keys():
            raise ValueError(f"no field {min(given.keys() - defaults.keys())!r}")
        values = {**defaults, **given}
        out = _written(steps, values)
        n_tagged, contents = 0, bytearray()
        for tag, name, step in tagged:
            if values[name] != defaults[name]:
                content = _written([step], values)
                n_tagged, contents = n_tagged + 1, contents + _VARINTS[tag] + _VARINTS[len(content)] + content
        return bytes(out + _VARINTS[n_tagged] + contents if flexible else out)

    return write


def _written(steps: Sequence[_FieldWriter], values: Mapping[str, Any]) -> bytearray:
    """The bytes of these fields: one loop, since a call for each would take longer than all else."""
    out = bytearray()
    for kind, names, part, layout, nullable in steps:
        if kind == _NUMBERS:
            numbers = [*map(values.__getitem__, names)]
            if None in numbers:
                raise _no_null(names[numbers.index(None)])
            out += part.pack(*numbers)
            continue
        value = values[names]
        if value is None and not nullable:
            raise _no_null(names)
        if kind == _VALUE:
            out += part(value)
            continue
        content = value or b""
        if content and kind == _NUMBER_ARRAY:
            content = struct.pack(f">{len(value)}{part}", *value)
        elif content and part is not None:
            content = part(value)
        n = -1 if value is None else len(content if kind == _CONTENT else value)
        out += _VARINTS[n + 1] if layout is None else layout.pack(n)
        out += content
    return out


def _step(field: MessageField, version: int, flexible: bool) -> _FieldWriter:
    """How a field is written that may be null in some versions."""
    nullable = version in field.nullable
    if field.type.startswith("[]"):
        kind, part = _items(field, version, flexible)
        return _FieldWriter(kind, field.name, part, None if flexible else _INT32, nullable)
    if field.type in ("string", "bytes"):
        return _content(field, flexible, nullable)
    item = _item(field, field.type, version, flexible)
    if field.type != "struct" or not nullable:
        return _FieldWriter(_VALUE, field.name, item)
    # what is in front of it says whether it is null
    absent, head = (_VARINTS[0], _VARINTS[1]) if version in field.tagged else (b"\xff", b"\x01")
    return _FieldWriter(
        _VALUE, field.name, lambda value: absent if value is None else head + item(value), nullable=True
    )


def _no_null(name: str) -> ValueError:
    return ValueError(f"{name} may not be null")


def _content(field: MessageField, flexible: bool, nullable: bool) -> _FieldWriter:
    """How a string or bytes are written, with the length in front."""
    part, fixed = (None, _INT32) if field.type == "bytes" else (str.encode, _INT16)
    return _FieldWriter(_CONTENT, field.name, part, None if flexible else fixed, nullable)


def _item(field: MessageField, kind: str, version: int, flexible: bool) -> Write:
    if kind in NUMBERS:
        return struct.Struct(">" + NUMBERS[kind]).pack
    if kind == "uuid":
        return lambda value: base64.urlsafe_b64decode(value + "==")
    if kind == "struct":
        return _struct(field.fields, version, flexible)
    text = [_content(field, flexible, nullable=False)]
    return lambda value: bytes(_written(text, {field.name: value}))


def _items(field: MessageField, version: int, flexible: bool) -> tuple[int, str | Write]:
    """The kind of an array, and the letter of its numbers, or a writer of its items."""
    kind = field.type[2:]
    if kind in NUMBERS:
        return _NUMBER_ARRAY, NUMBERS[kind]
    item = _item(field, kind, version, flexible)
    return _ARRAY, lambda items: b"".join(map(item, items))


Write = Callable[[Any], bytes]
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
