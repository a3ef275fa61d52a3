"""Text for people: numbers of things, as ``1 partition``, ranges, as ``0..10``, times, and the word that was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import EnumType, IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MILLISECONDS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
"""The units of time spans."""
DURATION: Final = re.compile(rf"(\d{{1,15}})({'|'.join(MILLISECONDS)})")
"""A time span as people write it: a number and its unit."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NO_PARTITION_MATCHES: Final = "no partition matches; kafkalog ls lists them"


def near(word: str, words: Iterable[str], least: float = 0.75) -> str | None:
    """The most similar of some words; None if none is similar enough: below `least`, suggestions mislead.

    Two letters that changed places are similar enough in a word of any length.

    >>> near("Ofset", ["key", "offset"]), near("lag", ["salvage", "offset"]), near("cta", ["boot", "cat"])
    ('offset', None, 'cat')
    """
    import difflib

    if len(word) > _LONGEST:
        return None
    # upper case is a common slip, so it does not count against a word
    by_case = {one.lower(): one for one in words}
    word = word.lower()
    found = difflib.get_close_matches(word, by_case, 1, least)
    swapped = (f"{word[:at]}{word[at : at + 2][::-1]}{word[at + 2 :]}" for at in range(len(word) - 1))
    return next((by_case[one] for one in (word, *swapped, *found) if one in by_case), None)


_LONGEST: Final = 300
"""Letters of what may be a slip for another word: comparing takes the square of them."""


def near_name(name: str, names: Iterable[str]) -> str | None:
    """The most similar of some names of several words, each of which is that in its place, mistyped; None if none is.

    A word that is another, missing or too many may change what is meant.

    >>> near_name("start-ofset", ["start-offset"]), near_name("startoffset", ["start-offset"])
    ('start-offset', 'start-offset')
    >>> near_name("min-timestamp", ["end-timestamp"]), near_name("schema-id", ["schema"]), near_name("fail", ["tail"])
    (None, None, None)
    """
    words = _words(name)

    def is_alike(other: str) -> bool:
        parts = _words(other)
        if "".join(parts) == "".join(words):
            return True
        return len(parts) == len(words) and all(map(is_slip, words, parts))

    return near(name, filter(is_alike, names))


def _words(name: str) -> list[str]:
    return re.split(r"[-_]", name.lower())


def is_slip(word: str, meant: str) -> bool:
    """Whether a word is another one, mistyped: it begins as that, and one letter is wrong, or two in long words.

    In short words, one letter in place of another makes a word of its own, such as seek of seed.

    >>> is_slip("oder", "order"), is_slip("seek", "seed"), is_slip("decompress", "compression")
    (True, False, False)
    """
    if word[:1] != meant[:1] and word[1::-1] != meant[:2]:
        return False
    replaced = 2 if len(word) <= _SHORT else 1
    before: list[int] = []
    row = [*range(len(meant) + 1)]
    for at, letter in enumerate(word):
        older, before, row = before, row, [at + 1]
        for to, other in enumerate(meant):
            cost = min(before[to] + (letter != other) * replaced, before[to + 1] + 1, row[to] + 1)
            if at and to and letter == meant[to - 1] and word[at - 1] == other:
                cost = min(cost, older[to - 1] + 1)
            row.append(cost)
    return bool(row[-1] <= 1 + (len(word) >= _LONG))


_SHORT: Final = 5
_LONG: Final = 8


def missing_in_module(module: str, names: Sequence[str], name: str) -> NoReturn:
    """Raise AttributeError for a name that a public module does not have, with the one that is meant, or all."""
    message = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_"):
        close = near_name(name, names) or near(name, names)
        message += f"; did you mean {close}?" if close else f"; there are {', '.join(_with_first(name, names))}"
    raise AttributeError(message, name=name, obj=None)


def _with_first(word: object, names: Iterable[str]) -> list[str]:
    """Names, those that have a word in them first."""
    return sorted(names, key=lambda one: str(word).lower() not in one.lower())


class _Members(EnumType):
    """The class of enums whose errors about a name that is not there name those that are."""

    def __getattr__(cls, name: str) -> Any:
        """Return a member; raise AttributeError that names the one that is meant, or all."""
        member = cls._member_map_.get(name) if not name.startswith("_") else None
        if member is None:
            message = f"type object {cls.__name__!r} has no attribute {name!r}"
            raise AttributeError(f"{message}{'' if name[:1] == '_' else cls._meant(name)}", name=name, obj=None)
        return member

    def __getitem__(cls: type[Any], name: str) -> Any:
        """Return a member; raise KeyError that names the one that is meant, or all."""
        if name not in cls._member_map_:
            raise KeyError(f"{cls.__name__} has no {name!r}{cls._meant(name)}")
        return cls._member_map_[name]

    def _meant(cls, word: object) -> str:
        names = [*cls._member_map_]
        close = near(str(word), names)
        values = [one for one in names if getattr(cls._member_map_[one], "value", None) == word]
        found = values[0] if values else close
        there = f"; there are {first_names(_with_first(word, names), _NAMES)}"
        return f"; did you mean {cls.__name__}.{found}?" if found else there


_NAMES: Final = 24
"""Names of an enum that an error lists at most."""


def _no_member(cls: Any, value: object) -> None:
    raise ValueError(f"{value!r} is no value of {cls.__name__}{cls._meant(value)}")


class LeadingInt(IntEnum, metaclass=_Members):
    """Numbers with names, whose errors lead to those that there are."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        _no_member(cls, value)


class LeadingText(StrEnum, metaclass=_Members):
    """Texts with names, whose errors lead to those that there are."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        _no_member(cls, value)


def partition_word(word: str) -> tuple[str, str] | None:
    """The topic and the number in a word such as ``orders-0``, ``orders:0``, ``orders/0`` or ``orders#0``.

    >>> partition_word("orders:0"), partition_word("orders")
    (('orders', '0'), None)
    """
    found = re.fullmatch(r"(.+)[-:/#](\d+)", word)
    return None if found is None else (found[1], found[2])


def counted(n: int, name: str, plural: str | None = None) -> str:
    """Format a number of things.

    >>> counted(1, "finding"), counted(2000, "batch"), counted(0, "directory", "directories")
    ('1 finding', '2,000 batches', '0 directories')
    """
    if n != 1:
        name = plural or f"{name}{'es' if name.endswith('tch') else 's'}"
    return f"{n:,} {name}"


def first_names(names: Sequence[object], most: int = 8) -> str:
    """The first of some names, and how many more there are.

    >>> first_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(map(str, names[:most]))}{more}"


def offset_range(start: object, end: object) -> str:
    """Format a range of offsets or other numbers without its end; a question mark stands for an unknown bound.

    >>> offset_range(0, 10), offset_range(5, None)
    ('0..10', '5..?')
    """
    return f"{'?' if start is None else start}..{'?' if end is None else end}"


def number_ranges(numbers: Sequence[int], most: int = 8) -> str:
    """Rising numbers, with runs of them as ranges.

    >>> number_ranges([0, 1, 2, 5, 7, 8]), number_ranges([1, 3, 5], 2)
    ('0 to 2, 5, 7 to 8', '1, 3 and 1 more')
    """
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    return first_names(texts, most)


def iso_seconds(timestamp: int | None) -> str:
    """Format milliseconds as UTC in whole seconds; ``-`` for None and -1.

    >>> iso_seconds(0), iso_seconds(None), iso_seconds(253402300800000)
    ('1970-01-01T00:00:00Z', '-', '10000-01-01T00:00:00Z')
    """
    return "-" if timestamp is None else re.sub(r"\.\d{3}Z$", "Z", iso_milliseconds(timestamp))


def iso_milliseconds(timestamp: int) -> str:
    """Format milliseconds as UTC with three decimals, as `iso_times` does with many; ``-`` for -1, which is no time.

    >>> iso_milliseconds(0), iso_milliseconds(-1), iso_milliseconds(-5)
    ('1970-01-01T00:00:00.000Z', '-', '1969-12-31T23:59:59.995Z')
    """
    if timestamp == -1:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        import numpy as np  # whose years have more digits than Python's

        return iso_times(np.array([timestamp], np.int64))[0]


def iso_times(times: npt.NDArray[np.int64]) -> list[str]:
    """Milliseconds as times in UTC with milliseconds, ``-`` for -1, which is no time."""
    import numpy as np

    texts = np.datetime_as_string(times.astype("datetime64[ms]"), unit="ms").tolist()
    # the least number is no time to NumPy
    return [
        "-" if time == -1 else f"{text}Z" if text != "NaT" else f"{time}ms"
        for text, time in zip(texts, times.tolist(), strict=True)
    ]


def human_bytes(n: int) -> str:
    """Format a size in binary units.

    >>> human_bytes(512), human_bytes(1536), human_bytes(2**30)
    ('512 B', '1.5 KiB', '1.0 GiB')
    """
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"


def parse_bytes(text: str) -> int:
    """Parse a number of bytes or things, with an optional K, M or G (powers of 1024).

    >>> parse_bytes("64M"), parse_bytes("1_000")
    (67108864, 1000)
    """
    match = re.fullmatch(r"\s*([0-9][0-9_]*)\s*([kKmMgG]?)(?:i?[bB])?\s*", text)
    if match is None:
        raise ValueError(f"not a number: {text!r}")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]
