"""Replays the producers of recovered segments: yields producer snapshots and aborted transactions.

Mirrors what `LogLoader.recoverSegment` and `UnifiedLog.rebuildProducerState` do around each segment: the state is
loaded from the newest snapshot, and new snapshots are taken at the segment's base offset and at its end. A broker drops
idle producers when it loads a snapshot; this module does so only for a given time. It does not read or write files.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.state.producers import PRODUCER_ID_EXPIRATION_MS, ProducerSnapshot, ProducerState
from kafkalog.state.transactions import ENDED_DTYPE, aborted_entries


class ProducerReplay:
    """Replays recovered segments, which must come in order, and collects producer snapshots.

    Snapshots at or below `log_start_offset` are dropped. Producers expire by `now_ms`, the broker's clock; None: never.
    `newest` is the state before the first segment. `snapshots` has entries (PRODUCER_SNAPSHOT_DTYPE) by end offset.
    """

    def __init__(
        self,
        log_start_offset: int,
        *,
        now_ms: int | None = None,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        newest: ProducerSnapshot | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.snapshots: dict[int, npt.NDArray[np.void]] = {}
        self._log_start_offset, self._now, self._expiration = log_start_offset, now_ms, expiration_ms
        self._newest, self._limits = newest, limits
        self._end: tuple[int, ProducerState] | None = None
        self._was_recovered = True

    def feed(self, found: RecoveredSegment, *, is_recovered: bool = True) -> npt.NDArray[np.void]:
        """Replay a segment, and return the entries of its `.txnindex` (TRANSACTION_INDEX_DTYPE).

        `is_recovered` is False for a segment that a broker only replays on the way to a later one.
        """
        base = found.segment.base_offset
        # loaded again for each segment, as a broker does: it forgets producers that have expired by then
        is_carried = self._end is not None and not self._was_recovered and self._end[0] <= base
        # a broker does not replay what lies before the log start offset
        if is_carried and (base > self._log_start_offset or not is_recovered):
            assert self._end is not None
            state, last_snapshot = self._end[1], max(self.snapshots, default=self._log_start_offset)
        else:
            state, last_snapshot = self._load(base)
        self._was_recovered = is_recovered
        if base > last_snapshot:
            last_snapshot = self._take(base, state)
        ended = [np.empty(0, ENDED_DTYPE)]
        for batches, coordinator_epoch in found.replay:
            if not is_recovered and len(batches) and batches.last_offset[0] < self._log_start_offset:
                is_left = batches.last_offset >= self._log_start_offset
                batches, coordinator_epoch = batches[is_left], coordinator_epoch[is_left]
            # offsets, not positions: a transaction may have begun in an earlier segment
            ended.append(state.update(batches, log_position=batches.base_offset, coordinator_epoch=coordinator_epoch))
        if found.map_end_offset > last_snapshot:
            self._take(found.map_end_offset, state)
        self._end = found.map_end_offset, state
        return aborted_entries(np.concatenate(ended))

    def finish(self, base_offsets: list[int], log_end_offset: int) -> dict[int, npt.NDArray[np.void]]:
        """The snapshots that remain after a broker loaded the log: at base offsets and at the log end offset.

        Of the snapshots that are at no base offset, a broker keeps only the last one, and only above all base offsets.
        """
        kept = {offset: entries for offset, entries in self.snapshots.items() if offset <= log_end_offset}
        strays = sorted(offset for offset in kept if offset not in base_offsets)
        largest_base = max(base_offsets, default=0)
        for offset in strays:
            if offset != strays[-1] or offset < largest_base:
                del kept[offset]
        self.snapshots = {offset: entries for offset, entries in kept.items() if offset > self._log_start_offset}
        if log_end_offset:
            state, last_snapshot = self._load(log_end_offset)
            if log_end_offset > last_snapshot:
                self._take(log_end_offset, state)
        return self.snapshots

    def _load(self, offset: int) -> tuple[ProducerState, int]:
        """The state of the newest snapshot at or below an offset, and the snapshot's offset."""
        usable = [at for at in self.snapshots if self._log_start_offset < at <= offset]
        if self._end is not None and self._end[0] > offset not in usable:
            # the segment before claims to end after it: a broker drops that snapshot, and replays the segment again
            self.snapshots.pop(self._end[0], None)
            return self._end[1], max(usable, default=self._log_start_offset)
        snapshot = ProducerSnapshot(max(usable), self.snapshots[max(usable)]) if usable else self._newest
        if not offset or snapshot is None:
            return ProducerState(limits=self._limits), self._log_start_offset if offset else 0
        loaded = ProducerState(snapshot, now_ms=self._now, expiration_ms=self._expiration, limits=self._limits)
        return loaded, snapshot.end_offset or 0

    def _take(self, offset: int, state: ProducerState) -> int:
        self.snapshots[offset] = state.entries()
        return offset
