"""The parser of commands: a short help (`-h`), a long one (`--help`), and errors with suggestions.

From it, shtab makes the script of ``--completion``, with which a shell completes commands, options and paths.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

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
_OTHER_WORDS: Final = {"read": "cat", "consume": "cat", "check": "verify", "repair": "recover", "rebuild": "reindex"}
"""Commands by words that users try first."""


class Parser(argparse.ArgumentParser):
    """A parser with two helps, whose errors are one line that refers to the help."""

    short_help: tuple[str, str] = ("", "")
    """What the command does, and its examples."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "add_help": False})
        self.add_argument("-h", action=_ShortHelp, help="show the purpose, examples and the usual options")
        self.add_argument("--help", action="help", help="show all options")
        # the value of an option may be a time before now, such as -1h, which is no option
        self._negative_number_matcher = re.compile(r"-\d+(?:[a-z]{1,3}|\.\d+)?$")

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, it raises if the reader has closed the pipe."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with 2."""
        if missing := re.fullmatch(r"one of the arguments (.+) is required", message):
            *others, last = missing[1].split()
            message = f"add {', '.join(others)} or {last}"
        self.exit(Exit.USAGE, f"kafkalog: error: {message} (see {self.prog} -h)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; the error for an unknown option suggests a similar one."""
        # asked before argparse does, which would name the missing arguments first
        is_command = bool(self.short_help[0]) and self._subparsers is None
        if is_command and args and (unknown := [n for n, one in enumerate(args) if self._is_unknown(one)]):
            name, sign, value = args[unknown[0]].partition("=")
            following = args[unknown[0] + 1 : unknown[0] + 2]
            self.error(self._unknown_option(name, value if sign else "".join(following)))
        found, rest = super().parse_known_args(args, namespace)
        if rest and is_command:
            self.error(self._unknown_option(rest[0].partition("=")[0]))
        return found, rest

    def _is_unknown(self, argument: str) -> bool:
        """Whether an argument looks like a long option that this command does not have."""
        name = argument.partition("=")[0]
        return re.fullmatch(r"--[a-z][a-z-]*", name) is not None and name not in self._option_string_actions

    def _unknown_option(self, name: str, value: str = "") -> str:
        from kafkalog.text import near

        if not name.startswith("-"):
            return f"unexpected argument {name!r}"
        if name in ("--bootstrap-server", "--broker-list", "--zookeeper"):
            return f"no option {name}: kafkalog reads files, not brokers; name a log dir, such as /var/lib/kafka"
        if name in ("--file", "--files", "--path", "--paths", "--input"):
            return f"no option {name}: pass {_metavar(self._get_positional_actions()[0])} without an option"
        own = [text[2:] for text in self._option_string_actions if text.startswith("--")]
        meant = near(name[2:], own) or next((text for text in own if text.startswith(f"{name[2:]}-")), None)
        # a value that one option alone takes says which that is
        takes = [action.option_strings[-1] for action in self._actions if value in (action.choices or ())]
        found = f"--{meant}" if meant else takes[0] if len(takes) == 1 else None
        return f"no option {name}" + (f"; did you mean {found}?" if found else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.dest != "command" or action.choices is None or value in action.choices:
            super()._check_value(action, value)
            return
        from kafkalog.parsing import hint

        # functions have underscores where commands have hyphens
        name = str(value).replace("_", "-")
        known = [*action.choices]
        name = _OTHER_WORDS.get(name, name)
        meant = f"did you mean kafkalog {name}?" if name in known else hint(name, known)
        raise argparse.ArgumentError(None, f"no command {value!r}; {meant}")

    def format_short_help(self) -> str:
        """Return what ``-h`` prints."""
        description, examples = self.short_help
        formatter = argparse.RawDescriptionHelpFormatter(self.prog)
        if self._subparsers is not None:
            formatter.add_usage("%(prog)s COMMAND ...", [], [])
            formatter.add_text(description)
            formatter.add_text("\n".join(["commands:", *self._command_lines()]))
            formatter.add_text("\n".join(["examples:", *examples.split("\n")]))
            formatter.add_text(f"'{self.prog} COMMAND -h' describes a command, '{self.prog} --help' shows everything.")
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
        """Return a line for each command: its name, and its summary up to the first colon or semicolon."""
        (action,) = (one for one in self._actions if isinstance(one, argparse._SubParsersAction))
        known = [(one.dest, re.split("[:;]", str(one.help))[0]) for one in action._get_subactions()]
        width = max(len(name) for name, _ in known)
        return [f"  {name:<{width}}  {summary}" for name, summary in known]


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
