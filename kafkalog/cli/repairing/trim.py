"""`kafkalog trim`: removes the start of a log."""

from __future__ import annotations

import argparse
from typing import Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, offset
from kafkalog.cli.repairing.cutting import PATH, run_cut

COMMAND: Final = Command(
    description="""\
Remove the start of a partition's log, or of each partition of a log dir: all records before an offset or a time. A
running broker does the same with DeleteRecords and retention. Stop the broker first.

trim writes the log start offset to the log dir's checkpoint, and deletes segments that end before it. The last segment
always stays. A copy of a single partition (-o copy/orders-0) has no checkpoint, so it starts with the first kept
segment.

--free and the retention options leave compacted and tiered topics alone. They need the topics' settings: those in the
metadata log of this log dir, of another one of the broker (--config), or elsewhere (--metadata). If settings are
unknown, the retention options delete nothing, and --free leaves the topic alone.

A crash leaves a copy absent or complete. With --in-place, the log start offset rises first, so that no deleted record
is expected. Run the same command again, with another backup directory if you name one.""",
    examples="""\
  kafkalog trim /var/lib/kafka/orders-0 --before-offset 120000 --dry-run
  kafkalog trim /var/lib/kafka --before-timestamp 2026-11-01T00:00Z --in-place --backup /other/disk/before
  kafkalog trim /var/lib/kafka --free 50GiB --dry-run
  kafkalog trim /var/lib/kafka --retention-ms 86400000 --in-place
  kafkalog trim /var/lib/kafka --retention --config /etc/kafka/server.properties --in-place
  kafkalog trim /mnt/disk --before-timestamp 2026-11-01T00:00Z -o /new/disk/kafka""",
    options="""
  @topics
  --config FILE     the broker's server.properties: its settings, and all of its log.dirs
  --metadata DIR    a log dir with the cluster's metadata log, which has the topics' settings
  --json            one object a line, per partition
  @limits
where (one of these, or of the rules):
  | --before-offset N          remove records before this offset
  | --before-timestamp TIME    remove records before the first one at or after this time
  | --free BYTES               delete the oldest segments until they free this much
  | --retention                apply the topics' own retention settings
or rules for all partitions:
  --retention-ms MS      delete segments with older records; -1: none
  --retention-bytes N    delete all before the last N bytes; -1: none
  @output needs --backup, except with --free and the retention options
""",
    types={"before_offset": offset},
    paths=PATH,
    n_paths=1,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Trim, and print what became of each partition."""
    from kafkalog.repair.cutting.trim import trim

    by_retention = ("retention_ms", "retention_bytes", "free", "retention")
    needs_backup = all(getattr(args, name) in (None, False) for name in by_retention)
    run_cut(trim, args, console, needs_backup=needs_backup)
