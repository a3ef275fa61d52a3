"""Which records a conversion keeps, which it drops, and which it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.redaction import Redaction
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.selection import FunctionFailure, Mask, Predicate, Selection
from kafkalog.records.spans import Spans
from kafkalog.scanning.filters import Filter

_NOTHING: Final = Filter(())
_EVERYTHING: Final = Filter(((),))


@dataclass(frozen=True, slots=True)
class Rules:
    """What happens to records, wherever they are.

    Attributes
    ----------
    keep : Filter or None
        Records of which it does not hold are dropped; None drops none.
    drop : Filter or None
        Records of which it holds are dropped.
    redaction : Redaction or None
    redact : Filter or None
        Which records it is for; None for all.
    include_deleted : bool
        Whether records below the log start offset count.
    """

    keep: Filter | None = None
    drop: Filter | None = None
    redaction: Redaction | None = None
    redact: Filter | None = None
    include_deleted: bool = False

    @property
    def drops_by_content(self) -> bool:
        """Whether records may be dropped for what they hold."""
        return self.keep is not None or self.drop is not None

    def bind(self, partition: Partition, segment: Segment) -> BoundRules:
        """The same for the records of one segment."""
        topic, number = partition.topic_partition or (None, None)
        place = {"topic": topic, "partition": number, "segment": segment.path.name}
        start_offset = None
        if not self.include_deleted and partition.log_start_offset > segment.base_offset:
            start_offset = partition.log_start_offset
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
    """What happens to the records of a segment.

    Attributes
    ----------
    kept : Selection
    redaction : Redaction or None
    redacted : Selection or None
        Those of the kept records that are redacted.
    """

    kept: Selection
    redaction: Redaction | None
    redacted: Selection | None

    @property
    def redacts_all(self) -> bool:
        """Whether every record that is kept is redacted."""
        return self.redacted is self.kept

    def untouched(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: batches of which the headers tell that no record is dropped."""
        mask = np.ones(len(batches), np.bool_)
        if self.kept.start_offset is not None:
            mask &= batches.base_offset >= self.kept.start_offset
        for predicate in self.kept.predicates:
            mask &= predicate.spared(batches) if isinstance(predicate, Unless) else False
        return mask


@dataclass(frozen=True, slots=True)
class Unless:
    """A predicate that holds where a filter does not, null or not."""

    filter: Filter

    @property
    def reads_headers(self) -> bool:
        """Whether it looks at record headers."""
        return self.filter.reads_headers

    @property
    def reads_derived(self) -> bool:
        """Whether it looks at derived columns."""
        return False

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """None: which batches lose all their records, headers do not tell."""
        return None

    def spared(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: batches of which the headers tell that it holds for all records."""
        may_match = self.filter.batch_mask(batches)
        return np.zeros(len(batches), np.bool_) if may_match is None else ~may_match

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> list[FunctionFailure]:
        """Take out of `mask` the records of which the filter holds."""
        matches = mask.copy()
        self.filter.narrow(spans, matches, derived)
        mask &= ~matches & 1
        return []
