"""Resolves the topics, offsets and timestamps in options to partitions and offset ranges of the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import latest_of
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.parsing import TopicPatterns, parse_milliseconds
from kafkalog.spark.source_options import EARLIEST, LATEST, Bound, SourceOptions

DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by"
    " Kafka or the topic may have been deleted before all the data in the topic was processed. If you don't want your"
    " query to fail on such cases, set the source option failOnDataLoss to false. Reason: "
)


class DataLossError(RuntimeError):
    """Requested records do not exist any more, and `failOnDataLoss` is true."""

    def __init__(self, reason: str) -> None:
        super().__init__(DATA_LOSS + reason)


def open_paths(paths: tuple[str, ...]) -> LogDir:
    """Open paths of log dirs, partitions or segments as one log dir."""
    target = open_path(paths[0] if len(paths) == 1 else paths)
    return target if isinstance(target, LogDir) else LogDir(paths)


def wanted_partitions(log_dir: LogDir, options: SourceOptions) -> list[kf.TopicPartition]:
    """Return the existing partitions that the options select, in the order of the log dir.

    Raises
    ------
    ValueError
        A topic or partition that the options name does not exist.
    """
    found = [key for key in log_dir if options.topics.wants(key)]
    named = options.topics
    # a pattern that matches nothing is a mistake, and an empty result would hide it
    TopicPatterns(named.patterns).check(log_dir.topics)
    missing: list[str] = []
    if named.assigned is not None:
        missing = [str(key) for key in sorted(named.assigned) if key not in log_dir]
    elif named.subscribed is not None:
        missing = sorted(named.subscribed - {key.topic for key in found})
    if missing:
        there = ", ".join(log_dir.topics[:8]) + (", ..." if len(log_dir.topics) > 8 else "")
        where = ", ".join(map(str, options.paths))
        raise ValueError(f"not in {where}: {', '.join(missing)}; there are {there or 'no topics'}")
    return found


Offsets = dict[kf.TopicPartition, int]


def resolve(log_dir: LogDir, keys: Sequence[kf.TopicPartition], options: SourceOptions) -> tuple[Offsets, Offsets]:
    """Return the first offsets of a batch query, and those after its last.

    A partition without a first one begins at its log start offset, one without a last one ends where its files do.

    Raises
    ------
    ValueError
        The options name other partitions than those that are read, or an end before the start.
    DataLossError
        A start is below the log start offset, or an end is past the log end offset.
    """
    start = starting_offsets(log_dir, keys, options)
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
    log_dir: LogDir, keys: Sequence[kf.TopicPartition], options: SourceOptions
) -> dict[kf.TopicPartition, int]:
    """Return the start offsets of the partitions that do not begin at the log start offset."""
    start: dict[kf.TopicPartition, int] = {}
    for key, asked in _asked(options.starting, log_dir, keys, "starting").items():
        partition = log_dir[key]
        if options.starting.timestamps is None:
            if asked != EARLIEST:
                start[key] = partition.log_end_offset if asked == LATEST else asked
            continue
        offset = _first_since(partition, asked, options)
        if offset < 0:
            if not options.latest_without_match:
                raise ValueError(f"No offset matched from request of topic-partition {key} and timestamp {asked}.")
            # Spark's Kafka source begins at the end then, with startingOffsetsByTimestampStrategy=latest
            offset = partition.log_end_offset
        start[key] = offset
    return start


def _first_since(partition: Partition, timestamp: int, options: SourceOptions) -> int:
    """Return the offset of the first record at or after a time; -1 if there is none."""
    return int(partition.list_offsets.answer(timestamp, use_time_index=options.use_time_index)["offset"])


def _asked(
    bound: Bound, log_dir: LogDir, keys: Sequence[kf.TopicPartition], position: str
) -> dict[kf.TopicPartition, int]:
    """Return the offsets or timestamps of the partitions for which there are any."""
    values = bound.offsets if bound.timestamps is None else bound.timestamps
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
            f" ({partition.path})."
        )
    if log_end is not None and key in end and end[key] > log_end:
        raise DataLossError(
            f"Could not read records in offset [{first}, {end[key]}) for topic partition {key}: the log ends at"
            f" {log_end} ({partition.path})."
        )
