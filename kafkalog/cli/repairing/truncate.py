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
Remove the end of a partition's log, or of each partition of a log dir. Removed are all records from an offset or time
on, or all records of later leader epochs. Stop the broker first.

truncate removes whole batches, so the log may end before the offset. It updates indexes, producer snapshots, leader
epochs and checkpoints. A partition that ends earlier stays unchanged. Damage before the cut is an error; run
'kafkalog recover' first.""",
    examples="""\
  kafkalog truncate /var/lib/kafka/orders-0 --to-offset 120000 --dry-run
  kafkalog truncate /var/lib/kafka/orders-0 --to-offset 120000 --in-place --backup /var/tmp/before
  kafkalog truncate /mnt/disk --to-timestamp 2026-11-21T08:00Z -o /new/disk/kafka
  kafkalog truncate orders-0 --to-epoch 7 -o copy""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "truncate", _HELP, run, paths=PATH, n_paths=1)
    place = parser.add_argument_group("where (one is required)").add_mutually_exclusive_group(required=True)
    place.add_argument("--to-offset", metavar="N", type=offset, help="remove records at and after this offset")
    place.add_argument("--to-epoch", metavar="N", type=epoch, help="remove records of later leader epochs")
    place.add_argument(
        "--to-timestamp",
        metavar="TIME",
        type=log_time,
        help="remove all records from the first one at or after this time",
    )
    add_shared(parser)


def run(args: argparse.Namespace, console: Console) -> None:
    """Truncate, and print what became of each partition."""
    from kafkalog.repair.cutting.truncate import truncate

    run_cut(truncate, ("to_offset", "to_epoch", "to_timestamp"), args, console)
