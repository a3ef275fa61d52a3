"""The parser of commands: a short help (`-h`), a long one (`--help`), and errors with suggestions.

From it, shtab makes the script of ``--completion``, with which a shell completes commands, options and paths.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from kafkalog.cli.commands import JOBS
from kafkalog.cli.exits import Exit

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


class Parser(argparse.ArgumentParser):
    """A parser with two helps, whose errors are one line that refers to the help."""

    short_help: tuple[str, str] = ("", "")
    """What the command does, and its examples."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "add_help": False})
        self.add_argument("-h", action=_ShortHelp, help="show the purpose, examples and the usual options")
        self.add_argument("--help", action="help", help="show all options")
        self._needed: list[list[str]] = []
        # the value of an option may be a time before now, such as -1h, which is no option; nor is one of a wrong unit
        self._negative_number_matcher = re.compile(r"-\d+(?:[a-z]+|\.\d+)?$")

    def need_one(self, alternatives: Any) -> None:
        """Require one of some options, or ``--dry-run``, if the options are required."""
        if alternatives.required:
            alternatives.required = False
            self._needed.append(["/".join(action.option_strings) for action in alternatives._group_actions])

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, it raises if the reader has closed the pipe."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with 2."""
        if missing := re.fullmatch(r"one of the arguments (.+) is required", message):
            *others, last = missing[1].split()
            message = f"add {', '.join(others)} or {last}{self._meant_output()}"
        elif message.startswith("the following arguments are required: "):
            message += self._taken_path() or self._meant_output()
            if self._subparsers is not None:
                message += f": {' or '.join(self._subparsers._group_actions[0].choices or ())}"
        self.exit(Exit.USAGE, f"kafkalog: error: {message} (see {self.prog} -h)\n")

    def _taken_path(self) -> str:
        """The end of the message about a missing argument: what took it as a value, or the command that was meant."""
        for option, value in itertools.pairwise(self._given):
            if option.startswith("-") and os.path.isdir(value):
                return f"; {option} took {value} as its value: put it first, or give {option} a value"
        return ""

    def _meant_output(self) -> str:
        """The end of the message about a missing output: the command line, if a path was meant as one."""
        from kafkalog.cli.leads import with_output

        takes_value = {text: one for text, one in self._option_string_actions.items() if one.nargs != 0}
        output = takes_value.get("--output")
        writes = "" if output is None else str(output.metavar)
        return with_output(self.prog, self._given, takes_value, writes)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; the error for an unknown option names what to type instead."""
        self._given = list(args or ())
        # asked before argparse does, which would name the missing arguments first
        if self.short_help[0]:
            args = self._with_whole_options(self._given)
        found, rest = super().parse_known_args(args, namespace)
        for names in self._needed:
            dests = [name.rpartition("--")[2].replace("-", "_") for name in names]
            if not any(getattr(found, dest) for dest in (*dests, "dry_run")):
                self.error(f"add {', '.join(names)} or --dry-run{self._meant_output()}")
        if getattr(found, "output", "") is None and len(found.paths) > 1 and (line := self._meant_output()):
            self.error(f"an output has an option{line}")
        if rest and self.short_help[0] and self._subparsers is None:
            from kafkalog.cli.leads import unexpected

            hint = unexpected(rest[0], self.prog.rpartition(" ")[2], self._given)
            self.error(f"unexpected argument {rest[0]!r}{hint}")
        return found, rest

    def _with_whole_options(self, args: Sequence[str]) -> list[str]:
        """The arguments with options in full, of which only the beginning was typed; an error for unknown ones."""
        whole: list[str] = []
        for number, argument in enumerate({"/?": "-h", "-?": "-h"}.get(one, one) for one in args):
            if argument == "--" or (self._subparsers is not None and not argument.startswith("-")):
                return [*whole, *args[number:]]
            name, sign, value = argument.partition("=")
            if self._is_long(name):
                name = f"-{name}"
                argument = f"{name}{sign}{value}"
            if not self._is_unknown(name, [*args[number + 1 : number + 2]]):
                whole.append(argument)
                continue
            meant = self._option_like(name, value if sign else "".join(args[number + 1 : number + 2]))
            whole.append(f"{meant}{sign}{value}")
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
        if name == "-1" and "--segments" in self._option_string_actions:
            return True  # a column, as in the shell
        if not re.fullmatch(r"-[A-Za-z]\S*", name):
            return False
        # the format of kcat would become a path after our --follow
        return name[:2] not in self._option_string_actions or (name == "-f" and "%" in "".join(following))

    def _option_like(self, name: str, value: str) -> str:
        """The option that is meant by the beginning of its name; an error that says what to type if none is."""
        from kafkalog.cli.leads import filled, unknown_option

        known = [text for text in self._option_string_actions if text.startswith("--")]
        spelt = name.replace("_", "-")
        spelt = _UNTIL_0_3.get(spelt, spelt)
        if spelt in known:
            return spelt
        # --limits are no limit on rows
        if f"{spelt}s" in known and spelt != "--limit":
            return f"{spelt}s"
        # a value that one option alone takes says which that is
        takes = [action.option_strings[-1] for action in self._actions if value in (action.choices or ())]
        lead = unknown_option(spelt, value, self.prog.rpartition(" ")[2], self._option_string_actions)
        if lead is not None and not (len(takes) == 1 and spelt == "--to"):
            self.error(f"no option {name}; {'use ' if lead.startswith('-') else ''}{filled(lead, self._given)}")
        return self._longer(spelt, name, known, takes)

    def _longer(self, spelt: str, name: str, known: Sequence[str], takes: Sequence[str]) -> str:
        """The one option that begins so; an error that names those that may be meant if there are others or none."""
        from kafkalog.cli.leads import FIRST, filled
        from kafkalog.text import near

        longer = [text for text in known if len(spelt) > len("--to") and text.startswith(spelt)]
        if len(longer) == 1:
            return longer[0]
        close = near(spelt[2:], [text[2:] for text in known])
        meant = longer or ([f"--{close}"] if close else takes if len(takes) == 1 else [])
        other = f"{self.prog} --help lists all" if self._subparsers is None else filled(FIRST, self._given)
        hint = f"did you mean {' or '.join(meant)}?" if meant else other
        return self.error(f"no option {name}; {hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.dest != "command" or action.choices is None or value in action.choices:
            super()._check_value(action, value)
            return
        from kafkalog.cli.leads import unknown_command

        typed = self._given[self._given.index(value) :]
        raise argparse.ArgumentError(None, f"no command {value!r}; {unknown_command(typed, [*action.choices])}")

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


def _metavar(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    if isinstance(action.nargs, int):
        return " ".join([name] * action.nargs)
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
            parser.exit(Exit.USAGE, "kafkalog: error: --completion needs shtab: pip install shtab\n")
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
