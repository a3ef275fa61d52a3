"""Command lines for records that were asked for as `grep` and `get` have it: by a pattern, or by an offset."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from typing import Final

from kafkalog.cli.typed import (
    LINE,
    OPERATIONS,
    TOPICS,
    Advice,
    in_filter,
    is_path,
    is_topic,
    options,
    partition_named,
    positions,
    shown,
)

_LONG_FLAGS: Final = {
    "--ignore-case": "i", "--invert-match": "v", "--count": "c", "--extended-regexp": "E", "--perl-regexp": "P",
    "--fixed-strings": "F", "--word-regexp": "w", "--line-regexp": "x",
}  # fmt: skip
"""Flags of grep that change what is found; others, such as ``-n``, change how it is printed."""
_FLAGS: Final = "-[ivcEFGPwxrRhHlnoqs]"


class _Grep:
    """The arguments of grep: its flags, its patterns, and the words that are not for it."""

    def __init__(self, name: str, typed: Sequence[str]) -> None:
        self.flags, self.patterns, self.kept = "F" if name == "fgrep" else "", list[str](), list[str]()
        self._left = [*typed]
        while self._left:
            self._take(self._left.pop(0))
        words = positions(self.kept)
        self.paths = [word for word in words if is_path(word)]
        self.topics = [word for word in words if is_topic(word, self.paths)]
        texts = [word for word in words if word not in self.paths + self.topics]
        self.patterns = self.patterns or texts[:1]
        self.kept = [word for word in self.kept if word not in texts and word not in self.topics]

    def _take(self, word: str) -> None:
        if word in _LONG_FLAGS:
            self.flags += _LONG_FLAGS[word]
        elif word == "--regexp" or re.fullmatch(f"{_FLAGS}*e", word):
            self.flags += word.strip("-e") if word != "--regexp" else ""
            self.patterns += self._next()
        elif re.fullmatch(r"-m\d*", word):
            self.kept += ["-n", *([word[2:]] if word[2:] else self._next())]
        elif re.fullmatch(f"{_FLAGS}+", word) and not (word == "-n" and "".join(self._left[:1]).isdecimal()):
            self.flags += word[1:]
        else:
            has_value = word.startswith("-") and "=" not in word and not "".join(self._left[:1]).startswith("-")
            self.kept += [word, *(self._next() if has_value and not is_path("".join(self._left[:1])) else ())]

    def _next(self) -> list[str]:
        return [self._left.pop(0)] if self._left else []

    def condition(self) -> str:
        """The condition that the patterns and flags mean, of keys and of values."""
        operator, text = self._operation()
        given = in_filter(text)
        if "v" not in self.flags:
            return f"key {operator} {given} or value {operator} {given}"
        return " and ".join(f"({column} is null or not {column} {operator} {given})" for column in ("key", "value"))

    def _operation(self) -> tuple[str, str]:
        is_fixed = "F" in self.flags
        has_special = not is_fixed and re.search(r"[\\|*+?()\[\]{}^$]", self.patterns[0])
        if not (has_special or self.patterns[1:] or set("iEPwx") & set(self.flags)):
            return "contains", self.patterns[0]
        text = "|".join(map(re.escape, self.patterns) if is_fixed else self.patterns)
        text = rf"\b(?:{text})\b" if "w" in self.flags else f"^(?:{text})$" if "x" in self.flags else text
        return "matches", f"(?i){text}" if "i" in self.flags else text


def search(name: str, typed: Sequence[str]) -> Advice:
    """A search with grep's flags, in keys and values; empty without a pattern."""
    asked = _Grep(name, typed)
    if not asked.patterns:
        return Advice("")
    line = [*([] if asked.paths else ["PATH"]), *asked.kept, *options("-t", asked.topics[:1])]
    # an export without an output counts
    line = ["export", *line, "--dry-run"] if "c" in asked.flags else ["cat", *line]
    pattern = asked.patterns[0]
    line += ["--filter", pattern if _OF_RECORDS.match(pattern) else asked.condition()]
    return Advice(f"use {LINE}", line, f"kafkalog {shown(line)}", typed)


_OF_RECORDS: Final = re.compile(
    r"(?:not\s)?\(*\s*(?:key|value|offset|timestamp|topic|partition|headers|producer_id)[\w.-]*\s*"
    rf"(?:[=<>!]|(?:not|{'|'.join(OPERATIONS)})\s)"
)
"""The beginning of a condition on records."""


def _partitions_among(words: Sequence[str], paths: Sequence[str]) -> list[tuple[str, str]]:
    """The topic and number of each word such as ``orders-0`` that is a partition of a log dir."""
    found = [partition_named(word, paths) for word in words if not is_topic(word, paths)]
    return [one for one in found if one is not None]


def _is_partition(path: str) -> bool:
    return re.search(r"-\d+$", os.path.normpath(path)) is not None


class _RecordPlace:
    """The place that words such as ``PATH orders 0 42`` or ``PATH orders-0 42`` name."""

    def __init__(self, typed: Sequence[str]) -> None:
        self.words = positions(typed)
        self.paths = [word for word in self.words if is_path(word)]
        named = [word for word in self.words if word not in self.paths]
        self.numbers = [word for word in named if word.isdecimal()]
        of_partitions = _partitions_among(named, self.paths)
        self.topics = [word for word in named if is_topic(word, self.paths)] + [topic for topic, _ in of_partitions]
        self.partitions = [number for _, number in of_partitions]
        is_option = not {"-p", "--partition", "--partitions"}.isdisjoint(typed)
        self.has_partition = is_option or bool(self.partitions)
        self.is_placed = self.has_partition or any(map(_is_partition, self.paths))
        is_of_topic = bool(self.topics) or not {*TOPICS}.isdisjoint(typed)
        given = dict(itertools.pairwise(typed))
        self.option = given.get("--offset") or given.get("-o") or ""
        if self.option:
            self.numbers.append(self.option)
        elif not (self.paths and (self.is_placed or is_of_topic)):
            self.numbers = []  # a number alone may be a key


def at_offset(typed: Sequence[str]) -> Advice:
    """The record at an offset that was typed, as in ``get PATH TOPIC PARTITION OFFSET``; empty if none was."""
    asked = _RecordPlace(typed)
    *before, offset = asked.numbers or [""]
    if not offset.isdecimal():
        return Advice("")
    partitions = asked.partitions if asked.has_partition else before[-1:]
    others = [word for word in typed if word not in (*asked.words, "--offset", "-o", asked.option)]
    line = ["cat", *(asked.paths or ["PATH"]), *options("-t", asked.topics), *options("-p", partitions), *others]
    line += ["--filter", f"offset == {offset}"]
    is_sure = bool(partitions or asked.is_placed or asked.option)
    key = "" if is_sure else f" (or --filter 'key == {offset}')"
    left = [word for word in typed if partition_named(word, asked.paths) is None]
    return Advice(f"use {LINE}{key}", line, f"kafkalog {shown(line)}", left)
