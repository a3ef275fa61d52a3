"""`kafkalog truncate`: removes the end of a log."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import HelpText, add_command, epoch, log_time, offset
from kafkalog.cli.repairing.cutting import add_shared, run_cut
from kafkalog.cli.repairing.output_options import PATH

_HELP: Final = HelpText(
    description="""\
Remove the end of a partition's log, or of each partition of a log dir: everything from an offset or a time on, or all
records of leader epochs behind one. The broker has to be stopped.

Batches are removed whole, so the log may end before the offset. Indexes, producer snapshots, leader epochs and
checkpoints are kept right. A partition that ends before the place is unchanged; one that is damaged before it is an
error: recover it first.""",
    examples="""\
  kafkalog truncate /var/lib/kafka/orders-0 --to-offset 120000 --dry-run
  kafkalog truncate /var/lib/kafka/orders-0 --to-offset 120000 --in-place --backup /var/tmp/before
  kafkalog truncate /mnt/disk --to-timestamp 2026-11-21T08:00Z -o /new/disk/kafka
  kafkalog truncate orders-0 --to-epoch 7 -o copy""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "truncate", _HELP, run, paths=PATH)
    place = parser.add_argument_group("from where on (one of these)").add_mutually_exclusive_group(required=True)
    place.add_argument("--to-offset", metavar="N", type=offset, help="remove records from this offset on")
    place.add_argument("--to-epoch", metavar="N", type=epoch, help="remove records of later leader epochs")
    place.add_argument(
        "--to-timestamp", metavar="TIME", type=log_time, help="remove everything from the first record at this time on"
    )
    add_shared(parser)


def run(args: argparse.Namespace, console: Console) -> None:
    """Truncate, and print what became of each partition."""
    from kafkalog.repair.cutting.truncate import truncate

    run_cut(truncate, ("to_offset", "to_epoch", "to_timestamp"), args, console)
