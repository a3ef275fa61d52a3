"""Options of the commands about topics that hold state: the point in time, and the history."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console, prepare_stdout
from kafkalog.cli.options import chosen
from kafkalog.format import METADATA_TOPIC, SCHEMAS_TOPIC

if TYPE_CHECKING:
    from kafkalog.system_topics.history import StateRecord

AS_OF: Final = ("end_offset", "end_timestamp", "limits")
"""The options that all functions of `kafkalog.system_topics` have."""


def or_before(args: argparse.Namespace) -> str:
    """Why a past state may be empty; "" for the latest one."""
    given = [f"--{name.replace('_', '-')}" for name in AS_OF[:2] if getattr(args, name) is not None]
    return f", or nothing was written before {' and '.join(given)}" if given else ""


def print_history(
    args: argparse.Namespace,
    console: Console,
    *topics: str,
    registry_topic: str = SCHEMAS_TOPIC,
    is_wanted: Callable[[StateRecord], bool] = lambda record: True,
) -> None:
    """Print every record of topics, or those that are wanted, as JSON lines."""
    from kafkalog.system_topics.history import history

    prepare_stdout(is_json=True)
    records = history(args.paths, topics, registry_topic=registry_topic, **chosen(args, *AS_OF))
    n_records = 0
    for record in filter(is_wanted, records):
        console.json(record.as_dict())
        n_records += 1
    console.findings(records.findings)
    if not n_records:
        if METADATA_TOPIC in topics:
            from kafkalog.system_topics.metadata import metadata

            found = metadata(args.paths, limits=args.limits)  # raises if there is no metadata log
            where = f"the metadata log in {found.path} has only a snapshot, up to offset {found.end_offset}"
        else:
            where = f"the log dirs have no {' and no '.join(topics)}, or no such record"
        console.note(f"no records: {where}{or_before(args)}")
