"""Facts about partitions, a result for each: `ls`, `lookup`, `index_stats`, `producers` and `epochs`.

These are the functions of the commands' names. The work on one partition is done by the modules next to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any, TypedDict, TypeVar

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionWarning,
    Finding,
    KafkalogError,
    Limits,
    OnCorruption,
    ReadError,
    warn,
)
from kafkalog.html import JsonFields, ReportList
from kafkalog.indexes.statistics import IndexStatistics
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, latest_of, partitions_of, removed_from
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.listing import PartitionSummary, summaries
from kafkalog.operations.trace_lookup import Lookup, Trace, trace_offset, trace_timestamp
from kafkalog.parsing import Time, is_to_end, parse_milliseconds
from kafkalog.storage.files import size_if_there
from kafkalog.system_topics.list_producers import TRANSACTION_MAX_TIMEOUT_MS, PartitionProducers, list_producers

Topics = str | Sequence[str]
Numbers = int | Sequence[int]
Opened = LogDir | Partition | Segment
Result = TypeVar("Result")


class Results(ReportList[Result]):
    """A row for each partition, as a list and as a table.

    Attributes
    ----------
    findings : list of Finding
        Of `ls`: issues of no partition alone, such as damage in the metadata log next to them.
    """

    noun = "partition"

    def __init__(self, rows: Iterable[Result] = (), findings: Iterable[Finding] = ()) -> None:
        super().__init__(rows)
        self.findings = [*findings]


def _opened(path: Paths | Opened, limits: Limits | None) -> Opened:
    if not isinstance(path, (LogDir, Partition, Segment)):
        return open_path(path, limits=DEFAULT_LIMITS if limits is None else limits)
    if limits is not None:
        raise ValueError("limits= works with a path only: pass it to kafkalog.open")
    return path


def _milliseconds(name: str, value: Time, partitions: Iterable[Partition | KafkalogError]) -> int:
    """A time that may be relative to the latest timestamp of partitions."""
    return parse_milliseconds(name, value, end_ms=lambda: latest_of(partitions))


def _each(
    call: Callable[[Partition], Result],
    path: Paths | Opened,
    topics: Topics | None,
    partitions: Numbers | None,
    limits: Limits | None,
) -> Iterator[Result]:
    """Call a function with each partition. One that a broker removes from a log dir meanwhile is warned of."""
    opened = _opened(path, limits)
    for partition in partitions_of(opened, topics, partitions):
        try:
            if isinstance(partition, KafkalogError):
                raise partition
            yield call(partition)
        except ReadError as error:
            removed = removed_from(opened, error)
            if removed is None:
                raise
            warn(removed, CorruptionWarning)


class ListOptions(TypedDict, total=False):
    """The keyword arguments of `ls`."""

    topics: Topics | None
    partitions: Numbers | None
    limits: Limits | None


class LookupOptions(ListOptions, total=False):
    """The keyword arguments of `lookup`."""

    offset: int | Iterable[int] | None
    timestamp: Time | Iterable[Time] | None


class ProducersOptions(ListOptions, total=False):
    """The keyword arguments of `producers`."""

    now: Time | None
    transaction_max_timeout_ms: int
    on_corruption: OnCorruption


class EpochsOptions(ListOptions, total=False):
    """The keyword arguments of `epochs`."""

    end_offset_for: int | Sequence[int]
    follower: Sequence[tuple[int, int]]


def ls(
    path: Paths | Opened,
    *,
    topics: Topics | None = None,
    partitions: Numbers | None = None,
    limits: Limits | None = None,
) -> Results[PartitionSummary]:
    """List partitions: offsets, sizes, records, times, formats and codecs, from batch headers alone.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `open` returned
    topics : str or sequence of str, optional
        Names, globs (``orders.*``), and either of these after ``!`` to leave topics out.
    partitions : int or sequence of int, optional
        Partition numbers, of each topic.
    limits : Limits, optional

    Returns
    -------
    list of PartitionSummary
        Each has the summaries of its segments, and its findings: damage does not raise. With the cluster's metadata
        next to it, also the topic's settings, and whether a broker would set the directory apart as a stray. The list
        has the other `findings` of the command, about the log dirs and the metadata.

    Examples
    --------
    >>> [(one.name, one.end) for one in kafkalog.ls("tests/golden/log_dir", topics="p-m*")]
    [('p-multi-0', 125), ('p-multi-1', 99), ('p-multi-2', 82)]
    """
    opened = _opened(path, limits)
    found = list(_each(lambda one: one, opened, topics, partitions, None))
    results: Results[PartitionSummary] = Results(findings=opened.findings if isinstance(opened, LogDir) else ())
    results += summaries(found, DEFAULT_LIMITS if limits is None else limits, results.findings.append)
    return results


def lookup(
    path: Paths | Opened,
    *,
    offset: int | Iterable[int] | None = None,
    timestamp: Time | Iterable[Time] | None = None,
    topics: Topics | None = None,
    partitions: Numbers | None = None,
    limits: Limits | None = None,
) -> Lookup:
    """Find offsets or times in partitions, and say how: segment, index entries, batch, answer.

    Parameters
    ----------
    path, topics, partitions, limits
        See `ls`.
    offset : int or iterable of int, optional
    timestamp : int (ms), str, aware datetime, or iterable of these, optional
        The first record at or after it. Also ``"earliest"``, ``"latest"`` and ``"max-timestamp"``, or a time before the
        latest timestamp of the partitions, such as ``"end-1h"``.

    Returns
    -------
    Lookup
        A list of `Trace`: for each partition and question, in this order. `Trace.offset` is the answer.

    Examples
    --------
    >>> (trace,) = kafkalog.lookup("tests/golden/log_dir/p-multi-0", offset=42)
    >>> trace.offset, trace.batch.base_offset <= 42
    (42, True)
    """
    offsets = [] if offset is None else [offset] if isinstance(offset, int) else list(offset)
    is_one = isinstance(timestamp, str) or not isinstance(timestamp, Iterable)
    times: list[Any] = [] if timestamp is None else [timestamp] if is_one else list(timestamp)  # type: ignore[arg-type]
    if not offsets and not times:
        raise ValueError("nothing to look up: pass offset= or timestamp=")
    opened = _opened(path, limits)
    for i, time in enumerate(times):
        if is_to_end(time):
            times[i] = _milliseconds("timestamp", time, partitions_of(opened, topics, partitions))

    def trace(partition: Partition) -> list[Trace]:
        found = [trace_offset(partition, one) for one in offsets]
        return found + [trace_timestamp(partition, one) for one in times]

    return Lookup(one for found in _each(trace, opened, topics, partitions, None) for one in found)


def index_stats(
    path: Paths | Opened,
    *,
    what_if: Sequence[int] = (),
    topics: Topics | None = None,
    partitions: Numbers | None = None,
    on_corruption: OnCorruption = "raise",
    limits: Limits | None = None,
) -> Results[IndexStatistics]:
    """Measure the indexes of partitions: gaps, size, bytes that a lookup scans, and what other intervals would give.

    Parameters
    ----------
    path, topics, partitions, limits
        See `ls`.
    what_if : sequence of int
        Values of `index.interval.bytes` whose indexes are measured too, and not written.
    on_corruption : {"raise", "stop", "skip"}

    Returns
    -------
    list of IndexStatistics
        One for each partition.
    """
    measure = methodcaller("index_statistics", what_if=what_if, on_corruption=on_corruption)
    return Results(_each(measure, path, topics, partitions, limits))


def producers(
    path: Paths | Opened,
    *,
    now: Time | None = None,
    transaction_max_timeout_ms: int = TRANSACTION_MAX_TIMEOUT_MS,
    topics: Topics | None = None,
    partitions: Numbers | None = None,
    on_corruption: OnCorruption = "raise",
    limits: Limits | None = None,
) -> Results[PartitionProducers]:
    """List the producers of partitions, and their open and hanging transactions.

    Parameters
    ----------
    path, topics, partitions, limits
        See `ls`.
    now : int (ms), str or aware datetime, optional
        The time from which ages are counted, such as ``"end"``, the latest timestamp; default: the system clock.
    transaction_max_timeout_ms : int
        The broker's `transaction.max.timeout.ms`; a transaction that is idle for longer is hanging.
    on_corruption : {"raise", "stop", "skip"}

    Returns
    -------
    list of PartitionProducers
        One for each partition; `open` and `hanging` select.
    """
    opened = _opened(path, limits)
    now_ms = None if now is None else _milliseconds("now", now, partitions_of(opened, topics, partitions))
    list_them = partial(
        list_producers,
        now_ms=now_ms,
        transaction_max_timeout_ms=transaction_max_timeout_ms,
        on_corruption=on_corruption,
    )
    return Results(_each(list_them, opened, topics, partitions, None))


@dataclass(frozen=True, slots=True)
class PartitionEpochs(JsonFields):
    """The leader epochs of a partition."""

    topic_partition: kf.TopicPartition | None
    source: str
    """``"checkpoint"`` for leader-epoch-checkpoint, ``"batches"`` if there is no such file."""
    log_end_offset: int
    epochs: list[dict[str, int]]
    """`epoch`, `start_offset`, `end_offset` (excluded)."""
    end_offsets: list[dict[str, Any]] = field(default_factory=list)
    """The answers to `end_offset_for`."""
    followers: list[dict[str, Any]] = field(default_factory=list)
    """The answers to `follower`."""


def epochs(
    path: Paths | Opened,
    *,
    end_offset_for: int | Sequence[int] = (),
    follower: Sequence[tuple[int, int]] = (),
    topics: Topics | None = None,
    partitions: Numbers | None = None,
    limits: Limits | None = None,
) -> Results[PartitionEpochs]:
    """List leader epochs; say where an epoch ends, and where a follower truncates.

    Parameters
    ----------
    path, topics, partitions, limits
        See `ls`.
    end_offset_for : int or sequence of int
        Epochs whose end is asked for, as OffsetForLeaderEpoch answers.
    follower : sequence of (int, int)
        Last leader epochs and log end offsets of followers.

    Returns
    -------
    list of PartitionEpochs

    Examples
    --------
    >>> kafkalog.epochs("tests/golden/log_dir/p-txn-0")[0].epochs[0]
    {'epoch': 0, 'start_offset': 0, 'end_offset': 430}
    """
    ends = [end_offset_for] if isinstance(end_offset_for, int) else list(end_offset_for)
    answer = partial(partition_epochs, end_offset_for=ends, follower=follower)
    return Results(_each(answer, path, topics, partitions, limits))


def partition_epochs(
    partition: Partition, end_offset_for: Sequence[int] = (), follower: Sequence[tuple[int, int]] = ()
) -> PartitionEpochs:
    """Like `epochs`, for one partition."""
    entries = partition.epoch_cache.entries.tolist()
    stops = [*(start for _, start in entries[1:]), partition.log_end_offset]
    has_file = size_if_there(partition.path / kf.LEADER_EPOCH_CHECKPOINT) is not None
    followers = []
    for epoch, end in follower:
        answer = partition.truncation_for(epoch, end)
        followers.append(
            {"epoch": epoch, "follower_end_offset": end, **answer._asdict(), "removes": answer.removes(end)}
        )
    return PartitionEpochs(
        partition.topic_partition,
        "checkpoint" if has_file else "batches",
        partition.log_end_offset,
        [
            {"epoch": epoch, "start_offset": start, "end_offset": end}
            for (epoch, start), end in zip(entries, stops, strict=False)
        ],
        [{"epoch": epoch, **partition.end_offset_for_epoch(epoch)._asdict()} for epoch in end_offset_for],
        followers,
    )
