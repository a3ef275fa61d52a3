"""Segments read one after the other, as windows; damage, and files that cannot be read, are handled as wished.

For `read_committed` the batches of a window are those that a consumer would get.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, LimitExceededError, Limits, OnCorruption, ReadError, Reason
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.header_walk import WINDOW_BYTES
from kafkalog.records.selection import Selection
from kafkalog.state.read_committed import PLACE_BITS, IsolationLevel, ReadCommitted, Stretch
from kafkalog.state.transaction_outcomes import KnownOutcomes, OutcomeLearner, Outcomes
from kafkalog.storage.source import ByteSource

_WINDOW_AHEAD: Final = 2**20


@dataclass(slots=True)
class ScanStatistics:
    """Counts of one pass, each level out of what the one above left.

    Attributes
    ----------
    n_partitions, n_partitions_read : int
        Ruled out by topic and partition, those asked for and those filtered by.
    n_segments, n_segments_read : int
        Of the partitions that are read. Ruled out by offsets, or by their name.
    n_bytes, n_bytes_jumped, n_bytes_read : int
        Of the `.log` files of those partitions; `jumped` lie before the index entry that a segment is read from.
    n_batches, n_batches_decoded : int
        Whose headers were walked, and which may hold a wanted record by them.
    n_records, n_records_selected : int or None
        Walked, and handed out. None where nothing was decoded.
    """

    n_partitions: int = 0
    n_partitions_read: int = 0
    n_segments: int = 0
    n_segments_read: int = 0
    n_bytes: int = 0
    n_bytes_jumped: int = 0
    n_bytes_read: int = 0
    n_batches: int = 0
    n_batches_decoded: int = 0
    n_records: int | None = None
    n_records_selected: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The counts, for JSON."""
        return asdict(self)


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


class SegmentBatches(NamedTuple):
    """Rows of the batch table of one of a partition's segments."""

    segment: Segment
    batches: BatchTable


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a partition beforehand, and not looked up in its directory or its log dir.

    Attributes
    ----------
    log_start_offset, high_watermark : int or None
        What the log dir's checkpoints say; None for nothing.
    segments : tuple of Segment or None
        Those to read; None for what the directory holds.
    is_planned : bool
        Whether the segments were chosen, and opened, by a plan: a file that is gone since raises, and what they leave
        out between them is left out on purpose.
    outcomes : Outcomes or None
        How the transactions of the segments ended.
    at_end : callable or None
        ``at_end(last_offset, on_corruption, report)`` is called when all windows have been read.
    """

    log_start_offset: int | None = None
    high_watermark: int | None = None
    segments: tuple[Segment, ...] | None = None
    is_planned: bool = False
    outcomes: Outcomes | None = None
    at_end: Callable[[int, OnCorruption, Callable[[Finding], None]], None] | None = None


class SegmentReader:
    """Reads the segments of a partition, in order.

    Parameters
    ----------
    segments : sequence of Segment
    known : Known, optional
        What is known beforehand.
    gap_between : callable
        Gives the finding, if any, about offsets (half-open) that lie between two segments and in neither.
    limits : Limits
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        *,
        known: Known | None,
        gap_between: Callable[[int, int], Finding | None],
        limits: Limits,
    ) -> None:
        self._segments, self._known, self._gap_between = segments, known or Known(), gap_between
        self._limits = limits

    def windows(
        self,
        selection: Selection,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        on_corruption: OnCorruption = "raise",
        check_crcs: bool = True,
        report: Callable[[Finding], None] = lambda finding: None,
        window_bytes: int = WINDOW_BYTES,
        wanted: Callable[[Segment], bool] = lambda segment: True,
        statistics: ScanStatistics | None = None,
    ) -> Iterator[SegmentWindow]:
        """Windows that may hold selected records, in offset order.

        Headers that cannot be walked are handled according to `on_corruption`; what is in a batch is for the receiver
        to judge.

        Parameters
        ----------
        selection : Selection
        isolation_level : {"read_uncommitted", "read_committed"}
            With the latter, the batches of a window are those that a consumer would get.
        on_corruption : {"raise", "stop", "skip"}
            Also what to do where a file cannot be read.
        check_crcs : bool
            Whether a batch needs a right checksum to count for `isolation_level`.
        report : callable
            Given each finding.
        window_bytes : int
            Bytes to read at a time.
        wanted : callable
            Says of each segment whether to read it.
        statistics : ScanStatistics, optional
            Where to count what is read and what is not.
        """
        counts = ScanStatistics() if statistics is None else statistics
        counts.n_segments += len(self._segments)
        counts.n_bytes += sum(segment.size_in_bytes for segment in self._segments)
        damage: list[Finding] = []  # since the last window: what it hides may matter to transactions

        def report_and_keep(finding: Finding) -> None:
            report(finding)
            damage.append(finding)

        judge = None if isolation_level == "read_uncommitted" else self.read_committed(on_corruption, check_crcs)
        last_offset = -1
        try:
            for window in self._all_windows(
                selection,
                on_corruption=on_corruption,
                report=report if judge is None else report_and_keep,
                window_bytes=window_bytes,
                wanted=wanted,
                statistics=counts,
            ):
                last_offset = int(window.batches.last_offset[-1])
                if judge is None:
                    yield window
                    del window  # here and below: its memory serves the next one
                    continue
                stretch = Stretch(window.window, window.number << PLACE_BITS, tuple(damage))
                verdict = judge.judge(stretch, selection.start_offset, selection.end_offset)
                damage.clear()
                if len(verdict.batches):
                    yield window._replace(window=window.window._replace(batches=verdict.batches))
                else:
                    window.release()
                del window, stretch
                for finding in verdict.findings:
                    report(finding)
                if verdict.error is not None:
                    raise verdict.error
                if verdict.is_end:
                    return
            if self._known.at_end is not None:
                self._known.at_end(last_offset, on_corruption, report)
        finally:
            if judge is not None:
                judge.close()

    def _all_windows(
        self,
        selection: Selection,
        *,
        on_corruption: OnCorruption,
        report: Callable[[Finding], None],
        window_bytes: int,
        wanted: Callable[[Segment], bool],
        statistics: ScanStatistics,
    ) -> Iterator[SegmentWindow]:
        """Windows that may hold selected offsets; parameters as `windows`.

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
            # what was planned may leave out segments on purpose
            if reached is not None and reached < segment.base_offset and not self._known.is_planned:
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
                if on_corruption == "raise" or self._known.is_planned:
                    raise
                report(_passed_over(error, segment, position, on_corruption))
                if on_corruption == "stop":
                    return
            if stream is not None:
                if stream.stopped:
                    return
                previous = stream.previous
                reached = stream.end_offset

    def lost_from(self, finding: Finding) -> Finding:
        """A finding, with all that lies behind it to the end of the log counted as lost."""
        try:
            end = self._segments[-1].next_offset
        except (KafkalogError, IndexError):
            return replace(finding, last_offset=None, n_records=None, certainty=None)
        first = finding.base_offset
        if first is None or not 0 <= first < end:
            return finding
        return replace(finding, last_offset=end - 1, n_records=end - first, certainty="at_most")

    def read_committed(self, on_corruption: OnCorruption = "raise", check_crcs: bool = True) -> ReadCommitted:
        """What chooses the batches that a `read_committed` consumer gets."""
        if self._known.outcomes is not None:
            return KnownOutcomes(self._known.outcomes, check_crcs=check_crcs, limits=self._limits)
        return ReadCommitted(
            [str(segment.path) for segment in self._segments],
            partial(self.stretches, on_corruption=on_corruption),
            on_corruption=on_corruption,
            check_crcs=check_crcs,
            is_whole=not self._segments or self._segments[-1].is_last,
            limits=self._limits,
        )

    def aborted_transactions(self, start: int | None, end: int | None) -> npt.NDArray[np.void]:
        """See `Partition.aborted_transactions`."""
        parts, _ = self.read_committed().replay(end)
        found = np.empty(sum(part.size for part in parts), kf.ABORTED_TRANSACTION_DTYPE)
        for name in kf.ABORTED_TRANSACTION_DTYPE.names or ():
            found[name] = np.concatenate([part[name] for part in parts]) if parts else 0
        mask = np.ones(found.size, np.bool_)
        if start is not None:
            mask &= found["last_offset"] >= start
        if end is not None:
            mask &= found["first_offset"] < end
        return found[mask]

    def learn_outcomes(self, until_offset: int | None, *, on_corruption: OnCorruption) -> Outcomes:
        """See `Partition.learn_outcomes`."""
        paths = [str(segment.path) for segment in self._segments]
        ahead = partial(self.stretches, on_corruption=on_corruption)
        learner = OutcomeLearner(paths, ahead, on_corruption=on_corruption, limits=self._limits)
        return learner.learn(until_offset)

    def stretches(
        self, place: int, previous_offset: int, *, on_corruption: OnCorruption = "raise"
    ) -> Generator[Stretch]:
        """Windows from a place on, across damage; a window is released when the next one is asked for.

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
                if self._known.is_planned or on_corruption == "raise":
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
    """Whether nothing below an offset can follow a window; checksums are compared, as a header may claim any offset."""
    rows = np.flatnonzero(window.batches.last_offset >= end_offset - 1)
    return any(valid_crcs(window, window.batches[row : row + 1])[0] for row in rows.tolist())


def gap_finding(path: str, start: int, end: int, *, is_compacted: bool | None = None) -> Finding:
    """The note about offsets between two segments that neither holds.

    Parameters
    ----------
    path : str
    start, end : int
        Half-open.
    is_compacted : bool, optional
        Whether the rest of the log looks as the log cleaner leaves it; None where nobody looked.
    """
    why = "the log cleaner has not been here, so a segment seems to be missing"
    if is_compacted is None:
        why = "normal in a compacted topic; in others a segment is missing"
    detail = f"offsets {start} to {end - 1} lie between two segments and in neither: {why}"
    return Finding(
        Reason.OFFSET_GAP,
        detail,
        path=path,
        base_offset=start,
        last_offset=end - 1,
        damage=False,
        n_records=end - start,
        certainty="at_most",
    )


def overlapping(batches: BatchTable, start_offset: int | None, end_offset: int | None) -> BatchTable:
    """Rows that may hold an offset of a range."""
    if start_offset is None and end_offset is None:
        return batches
    wanted = np.ones(len(batches), np.bool_)
    if start_offset is not None:
        wanted &= batches.last_offset >= start_offset
    if end_offset is not None:
        # what a compressed v0 or v1 message begins with is hidden: not before the end of the one before it
        behind = np.concatenate([batches.base_offset[:1], batches.last_offset[:-1] + 1])
        wanted &= np.where(batches.base_offset >= 0, batches.base_offset, behind) < end_offset
    return batches[wanted]
