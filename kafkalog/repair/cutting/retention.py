"""Chooses the segments that retention deletes, as a broker does soon after its start, or that make room on a disk.

Mirrors `UnifiedLog.deleteOldSegments`. Nothing is written here: `trim` deletes the segments.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import accumulate

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason, UnsafePathError
from kafkalog.log.partition import Partition
from kafkalog.repair.cutting.partitions import CutPartitions
from kafkalog.state.cluster_image import OF_TOPIC
from kafkalog.state.log_config import DELETE, LogConfig
from kafkalog.storage.files import size_of
from kafkalog.survey.retention import expiring, newest_timestamp, retention_rules
from kafkalog.survey.startup_load import LoadPlan
from kafkalog.survey.topics import TopicConfig, TopicSettings, also_unknown, names_of


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

    def __post_init__(self) -> None:
        has_limits = self.retention_ms is not None or self.retention_bytes is not None
        if has_limits + (self.free is not None) + self.retention > 1:
            raise ValueError("retention_ms and retention_bytes, free, and retention exclude one another")
        for name in ("retention_ms", "retention_bytes"):
            if (value := getattr(self, name)) is not None and value < -1:
                raise ValueError(f"{name} must be -1 (no limit) or more, not {value}")
        if self.free is not None and self.free < 1:
            raise ValueError(f"free must be a positive number of bytes, not {self.free}")

    @property
    def is_set(self) -> bool:
        """Whether anything is to be deleted by retention."""
        return self.retention or any(one is not None for one in (self.retention_ms, self.retention_bytes, self.free))


def choose(
    cut: CutPartitions,
    options: RetentionOptions,
    settings: TopicSettings,
    named: Collection[str],
    now_ms: int,
) -> dict[LoadPlan, int]:
    """Return how many of the first segments of each partition go.

    Only topics with a `delete` policy lose records by it, and no tiered ones. Internal topics are left alone, except by
    their own settings. No segment goes that holds offsets from the high watermark on. `free` never takes the last
    segment, nor any of a topic that is compacted (also with ``compact,delete``), or whose settings are unknown. By the
    other rules a topic with unknown settings is an UnsafePathError, unless it is `named` and the limits are given.
    """
    found: dict[LoadPlan, int] = dict.fromkeys(cut.plans, 0)
    candidates: list[tuple[LoadPlan, list[int]]] = []
    left = _LeftAlone(cut, options)
    for plan in cut.plans:
        known = settings.config(plan.partition)
        is_named = cut.is_partition or known.topic in named
        config = left.rules(known, is_named=is_named)
        if config is None:
            continue
        segments = plan.partition.segments
        newest = [newest_timestamp(one, is_proved=one.is_last) for one in segments]
        most = _n_replicated(plan.partition, plan.partition.high_watermark)
        if options.free is None:
            sizes = [one.size_in_bytes for one in segments]
            for number in range(len(expiring(sizes, newest, config, now_ms))):
                # an index may end early; what is deleted has to be old
                newest[number] = newest_timestamp(segments[number], is_proved=True)
            found[plan] = min(len(expiring(sizes, newest, config, now_ms)), most)
        else:
            candidates.append((plan, newest[: min(most, len(segments) - 1)]))
    left.report(settings)
    if options.free is not None:
        _make_room(candidates, options.free, found, cut.report.findings.add)
    return found


class _LeftAlone:
    """The topics of which nothing is deleted."""

    def __init__(self, cut: CutPartitions, options: RetentionOptions) -> None:
        self._cut, self._options = cut, options
        self._compacted: set[str] = set()
        self._tiered: set[str] = set()
        self._unknown: dict[str, str] = {}

    def rules(self, known: TopicConfig, *, is_named: bool) -> LogConfig | None:
        """The limits for a topic; None if it is left alone."""
        topic, options = known.topic, self._options
        why = known.why_unknown("cleanup.policy", "remote.storage.enable")
        is_own = options.retention and not why and known.origins["cleanup.policy"] == OF_TOPIC
        is_internal = topic in kf.INTERNAL_TOPICS and not is_own
        # no setting lets `free` delete the last record of a key
        keeps_keys = known.config.is_compacted and options.free is not None
        if is_internal or keeps_keys or DELETE not in known.config.cleanup_policy:
            self._compacted.add(topic)
        elif known.is_tiered:
            self._tiered.add(topic)
        elif options.retention:
            config, why = retention_rules(known)
            if not why:
                return config
            self._unknown[topic] = why
        elif why and not (is_named and options.free is None):
            self._unknown[topic] = why
        else:
            return replace(
                known.config,
                retention_ms=-1 if options.retention_ms is None else options.retention_ms,
                retention_bytes=-1 if options.retention_bytes is None else options.retention_bytes,
            )
        return None

    def report(self, settings: TopicSettings) -> None:
        """Add the notes; UnsafePathError if settings are unknown that decide on a deletion."""
        if settings.note and self._options.retention:
            self._note(settings.note)
        if self._compacted:
            policy = "has no delete" if self._options.free is None else "is not delete alone"
            what = f"topics that are internal, or whose cleanup.policy {policy}"
            self._note(f"no limit applies to {what}: {names_of(self._compacted)}")
        if self._tiered:
            why = "a broker deletes remote segments before the log start"
            self._note(f"nothing is deleted of tiered topics, since {why}: {names_of(self._tiered)}")
        if not self._unknown:
            return
        first = next(iter(self._unknown.values()))
        more = also_unknown(self._unknown)
        if self._options.free is not None:
            self._note(f"nothing is deleted of topics with unknown settings: {first}{more}")
            return
        way = "" if self._options.retention else ", or name each topic in full (-t)"
        detail = f"nothing is deleted, since settings are unknown: {first}{way}{more}"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self._cut.log_dir)

    def _note(self, detail: str) -> None:
        self._cut.report.findings.add(Finding(Reason.LEFT_OUT, detail, path=str(self._cut.log_dir), damage=False))


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
        stays = "the last segment of each partition stays, and so do topics that are left out"
        detail = f"only {n_freed:,} of {wanted:,} bytes can be freed: {stays}"
        note(Finding(Reason.LEFT_OUT, detail, damage=False))


def _n_bytes(plan: LoadPlan, number: int) -> int:
    """Bytes of a segment and its indexes."""
    segment = plan.partition.segments[number]
    return segment.size_in_bytes + sum(size_of(segment.sidecar_path(suffix)) for suffix in kf.INDEX_SUFFIXES)
