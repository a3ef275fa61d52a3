"""`kafkalog transactions`: prints transactions with their state, open partitions, and the commands that end them."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.system_topics.state_options import or_before, print_history
from kafkalog.cli.terminal import shown_table
from kafkalog.cli.text import counted, duration, iso_seconds
from kafkalog.format import TRANSACTION_STATE

if TYPE_CHECKING:
    from kafkalog.system_topics.transactions import OpenTransaction, Transaction

COMMAND: Final = Command(
    description="""\
List transactions, a line per transactional id: its coordinator's state from __transaction_state, and the partitions in
which it is open.

A transaction hangs if its last write is older than --transaction-max-timeout-ms and no coordinator has it. Nothing ends
it any more, and read_committed consumers wait forever. The output has the command that ends it in a running cluster.
Each broker has only some partitions of __transaction_state, so name the log dirs of all brokers.

The command reads headers and markers of partitions. With --end-offset or --end-timestamp, it reads only
__transaction_state.""",
    examples="""\
  kafkalog transactions /var/lib/kafka
  kafkalog transactions --hanging /disk1/kafka /disk2/kafka
  kafkalog transactions /backup/kafka -i 'billing-*' --now 2026-11-21T08:00:00Z
  kafkalog transactions /backup/kafka --end-timestamp 2026-11-21T08:00Z
  kafkalog transactions /backup/kafka --history | jq -c 'select(.key.transactionalId == "billing-1") | .value'
  kafkalog transactions /var/lib/kafka --json | jq -r '.open[].abort_command // empty'""",
    options="""
  @limits
which transactions:
  -i --transactional-ids ID,...    only these ids: names or globs such as 'billing-*'; repeatable
  --open                 only open transactions
  --hanging              only transactions that hang in a partition
  --coordinators-only    do not search partitions for open transactions
  @ages
  @as_of
output:
  --json    one object a line, per transactional id; times in ms
""",
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print the transactions."""
    from kafkalog.log.open import open_log_dir
    from kafkalog.system_topics.list_producers import TRANSACTION_MAX_TIMEOUT_MS
    from kafkalog.system_topics.transactions import transactions

    if args.history:
        return print_history(args, console, TRANSACTION_STATE)
    timeout = args.transaction_max_timeout_ms
    log_dir = open_log_dir(args.paths, limits=args.limits)
    console.findings(log_dir.findings)
    found = transactions(
        log_dir,
        **chosen(args, "transactional_ids", "end_offset", "end_timestamp", "now"),
        read_partitions=not args.coordinators_only,
        transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS if timeout is None else timeout,
    )
    console.findings(found.findings)
    if TRANSACTION_STATE not in log_dir.topics:
        console.note(f"the log dirs have no {TRANSACTION_STATE}, so the transactional ids of producers are unknown")
    elif not found and (before := or_before(args)):
        console.note(f"no transactions{before}")
    shown = [one for one in found if one.is_hanging or not args.hanging]
    shown = [one for one in shown if one.is_open or not args.open]
    n_open = sum(one.is_open for one in found)
    hang = f", {len(found.hanging)} hanging" if found.hanging else ""
    total = f"total: {counted(len(found), 'transactional id')}, {n_open} not ended{hang}"
    console.show(shown, itertools.chain(*map(_text, shown), [total]))
    return None


_HEADER: Final = ["PARTITION", "FROM", "LAST WRITTEN", "IDLE", "HELD", ""]
_RIGHT: Final = [False, True, False, True, True, False]


def _text(one: Transaction) -> Iterator[str]:
    producer = f"producer {one.producer_id} epoch {one.producer_epoch}"
    if one.transactional_id is None:
        yield f"{producer}, unknown to the coordinators here"
    else:
        since = one.start_timestamp if one.is_open and one.start_timestamp is not None else one.last_update_timestamp
        parts = [
            *(str(one.state), f"since {iso_seconds(since)}", producer, f"timeout {duration(one.timeout_ms or 0)}"),
            f"coordinator {TRANSACTION_STATE}-{one.coordinator_partition}",
        ]
        yield f"{one.transactional_id}: {', '.join(parts)}"
    shown = {(part.topic, part.partition) for part in one.open}
    elsewhere = [str(part) for part in one.partitions if part not in shown]
    if one.open:
        yield from shown_table([_HEADER, *map(_row, one.open)], _RIGHT, indent=2)
    if elsewhere:
        yield f"  also in, but not open here: {', '.join(elsewhere)}"
    yield from (f"  ends it: {part.abort_command}" for part in one.open if part.is_hanging)


def _row(part: OpenTransaction) -> list[str]:
    return [
        f"{part.topic}-{part.partition}",
        str(part.start_offset),
        iso_seconds(part.last_timestamp),
        "-" if part.idle_ms is None else duration(part.idle_ms),
        str(part.n_held),
        ", ".join(["hanging" if part.is_hanging else "open", *(["blocking"] if part.is_blocking else [])]),
    ]
