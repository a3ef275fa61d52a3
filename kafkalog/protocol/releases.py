"""What each release of Kafka knows: versions of record types, levels of `metadata.version`, ranges of features.

`releases.json` is made from the releases' own jars by `tests/protocol/test_releases.py`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

METADATA_VERSION: Final = "metadata.version"
DEFAULT_RELEASE: Final = "4.3"
"""The release that `boot` makes a directory for if nothing decides on another one."""
_DATA: Final = Path(__file__).with_name("releases.json")


@cache
def releases() -> dict[str, dict[str, Any]]:
    """What each release knows, by its number: types of records, levels and features."""
    found: dict[str, dict[str, Any]] = json.loads(_DATA.read_text())
    return found


def is_since(release: str, first: str) -> bool:
    """Whether a release is that of `first` or a later one, such as 4.10 after 4.2."""
    return _number(release) >= _number(first)


def _number(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


def span(last: str | None = None) -> str:
    """The first release known here and the last one, or another last one: "3.9 to 4.4"."""
    known = [*releases()]
    return f"{known[0]} to {last or known[-1]}"


def level_name(level: int) -> str:
    """The name of a level of `metadata.version`, such as ``3.9-IV0``; "" if no release here knows it."""
    names = (one["levels"][str(level)][0] for one in releases().values() if str(level) in one["levels"])
    return next(names, "")


def feature_range(release: str, name: str) -> tuple[int, int]:
    """The lowest and the highest level of a feature that a release supports in production; 0 if it knows none."""
    first, last = releases()[release]["features"].get(name, (0, 0))
    return first, last


def next_level(name: str, level: int) -> tuple[int, str] | None:
    """The highest level of a feature in the first release that has more than `level`, and that release."""
    for release in releases():
        last = feature_range(release, name)[1]
        if last > level:
            return last, release
    return None
