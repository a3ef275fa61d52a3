"""What the commands that change partitions share: the place of the changed files, and the report of a cut."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import chosen
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.text import counted
from kafkalog.text import offset_range

if TYPE_CHECKING:
    from kafkalog.repair.recovering.recovered_partitions import RecoveryReport


PATH: Final = (
    "DIR",
    "log dir or partition directory",
    "DIR is a log dir (a directory from a broker's log.dirs, or a copy of one), or a partition directory in it.",
)


def output_options(args: argparse.Namespace, *, needs_backup: bool = True) -> dict[str, Any]:
    """The keyword arguments for these options; raises UsageError if they contradict one another."""
    if needs_backup and args.in_place and args.backup is None and not args.dry_run:
        raise UsageError("--in-place needs --backup DIR, a new directory for the replaced files")
    for name in ("backup", "stage_in"):
        if getattr(args, name) is not None and not args.in_place:
            raise UsageError(f"--{name.replace('_', '-')} needs --in-place")
    return chosen(args, "output", "in_place", "backup", "dry_run", "stage_in")


def run_cut(
    cut: Callable[..., RecoveryReport],
    args: argparse.Namespace,
    console: Console,
    *,
    needs_backup: bool = True,
) -> None:
    """Run `truncate` or `trim`, and print what became of each partition."""
    options = chosen(args, cut) | output_options(args, needs_backup=needs_backup)
    with usage_errors():
        report = cut(args.paths[0], **options)
    _show(report, args, console)
    offset = getattr(args, "to_offset", None)
    for row in report.partitions:
        if offset is not None and row.n_bytes_lost and row.log_end_offset < offset:
            whole = f"{offset_range(row.log_end_offset, offset)} go, too: whole batches are removed, as by a broker"
            console.note(f"{row.path}: offsets {whole}")
    ends = [row.log_end_offset for row in report.partitions if row.error is None]
    if offset is not None and ends and not report.n_bytes_lost and max(ends) < offset:
        console.note(
            f"no log reaches offset {offset}: {'it ends' if len(ends) == 1 else 'the longest ends'} at {max(ends)}"
        )


def _show(report: RecoveryReport, args: argparse.Namespace, console: Console) -> None:
    """Print a line for each partition that is cut, or an object for each partition."""
    for row in report.partitions:
        lost = f"{counted(row.count('deleted'), 'segment')} deleted, {row.n_bytes_lost:,} bytes removed"
        line = f"{row.path}  offsets {offset_range(row.log_start_offset, row.log_end_offset)}  {lost}"
        console.show([row], [line] if row.n_bytes_lost or row.files or row.removed else ())
    show_notes(report, "", args, console)


def show_notes(report: RecoveryReport, what: str, args: argparse.Namespace, console: Console) -> None:
    """Print findings, errors, and how much is removed: `what` besides bytes."""
    console.all_findings(report.findings)
    for row in report.partitions:
        if row.error is not None:
            console.note(f"{row.path} is unchanged: {row.error}")
    verb = "would be removed" if args.dry_run else "removed"
    removed = f"{what}{report.n_bytes_lost:,} bytes of .log files {verb}"
    console.note(f"{counted(len(report.partitions), 'partition')}: {removed}")
    if getattr(args, "topics", None) and args.output is not None and not args.dry_run:
        console.note(f"{args.output} also has the topics that -t leaves out, as they were")
    if report.n_backup_files:
        console.note(f"{counted(report.n_backup_files, 'old file')} kept in {args.backup}; delete it after a check")
