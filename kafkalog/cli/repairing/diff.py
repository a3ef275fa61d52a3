"""`kafkalog diff`: compares two replicas of a partition, or the content of two clusters."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import COMPARING, Command, chosen
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.terminal import shown_table
from kafkalog.text import counted, offset_range

if TYPE_CHECKING:
    from kafkalog.comparing.content import ContentDiff
    from kafkalog.repair.diff import ReplicaDiff

_PATHS: Final = (
    "A B",
    "two partition directories; with --content also log dirs, URLs, or tables from export",
    "A and B are directories of the same partition from two brokers, or what --content compares. They are only read.",
)
COMMAND: Final = Command(
    description="""\
Compare two replicas of a partition batch by batch. Print the first batch in which they differ, and which replica would
truncate to which offset. Leader epochs decide, as between brokers. Other segment boundaries, log starts and log ends
are not differences.

With --content, compare records by key, value, headers and timestamp, whatever their offsets, batches, compression,
transactions and partitions: a topic and its mirror, or a cluster and its restored backup (pip install
'kafkalog[sql]'). Each range of offsets that differs is a line: missing on the other side, repeated (it has the record
less often), or moved (it has it in another order or partition). A topic of A is MirrorMaker's copy of it in B,
ALIAS.NAME, or the one of the same name. -t NAME=OTHER names both.

Without --content, a damaged log is an error; run 'kafkalog salvage' on it first. With it, intact records are compared.
The exit code is 1 if A and B differ, or if one is damaged.""",
    examples="""\
  kafkalog diff /mnt/broker-1/orders-0 /mnt/broker-2/orders-0
  kafkalog diff --json /mnt/broker-1/orders-0 /mnt/broker-3/orders-0
  kafkalog diff --content /mnt/primary /mnt/mirror -t orders
  kafkalog diff --content /mnt/kafka s3://backup/kafka --ignore timestamp""",
    options="""
  --json    the result as a JSON object
  @limits
with --content:
  --content    compare the content of records, whatever their offsets
  @topics
  @comparing
""",
    paths=_PATHS,
    n_paths=2,
    needs=dict.fromkeys(("topics", *COMPARING), "content"),
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
        offsets = f"offsets {offset_range(batch.base_offset, batch.last_offset + 1)}, leader epoch {batch.leader_epoch}"
        yield f"{batch.path}@{batch.position}: {offsets}, checksum {batch.crc:08x}"
    if found.truncate_to is not None:
        path = found.b if found.leader == "a" else found.a
        yield f"{path} would truncate to offset {found.truncate_to}"
    if found.is_kept:
        agree = "the leader epochs agree, so brokers would not detect the difference"
        cleaned = "the log was compacted, which each broker does at times of its own: batches may differ"
        yield cleaned if found.is_compacted else agree
    if found.lost_in is not None:
        path = found.a if found.lost_in == "a" else found.b
        yield f"{path} lacks these records: the command that made it has reported them as lost"


def run(args: argparse.Namespace, console: Console) -> None:
    """Compare, and print the result."""
    if args.content:
        return _compare(args, console)
    from kafkalog.errors import Finding, Reason
    from kafkalog.repair.diff import diff

    found = diff(*args.paths, limits=args.limits)
    console.show([found], [_same(found)] if found.ok else [*_different(found)][: 2 if found.note else None])
    if found.note:
        console.note(found.note)
    if not found.ok:
        detail = f"differs from {found.b} from offset {found.offset} on"
        console.count_findings([Finding(Reason.EPOCH_ORDER, detail, path=found.a, base_offset=found.offset)])
    return None


def _compare(args: argparse.Namespace, console: Console) -> None:
    from kafkalog.comparing.content import compare
    from kafkalog.errors import Finding, Reason

    console.start_progress(0, "records", unit=" records")
    with usage_errors():
        found = compare(*args.paths, **chosen(args, "topics", "limits", *COMPARING), progress=console.progress.advance)
    console.progress.close()
    console.show([found], _content(found))
    console.all_findings(found.findings_a)
    console.all_findings(found.findings_b)
    console.next_steps(found.next)
    if not found.ok:
        console.count_findings([Finding(Reason.CONTENT_DIFFERS, f"differs from {found.b}", path=found.a)])


_NUMBERS: Final = ("n_records_a", "n_records_b", "n_same", "n_moved", "n_missing_in_b", "n_missing_in_a")


def _content(found: ContentDiff) -> Iterator[str]:
    header = ["TOPIC", "IN A", "IN B", "SAME", "MOVED", "MISSING IN B", "MISSING IN A", "REPEATED"]
    rows = [header]
    for one in found.topics:
        name = one.topic_a if one.topic_a == one.topic_b else f"{one.topic_a} = {one.topic_b}"
        numbers = [*(getattr(one, number) for number in _NUMBERS), one.n_repeated_in_a + one.n_repeated_in_b]
        rows.append([name, *(f"{number:,}" for number in numbers)])
    yield from shown_table(rows, [False] + [True] * (len(header) - 1), ["REPEATED", "MOVED", "SAME"])
    for one in found.topics:
        for part in one.ranges:
            offsets = f"offsets {offset_range(part.first_offset, part.last_offset + 1)}"
            place = f"{part.side}: {part.topic}-{part.partition} {offsets}"
            yield f"{place}: {counted(part.n_records, 'record')} {_KINDS[part.kind]}"
        if one.n_more_ranges:
            yield f"{one.topic_a}: {counted(one.n_more_ranges, 'more range')}"
    for side, names in (("a", found.only_in_a), ("b", found.only_in_b)):
        for name in names:
            yield f"{side}: {name} is only here"


_KINDS: Final = {"missing": "only here", "repeated": "here more often", "moved": "elsewhere in another place"}
