"""`kafkalog diff`: compares two replicas of a partition."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command
from kafkalog.text import counted

if TYPE_CHECKING:
    from kafkalog.repair.diff import ReplicaDiff

_PATHS: Final = (
    "DIR",
    "two partition directories",
    "The two DIRs are directories of the same partition from two brokers.",
)
COMMAND: Final = Command(
    description="""\
Compare two replicas of a partition batch by batch. Print the first batch in which they differ, and which replica would
truncate to which offset. Leader epochs decide, as between brokers. Other segment boundaries, log starts and log ends
are not differences.

A damaged replica is an error; run 'kafkalog salvage' on it first. The exit code is 1 if the replicas differ.""",
    examples="""\
  kafkalog diff /mnt/broker-1/orders-0 /mnt/broker-2/orders-0
  kafkalog diff --json /mnt/broker-1/orders-0 /mnt/broker-3/orders-0""",
    options="""
  --json    the result as a JSON object
  @limits
""",
    paths=_PATHS,
    n_paths=2,
)


def _same(found: ReplicaDiff) -> str:
    """The line about replicas that do not differ."""
    if found.equal_to < found.start_offset:
        return f"no common offset: one replica ends at {found.equal_to}, the other starts at {found.start_offset}"
    line = f"equal up to {found.equal_to}: {counted(found.n_batches, 'batch')} from offset {found.start_offset}"
    if found.continues is None:
        return line
    path, end = (found.a, found.end_offset_a) if found.continues == "a" else (found.b, found.end_offset_b)
    return f"{line}; {path} continues to {end}"


def _different(found: ReplicaDiff) -> Iterator[str]:
    for batch in (found.batch_a, found.batch_b):
        assert batch is not None
        offsets = f"offsets {batch.base_offset}..{batch.last_offset + 1}, leader epoch {batch.leader_epoch}"
        yield f"{batch.path}@{batch.position}: {offsets}, checksum {batch.crc:08x}"
    if found.truncate_to is not None:
        path = found.b if found.leader == "a" else found.a
        yield f"{path} would truncate to offset {found.truncate_to}"
    if found.is_kept:
        agree = "the leader epochs agree, so brokers would not detect the difference"
        cleaned = "the log was compacted, which each broker does at times of its own: batches may differ"
        yield cleaned if found.is_compacted else agree


def run(args: argparse.Namespace, console: Console) -> None:
    """Compare, and print the result."""
    from kafkalog.errors import Finding, Reason
    from kafkalog.repair.diff import diff

    found = diff(*args.paths, limits=args.limits)
    console.show([found], [_same(found)] if found.ok else _different(found))
    if not found.ok:
        detail = f"differs from {found.b} from offset {found.offset} on"
        console.count_findings([Finding(Reason.EPOCH_ORDER, detail, path=found.a, base_offset=found.offset)])
