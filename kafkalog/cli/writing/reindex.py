"""`kafkalog reindex`: rebuilds indexes and the other derived files as a broker's recovery does."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console, UntilBroken
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import (
    HelpText,
    add_command,
    add_limits,
    add_selection,
    add_threads,
    chosen,
    index_interval,
    names,
    selected_bytes,
    timestamp,
)
from kafkalog.cli.scan_options import path_of
from kafkalog.cli.text import counted

if TYPE_CHECKING:
    from kafkalog.operations.rebuilding.report import RebuildReport
    from kafkalog.survey.startup import RebuiltFile

_KINDS: Final = ("offset", "time", "txn", "snapshot", "epochs")

_HELP: Final = HelpText(
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
prints a line for each new, changed or removed file.""",
    examples="""\
  kafkalog reindex /var/lib/kafka/orders-0 --dry-run
  kafkalog reindex /var/lib/kafka -t orders --in-place
  kafkalog reindex orders-0 --in-place --damaged cut --kinds offset,time,txn,snapshot
  kafkalog reindex /backup/kafka --kinds offset,time,txn,snapshot,epochs --output /tmp/indexes --threads 4
  kafkalog reindex --dry-run --json orders-0/00000000000000000000.log --kinds offset --index-interval-bytes 1024""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "reindex", _HELP, run, writes=True)
    where = parser.add_argument_group("output (one is required)").add_mutually_exclusive_group(required=True)
    where.add_argument(
        "-o", "--output", metavar="DIR", help="write to this new directory, with a directory per partition"
    )
    where.add_argument("--in-place", action="store_true", help="replace the files next to the .log files")
    where.add_argument("--dry-run", action="store_true", help="show the changes of --in-place and write nothing")
    what = parser.add_argument_group("what to rebuild")
    what.add_argument(
        "--kinds",
        metavar="K,...",
        type=_kinds,
        default=list(_KINDS[:3]),
        help="any of offset, time, txn, snapshot, epochs (default: offset,time,txn)",
    )
    add_selection(what)
    how = parser.add_argument_group("how")
    how.add_argument(
        "--damaged",
        choices=("keep", "cut"),
        default="keep",
        help="for a damaged .log: keep its index files (keep, the default), or write indexes that end before the"
        " damage (cut)",
    )
    how.add_argument(
        "--backup",
        action=argparse.BooleanOptionalAction,
        help="with --in-place: keep old files as NAME.kafkalog-backup (the default)",
    )
    how.add_argument(
        "--index-interval-bytes",
        metavar="N",
        type=_interval,
        help="the topics' index.interval.bytes, with K or M; auto, the default: see above",
    )
    how.add_argument(
        "--now",
        metavar="TIME",
        type=timestamp,
        help="remove producers that were idle for a day at this time from snapshots: ms, or ISO 8601 with Z or an"
        " offset (default: keep all)",
    )
    add_threads(how, "segments to read at a time (default: 1)", default=1)
    parser.add_argument("--json", action="store_true", help="an object per file, also for unchanged ones")
    add_limits(parser)


def _kinds(text: str) -> list[str]:
    found = names(text)
    for name in found:
        if name not in _KINDS:
            raise argparse.ArgumentTypeError(f"expected one of {', '.join(_KINDS)}, not {name!r}")
    return found


def _interval(text: str) -> int | None:
    return None if text == "auto" else index_interval(text)


def run(args: argparse.Namespace, console: Console) -> None:
    """Rebuild, and print what became of each file."""
    if args.backup and not args.in_place:
        raise UsageError("--backup needs --in-place")
    from kafkalog.log.open import open as open_path
    from kafkalog.operations.rebuilding.reindex import reindex

    opened = open_path(path_of(args), limits=args.limits)
    console.start_progress(selected_bytes(opened, args), "indexes")

    on_file: UntilBroken[RebuiltFile] = UntilBroken(lambda file: _show_file(file, args, console))
    names = ("kinds", "output", "in_place", "backup", "damaged", "index_interval_bytes", "dry_run", "now")
    options = chosen(args, *names, "topics", "partitions", "threads", "limits")
    report = reindex(opened, **options, progress=console.progress.advance, on_file=on_file)
    console.progress.close()
    on_file.finish()
    console.all_findings(report.findings)
    _show(report, args, console)


def _show_file(file: RebuiltFile, args: argparse.Namespace, console: Console) -> None:
    """Print a file; in place only if it changes."""
    if args.json:
        console.json(file.as_dict())
    elif args.output is not None or file.change != "same":
        console.line(f"{file.change:<8} {file.kind:<8} {file.n_entries:>9,} entries  {file.path}")


def _show(report: RebuildReport, args: argparse.Namespace, console: Console) -> None:
    """Print what the report has besides its files and findings."""
    if not report.intervals and not report.findings.rows:
        console.note("no partition matches")
    for name, interval in report.intervals.items():
        console.detail(f"{name}: index.interval.bytes {interval.n_bytes} ({interval.origin})")
    # one damaged segment makes many others be skipped, for one reason
    for why, same in itertools.groupby(report.skipped, lambda one: one.why):
        every = list(same)
        paths = list(dict.fromkeys(skipped.path for skipped in every))
        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        *others, last = dict.fromkeys(skipped.kind for skipped in every)
        kinds = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        console.note(f"{paths[0]}{more}: {kinds} not rebuilt: {why}")
    counts = ", ".join(
        f"{n:,} {change}" for change in ("new", "changed", "removed", "same") if (n := report.count(change))
    )
    how = " (dry run)" if args.dry_run else ", compared with the existing ones" if args.output is not None else ""
    console.note(f"{counted(len(report.files), 'file')}{how}: {counts}" if counts else "no files")
    if n_backups := sum(file.backup is not None for file in report.files):
        console.note(f"{counted(n_backups, 'old file')} kept as NAME.kafkalog-backup; delete them after a check")
