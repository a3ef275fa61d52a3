"""Converts one partition: one thread plans windows, several rewrite them, and the output is written in order.

Memory holds a few windows and their output at a time. The division into windows does not depend on the number of
threads, and so the output does not, either. This module does not choose partitions or open writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import CorruptionError, Finding, KafkalogError, OnCorruption, Reason
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import ReadOptions, SegmentWindow
from kafkalog.operations.converting.assemble import Part, assemble
from kafkalog.operations.converting.kept_records import BoundRules, NeededBatches, Rules, find_needed_batches
from kafkalog.operations.converting.rewrite import Counts, Rewritten, Settings, rewrite
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.selection import Selection
from kafkalog.scanning.ordered_pool import BatchTask, OrderedPool, shares
from kafkalog.state.leader_epochs import UNDEFINED, falling_epoch
from kafkalog.text import offset_range


class Sink:
    """Receives the output batches of a partition, in order. This one, of a dry run, writes nothing."""

    def roll(self, base_offset: int) -> None:
        """Start a new segment at `base_offset`."""

    def append(self, window: Window, segment: Segment) -> None:
        """Append batches; `segment` is the one of the source that they come from."""


@dataclass(slots=True)
class _RewriteTask:
    """Batches of a window that a thread of the pool rewrites."""

    piece: SegmentWindow
    work: BatchTask[Rewritten]
    is_last: bool


@dataclass(frozen=True, slots=True)
class _LogStop:
    """Damage that ends the log (`on_corruption="stop"`)."""

    finding: Finding


_Event = _RewriteTask | Finding | _LogStop | KafkalogError


class PartitionConversion:
    """Converts one partition.

    With `keeps_segments`, segments of the output begin where those of the source do. `start_offset` and `end_offset`
    are the start offset of the output, and its log end offset so far.
    """

    def __init__(
        self,
        partition: Partition,
        rules: Rules,
        settings: Settings,
        *,
        keeps_segments: bool,
        on_corruption: OnCorruption,
        report: Callable[[Finding], None],
        progress: Callable[[int], object],
    ) -> None:
        self.partition, self._rules, self._settings = partition, rules, settings
        self._keeps_segments, self._on_corruption = keeps_segments, on_corruption
        self._report, self._progress = report, progress
        self._start = None if rules.include_deleted else partition.log_start_offset
        bases = [segment.base_offset for segment in partition.segments]
        if self._start is None:
            self._bases = bases or [partition.log_start_offset]
        else:
            # segments that end at or below the log start offset get it as their base, and so no segment is started
            n_below = sum(following <= self._start for following in bases[1:])
            self._bases = [max(base, self._start) for base in bases]
            self._bases[:n_below] = [self._start] * n_below
            self._bases = self._bases or [self._start]
        if self._bases[-1] >= kf.MAX_OFFSET:
            detail = f"the log would begin at {self._bases[-1]}, past the largest offset of a record"
            raise CorruptionError(Reason.OFFSET_OUTSIDE_SEGMENT, detail, path=partition.path)
        self.start_offset = self.end_offset = self._last_base = self._bases[0]
        self.counts = Counts()
        self._stopped = False
        self._n_begun = 1
        self._tail: tuple[int, Window] | None = None
        self._needed: NeededBatches | None = None

    def run(self, sink: Sink, pool: OrderedPool, ahead: int) -> None:
        """Convert the partition into a sink whose first segment begins at `start_offset`."""
        for event in pool.ahead(self._plan(pool), ahead):
            if isinstance(event, KafkalogError):
                raise event
            if isinstance(event, _LogStop):
                self._stop(event.finding)
            elif isinstance(event, Finding):
                if not self._stopped:
                    self._report(event)
            else:
                self._finish(event, sink)
                if event.is_last:
                    self._release(event.piece)
            del event  # frees the task's output before the next one is waited for
        self._end(sink)

    def _plan(self, pool: OrderedPool) -> Iterator[_Event]:
        """Yield tasks and findings in the order of the log; an error comes last.

        Findings are yielded like tasks, so that `run` reports them in the order of the log.
        """
        partition = self.partition
        found: list[Finding | _LogStop] = list(partition.findings)
        selection = Selection(self._start, include_control=True)
        epochs = _BatchEpochs(partition, found.append)
        bound: tuple[Segment, BoundRules] | None = None

        def on_finding(finding: Finding) -> None:
            found.append(_LogStop(finding) if finding.damage and self._on_corruption == "stop" else finding)

        try:
            options = ReadOptions(on_corruption=self._on_corruption, report=on_finding)
            windows = partition.reader.windows(selection, options)
            for piece in windows:
                while found:
                    yield found.pop(0)
                if self._stopped:
                    return
                batches = piece.window.batches
                if bound is None or bound[0] is not piece.segment:
                    bound = piece.segment, self._rules.bind(partition, piece.segment)
                self._look_for_needed(batches)
                mask = selection.batch_mask(batches)
                wanted = range(len(batches)) if mask is None else np.flatnonzero(mask).tolist()
                known = epochs.of(batches, str(piece.segment.path))
                if not wanted:
                    self._release(piece)
                    continue
                rewrite_rows = partial(self._rewrite, piece, known, bound[1])
                # cut by bytes, not by threads: the output must not depend on their number
                for first, stop in shares(batches, wanted[0]):
                    work = BatchTask(pool, rewrite_rows, first, stop)
                    yield _RewriteTask(piece, work, stop == len(batches))
                    del work
                del piece, batches, rewrite_rows  # without references the window's memory is reused for the next one
            yield from found
        except KafkalogError as error:
            yield error

    def _look_for_needed(self, batches: BatchTable) -> None:
        """Find the needed batches, at the first batch of a producer, if batches may be dropped or joined at all."""
        matters = self._rules.drops_by_content or self._settings.batch_size is not None
        if self._needed is None and matters and (batches.producer_id >= 0).any():
            # findings of this walk are ignored: the main pass reports the same damage
            self._needed = find_needed_batches(self.partition, self._start, self._on_corruption)

    def _rewrite(
        self, piece: SegmentWindow, epochs: npt.NDArray[np.int32], rules: BoundRules, first: int, stop: int
    ) -> Rewritten:
        return rewrite(
            piece.window,
            piece.window.batches[first:stop],
            epochs[first:stop],
            settings=self._settings,
            rules=rules,
            needed_batches=self._needed,
            path=str(piece.segment.path),
        )

    def _release(self, piece: SegmentWindow) -> None:
        """Release a window and report progress."""
        piece.release()
        self._progress(piece.n_bytes)

    def _finish(self, task: _RewriteTask, sink: Sink) -> None:
        """Write the output of a task, unless damage ends the log before."""
        if self._stopped:
            return
        for done in task.work.results():
            self.counts.add(done.counts)
            if done.window is not None:
                self._append(task.piece.number, done.window, sink)
            if done.tail is not None:
                self._tail = task.piece.number, done.tail
            if done.error is not None:
                self._handle_damage(done.error, task.piece.lost(done.error))
            if self._stopped:
                return
            del done

    def _handle_damage(self, error: KafkalogError, finding: Finding) -> None:
        if self._on_corruption == "raise":
            raise error
        if self._on_corruption == "stop":
            self._stop(finding)
        else:
            self._report(finding)

    def _stop(self, finding: Finding) -> None:
        """End the log at damage: nothing after it is written, not even the base offsets of later segments."""
        if self._stopped:
            return
        self._stopped = True
        segments = self.partition.segments
        number = next((n for n, segment in enumerate(segments) if str(segment.path) == finding.path), None)
        if number is not None:
            n_bytes = sum(segment.size_in_bytes for segment in segments[number:]) - (finding.position or 0)
            finding = replace(finding, detail=f"{finding.detail}; the log ends here, {n_bytes} bytes are left out")
        self._report(self.partition.reader.lost_from(finding))

    def _append(self, number: int, window: Window, sink: Sink) -> None:
        window_in_order = self._in_order(number, window)
        if window_in_order is None:
            return
        for base_number, part in self._by_segment(number, window_in_order):
            # before the batches: a segment without any has to be there, too, so that the log end offset stays
            self._begin_segments(base_number, sink)
            sink.append(part, self.partition.segments[number])
            self.counts.add_output(part.batches)
            self.end_offset = int(part.batches.last_offset[-1]) + 1
        self._tail = None

    def _by_segment(self, number: int, window: Window) -> Iterator[tuple[int, Window]]:
        """The batches by the segment that they belong to, which is a later one for copies of its batches."""
        batches = window.batches
        if not self._keeps_segments or batches.base_offset[-1] < self._end_of(number):
            yield number, window
            return
        numbers = np.maximum(np.searchsorted(self._bases, batches.base_offset, side="right") - 1, number)
        for base_number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == base_number)
            part = assemble([Part(rows, Window(window.data, window.start, batches[rows]))])
            if part is not None:
                yield base_number, part

    def _begin_segments(self, number: int, sink: Sink) -> None:
        """Start all segments up to `number`, also those that get no batch."""
        while self._keeps_segments and self._n_begun <= number:
            # a batch of the segment before may reach into this one
            base_offset = max(self._bases[self._n_begun], self.end_offset)
            self._n_begun += 1
            if base_offset > self._last_base:  # equal for segments below the log start offset
                sink.roll(base_offset)
                self._last_base = self.end_offset = base_offset

    def _end_of(self, number: int) -> int:
        """The offset at which the segment after a segment begins."""
        return next((base for base in self._bases[number + 1 :] if base > self._bases[number]), kf.MAX_OFFSET)

    def _in_order(self, number: int, window: Window) -> Window | None:
        """The batches whose offsets increase within the segment; others are handled as damage and dropped."""
        batches = window.batches
        # a batch below its segment's base would be found in another segment by a broker
        least = max(self.end_offset, self._bases[number])
        behind = np.concatenate([[least], batches.last_offset[:-1] + 1])
        if (batches.base_offset >= behind).all():
            return window
        kept = []
        path = str(self.partition.segments[number].path)
        for row, (first, last) in enumerate(
            zip(batches.base_offset.tolist(), batches.last_offset.tolist(), strict=True)
        ):
            if self._stopped:
                break
            if least <= first:
                kept.append(row)
                least = last + 1
                continue
            detail = (
                f"offsets {offset_range(first, last + 1)} come after {least - 1}: left out, but kafkalog"
                " salvage keeps the batch"
            )
            error = CorruptionError(Reason.OFFSET_ORDER, detail, path=path, base_offset=first)
            count = int(batches.n_user_records[row])
            finding = replace(error.to_finding(), last_offset=last, n_records=count, certainty="exact")
            if count < 0:  # a compressed message of v0 or v1 does not say
                finding = replace(finding, n_records=max(last - first + 1, 0), certainty="at_most")
            self._handle_damage(error, finding)
        rows = np.array(kept, np.int64)
        return assemble([Part(rows, Window(window.data, window.start, batches[rows]))])

    def _end(self, sink: Sink) -> None:
        """Write what keeps the log end offset where it was, unless damage ended the log earlier.

        That is an empty batch in place of the last one, if that was dropped, and the segments without batches.
        """
        if self._tail is not None:
            number, window = self._tail
            self._append(number, window, sink)
        if self._stopped:
            return
        if self._keeps_segments:
            self._begin_segments(len(self._bases) - 1, sink)
        elif self._bases[-1] > self.end_offset:
            sink.roll(self._bases[-1])
            self.end_offset = self._bases[-1]


class _BatchEpochs:
    """Leader epochs by batch. Legacy messages, which have none, get that of the checkpoint or of the batches before."""

    def __init__(self, partition: Partition, report: Callable[[Finding], None]) -> None:
        self._last, self._largest, self._is_falling = 0, UNDEFINED, False
        self._report = report
        self._known = np.empty(0, kf.LEADER_EPOCH_DTYPE)
        try:
            self._known = partition.leader_epochs
        except KafkalogError as error:
            report(replace(error.to_finding(), damage=False))

    def of(self, batches: BatchTable, path: str) -> npt.NDArray[np.int32]:
        """int32[n]: the leader epoch of each batch of a segment at `path`. Windows must come in order."""
        fallen = None if self._is_falling else falling_epoch(batches, self._largest, path)
        self._largest = max(self._largest, *batches.partition_leader_epoch[batches.magic >= 2].tolist(), UNDEFINED)
        if fallen is not None:
            self._is_falling = True
            detail = f"{fallen.detail}: both are kept, and the new leader-epoch-checkpoint has the higher one"
            self._report(replace(fallen, detail=detail, damage=False))
        own = np.where(batches.magic >= 2, batches.partition_leader_epoch, -1)
        if self._known.size and (batches.magic < 2).any():
            at = np.searchsorted(self._known["start_offset"], batches.last_offset, side="right") - 1
            said = np.where(at >= 0, self._known["epoch"][np.maximum(at, 0)], -1)
            own = np.where(batches.magic >= 2, own, said)
        # epochs never fall in a log that a broker serves
        epochs: npt.NDArray[np.int32] = np.maximum.accumulate(np.concatenate([[self._last], own]))[1:].astype(np.int32)
        self._last = int(epochs[-1])
        return epochs
