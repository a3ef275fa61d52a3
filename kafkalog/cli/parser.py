"""The parser of commands: a short help (`-h`), a long one (`--help`), and errors with suggestions.

From it, shtab makes the script of ``--completion``, with which a shell completes commands, options and paths.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafkalog.cli.commands import JOBS
from kafkalog.cli.exits import Exit
from kafkalog.errors import not_installed

if TYPE_CHECKING:
    from kafkalog.cli.option_leads import Instead
    from kafkalog.cli.typed import Advice

USUAL: Final = (
    "output",
    "topic",
    "in_place",
    "topics",
    "partitions",
    "offset",
    "timestamp",
    "limit",
    "tail",
    "start_offset",
    "end_offset",
    "start_timestamp",
    "end_timestamp",
    "filters",
    "columns",
    "segments",
    "summary",
    "open",
    "deep",
    "on_corruption",
    "print_data_log",
    "overwrite",
    "dry_run",
    "json",
)
"""The options that the short help shows, the most usual first."""
_MOST_USUAL: Final = 10
_MOST_EXAMPLES: Final = 3
_UNTIL_0_3: Final = {"--for": "--release", "--for-image": "--image"}
"""Old names of options, which are accepted until 0.3."""


class Misuse(SystemExit):
    """A command line that is wrong: its message, with the line that is meant."""

    def __init__(self, message: str, prog: str, advice: Advice | None = None) -> None:
        super().__init__(Exit.USAGE)
        self.message = message
        self.prog = prog
        self.advice = advice

    @property
    def lines(self) -> Sequence[str]:
        """What follows the message, on lines of its own."""
        return () if self.advice is None else self.advice.lines

    def text(self, line: Sequence[str] | None) -> str:
        """The message; `line` has the arguments of the advice that work, if any."""
        from kafkalog.cli.leads import left_out
        from kafkalog.cli.typed import LINE, shown

        if self.advice is None:
            return self.message
        whole = self.advice.otherwise if line is None else f"kafkalog {shown(line)}"
        said = (
            self.advice.text.replace(LINE, whole) if whole else re.sub(rf":? ?{LINE}(?: \| .*)?$", "", self.advice.text)
        )
        message = f"{self.message}{said}"
        return f"{message}{left_out(message, self.advice.typed)}"


class Parser(argparse.ArgumentParser):
    """A parser with two helps, whose errors are one line that refers to the help."""

    short_help: tuple[str, str] = ("", "")
    """What the command does, and its examples."""
    whole: Callable[[], argparse.ArgumentParser]
    """What makes the parser of all commands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "add_help": False})
        self.add_argument("-h", action=_ShortHelp, help="show the purpose, examples and the usual options")
        self.add_argument("--help", action="help", help="show all options")
        self._needed: list[list[str]] = []
        self._opens_output = False
        """Whether a line without an output gets the place of one, for the reader to fill in, and no ``--dry-run``."""
        # the value of an option may be a time before now, such as -1h, which is no option; nor is one of a wrong unit
        self._negative_number_matcher = re.compile(r"-\d+(?:[a-z]+|\.\d+)?$")

    def need_one(self, alternatives: Any, others: Sequence[str]) -> None:
        """Require one option of a group or of `others`, or ``--dry-run``."""
        if alternatives.required or others:
            alternatives.required = False
            own = ["/".join(action.option_strings) for action in alternatives._group_actions]
            self._needed.append([*own, *others])
            self._opens_output = bool(others)

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, it raises if the reader has closed the pipe."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str, advice: Advice | None = None) -> NoReturn:
        """Raise `Misuse` with the message."""
        if missing := re.fullmatch(r"one of the arguments (.+) is required", message):
            *others, last = missing[1].split()
            message, advice = f"add {', '.join(others)} or {last}", self._meant_output()
        elif message.startswith("the following arguments are required: "):
            message += self._taken_path()
            advice = self._meant_output()
            if message.endswith(" -o/--output") and not advice and self._given:
                advice = self._with_open_output()
            if self._subparsers is not None:
                message += f": {' or '.join(self._subparsers._group_actions[0].choices or ())}"
        elif found := re.fullmatch(r"argument (\S+?)(?:/(\S+))?: expected one argument", message):
            option = found[2] or found[1]
            advice = self._without_value(option)
            metavar = self._option_string_actions[option].metavar
            message = message if advice or metavar is None else f"{option} needs a value: {option} {metavar}"
        raise Misuse(message, self.prog, advice)

    def _without_value(self, option: str) -> Advice | None:
        """The meaning of an option for names that has none: all names, as in Kafka's scripts."""
        from kafkalog.cli.typed import LINE, Advice

        others = [word for word in self._given if word not in (option, *self._short(option))]
        word = option.lstrip("-")
        shows = [one.option_strings[-1] for one in self._actions if option in ("--topics",) and _takes(one, word)]
        if option not in ("--topics", "--groups"):
            return None
        line = [*self.prog.split()[1:], *others, *([shows[0], word] if shows else [])]
        return Advice(f"; use {shows[0]} {word}: {LINE}" if shows else f"; without it, all are read: {LINE}", line)

    def _short(self, option: str) -> Sequence[str]:
        return self._option_string_actions[option].option_strings

    def _taken_path(self) -> str:
        """The end of the message about a missing argument: the option that took it, or the command that was meant."""
        for option, value in itertools.pairwise(self._given):
            if option.startswith("-") and os.path.isdir(value):
                return f"; {option} took {value} as its value: put it first, or give {option} a value"
        return ""

    def _meant_output(self, *, is_needed: bool = True) -> Advice:
        """The end of the message about a missing output: the command line, if a path was meant as one."""
        from kafkalog.cli.positional import positional, with_output
        from kafkalog.cli.typed import is_path, shown

        own = self._valued()
        words = positional(self._given, own)
        self._check_paths(words)
        writes = str(self._option_string_actions["--output"].metavar) if "--output" in own else ""
        advice = with_output(self.prog, words, self._given, own, writes)
        missing = [word for word in words if not is_path(word)]
        if is_needed and not advice and missing and len(words) > len(missing):
            self.error(f"no file or directory {shown(missing[:1])}; -o names the output")
        return advice

    def _valued(self) -> Mapping[str, bool]:
        """The options, and whether each takes a value."""
        return {text: action.nargs != 0 for text, action in self._option_string_actions.items()}

    def _with_open_output(self) -> Advice:
        """The command line with what is missing, for the reader to fill in."""
        from kafkalog.cli.typed import LINE, Advice, shown

        line = [*self._given, "-o", str(self._option_string_actions["--output"].metavar)]
        if self.prog.endswith(" load") and "--topic" not in self._given:
            line += ["--topic", "TOPIC"]
        return Advice(f": {LINE}", [*self.prog.split()[1:], *line], f"{self.prog} {shown(line)}")

    def _to_stdout(self, found: argparse.Namespace) -> Advice:
        """The end of the message about a missing output: to stdout, if that is no terminal, or else a dry run."""
        from kafkalog.cli.typed import LINE, Advice
        from kafkalog.interchange.file_types import STREAM_FORMATS

        line = [*self.prog.split()[1:], *self._given]
        if self._opens_output:
            return self._with_open_output()
        if getattr(found, "format", None) in STREAM_FORMATS and not sys.stdout.isatty():
            return Advice(f": {LINE}", [*line, "-o", "-"])
        return Advice(f", which shows what it would do: {LINE}", [*line, "--dry-run"])

    def _check_paths(self, paths: Sequence[str]) -> None:
        """Raise an error for a path that is none, but a topic, a group, a condition or the like, with its option."""
        from kafkalog.cli.positional import instead
        from kafkalog.cli.typed import LINE, Advice

        takes = {
            word: [action.option_strings[-1] for action in self._actions if _takes(action, word)] for word in paths
        }
        prog = self.prog.split()[1:]
        if found := instead(paths, " ".join(prog), self._valued(), takes, self._given):
            text, line = found
            joint = " " if text.endswith("?") else ": "
            self.error(text, Advice(f"{joint}{LINE}", [*prog, *line]) if line else None)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; the error for an unknown option names what to type instead."""
        self._given = list(args or ())
        # asked before argparse does, which would name the missing arguments first
        if self.short_help[0]:
            args = self._with_whole_options(self._given)
        found, rest = super().parse_known_args(args, namespace)
        self._check(found, rest)
        return found, rest

    def _check(self, found: argparse.Namespace, rest: Sequence[str]) -> None:
        """Raise an error for what no option says: topics or an output among the paths, and words too many."""
        if self._subparsers is not None:
            return
        if len(paths := getattr(found, "paths", None) or ()) > 1:
            self._check_paths(paths)
        self._check_needs(found)
        for names in self._needed:
            dests = [name.rpartition("--")[2].replace("-", "_") for name in names]
            if not any(getattr(found, dest) for dest in (*dests, "dry_run")):
                self.error(f"add {', '.join(names)} or --dry-run", self._meant_output() or self._to_stdout(found))
        if (
            getattr(found, "output", "") is None
            and len(found.paths) > 1
            and (advice := self._meant_output(is_needed=False))
        ):
            self.error("an output has an option", advice)
        if rest and self.short_help[0]:
            from kafkalog.cli.positional import unexpected

            advice = unexpected(rest[0], self.prog.partition(" ")[2], self._valued(), self._given)
            self.error(f"unexpected argument {rest[0]!r}", advice)

    def _check_needs(self, found: argparse.Namespace) -> None:
        """Raise an error if an option is given without the one that it needs; see `Command.needs`."""
        from kafkalog.cli.typed import LINE, Advice

        for name, needed in getattr(found, "needs", {}).items():
            other = f"--{re.split('[; ]', needed)[0]}"
            if getattr(found, name) not in (None, False) and not getattr(found, other[2:].replace("-", "_")):
                is_whole = self._option_string_actions[other].nargs == 0 and other == f"--{needed}"
                reads = other not in ("--in-place", "--install")
                line = [*self.prog.split()[1:], *self._given, other] if is_whole and reads else []
                self.error(f"--{name.replace('_', '-')} needs --{needed}", Advice(f": {LINE}", line))

    def _with_whole_options(self, args: Sequence[str]) -> list[str]:
        """The arguments with options in full, of which only the beginning was typed; an error for unknown ones."""
        from kafkalog.cli.option_leads import explained

        whole: list[str] = []
        unknown: list[tuple[str, Instead]] = []
        left = [{"/?": "-h", "-?": "-h"}.get(one, one) for one in args]
        while left:
            argument = left.pop(0)
            if argument == "--" or (self._subparsers is not None and not argument.startswith("-")):
                whole += [argument, *left]
                break
            name, sign, value = argument.partition("=")
            if self._is_long(name):
                name = f"-{name}"
                argument = f"{name}{sign}{value}"
            if not self._is_unknown(name, left[:1]):
                whole.append(argument)
                continue
            meant = self._option_like(name, value if sign else "".join(left[:1]), is_joined=bool(sign))
            if isinstance(meant, str):
                whole.append(f"{meant}{sign}{value}")
                continue
            unknown.append((name, meant))
            whole += meant.words or ()
            del left[: int(meant.takes_value)]
            if self._subparsers is not None:
                break
        if unknown:
            message, advice = explained(unknown, whole, self.prog, self._given)
            self.error(f"{message}; ", advice)
        return whole

    def _is_long(self, name: str) -> bool:
        """Whether a word stands after one dash, as DuckDB and Java programs have them; our -o would take its rest."""
        actions = self._option_string_actions
        if not re.fullmatch(r"-[A-Za-z][A-Za-z-]{2,}", name):
            return False
        takes_none = name[:2] in actions and actions[name[:2]].nargs == 0
        is_flags = all(f"-{letter}" in actions for letter in name[1:])
        return f"-{name}" in actions or f"-{name}s" in actions or (takes_none and not is_flags)

    def _is_unknown(self, name: str, following: Sequence[str]) -> bool:
        """Whether an argument looks like an option that this command does not have, or not in this meaning."""
        if re.fullmatch(r"--[A-Za-z][\w-]*", name):
            return name not in self._option_string_actions
        if name == "-0" or (name == "-1" and "--segments" in self._option_string_actions):
            return True  # as of xargs, and a column, as in the shell
        if not re.fullmatch(r"-[A-Za-z]\S*", name):
            return False
        # the format of kcat would become a path after our --follow
        return name[:2] not in self._option_string_actions or (name == "-f" and "%" in "".join(following))

    def _option_like(self, name: str, value: str, *, is_joined: bool) -> str | Instead:
        """The option that is meant by the beginning of its name, or else what to type instead."""
        from kafkalog.cli.option_leads import unknown_option
        from kafkalog.text import near_name

        actions = self._option_string_actions
        known = [text for text in actions if text.startswith("--")]
        spelt = name.replace("_", "-")
        spelt = _UNTIL_0_3.get(spelt, spelt)
        if spelt in known:
            return spelt
        # --limits are no limit on rows
        if f"{spelt}s" in known and spelt != "--limit":
            return f"{spelt}s"
        # a value that one option alone takes says which that is
        takes = [action.option_strings[-1] for action in self._actions if _takes(action, value)]
        if value.isdecimal():  # many options take a number: the name has to be similar, too
            takes = [one for one in takes if near_name(spelt[2:], [one[2:]])]
        command = self.prog.rpartition(" ")[2]
        lead = unknown_option(
            spelt, value, command, self._valued(), self._given, is_joined=is_joined, is_valid=self._is_valid
        )
        if lead is not None and not (len(takes) == 1 and spelt == "--to"):
            return lead
        return self._longer(spelt, known, takes)

    def _is_valid(self, words: Sequence[str]) -> bool:
        """Whether options take the values that follow them."""
        for option, value in itertools.pairwise([*words, ""]):
            action = self._option_string_actions.get(option)
            if action is not None and action.nargs != 0:
                try:
                    argparse.ArgumentParser._check_value(self, action, self._get_value(action, value))
                except (argparse.ArgumentError, ValueError):
                    return False
        return True

    def _longer(self, spelt: str, known: Sequence[str], takes: Sequence[str]) -> str | Instead:
        """The one option whose last word begins so; or those that may be meant if there are others or none."""
        from kafkalog.cli.leads import FIRST, filled
        from kafkalog.cli.option_leads import Instead
        from kafkalog.cli.other_options import alternatives, commands_with
        from kafkalog.text import near_name

        longer = _completing(spelt, known, takes)
        if len(longer) == 1 and (longer == takes or not commands_with(spelt, Parser.whole)):
            return longer[0]
        close = near_name(spelt[2:], [text[2:] for text in known])
        meant = longer or ([f"--{close}"] if close else takes if len(takes) == 1 else [])
        if meant:
            return Instead(f"did you mean {' or '.join(meant)}?", words=meant if len(meant) == 1 else None)
        if self._subparsers is not None:
            return Instead(filled(FIRST, self._given))
        return Instead(*alternatives(spelt, self, USUAL, Parser.whole))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        from kafkalog.text import near

        if action.choices is None or value in action.choices or action.dest != "command":
            meant = None if action.choices is None else near(str(value), map(str, action.choices))
            if meant not in (None, str(value)):
                raise argparse.ArgumentError(action, f"{value!r} is none of its values; did you mean {meant}?")
            if meant is None and action.dest == "job":
                jobs = " and ".join(map(str, action.choices or ()))
                self.error(f"no command '{self.prog.split()[-1]} {value}'; there are {jobs}; {self.epilog}")
            super()._check_value(action, value)
            return
        from kafkalog.cli.leads import unknown_command

        typed = self._given[self._given.index(value) :]
        self.error(f"no command {value!r}; ", unknown_command(typed, [*action.choices]))

    def format_short_help(self) -> str:
        """Return what ``-h`` prints."""
        description, examples = self.short_help
        formatter = argparse.RawDescriptionHelpFormatter(self.prog)
        if self._subparsers is not None:
            formatter.add_usage("%(prog)s COMMAND ...", [], [])
            formatter.add_text(description)
            formatter.add_text("\n".join(["first:", *examples.split("\n")]))
            formatter.add_text("\n".join(["commands:", *self._command_lines()]))
            formatter.add_text(f"'{self.prog} COMMAND -h' describes a command, '{self.prog} --help' shows all.")
            return formatter.format_help()
        positional = [action for action in self._actions if not action.option_strings]
        shown = sorted(
            (action for action in self._actions if action.dest in USUAL and action.option_strings),
            key=lambda action: USUAL.index(action.dest),
        )[:_MOST_USUAL]
        names = " ".join(_metavar(action) for action in positional)
        formatter.add_usage(f"%(prog)s [OPTION...] {names}", [], [])
        formatter.add_text(description)
        formatter.add_text("\n".join(["examples:", *examples.split("\n")[:_MOST_EXAMPLES]]))
        formatter.start_section("usual options")
        formatter.add_arguments(shown)
        formatter.end_section()
        formatter.add_text(f"'{self.prog} --help' shows all options.")
        return formatter.format_help()

    def _command_lines(self) -> list[str]:
        """Return a line for each command, by job: its name, and its summary up to the first colon or semicolon."""
        (action,) = (one for one in self._actions if isinstance(one, argparse._SubParsersAction))
        known = [(one.dest, re.split("[:;]", str(one.help))[0]) for one in action._get_subactions()]
        width = max(len(name) for name, _ in known)
        first = {names[0]: job for job, names in JOBS.items()}
        return [f"  {first.get(name, ''):<10}  {name:<{width}}  {summary}" for name, summary in known]


class _ShortHelp(argparse.Action):
    """``-h``: prints the short help and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *args: Any, **options: Any) -> None:
        """Print the short help, or all of a parser that has none."""
        assert isinstance(parser, Parser)
        sys.stdout.write(parser.format_short_help() if parser.short_help[0] else parser.format_help())
        parser.exit()


def _takes(action: argparse.Action, value: str) -> bool:
    """Whether a value is one of the choices of an option, alone or in a list; a command is the choice of no option."""
    if not action.option_strings:
        return False
    known = getattr(getattr(action, "type", None), "keywords", {}).get("known") or ""
    return value in (action.choices or ()) or (bool(value) and value in known.split(","))


def _completing(spelt: str, known: Sequence[str], takes: Sequence[str]) -> Sequence[str]:
    """The options whose last word begins so, or the only one of all that takes the value.

    One with more words may be about something else, as ``--offset-column`` is for ``--offset``.
    """
    if len(takes) == 1 and takes[0].startswith(spelt):
        return takes
    words = re.compile(f"{re.escape(spelt)}[a-z]*")
    return [text for text in known if words.fullmatch(text) and len(spelt) > len("--to")]


def _metavar(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return f"{name}..." if action.nargs == "+" else name


SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = frozenset({"FILE", "INPUT", "PATH", "TO"})
_DIRECTORIES: Final = frozenset({"DIR", "LOG_DIR", "REPLICA", "SOURCE", "TARGET"})


class Completion(argparse.Action):
    """Prints the script for a shell, and ends; `build_parser` returns the parser of all commands."""

    def __init__(self, *args: Any, build_parser: Callable[[], argparse.ArgumentParser], **options: Any) -> None:
        super().__init__(*args, **{**options, "default": argparse.SUPPRESS, "choices": SHELLS})
        self._build_parser = build_parser

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: Any = None) -> None:
        """Print the script."""
        try:
            import shtab
        except ImportError:
            text = not_installed("--completion needs shtab", "completion")
            parser.exit(Exit.USAGE, f"kafkalog: error: {text}\n")
        whole = self._build_parser()
        for action in _actions(whole):
            names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or action.dest.upper(),)
            if _FILES.intersection(names):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif _DIRECTORIES.intersection(names):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        sys.stdout.write(shtab.complete(whole, values))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Arguments of a parser and of all parsers below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
        else:
            yield action
