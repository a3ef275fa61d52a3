"""What is known of the cluster and of the broker's settings, and what retention deletes by them.

A topic's settings are, in this order, its own in the cluster's metadata, the cluster's defaults there, those of
`server.properties`, and Kafka's. If its `cleanup.policy` is lost, other files may show that it was compacted: a topic
that is taken for another loses records. Mirrors `KafkaConfig`, `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.log.compaction import COMPACTED
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.index_interval import index_interval, max_index_bytes
from kafkalog.state.checkpoints import checkpointed_offset, checkpointed_topics
from kafkalog.state.cluster_image import BROKER, TOPIC, ClusterMetadata
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.location import parent_of
from kafkalog.storage.source import file_status
from kafkalog.survey.startup import Retention
from kafkalog.survey.startup_end import end_before_start


@dataclass(slots=True)
class Cluster:
    """What is known of the cluster: topic ids and settings, and which broker this is."""

    metadata: ClusterMetadata | None
    node_id: int | None
    properties: Mapping[str, object] | None = None
    """The content of the broker's `server.properties`; None if it was not given."""

    def config(self, partition: Partition) -> LogConfig | None:
        """The settings of a partition's topic; None if those of the broker are not known."""
        return None if self.properties is None else self.likely_config(partition)

    def likely_config(self, partition: Partition) -> LogConfig:
        """The settings of a partition's topic, with Kafka's defaults for those of the broker that are not known.

        Only the `cleanup.policy` is guessed instead, from other files of the log dir; see `compacted_by`.
        """
        topic = "" if partition.topic_partition is None else partition.topic_partition.topic
        known = {} if self.metadata is None else self.metadata.settings
        config = LogConfig.from_properties(
            {**(self.properties or {}), **known.get((BROKER, ""), {}), **known.get((TOPIC, topic), {})}
        )
        if not topic or self.is_policy_known(topic) or (config.is_compacted and topic not in COMPACTED):
            return config
        cleaned = checkpointed_topics(parent_of(partition.path) / kf.CLEANER_OFFSET_CHECKPOINT)
        return replace(config, cleanup_policy=("compact",)) if compacted_by(topic, cleaned) else config

    def is_policy_known(self, topic: str) -> bool:
        """Whether the topic's `cleanup.policy` is set somewhere, or known to have its default."""
        metadata = self.metadata
        if metadata is None:
            return False
        has_defaults = self.properties is not None and topic in metadata.topic_ids
        return has_defaults or metadata.cleanup_policy(topic) is not None

    def index_interval(self, partition: Partition) -> int:
        """`index.interval.bytes`."""
        config = self.config(partition)
        return index_interval(partition, self.metadata).n_bytes if config is None else config.index_interval_bytes

    def max_index_bytes(self, partition: Partition) -> int:
        """`segment.index.bytes`."""
        config = self.config(partition)
        return max_index_bytes(partition, self.metadata) if config is None else config.segment_index_bytes


def compacted_by(topic: str, cleaned: Collection[str]) -> str:
    """The evidence that a topic was compacted, if its `cleanup.policy` is not known.

    "" if there is none. `cleaned` has the topics of the cleaner's checkpoint.
    """
    if topic in COMPACTED:
        return "brokers create it so"
    return f"{kf.CLEANER_OFFSET_CHECKPOINT} names it" if topic in cleaned else ""


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


def expiring(sizes: Sequence[int], newest: Sequence[int], config: LogConfig, now_ms: int) -> list[Retention]:
    """Return by which setting retention deletes each of the first segments; shorter than `sizes` if some stay.

    `newest` has the largest timestamp of each segment as a broker knows it, ms. A broker applies both rules again and
    again, each from the first segment to the first one that stays, so this continues while either applies. The last one
    goes, too: a broker begins a new one. All records count as replicated. Source: UnifiedLog.deleteOldSegments, Kafka
    4.3.
    """
    found: list[Retention] = []
    if "delete" not in config.cleanup_policy:
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
    index = None
    with contextlib.suppress(KafkalogError):
        index = segment.time_index
    right = int(index.entries["timestamp"][-1]) if index is not None and len(index) else -1
    told = right if is_read else _last_timestamp(segment.sidecar_path(kf.TIME_INDEX_SUFFIX))
    if right < 0 and (is_read or told == 0):
        right = _newest_in_batches(segment)
        told = right if is_read else told
    if told < 0:
        return (file_status(segment.path, was_there=True).st_mtime_ns // 10**6,) * 2
    return told, max(told, right)


def _last_timestamp(path: Path) -> int:
    """The timestamp of the last entry of a time index, padding or not; -1 if there is none."""
    size = kf.TIME_INDEX_DTYPE.itemsize
    try:
        with path.open("rb") as file:
            n_entries = file.seek(0, os.SEEK_END) // size
            file.seek((n_entries - 1) * size if n_entries else 0)
            return int.from_bytes(file.read(8), "big", signed=True) if n_entries else -1
    except OSError:
        return -1


def _newest_in_batches(segment: Segment) -> int:
    newest = -1
    with contextlib.suppress(KafkalogError), segment.open() as source:
        for window in segment.iter_windows(source, on_corruption="skip"):
            newest = max(newest, int(window.batches.max_timestamp.max(initial=-1)))
            source.release(window.data, window.start)
    return newest
