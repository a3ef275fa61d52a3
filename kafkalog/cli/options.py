"""Options that commands share, and the parsing of their values."""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafkalog.cli.commands import SUMMARIES
from kafkalog.cli.exits import EXIT_CODES_HELP, Exit, UsageError
from kafkalog.cli.text import parse_bytes

if TYPE_CHECKING:
    from kafkalog.errors import Limits
    from kafkalog.format import TopicPartition
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.partition import Partition
    from kafkalog.log.segment import Segment

PATH_HELP: Final = """\
PATH is a log dir (a value of a broker's log.dirs, or a copy of one), a topic-partition directory such as orders-0 in
it, or a single .log file. Several may be given."""
_READ_ONLY: Final = " Files are only read, never written."


FILTER_HELP: Final = """\
--filter takes COLUMN OP VALUE; repeated, all must hold:
  key == abc                       ==, !=, <, <=, >, >=; of bytes also starts_with and contains
  key in abc,def,null              in, not in: a list; null in it is no value
  value is null                    is null, is not null
  timestamp >= 2026-11-21T08:00Z   times in ISO 8601 with a zone, or in milliseconds
  headers has trace-id             has, has not: a header of that name
  headers.trace-id == 0x0aff       any header of that name
  compression == zstd              also topic, partition, segment, is_transactional == true, ...
  timestamp_type == LogAppendTime  or CreateTime, NoTimestampType; or 1, 0, -1
Bytes are given as text, as 0x and hex digits, or as base64: and base64. A value in quotes is text as it stands."""

_CONDITION: Final = re.compile(
    r"""\s*(?P<column>headers\.(?:"[^"]+"|[^\s=!<>"]+)|\w+)
    (?:\s*(?P<sign>==|!=|<=|>=|=|<|>)|\s+(?P<word>(?i:is\s+not\s+null|is\s+null|not\s+in|in|has\s+not|has|starts_with|contains))(?!\S))
    \s*(?P<value>.*?)\s*""",
    re.VERBOSE | re.DOTALL,
)
_ITEM: Final = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|\Z)""", re.DOTALL)
_QUOTED: Final = re.compile(r"""(["'])(.*)\1""", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line that refers to the help."""

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, it raises if the reader has closed the pipe."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with 2."""
        self.exit(Exit.USAGE, f"kafkalog: error: {message} (see {self.prog} --help)\n")


@dataclass(frozen=True, slots=True)
class HelpText:
    """The texts in the help of a command.

    Attributes
    ----------
    description : str
    examples : str
    summary : str, optional
        A sentence for the list of commands; default: the one in `SUMMARIES`.
    """

    description: str
    examples: str
    summary: str | None = None


def add_command(
    commands: Any, name: str, words: HelpText, *, paths: tuple[str, str, str] | None = None, writes: bool = False
) -> argparse.ArgumentParser:
    """Add a command's parser, with the arguments that all commands have.

    Parameters
    ----------
    paths : tuple of str, optional
        Name of the positional paths, their help, and a paragraph about them. Default: paths of log dirs, partition
        directories and segments.
    writes : bool
        Whether the command may change files at PATH.
    """
    usual = ("PATH", "log dir, partition directory or .log file", PATH_HELP + ("" if writes else _READ_ONLY))
    metavar, path_help, about_paths = paths or usual
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=words.summary or SUMMARIES[name],
        description=f"{words.description}\n\n{about_paths}",
        epilog=f"examples:\n{words.examples}\n\n{EXIT_CODES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("paths", metavar=metavar, nargs="+", help=path_help)
    speech = parser.add_mutually_exclusive_group()
    speech.add_argument(
        "-q", "--quiet", action="store_true", help="no progress bar, no notes; damage and errors are still said"
    )
    speech.add_argument(
        "-v", "--verbose", action="store_true", help="also say what is usual, such as a torn tail, and all the damage"
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write all that was found to a file as JSON: offsets and records lost by each finding, and how sure that"
        " is, and the sum of each partition",
    )
    return parser


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add ``--topics`` and ``--partitions``."""
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


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add ``--filter``; the description of the command should include `FILTER_HELP`."""
    parser.add_argument(
        "--filter",
        metavar="'COLUMN OP VALUE'",
        dest="filters",
        action="append",
        type=condition,
        help="only records of which this holds, such as 'key == abc'; may be repeated: then all must hold",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add ``--limit``."""
    parser.add_argument(
        "--limit",
        metavar="NAME=N",
        dest="limits",
        action="append",
        default=[],
        type=limit,
        help="raise or lower a limit on what a file may make us do: max_batch_bytes, max_decompressed_bytes,"
        " max_records_per_batch, max_headers_per_record, max_headers_per_batch, max_segment_bytes,"
        " max_open_transactions, max_directories, max_findings (K, M and G are understood)",
    )


def names(text: str) -> list[str]:
    """Parse a comma-separated list of names."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("a name is expected")
    return found


def numbers(text: str) -> list[int]:
    """Parse a comma-separated list of partition numbers."""
    try:
        found = [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"partition numbers are expected, not {text!r}") from None
    if not found or min(found) < 0:
        raise argparse.ArgumentTypeError(f"partition numbers are expected, not {text!r}")
    return found


def count(text: str) -> int:
    """Parse a number that is not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number of records is expected, not {text!r}")
    return min(int(text[:20]), 2**62)


def limit(text: str) -> tuple[str, int]:
    """Parse ``name=value`` of ``--limit``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"name=value is expected, such as max_batch_bytes=200M, not {text!r}")
    try:
        return name.strip(), parse_bytes(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{name}: {error}") from None


def timestamp(text: str) -> int | datetime:
    """Parse milliseconds, or ISO 8601 with a time zone."""
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


def condition(text: str) -> tuple[Any, ...]:
    """Parse ``COLUMN OP VALUE`` into a filter; see `FILTER_HELP`."""
    from kafkalog.scanning.filters import check_term

    match = _CONDITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"COLUMN OP VALUE is expected, such as 'key == abc' or 'timestamp >= 2026-11-21T08:00Z', not {text!r}"
        )
    column = match["column"].replace('"', "")
    operation = match["sign"] or " ".join(match["word"].lower().split())
    try:
        if operation.startswith("is "):
            if match["value"]:
                raise ValueError(f"{operation!r} takes no value")
            term: tuple[Any, ...] = (column, operation)
        elif operation in ("in", "not in"):
            items = [item for item in _ITEM.findall(match["value"]) if item]
            if not items:
                raise ValueError("a list of values is expected, such as a,b,c")
            term = (column, operation, [None if item == "null" else _value(column, item) for item in items])
        elif not match["value"]:
            raise ValueError('a value is expected; the empty one is ""')
        elif match["value"] == "null":
            negated = " not" if operation == "!=" else ""
            raise ValueError(f"nothing compares with null; write '{column} is{negated} null'")
        else:
            term = (column, operation, _value(column, match["value"]))
        check_term(term)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return term


def _value(column: str, text: str) -> Any:
    """Parse a value of a column's type; raises ValueError with what was expected."""
    from kafkalog.records.columns import BINARY_COLUMNS, FIXED_COLUMNS

    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return quoted[2]
    if column in BINARY_COLUMNS or column.startswith("headers."):
        return _bytes(text)
    if column == "timestamp":
        return timestamp(text)
    if column == "compression" or column not in (*FIXED_COLUMNS, "partition"):
        return text
    if column == "timestamp_type" and text[:1].isalpha():
        return text
    if column.startswith("is_"):
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{column} is true or false, not {text!r}")
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{column} is a whole number, not {text!r}") from None


def _bytes(text: str) -> str | bytes:
    if text[:2] in ("0x", "0X"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise ValueError(f"{text!r} is not hex; in quotes it is text as it stands") from None
    if text.startswith("base64:"):
        try:
            return base64.b64decode(text[7:], validate=True)
        except binascii.Error:
            raise ValueError(f"{text!r} is not base64; in quotes it is text as it stands") from None
    return text


def flatten(lists: list[list[Any]] | None) -> list[Any] | None:
    """Return the distinct values of a repeatable option that takes lists; None if it was not given."""
    return None if lists is None else list(dict.fromkeys(value for values in lists for value in values))


def selected_bytes(opened: LogDir | Partition | Segment, args: argparse.Namespace) -> int:
    """Return the size of the `.log` files that ``--topics`` and ``--partitions`` select, for a progress bar."""
    from kafkalog.errors import KafkalogError
    from kafkalog.log.log_dir import LogDir

    if not isinstance(opened, LogDir):
        return opened.size_in_bytes
    total = 0
    for key in selected_keys(opened, args):
        with contextlib.suppress(KafkalogError):  # reported when the partition is read
            total += opened[key].size_in_bytes
    return total


def selected_keys(log_dir: LogDir, args: argparse.Namespace) -> list[TopicPartition]:
    """Return the partitions that ``--topics`` and ``--partitions`` select, also those that cannot be opened."""
    return log_dir.select(flatten(args.topics), flatten(args.partitions))


def make_limits(pairs: list[tuple[str, int]]) -> Limits:
    """Return the limits given with ``--limit``.

    Raises
    ------
    UsageError
        The name or the value of a limit is invalid.
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
