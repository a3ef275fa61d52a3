"""How far partitions can be read while a broker writes to them; asking again costs little.

The end is after the last complete batch with a right checksum: a batch that is being written does not count yet, and is
not damage. With `read_committed` it is the last stable offset. A question costs a `stat` of each directory and of the
segment that is written to; listings are kept until a directory changes, and only bytes that are new are read.

What is on disk may be ahead of the high watermark: on a leader whose followers have not caught up, records can be read
here that no consumer is given yet, and that a change of leaders may take back. `high_watermark="checkpoint"` ends at
the offset in the log dir's checkpoint, which a broker brings up to date every few seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final, Literal

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, Finding, Limits, ReadError, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.log.ranges import PartitionRange, SegmentRange
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import Known
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.records.batch_table import Window, valid_crcs
from kafkalog.state.read_committed import PLACE_BITS, IsolationLevel, Stretch
from kafkalog.state.transaction_outcomes import OutcomeLearner, Outcomes
from kafkalog.storage.source import file_status

HighWatermark = Literal["ignore", "checkpoint"]

_RACY_SECONDS: Final = 2
"""A directory that changed so lately may change again and bear the same time."""
_PAUSE_SECONDS: Final = 0.2
_WINDOW_BYTES: Final = 2**22


class LogTail:
    """The ends of the partitions of log dirs.

    Parameters
    ----------
    open_log_dir : callable
        Gives the log dir as it is now.
    wants : callable
        Says which partitions to follow.
    isolation_level : {"read_uncommitted", "read_committed"}
        With the latter, all batch headers of a partition are walked once, when it is first asked about.
    on_corruption : {"raise", "skip"}
        What to do where damage hides how a transaction ended.
    high_watermark : {"ignore", "checkpoint"}
    limits : Limits
    """

    def __init__(
        self,
        open_log_dir: Callable[[], LogDir],
        wants: Callable[[kf.TopicPartition], bool],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        on_corruption: Literal["raise", "skip"] = "raise",
        high_watermark: HighWatermark = "ignore",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._open, self._wants = open_log_dir, wants
        self._is_committed = isolation_level == "read_committed"
        self._on_corruption = on_corruption
        self._follows_checkpoint = high_watermark == "checkpoint"
        self._limits = limits
        self._roots: dict[Path, _Watched] = {}
        self._partitions: dict[kf.TopicPartition, PartitionTail] = {}

    def ends(self) -> dict[kf.TopicPartition, int]:
        """The offset after the last one that can be read of each partition, at least its log start offset.

        Raises
        ------
        KafkalogError
            A directory cannot be read; or damage hides how a transaction ended.
        """
        self._list()
        ends: dict[kf.TopicPartition, int] = {}
        for key, tail in list(self._partitions.items()):
            try:
                ends[key] = tail.end()
            except ReadError:
                if tail.path.is_dir():
                    raise
                del self._partitions[key]  # deleted; the listing will say so, too
        return ends

    def starts(self) -> dict[kf.TopicPartition, int]:
        """The log start offset of each partition, as far as file names tell."""
        return {key: tail.start for key, tail in self._partitions.items()}

    def outcomes(self, partition: Partition, until_offset: int | None) -> Outcomes:
        """How the transactions of a partition ended, of those that can be read."""
        key = partition.topic_partition
        if key is None or key not in self._partitions:
            return partition.learn_outcomes(until_offset, on_corruption=self._on_corruption)
        return self._partitions[key].outcomes()

    def forget(self, ends: dict[kf.TopicPartition, int]) -> None:
        """Drop what is needed only for offsets below these."""
        for key, offset in ends.items():
            if key in self._partitions:
                self._partitions[key].forget(offset)

    def _list(self) -> None:
        if self._roots and not any(watched.has_changed() for watched in self._roots.values()):
            return
        roots = {path: _Watched(path) for path in self._roots}
        log_dir = self._open()
        self._roots = roots or {path: _Watched(path) for path in log_dir.paths}
        found = {}
        for key in log_dir:
            if self._wants(key):
                listed = log_dir.path_of(key)
                tail = self._partitions.get(key)
                if tail is None or tail.path != listed.path:
                    tail = PartitionTail(
                        listed.path,
                        is_committed=self._is_committed,
                        on_corruption=self._on_corruption,
                        limits=self._limits,
                    )
                checkpointed = listed.known or Known()
                tail.checkpointed_start = checkpointed.log_start_offset or 0
                tail.watermark = (checkpointed.high_watermark or 0) if self._follows_checkpoint else None
                found[key] = tail
        self._partitions = found


class PartitionTail:
    """The end of one partition.

    Parameters
    ----------
    path : pathlib.Path
        The directory.
    is_committed : bool
    on_corruption : {"raise", "skip"}
    limits : Limits

    Attributes
    ----------
    checkpointed_start : int
        The log start offset in the log dir's checkpoint.
    watermark : int or None
        Nothing from there on counts.
    """

    def __init__(
        self, path: Path, *, is_committed: bool, on_corruption: Literal["raise", "skip"], limits: Limits
    ) -> None:
        self.path = path
        self.checkpointed_start = 0
        self.watermark: int | None = None
        self._limits = limits
        self._watched: _Watched | None = None
        self._bases: list[int] = []
        self._active: Segment | None = None
        self._seen: tuple[int, int] | None = None
        self._position = 0
        self._end = 0
        self._transactions = _Transactions(path, on_corruption, limits) if is_committed else None

    @property
    def start(self) -> int:
        """The log start offset."""
        return max(self.checkpointed_start, self._bases[0] if self._bases else 0)

    def end(self) -> int:
        """The offset after the last one that can be read.

        Raises
        ------
        KafkalogError
            See `LogTail.ends`.
        """
        if self._watched is None or self._watched.has_changed():
            self._list()
        self._advance()
        end = max(self._end, self.start)
        if self.watermark is not None:
            end = min(end, self.watermark)
        if self._transactions is not None:
            end = min(end, self._transactions.advance(self._bases, self._position, self._end))
        return max(end, self.start)

    def outcomes(self) -> Outcomes:
        """How transactions ended, of those that were not forgotten."""
        return Outcomes() if self._transactions is None else self._transactions.known()

    def forget(self, offset: int) -> None:
        """Drop what is needed only below an offset."""
        if self._transactions is not None:
            self._transactions.forget(offset)

    def _list(self) -> None:
        watched = _Watched(self.path)
        try:
            names = os.listdir(self.path)
        except OSError as error:
            raise ReadError(Reason.FILE_UNREADABLE, error.strerror or str(error), path=self.path) from error
        bases = (kf.parse_base_offset(name) for name in names if name.endswith(kf.LOG_SUFFIX))
        self._bases = sorted(base for base in bases if base is not None)
        self._watched = watched

    def _advance(self) -> None:
        """Look at what is new in the last segment."""
        if not self._bases:
            return
        base = self._bases[-1]
        path = self.path / kf.segment_file_name(base)
        try:
            status = os.stat(path)
        except OSError as error:
            self._watched = None
            raise ReadError(Reason.FILE_UNREADABLE, error.strerror or str(error), path=path) from error
        if self._active is None or self._active.base_offset != base:
            is_next = self._active is not None and self._end <= base
            self._active = Segment(path, limits=self._limits, is_last=True)
            self._seen = None
            self._end = max(self._end, base) if is_next else base
            # an index is kept with its segment; this one grows, and is not needed again
            indexed = Segment(path, limits=self._limits, is_last=True)
            with indexed.open() as source:
                self._position = indexed.position_for(source, 2**63 - 1)
        elif status.st_size < self._position:  # truncated, as after a change of leaders
            self._active, self._end = None, 0
            self._advance()
            return
        seen = status.st_size, status.st_mtime_ns
        if seen == self._seen:
            return
        try:
            self._read_on(self._active)
        except FileChangedError:
            return  # it was cut meanwhile, by a roll or a change of leaders: the next call reads what is left
        # what is being written may be complete at the next look, within the same tick of the file system's clock
        is_racy = time.time() - status.st_mtime_ns / 1e9 < _RACY_SECONDS
        self._seen = None if is_racy and self._position != status.st_size else seen

    def _read_on(self, segment: Segment) -> None:
        """Take the whole batches after the position."""
        with segment.open() as source:
            size, ahead = source.size, _WINDOW_BYTES
            while source.window(self._position, min(self._position + kf.LOG_OVERHEAD, size)).any():
                # a bit at a time: a preallocated file may end in a GiB of zeros
                begin = self._position
                source.size = min(begin + ahead, size)
                # what lies before the position is intact; offsets rise from there
                previous = self._end - 1 if self._end > segment.base_offset else segment.base_offset - 1
                stream = SegmentStream(segment, source, previous, lambda finding: None, _WINDOW_BYTES)
                for window in stream.windows(begin, "skip"):
                    self._take(window)
                    source.release(window.data, window.start)
                if self._position == begin and source.size == size:
                    break
                ahead = 4 * ahead if self._position == begin else _WINDOW_BYTES
                source.size = size

    def _take(self, window: Window) -> None:
        batches = window.batches
        rows = np.flatnonzero(valid_crcs(window))
        if rows.size:
            self._position = int(batches.next_position[rows[-1]])
            self._end = int(batches.last_offset[rows[-1]]) + 1


class _Transactions:
    """What is known of a partition's transactions, brought up to date from its new batches.

    Segments are numbered from the first one that was ever seen, so that places stay what they are when old ones go.
    """

    def __init__(self, path: Path, on_corruption: str, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._numbers: dict[int, int] = {}  # of segments, by base offset
        self._paths: list[str] = []
        self._bases: list[int] = []
        self._position = 0
        self._learner = OutcomeLearner(self._paths, self._stretches, on_corruption=on_corruption, limits=limits)

    def advance(self, bases: list[int], position: int, end: int) -> int:
        """The last stable offset, given the base offsets of the segments and what is good of the last one."""
        if bases != self._bases or position != self._position:
            for base in bases:
                if base not in self._numbers:
                    self._numbers[base] = len(self._paths)
                    self._paths.append(str(self._path / kf.segment_file_name(base)))
            self._bases, self._position = list(bases), position
            self._learner.feed_all()
        first = self._learner.first_open
        return end if first is None else min(first.first_offset, end)

    def known(self) -> Outcomes:
        return self._learner.known()

    def forget(self, offset: int) -> None:
        self._learner.forget(offset)

    def _stretches(self, place: int, previous_offset: int) -> Generator[Stretch]:
        """What lies behind a place, up to where the last segment is good."""
        number, position = place >> PLACE_BITS, place & (1 << PLACE_BITS) - 1
        lost: list[Finding] = []
        for base in [one for one in self._bases if self._numbers[one] >= number]:
            path, mine = self._path / kf.segment_file_name(base), self._numbers[base]
            is_last = base == self._bases[-1]
            size = file_status(path).st_size
            part = SegmentRange(path.name, size, 0, self._position if is_last else size, base, is_last)
            whole = PartitionRange(str(self._path), None, (part,))
            for stretch in whole.open(limits=self._limits).reader.stretches(
                position if mine == number else 0, previous_offset
            ):
                if not len(stretch.window.batches):
                    lost += stretch.damage  # to the end of the segment
                    continue
                previous_offset = int(stretch.window.batches.last_offset[-1])
                yield stretch._replace(place=stretch.place + (mine << PLACE_BITS), damage=(*lost, *stretch.damage))
                lost.clear()


class _Watched:
    """A directory, and whether it changed since it was listed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed = time.time()
        self._modified = self._stat()
        self._is_racy = self._listed - self._modified / 1e9 < _RACY_SECONDS

    def _stat(self) -> int:
        try:
            return os.stat(self._path).st_mtime_ns
        except OSError as error:
            raise ReadError(Reason.FILE_UNREADABLE, error.strerror or str(error), path=self._path) from error

    def has_changed(self) -> bool:
        """Whether it did, or may have; within `_PAUSE_SECONDS` of the last look it is not looked at."""
        if time.time() - self._listed < _PAUSE_SECONDS:
            return False
        return self._is_racy or self._stat() != self._modified
