"""What retention would do to partitions that are written: old records are deleted soon after a broker has started.

Mirrors `UnifiedLog.deleteRetentionMsBreachedSegments`. What a broker goes by is known as far as somebody said it: the
settings that records are written with, and those that the metadata of a cluster hold for a topic.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kafkalog import format as kf
from kafkalog.state.cluster_metadata import TOPIC, ClusterMetadata
from kafkalog.state.log_config import LogConfig


def retention_note(
    newest: Mapping[kf.TopicPartition, int], *, config: LogConfig | None, cluster: ClusterMetadata | None, now_ms: int
) -> str | None:
    """Which partitions a broker would soon delete all records of; None if there are none.

    Parameters
    ----------
    newest : mapping of TopicPartition to int
        The largest timestamp of each, ms; where there is none (-1) a broker goes by when the file was written.
    config : LogConfig, optional
        Default: Kafka's defaults, which keep records for a week.
    cluster : ClusterMetadata, optional
        What the topics are set to, before `config`.
    now_ms : int

    Notes
    -----
    A segment goes when ``now - its largest timestamp > retention.ms``, and the last one, too. Source:
    UnifiedLog.deleteRetentionMsBreachedSegments, LogSegment.largestTimestamp, Kafka 4.3.
    """
    overdue = []
    for key, timestamp in sorted(newest.items()):
        keeps_ms = retention_ms(key.topic, config or LogConfig(), cluster)
        if timestamp >= 0 and 0 <= keeps_ms < now_ms - timestamp:
            overdue.append((key, timestamp, keeps_ms))
    if not overdue:
        return None
    key, timestamp, keeps_ms = overdue[0]
    others = f", as those of {len(overdue) - 1} more partitions do" if len(overdue) > 1 else ""
    return (
        f"the records of {key}, which end at {np.datetime64(timestamp, 'ms')}Z, lie further back than"
        f" retention.ms={keeps_ms}{others}: a broker deletes them soon after it starts, unless the topic's"
        " retention.ms is set higher before (-1: for ever)"
    )


def retention_ms(topic: str, config: LogConfig, cluster: ClusterMetadata | None) -> int:
    """How long a topic keeps records; -1 for ever, as where it is compacted alone."""
    said = {} if cluster is None else cluster.settings.get((TOPIC, topic), {})
    policy = said.get("cleanup.policy")
    policies = config.cleanup_policy if policy is None else [name.strip() for name in policy.split(",")]
    if "delete" not in policies:
        return -1
    try:
        return int(said.get("retention.ms", config.retention_ms))
    except ValueError:
        return config.retention_ms
