"""Parts of a partition: byte ranges of its segments, described by small values that travel, and read like a whole.

A `PartitionRange` is made by `kafkalog.scanning.planning` and opened by a reader, maybe in another
process. What it opens to is a `Partition`, so that scans, damage, log start and isolation level work as ever; only that
its segments begin at a batch in the middle of the file and end before another. Nothing is taken on trust: the file has
to be the one that was planned, the first batch the one that was seen there, and the last one has to end where the part
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    FileChangedError,
    Finding,
    Limits,
    OnCorruption,
    Reason,
    TruncatedTailError,
)
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import Known
from kafkalog.records.batch_table import Window
from kafkalog.records.header_walk import WINDOW_BYTES
from kafkalog.state.read_committed import PLACE_BITS
from kafkalog.state.transaction_outcomes import Outcomes
from kafkalog.storage.source import ByteSource


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Bytes of a segment, from one batch up to another.

    Attributes
    ----------
    name : str
        Of the `.log`.
    size_in_bytes : int
        Of the file, as planned.
    start, stop : int
        Positions; `stop` is that of the next part, or the size.
    first_offset : int
        Of the batch at `start`; the segment's base offset at the start of the file.
    is_last : bool
        Whether the segment is the partition's last, which may grow, and at whose end a torn batch is normal.
    is_preallocated : bool
        Whether a roll may cut zeros from its end.
    """

    name: str
    size_in_bytes: int
    start: int
    stop: int
    first_offset: int
    is_last: bool = False
    is_preallocated: bool = False


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Neighbouring segments of a partition, or parts of them.

    Attributes
    ----------
    path : str
        The directory.
    topic_partition : TopicPartition or None
    segments : tuple of SegmentRange
    log_start_offset : int
        Of the partition.
    start_offset, end_offset : int or None
        Of the records that are wanted; half-open.
    outcomes : Outcomes or None
        Of the transactions, for `read_committed`; None where the part has to find out by itself, being the whole.
    following : SegmentRange or None
        The segment, or the rest of it, that is read next, by another part.
    """

    path: str
    topic_partition: kf.TopicPartition | None
    segments: tuple[SegmentRange, ...]
    log_start_offset: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    outcomes: Outcomes | None = None
    following: SegmentRange | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files."""
        return sum(segment.stop - segment.start for segment in self.segments)

    def segment_by_segment(self) -> list[PartitionRange]:
        """The same in parts of a segment each, so that one that is gone does not take others along."""
        parts = []
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1] if number + 1 < len(self.segments) else self.following
            outcomes = self.outcomes
            if outcomes is not None:
                outcomes = outcomes.between(place_of(number, segment.start), place_of(number, segment.stop))
            parts.append(replace(self, segments=(segment,), outcomes=outcomes, following=following))
        return parts

    def open(self, *, memory_map: bool | str = "auto", limits: Limits = DEFAULT_LIMITS) -> Partition:
        """The part, to be read.

        Raises
        ------
        ReadError
            A segment is gone, or cannot be read.
        FileChangedError
            It is not the one that was planned.
        """
        directory = Path(self.path)
        options: dict[str, Any] = {"limits": limits, "topic_partition": self.topic_partition}
        segments = tuple(RangedSegment(directory, one, memory_map=memory_map, **options) for one in self.segments)
        known = Known(
            self.log_start_offset,
            segments=segments,
            is_planned=True,
            outcomes=self.outcomes,
            at_end=partial(self._check_following, options),
        )
        return Partition(directory, limits=limits, known=known)

    def _check_following(
        self, options: dict[str, Any], last: int, on_corruption: OnCorruption, report: Callable[[Finding], None]
    ) -> None:
        """Report what a reader that continued would report: the next batch begins at or below the last offset."""
        following = self.following
        if following is None or last < following.first_offset:
            return
        whole = replace(following, stop=following.size_in_bytes)
        segment = RangedSegment(Path(self.path), whole, memory_map=False, **options)
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


class RangedSegment(Segment):
    """A part of a segment.

    Parameters
    ----------
    directory : pathlib.Path
    of : SegmentRange
    memory_map, limits, topic_partition
        As `Segment`.
    """

    def __init__(
        self,
        directory: Path,
        of: SegmentRange,
        *,
        memory_map: bool | str,
        limits: Limits,
        topic_partition: kf.TopicPartition | None,
    ) -> None:
        self._range = of
        self.first_position = of.start
        super().__init__(
            directory / of.name,
            memory_map=memory_map,
            limits=limits,
            is_last=of.is_last and of.stop == of.size_in_bytes,
            topic_partition=topic_partition,
        )

    def open(self) -> ByteSource:
        """The bytes of the `.log`, as if it ended where the part does.

        Raises
        ------
        ReadError, LimitExceededError
            As `Segment.open`.
        FileChangedError
            The file is not what it was when the part was planned.
        """
        source = super().open()
        planned = self._range
        least = planned.start if planned.is_preallocated else planned.stop
        if source.size < least if planned.is_last else source.size != planned.size_in_bytes:
            detail = f"has {source.size} bytes, {planned.size_in_bytes} when its reading was planned; plan again"
            source.close()
            raise FileChangedError(Reason.FILE_CHANGED, detail, path=self.path)
        source.size = min(source.size, planned.stop)
        return source

    def position_for(self, source: ByteSource, offset: int) -> int:
        """See `Segment.position_for`; never before the part."""
        if offset <= self._range.first_offset:
            return self.first_position
        return max(super().position_for(source, offset), self.first_position)

    def iter_windows(
        self,
        source: ByteSource,
        *,
        start: int = 0,
        previous_offset: int | None = None,
        window_bytes: int = WINDOW_BYTES,
        first_window_bytes: int | None = None,
        checked: bool = False,
    ) -> Iterator[Window]:
        """See `Segment.iter_windows`.

        Raises
        ------
        FileChangedError
            Another batch, or none, is where the part begins.
        """
        start = max(start, self.first_position)
        is_first = start == self.first_position > 0
        windows = super().iter_windows(
            source,
            start=start,
            previous_offset=previous_offset,
            window_bytes=window_bytes,
            first_window_bytes=first_window_bytes,
            checked=checked,
        )
        try:
            for window in windows:
                if is_first and first_offset(window) != self._range.first_offset:
                    detail = f"a batch of offset {self._range.first_offset} was here when its reading was planned"
                    raise FileChangedError(Reason.FILE_CHANGED, detail, path=self.path, position=start)
                is_first = False
                yield window
                del window
        except (TruncatedTailError, CorruptionError) as error:
            is_cut = isinstance(error, TruncatedTailError) or error.reason is Reason.SIZE_EXCEEDS_FILE
            if not is_cut or self._range.stop == self._range.size_in_bytes:
                raise
            raise CorruptionError(
                Reason.SIZE_EXCEEDS_FILE,
                f"the batch here would reach beyond position {self._range.stop}, where an intact one begins",
                path=error.path,
                position=error.position,
                base_offset=error.base_offset,
                length=error.length,
            ) from None


def first_offset(window: Window) -> int:
    """Base offset of the first batch of a window, or its last where the base is hidden in a compressed message."""
    batches = window.batches
    return int(batches.base_offset[0]) if batches.base_offset[0] >= 0 else int(batches.last_offset[0])


def place_of(number: int, position: int) -> int:
    """Of a position in a segment of a partition, for `Outcomes`."""
    return (number << PLACE_BITS) + position


_FIRST_WINDOW_BYTES = 2**16
