"""Shows a lookup step by step: how an offset or a timestamp leads to a segment, an index entry, a batch and a record.

The answers come from `Segment` and `ListOffsets`, which do not depend on index files. A `Trace` also shows the index
entries that a broker would follow, and whether they lead to the answer. If they do not, a broker that opens these files
returns another answer. This module only explains: it does not compute the answer to a timestamp itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import FileChangedError, Finding, ReadError, Reason
from kafkalog.html import HtmlReport, JsonFields, ReportList
from kafkalog.indexes.index_files import TimeIndex
from kafkalog.indexes.view import IndexEntries
from kafkalog.log.live import retired
from kafkalog.log.lookups.list_offsets import Visit
from kafkalog.log.lookups.timestamp_search import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NAMED_TIMESTAMPS,
    latest_timestamp,
    parse_timestamps,
)
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.parsing import doubt_seconds
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import intact_batch_at
from kafkalog.records.selection import Selection
from kafkalog.storage.files import size_of
from kafkalog.text import counted, iso_milliseconds

_LISTINGS: Final = 4
_EMPTY: Final = "the log is empty"


@leading_names
@dataclass(frozen=True, slots=True)
class SegmentStep:
    """The segment that the lookup searched."""

    path: str
    base_offset: int
    largest_timestamp: int | None = None
    """Largest timestamp of the batches that were walked; None in a lookup by offset."""
    is_whole: bool = False
    """Whether all batches were walked."""


@leading_names
@dataclass(frozen=True, slots=True)
class IndexStep:
    """The entry of an index that a broker would follow."""

    path: str
    n_entries: int
    entry: int
    """Number of the entry; -1 if none is low enough."""
    timestamp: int | None
    """Timestamp of the entry; only in a time index."""
    offset: int | None
    position: int | None
    """Offset and position of the entry; a position only in an offset index."""
    is_right: bool
    """Whether the entry leads to the batch with the answer, or to a batch before it."""


@leading_names
@dataclass(frozen=True, slots=True)
class BatchStep:
    """The header of the batch that the scan ended at; names as in `BatchTable`."""

    position: int
    size_in_bytes: int
    base_offset: int
    last_offset: int
    magic: int
    codec: str
    max_timestamp: int
    records_count: int


@dataclass(slots=True, repr=False)
class Trace(HtmlReport, JsonFields):
    """The steps of one lookup."""

    topic_partition: kf.TopicPartition | None
    asked: dict[str, int | str]
    """``{"offset": n}`` or ``{"timestamp": ms or name}``."""
    segment: SegmentStep | None = None
    """None if no segment qualifies, and for the ends of the log."""
    time_index: IndexStep | None = None
    offset_index: IndexStep | None = None
    """None if there is no such file, it cannot be read, or the lookup does not use it."""
    position: int | None = None
    """Position in the chosen segment at which the scan for the batch begins."""
    batches_scanned: int = 0
    """Number of batches from that position to the answer, including the batch of the answer."""
    batch: BatchStep | None = None
    offset: int = -1
    """The answer; -1 for none."""
    timestamp: int = -1
    leader_epoch: int = -1
    """Timestamp and leader epoch of the record, -1 for none."""
    reason: str = ""
    """Why there is no answer, or what is special about it; else empty."""
    findings: list[Finding] = field(default_factory=list)
    """Issues of the indexes that were followed."""

    def __repr__(self) -> str:
        where = "" if self.topic_partition is None else f"{self.topic_partition}, "
        (asked,) = self.asked.items()
        answer = f"offset {self.offset}" if self.offset >= 0 else f"none ({self.reason})"
        return f"Trace({where}{asked[0]} {asked[1]}: {answer}, {counted(self.batches_scanned, 'batch')} scanned)"


class Lookup(ReportList[Trace]):
    """Traces, one for each partition and question."""

    noun = "trace"

    def summary(self) -> str:
        """Return how many have an answer."""
        return f"{sum(trace.offset >= 0 for trace in self):,} found"


def trace_timestamp(partition: Partition, timestamp: Any) -> Trace:
    """Trace how a timestamp leads to an offset.

    The answer and the errors are those of `Partition.offset_for_timestamp`. The headers of all
    segments before the answer are walked.
    """
    if isinstance(timestamp, int):
        doubt_seconds("timestamp", timestamp)
    return _listed_again(partition, lambda one: _trace_timestamp(one, timestamp))


def _listed_again(partition: Partition, trace: Callable[[Partition], Trace]) -> Trace:
    """Trace; with a new listing if a running broker's retention has deleted a segment since the last one."""
    for _ in range(_LISTINGS):
        try:
            return trace(partition)
        except ReadError as error:
            if not partition.is_whole or not any(retired(segment, error) for segment in partition.segments):
                raise
            partition = Partition(partition.path, limits=partition.limits)
    return trace(partition)


def _trace_timestamp(partition: Partition, timestamp: Any) -> Trace:
    asked = int(parse_timestamps(timestamp, lambda: latest_timestamp(partition.segments)))
    names = {number: name for name, number in NAMED_TIMESTAMPS.items()}
    trace = Trace(partition.topic_partition, {"timestamp": names.get(asked, asked)})
    visits: list[Visit] = []
    lists = partition.list_offsets
    answers = (
        lists.answer_named(asked, visits.append)
        if asked < 0
        else lists.search(np.array([asked], np.int64), visits.append)
    )
    trace.timestamp, trace.offset, trace.leader_epoch = answers.found[0].tolist()
    if asked in (EARLIEST, LATEST):
        trace.reason = "the log start offset" if asked == EARLIEST else "the log end offset"
        return trace
    number, position = int(answers.segment[0]), int(answers.position[0])
    if not any(seen.has_batches for seen in visits):
        trace.reason = _EMPTY
    elif number < 0:
        trace.reason = "no segment's largest timestamp is that late"
    else:
        seen = visits[number]
        trace.segment = SegmentStep(
            str(seen.segment.path), seen.segment.base_offset, seen.largest_timestamp, seen.is_whole
        )
        if position < 0:
            trace.reason = _why_none(partition, seen, asked)
        else:
            _trace_batch(trace, partition, seen, asked, position)
    return trace


def trace_offset(partition: Partition, offset: int) -> Trace:
    """Trace how an offset leads to its record, or to the next record if no record has this offset.

    Source: LocalLog.read, LogSegment.translateOffset, Kafka 4.3.
    """
    if not 0 <= offset <= kf.MAX_OFFSET:
        raise ValueError(f"offset {offset}: offsets are from 0 to 2**63 - 1")
    return _listed_again(partition, lambda one: _trace_offset(one, offset))


def _trace_offset(partition: Partition, offset: int) -> Trace:
    trace = Trace(partition.topic_partition, {"offset": offset})
    if offset < partition.log_start_offset:
        start = partition.log_start_offset
        trace.reason = f"below the log start offset {start}: it counts as deleted, and a broker refuses it"
    segments = partition.segments
    # the floor segment may have lost the offset to compaction: the answer is then in a later one
    floor = max((number for number, segment in enumerate(segments) if segment.base_offset <= offset), default=0)
    for segment in segments[floor:]:
        if _find_offset(trace, segment, offset):
            trace.segment = SegmentStep(str(segment.path), segment.base_offset)
            break
    if trace.batch is None:
        end = partition.log_end_offset
        state = "is the next offset to write" if offset == end else "is past the end; a broker refuses it"
        nothing = "no record from there on" if any(segment.size_in_bytes for segment in segments) else _EMPTY
        trace.reason = f"the log end offset is {end}: {offset} {state}" if offset >= end else nothing
    elif trace.offset != offset and not trace.reason:
        trace.reason = f"no record has offset {offset}; this is the next one"
    return trace


def _scan(trace: Trace, segment: Segment, offset: int, row_of: Callable[[Window], int | None]) -> bool:
    """Scan from the position that the offset index gives, up to the batch in the row that `row_of` returns.

    Return whether there is one, and add to the trace how the scan reached it.
    """
    index = segment.offset_hint
    entry = -1 if index is None else int(index.floor([offset])[0])
    leads_to = 0 if index is None or entry < 0 else int(index.position[entry])
    n_before, is_boundary = 0, False
    with segment.open() as source:
        position = segment.position_for(source, offset)
        for window in segment.iter_windows(source, start=position):
            is_boundary |= leads_to in window.batches.position
            row = row_of(window)
            if row is not None:
                break
            n_before += len(window.batches)
            source.release(window.data, window.start)
        else:
            return False
        trace.position, trace.batches_scanned = position, n_before + row + 1
        trace.batch = batch = _batch_step(window.batches, row)
    if index is None:
        return True
    is_right = entry < 0 or (is_boundary and leads_to <= batch.position)
    indexed = int(index.offset[entry]) if entry >= 0 else None
    trace.offset_index = IndexStep(
        str(index.path), len(index), entry, None, indexed, leads_to if entry >= 0 else None, is_right
    )
    if not is_right:
        where = "past the batch that holds it" if is_boundary else "where no batch begins"
        _misleads(trace, segment, index, f"entry {entry} leads for offset {indexed} to position {leads_to}, {where}")
    return True


def _find_offset(trace: Trace, segment: Segment, offset: int) -> bool:
    """Put the first record at or above an offset into the trace; return whether the segment has one."""
    everything = Selection(start_offset=offset, include_control=True)

    def row_of(window: Window) -> int | None:
        batches = window.batches
        # the cleaner leaves empty batches; v0 and v1 do not count their records
        may_hold = (batches.records_count != 0) | (batches.magic < 2)
        mask = everything.batch_mask(batches)
        for row in np.flatnonzero(may_hold if mask is None else mask & may_hold).tolist():
            decoded = decode(
                window,
                ("offset", "timestamp", "leader_epoch"),
                first=row,
                stop=row + 1,
                selection=everything,
                limits=segment.limits,
                path=str(segment.path),
            )
            if decoded.error is not None:
                raise decoded.error
            if decoded.columns is not None:
                found = decoded.columns
                trace.offset, trace.timestamp = int(found.offset[0]), int(found.timestamp[0])
                trace.leader_epoch = int(found.leader_epoch[0])
                return int(row)
        return None

    return _scan(trace, segment, offset, row_of)


def _trace_batch(trace: Trace, partition: Partition, visit: Visit, asked: int, position: int) -> None:
    """Trace the index entries that lead to the batch at a position, and the scan up to it."""
    segment = visit.segment
    with segment.open() as source:
        window, _ = intact_batch_at(source, position, segment.limits.max_batch_bytes)
        if window is None:
            raise FileChangedError(Reason.FILE_CHANGED, "was written to while it was read", path=segment.path)
        last_offset = int(window.batches.last_offset[0])
        source.release(window.data, position)
    follow = segment.base_offset
    index = segment.index_or_none(TimeIndex)
    if index is not None:
        timestamp = visit.largest_timestamp if asked == MAX_TIMESTAMP else asked
        entry = int(np.searchsorted(index.timestamp, timestamp, side="right")) - 1
        time, offset = (int(index.timestamp[entry]), int(index.offset[entry])) if entry >= 0 else (None, None)
        is_right = offset is None or offset <= last_offset
        trace.time_index = IndexStep(str(index.path), len(index), entry, time, offset, None, is_right)
        if not is_right:
            at = f"{iso_milliseconds(time or 0)}, offset {offset}"
            _misleads(trace, segment, index, f"entry {entry} ({at}) leads past offset {trace.offset}")
        elif offset is not None:
            follow = offset
    if asked >= 0:
        follow = max(follow, partition.log_start_offset)

    def row_of(window: Window) -> int | None:
        row = int(np.searchsorted(window.batches.position, position))
        return row if row < len(window.batches) else None

    # start no later than the batch: an index entry past it is reported, but must not hide the answer
    _scan(trace, segment, min(follow, last_offset), row_of)


def _misleads(trace: Trace, segment: Segment, index: IndexEntries, detail: str) -> None:
    # not if a running broker has written to the segment since it was listed, or replaced it, and so its indexes
    if size_of(segment.path) == segment.size_in_bytes:
        trace.findings.append(Finding(Reason.INDEX_MISLEADS, detail, path=index.path))


def _batch_step(batches: BatchTable, row: int) -> BatchStep:
    names = (one.name for one in fields(BatchStep) if one.name != "codec")
    numbers = {name: int(getattr(batches, name)[row]) for name in names}
    return BatchStep(codec=kf.codec_name(int(batches.attributes[row])), **numbers)


def _why_none(partition: Partition, visit: Visit, asked: int) -> str:
    """Return why a broker stops at a segment that has no answer."""
    if asked == MAX_TIMESTAMP:
        return "no record has the largest timestamp that a batch names"
    why = "its later records were compacted away"
    if visit.modified is not None:
        why = "no batch in it has a timestamp, so its modification time is used"
    elif partition.log_start_offset > visit.segment.base_offset:
        why = f"its later records are below the log start offset {partition.log_start_offset}, or are gone"
    return f"{why}, and a broker searches no later segment"
