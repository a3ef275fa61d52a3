"""`kafkalog compact`: runs the log cleaner offline."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.repairing.cutting import PATH, output_options, show_notes
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.text import counted

if TYPE_CHECKING:
    from kafkalog.repair.compacting.compacted_partitions import CompactedPartition

COMMAND: Final = Command(
    description="""\
Compact a partition, or each compacted topic of a log dir, as a broker's log cleaner does: keep only the last record of
each key. Stop the broker first.

compact does not clean the last segment, nor anything from the first open transaction on. A topic counts as compacted
by its cleanup.policy in the cluster's metadata, or if the cleaner's checkpoint names it. If the metadata lacks a topic,
name it with -t, or name its partition directory.

A crash leaves a copy absent or complete. With --in-place, a new segment may wait as a .swap file: start the broker or
run kafkalog recover, which completes it, then compact again.""",
    examples="""\
  kafkalog compact /var/lib/kafka --dry-run
  kafkalog compact /var/lib/kafka --in-place
  kafkalog compact /var/lib/kafka --topics users --in-place --backup /other/disk/before
  kafkalog compact /mnt/disk/users-0 -o /new/disk/users-0""",
    options="""
  @topics
  --now TIME       the cleaner's clock (default: now)
  --config FILE    the broker's server.properties: its settings, and all of its log.dirs
  --metadata DIR   a log dir with the cluster's metadata log, which has the topics' settings
  @reader_threads partitions to compact at a time
  --json           one object a line, per partition
  @limits
  @output --backup is optional
""",
    paths=PATH,
    n_paths=1,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Compact, and print what became of each partition."""
    from kafkalog.repair.compacting.compact import compact
    from kafkalog.repair.compacting.compacted_partitions import CompactedPartition

    options = chosen(args, compact) | output_options(args, needs_backup=False)
    with usage_errors():
        report = compact(
            args.paths[0],
            **options,
            on_start=lambda n_bytes: console.start_progress(n_bytes, "segments"),
            progress=lambda n_bytes: console.progress.advance(n_bytes),
        )
    console.progress.close()
    for row in report.partitions:
        assert isinstance(row, CompactedPartition)
        console.show([row], _lines(row))
    show_notes(report, f"{counted(report.n_records_removed, 'record')} and ", args, console)


def _lines(row: CompactedPartition) -> Iterator[str]:
    if row.error is None:
        n_bytes = row.n_bytes_before - row.n_bytes
        what = f"{counted(row.n_records_removed, 'record')}, {n_bytes:,} of {row.n_bytes_before:,} bytes removed"
        to = "nothing to clean" if row.cleaned_to is None else f"cleaned to offset {row.cleaned_to}: {what}"
        yield "; ".join([f"{row.path}  {to}", *(row.remarks or _unclean(row))])


def _unclean(row: CompactedPartition) -> list[str]:
    """Why nothing was cleaned, where the cleaner's own rules are no reason: the last segment is active."""
    if row.cleaned_to is not None or not row.segments:
        return []
    if row.segments[1:]:
        return ["the cleaner has been past all segments but the last one, which a broker writes to: it is not cleaned"]
    return ["the only segment is the active one, which a broker writes to: a cleaner does not touch it"]
