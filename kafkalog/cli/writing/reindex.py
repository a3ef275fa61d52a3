"""`kafkalog reindex`: rebuilds indexes and the other derived files as a broker's recovery does."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Final, get_args

from kafkalog.cli.console import Console, UntilBroken
from kafkalog.cli.options import Command, chosen, index_interval, selected_bytes, timestamp
from kafkalog.cli.scan_options import path_of
from kafkalog.cli.text import counted
from kafkalog.text import NO_PARTITION_MATCHES

if TYPE_CHECKING:
    from kafkalog.operations.rebuilding.rebuilt_files import RebuildReport, Skipped
    from kafkalog.survey.startup import RebuiltFile


def _interval(text: str) -> int | None:
    return None if text == "auto" else index_interval(text)


COMMAND: Final = Command(
    description="""\
Rebuild indexes from .log files alone. The new files have the same bytes as after a broker's own recovery. One of -o
DIR, --in-place and --dry-run is required.

  offset    .index                   positions of batches
  time      .timeindex               largest timestamps
  txn       .txnindex                aborted transactions
  snapshot  .snapshot                producers and their open transactions
  epochs    leader-epoch-checkpoint  merged with the existing file, because an epoch may have no batch

The density of entries is the topic's index.interval.bytes. Without --index-interval-bytes, it comes from
__cluster_metadata-0 next to the partitions, else from the existing indexes, else it is 4096. -v shows the source.

reindex never changes a .log file. It reports a damaged .log file and exits with 1. The index files of this segment
stay, because a broker that does not recover the segment still uses them after the damage. Later segments get new
offset and time indexes, and keep .txnindex and .snapshot. With --damaged cut, the indexes of the damaged segment end
before the damage, as after recovery. Later segments, which recovery deletes, keep theirs. Like recovery, --damaged cut
does not detect a wrong magic byte or offset.

With --in-place, each file is replaced in one step. The old file stays next to it as NAME.kafkalog-backup (-2, -3, ...
if that exists), which a broker ignores; --no-backup keeps none. reindex refuses a log dir with a running broker. It
prints a line for each new, changed or removed file.

A crash leaves an output absent or complete, and each file of --in-place old or new. Run the same command again.""",
    examples="""\
  kafkalog reindex /var/lib/kafka/orders-0 --dry-run
  kafkalog reindex /var/lib/kafka -t orders --in-place
  kafkalog reindex orders-0 --in-place --damaged cut --kinds offset,time,txn,snapshot
  kafkalog reindex /backup/kafka --kinds offset,time,txn,snapshot,epochs --output /tmp/indexes --threads 4
  kafkalog reindex --dry-run --json orders-0/00000000000000000000.log --kinds offset --index-interval-bytes 1024""",
    options="""
  --json    one object a line, per file, also for unchanged ones
  @limits
output (one is required):
  | -o --output DIR    write to this new directory, with a directory per partition
  | --in-place         replace the files next to the .log files
  | --dry-run          show the changes of --in-place and write nothing
what to rebuild:
  --kinds {offset,time,txn,snapshot,epochs},... [offset,time,txn]
                       any of offset, time, txn, snapshot, epochs (default: offset,time,txn)
  @selection
how:
  --damaged {keep,cut} [keep]    for a damaged .log: keep its index files (keep, the default), or write indexes that end
                                 before the damage (cut)
  --[no-]backup        with --in-place: keep old files as NAME.kafkalog-backup (the default)
  --index-interval-bytes N    the topics' index.interval.bytes, with K or M; auto, the default: see above
  @expire
  --threads N [1]    segments to read at a time (default: 1)
""",
    types={"index_interval_bytes": _interval, "now": timestamp},
    writes=True,
    needs={"backup": "in-place"},
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Rebuild, and print what became of each file."""
    from kafkalog.log.open import open as open_path
    from kafkalog.operations.rebuilding.reindex import reindex

    opened = open_path(path_of(args), limits=args.limits)
    console.start_progress(selected_bytes(opened, args), "indexes")

    on_file: UntilBroken[RebuiltFile] = UntilBroken(lambda file: _show_file(file, args, console))
    report = reindex(opened, **chosen(args, reindex), progress=console.progress.advance, on_file=on_file)
    console.progress.close()
    on_file.finish()
    console.all_findings(report.findings)
    _show(report, args, console)


def _show_file(file: RebuiltFile, args: argparse.Namespace, console: Console) -> None:
    """Print a file; in place only if it changes."""
    line = f"{file.change:<8} {file.kind:<8} {file.n_entries:>9,} entries  {file.path}"
    console.show([file], [line] if args.output is not None or file.change != "same" else ())


def _files_text(skipped: list[Skipped]) -> str:
    paths = list(dict.fromkeys(one.path for one in skipped))
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    *others, last = dict.fromkeys(one.kind for one in skipped)
    kinds = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return f"{paths[0]}{more}: {kinds}"


def _show(report: RebuildReport, args: argparse.Namespace, console: Console) -> None:
    """Print what the report has besides its files and findings."""
    from kafkalog.survey.startup import Change

    if not report.intervals and not report.findings.rows:
        console.note(NO_PARTITION_MATCHES)
    for name, interval in report.intervals.items():
        console.detail(f"{name}: index.interval.bytes {interval.n_bytes} ({interval.origin})")
    # one damaged segment makes many others be skipped, for one reason
    for why, same in itertools.groupby(report.skipped, lambda one: one.why):
        console.note(f"{_files_text(list(same))} not rebuilt: {why}")
    counts = ", ".join(f"{n:,} {change}" for change in get_args(Change) if (n := report.count(change)))
    how = " (dry run)" if args.dry_run else ", compared with the existing ones" if args.output is not None else ""
    console.note(f"{counted(len(report.files), 'file')}{how}: {counts}" if counts else "no files")
    if n_backups := sum(file.backup is not None for file in report.files):
        console.note(f"{counted(n_backups, 'old file')} kept as NAME.kafkalog-backup; delete them after a check")
