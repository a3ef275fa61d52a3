"""What was typed: paths, topics, times and conditions; and how a message shows a command line."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.interchange.file_types import FORMAT_NAMES, file_type
from kafkalog.text import DURATION, partition_word


def shown(argv: Iterable[str]) -> str:
    """Arguments as they are typed in a shell; in double quotes where single ones would need more of them.

    >>> print(shown(["cat", "--filter", "value matches 'a|b'", "orders 1"]))
    cat --filter "value matches 'a|b'" 'orders 1'
    """
    return " ".join(map(_in_shell, argv))


def _in_shell(word: str) -> str:
    if re.fullmatch(r"[\w./@%+=:,-]+/\*\.log", word):  # the shell lists the files
        return word
    return f'"{word}"' if "'" in word and not {*'"$`\\!'} & {*word} else shlex.quote(word)


def in_filter(value: str) -> str:
    """A value as a filter takes it: in quotes unless it is a plain word.

    >>> in_filter("key-1"), in_filter("a|b")
    ('key-1', '"a|b"')
    """
    if re.fullmatch(r"[A-Za-z_][\w.-]*|\d+", value) and value.lower() not in ("and", "or", "not", "null"):
        return value
    return f"'{value}'" if '"' in value and "'" not in value else f'"{value}"'


def put(text: str, place: str, value: str) -> str:
    """A text with a value in a place: as a shell takes it, and within quotes as a filter does.

    >>> print(put("--filter 'key == WORD' -n WORD", "WORD", "a b"))
    --filter 'key == "a b"' -n 'a b'
    """

    def filling(found: re.Match[str]) -> str:
        if found[0] == place:
            return shlex.quote(value)
        whole = re.sub(rf"([\"']?)\b{place}\b\1", lambda _: in_filter(value), found[0][1:-1])
        return shown([whole]) if whole != found[0][1:-1] else found[0]

    return re.sub(rf"'[^']*'|\"[^\"]*\"|(?<![\w./:=@-]){place}\b", filling, text).replace(place, value)


LINE: Final = "\0"
"""Stands in a text for a command line, which is shown in full if it works."""


class Advice(NamedTuple):
    """What to type instead of something that is unknown here."""

    text: str
    line: Sequence[str] = ()
    """The arguments of the command line that `LINE` in the text stands for, if they work."""
    otherwise: str = ""
    """What `LINE` stands for if they do not."""
    typed: Sequence[str] = ()
    """What was typed after the command, of which the message has all that counts."""
    lines: Sequence[str] = ()
    """What follows the message, on lines of its own."""

    def __bool__(self) -> bool:
        return bool(self.text)


def is_path(argument: str) -> bool:
    return "://" in argument or os.path.exists(argument)


def is_topic(word: str, paths: Sequence[str]) -> bool:
    """Whether a word is the name of a topic of one of the log dirs, or a glob that matches some."""
    if set(word) & set("*?["):
        from kafkalog.storage.listing import Listing

        return any(fnmatch.filter(Listing.or_empty(Path(path)).names, f"{word}-0") for path in paths)
    return any(os.path.exists(f"{path}/{word}-0") for path in paths)


def partition_named(word: str, paths: Sequence[str]) -> tuple[str, str] | None:
    """The topic and the number of a word such as ``orders-0``, ``orders:0`` or ``orders/0``, a partition of a log dir;
    None for another word.
    """
    found = partition_word(word)
    return found if found is not None and any(os.path.isdir(f"{path}/{'-'.join(found)}") for path in paths) else None


def is_table(word: str) -> bool:
    """Whether a word is the name of a file of records."""
    return not word.startswith("-") and file_type(word)[0] is not None


def is_query(word: str) -> bool:
    """Whether a word begins as a query in SQL does."""
    return re.match(r"(?i)\s*(?:select|with|from|describe|show|summarize)\s+\S", word) is not None


TOPICS: Final = ("-t", "--topic", "--topics")


def arguments(typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Positions and values of options that were typed, and the names of topics among the latter."""
    others: list[str] = []
    topics: list[str] = []
    for before, word in itertools.pairwise(["", *typed]):
        if word.startswith("-"):
            continue
        is_named = before in TOPICS and re.fullmatch(r"[\w.*-]+", word)
        (topics if is_named else others).append(word)
    return others, topics


def positions(typed: Sequence[str]) -> list[str]:
    """The words that are no options and no values of options."""
    return [word for before, word in itertools.pairwise(["", *typed]) if not {before[:1], word[:1]} & {"-"}]


def options(name: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (name, value)]


def with_unit(option: str, value: str) -> str:
    """A value with the unit that an option such as ``--days`` has in its name."""
    unit = re.search(r"-(day|hour)s$", option)
    return f"{value}{unit[1][0]}" if unit and value.isdecimal() else value


OPERATIONS: Final = ("in", "is", "like", "contains", "matches", "starts_with", "has", "between")
"""Words of conditions, those of `kafkalog.values.mixed_fields.TEXT_OPERATIONS` among them."""
CONDITION: Final = re.compile(rf"(?i)[=<>]|\s(?:{'|'.join(OPERATIONS)})\s")


FORMATS_OF_VALUES: Final = {
    "string": "utf8", "text": "utf8", "utf": "utf8", "json": "json", "avro": "avro", "protobuf": "protobuf",
    "long": "long", "int": "int", "short": "short", "float": "float", "double": "double", "uuid": "uuid",
}  # fmt: skip
_KINDS: Final = {
    **dict.fromkeys(("size", "bytes", "SIZE", "BYTES"), "size"),
    **dict.fromkeys(("beginning", "earliest", "start", "oldest"), "start"),
    **dict.fromkeys(("end", "latest", "newest"), "stop"),
    "all": "all",
    "wide": "wide",
    "yaml": "json",
}
"""What some words are as values."""


def kind_of(value: str) -> str:
    """What the value of an option is: a number, a duration (``1h``), a file, or else a time."""
    if value.isdecimal():
        return "number"
    if value in _KINDS:
        return _KINDS[value]
    if re.fullmatch(r"-\d+", value):
        return "from-end"
    if RANGE.fullmatch(value):
        return "range"
    if re.match(r"[se]@", value):  # kcat's times
        return "from-time" if value[0] == "s" else "to-time"
    if value.lower() in FORMAT_NAMES:
        return "json" if "json" in value.lower() else "table"
    if value in {*FORMATS_OF_VALUES, *FORMATS_OF_VALUES.values()}:
        return "format"
    if value.startswith("isolation.level"):
        return "isolation"
    if DURATION.fullmatch(value):
        return "duration"
    if CONDITION.search(value):
        return "condition"
    return "file" if re.search(r"/|\.(?!\d)", value) else "time"


RANGE: Final = re.compile(r"(\d+)(?:[:,-]|\.\.)(\d+)")
"""Two offsets, as for the option ``--offsets``."""
