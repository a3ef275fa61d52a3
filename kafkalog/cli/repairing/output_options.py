"""The options of the commands that change partitions: where the changed files go."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import chosen

PATH: Final = (
    "DIR",
    "log dir or partition directory",
    "DIR is a log dir (a value of a broker's log.dirs, or a copy of one), or a topic-partition directory in it.",
)


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``, ``--in-place``, ``--dry-run``, ``--backup`` and ``--stage-in``."""
    group = parser.add_argument_group("where to (one of these)")
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="make this directory, a copy with the changes; the source is only read. A single partition goes to DIR"
        " itself if DIR is named like one, as copy/orders-0, and otherwise to a subdirectory",
    )
    where.add_argument("--in-place", action="store_true", help="change the files that are there; needs --backup")
    where.add_argument("--dry-run", action="store_true", help="write nothing: say what would be done")
    group.add_argument(
        "--backup", metavar="DIR", help="in place: a new directory for every file that is replaced or removed"
    )
    group.add_argument(
        "--stage-in",
        metavar="DIR",
        help="in place: where new files are written first, on the log dir's file system but outside of it (default:"
        " beside it)",
    )


def output_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of the Python functions for these options.

    Raises
    ------
    UsageError
        They contradict one another, or there are several paths.
    """
    if len(args.paths) != 1:
        raise UsageError("one DIR at a time")
    if args.in_place and args.backup is None:
        raise UsageError("--in-place needs --backup DIR, for the files that are replaced")
    for name in ("backup", "stage_in"):
        if getattr(args, name) is not None and not args.in_place:
            raise UsageError(f"--{name.replace('_', '-')} goes with --in-place")
    return chosen(args, "output", "in_place", "backup", "dry_run", "stage_in")
