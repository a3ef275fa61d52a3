"""Parts of a partition: byte ranges of its segments, as small picklable values that open as a `Partition`.

`kafkalog.scanning.planning` makes a `PartitionRange`; a reader opens it, possibly in another process. Scans, damage,
log start offset and isolation level work as for a whole partition. The only difference is that a segment may begin at a
batch in the middle of its file and end before another one.

Opening checks the plan against the files: the topic, the size of the file and the first batch must be as planned, and
the last batch must end where the part ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Finding, Limits, OnCorruption, Reason
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import PlannedPart
from kafkalog.log.segment_stream import SegmentRange
from kafkalog.state.outcomes import POSITION_BITS, TransactionOutcomes
from kafkalog.storage.location import Location, Place, expect, place_of, version_of
from kafkalog.storage.removals import DirectoryIdentity, directory_identity, removed_error, was_replaced
from kafkalog.storage.store import Entry
from kafkalog.text import counted


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Neighbouring segments of a partition, or parts of them."""

    path: str | Location
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
            parts.append(replace(self, segments=(segment,), outcomes=outcomes, following=following))
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
        directory = place_of(self.path)
        # read before the comparison, so that a later replacement is detected
        identity = None if self.directory is None else directory_identity(directory)
        if was_replaced(directory, self.directory):
            raise removed_error(directory)
        open_segment = partial(_open_segment, directory, self.topic_partition, identity, limits)
        next_base_offset, cut_at = self.unread_offset, None
        if self.following is not None:
            first = self.following.first_offset
            next_base_offset, cut_at = (first, None) if self.following.start == 0 else (None, first)
        planned = PlannedPart(
            segments=[open_segment(memory_map, one) for one in self.segments],
            log_start_offset=self.log_start_offset,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            outcomes=self.outcomes,
            next_base_offset=next_base_offset,
            cut_at=cut_at,
            at_end=partial(self._check_following, partial(open_segment, False)),
        )
        return Partition(directory, limits=limits, planned=planned)

    def _check_following(
        self,
        open_segment: Callable[[SegmentRange], Segment],
        last: int,
        on_corruption: OnCorruption,
        report: Callable[[Finding], None],
    ) -> None:
        """Report what a reader that continued would report: the next batch begins at or below the last offset."""
        # Offsets that go back across the border of two parts are seen by neither part's reader alone.
        following = self.following
        if following is None or last < following.first_offset:
            return
        segment = open_segment(replace(following, stop=following.size_in_bytes))
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
    def paths(self) -> list[Place]:
        """The directories of the partitions."""
        return [place_of(path) for path in dict.fromkeys(part.path for part in self.parts)]

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files."""
        return sum(part.n_bytes for part in self.parts)

    def open(self) -> Iterator[Partition]:
        """The parts in order, each opened when it is reached; see `PartitionRange.open`."""
        for part in self.parts:
            yield part.open(limits=self.limits)


def range_of(segment: Segment) -> SegmentRange:
    """All bytes of a segment."""
    size, path = segment.size_in_bytes, segment.path
    is_preallocated, version = segment.is_preallocated, version_of(path)
    return SegmentRange(path.name, size, 0, size, segment.base_offset, segment.is_last, is_preallocated, version)


def _open_segment(
    directory: Place,
    topic_partition: kf.TopicPartition | None,
    identity: DirectoryIdentity | None,
    limits: Limits,
    memory_map: bool | str,
    part: SegmentRange,
) -> Segment:
    path = directory / part.name
    expect(path, Entry(part.name, part.size_in_bytes, part.etag))
    options: dict[str, Any] = {"memory_map": memory_map, "limits": limits, "topic_partition": topic_partition}
    return Segment(path, part=part, directory=identity, **options)


def log_position_of(number: int, position: int) -> int:
    """One integer for a position in a segment of a partition, as `TransactionOutcomes` uses it."""
    return (number << POSITION_BITS) + position


_FIRST_WINDOW_BYTES = 2**16


def join_outside(
    pieces: list[SegmentRange], base_offset: int, next_base_offset: int = kf.MAX_OFFSET
) -> list[SegmentRange]:
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
