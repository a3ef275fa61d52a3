"""Recovers one partition: which logs are cut or deleted, and which files are written, from what the segments hold.

Mirrors `LogLoader.recoverLog`, and what `LogLoader.load` does before and after it. Segments are read by `Rebuilder`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.log.segment_files import INDEX_SUFFIXES
from kafkalog.operations.rebuilding.rebuilder import Work
from kafkalog.operations.rebuilding.report import RebuiltFile
from kafkalog.operations.rebuilding.target import old_content
from kafkalog.repair.placement import PartitionOutput
from kafkalog.repair.recovering.report import Action, RecoveredPartition, SegmentRecovery
from kafkalog.repair.startup.load_plan import LoadPlan, transaction_index_problem
from kafkalog.repair.startup.small_files import topic_id_exception
from kafkalog.state import leader_epochs
from kafkalog.state.checkpoints import encode_checkpoint, read_leader_epochs
from kafkalog.state.transactions import is_in_order


@dataclass(slots=True)
class PartitionRecovery:
    """The recovery of one partition while it is under way."""

    plan: LoadPlan
    output: PartitionOutput
    lone: list[Work] = field(default_factory=list)
    """The older segments that are recovered on their own, one each."""
    main: Work | None = None
    """The segments from the recovery point on."""
    files: list[RebuiltFile] = field(default_factory=list)
    epochs_below: int | None = None
    """Leader epochs that begin from this offset on are dropped."""
    written: set[str] = field(default_factory=set)
    """Names of derived files that were built anew, changed or not."""
    removed_segments: set[int] = field(default_factory=set)
    """Base offsets."""
    unwritten: str = ""
    """Why an index was not written, if one was not."""
    gaps: list[Finding] = field(default_factory=list)
    """Offsets that are missing between two segments: a broker does not notice."""

    def put(self, path: Path, data: bytes) -> None:
        """Take a derived file of this partition."""
        self.written.add(final_name(path.name))
        is_transactions = final_name(path.name).endswith(kf.TRANSACTION_INDEX_SUFFIX)
        if is_transactions and not is_in_order(np.frombuffer(data, kf.TRANSACTION_INDEX_DTYPE)):
            self.unwritten = f"{path}: aborted transactions do not end in order: a broker dies of it"
        self.output.write(final_name(path.name), data)

    def finish(self) -> RecoveredPartition:
        """Make the remaining changes, and commit all of them.

        Raises
        ------
        KafkalogError
            A file cannot be read or written; nothing is changed.
        """
        report = self._empty_report()
        problem = self.problem()
        if problem:
            report.error = problem
            self.output.abandon()
            return report
        self._cut_logs(report)
        if self.main is not None:
            self._drop_snapshots(report)
            self._put_epochs(report.log_end_offset)
        self._apply_names(report)
        report.files = self.files
        self.output.commit()
        return report

    def wipe(self) -> RecoveredPartition:
        """Delete all segments, if there are any, and begin an empty log at the checkpointed log start offset.

        Source: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd, Kafka 4.3.
        """
        report = self._empty_report()
        start = self.plan.log_start
        for segment in self.plan.partition.segments:
            report.segments.append(_row(segment, "deleted", 0))
            self._remove_segment(segment)
        report.log_start_offset = report.log_end_offset = start
        self.removed_segments.add(start)
        for suffix in (kf.LOG_SUFFIX, *INDEX_SUFFIXES[:2]):
            self.output.write(kf.segment_file_name(start, suffix), b"")
        for name in self.plan.files.names:
            if name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX):
                self._remove(report, name, "the log is emptied")
        epochs = self.plan.path / kf.LEADER_EPOCH_CHECKPOINT
        if epochs.exists():
            # those of segments that are deleted go with them
            known = leader_epochs.LeaderEpochs() if self.plan.bases else self._known_epochs()
            known.truncate_from_end(start)
            known.truncate_from_start(start)
            self.output.write(epochs.name, encode_checkpoint(known.entries.tolist()))
        self._apply_names(report)
        self.output.commit()
        return report

    def _empty_report(self) -> RecoveredPartition:
        partition = self.plan.partition
        report = RecoveredPartition(str(self.plan.path), partition.topic_partition)
        report.renamed = dict(self.plan.files.renamed)
        report.log_start_offset = partition.log_start_offset
        report.log_end_offset = report.log_start_offset
        return report

    def problem(self) -> str:
        """Why the partition cannot be recovered; "" if it can."""
        if self.plan.files.problem or self.unwritten:
            return self.plan.files.problem or self.unwritten
        exception = topic_id_exception(self.plan.path, "4.3")
        if exception is not None:
            return f"{exception.path}: {exception.detail}: a broker does not start with it; move it away"
        for segment in self.plan.partition.segments:
            why = transaction_index_problem(segment) if segment.sidecar_path(kf.INDEX_SUFFIX).exists() else ""
            if why:
                return f"{segment.path}: {why}: a broker does not start with it; move the index away"
        problem = "" if self.main is None or not self.main.found else self.problem_behind(self.main.found[-1].segment)
        if problem:
            return problem
        for work in [*self.lone, *([] if self.main is None else [self.main])]:
            last = work.found[-1] if work.found else None
            for one in work.found:
                if one.finding is not None and one.finding.reason is Reason.OFFSET_OUTSIDE_SEGMENT:
                    return str(one.finding)
                if one.is_emptied and one.segment.base_offset in (*self.plan.lone, *self.plan.cut_before):
                    return f"{one.finding}; without its offset index it is not emptied: a broker does not start"
            if work.is_stopped and (last is None or not (last.is_cut or last.is_emptied)):
                return "a segment cannot be read to its end: see the findings"
            wanted = work.only or {segment.base_offset for segment in work.partition.segments}
            if last is not None and last.segment.base_offset < min(wanted):
                return (
                    f"{last.segment.path.name} is damaged below the recovery point, and there is no producer snapshot"
                    " behind it: recover all segments (all_segments, --all)"
                )
        return ""

    def problem_behind(self, last: Segment | None) -> str:
        """Why a segment behind the last one kept cannot be recovered; a broker begins with those without an index."""
        for segment in self.plan.partition.segments:
            if segment.base_offset in self.plan.cut_before and (last is None or segment.base_offset > last.base_offset):
                found = recover(segment, kf.INDEX_INTERVAL_BYTES, with_producers=False)
                reasons = (Reason.OFFSET_OUTSIDE_SEGMENT, Reason.OFFSET_ORDER)
                if found.finding is not None and found.finding.reason in reasons:
                    return str(found.finding)
        return ""

    def _cut_logs(self, report: RecoveredPartition) -> None:
        """Cut the damaged logs, and remove those that lie behind damage."""
        found = {one.segment.base_offset: one for work in self.lone for one in work.found}
        main = [] if self.main is None else self.main.found
        unflushed = self.plan.unflushed_from
        found |= {one.segment.base_offset: one for one in main}
        last = main[-1] if main else None
        end: int | None = None
        for segment in self.plan.partition.segments:
            base = segment.base_offset
            gap = None if end is None or end >= base else self.plan.partition.gap_between(end, base)
            self.gaps += [] if gap is None else [gap]
            is_old = unflushed is None or base < unflushed
            one = found.get(base) if not is_old or base in self.plan.lone else None
            if one is not None:
                report.segments.append(self._keep_log(segment, one))
            elif not is_old and last is not None and base > last.segment.base_offset:
                report.segments.append(_row(segment, "deleted", 0))
                self._remove_segment(segment)
            else:
                report.segments.append(_row(segment, "kept", segment.size_in_bytes))
                if segment.path.name.endswith(kf.SWAP_SUFFIX):
                    self.output.copy(segment.path, final_name(segment.path.name))
            end = _end_offset(segment, one, report.segments[-1].action)
        if last is not None:
            report.log_end_offset = max(last.next_offset, report.log_start_offset)

    def _keep_log(self, segment: Segment, found: RecoveredSegment) -> SegmentRecovery:
        name = final_name(segment.path.name)
        n_bytes = 0 if found.is_emptied else found.n_valid_bytes
        if n_bytes < segment.size_in_bytes or name != segment.path.name:
            self.output.copy(segment.path, name, n_bytes)
        action: Action = "emptied" if found.is_emptied else "cut" if n_bytes < segment.size_in_bytes else "recovered"
        return SegmentRecovery(name, segment.base_offset, action, segment.size_in_bytes, n_bytes, found.finding)

    def _remove_segment(self, segment: Segment) -> None:
        self.removed_segments.add(segment.base_offset)
        there = set(self.plan.files.names)
        for suffix in (kf.LOG_SUFFIX, *INDEX_SUFFIXES):
            name = segment.path.name if suffix == kf.LOG_SUFFIX else segment.sidecar_path(suffix).name
            if name in there:
                self.output.remove(name)

    def _drop_snapshots(self, report: RecoveredPartition) -> None:
        """Remove the snapshots that a broker deletes.

        Source: ProducerStateManager.truncateAndReload, ProducerStateManager.removeStraySnapshots, Kafka 4.3.
        """
        assert self.main is not None
        kept = set(self.main.replay.snapshots)
        if self.main.only is not None:
            start, first = report.log_start_offset, min(self.main.only)
            kept |= {base for base in self.plan.bases if start < base <= first}
        for name in self.plan.files.names:
            offset = kf.parse_base_offset(name)
            if (
                name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX)
                and offset not in kept
                and name not in self.plan.files.removed
            ):
                self._remove(report, name, "a snapshot that a broker does not keep")

    def _put_epochs(self, log_end_offset: int) -> None:
        """Merge the leader epochs of the recovered segments into the file, and cut it at both ends of the log.

        Source: LogLoader.load, LeaderEpochFileCache, Kafka 4.3.
        """
        assert self.main is not None
        only = self.main.only
        recovered = [one for one in self.main.found if only is None or one.segment.base_offset in only]
        path = self.plan.path / kf.LEADER_EPOCH_CHECKPOINT
        epochs = self._known_epochs()
        for epoch, start in (one for found in recovered for one in found.epochs):
            if epoch > epochs.latest:
                epochs.assign(epoch, start)
        # one that would begin at the end has no record: recovery drops it
        end = log_end_offset if self.epochs_below is None else min(log_end_offset, self.epochs_below)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(self.plan.log_start)
        merged = epochs.entries.tolist()
        data = encode_checkpoint(merged)
        old = old_content(path)
        if (merged or path.exists()) and old != data:
            self.output.write(path.name, data)
            row = RebuiltFile(str(path), "epochs", len(merged), len(data), "changed" if path.exists() else "new")
            self.files.append(row)

    def _known_epochs(self) -> leader_epochs.LeaderEpochs:
        try:
            return leader_epochs.LeaderEpochs(read_leader_epochs(self.plan.path / kf.LEADER_EPOCH_CHECKPOINT))
        except KafkalogError:  # a broker cannot read it either
            return leader_epochs.LeaderEpochs()

    def _apply_names(self, report: RecoveredPartition) -> None:
        """Remove and rename the files that a broker removes and renames by their names."""
        for name, why in self.plan.files.removed.items():
            if name not in self.written:  # one of an old segment may be made anew
                self._remove(report, name, why)
        for name, new in self.plan.files.renamed.items():
            # an index that was built anew is written under the new name already
            is_made = new.endswith(kf.LOG_SUFFIX) or new in self.written
            if not is_made and kf.parse_base_offset(new) not in self.removed_segments:
                self.output.copy(self.plan.path / name, new)
            self.output.remove(name)

    def _remove(self, report: RecoveredPartition, name: str, why: str) -> None:
        report.removed[name] = why
        self.output.remove(name)


def final_name(name: str) -> str:
    """The name of a file once a `.swap` is complete."""
    return name.removesuffix(kf.SWAP_SUFFIX)


def _end_offset(segment: Segment, found: RecoveredSegment | None, action: Action) -> int | None:
    """Where a segment ends; None if damage hides it, or if it is cut: a finding tells of that already."""
    if action not in ("kept", "recovered"):
        return None
    try:
        return segment.next_offset if found is None else found.next_offset
    except KafkalogError:
        return None


def _row(segment: Segment, action: Action, n_bytes: int) -> SegmentRecovery:
    name = final_name(segment.path.name)
    return SegmentRecovery(name, segment.base_offset, action, segment.size_in_bytes, n_bytes)
