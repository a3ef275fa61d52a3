"""Words among the paths of a command line that are no paths: what they are meant as, and what to type for them.

Such a word is a topic or a partition, something that has an option, such as a condition or a time, or else an output.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.cli.typed import (
    CONDITION,
    LINE,
    Advice,
    is_path,
    is_query,
    is_table,
    is_topic,
    kind_of,
    partition_named,
    shown,
)
from kafkalog.column_names import TEXT_COLUMNS
from kafkalog.interchange.file_types import UNCERTAIN
from kafkalog.text import near, partition_word


class Meant(NamedTuple):
    """What a word is meant as."""

    kind: str
    words: Sequence[str] | None
    """The option for it; empty if it is to be left out, and None if the command has no such option."""


def meant(word: str, own: Mapping[str, bool], taking: Sequence[str] = ()) -> Meant | None:
    """What a word that is no path is meant as; None if it may be the name of something.

    Parameters
    ----------
    word : str
    own : mapping of str to bool
        The options of the command, and whether each takes a value.
    taking : sequence of str
        Those of which it is one of the values.
    """
    from kafkalog.parsing import meant_time

    if own.get(f"--{word}") is False:
        return Meant("option", [f"--{word}"])
    if len(taking) == 1:
        return Meant("value", [taking[0], word])
    if CONDITION.search(word) and (" " in word or "/" not in word):
        return _option("condition", own, ["--filter", word], ["--drop", word])
    if word.isdecimal():
        return _option("number", own, ["-n", word])
    if moment := meant_time(word):
        return _option("time", own, ["--start-timestamp", moment], ["--timestamp", moment])
    if kind_of(word) in ("json", "table"):
        format = {"json": "jsonl", "ndjson": "jsonl"}.get(word.lower(), word.lower())
        return _option("format", own, ["--format", format], ["--json"] if format == "jsonl" else ["--csv"])
    if word in TEXT_COLUMNS or re.fullmatch(r"(?:key|value|headers)\.[\w.-]+", word):
        return _option("column", own, ["--columns", word])
    return Meant("word for all", []) if word in ("all", "everything", "*") else None


def _option(kind: str, own: Collection[str], *others: list[str]) -> Meant:
    return Meant(kind, next((words for words in others if words[0] in own), None))


def instead(
    words: Sequence[str],
    command: str,
    own: Mapping[str, bool],
    taking: Mapping[str, Sequence[str]],
    line: Sequence[str],
) -> tuple[str, Sequence[str]] | None:
    """What to type for the first of some words that is no path, though another is: text and command line; None without.

    `taking` has the options of which a word is one of the values, and `line` is what was typed after the command.
    """
    paths, of_records = [word for word in words if is_path(word)], command == "cat"
    for word in _others(words, paths, command) if paths else ():
        if word not in line:
            continue
        at = line.index(word)
        if found := _group(word, command, line) or positional_topic(word, paths, own, line, of_records=of_records):
            return found
        one = meant(word, own, taking.get(word, ()))
        if one is None or one.kind in ([] if of_records else _OF_BACKUPS):
            continue
        no = f"no file or directory {shown([word])}"
        if one.words is None:
            return f"{no}; {command} takes no {one.kind}", ()
        text = f"did you mean {shown(one.words)}?" if one.words else "leave it out"
        return f"{no}; {text}", [*line[:at], *line[at + 1 :], *one.words]
    return None


def _others(words: Sequence[str], paths: Sequence[str], command: str) -> list[str]:
    """The words that are neither paths nor queries."""
    others = [word for word in words if word not in paths and not is_query(word)]
    return [word for word in others if command != "sql" or " " not in word]


_OF_BACKUPS: Final = ("number", "time")
"""Kinds of words that directories of backups have as names."""


def _group(word: str, command: str, line: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The option for a group or a subject, which may have any name, with the command line."""
    option = {"groups": "--groups", "schemas": "--subjects"}.get(command)
    is_other = re.search(r"[/\\]|\s", word) or word.isdecimal() or word.startswith("-") or _is_written(word)
    if option is None or is_other or kind_of(word) in ("json", "table", "all", "condition"):
        return None
    rest = [one for one in line if one != word]
    return f"no file or directory {word}; use {option} {word}", [*rest, option, word]


def positional_topic(
    word: str, paths: Sequence[str], own: Collection[str], line: Sequence[str], *, of_records: bool
) -> tuple[str, Sequence[str]] | None:
    """What to type for a topic or a partition of one of the paths: text and command line; None for another word.

    `of_records` says that a command reads a topic rather than several paths: a topic may be mistyped.
    """
    at, no = line.index(word), f"no file or directory {word}"
    record = re.fullmatch(r"(.+)[@:](\d+)", word)
    if record and "-n" in own and (place := partition_named(record[1], paths)):
        options = ["-t", place[0], "-p", place[1], "--start-offset", record[2], "-n", "1"]
        return f"{no}; use {shown(options)} for the record", [*line[:at], *options, *line[at + 1 :]]
    place = partition_named(word, paths)
    if place and "--partitions" in own:
        options = ["-t", place[0], "-p", place[1]]
        return f"{no}; use {shown(options)} for the partition", [*line[:at], *options, *line[at + 1 :]]
    if place:
        partition, rest = with_partition(word, paths, line)
        return f"{no}; use {partition} for the partition", rest
    topic = word if is_topic(word, paths) else near(word, _topics(paths)) if of_records else None
    if topic is None or re.search(r"[\s/]", word):
        return None
    if "--topics" in own:
        told = f"use -t {topic} for the topic" if topic == word else f"did you mean the topic {topic}?"
        return f"{no}; {told}", [*line[:at], "-t", topic, *line[at + 1 :]]
    is_glob = set(topic) & set("*?[")
    return None if is_glob else (f"{no}; a partition has a path, such as {paths[0]}/{topic}-0", ())


def _topics(paths: Sequence[str]) -> list[str]:
    from kafkalog.storage.listing import Listing

    names = [name for path in paths if os.path.isdir(path) for name in Listing.or_empty(Path(path)).names]
    return [*{place[0]: None for place in map(partition_word, names) if place is not None}]


def with_partition(word: str, paths: Sequence[str], line: Sequence[str]) -> tuple[str, list[str]]:
    """The path of a partition that a word names, and a command line with it in place of the word and of the log dir."""
    name = "-".join(partition_named(word, paths) or ())
    directory = next(path for path in paths if os.path.isdir(f"{path}/{name}"))
    partition = os.path.join(directory, name)
    return partition, [partition if one == directory else one for one in line if one != word]


def unexpected(argument: str, command: str, own: Mapping[str, bool], before: Sequence[str]) -> Advice:
    """The end of the message about an argument too many; it says how many there are if nothing is known."""
    paths = [word for word in before if is_path(word)]
    named = shown(paths[:1]) or "PATH"
    others = [word for word in before if word != argument]
    if is_query(argument):
        return Advice(f"; kafkalog sql {shlex.quote(argument)} {named}")
    if command == "cat" and argument.startswith("."):
        return Advice(f"; kafkalog cat {named} --json --value-format json | jq {shlex.quote(argument)}")
    return _among(argument, command, own, before) or _of_option(argument, command, own, others)


def _among(argument: str, command: str, own: Collection[str], before: Sequence[str]) -> Advice:
    """The line for a path that comes late, a topic or a partition."""
    paths = [word for word in before if is_path(word)]
    others = [word for word in before if word != argument]
    if is_path(argument):
        return Advice(f"; paths come first: {LINE}", [command, argument, *others])
    if is_topic(argument, paths) and "--topics" in own:
        return Advice(f"; a topic has an option: {LINE}", [command, *others, "-t", argument])
    if partition_named(argument, paths) and command != "sample":
        partition, line = with_partition(argument, paths, before)
        return Advice(f"; the partition is {partition}: {LINE}", [command, *line])
    return Advice("")


def _of_option(argument: str, command: str, own: Mapping[str, bool], others: Sequence[str]) -> Advice:
    one = meant(argument, own)
    if one is None or not one.words:
        return Advice(f"; {command} takes {'two paths' if command == 'diff' else 'one path'}")
    return Advice(f"; did you mean {shown(one.words)}? {LINE}", [command, *others, *one.words])


def with_output(
    command: str, words: Sequence[str], argv: Sequence[str], own: Mapping[str, bool], writes: str
) -> Advice:
    """The end of a message, with ``-o`` before the path that is meant as an output; empty if none is.

    That is one that is named as a table or a page, or the only one that does not exist. `words` are the paths,
    `own` has the options and whether each takes a value, and `writes` is what the help calls the output.
    """
    tables = [word for word in words if _is_written(word) and writes != "LOG_DIR"]
    outputs = tables or _new_places(words, own, writes)
    if len(outputs) != 1 or len(words) == 1:
        return Advice("")
    # tabs are not written
    output = re.sub(r"(?i)\.tsv(?=\.\w+$|$)", ".csv", outputs[0])
    line = [*(word for word in argv if word != outputs[0]), "-o", output]
    if tables and writes not in ("FILE", "TO"):
        path = next(filter(is_path, words), "PATH")
        return Advice(f"; to write a table: {LINE}", ["export", *line], f"kafkalog export {shown([path, *line[-2:]])}")
    return Advice(f": {LINE}", [*command.split()[1:], *line], f"{command} {shown(line)}")


def _new_places(words: Sequence[str], own: Mapping[str, bool], writes: str) -> list[str]:
    """The words that may be outputs: they are neither paths nor topics, nor meant as anything else."""
    paths = [word for word in words if is_path(word)]
    new = [word for word in words if word not in paths and not is_topic(word, paths) and meant(word, own) is None]
    if writes in ("", "FILE"):
        return []
    # what is exported alone, and has no suffix, is a directory
    return [word for word in new if writes != "TO" or os.sep in word]


def positional(argv: Sequence[str], own: Mapping[str, bool]) -> list[str]:
    """The words that are neither options nor values of options; a time before now may be one."""
    is_word = re.compile(r"-\d+[a-z]*|[^-].*|-|")
    return [word for last, word in itertools.pairwise(["", *argv]) if is_word.fullmatch(word) and not own.get(last)]


def _is_written(word: str) -> bool:
    """Whether a word is the name of a file that a command writes: of records, or a report."""
    is_report = not word.startswith("-") and word.endswith((".html", ".md"))
    return is_report or (is_table(word) and not word.endswith(UNCERTAIN))
