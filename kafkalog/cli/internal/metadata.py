"""`kafkalog metadata`: prints what the metadata log of a cluster says."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from kafkalog.cli.console import Console, prepare_stdout
from kafkalog.cli.exits import UsageError
from kafkalog.cli.internal.state_options import add_as_of, print_history
from kafkalog.cli.options import HelpText, add_command, add_limits, flatten, make_limits, names
from kafkalog.cli.text import escape_line, iso_seconds, table
from kafkalog.format import METADATA_TOPIC

_HELP: Final = HelpText(
    description="""\
List what the metadata log of a KRaft cluster (__cluster_metadata-0 with its .checkpoint snapshots) says: brokers,
features and topics, or what --show names.

Values of settings that may be secrets are hidden. SCRAM credentials are listed by user and mechanism, without keys.

--end-offset and --end-timestamp show the state right before, as far back as there are snapshots.""",
    examples="""\
  kafkalog metadata /var/lib/kafka
  kafkalog metadata /var/lib/kafka --show partitions,configs -t 'orders-*'
  kafkalog metadata /backup/kafka --show acls,quotas,scram --end-timestamp 2026-11-21T08:00Z
  kafkalog metadata /backup/kafka --json | jq -r 'select(.kind == "topics") | [.topic, .topic_id] | @tsv'
  kafkalog metadata /backup/kafka --history | jq -c 'select(.type == "RemoveTopic")'""",
)
_SHOWN: Final = ("brokers", "features", "topics")
_ALL: Final = ("topics", "partitions", "configs", "brokers", "features", "acls", "quotas", "scram", "tokens")


def add_parser(commands: Any) -> None:
    """Register the command's arguments."""
    parser = add_command(commands, "metadata", _HELP)
    what = parser.add_argument_group("what is listed")
    what.add_argument(
        "--show",
        metavar="WHAT,...",
        action="append",
        type=_tables,
        help=f"of {', '.join(_ALL)}; default: {', '.join(_SHOWN)}, with --json everything",
    )
    what.add_argument(
        "-t",
        "--topics",
        metavar="T,...",
        action="append",
        type=names,
        help="only these topics: names or globs such as 'orders-*'; may be repeated",
    )
    add_as_of(what)
    how = parser.add_argument_group("how it is shown")
    how.add_argument("--json", action="store_true", help='an object a line; "kind" says what of; times in ms')
    add_limits(parser)
    parser.set_defaults(run=run)


def _tables(text: str) -> list[str]:
    found = names(text)
    for name in found:
        if name not in _ALL:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_ALL)}")
    return found


def run(args: argparse.Namespace, console: Console) -> None:
    """Print the tables."""
    from kafkalog.internal.metadata import metadata

    if args.history:
        return print_history(args, console, METADATA_TOPIC)
    prepare_stdout(is_json=args.json)
    try:
        found = metadata(
            args.paths,
            topics=flatten(args.topics),
            end_offset=args.end_offset,
            end_timestamp=args.end_timestamp,
            limits=make_limits(args.limits),
        )
    except ValueError as error:
        if hasattr(error, "reason"):  # about a file
            raise
        raise UsageError(str(error)) from error
    console.findings(found.findings)
    shown = flatten(args.show) or (_ALL if args.json else _SHOWN)
    if args.json:
        lines = (json.dumps({"kind": name, **row}) for name in shown for row in getattr(found, name))
        console.write("".join(f"{line}\n" for line in lines))
        return None
    console.write(f"{found.path}: up to offset {found.end_offset}, {iso_seconds(found.timestamp)}\n")
    for name in shown:
        rows = getattr(found, name)
        console.write(f"\n{name}: {len(rows) or 'none'}\n")
        if rows:
            header = [column.upper().replace("_", " ") for column in rows[0]]
            cells = [[_cell(value) for value in row.values()] for row in rows]
            is_number = [isinstance(value, int) and not isinstance(value, bool) for value in rows[0].values()]
            console.write("".join(f"  {escape_line(line)}\n" for line in table([header, *cells], is_number)))
    return None


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={'default' if one is None else one}" for name, one in value.items()) or "-"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return str(value)
