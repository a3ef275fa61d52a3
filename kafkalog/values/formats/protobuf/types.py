"""Protobuf types: combines files, resolves names, and rejects schemas that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalog.values.formats.protobuf.descriptors import parse_descriptor
from kafkalog.values.formats.protobuf.proto_text import (
    EnumText,
    FieldText,
    FileText,
    MessageText,
    parse_source,
)
from kafkalog.values.formats.protobuf.well_known import WELL_KNOWN
from kafkalog.values.types import SchemaError

SCALARS: Final = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
_KEYS: Final = frozenset(SCALARS) - {"double", "float", "bytes"}
_MOST_FILES: Final = 300
_MOST_TYPES: Final = 20_000


@dataclass(slots=True, eq=False)
class ProtoEnum:
    """An enum."""

    name: str
    names: dict[int, str] = field(default_factory=dict)
    """Name by number; the first of several names."""
    is_closed: bool = False
    """Whether other numbers are unknown fields, as in proto2."""


@dataclass(slots=True, eq=False)
class ProtoField:
    """A field of a message."""

    name: str
    number: int
    scalar: str = ""
    """One of `SCALARS`; empty if the type is a message or an enum."""
    message: ProtoMessage | None = None
    enum: ProtoEnum | None = None
    is_repeated: bool = False
    has_presence: bool = False
    """Whether a missing field differs from one with the default value."""
    oneof: int = -1
    """Number of the oneof in the message; -1 if in none."""
    is_group: bool = False
    missing: str = ""
    """The name of an undefined type; an error only if the field is selected."""


@dataclass(slots=True, eq=False)
class ProtoMessage:
    """A message. A recursive one is its own descendant."""

    name: str
    fields: list[ProtoField] = field(default_factory=list)
    """Fields in the order of declaration."""
    nested: list[ProtoMessage] = field(default_factory=list)
    """Nested messages in the order of protoc."""
    n_oneofs: int = 0
    is_entry: bool = False
    """Whether it is an entry of a map: a field `key` and a field `value`."""
    is_hidden: bool = False
    """See `MessageText`."""


@dataclass(slots=True)
class _Features:
    """The defaults of an edition or syntax, unless options override them."""

    presence: str
    enums: str
    encoding: str = "LENGTH_PREFIXED"

    def under(self, options: Mapping[str, str]) -> _Features:
        return _Features(
            options.get("features.field_presence", self.presence),
            options.get("features.enum_type", self.enums),
            options.get("features.message_encoding", self.encoding),
        )


def _features(syntax: str) -> _Features:
    if syntax == "proto2":
        return _Features("EXPLICIT", "CLOSED")
    return _Features("IMPLICIT" if syntax == "proto3" else "EXPLICIT", "OPEN")


class ProtoSchema:
    """A file with all its imports.

    Parameters
    ----------
    text : str
        The source of a `.proto` file, or a `FileDescriptorProto` in base64.
    find : callable, optional
        Returns the text of an imported file by name, or None.

    Attributes
    ----------
    messages : list of ProtoMessage
        Top-level messages of the file itself.

    Raises
    ------
    SchemaError
        The schema is invalid.
    """

    def __init__(self, text: str, find: Callable[[str], str | None] | None = None) -> None:
        self._types: dict[str, ProtoMessage | ProtoEnum] = {}
        self._left: list[tuple[MessageText, ProtoMessage, str, _Features]] = []
        self.messages: list[ProtoMessage] = []
        self._load(text, find)
        for declared, message, scope, features in self._left:
            self._fill(declared, message, scope, features)

    def _load(self, text: str, find: Callable[[str], str | None] | None) -> None:
        main = parse_file(text)
        self._declare(main, self.messages)
        seen: set[str] = set()
        left = list(main.imports)
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if len(seen) > _MOST_FILES:
                raise SchemaError(f"the schema imports more than {_MOST_FILES} files")
            # the registry's own text first: it may be of another version
            other = (find(name) if find is not None else None) or WELL_KNOWN.get(name)
            if other is not None:  # without it, its types are missing, which matters only if they are used
                parsed = parse_file(other)
                self._declare(parsed, [])
                left += parsed.imports

    def _declare(self, file: FileText, messages: list[ProtoMessage]) -> None:
        features = _features(file.syntax).under(file.options)
        for one in file.enums:
            self._declare_enum(one, file.package, features)
        messages += [self._declare_message(one, file.package, features) for one in file.messages]

    def _add(self, full: str, one: ProtoMessage | ProtoEnum) -> None:
        if full in self._types:
            raise SchemaError(f"{full} is defined twice")
        if len(self._types) >= _MOST_TYPES:
            raise SchemaError(f"the schema has more than {_MOST_TYPES} types")
        self._types[full] = one

    def _declare_enum(self, declared: EnumText, scope: str, features: _Features) -> None:
        features = features.under(declared.options)
        one = ProtoEnum(_join(scope, declared.name), is_closed=features.enums == "CLOSED")
        for name, number in declared.values:
            one.names.setdefault(number, name)
        if not one.names:
            raise SchemaError(f"the enum {one.name} has no value")
        self._add(one.name, one)

    def _declare_message(self, declared: MessageText, scope: str, features: _Features) -> ProtoMessage:
        full = _join(scope, declared.name)
        features = features.under(declared.options)
        one = ProtoMessage(full, n_oneofs=declared.n_oneofs, is_hidden=declared.is_hidden)
        self._add(full, one)
        for enum in declared.enums:
            self._declare_enum(enum, full, features)
        one.nested = [self._declare_message(inner, full, features) for inner in declared.nested]
        one.is_entry = declared.options.get("map_entry") == "true"
        self._left.append((declared, one, full, features))
        return one

    def _fill(self, declared: MessageText, message: ProtoMessage, scope: str, features: _Features) -> None:
        for one in declared.fields:
            message.fields.append(self._field(one, scope, features.under(one.options)))
        if message.is_entry:
            _open_enums(message)
        for what in ({one.name for one in message.fields}, {one.number for one in message.fields}):
            if len(what) < len(message.fields):
                raise SchemaError(f"{message.name} has a field twice")

    def _field(self, declared: FieldText, scope: str, features: _Features) -> ProtoField:
        one = ProtoField(declared.name, declared.number, oneof=declared.oneof, is_group=declared.is_group)
        one.is_repeated = declared.label == "repeated"
        self._set_type(one, declared.type, scope)
        if declared.key:
            if declared.key not in _KEYS:
                raise SchemaError(f"{scope}.{declared.name} is a map with keys of type {declared.key}")
            one.has_presence = one.message is not None
            # on the wire a map is a repeated message of key and value
            entry = ProtoMessage(f"{scope}.{declared.name}", is_entry=True)
            entry.fields = [ProtoField("key", 1, declared.key), one]
            one.name, one.number, one.is_repeated = "value", 2, False
            _open_enums(entry)
            return ProtoField(declared.name, declared.number, message=entry, is_repeated=True)
        if not one.is_repeated:
            is_explicit = bool(declared.label) or declared.oneof >= 0 or features.presence != "IMPLICIT"
            one.has_presence = one.message is not None or is_explicit
        if one.message is not None and features.encoding == "DELIMITED" and not one.message.is_entry:
            one.is_group = True
        return one

    def _set_type(self, one: ProtoField, name: str, scope: str) -> None:
        if name in SCALARS:
            one.scalar = name
            return
        found = self._types.get(name[1:]) if name.startswith(".") else None
        while found is None and not name.startswith("."):
            # look up names from the inside out, as protoc
            found = self._types.get(_join(scope, name))
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        if found is None:
            one.missing = name
        elif isinstance(found, ProtoEnum):
            one.enum = found
        else:
            one.message = found

    def message_at(self, indexes: Sequence[int]) -> ProtoMessage:
        """The message that Confluent's message indexes select.

        Notes
        -----
        Java clients do not count groups and map entries; Python clients do. Indexes that are impossible in Java's count
        are read in Python's. A record is never a group or a map entry.

        Source: ProtobufSchema.toMessageName, Confluent Schema Registry 8.1.

        Raises
        ------
        SchemaError
            There is none.
        """
        for with_hidden in (False, True):
            messages, found = self.messages, None
            for index in indexes:
                counted = [one for one in messages if with_hidden or not one.is_hidden]
                found = counted[index] if index < len(counted) else None
                if found is None:
                    break
                messages = found.nested
            if found is not None and not found.is_hidden:
                return found
        raise SchemaError(f"it has no message at the indexes {', '.join(map(str, indexes))}")

    def message_named(self, name: str) -> ProtoMessage:
        """The message with a full name, or a name within the file's package.

        Raises
        ------
        SchemaError
            There is none.
        """
        found = self._types.get(name)
        if not isinstance(found, ProtoMessage):
            found = next((one for one in self.messages if one.name.rpartition(".")[2] == name), None)
        if found is None:
            known = ", ".join(one.name for one in self.messages[:20])
            raise SchemaError(f"it has no message {name!r}; there are {known}")
        return found


def _open_enums(entry: ProtoMessage) -> None:
    """Keep unknown enum numbers in map entries; otherwise a key would have no value."""
    for one in entry.fields:
        if one.enum is not None and one.enum.is_closed:
            one.enum = ProtoEnum(one.enum.name, one.enum.names)


def parse_file(text: str) -> FileText:
    """Parse a file from source text, or from a `FileDescriptorProto` in base64, which some clients register."""
    return parse_descriptor(text) or parse_source(text)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
