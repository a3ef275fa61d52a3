"""Runs the log cleaner offline, on the compacted topics of a log dir."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits, Reason, UnsafePathError
from kafkalog.parsing import TopicPatterns, thread_count
from kafkalog.repair.compacting.compacted_partitions import CompactedPartition, CompactionReport
from kafkalog.repair.compacting.partition import PartitionCompaction
from kafkalog.repair.cutting.partitions import CutPartitions
from kafkalog.repair.placement import Placement, Swapped
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.location import refuse_url
from kafkalog.survey.startup_load import LoadPlan
from kafkalog.survey.topics import DEFAULT, TopicSettings, also_unknown


def compact(
    path: str | os.PathLike[str],
    *,
    topics: str | Sequence[str] | None = None,
    now: int | str | datetime | None = None,
    config: str | os.PathLike[str] | None = None,
    metadata: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    stage_in: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    on_start: Callable[[int], object] = lambda n_bytes: None,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> CompactionReport:
    """Compact a partition, or each partition of a log dir whose topic is compacted, as a broker's log cleaner does.

    Parameters
    ----------
    path : path-like
        A log dir, or a partition directory.
    topics : str or sequence of str, optional
        Names and globs, and either of these after ``!`` to leave topics out. Default: all whose `cleanup.policy`
        includes "compact". A topic that the cluster's metadata do not have must be named, or `path` is its partition.
    now : int (ms), str or aware datetime, optional
        The cleaner's clock. Default: now.
    config : path-like, optional
        The broker's `server.properties`: for its settings, and for the metadata log on another disk of its `log.dirs`.
    metadata : path-like, optional
        A log dir with the cluster's metadata log, if that is in none of the broker's log dirs at hand.
    output, in_place, backup, dry_run, stage_in
        See `recover`. `in_place` needs no `backup`: a backup on the same disk makes no room.
    threads : int, optional
        Number of partitions to compact at a time; default: the number of processors, up to four.
    on_start : callable
        Called once with the number of bytes to read: the keys of all segments come before the first segment is written.
    progress : callable
        Called with the number of bytes read since the last call.
    limits : Limits

    Returns
    -------
    CompactionReport

    Raises
    ------
    ValueError
        `threads` is less than 1.
    UnsafePathError, OutputExistsError, WriteError
        See `recover`. Also if `path` is the cluster's metadata log.
    CorruptionError
        With `output`: a partition is damaged. With `in_place` and in a dry run it stays unchanged, and its `error` says
        why.

    Notes
    -----
    Of each key the record with the highest offset stays. Records without a key and those of aborted transactions go.
    The last segment is not cleaned. Nothing is cleaned from the first open transaction, from the high watermark, or
    from the first segment younger than `min.compaction.lag.ms` on. Below, the whole log is cleaned, also where the
    broker's cleaner has been already.

    Tombstones and transaction markers stay, and get the time of their removal: another run with `now` after
    `delete.retention.ms` removes them.

    Batches that lose no record are copied byte for byte. Others keep their offsets, producer, sequence and codec.
    Messages of formats v0 and v1 become v2. Small segments are merged while the result is within `segment.bytes`.
    Settings are those of the cluster's metadata in the log dir, of `config`, and Kafka's defaults.

    A crash leaves `output` absent or complete. With `in_place`, each segment is replaced by way of `.swap` files; a
    broker that starts, or `recover`, completes the replacement.

    Source: LogCleanerManager.cleanableOffsets, Cleaner.doClean, MemoryRecords.filterTo, Kafka 4.3.

    Examples
    --------
    >>> kafkalog.compact("tests/golden/log_dir", topics="p-txn", dry_run=True).is_written
    False
    """
    refuse_url(path)
    n_threads = thread_count(threads)
    placement = Placement(output, in_place, backup, dry_run, stage_in, False, Swapped)
    report = CompactionReport()
    cut = CutPartitions(path, placement, report=report, limits=limits)
    now_ms = cut.milliseconds("now", "now" if now is None else now)
    assert now_ms is not None
    settings = TopicSettings.of([cut.log_dir], config=config, metadata=metadata, limits=limits)
    chosen = _choose(cut, settings, topics)
    cut.plans = list(chosen)
    works = [PartitionCompaction(plan, chosen[plan], now_ms, progress) for plan in chosen]
    # how much of the others is left, their keys tell
    cut.check_room(one.path for plan in chosen for one in plan.partition.segments[-1:])
    on_start(sum(work.n_bytes_to_read for work in works))
    with cut.open() as make, ThreadPoolExecutor(n_threads, "kafkalog-compact") as pool:
        rows = pool.map(lambda work: work.run(make(work.plan)), works)
        for plan, row in zip(chosen, rows, strict=True):
            cut.add(plan, row)
        cut.check()

        def update(offsets: dict[kf.TopicPartition, int]) -> None:
            for row in report.partitions:
                if isinstance(row, CompactedPartition) and row.cleaned_to is not None and row.topic_partition:
                    offsets[row.topic_partition] = row.cleaned_to

        cut.put_checkpoint(kf.CLEANER_OFFSET_CHECKPOINT, update)
        cut.copy_rest()
    return report


def _choose(
    cut: CutPartitions, settings: TopicSettings, topics: str | Sequence[str] | None
) -> dict[LoadPlan, LogConfig]:
    """The partitions of compacted topics, with their settings."""
    patterns = TopicPatterns(topics)
    cut.select(patterns)
    chosen: dict[LoadPlan, LogConfig] = {}
    unknown: dict[str, str] = {}
    notes = cut.report.findings
    for plan in cut.plans:
        known = settings.config(plan.partition)
        topic, why = known.topic, known.why_unknown("cleanup.policy")
        if topic == kf.METADATA_TOPIC:
            raise UnsafePathError(Reason.UNSAFE_PATH, "the cluster's metadata log is not compacted", path=plan.path)
        is_named = cut.is_partition or topic in patterns.included
        # where no metadata log is expected, the topic's own policy is unknown, too
        is_unknown = bool(why) or (settings.metadata is None and known.origins["cleanup.policy"] == DEFAULT)
        if known.cleaner or (known.config.is_compacted and not why) or (is_named and is_unknown):
            chosen[plan] = known.config
        elif why:
            unknown[topic] = why
        elif is_named or patterns.included:
            policy = ",".join(known.config.cleanup_policy)
            detail = f"left as it is: the cleanup.policy of {topic} is {policy}, by the cluster's metadata and --config"
            notes.add(Finding(Reason.LEFT_OUT, detail, path=str(plan.path), damage=False))
    if unknown:
        why = f"{next(iter(unknown.values()))}{also_unknown(unknown)}"
        detail = f"left as they are, unless each is named in full (-t): {why}"
        notes.add(Finding(Reason.LEFT_OUT, detail, path=str(cut.log_dir), damage=False))
    if not chosen and not cut.is_partition and not notes.rows:
        detail = "no topic here is known to be compacted: name each in full (topics, -t), or the broker's settings"
        detail += " (--config)"
        notes.add(Finding(Reason.LEFT_OUT, detail, path=str(cut.log_dir), damage=False))
    return chosen
