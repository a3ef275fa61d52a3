"""Merges several copies of a partition into a new one that a broker starts on.

`read_replica` searches the copies, `MergedLog` chooses the batches; here they are copied. No copy is modified.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    FileChangedError,
    Finding,
    KafkalogError,
    Limits,
    NotKafkaError,
    Reason,
    SidecarError,
)
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.searching.missing import offsets_finding
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.target import ConvertedPartitions, PartitionSink
from kafkalog.operations.rebuilding.partitions import ChosenPartition, check_paths, choose, saved_alone
from kafkalog.records.batch_table import Window
from kafkalog.repair.merging.merged_log import MergedLog, leader_of, rank
from kafkalog.repair.merging.merged_partitions import MergedPartition, MergedRange, MergedReplica, MergeReport
from kafkalog.repair.merging.replica import Replica, Rows, read_replica
from kafkalog.repair.salvaging.plan import read_intact, undecodable, with_epochs
from kafkalog.repair.salvaging.salvage import write_origin, write_report
from kafkalog.state.checkpoints import checkpointed_offset
from kafkalog.storage.atomic import check_free
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.location import parent_of, refuse_url
from kafkalog.storage.output_paths import named_partition
from kafkalog.storage.staging import StagedDirectory, staged_directory
from kafkalog.survey.losses import Lost
from kafkalog.text import counted

REPORT_NAME: Final = "merge.json"
_NAMELESS: Final = kf.TopicPartition("merged", 0)


def merge(
    replicas: Sequence[str | os.PathLike[str] | LogDir | Partition],
    output: str | os.PathLike[str] | None = None,
    *,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    dry_run: bool = False,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> MergeReport:
    """Merge several copies of a partition, or of the partitions of log dirs, into the best log.

    Parameters
    ----------
    replicas : sequence of path-like, or of what `kafkalog.open` returned
        Partition directories or log dirs, of several brokers. They are never modified.
    output : path-like, optional
        The directory to create: a subdirectory per partition, ``merge.json``, and ``origin.json`` with the log dirs of
        the copies, for `boot`. A broker may use it as a log dir. For
        copies of a single partition, a name such as ``merged/orders-0`` is the partition's directory itself. Not needed
        for a dry run.
    topics, partitions : iterable, optional
        Only these topics and partition numbers.
    dry_run : bool
        Search and report, but write nothing.
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes searched since the last call.
    limits : Limits

    Returns
    -------
    MergeReport

    Raises
    ------
    NotKafkaError
        A path is neither, or the directories are no copies of one partition.
    UnsafePathError
        A broker holds the lock of a log dir; or `output` lies in one.
    OutputExistsError
        `output` exists.
    FileChangedError
        Somebody writes to a copy.
    WriteError
        The output could not be written; it does not appear.

    Notes
    -----
    The copy with the latest leader epoch leads and, of those, the longest. The others are cut where they would truncate
    before they fetched from it. Damaged copies are searched as `salvage` does. A hole of the base is filled from
    another copy if both have the same later batch, or if the batches have the leader epochs of the base at their
    offsets. Batches before v2 have no epoch, so that only the first proves them. The same holds for offsets before the
    leader's first segment. A log with gaps between intact batches counts as compacted, and such gaps are not filled.
    `MergedReplica.n_batches_left` counts the batches that are therefore left out, and a note names them.

    No checksum covers the leader epoch of a batch. A wrong one at the end of a copy can make it lead, or have another
    one cut: see `MergedReplica.last_epoch` and `truncate_to`. Leave out a copy whose last epoch is wrong.

    A batch with a right checksum is taken whether or not its records can be decoded. Those that cannot are counted and
    named, unless they are compressed: ``kafkalog verify --deep`` of the output names all of them.

    The output has the segments of the base, with rebuilt indexes, producer snapshots and leader epochs. Its log start
    offset is the largest one in the checkpoints of the copies. Batches that are not taken are in no file of the output:
    keep the copies, or `salvage` them, too. A crash leaves `output` absent or complete.

    Source: AbstractFetcherThread.getOffsetTruncationState, LeaderEpochFileCache.endOffsetFor, Kafka 4.3.

    Examples
    --------
    >>> report = kafkalog.merge(["tests/golden/log_dir/p-multi-0", "tests/golden/log_dir/p-multi-0"], dry_run=True)
    >>> [(one.start_offset, one.end_offset) for one in report.partitions[0].ranges]
    [(0, 125)]
    """
    refuse_url(replicas)
    if output is None and not dry_run:
        raise ValueError("exactly one of output= and dry_run=True is required")
    if isinstance(replicas, (str, bytes, os.PathLike)) or not replicas:
        raise ValueError("replicas is a sequence of at least one path")
    report = MergeReport(is_written=not dry_run)
    groups: dict[kf.TopicPartition, list[Partition]] = {}
    are_partitions = True
    for opened in _opened(replicas, limits):
        are_partitions = are_partitions and isinstance(opened, Partition)
        chosen = list(choose(opened, topics, partitions, report.findings.add, copies=True))
        check_paths(opened, chosen, output=output, dry_run=dry_run)
        _group(groups, chosen)
    if are_partitions:
        _check_same(groups)
    target = Path("" if output is None else output)
    if not dry_run:
        check_free(target)
    if not groups:
        return report
    lone = None if output is None else named_partition(output, is_one=are_partitions)
    if lone is not None:
        groups = {lone: next(iter(groups.values()))}
    with contextlib.ExitStack() as stack:
        staged = None if dry_run else stack.enter_context(staged_directory(target))
        starts: dict[kf.TopicPartition, int] = {}
        for name, group in groups.items():
            with saved_alone(len(groups) > 1, partial(_fail, report, str(name), staged)):
                place = target if lone is not None else target / str(name)
                directory = None if staged is None else staged.path / str(name)
                merged = _merge_copies(group, place, directory, report.findings.add, progress, limits)
                report.partitions.append(merged)
                start = _start_offset(group, merged.end_offset)
                if start > merged.start_offset and lone is None:
                    starts[name] = start
        if staged is not None:
            write_report(staged, REPORT_NAME, report, starts, lone)
            is_whole = not are_partitions and topics is None and partitions is None
            roots = [parent_of(copy.path) for copy in chain.from_iterable(groups.values())]
            write_origin(staged, "merge", roots, is_whole=is_whole)
    return report


def _opened(
    replicas: Sequence[str | os.PathLike[str] | LogDir | Partition], limits: Limits
) -> Iterator[LogDir | Partition]:
    """Open the copies, one after the other. Raises for a segment."""
    for path in replicas:
        opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
        if isinstance(opened, Segment):
            detail = f"not a directory: name the partition directory, {opened.path.parent}"
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=opened.path)
        yield opened


def _group(groups: dict[kf.TopicPartition, list[Partition]], chosen: Iterable[ChosenPartition]) -> None:
    """Add chosen partitions to the copies of the same partition."""
    for one in chosen:
        groups.setdefault(one.partition.topic_partition or _NAMELESS, []).append(one.partition)


def _check_same(groups: Mapping[kf.TopicPartition, Sequence[Partition]]) -> None:
    """Raise unless partition directories are copies of one partition."""
    if len(groups) > 1:
        detail = f"different partitions, not copies of one: {' and '.join(sorted(map(str, groups)))}"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=[*groups.values()][-1][0].path)


def _merge_copies(
    copies: list[Partition],
    place: Path,
    directory: Path | None,
    note: Callable[[Finding], object],
    progress: Callable[[int], object],
    limits: Limits,
) -> MergedPartition:
    """Merge the copies of one partition, which will be at `place`, into a staged directory; None only reads."""
    topic_id = _common_topic_id(copies, note)
    replicas = [read_replica(copy, number, note, progress, limits) for number, copy in enumerate(copies)]
    merged = PartitionMerge(replicas, str(place), note)
    merged.write(directory, topic_id, limits)
    return merged.report


def _fail(report: MergeReport, name: str, staged: StagedDirectory | None, error: KafkalogError) -> None:
    """Report a partition that could not be merged, and remove what was written of it."""
    report.findings.add(error.to_finding())
    report.partitions.append(MergedPartition(name, "", error=str(error)))
    if staged is not None:
        staged.remove(name)


def _start_offset(copies: Iterable[Partition], end: int) -> int:
    """The largest log start offset in the checkpoints of the copies; 0 if there is none."""
    # a start past the end would hide all that was merged
    return max((start for copy in copies if (start := _checkpointed_start(copy)) <= end), default=0)


def _checkpointed_start(partition: Partition) -> int:
    """Log start offset of the log dir's checkpoint; 0 if there is none.

    The first segment's base offset is no such: it may be what is left of a damaged log, and another copy has the rest.
    """
    if partition.topic_partition is None or partition.kind is not None:
        return 0
    path = partition.path.absolute().parent / kf.LOG_START_OFFSET_CHECKPOINT
    return checkpointed_offset(path, partition.topic_partition) or 0


def _common_topic_id(group: list[Partition], note: Callable[[Finding], object]) -> str | None:
    """The topic id of the copies; raises if they are of topics that have had the name one after the other."""
    topic_ids: dict[str, Partition] = {}
    for one in group:
        try:
            if one.topic_id is not None:
                topic_ids.setdefault(one.topic_id, one)
        except SidecarError as error:
            note(error.to_finding())  # the others still tell
    if len(topic_ids) > 1:
        (first, a), (second, b) = list(topic_ids.items())[:2]
        detail = f"its topic id is {second}, that of {a.path} is {first}: they are not copies of one partition"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=b.path)
    return next(iter(topic_ids), None)


class PartitionMerge:
    """Merges the copies of one partition; `note` gets the findings, `log` and `report` are the result."""

    def __init__(self, replicas: list[Replica], output: str, note: Callable[[Finding], object]) -> None:
        self._replicas, self._note = replicas, note
        self._leader = leader_of(replicas)
        leader = replicas[self._leader]
        self.log = MergedLog(leader)
        self.report = MergedPartition(output, str(leader.partition.path))
        self.report.replicas = [_described(one) for one in replicas]
        order = sorted(range(len(replicas)), key=lambda n: rank(replicas[n]), reverse=True)
        for number in order:
            if number != self._leader:
                self._add(number)
        rows = self.log.rows
        self._boundaries = self._segments(rows)
        self.report.start_offset = self._boundaries[0][0]
        self.report.end_offset = max(self._boundaries[-1][0], *(rows["last_offset"][-1:] + 1).tolist(), 0)
        for number, n_taken in enumerate(np.bincount(rows["replica"], minlength=len(replicas)).tolist()):
            self.report.replicas[number].n_batches_taken = n_taken
        self._find_ranges(rows)

    def write(
        self,
        directory: Path | None,
        topic_id: str | None,
        limits: Limits,
        *,
        see: Callable[[Window], object] = lambda window: None,
    ) -> None:
        """Write the partition; with None it is only read, to tell of batches that cannot be decoded.

        `see` is called with the batches, in order.
        """
        rows, leader = self.log.rows, self._replicas[self._leader]
        first = self._replicas[int(rows["replica"][0])] if rows.size else leader
        targets = ConvertedPartitions(None, limits, lambda finding: None)
        start = self.report.start_offset
        with contextlib.ExitStack() as stack:
            sink: PartitionSink | None = None
            if directory is not None:
                sink = stack.enter_context(
                    targets.open(directory, first.partition, start, leader_epochs=leader.epochs, topic_id=topic_id)
                )
            done = 0
            for base_offset, row in self._boundaries:
                self._copy(rows[done:row], sink, limits, see)
                if sink is not None:
                    sink.roll(base_offset)
                done = row
            self._copy(rows[done:], sink, limits, see)

    @property
    def n_segments(self) -> int:
        """Number of segments of the output."""
        return len(self._boundaries)

    def _add(self, number: int) -> None:
        replica, described = self._replicas[number], self.report.replicas[number]
        end, conflict, described.n_batches_left, left_from = self.log.add(replica)
        described.truncate_to = end if end < replica.end_offset else None
        described.differs_from = conflict
        if conflict is not None:
            detail = f"it differs from {self.report.leader} from offset {conflict} on, although leader epochs agree"
            self._note(Finding(Reason.EPOCH_ORDER, detail, path=described.path, base_offset=conflict))
        if left_from is not None:
            detail = (
                f"{counted(described.n_batches_left, 'batch')} from here on not merged: {self.report.leader} has gaps"
                " there, and no damage. Compaction leaves such gaps; without compaction, the base lost them"
            )
            self._note(Finding(Reason.OFFSET_GAP, detail, path=described.path, base_offset=left_from, damage=False))

    def _segments(self, rows: Rows) -> list[tuple[int, int]]:
        """Base offsets of the output's segments, each with the number of the first row in it."""
        bases = {segment.base_offset for segment in self._replicas[self._leader].partition.segments}
        # where the leader has no segment, those of the others
        new = np.flatnonzero(np.diff(rows["replica"] * np.int64(2**32) + rows["segment"], prepend=-1))
        for row in new.tolist():
            replica = self._replicas[int(rows["replica"][row])]
            base_offset = replica.partition.segments[int(rows["segment"][row])].base_offset
            if not row or base_offset > rows["last_offset"][row - 1]:
                bases.add(base_offset)
        ordered = np.array(sorted(bases or {0}), np.int64)
        at = np.searchsorted(rows["first_offset"], ordered)
        before = np.append(np.int64(-1), rows["last_offset"])[at]
        is_good = before < ordered  # not in the middle of a batch
        return list(zip(ordered[is_good].tolist(), at[is_good].tolist(), strict=True))

    def _copy(self, rows: Rows, sink: PartitionSink | None, limits: Limits, see: Callable[[Window], object]) -> None:
        """Append rows, from one segment of a copy after the other."""
        if not rows.size:
            return
        first = np.flatnonzero(np.diff(rows["replica"] * np.int64(2**32) + rows["segment"], prepend=-1))
        for begin, end in zip(first.tolist(), np.append(first, rows.size)[1:].tolist(), strict=True):
            run = rows[begin:end]
            replica, number = self._replicas[int(run["replica"][0])], int(run["segment"][0])
            segment = replica.partition.segments[number]
            with BadSectorSource(segment.path) as source:
                if source.identity != replica.identities[number]:
                    detail = "the file changed after it was searched: stop all writers of the copy"
                    raise FileChangedError(Reason.FILE_CHANGED, detail, path=segment.path)
                stops = run["position"] + run["size_in_bytes"]
                for window, a, b in read_intact(source, run["position"], stops, np.ones(run.size, np.int64)):
                    window = with_epochs(window, run["leader_epoch"][a:b])
                    start, end, path = run["position"][a:b], stops[a:b], str(segment.path)
                    for finding in undecodable(window, start, end, path, limits):
                        self.report.replicas[int(run["replica"][0])].n_batches_undecodable += 1
                        self._note(finding)
                    see(window)
                    if sink is not None:
                        sink.append(window, segment)
                source.check_unchanged()

    def _find_ranges(self, rows: Rows) -> None:
        """Say where each range of offsets comes from, and what is missing."""
        report = self.report
        ends = np.append(np.int64(report.start_offset), rows["last_offset"] + 1)
        self._find_missing(rows, ends)
        is_gap = np.zeros(rows.size, np.bool_)
        for one in report.missing:
            is_gap |= (rows["first_offset"] > one.start_offset) & (ends[:-1] < (one.end_offset or 2**63 - 1))
        is_new = is_gap | (np.diff(rows["replica"], prepend=-1) != 0)
        first = np.flatnonzero(is_new)
        for begin, stop in zip(first.tolist(), np.append(first, rows.size)[1:].tolist(), strict=True):
            run = rows[begin:stop]
            start = int(run["first_offset"][0] if is_gap[begin] else ends[begin])
            source = str(self._replicas[int(run["replica"][0])].partition.path)
            epochs = int(run["leader_epoch"][0]), int(run["leader_epoch"][-1])
            end, size = int(run["last_offset"][-1]) + 1, int(run["size_in_bytes"].sum())
            report.ranges.append(MergedRange(start, end, source, run.size, size, epochs))
        report.ranges.sort(key=lambda one: one.start_offset)

    def _find_missing(self, rows: Rows, ends: npt.NDArray[np.int64]) -> None:
        """Report what the leader lost, and no other copy has."""
        leader = self._replicas[self._leader]
        losses = [*leader.losses]
        if self.report.start_offset < leader.base_offset:
            # what others have before the leader begins may have holes of their own
            path, start, end = self.report.leader, self.report.start_offset, leader.base_offset
            losses.append(Lost(path, start, end, None, None, 1, Reason.OFFSET_GAP))
        for lost in losses:
            if lost.first_offset is None:
                self._miss(lost, None, None)
            else:
                self._find_gaps(lost, lost.first_offset, rows, ends)
        is_open = any(one.end_offset is None for one in self.report.missing)
        if leader.is_end_lost and int(ends[-1]) < leader.end_offset and not is_open:
            self._miss(None, int(ends[-1]), leader.end_offset)

    def _find_gaps(self, lost: Lost, start: int, rows: Rows, ends: npt.NDArray[np.int64]) -> None:
        """Report the parts of a loss from `start` on that no other copy has."""
        is_after_loss = np.append(rows["is_after_loss"], True)
        is_compacted = self._replicas[self._leader].is_compacted
        stop = 2**63 - 1 if lost.end_offset is None else lost.end_offset
        row = int(np.searchsorted(rows["last_offset"], start))
        while start < stop:
            first = min(int(rows["first_offset"][row]), stop) if row < rows.size else stop
            # where a copy lost nothing, compaction left the gap
            if first > start and (is_after_loss[row] or not is_compacted or not lost.n_bytes):
                self._miss(lost, start, first if first < 2**63 - 1 else None)
            row += 1
            start = int(ends[row]) if row <= rows.size else stop

    def _miss(self, lost: Lost | None, start: int | None, end: int | None) -> None:
        """Report offsets that no copy has, or a part of what the leader lost."""
        self.report.ranges.append(MergedRange(start or 0, end, None))
        shown = ["?" if one is None else one for one in (start, end)]
        detail = f"no copy has offsets {shown[0]}..{shown[1]}"
        path = self.report.leader if lost is None else lost.path
        found = Finding(Reason.OFFSET_GAP, detail, path=path, base_offset=start)
        if start is not None and end is not None:
            found = offsets_finding(found.reason, detail, path, start, end)
        if lost is not None and (lost.first_offset, lost.end_offset) == (start, end):
            found = replace(found, n_records=lost.n_records, certainty=lost.certainty)
        self._note(found)


def _described(replica: Replica) -> MergedReplica:
    rows = replica.rows
    return MergedReplica(
        str(replica.partition.path),
        replica.last_epoch,
        int(rows["first_offset"][0]) if rows.size else replica.base_offset,
        int(rows["last_offset"][-1]) + 1 if rows.size else replica.base_offset,
        rows.size,
        n_bytes_lost=replica.n_bytes_lost,
        is_tail_lost=replica.is_tail_lost,
    )
