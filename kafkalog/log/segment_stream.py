"""Reading a segment window by window, over damage if the reader wishes so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.log.segment import Resynchroniser, Segment
from kafkalog.records.batch_table import Window
from kafkalog.storage.source import ByteSource

OnCorruption = Literal["raise", "stop", "skip"]
"""Damage raises; or ends its partition there; or is passed over."""


class SegmentStream:
    """Windows of one segment, damage met as the reader wishes.

    Parameters
    ----------
    segment : Segment
    source : ByteSource
        Its bytes.
    previous : int
        Offsets must rise above this one.
    report : callable
        Given each finding.
    window_bytes : int
        Bytes to read at a time.
    checked : bool
        Whether windows are to say which checksums are right, and need no bytes where all are.

    Attributes
    ----------
    previous : int
        The last offset seen.
    end_offset : int or None
        Behind the last batch, when all windows have been taken; None where damage hides the end.
    stopped : bool
        Whether damage ended it, and the partition with it (`on_corruption="stop"`).
    """

    def __init__(
        self,
        segment: Segment,
        source: ByteSource,
        previous: int,
        report: Callable[[Finding], None],
        window_bytes: int,
        *,
        checked: bool = False,
    ) -> None:
        self.segment, self.source, self.report = segment, source, report
        self.window_bytes = window_bytes
        self._checked = checked
        self.previous = previous
        self.end_offset: int | None = None
        self.stopped = False
        self._last_position: int | None = None
        self._resynchroniser: Resynchroniser | None = None

    def windows(self, position: int | None, on_corruption: OnCorruption) -> Iterator[Window]:
        """Windows from a batch boundary on.

        Raises
        ------
        KafkalogError
            Headers cannot be walked, with `on_corruption="raise"`; or the file cannot be read.
        """
        first_window_bytes = None
        while position is not None:
            try:
                windows = self.segment.iter_windows(
                    self.source,
                    start=position,
                    previous_offset=self.previous,
                    window_bytes=self.window_bytes,
                    first_window_bytes=first_window_bytes,
                    checked=self._checked,
                )
                for window in windows:
                    self.previous = int(window.batches.last_offset[-1])
                    self._last_position = int(window.batches.position[-1])
                    yield window
                    del window  # here and below: its memory serves the next one
                for finding in self.segment.findings:
                    self.report(finding)
                self.end_offset = max(self.previous + 1, self.segment.base_offset)
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
        last = self._last_position
        if last is not None and not self.segment.is_batch_at(self.source, last, 2**63 - 1):
            # the batch before led here, and its length is as doubtful as the rest of it
            position = self._resynchroniser.after(last, -1)
            self.previous = -1
        else:
            position = self._resynchroniser.after(where, self.previous)
        self._last_position = None
        end = self.source.size if position is None else position
        length = max(end - where, 0)
        passed = f"{length} bytes passed over" + (" to the end of the segment" if position is None else "")
        self.report(replace(error.to_finding(), detail=f"{error.detail}; {passed}", length=length))
        return position


_WINDOW_BEHIND_DAMAGE = 2**16
