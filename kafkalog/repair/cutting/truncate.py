"""Removes the end of a log: everything from an offset, after an epoch, or from a time on.

Mirrors `UnifiedLog.truncateTo` and what follows it: indexes, snapshots, leader epochs and checkpoints.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.rebuilder import KINDS, Rebuilder
from kafkalog.operations.rebuilding.rebuilt_files import RebuildReport
from kafkalog.operations.rebuilding.target import RebuildTarget
from kafkalog.records.batch_table import valid_crcs
from kafkalog.records.spans import batch_error
from kafkalog.repair.cutting.partitions import CutPartitions
from kafkalog.repair.placement import PartitionOutput, Placement
from kafkalog.repair.recovering.partition import PartitionRecovery
from kafkalog.repair.recovering.recovered_partitions import RecoveryReport
from kafkalog.storage.location import Place, refuse_url
from kafkalog.storage.source import ByteSource
from kafkalog.survey.startup import PartitionPlan, SegmentPlan
from kafkalog.survey.startup_load import LoadPlan


def truncate(
    path: str | os.PathLike[str],
    *,
    to_offset: int | None = None,
    to_epoch: int | None = None,
    to_timestamp: int | str | datetime | None = None,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    index_interval_bytes: int | None = None,
    stage_in: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> RecoveryReport:
    """Remove the end of a partition's log, or of each partition of a log dir.

    Parameters
    ----------
    path : path-like
        A log dir, or a partition directory.
    to_offset : int, optional
        Remove the records from this offset on.
    to_epoch : int, optional
        Remove the records of later leader epochs, as a follower does whose leader knows no later one.
    to_timestamp : int (ms), str or aware datetime, optional
        Remove everything from the first record on whose timestamp is at or after this.
    output, in_place, backup, dry_run, stage_in
        See `recover`.
    index_interval_bytes : int, optional
        See `reindex`.
    limits : Limits

    Returns
    -------
    RecoveryReport

    Raises
    ------
    ValueError
        Not exactly one of the three is given; or the offset is below the log start offset of a partition.
    UnsafePathError, OutputExistsError, WriteError
        See `recover`.
    CorruptionError
        With `output`: a partition cannot be cut, for example because of a file on which a broker dies. With `in_place`
        and in a dry run it stays unchanged, and its `error` says why.
    KafkalogError
        The log is damaged before the place: recover it first.

    Notes
    -----
    Batches are removed whole: a batch that reaches the offset goes, even if it begins before it. So the log may end
    before the offset. The function rebuilds the indexes of the cut segment, the producer snapshot at the new end and
    the leader epochs. It lowers checkpointed offsets to the new end. A partition whose log ends before the place is
    unchanged.

    A crash leaves `output` absent or complete. With `in_place`, each file is old or complete, and the clean-shutdown
    marker is absent until all is done, so that a broker that starts in between recovers the log dir. The same command
    with another `backup` finishes the rest.

    Source: UnifiedLog.truncateTo, LogSegment.truncateTo, LeaderEpochFileCache.truncateFromEnd, Kafka 4.3.

    Examples
    --------
    >>> kafkalog.truncate("tests/golden/log_dir/p-multi-0", to_offset=100, dry_run=True).partitions[0].log_end_offset
    96
    """
    refuse_url(path)
    if (to_offset is not None) + (to_epoch is not None) + (to_timestamp is not None) != 1:
        raise ValueError("exactly one of to_offset, to_epoch and to_timestamp is required")
    placement = Placement(output, in_place, backup, dry_run, stage_in)
    cut = CutPartitions(path, placement, limits=limits)
    stamp = cut.milliseconds("to_timestamp", to_timestamp)
    ends: dict[LoadPlan, int | None] = {plan: _end(plan, to_offset, to_epoch, stamp) for plan in cut.plans}
    finishes = {plan: ends[plan] is None and cut.is_past_end(plan) for plan in cut.plans}
    cut.check_room(path for plan in cut.plans for path in _kept(plan, ends[plan]))
    with cut.open() as make:
        is_changing = any(finishes[plan] or ends[plan] is not None for plan in cut.plans)
        was_marked = is_changing and placement.unmark()
        try:
            for plan in cut.plans:
                truncation = _TruncationTarget(plan, make(plan), cut.report, index_interval_bytes, limits)
                cut.add(plan, truncation.finish() if finishes[plan] else truncation.run(ends[plan]))
            cut.check()
        except KafkalogError:
            # each partition is cut, or as it was
            if was_marked:
                placement.mark()
            raise
        _lower_checkpoints(cut)
        if was_marked:
            placement.mark()
        cut.copy_rest()
    return cut.report


def _lower_checkpoints(cut: CutPartitions) -> None:
    """Lower the checkpointed offsets of the partitions to their new log ends."""

    def clamp(offsets: dict[kf.TopicPartition, int]) -> None:
        for row in cut.report.partitions:
            if row.topic_partition in offsets and row.error is None:
                offsets[row.topic_partition] = min(offsets[row.topic_partition], row.log_end_offset)

    for name in kf.BOUNDED_CHECKPOINTS:
        cut.put_checkpoint(name, clamp)


def _end(plan: LoadPlan, offset: int | None, epoch: int | None, timestamp: int | None) -> int | None:
    """The offset to truncate a partition to; None if nothing is removed."""
    partition = plan.partition
    if not partition.segments:
        return None
    if epoch is not None:
        answer = partition.end_offset_for_epoch(epoch).end_offset
        offset = None if answer < 0 else answer
    elif timestamp is not None:
        found = partition.offset_for_timestamp(timestamp)
        offset = None if found < 0 else found
    if offset is None or offset >= partition.log_end_offset:
        return None
    if offset < partition.log_start_offset:
        raise ValueError(f"{plan.path} starts at {partition.log_start_offset}, after {offset}")
    return offset


def _kept(plan: LoadPlan, end: int | None) -> list[Place]:
    """The segments that are not cut."""
    segments = plan.partition.segments
    n = len(segments) if end is None else max(sum(one.base_offset <= end for one in segments) - 1, 0)
    return [one.path for one in segments[:n]]


def _check(prefix: SegmentPrefix) -> None:
    """Raise for damage in the part of a segment that stays; the rebuild would cut the log there."""
    hint = "before the cut; run kafkalog recover or salvage first"
    with prefix.open() as source:
        for window in prefix.iter_windows(source, checked=True):
            for row in np.flatnonzero(~valid_crcs(window)):
                raise batch_error(STATUS["CRC_MISMATCH"], window.batches, int(row), str(prefix.path), detail=hint)


class _TruncationTarget(RebuildTarget):
    """Truncates one partition; the target of the rebuild of its last segment."""

    def __init__(
        self,
        plan: LoadPlan,
        output: PartitionOutput,
        report: RecoveryReport,
        index_interval_bytes: int | None,
        limits: Limits,
    ) -> None:
        self._plan, self._interval, self._limits = plan, index_interval_bytes, limits
        self._one = PartitionRecovery(plan, output, is_wanted=True)
        self._rebuilt = RebuildReport(findings=report.findings)

    def run(self, end: int | None) -> PartitionPlan:
        """Truncate, and return what became of the partition."""
        plan, partition = self._plan, self._plan.partition
        if end is None:
            row = PartitionPlan(str(plan.path), partition.topic_partition)
            row.log_start_offset, row.log_end_offset = partition.log_start_offset, partition.log_end_offset
            for one in partition.segments:
                size = one.size_in_bytes
                row.segments.append(SegmentPlan(one.path.name, one.base_offset, "kept", size, size))
            self._one.output.commit()
            return row
        segments = partition.segments
        # a segment that begins at the offset stays, empty, so that the log ends there
        last = max(number for number, one in enumerate(segments) if one.base_offset <= end)
        return self._cut(last, end, frozenset(KINDS) - {"epochs"})

    def finish(self) -> PartitionPlan:
        """Do what a run before left undone: it was killed after it had cut the log."""
        segments = self._plan.partition.segments
        # the indexes are written before the log
        return self._cut(len(segments) - 1, self._plan.partition.log_end_offset, frozenset({"snapshot"}))

    def _cut(self, last: int, end: int, kinds: frozenset[str]) -> PartitionPlan:
        plan, partition = self._plan, self._plan.partition
        segments = partition.segments
        prefix = SegmentPrefix(segments[last], position_of(segments[last], end))
        _check(prefix)
        plan.lone, plan.unflushed_from = {}, prefix.base_offset
        partition.segments = [*segments[:last], prefix]
        rebuilder = Rebuilder(self._rebuilt, self, is_in_place=False, damaged="cut", limits=self._limits)
        self._one.main = rebuilder.plan(partition, frozenset({prefix.base_offset}), kinds, self._interval, None)
        rebuilder.run([self._one.main], 1)
        partition.segments = segments
        self._one.files += self._rebuilt.files
        self._one.epochs_below = end
        row = self._one.finish()
        for cut in row.segments:
            if cut.base_offset == prefix.base_offset and row.problem is None:
                cut.n_bytes_before = segments[last].size_in_bytes
        return row

    def put(self, path: Path, data: bytes) -> None:
        """Take a derived file that is new or has changed."""
        self._one.put(path, data)

    def keep(self, path: Path, data: bytes) -> None:
        """Take a derived file whose content is right."""
        self._one.written.add(path.name)


class SegmentPrefix(Segment):
    """A segment without the bytes from `end` on, the position of a batch."""

    def __init__(self, segment: Segment, end: int) -> None:
        self._end = end
        super().__init__(segment.path, limits=segment.limits, is_last=True, topic_partition=segment.topic_partition)

    def open(self) -> ByteSource:
        """The bytes before the end."""
        source = super().open()
        source.size = min(source.size, self._end)
        return source


def position_of(segment: Segment, offset: int) -> int:
    """Position of the first batch that reaches an offset; the size of the segment if none does.

    A batch that begins before the offset and reaches it counts, too: batches are removed whole. Raises KafkalogError if
    the segment is damaged before it. Source: LogSegment.truncateTo, LogSegment.translateOffset, Kafka 4.3.
    """
    found = int(segment.find_offsets([offset])["position"][0])
    return segment.size_in_bytes if found < 0 else found
