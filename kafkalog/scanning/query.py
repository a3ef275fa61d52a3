"""What is wanted of a log: which partitions and records, judged how, and read how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import OnCorruption
from kafkalog.records.selection import Predicate, Selection
from kafkalog.scanning.expressions import Residual
from kafkalog.scanning.filters import Filter
from kafkalog.scanning.user_functions import Extract, Where
from kafkalog.state.read_committed import IsolationLevel


@dataclass(frozen=True, slots=True)
class Query:
    """What is wanted of what, checked and in the types that the layers below take.

    Attributes
    ----------
    target : LogDir or Partition or Segment
    topics, partitions : list or None
    start_offset, end_offset : int, dict of TopicPartition to int, or None
    start_timestamp, end_timestamp : int or None
        Milliseconds.
    filter : Filter or None
    where : Where or None
    extract : Extract or None
    residual : Residual or None
        Judged on decoded columns.
    internal : bool
        Whether internal topics of a log dir are read though they are not named.
    """

    target: LogDir | Partition | Segment
    topics: Sequence[str] | None = None
    partitions: Sequence[int] | None = None
    start_offset: int | Mapping[kf.TopicPartition, int] | None = None
    end_offset: int | Mapping[kf.TopicPartition, int] | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    filter: Filter | None = None
    where: Where | None = None
    extract: Extract | None = None
    residual: Residual | None = None
    isolation_level: IsolationLevel = "read_uncommitted"
    include_control: bool = False
    include_deleted: bool = False
    on_corruption: OnCorruption = "raise"
    check_crcs: bool = True
    threads: int = 1
    limits: Limits = DEFAULT_LIMITS
    internal: bool = True

    @property
    def n_partitions(self) -> int:
        """How many there are, wanted or not."""
        return len(self.target) if isinstance(self.target, LogDir) else 1

    def iter_partitions(self) -> Iterator[Partition | KafkalogError]:
        """The partitions that topics and numbers leave, in order, or why one cannot be opened."""
        if isinstance(self.target, (Segment, Partition)):
            if self._names(self.target.topic_partition):
                yield Partition.of_segment(self.target) if isinstance(self.target, Segment) else self.target
            return
        for key in self.target.select(self.topics, self.partitions, internal=self.internal):
            try:
                yield self.target[key]
            except KafkalogError as error:
                yield error

    def _names(self, key: kf.TopicPartition | None) -> bool:
        if key is None:
            return self.topics is None and self.partitions is None
        return (self.topics is None or key.topic in self.topics) and (
            self.partitions is None or key.partition in self.partitions
        )

    def selections(self, partition: Partition) -> tuple[Selection, dict[Segment, Selection]] | None:
        """What to select of a partition and of each of its segments; None, or no entry, where nothing can match."""
        key = partition.topic_partition
        topic, number = key or (None, None)
        possible, condition = _bind(self.filter, topic=topic, partition=number)
        if not possible:
            return None
        bounds = {} if condition is None else condition.bounds()
        selection = Selection(
            _larger(offset_of(self.start_offset, key), bounds.get("start_offset")),
            _smaller(offset_of(self.end_offset, key), bounds.get("end_offset")),
            _larger(self.start_timestamp, bounds.get("start_timestamp")),
            self.end_timestamp,
            self.include_control,
            self._predicates(condition),
            self.extract,
        )
        selection = partition.effective(selection, include_deleted=self.include_deleted)
        mine = {}
        for segment in partition.segments:
            possible, rest = _bind(condition, segment=segment.path.name)
            if possible:
                mine[segment] = replace(selection, predicates=self._predicates(rest))
        return selection, mine

    def _predicates(self, condition: Filter | None) -> tuple[Predicate, ...]:
        parts = () if condition is None else condition.split()
        return (*parts, *(() if self.where is None else (self.where,)))

    def conditions(self) -> dict[str, list[str]]:
        """What is judged at which level, as text."""
        levels: dict[str, list[str]] = {"partitions": [], "segments": [], "bytes": [], "batches": [], "records": []}
        for name, value in (("topics", self.topics), ("partitions", self.partitions)):
            if value is not None:
                levels["partitions"].append(f"{name}={value}")
        if isinstance(self.target, LogDir) and len(self.target.select(self.topics, internal=self.internal)) < len(
            self.target.select(self.topics)
        ):
            levels["partitions"].append("no internal topics")
        ranges: dict[str, Any] = {
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "start_timestamp": self.start_timestamp,
            "end_timestamp": self.end_timestamp,
        }
        if self.filter is not None:
            for name, bound in self.filter.bounds().items():
                if not isinstance(ranges[name], Mapping):
                    ranges[name] = (_smaller if name == "end_offset" else _larger)(ranges[name], bound)
        for name, bound in ranges.items():
            if bound is not None:
                text = f"{name}={bound}"
                levels["records"].append(text)
                if name != "end_timestamp":
                    levels["batches"].append(text)
                if name.endswith("offset"):
                    levels["segments"].append(text)
                if name == "start_offset":
                    levels["bytes"].append(f"{text} by the offset index")
        if self.isolation_level == "read_committed":
            levels["batches"].append("read_committed")
        if not self.include_control:
            levels["batches"].append("no control batches")
        for predicate in (self.filter, self.where):
            if predicate is not None:
                levels["records"].append(str(predicate))
        if self.filter is not None:
            terms = [term for group in self.filter.groups for term in group]
            levels["partitions"] += [str(term) for term in terms if term.column in ("topic", "partition")]
            levels["segments"] += [str(term) for term in terms if term.column == "segment"]
            levels["batches"] += [str(term) for term in terms if term.is_of_batch]
        if self.residual is not None:
            levels["records"].append(str(self.residual.expression))
        return levels


def _bind(condition: Filter | None, **place: Any) -> tuple[bool, Filter | None]:
    """Whether anything in a place can match, and what is left to judge there."""
    if condition is None:
        return True, None
    bound = condition.bind(place)
    return bound is not None, None if bound is True else bound


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def offset_of(offsets: int | Mapping[kf.TopicPartition, int] | None, key: kf.TopicPartition | None) -> int | None:
    """The offset that is given for a partition: one for all, or its own; None where there is none."""
    if isinstance(offsets, Mapping):
        return None if key is None else offsets.get(key)
    return offsets
