"""Finds the batches that a partition's producers and transactions need, by a walk over the batch headers.

A broker knows a producer by its last batch, and a transaction by its first offset. Such a batch stays as an empty one
if it loses all its records. The last batch of a producer also keeps its boundaries, so that a producer that continues,
or retries its last batch, is recognised as before. This keeps a little more than `Cleaner.shouldDiscardBatch`, which
may move the start of a transaction to a later batch. This module does not decode records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog.errors import OnCorruption
from kafkalog.log.partition import Partition
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.selection import Selection
from kafkalog.state.producers import ProducerState


@dataclass(frozen=True, slots=True)
class NeededBatches:
    """The offsets that identify the needed batches."""

    first_offsets: npt.NDArray[np.int64]
    """Base offsets of the first batches of transactions."""
    last_offsets: npt.NDArray[np.int64]
    """Last offsets of the last batches of producers."""

    def are_last(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: the last batches of producers."""
        return (batches.producer_id >= 0) & np.isin(batches.last_offset, self.last_offsets)

    def are_needed(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: batches that must stay, as empty ones if they lose all records."""
        begins = batches.is_transactional & np.isin(batches.base_offset, self.first_offsets)
        return self.are_last(batches) | begins


def find_needed_batches(partition: Partition, start_offset: int | None, on_corruption: OnCorruption) -> NeededBatches:
    """Walk the headers of a partition from `start_offset` on; None walks all of it."""
    state = ProducerState(limits=partition.limits)
    begun: list[npt.NDArray[np.int64]] = []
    n_seen = 0
    selection = Selection(start_offset, include_control=True)
    for window in partition.reader.windows(selection, on_corruption=on_corruption):
        batches = window.batches
        window.release()
        if start_offset is not None:
            # what lies below is not converted, so no producer may depend on it
            batches = batches[batches.last_offset >= start_offset]
        ended = state.update(batches, log_position=np.arange(n_seen, n_seen + len(batches)))
        begun.append(ended["first_offset"].astype(np.int64))
        n_seen += len(batches)
    begun.append(np.array([one.first_offset for one in state.transactions.open_transactions()], np.int64))
    # a producer of which only a marker is left has no last batch
    last = state.entries()["last_offset"].astype(np.int64)
    return NeededBatches(np.unique(np.concatenate(begun)), np.unique(last[last >= 0]))
