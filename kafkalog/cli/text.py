"""Formats values as text for people: bytes, sizes, counts, times, tables. Nothing here reads or writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from unicodedata import combining, east_asian_width

from kafkalog.text import counted as counted
from kafkalog.text import human_bytes as human_bytes
from kafkalog.text import iso_milliseconds as iso_milliseconds
from kafkalog.text import iso_seconds as iso_seconds
from kafkalog.text import iso_times as iso_times

# the backslash must come first, or the backslashes of the other escapes would be escaped too
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BYTE_ESCAPES: Final = {
    byte: _ESCAPES.get(chr(byte), chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in range(256)
}
_FEW: Final = 40
"""Up to this many distinct characters, one `replace` for each is faster than `translate`."""
_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]*")
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]+")
_CONTROLS: Final = bytes([*range(9), *range(11, 32), 127])
_DOUBTFUL: Final = re.compile(r"[^\t\n -~]")
_CONTROL: Final = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
"""In UTF-8: the controls of ASCII and of Latin-1, separators of lines, and what changes the direction of text."""
_LEADS: Final = (b"\xc2", b"\xd8\x9c", b"\xe2\x80", b"\xe2\x81")


_IN_PYTHON: Final = re.compile(r"\b([a-z]\w*)(=\w*)? \((--?([\w-]+))\)| \((?:decode|topics)=[^()]*\)")


def in_shell(message: str) -> str:
    """A message with the shell's options alone, without the parameters of Python that it names, too.

    >>> in_shell("set format (--format), or add -p 0 (topics='t'); records are not decoded (--deep)")
    'set --format, or add -p 0; records are not decoded (--deep)'
    """

    def option(found: re.Match[str]) -> str:
        name, value, whole, word = found.groups()
        if name is None:
            return ""
        is_parameter = value is not None or "_" in name or name.rstrip("s") == word.rstrip("s") or whole == "-t"
        return whole if is_parameter else found[0]

    return _IN_PYTHON.sub(option, message)


def quote_bytes(value: bytes | None, limit: int | None = None) -> str:
    r"""Return bytes as a quoted string from which they can be restored; None is ``null``.

    Valid UTF-8 is shown as text, with backslash, quote and unprintable characters escaped (``\\``, ``\"``, ``\n``,
    ``\r``, ``\t``, else ``\xNN`` for each byte). In other bytes everything except printable ASCII is shown as ``\xNN``.
    Of more than `limit` bytes the first ones are shown, and the size.

    >>> print(quote_bytes("caf\u00e9\n".encode()), quote_bytes(b"\xff\x00a"), quote_bytes(b""), quote_bytes(None))
    "café\n" "\xff\x00a" "" null
    >>> quote_bytes(b"abcdef", limit=3)
    '"abc"... (6 bytes)'
    """
    if value is None:
        return "null"
    if limit is not None and len(value) > limit:
        return f"{quote_bytes(_cut(value, limit))}... ({len(value):,} bytes)"
    if _PLAIN.fullmatch(value):
        return f'"{value.decode("ascii")}"'
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return f'"{value.decode("latin-1").translate(_BYTE_ESCAPES)}"'
    for char, escaped in _ESCAPES.items():
        text = text.replace(char, escaped)
    return f'"{escape_line(text)}"'


def quote_name(name: str) -> str:
    """Return a header's name unchanged if it is one plain word, else quoted as `quote_bytes` does."""
    return name if _WORD.fullmatch(name) else quote_bytes(name.encode("utf-8", "replace"))


def escape_line(text: str) -> str:
    """Return text as one line with unprintable characters escaped, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    escapes = {char: _escape(char) for char in set(text) if not char.isprintable()}
    if len(escapes) > _FEW:
        return text.translate({ord(char): escaped for char, escaped in escapes.items()})
    for char, escaped in escapes.items():
        text = text.replace(char, escaped)
    return text


def escape_lines(text: str) -> str:
    r"""Return text of many lines with unprintable characters escaped, except for tabs and line ends.

    >>> escape_lines("caf\u00e9\t1\n\x1b[31m\x9b\u202e").encode()
    b'caf\xc3\xa9\t1\n\\x1b[31m\\xc2\\x9b\\xe2\\x80\\xae'
    """
    return _DOUBTFUL.sub(lambda found: found[0] if found[0].isprintable() else _escape(found[0]), text)


def escape_controls(text: bytes) -> bytes:
    r"""Return UTF-8 text of many lines with what a terminal obeys escaped, except for tabs and line ends.

    >>> escape_controls("caf\u00e9\n\x1b[31m\x9b".encode()).decode()
    'café\n\\x1b[31m\\xc2\\x9b'
    """
    # both tests are much faster than the search, and most records have no such character
    if len(text.translate(None, _CONTROLS)) == len(text) and not any(lead in text for lead in _LEADS):
        return text
    return _CONTROL.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in found[0]).encode(), text)


def _escape(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _cut(value: bytes, limit: int) -> bytes:
    """Return at most `limit` bytes, without a partial UTF-8 character at the end."""
    for back in range(min(4, limit)):
        if value[limit - back] & 0xC0 != 0x80:
            return value[: limit - back]
    return value[:limit]


_MOST_NAMES: Final = 20


def names_line(state: str, names: Sequence[str]) -> list[str]:
    """Return a line that lists the partitions in a state, for long reports; no line without any."""
    if not names:
        return []
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return [f"{state}: {', '.join(map(escape_line, names[:_MOST_NAMES]))}{more}"]


def table(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Format rows, the header first, as lines with aligned columns; `right` says which are right-aligned."""
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(_justified, row, widths, right)).rstrip() for row in rows]


def _justified(cell: str, width: int, to_right: bool) -> str:
    space = " " * (width - text_width(cell))
    return space + cell if to_right else cell + space


def text_width(text: str) -> int:
    """The columns of a terminal that a text takes: East Asian characters take two.

    >>> text_width("fig"), text_width("無花果")
    (3, 6)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 1 + (east_asian_width(one) in "FW") for one in text)


def duration(milliseconds: int) -> str:
    """Format a duration in its two largest units."""
    seconds, rest = divmod(milliseconds, 1000)
    units = [("d", seconds // 86400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    parts = [f"{n} {unit}" for unit, n in units if n]
    return " ".join(parts[:2]) if parts else f"{rest} ms"
