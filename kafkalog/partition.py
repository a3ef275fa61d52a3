"""A topic-partition directory: its segments in order, what the checkpoints say of it, and reading across segments.

Mirrors the reading half of `UnifiedLog` and `LocalLog`, and of `LogLoader` as far as it decides which files count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.batches import WINDOW_BYTES, Window
from kafkalog.checkpoints import read_leader_epochs, read_offset_checkpoint, read_properties
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    Limits,
    ReadError,
    Reason,
    SidecarError,
)
from kafkalog.lock import is_locked
from kafkalog.segment import Resynchroniser, Segment
from kafkalog.selection import Selection
from kafkalog.source import ByteSource
from kafkalog.statistics import ScanStatistics

OnCorruption = Literal["raise", "stop", "skip"]


class Piece(NamedTuple):
    """A window of one of a partition's segments, ready to be decoded."""

    segment: Segment
    source: ByteSource
    window: Window


class Partition:
    """A directory of segments.

    Parameters
    ----------
    path : path-like
        The directory, such as ``/var/lib/kafka/orders-0``.
    segments : sequence of path-like, optional
        Only these `.log` files of it.
    log_start_offset, high_watermark : int, optional
        What the log dir's checkpoints say; looked up beside the directory when left out.
    memory_map : {"auto", True, False}
    limits : Limits

    Attributes
    ----------
    path : pathlib.Path
    topic_partition : TopicPartition or None
        What the directory's name says; None if it says nothing.
    kind : str or None
        `"delete"`, `"future"` or `"stray"` for a directory that a broker has set apart.
    segments : list of Segment
        By base offset.
    findings : list of Finding
        What is worth knowing about the directory and its small files.

    Notes
    -----
    Files that a broker would drop or finish when it starts count as it would count them: `.deleted` and `.cleaned` are
    left out, a finished `.swap` replaces the segments that it covers.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segments: Sequence[str | os.PathLike[str]] | None = None,
        log_start_offset: int | None = None,
        high_watermark: int | None = None,
        memory_map: bool | str = "auto",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.path = Path(path)
        directory = kf.parse_partition_directory(self.path.absolute().name)
        self.topic_partition = directory.topic_partition if directory else None
        self.kind = directory.kind if directory else None
        self.limits = limits
        self.findings: list[Finding] = []
        self._given_start, self._given_high_watermark = log_start_offset, high_watermark
        if memory_map == "auto" and is_locked(self.path.absolute().parent):
            memory_map = False
        self._memory_map = memory_map
        self.segments = self._load_segments(segments)

    def __repr__(self) -> str:
        name = self.topic_partition or self.path.name
        size = sum(segment.size_in_bytes for segment in self.segments)
        return f"Partition({str(name)!r}, {len(self.segments)} segments, {size} bytes)"

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size_in_bytes for segment in self.segments)

    def _load_segments(self, only: Sequence[str | os.PathLike[str]] | None) -> list[Segment]:
        try:
            names = sorted(os.listdir(self.path))
        except OSError as error:
            raise ReadError(Reason.FILE_UNREADABLE, error.strerror or str(error), path=self.path) from error
        logs = [name for name in names if name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None]
        if only is None:
            for name in names:
                if name.endswith(kf.LOG_SUFFIX) and name not in logs:
                    detail = "not named after an offset, so a broker does not read it; name the file itself to read it"
                    self.findings.append(Finding(Reason.UNKNOWN_FILE, detail, path=str(self.path / name), damage=False))
        last = max((kf.parse_base_offset(name) or 0 for name in logs), default=0)
        if only is not None:
            logs = [Path(path).name for path in only]
        segments = [self._segment(name, (kf.parse_base_offset(name) or 0) >= last) for name in logs]
        if only is None:
            segments = self._apply_swaps(segments, names)
        segments.sort(key=lambda segment: segment.base_offset)
        return segments

    def _segment(self, name: str, is_last: bool) -> Segment:
        return Segment(
            self.path / name,
            memory_map=self._memory_map,
            limits=self.limits,
            is_last=is_last,
            topic_partition=self.topic_partition,
        )

    def _apply_swaps(self, segments: list[Segment], names: list[str]) -> list[Segment]:
        """What `LogLoader` does with cleaner and split output that a crash left half moved into place."""
        suffix = kf.LOG_SUFFIX + kf.SWAP_SUFFIX
        swaps = [name for name in names if name.endswith(suffix) and kf.parse_base_offset(name) is not None]
        if not swaps:
            return segments
        cleaned = [kf.parse_base_offset(name) for name in names if name.endswith(kf.CLEANED_SUFFIX)]
        unfinished = min((offset for offset in cleaned if offset is not None), default=2**63)
        for name in swaps:
            swap = self._segment(name, False)
            if swap.base_offset >= unfinished:
                continue
            stop = swap.next_offset
            segments = [
                segment for segment in segments if not swap.base_offset <= segment.base_offset < max(stop, 1)
            ] + [swap]
            self.findings.append(
                Finding(
                    Reason.SWAP_FILE,
                    f"taken in place of the segments from offset {swap.base_offset} to {stop}, as a broker would",
                    path=str(swap.path),
                    base_offset=swap.base_offset,
                    damage=False,
                )
            )
        return segments

    def _checkpoint(self, name: str) -> int | None:
        if self.topic_partition is None or self.kind is not None:
            return None
        try:
            offsets = read_offset_checkpoint(self.path.absolute().parent / name)
        except SidecarError as error:
            self.findings.append(error.to_finding())
            return None
        return None if offsets is None else offsets.get(self.topic_partition)

    @cached_property
    def log_start_offset(self) -> int:
        """First offset that is not deleted: the log dir's checkpoint or the first segment's base, the larger."""
        given = self._given_start if self._given_start is not None else self._checkpoint(kf.LOG_START_OFFSET_CHECKPOINT)
        first = self.segments[0].base_offset if self.segments else 0
        return max(given or 0, first)

    @cached_property
    def high_watermark(self) -> int | None:
        """From the log dir's checkpoint, where it may be stale; None when it has none."""
        given = self._given_high_watermark
        return given if given is not None else self._checkpoint(kf.HIGH_WATERMARK_CHECKPOINT)

    @cached_property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch.

        Raises
        ------
        KafkalogError
            The last segment is damaged.
        """
        return max(self.segments[-1].next_offset, self.log_start_offset) if self.segments else self.log_start_offset

    @cached_property
    def leader_epochs(self) -> npt.NDArray[np.void]:
        """LEADER_EPOCH_DTYPE[n]: `leader-epoch-checkpoint`, empty when there is none.

        Raises
        ------
        SidecarError
            The file is malformed.
        """
        epochs = read_leader_epochs(self.path / kf.LEADER_EPOCH_CHECKPOINT)
        return np.empty(0, kf.LEADER_EPOCH_DTYPE) if epochs is None else epochs

    @cached_property
    def topic_id(self) -> str | None:
        """The topic id in `partition.metadata`, None when there is none."""
        properties = read_properties(self.path / kf.PARTITION_METADATA)
        return None if properties is None else properties.get("topic_id")

    def effective(self, selection: Selection, *, include_deleted: bool = False) -> Selection:
        """A selection that leaves out what lies below the log start offset."""
        if include_deleted or self.log_start_offset <= (selection.start_offset or 0):
            return selection
        return replace(selection, start_offset=self.log_start_offset)

    def pieces(
        self,
        selection: Selection,
        *,
        on_corruption: OnCorruption = "raise",
        report: Callable[[Finding], None] = lambda finding: None,
        window_bytes: int = WINDOW_BYTES,
        wanted: Callable[[Segment], bool] = lambda segment: True,
        statistics: ScanStatistics | None = None,
    ) -> Iterator[Piece]:
        """Windows that may hold selected records, in offset order.

        Headers that cannot be walked are met as `on_corruption` says; what is in a batch is the receiver's to judge.

        Parameters
        ----------
        selection : Selection
        on_corruption : {"raise", "stop", "skip"}
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
        counts.n_segments += len(self.segments)
        counts.n_bytes += self.size_in_bytes
        previous: int | None = None
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1].base_offset if number + 1 < len(self.segments) else None
            start = selection.start_offset
            if start is not None and following is not None and following <= start:
                continue
            if selection.end_offset is not None and segment.base_offset >= selection.end_offset:
                return
            if not wanted(segment):
                previous = None
                continue
            with segment.open() as source:
                position = 0 if start is None else segment.position_for(source, start)
                counts.n_segments_read += 1
                counts.n_bytes_jumped += position
                if position or previous is None:
                    previous = segment.base_offset - 1
                stream = _SegmentStream(segment, source, max(previous, segment.base_offset - 1), report, window_bytes)
                for window in stream.windows(position, on_corruption):
                    counts.n_bytes_read += window.data.size
                    counts.n_batches += len(window.batches)
                    yield Piece(segment, source, window)
                    del window
                    if selection.end_offset is not None and stream.previous >= selection.end_offset - 1:
                        return
                if stream.stopped:
                    return
                previous = stream.previous


class _SegmentStream:
    """Windows of one segment, damage met as the reader wishes."""

    def __init__(
        self,
        segment: Segment,
        source: ByteSource,
        previous: int,
        report: Callable[[Finding], None],
        window_bytes: int,
    ) -> None:
        self.segment, self.source, self.report = segment, source, report
        self.window_bytes = window_bytes
        self.previous = previous
        self.stopped = False
        self.last_position: int | None = None
        self._resynchroniser: Resynchroniser | None = None

    def windows(self, position: int | None, on_corruption: OnCorruption) -> Iterator[Window]:
        first_window_bytes = None
        while position is not None:
            try:
                windows = self.segment.iter_windows(
                    self.source,
                    start=position,
                    previous_offset=self.previous,
                    window_bytes=self.window_bytes,
                    first_window_bytes=first_window_bytes,
                )
                for window in windows:
                    self.previous = int(window.batches.last_offset[-1])
                    self.last_position = int(window.batches.position[-1])
                    yield window
                    del window  # here and below: its memory serves the next one
                for finding in self.segment.findings:
                    self.report(finding)
                return
            except KafkalogError as error:
                if on_corruption == "raise" or error.position is None:
                    raise
                position = self._go_on(error, error.position, on_corruption)
                first_window_bytes = _WINDOW_BEHIND_DAMAGE

    def _go_on(self, error: KafkalogError, where: int, on_corruption: OnCorruption) -> int | None:
        """Report, and say where to read on; None for nowhere in this segment."""
        if on_corruption == "stop":
            self.stopped = True
            self.report(error.to_finding())
            return None
        odd_offset = error.reason in (Reason.OFFSET_ORDER, Reason.OFFSET_OUTSIDE_SEGMENT)
        if odd_offset and error.base_offset is not None and error.base_offset >= 0:
            # the batch is whole and only its offset is odd: it is said, and read
            self.report(error.to_finding())
            self.previous = error.base_offset - 1
            return where
        self._resynchroniser = self._resynchroniser or Resynchroniser(self.segment, self.source)
        last = self.last_position
        if last is not None and not self.segment.is_batch_at(self.source, last, 2**63 - 1):
            # the batch before led here, and its length is as doubtful as the rest of it
            position = self._resynchroniser.after(last, -1)
            self.previous = -1
        else:
            position = self._resynchroniser.after(where, self.previous)
        self.last_position = None
        end = self.source.size if position is None else position
        length = max(end - where, 0)
        passed = f"{length} bytes passed over" + (" to the end of the segment" if position is None else "")
        self.report(replace(error.to_finding(), detail=f"{error.detail}; {passed}", length=length))
        return position


_WINDOW_BEHIND_DAMAGE = 2**16
