"""Command lines in words of other tools: what they stand for here, or what to type instead.

The words for commands are in `kafkalog.words`, as they are also those for functions. Here are those for options.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kafkalog.cli.commands import LISTING_VERBS, LISTS
from kafkalog.cli.other_options import commands_in_place_of
from kafkalog.cli.searches import at_offset, search
from kafkalog.cli.typed import (
    CONDITION,
    LINE,
    TOPICS,
    Advice,
    arguments,
    is_path,
    is_query,
    is_table,
    is_topic,
    partition_named,
    positions,
    put,
    shown,
    with_unit,
)
from kafkalog.text import near
from kafkalog.words import Lead, command_lead, commands, plain


def translated(argv: Sequence[str], known: Collection[str]) -> list[str]:
    """A command line with a command of ours, if its first word means the same as one, or two words are one of ours."""
    if not argv or argv[0].startswith("-") or argv[0] in known:
        return [*argv]
    name, rest = plain(argv[0]), [*argv[1:]]
    if _is_command_of_tool(name, rest[:1], known):
        return translated(rest, known)
    if rest and f"{name}-{rest[0]}" in known:
        return [f"{name}-{rest[0]}", *rest[1:]]
    if name in known:
        return [name, *rest]
    if name in _VERBS and len(rest) > 1 and _is_noun(rest[0], known):  # as in list groups, show topics, get offsets
        return translated(rest, known)
    lead = command_lead(name)
    if lead is None or not lead.is_same:
        return [*argv]
    return _line(name, lead.line.split(), rest)


def _is_command_of_tool(name: str, following: Sequence[str], known: Collection[str]) -> bool:
    """Whether a word is another tool, and a command of it follows."""
    is_command = any(plain(one) in known or command_lead(plain(one)) is not None for one in following)
    return name in _TOOLS.split() and is_command


def without_verb(argv: Sequence[str]) -> list[str]:
    """A command line without a verb next to a command that lists, or after its path, unless it is a path."""
    command, words = argv[0], argv[1:]
    verbs = {*_VERBS, *LISTING_VERBS, *_OWN_VERBS.get(command, "").split()}
    places = [1] if len(words) == 1 or not is_path(words[0]) else [1, 2]
    for at in places:
        if command in LISTS and len(words) > 1 and plain(argv[at]) in verbs and not is_path(argv[at]):
            rest = [*argv[:at], *argv[at + 1 :]]
            names = [word for word in positions(rest)[1:] if not is_path(word)] if command == "groups" else []
            if len(names) == 1 and any(map(is_path, words)):  # as in groups describe NAME PATH
                return [*(word for word in rest if word != names[0]), "--groups", names[0]]
            return rest
    return [*argv]


_OWN_VERBS: Final = {
    "transactions": "find-hanging hanging open",
    "groups": "members offsets lag all state",
    "producers": "transactions active",
    "metadata": "info dump image",
    "ls": "topics partitions",
}
"""By command, the verbs of Kafka's scripts and of rpk that mean no more than the command."""


def _line(name: str, ours: Sequence[str], rest: Sequence[str]) -> list[str]:
    """Our command line for a word that means the same, with the arguments that follow it."""
    if name == "help":
        other = command_lead(plain(rest[0])) if rest else None
        return [*(rest[:1] if other is None or other.line != "--help" else ()), "--help"]
    if name in ("du", "ll", "disk-usage"):  # their -h is for human sizes
        rest = [one for one in rest if one not in ("-h", "-H")]
    if name in ("head", "tail"):  # their -n 5, -n5 and -5
        option = ours[1]
        rest = [re.sub(r"^-n(?=$|\d)|^-(?=\d+$)", f"{option}=" if one != "-n" else option, one) for one in rest]
    return [*ours, *rest]


def _is_noun(word: str, known: Collection[str]) -> bool:
    name = plain(word)
    return not is_path(word) and (name in known or f"{name}s" in known or name in commands())


_TOOLS: Final = "run-class zfs zpool btrfs rpk kafkactl kaf kcl etcdctl parquet-tools parquet-cli pqrs conduktor akhq"
"""Other tools, whose own commands follow."""
_VERBS: Final = ("list", "describe", "show", "get", "view", "display", "print", "inspect", "read")
"""Verbs of command lines that have a noun next."""


def unknown_command(argv: Sequence[str], known: Sequence[str]) -> Advice:
    """What to type instead of an unknown command: the command, or the most similar one, or else all of them."""
    name, rest = plain(argv[0]), _records_apart(argv[1:])
    lead = command_lead(name)
    if "--before-offset" in rest and lead == command_lead("delete"):
        lead = command_lead("delete-records")
    if asked := _records_asked(name, lead, rest):
        return asked
    if is_query(argv[0]):
        return Advice(filled(f"use kafkalog sql {shlex.quote(argv[0])} PATH", rest))
    if "/" in argv[0] or (lead is None and is_path(argv[0])):
        return _after_path(argv[0], rest, known)
    if own := _own_as_option(rest, known):
        return Advice(f"use {LINE}", own)
    lead = _of_noun_and_verb(name, rest, known) or lead
    if lead is None:
        meant = name if name in known else near(name, known) or near(name, commands(), 0.9)
        found = commands().get(meant, meant) if meant else _compound_lead(name, known)
        if found is None:
            topic = f"; for a topic of that name, kafkalog cat PATH -t {argv[0]}" if not rest else ""
            text, lines = commands_in_place_of(name)
            return Advice(f"{text}{topic}", lines=lines)
        if isinstance(found, str) or meant in known:
            return Advice(f"did you mean {LINE}?", [str(meant or found), *rest], f"kafkalog {meant or found}")
        lead = found
    return _advice_of(lead, _without_verb(rest, lead, known))


def _of_sidecar(lead: Lead | None, words: Sequence[str]) -> Lead | None:
    """The lead for a file next to a `.log`, of which only a dump is made; None for others."""
    is_shown = lead == command_lead("inspect") and any(_SIDECAR.search(word) for word in words)
    return Lead("kafkalog dump PATH", "", False) if is_shown else None


_SIDECAR: Final = re.compile(r"\.(?:index|timeindex|txnindex|snapshot)$")


def _records_asked(name: str, lead: Lead | None, rest: Sequence[str]) -> Advice:
    """The records with a pattern, as of grep, or the one at an offset; empty if the words ask for something else."""
    if lead is not None and lead.line == _SEARCH:
        return search(name, rest) or Advice(f"use {filled(_SEARCH, rest)}", typed=rest)
    return at_offset(rest) if name in _GETS.split() else Advice("")


def _after_path(path: str, rest: Sequence[str], known: Collection[str]) -> Advice:
    """What to type for a path that stands before the command, or before a query."""
    if query := next(filter(is_query, rest), None):
        others = [path, *(word for word in rest if word not in (query, "-c", "-e"))]
        return Advice(f"a command comes first: {LINE}", ["sql", query, *others])
    if later := [word for word in rest if plain(word) in known or command_lead(plain(word))]:
        others = [path, *(word for word in rest if word != later[0])]
        return Advice(f"a command comes first: {LINE}", translated([later[0], *others], known))
    return Advice(FIRST.replace("PATH", shlex.quote(path)))


_GETS: Final = "get fetch read message messages record records seek"
"""Words for commands that have an offset next."""


def _own_as_option(words: Sequence[str], known: Collection[str]) -> list[str]:
    """The command line of a command that was typed as an option, as in ``stat --batches``; empty if none was."""
    own = [word for word in words if word.startswith("--") and word[2:] in known]
    return [own[0][2:], *(word for word in words if word != own[0])] if own else []


def _records_apart(typed: Sequence[str]) -> list[str]:
    """Words with the place of a record in two, such as ``orders-0@5`` as `cat` prints it, or ``orders:0:5``."""
    paths = [*filter(is_path, typed)]
    parts: list[str] = []
    for word in typed:
        found = re.fullmatch(r"(.+)[@:](\d+)", word)
        if found is None or is_path(word):
            parts.append(word)
        elif is_path(found[1]):
            parts += [found[1], "--start-offset", found[2], "-n", "1"]
        else:
            parts += [found[1], found[2]] if partition_named(found[1], paths) else [word]
    return parts


def _advice_of(lead: Lead, typed: Sequence[str]) -> Advice:
    """The advice for a word of another tool, with the typed paths and topics in its first command line, if they fit."""
    line = _written(f"kafkalog {lead.line} PATH" if lead.is_same else lead.line, typed)
    line, typed = _shell_of_metadata(line, typed)
    if "--partitions" in typed and "--segment-bytes" in line:
        line = _written(commands()["repartition"].line, typed)
    line, typed = _own_places(line, typed)
    asked = _grouped(_timed(line, typed), typed)
    if asked != line:
        used = _values_of(typed)
        return Advice(f"use {filled(asked, [word for word in typed if word not in used])}", typed=typed)
    text = filled(_best_first(line, typed), typed)
    if not {"-t", "--topic", "--topics"} & {*typed}:
        text = re.sub(r"\b(from|describe) TOPIC\b", r"\1 records", text)
    first = re.match(r"kafkalog (?:'[^']*'|\"[^\"]*\"|[^,;('\"])*?(?=,|;| \(| for |$)", text)
    if first is None:
        return Advice(f"use {text}", typed=typed)
    words = shlex.split(first[0])[1:]
    kept = _kept(typed if "-o" not in words else _without_output(typed), words)
    if ", then kafkalog" in text:  # an option may be for the second line, where it may mean something else
        kept = [word for before, word in itertools.pairwise(["", *kept]) if {before, word} & {*TOPICS} or is_path(word)]
    return Advice(f"use {LINE}{text[first.end() :]}", [*words, *kept] if kept else [], first[0], typed)


def _own_places(line: str, typed: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The line with values of options for which it has a place, such as ``--partitions N``, and the rest of the words.

    In another part of the line, the same option may mean something else.
    """
    for name, value in itertools.pairwise(typed):
        place = re.search(rf"(?<=\s){re.escape(name)} [A-Z]+\b", line)
        if place is not None and name.startswith("--") and not value.startswith("-"):
            line = f"{line[: place.start()]}{name} {shlex.quote(value)}{line[place.end() :]}"
            at = typed.index(name)
            typed = [*typed[:at], *typed[at + 2 :]]
    return line, typed


def _shell_of_metadata(line: str, typed: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The line for a metadata log and what was typed, with the table that ``ls /topics`` of Kafka's shell means."""
    places = [re.fullmatch(r"/(?:image/)?([a-z]+)(?:/.*)?", word) for word in typed if not os.path.isfile(word)]
    found = [place for place in places if place and place[1] in _IN_THE_SHELL]
    if line != "kafkalog metadata PATH" or not found:
        return line, typed
    rest = [word for word in typed if word not in (found[0][0], *_OF_THE_SHELL)]
    return f"{line} --show {_IN_THE_SHELL[found[0][1]]}", rest


_OF_THE_SHELL: Final = ("ls", "cat", "tree", "cd", "find", "man")
_IN_THE_SHELL: Final = {
    "topics": "topics", "brokers": "brokers", "cluster": "brokers", "features": "features", "configs": "configs",
    "acls": "acls", "scram": "scram", "quotas": "quotas",
}  # fmt: skip
"""The tables of our metadata for the nodes of Kafka's metadata shell."""


def _written(line: str, typed: Sequence[str]) -> str:
    """A line with the output, the time and the file to load that were typed."""
    from kafkalog.parsing import meant_time

    given = dict(itertools.pairwise(typed))
    time = next((meant_time(given[name]) for name in ("--to", "--until", "--at", "--time") if name in given), None)
    line = _retained(line, given)
    if time is not None and "kafkalog boot PATH" in line:
        line = commands()["restore-to"].line.replace("TIME", shlex.quote(time))
    if output := given.get("-o") or given.get("--output"):
        line = line.replace("-o DIR", f"-o {shlex.quote(output)}")
    line = _placed(line, given, typed)
    tables = [word for word in arguments(typed)[0] if is_table(word) and word != output]
    return line.replace("load FILE -o", f"load {shlex.quote(tables[0])} -o") if tables else line


def _retained(line: str, given: Mapping[str, str]) -> str:
    """A line that deletes records, with the age or the size that was typed."""
    age = next((_age(name, value) for name, value in given.items() if name in _AGES.split()), None)
    if age is not None and re.match("kafkalog (?:trim|convert) PATH", line):
        return f"kafkalog trim PATH --before-timestamp {shlex.quote(age)} -o DIR"
    name = next((name for name in _RETENTIONS if name in given), None)
    return line if name is None else line.replace("--retention-ms MS", f"{name} {shlex.quote(given[name])}")


_RETENTIONS: Final = ("--retention-ms", "--retention-bytes")
_AGES: Final = "--older-than --days --hours --keep-days --max-age --age --before --before-time --retention --ttl"


def _age(option: str, value: str) -> str | None:
    """The time that an age such as ``3d`` stands for; None if the value is no age."""
    from kafkalog.parsing import meant_time

    return meant_time(with_unit(option, value))


def _placed(line: str, given: Mapping[str, str], typed: Sequence[str]) -> str:
    """A line with the place of a copy, the topic to leave out, or the records to delete that were typed."""
    others = [word for word in arguments(typed)[0] if not is_path(word)]
    if "makes a copy without a topic" in line and not others and not {*TOPICS}.isdisjoint(typed):
        line = commands()["delete-topic"].line
    if line.startswith("kafkalog salvage PATH -o DIR") and "TOPIC" not in line and len(others) == 1:
        line = line.replace("-o DIR", f"-o {shlex.quote(others[0])}")
    if "--before-offset N" in line:
        return _before_offset(line, given)
    return line


def _before_offset(line: str, given: Mapping[str, str]) -> str:
    """The line for deleting records: those with a key, or before an offset of a partition."""
    if key := given.get("--key") or given.get("-k"):
        return put(commands()["delete"].line, "WORD", key)
    offset = next((given[name] for name in ("--offset", "--before-offset", "--to") if name in given), "N")
    topic = next((given[name] for name in TOPICS if name in given), "")
    number = next((given[name] for name in ("--partition", "--partitions", "-p") if name in given), "")
    place = f"PATH/{topic}-{number}" if topic and number else "PATH"
    return line.replace("trim PATH", f"trim {place}").replace("--before-offset N", f"--before-offset {offset}")


def _without_output(typed: Sequence[str]) -> list[str]:
    return [word for before, word in itertools.pairwise(["", *typed]) if not {"-o", "--output"} & {before, word}]


def _best_first(line: str, typed: Sequence[str]) -> str:
    """The alternatives of a lead that work for the paths, first one with a place for the word that was typed."""
    others = line.split(", or ")
    paths = [word for word in arguments(typed)[0] if is_path(word)]
    others = [one for one in others if not _fails_for(one, paths)] or others
    if len(paths) == 2:
        others.sort(key=lambda one: " A B" not in one)
    given = {word for word in typed if not word.startswith("-") and not is_path(word)}
    if given and "--key" in typed and "WORD" not in others[0]:
        others.sort(key=lambda one: "WORD" not in one)
    return ", or ".join(others)


def _fails_for(line: str, paths: Sequence[str]) -> bool:
    """Whether a command needs what none of the paths has: a log dir, or the metadata log of a cluster."""
    if "://" in "".join(paths) or not paths:
        return False
    if line.startswith("kafkalog report PATH"):
        return any(map(os.path.isfile, paths))
    is_there = any(os.path.exists(f"{path}/__cluster_metadata-0") or "__cluster_metadata" in path for path in paths)
    return line.startswith("kafkalog metadata PATH") and not is_there


def _timed(line: str, typed: Sequence[str]) -> str:
    """The line for offsets, as the time of ``kafka-get-offsets`` changes it."""
    given = dict(itertools.pairwise(typed))
    time = next((given[name] for name in ("--time", "--timestamp", "--at", "--date") if name in given), None)
    if time is None or "the ends of logs" not in line:
        return line
    from kafkalog.parsing import meant_time

    moment = _AS_TIMES.get(time) or meant_time(time) or time
    words = [*(("-t", "TOPIC") if {*TOPICS} & {*typed} else ()), "--timestamp", shlex.quote(moment)]
    return f"kafkalog lookup PATH {' '.join(words)}"


def _values_of(typed: Sequence[str]) -> set[str]:
    """The values of options of other tools, with which a line was made."""
    given = itertools.pairwise(typed)
    return {value for name, value in given if name.startswith("--") and name not in TOPICS and not is_path(value)}


def _kept(typed: Sequence[str], line: Sequence[str]) -> list[str]:
    """The options that were typed, with their values, without those that a line has."""
    kept: list[str] = []
    words = {part for one in line for part in re.split(r"[\s|'\"]+", one)}
    for before, word, after in zip(["", *typed], typed, [*typed[1:], ""], strict=False):
        if word == "-h":  # of other tools: human sizes, or a host
            continue
        is_option = word.startswith("-")
        option, value = (word, after) if is_option else (before, word)
        if {value, _age(option, value)} & words and not (is_option and is_path(after)):
            continue
        if is_option or before.startswith("-") or is_path(word):
            kept.append(word)
    return kept if any(word.startswith("-") for word in kept) else []


def _of_noun_and_verb(noun: str, rest: Sequence[str], known: Collection[str]) -> Lead | None:
    """The lead of two words such as ``topic consume`` or ``index check``; None if the verb only lists."""
    if sidecar := _of_sidecar(command_lead(noun), rest):
        return sidecar
    if not rest or is_path(rest[0]) or rest[0].startswith("-") or noun.removesuffix("s") not in _NOUNS.split():
        return None
    verb = plain(rest[0])
    if verb in _VERBS or verb in LISTING_VERBS:
        return None
    both = f"{noun}-{verb}"
    if lead := commands().get(both):
        return lead
    return Lead(verb, "", True) if verb in known else commands().get(verb)


_NOUNS: Final = """
topic group consumer-group index log segment record message partition schema cluster broker transaction producer batch
offset registry tier snapshot
"""


def _without_verb(rest: Sequence[str], lead: Lead, known: Collection[str]) -> list[str]:
    """The arguments after a noun, without a verb that was understood as part of the command."""
    if rest and not is_path(rest[0]):
        verb = plain(rest[0])
        if verb in _VERBS or verb in LISTING_VERBS or commands().get(verb) == lead or lead.line == verb:
            return [*rest[1:]]
    return [*rest]


def _grouped(line: str, typed: Sequence[str]) -> str:
    """The line for counting, by the columns that were typed: ``--by key --top 10``."""
    given = dict(itertools.pairwise(typed))
    columns = next((given[name] for name in ("--by", "--group-by", "-by") if name in given), "")
    if not columns or "count(*)" not in line or not re.fullmatch(r"[\w.,]+", columns):
        return line
    n = next((given[name] for name in ("--top", "-n", "--limit", "--head") if given.get(name, "").isdecimal()), "")
    names = ", ".join(name if "." in name else f'"{name}"' for name in columns.split(","))
    n = n or ("10" if " limit 10" in line else "")
    order = f" order by n desc limit {n}" if n else ""
    table = "TOPIC" if {*TOPICS} & {*typed} else "records"
    return f"kafkalog sql 'select {names}, count(*) as n from {table} group by all{order}' PATH"


_SEARCH: Final = "kafkalog cat PATH --filter 'key contains WORD or value contains WORD'"


FIRST: Final = "a command comes first: kafkalog ls PATH, kafkalog cat PATH, kafkalog report PATH"


def _compound_lead(name: str, known: Collection[str]) -> str | Lead | None:
    """The command, or the lead, that a part of a compound stands for: its verb, if that is known."""
    parts = name.split("-")
    if len(parts) > 1:
        verb_is_known = parts[0] in {*_VERBS, *LISTING_VERBS} or command_lead(parts[0]) or parts[0] in known
        for part in parts:
            if part.removesuffix("s") in _NOUNS.split() and not verb_is_known:
                continue  # an option without a meaning here
            if part in known or f"{part}s" in known:
                return part if part in known else f"{part}s"
            if lead := command_lead(part):
                return lead
    return None


def left_out(message: str, typed: Sequence[str]) -> str:
    """The end of a message: the values that were typed and that it does not have; empty if it has all."""
    from kafkalog.parsing import meant_time

    known = {*commands(), *_VERBS, *LISTING_VERBS, *_NOUNS.split()}
    rest: list[str] = []
    for before, word in itertools.pairwise(["", *typed]):
        said = {word, f"{word}s", shown([word]), meant_time(word) or word, _AS_TIMES.get(word, word)}
        if word.startswith("-") and not word[1:].isdecimal() and not re.search(r"[=:]\S*$", word):
            continue
        is_said = any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", message) for one in said)
        is_verb = plain(word) in known and not before.startswith("-")
        if is_said or is_verb or before.startswith("-X"):
            continue
        rest.append(shown([before, word] if before.startswith("-") else [word]))
    return f"; left out: {', '.join(rest)}" if rest else ""


_AS_TIMES: Final = {"-1": "latest", "-2": "earliest", "-3": "max-timestamp"}
"""What Kafka's tools have in place of a time."""


def filled(line: str, typed: Sequence[str]) -> str:
    """A command line with the path, the word or condition, and the topics that were typed."""
    given, topics = arguments(typed)
    paths = [argument for argument in given if is_path(argument)]
    topics += [word for word in given if word not in paths and is_topic(word, paths)]
    others = [argument for argument in given if argument not in (*paths, *topics)]
    conditions = [argument for argument in others if CONDITION.search(argument)]
    if conditions:
        line = re.sub(r"'key == WORD'(?: \(or 'value contains WORD'\))?", lambda _: shown(conditions[:1]), line)
    elif others:
        line = put(line, "WORD", others[0])
    line = _with_topics(line, [*dict.fromkeys(topics)])
    return _with_paths(line, paths)


def _with_paths(line: str, paths: Sequence[str]) -> str:
    """A line with all the paths that were typed, or with the first one for a command that takes one."""
    if len(paths) == 2:
        line = re.sub(r"\bA B\b", shown(paths), line)
    if paths and paths[0].endswith(".log"):
        line = line.replace("FILE.log", shlex.quote(paths[0]))
    if len(paths) > 1 and not re.search(rf"kafkalog (?:{_OF_ONE_PATH}) PATH", line):
        return line.replace("PATH", shown(paths))
    return line.replace("PATH", shlex.quote(_read_by(line, paths[0]))) if paths else line


_OF_ONE_PATH: Final = "compact|diff|metadata|recover|tiered|trim|truncate"
_WITH_TOPICS: Final = "batches|cat|convert|export|lookup|ls|report|space|trim|verify"


def _read_by(line: str, path: str) -> str:
    """A path as a command line takes it: metadata reads the directory of a snapshot or segment."""
    if "kafkalog metadata PATH" in line and re.search(r"[^/]/[\d-]+\.(?:checkpoint|log)$", path):
        return os.path.dirname(path)
    return path


def _with_topics(line: str, topics: Sequence[str]) -> str:
    if topics:
        table = topics[0] if topics[0].isidentifier() else f'"{topics[0]}"'
        line = re.sub(r"\b(from|describe) TOPIC", rf"\1 {table}", line.replace(" -t TOPIC", ""))
        line = line.replace("TOPIC", topics[0])
    for topic in topics:
        line = re.sub(rf"(kafkalog (?:{_WITH_TOPICS}) PATH)\b(?!/)", rf"\1 -t {topic}", line)
    return line
