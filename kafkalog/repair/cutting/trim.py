"""Removes the start of a log: everything before an offset or a time, as DeleteRecords and retention do.

Mirrors `UnifiedLog.maybeIncrementLogStartOffset` and `UnifiedLog.deleteLogStartOffsetBreachedSegments`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits, Reason, UnsafePathError
from kafkalog.parsing import TopicPatterns, parse_milliseconds
from kafkalog.repair.cutting.partitions import CutPartitions
from kafkalog.repair.cutting.retention import RetentionOptions, choose
from kafkalog.repair.placement import InPlaceFromStart, PartitionOutput, Placement
from kafkalog.repair.recovering.recovered_partitions import RecoveryReport
from kafkalog.state import leader_epochs
from kafkalog.state.checkpoints import encode_checkpoint, read_leader_epochs
from kafkalog.storage.location import Place, refuse_url
from kafkalog.survey.startup import PartitionPlan, SegmentPlan
from kafkalog.survey.startup_files import ORPHAN
from kafkalog.survey.startup_load import LoadPlan
from kafkalog.survey.topics import TopicSettings
from kafkalog.text import offset_range


def trim(
    path: str | os.PathLike[str],
    *,
    before_offset: int | None = None,
    before_timestamp: int | str | datetime | None = None,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    free: int | None = None,
    retention: bool = False,
    config: str | os.PathLike[str] | None = None,
    metadata: str | os.PathLike[str] | None = None,
    topics: str | Sequence[str] | None = None,
    now: int | str | datetime | None = None,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    stage_in: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> RecoveryReport:
    """Remove the start of a partition's log, or of each partition of a log dir.

    Parameters
    ----------
    path : path-like
        A log dir, or a partition directory.
    before_offset : int, optional
        Remove the records before this offset.
    before_timestamp : int (ms), str or aware datetime, optional
        Remove the records before the first one whose timestamp is at or after this; all, if there is none.
    retention_ms, retention_bytes : int, optional
        Delete the segments that a broker would delete with these settings; -1 for no limit.
    free : int, optional
        Delete segments until this many bytes are free, of all partitions those with the oldest records first.
        Never takes from compacted topics, tiered ones, or topics whose settings are unknown.
    retention : bool
        Delete the segments that a broker would delete with the topics' own settings.
    config : path-like, optional
        The broker's `server.properties`: for its settings, and for the metadata log on another disk of its `log.dirs`.
    metadata : path-like, optional
        A log dir with the cluster's metadata log, if that is in none of the broker's log dirs at hand.
    topics : str or sequence of str, optional
        Names or globs of topics; a leading ``!`` excludes.
    now : int (ms) or aware datetime, optional
        The time from which retention counts. Default: now.
    output, in_place, backup, dry_run, stage_in
        See `recover`. What retention deletes needs no `backup`: a backup on the same disk makes no room.
    limits : Limits

    Returns
    -------
    RecoveryReport

    Raises
    ------
    ValueError
        Not exactly one place or rule is given; or the offset is above the log end offset of a partition.
    UnsafePathError, OutputExistsError, WriteError
        See `recover`. Also if settings that decide on a deletion are unknown.
    CorruptionError
        With `output`: a partition cannot be cut, for example because of a file on which a broker dies. With `in_place`
        and in a dry run it stays unchanged, and its `error` says why.

    Notes
    -----
    The log start offset is written to the log dir's checkpoint, and segments that lie wholly before it are deleted; the
    last segment stays. An `output` for one partition, such as ``copy/orders-0``, has no checkpoint: the copy begins
    with the first kept segment, as in `log_start_offset`.

    Retention deletes whole segments, from the first to the first one that stays. If all go, an empty one begins at the
    log's end, as on a broker. Compacted topics lose nothing by it, nor does any partition above its high watermark. The
    log start of a tiered topic is not moved: the broker deletes remote segments before it.

    A topic's settings are in the cluster's metadata log, which may be on another disk. If they are unknown, `free`
    takes no segment of the topic, and the rules of retention delete nothing at all. `retention_ms` and
    `retention_bytes` still apply to topics that `topics` names in full, and to a partition directory.

    Source: UnifiedLog.maybeIncrementLogStartOffset, UnifiedLog.deleteOldSegments, Kafka 4.3.

    Examples
    --------
    >>> kafkalog.trim("tests/golden/log_dir/p-txn-0", before_offset=170, dry_run=True).partitions[0].count("deleted")
    3
    """
    refuse_url(path)
    options = RetentionOptions(retention_ms, retention_bytes, free, retention)
    if (before_offset is not None) + (before_timestamp is not None) + options.is_set != 1:
        names = "before_offset, before_timestamp, retention_ms or retention_bytes, free, retention"
        raise ValueError(f"exactly one of these is required: {names}")
    placement = Placement(output, in_place, backup, dry_run, stage_in, not options.is_set, InPlaceFromStart)
    cut = CutPartitions(path, placement, limits=limits)
    patterns = TopicPatterns(topics)
    cut.select(patterns)
    settings = TopicSettings.of([cut.log_dir], config=config, metadata=metadata, limits=limits)
    stamp = cut.milliseconds("before_timestamp", before_timestamp)
    if options.is_set:
        now_ms = parse_milliseconds("now", "now" if now is None else now)
        counts = choose(cut, options, settings, patterns.included, now_ms)
        starts = {plan: _start_after(plan, n) for plan, n in counts.items()}
        emptied = {plan for plan, n in counts.items() if n and n == len(plan.partition.segments)}
    else:
        starts = {plan: _start(plan, before_offset, stamp) for plan in cut.plans}
        emptied = set()
    for plan, start in starts.items():
        _refuse_remote(plan, start, settings)
    cut.check_room(path for plan in cut.plans for path in _kept(plan, starts[plan], is_emptied=plan in emptied))
    with cut.open() as make:

        def raise_starts(offsets: dict[kf.TopicPartition, int]) -> None:
            for plan, start in starts.items():
                key = plan.partition.topic_partition
                is_raised = start > plan.partition.log_start_offset and plan.files.problem(plan.path) is None
                if key is not None and is_raised:
                    offsets[key] = start

        # first, so that no crash leaves records that are gone below an old log start
        cut.put_checkpoint(kf.LOG_START_OFFSET_CHECKPOINT, raise_starts)
        for plan in cut.plans:
            row = _trim(plan, make(plan), starts[plan], is_emptied=plan in emptied)
            if placement.is_lone and row.error is None:
                # without a checkpoint, the copy begins with its first segment
                row.log_start_offset = next(one.base_offset for one in row.segments if one.action != "deleted")
            cut.add(plan, row)
        cut.check()
        cut.copy_rest()
    return cut.report


def _start(plan: LoadPlan, offset: int | None, timestamp: int | None) -> int:
    """The log start offset of a partition afterwards."""
    partition = plan.partition
    if not partition.segments:
        return partition.log_start_offset
    if timestamp is not None:
        found = partition.offset_for_timestamp(timestamp)
        offset = partition.log_end_offset if found < 0 else found
    assert offset is not None
    if offset > partition.log_end_offset:
        raise ValueError(f"{plan.path} ends at {partition.log_end_offset}, before {offset}")
    return max(offset, partition.log_start_offset)


def _start_after(plan: LoadPlan, n_segments: int) -> int:
    """The log start offset once the first segments are gone."""
    partition = plan.partition
    if not n_segments:
        return partition.log_start_offset
    is_all = n_segments == len(partition.segments)
    base = partition.log_end_offset if is_all else partition.segments[n_segments].base_offset
    return max(base, partition.log_start_offset)


def _refuse_remote(plan: LoadPlan, start: int, settings: TopicSettings) -> None:
    """Raise UnsafePathError if a broker deletes remote segments because of a new log start."""
    partition, known = plan.partition, settings.config(plan.partition)
    old = plan.log_start
    first = next((one.base_offset for one in partition.segments), old)
    if start <= partition.log_start_offset:
        return
    if known.is_tiered:
        detail = f"{known.topic} is tiered, and a broker deletes remote segments before the log start"
    elif known.is_tiered is None and old < first:
        offsets = (
            f"offsets {offset_range(old, first)} may be in remote storage, and a broker deletes them before the"
            " log start"
        )
        detail = f"{offsets}: {known.why_unknown('remote.storage.enable')}"
    else:
        return
    detail += ". Leave the topic out (-T), or delete records by a running broker (kafka-delete-records.sh)"
    raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=plan.path)


def _kept(plan: LoadPlan, start: int, *, is_emptied: bool) -> list[Place]:
    """The segments that are not deleted."""
    segments = plan.partition.segments
    n_gone = sum(one.base_offset <= start for one in segments[1:])
    return [] if is_emptied else [one.path for one in segments[n_gone:]]


def _trim(plan: LoadPlan, output: PartitionOutput, start: int, *, is_emptied: bool) -> PartitionPlan:
    segments = plan.partition.segments
    row = PartitionPlan(str(plan.path), plan.partition.topic_partition)
    row.log_start_offset, row.log_end_offset = start, plan.partition.log_end_offset
    # where the checkpoint has it already, a run before may have been killed before it removed all
    is_trimmed = start > plan.partition.log_start_offset or 0 < start == plan.log_start
    problem = plan.files.problem(plan.path)
    if is_trimmed and problem is not None:
        row.log_start_offset = plan.partition.log_start_offset
        row.problem = problem
        output.abandon()
        return row
    there, kept = set(plan.files.names), set(_kept(plan, start, is_emptied=is_emptied))
    for segment in segments:
        name, size = segment.path.name, segment.size_in_bytes
        is_gone = segment.path not in kept
        action = "deleted" if is_gone else "kept"
        left = 0 if is_gone else size
        row.segments.append(SegmentPlan(name, segment.base_offset, action, size, left))  # type: ignore[arg-type]
        for suffix in (kf.LOG_SUFFIX, *kf.INDEX_SUFFIXES) if is_gone else ():
            file = name if suffix == kf.LOG_SUFFIX else segment.sidecar_path(suffix).name
            if file in there:
                output.remove(file)
    if is_emptied:
        # a broker rolls before it deletes the last segment
        row.segments.append(SegmentPlan(kf.segment_file_name(start), start, "kept", 0, 0))
        for suffix in (kf.LOG_SUFFIX, *kf.INDEX_SUFFIXES[:2]):
            output.write(kf.segment_file_name(start, suffix), b"")
    if is_trimmed:
        for name, why in plan.files.removed.items():
            # a run before that was killed removed its .log: a broker deletes it, too
            if why == ORPHAN:
                row.removed[name] = why
                output.remove(name)
        for name in plan.files.names:
            offset = kf.parse_base_offset(name)
            # that at the log end stays: the producers are in it
            is_old = offset is not None and offset <= start and offset < row.log_end_offset
            if is_old and name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX):
                row.removed[name] = "a snapshot at or below the log start offset"
                output.remove(name)
        _cut_epochs(plan, output, start)
    output.commit()
    return row


def _cut_epochs(plan: LoadPlan, output: PartitionOutput, start: int) -> None:
    path = plan.path / kf.LEADER_EPOCH_CHECKPOINT
    try:
        existing = read_leader_epochs(path)
    except KafkalogError:
        return  # a broker takes the log dir offline for it: recovery says so
    if existing is not None:
        kept = leader_epochs.truncate_from_start([(int(epoch), int(at)) for epoch, at in existing.tolist()], start)
        data = encode_checkpoint(kept)
        if path.read_bytes() != data:
            output.write(path.name, data)
