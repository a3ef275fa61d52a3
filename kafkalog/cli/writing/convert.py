"""`kafkalog convert`: rewrites a log in v2, with another codec or other sizes, or without or with redacted records."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import (
    FILTER_HELP,
    HelpText,
    add_command,
    add_config,
    add_filters,
    add_internal,
    add_limits,
    add_selection,
    chosen,
    n_bytes,
    selected_bytes,
)
from kafkalog.cli.scan_options import add_on_corruption, hint_at_skip, path_of, usage_errors
from kafkalog.cli.text import counted, human_bytes
from kafkalog.cli.topic_settings import check_names, settings_of

if TYPE_CHECKING:
    from kafkalog.operations.converting.report import ConversionReport
    from kafkalog.state.log_config import LogConfig

_HELP: Final = HelpText(
    description=f"""\
Rewrite a log in format v2, in a new place. Offsets, timestamps, their types, keys, values and headers are kept; so
are transactions, producers and the log end offset. With no option, what is v2 already is copied byte for byte, and v0
and v1 messages become v2 batches. A v0 message, which has no timestamp, gets -1.

DST is created: a directory with one directory per partition. Where SRC is one partition, DST may be a partition's
directory itself, such as copy/orders-0. SRC is only read, and DST may not lie in it or in a log dir. It appears when
everything is written and durable; after a failure, damage included, or Ctrl-C, nothing of it is there.

  drop     records go, and their offsets stay free, as after compaction. Batches that lose nothing are copied as they
           are; transaction markers always stay. A batch that loses everything goes as well, or stays as an empty one
           where Kafka recognises a producer, a transaction or the end of the log by it.
  redact   a part of records is made null or hashed: 'value=null' makes tombstones, 'headers=null' removes headers.
           In a compacted topic hash keys, do not make them null: a broker's cleaner drops records without a key.

To erase a person, drop by key, or make the values null and let compaction do the rest:
  kafkalog convert SRC -o DST --drop 'key == user-42'
  kafkalog convert SRC -o DST --redact value=null --redact-where 'key == user-42'

{FILTER_HELP}
--drop and --redact-where are written the same way. A comparison with null never holds: 'key != abc' does not match a
record without a key.""",
    examples="""\
  kafkalog convert /backup/kafka -o /new/kafka -t orders          old formats to v2
  kafkalog convert orders-0 -o copy/orders-0 --compression zstd --compression-level 5 --batch-size 256K
  kafkalog convert orders-0 -o copy/orders-0 --drop 'key in user-42,user-43' --dry-run
  kafkalog convert orders-0 -o copy/orders-0 --redact key=hash --redact-secret-file secret --redact headers.email=null
  kafkalog convert orders-0 -o copy/orders-0 --filter 'timestamp >= 2026-11-01T00:00Z' --segment-bytes 100M""",
)
_PATHS: Final = (
    "SRC",
    "log dir, partition directory or .log file",
    "SRC is a log dir, a topic-partition directory or a single .log file. Several may be given.",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "convert", _HELP, run, paths=_PATHS)
    parser.add_argument("-o", "--output", metavar="DST", required=True, help="directory to make")
    what = parser.add_argument_group("which records")
    add_selection(what)
    add_filters(what, help="keep only records for which this holds; may be repeated: then all must hold")
    help = "drop the records for which this holds; may be repeated: then those for which all hold"
    add_filters(what, "--drop", "drop", help=help)
    what.add_argument(
        "--redact",
        metavar="PART=HOW",
        action="append",
        default=[],
        type=_redaction,
        help="of records that stay: key, value, headers or headers.NAME, each null or hash (SHA-256 in hex); a"
        " compacted topic cannot have null keys",
    )
    help = "redact only records for which this holds; may be repeated: then all must hold"
    add_filters(what, "--redact-where", "redact_where", help=help)
    what.add_argument(
        "--redact-secret-file",
        metavar="FILE",
        help="hash with HMAC-SHA-256 and the secret in this file; without one,"
        " anybody who guesses a value can check the guess by its hash",
    )
    add_internal(what)
    how = parser.add_argument_group("how they are written")
    how.add_argument(
        "--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd (default: as each batch has it)"
    )
    how.add_argument("--compression-level", metavar="N", type=int, help="of the codec, in Kafka's range")
    how.add_argument(
        "--batch-size",
        metavar="BYTES",
        type=n_bytes,
        help="join and cut batches to this size before compression (K and M are understood; default: they stay, and"
        " single v0 and v1 messages are put together to 16K)",
    )
    how.add_argument("--segment-bytes", metavar="BYTES", type=n_bytes, help="roll segments again, at this size")
    add_config(
        how,
        help="cut segments anew by a topic's settings, such as segment.ms=3600000 or index.interval.bytes=1024; may be"
        " repeated",
    )
    reading = parser.add_argument_group("reading and reporting")
    add_on_corruption(reading, default="raise")
    reading.add_argument("--threads", metavar="N", type=int, help="threads that work (default: one a CPU)")
    reading.add_argument("--dry-run", action="store_true", help="write nothing: say what would come out")
    reading.add_argument("--json", action="store_true", help="a line of JSON for each partition")
    add_limits(reading)


def _redaction(text: str) -> tuple[str, str]:
    target, equals, action = text.rpartition("=")
    if not equals or not target.strip():
        raise argparse.ArgumentTypeError(f"PART=HOW is expected, such as value=null, not {text!r}")
    return target.strip(), action.strip()


_OPTIONS: Final = (
    *("topics", "partitions", "filters", "drop", "redact_where", "include_deleted", "internal", "on_corruption"),
    *("compression", "compression_level", "batch_size", "threads", "dry_run", "limits"),
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Convert, and print what became of each partition."""
    from kafkalog.log.open import open as open_path
    from kafkalog.operations.converting.convert import convert

    opened = open_path(path_of(args), limits=args.limits)
    config = _config(args)
    secret = None
    if args.redact_secret_file is not None:
        # editors and `echo` end a file with a newline, which is not meant
        secret = Path(args.redact_secret_file).read_bytes().rstrip(b"\r\n")
        if not secret:
            raise UsageError(f"{args.redact_secret_file} holds no secret")
    if secret is None and any(action == "hash" for _, action in args.redact):
        console.note(
            "hashes without a secret can be undone by hashing likely values and comparing (names, numbers, addresses):"
            " --redact-secret-file prevents that"
        )
    console.start_progress(selected_bytes(opened, args), "records")
    with usage_errors(), hint_at_skip("convert what is intact"):
        report = convert(
            opened,
            args.output,
            **chosen(args, *_OPTIONS),
            redact=dict(args.redact) or None,
            redact_secret=secret,
            config=config,
            progress=console.progress.advance,
        )
    console.progress.close()
    console.all_findings(report.findings)
    console.losses(report.findings.losses)
    _show(report, args, console)


def _config(args: argparse.Namespace) -> LogConfig | None:
    properties = dict(args.config)
    check_names(properties)
    if args.segment_bytes is not None:
        properties["segment.bytes"] = str(args.segment_bytes)
    return settings_of(properties) if properties else None


def _show(report: ConversionReport, args: argparse.Namespace, console: Console) -> None:
    for one in report.partitions:
        if args.json:
            console.json(one.as_dict())
            continue
        changes = [
            f"{n:,} {what}"
            for n, what in ((one.n_records_dropped, "dropped"), (one.n_records_redacted, "redacted"))
            if n
        ]
        if one.lost.n_findings:
            changes.append(f"lost: {one.lost}")
        text = (
            f"{one.topic_partition}  offsets {one.start_offset}..{one.end_offset}"
            f"  records {one.n_records_before:,} -> {one.n_records_after:,}"
            + (f" ({', '.join(changes)})" if changes else "")
            + f"  batches {one.n_batches_before:,} -> {one.n_batches_after:,} ({one.n_batches_kept:,} as they are)"
            f"  bytes {one.n_bytes_before:,} -> {one.n_bytes_after:,}"
        )
        console.line(text)
    if len(report.partitions) > 1 or args.dry_run:
        verb = "would be" if args.dry_run else "are"
        console.note(
            f"{counted(len(report.partitions), 'partition')}, {human_bytes(report.total('n_bytes_before'))}, {verb}"
            f" {human_bytes(report.total('n_bytes_after'))} in {args.output}"
        )
