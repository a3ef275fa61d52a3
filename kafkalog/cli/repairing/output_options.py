"""The options of the commands that change partitions: where the changed files go."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import chosen

PATH: Final = (
    "DIR",
    "log dir or partition directory",
    "DIR is a log dir (a directory from a broker's log.dirs, or a copy of one), or a partition directory in it.",
)


def add_output_options(parser: argparse.ArgumentParser, *, backup: str = "needs --backup") -> None:
    """Add ``--output``, ``--in-place``, ``--dry-run``, ``--backup`` and ``--stage-in``.

    Parameters
    ----------
    backup : str
        For the help: whether ``--in-place`` needs a backup.
    """
    group = parser.add_argument_group("output (one is required)")
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="write a changed copy to this new directory; the source stays unchanged. A single partition goes to DIR"
        " itself if its name is a partition name such as copy/orders-0, otherwise to a subdirectory",
    )
    where.add_argument("--in-place", action="store_true", help=f"change the log dir itself; {backup}")
    where.add_argument("--dry-run", action="store_true", help="show the changes and write nothing")
    group.add_argument(
        "--backup", metavar="DIR", help="with --in-place: a new directory for copies of all replaced and removed files"
    )
    group.add_argument(
        "--stage-in",
        metavar="DIR",
        help="with --in-place: a directory for temporary files, on the log dir's file system but outside of it"
        " (default: next to it)",
    )


def output_options(args: argparse.Namespace, *, needs_backup: bool = True) -> dict[str, Any]:
    """The keyword arguments of the Python functions for these options.

    Raises
    ------
    UsageError
        They contradict one another.
    """
    if needs_backup and args.in_place and args.backup is None:
        raise UsageError("--in-place needs --backup DIR, a new directory for the replaced files")
    for name in ("backup", "stage_in"):
        if getattr(args, name) is not None and not args.in_place:
            raise UsageError(f"--{name.replace('_', '-')} needs --in-place")
    return chosen(args, "output", "in_place", "backup", "dry_run", "stage_in")
