"""The offsets up to which partitions can be read while a broker writes to them. Repeated calls are cheap.

The end is after the last complete batch with a correct checksum. A batch that is being written does not count yet, and
is not damage. With `read_committed` the end is the last stable offset. A call costs a `stat` of each directory and of
each active segment. Listings are kept until a directory changes, and only new bytes are read. A topic that is deleted
and made again is followed again.

The files may be ahead of the high watermark. On a leader whose followers have not caught up, they hold records that no
consumer can read yet, and that a change of leader may remove. With `high_watermark="checkpoint"` the end is the offset
in the log dir's checkpoint, which a broker updates every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Final, Literal

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, Finding, KafkalogError, Limits, ReadError
from kafkalog.log.directory import Directory
from kafkalog.log.log_dir import LogDir
from kafkalog.log.log_start import log_start, usable_start
from kafkalog.log.partition import CheckpointedOffsets, Partition
from kafkalog.log.ranges import PartitionRange
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentRange, SegmentStream
from kafkalog.records.batch_table import Window, valid_crcs
from kafkalog.state.outcomes import POSITION_BITS, Reached, ReplayWindow, TransactionOutcomes
from kafkalog.state.read_committed import IsolationLevel
from kafkalog.state.transaction_outcomes import OutcomeLearner
from kafkalog.storage.files import file_status
from kafkalog.storage.location import Place
from kafkalog.storage.removals import directory_identity, is_gone, was_replaced
from kafkalog.storage.source import is_padding

HighWatermark = Literal["ignore", "checkpoint"]

_RACY_SECONDS: Final = 2
"""A directory modified this recently may change again without a new modification time."""
PAUSE_SECONDS: Final = 0.2
"""Between two looks at the files of what is followed; a listing younger than that is not made again."""
_WINDOW_BYTES: Final = 2**22


class LogTail:
    """The ends of the partitions of log dirs.

    With `read_committed`, the first call walks all batch headers of a partition once. `on_corruption` says what to do
    where damage hides how a transaction ended; with `check_crcs`, a wrong checksum is such damage.
    """

    def __init__(
        self,
        open_log_dir: Callable[[], LogDir],
        wants: Callable[[kf.TopicPartition], bool],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        on_corruption: Literal["raise", "skip"] = "raise",
        check_crcs: bool = True,
        high_watermark: HighWatermark = "ignore",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._open, self._wants = open_log_dir, wants
        self._is_committed = isolation_level == "read_committed"
        self._on_corruption, self._check_crcs = on_corruption, check_crcs
        self._follows_checkpoint = high_watermark == "checkpoint"
        self._limits = limits
        self._roots: dict[Place, _Watched] = {}
        self._partitions: dict[kf.TopicPartition, PartitionTail] = {}
        self._topic_ids: dict[kf.TopicPartition, bytes] = {}
        self._replaced: set[kf.TopicPartition] = set()

    def ends(self) -> dict[kf.TopicPartition, int]:
        """The offset after the last readable one of each partition; at least its log start offset.

        Raises KafkalogError if a directory cannot be read, or damage hides how a transaction ended.
        """
        self._list()
        ends = {key: self._end(key) for key in list(self._partitions)}
        return {key: end for key, end in ends.items() if end is not None}

    def _end(self, key: kf.TopicPartition) -> int | None:
        """The end of a partition; None if it was deleted."""
        while True:
            tail, failure, end = self._partitions[key], None, None
            try:
                end = tail.end()
            except KafkalogError as error:
                failure = error
            if was_replaced(tail.path, tail.identity):
                self._follow_anew([key])
                if key not in self._partitions:
                    return None
            elif failure is None:
                return end
            elif isinstance(failure, ReadError) and is_gone(tail.path):
                del self._partitions[key]  # the next listing will not have it either
                return None
            else:
                raise failure

    def take_replaced(self) -> set[kf.TopicPartition]:
        """The partitions whose topic was deleted and made again since the last call."""
        if keys := [key for key, tail in self._partitions.items() if was_replaced(tail.path, tail.identity)]:
            self._follow_anew(keys)
        replaced, self._replaced = self._replaced, set()
        return replaced

    def _follow_anew(self, keys: list[kf.TopicPartition]) -> None:
        self._replaced.update(keys)
        for key in keys:
            del self._partitions[key]
        self._list(is_due=True)

    def starts(self) -> dict[kf.TopicPartition, int]:
        """The log start offset of each partition, from the checkpoint and the first segment's name."""
        return {key: tail.start for key, tail in self._partitions.items()}

    def outcomes(self, partition: Partition, until_offset: int | None) -> TransactionOutcomes:
        """How the transactions of a partition ended, up to the readable end."""
        key = partition.key
        if key not in self._partitions:
            return partition.reader.learn_outcomes(
                until_offset, on_corruption=self._on_corruption, check_crcs=self._check_crcs
            )
        return self._partitions[key].outcomes()

    def discard_below(self, ends: dict[kf.TopicPartition, int]) -> None:
        """Discard state that is needed only for offsets below these."""
        for key, offset in ends.items():
            if key in self._partitions:
                self._partitions[key].discard_below(offset)

    def _list(self, *, is_due: bool = False) -> None:
        if self._roots and not is_due and not any(watched.has_changed() for watched in self._roots.values()):
            return
        # before the listing, so that the next call sees any change in between
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
                        check_crcs=self._check_crcs,
                        limits=self._limits,
                    )
                    topic_id = tail.identity and tail.identity.topic_id
                    if topic_id is not None and self._topic_ids.setdefault(key, topic_id) != topic_id:
                        self._replaced.add(key)  # it was gone for a while, or is in another log dir now
                        self._topic_ids[key] = topic_id
                checkpointed = listed.checkpointed or CheckpointedOffsets()
                tail.checkpointed_start = checkpointed.log_start or 0
                tail.watermark = (checkpointed.high_watermark or 0) if self._follows_checkpoint else None
                found[key] = tail
        self._partitions = found


class PartitionTail:
    """The end of one partition; see `LogTail`. It is never above `watermark`, unless that is None.

    `checkpointed_start` is the log start offset in the log dir's checkpoint.
    """

    def __init__(
        self,
        path: Place,
        *,
        is_committed: bool,
        on_corruption: Literal["raise", "skip"],
        check_crcs: bool,
        limits: Limits,
    ) -> None:
        self.path = path
        self.identity = directory_identity(path)
        self.checkpointed_start = 0
        self.watermark: int | None = None
        self._limits = limits
        self._watched: _Watched | None = None
        self._bases: list[int] = []
        self._active: Segment | None = None
        self._seen: tuple[int, int] | None = None
        self._position = 0
        self._end = 0
        self._transactions = _TailTransactions(path, on_corruption, check_crcs, limits) if is_committed else None

    @property
    def start(self) -> int:
        """The log start offset, as a scan has it."""
        if not self._bases or self.checkpointed_start <= max(self._end, self._bases[-1]):
            return log_start(self.checkpointed_start, self._bases[0] if self._bases else None)
        ends = [Segment(self.path / kf.segment_file_name(self._bases[i]), must_open=False) for i in (0, -1)]
        return usable_start(self.path, self.checkpointed_start, ends)[0]

    def end(self) -> int:
        """The offset after the last readable one."""
        if self._watched is None or self._watched.has_changed():
            self._list()
        try:
            return self._known_end()
        except ReadError:
            listed = self._bases
            self._list()
            if self._bases == listed:
                raise
            return self._known_end()  # a broker rolled since the listing, and deleted what was the last segment

    def _known_end(self) -> int:
        """The end, as the segments that were listed have it."""
        self._advance()
        end = max(self._end, self.start)
        if self.watermark is not None:
            end = min(end, self.watermark)
        if self._transactions is not None:
            end = min(end, self._transactions.advance(self._bases, self._position, self._end))
        return max(end, self.start)

    def outcomes(self) -> TransactionOutcomes:
        """How the transactions ended, without those that `discard_below` has discarded."""
        return TransactionOutcomes() if self._transactions is None else self._transactions.known()

    def discard_below(self, offset: int) -> None:
        """Discard state that is needed only below an offset."""
        if self._transactions is not None:
            self._transactions.discard_below(offset)

    def _list(self) -> None:
        watched = _Watched(self.path)  # before the listing, so that the next call sees any change in between
        self._bases = Directory(self.path).bases
        self._watched = watched

    def _advance(self) -> None:
        """Read what is new in the last segment."""
        if not self._bases:
            return
        base = self._bases[-1]
        path = self.path / kf.segment_file_name(base)
        status = file_status(path)
        if self._active is None or self._active.base_offset != base:
            is_next = self._active is not None and self._end <= base
            self._active = Segment(path, limits=self._limits, is_last=True)
            self._seen = None
            self._end = max(self._end, base) if is_next else base
            # a throwaway segment: `self._active` must not cache an index that still grows
            indexed = Segment(path, limits=self._limits, is_last=True)
            with indexed.open() as source:
                self._position = indexed.position_for(source, 2**63 - 1)
        elif status.st_size < self._position:  # truncated, as after a change of leader
            self._active, self._end = None, 0
            self._advance()
            return
        seen = status.st_size, status.st_mtime_ns
        if seen == self._seen:
            return
        try:
            self._read_on(self._active)
        except FileChangedError:
            return  # a roll or a change of leader truncated it meanwhile: the next call reads what is left
        # a write may complete within the same tick of the file system's clock: then size and mtime prove nothing
        is_racy = time.time() - status.st_mtime_ns / 1e9 < _RACY_SECONDS
        self._seen = None if is_racy and self._position != status.st_size else seen

    def _read_on(self, segment: Segment) -> None:
        """Read the complete batches after the position."""
        with segment.open() as source:
            size, ahead = source.size, _WINDOW_BYTES
            while not is_padding(source.window(self._position, min(self._position + kf.LOG_OVERHEAD, size))):
                # read ahead step by step: a preallocated file may end in a GiB of zeros
                begin = self._position
                source.size = min(begin + ahead, size)
                # everything before the position is intact, and offsets rise from there
                previous = self._end - 1 if self._end > segment.base_offset else segment.base_offset - 1
                stream = SegmentStream(segment, source, previous, on_corruption="skip")
                for window in stream.windows(begin):
                    self._take(window)
                    source.release(window.data, window.start)
                if self._position == begin and source.size == size:
                    break
                ahead = 4 * ahead if self._position == begin else _WINDOW_BYTES
                source.size = size

    def _take(self, window: Window) -> None:
        batches = window.batches
        # batches after the last intact one may be half written: they are read again
        rows = np.flatnonzero(valid_crcs(window))
        if rows.size:
            self._position = int(batches.next_position[rows[-1]])
            self._end = int(batches.last_offset[rows[-1]]) + 1


class _TailTransactions:
    """The outcomes of a partition's transactions, updated from its new batches.

    Segments are numbered from the first one ever seen, so that positions stay valid when old segments are deleted.
    """

    def __init__(self, path: Place, on_corruption: str, check_crcs: bool, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._numbers: dict[int, int] = {}  # of segments, by base offset
        self._paths: list[str] = []
        self._bases: list[int] = []
        self._position = 0
        self._learner = OutcomeLearner(
            self._paths, self._replay_windows, on_corruption=on_corruption, check_crcs=check_crcs, limits=limits
        )

    def advance(self, bases: list[int], position: int, end: int) -> int:
        """The last stable offset, given the base offsets of the segments and the readable end of the last one."""
        if bases != self._bases or position != self._position:
            for base in bases:
                if base not in self._numbers:
                    self._numbers[base] = len(self._paths)
                    self._paths.append(str(self._path / kf.segment_file_name(base)))
            self._bases, self._position = list(bases), position
            try:
                self._learner.learn_more()
            except KafkalogError:
                self._position = -1  # so that the next call tries again
                raise
        first = self._learner.first_open
        return end if first is None else min(first.first_offset, end)

    def known(self) -> TransactionOutcomes:
        return self._learner.known()

    def discard_below(self, offset: int) -> None:
        self._learner.discard_below(offset)

    def _replay_windows(self, reached: Reached) -> Generator[ReplayWindow]:
        """Windows after what was reached, up to the readable end of the last segment."""
        number = reached.position >> POSITION_BITS
        lost: list[Finding] = []
        last_offset = reached.last_offset
        for base in [one for one in self._bases if self._numbers[one] >= number]:
            path, mine = self._path / kf.segment_file_name(base), self._numbers[base]
            is_last = base == self._bases[-1]
            size = file_status(path).st_size
            part = SegmentRange(path.name, size, 0, self._position if is_last else size, base, is_last)
            whole = PartitionRange(str(self._path), None, (part,))
            if mine == number:
                before = reached._replace(position=reached.position % (1 << POSITION_BITS))
            else:
                before = Reached(last_offset=last_offset)
            for window in whole.open(limits=self._limits).reader.replay_windows(before):
                if not len(window.window.batches):
                    lost += window.damage  # damage up to the end of the segment: pass it on with the next window
                    continue
                last_offset = int(window.window.batches.last_offset[-1])
                start = window.segment_start + (mine << POSITION_BITS)
                yield window._replace(segment_start=start, damage=(*lost, *window.damage))
                lost.clear()


class _Watched:
    """Detects whether a directory has changed since it was listed."""

    def __init__(self, path: Place) -> None:
        self._path = path
        self._listed = time.time()
        self._modified = self._stat()
        self._is_racy = self._listed - self._modified / 1e9 < _RACY_SECONDS

    def _stat(self) -> int:
        modified_ns: int = file_status(self._path).st_mtime_ns
        return modified_ns

    def has_changed(self) -> bool:
        """Whether the directory has, or may have, changed; False within `PAUSE_SECONDS` of its listing."""
        if time.time() - self._listed < PAUSE_SECONDS:
            return False
        return self._is_racy or self._stat() != self._modified
