"""Measures the sparse indexes of a segment or a partition, and the indexes that other settings would give.

A sparse index trades size and memory for lookup time. One walk of the batch headers gives the measures of the existing
indexes (`IndexMeasures`), those of the indexes that a broker would build with other settings, how far timestamps are
out of order, and how close the segment is to each limit that rolls it. Nothing is written, no record is decoded, and
memory does not grow with the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason, SidecarError
from kafkalog.html import PublicNames
from kafkalog.indexes.distribution import Distribution, Spread
from kafkalog.indexes.measures import EntryRule, IndexMeasures, IndexMeter, Rows
from kafkalog.state.log_config import LogConfig, checked_config

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalog.indexes.view import OffsetEntries, TimeEntries
    from kafkalog.records.batch_table import BatchTable


@dataclass(frozen=True, slots=True)
class IndexStatistics(PublicNames):
    """Measures of the indexes of a segment, or of all segments of a partition."""

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
    lag: Spread
    """By how many ms the largest timestamp of a batch lies below that of an earlier batch of the segment. Batches that
    are in order do not count."""
    roll: dict[str, float | None]
    """How far the segment is towards each limit at which a broker rolls it; 1 is the limit. `segment.bytes`;
    `segment.ms`, by record time (from the timestamp of the first batch to the largest one; None if the first batch has
    none, because the broker then uses its clock); `offset index` and `time index`, which are full at 1; `relative
    offset`, which exceeds int32 beyond 1. For a partition these are the values of its last segment, the one that will
    roll. The size of the next batch and `segment.jitter.ms` are ignored."""
    segments: tuple[IndexStatistics, ...] = field(default=(), repr=False)
    """The segments of a partition."""

    @property
    def nearest_roll(self) -> str | None:
        """The condition of `roll` with the largest fraction; None in an empty log."""
        known = {name: value for name, value in self.roll.items() if value is not None}
        return max(known, key=known.__getitem__) if known and self.n_batches else None

    def as_dict(self) -> dict[str, Any]:
        """The fields and properties, for JSON, without `segments`; each segment has its own `as_dict`."""
        topic, partition = self.topic_partition or (None, None)
        return {
            "path": self.path,
            "topic": topic,
            "partition": partition,
            "segment": self.segment,
            "size_in_bytes": self.size_in_bytes,
            "n_batches": self.n_batches,
            "n_segments": self.n_segments,
            "n_unindexed": self.n_unindexed,
            "index": None if self.index is None else self.index.as_dict(),
            "what_if": [measures.as_dict() for measures in self.what_if],
            "n_out_of_order": self.lag.n,
            "lag_ms": self.lag.as_dict(),
            "roll": self.roll,
            "nearest_roll": self.nearest_roll,
        }

    def to_arrow(self) -> pa.Table:
        """A `pyarrow.Table` with one row per index: first those of this object, then those of its segments.

        `index_interval_bytes` is null for the index on disk, `segment` is null for a whole partition.
        """
        import pyarrow as pa

        rows = [row for one in (self, *self.segments) for row in one._flat_rows()]
        names = list(dict.fromkeys(name for row in rows for name in row))
        schema = pa.schema([pa.field(name, _arrow_type(name, pa)) for name in names])
        return pa.Table.from_pylist(rows, schema=schema)

    def _flat_rows(self) -> list[dict[str, Any]]:
        common = self.as_dict()
        for name in ("index", "what_if"):
            del common[name]
        common["lag_ms"] = {f"{name}": value for name, value in common["lag_ms"].items() if name != "n"}
        common["roll"] = {name.replace(".", "_").replace(" ", "_"): value for name, value in self.roll.items()}
        del common["size_in_bytes"]
        found = [measures for measures in (self.index, *self.what_if) if measures is not None]
        return [_flatten({**common, **measures.as_dict()}) for measures in found]


def one_ahead(meters: Iterable[SegmentMeter]) -> Iterator[SegmentMeter]:
    """Make the first meter now, and each other one before the previous one is yielded.

    Making one reads the indexes, and a walk of the batches is a window ahead. A running broker appends to the
    log first: entries have to be read before batches.
    """
    rest = iter(meters)
    made = next(rest, None)

    def give() -> Iterator[SegmentMeter]:
        nonlocal made
        while made is not None:
            meter, made = made, next(rest, None)
            yield meter

    return give()


class SegmentMeter:
    """Measures the indexes of a segment in one walk of its batches.

    Parameters
    ----------
    path : str
        Path of the `.log`.
    base_offset : int or None
        None if the file name is not an offset: then the offsets in its indexes are not known.
    intervals : sequence of int
        Values of `index.interval.bytes` to measure in addition to the existing indexes.
    config : LogConfig, optional
        Settings of the topic; default: Kafka's defaults.

    Attributes
    ----------
    findings : list of Finding
        Findings about the indexes. An index that misleads lookups is not measured.
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
        config: LogConfig | None = None,
    ) -> None:
        self._path, self._base_offset, self._topic_partition = path, base_offset, topic_partition
        self._config = checked_config(config)
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
        self.lag = Distribution()
        self.size_in_bytes = self.n_batches = 0
        self._previous: int | None = None if base_offset is None else base_offset - 1
        self._timestamp = self._first_timestamp = -1
        self._is_finished = False

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
        if not self.n_batches:
            self._first_timestamp = int(batches.max_timestamp[0])
        rows = Rows(batches, self._previous, self._timestamp)
        self._feed_lag(batches, rows)
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

    def _feed_lag(self, batches: BatchTable, rows: Rows) -> None:
        lag = rows.timestamp - batches.max_timestamp
        self.lag.add(lag[(batches.max_timestamp >= 0) & (lag > 0)])

    def finish(self, *, is_whole: bool = True) -> None:
        """End the segment.

        Parameters
        ----------
        is_whole : bool
            Whether the walk found no damage. Then entries after the last batch are wrong.
        """
        if self._is_finished:
            return
        self._is_finished = True
        last = -1 if self._previous is None else self._previous
        for meter in (self.index, *self.what_if):
            if meter is not None:
                meter.finish(self.size_in_bytes, last, self._timestamp)
        if self.index is None or self._entries is None:
            return
        times = self._time_index
        # entries after the last walked batch do not belong to what was measured
        self.index.n_time_entries = None if times is None else int(np.count_nonzero(times.offset <= last))
        if self.index.misleading is not None:
            offset, position = self.index.misleading
            self._report(
                self._entries,
                f"its entry ({offset}, {position}) points past the batch with that offset: not measured",
            )
            self.index = None
        elif is_whole and (n_left := len(self._entries) - self._n_fed):
            self._report(self._entries, f"{n_left} of its {len(self._entries)} entries lie past the last batch")

    def roll(self) -> dict[str, float | None]:
        """See `IndexStatistics`."""
        index, config = self.index.measures() if self.index is not None else None, self._config
        waited = None
        # the settings of a broker roll by its clock if the first batch has no timestamp: files do not tell that time
        if self._first_timestamp >= 0:
            waited = (self._timestamp - self._first_timestamp) / config.max_segment_ms
        span = None
        if self._base_offset is not None and self._previous is not None:
            span = max(self._previous - self._base_offset, 0) / kf.MAX_RELATIVE_OFFSET
        n_time_entries = None if index is None else index.n_time_entries
        # a broker reserves the last slot of a time index for the entry that a roll adds
        max_time_entries = max(config.segment_index_bytes // kf.TIME_INDEX_DTYPE.itemsize - 1, 1)
        max_entries = config.segment_index_bytes // kf.OFFSET_INDEX_DTYPE.itemsize
        return {
            "segment.bytes": self.size_in_bytes / config.segment_bytes,
            "segment.ms": waited,
            "offset index": None if index is None else index.n_entries / max_entries,
            "time index": None if n_time_entries is None else n_time_entries / max_time_entries,
            "relative offset": span,
        }

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
            self.lag.spread(),
            self.roll(),
        )


class PartitionMeter:
    """Adds up segments. Several partitions can be merged into one, for example to plot a whole log dir.

    Parameters
    ----------
    intervals : sequence of int
        The same values as for the segments' meters.
    """

    def __init__(
        self, path: str, topic_partition: kf.TopicPartition | None = None, intervals: Sequence[int] = ()
    ) -> None:
        self._path, self._topic_partition = path, topic_partition
        self._index: IndexMeter | None = None
        self._what_if = [IndexMeter(interval) for interval in intervals]
        self._lag = Distribution()
        self._segments: list[IndexStatistics] = []
        self._counts = {"size_in_bytes": 0, "n_batches": 0, "n_segments": 0, "n_unindexed": 0}

    def add(self, meter: SegmentMeter) -> None:
        """Add a segment; `finish` has been called on it."""
        statistics = meter.statistics()
        self._segments.append(statistics)
        self._merge(meter.index, meter.what_if, meter.lag, {name: getattr(statistics, name) for name in self._counts})

    def merge(self, other: PartitionMeter) -> None:
        """Add another partition; its segments are not listed."""
        self._merge(other._index, other._what_if, other._lag, other._counts)

    def _merge(
        self, index: IndexMeter | None, what_if: Sequence[IndexMeter], lag: Distribution, counts: dict[str, int]
    ) -> None:
        if index is not None:
            if self._index is None:
                self._index = IndexMeter()
                self._index.n_time_entries = None
            self._index.merge(index)
        for mine, its in zip(self._what_if, what_if, strict=True):
            mine.merge(its)
        self._lag.merge(lag)
        for name, count in counts.items():
            self._counts[name] += count

    def statistics(self, *, keep_gaps: bool = False) -> IndexStatistics:
        """The results; with `keep_gaps` also the distribution of gaps, for a plot."""
        return IndexStatistics(
            self._path,
            self._topic_partition,
            None,
            **self._counts,
            index=None if self._index is None else self._index.measures(keep_gaps=keep_gaps),
            what_if=tuple(meter.measures(keep_gaps=keep_gaps) for meter in self._what_if),
            lag=self._lag.spread(),
            roll=self._segments[-1].roll if self._segments else {},
            segments=tuple(self._segments),
        )


def measure_index(index: OffsetEntries, batches: BatchTable | Iterable[BatchTable]) -> IndexMeasures:
    """See `OffsetIndex.statistics`."""
    tables = cast("Iterable[BatchTable]", [batches] if hasattr(batches, "base_offset") else batches)
    meter = SegmentMeter("", index.base_offset, index)
    for table in tables:
        meter.feed(table)
    meter.finish(is_whole=False)
    if meter.index is None:
        problem = meter.findings[-1].detail.removesuffix(": not measured")
        raise SidecarError(Reason.INDEX_MISLEADS, problem, path=index.path, base_offset=index.base_offset)
    return meter.index.measures(keep_gaps=True)


def disorder(index: OffsetEntries) -> str:
    """The reason why the entries cannot be searched; "" if they can."""
    for name, values in (("offset", index.offset), ("position", index.position)):
        if (row := _first_drop(values)) is not None:
            return f"its entry {row + 1} has {name} {values[row]}, not above the {values[row - 1]} of the one before"
    if len(index) and (index.offset[0] < index.base_offset or index.position[0] < 0):
        return "its first entry lies before the segment"
    return ""


def _first_drop(values: npt.NDArray[np.int64]) -> int | None:
    drops = values[1:] <= values[:-1]
    return int(np.argmax(drops)) + 1 if drops.any() else None


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}_")
        else:
            flat[prefix + name] = value
    return flat


_TEXTS: Final = ("path", "topic", "segment", "nearest_roll")
_FRACTIONS: Final = ("expected_scan_", "index_bytes_per_", "entries_per_", "roll_")


def _arrow_type(name: str, pa: Any) -> pa.DataType:
    if name in _TEXTS:
        return pa.string()
    if name.startswith(_FRACTIONS) or name.endswith(("_mean", "_coefficient_of_variation")):
        return pa.float64()
    return pa.int32() if name == "partition" else pa.int64()
