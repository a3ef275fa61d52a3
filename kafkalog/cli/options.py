"""The options of commands: tables of them, which `add_options` adds to a parser, and the parsing of their values."""

from __future__ import annotations

import argparse
import contextlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from kafkalog.cli.commands import LOCAL, SUMMARIES
from kafkalog.cli.exits import EXIT_CODES_HELP, UsageError
from kafkalog.cli.parser import Parser
from kafkalog.text import parse_bytes

if TYPE_CHECKING:
    from kafkalog.cli.console import Console
    from kafkalog.errors import Limits
    from kafkalog.format import TopicPartition
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.partition import Partition
    from kafkalog.log.segment import Segment

_PATH_HELP: Final = """\
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
  timestamp >= 2026-11-21T08:00Z   ISO 8601 (UTC without a zone), milliseconds, -1h (before now), or end-1h
  headers has trace-id             has, has not: a header with that name
  headers.trace-id == 0x0aff       the value of any header with that name
  value.customer.id == 7           a field, with --value-format or --key-format
  compression == zstd              also topic, partition, segment, is_transactional == true, ...
  timestamp_type == LogAppendTime  or CreateTime, NoTimestampType; or 1, 0, -1
Write bytes as text, as 0x and hex digits, or as base64: and base64. A value in quotes is always text. If a field has
values of several types, numbers compare with numbers and text with text."""

ENCODING_HELP: Final = 'encoding of bytes in JSON (default: base64); with utf8, invalid bytes become {"base64": ...}'

_TIME_HELP: Final = (
    "TIME is milliseconds, ISO 8601 such as 2026-11-28 or 2026-11-28T08:00 (UTC without a zone), or before now (-1h)"
)
"""Follows the help of a command's first option that takes a time."""

_SHARED: Final = {
    "common": """
  | -q --quiet      print no progress bar and no notes, only damage and errors
  | -v --verbose    also print normal findings such as a torn tail, and all damage
  --report FILE     write all findings to a JSON file, with lost offsets and records, their certainty, and the sum per
                    partition
""",
    "remote": """
  --storage-option:storage_options K=V*    an option of the object store, such as region or endpoint; repeatable. Set
                                           credentials in the environment
""",
    "tiered": """
  --tiered URL                    also read the segments in this remote storage (KIP-405): a URL or a directory
  --tiered-key:tiered_keys ID=FILE*    a private key of encrypted remote storage; repeatable
""",
    "topics": """
  -t --topics T,...                   only these topics: names or globs such as 'orders.*'; repeatable
  -T --exclude-topics:topics T,...    exclude these topics: names or globs such as '*-changelog'; repeatable
""",
    "selection": """
  @topics
  -p --partitions N,...    only these partition numbers of each topic; repeatable
""",
    "limit": """
  -n --limit N    only the first N $
""",
    "internal": """
  --include-deleted    include records below the log start offset
  --internal           include internal topics (__consumer_offsets, __transaction_state, ...) of a log dir; default:
                       only if -t names them
""",
    "ages": """
  --now TIME    compute ages at this time (default: now), or with end at the latest timestamp
  --transaction-max-timeout-ms MS    the broker's setting; an open transaction that is older hangs (default: 900000)
""",
    "limits": """
  --limits NAME=N*    change a limit on memory and size while reading: max_batch_bytes, max_decompressed_bytes,
                      max_records_per_batch, max_headers_per_record, max_headers_per_batch, max_segment_bytes,
                      max_open_transactions, max_directories, max_findings (with K, M or G)
""",
    "encoding": """
  --encoding {base64,utf8,hex}    $
""",
    "on_decode_error": """
  --on-decode-error {null,skip}    accept values that do not decode: as null, or without their records (default: null,
                                   and exit code 1)
""",
    "threads": """
  --threads N    $ (default: one per CPU)
""",
    "reader_threads": """
  --threads N    $ (default: one per CPU, up to 4)
""",
    "index_interval": """
  --index-interval-bytes N    the topics' index.interval.bytes$
""",
    "config": """
  --config NAME=VALUE*    $
""",
    "expire": """
  --now TIME    remove producers that were idle for a day at this time from snapshots (default: keep all)
""",
    "output": """
output (one is required):
  | -o --output DIR    write a changed copy to this new directory; the source stays unchanged. A single partition goes
                       to DIR itself if its name is a partition name such as copy/orders-0, otherwise to a subdirectory
  | --in-place         change the log dir itself; $
  | --dry-run          show the changes and write nothing
  --backup DIR         with --in-place: a new directory for copies of all replaced and removed files
  --stage-in DIR       with --in-place: a directory for temporary files, on the log dir's file system but outside of it
                       (default: next to it)
""",
    "as_of": """
  --end-offset OFFSET     the state right before this offset of the topic's partition
  --end-timestamp TIME    the state right before this time, or end-1h: before the topic's latest timestamp
  --history               print every record in the files, decoded, as JSON lines; of the other options only
                          --end-offset and --end-timestamp apply
""",
    "comparing": """
  --ignore FIELD,...           fields that do not count: key, value, headers, timestamp; repeatable
  --isolation-level {read_uncommitted,read_committed}
                               read_committed leaves out aborted transactions on both sides (default: read_uncommitted)
  --memory BYTES               memory for sorting, with K, M or G (default: 256M); the rest goes to the temporary
                               directory
  --temporary-directory DIR    for digests, about 100 bytes per record (default: the system's)
""",
    "on_corruption": """
  --on-corruption {raise,stop,skip} [$]    at damage: fail with an error (raise), end that partition there, as a broker
                                           would (stop), or continue at the next intact batch (skip); default: $
""",
    "scan_selection": """
which records:
  @selection
  @limit records
  --start-offset OFFSET     start at this offset
  --end-offset OFFSET       end before this offset
  --start-timestamp TIME    only records at or after this time, or end-1h: before the latest timestamp
  --use-time-index          find --start-timestamp with the time indexes instead of reading all batch headers; with
                            LogAppendTime, also stop a minute past --end-timestamp
  --end-timestamp TIME      only records before this time
  --max-disorder MS         with --end-timestamp, stop at the first record this many milliseconds past it, and report
                            where; later records are assumed to be too late as well
  --filter:filters 'COLUMN OP VALUE'*    only matching records, such as 'key == abc'; if repeated, all must match
  --isolation-level {read_uncommitted,read_committed} [read_uncommitted]
                            read_committed leaves out aborted transactions and ends at the first open one
  --latest {key}            only the last record of each key of a partition, without tombstones: the topic as a table
  --include-control         include control records: transaction markers and those of Raft
  @internal
""",
    "scan_reading": """
reading:
  @on_corruption raise
  --no-check-crcs    do not check checksums
  @threads decoding threads
  @limits
""",
    "decoding": """
format of keys and values:
  --value-format {utf8,json,short,int,long,float,double,uuid,avro,protobuf,jsonschema,connectjson}
                           decode values; connectjson is JSON of Kafka Connect with schemas
  --key-format {utf8,json,short,int,long,float,double,uuid,avro,protobuf,jsonschema,connectjson}
                           decode keys
  --schema FILE            one schema for all values (default: the schema id in each value)
  --key-schema FILE        one schema for all keys
  --reader-schema FILE     the Avro schema to which values of all schemas are resolved, with its defaults and aliases
  --message NAME           the Protobuf message of values; default: the one they name, or the first one
  --branches               name the branch of an Avro union that is set in a field __branch, and the member of a oneof
                           of Protobuf in NAME__branch
  --no-frame               values do not start with a schema id; use with --schema. Without it, frames of Confluent,
                           Apicurio and AWS Glue are recognized, also those in headers
  --id-size {4,8}          bytes of a schema id in values; default: 4 with --schema, else recognized
  | --schemas DIR          look up schemas in a directory with files such as 7.avsc, or UUID.avsc for AWS Glue
  | --schema-registry URL  look up schemas at a registry (default: in the topic _schemas of the same log dir)
  --schema-context NAME    the registry context of the schema ids, such as .partner; . is the default context
""",
}
"""Lines of tables that several commands have; ``$`` stands for the words after the name."""

COMPARING: Final = ("ignore", "isolation_level", "memory", "temporary_directory")
"""The options of the block ``@comparing``."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What a command's parser is made of."""

    description: str
    examples: str
    options: str = ""
    """A table for `add_options`."""
    types: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    """Types of options, by the option or the name of the attribute; others are those of `_TYPES`."""
    paths: tuple[str, str, str] = ("PATH", "log dir, partition directory or .log file", _PATH_HELP)
    """Name of the positional paths, their help, and a paragraph about them."""
    n_paths: Literal[1, 2, "+", "*"] = "+"
    needs: Mapping[str, str] = field(default_factory=dict)
    """Options that work with others only: by attribute, the other option, and a text about it after that."""
    writes: bool = False
    """Whether the command may change files at PATH."""
    summary: str | None = None
    """A sentence for the list of commands; default: the one in `SUMMARIES`."""


def add_command(
    commands: Any,
    name: str,
    command: Command,
    run: Callable[[argparse.Namespace, Console], None],
) -> None:
    """Add a command's parser, with the arguments that all commands have."""
    metavar, path_help, about_paths = command.paths
    if about_paths == _PATH_HELP and not command.writes:
        about_paths += _READ_ONLY
    parser: Parser = commands.add_parser(
        name,
        help=command.summary or SUMMARIES[name],
        description=f"{command.description}\n\n{about_paths}",
        epilog=f"examples:\n{command.examples}\n\n{EXIT_CODES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # the first paragraph says what the command does
    parser.short_help = (f"{command.description.partition(chr(10) * 2)[0]}", command.examples)
    parser.set_defaults(run=run, needs=command.needs)
    if command.n_paths == 2:  # of one argument with two values, argparse shows both names twice
        first, second = metavar.split()
        parser.add_argument("paths", metavar=first, action="append", help=path_help)
        parser.add_argument("paths", metavar=second, action="append", help=f"compared with {first}")
    else:
        parser.add_argument("paths", metavar=metavar, nargs=command.n_paths, help=path_help)
    remote = "" if parser.prog.partition(" ")[2] in LOCAL else "  @remote" if command.writes else "  @remote\n  @tiered"
    add_options(parser, f"  @common\n{remote}\n{command.options}", command.types)


_LINE: Final = re.compile(r"(\| )?(-\S+(?: -\S+)*)(?: (\S.*?))?(?:  +(.*))?")
_VALUE: Final = re.compile(r"(?:\{(.+)\}|(.+?))(,\.\.\.)?([*!])?(?: \[(.*)\])?")


def add_options(parser: Any, table: str, types: Mapping[str, Callable[[str], Any]] | None = None) -> None:
    """Add options from a table: one a line, with its help after two spaces or on lines that are indented further.

    ``title:`` begins a group, ``| `` marks options that exclude each other (``--dry-run`` goes with each), and ``@name
    words`` inserts a block of `_SHARED`. ``--flag:name`` names the attribute. After the metavar or the ``{choices}``,
    ``,...`` stands for a list, ``*`` for any number of times, ``!`` for required, and ``[default]`` for itself.
    Others are switches.
    """
    group = alternatives = parser
    is_required = has_times = False
    others: list[str] = []
    for line in re.split(r"\n(?= {0,2}\S)", _expanded(table).strip("\n")):
        if line.endswith(":") and not line.startswith(" "):
            group = alternatives = parser.add_argument_group(line[:-1])
            is_required = "(one is required)" in line
            others = re.findall(r"\(one of these, or (--\S+)\)", line)
            continue
        found = _LINE.fullmatch(" ".join(re.sub(r"\n +", "  ", line, count=1).split("\n")).strip())
        assert found is not None, line
        bar, flags, value, help = found.groups()
        if bar and alternatives is group:
            alternatives = group.add_mutually_exclusive_group(required=is_required)
        if bar and flags == "--dry-run":  # it shows what the others would do
            parser.need_one(alternatives, others)
            bar = None
        help = re.sub(r" +", " ", help or "")
        if value is not None and value.startswith("TIME") and not has_times:
            help, has_times = f"{help}. {_TIME_HELP}", True
        _add_option(alternatives if bar else group, flags, value, help, types or {})


def _expanded(table: str) -> str:
    """The table with the shared blocks that it names."""

    def block(found: re.Match[str]) -> str:
        return _expanded(_SHARED[found[1]].strip("\n")).replace("$", found[2])

    return re.sub(r"^ *@(\w+) ?(.*)$", block, table, flags=re.MULTILINE)


def _add_option(
    group: Any, flags: str, value: str | None, help: str, types: Mapping[str, Callable[[str], Any]]
) -> None:
    flags, _, dest = flags.partition(":")
    spelt = flags.replace("[no-]", "").split(" ")
    dest = dest or spelt[-1].lstrip("-").replace("-", "_")
    if value is None:
        action = argparse.BooleanOptionalAction if "[no-]" in flags else "store_true"
        group.add_argument(*spelt, dest=dest, help=help, action=action)
    else:
        convert = types.get(spelt[-1]) or types.get(dest)
        group.add_argument(*spelt, dest=dest, help=help, **_value_arguments(spelt[-1], value, convert))


def _value_arguments(flag: str, value: str, convert: Callable[[str], Any] | None) -> dict[str, Any]:
    """The arguments for a parser about the value of an option; see `add_options`."""
    found = _VALUE.fullmatch(value)
    assert found is not None, value
    choices, metavar, is_list, mark, default = found.groups()
    arguments: dict[str, Any]
    if is_list:
        arguments = {"action": Distinct, "metavar": f"{metavar or 'NAME'},..."}
        convert = convert or _TYPES.get(f"{flag},...") or partial(names, known=choices)
    else:
        arguments = {"choices": choices.split(",")} if choices else {"metavar": metavar}
        convert = convert or _TYPES.get(flag) or _TYPES.get(metavar, str)
    if mark:
        arguments |= {"action": "append"} if mark == "*" else {"required": True}
    if default is not None:
        arguments["default"] = default if choices else convert(default)
    return {**arguments, "type": convert}


class Distinct(argparse.Action):
    """Collects the values of a list option, each value once; a column that is named twice is an error."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Add the values to the earlier ones, but not to the default."""
        earlier = getattr(namespace, self.dest)
        earlier = [] if earlier is None or earlier is self.default else earlier
        if self.dest == "columns":
            from kafkalog.parsing import check_once

            try:
                check_once([*earlier, *values])
            except ValueError as error:
                raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, list(dict.fromkeys([*earlier, *values])))


def names(text: str, known: str | None = None) -> list[str]:
    """Parse a comma-separated list of names; `known` has the valid ones, separated by commas."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("expected a name or a comma-separated list of names")
    for name in found if known else ():
        if name not in str(known).split(","):
            raise argparse.ArgumentTypeError(f"expected any of {known}, not {name!r}")
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
    """Parse a time: milliseconds, ISO 8601, or one before now; see `kafkalog.parsing.parse_time`."""
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
        with warnings.catch_warnings(action="ignore"):  # the scan issues them again
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
        raise argparse.ArgumentTypeError(f"expected an offset: a whole number such as 0 or 42, not {text!r}")
    return int(text)


def _offset_to_read(text: str) -> int:
    """Parse an offset to read from or to; the error for one from the end names the option for that."""
    try:
        return offset(text)
    except argparse.ArgumentTypeError as error:
        last = f"; 'kafkalog cat --tail {text[1:]}' prints the last ones" if re.fullmatch(r"-[1-9]\d*", text) else ""
        raise argparse.ArgumentTypeError(f"{error}{last}") from None


def epoch(text: str) -> int:
    """Parse a leader epoch."""
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"expected a leader epoch, not {text!r}")
    return int(text)


_TYPES: Final[dict[str, Callable[[str], Any]]] = {
    "N": int,
    "MS": int,
    "BYTES": n_bytes,
    "OFFSET": _offset_to_read,
    "TIME": log_time,
    "NAME=N": limit,
    "NAME=VALUE": assignment("segment.bytes=104857600"),
    "K=V": assignment("region=eu-west-1"),
    "ID=FILE": assignment("key1=private.pem"),
    "'COLUMN OP VALUE'": condition,
    "--limit": count,
    "--tail": count,
    "--threads": threads,
    "--index-interval-bytes": index_interval,
    "--transaction-max-timeout-ms": milliseconds,
    "--partitions,...": numbers,
    "--exclude-topics,...": excluded_names,
}
"""Types of options by metavar, or by the option; the latter counts."""


def chosen(args: argparse.Namespace, *wanted: Any) -> dict[str, Any]:
    """Return options as keyword arguments: those of the names, or that a function or class has parameters for."""
    names = [name for one in wanted for name in ([one] if isinstance(one, str) else one.__annotations__)]
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


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
    return log_dir.select(args.topics, getattr(args, "partitions", None))


def make_limits(pairs: list[tuple[str, int]], default: Limits) -> Limits:
    """Return limits, changed by those of ``--limits``; raises UsageError if a name or a value is invalid."""
    from dataclasses import fields, replace

    from kafkalog.parsing import hint

    known = [item.name for item in fields(default)]
    for name, _ in pairs:
        if name not in known:
            raise UsageError(f"no limit {name!r}; {hint(name, known)}")
    try:
        return replace(default, **dict(pairs))
    except ValueError as error:
        raise UsageError(str(error)) from None
