"""Recovers a log dir or a partition as a broker does after an unclean shutdown, but offline.

Several segments are read at a time. The derived files of each are written as soon as it is read, so memory stays
bounded. Mirrors `LogManager.loadLogs` and `LogLoader`; `survey.startup_load` tells which segments are recovered.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, KafkalogError, Limits, ReadError, Reason, SidecarError
from kafkalog.log.log_dir import check_log_dir, is_partition_directory
from kafkalog.log.log_start import log_start
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.log.recovery import recover as recover_segment
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.index_interval import index_interval, max_index_bytes
from kafkalog.operations.rebuilding.rebuilder import KINDS, Rebuilder, Work
from kafkalog.operations.rebuilding.rebuilt_files import RebuildReport
from kafkalog.operations.rebuilding.target import RebuildTarget
from kafkalog.parsing import parse_milliseconds, thread_count
from kafkalog.repair.placement import PartitionOutput, Placement, clean_shutdown_marker
from kafkalog.repair.recovering.partition import PartitionRecovery
from kafkalog.repair.recovering.recovered_partitions import RecoveryReport
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_offset_checkpoint
from kafkalog.state.producers import loaded_snapshots
from kafkalog.storage.broker_lock import refuse_if_locked
from kafkalog.storage.location import local_path, parent_of, refuse_url
from kafkalog.storage.own_names import ORIGIN_NAME
from kafkalog.storage.room import lacking_room, log_files
from kafkalog.survey.next_steps import log_dirs_of
from kafkalog.survey.origins import encode_origin
from kafkalog.survey.startup import PartitionPlan, SegmentAction, SegmentPlan
from kafkalog.survey.startup_end import end_as_loaded, split_bases
from kafkalog.survey.startup_files import partition_directories
from kafkalog.survey.startup_load import LoadPlan, RootOffsets
from kafkalog.survey.startup_root import root_problems
from kafkalog.survey.topic_ids import TopicIds
from kafkalog.survey.topics import TopicSettings


def recover(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    backup: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    all_segments: bool = False,
    metadata: str | os.PathLike[str] | None = None,
    index_interval_bytes: int | None = None,
    threads: int | None = None,
    now: int | str | datetime | None = None,
    stage_in: str | os.PathLike[str] | None = None,
    on_start: Callable[[int], object] = lambda n_bytes: None,
    progress: Callable[[int], object] = lambda n_bytes: None,
    on_partition: Callable[[PartitionPlan], object] = lambda partition: None,
    limits: Limits = DEFAULT_LIMITS,
) -> RecoveryReport:
    """Do what a broker's recovery does after a crash, so that the broker then starts without any recovery.

    Parameters
    ----------
    path : path-like
        A log dir, or a partition directory.
    output : path-like, optional
        Directory to create with the recovered copy. `path` is only read.
    in_place : bool
        Change the log dir itself; needs `backup`.
    backup : path-like, optional
        A new directory outside of the log dir. Each file that is replaced or removed is kept there before the first
        change to its partition.
    dry_run : bool
        Only report what would be done.
    all_segments : bool
        Recover all segments. Default: only those that a broker recovers, from the recovery point on, since they may not
        have been on disk at the crash.
    metadata : path-like, optional
        A log dir with the cluster's metadata log, such as another disk of the broker, for topic ids. Default: the log
        dir itself.
    index_interval_bytes : int, optional
        See `reindex`.
    threads : int, optional
        Number of segments to read at a time; default: the number of processors, up to four.
    now : int (ms) or aware datetime, optional
        See `reindex`.
    stage_in : path-like, optional
        With `in_place`, the directory to write new files in, on the file system of the log dir and outside of it.
        Default: the parent of the log dir.
    on_start : callable
        Called once with the number of bytes of the segments that are going to be read.
    progress : callable
        Called with the number of bytes read since the last call.
    on_partition : callable
        Called with each row of the report as soon as the partition is done.
    limits : Limits

    Returns
    -------
    RecoveryReport

    Raises
    ------
    NotKafkaError
        `metadata` has no metadata log.
    UnsafePathError
        A broker holds the lock of the log dir; or the output or the backup would lie in it.
    OutputExistsError
        `output` or `backup` exists.
    WriteError
        A file could not be written. `output` does not appear. With `in_place`, partitions that were done stay
        recovered, and others are unchanged; there is no clean-shutdown marker, so a broker recovers the rest itself.
    CorruptionError
        With `output`: the partition cannot be recovered.

    Notes
    -----
    Recovery loses data by design: it truncates a damaged segment before the damage, and deletes all later segments of
    the partition. If the damaged segment has no offset index, a broker cuts it before the recovery begins, and keeps
    later segments, after a gap. This function does the same. If that segment is below the recovery point, later
    producer snapshots are removed, and few are rebuilt, as by a broker. Read the report of a dry run first:
    `n_bytes_lost` counts the bytes that go.

    A segment that is missing in the middle is no damage to a broker, which continues after it. It is a note among the
    findings, unless the log cleaner has been there.

    Indexes, producer snapshots and leader epochs of the recovered segments are built again. Of a log dir, the recovery
    point of each partition becomes its log end offset. If every partition was recovered, the log dir gets the
    clean-shutdown marker. It has no broker epoch, so the controller does not assume that this replica lost nothing.

    A KRaft broker renames a partition without `partition.metadata` to `-stray`. The file is written with the topic id
    of the cluster's metadata, or of the topic's other partitions. If no id is known, the partition counts as lost.

    A partition that cannot be recovered stays unchanged, or is left out of the copy. Its `error` has the reason, such
    as an unreadable segment, and there is no marker. A segment of an old compacted topic may have offsets that are more
    than 2^31 apart. A broker splits it when it starts: its partition stays, or is copied, as it is, without a marker.

    A crash leaves `output` absent or complete. With `in_place`, each file is old or complete. From any state in
    between, a broker or another run reaches the same result.

    Source: LogManager.loadLogs, LogLoader.load, LogSegment.recover, Kafka 4.3.

    Examples
    --------
    >>> kafkalog.recover("tests/golden/log_dir/p-txn-0", dry_run=True)
    RecoveryReport(1 partition, nothing lost)
    """
    refuse_url(path)
    root = Path(path)
    placement = Placement(output, in_place, backup, dry_run, stage_in)
    n_threads = thread_count(threads)
    log_dir = parent_of(root) if is_partition_directory(root) else root
    # for a copy, too: files that a broker writes to meanwhile are no state to recover
    refuse_if_locked([log_dir])
    report = RecoveryReport(is_written=not dry_run, findings=Findings(limits.max_findings))
    report.log_dirs = log_dirs_of([log_dir, *([] if dry_run or backup is None else [backup])])
    plans = plan_recovery(root, report, all_segments=all_segments, limits=limits)
    ids = replace(TopicIds.of([plan.path for plan in plans], metadata, limits), is_log_dir=log_dir == root)
    # recovery writes those files again, or counts them as a partition that it cannot recover
    problems = root_problems([log_dir], limits=limits)
    report.problems = [one for one in problems if Path(one.path).name not in kf.OFFSET_CHECKPOINTS]
    for problem in report.problems:
        report.findings.add(problem.to_finding())
    on_start(sum(segment.size_in_bytes for plan in plans for segment in plan.recovered))
    if output is not None:
        _note_room(output, plans, report.findings)
    with contextlib.ExitStack() as stack:
        placement.enter(stack, root, [plan.path for plan in plans])
        placement.unmark()

        def make(plan: LoadPlan) -> PartitionOutput:
            return placement.partition(plan.path, plan.files.names)

        now_ms = None if now is None else parse_milliseconds("now", now)
        run = RecoveryRun(report, make, index_interval_bytes, now_ms, limits, topic_ids=ids, leaves_splits=True)
        run.recover(plans, n_threads, progress, on_partition)
        finish_root(root, placement, report)
    return report


def _note_room(output: str | os.PathLike[str], plans: Iterable[LoadPlan], findings: Findings) -> None:
    """Note that a copy may not fit; no refusal, since how much recovery cuts is not known yet."""
    logs = log_files(plan.path for plan in plans)
    if detail := lacking_room(Path(os.path.realpath(output)), logs):
        detail = f"if recovery cuts nothing, {detail}"
        findings.add(Finding(Reason.WRITE_FAILED, detail, path=os.fspath(output), damage=False))


def plan_recovery(root: Path, report: RecoveryReport, *, all_segments: bool, limits: Limits) -> list[LoadPlan]:
    """Plan how a broker would load the partitions of a log dir, or the one at `root`; add failures to the report."""
    is_partition = is_partition_directory(root)
    offsets = RootOffsets.read(parent_of(root) if is_partition else root)
    directories = [root] if is_partition else _directories(root, report)
    if not is_partition:
        check_log_dir(root, directories)
    for finding in offsets.findings:
        report.findings.add(finding)
    plans = []
    for directory in directories:
        try:
            plans.append(LoadPlan(directory, offsets, ignores_recovery_point=all_segments, limits=limits))
        except KafkalogError as error:
            report.add(PartitionPlan(str(directory), None, problem=error.to_finding()))
    return plans


def _directories(root: Path, report: RecoveryReport) -> list[Path]:
    found = []
    for one in partition_directories(root):
        if not isinstance(one, Finding):
            found.append(one)
        elif one.reason is Reason.LINK_OUTSIDE:
            report.add(PartitionPlan(one.path or "", None, problem=one))
    return found


class RecoveryRun(RebuildTarget):
    """Recovers partitions one after the other, while segments are read ahead.

    Without `is_replayed`, producers are not replayed for their snapshots and transaction indexes, which may take
    earlier segments. With `leaves_splits`, segments that a broker splits at its start are no problem.
    """

    def __init__(
        self,
        report: RecoveryReport,
        make_output: Callable[[LoadPlan], PartitionOutput],
        index_interval_bytes: int | None,
        now_ms: int | None,
        limits: Limits,
        settings: TopicSettings | None = None,
        *,
        topic_ids: TopicIds | None = None,
        is_replayed: bool = True,
        leaves_splits: bool = False,
    ) -> None:
        self._report, self._make_output, self._limits = report, make_output, limits
        self._settings, self._topic_ids, self._is_replayed = settings, topic_ids, is_replayed
        self._interval, self._now, self._leaves_splits = index_interval_bytes, now_ms, leaves_splits
        self._rebuilt = RebuildReport(findings=report.findings)
        self._by_path: dict[Path, PartitionRecovery] = {}
        self._waiting: deque[tuple[PartitionRecovery, bool]] = deque()
        self._on_partition: Callable[[PartitionPlan], object] = lambda partition: None

    def recover(
        self,
        plans: list[LoadPlan],
        threads: int,
        progress: Callable[[int], object],
        on_partition: Callable[[PartitionPlan], object],
    ) -> None:
        self._on_partition = on_partition
        self._rebuilder = Rebuilder(
            self._rebuilt,
            self,
            is_in_place=False,
            damaged="cut",
            limits=self._limits,
            progress=progress,
        )
        self._rebuilder.run(self._works(plans), threads)

    def _works(self, plans: list[LoadPlan]) -> Iterator[Work]:
        """The work on the segments that are recovered; partitions without any are finished here."""
        for plan in plans:
            one = PartitionRecovery(plan, self._make_output(plan), self._now, is_replayed=self._is_replayed)
            one.topic_ids = self._topic_ids
            if one.problem() is None and self._begins_empty(plan):
                self._add(one.wipe(), one.findings)
                continue
            kinds = frozenset(KINDS) - {"epochs"}  # epochs also depend on where the log ends
            for base in plan.lone:
                one.lone.append(self._work(plan, frozenset({base}), frozenset(KINDS[:4])))
            unflushed = frozenset(filter(plan.is_unflushed, plan.bases))
            if unflushed:
                only = None if len(unflushed) == len(plan.bases) else unflushed
                one.main = self._work(plan, only, kinds)
                # a broker has cut these before it begins, so that their damage ends nothing
                one.main.passes = plan.cut_before
                one.main.passed_snapshots = loaded_snapshots(plan.bases)
            works = [*one.lone, *([] if one.main is None else [one.main])]
            if not works:
                self._finish(one)
                continue
            self._by_path[plan.path] = one
            for number, work in enumerate(works, 1):
                self._waiting.append((one, number == len(works)))
                yield work

    def _work(self, plan: LoadPlan, only: frozenset[int] | None, kinds: frozenset[str]) -> Work:
        interval, settings = self._interval, self._settings
        if settings is not None and interval is None:
            interval = index_interval(plan.partition, settings).n_bytes
        kinds = kinds if self._is_replayed else kinds & {"offset", "time"}
        work = self._rebuilder.plan(plan.partition, only, kinds, interval, self._now)
        work.needs_producers = True
        if settings is not None:
            work.max_index_bytes = max_index_bytes(plan.partition, settings)
        return work

    def _begins_empty(self, plan: LoadPlan) -> bool:
        """Whether the log has no segment, or ends below its checkpointed start once it is loaded.

        Source: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd, Kafka 4.3.
        """
        if plan.partition.kind == "delete" or not plan.bases:
            return plan.partition.kind != "delete"
        end = 0
        try:
            if plan.unflushed_from is None:
                return end_as_loaded(plan.partition.segments[-1]) < plan.log_start
            for segment in plan.partition.segments:
                if segment.base_offset >= plan.log_start:
                    return False
                if not plan.is_unflushed(segment.base_offset):
                    continue
                interval = kf.INDEX_INTERVAL_BYTES if self._interval is None else self._interval
                found = recover_segment(segment, interval, with_producers=False)
                if found.finding is not None and found.finding.reason is Reason.OFFSET_OUTSIDE_SEGMENT:
                    return False
                end = found.next_offset
                if (found.is_cut and segment.base_offset not in plan.cut_before) or found.is_emptied:
                    break
        except KafkalogError:
            return False  # the partition's problem, which is reported later
        return end < plan.log_start

    # the target of the rebuild

    def look(self, found: RecoveredSegment) -> None:
        """Look for markers and transactions that stop a broker, which a plain replay passes over."""
        path = local_path(found.segment.path)
        one = self._by_path[path.parent]
        for batches, coordinator_epoch in found.replay:
            one.check.add(path, batches, coordinator_epoch)

    def put(self, path: Path, data: bytes) -> None:
        """Take a derived file that is new or has changed."""
        self._by_path[path.parent].put(path, data)

    def keep(self, path: Path, data: bytes) -> None:
        """Take a derived file whose content is right; it may have to be renamed."""
        if path.name.endswith(kf.SWAP_SUFFIX):
            self.put(path, data)
        self._by_path[path.parent].written.add(path.name)

    def sync(self) -> None:
        """Take the end of a piece of work; with the last one, its partition is finished."""
        one, is_last = self._waiting.popleft()
        for file in self._rebuilt.files:
            one.files.append(file)
        self._rebuilt.files.clear()
        # an index that is too large was not written: nothing of the partition may be, then
        for finding in self._report.findings.rows:
            if _is_of(finding, one.plan, Reason.INDEX_SIZE):
                one.unwritten = finding
        if is_last:
            del self._by_path[one.plan.path]
            self._finish(one)

    def _finish(self, one: PartitionRecovery) -> None:
        row = one.finish()
        if self._leaves_splits and row.problem is not None and row.problem.reason is Reason.OFFSET_OUTSIDE_SEGMENT:
            self._leave_split(one, row)
        self._add(row, one.findings)

    def _leave_split(self, one: PartitionRecovery, row: PartitionPlan) -> None:
        """Turn the problem of offsets that reach too far into the split that a broker makes of intact segments.

        The partition stays as it is. Source: LogLoader.retryOnOffsetOverflow, Kafka 4.3.
        """
        plan, segments = one.plan, one.plan.partition.segments
        splits = _ordered_splits(segments)
        if splits is None:
            return
        findings = self._report.findings
        findings.exchange([found for found in findings.rows if not _is_of(found, plan, Reason.OFFSET_OUTSIDE_SEGMENT)])
        row.problem = None
        recovered = {segment.base_offset for segment in plan.recovered}
        for segment, (split, _) in zip(segments, splits, strict=True):
            base, size = segment.base_offset, segment.size_in_bytes
            action: SegmentAction = "split" if split != [base] else "recovered" if base in recovered else "kept"
            row.segments.append(SegmentPlan(segment.path.name, base, action, size, size))
        # after a clean shutdown the old base is not forgotten
        first = segments[0].base_offset if plan.is_clean else splits[0][0][0]
        row.log_start_offset = log_start(plan.log_start, first)
        row.log_end_offset = max(splits[-1][1], row.log_start_offset)
        one.leave(row)

    def _add(self, row: PartitionPlan, findings: list[Finding]) -> None:
        for finding in findings:
            self._report.findings.add(finding)
        self._report.add(row)
        self._on_partition(row)


def _is_of(finding: Finding, plan: LoadPlan, reason: Reason) -> bool:
    """Whether a finding is about a file of a partition, for a reason."""
    return finding.reason is reason and Path(finding.path or "").parent == plan.path


def _ordered_splits(segments: Sequence[Segment]) -> list[tuple[list[int], int]] | None:
    """The base offsets into which a broker splits each segment, and its end; None if any is damaged or they overlap."""
    splits = [split_bases(segment) for segment in segments]
    known = [split for split in splits if split is not None]
    ends = [end for _, end in known]
    bases = [base for split, _ in known for base in split]
    following = zip(ends, bases[1:], strict=False) if len(bases) == len(ends) else ()
    if len(known) < len(segments) or bases != sorted(set(bases)) or any(end > base for end, base in following):
        return None
    return known


def _ends(report: RecoveryReport) -> dict[kf.TopicPartition, int]:
    """Log end offsets of the recovered partitions that are in a log dir's checkpoints."""
    found = {}
    for row in report.partitions:
        parsed = kf.parse_partition_directory(Path(row.path).absolute().name)
        # raft's own log and directories to be deleted are in no checkpoint
        is_live = parsed is not None and parsed.kind is None and parsed.topic_partition.topic != kf.METADATA_TOPIC
        if parsed is not None and is_live and row.error is None and not row.count("split"):
            found[parsed.topic_partition] = row.log_end_offset
    return found


def finish_root(root: Path, placed: Placement, report: RecoveryReport) -> None:
    """Write the files of the log dir itself; raise if the copy of a partition is not recovered."""
    report.n_backup_files = placed.n_backup_files
    if placed.is_partition:
        if placed.staged is not None:
            report.check()
            # the copy of a log dir has the metadata log itself, and that of a partition only its files
            if not placed.is_lone:
                placed.put(ORIGIN_NAME, encode_origin("recover", [placed.log_dir]))
        return
    if placed.staged is None and placed.backup is None:
        return
    written = root_files(root, _ends(report), is_clean=report.is_clean)
    if placed.staged is not None:
        placed.copy_root_files({kf.CLEAN_SHUTDOWN_FILE, *written})
    # the marker comes last: a crash before it costs another recovery, and no records
    for name, data in written.items():
        placed.put(name, data)
    report.checkpoints = list(written)
    report.n_backup_files = placed.n_backup_files


def root_files(root: Path, ends: Mapping[kf.TopicPartition, int], *, is_clean: bool) -> dict[str, bytes]:
    """The files of a log dir to write after its partitions were recovered, the marker last.

    `ends` has their log end offsets: all before is on disk. `is_clean` is whether every partition was recovered, so
    that the marker may exist. Source: LogManager.shutdown, CleanShutdownFileHandler, Kafka 4.3.
    """
    files: dict[str, bytes] = {}
    try:
        known = read_offset_checkpoint(root / kf.RECOVERY_POINT_CHECKPOINT)
    except KafkalogError:
        known = None
    points = {**(known or {}), **ends}
    if points != known:
        files[kf.RECOVERY_POINT_CHECKPOINT] = encode_offset_checkpoint(dict(sorted(points.items())))
    # an empty one has no entries for a broker, which takes a log dir offline for one that is malformed
    for name in kf.OFFSET_CHECKPOINTS:
        with contextlib.suppress(ReadError):  # it is no file
            if name != kf.RECOVERY_POINT_CHECKPOINT and is_malformed(root / name):
                files[name] = encode_offset_checkpoint({})
    # a broker lowers it to the log end, too; left as it is, it would say of the recovered log that records are missing
    with contextlib.suppress(KafkalogError):
        watermarks = read_offset_checkpoint(root / kf.HIGH_WATERMARK_CHECKPOINT) or {}
        lowered = {key: min(offset, ends.get(key, offset)) for key, offset in watermarks.items()}
        if lowered != watermarks:
            files[kf.HIGH_WATERMARK_CHECKPOINT] = encode_offset_checkpoint(lowered)
    if is_clean:
        files[kf.CLEAN_SHUTDOWN_FILE] = clean_shutdown_marker(root)
    return files


def is_malformed(path: Path) -> bool:
    """Whether an offset checkpoint cannot be read."""
    try:
        read_offset_checkpoint(path)
    except SidecarError:
        return True
    return False
