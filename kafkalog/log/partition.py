"""A topic-partition directory: its segments in order, what the checkpoints say of it, and reading across segments.

Mirrors the reading half of `UnifiedLog` and `LocalLog`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits, OnCorruption, ReadError, SidecarError
from kafkalog.indexes.statistics import IndexStatistics, PartitionMeter, RollLimits
from kafkalog.log.list_offsets import ListOffsets
from kafkalog.log.segment import Segment
from kafkalog.log.segment_files import SegmentListing
from kafkalog.log.segment_reader import Known, SegmentBatches, SegmentReader, gap_finding, overlapping
from kafkalog.records.selection import Selection
from kafkalog.state.checkpoints import checkpointed_offset, read_leader_epochs, read_offset_checkpoint, read_properties
from kafkalog.state.leader_epochs import EpochEndOffset, LeaderEpochs, Truncation
from kafkalog.state.transaction_outcomes import Outcomes


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
        partition.topic_partition, partition.kind, partition.log_start_offset = segment.topic_partition, None, 0
        return partition

    def __repr__(self) -> str:
        name = self.topic_partition or self.path.name
        return f"Partition({str(name)!r}, {len(self.segments)} segments, {self.size_in_bytes} bytes)"

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
        given = self._given_high_watermark if self._known is None else self._known.high_watermark
        return given if given is not None or self._known else self._checkpoint(kf.HIGH_WATERMARK_CHECKPOINT)

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
            # the file is written after the log, and may not know its last epochs
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
        """Answers `find_timestamps`; remembers the headers it has walked."""
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

        What differs from a broker, on purpose, stands in `kafkalog.log.list_offsets`.

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

    def gap_between(self, start: int, end: int) -> Finding | None:
        """The note about offsets that lie between two segments and in neither; None where the log cleaner has been."""
        if not self.is_whole or end <= (self.cleaner_offset or 0):
            return None
        is_compacted = None if self.cleaner_offset is None else False
        return gap_finding(str(self.path), start, end, is_compacted=is_compacted)

    def effective(self, selection: Selection, *, include_deleted: bool = False) -> Selection:
        """The selection without the offsets below the log start offset."""
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
        _, first = self.reader.read_committed().replay()
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
        return self.reader.aborted_transactions(start, end)

    def learn_outcomes(self, until_offset: int | None = None, *, on_corruption: OnCorruption = "raise") -> Outcomes:
        """How the transactions ended, for readers of parts of the partition; only headers are read.

        Parameters
        ----------
        until_offset : int, optional
            Only of transactions that began before it.
        on_corruption : {"raise", "skip"}
            Damage that hides an outcome is recorded, and handled by `on_corruption` when that range is read.

        Raises
        ------
        ReadError
            A file cannot be read.
        """
        return self.reader.learn_outcomes(until_offset, on_corruption=on_corruption)

    @property
    def reader(self) -> SegmentReader:
        """What reads the segments."""
        return SegmentReader(self.segments, known=self._known, gap_between=self.gap_between, limits=self.limits)

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
        for window in self.reader.windows(selection, on_corruption=on_corruption, report=report):
            window.release()
            batches = overlapping(window.batches, start_offset, end_offset)
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
        """Like `index_statistics`, but returns a result that can be added up over partitions."""
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
