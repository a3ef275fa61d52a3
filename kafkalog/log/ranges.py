"""Parts of a partition: byte ranges of its segments, as small picklable values that open as a `Partition`.

`kafkalog.scanning.planning` makes a `PartitionRange`; a reader opens it, possibly in another process. Scans, damage,
log start offset and isolation level work as for a whole partition. The only difference is that a segment may begin at a
batch in the middle of its file and end before another one.

Opening checks the plan against the files: the topic, the size of the file and the first batch must be as planned, and
the last batch must end where the part ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    FileChangedError,
    Finding,
    KafkalogError,
    Limits,
    OnCorruption,
    Reason,
    TruncatedTailError,
)
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import MOST_EARLIER, Known
from kafkalog.records.batch_table import Window
from kafkalog.state.outcomes import POSITION_BITS, TransactionOutcomes
from kafkalog.storage.location import Entry, Location, as_path
from kafkalog.storage.removals import DirectoryIdentity, directory_identity, removed_error, was_replaced
from kafkalog.storage.source import ByteSource
from kafkalog.text import counted


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Bytes of a segment, from one batch up to another."""

    name: str
    """Name of the `.log`."""
    size_in_bytes: int
    """Size of the file when the read was planned."""
    start: int
    stop: int
    """Positions in the file. `stop` is where the next part starts, or the size of the file."""
    first_offset: int
    """Base offset of the batch at `start`; the segment's base offset if `start` is 0."""
    is_last: bool = False
    """Whether the segment is the partition's last one. It may grow, and a partial batch at its end is normal."""
    is_preallocated: bool = False
    """Whether a roll may cut zeros from the end of the file."""
    etag: str | None = None
    """Version of an object in a store, when the read was planned."""

    @classmethod
    def of(cls, segment: Segment, *, is_last: bool) -> SegmentRange:
        """All bytes of a segment."""
        size, path = segment.size_in_bytes, segment.path
        entry = path.status() if isinstance(path, Location) else None
        etag = None if entry is None else entry.etag
        return cls(path.name, size, 0, size, segment.base_offset, is_last, segment.is_preallocated, etag)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Neighbouring segments of a partition, or parts of them."""

    path: str
    """The partition's directory."""
    topic_partition: kf.TopicPartition | None
    segments: tuple[SegmentRange, ...]
    log_start_offset: int = 0
    """The partition's log start offset."""
    start_offset: int | None = None
    end_offset: int | None = None
    """Half-open range of offsets to read."""
    outcomes: TransactionOutcomes | None = None
    """How the transactions ended, for `read_committed`. None if the reader computes this itself, because the range is
    the whole partition.
    """
    following: SegmentRange | None = None
    """The range after this one, which another part reads: a segment, or the rest of one."""
    unread_offset: int | None = None
    """Base offset of the next segment if it cannot be read; then `following` is None."""
    directory: DirectoryIdentity | None = field(default=None, repr=False, compare=False)
    """Identity of the directory when the read was planned."""
    earlier: tuple[SegmentRange, ...] = field(default=(), repr=False, compare=False)
    """The last segments before these, as `Known` has them."""

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files."""
        return sum(segment.stop - segment.start for segment in self.segments)

    def segment_by_segment(self) -> list[PartitionRange]:
        """This range as one part per segment, so that a segment that has disappeared does not affect the others."""
        parts = []
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1] if number + 1 < len(self.segments) else self.following
            outcomes = self.outcomes
            if outcomes is not None:
                begin, stop = log_position_of(number, segment.start), log_position_of(number, segment.stop)
                outcomes = outcomes.between(begin, stop)
            earlier = (*self.earlier, *self.segments[:number])[-MOST_EARLIER:]
            part = replace(self, segments=(segment,), outcomes=outcomes, following=following, earlier=earlier)
            parts.append(part)
        return parts

    def joined(self, other: PartitionRange) -> PartitionRange | None:
        """Join this range and one that begins at its end; None if they are not adjacent."""
        if self.path != other.path or self.following is None or self.start_offset != other.start_offset:
            return None
        last, first = self.segments[-1], other.segments[0]
        if (self.following.name, self.following.start) != (first.name, first.start):
            return None
        if last.name == first.name:
            segments = (*self.segments[:-1], replace(last, stop=first.stop), *other.segments[1:])
        else:
            segments = (*self.segments, *other.segments)
        return replace(self, segments=segments, following=other.following, unread_offset=other.unread_offset)

    def open(self, *, memory_map: bool | str = "auto", limits: Limits = DEFAULT_LIMITS) -> Partition:
        """Open the part for reading.

        Raises ReadError if a segment has disappeared, or the topic was made again, and FileChangedError if a file has
        changed.
        """
        directory = as_path(self.path)
        # read before the comparison, so that a later replacement is detected
        identity = None if self.directory is None else directory_identity(directory)
        if was_replaced(directory, self.directory):
            raise removed_error(directory)
        options: dict[str, Any] = {"limits": limits, "topic_partition": self.topic_partition, "identity": identity}
        segments = tuple(RangedSegment(directory, one, memory_map=memory_map, **options) for one in self.segments)
        earlier = []
        for one in self.earlier:
            with contextlib.suppress(KafkalogError):  # other readers report that it cannot be read
                earlier.append(RangedSegment(directory, one, memory_map=memory_map, **options))
        next_base_offset = self.unread_offset
        if self.following is not None:
            next_base_offset = self.following.first_offset if self.following.start == 0 else None
        known = Known(
            self.log_start_offset,
            segments=segments,
            is_planned=True,
            outcomes=self.outcomes,
            earlier=tuple(earlier),
            next_base_offset=next_base_offset,
            at_end=partial(self._check_following, options),
            start_offset=self.start_offset,
            end_offset=self.end_offset,
        )
        return Partition(directory, limits=limits, known=known)

    def _check_following(
        self, options: dict[str, Any], last: int, on_corruption: OnCorruption, report: Callable[[Finding], None]
    ) -> None:
        """Report what a reader that continued would report: the next batch begins at or below the last offset."""
        # Offsets that go back across the border of two parts are seen by neither part's reader alone.
        following = self.following
        if following is None or last < following.first_offset:
            return
        whole = replace(following, stop=following.size_in_bytes)
        segment = RangedSegment(as_path(self.path), whole, memory_map=False, **options)
        with segment.open() as source:
            try:
                windows = segment.iter_windows(
                    source, start=following.start, previous_offset=last, first_window_bytes=_FIRST_WINDOW_BYTES
                )
                next(windows, None)
            except CorruptionError as error:
                if error.reason not in (Reason.OFFSET_ORDER, Reason.OFFSET_OUTSIDE_SEGMENT):
                    return  # other damage is handled by the reader of that part
                if on_corruption == "raise":
                    raise
                report(error.to_finding())


@dataclass(frozen=True, slots=True)
class PartitionRanges:
    """Parts of partitions that one scan reads, in place of an opened path."""

    parts: tuple[PartitionRange, ...]
    """Ordered by topic, partition and offset."""
    limits: Limits = DEFAULT_LIMITS

    def __repr__(self) -> str:
        return f"PartitionRanges({[str(path) for path in self.paths]}, {counted(self.n_bytes, 'byte')})"

    @property
    def paths(self) -> list[Path]:
        """The directories of the partitions."""
        return [as_path(path) for path in dict.fromkeys(part.path for part in self.parts)]

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files."""
        return sum(part.n_bytes for part in self.parts)

    def open(self) -> Iterator[Partition]:
        """The parts in order, each opened when it is reached; see `PartitionRange.open`."""
        for part in self.parts:
            yield part.open(limits=self.limits)


class RangedSegment(Segment):
    """A part of a segment."""

    def __init__(
        self,
        directory: Path,
        of: SegmentRange,
        *,
        memory_map: bool | str,
        limits: Limits,
        topic_partition: kf.TopicPartition | None,
        identity: DirectoryIdentity | None,
    ) -> None:
        self._range, self.directory = of, identity
        self.first_position = of.start
        path = directory / of.name
        if isinstance(path, Location):
            path.remember(Entry(of.name, of.size_in_bytes, of.etag))
        super().__init__(
            path,
            memory_map=memory_map,
            limits=limits,
            is_last=of.is_last and of.stop == of.size_in_bytes,
            topic_partition=topic_partition,
        )

    def open(self) -> ByteSource:
        """The bytes of the `.log`, as if the file ended where the part does.

        Raises FileChangedError if the size of the file has changed since the part was planned.
        """
        source = super().open()
        planned = self._range
        # Only the last segment may grow. It may also shrink if it was preallocated: a roll cuts the zeros off.
        least = planned.start if planned.is_preallocated else planned.stop
        if source.size < least if planned.is_last else source.size != planned.size_in_bytes:
            detail = f"has {source.size} bytes, but had {planned.size_in_bytes} when the read was planned; plan again"
            source.close()
            raise FileChangedError(Reason.FILE_CHANGED, detail, path=self.path)
        source.size = min(source.size, planned.stop)
        return source

    def position_for(self, source: ByteSource, offset: int) -> int:
        """See `Segment.position_for`; never before the start of the part."""
        if offset <= self._range.first_offset:
            return self.first_position
        return max(super().position_for(source, offset), self.first_position)

    def check_start(self, window: Window) -> None:
        """See `Segment.check_start`."""
        if window.start == self.first_position > 0 and window.batches.first_offset != self._range.first_offset:
            detail = f"a batch of offset {self._range.first_offset} was here when the read was planned; plan again"
            raise FileChangedError(Reason.FILE_CHANGED, detail, path=self.path, position=window.start)

    def explain(self, error: KafkalogError) -> KafkalogError:
        """See `Segment.explain`. A batch cut by the end of the part is damage: an intact one begins there."""
        error = super().explain(error)
        is_cut = isinstance(error, TruncatedTailError) or error.reason is Reason.SIZE_EXCEEDS_FILE
        if not is_cut or self._range.stop == self._range.size_in_bytes:
            return error
        detail = f"the batch here would reach beyond position {self._range.stop}, where an intact one begins"
        return CorruptionError.about(error, detail, reason=Reason.SIZE_EXCEEDS_FILE)


def log_position_of(number: int, position: int) -> int:
    """One integer for a position in a segment of a partition, as `TransactionOutcomes` uses it."""
    return (number << POSITION_BITS) + position


_FIRST_WINDOW_BYTES = 2**16


def join_outside(pieces: list[SegmentRange], base_offset: int, next_base_offset: int = 2**63 - 1) -> list[SegmentRange]:
    """Join parts that begin at an offset outside the names of their segment and the next one with the part before."""
    joined = pieces[:1]
    for one in pieces[1:]:
        if base_offset < one.first_offset < next_base_offset:
            joined.append(one)
        else:
            joined[-1] = replace(joined[-1], stop=one.stop)
    return joined


def missing_behind(partition: Partition, end_offset: int | None) -> list[Finding]:
    """The note about a missing end of the log, if the last segment is empty, since then no part reads up to it."""
    last = partition.segments[-1] if partition.segments else None
    if last is None or last.error or last.size_in_bytes or (end_offset is not None and last.base_offset >= end_offset):
        return []
    missing = partition.reader.missing_end(last.base_offset)
    return [] if missing is None else [missing]
