"""Warns of written partitions whose records a broker would delete soon after it starts, by `retention.ms`.

Mirrors `UnifiedLog.deleteRetentionMsBreachedSegments`. The setting is taken from the cluster's metadata for the topic,
else from the `LogConfig` that the records are written with. This module deletes nothing, and does not read
`server.properties`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kafkalog import format as kf
from kafkalog.state.cluster_image import TOPIC, ClusterMetadata
from kafkalog.state.log_config import LogConfig, default_config


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
        f"a broker will soon delete the records of {key}{others}: the newest, {np.datetime64(timestamp, 'ms')}Z, is"
        f" older than retention.ms={keeps_ms}. Increase the topic's retention.ms first (-1: forever)"
    )


def retention_ms(topic: str, config: LogConfig, cluster: ClusterMetadata | None) -> int:
    """How long a topic keeps records, ms; -1 forever, also if `cleanup.policy` is ``compact`` alone."""
    said = {} if cluster is None else cluster.settings.get((TOPIC, topic), {})
    policy = said.get("cleanup.policy")
    policies = config.cleanup_policy if policy is None else [name.strip() for name in policy.split(",")]
    if "delete" not in policies:
        return -1
    try:
        return int(said.get("retention.ms", config.retention_ms))
    except ValueError:
        return config.retention_ms
