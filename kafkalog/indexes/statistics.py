"""Measures the sparse indexes of a segment or a partition, and the indexes that other settings would give.

A sparse index trades size and memory for lookup time. One walk of the batch headers gives the measures of the existing
indexes (`IndexMeasures`), and those of the indexes that a broker would build with other values of
`index.interval.bytes`. Nothing is written, no record is decoded, and memory does not grow with the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason
from kafkalog.html import JsonFields
from kafkalog.indexes.builder import EntryRule
from kafkalog.indexes.measures import IndexMeasures, IndexMeter, MeasuredWindow

if TYPE_CHECKING:
    from kafkalog.indexes.view import OffsetEntries, TimeEntries
    from kafkalog.records.batch_table import BatchTable


@dataclass(frozen=True, slots=True)
class IndexStatistics(JsonFields):
    """Measures of the indexes of a segment, or of all segments of a partition."""

    _json_without: ClassVar[tuple[str, ...]] = ("segments",)

    path: str
    """Path of the `.log`, or of the partition's directory."""
    topic_partition: kf.TopicPartition | None
    segment: str | None
    """File name; None for a partition."""
    size_in_bytes: int
    n_batches: int
    n_segments: int
    """Size and counts of what was walked."""
    n_unindexed: int
    """Segments whose offset index is missing, or could not be measured."""
    index: IndexMeasures | None
    """The existing indexes. None if there are none."""
    what_if: tuple[IndexMeasures, ...]
    """The indexes that a rebuild with other values of `index.interval.bytes` would give, in the order requested."""
    segments: tuple[IndexStatistics, ...] = field(default=(), repr=False)
    """The segments of a partition."""


class SegmentMeter:
    """Measures the indexes of a segment in one walk of its batches, and those of other `intervals`.

    `base_offset` is None if the file name is not an offset: then the offsets in its indexes are not known. An index
    that misleads lookups is among the `findings`, and not measured.
    """

    def __init__(
        self,
        path: str,
        base_offset: int | None,
        offset_index: OffsetEntries | None = None,
        time_index: TimeEntries | None = None,
        *,
        topic_partition: kf.TopicPartition | None = None,
        intervals: Sequence[int] = (),
    ) -> None:
        self._path, self._base_offset, self._topic_partition = path, base_offset, topic_partition
        self.findings: list[Finding] = []
        for index in (offset_index, time_index):
            self.findings += [] if index is None else index.findings()
        # entries that misled would count as cheap lookups
        if offset_index is not None and (problem := disorder(offset_index)):
            self._report(offset_index, f"{problem}: not measured")
            offset_index = None
        self._entries, self._n_fed = offset_index, 0
        self._time_index = time_index
        self.index = None if offset_index is None else IndexMeter()
        self._rules = [EntryRule(interval) for interval in intervals]
        self.what_if = [IndexMeter(interval) for interval in intervals]
        self.size_in_bytes = self.n_batches = 0
        self._previous: int | None = None if base_offset is None else base_offset - 1
        self._timestamp = -1

    def _report(self, index: OffsetEntries, detail: str) -> None:
        self.findings.append(Finding(Reason.INDEX_MISLEADS, detail, path=index.path))

    def feed(self, batches: BatchTable) -> None:
        """Count a window of the segment; windows come in order."""
        if not len(batches):
            return
        if self._previous is None:
            # without a base offset in the file name, the segment begins at its first batch
            base = int(batches.base_offset[0])
            self._previous = (base if base >= 0 else int(batches.last_offset[0])) - 1
        rows = MeasuredWindow(batches, self._previous, self._timestamp)
        if self.index is not None and self._entries is not None:
            end = int(np.searchsorted(self._entries.offset, rows.last_offset[-1], side="right"))
            fed = slice(self._n_fed, end)
            self.index.feed(rows, self._entries.offset[fed], self._entries.position[fed])
            self._n_fed = end
        for rule, meter in zip(self._rules, self.what_if, strict=True):
            chosen = rule.rows(rows.position)
            meter.feed(rows, rows.last_offset[chosen], rows.position[chosen])
        self.n_batches += len(batches)
        self.size_in_bytes = rows.end_position
        self._previous, self._timestamp = int(rows.last_offset[-1]), int(rows.timestamp[-1])

    def finish(self) -> None:
        """End the segment."""
        for meter in (self.index, *self.what_if):
            if meter is not None:
                meter.finish(self.size_in_bytes, self._timestamp)
        if self.index is None or self._entries is None:
            return
        times, last = self._time_index, -1 if self._previous is None else self._previous
        # entries after the last walked batch do not belong to what was measured
        self.index.n_time_entries = None if times is None else int(np.count_nonzero(times.offset <= last))
        if self.index.misleading is not None:
            entry = "its entry ({}, {})".format(*self.index.misleading)
            self._report(self._entries, f"{entry} points past the batch with that offset: not measured")
            self.index = None

    def statistics(self) -> IndexStatistics:
        """The results; call `finish` first."""
        return IndexStatistics(
            self._path,
            self._topic_partition,
            os.path.basename(self._path),
            self.size_in_bytes,
            self.n_batches,
            1,
            int(self.index is None),
            None if self.index is None else self.index.measures(),
            tuple(meter.measures() for meter in self.what_if),
        )


class PartitionMeter:
    """Adds up segments. Several partitions can be merged into one, for example to plot a whole log dir."""

    def __init__(
        self, path: str, topic_partition: kf.TopicPartition | None = None, intervals: Sequence[int] = ()
    ) -> None:
        self._path, self._topic_partition = path, topic_partition
        self._index: IndexMeter | None = None
        self._what_if = [IndexMeter(interval) for interval in intervals]
        self._segments: list[IndexStatistics] = []
        self._counts = {"size_in_bytes": 0, "n_batches": 0, "n_segments": 0, "n_unindexed": 0}

    def add(self, meter: SegmentMeter) -> None:
        """Add a segment; `finish` has been called on it."""
        statistics = meter.statistics()
        self._segments.append(statistics)
        self._merge(meter.index, meter.what_if, {name: getattr(statistics, name) for name in self._counts})

    def merge(self, other: PartitionMeter) -> None:
        """Add another partition; its segments are not listed."""
        self._merge(other._index, other._what_if, other._counts)

    def _merge(self, index: IndexMeter | None, what_if: Sequence[IndexMeter], counts: dict[str, int]) -> None:
        if index is not None:
            if self._index is None:
                self._index = IndexMeter()
                self._index.n_time_entries = None
            self._index.merge(index)
        for mine, its in zip(self._what_if, what_if, strict=True):
            mine.merge(its)
        for name, count in counts.items():
            self._counts[name] += count

    def statistics(self) -> IndexStatistics:
        """The results."""
        return IndexStatistics(
            self._path,
            self._topic_partition,
            None,
            **self._counts,
            index=None if self._index is None else self._index.measures(),
            what_if=tuple(meter.measures() for meter in self._what_if),
            segments=tuple(self._segments),
        )


def disorder(index: OffsetEntries) -> str:
    """The reason why the entries cannot be searched; "" if they can."""
    for name, values in (("offset", index.offset), ("position", index.position)):
        for row in np.flatnonzero(values[1:] <= values[:-1])[:1].tolist():
            return f"entry {row + 2} has {name} {values[row + 1]} after {values[row]}, which must increase"
    if len(index) and (index.offset[0] < index.base_offset or index.position[0] < 0):
        return "its first entry lies before the segment"
    return ""
