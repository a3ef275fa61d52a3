"""Checks transaction indexes against the aborted transactions in the batches of their partition.

Batches come one window at a time, in the order of the log, as in `kafkalog.indexes.checks`. In a compacted log an index
may have entries for transactions whose batches are gone. An aborted transaction that still has batches must have an
entry. Mirrors the writing half of `TransactionIndex`. Opens no file.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits, Reason
from kafkalog.indexes.checks import Tally
from kafkalog.records.batch_table import BatchTable
from kafkalog.state.transactions import Outcome, TransactionReplay, UnendedTransaction, rows_of_transactions
from kafkalog.text import offset_range

_NO_ENTRIES = np.empty(0, kf.TRANSACTION_INDEX_DTYPE)


class TransactionIndexCheck:
    """Checks all entries (TRANSACTION_INDEX_DTYPE arrays) of a partition's transaction indexes against its batches.

    `open_transactions` are those of a producer snapshot, open before the first batch. An entry is right under three
    conditions. Its last offset is that of an abort marker of its producer. Its first offset is that of the first batch
    of the transaction, if that batch still exists. Its last stable offset is not above the one after the marker.
    Compaction and retention may have removed the batches, and after them the marker: a marker that is gone before its
    records is a finding. Source: ProducerStateManager.completeTxn, TransactionIndex.collectAbortedTxns, Kafka 4.3.
    """

    def __init__(
        self,
        indexes: Iterable[npt.NDArray[np.void]],
        *,
        open_transactions: Iterable[UnendedTransaction] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._replay = TransactionReplay(limits=limits)
        self._replay.resume(list(open_transactions))
        every = np.concatenate([_NO_ENTRIES, *indexes])
        self._wanted = np.unique(every["first_offset"].astype(np.int64))
        self._producers = np.unique(every["producer_id"].astype(np.int64))
        self._last_records: dict[int, int] = {}  # offset of a producer's last batch with records, before this window
        self._records = np.empty(0, np.int64), np.empty(0, np.int64)  # and of all in this window
        self._is_there = np.zeros(self._wanted.size, np.bool_)
        self._doubtful = -1  # transactions that began below this offset may have ended in skipped bytes
        self._n_fed = 0
        self.begin(_NO_ENTRIES, None, 0)

    def begin(self, entries: npt.NDArray[np.void], path: str | None, base_offset: int) -> None:
        """Start a segment, given the entries of its index; the next batches are those of the segment."""
        self._entries, self._path, self._base_offset = entries, path, base_offset
        self._tally = Tally()
        self._missing_markers: list[int] = []
        last = entries["last_offset"].astype(np.int64)
        behind = np.flatnonzero(last[1:] <= last[:-1]) + 1
        consequence = "not larger than the previous one, so a broker may stop its search too early"
        self._tally.add(Reason.INDEX_ORDER, consequence, behind, self._describe)
        if behind.size:
            self._entries = entries[np.argsort(last, kind="stable")]
        self._last = self._entries["last_offset"].astype(np.int64)
        self._next = 0
        self._check_fields()

    def _check_fields(self) -> None:
        entries = self._entries
        first, stable = entries["first_offset"].astype(np.int64), entries["last_stable_offset"].astype(np.int64)
        version = np.flatnonzero(entries["version"] != 0)
        odd = np.flatnonzero((first > self._last) | (first < 0) | (stable - 1 > self._last) | (stable < 0))
        outside = np.flatnonzero(self._last < self._base_offset)
        for rows, consequence in (
            (version, "the version is not 0; a broker may not start on it"),
            (odd, "its offsets contradict each other"),
            (outside, f"the segment begins at {self._base_offset}; a broker rebuilds all its indexes"),
        ):
            self._tally.add(Reason.INDEX_TRANSACTION, consequence, rows, self._describe)
        self._next = int(np.searchsorted(self._last, self._base_offset))

    def skip_to(self, next_offset: int) -> None:
        """Bytes were skipped up to this offset: the outcomes of the transactions open there are not known."""
        self._replay.give_up(next_offset, self._n_fed)
        self._doubtful = max(self._doubtful, next_offset)
        self._next = int(np.searchsorted(self._last, next_offset))

    def feed(self, batches: BatchTable) -> None:
        """Check the next batches of the segment, in the order of the file."""
        if not len(batches):
            return
        self._find_first_offsets(batches)
        self._find_records(batches)
        ended = self._replay.update(batches, np.arange(self._n_fed, self._n_fed + len(batches)))
        self._n_fed += len(batches)
        stop = int(np.searchsorted(self._last, batches.last_offset[-1], side="right"))
        entries, last = self._entries[self._next : stop], self._last[self._next : stop]
        numbers = np.arange(self._next, stop)
        self._next = max(stop, self._next)
        aborted = ended[ended["outcome"] == Outcome.ABORTED]
        missing = aborted[~np.isin(aborted["last_offset"], last)]
        self._tally.add(
            Reason.INDEX_TRANSACTION,
            "not in the index, so a broker returns its records to read_committed consumers",
            missing,
            lambda one: (
                f"the aborted transaction of producer {one['producer_id']}, offsets"
                f" {offset_range(one['first_offset'], int(one['last_offset']) + 1)}"
            ),
        )
        if not entries.size:
            return
        first, producer_id = entries["first_offset"].astype(np.int64), entries["producer_id"].astype(np.int64)
        # check the marker, unless compaction has removed it
        row = np.minimum(np.searchsorted(batches.last_offset, last), len(batches) - 1)
        covered = (batches.base_offset[row] <= last) & (last <= batches.last_offset[row])
        kind = batches.control_type[row]
        # markers of other types end no aborted transaction, but one that cannot be read may have been an abort
        is_marker = batches.is_control[row] & (kind != Outcome.COMMITTED) & (batches.producer_id[row] == producer_id)
        consequence = "there is no abort marker of that producer at its last offset"
        self._tally.add(Reason.INDEX_TRANSACTION, consequence, numbers[covered & ~is_marker], self._describe)
        has_records = ~covered & self._have_records(np.flatnonzero(~covered), producer_id, first, last)
        self._missing_markers += numbers[has_records].tolist()
        # check the first offset and the last stable offset, if batches of the transaction are left
        place = np.searchsorted(ended["last_offset"], last)
        place = np.minimum(place, max(ended.size - 1, 0))
        known = ended["last_offset"][place] == last if ended.size else np.zeros(last.size, np.bool_)
        begun = np.where(known, ended["first_offset"][place] if ended.size else 0, -1)
        stable = np.where(known, ended["last_stable_offset"][place] if ended.size else 0, last + 1)
        there = self._is_there[np.searchsorted(self._wanted, first)] & (first >= self._doubtful)
        wrong = (known & ((first > begun) | ((first < begun) & there))) | (~known & there)
        consequence = (
            "the transaction does not begin at its first offset: read_committed consumers get records of aborted"
        )
        consequence += " transactions, or miss others"
        self._tally.add(Reason.INDEX_TRANSACTION, consequence, numbers[wrong & is_marker], self._describe)
        is_high = known & (entries["last_stable_offset"].astype(np.int64) > stable) & (first >= self._doubtful)
        consequence = "its last stable offset is too high, so a broker may stop its search too early"
        self._tally.add(Reason.INDEX_TRANSACTION, consequence, numbers[is_high], self._describe)

    def _find_first_offsets(self, batches: BatchTable) -> None:
        """Record which of the entries' first offsets still have a batch."""
        start = int(np.searchsorted(self._wanted, batches.base_offset.min()))
        stop = int(np.searchsorted(self._wanted, batches.last_offset[-1], side="right"))
        if start < stop:
            wanted = self._wanted[start:stop]
            row = np.minimum(np.searchsorted(batches.last_offset, wanted), len(batches) - 1)
            self._is_there[start:stop] |= (batches.base_offset[row] <= wanted) & (wanted <= batches.last_offset[row])

    def missing_markers(self) -> list[Finding]:
        """The finding about entries of the segment's index whose abort markers are gone, and whose records are not.

        It is damage of the `.log`: where a broker rebuilds the index, nothing tells of the abort any more.
        """
        tally = Tally()
        tally.add(
            Reason.INDEX_TRANSACTION,
            "its abort marker is missing, but its records exist: a broker that recovers the segment returns them to"
            " read_committed consumers once the producer commits again",
            self._missing_markers,
            self._describe,
        )
        return tally.findings(self._path, self._base_offset)

    def _find_records(self, batches: BatchTable) -> None:
        """Take note of transactional batches with records, of producers in the indexes."""
        self._last_records |= zip(*(column.tolist() for column in self._records), strict=True)
        rows = rows_of_transactions(batches)
        rows = rows[((batches.attributes[rows] & kf.CONTROL_BIT) == 0) & (batches.records_count[rows] > 0)]
        rows = rows[np.isin(batches.producer_id[rows], self._producers)]
        self._records = batches.producer_id[rows], batches.base_offset[rows]

    def _have_records(
        self,
        entries: npt.NDArray[np.int64],
        producer_id: npt.NDArray[np.int64],
        first: npt.NDArray[np.int64],
        last: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """Which of some entries have records left."""
        found = np.zeros(last.size, np.bool_)
        ids, offset = self._records
        for at in entries.tolist():
            before = self._last_records.get(int(producer_id[at]), -1)
            is_mine = (ids == producer_id[at]) & (offset >= first[at]) & (offset < last[at])
            found[at] = first[at] <= before < last[at] or is_mine.any()
        return found

    def finish(self, *, is_whole: bool = True) -> list[Finding]:
        """The findings about the segment's index; `is_whole` is whether the segment was walked to its end."""
        left = np.arange(self._next, self._entries.size)
        if is_whole and left.size:
            producer_id, first = (
                self._entries[name][left].astype(np.int64) for name in ("producer_id", "first_offset")
            )
            has_records = self._have_records(np.arange(left.size), producer_id, first, self._last[left])
            self._missing_markers += left[has_records].tolist()
            left = left[~has_records]
            consequence = "its segment ends before its last offset"
            self._tally.add(Reason.INDEX_TRANSACTION, consequence, left, self._describe)
        return self._tally.findings(self._path, self._base_offset)

    def _describe(self, number: int) -> str:
        entry = self._entries[int(number)]
        return (
            f"entry {number} (producer {entry['producer_id']}, offsets "
            f"{offset_range(entry['first_offset'], int(entry['last_offset']) + 1)}, last stable offset"
            f" {entry['last_stable_offset']})"
        )
