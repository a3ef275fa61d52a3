"""Java's properties files: settings of brokers and topics, `meta.properties`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from kafkalog.storage.files import read_file, read_if_there

MAX_PROPERTIES_BYTES: Final = 4 * 2**20
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_UNPRINTABLE: Final = re.compile("[^ -~]+")
_PAIR: Final = re.compile(r"((?:\\.|[^\\:= \t\f])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)


def read_properties(path: str | os.PathLike[str]) -> dict[str, str] | None:
    """Read a file such as `meta.properties` as `parse_properties` does; None if it does not exist."""
    data = read_if_there(path, max_bytes=MAX_PROPERTIES_BYTES)
    return None if data is None else parse_properties(data)


def read_settings(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a file of settings, such as `server.properties`, as `parse_properties` does; ReadError without one."""
    return parse_properties(read_file(path, max_bytes=MAX_PROPERTIES_BYTES))


def parse_properties(data: bytes) -> dict[str, str]:
    """Return the pairs of a file in Java's properties format.

    Latin-1; `name=value`, `name: value` or `name value`; comments; a backslash at its end continues a line. Of several
    lines with one name, the last counts. Source: java.util.Properties.load.
    """
    lines = re.split(r"\r\n|\r|\n", data.decode("latin-1"))
    pairs: dict[str, str] = {}
    waiting = iter(lines)
    for line in waiting:
        text = line.lstrip(" \t\f")
        if not text or text[0] in "#!":
            continue
        while _continues(text):
            text = text[:-1] + next(waiting, "").lstrip(" \t\f")
        match = _PAIR.fullmatch(text)
        assert match is not None
        name, value = match[1], match[2]
        if "\\" in match[0]:
            name, value = _unescaped(name), _unescaped(value)
        pairs[name] = value
    return pairs


def encode_properties(properties: Mapping[str, object]) -> str:
    r"""Text in Java's properties format, a line each: backslashes are doubled, all but ASCII is ``\uXXXX``."""
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in properties.items())


def _escaped(text: str) -> str:
    escaped = _UNPRINTABLE.sub(_units, text.replace("\\", "\\\\"))
    # blanks before a value do not count
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _units(match: re.Match[str]) -> str:
    # Java's escapes are UTF-16 units
    units = memoryview(match[0].encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(f"\\u{unit:04X}" for unit in units)


def _continues(text: str) -> bool:
    # an even number of backslashes at the end are backslashes
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2]), text)
    # two escapes may be one character
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
