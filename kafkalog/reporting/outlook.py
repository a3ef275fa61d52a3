"""The next actions of retention and the log cleaner on a partition, and what blocks them.

Mirrors `UnifiedLog.deleteOldSegments` and `LogCleanerManager`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kafkalog.log.partition import Partition
from kafkalog.state.log_config import LogConfig
from kafkalog.survey.retention import expiring, first_dirty, newest_timestamp, retention_rules
from kafkalog.survey.topics import OF_TOPIC, TopicConfig, TopicSettings
from kafkalog.text import counted, iso_seconds


@dataclass(frozen=True, slots=True)
class Outlook:
    """The outlook of a partition."""

    policy: list[str]
    settings: str
    """Where they come from: "topic", "broker", "assumed" (Kafka's defaults; "compact" if the cleaner was here), or
    "unknown": nothing is foretold, and `reasons` says what is not known."""
    n_segments_expired: int = 0
    n_bytes_expired: int = 0
    """Segments that a broker deletes at its next check."""
    next_deletion: int | None = None
    """When the next segment expires by retention.ms, in ms; None if none will."""
    dirty_bytes: int | None = None
    dirty_ratio: float | None = None
    """Bytes that the cleaner could clean, and their share; None if the topic is not compacted."""
    will_be_cleaned: bool | None = None
    reasons: tuple[str, ...] = ()
    """Reasons that block deletion or cleaning."""


def outlook(partition: Partition, settings: TopicSettings, now_ms: int, first_open: int | None) -> Outlook:
    """Predict the next actions of retention and the cleaner at a time of the broker's clock.

    `first_open` is the start offset of the first open transaction. All records count as replicated. Source:
    UnifiedLog.deleteOldSegments, LogCleanerManager.cleanableOffsets, Kafka 4.3.
    """
    is_assumed = settings.properties is None
    # the page and the guide promise Kafka's defaults for a broker whose server.properties is not given
    known = (replace(settings, properties={}, _configs={}) if is_assumed else settings).config(partition)
    config, why = retention_rules(known)
    is_foretold = not why or known.cleaner
    place = _place(known, settings) if is_foretold or known.is_tiered else "unknown"
    found: dict[str, Any] = {"policy": list(config.cleanup_policy), "settings": place}
    if not is_foretold:
        is_unknown = bool(known.why_unknown("cleanup.policy"))
        return Outlook(**found | {"policy": [] if is_unknown else found["policy"]}, reasons=(why,))
    sizes = [segment.size_in_bytes for segment in partition.segments]
    bases = [segment.base_offset for segment in partition.segments]
    last = partition.segments[-1:]
    newest = [newest_timestamp(segment, is_proved=segment in last) for segment in partition.segments]
    reasons: list[str] = []
    if "delete" in config.cleanup_policy:
        expired = expiring(sizes, newest, config, now_ms)
        found |= {"n_segments_expired": len(expired), "n_bytes_expired": sum(sizes[: len(expired)])}
        stays = next((number for number in range(len(expired), len(sizes)) if sizes[number]), None)
        if config.retention_ms < 0 and config.retention_bytes < 0:
            reasons.append("no limit: retention.ms and retention.bytes are -1")
        elif stays is not None and config.retention_ms >= 0:
            found["next_deletion"] = newest[stays] + config.retention_ms
            old = sum(now_ms - one > config.retention_ms for one in newest[stays + 1 :])
            waits = f"; {counted(old, 'later segment')} that expired wait for it" if old else ""
            if newest[stays] > now_ms:
                when = iso_seconds(newest[stays])
                reasons.append(f"segment {bases[stays]} has timestamps in the future, up to {when}{waits}")
            elif waits:
                reasons.append(f"segment {bases[stays]} has not expired{waits}")
    if config.is_compacted:
        found |= _cleaning(partition, config, now_ms, first_open, (bases, sizes, newest), reasons)
    return Outlook(**found, reasons=tuple(reasons))


def _place(known: TopicConfig, settings: TopicSettings) -> str:
    has_topic = settings.metadata is not None and known.topic in settings.metadata.topic_ids
    return OF_TOPIC if has_topic else "broker" if settings.properties is not None else "assumed"


def _cleaning(
    partition: Partition,
    config: LogConfig,
    now_ms: int,
    first_open: int | None,
    segments: tuple[list[int], list[int], list[int]],
    reasons: list[str],
) -> dict[str, Any]:
    bases, sizes, newest = segments
    if not bases:
        return {"dirty_bytes": 0, "dirty_ratio": 0.0, "will_be_cleaned": False}
    dirty = first_dirty(partition)
    lag = config.min_compaction_lag_ms
    last = len(bases) - 1
    # segments from the one that holds the first dirty offset on, and those before it
    first = max((number for number, base in enumerate(bases) if base <= dirty), default=0)
    young = next((one for one in range(first, last) if lag > 0 and newest[one] > now_ms - lag), last)
    opened = last if first_open is None else sum(base <= first_open for base in bases) - 1
    end = max(min(young, opened, last), first)
    # a segment that holds the first dirty offset after its base is clean up to there, and cleaned again
    n_clean = sum(sizes[:first])
    n_dirty = sum(sizes[first:end])
    ratio = n_dirty / (n_clean + n_dirty) if n_clean + n_dirty else 0.0
    is_overdue = any(now_ms - one > config.max_compaction_lag_ms for one in newest[first:end])
    is_cleaned = bool(n_dirty) and (is_overdue or ratio > config.min_cleanable_dirty_ratio)
    if opened < last and opened <= young:
        reasons.append(f"a transaction is open from offset {first_open}: nothing from there on is cleaned")
    if young < last and young <= opened:
        what = "in the future" if newest[young] > now_ms else f"within min.compaction.lag.ms ({lag:,} ms)"
        reasons.append(f"segment {bases[young]} has timestamps {what}: nothing from there on is cleaned")
    if not is_cleaned and n_dirty:
        reasons.append(
            f"dirty ratio {ratio:.2f} is not above min.cleanable.dirty.ratio {config.min_cleanable_dirty_ratio}"
        )
    elif not n_dirty and not reasons:
        reasons.append("all that is not cleaned is in the active segment")
    return {"dirty_bytes": n_dirty, "dirty_ratio": ratio, "will_be_cleaned": is_cleaned}
