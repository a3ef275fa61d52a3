"""Names the options or commands that are similar to an unknown one, or else all of them."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from kafkalog.cli.commands import JOBS, SUMMARIES

_COLUMNS: Final = 80
_MOST_OPTIONS: Final = 3
_MOST_NAMES: Final = 6
_MOST_COMMANDS: Final = 3
_MOST_LINES: Final = 3
_LEAST_LETTERS: Final = 4
"""Shorter words begin none that means the same."""
_FILLERS: Final = """
the to of in on for with without and or no not non only all any each every use using set get show print list enable
disable is are as at by from into per new kafka option options value values file files name names log logs type mode
max min before after allow this that it if one be
"""
_SAY_NOTHING: Final = frozenset(_FILLERS.split())
_OF_ALL: Final = ("quiet", "verbose", "report", "limits", "storage_options", "tiered", "tiered_keys")
"""Options that most commands have, of which the help is about other things."""
_ENDINGS: Final = re.compile(r"(?:ing|ed|s)$|(?<=.{4})(?:ies|ied|es|e|y)$")


class Alternatives(NamedTuple):
    """The options to name in place of an unknown one."""

    text: str
    lines: Sequence[str]


def alternatives(
    name: str, parser: argparse.ArgumentParser, usual: Sequence[str], whole: Callable[[], argparse.ArgumentParser]
) -> Alternatives:
    """Find the options of this command, and of others, to name in place of an unknown one.

    Parameters
    ----------
    name : str
    parser : argparse.ArgumentParser
        That of the command.
    usual : sequence of str
        The attributes of the options that people need most, in order.
    whole : callable
        Makes the parser of all commands.
    """
    having = commands_with(name, whole)
    having = [f"kafkalog {one}" for one in having] if len(having) <= _MOST_COMMANDS else []
    word, alike = _named(name, parser)
    is_named = any(one.dest not in _OF_ALL for one in alike)
    told = None if is_named else _told(name, parser)
    word, alike = told or (word, alike)
    flags = [action.option_strings[-1] for action in alike]
    about = f"the help of {', '.join(flags)} has the word {word!r}" if told else _about(word, flags)
    texts = [
        f"an option of {' and '.join(having)}" if having else "",
        about if flags else "",
        "" if flags else "its options are below" if not having else f"those of {parser.prog} are below",
    ]
    lines = [*map(_described, alike[:_MOST_OPTIONS])]
    return Alternatives("; ".join(filter(None, texts)), lines if is_named else [*lines, *_listed(parser, usual)])


def commands_in_place_of(name: str) -> Alternatives:
    """The commands to name in place of an unknown one: those whose summary has a word of it, or all of them by job."""
    lines = [f"  {job + ':':<12}{' '.join(names)}" for job, names in JOBS.items()]
    for word in _words(name):
        texts = SUMMARIES.items()
        about = [(one, text) for one, text in texts if any(_has_stem_of(word, part) for part in _words(text))]
        if word not in _SAY_NOTHING and 0 < len(about) <= _MOST_COMMANDS:
            told = [f"  {one:<12}{_shortened(text, 66)}" for one, text in about]
            return Alternatives(_about(word, [f"kafkalog {one}" for one, _ in about]), [*told, *lines])
    return Alternatives("the commands are below", lines)


def _about(word: str, names: Sequence[str]) -> str:
    return f"about {word!r} there {'are' if names[1:] else 'is'} {', '.join(names)}"


def commands_with(option: str, whole: Callable[[], argparse.ArgumentParser]) -> Sequence[str]:
    """The commands that have an option; `whole` makes the parser of all commands."""
    return _commands_by_option(whole).get(option, ())


@cache
def _commands_by_option(whole: Callable[[], argparse.ArgumentParser]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for parser in _commands(whole()):
        for option in parser._option_string_actions:
            found.setdefault(option, []).append(parser.prog.partition(" ")[2])
    return found


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands below a parser that have no commands of their own."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for one in action.choices.values():
            yield from _commands(one)


def _named(name: str, parser: argparse.ArgumentParser) -> tuple[str, list[argparse.Action]]:
    """The options with words of the unknown one in their names, and these words; those with rare ones first."""
    found = _having(name, parser, _names_of)
    every = [one for word in sorted(found, key=lambda word: len(found[word])) for one in found[word]]
    every.sort(key=lambda one: -every.count(one))
    return " ".join(found), [*dict.fromkeys(every)][:_MOST_NAMES]


def _told(name: str, parser: argparse.ArgumentParser) -> tuple[str, list[argparse.Action]] | None:
    """The options whose help has a word of the unknown one, and that word, if only a few have it."""
    found = {
        word: actions for word, actions in _having(name, parser, _help_of).items() if len(actions) <= _MOST_OPTIONS
    }
    return min(found.items(), key=lambda one: len(one[1]), default=None)


def _having(
    name: str, parser: argparse.ArgumentParser, texts: Callable[[argparse.Action], Sequence[str]]
) -> dict[str, list[argparse.Action]]:
    """The options with each word of a name that says something in their texts."""
    found: dict[str, list[argparse.Action]] = {}
    for word in _words(name):
        for is_same in (_has_stem_of, _begin_alike) if word not in _SAY_NOTHING else ():
            actions = [one for one in _options(parser) if any(is_same(text, word) for text in texts(one))]
            if actions:
                found[word] = actions
                break
    return found


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [one for one in parser._actions if one.option_strings and one.dest not in ("help", argparse.SUPPRESS)]


def _names_of(action: argparse.Action) -> list[str]:
    return [word for text in action.option_strings if text.startswith("--") for word in _words(text)]


def _help_of(action: argparse.Action) -> list[str]:
    return [] if action.dest in _OF_ALL else _words(f"{action.metavar or ''} {action.help or ''}")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _has_stem_of(one: str, other: str) -> bool:
    """Whether two words are the same but for their endings, such as hang and hanging, or partitions and partition."""
    return _ENDINGS.sub("", one) == _ENDINGS.sub("", other)


def _begin_alike(one: str, other: str) -> bool:
    """Whether a word begins another, such as time and timestamp."""
    shorter, longer = sorted((_ENDINGS.sub("", one), _ENDINGS.sub("", other)), key=len)
    return len(shorter) >= _LEAST_LETTERS and longer.startswith(shorter)


def _described(action: argparse.Action) -> str:
    """A line about an option: its name, its value, and the beginning of its help."""
    name = f"  {_flag(action):<28}"
    about = argparse.HelpFormatter("")._expand_help(action) if action.help else ""
    first = re.split(r"; |\. |(?<!default): | \(", about)[0]
    return f"{name}  {_shortened(first, _COLUMNS - len(name) - 2)}"


def _shortened(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder="...")


def _flag(action: argparse.Action) -> str:
    if action.nargs == 0:
        return action.option_strings[-1]
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    metavar = str(action.metavar or choices)
    return f"{action.option_strings[-1]} {metavar if len(metavar) < _COLUMNS // 4 else 'VALUE'}"


def _listed(parser: argparse.ArgumentParser, usual: Sequence[str]) -> list[str]:
    """The names of the options, the usual ones first, in as many lines as fit; and where the rest is."""
    actions = _options(parser)
    actions.sort(key=lambda one: [*usual, one.dest, *_OF_ALL].index(one.dest) + len(usual) * (one.dest in _OF_ALL))
    names = [one.option_strings[-1] for one in actions]
    lines = _wrapped(names)
    if len(lines) <= _MOST_LINES:
        return lines
    rest = f"... ({parser.prog} --help has all {len(names)})"
    while len(lines) > _MOST_LINES or len(lines[-1]) + len(rest) + 1 > _COLUMNS:
        names.pop()
        lines = _wrapped(names)
    return [*lines[:-1], f"{lines[-1]} {rest}"]


def _wrapped(names: Sequence[str]) -> list[str]:
    return textwrap.wrap(" ".join(names), _COLUMNS, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
