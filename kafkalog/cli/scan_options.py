"""Shared code of commands that read logs: options of scans, the report of findings, the progress bar."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError, is_out_of_memory, is_out_of_threads
from kafkalog.cli.options import chosen, selected_keys
from kafkalog.errors import CorruptionError, KafkalogError
from kafkalog.text import NO_PARTITION_MATCHES

if TYPE_CHECKING:
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.partition import Partition
    from kafkalog.scanning.batch_scan import BatchRows
    from kafkalog.scanning.scan import Scan
    from kafkalog.state.log_config import LogConfig


_NOT_OF_SCAN: Final = frozenset(
    {"columns", "schemas", "schema_context", "storage_options", "value_format", "key_format", "tiered", "tiered_keys"}
)
"""Options that commands have too, and pass in another form."""


def decode_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `kafkalog.scan` about decoding."""
    decode: dict[str, Any] = {}
    for column, name, schema in (("value", args.value_format, args.schema), ("key", args.key_format, args.key_schema)):
        own = {"message": args.message, "reader_schema": args.reader_schema} if column == "value" else {}
        given = {"schema": schema, **own, **_attributes(args, name)}
        given = {option: value for option, value in given.items() if value is not None}
        if name is not None:
            decode[column] = {"format": name, **given} if given else name
        elif given.keys() & {"schema", "reader_schema"}:
            raise UsageError(f"a schema needs a format: add --{column}-format")
    if not decode:
        # a query looks at the values, and finds their format itself
        if (args.schema_registry or args.schemas) and args.command != "sql":
            raise UsageError("schemas need a format: add --value-format avro (or protobuf, jsonschema) or --key-format")
        return {}
    sources = {"schemas": args.schemas or args.schema_registry, "schema_context": args.schema_context}
    return {"decode": decode, **sources}


def _attributes(args: argparse.Namespace, name: str | None) -> dict[str, Any]:
    """The options for keys and values that their format has."""
    from kafkalog.values.options import WITH_BRANCHES, WITH_SCHEMAS

    found: dict[str, Any] = {}
    if name in WITH_SCHEMAS:
        found = {"framed": False if args.no_frame else None, "id_size": args.id_size and int(args.id_size)}
    if name in WITH_BRANCHES:
        found["branches"] = args.branches or None
    return found


def record_columns_of(args: argparse.Namespace) -> list[str] | None:
    """Return the columns of records; with ``--include-control`` the default has `is_control` too."""
    # without that column a marker looks like a record
    if args.columns is not None or not args.include_control:
        return cast("list[str] | None", args.columns)
    from kafkalog.column_names import DEFAULT_COLUMNS

    return [*DEFAULT_COLUMNS, "is_control"]


def scan_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options for `kafkalog.scan`, except the columns."""
    from kafkalog.scanning.options import ScanOptions

    found = {name: value for name, value in chosen(args, ScanOptions).items() if name not in _NOT_OF_SCAN}
    return {**found, "check_crcs": not args.no_check_crcs, **decode_options(args)}


def path_of(args: argparse.Namespace) -> str | list[str]:
    """Return the paths in the form that `kafkalog.scan` takes."""
    paths: list[str] = args.paths
    return paths[0] if len(paths) == 1 else paths


def is_quarantine(args: argparse.Namespace) -> bool:
    """Whether the paths are quarantine files of `salvage`; one command reads these or logs, not both."""
    from kafkalog.storage.own_names import QUARANTINE_SUFFIX

    n: int = sum(str(path).endswith(QUARANTINE_SUFFIX) for path in args.paths)
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


class OpenedPartitions(NamedTuple):
    """Partitions that were selected and opened."""

    partitions: list[Partition]
    n_unread: int
    """How many could not be opened."""
    log_dir: LogDir


def open_selected(args: argparse.Namespace, console: Console) -> OpenedPartitions:
    """Open the selected partitions, and report their findings."""
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.open import partitions_of

    log_dir = LogDir(list(dict.fromkeys(args.paths)), limits=args.limits)
    console.findings(log_dir.findings)
    found = [*partitions_of(log_dir, args.topics, args.partitions)]
    if not found:
        note_no_match(log_dir, console)
    n_unread = 0
    for one in found:
        if isinstance(one, KafkalogError):
            n_unread += report_error(one, log_dir, console)
    opened = [one for one in found if not isinstance(one, KafkalogError)]
    for partition in opened:
        console.findings(partition.findings)
    return OpenedPartitions(opened, n_unread, log_dir)


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
    """Raise UsageError for a TypeError or ValueError about an option, or for a library that it needs."""
    try:
        yield
    except KafkalogError:
        raise
    except (ImportError, TypeError, ValueError) as error:
        if is_out_of_memory(error) or is_out_of_threads(error):
            raise
        raise UsageError(str(error)) from error


def note_if_nothing_matches(args: argparse.Namespace, scan: Any, console: Console) -> bool:
    """Print a note if no partition matches, or with directories and internal topics that are not read.

    Return whether any partition matches.
    """
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.open import notes_apart

    target = scan.target
    console.findings(notes_apart(target, args.topics, args.partitions))
    if isinstance(target, LogDir) and not args.topics and not getattr(args, "internal", True):
        note_left_out(target, console)
    if not args.topics and not args.partitions:
        return True
    if selected_keys(target, args) if isinstance(target, LogDir) else [*scan.partitions()]:
        return True
    note_no_match(target, console)
    return False


def note_no_match(opened: object, console: Console) -> None:
    """Print a note that no partition was selected."""
    from kafkalog.log.log_dir import LogDir

    is_empty = isinstance(opened, LogDir) and not len(opened)
    console.note("the log dir has no partitions" if is_empty else NO_PARTITION_MATCHES)


def note_base64(args: argparse.Namespace, columns: Iterable[str], n_records: int, console: Console) -> None:
    """Print a note that lines of text have bytes in base64, if there are some and nobody chose that."""
    if args.encoding is not None or not n_records or getattr(args, "dry_run", False):
        return
    formats = {"key": args.key_format, "value": args.value_format}
    encoded = [name for name in formats if name in columns and formats[name] is None]
    is_text = (args.command == "cat" and console.is_json) or _text_format(args) is not None
    if is_text and encoded:
        verb = "are" if encoded[1:] else "is"
        fields = ", --value-format json decodes values" if "value" in encoded else ""
        console.note(f"{' and '.join(encoded)} {verb} in base64; --encoding utf8 writes text{fields}")


def _text_format(args: argparse.Namespace) -> str | None:
    """The format of an export, if it is one of lines of text."""
    from kafkalog.interchange.file_types import TEXT_FORMATS, file_type

    found = getattr(args, "format", None) or (file_type(args.output)[0] if getattr(args, "output", None) else None)
    return found if found in TEXT_FORMATS else None


def note_if_live(log_dir: LogDir, console: Console) -> None:
    """Print a note if a broker runs on a log dir that is read."""
    if log_dir.is_live:
        console.note("a broker runs on this log dir, so files may change during the read")


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
    """Reports the findings of a scan as they come; with `what`, a word for it, also its progress."""

    def __init__(self, scan: Scan | Any, console: Console, what: str | None = None) -> None:
        self._scan, self._console = scan, console
        self._n_printed = 0
        if what is not None and console.shows_progress:
            total = sum(segment.size_in_bytes for _, partition in scan.partitions() for segment in partition.segments)
            console.start_progress(total, what)
            # print new findings as bytes are read, so that damage shows next to the records around it
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
