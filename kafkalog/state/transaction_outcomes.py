"""How the transactions of a partition ended, learned from batch headers that are read ahead of the records.

A transactional batch is committed if the next marker of its producer is a commit. The marker may come much later than
the batch, so headers are read ahead, but only until the transactions of a window have ended; without transactions,
nothing is read twice. Memory: the transactions that are open at once, and 48 bytes for each aborted one that ends while
an earlier one is still open. No index or snapshot is used.

A part of a partition does not show how its transactions ended. If several processes read parts of a partition, one of
them learns the outcomes (`OutcomeLearner.learn`), and each part gets its share (`TransactionOutcomes.between`), which
is small enough to send. Mirrors the combination of `TransactionIndex.collectAbortedTxns` and
`UnifiedLog.lastStableOffset`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Finding, LimitExceededError, Limits, Reason
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.spans import batch_error
from kafkalog.state.outcomes import POSITION_BITS, Reached, ReplayWindow, TransactionOutcomes
from kafkalog.state.producers import read_markers
from kafkalog.state.transactions import (
    Outcome,
    TransactionEpochs,
    TransactionReplay,
    UnendedTransaction,
    rows_of_transactions,
)


class _DamagedEnd(NamedTuple):
    """The last batch of a window, if it is damaged, and nothing says yet whether a marker may have been there."""

    cause: Finding
    offset: int
    log_position: int


class OutcomeLearner:
    """Learns how transactions ended from the batch headers of a partition, whose segments are `paths`.

    ``ahead(reached)`` yields the windows of the partition after the position reached, and skips damage. `is_whole` is
    whether the log ends where the last segment does. `indexed` returns the entries of the transaction index of a
    segment, by its number. `outcomes` has everything known so far, and `damaged` the log positions of batches with a
    wrong checksum, which are left to the decoder to report.

    Damaged bytes may have contained a marker. So the outcome of a transaction that is open there is unknown, unless the
    damage is one batch that is larger than any marker and fills the gap in the offsets by itself. If an outcome is
    unknown, ``raise`` raises; ``stop`` ends, like a broker's recovery, at the last stable offset of the log before the
    damage; ``skip`` leaves out the transaction's records before the damage, adds a finding, and does not hold back the
    records after it. Damage where no transaction is open has no effect.

    A transaction without its abort marker, which cleaners of some releases leave, continues in the next one of its
    producer. If the transaction index has the abort, its records are left out, with a note. Where only the producer
    epoch tells, there is only a note, since consumers get the records.
    """

    def __init__(
        self,
        paths: Sequence[str],
        ahead: Callable[[Reached], Generator[ReplayWindow]],
        *,
        on_corruption: str = "raise",
        check_crcs: bool = True,
        is_whole: bool = True,
        indexed: Callable[[int], npt.NDArray[np.void]] = lambda number: _NO_ENTRIES,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._paths, self._open_ahead, self._is_whole = paths, ahead, is_whole
        self._on_corruption, self._check_crcs, self._limits = on_corruption, check_crcs, limits
        self.outcomes = TransactionOutcomes()
        self.damaged: list[npt.NDArray[np.int64]] = []
        self._replay = TransactionReplay(limits=limits)
        self._epochs = TransactionEpochs()
        self._indexed = indexed
        self._entries, self._n_indexed = _NO_ENTRIES, 0
        self._position = 0
        self._last_offset = -1
        self._last_position: int | None = None
        self._stream: Generator[ReplayWindow] | None = None
        self._stream_position = 0
        self._lost_at_end: Finding | None = None
        self._damaged_end: _DamagedEnd | None = None
        self._is_in_range = False  # before the first batch of interest, outcomes need not be kept
        self._range_position = 0  # log position of that batch

    def close(self) -> None:
        """Close the stream of windows that were read ahead."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def learn(self, until_offset: int | None = None) -> TransactionOutcomes:
        """Learn the outcomes of all transactions, or of those that began before an offset."""
        try:
            if self._read_on(until_offset):
                self._resolve(2**63 - 1)
        finally:
            self.close()
        return self.outcomes.copy()

    def learn_more(self) -> None:
        """Learn from the batches that were added to the log since the last call.

        Raises KafkalogError for an unknown outcome.
        """
        try:
            self._read_on(None)
        finally:
            self.close()
        if self.outcomes.error is not None:
            raise self.outcomes.error

    @property
    def first_open(self) -> UnendedTransaction | None:
        """The open transaction that began first."""
        return self._replay.first_open

    def known(self) -> TransactionOutcomes:
        """The outcomes known so far, without those removed by `discard_below`, to be matched by offset."""
        return TransactionOutcomes([*self.outcomes.parts], dict(self.outcomes.causes), is_by_offset=True)

    def discard_below(self, offset: int) -> None:
        """Remove transactions that ended below an offset."""
        not_committed = self.outcomes.not_committed
        not_committed = not_committed[not_committed["last_offset"] >= offset]
        self.outcomes.parts = [not_committed]
        self.damaged.clear()
        started = set(not_committed["start_position"].tolist())
        self.outcomes.causes = {at: cause for at, cause in self.outcomes.causes.items() if at in started}

    def follow(self, replay: ReplayWindow, first: int, stop: int) -> None:
        """Replay a window, and read ahead until the transactions of its rows from `first` to `stop` have ended.

        Rows before `first` are also replayed, to know which transactions are open.
        """
        batches = replay.window.batches
        begin = replay.segment_start + int(batches.position[0])
        if self._is_behind(begin):
            self._catch_up(begin)
        if not self._is_in_range:
            self._feed(replay._replace(window=replay.window._replace(batches=batches[:first])))
            self._is_in_range = first < stop
            if self._is_in_range:
                self._range_position = replay.segment_start + int(batches.position[first])
        self._feed(replay)
        if first < stop:
            self._resolve(replay.segment_start + int(batches.next_position[stop - 1]))

    # ------------------------------------------------------------------------------------------------ reading ahead

    def _read_on(self, until_offset: int | None) -> bool:
        """Replay until all transactions that began before an offset have ended; whether the end was reached."""
        self._is_in_range = True
        while self.outcomes.end is None and (replay := self._next()) is not None:
            self._feed(replay)
            if until_offset is not None and self._last_offset >= until_offset - 1:
                first = self._replay.first_unstable_offset
                if first is None or first >= until_offset:
                    return False
        return True

    def _next(self) -> ReplayWindow | None:
        """Read the next window after those replayed; None at the end of the log."""
        if self._stream is None or self._stream_position != self._position:
            self.close()
            self._stream = self._open_ahead(Reached(self._position, self._last_offset, self._last_position))
        replay = next(self._stream, None)
        if replay is not None and not len(replay.window.batches):
            self._lost_at_end = next(filter(self._passes_over, replay.damage), None)
            return None
        if replay is not None:
            self._stream_position = replay.segment_start + replay.window.batches.end_position
        return replay

    def _is_behind(self, begin: int) -> bool:
        """Whether batches before this window were skipped: the start of the log, or whole segments.

        A gap within a segment, or from one to the next, is damage, and comes with the window.
        """
        if self._position == 0:
            return begin > 0
        return begin >> POSITION_BITS > (self._position >> POSITION_BITS) + 1

    def _catch_up(self, begin: int) -> None:
        """Replay the headers of batches that the caller skipped."""
        while self.outcomes.end is None and self._position < begin and (replay := self._next()) is not None:
            batches = replay.window.batches
            n = int(np.searchsorted(batches.position, begin - replay.segment_start))
            if n:
                self._feed(replay._replace(window=replay.window._replace(batches=batches[:n])))
            if n < len(batches):
                break

    def _resolve(self, until: int) -> None:
        """Read ahead until all transactions that began before a log position have ended, or to the end of the log."""
        while (
            self.outcomes.end is None and (first := self._replay.first_open) is not None and first.log_position < until
        ):
            replay = self._next()
            if replay is not None:
                self._feed(replay)
                continue
            if self._end_is_uncertain():
                continue
            self.outcomes.end = first
            detail = f"the transaction of producer {first.producer_id} from offset {first.first_offset} on is open"
            path, position = self._where(first.log_position)
            self.outcomes.findings = [
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
        self._handle_lost_marker(self._lost_at_end, self._last_offset + 1, self._position)
        return True

    def _where(self, log_position: int) -> tuple[str, int]:
        return self._paths[log_position >> POSITION_BITS], log_position & (1 << POSITION_BITS) - 1

    def _feed(self, replay: ReplayWindow) -> None:
        """Replay the batches of a window that were not read ahead and replayed before."""
        batches = replay.window.batches
        first = int(np.searchsorted(batches.position, self._position - replay.segment_start))
        if first == len(batches) or self.outcomes.end is not None:
            return
        if first:
            batches = batches[first:]
        end, self._damaged_end = self._damaged_end, None
        if end is not None and len(self._replay) and int(batches.base_offset[0]) != self._last_offset + 1:
            self._handle_lost_marker(end.cause, end.offset, end.log_position)
            if self.outcomes.end is not None:
                return
        rows = rows_of_transactions(batches)
        # without an open or new transaction, damage cannot hide an outcome
        if rows.size or len(self._replay):
            # if the first batches were read ahead, the damage before them was handled then
            damage = [] if first else [*filter(self._passes_over, replay.damage)]
            try:
                self._replay_rows(replay, batches, rows, damage)
            except LimitExceededError as error:
                error.path, _ = self._where(replay.segment_start)
                raise
        self._last_offset = int(batches.last_offset[-1])
        self._last_position = replay.segment_start + batches.last_position
        self._position = replay.segment_start + batches.end_position

    def _replay_rows(
        self, replay: ReplayWindow, batches: BatchTable, rows: npt.NDArray[np.int64], damage: list[Finding]
    ) -> None:
        damaged = np.empty(0, np.int64)
        if self._check_crcs:
            damaged = np.flatnonzero(~valid_crcs(replay.window, batches))
        log_position = batches.position + replay.segment_start
        if damaged.size:
            self.damaged.append(log_position[damaged])
            rows = rows[~np.isin(rows, damaged)]
        batches = self._with_control_types(replay.window, batches, rows)
        causes = self._possibly_lost_markers(replay, batches, damaged, damage)
        aborts = self._aborts_without_marker(replay.segment_start >> POSITION_BITS, batches)
        done = 0
        for row in sorted({*causes, *aborts, len(batches)}):
            cause = causes.get(row)
            part = rows[np.searchsorted(rows, done) : np.searchsorted(rows, row)]
            if part.size:
                self._record(self._replay.update(batches, log_position, rows=part))
                for change in self._epochs.feed(batches, part):
                    detail = f"{change.detail}; they are read, as by consumers"
                    self._note(int(log_position[change.row]), change.offset, detail)
            for producer_id, first_offset, offset in aborts.get(row, ()):
                self._abort(producer_id, first_offset, offset, int(log_position[row]))
            if cause is not None and len(self._replay):
                self._handle_lost_marker(cause, int(batches.base_offset[row]), int(log_position[row]))
            if self.outcomes.end is not None:
                return
            done = row

    def _with_control_types(self, window: Window, batches: BatchTable, rows: npt.NDArray[np.int64]) -> BatchTable:
        """Return the batches with `control_type` filled in for compressed control batches.

        No known writer compresses control batches, but Kafka's readers accept them.
        """
        unread = rows[(batches.control_type[rows] == kf.NO_CONTROL_RECORD) & (batches.codec[rows] != 0)]
        if not unread.size:
            return batches
        kinds = batches.control_type.copy()
        kinds[unread] = read_markers(window, batches, unread, limits=self._limits)[0]
        return replace(batches, control_type=kinds)

    def _possibly_lost_markers(
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
            path, _ = self._where(replay.segment_start)
            last = len(batches) - 1
            for row in damaged[~fills[damaged] | (damaged == last) | all_of_it].tolist():
                cause = batch_error(STATUS["CRC_MISMATCH"], batches, row, path).to_finding()
                if row < last or not fills[row] or all_of_it:
                    causes[row] = cause
                else:  # the next window tells whether there is a gap after it
                    at = replay.segment_start + int(batches.position[row])
                    self._damaged_end = _DamagedEnd(cause, int(batches.base_offset[row]), at)
        if damage and (all_of_it or batches.base_offset[0] != self._last_offset + 1):
            causes[0] = damage[0]
        return causes

    def _aborts_without_marker(self, number: int, batches: BatchTable) -> dict[int, list[tuple[int, int, int]]]:
        """Aborts in the transaction index whose marker no batch has, by the row after its offset.

        Each with producer, first offset, and offset of the marker.
        """
        # the last marker of a segment may be missing between it and the next one
        for one in range(max(self._n_indexed, number - 1), number + 1):
            entries = self._indexed(one)
            self._entries = np.concatenate([self._entries, entries]) if entries.size else self._entries
        self._n_indexed = max(self._n_indexed, number + 1)
        if not self._entries.size:
            return {}
        last = self._entries["last_offset"].astype(np.int64)
        is_here = (last > self._last_offset) & (last < batches.last_offset[-1])
        mine, offset = self._entries[is_here], last[is_here]
        self._entries = self._entries[last >= batches.last_offset[-1]]
        row = np.searchsorted(batches.base_offset, offset, side="right")
        reached = np.concatenate([[self._last_offset], batches.last_offset])[row]
        found: dict[int, list[tuple[int, int, int]]] = {}
        for at in np.flatnonzero(reached < offset).tolist():
            entry = int(mine["producer_id"][at]), int(mine["first_offset"][at]), int(offset[at])
            found.setdefault(int(row[at]), []).append(entry)
        return found

    def _abort(self, producer_id: int, first_offset: int, offset: int, log_position: int) -> None:
        """End a transaction whose marker is missing, if its records are there."""
        begun = self._replay.first_offset_of(producer_id)
        if begun is None or not first_offset <= begun < offset:
            return
        ended = self._replay.abort(producer_id, offset, log_position)
        self._epochs.end(producer_id)
        detail = (
            f"the transaction of producer {producer_id} from offset {begun} on has no marker; the transaction index"
            f" has its abort at offset {offset}, so its records are left out"
        )
        self._note(int(ended["start_position"][0]), begun, detail)
        self._record(ended)

    def _note(self, log_position: int, offset: int, detail: str) -> None:
        """Report a marker that is missing, of a transaction that begins in the range, as a part of a plan does."""
        if self._is_in_range and log_position >= self._range_position:
            path, position = self._where(log_position)
            note = Finding(
                Reason.TRANSACTION_OUTCOME, detail, path=path, position=position, base_offset=offset, damage=False
            )
            self.outcomes.notes.append((log_position, note))

    def _record(self, ended: npt.NDArray[np.void]) -> None:
        """Keep the transactions that were not committed. At one with an unknown outcome, stop reading or skip it."""
        not_committed = ended[ended["outcome"] != Outcome.COMMITTED]
        for one in not_committed[not_committed["outcome"] == Outcome.UNKNOWN]:
            path, position = self._where(int(one["end_position"]))
            cause = Finding(
                Reason.CONTROL_RECORD,
                "the marker is neither a commit nor an abort",
                path=path,
                position=position,
                base_offset=int(one["last_offset"]),
            )
            begun = UnendedTransaction(int(one["producer_id"]), int(one["first_offset"]), int(one["start_position"]))
            if self._goes_on:
                self.outcomes.causes[begun.log_position] = cause
            elif self.outcomes.end is None or begun.log_position < self.outcomes.end.log_position:
                first = self._replay.first_open
                self._end_at(begun if first is None or begun.log_position < first.log_position else first, cause)
        if not_committed.size and self._is_in_range:
            self.outcomes.parts.append(not_committed)

    def _handle_lost_marker(self, cause: Finding, offset: int, log_position: int) -> None:
        """Handle damage that may have contained a marker: give the open transactions up, or end at the first one."""
        if self._goes_on:
            given_up = self._replay.give_up(offset, log_position)
            self._epochs.end()
            if self._is_in_range:
                self.outcomes.parts.append(given_up)
                self.outcomes.causes.update(dict.fromkeys(given_up["start_position"].tolist(), cause))
        elif (first := self._replay.first_open) is not None:
            self._end_at(first, cause)

    @property
    def _goes_on(self) -> bool:
        return self._on_corruption == "skip" or (self._on_corruption == "stop" and not self._is_in_range)

    def _passes_over(self, finding: Finding) -> bool:
        """Whether damage hides records or markers; false for a batch read despite its offset, or a copy of one."""
        hides_marker = finding.last_offset is not None and finding.last_offset > self._last_offset
        return finding.damage and (finding.n_records != 0 or hides_marker)

    def _end_at(self, transaction: UnendedTransaction, cause: Finding) -> None:
        """End reading where a transaction begins, with findings (`stop`) or an error (`raise`)."""
        self.outcomes.end = transaction
        if self._on_corruption == "stop":
            self.outcomes.findings = [cause, unknown_outcome(transaction.producer_id, transaction.first_offset, cause)]
        else:
            doubt = _doubt_about(transaction.producer_id, transaction.first_offset)
            self.outcomes.error = CorruptionError.about(cause, f"{cause.detail} (and {doubt})")


def unknown_outcome(producer_id: int, first_offset: int, cause: Finding) -> Finding:
    """Return the finding about a transaction whose outcome is unknown: all its records are left out."""
    # the loss at that place is reported there, once
    what, _, _ = cause.detail.partition("; ")
    why = cause.reason.value + (f": {what}" if what else "")
    return Finding(
        Reason.TRANSACTION_OUTCOME,
        f"{_doubt_about(producer_id, first_offset)} ({why})",
        path=cause.path,
        position=cause.position,
        base_offset=first_offset,
        damage=cause.damage,
    )


def _doubt_about(producer_id: int, first_offset: int) -> str:
    return (
        f"the outcome of producer {producer_id}'s transaction from offset {first_offset} on is unknown: its marker may"
        " have been here"
    )


_NO_ENTRIES: Final[npt.NDArray[np.void]] = np.empty(0, kf.TRANSACTION_INDEX_DTYPE)
_MAX_MARKER_BYTES: Final = 128
"""More than the size of any marker: 78 bytes as written, up to 87 once the cleaner has added a delete horizon."""
_IS_PART: Final = "; it may end in a later segment: read the partition directory instead"
