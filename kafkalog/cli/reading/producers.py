"""`kafkalog producers`: lists producers, and transactions that are open or overdue."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command
from kafkalog.cli.scan_options import open_selected, report_error
from kafkalog.cli.terminal import shown_table
from kafkalog.cli.text import counted, duration, iso_milliseconds
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.system_topics.list_producers import ListedProducer, PartitionProducers

COMMAND: Final = Command(
    description="""\
List the idempotent and transactional producers of partitions. Each line has the epoch, the last sequence and offset,
the time of the last batch or marker, and the open transaction.

A transaction is overdue if its last write is older than --transaction-max-timeout-ms. Unless its coordinator ends it,
read_committed consumers wait forever: kafkalog transactions lists those that hang. The transaction that holds the last
stable offset is marked as blocking. For old files, set --now to the time of the copy.

The command reads headers and transaction markers only. It reports and skips damage. If a marker is lost by damage, its
transaction may look open.""",
    examples="""\
  kafkalog producers orders-0
  kafkalog producers --open /var/lib/kafka
  kafkalog producers --open --now 2026-11-21T08:00:00Z /backup/kafka -t orders
  kafkalog producers --json /var/lib/kafka | jq -c '.producers[] | select(.is_overdue)'""",
    options="""
  @limits
which partitions:
  @selection
which producers:
  --open    only producers with an open transaction
  @ages
output:
  --json    one object a line, per partition; times in ms
""",
)
_HEADER: Final = ["PRODUCER", "EPOCH", "SEQUENCE", "OFFSET", "LAST WRITTEN", "TRANSACTION", "AGE", ""]
_RIGHT: Final = [True, True, True, True, False, True, True, False]
_LEAST: Final = ("SEQUENCE", "EPOCH", "OFFSET")


def run(args: argparse.Namespace, console: Console) -> None:
    """List the producers of each partition."""
    from kafkalog.log.open import latest_of
    from kafkalog.parsing import parse_milliseconds
    from kafkalog.system_topics.list_producers import TRANSACTION_MAX_TIMEOUT_MS, list_producers

    timeout = args.transaction_max_timeout_ms
    partitions, n_unread, log_dir = open_selected(args, console)
    given = "now" if args.now is None else args.now
    now = parse_milliseconds("now", given, end_ms=lambda: latest_of(partitions))
    console.start_progress(sum(partition.size_in_bytes for partition in partitions), "headers")
    n_open = n_overdue = 0
    for partition in partitions:
        try:
            found = list_producers(
                partition,
                now_ms=now,
                transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS if timeout is None else timeout,
                on_corruption="skip",
                report=lambda finding: console.findings([finding]),
                progress=console.progress.advance,
            )
        except KafkalogError as error:
            n_unread += report_error(error, log_dir, console)
            continue
        if not partition.is_whole:
            console.note(f"{partition.path}: you named only some segments; transactions may begin or end in others")
        n_unread += any(segment.error is not None for segment in partition.segments)
        n_open += len(found.open)
        n_overdue += len(found.overdue)
        rows = found.open if args.open else found.producers
        console.show([_fields(found, rows)], _text(found, rows, now, only_open=args.open))
    overdue = f", {n_overdue} of them overdue" if n_overdue else ""
    unread = f"; {counted(n_unread, 'partition')} could not be read completely" if n_unread else ""
    console.show((), [f"total: {counted(n_open, 'open transaction')}{overdue}{unread}"])


def _fields(found: PartitionProducers, rows: list[ListedProducer]) -> dict[str, Any]:
    topic, number = found.topic_partition or (None, None)
    return {
        "topic": topic,
        "partition": number,
        "path": found.path,
        "last_stable_offset": found.last_stable_offset,
        "log_end_offset": found.log_end_offset,
        "n_open": len(found.open),
        "n_overdue": len(found.overdue),
        "producers": [row.as_dict() for row in rows],
    }


def _text(found: PartitionProducers, rows: list[ListedProducer], now: int, *, only_open: bool) -> Iterator[str]:
    if not rows:
        return
    name = str(found.topic_partition or found.path)
    n = len(rows)
    what = counted(n, "producer") + (" with an open transaction" if only_open else "")
    held = found.log_end_offset - found.last_stable_offset
    stable = f"; last stable offset {found.last_stable_offset}, {held} before the end" if held else ""
    yield f"{name}: {what}{stable}"
    yield from shown_table([_HEADER, *(_row(row, now) for row in rows)], _RIGHT, _LEAST, indent=2)


def _row(row: ListedProducer, now: int) -> list[str]:
    marks = []
    if row.is_overdue:
        marks.append("overdue")
    elif row.transaction_start_offset is not None:
        marks.append("open")
    if row.is_blocking:
        marks.append("blocking")
    began = row.transaction_start_timestamp
    age = "" if began is None or began < 0 else duration(max(now - began, 0))
    return [
        str(row.producer_id),
        str(row.producer_epoch),
        str(row.last_sequence) if row.last_sequence >= 0 else "-",
        str(row.last_offset) if row.last_offset >= 0 else "-",
        iso_milliseconds(row.last_timestamp),
        "-" if row.transaction_start_offset is None else f"from {row.transaction_start_offset}",
        age or "-",
        ", ".join(marks),
    ]
