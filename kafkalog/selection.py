"""Which records of a partition are wanted: judged on batch headers first, then on walked spans.

Nothing is copied for a record that is not wanted, and nothing decoded for a batch whose header rules it out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.batches import BatchTable
from kafkalog.spans import Spans


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of a partition are wanted; half-open ranges, None for no bound.

    Attributes
    ----------
    start_offset, end_offset : int or None
    start_timestamp, end_timestamp : int or None
        Milliseconds. A record of a format without timestamps never matches.
    include_control : bool
        Whether control records are records, too.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    include_control: bool = False

    @property
    def has_timestamps(self) -> bool:
        """Whether timestamps are looked at at all."""
        return self.start_timestamp is not None or self.end_timestamp is not None

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """Batches that may hold such a record, by their headers alone; None for all.

        A largest timestamp before the start rules a batch out; there is no smallest one in a header.
        """
        masks = []
        if self.start_offset is not None:
            # a v1 wrapper at offset 0 may be produce data as librdkafka writes it: its last offset is only inside
            hidden = (batches.magic == 1) & (batches.codec != 0) & (batches.last_offset == 0)
            masks.append((batches.last_offset >= self.start_offset) | hidden)
        if self.end_offset is not None:
            first = np.where(batches.base_offset >= 0, batches.base_offset, np.int64(-1))
            masks.append(first < self.end_offset)
        if self.start_timestamp is not None:
            # what a v0 wrapper hides may be v1 messages
            hidden = (batches.magic == 0) & (batches.codec != 0)
            masks.append((batches.max_timestamp >= self.start_timestamp) | hidden)
        if not self.include_control and np.bitwise_or.reduce(batches.attributes) & kf.CONTROL_BIT:
            masks.append(~batches.is_control)
        return np.logical_and.reduce(masks) if masks else None

    def takes_all_of(self, batches: BatchTable) -> bool:
        """Whether every record of these batches is wanted, by their headers alone."""
        return (
            not self.has_timestamps
            and (self.start_offset is None or bool((batches.base_offset >= self.start_offset).all()))
            and (self.end_offset is None or bool((batches.last_offset < self.end_offset).all()))
        )

    def rows(self, spans: Spans) -> npt.NDArray[np.int64] | None:
        """Numbers of the records that match; None for all."""
        masks = []
        n = len(spans)
        if n and self.start_offset is not None:
            mask = spans.offset >= self.start_offset
            masks += [] if mask.all() else [mask]
        if n and self.end_offset is not None:
            mask = spans.offset < self.end_offset
            masks += [] if mask.all() else [mask]
        if n and self.has_timestamps:
            if self.start_timestamp is not None:
                masks.append(spans.timestamp >= self.start_timestamp)
            if self.end_timestamp is not None:
                masks.append(spans.timestamp < self.end_timestamp)
            types = spans.timestamp_type
            without = np.repeat(spans.batches.magic == 0, spans.counts) if types is None else types == -1
            masks.append(~(without & (spans.timestamp == kf.NO_TIMESTAMP)))
        return np.flatnonzero(np.logical_and.reduce(masks)) if masks else None
