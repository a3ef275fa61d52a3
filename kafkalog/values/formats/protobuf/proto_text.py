"""Parses `.proto` files (proto2, proto3 and editions), as far as they affect the bytes of values.

Services, extensions, reserved names and most options are skipped. Names are not resolved here.

Source: the Protobuf language specifications; Parser of protoc 35, which puts nested messages into the order used here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from kafkalog.values.types import SchemaError

MOST_TOKENS: Final = 400_000
MOST_DEPTH: Final = 32
"""Maximum nesting of messages in the text, as in protoc."""
MOST_NUMBER: Final = 2**29 - 1

_TOKEN: Final = re.compile(
    r"""(?:\s+|//[^\n]*|/\*.*?\*/)*
    (?:(?P<word>[A-Za-z_]\w*)
      |(?P<number>0[xX][0-9A-Fa-f]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
      |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<sign>[{}()\[\]<>=;,.:+/-])
      |(?P<end>\Z)
      |(?P<bad>.))""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@dataclass(slots=True, eq=False)
class FieldText:
    """A field declaration."""

    name: str
    number: int
    type: str
    """The name of its type; for a map, of the values' type."""
    label: str = ""
    """One of "", "optional", "required", "repeated"."""
    oneof: int = -1
    """The number of the oneof within the message; -1 if in none."""
    key: str = ""
    """The type of a map's keys; empty if the field is not a map."""
    is_group: bool = False
    options: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class EnumText:
    """An enum declaration."""

    name: str
    values: list[tuple[str, int]] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class MessageText:
    """A message declaration."""

    name: str
    fields: list[FieldText] = field(default_factory=list)
    nested: list[MessageText] = field(default_factory=list)
    """Nested messages in the order of protoc, including those of groups and map entries."""
    enums: list[EnumText] = field(default_factory=list)
    n_oneofs: int = 0
    is_hidden: bool = False
    """Whether it is the message of a group or of a map's entries, which Confluent's indexes for Java do not count."""
    options: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class FileText:
    """The declarations of a file."""

    syntax: str = "proto2"
    """"proto2", "proto3", or the name of an edition."""
    package: str = ""
    imports: list[str] = field(default_factory=list)
    messages: list[MessageText] = field(default_factory=list)
    enums: list[EnumText] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)


def parse_source(text: str) -> FileText:
    """Parse the text of a file.

    Raises
    ------
    SchemaError
        The text is not valid.
    """
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        for found in _TOKEN.finditer(text.removeprefix("\ufeff")):
            kind = found.lastgroup or "bad"
            if kind == "bad":
                raise self._error(f"{found[kind]!r} is not expected", found.start(kind))
            self._tokens.append((kind, found[kind], found.start(kind)))
            if kind == "end":
                break
            if len(self._tokens) > MOST_TOKENS:
                raise SchemaError(f"the schema has more than {MOST_TOKENS} words")
        self._at = 0

    def _error(self, what: str, position: int) -> SchemaError:
        return SchemaError(f"line {self._text.count(chr(10), 0, position) + 1} of the schema: {what}")

    def _unexpected(self, wanted: str) -> SchemaError:
        kind, text, position = self._tokens[self._at]
        return self._error(f"{wanted} is expected, not {'the end' if kind == 'end' else repr(text[:40])}", position)

    def _next(self) -> str:
        return self._tokens[self._at][1]

    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        kind, text, _ = self._tokens[self._at]
        if kind == "end":
            raise self._unexpected("more")
        self._at += 1
        return text

    def _accept(self, *texts: str) -> str:
        """Take the next word if it is one of these; else return an empty text."""
        kind, text, _ = self._tokens[self._at]
        if kind in ("word", "sign") and text in texts:
            self._at += 1
            return text
        return ""

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(repr(text))

    def _word(self) -> str:
        if self._kind() != "word":
            raise self._unexpected("a name")
        return self._take()

    def _name(self) -> str:
        """A name with dots."""
        name = "." if self._accept(".") else ""
        name += self._word()
        while self._accept("."):
            name += "." + self._word()
        return name

    def _string(self) -> str:
        if self._kind() != "text":
            raise self._unexpected("a text in quotes")
        text = ""
        while self._kind() == "text":
            text += self._take()[1:-1]
        return text

    def _integer(self, least: int, most: int) -> int:
        sign = -1 if self._accept("-") else 1
        # Python would take minutes for an integer of a million digits
        if self._kind() != "number" or len(self._next()) > 20:
            raise self._unexpected("a whole number")
        text = self._next()
        try:
            number = sign * int(text, 8 if text[0] == "0" and text.isdigit() else 0)
        except ValueError:
            raise self._unexpected("a whole number") from None
        if not least <= number <= most:
            raise self._unexpected(f"a number from {least} to {most}")
        self._at += 1
        return number

    def file(self) -> FileText:
        """The whole file."""
        found = FileText()
        if self._accept("syntax", "edition"):
            self._expect("=")
            found.syntax = self._string()
            self._expect(";")
        while self._kind() != "end":
            if self._accept(";"):
                continue
            word = self._word()
            if word == "import":
                if self._kind() == "word":
                    self._word()  # public, weak, option
                found.imports.append(self._string())
                self._expect(";")
            elif word == "package":
                found.package = self._name()
                self._expect(";")
            elif word == "option":
                self._option(found.options)
            elif word == "message":
                found.messages.append(self._message(self._word(), 1))
            elif word == "enum":
                found.enums.append(self._enum())
            elif word == "extend":
                self._extend(found.messages, 1)
            elif word == "service":
                self._word()
                self._skip_block()
            elif word in ("export", "local"):  # edition 2024
                continue
            else:
                self._at -= 1
                raise self._unexpected("message, enum or another declaration")
        return found

    def _message(self, name: str, depth: int) -> MessageText:
        found = MessageText(name)
        if depth > MOST_DEPTH:
            raise self._error(f"messages are nested more than {MOST_DEPTH} deep", self._tokens[self._at][2])
        self._expect("{")
        while not self._accept("}"):
            self._statement(found, depth)
        return found

    def _statement(self, found: MessageText, depth: int) -> None:
        if self._accept(";"):
            return
        follows = self._tokens[self._at + 1][1] if self._kind() == "word" else ""
        if follows not in (".", "="):
            # at the start of a statement this word is a keyword, even if a type has that name
            if self._accept("export", "local"):
                return
            if self._accept("message"):
                found.nested.append(self._message(self._word(), depth + 1))
                return
            if self._accept("enum"):
                found.enums.append(self._enum())
                return
            if self._accept("extend"):
                self._extend(found.nested, depth)
                return
            if self._accept("option"):
                self._option(found.options)
                return
            if self._accept("extensions", "reserved"):
                self._skip_statement()
                return
            if self._accept("oneof"):
                self._word()
                self._expect("{")
                number = found.n_oneofs
                found.n_oneofs += 1
                while not self._accept("}"):
                    if self._accept("option"):
                        self._option({})
                    elif not self._accept(";"):
                        self._field(found, depth, oneof=number)
                return
        self._field(found, depth)

    def _field(self, found: MessageText, depth: int, oneof: int = -1) -> None:
        label = ""
        if self._next() in ("optional", "required", "repeated"):
            label = self._take()
        if self._next() == "map" and self._tokens[self._at + 1][1] == "<":
            self._map(found)
            return
        if self._next() == "group" and self._tokens[self._at + 1][0] == "word":
            self._take()
            name = self._word()
            one = FieldText(name.lower(), self._number(), name, label, oneof, is_group=True)
            self._field_options(one)
            inner = self._message(name, depth + 1)
            inner.is_hidden = True
            found.nested.append(inner)
            found.fields.append(one)
            return
        kind = self._name()
        one = FieldText(self._word(), self._number(), kind, label, oneof)
        self._field_options(one)
        self._expect(";")
        found.fields.append(one)

    def _map(self, found: MessageText) -> None:
        self._take()
        self._expect("<")
        key = self._name()
        self._expect(",")
        value = self._name()
        self._expect(">")
        one = FieldText(self._word(), self._number(), value, "repeated", key=key)
        self._field_options(one)
        self._expect(";")
        found.nested.append(MessageText(entry_name(one.name), is_hidden=True))
        found.fields.append(one)

    def _number(self) -> int:
        self._expect("=")
        return self._integer(1, MOST_NUMBER)

    def _field_options(self, one: FieldText) -> None:
        if not self._accept("["):
            return
        while True:
            self._option_pair(one.options, (",", "]"))
            if self._accept("]"):
                return
            self._expect(",")

    def _option(self, options: dict[str, str]) -> None:
        self._option_pair(options, (";",))
        self._expect(";")

    def _option_pair(self, options: dict[str, str], stops: tuple[str, ...]) -> None:
        """Read an option: a name, perhaps with parts in parentheses, and a value. Only words and numbers are kept."""
        name = ""
        while not self._accept("="):
            name += self._take()
            if name[-1] in "{};":
                raise self._unexpected("the name of an option")
        value = self._next()
        if self._next() in ("{", "<"):
            self._skip_block()
            value = ""
        else:
            self._take()
        while self._next() not in stops:  # signs of numbers, and strings in several parts
            if self._kind() == "sign" and self._next() not in "+-.":
                raise self._unexpected(" or ".join(map(repr, stops)))
            value += self._take()
        options[name] = value

    def _enum(self) -> EnumText:
        found = EnumText(self._word())
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            follows = self._tokens[self._at + 1][1] if self._kind() == "word" else ""
            if follows != "=" and self._accept("option"):
                self._option(found.options)
                continue
            if follows != "=" and self._accept("reserved"):
                self._skip_statement()
                continue
            name = self._word()
            self._expect("=")
            found.values.append((name, self._integer(-(2**31), 2**31 - 1)))
            self._field_options(FieldText("", 0, ""))
            self._expect(";")
        return found

    def _extend(self, messages: list[MessageText], depth: int) -> None:
        """Skip extensions, which become unknown fields; a group among them still declares a message."""
        self._name()
        self._expect("{")
        inside = MessageText("")
        while not self._accept("}"):
            if not self._accept(";"):
                self._field(inside, depth)
        messages += inside.nested

    def _skip_statement(self) -> None:
        while not self._accept(";"):
            if self._next() == "{":
                self._skip_block()
            elif self._next() == "}":
                raise self._unexpected("';'")
            else:
                self._take()

    def _skip_block(self) -> None:
        """Skip a block in braces; blocks in < and > occur only in the text of options."""
        depth = 0
        while True:
            word = self._take() if self._kind() == "sign" else ""
            if not word:
                self._take()
            depth += (word in ("{", "<")) - (word in ("}", ">"))
            if depth <= 0:
                return


def entry_name(field_name: str) -> str:
    """The message name of a map's entries, as in protoc."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"
