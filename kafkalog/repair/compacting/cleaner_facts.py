"""The facts about a partition that the cleaner needs before it rewrites the first batch.

Batches are checked here: their checksums, and that their records can be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import CorruptionError, Reason
from kafkalog.interchange.arrow_output import binary_array
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.selection import Selection
from kafkalog.records.spans import batch_error
from kafkalog.scanning.conditions.latest import LatestOffsets
from kafkalog.state.outcomes import TransactionOutcomes
from kafkalog.state.producers import PRODUCER_ID_EXPIRATION_MS, ProducerState, newest_snapshot
from kafkalog.state.transactions import Outcome, aborted_entries

_RECORDS: Final = Selection(include_control=True)


@dataclass(frozen=True, slots=True)
class CleanerFacts:
    """Facts about a partition that decide which records the cleaner keeps."""

    upper: int
    """Offsets from here on are not cleaned; the base offset of a segment."""
    aborted: npt.NDArray[np.void]
    """TRANSACTION_INDEX_DTYPE[n]: the aborted transactions, in the order of their markers."""
    producers: npt.NDArray[np.void]
    """PRODUCER_SNAPSHOT_DTYPE[n]: the active producers, by id."""
    latest: LatestOffsets
    """Offsets of the records that are the last of their keys."""

    @classmethod
    def of(
        cls,
        partition: Partition,
        segments: Sequence[Segment],
        upper: int,
        outcomes: TransactionOutcomes,
        now_ms: int,
        progress: Callable[[int], object],
    ) -> CleanerFacts:
        """Read the segments that are to be cleaned.

        `outcomes` is of the whole partition. Raises KafkalogError if a segment is damaged.
        """
        aborted = _aborted(segments, outcomes)
        latest = LatestOffsets()
        for segment in segments:
            path = str(segment.path)
            with segment.open() as source:
                for window in segment.iter_windows(source):
                    batches = window.batches
                    for row in np.flatnonzero(~valid_crcs(window)):
                        raise batch_error(STATUS["CRC_MISMATCH"], batches, int(row), path)
                    rows = rows_of_records(batches)
                    for _, columns in decoded(
                        window, rows[~are_aborted(aborted, batches, rows)], ("offset", "key"), path
                    ):
                        has_key = columns.key.validity
                        if has_key is not None:
                            columns = columns.take(np.flatnonzero(has_key))
                        latest.add(binary_array(columns.key, pa.binary()), pa.array(columns.offset))
                    source.release(window.data, window.start)
            progress(segment.size_in_bytes)
        latest.finish()
        return cls(upper, aborted, _producers(partition, now_ms), latest)


def rows_of_records(batches: BatchTable) -> npt.NDArray[np.int64]:
    """Row numbers of the batches that have records of users."""
    return np.flatnonzero(~batches.is_control & (batches.records_count != 0))


def are_aborted(
    aborted: npt.NDArray[np.void], batches: BatchTable, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether each batch in `rows` belongs to an aborted transaction."""
    found = np.zeros(rows.size, np.bool_)
    mine = np.flatnonzero(batches.is_transactional[rows])
    rows = rows[mine]
    if not rows.size:
        return found
    first, last = batches.base_offset[rows], batches.last_offset[rows]
    near = aborted[(aborted["last_offset"] > first.min()) & (aborted["first_offset"] <= last.max())]
    # transactions of a producer do not overlap: that of a batch is the last one that began before its end
    ids = np.concatenate([near["producer_id"].astype(np.int64), batches.producer_id[rows]])
    offsets = np.concatenate([near["first_offset"].astype(np.int64), last])
    is_batch = np.arange(ids.size) >= near.size
    order = np.lexsort((is_batch, offsets, ids))
    before = np.maximum.accumulate(np.where(is_batch[order], -1, np.arange(ids.size)))
    begun = order[np.maximum(before, 0)]
    is_in = is_batch[order] & (before >= 0) & (ids[begun] == ids[order])
    ends = np.concatenate([near["last_offset"].astype(np.int64), first])
    is_in &= ends[begun] > ends[order]
    found[mine[order[is_in] - near.size]] = True
    return found


def decoded(
    window: Window, rows: npt.NDArray[np.int64], names: Sequence[str], path: str
) -> Iterator[tuple[int, RecordColumns]]:
    """Decode some batches of a window; yields how many rows are done, and the records of the further ones."""
    done = 0
    while done < rows.size:
        part = Window(window.data, window.start, window.batches[rows[done:]])
        found = decode(part, names, selection=_RECORDS, check_crcs=False, path=path)
        if found.error is not None and not found.n_batches:
            raise found.error
        done += found.n_batches
        if found.columns is not None:
            yield done, found.columns


def _aborted(segments: Sequence[Segment], outcomes: TransactionOutcomes) -> npt.NDArray[np.void]:
    """The aborted transactions; those of a transaction index as they are there."""
    ended = outcomes.not_committed
    unknown = np.flatnonzero(ended["outcome"] == Outcome.UNKNOWN)
    for row in unknown.tolist():
        if ended["first_offset"][row] < segments[-1].base_offset:
            cause = outcomes.causes.get(int(ended["start_position"][row]))
            detail = f"how the transaction of producer {ended['producer_id'][row]} ended is unknown"
            at = int(ended["first_offset"][row])
            error = CorruptionError(Reason.OFFSET_GAP, detail, path=str(segments[0].path.parent), base_offset=at)
            raise error if cause is None else CorruptionError.about(cause, f"{detail}: {cause.detail}")
    entries = aborted_entries(ended)
    stored = {int(one["last_offset"]): one for segment in segments for one in _index(segment)}
    for row, at in enumerate(entries["last_offset"].tolist()):
        if at in stored and stored[at]["producer_id"] == entries["producer_id"][row]:
            entries[row] = stored[at]
    return entries[np.argsort(entries["last_offset"], kind="stable")]


def _index(segment: Segment) -> npt.NDArray[np.void]:
    index = segment.transaction_index
    return np.empty(0, kf.TRANSACTION_INDEX_DTYPE) if index is None else index.entries


def _producers(partition: Partition, now_ms: int) -> npt.NDArray[np.void]:
    """The producers that a broker knows once it has loaded the partition."""
    snapshot = newest_snapshot(partition.path, partition.log_start_offset, partition.log_end_offset)
    start = 0 if snapshot is None or snapshot.end_offset is None else snapshot.end_offset
    state = ProducerState(snapshot, now_ms=now_ms, limits=partition.limits)
    for window in partition.reader.windows(Selection(start_offset=start, include_control=True)):
        batches = window.batches[window.batches.base_offset >= start]
        state.update(batches, log_position=batches.base_offset)
        window.release()
    entries = state.entries()
    is_open = entries["current_txn_first_offset"] >= 0
    active = entries[is_open | (now_ms - entries["timestamp"] < PRODUCER_ID_EXPIRATION_MS)]
    return active[np.argsort(active["producer_id"], kind="stable")]
