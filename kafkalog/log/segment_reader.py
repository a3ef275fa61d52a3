"""Reads the segments of a partition in order, as windows of batches.

Damage, and files that cannot be read, are handled according to `on_corruption`. With `read_committed`, a window
has the batches that a consumer would get. Records are not decoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import (
    FileChangedError,
    Finding,
    KafkalogError,
    LimitExceededError,
    Limits,
    OnCorruption,
    ReadError,
    Reason,
)
from kafkalog.html import JsonFields
from kafkalog.indexes.index_files import TransactionIndex
from kafkalog.log.live import explained, merged_part, retired
from kafkalog.log.missing_parts import MissingParts
from kafkalog.log.searching.lost_records import lost_in
from kafkalog.log.searching.missing import cut_finding
from kafkalog.log.searching.odd_offsets import offsets_from
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentStream, with_bytes
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.header_walk import WINDOW_BYTES, intact_headers_at, valid_at
from kafkalog.records.readers.batch_reader import BatchReader
from kafkalog.records.selection import Selection
from kafkalog.state.outcomes import POSITION_BITS, Reached, ReplayWindow, TransactionOutcomes
from kafkalog.state.read_committed import ReadCommitted
from kafkalog.state.transaction_outcomes import OutcomeLearner
from kafkalog.state.transactions import TRANSACTION_BITS
from kafkalog.storage.source import ByteSource

_WINDOW_AHEAD: Final = 2**20


@dataclass(slots=True)
class ScanStatistics(JsonFields):
    """Counts of one pass over partitions, from partitions down to records."""

    n_partitions: int = 0
    n_partitions_read: int = 0
    """All partitions, and those read. Others are ruled out by the requested topics and partitions, or by a filter on
    them.
    """
    n_segments: int = 0
    n_segments_read: int = 0
    """Segments of the partitions that are read, and those read. Others are ruled out by offsets, or by their name."""
    n_bytes: int = 0
    n_bytes_jumped: int = 0
    n_bytes_read: int = 0
    """Bytes of the `.log` files of those partitions, bytes before the index entries from which segments are read, and
    bytes read.
    """
    n_batches: int = 0
    n_batches_decoded: int = 0
    """Batches whose headers were walked, and those decoded because their header allows a wanted record."""
    n_records: int | None = None
    n_records_selected: int | None = None
    """Records walked, and records returned. None if nothing was decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How the windows of segments are read."""

    on_corruption: OnCorruption = "raise"
    check_crcs: bool = True
    """Whether a batch with a wrong checksum counts as damage where the ends of transactions are looked for."""
    report: Callable[[Finding], None] = lambda finding: None
    window_bytes: int = WINDOW_BYTES
    wanted: Callable[[Segment], bool] = lambda segment: True
    start_at: Callable[[Segment], int] = lambda segment: 0
    """Returns the position of a batch of a segment before which nothing is wanted."""
    reader_for: Callable[[Segment], BatchReader | None] = lambda segment: None
    """Returns the reader of the good batches of a segment, as it was listed (see `walk_with`); None for windows alone.
    """
    statistics: ScanStatistics | None = None


class SegmentWindow(NamedTuple):
    """A window of one of a partition's segments, ready to be decoded."""

    number: int
    """Number of the segment in the partition."""
    segment: Segment
    source: ByteSource
    window: Window
    n_bytes: int
    """Bytes that are in no earlier window. Windows overlap: a batch cut by the end of a window is read again."""
    whole: BatchTable
    """All batches of the window, wanted or not."""

    @property
    def batches(self) -> BatchTable:
        """The complete batches of the window, or those of them that are wanted."""
        return self.window.batches

    def release(self) -> None:
        """Release the memory of the window."""
        self.source.release(self.window.data, self.window.start)

    def lost(self, error: KafkalogError) -> Finding:
        """The finding about a batch of the window that cannot be read."""
        return lost_in(self.segment, self.window._replace(batches=self.whole), error)


@leading_names
class SegmentBatches(NamedTuple):
    """Rows of the batch table of one of a partition's segments."""

    segment: Segment
    batches: BatchTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPart:
    """The part of a partition that a plan gives to one reader. A file that has disappeared since raises."""

    segments: list[Segment]
    log_start_offset: int
    """Of the whole partition: a part may hold records below the name of its first segment."""
    start_offset: int | None
    end_offset: int | None
    """Offsets that the plan is for, half-open; others are not read."""
    outcomes: TransactionOutcomes | None
    """How the transactions of the segments ended."""
    next_base_offset: int | None
    """Base offset of the segment after these, which another reader reads."""
    cut_at: int | None
    """First offset of the rest of the last segment, which another reader reads; None if these have its end."""
    at_end: Callable[[int, OnCorruption, Callable[[Finding], None]], None]
    """``at_end(last_offset, on_corruption, report)`` is called when all windows have been read."""


class SegmentReader:
    """Reads the segments of a partition, in order.

    ``gap_between(start, end)`` returns the finding, if any, about missing offsets (half-open) between two segments,
    ``behind_end(end)`` the finding about offsets past the log end, and ``cuts_in(segment, source)`` the places of a
    segment from which batches are gone.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        *,
        planned: PlannedPart | None,
        gap_between: Callable[[int, int], Finding | None],
        behind_end: Callable[[int], Finding | None],
        cuts_in: Callable[[Segment, ByteSource | None], MissingParts | None],
        limits: Limits,
    ) -> None:
        self.segments, self.planned, self._gap_between = list(segments), planned, gap_between
        self.cuts_in = cuts_in
        self._opened = set[int]()  # numbers of segments
        self.missing_end = behind_end
        """Returns the note about offsets past the log end that other files know of."""
        self.limits = limits

    def windows(self, selection: Selection, options: ReadOptions = ReadOptions()) -> Iterator[SegmentWindow]:
        """Windows that may hold selected records, in offset order. The caller checks the contents of the batches.

        Headers that cannot be walked, and files that cannot be read, are handled according to `on_corruption`.
        """
        return chain.from_iterable(_SegmentPass(self, selection, options).segments())

    def open(self, number: int, previous: int) -> tuple[Segment, ByteSource] | None:
        """Open a segment; None if a running broker merged it into an earlier one, whose new form was read.

        If the old form was read, the rest of the new one takes its place.
        """
        segment = self.segments[number]
        try:
            source = segment.open()
        except ReadError as error:
            if self.planned is not None:
                raise
            part = merged_part(segment, error, previous)
            if part is None:
                return None
            if number in self._opened:  # positions in the old form are known to the selection of committed records
                detail = "the log cleaner merged the segment into an earlier one while it was read; read it again"
                raise FileChangedError(Reason.FILE_CHANGED, detail, path=segment.path) from None
            source = part.open()
            self.segments[number] = segment = part
        if previous >= segment.base_offset and source.path is not None and source.path.endswith(kf.DELETED_SUFFIX):
            source.close()
            return None
        self._opened.add(number)
        return segment, source

    def report_gap(self, reached: int, base_offset: int, report: Callable[[Finding], None]) -> None:
        """Report offsets that are missing between two segments."""
        if reached < base_offset and (gap := self._gap_between(reached, base_offset)) is not None:
            report(gap)

    def committed_windows(self, selection: Selection, options: ReadOptions = ReadOptions()) -> Iterator[SegmentWindow]:
        """Like `windows`, but each with only the batches that a `read_committed` consumer would get.

        The reader leaves `TRANSACTION_BITS` to `walk`, and is stopped at the first. Damage that may hide the end of a
        transaction is raised, with `on_corruption="raise"`.
        """
        damage: list[Finding] = []  # since the last window: skipped bytes may have held transaction markers

        def report_and_keep(finding: Finding) -> None:
            options.report(finding)
            damage.append(finding)

        reader: BatchReader | None = None

        def new_reader(segment: Segment) -> BatchReader | None:
            nonlocal reader
            reader = options.reader_for(segment)
            return reader

        selector = self.read_committed(options.on_corruption, options.check_crcs)
        windows = self.windows(selection, replace(options, report=report_and_keep, reader_for=new_reader))
        try:
            for window in windows:
                if reader is not None and window.batches.attribute_bits & TRANSACTION_BITS:
                    reader.stop()
                replay = ReplayWindow(window.window, window.number << POSITION_BITS, tuple(damage))
                committed = selector.select_committed(replay, selection.start_offset, selection.end_offset)
                damage.clear()
                if len(committed.batches) == len(window.batches):
                    yield window
                elif len(committed.batches):
                    window = window._replace(window=with_bytes(window.source, window.window))
                    yield window._replace(window=window.window._replace(batches=committed.batches))
                else:
                    window.release()
                del window, replay  # here and above: their memory can be reused for the next one
                for finding in committed.findings:
                    options.report(finding)
                if committed.error is not None:
                    raise committed.error
                if committed.is_end:
                    return
        finally:
            selector.close()  # it may have read ahead for markers, and hold a file open

    def lost_from(self, finding: Finding) -> Finding:
        """The finding, with all offsets from it to the end of the log counted as lost."""
        try:
            end = self.segments[-1].next_offset
        except (KafkalogError, IndexError):
            return replace(finding, last_offset=None, n_records=None, certainty=None)
        first = finding.base_offset
        if first is None or not 0 <= first < end:
            return finding
        return replace(finding, last_offset=end - 1, n_records=end - first, certainty="at_most")

    def read_committed(self, on_corruption: OnCorruption = "raise", check_crcs: bool = True) -> ReadCommitted:
        """The selector of batches that a `read_committed` consumer gets."""
        known = None if self.planned is None else self.planned.outcomes
        return ReadCommitted(known or self._learner(on_corruption, check_crcs), check_crcs=check_crcs)

    def learn_outcomes(
        self, until_offset: int | None, *, on_corruption: OnCorruption, check_crcs: bool = True
    ) -> TransactionOutcomes:
        """See `Partition.learn_outcomes`; without `check_crcs`, batches count even with wrong checksums."""
        return self._learner(on_corruption, check_crcs).learn(until_offset)

    def _learner(self, on_corruption: OnCorruption, check_crcs: bool = True) -> OutcomeLearner:
        return OutcomeLearner(
            [str(segment.path) for segment in self.segments],
            partial(self.replay_windows, on_corruption=on_corruption),
            on_corruption=on_corruption,
            check_crcs=check_crcs,
            is_whole=not self.segments or self.segments[-1].is_last,
            indexed=self._indexed_aborts,
            limits=self.limits,
        )

    def _indexed_aborts(self, number: int) -> npt.NDArray[np.void]:
        """The entries of the transaction index of a segment; none if it cannot be read."""
        index = self.segments[number].index_or_none(TransactionIndex)
        return np.empty(0, kf.TRANSACTION_INDEX_DTYPE) if index is None else index.entries

    def aborted_transactions(self, start: int | None, end: int | None) -> npt.NDArray[np.void]:
        """See `Partition.aborted_transactions`."""
        aborted = self.learn_outcomes(end, on_corruption="raise").or_raise().not_committed
        found = aborted[list(kf.ABORTED_TRANSACTION_DTYPE.names or ())].astype(kf.ABORTED_TRANSACTION_DTYPE)
        mask = np.ones(found.size, np.bool_)
        if start is not None:
            mask &= found["last_offset"] >= start
        if end is not None:
            mask &= found["first_offset"] < end
        return found[mask]

    def replay_windows(self, reached: Reached, *, on_corruption: OnCorruption = "raise") -> Generator[ReplayWindow]:
        """Windows after the position reached so far.

        Damage is skipped, and reported with the next window. A window is released when the next one is requested. A
        file that cannot be read counts as damage, unless `on_corruption` is "raise".
        """
        first, position = divmod(reached.position, 1 << POSITION_BITS)
        previous, last = reached.last_offset, reached.last_position
        damage: list[Finding] = []
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            begin = position if number == first else 0
            try:
                opened = self.open(number, previous)
                if opened is None:
                    continue
                segment, source = opened
                with source:
                    if not begin:  # the batches before it may lie below the base offset
                        previous = max(previous, segment.base_offset - 1)
                    stream = SegmentStream(
                        segment,
                        source,
                        previous,
                        on_corruption="skip",
                        report=damage.append,
                        window_bytes=_WINDOW_AHEAD,
                        follows=last % (1 << POSITION_BITS) if begin and last is not None else None,
                        goes_on=on_corruption == "skip",
                    )
                    for window in stream.windows(begin):
                        begin = window.start + window.data.size
                        yield ReplayWindow(window, number << POSITION_BITS, tuple(damage))
                        damage.clear()
                        source.release(window.data, window.start)
                        del window
                    previous = stream.previous
            except (ReadError, LimitExceededError) as error:
                if self._is_unreadable(segment, error, on_corruption):
                    damage.append(_passed_over(error, segment, begin, "skip"))
        if damage:
            end = Window(np.empty(0, np.uint8), 0, BatchTable.empty())
            yield ReplayWindow(end, len(self.segments) << POSITION_BITS, tuple(damage))

    def _is_unreadable(self, segment: Segment, error: ReadError | LimitExceededError, on_corruption: str) -> bool:
        """Whether a file cannot be read; False if its segment is retired. Raises unless that counts as damage."""
        if self.planned is None and retired(segment, error) is not None:
            return False
        changed = error if self.planned is not None else explained(segment, error)
        if self.planned is not None or on_corruption == "raise" or changed is not error:
            raise changed from None
        return True


class _SegmentPass:
    """One pass over the segments of a partition."""

    def __init__(self, reader: SegmentReader, selection: Selection, options: ReadOptions) -> None:
        self._reader, self._options = reader, options
        self._counts = ScanStatistics() if options.statistics is None else options.statistics
        self._start, self._stop = selection.start_offset, selection.end_offset
        self._planned, self._segments = reader.planned, reader.segments
        self._last_offset = self._counted_from = -1
        self._previous: int | None = None
        self._reached: int | None = None  # end offset of the previous segment, unless damage hides it
        self._is_end = False
        self._position = self._lost_to = 0

    def segments(self) -> Iterator[Iterator[SegmentWindow]]:
        """The windows of each segment that is read; they are read before the next segment is looked at."""
        counts, stop = self._counts, self._stop
        counts.n_segments += len(self._segments)
        for number, segment in enumerate(self._segments):
            if self._start is not None and self._is_before(number, self._start):
                counts.n_bytes += segment.size_in_bytes
                continue
            if self._is_end or (stop is not None and segment.base_offset >= stop):
                counts.n_bytes += sum(later.size_in_bytes for later in self._segments[number:])
                self._reached = None  # the log goes on
                break
            if not self._options.wanted(segment):
                counts.n_bytes += segment.size_in_bytes
                # where a segment that is not read ends is not known, so the next one is compared with nothing
                self._previous = self._reached = None
                continue
            if self._reached is not None:
                self._reader.report_gap(self._reached, segment.base_offset, self._options.report)
            self._reached = None
            if self._previous is None:
                self._previous = segment.base_offset - 1
            self._position = self._lost_to = 0
            yield self._windows(number, self._previous)
        self._compare_end()

    def _is_before(self, number: int, start: int) -> bool:
        """Whether all offsets of a segment are below the first one that is wanted."""
        return number + 1 < len(self._segments) and self._segments[number + 1].base_offset <= start

    def _compare_end(self) -> None:
        """Report offsets that are missing between the last segment that was read and what follows it."""
        report, planned = self._options.report, self._planned
        if self._reached is not None and not self._is_end:
            if planned is not None and planned.next_base_offset is not None:
                self._reader.report_gap(self._reached, planned.next_base_offset, report)
            elif self._segments[-1].is_last and (missing := self._reader.missing_end(self._reached)) is not None:
                report(missing)
        if planned is not None:
            planned.at_end(self._last_offset, self._options.on_corruption, report)

    def _windows(self, number: int, previous: int) -> Iterator[SegmentWindow]:
        """The windows of a segment, up to the end of the selection."""
        counts, stop = self._counts, self._stop
        listed = segment = self._segments[number]
        stream: SegmentStream | None = None  # it reports to this object: no attribute, which would be a cycle
        try:
            opened = self._reader.open(number, previous)
            if opened is None:
                return
            segment, source = opened
            self._position = segment.first_position
            with source:
                counts.n_bytes += source.size
                stream = self._begin(segment, listed, source, previous)
                n_offsets = 0  # of the batches, unless some are missing
                for window in stream.windows(self._position):
                    run, whole = window.run, window.batches
                    if run is not None:
                        yield SegmentWindow(number, segment, source, window, 0, whole)
                        n_offsets += run.n_records_read
                        counts.n_bytes_read += max(run.end_position - self._position, 0)
                        counts.n_batches += run.n_batches
                        self._position, self._last_offset = run.end_position, run.end_offset - 1
                        del window, run, whole
                        continue
                    n_bytes = self._count(window)
                    n_offsets += int(whole.records_count.sum(dtype=np.int64))
                    self._last_offset = stream.previous
                    n = None if stop is None else rows_up_to(window, source, stop, self._reader.limits.max_batch_bytes)
                    if n is not None and n < len(whole):
                        window = (window if window.records is None else with_bytes(source, window)).first(n)
                    yield SegmentWindow(number, segment, source, window, n_bytes, whole)
                    del window, whole  # its memory can be reused for the next one
                    if n is not None:
                        break  # a later segment that begins below the end is still read
                if n_offsets != self._last_offset + 1 - self._counted_from:
                    self._report_cuts(number, segment, source, n_offsets)
        except (ReadError, LimitExceededError) as error:
            counts.n_bytes += segment.size_in_bytes if stream is None else 0
            if self._pass_over(error, segment):
                return
        if stream is not None:
            self._is_end |= stream.stopped
            self._previous, reached = stream.previous, stream.end_offset
            # records in damage at the end of the segment are already reported as lost
            self._reached = None if reached is None else max(reached, self._lost_to)

    def _begin(self, segment: Segment, listed: Segment, source: ByteSource, previous: int) -> SegmentStream:
        """The stream of a segment from the first position that may be wanted."""
        position, options = self._position, self._options
        if self._start is not None:
            position = segment.position_for(source, self._start)
        self._position = position = max(position, options.start_at(segment))
        # of a part, where its offsets begin and end is compared later
        self._counted_from = segment.base_offset if self._planned is None else -1
        self._counts.n_segments_read += 1
        self._counts.n_bytes_jumped += position
        return SegmentStream(
            segment,
            source,
            # after a jump, the offsets before the position are not known
            segment.base_offset - 1 if position else max(previous, segment.base_offset - 1),
            on_corruption=options.on_corruption,
            report=self._note,
            window_bytes=options.window_bytes,
            reader=options.reader_for(listed),
        )

    def _offsets_of(self, number: int) -> tuple[int, int | None]:
        """The first offset of a segment, or of the part that this reader has, and the end offset of a part."""
        planned, segment = self._planned, self._segments[number]
        begin = segment.base_offset if segment.part is None else segment.part.first_offset
        return begin, planned.cut_at if planned is not None and number == len(self._segments) - 1 else None

    def _report_cuts(self, number: int, segment: Segment, source: ByteSource, n_offsets: int) -> None:
        """Report batches that are gone from the middle of a segment, and would have been read.

        Of a part, only those that are gone after its first batch and before the rest of the segment. `n_offsets` is the
        number of offsets that were read.
        """
        begin, end = self._offsets_of(number)
        if n_offsets == (self._last_offset + 1 if end is None else end) - begin:
            return
        is_part = segment.part is not None
        cuts = self._reader.cuts_in(segment.reopened() if is_part else segment, None if is_part else source)
        for cut in () if cuts is None else cuts.parts:
            is_inside = begin <= cut.start and (end is None or cut.start < end)
            if is_inside and cut.end > (self._start or 0) and (self._stop is None or cut.start < self._stop):
                self._options.report(cut_finding(str(segment.path), cut))

    def _note(self, finding: Finding) -> None:
        """Report a finding, and note how far the records that are lost reach."""
        if finding.damage and finding.last_offset:
            self._lost_to = max(self._lost_to, finding.last_offset + 1)
        self._options.report(finding)

    def _count(self, window: Window) -> int:
        """Count a window; returns how many of its bytes are in no earlier one."""
        end = max(window.start + window.data.size, window.batches.end_position)
        n_bytes = max(end - self._position, 0)
        self._position = max(end, self._position)
        self._counts.n_bytes_read += n_bytes
        self._counts.n_batches += len(window.batches)
        return n_bytes

    def _pass_over(self, error: ReadError | LimitExceededError, segment: Segment) -> bool:
        """Report a segment that cannot be read, or not to its end, or raise; returns whether a broker retired it."""
        is_planned, on_corruption = self._planned is not None, self._options.on_corruption
        # a plan promised these files: leaving one out would lose records that another process counts on
        is_removed = error.reason is Reason.PARTITION_REMOVED  # the others are gone, too
        note = None if is_planned else retired(segment, error)
        if note is not None:
            self._options.report(note)
            self._previous = None
            return True
        changed = error if is_planned else explained(segment, error)
        if on_corruption == "raise" or is_planned or is_removed or changed is not error:
            raise changed from None
        self._options.report(_passed_over(error, segment, self._position, on_corruption))
        self._is_end |= on_corruption == "stop"
        return False


def _passed_over(error: KafkalogError, segment: Segment, position: int, on_corruption: OnCorruption) -> Finding:
    """The finding for a file that cannot be read, or not to its end."""
    length = max(segment.size_in_bytes - position, 0)
    passed = f"; {length} bytes skipped to the end of the segment" if on_corruption == "skip" else ""
    return replace(
        error.to_finding(), detail=error.detail + passed, path=str(segment.path), position=position, length=length
    )


def rows_up_to(window: Window, source: ByteSource, end_offset: int, max_batch_bytes: int) -> int | None:
    """Number of batches of a window up to the first one after which no offset below `end_offset` follows; else None.

    Only batches with a correct checksum count: a damaged header may hold any offset. So may one that was written wrong:
    an intact batch after it has to have a higher offset.
    """
    batches = window.batches
    for row in np.flatnonzero(batches.last_offset >= end_offset - 1).tolist():
        if not valid_at(source, window, batches[row : row + 1])[0]:
            continue
        behind = int(batches.next_position[row])
        follows = min(offsets_from(source, behind, 1), default=end_offset) < end_offset
        if not follows or intact_headers_at(source, behind, max_batch_bytes) is None:
            return row + 1
    return None


def overlapping(batches: BatchTable, start_offset: int | None, end_offset: int | None) -> BatchTable:
    """Rows that may hold an offset of a range."""
    if start_offset is None and end_offset is None:
        return batches
    wanted = np.ones(len(batches), np.bool_)
    if start_offset is not None:
        wanted &= batches.last_offset >= start_offset
    if end_offset is not None:
        # a compressed v0 or v1 message hides its base offset: it cannot begin before the end of the previous batch
        behind = np.concatenate([batches.base_offset[:1], batches.last_offset[:-1] + 1])
        wanted &= np.where(batches.base_offset >= 0, batches.base_offset, behind) < end_offset
    return batches[wanted]
