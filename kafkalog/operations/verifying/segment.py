"""Checks one segment: its batches, and its offset and time indexes against them, in a single walk.

Returns a `VerifiedSegment`. Transaction indexes need earlier segments; `partition` checks them.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import FileChangedError, Finding, Findings, KafkalogError, Limits, ReadError, Reason
from kafkalog.indexes.checks import OffsetIndexCheck, TimeIndexCheck
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, max_index_entries
from kafkalog.log.compaction import GapMeter
from kafkalog.log.live import settled
from kafkalog.log.searching.lost_records import lost_in
from kafkalog.log.segment import AnyIndex, Segment
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.operations.verifying import record_headers as coherence
from kafkalog.operations.verifying.verified_partitions import VerifiedSegment
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.decode import decode_all
from kafkalog.records.selection import Selection
from kafkalog.records.spans import batch_error
from kafkalog.state.leader_epochs import falling_epoch
from kafkalog.state.transactions import EpochChange
from kafkalog.storage.files import size_of
from kafkalog.storage.removals import is_gone
from kafkalog.storage.source import ByteSource
from kafkalog.survey.evidence import LogDirState, tail_finding

_EPOCHS: Final = 10_000  # the most changes of the leader epoch kept, as a damaged log may have one in each batch


class SegmentCheck:
    """Checks segments with one set of options; `run` may be called from several threads.

    `interval_bytes` is the topic's `index.interval.bytes`, if known. `progress` is called with the number of further
    bytes that are done, from any thread.
    """

    def __init__(
        self,
        *,
        crcs: bool,
        deep: bool,
        interval_bytes: int | None,
        limits: Limits,
        progress: Callable[[int], object],
    ) -> None:
        if deep and not crcs:
            raise ValueError("deep (--deep) and indexes_only (--indexes-only) exclude each other")
        self._crcs, self._deep, self._interval_bytes = crcs, deep, interval_bytes
        self._limits, self._progress = limits, progress
        self._stopped = False

    def stop(self) -> None:
        """Make running checks return early; their results are no longer used."""
        self._stopped = True

    def run(self, segment: Segment, around: LogDirState) -> VerifiedSegment:
        """Check a segment; errors in reading it become findings."""
        meters = itertools.chain([self._progress], itertools.repeat(lambda n_bytes: None))
        return settled(
            lambda: self._check(segment, around, next(meters)),
            lambda result: result.ok or self._stopped,
            is_live=around.is_live,
        )

    def _check(self, segment: Segment, around: LogDirState, progress: Callable[[int], object]) -> VerifiedSegment:
        result = VerifiedSegment(str(segment.path), segment.base_offset, segment.base_offset - 1, segment.size_in_bytes)
        findings = Findings(self._limits.max_findings)
        done = 0
        try:
            # read the indexes first: a running broker appends to the log before it adds an index entry
            indexes = _IndexChecks(segment, around, findings.add, self._interval_bytes)
            with segment.open() as source:
                if around.is_live and source.path != str(segment.path):
                    # a running broker deleted it, and its indexes: those of another may be in their place
                    raise ReadError(Reason.FILE_UNREADABLE, os.strerror(errno.ENOENT), path=segment.path)
                done = self._walk(segment, source, indexes, around, result, findings, progress)
        except KafkalogError as error:
            # retention deleted it: nothing is damaged
            is_deleted = isinstance(error, ReadError) and around.is_live and is_gone(segment.path)
            findings.add(error.to_finding(damage=not is_deleted))
        progress(max(segment.size_in_bytes - done, 0))
        result.findings, result.n_more_findings = findings.rows, findings.n_more
        return result

    def _walk(
        self,
        segment: Segment,
        source: ByteSource,
        indexes: _IndexChecks,
        around: LogDirState,
        result: VerifiedSegment,
        findings: Findings,
        progress: Callable[[int], object],
    ) -> int:

        def add(finding: Finding) -> None:
            findings.add(tail_finding(finding, around, result.last_offset + 1) if segment.is_last else finding)

        epochs = _Epochs(segment, findings.add)
        gaps = GapMeter(segment.base_offset)
        end, largest, has_far = 0, 0, False
        # a checked window may come without its bytes, which decoding needs
        checked = self._crcs and not self._deep
        stream = SegmentStream(segment, source, on_corruption="skip", report=add, checked=checked)
        for window in stream.windows():
            batches = window.batches
            intact = batches
            if self._crcs:
                self._check_bytes(segment, window, findings.add)
                intact = batches[np.flatnonzero(valid_crcs(window))]
            gaps.feed(intact)
            for check in indexes.checks:
                check.feed(batches)
            epochs.feed(batches)
            if int(batches.position[0]) != end:
                result.transaction_epochs.end()  # the bytes before it may have held markers
            for change in result.transaction_epochs.feed(batches):
                findings.add(missing_marker(str(segment.path), change, int(batches.position[change.row])))
            largest = max(largest, int(batches.max_timestamp.max()))
            result.has_aborted |= bool((batches.is_control & (batches.control_type <= 0)).any())
            result.n_batches += len(batches)
            if len(intact):
                is_far = intact.last_offset[-1] - segment.base_offset > kf.MAX_RELATIVE_OFFSET
                if is_far and segment.has_base_offset and not has_far:
                    has_far = True
                    findings.add(_too_far(segment, intact))
                result.last_offset = max(result.last_offset, int(intact.last_offset[-1]))
            progress(batches.end_position - end)
            end = batches.end_position
            source.release(window.data, window.start)
            del window, batches, intact
            if self._stopped:
                return end
        result.epochs, result.has_gaps = epochs.changes(), gaps.has_gaps
        size = source.size
        indexes.report(end, size, largest, findings)
        return end

    def _check_bytes(self, segment: Segment, window: Window, add: Callable[[Finding], None]) -> None:
        """Check the checksums of a window's batches and, if `deep`, decode their records."""
        batches = window.batches
        valid = valid_crcs(window)
        for row in np.flatnonzero(~valid).tolist():
            detail = "a broker serves it as it is, but cuts the log here if it recovers the segment"
            error = batch_error(STATUS["CRC_MISMATCH"], batches, row, str(segment.path), detail=detail)
            add(lost_in(segment, window, error))
        for finding in coherence.miscounted(
            batches[np.flatnonzero(valid)], str(segment.path), partial(lost_in, segment, window)
        ):
            # said once
            if not self._deep or finding.reason is not Reason.RECORD_COUNT:  # which decoding finds, too
                add(finding)
        if not self._deep:
            return
        good = window if valid.all() else Window(window.data, window.start, batches[np.flatnonzero(valid)])
        options = {"selection": _EVERYTHING, "check_crcs": False, "limits": self._limits, "path": str(segment.path)}
        for decoded in decode_all(good, coherence.COLUMNS, **options):
            if decoded.columns is not None:
                for finding in coherence.incoherent(decoded.columns, good.batches, str(segment.path)):
                    add(finding)
                for finding in coherence.going_back(
                    decoded.columns, good.batches, str(segment.path), window.before if valid[0] else None
                ):
                    add(finding)
            if decoded.error is not None:
                add(lost_in(segment, window, decoded.error))
            if self._stopped:
                return


_EVERYTHING: Final = Selection(include_control=True)


def missing_marker(path: str, change: EpochChange, position: int | None = None) -> Finding:
    """The finding about a transaction in which the producer epoch changes."""
    return Finding(
        Reason.TRANSACTION_OUTCOME, change.detail, path=path, position=position, base_offset=change.offset, n_records=0
    )


def _too_far(segment: Segment, batches: BatchTable) -> Finding:
    row = int(np.argmax(batches.last_offset - segment.base_offset > kf.MAX_RELATIVE_OFFSET))
    return Finding(
        Reason.OFFSET_OUTSIDE_SEGMENT,
        f"offset {batches.last_offset[row]} is too far from the segment's base for an index entry. Releases before"
        " 1.1.1 wrote such batches; a broker that recovers the segment splits it here",
        path=str(segment.path),
        position=int(batches.position[row]),
        base_offset=int(batches.base_offset[row]),
        length=int(batches.size_in_bytes[row]),
        damage=False,
    )


class _IndexChecks:
    """Reads the indexes of a segment, and compares them with its batches."""

    def __init__(
        self, segment: Segment, around: LogDirState, add: Callable[[Finding], None], interval_bytes: int | None
    ) -> None:
        self._segment, self._around = segment, around
        self._is_open = segment.is_last and not around.was_closed
        offset_index = open_index(OffsetIndex, segment, add, is_live=around.is_live)
        time_index = open_index(TimeIndex, segment, add, is_live=around.is_live)
        self._offset_index, self._time_index = offset_index, time_index
        self.checks: list[OffsetIndexCheck | TimeIndexCheck] = []
        if offset_index is not None:
            self._offsets = OffsetIndexCheck(offset_index, time_index=time_index, interval_bytes=interval_bytes)
            self.checks.append(self._offsets)
        if time_index is not None:
            self._times = TimeIndexCheck(time_index, offset_index=offset_index, is_last=segment.is_last)
            self.checks.append(self._times)

    def report(self, end: int, size: int, largest: int, findings: Findings) -> None:
        """Add what is wrong with both indexes, unless a limit ended the reading: what they name may be in the rest."""
        if not any(one.is_limit for one in findings.rows):
            for finding in (*self.of_offsets(end, size), *self.of_times(end, size, largest)):
                findings.add(finding)

    def of_offsets(self, end: int, size: int) -> list[Finding]:
        """What is wrong with the offset index of a log whose batches end at a position."""
        segment, index, time_index = self._segment, self._offset_index, self._time_index
        if index is not None:
            # a running broker may trim both indexes after one of them was read
            is_normal = self._is_open and (
                self._around.is_live or time_index is None or _were_preallocated(index, time_index)
            )
            return [*index.findings(), *index.padding_findings(is_last=is_normal), *self._offsets.finish(size)]
        if end and segment.has_base_offset and not segment.has_sidecar(kf.INDEX_SUFFIX):
            what = "a broker rebuilds all indexes of the segment"
            return [_missing(segment, kf.INDEX_SUFFIX, what, damage=False)]
        return []

    def of_times(self, end: int, size: int, largest: int) -> list[Finding]:
        """What is wrong with the time index of a log with this largest timestamp."""
        segment, index = self._segment, self._time_index
        if index is not None:
            used = index.dtype.itemsize if self._times.starts_with_zeros else 0
            padding = index.padding_findings(is_last=self._is_open, used=used)
            return [*index.findings(), *padding, *self._times.finish(min(end, size) if segment.is_last else size)]
        if self._offset_index is not None and largest > 0 and not segment.has_sidecar(kf.TIME_INDEX_SUFFIX):
            # the first batch of a new segment may be written before its time index is created
            what = "a broker creates an empty one, and then finds no times in the segment"
            return [_missing(segment, kf.TIME_INDEX_SUFFIX, what, damage=not self._is_open)]
        return []


class _Epochs:
    """Records where the leader epoch changes, and reports where it falls, which no broker writes."""

    def __init__(self, segment: Segment, add: Callable[[Finding], None]) -> None:
        self._segment, self._add = segment, add
        self._last = -1
        self._n = 0
        self._parts: list[npt.NDArray[np.int64]] = []

    def feed(self, batches: BatchTable) -> None:
        rows = np.flatnonzero(batches.magic >= 2)
        epoch = batches.partition_leader_epoch[rows].astype(np.int64)
        if not rows.size:
            return
        fallen = falling_epoch(batches, self._last, str(self._segment.path))
        if fallen is not None:
            self._add(fallen)
        before = np.concatenate([[self._last], epoch[:-1]])
        changes = np.flatnonzero(epoch != before)
        if self._n < _EPOCHS and changes.size:
            self._n += changes.size
            self._parts.append(np.stack([epoch[changes], batches.base_offset[rows[changes]]], axis=1))
        self._last = int(epoch[-1])

    def changes(self) -> npt.NDArray[np.int64]:
        """Return the changes, int64[n, 2]: leader epoch and first offset."""
        return np.concatenate([np.empty((0, 2), np.int64), *self._parts])[:_EPOCHS]


def open_index(
    kind: type[AnyIndex], segment: Segment, add: Callable[[Finding], None], *, is_live: bool = False
) -> AnyIndex | None:
    """Like `Segment.index_or_none`, but read whole, and again while a running broker changes it."""

    def attempt() -> AnyIndex | KafkalogError | None:
        try:
            return segment.read_index(kind, is_bounded=False, is_live=is_live)
        except KafkalogError as error:
            return error

    # a running broker truncates the index when it rolls, and deletes it with its segment
    index = settled(attempt, lambda found: not isinstance(found, (FileChangedError, ReadError)), is_live=is_live)
    if isinstance(index, KafkalogError):
        add(index.to_finding(damage=not (is_live and isinstance(index, FileChangedError))))
        return None
    if index is not None and len(index) > segment.max_index_entries and segment.error is None:
        # a broker may have written since the segment was opened: the log as it is now, after the reading of the index
        most = max_index_entries(size_of(segment.path))
        if len(index) > most:
            detail = f"overfull: {len(index)} entries, but the .log has room for {most - 2} batches"
            add(Finding(Reason.INDEX_SIZE, detail, path=index.path, base_offset=segment.base_offset))
    return index


def _were_preallocated(offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
    """Whether both files have the size that the same `segment.index.bytes` gives them, or the time index has none yet.

    A broker preallocates both indexes and later trims both, the offset index first. Zeros at the end of the offset
    index alone therefore have another cause. It makes the time index last, and then gives it its size: one that is
    killed in between leaves no bytes of it. A time index that was trimmed has an entry.
    """
    if not (len(time_index) or time_index.padding_bytes or time_index.odd_bytes):
        return True
    sizes = []
    for index in (offset_index, time_index):
        entry = index.dtype.itemsize
        sizes.append((len(index) * entry + index.padding_bytes + index.odd_bytes, entry))
    return max(size for size, _ in sizes) < min(size + entry for size, entry in sizes)


def _missing(segment: Segment, suffix: str, consequence: str, *, damage: bool) -> Finding:
    path = str(segment.sidecar_path(suffix))
    return Finding(
        Reason.INDEX_MISSING, f"there is none; {consequence}", path=path, base_offset=segment.base_offset, damage=damage
    )
