"""Finds where reading can continue after damage: at the next intact batch of the log.

At the first damage, the segment is searched once, from the start of the read; later damage is only looked up. So the
work is linear in the size of the segment. All batches take part in the choice: if some contradict each other, the
largest consistent set wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Limits, ReadError
from kafkalog.log.searching.consistent_batches import OFFSETS_PER_BYTE, agreeing
from kafkalog.log.searching.damaged_sizes import with_skipped_batches
from kafkalog.log.searching.resync import IntactRuns, find_batches
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.header import LAST_OFFSET_END, BatchHeader
from kafkalog.records.header_walk import batch_at, intact_batch_at, valid_at, walk, window_of
from kafkalog.storage.source import ByteSource

MOST_RUNS: Final = 2**16
"""Runs of batches to choose among at a time. More runs are processed in pieces, to bound memory."""


class Resynchroniser:
    """Finds where reading can continue after damage, in time linear in the size of the segment.

    `start` is a batch boundary, where the read began. `end_offset` returns the base offset of the next segment, if
    there is one: it lists the directory, and is called where batches are looked for.
    """

    def __init__(
        self,
        source: ByteSource,
        *,
        start: int,
        base_offset: int,
        end_offset: Callable[[], int | None],
        limits: Limits,
    ) -> None:
        self._source, self._limits = source, limits
        self._parts = find_batches(source, start=start, limits=limits)
        self._lowest, self._end_offset, self._searched_to = base_offset, end_offset, start
        self._start: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._end = self._unproved = self._start

    def after(self, damaged: int) -> int | None:
        """Position of the log's next intact batch after a position, or None."""
        row = self._run_behind(damaged)
        if row is None or self._start[row] > damaged:
            return None if row is None else int(self._start[row])
        # a batch of the log that the reader rejects for another reason: continue at the next one
        behind = self._end_of(damaged) or self._batch_behind(int(self._start[row]), int(self._end[row]), damaged)
        row = self._run_behind(behind)
        if row is not None and self._start[row] < behind and self._end_of(behind) is None:
            row = self._run_behind(int(self._end[row]))
        return None if row is None else max(int(self._start[row]), behind)

    def _run_behind(self, position: int) -> int | None:
        """Row of the first run that ends after a position."""
        while (row := int(np.searchsorted(self._end, position, side="right"))) >= self._start.size:
            if not self._search():
                return None
        return row

    def _end_of(self, position: int) -> int | None:
        """End of the intact batch at a position; None if there is none."""
        window, _ = intact_batch_at(self._source, position, self._limits.max_batch_bytes)
        if window is None:
            return None
        self._source.release(window.data, position)
        return int(window.batches.next_position[0])

    def _batch_behind(self, start: int, end: int, position: int) -> int:
        """Start of the next batch of a run after a position that is not a batch boundary."""
        for window in walk(self._source, start=start, stop=end, limits=self._limits):
            ends = window.batches.next_position
            self._source.release(window.data, window.start)
            if ends[-1] > position:
                return int(ends[np.searchsorted(ends, position, side="right")])
        return end

    def leading_astray(self, window: Window) -> int | None:
        """Row of a damaged batch whose size field skips batches of the log, or that has their offsets; else None.

        Examines only rows before missing offsets; all rows, if no batch begins after the last.
        """
        batches = window.batches
        is_before_gap = np.append(_is_behind_gap(batches[1:], batches.last_offset[:-1]), False)
        leads_nowhere = self._leads_nowhere(batches)
        if not leads_nowhere:
            is_before_gap[-1] = self._is_before_gap(window)
        rows = np.flatnonzero(is_before_gap | leads_nowhere)  # a row before the last may have led to no batch
        if not rows.size:
            return None
        valid = valid_at(self._source, window, batches[rows]) if window.valid is None else window.valid[rows]
        for row in rows[~valid].tolist():
            follower = int(batches.next_position[row])
            position = self.after(int(batches.position[row]))
            if is_before_gap[row] and (self._unproved == follower).any():
                return int(row)
            if position is None:
                continue
            if position < follower or self._first_offset(position) <= batches.last_offset[row]:
                return int(row)
        return None

    def _is_before_gap(self, window: Window) -> bool:
        """Whether the last batch of a window is damaged, and offsets are missing between it and the next one."""
        last = window.batches[-1:]
        if (valid_at(self._source, window, last) if window.valid is None else window.valid[-1:])[0]:
            return False
        offset, limit = int(last.last_offset[0]), self._limits.max_batch_bytes
        behind, _ = batch_at(self._source, last.end_position, limit, offset)
        if behind is None:
            return False
        self._source.release(behind.data, behind.start)
        return bool(_is_behind_gap(behind.batches, np.array([offset]))[0])

    def _first_offset(self, position: int) -> int:
        """First offset of the intact batch at a position."""
        window, _ = intact_batch_at(self._source, position, self._limits.max_batch_bytes)
        if window is None:
            return kf.NO_OFFSET
        self._source.release(window.data, position)
        return window.batches.first_offset

    def _leads_nowhere(self, batches: BatchTable) -> bool:
        """Whether the file continues after the last batch, but not with a batch."""
        source, position, last = self._source, batches.end_position, int(batches.last_offset[-1])
        left = source.size - position
        if left < kf.LEAST_BATCH_BYTES:
            return left > 0
        data = window_of(source, position, position + min(LAST_OFFSET_END, left))
        header = BatchHeader(data)
        source.release(data, position)
        if len(header) < min(LAST_OFFSET_END, left):
            return False  # the file was truncated meanwhile
        if header.magic > 2 or not _LEAST_SIZES[header.magic] <= header.size_in_bytes <= left:
            return True
        last_offset = header.offset + (header.last_offset_delta if header.magic == 2 else 0)
        return not last < header.offset <= last_offset < 2**63

    def _search(self) -> bool:
        """Search the next part; False at the end."""
        parts: list[IntactRuns] = []
        n_runs = 0
        try:
            for part in self._parts:
                parts.append(part.joined())
                n_runs += len(parts[-1])
                if n_runs >= MOST_RUNS:
                    break
        except ReadError:  # the walk raises this when it gets there
            self._parts = iter(())
        if not n_runs:
            return False
        limits, end_offset = self._limits, self._end_offset()
        found = IntactRuns.concatenate(parts)
        found = with_skipped_batches(self._source, found, base_offset=self._lowest, limits=limits)
        agreement = agreeing(
            self._source,
            found,
            base_offset=self._lowest,
            end_offset=kf.MAX_OFFSET if end_offset is None else end_offset,
            start=self._searched_to,
            limits=limits,
        )
        self._searched_to = int(found.end[-1])
        own = agreement.kept
        self._unproved = agreement.unproved
        if len(own):
            self._lowest = int(own.last_offset[-1]) + 1
        self._start, self._end = own.start, own.end
        return True


def _is_behind_gap(batches: BatchTable, previous: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which batches leave a gap after the previous last offset."""
    hides_base = batches.base_offset < 0  # a compressed message of v0 or v1
    room = np.where(hides_base, batches.size_in_bytes.astype(np.int64) * OFFSETS_PER_BYTE, 0)
    first = np.where(hides_base, batches.last_offset, batches.base_offset)
    is_behind: npt.NDArray[np.bool_] = first - room > previous + 1
    return is_behind


_LEAST_SIZES: Final = (
    kf.LEAST_BATCH_BYTES,
    kf.LOG_OVERHEAD + kf.MESSAGE_V1_OVERHEAD,
    kf.RECORD_BATCH_OVERHEAD,
)
"""The smallest valid size, by magic."""
