"""Checks the options that Spark passes to a source or a sink: names without case, values as text.

An option that only a broker could honour is refused, with the reason. So is an unknown one: ignoring a misspelt option
would silently read or write other records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafkalog.text import near, parse_bytes
from kafkalog.words import likely

_OF_BROKERS: Final = ("groupidprefix", "bootstrap.servers", "acks", "transactional.id", "linger.ms")


class Options(dict[str, str]):
    """The options of a reader or a writer, with lower-case names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__({name.lower(): value for name, value in given.items()})

    def check_names(self, known: Sequence[str]) -> None:
        """Raise ValueError for an option that is unknown, or that only a Kafka client has."""
        lower = {name.lower() for name in known}
        for name in self:
            if name in lower:
                continue
            if name.startswith("kafka.") or name in _OF_BROKERS:
                raise ValueError(
                    f"option {name!r} is for Kafka clients, but kafkalog uses no broker: name a log dir in load(path)"
                    " or save(path)"
                )
            meant = near(name, known)
            hint = f"did you mean {meant}?" if meant else f"there are {likely(name, known)}"
            raise ValueError(f"no option {name!r}; {hint}")

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        return bool(self.choice(name, ("true", "false"), str(default).lower()) == "true")

    def choice(self, name: str, choices: Sequence[str], default: str) -> Any:
        """One of some words, in lower case."""
        value = self.get(name.lower(), default).lower()
        if value not in choices:
            raise ValueError(f"{name} must be {' or '.join(choices)}, not {self[name.lower()]!r}")
        return value

    def number(self, name: str, *, at_most: int = 2**63 - 1) -> int | None:
        """A positive whole number, if there is one."""
        text = self.get(name.lower())
        if text is None:
            return None
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= at_most:
            raise ValueError(f"{name} must be a whole number of 1 to {at_most}, not {text!r}")
        return int(text)

    def n_bytes(self, name: str, default: int) -> int:
        """A number of bytes, such as 64m."""
        text = self.get(name.lower(), str(default))
        try:
            n_bytes = parse_bytes(text)
        except ValueError:
            n_bytes = 0
        if not n_bytes:
            raise ValueError(f"{name} must be a number of bytes, such as 67108864 or 64m, not {text!r}")
        return n_bytes

    def names(self, name: str) -> list[str] | None:
        """A list of words with commas between, if there is one."""
        text = self.get(name.lower())
        if text is None:
            return None
        found = [word.strip() for word in text.split(",") if word.strip()]
        if not found:
            raise ValueError(f"{name} is empty; expected names separated by commas")
        return found


def parse_json(text: str, example: str, is_right: Callable[[Any], bool]) -> Any:
    """Parse JSON of the form of an example."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not is_right(value):
        raise ValueError(f"Expected e.g. {example}, got {text}")
    return value
