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


def output_options(args: argparse.Namespace, *, needs_backup: bool = True) -> dict[str, Any]:
    """The keyword arguments for these options; raises UsageError if they contradict one another."""
    if needs_backup and args.in_place and args.backup is None:
        raise UsageError("--in-place needs --backup DIR, a new directory for the replaced files")
    for name in ("backup", "stage_in"):
        if getattr(args, name) is not None and not args.in_place:
            raise UsageError(f"--{name.replace('_', '-')} needs --in-place")
    return chosen(args, "output", "in_place", "backup", "dry_run", "stage_in")
