"""Replay batches in log order to transactions: which are open, and how the others ended.

A transaction of a producer begins with its first transactional batch and ends with the next marker (a control batch) of
the same producer id, whatever lies in between and whatever the producer epochs. A broker does the same replay for its
transaction index and its snapshots. Mirrors the part of `ProducerStateManager` and `ProducerAppendInfo` that handles
transactions. Reads no file and decodes no records.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, LimitExceededError, Limits, Reason
from kafkalog.records.batch_table import BatchTable

TRANSACTION_BITS: Final = kf.TRANSACTIONAL_BIT | kf.CONTROL_BIT
"""Attribute bits of batches by which transactions begin and end."""


class Outcome(IntEnum):
    """How a transaction ended. The first two values are the types of its marker."""

    ABORTED = int(kf.ControlRecordType.ABORT)
    COMMITTED = int(kf.ControlRecordType.COMMIT)
    UNKNOWN = 2


ENDED_DTYPE: Final = np.dtype(
    [
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("outcome", np.int8),
        ("first_offset", np.int64),
        ("last_offset", np.int64),
        ("last_stable_offset", np.int64),
        ("start_position", np.int64),
        ("end_position", np.int64),
    ]
)
"""A transaction that ended: offsets of its first batch and of its marker, the last stable offset right after the
marker, and the positions of first batch and marker (see `TransactionReplay`)."""


class UnendedTransaction(NamedTuple):
    """A transaction that has no marker yet."""

    producer_id: int
    first_offset: int
    log_position: int


def rows_of_transactions(batches: BatchTable) -> npt.NDArray[np.int64]:
    """Row numbers that matter to a replay: transactional batches and markers of producers.

    Control batches without records are left out: compaction emptied them, and no reader treats them as markers.
    """
    attributes = batches.attributes
    if not len(batches) or not np.bitwise_or.reduce(attributes) & TRANSACTION_BITS:
        return _NO_ROWS
    mask = (attributes & TRANSACTION_BITS) != 0
    mask &= (batches.magic >= 2) & (batches.producer_id >= 0)
    mask &= ((attributes & kf.CONTROL_BIT) == 0) | (batches.records_count != 0)
    return np.flatnonzero(mask)


class EpochChange(NamedTuple):
    """A batch that continues a transaction of its producer under another producer epoch."""

    producer_id: int
    offset: int
    """Base offset of the batch."""
    row: int
    before: int
    after: int

    @property
    def detail(self) -> str:
        """What is wrong."""
        return (
            f"epoch {self.after} of producer {self.producer_id} continues a transaction of epoch {self.before}: the"
            " marker between them is missing, so whether the earlier records were committed is unknown"
        )


@leading_names
class TransactionEpochs:
    """Finds transactions in which the producer epoch changes, in the batches passed to `feed` one after the other.

    A coordinator ends a transaction of a producer before it lets a newer epoch write, so a marker is missing there.
    `heads` has the first batch of each producer, unless it is a marker; `before` is -1.
    """

    def __init__(self) -> None:
        self.heads: dict[int, EpochChange] = {}
        self._open: dict[int, int] = {}
        self._seen: set[int] = set()

    def feed(self, batches: BatchTable, rows: npt.NDArray[np.int64] | None = None) -> list[EpochChange]:
        """Return the changes in the next batches; `rows` as in `TransactionReplay.update`."""
        rows = rows_of_transactions(batches) if rows is None else rows
        # a batch that the cleaner emptied stays as its producer's last one, and its marker may be gone
        rows = rows[batches.records_count[rows] != 0]
        if not rows.size:
            return []
        rows = rows[np.argsort(batches.producer_id[rows], kind="stable")]
        ids, epochs = batches.producer_id[rows], batches.producer_epoch[rows]
        is_data = (batches.attributes[rows] & kf.CONTROL_BIT) == 0
        is_next = ids[1:] == ids[:-1]
        is_change = is_next & is_data[1:] & is_data[:-1] & (epochs[1:] != epochs[:-1])
        changes = [
            EpochChange(
                int(ids[at]), int(batches.base_offset[rows[at]]), int(rows[at]), *epochs[at - 1 : at + 1].tolist()
            )
            for at in (np.flatnonzero(is_change) + 1).tolist()
        ]
        for at in np.flatnonzero(is_data & np.concatenate([[True], ~is_next])).tolist():
            producer_id, epoch = int(ids[at]), int(epochs[at])
            before = self._open.get(producer_id)
            change = EpochChange(producer_id, int(batches.base_offset[rows[at]]), int(rows[at]), -1, epoch)
            if producer_id not in self._seen:
                self.heads[producer_id] = change
            elif before is not None and before != epoch:
                changes.append(change._replace(before=before))
        for at in np.flatnonzero(np.concatenate([~is_next, [True]])).tolist():
            self._seen.add(int(ids[at]))
            if is_data[at]:
                self._open[int(ids[at])] = int(epochs[at])
            else:
                self._open.pop(int(ids[at]), None)
        return sorted(changes, key=lambda change: change.row)

    def end(self, producer_id: int | None = None) -> None:
        """The transactions of a producer ended, or those of all producers."""
        if producer_id is None:
            self._open.clear()
        else:
            self._open.pop(producer_id, None)

    def join(self, following: TransactionEpochs) -> list[EpochChange]:
        """Continue after another object's input; return the changes at the boundary."""
        changes = [
            head._replace(before=self._open[producer_id])
            for producer_id, head in following.heads.items()
            if self._open.get(producer_id, head.after) != head.after
        ]
        for producer_id in following._seen:
            self._open.pop(producer_id, None)
        self._open |= following._open
        return changes


class TransactionReplay:
    """The transactions of a partition after the batches passed to `update` so far.

    A *log position* is any number that rises from batch to batch, such as the position in the file, with the number of
    the segment in the higher bits. Offsets are not used, because in a damaged log they may fall. Source:
    ProducerAppendInfo.append, ProducerStateManager.lastStableOffset and completeTxn, Kafka 4.3.
    """

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        # first offset and log position by producer id, in the order they began
        self._open: dict[int, tuple[int, int]] = {}
        self._limits = limits

    def __len__(self) -> int:
        """Number of open transactions."""
        return len(self._open)

    def first_offset_of(self, producer_id: int) -> int | None:
        """First offset of a producer's open transaction; None if it has none."""
        begun = self._open.get(producer_id)
        return None if begun is None else begun[0]

    def __contains__(self, producer_id: int) -> bool:
        """Whether a producer has a transaction open."""
        return producer_id in self._open

    @property
    def first_open(self) -> UnendedTransaction | None:
        """The open transaction that began first."""
        for producer_id, (first_offset, log_position) in self._open.items():
            return UnendedTransaction(producer_id, first_offset, log_position)
        return None

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the open transaction that began first; None if none is open."""
        first = self.first_open
        return None if first is None else first.first_offset

    def open_transactions(self) -> list[UnendedTransaction]:
        """The open transactions, in the order in which they began."""
        return [UnendedTransaction(producer_id, *begun) for producer_id, begun in self._open.items()]

    def resume(self, transactions: list[UnendedTransaction]) -> None:
        """Set the open transactions, such as those of a snapshot; to be called before the first `update`."""
        ordered = sorted(transactions, key=lambda one: one.log_position)
        self._open = {one.producer_id: (one.first_offset, one.log_position) for one in ordered}

    def update(
        self,
        batches: BatchTable,
        log_position: npt.NDArray[np.int64] | None = None,
        *,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> npt.NDArray[np.void]:
        """Replay the next batches, or their `rows`; returns the transactions that ended (ENDED_DTYPE[k]), in order.

        The `control_type` of compressed control batches has to be filled in. Any type other than ABORT and COMMIT (-2
        included) counts as a marker of unknown outcome. A marker without a transaction ends none. `log_position`
        (int64[n]) is by default the position of each batch. Raises LimitExceededError if more than
        `limits.max_open_transactions` are open.
        """
        rows = rows_of_transactions(batches) if rows is None else rows
        if not rows.size:
            return _NONE_ENDED
        row_ids = batches.producer_id[rows]
        # Open transactions of the producers seen here are put in front, as one row each. Of the others only the
        # earliest matters. `_open` is in the order in which they began; positions may be those in a file, which do not
        # compare across segments
        seen = set(np.unique(row_ids).tolist()) if self._open else set()
        before = [producer_id for producer_id in self._open if producer_id in seen]
        earliest_other = next((self._open[one][0] for one in self._open if one not in seen), None)
        begun = np.array([self._open[one] for one in before], np.int64).reshape(-1, 2)
        ids = np.concatenate([np.array(before, np.int64), row_ids])
        offset = np.concatenate([begun[:, 0], batches.base_offset[rows]])
        positions = np.concatenate([begun[:, 1], (batches.position if log_position is None else log_position)[rows]])
        is_marker = np.concatenate([np.zeros(len(before), np.bool_), (batches.attributes[rows] & kf.CONTROL_BIT) != 0])

        order = np.argsort(ids, kind="stable")  # by producer, then by position
        is_first = np.concatenate([[True], ids[order[1:]] != ids[order[:-1]]])
        marker = is_marker[order]
        fresh = is_first | np.concatenate([[True], marker[:-1]])  # nothing is open before this row
        begins, ends = ~marker & fresh, marker & ~fresh
        begin_of = np.maximum.accumulate(np.where(begins, np.arange(order.size), 0))

        ended_at = np.sort(order[ends])  # indices into ids, offset and positions
        begun_at = np.empty(ids.size, np.int64)
        begun_at[order[ends]] = order[begin_of[ends]]
        begun_at = begun_at[ended_at]
        ended = np.empty(ended_at.size, ENDED_DTYPE)
        if ended_at.size:
            row = rows[ended_at - len(before)]
            kind = batches.control_type[row]
            ended["producer_id"] = ids[ended_at]
            ended["producer_epoch"] = batches.producer_epoch[row]
            ended["outcome"] = np.where((kind == 0) | (kind == 1), kind, np.int16(Outcome.UNKNOWN))
            ended["first_offset"], ended["last_offset"] = offset[begun_at], offset[ended_at]
            ended["start_position"], ended["end_position"] = positions[begun_at], positions[ended_at]
            ended["last_stable_offset"] = _last_stable_offsets(
                np.sort(order[begins]), begun_at, ended_at, offset, earliest_other
            )

        still = begin_of[np.concatenate([is_first[1:], [True]]) & ~marker]
        self._replace(before, np.sort(order[still]), ids, offset, positions)
        return ended

    def abort(self, producer_id: int, offset: int, log_position: int) -> npt.NDArray[np.void]:
        """End the open transaction of a producer as aborted (ENDED_DTYPE[1]), by a marker at an offset that is gone.

        `log_position` is that of the next batch.
        """
        ended = np.zeros(1, ENDED_DTYPE)
        first_offset, start = self._open.pop(producer_id)
        first = self.first_unstable_offset
        stable = offset + 1 if first is None else first
        ended[0] = producer_id, kf.NO_EPOCH, Outcome.ABORTED, first_offset, offset, stable, start, log_position
        return ended

    def give_up(self, offset: int, log_position: int) -> npt.NDArray[np.void]:
        """End all open transactions (ENDED_DTYPE[k]) with an unknown outcome.

        Bytes that could not be read may have their markers. `offset` and `log_position` are those of the next batch
        that could be read. `last_offset` and `last_stable_offset` become `offset`.
        """
        ended = np.zeros(len(self._open), ENDED_DTYPE)
        if self._open:
            begun = np.array(list(self._open.values()), np.int64)
            ended["producer_id"] = np.array(list(self._open), np.int64)
            ended["producer_epoch"] = kf.NO_EPOCH
            ended["outcome"] = Outcome.UNKNOWN
            ended["first_offset"], ended["start_position"] = begun[:, 0], begun[:, 1]
            ended["last_offset"] = ended["last_stable_offset"] = offset
            ended["end_position"] = log_position
            self._open = {}
        return ended

    def _replace(
        self,
        before: list[int],
        still: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
        log_position: npt.NDArray[np.int64],
    ) -> None:
        """Update the open transactions: remove those that ended, append those that began in these batches."""
        # dicts keep their order, so what stays open stays in the order in which it began
        kept = set(still[still < len(before)].tolist())
        for number, producer_id in enumerate(before):
            if number not in kept:
                del self._open[producer_id]
        new = still[still >= len(before)]
        if len(self._open) + new.size > self._limits.max_open_transactions:
            raise LimitExceededError(
                Reason.TOO_MANY_OPEN_TRANSACTIONS,
                f"{len(self._open) + new.size} transactions are open, max_open_transactions is "
                f"{self._limits.max_open_transactions}",
                base_offset=int(offset[new[0]]),
            )
        self._open.update(
            zip(ids[new].tolist(), zip(offset[new].tolist(), log_position[new].tolist(), strict=True), strict=True)
        )


def _last_stable_offsets(
    begins: npt.NDArray[np.int64],
    begun_at: npt.NDArray[np.int64],
    ended_at: npt.NDArray[np.int64],
    offset: npt.NDArray[np.int64],
    earliest_other: int | None,
) -> npt.NDArray[np.int64]:
    """Last stable offset after each end: first offset of the earliest one still open, else the marker's offset + 1."""
    end_of = np.full(offset.size, offset.size, np.int64)
    end_of[begun_at] = ended_at
    # Find the first transaction (in the order they began) that ends later: the running maximum of the ends rises, so
    # a binary search finds it
    latest_end = np.maximum.accumulate(end_of[begins])
    first = np.minimum(np.searchsorted(latest_end, ended_at, side="right"), begins.size - 1)
    is_open = (latest_end[first] > ended_at) & (begins[first] < ended_at)
    stable = np.where(is_open, offset[begins[first]], offset[ended_at] + 1)
    return stable if earliest_other is None else np.minimum(stable, earliest_other)


_NO_ROWS: Final = np.empty(0, np.int64)
_NONE_ENDED: Final = np.empty(0, ENDED_DTYPE)


def aborted_entries(ended: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """TRANSACTION_INDEX_DTYPE[n]: the entries of a `.txnindex` for transactions that ended (ENDED_DTYPE[m])."""
    aborted = ended[ended["outcome"] == Outcome.ABORTED]
    entries = np.zeros(aborted.size, kf.TRANSACTION_INDEX_DTYPE)
    for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset"):
        entries[name] = aborted[name]
    return entries


def is_in_order(entries: npt.NDArray[np.void]) -> bool:
    """Whether their last offsets rise, as a `.txnindex` demands. Source: TransactionIndex.append, Kafka 4.3."""
    return bool((np.diff(entries["last_offset"].astype(np.int64)) > 0).all())
