"""`kafkalog lookup`: shows step by step how an offset or a time leads to a record."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, log_time, offset
from kafkalog.cli.scan_options import open_selected, report_error
from kafkalog.cli.text import counted, iso_milliseconds
from kafkalog.errors import KafkalogError
from kafkalog.text import offset_range

if TYPE_CHECKING:
    from kafkalog.cli.reading.record_text import RecordFormat
    from kafkalog.log.partition import Partition
    from kafkalog.operations.trace_lookup import IndexStep, SegmentStep, Trace


_Question = tuple[str, Any]


def _offset(text: str) -> _Question:
    return "offset", offset(text)


def _time(text: str) -> _Question:
    time = text if text in ("earliest", "latest", "max-timestamp") else log_time(text)
    if isinstance(time, str):
        return "timestamp", time
    is_late_enough = 0 <= time < 2**63 if isinstance(time, int) else time.timestamp() >= 0
    if not is_late_enough:
        raise argparse.ArgumentTypeError(f"expected a time from 1970 on, not {text}")
    return "timestamp", time


COMMAND: Final = Command(
    description="""\
Find the record at an offset, or the first record at or after a time. The output shows each step: the segment, the index
entries, the scan, the batch and the record.

  orders-0: first record at or after 1700000250000 (2023-11-14T22:17:30.000Z)
    segment       00000000000000000000.log (1 of 2), whose batches reach 1700000363523 (2023-11-14T22:19:23.523Z)
    time index    entry 5 of 8: 1700000225239 (2023-11-14T22:17:05.239Z) at offset 225
    offset index  entry 5 of 7: offset 225 at position 23926
    scan          3 batches from position 23926 on
    batch         offsets 241..256 at position 26107, 1,659 bytes, v2, zstd, largest timestamp 1700000255604
    record        orders-0@250  2023-11-14T22:17:30.467Z  key="key-19" value="golf november34946"
    answer        250

For a time, lookup answers as a broker's ListOffsets does: it searches only the first segment whose largest timestamp is
late enough. If that segment has no such record, there is no answer, and the output has the reason. For an offset
without a record, the answer is the next record. Transaction markers count as records. Long keys and values are
shortened, with their sizes; --json prints all of them. A partition without segments counts as empty, with a note.

The answer comes from the batches, not from index files. If an index would lead a broker to another answer, lookup
reports that as damage.""",
    examples="""\
  kafkalog lookup orders-0 --offset 12345
  kafkalog lookup /var/lib/kafka -t orders --timestamp 2026-11-21T08:00:00Z
  kafkalog lookup /var/lib/kafka -t orders -p 3 --timestamp earliest --timestamp max-timestamp --timestamp latest
  kafkalog lookup --json /backup/kafka --timestamp 1763712000000 | jq -c '[.topic, .partition, .offset]'""",
    options="""
  @limits
what to find (at least one; repeatable):
  --offset:questions N*         the record at this offset
  --timestamp:questions TIME*    the first record at or after this time, or end-1h: before the latest timestamp; or
                                 earliest, latest (start and end of the log), or max-timestamp (the first record with
                                 the largest timestamp)
in which partitions:
  @selection
output:
  --json    one object a line, per partition and lookup; key and value in base64
""",
    types={"--offset": _offset, "--timestamp": _time},
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Look up, and print the steps."""
    if not args.questions:
        raise UsageError("add --offset or --timestamp")
    from kafkalog.cli.reading.record_text import CUT_AT, TextFormat
    from kafkalog.column_names import DEFAULT_COLUMNS
    from kafkalog.interchange.text_output import JsonLines
    from kafkalog.operations.trace_lookup import trace_offset, trace_timestamp

    record_format: RecordFormat
    if console.is_json:
        record_format = JsonLines([*DEFAULT_COLUMNS, "is_control"])
    else:
        record_format = TextFormat(None, include_control=True, cut_at=CUT_AT)
    partitions, _, log_dir = open_selected(args, console)
    total = sum(partition.size_in_bytes for partition in partitions)
    console.start_progress(len(args.questions) * total, "headers")
    before = 0
    questions = [(kind, _to_end(value, partitions)) for kind, value in args.questions]
    trace_of: dict[str, Callable[[Partition, Any], Trace]] = {"offset": trace_offset, "timestamp": trace_timestamp}
    for partition in partitions:
        for kind, value in questions:
            try:
                trace = trace_of[kind](partition, value)
                record = _record(partition, trace, record_format)
            except KafkalogError as error:
                report_error(error, log_dir, console)
            else:
                console.findings(trace.findings)
                console.show(_fields(trace, record), _text(partition, trace, record))
            before += partition.size_in_bytes
            console.progress.reach(before)


def _to_end(value: Any, partitions: list[Partition]) -> Any:
    """Return a time relative to the latest timestamp of the partitions in milliseconds, and others as they are."""
    from kafkalog.log.open import latest_of
    from kafkalog.parsing import is_to_end, parse_milliseconds

    return parse_milliseconds("a time", value, end_ms=lambda: latest_of(partitions)) if is_to_end(value) else value


def _record(partition: Partition, trace: Trace, record_format: RecordFormat) -> str | None:
    """Return the found record as text; None if there is none."""
    from kafkalog.scanning.scan import Scan

    if trace.offset < 0 or trace.asked.get("timestamp") in ("earliest", "latest"):
        return None
    scan = Scan(
        partition,
        columns=list(dict.fromkeys(record_format.columns)),
        start_offset=trace.offset,
        end_offset=trace.offset + 1,
        include_control=True,
        # whatever the trace found is shown, deleted or not
        include_deleted=True,
        threads=1,
    )
    batches = scan.head(1).to_batches()
    return record_format.lines(batches[0]).rstrip("\n") if batches else None


def _fields(trace: Trace, record: str | None) -> Iterator[dict[str, Any]]:
    yield {**trace.as_dict(), "record": None if record is None else json.loads(record)}


def _text(partition: Partition, trace: Trace, record: str | None) -> Iterator[str]:
    """Yield the steps as lines for people."""
    name = str(trace.topic_partition or partition.path)
    yield f"{name}: {_question(trace)}"
    for word, text in _steps(partition, trace):
        yield f"  {word:<14}{text}"
    if record is not None:
        yield f"  {'record':<14}{record}"
    answer = "none" if trace.offset < 0 else str(trace.offset)
    yield f"  {'answer':<14}{answer}" + (f": {trace.reason}" if trace.reason else "")


def _question(trace: Trace) -> str:
    if "offset" in trace.asked:
        return f"offset {trace.asked['offset']}"
    time = trace.asked["timestamp"]
    return f"first record at or after {_moment(time)}" if isinstance(time, int) else time


def _steps(partition: Partition, trace: Trace) -> Iterator[tuple[str, str]]:
    if trace.segment is not None:
        yield "segment", _segment(trace.segment, partition)
    if trace.time_index is not None:
        entry = trace.time_index
        found = f"{_moment(entry.timestamp)} at offset {entry.offset}" if entry.timestamp is not None else ""
        yield "time index", _entry(entry, found)
    if trace.offset_index is not None:
        entry = trace.offset_index
        passed_over = "" if trace.position == entry.position or not entry.is_right else " (unconfirmed, not used)"
        yield "offset index", _entry(entry, f"offset {entry.offset} at position {entry.position}{passed_over}")
    batch = trace.batch
    if batch is not None:
        yield "scan", f"{counted(trace.batches_scanned, 'batch')} from position {trace.position} on"
        first = batch.base_offset if batch.base_offset >= 0 else None
        offsets = f"offsets {offset_range(first, batch.last_offset + 1)}"
        where = f"at position {batch.position}, {counted(batch.size_in_bytes, 'byte')}, v{batch.magic}, {batch.codec}"
        yield (
            "batch",
            f"{offsets} {where}, largest timestamp {_moment(batch.max_timestamp)}",
        )


def _segment(step: SegmentStep, partition: Partition) -> str:
    number = [segment.base_offset for segment in partition.segments].index(step.base_offset) + 1
    text = f"{os.path.basename(step.path)} ({number} of {len(partition.segments)})"
    if step.largest_timestamp is None:
        return text
    # the headers after the answer are not read
    reach = "reach" if step.is_whole else "reach at least"
    return f"{text}, whose batches {reach} {_moment(step.largest_timestamp)}"


def _entry(entry: IndexStep, found: str) -> str:
    if not entry.n_entries:
        return "empty: scan from the start of the segment"
    if entry.entry < 0:
        return f"none of {entry.n_entries} entries is low enough: scan from the start of the segment"
    wrong = "" if entry.is_right else " (wrong)"
    return f"entry {entry.entry + 1} of {entry.n_entries}: {found}{wrong}"


def _moment(time: int) -> str:
    return f"{time} ({iso_milliseconds(time)})"
