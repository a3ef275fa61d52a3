"""Options that commands share, and the parsing of their values."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from kafkalog.cli.commands import LOCAL, SUMMARIES
from kafkalog.cli.exits import EXIT_CODES_HELP, UsageError
from kafkalog.cli.parser import Parser
from kafkalog.cli.text import parse_bytes

if TYPE_CHECKING:
    from kafkalog.cli.console import Console
    from kafkalog.errors import Limits
    from kafkalog.format import TopicPartition
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.partition import Partition
    from kafkalog.log.segment import Segment

PATH_HELP: Final = """\
PATH is a log dir, a partition directory in it such as orders-0, or a single .log file. A log dir is a directory from a
broker's log.dirs, or a copy of one. URLs such as s3://bucket/kafka also work. You can name several paths."""
_READ_ONLY: Final = " The command never changes these files."


FILTER_HELP: Final = """\
--filter takes COLUMN OP VALUE, combined with and, or, not and parentheses. If you repeat it, all must hold:
  key == abc                       ==, !=, <, <=, >, >=; for text and bytes also starts_with and contains
  key like 'user-%'                an SQL pattern; key matches '^user-[0-9]+$': a regular expression (RE2)
  offset between 5 and 9           includes both ends
  key in abc,def,null              in, not in: a list; null stands for a missing key
  value is null                    is null, is not null
  timestamp >= 2026-11-21T08:00Z   ISO 8601 with a zone, milliseconds, -1h (before now), or end-1h (before the end)
  headers has trace-id             has, has not: a header with that name
  headers.trace-id == 0x0aff       the value of any header with that name
  value.customer.id == 7           a field, with --value-format or --key-format
  compression == zstd              also topic, partition, segment, is_transactional == true, ...
  timestamp_type == LogAppendTime  or CreateTime, NoTimestampType; or 1, 0, -1
Write bytes as text, as 0x and hex digits, or as base64: and base64. A value in quotes is always text."""


ENCODING_HELP: Final = 'encoding of bytes in JSON (default: base64); with utf8, invalid bytes become {"base64": ...}'


@dataclass(frozen=True, slots=True)
class HelpText:
    """The texts in the help of a command."""

    description: str
    examples: str
    summary: str | None = None
    """A sentence for the list of commands; default: the one in `SUMMARIES`."""


def add_command(
    commands: Any,
    name: str,
    words: HelpText,
    run: Callable[[argparse.Namespace, Console], None],
    *,
    paths: tuple[str, str, str] | None = None,
    n_paths: int | Literal["+", "*"] = "+",
    writes: bool = False,
) -> Parser:
    """Add a command's parser, with the arguments that all commands have.

    Parameters
    ----------
    run : callable
        Runs the command.
    paths : tuple of str, optional
        Name of the positional paths, their help, and a paragraph about them. Default: paths of log dirs, partition
        directories and segments.
    n_paths : int or "+" or "*"
        How many paths are required: that many, at least one, or any number.
    writes : bool
        Whether the command may change files at PATH.
    """
    usual = ("PATH", "log dir, partition directory or .log file", PATH_HELP + ("" if writes else _READ_ONLY))
    metavar, path_help, about_paths = paths or usual
    parser: Parser = commands.add_parser(
        name,
        help=words.summary or SUMMARIES[name],
        description=f"{words.description}\n\n{about_paths}",
        epilog=f"examples:\n{words.examples}\n\n{EXIT_CODES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # the first paragraph says what the command does
    parser.short_help = (f"{words.description.partition(chr(10) * 2)[0]}", words.examples)
    parser.set_defaults(run=run)
    parser.add_argument("paths", metavar=metavar, nargs=n_paths, help=path_help)
    speech = parser.add_mutually_exclusive_group()
    speech.add_argument(
        "-q", "--quiet", action="store_true", help="print no progress bar and no notes, only damage and errors"
    )
    speech.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also print normal findings such as a torn tail, and all damage",
    )
    if parser.prog.partition(" ")[2] not in LOCAL:
        _add_remote_options(parser, reads_tiered=not writes)
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write all findings to a JSON file, with lost offsets and records, their certainty, and the sum per"
        " partition",
    )
    return parser


def _add_remote_options(parser: Parser, *, reads_tiered: bool) -> None:
    """Add the options about object stores and remote storage, for commands that take URLs."""
    parser.add_argument(
        "--storage-option",
        metavar="K=V",
        dest="storage_options",
        action="append",
        default=[],
        type=assignment("region=eu-west-1"),
        help="an option of the object store, such as region or endpoint; repeatable. Set credentials in the"
        " environment",
    )
    if reads_tiered:
        parser.add_argument(
            "--tiered",
            metavar="URL",
            help="also read the segments in this remote storage (KIP-405): a URL or a directory",
        )
        parser.add_argument(
            "--tiered-key",
            metavar="ID=FILE",
            dest="tiered_keys",
            action="append",
            default=[],
            type=assignment("key1=private.pem"),
            help="a private key of encrypted remote storage; repeatable",
        )


class Distinct(argparse.Action):
    """Collects the values of a list option, each value once; None without the option."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Add the values to the earlier ones."""
        setattr(namespace, self.dest, list(dict.fromkeys([*(getattr(namespace, self.dest) or []), *values])))


def add_names(group: Any, *flags: str, what: str, such: str, metavar: str | None = None) -> None:
    """Add an option that takes names or globs; its metavar defaults to the first flag's letter."""
    group.add_argument(
        *flags,
        metavar=f"{metavar or flags[0][1].upper()},...",
        action=Distinct,
        type=names,
        help=f"only these {what}: names or globs such as '{such}'; repeatable",
    )


def add_topics(parser: Any) -> None:
    """Add ``--topics`` and ``--exclude-topics``."""
    add_names(parser, "-t", "--topics", what="topics", such="orders.*")
    parser.add_argument(
        "-T",
        "--exclude-topics",
        metavar="T,...",
        dest="topics",
        action=Distinct,
        type=excluded_names,
        help="exclude these topics: names or globs such as '*-changelog'; repeatable",
    )


def add_selection(parser: Any) -> None:
    """Add ``--topics``, ``--exclude-topics`` and ``--partitions``."""
    add_topics(parser)
    parser.add_argument(
        "-p",
        "--partitions",
        metavar="N,...",
        action=Distinct,
        type=numbers,
        help="only these partition numbers of each topic; repeatable",
    )


def add_filters(parser: Any, flag: str = "--filter", dest: str | None = "filters", *, help: str) -> None:
    """Add ``--filter`` or another condition; the description of the command should include `FILTER_HELP`."""
    parser.add_argument(flag, metavar="'COLUMN OP VALUE'", dest=dest, action="append", type=condition, help=help)


def add_encoding(group: Any, help: str, default: str | None = None) -> None:
    """Add ``--encoding``, of bytes in CSV and JSON lines."""
    group.add_argument("--encoding", choices=("base64", "utf8", "hex"), default=default, help=help)


def add_columns(group: Any, help: str = "only these columns, in this order") -> None:
    """Add ``--columns``."""
    group.add_argument("--columns", metavar="C,...", type=names, help=help)


def add_threads(parser: Any, help: str, default: int | None = None) -> None:
    """Add ``--threads``."""
    parser.add_argument("--threads", metavar="N", type=threads, default=default, help=help)


def add_index_interval(group: Any, default: str) -> None:
    """Add ``--index-interval-bytes``."""
    help = f"the topics' index.interval.bytes{default}"
    group.add_argument("--index-interval-bytes", metavar="N", type=index_interval, help=help)


def add_config(group: Any, help: str) -> None:
    """Add ``--config NAME=VALUE``, which may be repeated."""
    parse = assignment("segment.bytes=104857600")
    group.add_argument("--config", metavar="NAME=VALUE", action="append", default=[], type=parse, help=help)


def add_internal(group: Any) -> None:
    """Add ``--internal`` and ``--include-deleted``."""
    group.add_argument("--include-deleted", action="store_true", help="include records below the log start offset")
    group.add_argument(
        "--internal",
        action="store_true",
        help="include internal topics (__consumer_offsets, __transaction_state, ...) of a log dir; default: only if -t"
        " names them",
    )


def add_limit(parser: Any, what: str = "records") -> None:
    """Add ``-n``, ``--limit``."""
    parser.add_argument("-n", "--limit", metavar="N", type=count, help=f"only the first N {what}")


def add_transaction_ages(group: Any) -> None:
    """Add ``--now`` and ``--transaction-max-timeout-ms``."""
    group.add_argument(
        "--now",
        metavar="TIME",
        type=log_time,
        help="compute ages at this time: ms, ISO 8601 with a zone, or end for the latest timestamp (default: now)",
    )
    group.add_argument(
        "--transaction-max-timeout-ms",
        metavar="MS",
        type=milliseconds,
        help="the broker's setting; an open transaction that is older hangs (default: 900000)",
    )


def add_limits(parser: Any, **defaults: int) -> None:
    """Add ``--limits``, with other defaults than those of `Limits` for some."""
    parser.add_argument(
        "--limits",
        metavar="NAME=N",
        dest="limits",
        action="append",
        default=[*defaults.items()],
        type=limit,
        help="change a limit on memory and size while reading: max_batch_bytes, max_decompressed_bytes,"
        " max_records_per_batch, max_headers_per_record, max_headers_per_batch, max_segment_bytes,"
        " max_open_transactions, max_directories, max_findings (with K, M or G)",
    )


def names(text: str) -> list[str]:
    """Parse a comma-separated list of names."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("expected a name or a comma-separated list of names")
    return found


def excluded_names(text: str) -> list[str]:
    """Parse a comma-separated list of topics to leave out: each is marked with ``!``."""
    return [f"!{name.removeprefix('!')}" for name in names(text)]


def numbers(text: str) -> list[int]:
    """Parse a comma-separated list of partition numbers."""
    try:
        found = [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected partition numbers such as 0,1, not {text!r}") from None
    if not found or min(found) < 0:
        raise argparse.ArgumentTypeError(f"expected partition numbers such as 0,1, not {text!r}")
    return found


def count(text: str) -> int:
    """Parse a number that is not negative."""
    if not text.isdecimal():
        other = "; use --limits for limits of reading" if "=" in text else ""
        raise argparse.ArgumentTypeError(f"expected a number, not {text!r}{other}")
    # more than there can be is all of them
    return min(int(text[:20]), 2**62)


def n_bytes(text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """Parse a number of bytes with an optional K, M or G, in a range with both ends."""
    try:
        number = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"expected a number of bytes from {least} to {most:,}, not {text!r}")
    return number


def index_interval(text: str) -> int:
    """Parse a value of `index.interval.bytes`."""
    return n_bytes(text, 0, 2**31 - 1)


def threads(text: str) -> int:
    """Parse a number of threads."""
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 256, not {text!r}")
    return int(text)


def assignment(example: str) -> Callable[[str], tuple[str, str]]:
    """Return a parser of ``NAME=VALUE``; its error shows the example."""

    def parse(text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise argparse.ArgumentTypeError(f"expected NAME=VALUE such as {example}, not {text!r}")
        return name.strip(), value.strip()

    return parse


def limit(text: str) -> tuple[str, int]:
    """Parse ``name=value`` of ``--limits``."""
    name, equals, value = text.partition("=")
    if not equals:
        other = f"; use -n {text} for a number of records" if text.isdecimal() else ""
        raise argparse.ArgumentTypeError(f"expected NAME=N such as max_batch_bytes=200M, not {text!r}{other}")
    try:
        return name.strip(), parse_bytes(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{name}: {error}") from None


def milliseconds(text: str) -> int:
    """Parse a duration in milliseconds."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"expected milliseconds, not {text!r}")
    return int(text)


def timestamp(text: str) -> int | datetime:
    """Parse a time: milliseconds, ISO 8601 with a time zone, or one before now; see `kafkalog.parsing.parse_time`."""
    from kafkalog.parsing import parse_time

    try:
        return parse_time("a time", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("a time: ")) from None


def log_time(text: str) -> Any:
    """Parse a time as `timestamp` does, or one before the log's latest timestamp, such as ``end-1h``."""
    from kafkalog.parsing import is_to_end

    return text if is_to_end(text) else timestamp(text)


def condition(text: str) -> str:
    """Check a filter; see `FILTER_HELP`."""
    from kafkalog.scanning.conditions.filter_text import DECODED_FIELDS, parse_filter
    from kafkalog.scanning.conditions.filter_tuples import check_term

    try:
        for term in (term for group in parse_filter(text) for term in group):
            # what a field's value can be compared with is known once values are decoded
            if not term[0].startswith(DECODED_FIELDS):
                check_term(term)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error) if repr(text) in str(error) else f"{text!r}: {error}") from None
    return text


def offset(text: str) -> int:
    """Parse an offset."""
    if not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"expected an offset, not {text!r}")
    return int(text)


def epoch(text: str) -> int:
    """Parse a leader epoch."""
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"expected a leader epoch, not {text!r}")
    return int(text)


def chosen(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return options as keyword arguments of a function whose parameters have the same names."""
    return {name: getattr(args, name) for name in names}


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
    return log_dir.select(args.topics, args.partitions)


def make_limits(pairs: list[tuple[str, int]]) -> Limits:
    """Return the limits given with ``--limits``.

    Raises
    ------
    UsageError
        The name or the value of a limit is invalid.
    """
    from dataclasses import fields

    from kafkalog.errors import Limits
    from kafkalog.parsing import hint

    known = [item.name for item in fields(Limits)]
    for name, _ in pairs:
        if name not in known:
            raise UsageError(f"no limit {name!r}; {hint(name, known)}")
    try:
        return Limits(**dict(pairs))
    except ValueError as error:
        raise UsageError(str(error)) from None
