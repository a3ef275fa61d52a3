"""One pass of the cleaner: windows of batches in the order of the log become windows of the batches that stay.

Mirrors `Cleaner.cleanInto`, `CleanedTransactionMetadata` and `MemoryRecords.filterTo`. Reads and writes no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Limits
from kafkalog.operations.converting.assemble import Part, assemble, empty_batches
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import encode_batches
from kafkalog.repair.compacting.cleaner_facts import CleanerFacts, are_aborted, decoded
from kafkalog.state.producers import with_markers
from kafkalog.state.transactions import TransactionReplay, rows_of_transactions

_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers", "batch_position")
_MARKERS: Final = (kf.ControlRecordType.ABORT, kf.ControlRecordType.COMMIT)

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class _WindowBatches:
    """Batches of a window, with what their headers and the batches before them decide."""

    table: BatchTable
    may_go: Bools
    """Batches of aborted transactions, and markers of transactions of which no batch is left."""
    drops_records: Bools
    """Whether no record of the batch stays."""
    keeps_empty: Bools
    """Whether the batch stays even without records."""
    has_horizon: Bools
    keeps_tombstones: Bools

    def __getitem__(self, rows: slice) -> _WindowBatches:
        return _WindowBatches(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class CleanerPass:
    """A pass over a partition.

    `is_changed` is whether any batch has changed or is gone since this was last set; `n_records_before` and `n_records`
    count records of users.
    """

    def __init__(self, facts: CleanerFacts, now_ms: int, delete_retention_ms: int, limits: Limits) -> None:
        self.is_changed = False
        self.n_records_before = self.n_records = 0
        self._facts, self._now, self._retention, self._limits = facts, now_ms, delete_retention_ms, limits
        # a commit ends the transaction of batches that are not aborted, an abort that of those that are
        self._replays = {one: TransactionReplay(limits=limits) for one in _MARKERS}
        self._ended = [np.empty(0, np.int64)]

    def take_aborted(self) -> npt.NDArray[np.void]:
        """TRANSACTION_INDEX_DTYPE[n]: the aborted transactions of which batches were seen since the last call."""
        ended, self._ended = np.concatenate(self._ended), [np.empty(0, np.int64)]
        return self._facts.aborted[np.isin(self._facts.aborted["last_offset"], ended)]

    def clean(self, window: Window, *, keeps_old_tombstones: bool, path: str) -> Iterator[Window]:
        """Yield the batches of a window that stay. `keeps_old_tombstones` is about formats v0 and v1."""
        batches = self._batches(window, keeps_old_tombstones)
        n, first = len(window.batches), 0
        # control batches are decoded, too: one that gets a delete horizon is written again
        rows = np.flatnonzero(~batches.drops_records & (window.batches.records_count != 0))
        for done, records in decoded(window, rows, _COLUMNS, path):
            stop = int(rows[done]) if done < rows.size else n
            yield from self._put_together(window, batches[first:stop], records)
            first = stop
        if first < n:
            yield from self._put_together(window, batches[first:n], RecordColumns.empty(_COLUMNS))

    def _batches(self, window: Window, keeps_old_tombstones: bool) -> _WindowBatches:
        batches, _ = with_markers(window, window.batches, limits=self._limits)
        may_go = self._may_go(batches)
        has_horizon = (batches.attributes & kf.DELETE_HORIZON_BIT != 0) & (batches.magic >= 2)
        is_due = has_horizon & (batches.delete_horizon_ms <= self._now)
        drops_records = may_go & (~batches.is_control | is_due)
        # the last one of the round tells where the cleaned part ends
        is_last = batches.last_offset + 1 == self._facts.upper
        keeps_empty = _keep_producers(batches, self._facts.producers) | is_last
        keeps_tombstones = np.where(batches.magic >= 2, ~is_due, keeps_old_tombstones)
        return _WindowBatches(batches, may_go, drops_records, keeps_empty, has_horizon, keeps_tombstones)

    def _may_go(self, batches: BatchTable) -> Bools:
        is_control, kinds = batches.is_control, batches.control_type
        may_go: Bools = is_control & (batches.records_count == 0)
        rows = rows_of_transactions(batches)
        data, markers = rows[~is_control[rows]], rows[is_control[rows]]
        is_aborted = are_aborted(self._facts.aborted, batches, data)
        may_go[data] = is_aborted
        for kind, replay in self._replays.items():
            own = markers[kinds[markers] == kind]
            seen = data[is_aborted if kind == kf.ControlRecordType.ABORT else ~is_aborted]
            ended = replay.update(batches, batches.base_offset, rows=np.sort(np.concatenate([seen, own])))
            ends = ended["last_offset"]
            may_go[own] = ~np.isin(batches.base_offset[own], ends)
            if kind == kf.ControlRecordType.ABORT:
                self._ended.append(ends)
        return may_go

    def _put_together(self, window: Window, batches: _WindowBatches, records: RecordColumns) -> Iterator[Window]:
        """The bytes of batches after cleaning, with the decoded records that stay."""
        table, n = batches.table, len(batches.table)
        row = np.searchsorted(table.position, records.batch_position)
        is_control, is_v2 = table.is_control, table.magic >= 2
        value = records.value.validity
        is_tombstone = np.zeros(records.n_records, np.bool_) if value is None else ~value
        stays = self._stay(records, row, is_tombstone, batches)
        n_before = np.bincount(row, minlength=n)
        n_kept = np.bincount(row[stays], minlength=n)
        has_tombstones = np.bincount(row[stays & is_tombstone], minlength=n) > 0
        is_marked = ~batches.has_horizon & (has_tombstones | (is_control & batches.may_go))
        is_same = is_v2 & (n_kept == n_before) & (n_kept > 0) & ~is_marked
        same, new = np.flatnonzero(is_same), np.flatnonzero((n_kept > 0) & ~is_same)
        empty = np.flatnonzero((n_kept == 0) & batches.keeps_empty)
        old = Window(window.data, window.start, table)
        parts = [Part(same, old._replace(batches=table[same]))]
        if new.size:
            chosen = np.flatnonzero(stays & ~is_same[row])
            horizon = np.where(is_marked, self._now + self._retention, table.delete_horizon_ms)[new]
            parts.append(Part(new, _encoded(records.take(chosen), n_kept[new], table[new], horizon)))
        if empty.size:
            parts.append(Part(empty, empty_batches(table[empty])))
        was_empty = (table.records_count[empty] == 0).sum()
        self.is_changed |= same.size + was_empty != n
        gone = np.where(batches.drops_records, np.maximum(table.n_user_records, 0), np.where(is_control, 0, n_before))
        self.n_records_before += int(gone.sum())
        self.n_records += int(n_kept[~is_control].sum())
        put = assemble(parts)
        if put is not None:
            yield put

    def _stay(self, records: RecordColumns, row: Int64s, is_tombstone: Bools, batches: _WindowBatches) -> Bools:
        """Whether each record stays."""
        offset = records.offset
        is_latest = np.zeros(records.n_records, np.bool_)
        is_latest[self._facts.latest.rows(offset)] = True
        stays: Bools = is_latest & (~is_tombstone | batches.keeps_tombstones[row])
        stays |= batches.table.is_control[row] | (offset >= self._facts.upper)
        return stays


def _encoded(records: RecordColumns, n_records: Int64s, batches: BatchTable, horizon: Int64s) -> Window:
    """The batches with the records that are left, each within its old offsets.

    Messages of formats v0 and v1 become batches of v2. Source: MemoryRecords.buildRetainedRecordsInto, Kafka 4.3.
    """
    boundaries = np.concatenate([[0], np.cumsum(n_records)])
    is_v2, codecs = batches.magic >= 2, batches.codec
    known = {one: Compression(kf.Codec(one)) for one in np.unique(codecs).tolist()}
    offset = records.offset
    spec = BatchSpec(
        compression=[known[one] for one in codecs.tolist()],
        timestamp_type=np.maximum(batches.timestamp_type, 0),
        log_append_time=batches.max_timestamp,
        leader_epoch=batches.partition_leader_epoch,
        producer_id=batches.producer_id,
        producer_epoch=batches.producer_epoch,
        base_sequence=batches.base_sequence,
        is_transactional=batches.is_transactional,
        is_control=batches.is_control,
        delete_horizon_ms=horizon,
        base_offset=np.where(is_v2, batches.base_offset, offset[boundaries[:-1]]),
        last_offset=np.where(is_v2, batches.last_offset, offset[boundaries[1:] - 1]),
        any_header_keys=True,
    )
    return encode_batches(records, boundaries, spec)


def _keep_producers(batches: BatchTable, producers: npt.NDArray[np.void]) -> Bools:
    """Whether each batch has the last sequence of an active producer, or else its last epoch."""
    if not producers.size:
        return np.zeros(len(batches), np.bool_)
    at = np.minimum(np.searchsorted(producers["producer_id"], batches.producer_id), producers.size - 1)
    last = producers["last_offset"][at]
    is_last = np.where(
        last >= 0,
        batches.last_offset == last,
        batches.is_control & (batches.producer_epoch == producers["producer_epoch"][at]),
    )
    found: Bools = is_last & (batches.producer_id >= 0) & (producers["producer_id"][at] == batches.producer_id)
    return found
