"""Segments read one after the other, as windows; damage, and files that cannot be read, are handled as wished.

Which of the windows' batches were committed is decided in `kafkalog.log.partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from kafkalog.errors import Finding, KafkalogError, LimitExceededError, ReadError
from kafkalog.log.scan_statistics import ScanStatistics
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import OnCorruption, SegmentStream
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.selection import Selection
from kafkalog.state.read_committed import PLACE_BITS, Stretch
from kafkalog.storage.source import ByteSource

_WINDOW_AHEAD: Final = 2**20


class SegmentWindow(NamedTuple):
    """A window of one of a partition's segments, ready to be decoded."""

    number: int
    """Of the segment in the partition."""
    segment: Segment
    source: ByteSource
    window: Window
    n_bytes: int
    """Bytes of the file that no window before it had: a batch that the end of a window cuts is read again."""

    @property
    def batches(self) -> BatchTable:
        """The whole batches of the window, or those of them that are wanted."""
        return self.window.batches

    def release(self) -> None:
        """Give the window's memory back."""
        self.source.release(self.window.data, self.window.start)


class SegmentReader:
    """Reads the segments of a partition, in order.

    Parameters
    ----------
    segments : sequence of Segment
    must_open : bool
        Whether a file that cannot be read raises whatever `on_corruption` is: it was there when reading was planned.
    gap_between : callable, optional
        Gives the finding, if any, about offsets (half-open) that lie between two segments and in neither.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        *,
        must_open: bool,
        gap_between: Callable[[int, int], Finding | None] | None = None,
    ) -> None:
        self._segments, self._must_open, self._gap_between = segments, must_open, gap_between

    def windows(
        self,
        selection: Selection,
        *,
        on_corruption: OnCorruption,
        report: Callable[[Finding], None],
        window_bytes: int,
        wanted: Callable[[Segment], bool],
        statistics: ScanStatistics,
    ) -> Iterator[SegmentWindow]:
        """Windows that may hold selected offsets; parameters as `Partition.windows`.

        Raises
        ------
        KafkalogError
            Headers cannot be walked, or a file cannot be read, with `on_corruption="raise"`.
        """
        previous: int | None = None
        reached: int | None = None  # behind the last batch of the segment before, where its end is sound
        for number, segment in enumerate(self._segments):
            following = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else None
            start = selection.start_offset
            if start is not None and following is not None and following <= start:
                continue
            if selection.end_offset is not None and segment.base_offset >= selection.end_offset:
                return
            if not wanted(segment):
                previous = reached = None
                continue
            if reached is not None and reached < segment.base_offset and self._gap_between is not None:
                gap = self._gap_between(reached, segment.base_offset)
                if gap is not None:
                    report(gap)
            reached = None
            if previous is None:
                previous = segment.base_offset - 1
            stream: SegmentStream | None = None
            position = segment.first_position
            try:
                with segment.open() as source:
                    if start is not None:
                        position = segment.position_for(source, start)
                    statistics.n_segments_read += 1
                    statistics.n_bytes += source.size - segment.size_in_bytes  # it may have grown since it was listed
                    statistics.n_bytes_jumped += position
                    # offsets of what was jumped over are not known
                    behind = segment.base_offset - 1 if position else max(previous, segment.base_offset - 1)
                    stream = SegmentStream(segment, source, behind, report, window_bytes)
                    for window in stream.windows(position, on_corruption):
                        end = window.start + window.data.size
                        n_bytes = max(end - position, 0)
                        position = max(end, position)
                        statistics.n_bytes_read += n_bytes
                        statistics.n_batches += len(window.batches)
                        is_end = selection.end_offset is not None and _reaches(window, selection.end_offset)
                        yield SegmentWindow(number, segment, source, window, n_bytes)
                        del window
                        if is_end:
                            return
            except (ReadError, LimitExceededError) as error:
                if on_corruption == "raise" or self._must_open:
                    raise
                report(_passed_over(error, segment, position, on_corruption))
                if on_corruption == "stop":
                    return
            if stream is not None:
                if stream.stopped:
                    return
                previous = stream.previous
                reached = stream.end_offset

    def stretches(
        self, place: int, previous_offset: int, *, on_corruption: OnCorruption = "raise"
    ) -> Generator[Stretch]:
        """What lies behind a place, damage passed over; windows are taken back when the next one is asked for.

        A file that cannot be read is damage, too, unless that is to be raised.
        """
        first, position = place >> PLACE_BITS, place & (1 << PLACE_BITS) - 1
        previous = previous_offset
        damage: list[Finding] = []
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            begin = position if number == first else 0
            try:
                with segment.open() as source:
                    previous = max(previous, segment.base_offset - 1)
                    stream = SegmentStream(segment, source, previous, damage.append, _WINDOW_AHEAD)
                    for window in stream.windows(begin, "skip"):
                        begin = window.start + window.data.size
                        yield Stretch(window, number << PLACE_BITS, tuple(damage))
                        damage.clear()
                        source.release(window.data, window.start)
                        del window
                    previous = stream.previous
            except (ReadError, LimitExceededError) as error:
                if self._must_open or on_corruption == "raise":
                    raise
                damage.append(_passed_over(error, segment, begin, "skip"))
        if damage:
            end = Window(np.empty(0, np.uint8), 0, BatchTable.empty())
            yield Stretch(end, len(self._segments) << PLACE_BITS, tuple(damage))


def _passed_over(error: KafkalogError, segment: Segment, position: int, on_corruption: OnCorruption) -> Finding:
    """A file that cannot be read, or not to its end, as damage in it."""
    length = max(segment.size_in_bytes - position, 0)
    passed = f"; {length} bytes passed over to the end of the segment" if on_corruption == "skip" else ""
    return replace(
        error.to_finding(), detail=error.detail + passed, path=str(segment.path), position=position, length=length
    )


def _reaches(window: Window, end_offset: int) -> bool:
    """Whether nothing below an offset can come behind a window; a header alone may claim any offset."""
    rows = np.flatnonzero(window.batches.last_offset >= end_offset - 1)
    return any(valid_crcs(window, window.batches[row : row + 1])[0] for row in rows.tolist())
