"""Shows a lookup step by step: how an offset or a timestamp leads to a segment, an index entry, a batch and a record.

The answers come from `Segment` and `ListOffsets`, which do not depend on index files. A `Trace` also shows the index
entries that a broker would follow, and whether they lead to the answer. If they do not, a broker that opens these files
returns another answer. This module only explains: it does not compute the answer to a timestamp itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, Finding, ReadError, Reason
from kafkalog.html import HtmlReport, JsonFields, ReportList
from kafkalog.indexes.index_files import TimeIndex
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
from kafkalog.log.searching.missing import retired
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import intact_batch_at
from kafkalog.records.selection import Selection
from kafkalog.storage.source import ByteSource, size_of
from kafkalog.text import counted, iso_milliseconds

_LISTINGS: Final = 4
_END: Final = 2**63 - 1
_EMPTY: Final = "the log is empty"


@dataclass(frozen=True, slots=True)
class SegmentStep:
    """A segment that the lookup considered."""

    path: str
    base_offset: int
    is_chosen: bool
    """Whether the lookup searches this segment for the answer."""
    largest_timestamp: int | None = None
    """Largest timestamp of the batches that were walked; None in a lookup by offset."""
    is_whole: bool = False
    """Whether all batches were walked."""
    modified: int | None = None
    """Modification time of the file in ms, if it replaces the largest timestamp because no batch has one."""


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
    segments: list[SegmentStep] = field(default_factory=list)
    """In the order in which they were considered."""
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


def trace_timestamp(
    partition: Partition, timestamp: Any, *, on_segment: Callable[[Segment], None] = lambda segment: None
) -> Trace:
    """Trace how a timestamp leads to an offset.

    Parameters
    ----------
    timestamp : int (ms), str or aware datetime
        See `Partition.offset_for_timestamp`, which returns the same answer.
    on_segment : callable
        Called with each segment that is done. The headers of all segments before the answer are walked.

    Raises
    ------
    ValueError, TypeError
        See `Partition.offset_for_timestamp`.
    KafkalogError
        A segment is damaged before the answer.
    """
    return _listed_again(partition, lambda one: _trace_timestamp(one, timestamp, on_segment))


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


def _trace_timestamp(partition: Partition, timestamp: Any, on_segment: Callable[[Segment], None]) -> Trace:
    asked = int(parse_timestamps(timestamp, lambda: latest_timestamp(partition.segments)))
    names = {number: name for name, number in NAMED_TIMESTAMPS.items()}
    trace = Trace(partition.topic_partition, {"timestamp": names.get(asked, asked)})
    visits: list[Visit] = []

    def visit(visited: Visit) -> None:
        visits.append(visited)
        on_segment(visited.segment)

    lists = partition.list_offsets
    answers = lists.answer_named(asked, visit) if asked < 0 else lists.search(np.array([asked], np.int64), visit)
    trace.timestamp, trace.offset, trace.leader_epoch = answers.found[0].tolist()
    if asked == EARLIEST:
        trace.reason = _why_earliest(partition)
        return trace
    if asked == LATEST:
        _trace_end(partition, trace)
        return trace
    number, position = int(answers.segment[0]), int(answers.position[0])
    if asked == MAX_TIMESTAMP and not any(seen.has_batches for seen in visits):
        number = -1
    trace.segments = [
        SegmentStep(
            path=str(seen.segment.path),
            base_offset=seen.segment.base_offset,
            is_chosen=i == number,
            largest_timestamp=seen.largest_timestamp,
            is_whole=seen.is_whole,
            modified=seen.modified,
        )
        for i, seen in enumerate(visits)
    ]
    trace.findings = [finding for seen in visits for finding in _check_last_entry(seen)]
    if number < 0:
        has_batches = any(seen.has_batches for seen in visits)
        trace.reason = "no segment's largest timestamp is that late" if has_batches else _why_nothing(partition, visits)
    elif position < 0 and _is_empty(partition, visits):
        trace.reason = _EMPTY
    elif position < 0:
        trace.reason = _why_none(partition, visits[number], asked)
    else:
        _trace_batch(trace, partition, visits[number], asked, position)
    return trace


def trace_offset(partition: Partition, offset: int) -> Trace:
    """Trace how an offset leads to its record, or to the next record if no record has this offset.

    Raises
    ------
    ValueError
        The offset is not from 0 to 2**63 - 1.
    KafkalogError
        A segment is damaged before the record.

    Notes
    -----
    Source: LocalLog.read, LogSegment.translateOffset, Kafka 4.3.
    """
    if not 0 <= offset <= _END:
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
        trace.segments.append(SegmentStep(str(segment.path), segment.base_offset, True))
        if _find_offset(trace, segment, offset):
            break
        trace.segments[-1] = SegmentStep(str(segment.path), segment.base_offset, False)
    if trace.batch is None:
        end = partition.log_end_offset
        state = "is the next offset to write" if offset == end else "is past the end; a broker refuses it"
        nothing = _EMPTY if _is_empty(partition, []) else "no record from there on"
        trace.reason = f"the log end offset is {end}: {offset} {state}" if offset >= end else nothing
    elif trace.offset != offset and not trace.reason:
        trace.reason = f"no record has offset {offset}; this is the next one"
    return trace


class _Scan:
    """Scans for a batch from the position that the offset index gives, and checks the index entry on the way."""

    def __init__(self, segment: Segment, source: ByteSource, offset: int) -> None:
        self._segment, self._source = segment, source
        self._index = segment.offset_hint
        self._entry = -1 if self._index is None else int(self._index.floor([offset])[0])
        self._leads_to = 0 if self._index is None or self._entry < 0 else int(self._index.position[self._entry])
        self._is_boundary = False
        self._n_before = 0  # batches of the windows before the last one
        self.position = segment.position_for(source, offset)

    def windows(self) -> Iterator[Window]:
        """Yield the windows from the start position to the end of the segment."""
        n = 0
        for window in self._segment.iter_windows(self._source, start=self.position):
            self._is_boundary |= self._leads_to in window.batches.position
            self._n_before = n
            yield window
            n += len(window.batches)
            self._source.release(window.data, window.start)

    def ended_at(self, trace: Trace, batches: BatchTable, row: int) -> None:
        """Add to the trace how the scan reached the batch in this row of the last window."""
        trace.position = self.position
        trace.batches_scanned = self._n_before + row + 1
        trace.batch = _batch_step(batches, row)
        if self._index is None:
            return
        is_right = self._entry < 0 or (self._is_boundary and self._leads_to <= trace.batch.position)
        offset = int(self._index.offset[self._entry]) if self._entry >= 0 else None
        trace.offset_index = IndexStep(
            path=str(self._index.path),
            n_entries=len(self._index),
            entry=self._entry,
            timestamp=None,
            offset=offset,
            position=self._leads_to if self._entry >= 0 else None,
            is_right=is_right,
        )
        if not is_right and not _has_changed(self._segment):
            where = "past the batch that holds it" if self._is_boundary else "where no batch begins"
            detail = f"entry {self._entry} leads for offset {offset} to position {self._leads_to}, {where}"
            trace.findings.append(_misleads(trace.offset_index, detail))


def _find_offset(trace: Trace, segment: Segment, offset: int) -> bool:
    """Put the first record at or above an offset into the trace; return whether the segment has one."""
    everything = Selection(start_offset=offset, include_control=True)
    with segment.open() as source:
        scan = _Scan(segment, source, offset)
        for window in scan.windows():
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
                    scan.ended_at(trace, window.batches, row)
                    return True
    return False


def _trace_end(partition: Partition, trace: Trace) -> None:
    """Trace the last batch, after which the log end offset comes."""
    if not partition.segments:
        trace.reason = "the partition has no segments"
        return
    segment = partition.segments[-1]
    trace.segments = [SegmentStep(str(segment.path), segment.base_offset, True)]
    trace.reason = "the last segment has no batches"
    with segment.open() as source:
        scan = _Scan(segment, source, _END)
        last = None
        for window in scan.windows():
            last = window.batches
        if last is not None:
            trace.reason = "the offset after the last batch"
            scan.ended_at(trace, last, len(last) - 1)


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
            trace.time_index = step = _time_index_step(index, visit, asked, last_offset)
            if not step.is_right and not _has_changed(segment):
                at = f"{iso_milliseconds(step.timestamp or 0)}, offset {step.offset}"
                detail = f"entry {step.entry} ({at}) leads past offset {trace.offset}"
                trace.findings.append(_misleads(step, detail))
            elif step.offset is not None:
                follow = step.offset
        if asked >= 0:
            follow = max(follow, partition.log_start_offset)
        # start no later than the batch: an index entry past it is reported, but must not hide the answer
        scan = _Scan(segment, source, min(follow, last_offset))
        for window in scan.windows():
            row = int(np.searchsorted(window.batches.position, position))
            if row < len(window.batches):
                scan.ended_at(trace, window.batches, row)
                return


def _time_index_step(index: TimeIndex, visit: Visit, asked: int, last_offset: int) -> IndexStep:
    """Return the entry at which a broker starts in the chosen segment; right if not after the batch of the answer."""
    timestamp = visit.largest_timestamp if asked == MAX_TIMESTAMP else asked
    entry = int(np.searchsorted(index.timestamp, timestamp, side="right")) - 1
    offset = int(index.offset[entry]) if entry >= 0 else None
    return IndexStep(
        path=str(index.path),
        n_entries=len(index),
        entry=entry,
        timestamp=int(index.timestamp[entry]) if entry >= 0 else None,
        offset=offset,
        position=None,
        is_right=offset is None or offset <= last_offset,
    )


def _check_last_entry(visit: Visit) -> list[Finding]:
    """Check that the last entry of a time index has the segment's largest timestamp.

    A broker decides by this entry whether to search the segment at all.
    """
    index = visit.segment.index_or_none(TimeIndex)
    if index is None:
        return []
    said = int(index.timestamp[-1]) if len(index) else -1
    # the last entry is added when a segment is closed; until then the index may lack timestamps, but never has later
    # ones than the batches (an entry for timestamp 0 at the base offset is all zeros, and looks like padding)
    at_least = max(said, 0) if index.padding_bytes else said
    behind = at_least < visit.largest_timestamp and not visit.segment.is_last
    ahead = said > visit.largest_timestamp and visit.is_whole
    if not (behind or ahead) or _has_changed(visit.segment):
        return []
    seen = ("" if visit.is_whole else "at least ") + iso_milliseconds(visit.largest_timestamp)
    detail = f"its last timestamp is {iso_milliseconds(said)}, but the largest in the batches is {seen}"
    return [Finding(Reason.INDEX_MISLEADS, detail, path=index.path)]


def _has_changed(segment: Segment) -> bool:
    """Whether a running broker has written to a segment since it was listed, or replaced it; so it has its indexes."""
    return size_of(segment.path) != segment.size_in_bytes


def _misleads(step: IndexStep, detail: str) -> Finding:
    return Finding(Reason.INDEX_MISLEADS, detail, path=step.path)


def _batch_step(batches: BatchTable, row: int) -> BatchStep:
    return BatchStep(
        position=int(batches.position[row]),
        size_in_bytes=int(batches.size_in_bytes[row]),
        base_offset=int(batches.base_offset[row]),
        last_offset=int(batches.last_offset[row]),
        magic=int(batches.magic[row]),
        codec=kf.codec_name(int(batches.attributes[row])),
        max_timestamp=int(batches.max_timestamp[row]),
        records_count=int(batches.records_count[row]),
    )


def _why_earliest(partition: Partition) -> str:
    first = partition.segments[0].base_offset if partition.segments else None
    if first == partition.log_start_offset:
        return "the base offset of the first segment"
    return "the log start offset" + ("" if first is None else f"; the first segment begins at {first}")


def _is_empty(partition: Partition, visits: Sequence[Visit]) -> bool:
    """Whether no segment has a batch; a segment that was not visited counts as empty if it has no bytes."""
    seen = {visit.segment.base_offset for visit in visits if not visit.has_batches}
    return all(not segment.size_in_bytes or segment.base_offset in seen for segment in partition.segments)


def _why_nothing(partition: Partition, visits: Sequence[Visit]) -> str:
    if not partition.segments:
        return "there are no segments"
    if _is_empty(partition, visits):
        return _EMPTY
    return f"the log start offset {partition.log_start_offset} lies past the last batch: nothing is left"


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
