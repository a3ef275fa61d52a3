"""Divides a scan into tasks of about the same number of bytes, for processes that share only the files.

Segments are cut at batches that their offset indexes point to. An entry counts only if an intact batch is there and
batches follow each other from it; the reader of the previous part checks that it ends there. A segment without such an
entry is not cut. Small segments are packed together, across partitions.

No record is decoded. Planning reads a few pages of each file that is cut. `read_committed` walks the batch headers of
its partitions, because the markers in the log are the only reliable source of transaction outcomes.

`plan` makes `ReadTask`s, small picklable values. `Scan.plan` makes scans of them; `tasks.read_task` reads one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Unpack

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits, OnCorruption, ReadError
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.open import partitions_of, removed_from
from kafkalog.log.partition import Partition
from kafkalog.log.ranges import PartitionRange, join_outside, log_position_of, missing_behind, range_of
from kafkalog.log.searching.odd_offsets import offsets_from
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentRange
from kafkalog.records.header_walk import intact_batch_at, is_chain, walk
from kafkalog.scanning.conditions.filters import Filter
from kafkalog.scanning.options import PlanOptions, check_options, unknown_option
from kafkalog.scanning.query import Opened, larger, offset_of, smaller
from kafkalog.state.outcomes import TransactionOutcomes
from kafkalog.state.read_committed import IsolationLevel
from kafkalog.storage.location import plain
from kafkalog.storage.source import ByteSource

TASK_BYTES: Final = 2**26
"""Bytes of `.log` files per task: many compared with the cost of starting a task, few enough to balance the load."""

_SEGMENT_COST: Final = 2**17  # cost of opening a segment, as the number of bytes read in the same time
_CHAIN_BYTES: Final = 2**18  # a short check is enough: the reader of the previous part checks the cut again
_THREADS: Final = 8
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The parts of one or several partitions that one process reads."""

    parts: tuple[PartitionRange, ...]
    """Ordered by topic, partition and offset."""
    isolation_level: IsolationLevel = "read_uncommitted"
    on_corruption: OnCorruption = "raise"
    include_deleted: bool = False
    """See `kafkalog.scan`. The parts are cut for these options."""

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def n_segments(self) -> int:
        """Number of segments, or parts of segments."""
        return sum(len(part.segments) for part in self.parts)


@dataclass(slots=True)
class Plan:
    """Tasks that together read each selected record once."""

    tasks: list[ReadTask]
    findings: list[Finding] = field(default_factory=list)
    """Findings of the planning, such as a partition found twice, or one that cannot be opened."""

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files."""
        return sum(task.n_bytes for task in self.tasks)


def plan(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    *,
    topic_partitions: Collection[kf.TopicPartition] | None = None,
    check_crcs: bool = True,
    task_bytes: int = TASK_BYTES,
    min_tasks: int | None = None,
    max_records: int | None = None,
    whole_partitions: bool = False,
    outcomes: Callable[[Partition, int | None], TransactionOutcomes] | None = None,
    condition: Filter | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Divide the records at a path into tasks. For options that are not named here see `kafkalog.scan`.

    The default end is the current end of the files: records appended later are not read. With ``on_corruption="stop"``
    a partition is not divided, because records after damage must not be read; nor with `whole_partitions`. `min_tasks`
    makes tasks smaller, to get about this many. `max_records` is the maximum number of offsets that a task spans in one
    partition. ``outcomes(partition, end_offset)`` returns how the partition's transactions ended (default:
    `Partition.learn_outcomes`). Partitions and offsets in which no record can meet `condition` are left out. A
    partition or segment that cannot be opened raises, with ``on_corruption="raise"``.

    >>> from kafkalog.scanning.planning import plan
    >>> from kafkalog.scanning.tasks import read_task
    >>> tasks = plan("tests/golden/log_dir", topics=["p-multi"], task_bytes=2**14).tasks
    >>> len(tasks), sum(batch.num_rows for task in tasks for batch in read_task(task))
    (..., 303)
    """
    for name in sorted(options.keys() - PlanOptions.__annotations__.keys()):
        raise TypeError(unknown_option(name, options))
    chosen: dict[str, Any] = dict.fromkeys(("topics", "partitions", "start_offset", "end_offset"))
    chosen |= check_options(**options)
    isolation_level = chosen.get("isolation_level", "read_uncommitted")
    on_corruption, include_deleted = chosen.get("on_corruption", "raise"), chosen.get("include_deleted", False)
    target = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    found: list[Finding] = list(target.findings) if isinstance(target, LogDir) else []
    wanted: list[Partition] = []
    # partitions that are named may be internal
    internal = chosen.get("internal", False) or topic_partitions is not None
    there = partitions_of(target, chosen["topics"], chosen["partitions"], among=topic_partitions, internal=internal)
    for partition in there:
        if isinstance(partition, KafkalogError):
            if on_corruption == "raise" and removed_from(target, partition) is None:
                raise partition
            found.append(partition.to_finding())
        elif _bound(condition, partition) is not None:
            if not include_deleted:
                _ = partition.log_start_offset  # the partition reads its checkpoint here, and adds what it finds
            found += partition.findings
            if _is_there(target, partition, on_corruption, found):
                wanted.append(partition)
    total = sum(partition.size_in_bytes for partition in wanted)
    if min_tasks is not None:
        task_bytes = max(min(task_bytes, total // max(min_tasks, 1)), 1)
    learning: dict[str, Any] = {"on_corruption": on_corruption, "check_crcs": check_crcs}
    planner = _Planner(
        task_bytes,
        0 if min_tasks is not None else min(_SEGMENT_COST, task_bytes // 8),
        max_records,
        isolation_level,
        on_corruption,
        include_deleted,
        whole_partitions,
        outcomes or (lambda one, end: one.reader.learn_outcomes(end, **learning)),
        found,
    )

    def cut(partition: Partition) -> list[_UnpackedPart]:
        key, bound = partition.key, _bound(condition, partition)
        bounds = bound.bounds() if isinstance(bound, Filter) else {}
        start = larger(offset_of(chosen["start_offset"], key), bounds.get("start_offset"))
        end = smaller(offset_of(chosen["end_offset"], key), bounds.get("end_offset"))
        if end is not None and (start or 0) >= end:
            return []
        try:
            return planner.cut(partition, start, end)
        except ReadError as error:
            removed = removed_from(target, error)
            if removed is None:
                raise
            found.append(removed)
            return []

    with ThreadPoolExecutor(_THREADS, "kafkalog-plan") as pool:
        parts = [part for some in pool.map(cut, wanted) for part in some]
    packed = planner.pack(parts)
    tasks = [ReadTask(tuple(some), isolation_level, on_corruption, include_deleted) for some in packed]
    return Plan(tasks, found)


def _is_there(target: Opened, partition: Partition, on_corruption: OnCorruption, found: list[Finding]) -> bool:
    """Whether a broker has not removed a partition; adds findings about segments that cannot be opened, or raises."""
    lost = [segment.error for segment in partition.segments if segment.error is not None]
    removed = removed_from(target, lost[0]) if lost else None
    if removed is not None:
        found.append(removed)
        return False
    if lost and on_corruption == "raise":
        raise lost[0]
    found += [error.to_finding() for error in (lost[:1] if on_corruption == "stop" else lost)]
    return True


def _bound(condition: Filter | None, partition: Partition) -> Filter | Literal[True] | None:
    """What remains of a condition in a partition; None if none of its records can meet it."""
    topic, number = partition.topic_partition or (None, None)
    return True if condition is None else condition.bind({"topic": topic, "partition": number})


class _UnpackedPart(NamedTuple):
    """A part that is not yet packed into a task."""

    range: PartitionRange
    number: int
    """Number of its first segment in the partition."""
    outcomes: TransactionOutcomes | None
    """Outcomes of the whole partition."""

    def finish(self) -> PartitionRange:
        """The range with the outcomes that it needs."""
        if self.outcomes is None:
            return self.range
        first, last = self.range.segments[0], self.range.segments[-1]
        begin = log_position_of(self.number, first.start)
        stop = log_position_of(self.number + len(self.range.segments) - 1, last.stop)
        return replace(self.range, outcomes=self.outcomes.between(begin, stop))


class _SegmentCut(NamedTuple):
    """A position where a segment may be cut."""

    position: int
    offset: int
    """Base offset of the batch there; its last offset if a compressed v0 or v1 message hides the base offset."""
    lacks_base_offset: bool


@dataclass(frozen=True, slots=True)
class _Planner:
    task_bytes: int
    segment_cost: int
    max_records: int | None
    isolation_level: IsolationLevel
    on_corruption: OnCorruption
    include_deleted: bool
    whole_partitions: bool
    outcomes: Callable[[Partition, int | None], TransactionOutcomes]
    found: list[Finding]

    def cut(self, partition: Partition, start: int | None, end: int | None) -> list[_UnpackedPart]:
        """Parts of a partition, none larger than a task if its segments can be cut."""
        # records below the log start offset count as deleted, wherever the first segment begins
        if not self.include_deleted and partition.log_start_offset > (start or 0):
            start = partition.log_start_offset
        segments = partition.segments
        ranges = [range_of(segment) for segment in segments]
        unread = None
        if self.on_corruption == "stop":
            stop = _first_lost(segments, start or 0)
            if stop is not None:
                base_offset = segments[stop].base_offset
                unread = base_offset if end is None or base_offset < end else None
                del ranges[stop:]
        planned = partition.topic_partition, tuple(ranges), partition.log_start_offset, start, end
        directory = segments[0].directory if segments else None
        whole = PartitionRange(plain(partition.path), *planned, unread_offset=unread, directory=directory)
        try:
            if self.on_corruption != "stop" and not self.whole_partitions:
                parts = self._divided(partition, whole)
                if parts is not None:
                    return parts
        except ReadError:
            if self.on_corruption == "raise":
                raise
        # one reader learns in order where it stops, or what it cannot read
        intact = tuple(part for part, segment in zip(ranges, segments, strict=False) if segment.error is None)
        return [_UnpackedPart(replace(whole, segments=intact), 0, None)] if intact else []

    def _divided(self, partition: Partition, whole: PartitionRange) -> list[_UnpackedPart] | None:
        """Parts that processes can read alone; None if one reader has to report where the partition ends."""
        start, end = whole.start_offset, whole.end_offset
        known = self.outcomes(partition, end) if self.isolation_level == "read_committed" else None
        # where reading ends before the first wanted batch, a full reader reports that or the damage
        if known is not None and known.end is not None and known.end.first_offset < (start or 0):
            return None
        parts = list(self._parts(partition, whole, known))
        if known is None or known.end is None:
            self.found.extend(missing_behind(partition, end))
        return parts

    def _parts(
        self, partition: Partition, whole: PartitionRange, known: TransactionOutcomes | None
    ) -> Iterator[_UnpackedPart]:
        ranges = whole.segments
        for low, high in self._spans(partition, whole.start_offset, whole.end_offset):
            for number, one in self._within(ranges, low, high):
                if partition.segments[number].error is not None:
                    continue
                pieces = self._cut_segment(partition.segments[number], one, low, high)
                # to judge the first and last batch by the segment's name, their neighbours are needed
                named = [two.base_offset for two in partition.segments[number : number + 2]]
                pieces = join_outside(pieces, *named)
                after = ranges[number + 1] if number + 1 < len(ranges) else None
                if after is not None and high is not None and after.first_offset >= high:
                    after = None
                unread = None
                if after is not None and partition.segments[number + 1].error is not None:
                    # parts are not joined over an unreadable segment either: log positions count all segments
                    unread = after.first_offset
                    after = None
                for piece, following in zip(pieces, [*pieces[1:], after], strict=True):
                    begin = log_position_of(number, piece.start)
                    if known is not None and known.end is not None and known.end.log_position < begin:
                        return  # reading ends before this part
                    part = replace(whole, segments=(piece,), start_offset=low, end_offset=high, following=following)
                    yield _UnpackedPart(replace(part, unread_offset=unread), number, known)

    def _spans(self, partition: Partition, start: int | None, end: int | None) -> list[tuple[int | None, int | None]]:
        """Ranges of offsets: a single one, unless `max_records` divides it."""
        if self.max_records is None or not partition.segments:
            return [(start, end)]
        low = max(start or 0, partition.segments[0].base_offset)
        try:
            stop = partition.log_end_offset
        except KafkalogError:
            stop = partition.segments[-1].base_offset  # damaged: everything after this offset is one span
        high = max(stop if end is None else min(end, stop), low)
        bounds = list(range(low, high, self.max_records)) or [low]
        return list(itertools.pairwise([*bounds, end]))

    @staticmethod
    def _within(
        ranges: Sequence[SegmentRange], start: int | None, end: int | None
    ) -> Iterator[tuple[int, SegmentRange]]:
        """Segments that may hold offsets of a range."""
        for number, one in enumerate(ranges):
            if start is not None and number + 1 < len(ranges) and ranges[number + 1].first_offset <= start:
                continue
            if end is not None and one.first_offset >= end:
                return
            # an empty segment that is not the last one may have lost its batches: its reader notices the gap
            if one.size_in_bytes or number + 1 < len(ranges):
                yield number, one

    def _cut_segment(
        self, segment: Segment, whole: SegmentRange, start: int | None, end: int | None
    ) -> list[SegmentRange]:
        """Parts of a segment. The first begins at or before offset `start`, and the last ends at or after `end`."""
        is_inside = (start or 0) > segment.base_offset or end is not None
        if whole.size_in_bytes <= self.task_bytes and not is_inside:
            return [whole]
        cuts = self._find_cuts(segment, whole.size_in_bytes, start, end)
        first = whole
        if cuts and start is not None and start > segment.base_offset:
            behind = [one for one in cuts if one.offset <= start]
            if behind:
                first = replace(whole, start=behind[-1].position, first_offset=behind[-1].offset)
        parts = [first]
        for one in cuts:
            if one.position <= parts[-1].start:
                continue
            if end is not None and one.offset >= end and not one.lacks_base_offset:
                return [*parts[:-1], replace(parts[-1], stop=one.position)]
            if start is not None and one.offset <= start:
                continue
            before = replace(parts[-1], stop=one.position)
            parts[-1:] = [before, replace(whole, start=one.position, first_offset=one.offset)]
        return parts

    def _find_cuts(self, segment: Segment, size: int, start: int | None, end: int | None) -> list[_SegmentCut]:
        """Positions where batches begin: the last at or before `start`, the first at or after `end`, one per task
        between them."""
        index = segment.index_or_none(OffsetIndex)
        if index is None or not len(index):
            return []
        cuts: list[_SegmentCut] = []
        with segment.open() as source:
            for number in self._entries_to_cut_at(index, size, start, end):
                # if an entry is wrong, try the next ones
                for near in range(number, min(number + _TRIES, len(index))):
                    before = cuts[-1] if cuts else None
                    if 0 < index.position[near] < size and (before is None or index.position[near] > before.position):
                        cut = _cut_at(segment, source, index, near, before)
                        if cut is not None:
                            cuts.append(cut)
                            break
        return cuts

    def _entries_to_cut_at(self, index: OffsetIndex, size: int, start: int | None, end: int | None) -> list[int]:
        """Rows of an offset index next to the positions where a segment should be cut, in order."""
        position, offset = index.position, index.offset
        low = 0 if start is None else max(int(np.searchsorted(offset, start, side="right")) - 1, 0)
        high = len(index) if end is None else int(np.searchsorted(offset, end, side="left"))
        begin = int(position[low]) if start is not None and offset[low] <= start else 0
        stop = int(position[high]) if high < len(index) else size
        wanted = [low] if begin else []
        n = -(-max(stop - begin, 0) // self.task_bytes)
        targets = begin + np.arange(1, n, dtype=np.int64) * max(stop - begin, 0) // max(n, 1)
        wanted += np.minimum(np.searchsorted(position, targets, side="left"), len(index) - 1).tolist()
        # entries hold last offsets: the batch of this entry may begin before `end`, that of the next one does not
        if end is not None:
            wanted += [high, high + 1]
        return sorted({number for number in wanted if number < len(index)})

    def pack(self, parts: Sequence[_UnpackedPart]) -> Iterator[list[PartitionRange]]:
        """Pack parts in order until they fill a task; adjacent parts of a partition become one."""
        task: list[_UnpackedPart] = []
        cost = 0
        # in order, so that what one process reads stays in the order of the log
        for part in parts:
            mine = part.range.n_bytes + self.segment_cost * len(part.range.segments)
            both = task[-1].range.joined(part.range) if task else None
            joined = None if both is None else task[-1]._replace(range=both)
            is_full = cost + mine > self.task_bytes or (self.max_records is not None and joined is None)
            if task and is_full:
                yield [one.finish() for one in task]
                task, cost, joined = [], 0, None
            cost += mine
            task[-1 if joined else len(task) :] = [joined or part]
        if task:
            yield [one.finish() for one in task]


def _first_lost(segments: Sequence[Segment], start: int) -> int | None:
    """Number of the first segment that cannot be opened, from the one on that holds an offset; None without one."""
    first = sum(segment.base_offset <= start for segment in segments[1:])
    return next((number for number in range(first, len(segments)) if segments[number].error is not None), None)


def _cut_at(
    segment: Segment, source: ByteSource, index: OffsetIndex, row: int, previous: _SegmentCut | None
) -> _SegmentCut | None:
    """The cut at the batch that an entry of the offset index points to; None if two readers could not meet there."""
    at = int(index.position[row])
    window, _ = intact_batch_at(source, at, segment.limits.max_batch_bytes)
    if window is None:
        return None
    first, last = window.batches.first_offset, int(window.batches.last_offset[0])
    following = offsets_from(source, window.batches.end_position, 1)
    lacks_base_offset = int(window.batches.base_offset[0]) < 0
    source.release(window.data, at)
    del window
    before, begin = segment.base_offset - 1, 0
    if row:
        before, begin = int(index.offset[row - 1]), int(index.position[row - 1])
    # a cut at a batch with a wrong offset would put records into two tasks, or into none
    rises = before < first <= last <= int(index.offset[row]) and (previous is None or first > previous.offset)
    if not rises or not _rises_to(source, begin, at, first):
        return None
    is_kept = is_chain(source, at, _CHAIN_BYTES) and last < min(following, default=last + 1)
    return _SegmentCut(at, first, lacks_base_offset) if is_kept else None


def _rises_to(source: ByteSource, begin: int, at: int, first: int) -> bool:
    """Whether the offsets of the batches before a cut rise up to it.

    If the batch on either side of a cut had a wrong offset, neither of the two readers would have the neighbours that
    show which one is wrong.
    """
    if not 0 <= begin < at:
        return False
    last = -1
    try:
        for window in walk(source, start=begin, stop=at, first_window_bytes=2**13):
            last = int(window.batches.last_offset[-1])
            source.release(window.data, window.start)
            del window
    except KafkalogError:
        return False  # the index is wrong, or the log is damaged here
    return last < first
