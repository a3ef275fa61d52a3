"""`kafkalog recover`: does a broker's recovery after a crash offline."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console, UntilBroken
from kafkalog.cli.options import Command, chosen, timestamp
from kafkalog.cli.repairing.cutting import PATH, output_options
from kafkalog.cli.text import counted
from kafkalog.text import offset_range

if TYPE_CHECKING:
    from kafkalog.repair.recovering.recovered_partitions import RecoveryReport
    from kafkalog.survey.startup import PartitionPlan

COMMAND: Final = Command(
    description="""\
Do a broker's recovery offline, with several segments at a time and a progress bar. The broker then starts without
recovery. Run it with --dry-run first.

Like a broker, recover reads the segments after the recovery point (--all reads all segments). It truncates a damaged
segment before the damage and deletes all later segments of the partition. It keeps them only if the damaged segment has
no offset index. It rebuilds indexes, producer snapshots and leader epochs, and completes interrupted replacements of
segments. Then it writes recovery points and the clean-shutdown marker.

With --in-place, recover copies all old files of a partition to the backup before it changes the partition. Each new
file appears in one step. After a crash, run the command again with another backup directory, or start the broker.
recover writes a missing partition.metadata with the topic id of the cluster's metadata. If no id is known, a KRaft
broker sets the partition aside (-stray), and its records count as lost.

recover refuses a log dir with a running broker. It prints a line per changed partition. If a partition cannot be
recovered, it stays unchanged or is left out of the copy, and recover writes no marker. If records are lost, recover
prints how many of them are in intact batches, and the boot command that keeps these. A segment with offsets that are
more than 2^31 apart is left to the broker, which splits it at its start; there is no marker then, either.""",
    examples="""\
  kafkalog recover /var/lib/kafka --dry-run
  kafkalog recover /var/lib/kafka --in-place --backup /var/tmp/kafka-before
  kafkalog recover /mnt/disk -o /new/disk/kafka
  kafkalog recover /mnt/disk/orders-0 -o /tmp/orders-0 --all --json""",
    options="""
  --json    one object a line, per partition, then one of all
  @limits
  @output needs --backup
how:
  --all    recover all segments, not only those after the recovery point
  --metadata DIR    a log dir with __cluster_metadata-0, such as another disk of the broker, for topic ids
  @index_interval  (default: from the cluster's metadata, else from existing indexes)
  @reader_threads segments to read at a time
  @expire
""",
    types={"now": timestamp},
    paths=PATH,
    n_paths=1,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Recover, and print what became of each partition."""
    options = output_options(args)
    from kafkalog.repair.recovering.recover import recover

    def show(row: PartitionPlan) -> None:
        line = _line(row) if row.error is None else ""
        console.show([row], [line] if line else ())

    # a closed pipe must not end a recovery half done
    on_partition = UntilBroken(show)
    report = recover(
        args.paths[0],
        **options,
        **chosen(args, "metadata", "index_interval_bytes", "threads", "now", "limits"),
        all_segments=args.all,
        on_start=lambda n_bytes: console.start_progress(n_bytes, "segments"),
        progress=lambda n_bytes: console.progress.advance(n_bytes),
        on_partition=on_partition,
    )
    console.progress.close()
    on_partition.finish()
    console.all_findings(report.findings)
    console.losses({row.path: row.loss for row in report.partitions if row.losses})
    total = {name: value for name, value in report.as_dict().items() if name != "partitions"}
    console.show([{"kind": "total", "path": args.paths[0], "ok": report.ok, **total}], ())
    sum_up(report, args, console)


def _line(row: PartitionPlan) -> str:
    """What changes in a partition; "" if nothing does."""
    parts = [
        f"{segment.name} {segment.action} ({segment.n_bytes_before:,} -> {segment.n_bytes:,} bytes)"
        for segment in row.segments
        if segment.n_bytes != segment.n_bytes_before or segment.action == "deleted"
    ]
    n_files = sum(file.change != "same" for file in row.files)
    parts += [f"{counted(n_files, 'file')} rebuilt"] if n_files else []
    parts += [f"a broker renames it to -stray: {row.stray}"] if row.stray is not None else []
    parts += [f"{counted(len(row.removed), 'other file')} removed"] if row.removed else []
    parts += [f"{counted(len(row.renamed), '.swap file')} completed"] if row.renamed else []
    offsets = f"offsets {offset_range(row.log_start_offset, row.log_end_offset)}"
    parts += [f"lost: {row.loss}"] if row.losses else []
    return f"{row.path}  {offsets}  {', '.join(parts)}" if parts else ""


def sum_up(report: RecoveryReport, args: argparse.Namespace, console: Console) -> None:
    """Print a total of what was done, and what could not be."""
    for row in report.partitions:
        if row.error is not None:
            # most are findings, too, which have been printed
            is_said = row.problem in report.findings.rows
            console.note(f"{row.path} is not recovered" + ("" if is_said else f": {row.error}"))
        elif row.count("split"):
            what = "without a clean-shutdown marker: a broker splits segments whose offsets are too far apart"
            console.note(f"{row.path} stays as it is, {what}")
    _count_losses(report, console, is_dry_run=args.dry_run)
    if report.checkpoints:
        console.note(f"written: {', '.join(report.checkpoints)}")
    if report.n_backup_files:
        n_intact = sum(row.loss.n_intact for row in report.partitions)
        what = "keep it: it has the intact batches that were cut" if n_intact else "delete it after a check"
        console.note(f"{counted(report.n_backup_files, 'old file')} kept in {args.backup}; {what}")
    console.next_steps(report.next)


def _count_losses(report: RecoveryReport, console: Console, *, is_dry_run: bool) -> None:
    n_cut = sum(segment.n_bytes != segment.n_bytes_before for row in report.partitions for segment in row.segments)
    verb = "would be cut or deleted" if is_dry_run else "cut or deleted"
    apart = [row for row in report.partitions if row.stray is not None]
    n_bytes = report.n_bytes_lost - sum(row.n_bytes for row in apart)
    lost = f"{n_bytes:,} bytes from the first damage on lost" if n_bytes or not apart else "nothing cut"
    console.note(f"{counted(len(report.partitions), 'partition')}: {counted(n_cut, 'segment')} {verb}, {lost}")
    if apart:
        n_apart = sum(row.n_bytes for row in apart)
        console.note(f"{counted(len(apart), 'partition')} with {n_apart:,} bytes: a broker sets it aside (-stray)")
