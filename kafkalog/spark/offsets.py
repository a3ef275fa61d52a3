"""Resolves the topics, offsets and timestamps in options to partitions and offset ranges of the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import latest_of
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.parsing import parse_milliseconds
from kafkalog.spark.source_options import EARLIEST, LATEST, Bound, SourceOptions

LOST_HINT = "Set failOnDataLoss to false to read what is left."


class DataLossError(RuntimeError):
    """Requested records do not exist any more, and `failOnDataLoss` is true."""


def open_paths(paths: tuple[str, ...]) -> LogDir:
    """Open paths of log dirs, partitions or segments as one log dir."""
    target = open_path(paths[0] if len(paths) == 1 else paths)
    return target if isinstance(target, LogDir) else LogDir(paths)


def wanted_partitions(log_dir: LogDir, options: SourceOptions) -> list[kf.TopicPartition]:
    """Return the existing partitions that the options select; ValueError if one that they name does not exist."""
    found = [key for key in log_dir if options.topics.wants(key)]
    named = options.topics
    missing: list[str] = []
    if named.assigned is not None:
        missing = [str(key) for key in sorted(named.assigned) if key not in log_dir]
    elif named.subscribed is not None:
        missing = sorted(named.subscribed - {key.topic for key in found})
    elif not found and "subscribepattern" in options.given:
        missing = [f"a topic that {named.pattern!r} matches"]
    if missing:
        there = ", ".join(log_dir.topics[:8]) + (", ..." if len(log_dir.topics) > 8 else "")
        where = ", ".join(map(str, options.paths))
        raise ValueError(f"not in {where}: {', '.join(missing)}; there are {there or 'no topics'}")
    return found


Offsets = dict[kf.TopicPartition, int]


def resolve(log_dir: LogDir, keys: Sequence[kf.TopicPartition], options: SourceOptions) -> tuple[Offsets, Offsets]:
    """Return the first offsets of a batch query, and those after its last, where the options set any.

    Raises ValueError if the options name other partitions than those that are read, or an end before the start;
    DataLossError if a start is below the log start offset, or an end past the log end offset.
    """
    start = starting_offsets(log_dir, keys, options, lambda key: log_dir[key].log_end_offset)
    end: dict[kf.TopicPartition, int] = {}
    for key, asked in _asked(options.ending, log_dir, keys, "ending").items():
        if options.ending.timestamps is None:
            if asked != LATEST:
                end[key] = asked
        elif (offset := _first_since(log_dir[key], asked, options)) >= 0:
            end[key] = offset
    for key in keys:
        _check(log_dir[key], key, start, end, options)
    return start, end


def starting_offsets(
    log_dir: LogDir,
    keys: Sequence[kf.TopicPartition],
    options: SourceOptions,
    end_of: Callable[[Any], int],
) -> Offsets:
    """Return the start offsets of the partitions that do not begin at the log start offset."""
    start: Offsets = {}
    for key, asked in _asked(options.starting, log_dir, keys, "starting").items():
        if options.starting.timestamps is None:
            if asked != EARLIEST:
                start[key] = end_of(key) if asked == LATEST else asked
            continue
        offset = _first_since(log_dir[key], asked, options)
        if offset < 0 and not options.latest_without_match:
            raise ValueError(f"No offset matched from request of topic-partition {key} and timestamp {asked}.")
        # Spark's Kafka source begins at the end then, with startingOffsetsByTimestampStrategy=latest
        start[key] = offset if offset >= 0 else end_of(key)
    return start


def _first_since(partition: Partition, timestamp: int, options: SourceOptions) -> int:
    """Return the offset of the first record at or after a time; -1 if there is none."""
    return int(partition.list_offsets.answer(timestamp, use_time_index=options.reading["use_time_index"])["offset"])


def _asked(
    bound: Bound, log_dir: LogDir, keys: Sequence[kf.TopicPartition], position: str
) -> dict[kf.TopicPartition, int]:
    """Return the offsets or timestamps of the partitions for which there are any."""
    values = bound.values
    if isinstance(values, str):
        values = parse_milliseconds(
            f"{position}Timestamp", values, end_ms=lambda: latest_of(log_dir[one] for one in keys)
        )
    if isinstance(values, int):
        return dict.fromkeys(keys, values)
    unknown = sorted(set(values) - set(keys))
    if unknown:
        raise ValueError(
            f"{position}Offsets names {', '.join(map(str, unknown))}, which the query does not read; it reads"
            f" {', '.join(map(str, keys))}"
        )
    return dict(values)


def _check(
    partition: Partition,
    key: kf.TopicPartition,
    start: Mapping[kf.TopicPartition, int],
    end: Mapping[kf.TopicPartition, int],
    options: SourceOptions,
) -> None:
    if key not in start and key not in end:
        return
    first = start.get(key, partition.log_start_offset)
    try:
        log_end = partition.log_end_offset
    except KafkalogError:
        log_end = None  # the end is damaged: a task that reads it reports that
    last = end.get(key, log_end)
    if last is not None and first > last:
        raise ValueError(
            f"The resolved start offset {first} is greater than the resolved end offset {last} for topic {key.topic}"
            f" partition {key.partition}."
        )
    if not options.fail_on_data_loss:
        return
    if first < partition.log_start_offset:
        raise DataLossError(
            f"Starting offset for {key} was {first} but the log starts at {partition.log_start_offset}"
            f" ({partition.path}). {LOST_HINT}"
        )
    if log_end is not None and key in end and end[key] > log_end:
        raise DataLossError(
            f"Could not read records in offset [{first}, {end[key]}) for topic partition {key}: the log ends at"
            f" {log_end} ({partition.path}). {LOST_HINT}"
        )
