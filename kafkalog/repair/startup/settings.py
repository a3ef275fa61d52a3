"""What is known of the cluster and of the broker's settings, and what retention deletes by them. Nothing is read here.

A topic's settings are, in this order, its own in the cluster's metadata, the cluster's defaults there, those of
`server.properties`, and Kafka's. Mirrors `KafkaConfig`, `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog.log.partition import Partition
from kafkalog.operations.rebuilding.index_interval import index_interval, max_index_bytes
from kafkalog.repair.startup.forecast import SegmentForecast
from kafkalog.state.cluster_image import BROKER, TOPIC, ClusterMetadata
from kafkalog.state.log_config import LogConfig


@dataclass(slots=True)
class Cluster:
    """What is known of the cluster: topic ids and settings, and which broker this is."""

    metadata: ClusterMetadata | None
    node_id: int | None
    properties: Mapping[str, object] | None = None
    """The content of the broker's `server.properties`; None if it was not given."""

    def config(self, partition: Partition) -> LogConfig | None:
        """The settings of a partition's topic; None if those of the broker are not known."""
        if self.properties is None:
            return None
        topic = "" if partition.topic_partition is None else partition.topic_partition.topic
        known = {} if self.metadata is None else self.metadata.settings
        return LogConfig.from_properties(
            {**self.properties, **known.get((BROKER, ""), {}), **known.get((TOPIC, topic), {})}
        )

    def index_interval(self, partition: Partition) -> int:
        """`index.interval.bytes`."""
        config = self.config(partition)
        return index_interval(partition, self.metadata).n_bytes if config is None else config.index_interval_bytes

    def max_index_bytes(self, partition: Partition) -> int:
        """`segment.index.bytes`."""
        config = self.config(partition)
        return max_index_bytes(partition, self.metadata) if config is None else config.segment_index_bytes

    def has_log_dir(self, path: str | os.PathLike[str]) -> bool:
        """Whether the broker has this log dir, as far as known."""
        if self.properties is None:
            return True
        text = str(self.properties.get("log.dirs") or self.properties.get("log.dir") or "/tmp/kafka-logs")
        wanted = os.path.realpath(path)
        return any(os.path.realpath(name.strip()) == wanted for name in text.split(",") if name.strip())


def expire(segments: list[SegmentForecast], newest: list[int], config: LogConfig, now_ms: int) -> None:
    """Note which segments retention deletes first.

    Parameters
    ----------
    segments : list of SegmentForecast
        Those that are left after the start, in order. `expires` is set.
    newest : list of int
        The largest timestamp of each, as a broker knows it, ms.

    Notes
    -----
    Both rules go from the first segment to the first one that stays. The last one goes, too: a broker begins a new one.
    All records count as replicated. Source: UnifiedLog.deleteOldSegments, Kafka 4.3.
    """
    if "delete" not in config.cleanup_policy:
        return
    surplus = sum(one.n_bytes for one in segments) - config.retention_bytes if config.retention_bytes >= 0 else -1
    is_old = config.retention_ms >= 0
    for one, timestamp in zip(segments, newest, strict=True):
        is_old = is_old and now_ms - timestamp > config.retention_ms
        is_surplus = surplus - one.n_bytes >= 0
        surplus -= one.n_bytes
        if not (is_old or is_surplus) or not one.n_bytes:
            return
        one.expires = "retention.ms" if is_old else "retention.bytes"
