"""How the transactions of a partition ended: learned once from batch headers, used by readers of its parts.

A part of a partition does not show which of its records are committed: the marker may come after it, and the
transaction may begin before it. `ReadCommitted` reads ahead, which suits a reader of the whole partition. If several
processes read parts of a partition, one of them learns the outcomes (`OutcomeLearner.learn`), and each part gets its
share (`Outcomes.between`), which is small enough to send.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits
from kafkalog.records.batch_table import BatchTable
from kafkalog.state.read_committed import (
    PLACE_BITS,
    CommittedWindow,
    ReadCommitted,
    ReplayWindow,
    unknown_outcome,
    wanted_rows,
)
from kafkalog.state.transactions import ENDED_DTYPE, OpenTransaction, rows_of_transactions


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes that a `read_committed` reader of a partition, or of a part of it, needs.

    Attributes
    ----------
    not_committed : ENDED_DTYPE[n]
        Transactions that were aborted, or whose outcome is unknown.
    causes : dict of int to Finding
        Why an outcome is unknown, by the place where the transaction began.
    end : OpenTransaction or None
        Reading ends where this transaction begins.
    findings : tuple of Finding
        Findings to report there.
    error : KafkalogError or None
        Error to raise there.
    is_by_offset : bool
        Whether batches are matched by offset instead of place: for readers that learned the outcomes earlier, since
        the cleaner may have rewritten segments in the meantime.

    Notes
    -----
    Places (see `TransactionReplay`) count from the first segment of the partition, or of the part.
    """

    not_committed: npt.NDArray[np.void] = field(default_factory=lambda: np.empty(0, ENDED_DTYPE))
    causes: dict[int, Finding] = field(default_factory=dict)
    end: OpenTransaction | None = None
    findings: tuple[Finding, ...] = ()
    error: KafkalogError | None = None
    is_by_offset: bool = False

    def between(self, begin: int, stop: int) -> Outcomes:
        """Return the outcomes that concern a part of the partition.

        Parameters
        ----------
        begin, stop : int
            Places of its first byte and of the byte after its last. Places in the result count from the segment of
            `begin`.
        """
        if self.is_by_offset:
            return self
        mine = self.not_committed[
            (self.not_committed["end_place"] > begin) & (self.not_committed["start_place"] < stop)
        ].copy()
        shift = begin >> PLACE_BITS << PLACE_BITS
        mine["start_place"] -= shift
        mine["end_place"] -= shift
        started = set(mine["start_place"].tolist())
        causes = {place - shift: cause for place, cause in self.causes.items() if place - shift in started}
        if self.end is None or self.end.place >= stop:
            return Outcomes(mine, causes)
        return Outcomes(mine, causes, self.end._replace(place=self.end.place - shift), self.findings, self.error)


class OutcomeLearner(ReadCommitted):
    """Learns the outcomes from batch headers; damage has the same effects as for a reader of the whole partition."""

    def learn(self, until_offset: int | None = None) -> Outcomes:
        """Learn the outcomes of all transactions, or of those that began before an offset.

        Raises
        ------
        LimitExceededError
            More transactions are open at once than `Limits.max_open_transactions`.
        ReadError
            A file cannot be read.
        """
        self._is_in_range = True
        try:
            while self._cut is None and (replay := self._next()) is not None:
                self._feed(replay)
                if until_offset is not None and self._last_offset >= until_offset - 1:
                    first = self._replay.first_unstable_offset
                    if first is None or first >= until_offset:
                        break
            else:
                self._resolve(2**63 - 1)
        finally:
            self.close()
        not_committed = np.concatenate([*self._not_committed, np.empty(0, ENDED_DTYPE)])
        return Outcomes(not_committed, dict(self._causes), self._cut, tuple(self._cut_findings), self._error)

    def feed_all(self) -> None:
        """Learn from the batches that were added to the log since the last call.

        Raises
        ------
        KafkalogError
            The outcome of a transaction cannot be determined.
        """
        self.close()
        self._is_in_range = True
        while self._cut is None and (replay := self._next()) is not None:
            self._feed(replay)
        self.close()
        if self._error is not None:
            raise self._error

    @property
    def first_open(self) -> OpenTransaction | None:
        """The open transaction that began first."""
        return self._replay.first_open

    def known(self) -> Outcomes:
        """The outcomes known so far, without those removed by `forget`, to be matched by offset."""
        return Outcomes(
            np.concatenate([*self._not_committed, np.empty(0, ENDED_DTYPE)]), dict(self._causes), is_by_offset=True
        )

    def forget(self, offset: int) -> None:
        """Remove transactions that ended below an offset."""
        not_committed = np.concatenate([*self._not_committed, np.empty(0, ENDED_DTYPE)])
        not_committed = not_committed[not_committed["last_offset"] >= offset]
        self._not_committed = [not_committed] if not_committed.size else []
        started = set(not_committed["start_place"].tolist())
        self._causes = {place: cause for place, cause in self._causes.items() if place in started}


class KnownOutcomes(ReadCommitted):
    """Selects the committed batches of a part's windows by outcomes learned before; nothing is read ahead.

    Parameters
    ----------
    outcomes : Outcomes
    check_crcs : bool
    limits : Limits
    """

    def __init__(self, outcomes: Outcomes, *, check_crcs: bool = True, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__([], _nothing, check_crcs=check_crcs, limits=limits)
        self._not_committed = [outcomes.not_committed] if outcomes.not_committed.size else []
        self._causes = dict(outcomes.causes)
        self._cut, self._error = outcomes.end, outcomes.error
        self._cut_findings = list(outcomes.findings)
        self._is_by_offset = outcomes.is_by_offset

    def select_committed(
        self, replay: ReplayWindow, start_offset: int | None = None, end_offset: int | None = None
    ) -> CommittedWindow:
        """Select the batches that a consumer gets; see `ReadCommitted.select_committed`."""
        batches = replay.window.batches
        first, n = wanted_rows(batches, start_offset, end_offset)
        if self._not_committed and rows_of_transactions(batches).size:
            # Damaged batches stay in, so that decoding reports the damage
            damaged = self._damaged_rows(replay.window, batches)
            if damaged.size:
                self._damaged.append(batches.position[damaged] + replay.place)
        return self._committed(replay, first, n)

    def _unwanted(
        self, batches: BatchTable, first: int, stop: int, place: int, findings: list[Finding]
    ) -> npt.NDArray[np.int64]:
        if not self._is_by_offset:
            return super()._unwanted(batches, first, stop, place, findings)
        damaged = np.concatenate([*self._damaged, np.empty(0, np.int64)])
        self._damaged = []
        rows = rows_of_transactions(batches[first:stop]) + first
        rows = rows[(batches.attributes[rows] & kf.CONTROL_BIT) == 0]
        rows = rows[~np.isin(batches.position[rows] + place, damaged)]
        if not self._not_committed or not rows.size:
            return np.empty(0, np.int64)
        offset, producer_id = batches.base_offset[rows], batches.producer_id[rows]
        (ranges,) = self._not_committed
        ranges = ranges[(ranges["last_offset"] >= offset.min()) & (ranges["first_offset"] <= offset.max())]
        unwanted = np.zeros(rows.size, np.bool_)
        for one in ranges:
            mine = (producer_id == one["producer_id"]) & (offset >= one["first_offset"]) & (offset < one["last_offset"])
            unwanted |= mine
            cause = self._causes.pop(int(one["start_place"]), None) if mine.any() else None
            if cause is not None:
                findings.append(unknown_outcome(int(one["producer_id"]), int(one["first_offset"]), cause))
        found: npt.NDArray[np.int64] = rows[unwanted]
        return found


def _nothing(place: int, previous_offset: int) -> Any:
    yield from ()
