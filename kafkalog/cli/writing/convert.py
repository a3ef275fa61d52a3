"""`kafkalog convert`: rewrites a log: to v2, another codec or size, with records dropped or redacted."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import FILTER_HELP, Command, chosen, selected_bytes
from kafkalog.cli.scan_options import check_names, decode_options, hint_at_skip, path_of, settings_of, usage_errors
from kafkalog.cli.text import counted, human_bytes
from kafkalog.text import offset_range

if TYPE_CHECKING:
    from kafkalog.operations.converting.converted_partitions import ConversionReport, ConvertedPartition
    from kafkalog.state.log_config import LogConfig

_PATHS: Final = (
    "SRC",
    "log dir, partition directory or .log file",
    "SRC is a log dir, a partition directory or a single .log file. You can name several.",
)


def _redaction(text: str) -> tuple[str, str]:
    target, equals, action = text.rpartition("=")
    if not equals or not target.strip():
        raise argparse.ArgumentTypeError(f"expected PART=HOW such as value=null, not {text!r}")
    return target.strip(), action.strip()


COMMAND: Final = Command(
    description=f"""\
Copy a log to a new place, and rewrite its batches on the way. Offsets, timestamps, headers, transactions, producers and
the log end offset are kept. Without options, convert copies v2 batches byte for byte and rewrites v0 and v1 messages as
v2 batches. A v0 message has no timestamp and gets -1.

DST becomes a directory with a directory per partition. If SRC is one partition, DST may be a partition directory
itself, such as copy/orders-0. DST must not be inside SRC or a log dir. It appears when everything is written and
synced. After a failure, damage or Ctrl-C, it does not exist. SRC stays unchanged.

  --drop    leaves out records. Their offsets stay unused, as after compaction. Transaction markers always stay. A batch
            without records is removed, unless Kafka needs it for a producer, a transaction or the log end.
  --redact  replaces a part of records by null or a hash. 'value=null' makes tombstones, 'headers=null' removes headers.
            In a compacted topic, hash keys: the log cleaner removes records with a null key.

To erase a person, drop by key, or set values to null and let compaction remove the rest:
  kafkalog convert SRC -o DST --drop 'key == user-42'
  kafkalog convert SRC -o DST --redact value=null --redact-where 'key == user-42'
  kafkalog convert SRC -o DST --value-format json --drop 'value.user == 42'

A record whose value does not decode is never dropped by a field; the exit code is 1 then.

{FILTER_HELP}
--drop and --redact-where take the same conditions. A comparison with null never matches: 'key != abc' does not match a
record without a key.

A crash leaves DST absent or complete.""",
    examples="""\
  kafkalog convert /backup/kafka -o /new/kafka -t orders          # old formats to v2
  kafkalog convert orders-0 -o copy/orders-0 --compression zstd --compression-level 5 --batch-size 256K
  kafkalog convert orders-0 -o copy/orders-0 --drop 'key in user-42,user-43' --dry-run
  kafkalog convert orders-0 -o copy/orders-0 --redact key=hash --redact-secret-file secret --redact headers.email=null
  kafkalog convert orders-0 -o copy/orders-0 --filter 'timestamp >= 2026-11-01T00:00Z' --segment-bytes 100M""",
    options="""
  -o --output DST!    new directory
which records:
  @selection
  --filter:filters 'COLUMN OP VALUE'*    keep only matching records; if repeated, all must match
  --drop 'COLUMN OP VALUE'*    leave out matching records; if repeated, those that match all
  --redact PART=HOW*           PART is key, value, headers or headers.NAME; HOW is null or hash (SHA-256 in hex)
  --redact-where 'COLUMN OP VALUE'*    redact only matching records; if repeated, all must match
  --redact-secret-file FILE    hash with HMAC-SHA-256 and the secret in this file; without a secret, anyone can find a
                               value by hashing likely ones
  @internal
  @decoding
how to write:
  --compression CODEC        none, gzip, snappy, lz4 or zstd (default: keep that of each batch)
  --compression-level N      level of the codec, in Kafka's range
  --batch-size BYTES         build batches of this uncompressed size, with K or M (default: keep batches, and group
                             single v0 and v1 messages to 16K)
  --segment-bytes BYTES      roll new segments at this size
  @config roll new segments with this topic setting, such as segment.ms=3600000 or index.interval.bytes=1024; repeatable
reading and reporting:
  @on_corruption raise
  @threads number of threads
  --dry-run    show the result and write nothing
  --json       one object a line, per partition
  @limits
""",
    types={"redact": _redaction},
    paths=_PATHS,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Convert, and print what became of each partition."""
    from kafkalog.log.open import open as open_path
    from kafkalog.operations.converting.convert import convert
    from kafkalog.values.decoding import DecodeWarning

    opened = open_path(path_of(args), limits=args.limits)
    config, redact = _config(args), dict(args.redact or ()) or None
    secret = None
    if args.redact_secret_file is not None:
        # editors and `echo` end a file with a newline, which is not meant
        secret = Path(args.redact_secret_file).read_bytes().rstrip(b"\r\n")
        if not secret:
            raise UsageError(f"{args.redact_secret_file} is empty; expected a secret")
    if secret is None and redact and "hash" in redact.values():
        console.note(
            "without a secret, anyone can find the redacted values by hashing likely ones; use --redact-secret-file"
        )
    console.start_progress(selected_bytes(opened, args), "records")
    with usage_errors(), hint_at_skip("convert what is intact"), warnings.catch_warnings():
        # findings have the same
        warnings.simplefilter("ignore", DecodeWarning)
        report = convert(
            opened,
            **{**chosen(args, convert), "redact": redact, "config": config, **decode_options(args)},
            redact_secret=secret,
            progress=console.progress.advance,
        )
    console.progress.close()
    console.all_findings(report.findings)
    console.losses(report.findings.losses)
    if report.n_undecoded:
        console.unknown_matches(report.n_undecoded)
    _show(report, args, console)


def _config(args: argparse.Namespace) -> LogConfig | None:
    properties = dict(args.config or ())
    check_names(properties)
    if args.segment_bytes is not None:
        properties["segment.bytes"] = str(args.segment_bytes)
    return settings_of(properties) if properties else None


def _show(report: ConversionReport, args: argparse.Namespace, console: Console) -> None:
    for one in report.partitions:
        console.show([one], _lines(one))
    if len(report.partitions) > 1 or args.dry_run:
        verb = "would become" if args.dry_run else "became"
        console.note(
            f"{counted(len(report.partitions), 'partition')}, {human_bytes(report.total('n_bytes_before'))}, {verb}"
            f" {human_bytes(report.total('n_bytes_after'))} in {args.output}"
        )


def _lines(one: ConvertedPartition) -> Iterator[str]:
    numbers = (one.n_records_dropped, "dropped"), (one.n_records_redacted, "redacted")
    changes = [f"{n:,} {what}" for n, what in numbers if n]
    if one.lost.n_findings:
        changes.append(f"lost: {one.lost}")
    yield (
        f"{one.topic_partition}  offsets {offset_range(one.start_offset, one.end_offset)}"
        f"  records {one.n_records_before:,} -> {one.n_records_after:,}"
        + (f" ({', '.join(changes)})" if changes else "")
        + f"  batches {one.n_batches_before:,} -> {one.n_batches_after:,} ({one.n_batches_kept:,} copied)"
        f"  bytes {one.n_bytes_before:,} -> {one.n_bytes_after:,}"
    )
