"""Offsets for timestamps over the segments of a partition, as a broker's ListOffsets answers.

This module chooses the segment to search, like `UnifiedLog.fetchOffsetByTimestamp` and `LogSegment.largestTimestamp`,
but from batch headers instead of time indexes. `kafkalog.log.lookups.timestamp_search` searches inside a segment. A few
numbers per walked window are kept, so that a later call does not walk the same headers again.

Intended differences from a broker:

- A segment's largest timestamp comes from its batch headers, and so does the search. Where a time index or an offset
  index is wrong, stale or missing, a broker misses the record or falls back to the file's modification time. The
  result here does not depend on index files. It costs one walk of the headers up to the result. Only batches that may
  hold a result are decoded, and only their checksums are checked.
- The log end offset takes the place of the high watermark, and open transactions hold nothing back: this is
  `read_uncommitted` on files at rest.
- The leader epoch of the latest offset is the last one in `leader-epoch-checkpoint`.
- A negative number is rejected. On the wire, -1, -2 and -3 are the named timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import SidecarError
from kafkalog.indexes.time_hints import position_of_younger
from kafkalog.log.lookups.timestamp_search import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    TimestampSearch,
    latest_timestamp,
    parse_timestamps,
)
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import Window
from kafkalog.records.decode import decode
from kafkalog.records.readers.header_reader import HeaderReader
from kafkalog.records.selection import Selection
from kafkalog.storage.files import file_status
from kafkalog.storage.location import is_tiered

_FIRST_WINDOW_BYTES: Final = 2**16
_COLUMNS: Final = ("offset", "timestamp", "leader_epoch")


class Answers(NamedTuple):
    """Results for several timestamps, and where they were found."""

    found: npt.NDArray[np.void]
    """TIMESTAMP_AND_OFFSET_DTYPE[m]; -1 for none."""
    segment: npt.NDArray[np.int64]
    """Number of the segment that was searched, -1 for none. It may hold no matching record."""
    position: npt.NDArray[np.int64]
    """Position of the batch in the segment, -1 for none."""


class Visit(NamedTuple):
    """A segment that was searched, or ruled out by its largest timestamp."""

    segment: Segment
    largest_timestamp: int
    """The largest timestamp of the batches walked so far."""
    modified: int | None
    """Modification time of the file in ms, if it replaces the largest timestamp because no batch has one."""
    is_whole: bool
    """Whether every batch was walked."""
    has_batches: bool


@dataclass(slots=True)
class _Walk:
    """Summary of the headers of a segment walked so far. The lists have one row per window and one for the next."""

    identity: tuple[int, ...]
    """Device, inode, size and mtime of the file; the summary is discarded when they change."""
    position: list[int]
    previous_offset: list[int]
    largest_before: list[int] = field(default_factory=lambda: [kf.NO_TIMESTAMP])
    """Where each window begins, and the last offset and the largest timestamp before it."""
    largest_position: int | None = None
    """Position of the first batch with the largest timestamp."""
    is_whole: bool = False
    """Whether the walk reached the end of the segment."""

    @property
    def size(self) -> int:
        return self.identity[2]

    @property
    def largest(self) -> int:
        return self.largest_before[-1]

    @property
    def has_batches(self) -> bool:
        return len(self.position) > 1

    def add(self, window: Window) -> None:
        """Add what a window has after the ones before. Each search ends its windows where it needs to."""
        batches = window.batches
        if not window.start <= self.position[-1] < batches.end_position:
            return
        if window.start < self.position[-1]:
            batches = batches[batches.position >= self.position[-1]]
        row = int(batches.max_timestamp.argmax())
        largest = int(batches.max_timestamp[row])
        if largest > self.largest or (largest == self.largest and self.largest_position is None):
            self.largest_position = int(batches.position[row])
        self.position.append(batches.end_position)
        self.previous_offset.append(int(batches.last_offset[-1]))
        self.largest_before.append(max(largest, self.largest))

    def start(self, timestamp: int, offset: int) -> int:
        """Number of the window to start at: all earlier ones are older than the timestamp, or below the offset."""
        by_time = np.searchsorted(np.array(self.largest_before), timestamp, side="left")
        by_offset = np.searchsorted(np.array(self.previous_offset), offset, side="left")
        return max(int(by_time), int(by_offset), 1) - 1


class ListOffsets:
    """Answers of ListOffsets about a partition's files. The two callables are called only when needed."""

    def __init__(
        self,
        segments: Sequence[Segment],
        *,
        log_start_offset: int,
        log_end_offset: Callable[[], int],
        leader_epochs: Callable[[], npt.NDArray[np.void]],
    ) -> None:
        self._given = segments
        self._log_start_offset = log_start_offset
        self._log_end_offset, self._leader_epochs = log_end_offset, leader_epochs
        self._walks: dict[int, _Walk] = {}

    def answer(self, timestamps: Any, *, use_time_index: bool = False) -> npt.NDArray[np.void]:
        """See `Partition.find_timestamps`; `use_time_index` starts where the time indexes point."""
        questions = parse_timestamps(timestamps, lambda: latest_timestamp(self._given))
        flat = questions.ravel()
        found = np.full(flat.size, -1, kf.TIMESTAMP_AND_OFFSET_DTYPE)
        for name in (EARLIEST, LATEST, MAX_TIMESTAMP):
            asked = flat == name
            if asked.any():
                found[asked] = self.answer_named(name).found
        order = np.flatnonzero(flat >= 0)
        order = order[np.argsort(flat[order], kind="stable")]
        found[order] = self.search(flat[order], use_time_index=use_time_index).found
        return found.reshape(questions.shape)

    def segments(self) -> Sequence[Segment]:
        """The segments that a broker would keep at start-up: none if the log start offset lies beyond their end."""
        given = self._given
        if given and self._log_start_offset > given[-1].base_offset and self._log_start_offset > given[-1].next_offset:
            return ()
        return given

    def answer_named(self, name: int, on_visit: Callable[[Visit], None] | None = None) -> Answers:
        """The answer to `EARLIEST`, `LATEST` or `MAX_TIMESTAMP`."""
        if name == MAX_TIMESTAMP:
            return self._max_timestamp(on_visit)
        offset = self._log_start_offset if name == EARLIEST else self._log_end_offset()
        # no offset is past the highest possible one
        return _answers((kf.NO_TIMESTAMP, min(offset, kf.MAX_OFFSET), self._epoch(name)))

    def _epoch(self, name: int) -> int:
        """The leader epoch of the first or the last offset; -1 if it is not known."""
        try:
            epochs = self._leader_epochs()
        except SidecarError:
            return -1  # the offset itself does not depend on this file
        if not epochs.size or (name == EARLIEST and epochs["start_offset"][0] > self._log_start_offset):
            return -1
        return int(epochs["epoch"][0 if name == EARLIEST else -1])

    def search(
        self,
        timestamps: npt.NDArray[np.int64],
        on_visit: Callable[[Visit], None] | None = None,
        *,
        use_time_index: bool = False,
    ) -> Answers:
        """The answers to sorted timestamps, none of them negative. `on_visit` is called for each segment, in order.

        `use_time_index` begins in each segment where its time index says; see `kafkalog.indexes.time_hints`.
        """
        answers = _answers((-1, -1, -1), timestamps.size)
        done = 0
        for number, segment in enumerate(self.segments()):
            if done == timestamps.size:
                break
            walk = self._walk(segment)
            if use_time_index and not walk.is_whole:
                walk = _walk_from(position_of_younger(segment, int(timestamps[done])), walk)
            n = 0
            if not walk.is_whole or walk.largest >= timestamps[done]:
                search = TimestampSearch(
                    timestamps[done:],
                    start_offset=self._log_start_offset,
                    limits=segment.limits,
                    path=str(segment.path),
                )
                self._run(segment, walk, search, int(timestamps[done]))
                n = search.n_done
                answers.found[done : done + n] = search.found[:n]
                answers.position[done : done + n] = search.position[:n]
            modified = None
            if done + n < timestamps.size:
                modified = int(_status(segment).st_mtime_ns // 1_000_000) if walk.largest < 0 else None
                # Like a broker: timestamps up to this segment's largest are done, even if no record matched.
                largest = walk.largest if modified is None else modified
                n = int(np.searchsorted(timestamps[done:], largest, side="right"))
            if on_visit is not None:
                on_visit(Visit(segment, walk.largest, modified, walk.is_whole, walk.has_batches))
            answers.segment[done : done + n] = number
            done += n
        return answers

    def _run(self, segment: Segment, walk: _Walk, search: TimestampSearch | None, timestamp: int) -> None:
        """Walk the headers until everything is found, or to the end of the segment."""
        number = len(walk.position) - 1 if search is None else walk.start(timestamp, self._log_start_offset)
        start, previous = walk.position[number], walk.previous_offset[number]
        with segment.open() as source:
            reader = HeaderReader(None if search is None else search.asks, limits=segment.limits)
            for window in segment.iter_windows(source, start=start, previous_offset=previous, reader=reader):
                walk.add(window)
                if search is not None:
                    search.feed(window)
                source.release(window.data, window.start)
                if search is not None and search.is_done:
                    walk.is_whole |= walk.position[-1] == walk.size
                    return
        walk.is_whole = True

    def _max_timestamp(self, on_visit: Callable[[Visit], None] | None) -> Answers:
        """The first record with the largest timestamp, in the first segment that has it; deleted records count too."""
        best: tuple[int, Segment, _Walk] | None = None
        segments = self.segments()
        # a broker does not look at remote segments
        remote = {n for n, one in enumerate(segments) if is_tiered(one.path)}
        for number, segment in enumerate(segments):
            if number in remote and len(remote) < len(segments):
                continue
            walk = self._walk(segment)
            if not walk.is_whole:
                self._run(segment, walk, None, 0)
            # of equal timestamps the first segment counts, as in UnifiedLog.fetchOffsetByTimestamp
            if best is None or walk.largest > best[2].largest:
                best = number, segment, walk
            if on_visit is not None:
                on_visit(Visit(segment, walk.largest, None, True, walk.has_batches))
        if best is None:
            return _answers((-1, -1, -1))
        number, segment, walk = best
        if walk.largest_position is None:
            return _answers((-1, -1, -1), segment=number)
        return _answers(_first_at(segment, walk.largest_position, walk.largest), 1, number, walk.largest_position)

    def _walk(self, segment: Segment) -> _Walk:
        """The summary of a segment's headers; a new one if the file has changed."""
        status = _status(segment)
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        walk = self._walks.get(segment.base_offset)
        if walk is None or walk.identity != identity:
            walk = self._walks[segment.base_offset] = _Walk(identity, [0], [segment.base_offset - 1])
        return walk


def _walk_from(position: int, walk: _Walk) -> _Walk:
    """A walk from a position before which all records are too old; other searches cannot reuse it."""
    return walk if position <= walk.position[-1] else _Walk(walk.identity, [position], walk.previous_offset[:1])


def _answers(answer: tuple[int, int, int], n: int = 1, segment: int = -1, position: int = -1) -> Answers:
    found = np.full(n, -1, kf.TIMESTAMP_AND_OFFSET_DTYPE)
    found[:] = answer
    if answer[1] < 0:
        position = -1
    return Answers(found, np.full(n, segment, np.int64), np.full(n, position, np.int64))


def _status(segment: Segment) -> Any:
    # a running broker may have renamed it since, to delete it
    return file_status(segment.path, was_there=True, identity=segment.directory)


def _first_at(segment: Segment, position: int, timestamp: int) -> tuple[int, int, int]:
    """The first record with exactly this timestamp in the batch at a position. v0 messages have no timestamps."""
    with segment.open() as source:
        for window in segment.iter_windows(source, start=position, first_window_bytes=_FIRST_WINDOW_BYTES):
            if window.batches.magic[0] == 0:
                break
            everything = Selection(include_control=True)
            decoded = decode(
                window, _COLUMNS, stop=1, selection=everything, limits=segment.limits, path=str(segment.path)
            )
            if decoded.error is not None:
                raise decoded.error
            if decoded.columns is not None:
                rows = np.flatnonzero(decoded.columns.timestamp == timestamp)
                if rows.size:
                    row = int(rows[0])
                    return timestamp, int(decoded.columns.offset[row]), int(decoded.columns.leader_epoch[row])
            break
    return -1, -1, -1
