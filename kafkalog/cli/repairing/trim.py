"""`kafkalog trim`: removes the start of a log."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.console import Console, prepare_stdout
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import HelpText, add_command, add_limits, make_limits, timestamp
from kafkalog.cli.repairing.cutting import offset, show
from kafkalog.cli.repairing.destination import PATH, add_destination, destination

_HELP: Final = HelpText(
    description="""\
Remove the start of a partition's log, or of each partition of a log dir: everything before an offset or a time, as
DeleteRecords and retention do on a running broker. The broker has to be stopped.

The log start offset is written to the log dir's checkpoint, and segments that lie wholly before it are deleted. The
last segment stays. A partition that is copied alone has no checkpoint: it begins with its first batch that is kept.""",
    examples="""\
  kafkalog trim /var/lib/kafka/orders-0 --before-offset 120000 --dry-run
  kafkalog trim /var/lib/kafka --before-timestamp 2026-11-01T00:00Z --in-place --backup /other/disk/before
  kafkalog trim /mnt/disk --before-timestamp 2026-11-01T00:00Z --to /new/disk/kafka""",
)


def add_parser(commands: Any) -> None:
    """Register the command's arguments."""
    parser = add_command(commands, "trim", _HELP, paths=PATH)
    place = parser.add_argument_group("up to where (one of these)").add_mutually_exclusive_group(required=True)
    place.add_argument("--before-offset", metavar="N", type=offset, help="remove records before this offset")
    place.add_argument(
        "--before-timestamp", metavar="TIME", type=timestamp, help="remove records before the first one at this time"
    )
    add_destination(parser)
    parser.add_argument("--json", action="store_true", help="an object a line for each partition")
    add_limits(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, console: Console) -> None:
    """Trim, and print what became of each partition."""
    options = destination(args)
    from kafkalog.repair.cutting.trim import trim

    prepare_stdout(is_json=args.json)
    try:
        report = trim(
            args.paths[0],
            before_offset=args.before_offset,
            before_timestamp=args.before_timestamp,
            limits=make_limits(args.limits),
            **options,
        )
    except ValueError as error:
        if hasattr(error, "reason"):
            raise
        raise UsageError(str(error)) from None
    show(report, args, console)
