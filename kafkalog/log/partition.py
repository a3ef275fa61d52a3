"""A topic-partition directory: its segments in order, its offsets from the checkpoints, and reading across segments.

Mirrors the reading half of `UnifiedLog` and `LocalLog`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits, OnCorruption, ReadError, Reason, SidecarError
from kafkalog.html import PublicType
from kafkalog.indexes.statistics import IndexStatistics, PartitionMeter
from kafkalog.log import live
from kafkalog.log.compaction import Density, GapMeter, is_compacted, was_cleaned
from kafkalog.log.log_start import log_start, usable_start
from kafkalog.log.lookups.list_offsets import ListOffsets
from kafkalog.log.missing_parts import MissingParts, missing_parts
from kafkalog.log.searching.missing import FilesWithoutLog, GapProofs, gap_finding, missing_end, with_copies
from kafkalog.log.segment import Segment
from kafkalog.log.segment_files import SegmentListing
from kafkalog.log.segment_reader import PlannedPart, ReadOptions, SegmentBatches, SegmentReader, overlapping
from kafkalog.read_methods import ReadMethods
from kafkalog.records.batch_table import valid_crcs
from kafkalog.records.readers.header_reader import HeaderReader
from kafkalog.records.selection import Selection
from kafkalog.state.checkpoints import claimed_topic_id, read_checkpointed_offset, read_leader_epochs
from kafkalog.state.leader_epochs import EpochEndOffset, LeaderEpochs, Truncation
from kafkalog.state.outcomes import TransactionOutcomes
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, findings_of, parent_of, place_of
from kafkalog.storage.source import ByteSource
from kafkalog.text import counted


class CheckpointedOffsets(NamedTuple):
    """Offsets of a partition in the checkpoints of its log dir; None where these have none."""

    log_start: int | None = None
    high_watermark: int | None = None


def nameless_key(path: Place) -> kf.TopicPartition:
    """The key in a log dir of a directory whose name is not that of a partition."""
    return kf.TopicPartition(str(path), 0)


class Partition(ReadMethods, metaclass=PublicType):
    """A directory of segments.

    Parameters
    ----------
    path : path-like
        The directory, such as ``/var/lib/kafka/orders-0``.
    segments : sequence of path-like, optional
        Only these `.log` files of the directory.
    entries : sequence of os.DirEntry, optional
        What is in the directory, if it has just been listed.
    log_start_offset : int, optional
        Default: from the checkpoint in the parent directory.
    checkpointed : CheckpointedOffsets, optional
        What the checkpoints in the parent directory have, if they were read.
    memory_map : {"auto", True, False}
    limits : Limits
    planned : PlannedPart, optional
        The part that a plan chose. Nothing is looked up in the directory then.

    Attributes
    ----------
    path : pathlib.Path
    topic_partition : TopicPartition or None
        From the name of the directory; None if it is not the name of a partition.
    kind : str or None
        `"delete"`, `"future"` or `"stray"` for a directory that a broker has renamed with such a suffix.
    segments : list of Segment
        By base offset.
    is_whole : bool
        Whether these are all segments of the directory; False if `segments` was given.
    findings : list of Finding
        Issues found in the directory's file names and in the checkpoints.

    Notes
    -----
    Files of a crash count as they would after a broker's start: `.deleted` and `.cleaned` are left out,
    and a complete `.swap` replaces the segments that it covers.
    """

    _internal = (
        *("cuts_in", "densities", "effective", "epoch_cache", "gap_between", "is_whole", "learn_outcomes"),
        *("is_topic_compacted", "key", "of_segment", "reader", "truncation_for"),
    )

    is_topic_compacted: bool | None = None
    """Whether the topic is compacted, if that is known from elsewhere than the log dir."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segments: Sequence[str | os.PathLike[str]] | None = None,
        entries: Sequence[os.DirEntry[str]] | None = None,
        log_start_offset: int | None = None,
        checkpointed: CheckpointedOffsets | None = None,
        memory_map: bool | str = "auto",
        limits: Limits = DEFAULT_LIMITS,
        planned: PlannedPart | None = None,
    ) -> None:
        self.path = place_of(path)
        directory = kf.parse_partition_directory(self.path.name or self.path.absolute().name)
        self.topic_partition = directory.topic_partition if directory else None
        # in a log dir, and of offsets by partition
        self.key = self.topic_partition or nameless_key(self.path)
        self.kind = directory.kind if directory else None
        self.limits = limits
        self.findings: list[Finding] = []
        self._given_start, self._checkpointed, self._planned = log_start_offset, checkpointed, planned
        self.is_whole = segments is None
        if planned is not None:
            self.segments = planned.segments
            return
        listing = SegmentListing(self.path, memory_map=memory_map, limits=limits, topic_partition=self.topic_partition)
        self.segments = listing.load(segments, entries)
        self.findings += listing.findings
        self.findings += findings_of(self.path)

    @classmethod
    def of_segment(cls, segment: Segment) -> Partition:
        """A partition of this one segment, from log start offset 0. Other files of the directory are ignored."""
        partition = cls.__new__(cls)
        partition.path, partition.limits = segment.path.parent, segment.limits
        partition.topic_partition, partition.kind, partition.log_start_offset = segment.topic_partition, None, 0
        partition.key = segment.topic_partition or nameless_key(partition.path)
        partition.segments, partition.findings, partition.is_whole = [segment], [], False
        partition._given_start, partition._checkpointed, partition._planned = 0, CheckpointedOffsets(), None
        return partition

    def __repr__(self) -> str:
        name, size = str(self.topic_partition or self.path.name), counted(self.size_in_bytes, "byte")
        return f"Partition({name!r}, {counted(len(self.segments), 'segment')}, {size})"

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size_in_bytes for segment in self.segments)

    def _checkpoint(self, name: str) -> int | None:
        # checkpoints name live partitions only: directories that a broker renamed have no entry
        if self.topic_partition is None or self.kind is not None:
            return None
        try:
            return read_checkpointed_offset(parent_of(self.path) / name, self.topic_partition)
        except (SidecarError, ReadError) as error:
            self.findings.append(error.to_finding())
            return None

    @cached_property
    def log_start_offset(self) -> int:
        """First offset that is not deleted: the larger of the checkpointed one and the first segment's base offset.

        A checkpointed one past the end of the log does not count; see `findings`.
        """
        if self._planned is not None:
            return self._planned.log_start_offset
        given = self._given_start
        if given is None and self._checkpointed is not None:
            given = self._checkpointed.log_start
        elif given is None:
            given = self._checkpoint(kf.LOG_START_OFFSET_CHECKPOINT)
        if given is not None:
            found, findings = usable_start(self.path, given, self.segments)
            # what a caller gives, or one of some segments, is not judged by where these end
            is_judged = self._given_start is None and self.is_whole
            given = found if is_judged else given
            self.findings += [one for one in findings if is_judged or one.reason is not Reason.LOG_START_BEHIND_END]
        return log_start(given, self.segments[0].base_offset if self.segments else None)

    @cached_property
    def high_watermark(self) -> int | None:
        """High watermark from the log dir's checkpoint, which may be stale; None if the checkpoint has none."""
        if self._checkpointed is not None:
            return self._checkpointed.high_watermark
        return None if self._planned is not None else self._checkpoint(kf.HIGH_WATERMARK_CHECKPOINT)

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
        """Leader epochs as a broker has them after loading this partition.

        They come from `leader-epoch-checkpoint`, truncated to the log start offset. If there is no such file, they
        come from the batches; this walks all headers.

        Raises
        ------
        SidecarError
            The file is malformed.
        KafkalogError
            There is no such file, and the log is damaged.
        """
        entries = read_leader_epochs(self.path / kf.LEADER_EPOCH_CHECKPOINT)
        if entries is None:
            epochs = LeaderEpochs.from_batches(piece.batches for piece in self.iter_batches())
        else:
            # the file may be newer than the log after a crash: an epoch that starts beyond the end does not count
            epochs = LeaderEpochs(entries[entries["start_offset"] <= self.log_end_offset])
        epochs.truncate_from_start(self.log_start_offset)
        return epochs

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where a leader epoch ends, as this partition's leader answers OffsetForLeaderEpoch.

        Parameters
        ----------
        epoch : int

        Returns
        -------
        EpochEndOffset
            The largest known epoch at or below `epoch`, and the offset where it ends; -1 for both if `epoch` is above
            all known epochs.

        Examples
        --------
        >>> kafkalog.open("tests/golden/log_dir/p-txn-0").end_offset_for_epoch(3)
        EpochEndOffset(leader_epoch=0, end_offset=430)
        """
        return self.epoch_cache.end_offset_for(epoch, self.log_end_offset)

    def truncation_for(self, epoch: int, end_offset: int) -> Truncation:
        """Where a follower has to truncate its log before it can fetch from this one as its leader's.

        Parameters
        ----------
        epoch, end_offset : int
            The follower's last leader epoch and log end offset.
        """
        return self.epoch_cache.truncation_for(epoch, end_offset, self.log_end_offset)

    @cached_property
    def list_offsets(self) -> ListOffsets:
        """The search behind `find_timestamps`. It keeps a summary of the headers that it has walked."""
        return ListOffsets(
            self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=lambda: self.log_end_offset,
            leader_epochs=lambda: self.leader_epochs,
        )

    def find_timestamps(self, timestamps: Any) -> npt.NDArray[np.void]:
        """Timestamp, offset and leader epoch of the records that `offset_for_timestamp` finds.

        Parameters
        ----------
        timestamps : int (ms), str, aware datetime, or array-like of these

        Returns
        -------
        TIMESTAMP_AND_OFFSET_DTYPE, of the shape of `timestamps`
            All -1 if there is no such record. `timestamp` is -1 for the earliest and the latest offset.
        """
        return self.list_offsets.answer(timestamps)

    @overload
    def offset_for_timestamp(self, timestamp: int | str | datetime) -> int: ...

    @overload
    def offset_for_timestamp(
        self, timestamp: list[Any] | tuple[Any, ...] | npt.NDArray[Any]
    ) -> npt.NDArray[np.int64]: ...

    def offset_for_timestamp(self, timestamp: Any) -> int | npt.NDArray[np.int64]:
        """Offset of the first record at or after a time, as a broker's ListOffsets answers for these files.

        Parameters
        ----------
        timestamp : int (ms), str, aware datetime, numpy.datetime64, or array-like of these
            Milliseconds since 1970, a datetime with a time zone, a `datetime64` in UTC, `"earliest"` (the log start
            offset), `"latest"` (the log end offset) or `"max-timestamp"` (the first record with the largest timestamp).
            Text may also be a time before now (``-1h``) or before the partition's latest timestamp (``end-1h``). Many
            timestamps in one call cost little more than one, because headers are walked once.

        Returns
        -------
        int, or int64 array of the shape of `timestamp`
            -1 where a broker finds no record.

        Raises
        ------
        ValueError
            A naive datetime, a negative number, or an unknown string.
        KafkalogError
            A segment is damaged before the answer.

        Notes
        -----
        The first record is the one with the lowest offset, not with the smallest timestamp. Only the first segment
        whose largest timestamp is late enough is searched. So a broker and this method return -1 for healthy files,
        although a later segment has a matching record, in two cases:

        - The matching records of that segment are below the log start offset, or were compacted away. An empty batch of
          the cleaner keeps its largest timestamp.
        - A segment has no timestamps, because it has no batches or only v0 messages. Then the modification time of its
          file counts as its largest timestamp, and copying may have changed it.

        `"max-timestamp"` may return a record below the log start offset, if its segment still exists. Control records
        count like others.

        The intended differences from a broker are listed in `kafkalog.log.lookups.list_offsets`.

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
        """The topic id in `partition.metadata`; None if there is none."""
        return claimed_topic_id(self.path)

    def is_compacted(self, end: int, segments: Sequence[Density] | None = None) -> bool | None:
        """Whether the log cleaner explains that no segment holds the offsets before `end`; None if unknown.

        `segments` has the densities of all segments, if they are known. See `kafkalog.log.compaction.is_compacted`.
        """
        return is_compacted(
            self.path,
            self.topic_partition,
            self.kind,
            end,
            lambda: self.densities if segments is None else segments,
            self.is_topic_compacted,
        )

    @cached_property
    def densities(self) -> Sequence[Density]:
        """How dense the offsets of each segment are. Reads and checks all batches; proved cuts are no gaps."""
        # a plan has only some of the segments
        whole = self if self._planned is None else Partition(self.path, limits=self.limits)
        reader = SegmentReader(
            whole.segments,
            planned=None,
            gap_between=lambda *gap: None,
            behind_end=lambda end: None,
            cuts_in=lambda *segment: None,
            limits=self.limits,
        )
        meters = [GapMeter(segment.base_offset) for segment in whole.segments]
        lasts = [segment.base_offset - 1 for segment in whole.segments]
        for window in reader.windows(Selection(), ReadOptions(on_corruption="skip")):
            intact = window.batches[np.flatnonzero(valid_crcs(window.window))]
            meters[window.number].feed(intact)
            lasts[window.number] = int(intact.last_offset[-1]) if len(intact) else lasts[window.number]
            window.release()
        rows = zip(whole.segments, lasts, meters, strict=True)
        return [Density(one.base_offset, last, self._has_gaps(one, meter)) for one, last, meter in rows]

    def _has_gaps(self, segment: Segment, meter: GapMeter) -> bool:
        """Whether a segment lacks offsets, other than those that were cut out of it."""
        cuts = self.cuts_in(segment) if meter.has_gaps else None
        return meter.has_gaps if cuts is None else cuts.has_gaps

    def cuts_in(self, segment: Segment, source: ByteSource | None = None) -> MissingParts | None:
        """The places of a segment from which batches are gone, by its offset index; None for none.

        None while a broker runs: its cleaner replaces a `.log` and its indexes one after the other.
        """
        known = self.is_topic_compacted
        was_rewritten = partial(was_cleaned, self.path, self.topic_partition, self.kind, segment.base_offset, known)
        found = missing_parts(segment, source, was_rewritten)
        return None if found is not None and live.is_live(self.path.absolute().parent) else found

    def gap_between(self, start: int, end: int) -> Finding | None:
        """The finding about offsets missing between two segments; None if they were compacted."""
        if not self.is_whole:
            return None
        at = bisect_left(self.segments, end, key=attrgetter("base_offset"))
        before = self.segments[at - 1] if at else None
        proofs = GapProofs.of(before, self.path, self._files, start, end, self.log_start_offset)
        is_compacted = None if proofs.ends else self.is_compacted(end)
        found, _ = gap_finding(str(self.path), start, end, proofs, is_compacted=is_compacted)
        return None if found is None else with_copies(found, self._files.copies)

    @cached_property
    def _files(self) -> FilesWithoutLog:
        """The listing of the directory; an empty one if it is gone."""
        return FilesWithoutLog(Listing.or_empty(self.path).names)

    def effective(self, selection: Selection, *, include_deleted: bool = False) -> Selection:
        """The selection, restricted to offsets at or above the log start offset unless `include_deleted`.

        It is restricted to the offsets of a plan as well.
        """
        start, end, planned = selection.start_offset, selection.end_offset, self._planned
        if not include_deleted and self.log_start_offset > max(start or 0, 0):
            start = self.log_start_offset
        if planned is not None:
            if planned.start_offset is not None:
                start = planned.start_offset if start is None else max(start, planned.start_offset)
            if planned.end_offset is not None:
                end = planned.end_offset if end is None else min(end, planned.end_offset)
        return replace(selection, start_offset=start, end_offset=end)

    @cached_property
    def last_stable_offset(self) -> int:
        """Where `read_committed` ends: the first offset of the earliest open transaction, else the log end offset.

        It is computed from the batches; this walks all headers. A broker also limits it by the high watermark. That is
        not done here, because the checkpointed one may be stale. If the transaction began below the log start offset,
        the result is the log start offset. Kafka 4.3.1 returns the base offset of that batch.

        Raises
        ------
        KafkalogError
            The last segment is damaged, or a segment in which a transaction is open.
        """
        first = self.learn_outcomes().or_raise().end
        return self.log_end_offset if first is None else max(first.first_offset, self.log_start_offset)

    def aborted_transactions(self, start: int | None = None, end: int | None = None) -> npt.NDArray[np.void]:
        """The aborted transactions that a consumer of some offsets has to skip.

        Parameters
        ----------
        start, end : int, optional
            Only transactions whose marker is at or after `start` and whose first offset is before `end`; default: all.

        Returns
        -------
        ABORTED_TRANSACTION_DTYPE[n]
            In the order of their markers. They are computed from the batches alone. A broker's `.txnindex` has the
            same entries, and in a compacted log also those whose records are gone.

        Raises
        ------
        KafkalogError
            The log is damaged at a place where a transaction is open.

        Notes
        -----
        Source: TransactionIndex.collectAbortedTxns, AbortedTxn, Kafka 4.3.
        """
        return self.reader.aborted_transactions(start, end)

    def learn_outcomes(
        self, until_offset: int | None = None, *, on_corruption: OnCorruption = "raise"
    ) -> TransactionOutcomes:
        """How the transactions ended, for readers of parts of the partition. Only headers are read.

        Parameters
        ----------
        until_offset : int, optional
            Only transactions that began before this offset.
        on_corruption : {"raise", "skip"}
            Damage that hides an outcome is recorded, and handled by `on_corruption` when that range is read.
        """
        return self.reader.learn_outcomes(until_offset, on_corruption=on_corruption)

    @property
    def reader(self) -> SegmentReader:
        """A reader over the segments."""
        behind = partial(missing_end, self.path, self.topic_partition if self.is_whole and self.kind is None else None)
        return SegmentReader(
            self.segments,
            planned=self._planned,
            gap_between=self.gap_between,
            behind_end=behind,
            cuts_in=self.cuts_in,
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
        """The batch table of all segments, one window of a file at a time. Only headers are parsed.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            Only batches that may hold an offset of this half-open range. Batches below the log start offset are
            included.
        on_corruption : {"raise", "stop", "skip"}
            What to do where headers cannot be walked.
        report, progress : callable
            Called with each finding, and with the number of bytes passed since the last call.

        Yields
        ------
        SegmentBatches
            Never empty; in offset order.
        """
        options = ReadOptions(
            on_corruption=on_corruption,
            report=report,
            reader_for=lambda segment: HeaderReader(limits=segment.limits),
        )
        for window in self.reader.windows(Selection(start_offset, end_offset), options):
            window.release()
            batches = overlapping(window.batches, start_offset, end_offset)
            if len(batches):
                yield SegmentBatches(self.segments[window.number], batches)  # as listed: the cleaner may merge it
            progress(window.n_bytes)

    def index_statistics(
        self,
        *,
        what_if: Sequence[int] = (),
        on_corruption: OnCorruption = "raise",
        report: Callable[[Finding], None] = lambda finding: None,
        progress: Callable[[int], object] = lambda n_bytes: None,
        totals: PartitionMeter | None = None,
    ) -> IndexStatistics:
        """How well the indexes serve lookups, per segment and in total, compared with other values of the interval.

        Parameters
        ----------
        what_if : sequence of int
            Values of `index.interval.bytes`. The indexes that they would give are measured too, and not written.
        on_corruption : {"raise", "stop", "skip"}
            What to do where headers cannot be walked.
        report : callable
            Called with each finding; an index that cannot be measured gives one.
        progress : callable
            Called with the number of bytes read since the last call.
        totals : PartitionMeter, optional
            The partition is added to these totals of several partitions.

        Returns
        -------
        IndexStatistics

        Examples
        --------
        >>> statistics = kafkalog.open("tests/golden/log_dir/p-multi-0").index_statistics(what_if=[1024])
        >>> statistics.index.n_entries, statistics.what_if[0].n_entries
        (3, 9)
        """
        total = PartitionMeter(str(self.path), self.topic_partition, what_if)
        damaged: set[str | None] = set()

        def report_and_note(finding: Finding) -> None:
            if finding.damage:
                damaged.add(finding.path)
            report(finding)

        walk = self.iter_batches(on_corruption=on_corruption, report=report_and_note, progress=progress)
        row = next(walk, None)
        for segment in self.segments:
            meter = segment.index_meter(what_if)
            while row is not None and row.segment is segment:
                meter.feed(row.batches)
                row = next(walk, None)
            meter.finish()
            for finding in meter.findings:
                report(finding)
            total.add(meter)
            if on_corruption == "stop" and str(segment.path) in damaged:
                break  # a broker would delete the later segments
        if totals is not None:
            totals.merge(total)
        return total.statistics()
