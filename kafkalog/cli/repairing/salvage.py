"""`kafkalog salvage`: saves every intact batch of damaged logs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, chosen, selected_bytes
from kafkalog.cli.scan_options import path_of
from kafkalog.text import NO_PARTITION_MATCHES

if TYPE_CHECKING:
    from kafkalog.repair.merging.merged_partitions import MergeReport
    from kafkalog.repair.salvaging.salvaged_partitions import SalvageReport

COMMAND: Final = Command(
    description="""\
Save every intact record batch of a damaged log with its offsets, as partitions that a broker starts on. Run salvage
before a broker touches the disk: a broker cuts a log at the first damage and deletes all later segments.

  DIR/TOPIC-N             the partition, with new indexes, producer snapshots and leader epochs
  DIR/TOPIC-N.quarantine  all bytes that were not kept, and files that prove that segments are missing
  DIR/salvage.json        the report: kept and lost bytes, with reasons
  DIR/origin.json         the log dir, in which boot finds metadata and checkpoints

A single partition goes to DIR itself if its name is a partition name such as saved/orders-0. salvage skips sectors that
the disk cannot read, and leaves out the cluster's metadata log.

A batch must have a valid checksum, and its offsets and leader epoch must agree with its neighbours. Copies, batches in
a wrong place and batches inside a record's value are suspects; they go to quarantine. Kept, lost, suspect and padding
bytes add up to the size of each segment. A batch with a valid checksum that no reader can decode is kept and reported.

salvage prints the report. The exit code is 1 if something is lost; then the next command is printed, too.

A crash leaves the output absent or complete.""",
    examples="""\
  kafkalog salvage /mnt/disk/kafka -t orders -o /new/salvaged
  kafkalog salvage /mnt/disk/kafka/orders-0 --dry-run --json
  kafkalog salvage orders-0/00000000000000000000.log -o salvaged""",
    options="""
  --threads N [1]    segments to read at a time (default: 1)
  --metadata DIR    a log dir with __cluster_metadata-0, such as another disk of the broker, for topic ids
  --json    the report as one JSON object, as in salvage.json, with the next command
  @limits
output (one is required):
  | -o --output DIR    write to this new directory, outside of any log dir
  | --dry-run          report what would be kept and lost, and write nothing
what to save:
  @selection
""",
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Salvage, and print the report."""
    from kafkalog.log.open import open as open_path
    from kafkalog.repair.salvaging.salvage import salvage

    opened = open_path(path_of(args), limits=args.limits)
    console.start_progress(selected_bytes(opened, args), "bytes")
    report = salvage(opened, **chosen(args, salvage), progress=console.progress.advance)
    show_report(report, console)


def show_report(report: SalvageReport | MergeReport, console: Console) -> None:
    """Print a report as lines or as one object, and its findings."""
    console.progress.close()
    console.show([{**report.as_dict(), "next": [step.as_dict() for step in report.next]}], report.lines())
    console.all_findings(report.findings)
    console.next_steps(report.next)
    if not report.partitions:
        console.note(NO_PARTITION_MATCHES)
