"""`kafkalog trim`: removes the start of a log."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import HelpText, add_command, log_time, offset
from kafkalog.cli.repairing.cutting import add_shared, run_cut
from kafkalog.cli.repairing.output_options import PATH
from kafkalog.cli.text import parse_bytes

_HELP: Final = HelpText(
    description="""\
Remove the start of a partition's log, or of each partition of a log dir: all records before an offset or a time. A
running broker does the same with DeleteRecords and retention. Stop the broker first.

trim writes the log start offset to the log dir's checkpoint, and deletes segments that end before it. The last segment
always stays. A copy of a single partition (-o copy/orders-0) has no checkpoint, so it starts with the first kept
segment.""",
    examples="""\
  kafkalog trim /var/lib/kafka/orders-0 --before-offset 120000 --dry-run
  kafkalog trim /var/lib/kafka --before-timestamp 2026-11-01T00:00Z --in-place --backup /other/disk/before
  kafkalog trim /var/lib/kafka --free 50GiB --dry-run
  kafkalog trim /var/lib/kafka --retention-ms 86400000 --in-place
  kafkalog trim /var/lib/kafka --retention --config /etc/kafka/server.properties --in-place
  kafkalog trim /mnt/disk --before-timestamp 2026-11-01T00:00Z -o /new/disk/kafka""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "trim", _HELP, run, paths=PATH, n_paths=1)
    place = parser.add_argument_group("where (one is required)").add_mutually_exclusive_group()
    place.add_argument("--before-offset", metavar="N", type=offset, help="remove records before this offset")
    place.add_argument(
        "--before-timestamp",
        metavar="TIME",
        type=log_time,
        help="remove records before the first one at or after this time",
    )
    place.add_argument(
        "--free", metavar="BYTES", type=parse_bytes, help="delete the oldest segments until they free this much"
    )
    place.add_argument("--retention", action="store_true", help="apply the topics' own retention settings")
    rules = parser.add_argument_group("or rules for all partitions")
    rules.add_argument("--retention-ms", metavar="MS", type=int, help="delete segments with older records; -1: none")
    rules.add_argument("--retention-bytes", metavar="N", type=int, help="delete all before the last N bytes; -1: none")
    parser.add_argument(
        "--config", metavar="FILE", help="with --retention: the broker's server.properties, for its defaults"
    )
    add_shared(parser, backup="needs --backup, except with --free and the retention options")


def run(args: argparse.Namespace, console: Console) -> None:
    """Trim, and print what became of each partition."""
    from kafkalog.repair.cutting.trim import trim

    by_retention = ("retention_ms", "retention_bytes", "free", "retention")
    needs_backup = all(getattr(args, name) in (None, False) for name in by_retention)
    places = ("before_offset", "before_timestamp", *by_retention, "config")
    run_cut(trim, places, args, console, needs_backup=needs_backup)
