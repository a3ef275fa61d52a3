"""Options of the commands about topics that hold state: the point in time, and the history."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kafkalog.cli.console import Console, prepare_stdout
from kafkalog.cli.options import chosen, log_time, offset
from kafkalog.format import SCHEMAS_TOPIC

AS_OF: Final = ("end_offset", "end_timestamp", "limits")
"""The options that all functions of `kafkalog.system_topics` have."""


def add_as_of(group: Any) -> None:
    """Add ``--end-offset``, ``--end-timestamp`` and ``--history``."""
    group.add_argument(
        "--end-offset", metavar="N", type=offset, help="the state right before this offset of the topic's partition"
    )
    group.add_argument(
        "--end-timestamp",
        metavar="T",
        type=log_time,
        help="the state right before this time: ms, ISO 8601, -1h, or end-1h: before the latest timestamp of the topic",
    )
    group.add_argument(
        "--history",
        action="store_true",
        help="print every record in the files, decoded, as JSON lines; of the other options only --end-offset and"
        " --end-timestamp apply",
    )


def print_history(
    args: argparse.Namespace, console: Console, *topics: str, registry_topic: str = SCHEMAS_TOPIC
) -> None:
    """Print every record of topics as JSON lines."""
    from kafkalog.system_topics.history import history

    prepare_stdout(is_json=True)
    records = history(args.paths, topics, registry_topic=registry_topic, **chosen(args, *AS_OF))
    n_records = 0
    for record in records:
        console.json(record.as_dict())
        n_records += 1
    console.findings(records.findings)
    if not n_records:
        console.note(f"no records: the log dirs have no {' and no '.join(topics)}, or no record before that time")
