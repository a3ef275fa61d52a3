"""A topic-partition directory: its segments in order, what the checkpoints say of it, and reading across segments.

Mirrors the reading half of `UnifiedLog` and `LocalLog`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    Limits,
    ReadError,
    Reason,
    SidecarError,
)
from kafkalog.indexes.statistics import IndexStatistics, PartitionMeter, RollLimits
from kafkalog.log.list_offsets import ListOffsets
from kafkalog.log.scan_statistics import ScanStatistics
from kafkalog.log.segment import Segment
from kafkalog.log.segment_files import SegmentListing
from kafkalog.log.segment_reader import SegmentReader, SegmentWindow
from kafkalog.log.segment_stream import OnCorruption
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.header_walk import WINDOW_BYTES
from kafkalog.records.selection import Selection
from kafkalog.state.checkpoints import checkpointed_offset, read_leader_epochs, read_offset_checkpoint, read_properties
from kafkalog.state.leader_epochs import EpochEndOffset, LeaderEpochs, Truncation
from kafkalog.state.read_committed import PLACE_BITS, IsolationLevel, ReadCommitted, Stretch
from kafkalog.state.transaction_outcomes import KnownOutcomes, OutcomeLearner, Outcomes


class SegmentBatches(NamedTuple):
    """Rows of the batch table of one of a partition's segments."""

    segment: Segment
    batches: BatchTable


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a partition beforehand, and not looked up in its directory or its log dir.

    Attributes
    ----------
    log_start_offset, high_watermark : int or None
        What the log dir's checkpoints say; None for nothing.
    segments : tuple of Segment or None
        Those to read; None for what the directory holds.
    is_planned : bool
        Whether the segments were chosen, and opened, by a plan: a file that is gone since raises, and what they leave
        out between them is left out on purpose.
    outcomes : Outcomes or None
        How the transactions of the segments ended.
    at_end : callable or None
        ``at_end(last_offset, on_corruption, report)`` is called when all windows have been read.
    """

    log_start_offset: int | None = None
    high_watermark: int | None = None
    segments: tuple[Segment, ...] | None = None
    is_planned: bool = False
    outcomes: Outcomes | None = None
    at_end: Callable[[int, OnCorruption, Callable[[Finding], None]], None] | None = None


class Partition:
    """A directory of segments.

    Parameters
    ----------
    path : path-like
        The directory, such as ``/var/lib/kafka/orders-0``.
    segments : sequence of path-like, optional
        Only these `.log` files of it.
    log_start_offset, high_watermark : int, optional
        What the log dir's checkpoints say; looked up beside the directory when left out.
    memory_map : {"auto", True, False}
    limits : Limits
    known : Known, optional
        Takes the place of the two offsets, and of the directory's segments.

    Attributes
    ----------
    path : pathlib.Path
    topic_partition : TopicPartition or None
        What the directory's name says; None if it says nothing.
    kind : str or None
        `"delete"`, `"future"` or `"stray"` for a directory that a broker has set apart.
    segments : list of Segment
        By base offset.
    is_whole : bool
        Whether they are all that the directory has; False where some were named.
    findings : list of Finding
        What is worth knowing about the directory and its small files.

    Notes
    -----
    Files that a broker would drop or finish when it starts count as it would count them: `.deleted` and `.cleaned` are
    left out, a finished `.swap` replaces the segments that it covers.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segments: Sequence[str | os.PathLike[str]] | None = None,
        log_start_offset: int | None = None,
        high_watermark: int | None = None,
        memory_map: bool | str = "auto",
        limits: Limits = DEFAULT_LIMITS,
        known: Known | None = None,
    ) -> None:
        self.path = Path(path)
        directory = kf.parse_partition_directory(self.path.absolute().name)
        self.topic_partition = directory.topic_partition if directory else None
        self.kind = directory.kind if directory else None
        self.limits = limits
        self.findings: list[Finding] = []
        self._given_start, self._given_high_watermark, self._known = log_start_offset, high_watermark, known
        if known is not None and known.segments is not None:
            self.segments = list(known.segments)
            self.is_whole = known.is_planned
            return
        listing = SegmentListing(self.path, memory_map=memory_map, limits=limits, topic_partition=self.topic_partition)
        self.segments = listing.load(segments)
        self.findings += listing.findings
        self.is_whole = segments is None

    @classmethod
    def of_segment(cls, segment: Segment) -> Partition:
        """A partition of one segment, as if nothing else were there."""
        partition = cls(segment.path.parent, limits=segment.limits, known=Known(segments=(segment,)))
        partition.topic_partition, partition.kind = segment.topic_partition, None
        return partition

    def __repr__(self) -> str:
        name = self.topic_partition or self.path.name
        size = sum(segment.size_in_bytes for segment in self.segments)
        return f"Partition({str(name)!r}, {len(self.segments)} segments, {size} bytes)"

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size_in_bytes for segment in self.segments)

    def _checkpoint(self, name: str) -> int | None:
        if self.topic_partition is None or self.kind is not None:
            return None
        try:
            offsets = read_offset_checkpoint(self.path.absolute().parent / name)
        except (SidecarError, ReadError) as error:
            self.findings.append(error.to_finding())
            return None
        return None if offsets is None else offsets.get(self.topic_partition)

    @cached_property
    def log_start_offset(self) -> int:
        """First offset that is not deleted: the log dir's checkpoint or the first segment's base, the larger."""
        given = self._given_start if self._known is None else self._known.log_start_offset
        if given is None and self._known is None:
            given = self._checkpoint(kf.LOG_START_OFFSET_CHECKPOINT)
        first = self.segments[0].base_offset if self.segments else 0
        return max(given or 0, first)

    @cached_property
    def high_watermark(self) -> int | None:
        """From the log dir's checkpoint, where it may be stale; None when it has none."""
        if self._known is not None:
            return self._known.high_watermark
        given = self._given_high_watermark
        return given if given is not None else self._checkpoint(kf.HIGH_WATERMARK_CHECKPOINT)

    @cached_property
    def cleaner_offset(self) -> int | None:
        """Up to where the log cleaner has come, by the log dir's checkpoint; None when it does not say."""
        if self.topic_partition is None or self.kind is not None:
            return None
        path = self.path.absolute().parent / kf.CLEANER_OFFSET_CHECKPOINT
        return checkpointed_offset(path, self.topic_partition)

    @cached_property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch.

        Raises
        ------
        KafkalogError
            The last segment is damaged.
        """
        return max(self.segments[-1].next_offset, self.log_start_offset) if self.segments else self.log_start_offset

    @cached_property
    def leader_epochs(self) -> npt.NDArray[np.void]:
        """LEADER_EPOCH_DTYPE[n]: `leader-epoch-checkpoint`, empty when there is none.

        Raises
        ------
        SidecarError
            The file is malformed.
        """
        epochs = read_leader_epochs(self.path / kf.LEADER_EPOCH_CHECKPOINT)
        return np.empty(0, kf.LEADER_EPOCH_DTYPE) if epochs is None else epochs

    @cached_property
    def epoch_cache(self) -> LeaderEpochs:
        """Leader epochs as a broker that has loaded this partition knows them.

        Those of `leader-epoch-checkpoint`, cut at the log start offset; where there is no such file, those of the
        batches, of which all headers are walked.

        Raises
        ------
        SidecarError
            The file is malformed.
        KafkalogError
            There is none, and the log is damaged.
        """
        entries = read_leader_epochs(self.path / kf.LEADER_EPOCH_CHECKPOINT)
        if entries is None:
            epochs = LeaderEpochs.from_batches(piece.batches for piece in self.iter_batches())
        else:
            # the file is written behind the log's back, and may be older than its end
            epochs = LeaderEpochs(entries[entries["start_offset"] <= self.log_end_offset])
        epochs.truncate_from_start(self.log_start_offset)
        return epochs

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where a leader epoch ends, as the leader of this partition answers (OffsetForLeaderEpoch).

        Parameters
        ----------
        epoch : int

        Returns
        -------
        EpochEndOffset
            The largest epoch at or below `epoch` that the log knows, and the offset where it ends; -1 for both where
            `epoch` lies above all that is known.

        Examples
        --------
        >>> kafkalog.open("tests/golden/log_dir/p-txn-0").end_offset_for_epoch(3)
        EpochEndOffset(leader_epoch=0, end_offset=430)
        """
        return self.epoch_cache.end_offset_for(epoch, self.log_end_offset)

    def truncation_for(self, epoch: int, end_offset: int) -> Truncation:
        """Where a follower has to truncate before it may fetch from this log as its leader's.

        Parameters
        ----------
        epoch, end_offset : int
            The follower's last leader epoch and log end offset.
        """
        return self.epoch_cache.truncation_for(epoch, end_offset, self.log_end_offset)

    @cached_property
    def list_offsets(self) -> ListOffsets:
        """What answers `find_timestamps`; remembers what it walked."""
        return ListOffsets(
            self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=lambda: self.log_end_offset,
            leader_epochs=lambda: self.leader_epochs,
        )

    def find_timestamps(self, timestamps: Any) -> npt.NDArray[np.void]:
        """Timestamp, offset and leader epoch of what `offset_for_timestamp` finds.

        Parameters
        ----------
        timestamps : int (ms), str, aware datetime, or array-like of these

        Returns
        -------
        TIMESTAMP_AND_OFFSET_DTYPE, of the shape of `timestamps`
            All -1 where there is no such record; `timestamp` is -1 for the earliest and the latest offset.
        """
        return self.list_offsets.answer(timestamps)

    @overload
    def offset_for_timestamp(self, timestamp: int | str | datetime) -> int: ...

    @overload
    def offset_for_timestamp(
        self, timestamp: list[Any] | tuple[Any, ...] | npt.NDArray[Any]
    ) -> npt.NDArray[np.int64]: ...

    def offset_for_timestamp(self, timestamp: Any) -> int | npt.NDArray[np.int64]:
        """Offset of the first record at or after a time, as a broker's ListOffsets answers about these files.

        Parameters
        ----------
        timestamp : int (ms), str, aware datetime, or array-like of these
            Milliseconds since 1970; a moment in a zone; `"earliest"` (the log start offset), `"latest"` (the log end
            offset) or `"max-timestamp"` (the first record with the largest timestamp). Many at a time cost little more
            than one: headers are walked once.

        Returns
        -------
        int, or int64 array of the shape of `timestamp`
            -1 where a broker finds none.

        Raises
        ------
        ValueError
            A naive datetime, a negative number, another string.
        KafkalogError
            A segment is damaged before the answer.

        Notes
        -----
        First means by offset, not the smallest timestamp. The first segment whose largest timestamp is late enough is
        asked, and no other. So, with healthy files, a broker and this method find none, though a later record would do:

        - where that segment's matching records were deleted (the log start offset lies behind them) or compacted away
          (a batch that the cleaner left empty keeps its largest timestamp);
        - where a segment has no timestamps at all, as one without batches or of v0 messages: then the modification time
          of its file counts, which a copy may have changed.

        `"max-timestamp"` may be a record below the log start offset, as long as its segment is there. Control records
        count like others.

        What differs from a broker, on purpose:

        - A segment's largest timestamp comes from its batch headers, and the search goes by them: where a time index or
          an offset index is wrong, stale or gone, a broker passes by the record or takes the file's modification
          time; the answer here does not depend on index files. It costs a walk of the headers up to the answer, which
          is remembered; only batches that may hold an answer are decoded, and only their checksums are checked.
        - The log end offset stands for the high watermark, and nothing is held back by open transactions: this is
          `read_uncommitted` on files at rest.
        - The leader epoch of the latest offset is the last in `leader-epoch-checkpoint`.
        - A negative number is refused; on the wire -1, -2 and -3 are the named questions.

        Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp, Kafka 4.3.

        Examples
        --------
        >>> partition = kafkalog.open("tests/golden/log_dir/p-multi-0")
        >>> partition.offset_for_timestamp(1_700_000_100_000)
        39
        >>> partition.offset_for_timestamp(["earliest", "latest"])
        array([  0, 125])
        """
        offsets = self.find_timestamps(timestamp)["offset"]
        return offsets if offsets.ndim else int(offsets)

    @cached_property
    def topic_id(self) -> str | None:
        """The topic id in `partition.metadata`, None when there is none."""
        properties = read_properties(self.path / kf.PARTITION_METADATA)
        return None if properties is None else properties.get("topic_id")

    def lost_from(self, finding: Finding) -> Finding:
        """A finding, with all that lies behind it to the end of the log counted as lost."""
        try:
            end = self.segments[-1].next_offset
        except (KafkalogError, IndexError):
            return replace(finding, last_offset=None, n_records=None, certainty=None)
        first = finding.base_offset
        if first is None or not 0 <= first < end:
            return finding
        return replace(finding, last_offset=end - 1, n_records=end - first, certainty="at_most")

    def gap_between(self, start: int, end: int) -> Finding | None:
        """The note about offsets that lie between two segments and in neither; None where the log cleaner has been."""
        if not self.is_whole or end <= (self.cleaner_offset or 0):
            return None
        is_compacted = None if self.cleaner_offset is None else False
        return gap_finding(str(self.path), start, end, is_compacted=is_compacted)

    def effective(self, selection: Selection, *, include_deleted: bool = False) -> Selection:
        """A selection that leaves out what lies below the log start offset."""
        if include_deleted or self.log_start_offset <= (selection.start_offset or 0):
            return selection
        return replace(selection, start_offset=self.log_start_offset)

    @cached_property
    def last_stable_offset(self) -> int:
        """Where `read_committed` ends: the first offset of the earliest open transaction, else the log end offset.

        As the batches say, of which all headers are walked. A broker would take the high watermark into account as
        well; here it is a file that may be stale, and not applied. Where the transaction began below the log start
        offset, it is that; 4.3.1 lists the base offset of the batch that holds it.

        Raises
        ------
        KafkalogError
            The last segment is damaged, or one in which a transaction is open.
        """
        _, first = self._judge().replay()
        return self.log_end_offset if first is None else max(first.first_offset, self.log_start_offset)

    def aborted_transactions(self, start: int | None = None, end: int | None = None) -> npt.NDArray[np.void]:
        """The aborted transactions that a consumer of some offsets has to know of.

        Parameters
        ----------
        start, end : int, optional
            Those whose marker lies at or behind `start`, and whose first batch lies before `end`; default: all.

        Returns
        -------
        ABORTED_TRANSACTION_DTYPE[n]
            In the order of their markers. Made out of the batches alone: a broker's `.txnindex` has the same entries,
            and in a compacted log those too whose records are gone.

        Raises
        ------
        KafkalogError
            The log is damaged where a transaction is open.

        Notes
        -----
        Source: TransactionIndex.collectAbortedTxns, AbortedTxn, Kafka 4.3.
        """
        parts, _ = self._judge().replay(end)
        found = np.empty(sum(part.size for part in parts), kf.ABORTED_TRANSACTION_DTYPE)
        for name in kf.ABORTED_TRANSACTION_DTYPE.names or ():
            found[name] = np.concatenate([part[name] for part in parts]) if parts else 0
        mask = np.ones(found.size, np.bool_)
        if start is not None:
            mask &= found["last_offset"] >= start
        if end is not None:
            mask &= found["first_offset"] < end
        return found[mask]

    def learn_outcomes(self, until_offset: int | None = None, *, on_corruption: OnCorruption = "raise") -> Outcomes:
        """How the transactions ended, for those who read the partition in parts; by headers alone.

        Parameters
        ----------
        until_offset : int, optional
            Only of transactions that began before it.
        on_corruption : {"raise", "skip"}
            Damage that hides an outcome is among the outcomes, to be met as this says by who reads there.

        Raises
        ------
        ReadError
            A file cannot be read.
        """
        paths = [str(segment.path) for segment in self.segments]
        ahead = partial(self.stretches, on_corruption=on_corruption)
        learner = OutcomeLearner(paths, ahead, on_corruption=on_corruption, limits=self.limits)
        return learner.learn(until_offset)

    def windows(
        self,
        selection: Selection,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        on_corruption: OnCorruption = "raise",
        check_crcs: bool = True,
        report: Callable[[Finding], None] = lambda finding: None,
        window_bytes: int = WINDOW_BYTES,
        wanted: Callable[[Segment], bool] = lambda segment: True,
        statistics: ScanStatistics | None = None,
    ) -> Iterator[SegmentWindow]:
        """Windows that may hold selected records, in offset order.

        Headers that cannot be walked are handled according to `on_corruption`; what is in a batch is for the receiver
        to judge.

        Parameters
        ----------
        selection : Selection
        isolation_level : {"read_uncommitted", "read_committed"}
            With the latter, the batches of a window are those that a consumer would get.
        on_corruption : {"raise", "stop", "skip"}
            Also what to do where a file cannot be read.
        check_crcs : bool
            Whether a batch needs a right checksum to count for `isolation_level`.
        report : callable
            Given each finding.
        window_bytes : int
            Bytes to read at a time.
        wanted : callable
            Says of each segment whether to read it.
        statistics : ScanStatistics, optional
            Where to count what is read and what is not.
        """
        counts = ScanStatistics() if statistics is None else statistics
        counts.n_segments += len(self.segments)
        counts.n_bytes += self.size_in_bytes
        damage: list[Finding] = []  # since the last window: what it hides may matter to transactions

        def report_and_keep(finding: Finding) -> None:
            report(finding)
            damage.append(finding)

        judge = None if isolation_level == "read_uncommitted" else self._judge(on_corruption, check_crcs)
        last_offset = -1
        try:
            for window in self._reader.windows(
                selection,
                on_corruption=on_corruption,
                report=report if judge is None else report_and_keep,
                window_bytes=window_bytes,
                wanted=wanted,
                statistics=counts,
            ):
                last_offset = int(window.batches.last_offset[-1])
                if judge is None:
                    yield window
                    del window  # here and below: its memory serves the next one
                    continue
                stretch = Stretch(window.window, window.number << PLACE_BITS, tuple(damage))
                verdict = judge.judge(stretch, selection.start_offset, selection.end_offset)
                damage.clear()
                if len(verdict.batches):
                    yield window._replace(window=window.window._replace(batches=verdict.batches))
                else:
                    window.release()
                del window, stretch
                for finding in verdict.findings:
                    report(finding)
                if verdict.error is not None:
                    raise verdict.error
                if verdict.is_end:
                    return
            if self._known is not None and self._known.at_end is not None:
                self._known.at_end(last_offset, on_corruption, report)
        finally:
            if judge is not None:
                judge.close()

    def stretches(
        self, place: int, previous_offset: int, *, on_corruption: OnCorruption = "raise"
    ) -> Generator[Stretch]:
        """What lies behind a place, for who learns outcomes; places count from the first segment."""
        return self._reader.stretches(place, previous_offset, on_corruption=on_corruption)

    @property
    def _reader(self) -> SegmentReader:
        is_planned = self._known is not None and self._known.is_planned
        return SegmentReader(self.segments, must_open=is_planned, gap_between=None if is_planned else self.gap_between)

    def _judge(self, on_corruption: OnCorruption = "raise", check_crcs: bool = True) -> ReadCommitted:
        if self._known is not None and self._known.outcomes is not None:
            return KnownOutcomes(self._known.outcomes, check_crcs=check_crcs, limits=self.limits)
        return ReadCommitted(
            [str(segment.path) for segment in self.segments],
            partial(self.stretches, on_corruption=on_corruption),
            on_corruption=on_corruption,
            check_crcs=check_crcs,
            is_whole=not self.segments or self.segments[-1].is_last,
            limits=self.limits,
        )

    def iter_batches(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        on_corruption: OnCorruption = "raise",
        report: Callable[[Finding], None] = lambda finding: None,
        progress: Callable[[int], object] = lambda n_bytes: None,
    ) -> Iterator[SegmentBatches]:
        """The batch table of all segments, a window of a file at a time; only headers are looked at.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            Batches that may hold an offset of this half-open range; what lies below the log start offset is among them.
        on_corruption : {"raise", "stop", "skip"}
            What to do where headers cannot be walked.
        report : callable
            Given each finding.
        progress : callable
            Told how many more bytes are done.

        Yields
        ------
        SegmentBatches
            Never empty; in offset order.
        """
        selection = Selection(start_offset, end_offset)
        for window in self.windows(selection, on_corruption=on_corruption, report=report):
            window.release()
            batches = _overlapping(window.batches, start_offset, end_offset)
            if len(batches):
                yield SegmentBatches(window.segment, batches)
            progress(window.n_bytes)

    def index_statistics(
        self,
        *,
        intervals: Sequence[int] = (),
        roll_limits: RollLimits | None = None,
        on_corruption: OnCorruption = "raise",
        report: Callable[[Finding], None] = lambda finding: None,
        progress: Callable[[int], object] = lambda n_bytes: None,
    ) -> IndexStatistics:
        """How good the indexes are, segment by segment and in all, and what others would be in their place.

        Parameters
        ----------
        intervals : sequence of int
            Values of `index.interval.bytes` whose indexes are measured too, without writing them.
        roll_limits : RollLimits, optional
            The topic's settings; Kafka's defaults when left out.
        on_corruption : {"raise", "stop", "skip"}
            What to do where headers cannot be walked.
        report : callable
            Given each finding; an index that cannot be measured is one.
        progress : callable
            Told how many more bytes are done.

        Returns
        -------
        IndexStatistics

        Examples
        --------
        >>> statistics = kafkalog.open("tests/golden/log_dir/p-multi-0").index_statistics(intervals=[1024])
        >>> statistics.index.n_entries, statistics.what_if[0].n_entries
        (3, 9)
        """
        meter = self.measure_indexes(
            intervals=intervals,
            roll_limits=roll_limits,
            on_corruption=on_corruption,
            report=report,
            progress=progress,
        )
        return meter.statistics(keep_gaps=True)

    def measure_indexes(
        self,
        *,
        intervals: Sequence[int] = (),
        roll_limits: RollLimits | None = None,
        on_corruption: OnCorruption = "raise",
        report: Callable[[Finding], None] = lambda finding: None,
        progress: Callable[[int], object] = lambda n_bytes: None,
    ) -> PartitionMeter:
        """The same for who wants to sum up several partitions."""
        total = PartitionMeter(str(self.path), self.topic_partition, intervals)
        damaged: set[str | None] = set()

        def report_and_note(finding: Finding) -> None:
            if finding.damage:
                damaged.add(finding.path)
            report(finding)

        walk = self.iter_batches(on_corruption=on_corruption, report=report_and_note, progress=progress)
        row = next(walk, None)
        for segment in self.segments:
            meter = segment.index_meter(intervals, roll_limits)
            while row is not None and row.segment is segment:
                meter.feed(row.batches)
                row = next(walk, None)
            is_whole = str(segment.path) not in damaged
            meter.finish(is_whole=is_whole)
            for finding in meter.findings:
                report(finding)
            total.add(meter)
            if on_corruption == "stop" and not is_whole:
                break  # a broker would delete the segments behind
        return total


def gap_finding(path: str, start: int, end: int, *, is_compacted: bool | None) -> Finding:
    """The note about offsets between two segments that neither holds.

    Parameters
    ----------
    path : str
    start, end : int
        Half-open.
    is_compacted : False or None
        False where the log cleaner has not been; None where nobody knows.
    """
    why = "the log cleaner has not been here, so a segment seems to be missing"
    if is_compacted is None:
        why = "normal in a compacted topic; in others a segment is missing"
    detail = f"offsets {start} to {end - 1} lie between two segments and in neither: {why}"
    return Finding(
        Reason.OFFSET_GAP,
        detail,
        path=path,
        base_offset=start,
        last_offset=end - 1,
        damage=False,
        n_records=end - start,
        certainty="at_most",
    )


def _overlapping(batches: BatchTable, start_offset: int | None, end_offset: int | None) -> BatchTable:
    """Rows that may hold an offset of a range."""
    if start_offset is None and end_offset is None:
        return batches
    wanted = np.ones(len(batches), np.bool_)
    if start_offset is not None:
        wanted &= batches.last_offset >= start_offset
    if end_offset is not None:
        # what a compressed v0 or v1 message begins with is hidden: not before the end of the one before it
        behind = np.concatenate([batches.base_offset[:1], batches.last_offset[:-1] + 1])
        wanted &= np.where(batches.base_offset >= 0, batches.base_offset, behind) < end_offset
    return batches[wanted]
