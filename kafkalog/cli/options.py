"""Options that commands share, and how their values are read."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafkalog.cli.exits import EXIT_CODES_HELP, Exit, UsageError
from kafkalog.cli.text import parse_bytes

if TYPE_CHECKING:
    from kafkalog.errors import Limits

PATH_HELP: Final = """\
PATH is a log dir (a value of a broker's log.dirs, or a copy of one), a topic-partition directory such as orders-0 in
it, or a single .log file. Several may be given."""
_READ_ONLY: Final = " Files are only read, never written."


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in a line, and where the rest is to be read."""

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, a reader that went away is noticed."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Say it, and end with 2."""
        self.exit(Exit.USAGE, f"kafkalog: error: {message} (see {self.prog} --help)\n")


@dataclass(frozen=True, slots=True)
class Words:
    """What the help of a command says.

    Attributes
    ----------
    summary : str
        A sentence, for the list of commands.
    description : str
    examples : str
    """

    summary: str
    description: str
    examples: str


def add_command(commands: Any, name: str, words: Words, *, writes: bool = False) -> argparse.ArgumentParser:
    """A command's parser, with what all commands have; `writes` where files at PATH may be changed."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=words.summary,
        description=f"{words.description}\n\n{PATH_HELP}{'' if writes else _READ_ONLY}",
        epilog=f"examples:\n{words.examples}\n\n{EXIT_CODES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="log dir, partition directory or .log file")
    speech = parser.add_mutually_exclusive_group()
    speech.add_argument(
        "-q", "--quiet", action="store_true", help="no progress bar, no notes; damage and errors are still said"
    )
    speech.add_argument(
        "-v", "--verbose", action="store_true", help="also say what is usual, such as a torn tail, and all the damage"
    )
    return parser


def add_selection(parser: argparse.ArgumentParser) -> None:
    """``--topics`` and ``--partitions``."""
    parser.add_argument(
        "-t", "--topics", metavar="T,...", action="append", type=names, help="only these topics; may be repeated"
    )
    parser.add_argument(
        "-p",
        "--partitions",
        metavar="N,...",
        action="append",
        type=numbers,
        help="only these partition numbers, of each topic; may be repeated",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """``--limit``."""
    parser.add_argument(
        "--limit",
        metavar="NAME=N",
        dest="limits",
        action="append",
        default=[],
        type=limit,
        help="raise or lower a limit on what a file may make us do: max_batch_bytes, max_decompressed_bytes,"
        " max_headers_per_record, max_segment_bytes, max_open_transactions, max_directories, max_findings (K, M and G"
        " are understood)",
    )


def names(text: str) -> list[str]:
    """A comma list of names."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("a name is expected")
    return found


def numbers(text: str) -> list[int]:
    """A comma list of partition numbers."""
    try:
        found = [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"partition numbers are expected, not {text!r}") from None
    if not found or min(found) < 0:
        raise argparse.ArgumentTypeError(f"partition numbers are expected, not {text!r}")
    return found


def count(text: str) -> int:
    """A number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number of records is expected, not {text!r}")
    return int(text)


def limit(text: str) -> tuple[str, int]:
    """``name=value``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"name=value is expected, such as max_batch_bytes=200M, not {text!r}")
    try:
        return name.strip(), parse_bytes(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{name}: {error}") from None


def timestamp(text: str) -> int | datetime:
    """Milliseconds, or ISO 8601 with a zone."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"milliseconds or a time such as 2026-11-21T08:00:00Z is expected, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        whole = text if len(text) > 10 else f"{text}T00:00"
        raise argparse.ArgumentTypeError(f"which zone? add Z for UTC or an offset: {whole}Z or {whole}+02:00")
    return moment


def flatten(lists: list[list[Any]] | None) -> list[Any] | None:
    """The values of an option that may be repeated and takes lists; None if it was not given."""
    return None if lists is None else list(dict.fromkeys(value for values in lists for value in values))


def make_limits(pairs: list[tuple[str, int]]) -> Limits:
    """The limits that were asked for.

    Raises
    ------
    UsageError
        A limit that is none.
    """
    from dataclasses import fields

    from kafkalog.errors import Limits

    known = [item.name for item in fields(Limits)]
    for name, _ in pairs:
        if name not in known:
            raise UsageError(f"no limit {name!r}; there are {', '.join(known)}")
    try:
        return Limits(**dict(pairs))
    except ValueError as error:
        raise UsageError(str(error)) from None
