"""Select the batches of a partition that a `read_committed` consumer gets, window by window as they are read.

From the first transaction without a marker on, everything is held back. How transactions ended is learned on the way
(`OutcomeLearner`), or was learned before. Mirrors the consumer's `CompletedFetch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError
from kafkalog.records.batch_table import BatchTable, valid_crcs
from kafkalog.state.outcomes import POSITION_BITS, ReplayWindow, TransactionOutcomes
from kafkalog.state.transaction_outcomes import OutcomeLearner, unknown_outcome
from kafkalog.state.transactions import Outcome, rows_of_transactions

IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


@dataclass(slots=True)
class CommittedWindow:
    """The batches of a window that a consumer gets."""

    batches: BatchTable
    findings: list[Finding] = field(default_factory=list)
    is_end: bool = False
    """Whether reading ends after these batches."""
    error: KafkalogError | None = None
    """Error to raise after these batches."""


class ReadCommitted:
    """Selects the committed batches of a partition's windows, fed one after another.

    With a learner, headers are read ahead of the windows as far as needed; with outcomes that were learned before,
    nothing is. With `check_crcs`, batches with a wrong checksum stay in, so that decoding reports them.
    """

    def __init__(self, outcomes: OutcomeLearner | TransactionOutcomes, *, check_crcs: bool = True) -> None:
        self._learner = outcomes if isinstance(outcomes, OutcomeLearner) else None
        self._known = outcomes.copy() if isinstance(outcomes, TransactionOutcomes) else outcomes.outcomes
        self._damaged = [] if isinstance(outcomes, TransactionOutcomes) else outcomes.damaged
        self._check_crcs = check_crcs

    def close(self) -> None:
        """Close files opened to read ahead."""
        if self._learner is not None:
            self._learner.close()

    def select_committed(
        self, replay: ReplayWindow, start_offset: int | None = None, end_offset: int | None = None
    ) -> CommittedWindow:
        """Select the batches of a window, after that of the last call, that a consumer gets.

        Batches before the range of offsets of interest are still replayed, to know which transactions are open.
        """
        batches = replay.window.batches
        first, n = _wanted_rows(batches, start_offset, end_offset)
        if self._learner is not None:
            self._learner.follow(replay, first, n)
        elif self._check_crcs and self._known.not_committed.size and rows_of_transactions(batches).size:
            damaged = np.flatnonzero(~valid_crcs(replay.window, batches))
            self._damaged.append(batches.position[damaged] + replay.segment_start)
        return self._committed(replay, first, n)

    def _committed(self, replay: ReplayWindow, first: int, n: int) -> CommittedWindow:
        """Select among the rows up to `n`, of which those from `first` on are of interest."""
        batches = replay.window.batches
        committed = CommittedWindow(batches)
        if first < n and self._known.end is not None:
            end = self._known.end.log_position - replay.segment_start
            n_stable = int(np.searchsorted(batches.position, end))
            committed.is_end = n_stable < n
            n = min(n, n_stable)
        unwanted = self._unwanted(batches, first, n, replay.segment_start, committed.findings)
        if self._known.notes and n:
            committed.findings += self._known.notes_before(replay.segment_start + int(batches.next_position[n - 1]))
        if unwanted.size or n < len(batches):
            mask = np.zeros(len(batches), np.bool_)
            mask[:n] = True
            mask[unwanted] = False
            committed.batches = batches[mask]
        if committed.is_end:
            committed.findings += self._known.findings
            committed.error = self._known.error
        return committed

    def _unwanted(
        self, batches: BatchTable, first: int, stop: int, log_position: int, findings: list[Finding]
    ) -> npt.NDArray[np.int64]:
        """Rows from `first` to `stop` whose transactions are aborted or of unknown outcome, without damaged batches."""
        if first >= stop:
            return np.empty(0, np.int64)
        begin, end = log_position + int(batches.position[0]), log_position + int(batches.next_position[stop - 1])
        damaged = np.concatenate([*self._damaged, np.empty(0, np.int64)])
        damaged = damaged[damaged >= begin]
        self._damaged[:] = [damaged] if damaged.size else []
        ranges = self._known.not_committed
        if not self._known.is_by_offset:
            # transactions that ended before this window do not affect later ones
            ranges = ranges[ranges["end_position"] > begin]
            self._known.parts[:] = [ranges] if ranges.size else []
            ranges = ranges[ranges["start_position"] < end]
        if not ranges.size:
            return np.empty(0, np.int64)
        rows = rows_of_transactions(batches[first:stop]) + first
        rows = rows[(batches.attributes[rows] & kf.CONTROL_BIT) == 0]
        # keep damaged batches: their header may be wrong, and decoding reports them
        rows = rows[~np.isin(batches.position[rows] + log_position, damaged)]
        if not rows.size:
            return np.empty(0, np.int64)
        find = _in_ranges_by_offset if self._known.is_by_offset else _in_ranges
        is_in, met = find(ranges, batches, rows, log_position, begin)
        if self._known.causes:
            met = met[met["outcome"] == Outcome.UNKNOWN]
            _, at_first = np.unique(met["start_position"], return_index=True)
            for one in met[at_first]:
                # each unknown outcome is reported once, where its first batch is left out
                cause = self._known.causes.pop(int(one["start_position"]), None)
                if cause is not None:
                    findings.append(unknown_outcome(int(one["producer_id"]), int(one["first_offset"]), cause))
        unwanted: npt.NDArray[np.int64] = rows[is_in]
        return unwanted


def _in_ranges(
    ranges: npt.NDArray[np.void], batches: BatchTable, rows: npt.NDArray[np.int64], log_position: int, begin: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.void]]:
    """Whether each row belongs to one of the transactions, by position, and the transactions that have rows."""
    producer_ids = np.unique(ranges["producer_id"])
    number = np.minimum(np.searchsorted(producer_ids, batches.producer_id[rows]), producer_ids.size - 1)
    # Producer and position in one number, for one binary search: transactions of a producer do not overlap
    starts = np.clip(ranges["start_position"] - begin, 0, None)
    starts |= np.searchsorted(producer_ids, ranges["producer_id"]) << POSITION_BITS
    order = np.argsort(starts)
    at = batches.position[rows] + (log_position - begin)
    within = np.searchsorted(starts[order], at | number << POSITION_BITS, side="right") - 1
    candidate = ranges[order[within]]
    is_in = (within >= 0) & (candidate["producer_id"] == batches.producer_id[rows])
    is_in &= candidate["end_position"] > at + begin
    return is_in, candidate[is_in]


def _in_ranges_by_offset(
    ranges: npt.NDArray[np.void], batches: BatchTable, rows: npt.NDArray[np.int64], log_position: int, begin: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.void]]:
    """Like `_in_ranges`, where offsets tell which transaction a batch belongs to."""
    offset, producer_id = batches.base_offset[rows], batches.producer_id[rows]
    ranges = ranges[(ranges["last_offset"] >= offset.min()) & (ranges["first_offset"] <= offset.max())]
    is_in = np.zeros(rows.size, np.bool_)
    has_rows = np.zeros(ranges.size, np.bool_)
    for number, one in enumerate(ranges):
        mine = (producer_id == one["producer_id"]) & (offset >= one["first_offset"]) & (offset < one["last_offset"])
        is_in |= mine
        has_rows[number] = mine.any()
    return is_in, ranges[has_rows]


def _wanted_rows(batches: BatchTable, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    """Row range (first, stop) of the batches that may have offsets in a range; first equals stop if there are none."""
    first, stop = 0, len(batches)
    if end_offset is not None:
        before = np.flatnonzero(batches.base_offset < end_offset)
        stop = int(before[-1]) + 1 if before.size else 0
    if start_offset is not None:
        behind = np.flatnonzero(batches.last_offset >= start_offset)
        first = int(behind[0]) if behind.size else stop
    return min(first, stop), stop
