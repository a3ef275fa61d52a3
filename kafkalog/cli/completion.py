"""``--completion SHELL``: prints the script with which a shell completes commands, options and paths.

shtab makes it of the parser.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from kafkalog.cli.exits import Exit

SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = frozenset({"FILE", "INPUT", "PATH", "TO"})
_DIRECTORIES: Final = frozenset({"DIR", "LOG_DIR", "REPLICA", "SOURCE", "TARGET"})


class Completion(argparse.Action):
    """Prints the script for a shell, and ends.

    Parameters
    ----------
    build_parser : callable
        Returns the parser of all commands.
    """

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
