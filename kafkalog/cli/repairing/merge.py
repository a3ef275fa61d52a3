"""`kafkalog merge`: merges several copies of a partition into the best log."""

from __future__ import annotations

import argparse
from typing import Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, chosen, selected_bytes
from kafkalog.cli.repairing.salvage import show_report

_PATHS: Final = (
    "REPLICA",
    "partition directory or log dir",
    "REPLICAs are directories of one partition from several brokers, or log dirs with all their partitions.",
)
COMMAND: Final = Command(
    description="""\
Merge the copies of a partition from several disks into one partition that a broker starts on.

The copy with the highest leader epoch is the base; ties go to the longest. The other copies are truncated where a
follower would truncate. Another copy fills a hole of the base if both have the same later batch, or if their leader
epochs agree. Damaged copies are searched as by 'kafkalog salvage'.

-o DIR gets a directory per partition, with new indexes, producer snapshots and leader epochs. merge.json and the report
on stdout name the source of each range of offsets. origin.json has the log dirs, for 'kafkalog boot'. The exit code is
1 if no copy has some offsets, or if copies differ although their leader epochs agree.

A crash leaves the output absent or complete.""",
    examples="""\
  kafkalog merge /mnt/broker-1/orders-0 /mnt/broker-2/orders-0 -o /new/merged
  kafkalog merge /mnt/broker-1 /mnt/broker-2 /mnt/broker-3 -t orders -o /new/merged
  kafkalog merge /mnt/broker-1 /mnt/broker-2 --dry-run --json""",
    options="""
  --json    the report as one JSON object, as in merge.json, with the next command
  @limits
output (one is required):
  | -o --output DIR    write to this new directory, outside of any log dir
  | --dry-run          show the sources and write nothing
which partitions:
  @selection
""",
    paths=_PATHS,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Merge, and print the report."""
    from kafkalog.log.open import open as open_path
    from kafkalog.repair.merging.merge import merge

    opened = [open_path(path, limits=args.limits) for path in args.paths]
    console.start_progress(sum(selected_bytes(one, args) for one in opened), "bytes")
    report = merge(opened, **chosen(args, merge), progress=console.progress.advance)  # type: ignore[arg-type]
    show_report(report, console)
