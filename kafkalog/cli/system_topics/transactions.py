"""`kafkalog transactions`: prints transactions as coordinators know them, where they are open, and what ends them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import HelpText, add_command, add_limits, add_names, add_transaction_ages, chosen
from kafkalog.cli.system_topics.state_options import add_as_of, print_history
from kafkalog.cli.text import counted, duration, iso_seconds, table
from kafkalog.format import TRANSACTION_STATE

if TYPE_CHECKING:
    from kafkalog.system_topics.transactions import OpenTransaction, Transaction

_HELP: Final = HelpText(
    description="""\
List transactions, a line per transactional id: what its coordinator knows of it (from __transaction_state), and the
partitions in which it is open.

A transaction hangs if nothing was written in it for longer than a broker allows any to be open
(--transaction-max-timeout-ms), and no coordinator has it: nobody will end it, and read_committed consumers wait for
ever. Below it is the command that ends it in a running cluster. A coordinator is only known if its partition of
__transaction_state is in the log dirs that are given: give those of all brokers.

Of partitions, headers and markers are read. With --end-offset or --end-timestamp only coordinators are asked.""",
    examples="""\
  kafkalog transactions /var/lib/kafka
  kafkalog transactions --hanging /disk1/kafka /disk2/kafka
  kafkalog transactions /backup/kafka -i 'billing-*' --now 2026-11-21T08:00:00Z
  kafkalog transactions /backup/kafka --end-timestamp 2026-11-21T08:00Z
  kafkalog transactions /backup/kafka --history | jq -c 'select(.key.transactionalId == "billing-1") | .value'
  kafkalog transactions /var/lib/kafka --json | jq -r '.open[].abort_command // empty'""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "transactions", _HELP, run)
    what = parser.add_argument_group("which transactions")
    add_names(what, "-i", "--transactional-ids", what="ids", such="billing-*", metavar="ID")
    what.add_argument("--open", action="store_true", help="only those that are not ended")
    what.add_argument("--hanging", action="store_true", help="only those that hang in a partition")
    what.add_argument(
        "--coordinators-only", action="store_true", help="do not look into partitions for open transactions"
    )
    add_transaction_ages(what)
    add_as_of(what)
    how = parser.add_argument_group("how it is shown")
    how.add_argument("--json", action="store_true", help="a line of JSON for each transactional id; times in ms")
    add_limits(parser)


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
        console.note(f"there is no {TRANSACTION_STATE} here: which transactional id a producer has is not known")
    shown = [one for one in found if one.is_hanging or not args.hanging]
    shown = [one for one in shown if one.is_open or not args.open]
    if args.json:
        for one in shown:
            console.json(one.as_dict())
        return None
    console.lines(line for one in shown for line in _text(one))
    n_open = sum(one.is_open for one in found)
    hang = f", {counted(len(found.hanging), 'partition')} with one that hangs" if found.hanging else ""
    console.write(f"total: {counted(len(found), 'transactional id')}, {n_open} not ended{hang}\n")
    return None


_HEADER: Final = ["PARTITION", "FROM", "LAST WRITTEN", "IDLE", "HELD", ""]
_RIGHT: Final = [False, True, False, True, True, False]


def _text(one: Transaction) -> Iterator[str]:
    producer = f"producer {one.producer_id} epoch {one.producer_epoch}"
    if one.transactional_id is None:
        yield f"no coordinator here has {producer}"
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
        yield from (f"  {line}" for line in table([_HEADER, *map(_row, one.open)], _RIGHT))
    if elsewhere:
        yield f"  to be ended in, and not open here: {', '.join(elsewhere)}"
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
