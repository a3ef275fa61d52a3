"""`kafkalog truncate`: removes the end of a log."""

from __future__ import annotations

import argparse
from typing import Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, epoch, offset
from kafkalog.cli.repairing.cutting import PATH, run_cut

COMMAND: Final = Command(
    description="""\
Remove the end of a partition's log, or of each partition of a log dir. Removed are all records from an offset or time
on, or all records of later leader epochs. Stop the broker first.

truncate removes whole batches, so the log may end before the offset. It updates indexes, producer snapshots, leader
epochs and checkpoints. A partition that ends earlier stays unchanged. Damage before the cut is an error; run
'kafkalog recover' first.

A crash leaves a copy absent or complete. With --in-place, each file is old or new, and the clean-shutdown marker is
absent until all is done. Run the same command again, with another backup directory.""",
    examples="""\
  kafkalog truncate /var/lib/kafka/orders-0 --to-offset 120000 --dry-run
  kafkalog truncate /var/lib/kafka/orders-0 --to-offset 120000 --in-place --backup /var/tmp/before
  kafkalog truncate /mnt/disk --to-timestamp 2026-11-21T08:00Z -o /new/disk/kafka
  kafkalog truncate orders-0 --to-epoch 7 -o copy""",
    options="""
  --json    one object a line, per partition
  @limits
where (one is required):
  | --to-offset N          remove records at and after this offset
  | --to-epoch N           remove records of later leader epochs
  | --to-timestamp TIME    remove all records from the first one at or after this time
  @output needs --backup
""",
    types={"to_offset": offset, "to_epoch": epoch},
    paths=PATH,
    n_paths=1,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Truncate, and print what became of each partition."""
    from kafkalog.repair.cutting.truncate import truncate

    run_cut(truncate, args, console)
