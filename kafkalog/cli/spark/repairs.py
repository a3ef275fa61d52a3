"""`kafkalog spark salvage` and `kafkalog spark recover` as Spark jobs."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import HelpText, add_index_interval, add_limits, add_selection, chosen, timestamp
from kafkalog.cli.repairing.output_options import PATH
from kafkalog.cli.repairing.recover import show_partition, sum_up
from kafkalog.cli.repairing.salvage import show_report
from kafkalog.cli.scan_options import path_of
from kafkalog.cli.spark.running import MASTERS, add_job, running, task_bytes

_SALVAGE: Final = HelpText(
    summary="save every intact batch of damaged logs",
    description="""\
What 'kafkalog salvage' makes, byte for byte, partitions side by side, with the same report and exit codes. -o DIR
appears when all partitions are in it.
"""
    + MASTERS,
    examples="""\
  kafkalog spark salvage /mnt/disk/kafka -o /new/salvaged
  kafkalog spark salvage /mnt/disk/kafka -t orders --dry-run --json""",
)
_RECOVER: Final = HelpText(
    summary="do what a broker's recovery does, into a copy",
    description="""\
What 'kafkalog recover -o DIR' makes, byte for byte, segments side by side. -o DIR appears when all partitions are in
it. In place, 'kafkalog recover' does it.
"""
    + MASTERS,
    examples="""\
  kafkalog spark recover /mnt/disk/kafka --dry-run
  kafkalog spark recover /mnt/disk/kafka -o /new/disk/kafka""",
)


def _add_destination(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where to (one of these)").add_mutually_exclusive_group(required=True)
    where.add_argument(
        "-o", "--output", metavar="DIR", help="make this directory, on a file system that all nodes share"
    )
    where.add_argument("--dry-run", action="store_true", help="write nothing: say what would be done")


def add_salvage(jobs: Any) -> None:
    """Register the arguments of ``spark salvage``."""
    parser = add_job(jobs, "salvage", _SALVAGE, _run_salvage, takes_bytes=False)
    _add_destination(parser)
    add_selection(parser)
    parser.add_argument(
        "--records",
        action="store_true",
        help="also try single records of damaged batches, into a file of their own",
    )
    add_limits(parser)


def add_recover(jobs: Any) -> None:
    """Register the arguments of ``spark recover``."""
    parser = add_job(jobs, "recover", _RECOVER, _run_recover, paths=PATH)
    _add_destination(parser)
    in_place = "a job recovers into a copy (-o DIR); on the machine that has the disk, kafkalog recover has this option"
    parser.instead = {"--in-place": in_place, "--backup": in_place}
    parser.add_argument("--all", action="store_true", help="recover all segments, as without a recovery point")
    add_index_interval(parser, " (default: from the cluster's metadata, else from existing indexes)")
    parser.add_argument(
        "--now", metavar="TIME", type=timestamp, help="drop producers that were idle for a day at that time"
    )
    add_limits(parser)


def _run_salvage(args: argparse.Namespace, console: Console) -> None:
    with running(args, console) as spark:
        from kafkalog.spark.jobs.salvage import run_salvage

        options = chosen(args, "output", "topics", "partitions", "records", "dry_run", "limits")
        report, _ = run_salvage(spark, path_of(args), **options)
    show_report(report, args, console)


def _run_recover(args: argparse.Namespace, console: Console) -> None:
    if len(args.paths) != 1:
        raise UsageError("one DIR at a time")
    with running(args, console) as spark:
        from kafkalog.scanning.planning import TASK_BYTES
        from kafkalog.spark.jobs.recover import run_recover

        report, _ = run_recover(
            spark,
            args.paths[0],
            all_segments=args.all,
            **chosen(args, "output", "dry_run", "index_interval_bytes", "now", "limits"),
            **{"task_bytes": 4 * TASK_BYTES, **task_bytes(args)},
        )
    for row in report.partitions:
        show_partition(row, args, console)
    console.all_findings(report.findings)
    sum_up(report, args, console)
