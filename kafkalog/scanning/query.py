"""`Query`: the options of `scan`, checked and converted for the layers below.

It opens the path and chooses partitions, segments and offsets. It reads no records. `Explanation` tells what a scan
rules out at each level, and how much it read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final, Literal, Self, Unpack, cast

import pyarrow as pa

from kafkalog import format as kf
from kafkalog import html
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits, OnCorruption
from kafkalog.html import PublicNames
from kafkalog.indexes.time_hints import offset_past, position_of_younger
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, latest_of, partitions_of
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.ranges import PartitionRanges
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import ScanStatistics
from kafkalog.parsing import (
    TopicPatterns,
    check_once,
    check_partitions,
    column_hint,
    decoder_count,
    derived_column,
    is_to_end,
    parse_milliseconds,
    some,
)
from kafkalog.records.selection import Predicate, Selection
from kafkalog.scanning.conditions.expressions import Residual, conditions_of
from kafkalog.scanning.conditions.filters import PLACE, Filter, Term
from kafkalog.scanning.options import OPENING, ScanOptions, check_options, unknown_option
from kafkalog.scanning.user_functions import Extract, Where
from kafkalog.state.read_committed import IsolationLevel

_CLOCKS_MS: Final = 60_000
"""By how much the clocks of brokers may differ."""
_TIMES: Final = ("start_timestamp", "end_timestamp")
_RANGES: Final = ("start_offset", "end_offset", *_TIMES)

Opened = LogDir | Partition | Segment
Target = Opened | PartitionRanges
"""What a query reads: an opened path, or the parts of a plan."""


@dataclass(frozen=True, slots=True)
class Query:
    """What to read: the options of `scan`, checked and in the types that the layers below take."""

    target: Target
    topics: Sequence[str] | None = None
    partitions: Sequence[int] | None = None
    start_offset: int | Mapping[kf.TopicPartition, int] | None = None
    end_offset: int | Mapping[kf.TopicPartition, int] | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    """Both in milliseconds."""
    filter: Filter | None = None
    where: Where | None = None
    extract: Extract | None = None
    residual: Residual | None = None
    """The Arrow expression, applied to decoded columns where `filter` does not say all that it says."""
    isolation_level: IsolationLevel = "read_uncommitted"
    include_control: bool = False
    include_deleted: bool = False
    on_corruption: OnCorruption = "raise"
    check_crcs: bool = True
    threads: int = 1
    limits: Limits = DEFAULT_LIMITS
    internal: bool = True
    """Whether internal topics of a log dir are read without being named."""
    max_disorder: int | None = None
    """In milliseconds, by how much a record is older than one before it at most; None if that is not known."""
    limit: int | None = None
    """At most this many records."""
    latest: str | None = None
    """Only the last record of each key, unless its value is null; conditions apply to these records."""
    use_time_index: bool = False
    """Whether to begin in each segment where its time index says; see `kafkalog.indexes.time_hints`."""

    @classmethod
    def of(cls, path: Paths | Opened, **options: Unpack[ScanOptions]) -> Self:
        """The query for the options of `kafkalog.scan`. `Scan` checks `columns`, `batch_size` and `binary_type`."""
        if unknown := options.keys() - ScanOptions.__annotations__.keys():
            raise TypeError(unknown_option(min(unknown), options))
        given = cast(dict[str, Any], options)
        to_end = {}
        for name in _TIMES:
            if name in given and is_to_end(given[name]):
                to_end[name] = given.pop(name)
        checked = {"internal": False, "threads": decoder_count(), **check_options(**given)}
        target, limits = _opened(path, options)
        functions, where, filters = given.get("extract"), given.get("where"), given.get("filters")
        extract = Extract(functions) if functions else None
        derived = {} if extract is None else extract.dtypes
        for name in derived:
            if name in ALL_COLUMNS:
                raise ValueError(f"extract[{name!r}]: records have a column of that name; choose another")
        if isinstance(where, str) and " " in where:
            raise TypeError(f"where is a function to compile; did you mean filters={where!r}?")
        compiled = None if where is None else Where(cast(Any, where))
        query = cls(target, where=compiled, extract=extract, limits=limits, **checked)
        if query.latest is not None and query.include_control:
            raise ValueError("latest='key' excludes include_control")

        @cache
        def end_ms() -> int:
            query._check_names()
            return latest_of(query.iter_partitions())

        condition, residual = None, None
        if filters is not None:
            condition, residual = conditions_of(filters, derived, end_ms)
        query._check_names()
        if query.max_disorder is not None and options.get("end_timestamp", to_end.get("end_timestamp")) is None:
            raise ValueError("max_disorder is about the end of a range of times: give end_timestamp, too")
        for name, value in to_end.items():
            to_end[name] = parse_milliseconds(name, value, end_ms=end_ms)
        if filters is None and not to_end:
            return query
        return replace(query, filter=condition, residual=residual, **to_end)

    def _check_names(self) -> None:
        """Raise for unknown topics, partitions and keys of offsets: a typo must not silently read nothing."""
        starts = self.start_offset if isinstance(self.start_offset, Mapping) else {}
        ends = self.end_offset if isinstance(self.end_offset, Mapping) else {}
        if self.topics is None and self.partitions is None and not starts and not ends:
            return
        if isinstance(self.target, (Partition, Segment)):
            known = set() if self.target.topic_partition is None else {self.target.topic_partition}
            keys = {self.target.key} if isinstance(self.target, Partition) else known
        elif isinstance(self.target, LogDir):
            keys = known = set(self.target.select(internal=self.internal or self.topics is not None))
        else:
            return  # a plan has found them
        there = [*known, *(self.target.keys_set_apart if isinstance(self.target, LogDir) else ())]
        patterns = TopicPatterns(self.topics)
        patterns.check(sorted({key.topic for key in there}))
        check_partitions(self.partitions, (key.partition for key in there if patterns.wants(key.topic)))
        for key in (*starts, *ends):
            if key not in keys:
                raise ValueError(f"no partition {key} here for an offset; there are {some(sorted(keys))}")

    @property
    def n_partitions(self) -> int:
        """How many partitions the target has, wanted or not."""
        if isinstance(self.target, PartitionRanges):
            return len(self.target.parts)
        return len(self.target) if isinstance(self.target, LogDir) else 1

    def iter_partitions(self) -> Iterator[Partition | KafkalogError]:
        """The selected partitions in order; for one that cannot be opened, the error instead."""
        if isinstance(self.target, PartitionRanges):
            return self.target.open()
        return partitions_of(self.target, self.topics, self.partitions, internal=self.internal)

    def selections(
        self, partition: Partition, end: int | None = None
    ) -> tuple[Selection, dict[Segment, Selection]] | None:
        """The selections for a partition and for each of its segments, before the offset `end`.

        None if no record of the partition can match. Segments without a possible match have no entry.
        """
        key = partition.key
        topic, number = partition.topic_partition or (None, None)
        condition = True if self.filter is None else self.filter.bind({"topic": topic, "partition": number})
        if condition is None:
            return None
        selection = Selection(
            offset_of(self.start_offset, key),
            end if self.end_offset is None else smaller(offset_of(self.end_offset, key), end),
            self.start_timestamp,
            self.end_timestamp,
            self.include_control,
            derivation=self.extract,
        )
        selection = partition.effective(selection, include_deleted=self.include_deleted)
        whole = self._narrowed(selection, condition)
        if condition is True:
            return whole, dict.fromkeys(partition.segments, whole)
        mine = {}
        for segment in partition.segments:
            rest = condition.bind({"segment": segment.path.name})
            if rest is not None:
                mine[segment] = self._narrowed(selection, rest)
        return whole, mine

    def _narrowed(self, selection: Selection, condition: Filter | Literal[True]) -> Selection:
        """The selection of the records for which a filter holds, too; what it says of bounds becomes bounds."""
        rest = None if condition is True else condition.within_bounds()
        predicates: list[Predicate] = [] if rest is None else [*rest.split()]
        if self.latest is not None:
            predicates.insert(0, _STATE)
        if self.where is not None:
            predicates.append(self.where)
        bounds = {} if condition is True else condition.bounds()
        if not predicates and not bounds:
            return selection
        return replace(
            selection,
            start_offset=larger(selection.start_offset, bounds.get("start_offset")),
            end_offset=smaller(selection.end_offset, bounds.get("end_offset")),
            start_timestamp=larger(selection.start_timestamp, bounds.get("start_timestamp")),
            end_timestamp=smaller(selection.end_timestamp, bounds.get("end_timestamp")),
            predicates=tuple(predicates),
        )

    def assumed_end(self, partition: Partition) -> int | None:
        """The offset from which on all records are past the end timestamp, if `max_disorder` holds; None for none.

        With `use_time_index` alone, it is a minute for records whose timestamps a broker set, by its own clock.
        """
        if self.end_timestamp is None or (self.max_disorder is None and not self.use_time_index):
            return None
        is_appended = self.max_disorder is None
        timestamp = self.end_timestamp + (_CLOCKS_MS if self.max_disorder is None else self.max_disorder)
        past = cache(partial(offset_past, timestamp=timestamp, is_appended=is_appended))
        # if the search meets segments out of order, it ends at a later one: then more is read
        number = bisect_left(partition.segments, True, key=lambda one: past(one) is not None)
        return next((past(one) for one in partition.segments[number : number + 1]), None)

    def start_at(self, selection: Selection, segment: Segment) -> int:
        """The position of a batch of a segment before which no record of the selection is."""
        timestamp = selection.start_timestamp
        return position_of_younger(segment, timestamp) if self.use_time_index and timestamp is not None else 0

    def selected_partitions(self) -> list[str]:
        """The topics and partitions that were asked for, as text."""
        chosen = ("topics", self.topics), ("partitions", self.partitions)
        return [f"{name}={value}" for name, value in chosen if value is not None]

    def selected_records(self) -> list[str]:
        """The ranges and filters that were asked for, as text."""
        ranges = [f"{name}={getattr(self, name)}" for name in _RANGES if getattr(self, name) is not None]
        residual = None if self.residual is None else self.residual.expression
        return [*ranges, *(str(one) for one in (self.filter, self.where, residual) if one is not None)]

    def conditions(self) -> dict[str, list[str]]:
        """The conditions that apply at each level, as text."""
        terms = [] if self.filter is None else [term for group in self.filter.groups for term in group]
        ranges = self._ranges()
        jumps = [f"{ranges['start_offset']} by the offset index"] if "start_offset" in ranges else []
        if self.use_time_index and "start_timestamp" in ranges:
            jumps.append(f"{ranges['start_timestamp']} by the time indexes")
        batches = [text for name, text in ranges.items() if name != "end_timestamp"]
        batches += ["read_committed"] if self.isolation_level == "read_committed" else []
        batches += [] if self.include_control else ["no control batches"]
        records = self.selected_records()
        if self.latest is not None:
            records.append(f"latest={self.latest}")
        return {
            "partitions": [
                *(self.selected_partitions() + ["no internal topics"] * self._leaves_internal_out),
                *(str(term) for term in terms if term.column in PLACE),
            ],
            "segments": [
                *(text for name, text in ranges.items() if name.endswith("offset")),
                *(str(term) for term in terms if term.column == "segment"),
            ],
            "bytes": jumps,
            "batches": [*batches, *(str(term) for term in terms if term.is_of_batch)],
            "records": records,
        }

    def _ranges(self) -> dict[str, str]:
        """The bounds of ranges and filters, by the name of the option, as text."""
        bounds: dict[str, Any] = {name: getattr(self, name) for name in _RANGES}
        for name, bound in ({} if self.filter is None else self.filter.bounds()).items():
            if not isinstance(bounds[name], Mapping):
                bounds[name] = (smaller if name.startswith("end") else larger)(bounds[name], bound)
        return {name: f"{name}={bound}" for name, bound in bounds.items() if bound is not None}

    @property
    def _leaves_internal_out(self) -> bool:
        if not isinstance(self.target, LogDir):
            return False
        return len(self.target.select(self.topics, internal=self.internal)) < len(self.target.select(self.topics))

    @property
    def of_plan(self) -> Filter | None:
        """The query by which a plan excludes records; with `latest`, it excludes only partitions."""
        return self.filter if self.filter is None or self.latest is None else self.filter.about(PLACE)

    def of_keys(self, partition: Partition) -> Query:
        """The query that finds the latest records of a partition: all records whose keys are wanted."""
        has_key = Term.of("key", "is not null")
        # the last record of a key may lie outside the wanted range, and then the key has none in it
        wanted = (self.filter or Filter(((),))).about((*PLACE, "key"), has_key)
        nothing: dict[str, Any] = dict.fromkeys(
            ("topics", "partitions", "where", "extract", "residual", "limit", "latest")
        )
        return replace(self, target=partition, filter=wanted, **nothing)


_STATE: Final = Filter(((Term.of("key", "is not null"), Term.of("value", "is not null")),))
"""Records that say what the state of their key is: one without a value says that there is none."""


def larger(one: int | None, other: int | None) -> int | None:
    """The larger of two bounds, of which each may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two bounds, of which each may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def offset_of(offsets: int | Mapping[kf.TopicPartition, int] | None, key: kf.TopicPartition | None) -> int | None:
    """The offset for a partition: the one for all, or its own in a mapping; None if there is none."""
    if isinstance(offsets, Mapping):
        return None if key is None else offsets.get(key)
    return offsets


def _opened(path: Paths | Opened, options: ScanOptions) -> tuple[Opened, Limits]:
    limits, memory_map = options.get("limits"), options.get("memory_map", "auto")
    if not isinstance(path, (LogDir, Partition, Segment)):
        limits = DEFAULT_LIMITS if limits is None else limits
        named: dict[str, Any] = {}
        if not options.keys().isdisjoint(OPENING):
            named = {name: value for name, value in options.items() if name in OPENING}
        return open_path(path, memory_map=memory_map, limits=limits, **named), limits
    if limits is not None or memory_map != "auto" or options.get("tiered") is not None:
        raise ValueError("limits=, memory_map= and tiered= work with a path only: pass them to kafkalog.open")
    return path, path.limits


def check_columns(
    columns: Sequence[str] | None, known: Sequence[str], default: Sequence[str], derived: Container[str] = ()
) -> tuple[str, ...]:
    """Check that each column exists and is named once, and return the names; the default columns for None."""
    if columns is None:
        return tuple(default)
    names = tuple(columns)
    for name in names:
        if name in derived and name not in known:
            raise derived_column(name)
        if name not in known:
            column = name.partition(".")[0]
            if "." in name and column in ("key", "value"):
                raise ValueError(f"column {name!r} needs --{column}-format (decode=), such as json or avro")
            raise ValueError(f"no column {name!r}; {column_hint(name, known)}")
    check_once(names)
    return names


@dataclass(frozen=True, slots=True)
class Explanation(PublicNames):
    """What a scan rules out and reads at each level. `str` gives a table."""

    conditions: dict[str, list[str]]
    """Conditions by the level at which they apply: partitions, segments, bytes, batches, records."""
    statistics: ScanStatistics

    def __str__(self) -> str:
        counts = self.statistics
        rows = [
            ("partitions", counts.n_partitions, counts.n_partitions_read),
            ("segments", counts.n_segments, counts.n_segments_read),
            ("bytes", counts.n_bytes, counts.n_bytes_read),
            ("batches", counts.n_batches, counts.n_batches_decoded),
            ("records", counts.n_records, counts.n_records_selected),
        ]
        lines = [f"{'':12}{'there':>16}{'taken':>16}  by"]
        for name, there, taken in rows:
            by = "; ".join(self.conditions.get(name, [])) or "-"
            lines.append(f"{name:12}{_number(there):>16}{_number(taken):>16}  {by}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the table, as it is printed."""
        return html.preformatted(str(self))

    def as_dict(self) -> dict[str, Any]:
        """Conditions and counts as a dict, for JSON."""
        return {"conditions": self.conditions, **self.statistics.as_dict()}


def html_of(title: str, schema: pa.Schema, conditions: dict[str, list[str]]) -> str:
    """Return HTML for a notebook: the columns of a scan, and its conditions at each level."""
    columns = html.table(title, ("column", "type"), ((one.name, str(one.type)) for one in schema))
    plan = [(level, "; ".join(said)) for level, said in conditions.items() if said]
    return columns + "\n" + html.table("conditions" if plan else "all records", ("level", "taken by"), plan)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
