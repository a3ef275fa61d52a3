"""`kafkalog salvage`: saves every intact batch of damaged logs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import (
    HelpText,
    add_command,
    add_limits,
    add_selection,
    add_threads,
    chosen,
    selected_bytes,
)
from kafkalog.cli.scan_options import path_of

if TYPE_CHECKING:
    from kafkalog.repair.merging.report import MergeReport
    from kafkalog.repair.salvaging.report import SalvageReport

_HELP: Final = HelpText(
    description="""\
Save every intact record batch of a damaged log, v0, v1 and v2, with its offsets, into partitions that a broker starts
on. Run it before a broker touches the disk, or a copy of it: a broker cuts a log at the first damage, and deletes what
is behind.

-o DIR gets a directory per partition, with indexes, producer snapshots and leader epochs built anew; salvage.json,
which says exactly what was lost; and TOPIC-N.quarantine, all bytes that were not kept, and the files that prove that
segments are missing. A single partition goes to DIR itself if DIR is named like one, as saved/orders-0. Sectors that
the disk cannot read are stepped over. The cluster's metadata is left out.

A right checksum is not enough: offsets and leader epochs have to agree, too. Batches in a record's value, copies and
batches in a wrong place are suspects, which are not kept; their bytes are in the quarantine file. For each segment,
bytes kept, lost, suspect and of padding add up to its size. A batch with a right checksum that no reader can decode is
kept, and named.

On stdout is the report. The exit code is 1 if something is lost.""",
    examples="""\
  kafkalog salvage /mnt/disk/kafka -t orders -o /new/salvaged
  kafkalog salvage /mnt/disk/kafka/orders-0 --dry-run --json
  kafkalog salvage orders-0/00000000000000000000.log -o salvaged --records""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "salvage", _HELP, run)
    where = parser.add_argument_group("where to (one of these)").add_mutually_exclusive_group(required=True)
    where.add_argument("-o", "--output", metavar="DIR", help="make this directory, outside of any log dir")
    where.add_argument("--dry-run", action="store_true", help="write nothing: say what would be kept and lost")
    what = parser.add_argument_group("what")
    add_selection(what)
    what.add_argument(
        "--records",
        action="store_true",
        help="also try the single records of damaged batches, into TOPIC-N.unverified.jsonl: no checksum vouches for"
        " them; and look into compressed batches that are kept",
    )
    add_threads(parser, "segments read at a time (default: 1)", default=1)
    parser.add_argument("--json", action="store_true", help="the report as a JSON object, as in salvage.json")
    add_limits(parser)


def run(args: argparse.Namespace, console: Console) -> None:
    """Salvage, and print the report."""
    from kafkalog.log.open import open as open_path
    from kafkalog.repair.salvaging.salvage import salvage

    opened = open_path(path_of(args), limits=args.limits)
    console.start_progress(selected_bytes(opened, args), "bytes")
    options = chosen(args, "output", "topics", "partitions", "records", "threads", "dry_run", "limits")
    report = salvage(opened, **options, progress=console.progress.advance)
    show_report(report, args, console)


def show_report(report: SalvageReport | MergeReport, args: argparse.Namespace, console: Console) -> None:
    """Print a report as lines or as one object, and its findings."""
    console.progress.close()
    if args.json:
        console.json(report.as_dict())
    else:
        console.lines(report.lines())
    console.all_findings(report.findings)
    if not report.partitions:
        console.note("no partition matches")
