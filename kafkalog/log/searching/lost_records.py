"""Counts the records lost with an unreadable batch, from its header and the batches around it.

The neighbours of the first and last batch of a window are read from the file. So findings do not depend on windows,
threads or tasks.
"""

from __future__ import annotations

import contextlib

import numpy as np

from kafkalog.errors import Finding, KafkalogError
from kafkalog.log.searching.consistent_batches import first_offset_at
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.records.batch_table import Window, lost_batch, row_of
from kafkalog.records.header_walk import batch_at
from kafkalog.storage.source import ByteSource


def lost_in(segment: Segment, window: Window, error: KafkalogError) -> Finding:
    """Return the finding about a batch of a whole window of a segment that cannot be read; see `lost_batch`."""
    batches, before, after = window.batches, window.before, None
    row = row_of(error, batches)
    is_start, is_end = row == 0 and before is None and window.start > 0, row + 1 == len(batches)
    if is_start or is_end:
        whole = segment.reopened()
        with contextlib.suppress(KafkalogError), whole.open() as source:
            if is_start:
                before = _last_offset_before(whole, source, int(batches.position[0]))
            if is_end:
                limit, last = segment.limits.max_batch_bytes, int(batches.last_offset[row])
                behind, _ = batch_at(source, batches.end_position, limit, last)
                after = (
                    _offset_after(whole, source, int(batches.position[row]), batches.end_position)
                    if behind is None
                    else int(behind.batches.base_offset[0])
                )
    return lost_batch(error, batches, before=before, after=after)


def _offset_after(segment: Segment, source: ByteSource, damaged: int, end: int) -> int | None:
    """Base offset of the next intact batch after a damaged one, or of the next segment; None if there is neither."""
    for window in SegmentStream(segment, source, on_corruption="skip").windows(damaged):
        source.release(window.data, window.start)
        rows = np.flatnonzero(window.batches.position >= end)
        if rows.size:
            inside = first_offset_at(source, int(window.batches.position[rows[0]]), segment.limits)
            return window.batches[int(rows[0]) :].first_offset if inside is None else inside
    return segment.next_base_offset


def _last_offset_before(segment: Segment, source: ByteSource, position: int) -> int | None:
    """Last offset of the batch that ends at a position; None if none is found."""
    entries = [] if segment.offset_hint is None else segment.offset_hint.position.tolist()
    entry = max((one for one in entries if one < position), default=0)
    start = entry if segment.is_batch_at(source, entry, 2**63 - 1) else 0
    for window in SegmentStream(segment, source, on_corruption="skip").windows(start):
        source.release(window.data, window.start)
        rows = np.flatnonzero(window.batches.next_position == position)
        if rows.size:
            return int(window.batches.last_offset[rows[0]])
        if window.batches.end_position > position:
            return None
    return None
