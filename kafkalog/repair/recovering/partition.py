"""Recovers one partition: which logs are cut or deleted, and which files are written, from what the segments hold.

Mirrors `LogLoader.recoverLog`, and what `LogLoader.load` does before and after it. Segments are read by `Rebuilder`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import MISSING, Finding, KafkalogError, OutputExistsError, Reason, WriteError
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.log.directory import final_name
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.searching.missing import offsets_finding
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.rebuilder import Work
from kafkalog.operations.rebuilding.target import compared
from kafkalog.records.batch_table import BatchTable
from kafkalog.repair.placement import PartitionOutput
from kafkalog.state import leader_epochs
from kafkalog.state.checkpoints import encode_checkpoint, encode_partition_metadata
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.state.producers import kept_snapshots
from kafkalog.state.transactions import is_in_order
from kafkalog.survey.evidence import LogDirState, SegmentContents, tail_finding
from kafkalog.survey.losses import remains, survey
from kafkalog.survey.origins import as_known
from kafkalog.survey.startup import Kind, PartitionPlan, RebuiltFile, SegmentAction, SegmentPlan
from kafkalog.survey.startup_end import end_as_loaded, end_before_start, unreadable
from kafkalog.survey.startup_files import known_epochs, topic_id_problem
from kafkalog.survey.startup_load import LoadPlan, transaction_index_problem
from kafkalog.survey.topic_ids import TopicIds, add_stray_loss


class ReplayCheck:
    """Looks for what makes a broker stop: a malformed marker, or a batch outside of its producer's open transaction.

    Source: ProducerAppendInfo.appendDataBatch, ControlRecordType.parse, EndTransactionMarker.deserialize, Kafka 4.3.
    """

    def __init__(self) -> None:
        self.problem: Finding | None = None
        self._open: set[int] = set()
        """Producers with an open transaction after the batches so far."""

    def add(self, path: Path, batches: BatchTable, coordinator_epoch: npt.NDArray[np.int32]) -> None:
        """Look at batches of producers of a segment, with the coordinator epochs of the markers among them."""
        is_control = batches.is_control
        is_marker = is_control & (batches.records_count != 0)
        is_wrong = (batches.codec != 0) | (coordinator_epoch < 0) | (batches.control_type < 0)
        is_wrong |= batches.control_type > kf.ControlRecordType.COMMIT
        for row in np.flatnonzero(is_marker & is_wrong)[:1].tolist():
            detail = "a control batch without a valid transaction marker: a broker that replays it fails"
            self._note(Reason.CONTROL_RECORD, detail, path, batches, row)
        self._look_at_transactions(path, batches)

    def _look_at_transactions(self, path: Path, batches: BatchTable) -> None:
        """Follow the open transactions; a batch of such a producer outside of transactions is a problem."""
        is_control, producers = batches.is_control, batches.producer_id
        is_transactional = (batches.attributes & kf.TRANSACTIONAL_BIT) != 0
        is_plain = ~is_control & ~is_transactional & (producers >= 0)
        begins = ~is_control & is_transactional
        both = np.intersect1d(producers[is_plain], [*self._open, *np.unique(producers[begins]).tolist()])
        for row in np.flatnonzero(np.isin(producers, both)).tolist() if both.size else ():
            producer = int(producers[row])
            if is_plain[row] and producer in self._open:
                detail = (
                    f"a batch outside of transactions while producer {producer} has one open: a broker that replays it"
                    " fails"
                )
                self._note(Reason.TRANSACTION_OUTCOME, detail, path, batches, row)
                return
            (self._open.add if begins[row] else self._open.discard)(producer)
        # the last batch of each producer that opens or ends a transaction
        rows = np.flatnonzero(~is_plain)[::-1]
        last, first = np.unique(producers[rows], return_index=True)
        is_open = begins[rows[first]]
        self._open.difference_update(last[~is_open].tolist())
        self._open.update(last[is_open].tolist())

    def _note(self, reason: Reason, detail: str, path: Path, batches: BatchTable, row: int) -> None:
        position, base_offset = int(batches.position[row]), int(batches.base_offset[row])
        found = Finding(reason, detail, path=str(path), position=position, base_offset=base_offset)
        self.problem = self.problem or found


def epochs_after(plan: LoadPlan, recovered: Sequence[RecoveredSegment], end: int) -> LeaderEpochs:
    """The epochs of the file with those of the segments, in the order of their recovery, cut at both ends of the log.

    Source: LogSegment.recover, LogLoader.load, Kafka 4.3.
    """
    epochs = known_epochs(plan.path)
    for epoch, start in (entry for one in recovered for entry in one.epochs):
        if epoch > epochs.latest:
            epochs.assign(epoch, start)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(plan.log_start)
    return epochs


def fatal_epoch_problem(recovered: Iterable[RecoveredSegment]) -> Finding | None:
    """A leader epoch at which a broker that recovers the segments fails; None if there is none.

    Source: LeaderEpochFileCache.assign, Kafka 4.3.
    """
    for one in recovered:
        for epoch, start in one.epochs:
            if start < 0:
                detail = (
                    f"leader epoch {epoch} begins at offset {start}: a broker that recovers the segment fails at it"
                )
                return Finding(Reason.EPOCH_ORDER, detail, path=str(one.segment.path))
    return None


@dataclass(slots=True)
class PartitionRecovery:
    """The recovery of one partition while it is under way."""

    plan: LoadPlan
    output: PartitionOutput
    now_ms: int | None = None
    """For producers that expire."""
    is_replayed: bool = True
    """Whether producers are replayed. If not, their snapshots get no findings."""
    is_wanted: bool = False
    """Whether the log is cut because somebody wants it: then what is cut off is no loss, and is not read."""
    lone: list[Work] = field(default_factory=list)
    """The older segments that are recovered on their own, one each."""
    main: Work | None = None
    """The segments from the recovery point on."""
    files: list[RebuiltFile] = field(default_factory=list)
    epochs_below: int | None = None
    """Leader epochs that begin from this offset on are dropped."""
    written: set[str] = field(default_factory=set)
    """Names of derived files that were rebuilt, changed or not."""
    removed_segments: set[int] = field(default_factory=set)
    """Base offsets."""
    behind: dict[int, RecoveredSegment] = field(default_factory=dict)
    """Segments without an index that lie past damage, by base offset, once they were read."""
    kept_snapshots: set[int] | None = None
    """Offsets of the producer snapshots that a broker leaves; None if it leaves all."""
    unwritten: Finding | None = None
    """Why an index was not written, if one was not."""
    check: ReplayCheck = field(default_factory=ReplayCheck)
    """Has looked at the batches of producers in the segments that were read."""
    topic_ids: TopicIds | None = None
    """Where the topic id is found, if `partition.metadata` is missing; None if it is not written."""
    findings: list[Finding] = field(default_factory=list)
    """Offsets that are missing between two segments, which a broker does not notice; a topic id that stops it."""

    @property
    def works(self) -> list[Work]:
        """The work on segments that are recovered."""
        return [*self.lone, *([] if self.main is None else [self.main])]

    def put(self, path: Path, data: bytes) -> None:
        """Take a derived file of this partition."""
        if final_name(path.name) in self.written:  # by the work on a segment before
            self.output.take_back(final_name(path.name))
        self.written.add(final_name(path.name))
        is_transactions = final_name(path.name).endswith(kf.TRANSACTION_INDEX_SUFFIX)
        if is_transactions and not is_in_order(np.frombuffer(data, kf.TRANSACTION_INDEX_DTYPE)):
            detail = "aborted transactions do not end in order: a broker fails to load it"
            self.unwritten = Finding(Reason.INDEX_TRANSACTION, detail, path=str(path))
        self.output.write(final_name(path.name), data)

    def finish(self) -> PartitionPlan:
        """Make the remaining changes, and commit all of them. After a KafkalogError nothing is changed."""
        report = self._empty_report()
        problem = self.problem()
        if problem is not None:
            report.problem = problem
            self.output.abandon()
            return report
        try:
            self._cut_logs(report)
            self._remove_snapshots(report)
        except (WriteError, OutputExistsError):  # the output failed, not the partition
            self.output.abandon()
            raise
        except KafkalogError as error:
            report = self._empty_report()
            report.problem = error.to_finding()
            self.output.abandon()
            return report
        if self.plan.is_unclean:
            self._put_epochs(report.log_end_offset)
        self._apply_names(report)
        self._put_topic_id(report)
        report.files = self.files
        told = (one.unnoticed for work in self.works for one in work.found)
        report.unnoticed = next((one for one in told if one is not None), None)
        self.output.commit()
        return report

    def leave(self, report: PartitionPlan) -> None:
        """Change nothing but a missing topic id, after a problem that a broker solves itself."""
        self.output.begin_again()
        self.files = []
        self._put_topic_id(report)
        report.files = self.files
        self.output.commit()

    def wipe(self) -> PartitionPlan:
        """Delete all segments, if there are any, and begin an empty log at the checkpointed log start offset.

        Source: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd, Kafka 4.3.
        """
        report = self._empty_report()
        start = self.plan.log_start
        state = LogDirState.of(self.plan.partition, self.plan.files.names)
        contents = []
        for segment in self.plan.partition.segments:
            report.segments.append(_row(segment, "deleted", 0))
            contents.append(self._contents(segment, None, report, state))
            self._remove_segment(segment)
        self._find_missing(report, contents, state)
        if self.plan.partition.segments:
            detail = f"the checkpointed log start offset {start} is past the log end: a broker deletes all segments"
            path = str(self.plan.path)
            self.findings.append(Finding(Reason.LOG_START_BEHIND_END, detail, path=path, n_records=0))
        report.log_start_offset = report.log_end_offset = start
        self.removed_segments.add(start)
        # a broker creates the transaction index with its first entry
        for suffix in (kf.LOG_SUFFIX, *kf.INDEX_SUFFIXES[:2]):
            self.output.write(kf.segment_file_name(start, suffix), b"")
        for name in self.plan.files.names:
            if name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX):
                self._remove(report, name, "the log is emptied")
        self.kept_snapshots = set()
        epochs = self.plan.path / kf.LEADER_EPOCH_CHECKPOINT
        if epochs.name in self.plan.files.names:
            # those of segments that are deleted go with them
            known = leader_epochs.LeaderEpochs() if self.plan.bases else known_epochs(self.plan.path)
            known.truncate_from_end(start)
            known.truncate_from_start(start)
            self.output.write(epochs.name, encode_checkpoint(known.entries.tolist()))
        self._apply_names(report)
        self._put_topic_id(report)
        report.files = self.files
        self.output.commit()
        return report

    def _empty_report(self) -> PartitionPlan:
        partition = self.plan.partition
        report = PartitionPlan(str(self.plan.path), partition.topic_partition)
        report.renamed = dict(self.plan.files.renamed)
        report.log_end_offset_before = self.plan.end_before
        report.log_start_offset = partition.log_start_offset
        report.log_end_offset = report.log_start_offset
        return report

    def problem(self) -> Finding | None:
        """Why the partition cannot be recovered; None if it can."""
        problem = self.plan.files.problem(self.plan.path) or self.unwritten
        if problem is not None:
            return problem
        problem = topic_id_problem(self.plan.path)
        if problem is not None:
            return problem
        for segment in self.plan.partition.segments:
            has_index = segment.has_sidecar(kf.INDEX_SUFFIX)
            why = transaction_index_problem(segment) if has_index else ""
            if why:
                detail = f"{why}: a broker does not start with it; move the index away"
                path = str(segment.sidecar_path(kf.TRANSACTION_INDEX_SUFFIX))
                return Finding(Reason.INDEX_TRANSACTION, detail, path=path)
        if self.main is not None and self.main.found:
            problem = self._problem_behind(self.main.found[-1].segment)
        return problem or fatal_epoch_problem(self._in_order()) or self._problem_inside() or self.check.problem

    def _problem_inside(self) -> Finding | None:
        """Why a segment that was read cannot be recovered."""
        for work in self.works:
            last = work.found[-1] if work.found else None
            for one in work.found:
                if one.finding is not None and one.finding.reason is Reason.OFFSET_OUTSIDE_SEGMENT:
                    return one.finding
                # a broker recovers such a segment for its missing index, before it has read the rest of the log, and
                # then fails on its findings
                if one.is_emptied and one.segment.base_offset in (*self.plan.lone, *self.plan.cut_before):
                    return _because(one, "without an offset index, recovery does not empty it: a broker does not start")
            if work.stopped_by is not None and (last is None or not (last.is_cut or last.is_emptied)):
                return work.stopped_by
            wanted = work.only or {segment.base_offset for segment in work.partition.segments}
            if last is not None and last.segment.base_offset < min(wanted):
                why = "it is below the recovery point, and no later producer snapshot exists: recover all"
                return _because(last, f"{why} segments (all_segments, --all)")
        return None

    def _in_order(self) -> list[RecoveredSegment]:
        """The segments that were recovered, in a broker's order: first those without an index, deleted later or not."""
        first = {*self.plan.lone, *self.plan.cut_before}
        found = {one.segment.base_offset: one for work in self.works for one in _recovered(work)}
        if self.main is not None and self.main.found:
            last = self.main.found[-1].segment.base_offset
            for segment in self.plan.partition.segments:
                if segment.base_offset > last and segment.base_offset in first:
                    found[segment.base_offset] = self._read_behind(segment)
        return [found[base] for base in sorted(found, key=lambda base: (base not in first, base))]

    def _read_behind(self, segment: Segment) -> RecoveredSegment:
        """What recovery finds in a segment that is deleted for damage before it."""
        if segment.base_offset not in self.behind:
            found = recover(segment, kf.INDEX_INTERVAL_BYTES, with_producers=False)
            found.drop_entries()
            self.behind[segment.base_offset] = found
        return self.behind[segment.base_offset]

    def _problem_behind(self, last: Segment | None) -> Finding | None:
        """Why a segment after the last one kept cannot be recovered; a broker begins with those without an index."""
        for segment in self.plan.partition.segments:
            if segment.base_offset in self.plan.cut_before and (last is None or segment.base_offset > last.base_offset):
                found = self._read_behind(segment)
                reasons = (Reason.OFFSET_OUTSIDE_SEGMENT, Reason.OFFSET_ORDER)
                if found.finding is not None and found.finding.reason in reasons:
                    return found.finding
        return None

    def _cut_logs(self, report: PartitionPlan) -> None:
        """Cut the damaged logs, and remove those after damage. Raises CorruptionError if a broker does not start."""
        found = {one.segment.base_offset: one for work in self.lone for one in _recovered(work)}
        main = [] if self.main is None else self.main.found
        found |= {one.segment.base_offset: one for one in main}
        last = main[-1] if main else None
        state = LogDirState.of(self.plan.partition, self.plan.files.names)
        contents: list[SegmentContents] = []
        for segment in self.plan.partition.segments:
            base = segment.base_offset
            is_old = not self.plan.is_unflushed(base)
            one = found.get(base) if not is_old or base in self.plan.lone else None
            if one is not None:
                report.segments.append(self._keep_log(segment, one, state))
            # as a broker does: it deletes what lies past the first segment that it cut
            elif not is_old and last is not None and base > last.segment.base_offset:
                report.segments.append(_row(segment, "deleted", 0))
                self._remove_segment(segment)
            else:
                report.segments.append(_row(segment, "kept", segment.size_in_bytes))
                self._put_missing_time_index(segment)
                if not segment.is_last:
                    self._trim_indexes(segment)
                if segment.path.name.endswith(kf.SWAP_SUFFIX):
                    self.output.copy(segment.path, final_name(segment.path.name))
                    self._put_missing_index(segment)
            contents.append(self._contents(segment, one, report, state))
        self._find_missing(report, contents, state)
        left = [one for one in report.segments if one.action != "deleted"]
        # a broker deletes what is marked for deletion, as it was asked to
        end = (report.log_end_offset_before or 0) if self.plan.partition.kind == "delete" else 0
        if left and self.plan.partition.kind != "delete":
            base = left[-1].base_offset
            one = found.get(base)
            end = end_as_loaded(self.plan.partition.segments[-1]) if one is None else one.next_offset
        report.log_end_offset = end = max(end, report.log_start_offset)
        before = report.log_end_offset_before or 0
        if end < before and not report.lost and not self.is_wanted:
            detail = "the offsets go back: a broker does not find the end of the log, and uses these offsets again"
            path = str(self.plan.path)
            report.lost.append(offsets_finding(Reason.OFFSET_ORDER, detail, path, end, before))

    def _contents(
        self, segment: Segment, found: RecoveredSegment | None, report: PartitionPlan, state: LogDirState
    ) -> SegmentContents:
        """The contents of a segment; the cut part is lost."""
        row = report.segments[-1]
        if row.n_bytes_lost and not self.is_wanted:
            contents, lost = remains(segment, row.n_bytes, state)
            report.lost += lost
            return contents
        return contents_before(segment) if found is None or found.is_cut else _as_read(segment, found)

    def _find_missing(self, report: PartitionPlan, contents: list[SegmentContents], state: LogDirState) -> None:
        """Note the offsets that are missing: their proofs may go now."""
        if self.is_wanted:
            return  # the caller compares with the log before it was cut
        found = missing(self.plan, contents, state)
        for name in self.plan.unread:
            usual = kf.segment_file_name(kf.parse_base_offset(name) or 0)
            path, is_lost = self.plan.path / name, usual not in self.plan.files.names
            detail = f"not read: a broker opens {usual} instead"
            detail += ", and creates it empty; rename this file and its indexes first" if is_lost else ""
            found.append(Finding(Reason.UNKNOWN_FILE, detail, path=str(path), damage=is_lost, n_records=0))
            report.remarks.append(f"{name} is {detail}")
            if is_lost:
                report.lost += remains(Segment(path), 0, state)[1]
        report.lost += [one for one in found if one.damage]
        self.findings += found

    def _keep_log(self, segment: Segment, found: RecoveredSegment, state: LogDirState) -> SegmentPlan:
        name = final_name(segment.path.name)
        n_bytes = 0 if found.is_emptied else found.n_valid_bytes
        if n_bytes < segment.size_in_bytes or name != segment.path.name:
            self.output.copy(segment.path, name, n_bytes)
        # not the listed size: a running broker may have cut off the zeros of preallocation since
        is_cut = n_bytes < found.n_bytes
        action: SegmentAction = "emptied" if found.is_emptied else "cut" if is_cut else "recovered"
        finding = found.finding if found.finding is None else tail_finding(found.finding, state, found.next_offset)
        return SegmentPlan(name, segment.base_offset, action, found.n_bytes, n_bytes, finding)

    def _put_missing_time_index(self, segment: Segment) -> None:
        """A broker makes an empty one for a segment that it does not recover.

        Source: LogSegment.sanityCheck, Kafka 4.3.
        """
        name = final_name(segment.sidecar_path(kf.TIME_INDEX_SUFFIX).name)
        if name not in self.plan.files.after():
            path = self.plan.path / name
            self.put(path, b"")
            self.files.append(RebuiltFile(str(path), "time", 0, 0, "new"))

    def _trim_indexes(self, segment: Segment) -> None:
        """Cut off the zeros of preallocation, for which retention would delete the segment soon after the start.

        A broker keeps them: this is the one place where a recovered file differs from its own.
        Source: LogSegment.largestTimestamp, Kafka 4.3.
        """
        reads: dict[Kind, Callable[[], OffsetIndex | TimeIndex | None]] = {
            "offset": partial(segment.read_index, OffsetIndex),
            "time": partial(segment.read_index, TimeIndex),
        }
        for kind, read in reads.items():
            index = None
            with contextlib.suppress(KafkalogError):
                index = read()
            if index is not None and index.padding_bytes > 0 and index.path is not None:
                data = index.entries.tobytes()
                self.put(Path(index.path), data)
                self.files.append(RebuiltFile(index.path, kind, len(index), len(data), "changed"))

    def _put_missing_index(self, segment: Segment) -> None:
        """A broker preallocates one for a `.swap` when it looks for its end, and leaves it so.

        Source: LogLoader.load, LogSegment.readNextOffset, Kafka 4.3.
        """
        index = segment.sidecar_path(kf.INDEX_SUFFIX)
        if index.name not in self.plan.files.names and self.main is not None:
            n_entries = self.main.max_index_bytes // kf.OFFSET_INDEX_DTYPE.itemsize
            path, data = self.plan.path / final_name(index.name), bytes(n_entries * kf.OFFSET_INDEX_DTYPE.itemsize)
            self.put(path, data)
            self.files.append(RebuiltFile(str(path), "offset", n_entries, len(data), "new"))

    def _remove_segment(self, segment: Segment) -> None:
        self.removed_segments.add(segment.base_offset)
        there = set(self.plan.files.names)
        for suffix in (kf.LOG_SUFFIX, *kf.INDEX_SUFFIXES):
            name = segment.path.name if suffix == kf.LOG_SUFFIX else segment.sidecar_path(suffix).name
            # a `.swap` may lie next to the file that it replaces
            for one in sorted({name, final_name(name)} & there):
                self.output.remove(one)

    def _remove_snapshots(self, report: PartitionPlan) -> None:
        """Remove the producer snapshots that a broker does not keep.

        Those after the first segment that is recovered go, and are taken again where segments are read.
        """
        bases = [segment.base_offset for segment in report.segments if segment.action != "deleted"]
        first = min((*self.plan.lone, *filter(self.plan.is_unflushed, self.plan.bases)), default=None)
        there = self.plan.snapshots()
        start, end = report.log_start_offset, report.log_end_offset
        kept = kept_snapshots(there, bases, start=start, end=end, recovered_from=first)
        # the newest that can be read is loaded; a broker deletes those after it that cannot
        while kept and there[kept[-1]] is None:
            kept.pop()
        if self.plan.partition.kind != "delete" and self.is_replayed:
            self.kept_snapshots = {*kept}
        for name in self.plan.files.names:
            is_kept = kf.parse_base_offset(name) in kept or name in self.written or name in self.plan.files.removed
            if name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX) and not is_kept and self.kept_snapshots is not None:
                self._remove(report, name, "a snapshot that a broker would remove")

    def _put_epochs(self, log_end_offset: int) -> None:
        """Merge the leader epochs of the recovered segments into the file, and cut it at both ends of the log.

        Source: LogLoader.load, LeaderEpochFileCache, Kafka 4.3.
        """
        recovered, path = self._in_order(), self.plan.path / kf.LEADER_EPOCH_CHECKPOINT
        # one that would begin at the end has no record: recovery drops it
        end = log_end_offset if self.epochs_below is None else min(log_end_offset, self.epochs_below)
        epochs = epochs_after(self.plan, recovered, end)
        merged = epochs.entries.tolist()
        data = encode_checkpoint(merged)
        change = compared(path, data)
        if change == "changed" or (merged and change == "new"):
            self.output.write(path.name, data)
            self.files.append(RebuiltFile(str(path), "epochs", len(merged), len(data), change))

    def _put_topic_id(self, report: PartitionPlan) -> None:
        """Write a missing `partition.metadata`; without a known id, a broker sets the directory aside."""
        ids, path = self.topic_ids, self.plan.path / kf.PARTITION_METADATA
        key = None if ids is None else ids.lacks(self.plan.path)
        if ids is None or key is None:
            return
        known = ids.find(key.topic)
        if known is not None:
            data = encode_partition_metadata(known)
            self.output.write(path.name, data)
            self.files.append(RebuiltFile(str(path), "topic_id", 1, len(data), "new"))
        elif self.plan.bases and ids.is_log_dir:
            state = LogDirState.of(self.plan.partition, self.plan.files.names)
            why = ids.why_stray(self.plan.path) or ""
            self.findings.append(add_stray_loss(report, self.plan.partition.segments, state, why))

    def _apply_names(self, report: PartitionPlan) -> None:
        """Remove and rename the files that a broker removes and renames by their names."""
        for name, why in self.plan.files.removed.items():
            if name not in self.written:  # one of an old segment may be made again
                self._remove(report, name, why)
        for name, new in self.plan.files.renamed.items():
            # a rebuilt index is written under the new name already
            is_made = new.endswith(kf.LOG_SUFFIX) or new in self.written
            offset = kf.parse_base_offset(new)
            # the broker may delete a snapshot once it is renamed
            is_snapshot = new.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX)
            is_gone = is_snapshot and self.kept_snapshots is not None and offset not in self.kept_snapshots
            if not is_made and not is_gone and offset not in self.removed_segments:
                self.output.copy(self.plan.path / name, new)
            self.output.remove(name)

    def _remove(self, report: PartitionPlan, name: str, why: str) -> None:
        report.removed[name] = why
        self.output.remove(name)


def contents_before(segment: Segment) -> SegmentContents:
    """The contents of a segment that is not read, of which only the end is known."""
    end = end_before_start(segment) or segment.base_offset
    # of one that cannot be read, its indexes prove nothing to be missing
    error = unreadable(segment) if end == segment.base_offset else None
    findings = [] if error is None else [error.to_finding()]
    size = segment.size_in_bytes
    return SegmentContents(str(segment.path), segment.base_offset, end - 1, size, findings=findings, has_gaps=None)


def _as_read(segment: Segment, found: RecoveredSegment) -> SegmentContents:
    findings = [] if found.finding is None else [found.finding]
    last, size = found.next_offset - 1, segment.size_in_bytes
    return SegmentContents(str(segment.path), segment.base_offset, last, size, findings=findings, has_gaps=None)


def missing(plan: LoadPlan, contents: list[SegmentContents], state: LogDirState) -> list[Finding]:
    """The offsets that other files prove to be missing, and those between two segments: damage, and notes."""
    if not plan.partition.is_whole:
        return []
    # files next to a `.swap` may belong to the segments that it replaces: they prove nothing
    names = [] if plan.files.renamed else plan.files.names
    found = [one for one in survey(plan.partition, contents, state, names).findings if one.reason in MISSING]
    return [one for one in as_known(plan.path, found) if one.damage or one.reason is Reason.OFFSET_GAP]


def _recovered(work: Work) -> list[RecoveredSegment]:
    """The segments of a piece of work that are recovered, and not only read for their producers."""
    return [one for one in work.found if work.only is None or one.segment.base_offset in work.only]


def _because(found: RecoveredSegment, why: str) -> Finding:
    """The finding about a damaged segment, with why it cannot be recovered."""
    assert found.finding is not None
    return replace(found.finding, detail=f"{found.finding.detail}; {why}")


def _row(segment: Segment, action: SegmentAction, n_bytes: int) -> SegmentPlan:
    name = final_name(segment.path.name)
    return SegmentPlan(name, segment.base_offset, action, segment.size_in_bytes, n_bytes)
