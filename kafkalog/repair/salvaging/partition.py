"""Writes what a salvage keeps of a partition, and the rest to its quarantine file; says what is in each hole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Certainty, Finding, KafkalogError, Limits, Reason
from kafkalog.log.compaction import GapMeter
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import rows_to_replay
from kafkalog.log.searching.consistent_batches import first_offset_at
from kafkalog.log.searching.copies import Originals
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.assemble import Part, assemble
from kafkalog.operations.converting.partition import Sink
from kafkalog.operations.converting.target import ConvertedPartitions
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.header import BatchHeader, claims_of
from kafkalog.records.header_walk import claims_up_to, intact_batch_at, reason_of
from kafkalog.repair.salvaging.plan import (
    KeptRanges,
    file_positions,
    moved_batches,
    plan_segment,
    read_intact,
    undecodable,
    with_epochs,
    wrong_epochs,
)
from kafkalog.repair.salvaging.salvaged_partitions import (
    EvidenceFile,
    LostPiece,
    LostRange,
    SalvagedPartition,
    SalvagedSegment,
)
from kafkalog.scanning.ordered_pool import OrderedPool
from kafkalog.state.checkpoints import read_leader_epochs
from kafkalog.state.leader_epochs import Epochs, LeaderEpochs
from kafkalog.state.producers import with_markers
from kafkalog.state.transactions import TransactionReplay
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.copying import COPY_BYTES
from kafkalog.storage.listing import Listing
from kafkalog.storage.output_paths import fitting_name
from kafkalog.storage.own_names import QUARANTINE_SUFFIX
from kafkalog.storage.source import is_padding
from kafkalog.storage.staging import StagedDirectory, StagedFile
from kafkalog.survey.evidence import LogDirState, SegmentContents
from kafkalog.survey.losses import Lost, losses_of, remains, survey, total
from kafkalog.text import counted

MOST_HOLES: Final = 1000
"""Holes of a partition that are described; the others are counted."""

_MOST_PIECES: Final = 64  # of a hole
_MOST_TRANSACTIONS: Final = 100  # of a hole


class Quarantine:
    """The file that gets lost and suspect bytes, in the order of the log.

    `create` returns it, and is called before the first bytes; it is None in a dry run.
    """

    def __init__(self, create: Callable[[], StagedFile] | None) -> None:
        self._create = create
        self._file: StagedFile | None = None
        self.n_bytes = 0

    def add(self, source: BadSectorSource, start: int, end: int) -> tuple[int, bytes, bool]:
        """Copy a range; returns its position here, its first bytes, and whether all are those of padding."""
        at, head, is_unwritten = self.n_bytes, b"", True
        for position in range(start, end, COPY_BYTES):
            window = source.window(position, min(position + COPY_BYTES, end))
            head = head or window[: kf.RECORD_BATCH_OVERHEAD].tobytes()
            is_unwritten = is_unwritten and is_padding(window)
            if (file := self._staged()) is not None:
                file.write(window)
            self.n_bytes += window.nbytes
            source.release(window, position)
        return at, head, is_unwritten

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()

    def _staged(self) -> StagedFile | None:
        """The file; None in a dry run."""
        if self._file is None and self._create is not None:
            self._file = self._create()
        return self._file


class SalvageOutput(NamedTuple):
    """Where a partition and the files next to it are written."""

    staged: StagedDirectory | None
    """None in a dry run."""
    name: str
    """The partition's directory in `staged`."""
    beside: Path
    """Path at which the directory with the files next to the partition will be."""

    def create(self, suffix: str) -> Callable[[], StagedFile] | None:
        """The function that creates a file next to the partition; None in a dry run."""
        return None if self.staged is None else partial(self.staged.create, fitting_name(self.name, suffix))

    def path(self, suffix: str) -> str:
        """Where that file will be."""
        return str(self.beside / fitting_name(self.name, suffix))

    def remove(self) -> None:
        """Remove what was written."""
        if self.staged is not None:
            for name in (self.name, fitting_name(self.name, QUARANTINE_SUFFIX)):
                self.staged.remove(name)


class PartitionSalvage:
    """Salvages one partition, and fills in its report.

    `only` has the base offsets of the segments to save, None for all. `note` is called with each finding. `topic_id` is
    the topic's, if the source has no `partition.metadata`.
    """

    def __init__(
        self,
        partition: Partition,
        only: frozenset[int] | None,
        report: SalvagedPartition,
        output: SalvageOutput,
        note: Callable[[Finding], object],
        limits: Limits,
        *,
        topic_id: str | None = None,
    ) -> None:
        self._topic_id = topic_id
        self._partition, self._report, self._output, self._limits = partition, report, output, limits
        self._segments = [one for one in partition.segments if only is None or one.base_offset in only]
        self._report_finding = note
        self._found: list[Finding] = []
        self._names = Listing.or_empty(partition.path).names  # a removed directory cannot be read
        self._state = LogDirState.of(partition, self._names)
        self._quarantine = Quarantine(output.create(QUARANTINE_SUFFIX))
        self._sink: Sink | None = None
        self._transactions = TransactionReplay(limits=limits)
        self._without_marker: dict[tuple[int, int], None] = {}
        self._next_offset = self._rolled_at = report.start_offset = (
            self._segments[0].base_offset if self._segments else 0
        )
        self._contents: dict[int, SegmentContents] = {}
        self._gaps = GapMeter(0)
        self._originals: Originals
        self._read: dict[int, list[Finding]] = {}
        self._previous = -1
        self._timestamp: int | None = None

    def run(self, pool: OrderedPool, threads: int, progress: Callable[[int], object]) -> None:
        """Search the segments, several at a time, and write them in order."""
        report, staged = self._report, self._output.staged
        for finding in self._partition.findings:
            if finding.reason is Reason.LOG_START_BEHIND_END:
                self._note(finding)
        with contextlib.ExitStack() as stack:
            if staged is not None:
                targets = ConvertedPartitions(None, self._limits, lambda finding: None)
                directory = staged.path / self._output.name
                sink = targets.open(directory, self._partition, report.start_offset, topic_id=self._topic_id)
                self._sink = stack.enter_context(sink)
            epochs = self._epochs()
            plans = ((source, pool.submit(partial(
                plan_segment, segment, source, self._following(segment), epochs, self._limits, progress
            ))) for segment, source in self._opened())  # fmt: skip
            for source, pending in pool.ahead(plans, 2 * threads):
                with source:
                    self._add(pending.result(), source)
        report.end_offset, report.open_transactions = self._next_offset, self._open()
        report.transactions_without_marker = list(self._without_marker)
        if len(self._segments) == len(self._partition.segments):
            self._survey()
        report.losses = losses_of(self._found)
        self._quarantine.close()
        if self._quarantine.n_bytes:
            report.quarantine = self._output.path(QUARANTINE_SUFFIX)

    def _note(self, finding: Finding) -> None:
        self._report_finding(finding)
        if len(self._found) < self._limits.max_findings:
            self._found.append(finding)

    def _opened(self) -> Iterator[tuple[Segment, BadSectorSource]]:
        for segment in self._segments:
            base = segment.base_offset
            self._contents[base] = SegmentContents(str(segment.path), base, base - 1, segment.size_in_bytes)
            try:
                source = BadSectorSource(segment.path)
            except KafkalogError as error:
                self._note(error.to_finding())
                continue
            yield segment, source

    def _following(self, segment: Segment) -> Segment | None:
        """The next segment of the directory, saved or not."""
        return next((one for one in self._partition.segments if one.base_offset > segment.base_offset), None)

    def _epochs(self) -> Epochs:
        try:
            entries = read_leader_epochs(self._partition.path / kf.LEADER_EPOCH_CHECKPOINT)
        except KafkalogError as error:
            self._note(error.to_finding())
            return []
        return [(int(epoch), int(start)) for epoch, start in LeaderEpochs(entries).entries.tolist()]

    def _survey(self) -> None:
        """Report what other files prove to be missing, and keep these files in the quarantine file."""
        for contents in self._contents.values():
            contents.findings = [one for one in self._found if one.path == contents.path]
        found = survey(self._partition, [*self._contents.values()], self._state, self._names)
        for finding in found.findings:
            self._note(finding)
        for name in found.proofs:
            path = self._partition.path / name
            path = path if name in self._names else self._partition.path.absolute().parent / name
            try:
                with BadSectorSource(path) as source:
                    at, *_ = self._quarantine.add(source, 0, source.size)
                    self._report.evidence.append(EvidenceFile(name, source.size, at))
            except KafkalogError as error:
                self._note(error.to_finding(damage=False))

    def _add(self, plan: KeptRanges, source: BadSectorSource) -> None:
        """Write a segment."""
        segment, kept, lost = plan.segment, plan.kept, plan.lost
        row = SalvagedSegment(str(segment.path), segment.base_offset, plan.size_in_bytes)
        for finding in (*wrong_epochs(plan), *moved_batches(plan)):
            self._note(finding)
        sizes = lost.end - lost.start
        row.n_bytes_kept = int((kept.end - kept.start).sum())
        row.n_bytes_suspect = int(sizes[lost.is_suspect].sum())
        row.n_bytes_lost = int(sizes[~lost.is_suspect].sum())
        row.n_bytes_padding = plan.size_in_bytes - plan.padding_start
        row.n_batches_suspect = plan.n_suspect_batches
        self._report.segments.append(row)
        self._gaps = GapMeter(segment.base_offset)
        self._originals = Originals(segment, source)
        # the segment before may reach into this one, and even to its end
        self._previous = self._next_offset - 1
        self._next_offset = max(self._next_offset, segment.base_offset)
        if self._sink is not None and self._next_offset > self._rolled_at:
            self._sink.roll(self._next_offset)
            self._rolled_at = self._next_offset
        # a hole is all that is lost between two kept batches: what other copies lie there does not divide it
        # batches that were moved back to their place count with those around them
        holes = np.searchsorted(np.maximum.accumulate(plan.kept.start), lost.start, side="right")
        n_done = n_rows = 0
        for hole in np.unique(holes).tolist():
            if len(self._report.lost) >= MOST_HOLES:
                break
            self._append(plan, source, row, n_done, hole)
            first, n_rows = n_rows, int(np.searchsorted(holes, hole, side="right"))
            n_done = hole
            self._describe(plan, source, hole, first, n_rows)
        self._append(plan, source, row, n_done, len(kept))
        self._report.n_more_lost += int(np.unique(holes[n_rows:]).size)
        for start, end in zip(lost.start[n_rows:].tolist(), lost.end[n_rows:].tolist(), strict=True):
            self._quarantine.add(source, start, end)
        if n_rows < len(lost):
            detail = f"{int(sizes[n_rows:].sum()):,} more bytes are lost in holes that are not described"
            self._note(Finding(Reason.CRC_MISMATCH, detail, path=str(segment.path), position=int(lost.start[n_rows])))
        self._describe_padding(plan, source)
        source.check_unchanged()

    def _append(self, plan: KeptRanges, source: BadSectorSource, row: SalvagedSegment, first: int, stop: int) -> None:
        """Append the kept runs `first` to `stop`."""
        if first >= stop:
            return
        runs = plan.kept[first:stop]
        # the search was minutes ago, and only what is intact now may be written
        last = plan.segment.base_offset - 1
        for window, begin, end in read_intact(source, runs.start, runs.end, runs.n_batches):
            window = with_epochs(window, np.repeat(plan.epochs[first + begin : first + end], runs.n_batches[begin:end]))
            batches = window.batches
            start, stop_at = runs.start[begin:end], runs.end[begin:end]
            position = file_positions(batches.position, start, stop_at)
            contents = self._contents[plan.segment.base_offset]
            contents.last_offset = int(batches.last_offset[-1])
            again = _overlapping(batches, self._next_offset)
            if again.any():
                self._set_apart(source, row, batches[again], position[again])
                if again.all():
                    continue
                rest = assemble([Part(np.flatnonzero(~again), Window(window.data, 0, batches[~again]))])
                assert rest is not None
                window, batches, position = rest, rest.batches, position[~again]
                start, stop_at = position, position + batches.size_in_bytes
            self._keep(plan.segment, window, position)
            for finding in self._undecodable(window, start, stop_at, row.path, last):
                row.n_batches_undecodable += finding.reason is not Reason.OFFSET_ORDER
                self._note(finding)
            last = int(batches.last_offset[-1])
            row.n_batches_kept += len(batches)
            n_records = batches.n_user_records
            row.n_records_kept += int(np.where(n_records < 0, 1, n_records).sum(dtype=np.int64))
            self._follow(window, batches)
            self._gaps.feed(batches, position)
            contents.has_gaps = self._gaps.has_gaps

    def _set_apart(
        self, source: BadSectorSource, row: SalvagedSegment, batches: BatchTable, position: npt.NDArray[np.int64]
    ) -> None:
        """Move intact batches to the quarantine file whose offsets the segment before has, too."""
        for start, n_bytes in zip(position.tolist(), batches.size_in_bytes.tolist(), strict=True):
            self._quarantine.add(source, start, start + n_bytes)
        n_bytes = int(batches.size_in_bytes.sum())
        row.n_bytes_kept -= n_bytes
        row.n_bytes_suspect += n_bytes
        row.n_batches_suspect += len(batches)
        last = int(batches.last_offset[-1])
        n_lost = max(last + 1 - self._next_offset, 0)
        detail = f"{counted(len(batches), 'batch')} whose offsets are in the segment before, too: kept once"
        found = Finding(Reason.OFFSET_ORDER, detail, path=row.path, position=int(position[0]), length=n_bytes)
        found = replace(found, base_offset=self._next_offset if n_lost else batches.first_offset, last_offset=last)
        self._note(replace(found, n_records=n_lost, certainty="at_most" if n_lost else "exact"))

    def _keep(self, segment: Segment, window: Window, position: npt.NDArray[np.int64]) -> None:
        """Write batches, which begin at these positions of the segment."""
        if self._sink is not None:
            self._sink.append(window, segment)

    def _undecodable(
        self, window: Window, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], path: str, before: int
    ) -> list[Finding]:
        return undecodable(window, start, end, path, self._limits, before=before)

    def _follow(self, window: Window, batches: BatchTable) -> None:
        """Keep up with offsets, times, epochs and transactions."""
        self._next_offset = int(batches.last_offset[-1]) + 1
        timestamp = int(batches.max_timestamp[-1])
        self._timestamp = timestamp if timestamp >= 0 else None
        rows = rows_to_replay(batches)
        if rows.size:
            told, _ = with_markers(window, batches[rows], limits=self._limits)
            self._transactions.update(told, told.base_offset)

    def _open(self) -> list[tuple[int, int]]:
        return [(one.producer_id, one.first_offset) for one in self._transactions.open_transactions()]

    def _describe(self, plan: KeptRanges, source: BadSectorSource, hole: int, first: int, stop: int) -> None:
        """Write a hole to the quarantine file, and add it to the report; its pieces are the lost rows given."""
        lost, kept, path = plan.lost, plan.kept, str(plan.segment.path)
        following = int(kept.start[hole]) if hole < len(kept) else None
        parts = self._set_pieces_apart(plan, source, following, first, stop)
        pieces, heads, suspects, reasons, *_ = parts
        start, end = int(lost.start[first]), int(lost.end[stop - 1])
        n_bytes = int((lost.end[first:stop] - lost.start[first:stop])[~lost.is_suspect[first:stop]].sum())
        begin, end_offset = self._next_offset, plan.next_base_offset
        timestamp = None
        if hole < len(kept):
            inside = first_offset_at(source, int(kept.start[hole]), self._limits)
            end_offset = int(kept.first_offset[hole]) if inside is None else inside
            timestamp = _first_timestamp(source, int(kept.start[hole]))
        is_cut = end_offset is None and reasons == {Reason.PARTIAL_TAIL}
        is_torn = is_cut and not self._state.was_closed
        known_end = None if is_torn else self._state.known_end
        # the records that the header of an incomplete batch names were never all written
        heads, end_offset = ([], self._end_of_cut(begin)) if is_cut else (heads, end_offset)
        if not reasons and end_offset is None:
            end_offset = max(known_end or begin, begin)
        elif not reasons and following is None:
            end_offset = begin  # copies alone: offsets up to the next segment are no loss of this one
        elif not reasons and following is not None and self._is_copy(source, start, end, following, is_next=True):
            begin = end_offset or begin  # the next batch stands there twice
        counted_as = _count(heads, begin, end_offset, known_end, is_linked=parts.is_linked, is_whole=parts.is_whole)
        if not heads and len(suspects) == 1 and counted_as.n_records != 0:
            counted_as = _count_suspect(suspects[0], begin, counted_as)
        n_records = counted_as.n_records
        if not is_torn:
            self._contents[plan.segment.base_offset].claimed_end = counted_as.claimed_end
        # copies between batches whose offsets follow each other replace no marker
        transactions = self._open()[:_MOST_TRANSACTIONS] if reasons or n_records != 0 else []
        self._without_marker.update(dict.fromkeys(transactions))
        found = LostRange(
            path,
            start,
            end,
            n_bytes,
            next((one.reason for one in pieces if not one.is_suspect), pieces[0].reason),
            begin,
            counted_as.end_offset,
            n_records,
            counted_as.certainty,
            self._timestamp,
            timestamp,
            tuple(transactions),
            source.is_unreadable(start, end),
            tuple(pieces),
            is_torn,
            n_markers=counted_as.n_markers,
        )
        self._report_hole(plan.segment, found)

    def _end_of_cut(self, begin: int) -> int | None:
        """Where a log ended before torn bytes, if a clean shutdown and checkpoints say so; see `tail_finding`."""
        known_end = self._state.known_end
        return begin if self._state.was_closed and known_end is not None and known_end <= begin else None

    def _report_hole(self, segment: Segment, hole: LostRange) -> None:
        """Add a hole to the report, and the finding about it; one for each loss if readers see several."""
        losses, note = self._as_read(segment, hole), hole.to_finding()
        if losses is None or note.is_limit:
            self._report.lost.append(hole)
            self._note(note)
            return
        whole = total(losses)
        certainty, n_markers = whole.certainty or "exact", whole.n_markers
        self._report.lost.append(replace(hole, n_records=whole.n_records, certainty=certainty, n_markers=n_markers))
        if not losses:
            self._note(replace(note, n_records=0, certainty="exact"))
        for number, loss in enumerate(losses):
            n_bytes = 0 if number else note.length
            self._note(replace(loss.to_finding(""), detail=note.detail, position=note.position, length=n_bytes))

    def _as_read(self, segment: Segment, hole: LostRange) -> list[Lost] | None:
        """The losses that readers report of a hole; None unless they know the offsets of all of it.

        They see one damaged batch at a time with its neighbours, so they may know more than the headers of the hole.
        """
        base, at = segment.base_offset, hole.first_offset
        if hole.end_offset is None or hole.certainty == "exact" or hole.is_unreadable:
            return None
        if base not in self._read:
            self._read = {base: remains(segment, 0, self._state, previous=self._previous)[0].findings}
        inside = [one for one in self._read[base] if one.damage and hole.start <= (one.position or 0) < hole.end]
        for one in inside:
            if not one.n_records and one.base_offset == at and one.last_offset is None:
                continue  # bytes between two batches that held no offsets
            if one.base_offset != at or one.last_offset is None or one.n_records is None:
                return None
            at = one.last_offset + 1
        return losses_of(inside) if at == hole.end_offset else None

    def _set_pieces_apart(
        self, plan: KeptRanges, source: BadSectorSource, following: int | None, first: int, stop: int
    ) -> _Pieces:
        """Write the pieces of a hole to the quarantine file; `following` is the position of the batch after it."""
        lost = plan.lost
        result = _Pieces([], [], [], set())
        is_linked = is_whole = True
        for row in range(first, stop):
            start, end, is_suspect = int(lost.start[row]), int(lost.end[row]), bool(lost.is_suspect[row])
            at, head, is_unwritten = self._quarantine.add(source, start, end)
            is_copy = is_suspect and self._is_copy(source, start, end, following)
            reason = _reason_of_piece(plan, source, row, head, is_unwritten=is_unwritten, limits=self._limits)
            if not is_suspect and end == source.size and (whole := claims_up_to(source, start, end, self._limits)):
                # its size alone is wrong
                reason = Reason.SIZE_EXCEEDS_FILE if reason is Reason.PARTIAL_TAIL else reason
                is_copy = whole.last_offset < self._next_offset
            elif not is_copy:
                is_linked, is_whole = is_linked and bool(lost.is_linked[row]), False
            if not is_copy:
                (result.suspects if is_suspect else result.heads).append(head)
            if len(result.pieces) < _MOST_PIECES:
                result.pieces.append(LostPiece(start, end, is_suspect, reason, at))
                result.reasons.update(set() if is_copy else {reason})
        return result._replace(is_linked=is_linked, is_whole=is_whole)

    def _describe_padding(self, plan: KeptRanges, source: BadSectorSource) -> None:
        """Say what the padding at the end of the file may have been: a sparse file, or offsets, can tell that."""
        begin, end_offset = self._next_offset, plan.next_base_offset
        if end_offset is None and self._state.known_end is not None:
            end_offset = max(self._state.known_end, begin)
        # after a clean stop, a broker fails at zeros at the end of its log
        is_fatal = plan.next_base_offset is None and self._state.was_closed
        if plan.padding_start == plan.size_in_bytes or (end_offset == begin and not is_fatal):
            return
        # a broker allots files ahead: such padding never was records
        if end_offset is None and source.is_preallocated and not is_fatal:
            return
        if len(self._report.lost) >= MOST_HOLES:
            self._report.n_more_lost += 1
            return
        n_records = None if end_offset is None else end_offset - begin
        found = LostRange(
            str(plan.segment.path),
            plan.padding_start,
            plan.size_in_bytes,
            0,
            Reason.ZERO_FILL,
            begin,
            end_offset,
            n_records,
            None if n_records is None else "at_most" if n_records else "exact",
            self._timestamp,
            is_fatal=is_fatal,
        )
        if end_offset is not None:
            self._without_marker.update(dict.fromkeys(self._open()[:_MOST_TRANSACTIONS]))
        self._report.lost.append(found)
        self._note(found.to_finding())

    def _is_copy(
        self, source: BadSectorSource, start: int, end: int, following: int | None, *, is_next: bool = False
    ) -> bool:
        """Whether all batches of a range are copies of batches before it, or of the one at `following`.

        With `is_next`, whether the first one is a copy of that one.
        """
        while start < end:
            batch, _ = intact_batch_at(source, start, self._limits.max_batch_bytes)
            original = None if batch is None else self._originals.of(batch, following)
            if batch is None or original is None:
                return False
            if is_next:
                return original.position == following
            start = batch.batches.end_position
        return True


class _Pieces(NamedTuple):
    """The pieces of a hole."""

    pieces: list[LostPiece]
    """The first ones."""
    heads: list[bytes]
    """The first bytes of each that is lost."""
    suspects: list[bytes]
    """The first bytes of each that is suspect, but no copy."""
    reasons: set[Reason]
    """Of those in `pieces` that are no copies."""
    is_linked: bool = True
    """Whether each piece that is no copy is one batch, as its size field or its checksum says."""
    is_whole: bool = True
    """Whether their checksums say so."""


def _reason_of_piece(
    plan: KeptRanges, source: BadSectorSource, row: int, head: bytes, *, is_unwritten: bool, limits: Limits
) -> Reason:
    """Return why a lost row of a segment, which begins with `head`, is not kept."""
    lost = plan.lost
    start, end = int(lost.start[row]), int(lost.end[row])
    reason = reason_of(source, start, end, plan.size_in_bytes, head, is_unwritten=is_unwritten, limits=limits)
    if reason is Reason.COMPRESSED_FILE:
        return reason
    if lost.is_suspect[row]:
        return Reason.OFFSET_ORDER
    if source.is_unreadable(start, end):
        return Reason.FILE_UNREADABLE
    # its size leads to an intact batch, so that it is whole, and its content is wrong
    if lost.is_linked[row] and reason is Reason.PARTIAL_TAIL:
        return Reason.CRC_MISMATCH
    return reason


def _overlapping(batches: BatchTable, next_offset: int) -> npt.NDArray[np.bool_]:
    """bool[n]: batches with offsets below the next one of the log."""
    known = np.where(batches.base_offset >= 0, batches.base_offset, batches.last_offset)
    overlaps: npt.NDArray[np.bool_] = known < next_offset
    return overlaps


def _first_timestamp(source: BadSectorSource, position: int) -> int | None:
    """Base timestamp of the batch at a position; None if it has none."""
    return BatchHeader(source.window(position, min(position + kf.RECORD_BATCH_OVERHEAD, source.size))).timestamp


class _Counted(NamedTuple):
    """What a hole lost."""

    n_records: int | None
    certainty: Certainty | None
    end_offset: int | None
    claimed_end: int
    """Where its headers say it ends."""
    n_markers: int = 0


def _count_suspect(head: bytes, begin: int, known: _Counted) -> _Counted:
    """Return what `_count` does of a hole if it is an intact batch whose offset alone is wrong."""
    suspect = claims_of(BatchHeader(head))
    if suspect is None or suspect.base_offset is None or suspect.records_count <= 0:
        return known
    if known.end_offset is None:
        known = known._replace(end_offset=begin + suspect.last_offset - suspect.base_offset + 1)
    if known.n_records is None or suspect.n_records <= known.n_records:
        known = known._replace(n_records=suspect.n_records, certainty="exact", n_markers=int(suspect.is_marker))
    return known


def _count(
    heads: list[bytes], begin: int, end: int | None, known_end: int | None, *, is_linked: bool, is_whole: bool
) -> _Counted:
    """Return what a hole lost.

    `heads` are the first bytes of the lost ranges, and `begin` to `end` the offsets that the hole may have held. At the
    end of the log `end` is None, and `known_end` is where another file says that the log ended, at least. Unless
    `is_linked`, a range may be more than one damaged batch, so there may be more batches than headers. With `is_whole`,
    checksums prove the headers.
    """
    if end is not None and end <= begin:
        return _Counted(0, "exact", end, end)
    claims = _ClaimedOffsets(begin, end)
    is_complete = bool(heads) and all(map(claims.take, heads))
    at, n_records, n_markers = claims.next_offset, claims.n_records, claims.n_markers
    proved: Certainty = "exact" if is_whole else "header"
    from_headers: Certainty = proved if claims.is_counted else "at_most"
    if is_complete and claims.is_counted and at == end and n_records + claims.n_markers == end - begin:
        return _Counted(n_records, "exact", end, at, n_markers)
    if is_complete and is_linked and end is None and (known_end or 0) <= at:
        return _Counted(n_records, from_headers, at, at, n_markers)
    if heads and at == end:
        return _Counted(n_records, from_headers, end, at, n_markers)
    if end is None and known_end is not None and known_end > at:
        end = known_end
    if end is None:
        return _Counted(None, None, None, at, n_markers)
    return _Counted(end - begin, "at_most", end, at, n_markers)


class _ClaimedOffsets:
    """Adds up what the headers of lost batches say, as long as they fit between `begin` and `end`."""

    def __init__(self, begin: int, end: int | None) -> None:
        self.next_offset, self._end = begin, end
        self.n_records = self.n_markers = 0
        self.is_counted = True
        """Whether the headers say how many records there were; otherwise `n_records` is the most."""

    def take(self, head: bytes) -> bool:
        """Add a batch; False if its header does not fit."""
        at, end, batch = self.next_offset, self._end, BatchHeader(head)
        header = claims_of(batch)
        if header is None or (end is None and batch.magic > 2):
            return False
        # a damaged header counts only where it fits between its neighbours
        base = at if header.base_offset is None else header.base_offset
        is_far = header.last_offset - base > kf.MAX_RELATIVE_OFFSET if end is None else header.last_offset >= end
        if base < at or header.last_offset < base or is_far:
            return False
        fits = base == at and 0 < header.records_count <= header.last_offset - base + 1
        self.is_counted &= fits
        self.n_records += header.n_records if fits else header.last_offset + 1 - at
        self.n_markers += header.is_marker
        self.next_offset = header.last_offset + 1
        return True
