"""The segments that retention deletes, those of a load too, and from where on the log cleaner has not been.

Mirrors `UnifiedLog.deleteOldSegments`, `LogSegment.largestTimestamp` and `LogCleanerManager`.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, ReadError
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import checkpointed_offset
from kafkalog.state.cluster_image import TOPIC, ClusterMetadata
from kafkalog.state.log_config import DELETE, LogConfig, default_config
from kafkalog.storage.files import file_status, last_entry
from kafkalog.storage.location import Place, parent_of
from kafkalog.survey.startup import Retention
from kafkalog.survey.startup_end import end_before_start
from kafkalog.survey.topics import TopicConfig
from kafkalog.text import iso_milliseconds


def first_dirty(partition: Partition) -> int:
    """The offset from which on the log cleaner has not been there, by its checkpoint; else the log start offset.

    Source: LogCleanerManager.cleanableOffsets, Kafka 4.3.
    """
    key, start = partition.topic_partition, partition.log_start_offset
    path = parent_of(partition.path) / kf.CLEANER_OFFSET_CHECKPOINT
    known = None if key is None else checkpointed_offset(path, key)
    if known is None or known < start:
        return start
    last = partition.segments[-1:]
    # a damaged end hides nothing here: the cleaner has not been past it
    end = max((max(end_before_start(one) or 0, one.base_offset) for one in last), default=start)
    return known if known <= end else start


class Cleanable(NamedTuple):
    """The segments that the log cleaner takes, by their numbers."""

    first: int
    """The one that holds the first offset where the cleaner has not been."""
    end: int
    """The first one that stays as it is; at the latest the last one of the log."""
    why: str
    """Why nothing from there on is cleaned; empty for the last one."""


def cleanable(
    bases: Sequence[int],
    newest: Callable[[int], int],
    lag_ms: int,
    now_ms: int,
    *,
    dirty: int,
    first_open: int | None,
    high_watermark: int | None = None,
) -> Cleanable:
    """The segments that the log cleaner takes, of one or more with these base offsets.

    `newest` returns the largest timestamp of a segment, by its number, and is called only with a
    `min.compaction.lag.ms`. `dirty` is the first offset where the cleaner has not been, `first_open` that of the first
    open transaction. Source: LogCleanerManager.cleanableOffsets, Kafka 4.3.
    """

    def number_of(offset: int) -> int:
        return max(bisect.bisect_right(bases, offset) - 1, 0)

    first, last = number_of(dirty), len(bases) - 1
    stops = [(bases[last], "")]
    if first_open is not None:
        stops.append((first_open, f"a transaction is open from offset {first_open}"))
    if high_watermark is not None:
        stops.append((high_watermark, f"offset {high_watermark} is the high watermark"))
    for number in range(first, last) if lag_ms > 0 else ():
        if (timestamp := newest(number)) > now_ms - lag_ms:
            what = "in the future, so within" if timestamp > now_ms else "within"
            lag = f"{what} min.compaction.lag.ms ({lag_ms:,} ms)"
            stops.append((bases[number], f"segment {bases[number]} has timestamps {lag}"))
            break
    offset, why = min(stops, key=itemgetter(0))
    return Cleanable(first, min(number_of(offset), last), why and f"{why}: nothing from there on is cleaned")


def retention_rules(known: TopicConfig) -> tuple[LogConfig, str]:
    """The settings by which retention deletes segments of a topic, and why it may delete none; "" if it may.

    Of two limits, one that is unknown does not count. Of a tiered topic a broker deletes only segments that are remote.
    """
    config = known.config
    if DELETE not in config.cleanup_policy:
        return config, ""
    why = known.why_unknown("cleanup.policy", "remote.storage.enable")
    if known.is_tiered:
        why = f"{known.topic} is tiered: a broker deletes its local segments once they are in remote storage"
    lacks_ms, lacks_bytes = (not known.is_known(name) for name in ("retention.ms", "retention.bytes"))
    if lacks_ms and lacks_bytes:
        why = why or known.why_unknown("retention.ms", "retention.bytes")
    limits = (-1 if lacks_ms else config.retention_ms, -1 if lacks_bytes else config.retention_bytes)
    return replace(config, retention_ms=limits[0], retention_bytes=limits[1]), why


def expiring(sizes: Sequence[int], newest: Sequence[int], config: LogConfig, now_ms: int) -> list[Retention]:
    """Return by which setting retention deletes each of the first segments; shorter than `sizes` if some stay.

    `newest` has the largest timestamp of each segment as a broker knows it, ms. A broker applies both rules again and
    again, each from the first segment to the first one that stays, so this continues while either applies. The last one
    goes, too: a broker begins a new one. All records count as replicated. Source: UnifiedLog.deleteOldSegments, Kafka
    4.3.
    """
    found: list[Retention] = []
    if DELETE not in config.cleanup_policy:
        return found
    surplus = sum(sizes) - config.retention_bytes if config.retention_bytes >= 0 else -1
    for size, timestamp in zip(sizes, newest, strict=True):
        is_old = config.retention_ms >= 0 and now_ms - timestamp > config.retention_ms
        is_surplus = surplus - size >= 0
        surplus -= size
        if not (is_old or is_surplus) or not size:
            break
        found.append("retention.ms" if is_old else "retention.bytes")
    return found


def newest_timestamps(segment: Segment, is_read: bool) -> tuple[int, int]:
    """The largest timestamp of a segment as a broker knows it after its start, and the one that is true, ms.

    A broker asks the last entry of the time index, and nothing else: an index that was not trimmed, after a crash, ends
    in entries of the year 1970. Recovery (`is_read`) makes a new one. Source: LogSegment.largestTimestamp, Kafka 4.3.
    """
    right = _indexed(segment)
    told = right if is_read else _last_timestamp(segment.sidecar_path(kf.TIME_INDEX_SUFFIX))
    if right < 0 and (is_read or told == 0):
        right = _newest_in_batches(segment)
        told = right if is_read else told
    if told < 0:
        return (_modified_ms(segment),) * 2
    return told, max(told, right)


def newest_timestamp(segment: Segment, *, is_proved: bool = False) -> int:
    """The largest timestamp of a segment, ms: by its time index, else by its batches, else the time of its file.

    A broker that starts rebuilds an index that is missing. The time of the file counts only if no batch has a
    timestamp. With `is_proved`, the batches are read even if there is an index. Source: LogSegment.largestTimestamp,
    Kafka 4.3.
    """
    newest = _indexed(segment)
    if newest < 0 or is_proved:
        newest = max(newest, _newest_in_batches(segment))
    return _modified_ms(segment) if newest < 0 else newest


def _indexed(segment: Segment) -> int:
    """The timestamp of the last entry of a valid time index; -1 without one."""
    with contextlib.suppress(KafkalogError):
        index = segment.time_index
        if index is not None and len(index):
            return int(index.entries["timestamp"][-1])
    return -1


def _modified_ms(segment: Segment) -> int:
    modified: int = file_status(segment.path, was_there=True).st_mtime_ns
    return modified // 10**6


def _last_timestamp(path: Place) -> int:
    """The timestamp of the last entry of a time index, padding or not; -1 if there is none."""
    size = kf.TIME_INDEX_DTYPE.itemsize
    try:
        entry = last_entry(path, size)
    except ReadError:
        return -1
    return int.from_bytes(entry[:8], "big", signed=True) if entry else -1


def _newest_in_batches(segment: Segment) -> int:
    newest = -1
    with contextlib.suppress(KafkalogError), segment.open() as source:
        for window in segment.iter_windows(source, on_corruption="skip"):
            newest = max(newest, int(window.batches.max_timestamp.max(initial=-1)))
            source.release(window.data, window.start)
    return newest


def retention_note(
    newest: Mapping[kf.TopicPartition, int], *, config: LogConfig | None, cluster: ClusterMetadata | None, now_ms: int
) -> str | None:
    """Describe the partitions of which a broker would soon delete all records; None if there are none.

    `newest` has the largest timestamp of each partition, ms. Without one (-1) a broker uses the time at which the file
    was written, so such a partition is not reported. Settings of `cluster` take precedence over `config`. A segment is
    deleted when ``now - its largest timestamp > retention.ms``; so is the last one. Source:
    UnifiedLog.deleteRetentionMsBreachedSegments, LogSegment.largestTimestamp, Kafka 4.3.
    """
    overdue = []
    for key, timestamp in sorted(newest.items()):
        keeps_ms = retention_ms(key.topic, config or default_config(), cluster)
        if timestamp >= 0 and 0 <= keeps_ms < now_ms - timestamp:
            overdue.append((key, timestamp, keeps_ms))
    if not overdue:
        return None
    key, timestamp, keeps_ms = overdue[0]
    others = f" and {len(overdue) - 1} more" if len(overdue) > 1 else ""
    return (
        f"a broker will soon delete the records of {key}{others}: the newest, {iso_milliseconds(timestamp)}, is"
        f" older than retention.ms={keeps_ms}. Increase the topic's retention.ms first (-1: forever)"
    )


def retention_ms(topic: str, config: LogConfig, cluster: ClusterMetadata | None) -> int:
    """How long a topic keeps records, ms; -1 forever, also if `cleanup.policy` is ``compact`` alone."""
    said = {} if cluster is None else cluster.settings.get((TOPIC, topic), {})
    if DELETE not in said.get("cleanup.policy", config.cleanup_policy):
        return -1
    try:
        return int(said.get("retention.ms", config.retention_ms))
    except ValueError:
        return config.retention_ms
