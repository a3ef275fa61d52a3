"""`kafkalog epochs`: prints leader epochs, their end offsets, and the offset to which a follower truncates."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, epoch
from kafkalog.cli.scan_options import open_selected, report_error
from kafkalog.cli.terminal import shown_table
from kafkalog.cli.text import counted
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.log.partition import Partition


def _epoch(text: str) -> int:
    return -1 if text == "-1" else epoch(text)


def _follower(text: str) -> tuple[int, int]:
    epoch, comma, end = text.partition(",")
    if not comma or not end.isdecimal() or int(end) >= 2**63:
        raise argparse.ArgumentTypeError(f"expected an epoch and a log end offset such as 7,120344, not {text!r}")
    return _epoch(epoch), int(end)


COMMAND: Final = Command(
    description="""\
List the leader epochs of partitions, with the offsets at which each starts and ends. They come from
leader-epoch-checkpoint, or from the batches if there is no such file.

--end-offset-for E prints the answer of this log's leader to OffsetForLeaderEpoch: the largest epoch at or below E, and
its end offset. It prints -1 for both if E is larger than all epochs.

--follower EPOCH,END shows how a follower with that last epoch and log end offset truncates before it fetches from this
log. If the leader answers with an older epoch, the follower truncates and asks again for its new last epoch.""",
    examples="""\
  kafkalog epochs orders-0
  kafkalog epochs /var/lib/kafka -t orders --end-offset-for 7
  kafkalog epochs orders-0 --follower 7,120344
  kafkalog epochs --json /var/lib/kafka | jq -c '[.topic, .partition, .epochs[-1].epoch]'""",
    options="""
  @limits
which partitions:
  @selection
questions (repeatable):
  --end-offset-for E*       the end offset of this epoch
  --follower EPOCH,END*     the offset to which a follower with this last epoch and log end offset truncates
output:
  --json    one object a line, per partition
""",
    types={"end_offset_for": _epoch, "follower": _follower},
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print the answers for each partition."""
    from kafkalog.operations.inspecting import partition_epochs

    selected = open_selected(args, console)
    for partition in selected.partitions:
        try:
            fields = partition_epochs(partition, args.end_offset_for or (), args.follower or ()).as_dict()
        except KafkalogError as error:
            report_error(error, selected.log_dir, console)
            continue
        console.show([fields], _text(partition, fields))


def _text(partition: Partition, fields: dict[str, Any]) -> Iterator[str]:
    name = str(partition.topic_partition or partition.path)
    source = "" if fields["source"] == "checkpoint" else " (from the batches: no leader-epoch-checkpoint)"
    n = len(fields["epochs"])
    yield f"{name}: {counted(n, 'leader epoch')}{source}"
    if n:
        rows = [[str(row[key]) for key in ("epoch", "start_offset", "end_offset")] for row in fields["epochs"]]
        yield from shown_table([["EPOCH", "START", "END"], *rows], [True, True, True], indent=2)
    for row in fields["end_offsets"]:
        yield f"  end of epoch {row['epoch']}: {_end(row)}"
    for row in fields["followers"]:
        yield f"  follower at epoch {row['epoch']}, end {row['follower_end_offset']}: {_truncation(row)}"


def _end(row: dict[str, Any]) -> str:
    if row["end_offset"] < 0:
        return "unknown here (-1)"
    return f"offset {row['end_offset']}" + ("" if row["leader_epoch"] == row["epoch"] else f" of {row['leader_epoch']}")


def _truncation(row: dict[str, Any]) -> str:
    if row["truncate_to"] < 0:
        return "the epoch is unknown here: it truncates to its high watermark"
    if not row["removes"] and row["is_final"]:
        return f"nothing to truncate (epoch {row['leader_epoch']} ends at {row['end_offset']})"
    if row["is_final"]:
        return f"truncates to {row['truncate_to']} (where epoch {row['leader_epoch']} ends)"
    return (
        f"truncates to {row['truncate_to']}, or to the end of its epoch {row['leader_epoch']} if lower, and asks again"
    )
