"""The definitions of the messages in Kafka's internal topics and control records.

`definitions.json` holds them as Kafka 4.3.1 publishes them (`*.json` next to its coordinators' and controllers' code),
without their texts. They also describe every older version of these messages.

`preview.json` holds those of 2.8.2's metadata topic. The preview of KRaft in 2.8 gave the same numbers to records with
other fields. Here their names begin with `Preview`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_DATA: Final = Path(__file__).with_name("definitions.json")
_PREVIEW_DATA: Final = Path(__file__).with_name("preview.json")
PREVIEW: Final = "Preview"
"""What the names of 2.8's messages begin with."""

_LAST: Final = 32767


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included; empty if `first` is greater than `last`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """Parse Kafka's notation: ``3``, ``0-4``, ``2+`` or ``none``."""
        if text is None or text == "none":
            return cls(0, -1)
        first, dash, last = text.partition("-")
        if text.endswith("+"):
            return cls(int(text[:-1]), _LAST)
        return cls(int(first), int(last) if dash else int(first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of a message."""

    name: str
    """As in Kafka's JSON: camel case, the first letter small."""
    type: str
    """``int32``, ``string``, ``struct`` and so on; ``[]`` in front makes an array of it."""
    versions: Versions
    nullable: Versions
    tagged: Versions
    """Versions of the message that have this field; in which it may be null; in which it is a tagged field."""
    tag: int
    """Number of a tagged field; -1 for others."""
    default: Any
    """Value in versions without the field, and of a tagged field that is absent."""
    fields: tuple[MessageField, ...]
    """Of a struct."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message."""

    name: str
    kind: str
    """One of 'coordinator-key', 'coordinator-value', 'metadata', 'data'."""
    topic: str | None
    """The internal topic that it is in."""
    key: int | None
    """The type of record that it belongs to (`apiKey`), unique in its topic."""
    versions: Versions
    flexible: Versions
    """Versions that are known; those with compact lengths and tagged fields."""
    fields: tuple[MessageField, ...]


@cache
def messages() -> dict[str, Message]:
    """All messages by name."""
    found = json.loads(_DATA.read_text())
    found |= {PREVIEW + name: source for name, source in json.loads(_PREVIEW_DATA.read_text()).items()}
    return {name: _message(name, source) for name, source in found.items()}


def _message(name: str, source: dict[str, Any]) -> Message:
    return Message(
        name,
        source["kind"],
        source.get("topic"),
        source.get("key"),
        Versions.parse(source["versions"]),
        Versions.parse(source["flexible"]),
        tuple(map(_field, source["fields"])),
    )


def _field(source: dict[str, Any]) -> MessageField:
    fields = tuple(map(_field, source.get("fields", ())))
    nullable = Versions.parse(source.get("nullable"))
    default = _default(source, fields)
    tag = source.get("tag", -1)
    versions, tagged = Versions.parse(source["versions"]), Versions.parse(source.get("tagged"))
    return MessageField(source["name"], source["type"], versions, nullable, tagged, tag, default, fields)


def _default(source: dict[str, Any], fields: tuple[MessageField, ...]) -> Any:
    """The default as Kafka's generator makes it: what the definition says, else zero, an empty string and so on."""
    kind, given = source["type"], source.get("default", "")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return ()  # shared by all messages, so it must not be one that can change
    if kind == "struct":
        return MappingProxyType({field.name: field.default for field in fields})
    if kind == "bool":
        return given in (True, "true")
    if kind == "string":
        return given
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return _ZERO_UUID
    if kind == "float64":
        return float(given or 0)
    return int(str(given or 0), 0)


_ZERO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
