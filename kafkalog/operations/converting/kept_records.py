"""Decides which records a conversion keeps, drops or redacts, and which batches producers and transactions need.

A broker knows a producer by its last batch, and a transaction by its first offset. Such a batch stays as an empty one
if it loses all its records. The last batch of a producer also keeps its boundaries, so that a producer that continues,
or retries its last batch, is recognised as before. This keeps a little more than `Cleaner.shouldDiscardBatch`, which
may move the start of a transaction to a later batch. This module does not rewrite batches.

Conditions on fields of decoded values become conditions on offsets: a pass before the conversion decodes, and says
which records match. The output then depends on offsets alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog.errors import Finding, OnCorruption, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import ReadOptions
from kafkalog.operations.converting.redaction import Redaction
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.selection import FunctionFailure, Mask, Predicate, Selection
from kafkalog.records.spans import Spans
from kafkalog.scanning.conditions.filter_tuples import Filters
from kafkalog.scanning.conditions.filters import Filter
from kafkalog.scanning.read import scan
from kafkalog.state.producers import ProducerState

_NOTHING: Final = Filter(())
_EVERYTHING: Final = Filter(((),))
_PLACE: Final = ("topic", "partition", "offset")
_NOWHERE: Final = [[("offset", "<", 0)]]
_DOUBTS: Final = (Reason.VALUE_UNDECODED, Reason.COLUMN_MISSING)


class DecodedConditions:
    """Finds the records of a log whose decoded values match conditions; `options` are those of `scan`."""

    def __init__(
        self, opened: LogDir | Partition | Segment, options: Mapping[str, Any], note: Callable[[Finding], None]
    ) -> None:
        self._opened, self._options, self._note = opened, options, note
        self._seen: set[str] = set()
        self.n_undecoded = 0
        """Values that did not decode, in the pass with most of them: whether their records match is not known."""

    def by_place(self, conditions: Filters) -> Filters:
        """The records that match, by topic, partition and offset; the conditions themselves if nothing is decoded."""
        if not self._options["decode"]:
            return conditions
        records = scan(self._opened, columns=[*_PLACE], filters=conditions, include_deleted=True, **self._options)
        offsets: dict[tuple[str | None, int | None], list[npt.NDArray[np.int64]]] = {}
        for batch in records.to_batches():
            # a record batch is of one partition
            topic, number = batch.column(0)[0].as_py(), batch.column(1)[0].as_py()
            offsets.setdefault((topic, number), []).append(batch.column(2).to_numpy())
        self._take_notes(records)
        return [
            [*_place(*key), ("offset", "in", np.concatenate(some).tolist())] for key, some in offsets.items()
        ] or _NOWHERE

    def _take_notes(self, records: Any) -> None:
        self.n_undecoded = max(self.n_undecoded, records.n_undecoded)
        for finding in records.findings:
            # damage is found once more by the conversion itself
            if finding.reason in _DOUBTS and str(finding) not in self._seen:
                self._seen.add(str(finding))
                self._note(finding)


def _place(topic: str | None, number: int | None) -> list[tuple[str, str, Any]]:
    """The conditions for a partition; none for a segment outside of a topic's directory."""
    return [] if topic is None else [("topic", "==", topic), ("partition", "==", number)]


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
            # batches below are not converted, so no producer may depend on them
            batches = batches[batches.last_offset >= start_offset]
        ended = state.update(batches, log_position=np.arange(n_seen, n_seen + len(batches)))
        begun.append(ended["first_offset"].astype(np.int64))
        n_seen += len(batches)
    begun.append(np.array([one.first_offset for one in state.transactions.open_transactions()], np.int64))
    # a producer of which only a marker is left has no last batch
    last = state.entries()["last_offset"].astype(np.int64)
    return NeededBatches(np.unique(np.concatenate(begun)), np.unique(last[last >= 0]))
