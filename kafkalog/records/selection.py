"""Select records: first by batch headers, then by walked spans.

Records that are not selected are never copied. Batches excluded by their headers are never decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.records.batch_table import BatchTable, Window, may_lack_timestamps, valid_crcs
from kafkalog.records.spans import Spans

Mask = npt.NDArray[np.uint8]
"""uint8[n]: 1 for a record that is still selected."""


_MOST = 2**63 - 1


class FunctionFailure(NamedTuple):
    """Records on which a caller's function failed."""

    function: str
    """``where``, or ``extract['price']``."""
    offsets: npt.NDArray[np.int64]
    """int64[n]: offsets of the records."""
    detail: str
    """The exception that the first of them raised."""


class Predicate(Protocol):
    """A condition on records."""

    @property
    def reads_headers(self) -> bool:
        """Whether the condition reads record headers."""

    @property
    def reads_derived(self) -> bool:
        """Whether the condition reads derived columns."""

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """bool[n]: batches that may contain a matching record, by their headers alone; None for all."""

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> list[FunctionFailure]:
        """Clear the records in `mask` that do not match; records already cleared are not read."""


class Derivation(Protocol):
    """Numeric columns that are computed from records."""

    @property
    def reads_headers(self) -> bool:
        """Whether the derivation reads record headers."""

    def derive(self, spans: Spans, mask: Mask) -> tuple[dict[str, npt.NDArray[Any]], list[FunctionFailure]]:
        """Compute columns of ``len(spans)`` rows, masked where there is no value; only rows in `mask` are read."""


class Selected(NamedTuple):
    """The selected records of some spans."""

    rows: npt.NDArray[np.int64] | None
    """Numbers of the records that match; None for all."""
    derived: dict[str, npt.NDArray[Any]]
    """Derived columns of those records."""
    failures: list[FunctionFailure]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of a partition to select. Ranges are half-open; None means no bound."""

    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    """Milliseconds. A record of a format without timestamps never matches."""
    include_control: bool = False
    """Whether to also select control records."""
    predicates: tuple[Predicate, ...] = field(default=(), compare=False)
    """All must match."""
    derivation: Derivation | None = field(default=None, compare=False)

    @property
    def reads_headers(self) -> bool:
        return any(predicate.reads_headers for predicate in self.predicates) or (
            self.derivation is not None and self.derivation.reads_headers
        )

    @property
    def has_timestamps(self) -> bool:
        return self.start_timestamp is not None or self.end_timestamp is not None

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """Batches that may contain a selected record, by their headers alone; None for all.

        A largest timestamp below the start excludes a batch. Headers have no smallest timestamp, so the end of the
        range excludes only batches with log append time, whose records all have the largest one.
        """
        masks = []
        if self.start_offset is not None:
            masks.append((batches.last_offset >= self.start_offset) | hides_last_offset(batches))
        if self.end_offset is not None:
            # a wrapper's first offset is only known inside it, and may be below any end
            first = np.where(batches.base_offset >= 0, batches.base_offset, np.int64(-1))
            masks.append(first < self.end_offset)
        if self.start_timestamp is not None:
            # a v0 wrapper, which has no timestamp, may contain v1 messages
            hidden = (batches.magic == 0) & (batches.codec != 0)
            masks.append((batches.max_timestamp >= self.start_timestamp) | hidden)
        if self.end_timestamp is not None and batches.attribute_bits & kf.TIMESTAMP_TYPE_BIT:
            is_appended = (batches.magic > 0) & (batches.attributes & kf.TIMESTAMP_TYPE_BIT != 0)
            masks.append(~is_appended | (batches.max_timestamp < self.end_timestamp))
        if not self.include_control and batches.attribute_bits & kf.CONTROL_BIT:
            masks.append(~batches.is_control)
        masks += [mask for predicate in self.predicates if (mask := predicate.batch_mask(batches)) is not None]
        return np.logical_and.reduce(masks) if masks else None

    def wanted_batches(self, window: Window, *, check_crcs: bool) -> npt.NDArray[np.bool_] | None:
        """Batches of a window to decode: those of `batch_mask`, and with `check_crcs` damaged control batches.

        Decoding reports those. The damaged bit may be the one that makes them control batches, and a consumer
        also compares their checksums.
        """
        batches = window.batches
        mask = self.batch_mask(batches)
        if mask is None or self.include_control or not check_crcs or not (is_control := batches.is_control).any():
            return mask
        in_range = replace(self, include_control=True).batch_mask(batches)
        rows = np.flatnonzero(is_control if in_range is None else is_control & in_range)
        mask[rows] = ~valid_crcs(window, batches[rows])
        return mask

    @property
    def is_range(self) -> bool:
        """Whether only offsets, timestamps and batch headers decide which records are selected."""
        return not self.predicates and self.derivation is None

    @property
    def is_by_batch(self) -> bool:
        """Whether only offsets and batch headers decide."""
        return self.is_range and not self.has_timestamps

    def takes_all_of(self, batches: BatchTable) -> bool:
        """Whether every record of these batches is selected, by their headers alone."""
        return (
            self.is_by_batch
            and (self.start_offset is None or bool((batches.base_offset >= self.start_offset).all()))
            and (
                self.end_offset is None
                or bool(((batches.last_offset < self.end_offset) & ~hides_last_offset(batches)).all())
            )
        )

    def select(self, spans: Spans) -> Selected:
        """Select records of spans, and compute the derived columns."""
        ranges = self._in_ranges(spans)
        if not self.predicates and self.derivation is None:
            return Selected(None if ranges is None else np.flatnonzero(ranges), {}, [])
        mask = np.ones(len(spans), np.uint8) if ranges is None else ranges.view(np.uint8)
        derived: dict[str, npt.NDArray[Any]] = {}
        failures: list[FunctionFailure] = []
        # conditions on derived columns come last, so that columns are computed only for remaining records
        for predicate in self.predicates:
            if not predicate.reads_derived:
                failures += predicate.narrow(spans, mask, derived)
        if self.derivation is not None:
            derived, more = self.derivation.derive(spans, mask)
            failures += more
        for predicate in self.predicates:
            if predicate.reads_derived:
                failures += predicate.narrow(spans, mask, derived)
        matches = mask.view(np.bool_)
        if matches.all():
            return Selected(None, derived, failures)
        rows = np.flatnonzero(matches)
        return Selected(rows, {name: column[rows] for name, column in derived.items()}, failures)

    def rows_in_time(
        self, timestamp: npt.NDArray[np.int64], types: npt.NDArray[np.int8]
    ) -> npt.NDArray[np.int64] | None:
        """Rows of the records whose timestamps are in the range; None for all. `types` is their `timestamp_type`.

        The -1 of a v0 record, which has no timestamp, never matches, even if a range includes -1.
        """
        masks = []
        if self.start_timestamp is not None and timestamp.min(initial=_MOST) < self.start_timestamp:
            masks.append(timestamp >= self.start_timestamp)
        if self.end_timestamp is not None and timestamp.max(initial=-_MOST) >= self.end_timestamp:
            masks.append(timestamp < self.end_timestamp)
        if may_lack_timestamps(types):
            masks.append((types != -1) | (timestamp != kf.NO_TIMESTAMP))
        return np.flatnonzero(np.logical_and.reduce(masks)) if masks else None

    def _in_ranges(self, spans: Spans) -> npt.NDArray[np.bool_] | None:
        masks = []
        if self.start_offset is not None:
            masks.append(spans.offset >= self.start_offset)
        if self.end_offset is not None:
            masks.append(spans.offset < self.end_offset)
        if self.start_timestamp is not None:
            masks.append(spans.timestamp >= self.start_timestamp)
        if self.end_timestamp is not None:
            masks.append(spans.timestamp < self.end_timestamp)
        if self.has_timestamps:  # the -1 of a v0 record, which has no timestamp, never matches
            masks.append(~no_timestamp(spans))
        masks = [mask for mask in masks if not mask.all()]
        return np.logical_and.reduce(masks) if masks else None


def hides_last_offset(batches: BatchTable) -> npt.NDArray[np.bool_]:
    """Whether a v1 wrapper has offset 0, as librdkafka writes it, so that its last offset is only known inside."""
    hides: npt.NDArray[np.bool_] = (batches.magic == 1) & (batches.codec != 0) & (batches.last_offset == 0)
    return hides


def no_timestamp(spans: Spans) -> npt.NDArray[np.bool_]:
    """bool[n]: v0 records, whose format has no timestamps."""
    types = spans.timestamp_type
    without = np.repeat(spans.batches.magic == 0, spans.counts) if types is None else types == -1
    absent: npt.NDArray[np.bool_] = without & (spans.timestamp == kf.NO_TIMESTAMP)
    return absent
