"""Decides which records a conversion keeps, drops or redacts, and which batches producers and transactions need.

A broker knows a producer by its last batch, and a transaction by its first offset. Such a batch stays as an empty one
if it loses all its records. The last batch of a producer also keeps its boundaries, so that a producer that continues,
or retries its last batch, is recognised as before. This keeps a little more than `Cleaner.shouldDiscardBatch`, which
may move the start of a transaction to a later batch. This module does not rewrite batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog.errors import OnCorruption
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import ReadOptions
from kafkalog.operations.converting.redaction import Redaction
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.selection import FunctionFailure, Mask, Predicate, Selection
from kafkalog.records.spans import Spans
from kafkalog.scanning.conditions.filters import Filter
from kafkalog.state.producers import ProducerState

_NOTHING: Final = Filter(())
_EVERYTHING: Final = Filter(((),))


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a conversion for all partitions."""

    keep: Filter | None = None
    """Records that do not match are dropped; None drops none."""
    drop: Filter | None = None
    """Records that match are dropped; None drops none."""
    redaction: Redaction | None = None
    redact: Filter | None = None
    """The records to redact; None for all."""
    include_deleted: bool = False
    """Whether records below the log start offset are included."""

    @property
    def drops_by_content(self) -> bool:
        """Whether a filter may drop records."""
        return self.keep is not None or self.drop is not None

    def bind(self, partition: Partition, segment: Segment) -> BoundRules:
        """The rules for one segment: topic, partition and segment name are filled into the filters."""
        topic, number = partition.topic_partition or (None, None)
        place = {"topic": topic, "partition": number, "segment": segment.path.name}
        start_offset = None
        if not self.include_deleted and partition.log_start_offset > segment.base_offset:
            start_offset = partition.log_start_offset
        # `bind` returns True if the filter matches all records of the segment, and None if it matches none
        keep: tuple[Predicate, ...] = ()
        if self.keep is not None:
            bound = self.keep.bind(place)
            keep = () if bound is True else (_NOTHING if bound is None else bound,)
        drop = None
        if self.drop is not None:
            bound = self.drop.bind(place)
            drop = _EVERYTHING if bound is True else bound
        if drop is not None:
            keep = (*keep, Unless(drop))
        kept = Selection(start_offset, predicates=keep)
        if self.redaction is None:
            return BoundRules(kept, None, None)
        bound = True if self.redact is None else self.redact.bind(place)
        if bound is None:
            return BoundRules(kept, None, None)
        redacted = kept if bound is True else Selection(start_offset, predicates=(*keep, bound))
        return BoundRules(kept, self.redaction, redacted)


@dataclass(frozen=True, slots=True)
class BoundRules:
    """The rules of a conversion for the records of one segment."""

    kept: Selection
    """The records to keep."""
    redaction: Redaction | None
    redacted: Selection | None
    """The kept records to redact."""

    @property
    def redacts_all(self) -> bool:
        """Whether every record that is kept is redacted."""
        return self.redacted is self.kept

    def untouched(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: batches that, by their headers, lose no record."""
        mask = np.ones(len(batches), np.bool_)
        if self.kept.start_offset is not None:
            mask &= batches.base_offset >= self.kept.start_offset
        for predicate in self.kept.predicates:
            mask &= predicate.spared(batches) if isinstance(predicate, Unless) else False
        return mask


@dataclass(frozen=True, slots=True)
class Unless:
    """A predicate that matches every record that a filter does not match, also where the filter compares with null."""

    filter: Filter

    @property
    def reads_headers(self) -> bool:
        """Whether the filter reads record headers."""
        return self.filter.reads_headers

    @property
    def reads_derived(self) -> bool:
        """Whether the filter reads derived columns."""
        return False

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """None: batch headers do not show which batches lose all their records."""
        return None

    def spared(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: batches in which, by their headers, no record matches the filter."""
        may_match = self.filter.batch_mask(batches)
        return np.zeros(len(batches), np.bool_) if may_match is None else ~may_match

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> list[FunctionFailure]:
        """Clear in `mask` the records that match the filter."""
        matches = mask.copy()
        self.filter.narrow(spans, matches, derived)
        mask &= ~matches & 1
        return []


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
    for window in partition.reader.windows(selection, ReadOptions(on_corruption=on_corruption)):
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
