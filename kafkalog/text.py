"""Text for people: numbers of things, as ``1 partition``, ranges, as ``0..10``, times, and the word that was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

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

    >>> near("Ofset", ["key", "offset"]), near("lag", ["salvage", "offset"])
    ('offset', None)
    """
    import difflib

    # upper case is a common slip, so it does not count against a word
    by_case = {one.lower(): one for one in words}
    found = difflib.get_close_matches(word.lower(), by_case, 1, least)
    return by_case[found[0]] if found else None


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
    """A range of offsets, or of other numbers, whose end is not in it; None, of what is not known, is a question mark.

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
    """Format milliseconds as UTC in whole seconds; ``-`` for none."""
    if timestamp is None or timestamp < 0:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return f"{timestamp}ms"


def iso_milliseconds(timestamp: int) -> str:
    """Format milliseconds as UTC with three decimals; ``-`` for none."""
    whole = iso_seconds(timestamp)
    return f"{whole[:-1]}.{timestamp % 1000:03d}Z" if whole.endswith("Z") else whole


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
