"""Which batches of a partition a `read_committed` consumer gets, judged window by window as they are read.

A batch of a transaction is wanted if the next marker of its producer commits it; everything from the first transaction
on that has no marker is held back. So the headers are read ahead of the records, as far as the transactions of a window
are open and no farther; where there are no transactions, nothing is read twice. Memory: the transactions that are open
at once, and 48 bytes for each aborted one that ends while an earlier one is still open. Nothing here asks an index or a
snapshot. Mirrors what `TransactionIndex.collectAbortedTxns`, `UnifiedLog.lastStableOffset` and the consumer's
`CompletedFetch` do together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    Finding,
    KafkalogError,
    LimitExceededError,
    Limits,
    Reason,
    error_from_status,
)
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.state.producers import read_markers
from kafkalog.state.transactions import OpenTransaction, Outcome, TransactionReplay, rows_of_transactions

IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")

PLACE_BITS: Final = 32
"""A place in a partition is the number of a segment, shifted by so many bits, and a position in it."""


class ReplayWindow(NamedTuple):
    """A window of one of a partition's segments, on its way into a replay."""

    window: Window
    place: int
    """Of position 0 of its segment."""
    damage: Sequence[Finding] = ()
    """What was met, and passed over, right before it; that of the end of the log comes with a window of no batches."""


@dataclass(slots=True)
class CommittedWindow:
    """What is left of a window."""

    batches: BatchTable
    findings: list[Finding] = field(default_factory=list)
    is_end: bool = False
    """Nothing behind these is to be had."""
    error: KafkalogError | None = None
    """To be raised behind these."""


class ReadCommitted:
    """Judges the windows of a partition one after the other.

    Parameters
    ----------
    paths : sequence of str
        The segments, for messages.
    ahead : callable
        ``ahead(place, previous_offset)`` gives the windows of the partition from a place on, damage passed over.
    on_corruption : {"raise", "stop", "skip"}
    check_crcs : bool
        Whether batches have to have the checksum of their bytes to count.
    is_whole : bool
        Whether the log ends where the last segment does.
    limits : Limits

    Notes
    -----
    Where bytes are damaged, a marker may have been among them. The outcome of a transaction that is open there is not
    known unless the damage is one batch, larger than any marker, that fills the gap in the offsets by itself. Then
    ``raise`` raises; ``stop`` ends, like a broker's recovery, at the last stable offset of what lies before the damage;
    ``skip`` leaves out the transaction's records before the damage, says so in a finding, and does not hold back what
    follows. Damage where nothing is open changes nothing.
    """

    def __init__(
        self,
        paths: Sequence[str],
        ahead: Callable[[int, int], Generator[ReplayWindow]],
        *,
        on_corruption: str = "raise",
        check_crcs: bool = True,
        is_whole: bool = True,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._paths, self._open_ahead, self._is_whole = paths, ahead, is_whole
        self._on_corruption, self._check_crcs, self._limits = on_corruption, check_crcs, limits
        self._replay = TransactionReplay(limits=limits)
        self._place = 0
        self._last_offset = -1
        self._stream: Generator[ReplayWindow] | None = None
        self._stream_place = 0
        self._lost_at_end: Finding | None = None
        self._is_in_range = False
        self._not_committed: list[npt.NDArray[np.void]] = []
        self._causes: dict[int, Finding] = {}
        self._damaged: list[npt.NDArray[np.int64]] = []
        self._cut: OpenTransaction | None = None
        self._cut_findings: list[Finding] = []
        self._error: KafkalogError | None = None

    def close(self) -> None:
        """Give back what was read ahead."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def select_committed(
        self, replay: ReplayWindow, start_offset: int | None = None, end_offset: int | None = None
    ) -> CommittedWindow:
        """What a consumer gets of a window.

        Parameters
        ----------
        replay : ReplayWindow
            Behind that of the last call.
        start_offset, end_offset : int, optional
            What the batches outside are is of no interest; but what was open before those inside is.
        """
        batches = replay.window.batches
        first, n = wanted_rows(batches, start_offset, end_offset)
        begin = replay.place + int(batches.position[0])
        if self._is_behind(begin):
            self._catch_up(begin)
        if not self._is_in_range:
            self._feed(replay._replace(window=replay.window._replace(batches=batches[:first])))
            self._is_in_range = first < n
        self._feed(replay)
        if first < n:
            self._resolve(replay.place + int(batches.next_position[n - 1]))
        return self._committed(replay, first, n)

    def _committed(self, replay: ReplayWindow, first: int, n: int) -> CommittedWindow:
        """What is left of the rows up to `n`, of which those from `first` on are of interest."""
        batches = replay.window.batches
        committed = CommittedWindow(batches)
        if first < n and self._cut is not None:
            n_stable = max(int(np.searchsorted(batches.position, self._cut.place - replay.place)), 0)
            committed.is_end = n_stable < n
            n = min(n, n_stable)
        unwanted = self._unwanted(batches, first, n, replay.place, committed.findings)
        if unwanted.size or n < len(batches):
            mask = np.zeros(len(batches), np.bool_)
            mask[:n] = True
            mask[unwanted] = False
            committed.batches = batches[mask]
        if committed.is_end:
            committed.findings += self._cut_findings
            committed.error = self._error
        return committed

    def replay(self, until_offset: int | None = None) -> tuple[list[npt.NDArray[np.void]], OpenTransaction | None]:
        """All that is aborted, and the first open transaction, by headers alone.

        Parameters
        ----------
        until_offset : int, optional
            Stop once all transactions that began before this offset have ended.

        Returns
        -------
        list of ENDED_DTYPE[k], OpenTransaction or None

        Raises
        ------
        KafkalogError
            It cannot be known.
        """
        aborted: list[npt.NDArray[np.void]] = []
        self._is_in_range = True
        while self._cut is None and (replay := self._next()) is not None:
            self._feed(replay)
            aborted += self._not_committed
            self._not_committed = []
            if until_offset is not None and self._last_offset >= until_offset - 1:
                first = self._replay.first_unstable_offset
                if first is None or first >= until_offset:
                    break
        else:
            self._end_is_uncertain()
        if self._error is not None:
            raise self._error
        return aborted, self._replay.first_open

    # ------------------------------------------------------------------------------------------------ reading ahead

    def _next(self) -> ReplayWindow | None:
        """The replay behind what was fed; None at the end of the log."""
        if self._stream is None or self._stream_place != self._place:
            self.close()
            self._stream = self._open_ahead(self._place, self._last_offset)
        replay = next(self._stream, None)
        if replay is not None and not len(replay.window.batches):
            self._lost_at_end = next(filter(_passes_over, replay.damage), None)
            return None
        if replay is not None:
            self._stream_place = replay.place + int(replay.window.batches.next_position[-1])
        return replay

    def _is_behind(self, begin: int) -> bool:
        """Whether segments, or the first part of one, were left out; a gap within one is damage, which was met."""
        if self._place == 0:
            return begin > 0
        return begin >> PLACE_BITS > (self._place >> PLACE_BITS) + 1

    def _catch_up(self, begin: int) -> None:
        """Learn what happened in batches that are not read."""
        while self._cut is None and self._place < begin and (replay := self._next()) is not None:
            batches = replay.window.batches
            n = int(np.searchsorted(batches.position, begin - replay.place))
            if n:
                self._feed(replay._replace(window=replay.window._replace(batches=batches[:n])))
            if n < len(batches):
                break

    def _resolve(self, until: int) -> None:
        """Read ahead until what began before a place has ended, or the log has."""
        while self._cut is None and (first := self._replay.first_open) is not None and first.place < until:
            replay = self._next()
            if replay is not None:
                self._feed(replay)
                continue
            if self._end_is_uncertain():
                continue
            self._cut = first
            detail = f"the transaction of producer {first.producer_id} from offset {first.first_offset} on is open"
            path, position = self._where(first.place)
            self._cut_findings = [
                Finding(
                    Reason.OPEN_TRANSACTION,
                    f"{detail}: read_committed ends here" + ("" if self._is_whole else _IS_PART),
                    path=path,
                    position=position,
                    base_offset=first.first_offset,
                    damage=False,
                )
            ]

    def _end_is_uncertain(self) -> bool:
        """At the end of the log, whether markers may have been lost behind what was read."""
        if self._lost_at_end is None or self._replay.first_open is None:
            return False
        self._doubt(self._lost_at_end, self._last_offset + 1, self._place)
        return True

    def _where(self, place: int) -> tuple[str, int]:
        return self._paths[place >> PLACE_BITS], place & (1 << PLACE_BITS) - 1

    # ------------------------------------------------------------------------------------------------------ feeding

    def _feed(self, replay: ReplayWindow) -> None:
        """Replay those batches of a replay that were not replayed before."""
        batches = replay.window.batches
        first = int(np.searchsorted(batches.position, self._place - replay.place))
        if first == len(batches) or self._cut is not None:
            return
        if first:
            batches = batches[first:]
        rows = rows_of_transactions(batches)
        if rows.size or len(self._replay):
            damage = [] if first else [finding for finding in replay.damage if _passes_over(finding)]
            try:
                self._replay_rows(replay, batches, rows, damage)
            except LimitExceededError as error:
                error.path, _ = self._where(replay.place)
                raise
        self._last_offset = int(batches.last_offset[-1])
        self._place = replay.place + int(batches.next_position[-1])

    def _replay_rows(
        self, replay: ReplayWindow, batches: BatchTable, rows: npt.NDArray[np.int64], damage: list[Finding]
    ) -> None:
        damaged = self._damaged_rows(replay.window, batches)
        place = batches.position + replay.place
        if damaged.size:
            self._damaged.append(place[damaged])
            rows = rows[~np.isin(rows, damaged)]
        batches = self._with_control_types(replay.window, batches, rows)
        causes = self._causes_of_doubt(replay, batches, damaged, damage)
        done = 0
        for row, cause in [*sorted(causes.items()), (len(batches), None)]:
            part = rows[np.searchsorted(rows, done) : np.searchsorted(rows, row)]
            if part.size:
                self._keep(self._replay.update(batches, place, rows=part))
            if cause is not None and len(self._replay):
                self._doubt(cause, int(batches.base_offset[row]), int(place[row]))
            if self._cut is not None:
                return
            done = row

    def _damaged_rows(self, window: Window, batches: BatchTable) -> npt.NDArray[np.int64]:
        if not self._check_crcs:
            return np.empty(0, np.int64)
        return np.flatnonzero(~valid_crcs(window, batches))

    def _with_control_types(self, window: Window, batches: BatchTable, rows: npt.NDArray[np.int64]) -> BatchTable:
        """The same, with the types of compressed control batches, which nobody writes and everybody would read."""
        hidden = rows[(batches.control_type[rows] == kf.NO_CONTROL_RECORD) & (batches.codec[rows] != 0)]
        if not hidden.size:
            return batches
        kinds = batches.control_type.copy()
        kinds[hidden] = read_markers(window, batches, hidden, limits=self._limits).control_type
        return replace(batches, control_type=kinds)

    def _causes_of_doubt(
        self, replay: ReplayWindow, batches: BatchTable, damaged: npt.NDArray[np.int64], damage: list[Finding]
    ) -> dict[int, Finding]:
        """Rows at or right before which a marker may have been lost, and what was found there."""
        causes: dict[int, Finding] = {}
        all_of_it = self._on_corruption == "stop" and self._is_in_range
        if damaged.size:
            before = np.concatenate([[self._last_offset], batches.last_offset[:-1]])
            after = np.concatenate([batches.base_offset[1:], batches.last_offset[-1:] + 1])
            fills = (batches.base_offset == before + 1) & (after == batches.last_offset + 1)
            fills &= batches.size_in_bytes > _MAX_MARKER_BYTES
            path, _ = self._where(replay.place)
            for row in damaged.tolist() if all_of_it else damaged[~fills[damaged]].tolist():
                causes[row] = error_from_status(
                    STATUS["CRC_MISMATCH"],
                    path=path,
                    position=int(batches.position[row]),
                    base_offset=int(batches.base_offset[row]),
                    length=int(batches.size_in_bytes[row]),
                ).to_finding()
        if damage and (all_of_it or batches.base_offset[0] != self._last_offset + 1):
            causes[0] = damage[0]
        return causes

    # ----------------------------------------------------------------------------------------------------- outcomes

    def _keep(self, ended: npt.NDArray[np.void]) -> None:
        """Remember what is not committed."""
        not_committed = ended[ended["outcome"] != Outcome.COMMITTED]
        for one in not_committed[not_committed["outcome"] == Outcome.UNKNOWN]:
            path, position = self._where(int(one["end_place"]))
            cause = Finding(
                Reason.CONTROL_RECORD,
                "the marker is neither a commit nor an abort",
                path=path,
                position=position,
                base_offset=int(one["last_offset"]),
            )
            begun = OpenTransaction(int(one["producer_id"]), int(one["first_offset"]), int(one["start_place"]))
            if self._goes_on:
                self._causes[begun.place] = cause
            elif self._cut is None or begun.place < self._cut.place:
                first = self._replay.first_open
                self._end_at(begun if first is None or begun.place < first.place else first, cause)
        if not_committed.size and self._is_in_range:
            self._not_committed.append(not_committed)

    def _doubt(self, cause: Finding, offset: int, place: int) -> None:
        """A marker may have been lost here."""
        if self._goes_on:
            given_up = self._replay.give_up(offset, place)
            if self._is_in_range:
                self._not_committed.append(given_up)
                self._causes.update(dict.fromkeys(given_up["start_place"].tolist(), cause))
        elif (first := self._replay.first_open) is not None:
            self._end_at(first, cause)

    @property
    def _goes_on(self) -> bool:
        return self._on_corruption == "skip" or (self._on_corruption == "stop" and not self._is_in_range)

    def _end_at(self, transaction: OpenTransaction, cause: Finding) -> None:
        """Nothing from a transaction on is to be had."""
        self._cut = transaction
        if self._on_corruption == "stop":
            self._cut_findings = [cause, unknown_outcome(transaction.producer_id, transaction.first_offset, cause)]
        else:
            self._error = CorruptionError(
                cause.reason,
                f"{cause.detail} (and {_doubt_about(transaction.producer_id, transaction.first_offset)})",
                path=cause.path,
                position=cause.position,
                base_offset=cause.base_offset,
                length=cause.length,
            )

    def _unwanted(
        self, batches: BatchTable, first: int, stop: int, place: int, findings: list[Finding]
    ) -> npt.NDArray[np.int64]:
        """Rows, out of some, whose transactions are aborted or of unknown outcome; damaged ones are not judged."""
        if first >= stop:
            return np.empty(0, np.int64)
        begin, end = place + int(batches.position[0]), place + int(batches.next_position[stop - 1])
        damaged = np.concatenate([*self._damaged, np.empty(0, np.int64)])
        damaged = damaged[damaged >= begin]
        self._damaged = [damaged] if damaged.size else []
        if not self._not_committed:
            return np.empty(0, np.int64)
        ranges = np.concatenate(self._not_committed)
        ranges = ranges[ranges["end_place"] > begin]
        self._not_committed = [ranges] if ranges.size else []
        ranges = ranges[ranges["start_place"] < end]
        rows = rows_of_transactions(batches[first:stop]) + first
        rows = rows[(batches.attributes[rows] & kf.CONTROL_BIT) == 0]
        rows = rows[~np.isin(batches.position[rows] + place, damaged)]
        if not ranges.size or not rows.size:
            return np.empty(0, np.int64)
        producer_ids = np.unique(ranges["producer_id"])
        number = np.minimum(np.searchsorted(producer_ids, batches.producer_id[rows]), producer_ids.size - 1)
        known = producer_ids[number] == batches.producer_id[rows]
        rows, number = rows[known], number[known]
        # one number for producer and place: transactions of a producer do not overlap
        starts = np.clip(ranges["start_place"] - begin, 0, None)
        starts |= np.searchsorted(producer_ids, ranges["producer_id"]) << PLACE_BITS
        order = np.argsort(starts)
        at = batches.position[rows] + (place - begin)
        within = np.searchsorted(starts[order], at | number << PLACE_BITS, side="right") - 1
        candidate = ranges[order[within]]
        is_in = (within >= 0) & (candidate["producer_id"] == batches.producer_id[rows])
        is_in &= candidate["end_place"] > at + begin
        if self._causes:
            met = candidate[is_in & (candidate["outcome"] == Outcome.UNKNOWN)]
            _, at_first = np.unique(met["start_place"], return_index=True)
            for one in met[at_first]:
                cause = self._causes.pop(int(one["start_place"]), None)
                if cause is not None:
                    findings.append(unknown_outcome(int(one["producer_id"]), int(one["first_offset"]), cause))
        unwanted: npt.NDArray[np.int64] = rows[is_in]
        return unwanted


_IS_PART = "; its end may lie in a later segment: read the partition's directory for what was committed"


def wanted_rows(batches: BatchTable, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    """The first row and the one behind the last that may have offsets of a range; equal for none."""
    first, stop = 0, len(batches)
    if end_offset is not None:
        before = np.flatnonzero(batches.base_offset < end_offset)
        stop = int(before[-1]) + 1 if before.size else 0
    if start_offset is not None:
        behind = np.flatnonzero(batches.last_offset >= start_offset)
        first = int(behind[0]) if behind.size else stop
    return min(first, stop), stop


def _passes_over(finding: Finding) -> bool:
    """Whether records were not read, rather than a batch read in spite of its odd offset, or given already."""
    return finding.damage and finding.n_records != 0


def unknown_outcome(producer_id: int, first_offset: int, cause: Finding) -> Finding:
    """What is to be said of a transaction whose outcome cannot be known."""
    why = cause.reason.value + (f": {cause.detail}" if cause.detail else "")
    detail = f"{_doubt_about(producer_id, first_offset)} ({why})"
    return replace(cause, reason=Reason.TRANSACTION_OUTCOME, detail=detail)


def _doubt_about(producer_id: int, first_offset: int) -> str:
    return (
        f"whether producer {producer_id} committed its transaction from offset {first_offset} on is not known: "
        "its marker may have been here"
    )


_MAX_MARKER_BYTES: Final = 128
"""More than any marker has: 78 bytes as written, up to 87 once the cleaner gave it a delete horizon."""
