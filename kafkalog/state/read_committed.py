"""Select the batches of a partition that a `read_committed` consumer gets, window by window as they are read.

A transactional batch is committed if the next marker of its producer is a commit. From the first transaction without a
marker on, everything is held back. So headers are read ahead of the records, but only until the transactions of a
window have ended; without transactions, nothing is read twice. Memory: the transactions that are open at once, and 48
bytes for each aborted one that ends while an earlier one is still open. No index or snapshot is used. Mirrors the
combination of `TransactionIndex.collectAbortedTxns`, `UnifiedLog.lastStableOffset` and the consumer's `CompletedFetch`.
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
"""A place in a partition is the number of a segment, shifted left by this many bits, plus a position in the segment."""


class ReplayWindow(NamedTuple):
    """A window of one of a partition's segments, to be replayed."""

    window: Window
    place: int
    """Place of position 0 of its segment."""
    damage: Sequence[Finding] = ()
    """Damage that was skipped right before it. Damage at the end of the log comes with a window without batches."""


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
    """Selects the committed batches of a partition's windows, given one after the other.

    Parameters
    ----------
    paths : sequence of str
        The segments, for messages.
    ahead : callable
        ``ahead(place, previous_offset)`` yields the windows of the partition from a place on, and skips damage.
    on_corruption : {"raise", "stop", "skip"}
    check_crcs : bool
        Whether batches with a wrong checksum count as damaged.
    is_whole : bool
        Whether the log ends where the last segment does.
    limits : Limits

    Notes
    -----
    Damaged bytes may have contained a marker. So the outcome of a transaction that is open there is unknown, unless the
    damage is one batch that is larger than any marker and fills the gap in the offsets by itself. If an outcome is
    unknown, ``raise`` raises; ``stop`` ends, like a broker's recovery, at the last stable offset of the log before the
    damage; ``skip`` leaves out the transaction's records before the damage, adds a finding, and does not hold back the
    records after it. Damage where no transaction is open has no effect.
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
        self._is_in_range = False  # before the first batch of interest, outcomes need not be kept
        self._not_committed: list[npt.NDArray[np.void]] = []
        self._causes: dict[int, Finding] = {}
        self._damaged: list[npt.NDArray[np.int64]] = []
        self._cut: OpenTransaction | None = None
        self._cut_findings: list[Finding] = []
        self._error: KafkalogError | None = None

    def close(self) -> None:
        """Close the stream of windows that were read ahead."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def select_committed(
        self, replay: ReplayWindow, start_offset: int | None = None, end_offset: int | None = None
    ) -> CommittedWindow:
        """Select the batches of a window that a consumer gets.

        Parameters
        ----------
        replay : ReplayWindow
            A window after that of the last call.
        start_offset, end_offset : int, optional
            Range of offsets of interest. Batches before it are still replayed, to know which transactions are open.
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
        """Select among the rows up to `n`, of which those from `first` on are of interest."""
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
        """Return the aborted transactions and the first open one, read from headers alone.

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
            The outcome of a transaction cannot be determined.
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
        """Read the next window after those replayed; None at the end of the log."""
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
        """Whether batches before this window were skipped: the start of the log, or whole segments.

        A gap within a segment, or from one to the next, is damage, and comes with the window.
        """
        if self._place == 0:
            return begin > 0
        return begin >> PLACE_BITS > (self._place >> PLACE_BITS) + 1

    def _catch_up(self, begin: int) -> None:
        """Replay the headers of batches that the caller skipped."""
        while self._cut is None and self._place < begin and (replay := self._next()) is not None:
            batches = replay.window.batches
            n = int(np.searchsorted(batches.position, begin - replay.place))
            if n:
                self._feed(replay._replace(window=replay.window._replace(batches=batches[:n])))
            if n < len(batches):
                break

    def _resolve(self, until: int) -> None:
        """Read ahead until all transactions that began before a place have ended, or to the end of the log."""
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
        """Whether damage at the end of the log may have contained markers of open transactions; if so, handles it."""
        if self._lost_at_end is None or self._replay.first_open is None:
            return False
        self._doubt(self._lost_at_end, self._last_offset + 1, self._place)
        return True

    def _where(self, place: int) -> tuple[str, int]:
        return self._paths[place >> PLACE_BITS], place & (1 << PLACE_BITS) - 1

    # ------------------------------------------------------------------------------------------------------ feeding

    def _feed(self, replay: ReplayWindow) -> None:
        """Replay the batches of a window that were not read ahead and replayed before."""
        batches = replay.window.batches
        first = int(np.searchsorted(batches.position, self._place - replay.place))
        if first == len(batches) or self._cut is not None:
            return
        if first:
            batches = batches[first:]
        rows = rows_of_transactions(batches)
        if rows.size or len(self._replay):
            # if the first batches were read ahead, the damage before them was handled then
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
        """Return the batches with `control_type` filled in for compressed control batches.

        No known writer compresses control batches, but Kafka's readers accept them.
        """
        hidden = rows[(batches.control_type[rows] == kf.NO_CONTROL_RECORD) & (batches.codec[rows] != 0)]
        if not hidden.size:
            return batches
        kinds = batches.control_type.copy()
        kinds[hidden] = read_markers(window, batches, hidden, limits=self._limits).control_type
        return replace(batches, control_type=kinds)

    def _causes_of_doubt(
        self, replay: ReplayWindow, batches: BatchTable, damaged: npt.NDArray[np.int64], damage: list[Finding]
    ) -> dict[int, Finding]:
        """Rows at or right before which a marker may have been lost, each with the finding about the damage."""
        causes: dict[int, Finding] = {}
        all_of_it = self._on_corruption == "stop" and self._is_in_range
        if damaged.size:
            # A damaged batch that is larger than a marker and fills the gap in the offsets leaves no room for a lost
            # marker. With "stop" any damage ends reading, so all of it counts
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
        """Keep the transactions that were not committed; ends reading at one whose outcome is unknown, or skips it."""
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
        """Handle damage that may have contained a marker: give the open transactions up, or end at the first one."""
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
        """End reading where a transaction begins, with findings (`stop`) or an error (`raise`)."""
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
        """Rows from `first` to `stop` whose transactions are aborted or of unknown outcome, without damaged batches."""
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
        # Producer and place in one number, for one binary search: transactions of a producer do not overlap
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
    """Row range (first, stop) of the batches that may have offsets in a range; first equals stop if there are none."""
    first, stop = 0, len(batches)
    if end_offset is not None:
        before = np.flatnonzero(batches.base_offset < end_offset)
        stop = int(before[-1]) + 1 if before.size else 0
    if start_offset is not None:
        behind = np.flatnonzero(batches.last_offset >= start_offset)
        first = int(behind[0]) if behind.size else stop
    return min(first, stop), stop


def _passes_over(finding: Finding) -> bool:
    """Whether damage caused records to be skipped; false for a batch read in spite of its offset, or read before."""
    return finding.damage and finding.n_records != 0


def unknown_outcome(producer_id: int, first_offset: int, cause: Finding) -> Finding:
    """Return the finding about a transaction whose outcome is unknown."""
    why = cause.reason.value + (f": {cause.detail}" if cause.detail else "")
    detail = f"{_doubt_about(producer_id, first_offset)} ({why})"
    return replace(cause, reason=Reason.TRANSACTION_OUTCOME, detail=detail)


def _doubt_about(producer_id: int, first_offset: int) -> str:
    return (
        f"whether producer {producer_id} committed its transaction from offset {first_offset} on is not known: "
        "its marker may have been here"
    )


_MAX_MARKER_BYTES: Final = 128
"""More than the size of any marker: 78 bytes as written, up to 87 once the cleaner has added a delete horizon."""
