"""Shared code of commands that scan records: options, the report of findings, the progress bar."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import (
    add_filters,
    add_internal,
    add_limit,
    add_limits,
    add_selection,
    chosen,
    log_time,
    offset,
    selected_keys,
)
from kafkalog.errors import CorruptionError, KafkalogError

if TYPE_CHECKING:
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.partition import Partition
    from kafkalog.scanning.batch_scan import BatchRows
    from kafkalog.scanning.scan import Scan
    from kafkalog.state.log_config import LogConfig


_SCAN: Final = (
    *("topics", "partitions", "start_offset", "end_offset", "start_timestamp", "end_timestamp", "max_disorder"),
    *("limit", "latest", "filters", "isolation_level", "include_control", "include_deleted", "internal"),
    *("on_corruption", "threads", "limits", "use_time_index"),
)
"""The options of a scan that have the name of the parameter."""


def add_scan_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select records."""
    what = parser.add_argument_group("which records")
    add_selection(what)
    add_limit(what)
    what.add_argument("--start-offset", metavar="OFFSET", type=offset, help="start at this offset")
    what.add_argument("--end-offset", metavar="OFFSET", type=offset, help="end before this offset")
    what.add_argument(
        "--start-timestamp",
        metavar="TIME",
        type=log_time,
        help="only records at or after this time: ms, ISO 8601 with a zone, before now (-1h), or before the latest"
        " timestamp (end-1h)",
    )
    what.add_argument(
        "--use-time-index",
        action="store_true",
        help="find --start-timestamp with the time indexes instead of reading all batch headers; with LogAppendTime,"
        " also stop a minute past --end-timestamp",
    )
    what.add_argument("--end-timestamp", metavar="TIME", type=log_time, help="only records before this time")
    what.add_argument(
        "--max-disorder",
        metavar="MS",
        type=int,
        help="with --end-timestamp, stop at the first record this many milliseconds past it, and report where; later"
        " records are assumed to be too late as well",
    )
    add_filters(what, help="only matching records, such as 'key == abc'; if repeated, all must match")
    what.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed leaves out aborted transactions and ends at the first open one",
    )
    what.add_argument(
        "--latest",
        choices=("key",),
        help="only the last record of each key of a partition, without tombstones: the topic as a table",
    )
    what.add_argument(
        "--include-control",
        action="store_true",
        help="include control records: transaction markers and those of Raft",
    )
    add_internal(what)


def add_scan_reading(parser: argparse.ArgumentParser) -> None:
    """Add the options about how records are read."""
    reading = parser.add_argument_group("reading")
    add_on_corruption(reading, default="raise")
    reading.add_argument("--no-check-crcs", action="store_true", help="do not check checksums")
    reading.add_argument("--threads", metavar="N", type=int, help="decoding threads (default: one per CPU)")
    add_limits(reading)


FORMATS: Final = ("utf8", "json", "short", "int", "long", "float", "double", "uuid", "avro", "protobuf", "jsonschema")
"""Those of `kafkalog.values.options`, whose import would slow down the help."""


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """Add the options about what the bytes of keys and values are."""
    what = parser.add_argument_group("format of keys and values")
    for column in ("value", "key"):
        what.add_argument(
            f"--{column}-format",
            metavar="FORMAT",
            choices=FORMATS,
            help=f"decode {column}s: {', '.join(FORMATS)}" if column == "value" else "decode keys in the same formats",
        )
    what.add_argument(
        "--schema", metavar="FILE", help="one schema for all values (default: the schema id in each value)"
    )
    what.add_argument("--key-schema", metavar="FILE", help="one schema for all keys")
    what.add_argument(
        "--message", metavar="NAME", help="the Protobuf message of values; default: the one they name, or the first one"
    )
    what.add_argument("--no-frame", action="store_true", help="values do not start with a schema id; use with --schema")
    where = what.add_mutually_exclusive_group()
    where.add_argument("--schemas", metavar="DIR", help="look up schemas in a directory with files such as 7.avsc")
    where.add_argument(
        "--schema-registry",
        metavar="URL",
        help="look up schemas at a registry (default: in the topic _schemas of the same log dir)",
    )
    what.add_argument(
        "--schema-context",
        metavar="NAME",
        help="the registry context of the schema ids, such as .partner; . is the default context",
    )


def decode_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `kafkalog.scan` about decoding."""
    from kafkalog.values.options import WITH_SCHEMAS

    decode: dict[str, Any] = {}
    for column, name, schema in (("value", args.value_format, args.schema), ("key", args.key_format, args.key_schema)):
        if name is not None:
            message = args.message if column == "value" else None
            given = {"schema": schema, "message": message, **({"framed": False} if args.no_frame else {})}
            plain = schema is None and message is None and not (args.no_frame and name in WITH_SCHEMAS)
            decode[column] = name if plain else {"format": name, **given}
        elif schema is not None:
            raise UsageError(f"a schema needs a format: add --{column}-format")
    if not decode:
        return {}
    sources = {"schemas": args.schemas or args.schema_registry, "schema_context": args.schema_context}
    return {"decode": decode, **sources}


def add_on_corruption(parser: Any, *, default: str) -> None:
    """Add ``--on-corruption``."""
    meanings = {
        "raise": "fail with an error",
        "stop": "end that partition there, as a broker would",
        "skip": "continue at the next intact batch",
    }
    said = [f"{meaning} ({value}{', the default' if value == default else ''})" for value, meaning in meanings.items()]
    parser.add_argument(
        "--on-corruption",
        choices=tuple(meanings),
        default=default,
        help=f"at damage: {'; '.join(said)}",
    )


def record_columns_of(args: argparse.Namespace) -> list[str] | None:
    """Return the columns of records; with ``--include-control`` the default has `is_control` too."""
    # without that column a marker looks like a record
    if args.columns is not None or not args.include_control:
        return cast("list[str] | None", args.columns)
    from kafkalog.interchange.arrow_output import DEFAULT_COLUMNS

    return [*DEFAULT_COLUMNS, "is_control"]


def scan_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options for `kafkalog.scan`, except the columns."""
    decoding = decode_options(args) if hasattr(args, "value_format") else {}
    return {**chosen(args, *_SCAN), "check_crcs": not args.no_check_crcs, **decoding}


def path_of(args: argparse.Namespace) -> str | list[str]:
    """Return the paths in the form that `kafkalog.scan` takes."""
    paths: list[str] = args.paths
    return paths[0] if len(paths) == 1 else paths


def is_quarantine(args: argparse.Namespace) -> bool:
    """Whether the paths are quarantine files of `salvage`; one command reads these or logs, not both."""
    n: int = sum(str(path).endswith(".quarantine") for path in args.paths)
    if 0 < n < len(args.paths):
        raise UsageError("quarantine files and logs are read by separate commands")
    return n > 0


def quarantined_rows(args: argparse.Namespace) -> Iterator[BatchRows]:
    """Yield the intact batches of quarantine files."""
    from kafkalog.repair.salvaging.quarantine import open_quarantine
    from kafkalog.scanning.batch_scan import BatchRows

    for path in args.paths:
        for run in open_quarantine(path, limits=args.limits):
            yield BatchRows(run.segment.topic_partition, os.path.basename(path), run.batches)


def quarantined_scans(args: argparse.Namespace, columns: Sequence[str]) -> Iterator[Scan]:
    """Yield a scan for each run of intact batches of quarantine files, up to the limit of records."""
    from kafkalog.repair.salvaging.quarantine import open_quarantine
    from kafkalog.scanning.scan import Scan

    options = {name: one for name, one in scan_options(args).items() if name not in ("limits", "limit")}
    left = args.limit
    for path in args.paths:
        for run in open_quarantine(path, limits=args.limits):
            if left == 0:
                return
            scan = Scan(run.segment, columns=columns, limit=left, **options)
            yield scan
            left = None if left is None else left - scan.count_rows()


class Selected(NamedTuple):
    """Partitions that were selected and opened."""

    partitions: list[Partition]
    n_unread: int
    """How many could not be opened."""
    log_dir: LogDir


def open_selected(args: argparse.Namespace, console: Console) -> Selected:
    """Open the selected partitions, and report their findings."""
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.open import partitions_of

    log_dir = LogDir(list(dict.fromkeys(args.paths)), limits=args.limits)
    console.findings(log_dir.findings)
    found = [*partitions_of(log_dir, args.topics, args.partitions)]
    if not found:
        console.note("no partition matches; kafkalog ls lists them")
    n_unread = 0
    for one in found:
        if isinstance(one, KafkalogError):
            n_unread += report_error(one, log_dir, console)
    opened = [one for one in found if not isinstance(one, KafkalogError)]
    for partition in opened:
        console.findings(partition.findings)
    return Selected(opened, n_unread, log_dir)


def report_error(error: KafkalogError, opened: object, console: Console) -> bool:
    """Report an error; returns False for a partition that a broker removed, which is only a note."""
    from kafkalog.log.open import removed_from

    removed = removed_from(opened, error)
    if removed is None:
        console.error(error)
        return True
    console.findings([removed])
    return False


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Raise UsageError for a TypeError or ValueError about an option."""
    try:
        yield
    except KafkalogError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def note_if_nothing_matches(args: argparse.Namespace, scan: Any, console: Console) -> bool:
    """Print a note if no partition matches, or with the internal topics that are not read.

    Return whether any partition matches.
    """
    from kafkalog.log.log_dir import LogDir

    target = scan.target
    if isinstance(target, LogDir) and not args.topics and not getattr(args, "internal", True):
        note_left_out(target, console)
    if not args.topics and not args.partitions:
        return True
    if selected_keys(target, args) if isinstance(target, LogDir) else [*scan.partitions()]:
        return True
    console.note("no partition matches; kafkalog ls lists them")
    return False


def note_left_out(log_dir: LogDir, console: Console) -> None:
    """Print a note with the internal topics of a log dir that are not read."""
    left_out = sorted({key.topic for key in set(log_dir) - set(log_dir.select(internal=False))})
    if left_out:
        console.note(f"internal topics are left out: {', '.join(left_out)}; use -t or --internal to read them")


@contextlib.contextmanager
def reported(
    scan: Scan | Any, console: Console, what: str | None = None, *, skip: str = "continue at the next intact batch"
) -> Iterator[ScanReporter]:
    """Report the findings and the progress of a scan while it runs; `skip` says what ``--on-corruption skip`` does."""
    reporter = ScanReporter(scan, console, what)
    try:
        with hint_at_skip(skip):
            yield reporter
    finally:
        console.progress.close()
        reporter.close()


@contextlib.contextmanager
def hint_at_skip(what: str = "continue at the next intact batch") -> Iterator[None]:
    """Add to an error about damage what ``--on-corruption skip`` would do."""
    try:
        yield
    except CorruptionError as error:
        error.add_note(f"use --on-corruption skip to {what}")
        raise


class ScanReporter:
    """Reports the findings of a scan as they come, and its progress.

    Parameters
    ----------
    scan : Scan
        Or an object with the same `findings`, `losses`, `n_damage`, `partitions` and `progress`.
    what : str, optional
        A word for the progress bar; without it there is no bar.
    """

    def __init__(self, scan: Scan | Any, console: Console, what: str | None = None) -> None:
        self._scan, self._console = scan, console
        self._n_printed = 0
        if what is not None and console.shows_progress:
            total = sum(segment.size_in_bytes for _, partition in scan.partitions() for segment in partition.segments)
            console.start_progress(total, what)
            # findings are looked at as bytes are done, so that damage is reported where it is met
            scan.progress = self._advance

    def _advance(self, n_bytes: int) -> None:
        self._console.progress.advance(n_bytes)
        self.look()

    def look(self) -> None:
        """Report new damage."""
        if self._scan.n_damage:
            self._print()

    def _print(self) -> None:
        findings = self._scan.findings
        self._console.findings(findings[self._n_printed :])
        self._n_printed = len(findings)

    def close(self) -> None:
        """Report the remaining findings, and the lost records."""
        self._print()
        kept = sum(finding.damage for finding in self._scan.findings)
        self._console.unkept_findings(self._scan.n_damage - kept)
        self._console.losses(self._scan.losses)


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is not a topic's setting.

    Names in a properties file are not checked: many of them are settings of a broker.
    """
    from kafkalog.state.log_config import is_setting, nearest_setting

    for name in names:
        if not is_setting(name):
            near = nearest_setting(name)
            hint = f"; did you mean {near}?" if near else ""
            raise UsageError(f"{name} is not a topic setting{hint}")


def settings_of(properties: Mapping[str, object]) -> LogConfig:
    """Return settings; an invalid value is a usage error."""
    from kafkalog.state.log_config import LogConfig

    with usage_errors():
        return LogConfig.from_properties(properties)
