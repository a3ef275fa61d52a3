"""Chooses the segments that retention deletes, as a broker does soon after its start, or that make room on a disk.

Mirrors `UnifiedLog.deleteOldSegments`. Nothing is written here: `trim` deletes the segments.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason
from kafkalog.log.partition import Partition
from kafkalog.log.segment_files import INDEX_SUFFIXES
from kafkalog.repair.recovering.settings import Cluster, expiring, newest_timestamps
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.log_config import LogConfig, read_properties_file
from kafkalog.survey.startup_load import LoadPlan

_MOST_NAMES: Final = 8  # of topics in a note


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """The rule of deletion: exactly one of the first three, or both of the first two. Raises ValueError for others."""

    retention_ms: int | None = None
    retention_bytes: int | None = None
    """-1 for no limit."""
    free: int | None = None
    """Bytes to make room for: the oldest segments of all partitions go first."""
    retention: bool = False
    """Whether the topics' own settings count."""
    config: str | os.PathLike[str] | None = None
    """The broker's `server.properties`, with `retention`."""

    def __post_init__(self) -> None:
        has_limits = self.retention_ms is not None or self.retention_bytes is not None
        if has_limits + (self.free is not None) + self.retention > 1:
            raise ValueError("retention_ms and retention_bytes, free, and retention exclude one another")
        for name in ("retention_ms", "retention_bytes"):
            if (value := getattr(self, name)) is not None and value < -1:
                raise ValueError(f"{name} must be -1 (no limit) or more, not {value}")
        if self.free is not None and self.free < 1:
            raise ValueError(f"free must be a positive number of bytes, not {self.free}")
        if self.config is not None and not self.retention:
            raise ValueError("config= needs retention=True")

    @property
    def is_set(self) -> bool:
        """Whether anything is to be deleted by retention."""
        return self.retention or any(one is not None for one in (self.retention_ms, self.retention_bytes, self.free))


def choose(
    plans: Sequence[LoadPlan],
    log_dir: Path,
    options: RetentionOptions,
    now_ms: int,
    note: Callable[[Finding], object],
) -> dict[LoadPlan, int]:
    """Return how many of the first segments of each partition go.

    Only topics with a `delete` policy lose records by it. A topic counts as compacted by the cluster's metadata, the
    `config`, or the cleaner's checkpoint. Internal topics are left alone, except by their own settings. No segment goes
    that holds offsets from the high watermark on. `free` never takes the last segment.
    """
    cluster = Cluster(
        read_cluster_metadata(log_dir), None, None if options.config is None else read_properties_file(options.config)
    )
    found: dict[LoadPlan, int] = dict.fromkeys(plans, 0)
    candidates: list[tuple[LoadPlan, list[int]]] = []
    kept = set()
    for plan in plans:
        config = _config(plan.partition, cluster, options)
        if "delete" not in config.cleanup_policy:
            kept.add("" if plan.partition.topic_partition is None else plan.partition.topic_partition.topic)
            continue
        segments = plan.partition.segments
        newest = [max(newest_timestamps(one, one is segments[-1])) for one in segments]
        most = _n_replicated(plan.partition, plan.partition.high_watermark)
        if options.free is None:
            sizes = [one.size_in_bytes for one in segments]
            found[plan] = min(len(expiring(sizes, newest, config, now_ms)), most)
        else:
            candidates.append((plan, newest[: min(most, len(segments) - 1)]))
    if options.free is not None:
        _make_room(candidates, options.free, found, note)
    if kept:
        more = f" and {len(kept) - _MOST_NAMES} more" if len(kept) > _MOST_NAMES else ""
        names = ", ".join(sorted(kept)[:_MOST_NAMES])
        detail = f"nothing is deleted of topics that are internal, or whose cleanup.policy is compact: {names}{more}"
        note(Finding(Reason.LEFT_OUT, detail, path=str(log_dir), damage=False))
    return found


def _config(partition: Partition, cluster: Cluster, options: RetentionOptions) -> LogConfig:
    key, config = partition.topic_partition, cluster.likely_config(partition)
    is_internal = key is not None and key.topic in kf.INTERNAL_TOPICS
    if key is not None and is_internal and not (options.retention and cluster.is_policy_known(key.topic)):
        return replace(config, cleanup_policy=("compact",))
    if options.retention or options.free is not None:
        return config
    return replace(
        config,
        retention_ms=-1 if options.retention_ms is None else options.retention_ms,
        retention_bytes=-1 if options.retention_bytes is None else options.retention_bytes,
    )


def _n_replicated(partition: Partition, high_watermark: int | None) -> int:
    """How many of the first segments lie below the high watermark."""
    ends = [*(one.base_offset for one in partition.segments[1:]), partition.log_end_offset]
    if high_watermark is None:
        return len(ends)
    return next((number for number, end in enumerate(ends) if end > high_watermark), len(ends))


def _make_room(
    candidates: list[tuple[LoadPlan, list[int]]],
    wanted: int,
    found: dict[LoadPlan, int],
    note: Callable[[Finding], object],
) -> None:
    """Take the first segments with the oldest records, by their newest timestamps, until there is enough room."""
    # a segment goes after those before it, whatever its records
    ages = ([(age, n, at) for at, age in enumerate(accumulate(one[1], max))] for n, one in enumerate(candidates))
    n_freed = 0
    for _, number, at in heapq.merge(*ages):
        if n_freed >= wanted:
            break
        plan = candidates[number][0]
        n_freed += _n_bytes(plan, at)
        found[plan] = at + 1
    if n_freed < wanted:
        detail = f"only {n_freed:,} of {wanted:,} bytes can be freed: the last segment of each partition stays"
        note(Finding(Reason.LEFT_OUT, detail, damage=False))


def _n_bytes(plan: LoadPlan, number: int) -> int:
    """Bytes of a segment and its indexes."""
    segment = plan.partition.segments[number]
    paths = [segment.sidecar_path(suffix) for suffix in INDEX_SUFFIXES]
    return segment.size_in_bytes + sum(path.stat().st_size for path in paths if path.exists())
