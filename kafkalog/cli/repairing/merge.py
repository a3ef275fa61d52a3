"""`kafkalog merge`: merges several copies of a partition into the best log."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import HelpText, add_command, add_limits, add_selection, chosen, selected_bytes
from kafkalog.cli.repairing.salvage import show_report

_PATHS: Final = (
    "REPLICA",
    "partition directory or log dir",
    "REPLICAs are the directories of one partition, of several brokers; or log dirs, with all their partitions.",
)
_HELP: Final = HelpText(
    description="""\
Merge several copies of a partition, of several dead disks, into the best log, as a partition that a broker starts on.

Leader epochs decide, as between brokers: the copy with the latest one leads and, of those, the longest. The others are
cut where they would truncate before they fetched from it. What the leader's copy lost is taken from another that is
known to be the same log: both have the same later batch, or the epochs agree. Damaged copies are searched as by
kafkalog salvage.

-o DIR gets a directory per partition, with indexes, producer snapshots and leader epochs built anew, and merge.json,
which names the source of each range of offsets. So does the report on stdout. The exit code is 1 if offsets are
missing that no copy has, or if copies differ although their leader epochs agree.""",
    examples="""\
  kafkalog merge /mnt/broker-1/orders-0 /mnt/broker-2/orders-0 -o /new/merged
  kafkalog merge /mnt/broker-1 /mnt/broker-2 /mnt/broker-3 -t orders -o /new/merged
  kafkalog merge /mnt/broker-1 /mnt/broker-2 --dry-run --json""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "merge", _HELP, run, paths=_PATHS)
    where = parser.add_argument_group("where to (one of these)").add_mutually_exclusive_group(required=True)
    where.add_argument("-o", "--output", metavar="DIR", help="make this directory, outside of any log dir")
    where.add_argument("--dry-run", action="store_true", help="write nothing: say what would be taken from where")
    add_selection(parser.add_argument_group("what"))
    parser.add_argument("--json", action="store_true", help="the report as a JSON object, as in merge.json")
    add_limits(parser)


def run(args: argparse.Namespace, console: Console) -> None:
    """Merge, and print the report."""
    from kafkalog.log.open import open as open_path
    from kafkalog.repair.merging.merge import merge

    opened = [open_path(path, limits=args.limits) for path in args.paths]
    console.start_progress(sum(selected_bytes(one, args) for one in opened), "bytes")
    options = chosen(args, "output", "topics", "partitions", "dry_run", "limits")
    report = merge(opened, **options, progress=console.progress.advance)  # type: ignore[arg-type]
    show_report(report, args, console)
