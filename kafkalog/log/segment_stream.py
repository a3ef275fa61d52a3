"""Reads the windows of one segment; damage is raised, ends the segment, or is skipped.

To skip damage, `searching.resynchroniser` looks for the next intact batch. Records are not decoded here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import (
    Certainty,
    CorruptionError,
    FileChangedError,
    Finding,
    KafkalogError,
    Limits,
    OnCorruption,
    Reason,
    TruncatedTailError,
)
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.log.searching.consistent_batches import first_offset_at
from kafkalog.log.searching.copies import HeaderEnd, Original, Originals
from kafkalog.log.searching.odd_offsets import Witnesses, odd_end, odd_end_error, offset_at, offsets_from
from kafkalog.log.searching.resync import INSIDE
from kafkalog.log.searching.resynchroniser import Resynchroniser
from kafkalog.records.batch_table import HIDDEN, BatchTable, RecordRun, Window, valid_crcs
from kafkalog.records.header import BatchHeader, claims_of
from kafkalog.records.header_walk import (
    LINKED,
    WINDOW_AFTER_DAMAGE,
    WINDOW_BYTES,
    intact_batch_at,
    search_batches,
    walk,
    window_of,
)
from kafkalog.records.readers.batch_reader import BatchReader, walk_checked, walk_with
from kafkalog.storage.location import Place
from kafkalog.storage.source import ByteSource


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Bytes of a segment, from one batch up to another."""

    name: str
    """Name of the `.log`."""
    size_in_bytes: int
    """Size of the file when the read was planned."""
    start: int
    stop: int
    """Positions in the file. `stop` is where the next part starts, or the size of the file."""
    first_offset: int
    """Base offset of the batch at `start`; the segment's base offset if `start` is 0."""
    is_last: bool = False
    """Whether the segment is the partition's last one. It may grow, and a partial batch at its end is normal."""
    is_preallocated: bool = False
    """Whether a roll may cut zeros from the end of the file."""
    etag: str | None = None
    """Version of an object in a store, when the read was planned."""

    def check_start(self, window: Window, path: Place) -> None:
        """Raise if a window at the start does not begin with the batch that was there when the read was planned."""
        if window.start == self.start > 0 and window.batches.first_offset != self.first_offset:
            detail = f"a batch of offset {self.first_offset} was here when the read was planned; plan again"
            raise FileChangedError(Reason.FILE_CHANGED, detail, path=path, position=window.start)

    def explain(self, error: KafkalogError) -> KafkalogError:
        """The error; a batch that is cut by the end of the part is damage, since an intact one begins there."""
        is_cut = isinstance(error, TruncatedTailError) or error.reason is Reason.SIZE_EXCEEDS_FILE
        if not is_cut or self.stop == self.size_in_bytes:
            return error
        detail = f"the batch here would reach beyond position {self.stop}, where an intact one begins"
        return CorruptionError.about(error, detail, reason=Reason.SIZE_EXCEEDS_FILE)


class SegmentFile(Protocol):
    """The part of `Segment` that a stream uses."""

    path: Place
    base_offset: int
    part: SegmentRange | None
    is_last: bool
    limits: Limits
    findings: list[Finding]

    @property
    def offset_hint(self) -> OffsetIndex | None: ...
    @property
    def next_base_offset(self) -> int | None: ...
    def witnesses(self) -> Witnesses: ...
    def is_batch_at(self, source: ByteSource, position: int, offset: int) -> bool: ...
    def earlier(self, n: int) -> Sequence[SegmentFile]: ...
    def later(self, n: int) -> Sequence[SegmentFile]: ...
    def find_offsets(self, offsets: npt.ArrayLike) -> npt.NDArray[np.void]: ...
    def open(self) -> contextlib.AbstractContextManager[ByteSource]: ...
    def reopened(self) -> SegmentFile: ...


class StreamOptions(TypedDict, total=False):
    """The keyword arguments of `SegmentStream`."""

    on_corruption: OnCorruption
    report: Callable[[Finding], None]
    window_bytes: int
    first_window_bytes: int | None
    checked: bool
    reader: BatchReader | None
    follows: int | None
    goes_on: bool


class SegmentStream:
    """Windows of one segment; damage is handled according to `on_corruption`.

    The first offset must be above `previous` (default: the offset before the base offset). Of `first_window_bytes`, if
    few may be wanted, the window doubles each time. With `checked`, windows come with checked checksums, and without
    bytes if all are correct (`walk_checked`). `reader` reads the good batches (`walk_with`). `follows` is the position
    of the batch before the one where reading starts, if it was read and `previous` is its last offset. `goes_on` is
    False if the reader ends at damage and this stream only looks ahead; then findings lack the number of skipped bytes.
    A batch that an earlier segment also has is not returned again.

    Afterwards `previous` is the last offset seen, `end_offset` the offset after the last batch (None if damage hides
    it), and `stopped` says that damage ended the reading of the segment and the partition.
    """

    def __init__(
        self,
        segment: SegmentFile,
        source: ByteSource,
        previous: int | None = None,
        *,
        on_corruption: OnCorruption = "raise",
        report: Callable[[Finding], None] = lambda finding: None,
        window_bytes: int = WINDOW_BYTES,
        first_window_bytes: int | None = None,
        checked: bool = False,
        reader: BatchReader | None = None,
        follows: int | None = None,
        goes_on: bool = True,
    ) -> None:
        self.segment, self.source, self.report = segment, source, report
        self._on_corruption = on_corruption
        unread = walk if reader is None else partial(walk_with, reader)
        self._walk: Callable[..., Iterator[Window]] = walk_checked if checked else unread
        self._window_bytes, self._first_window_bytes = window_bytes, first_window_bytes
        self._reads_all = reader is None
        self.previous = segment.base_offset - 1 if previous is None else previous
        self._read_before = self.previous + 1  # the segments before have the offsets up to here
        self.end_offset: int | None = None
        self.stopped = False
        self._last_position = follows
        self._before: int | None = None
        self._before_last = self.previous  # the last offset before the batch at `_last_position`
        self._witnesses = cache(segment.witnesses)  # listed once: it reads the directory
        self._start = 0
        self._follows, self._goes_on = follows, goes_on
        self._gone_back_at = self._after_copy = -1
        self._lost: list[tuple[int, int]] = []
        self._lost_to = -1
        self._returned_to = -1  # the last offset that was returned before offsets went back

    def windows(self, start: int = 0) -> Iterator[Window]:
        """Windows from a batch boundary on. A partial last batch of the last segment ends them, and is reported."""
        segment, source = self.segment, self.source
        segment.findings = []
        self._start = start if segment.part is None else max(start, segment.part.start)
        if source.fetches_ranges and self._reads_all and self._first_window_bytes is None:
            source.plan(self._start, source.size)
        position: int | None = self._start
        while position is not None:
            # after a jump the previous offset is not known: it is no evidence against the first batch
            is_known = not position or (self._follows is not None and position == start) or position == self._after_copy
            self._before = self.previous if is_known else None
            try:
                for window in self._walk_on(
                    source,
                    start=position,
                    previous_offset=self.previous,
                    window_bytes=self._window_bytes,
                    first_window_bytes=self._first_window_bytes,
                    limits=segment.limits,
                ):
                    if window.run is not None:  # its ends were compared during the read
                        if segment.part is not None:
                            segment.part.check_start(window, segment.path)
                        yield window
                        self._reach(window.run)
                        del window
                        continue
                    window, odd = self._checked(window, position)
                    self._reach(window.batches)
                    yield window
                    if odd is not None:
                        raise odd
                    del window  # its memory can be reused for the next one
                position = None
            except KafkalogError as error:
                error = self._over_copies(error)
                if isinstance(error, TruncatedTailError) and segment.is_last:
                    segment.findings = [error.to_finding(damage=False)]
                    self.report(segment.findings[0])
                    break
                position = self._after(error)
                if position is None:
                    return
                # continue in small windows: more damage is likely nearby
                self._first_window_bytes = WINDOW_AFTER_DAMAGE
        self.previous = max(self.previous, self._returned_to)
        self.end_offset = max(self.previous + 1, segment.base_offset)

    def _reach(self, batches: BatchTable | RecordRun) -> None:
        """Batches are read: the next ones have higher offsets."""
        self._before_last = self.previous
        if isinstance(batches, BatchTable) and batches.last_offset.size > 1:
            self._before_last = int(batches.last_offset[-2])
        self.previous = self._before = batches.end_offset - 1
        self._last_position = batches.last_position

    def _odd(self, window: Window) -> tuple[Window, CorruptionError | None]:
        """A window up to a batch that is a copy, or has an odd offset, and the error about it; None for neither."""
        copy = self._first_copy(window)
        ahead, is_before_copy = self._first_ahead(window)
        copy = ahead if copy is None else copy
        if copy is not None:
            window = self._first(window, copy + 1)
            return window, odd_end_error(window, Reason.OFFSET_ORDER, self.segment.path)
        reason = odd_end(window, self.source, self._before, self.segment.limits.max_batch_bytes, self._witnesses)
        if reason is Reason.OFFSET_ORDER and is_before_copy:
            # a copy is no evidence against the batch before it; the next segment is
            reason = reason if self._witnesses().exclude(window.batches.end_offset - 1) else None
        return window, None if reason is None else odd_end_error(window, reason, self.segment.path)

    def _checked(self, window: Window, position: int) -> tuple[Window, CorruptionError | None]:
        """A window up to a batch with an odd offset, and the error to raise after it; raises if nothing is left."""
        segment, before = self.segment, self._before
        window, odd = self._odd(window)
        is_sound = window.valid is not None and (window.records is not None or window.valid.all())
        if odd is None and not is_sound and self._on_corruption == "skip":
            row = self._resynchroniser.leading_astray(window)
            if row is not None:
                window = self._first(window, row + 1)
                odd = odd_end_error(window, Reason.CRC_MISMATCH, segment.path)
        if odd is not None:
            if len(window.batches) == 1:
                raise odd
            window = self._first(window, len(window.batches) - 1)
        if segment.part is not None:
            segment.part.check_start(window, segment.path)
        self._report_returned(window)
        if self._lost:
            self._report_found_again(window)
        is_behind_damage = before is None and position > self._start
        return Window(*window[:-1], HIDDEN if is_behind_damage else before), odd

    def _report_returned(self, window: Window) -> None:
        """Report damaged batches of which an intact copy was returned before: they lose nothing."""
        if self._on_corruption != "skip" or self.previous >= self._returned_to:
            return
        window = with_bytes(self.source, window)
        for row in np.flatnonzero(~valid_crcs(window)).tolist():
            batch = window.batches[row : row + 1]
            first, last, position = batch.first_offset, int(batch.last_offset[0]), int(batch.position[0])
            if self._originals.have(first, last + 1, position):
                detail, count = "an intact copy of this damaged batch is returned", int(batch.records_count[0])
                copy = Finding(Reason.CRC_MISMATCH, detail, str(self.segment.path), position)
                copy = replace(copy, base_offset=first, last_offset=last, n_records=0, certainty="exact")
                self.report(replace(copy, n_returned=count if count >= 0 else last - first + 1))

    def _report_found_again(self, window: Window) -> None:
        """Report batches whose offsets are lost already: damage to their originals loses nothing."""
        last = window.batches.last_offset
        for row in np.flatnonzero(last <= self._lost_to).tolist():
            batch = window.batches[row : row + 1]
            position, count = int(batch.position[0]), int(batch.records_count[0])
            if position != self._gone_back_at and self._is_lost(batch) and self._batch_at(position) is not None:
                detail = "the only intact copy of a damaged batch, so it is read"
                found = Finding(Reason.OFFSET_ORDER, detail, str(self.segment.path), position, n_records=0)
                found = replace(found, base_offset=batch.first_offset, last_offset=int(last[row]), certainty="exact")
                self.report(replace(found, n_returned=count if count >= 0 else int(last[row]) - batch.first_offset + 1))

    def _is_lost(self, batch: BatchTable) -> bool:
        """Whether the offsets of a batch are among those that were lost."""
        first, last = batch.first_offset, int(batch.last_offset[0])
        return any(start <= first and last <= end for start, end in self._lost)

    @property
    def _walk_on(self) -> Callable[..., Iterator[Window]]:
        """The walk that continues after damage: one batch at a time where batches may be copies of others."""
        is_among_copies = self.previous < self._returned_to or (self._lost and self._originals.passed_over)
        return walk if is_among_copies else self._walk

    def _first_copy(self, window: Window) -> int | None:
        """The number of the first batch that was returned before offsets went back; None for none."""
        batches = window.batches
        if self._on_corruption != "skip" or self.previous >= self._returned_to:
            return None
        for row in np.flatnonzero(batches.last_offset <= self._returned_to).tolist():
            position = int(batches.position[row])
            batch = None if position == self._gone_back_at else self._batch_at(position)
            if batch is not None and self._originals.of(batch) is not None:
                return int(row)
        return None

    def _first_ahead(self, window: Window) -> tuple[int | None, bool]:
        """The number of the first batch that is a copy before its original: lower offsets come in between.

        None if there is none. Also returns whether the batch after the window is a copy of an earlier one, intact or
        damaged.
        """
        end, last = window.batches.end_position, window.batches.end_offset - 1
        following = offset_at(self.source, end, window) if self._on_corruption == "skip" else None
        follower = None if following is None or following > last else self._batch_at(end)
        if follower is None or follower.batches.first_offset > last:
            return None, False
        offsets = follower.batches.first_offset, int(follower.batches.last_offset[0])
        if self._originals.of(follower) is not None or offsets in self._lost:
            return None, True
        row = int(np.flatnonzero(window.batches.last_offset >= follower.batches.first_offset)[0])
        both = [self._batch_at(int(window.batches.position[one])) for one in (row, -1)]
        if not all(batch is not None and self._originals.is_again_after(batch, end) for batch in both):
            return None, False
        return row, False

    def _over_copies(self, error: KafkalogError) -> KafkalogError:
        """The error; that about an incomplete last batch becomes damage if a copy of another batch comes after it."""
        start, source = error.position, self.source
        if not isinstance(error, TruncatedTailError) or error.reason is not Reason.PARTIAL_TAIL or start is None:
            return error
        for position, *_, kind in search_batches(
            source, start, source.size, is_damaged=True, limits=self.segment.limits
        ):
            for at in position[(kind != LINKED) & (kind != INSIDE)].tolist():
                batch = self._batch_at(at)
                if batch is not None and self._originals.of(batch) is not None:
                    detail = f"{error.detail}, but copies of other batches come after it"
                    return CorruptionError.about(error, detail, reason=Reason.SIZE_EXCEEDS_FILE)
        return error

    def _after(self, error: KafkalogError) -> int | None:
        """Position at which to continue after damage, None if nothing follows; raises unless damage is skipped."""
        explained = self._explained(error)
        if self._on_corruption == "raise" or explained.position is None:
            if explained is error:
                raise error
            raise explained from None
        return self._go_on(explained, explained.position)

    def _explained(self, error: KafkalogError) -> KafkalogError:
        """The error with what is known about the segment."""
        base_offset, part = self.segment.base_offset, self.segment.part
        if error.reason is Reason.OFFSET_ORDER and (error.base_offset or 0) < base_offset:
            error.reason = Reason.OFFSET_OUTSIDE_SEGMENT
            error.detail = f"the segment begins at offset {base_offset}"
        return error if part is None else part.explain(error)

    def _first(self, window: Window, n: int) -> Window:
        """The first batches of a window. Records that were read with them are decoded again from the bytes."""
        return with_bytes(self.source, window._replace(batches=window.batches[:n])).first(n)

    def _go_on(self, error: KafkalogError, where: int) -> int | None:
        """Report the damage, and return where to continue; None if this segment has no more batches."""
        if self._on_corruption == "stop":
            self.stopped = True
            self.report(replace(error.to_finding(), base_offset=self.previous + 1))
            return None
        odd_offset = error.reason in (Reason.OFFSET_ORDER, Reason.OFFSET_OUTSIDE_SEGMENT)
        if odd_offset:
            batch = self._batch_at(where)
            if batch is not None:
                return self._pass_over(error, batch)
        first = self.previous + 1
        behind, last = where, self._last_position
        if last is not None and not self.segment.is_batch_at(self.source, last, kf.MAX_OFFSET):
            # The batch before this one is damaged too. Its length led here, so this position may be wrong.
            behind = last
            self.previous = self._before_last  # the offset of a damaged batch proves nothing
        position = self._behind_too_large(error) or self._resynchroniser.after(behind)
        self._last_position = None
        end = self.source.size if position is None else position
        length = max(end - where, 0)
        passed = f"{length} bytes skipped" + (" to the end of the segment" if position is None else "")
        finding = replace(error.to_finding(), detail=f"{error.detail}; {passed}", length=length)
        finding = self._lost_between(finding, where, first, position)
        if finding.n_records != 0 and finding.base_offset is not None and finding.last_offset is not None:
            self._lost.append((finding.base_offset, finding.last_offset))
            self._lost_to = max(self._lost_to, finding.last_offset)
        if not self._goes_on:
            finding = replace(finding, detail=error.detail, base_offset=error.base_offset)
        self.report(finding)
        return position

    def _behind_too_large(self, error: KafkalogError) -> int | None:
        """Position of the intact batch after one above the size limit, whose inside is not searched."""
        if error.reason is not Reason.BATCH_TOO_LARGE or error.position is None or error.length is None:
            return None
        position = error.position + error.length
        return None if self._batch_at(position) is None else position

    @cached_property
    def _originals(self) -> Originals:
        return Originals(self.segment, self.source)

    @cached_property
    def _resynchroniser(self) -> Resynchroniser:
        segment, witnesses = self.segment, self._witnesses
        return Resynchroniser(
            self.source,
            start=self._start,
            base_offset=segment.base_offset,
            end_offset=lambda: witnesses().next_base_offset,
            limits=segment.limits,
        )

    def _lost_between(self, finding: Finding, where: int, first: int, position: int | None) -> Finding:
        """The finding about skipped bytes, with the offsets and the number of records that they may have held."""
        end, damaged = self._end_of_loss(where, first, position)
        if end is None:
            return replace(finding, base_offset=first)
        if end < first:
            # either batches that belong behind it are read already, or the damaged batch before it, whose header is
            # wrong, has a finding about these offsets
            first = max(self._originals.end_below(end, where, self.segment.base_offset), self._read_before)
            if first >= end:
                return replace(finding, n_records=0, certainty="at_most")
        n = end - first
        is_there = self.previous < self._returned_to and self._originals.have(first, end, where)
        if not n or is_there:
            return replace(finding, base_offset=first, n_records=0, certainty="exact")
        certainty: Certainty = "at_most"
        n_markers = 0
        data = self.source.window(where, min(where + kf.RECORD_BATCH_OVERHEAD, self.source.size))
        claims = claims_of(BatchHeader(data))
        self.source.release(data, where)
        # a header that fits exactly between its neighbours is taken as intact; without gaps its count is exact
        if claims and claims[:2] == (first, end - 1) and 0 < claims.records_count <= n:
            is_exact = claims.records_count == n if damaged is None else damaged.is_whole
            certainty, n = "exact" if is_exact else "header", claims.n_records
            n_markers = int(claims.is_marker)
        found = replace(finding, base_offset=first, last_offset=end - 1, n_records=n, certainty=certainty)
        return replace(found, n_markers=n_markers)

    def _end_of_loss(self, where: int, first: int, position: int | None) -> tuple[int | None, HeaderEnd | None]:
        """The offset after the last record that damaged bytes may have held, and the batch that proves it."""
        if position is not None:
            return first_offset_at(self.source, position, self.segment.limits), None
        if self.segment.next_base_offset is not None:
            return self.segment.next_base_offset, None
        damaged = self._originals.damaged_end(where, first, self.segment.limits)
        # a copy whose size alone is wrong lost nothing
        return None if damaged is None else max(damaged.last_offset + 1, first), damaged

    def _batch_at(self, position: int) -> Window | None:
        window, _ = intact_batch_at(self.source, position, self.segment.limits.max_batch_bytes)
        return window

    def _pass_over(self, error: KafkalogError, window: Window) -> int:
        """Report an intact batch whose offset is out of order, and return where to continue.

        The batch is skipped if it is the only one, or a copy of an earlier batch. If the batches after it continue from
        its offset, it is read.
        """
        batch, where = window.batches, window.start
        behind = int(batch.next_position[0])
        original = self._originals.of(window, self._last_position)
        following = offsets_from(self.source, behind)
        self.source.release(window.data, where)
        finding = replace(error.to_finding(), length=behind - where, n_records=0, certainty="exact")
        first, last = batch.first_offset, int(batch.last_offset[0])
        # if exactly its number of offsets is missing here, it is not a copy, but its offset may be damaged
        is_missing = bool(following) and following[0] - self.previous - 1 == last - first + 1
        detail = self._copy_of(window, original, is_missing=is_missing)
        if detail is not None:
            detail = f"a copy of {detail}; it is returned once"
            self.report(replace(finding, detail=detail, base_offset=first, last_offset=last))
            self._after_copy = behind
            return behind
        if original is None and not is_missing and self._is_new(first, last, where, following):
            self._go_back(replace(finding, base_offset=first, last_offset=last), error, batch)
            return where
        # report a batch once, although each later batch that goes back would report it again
        is_back = first <= self.previous and where != self._gone_back_at
        if is_back and 2 * sum(offset > self.previous for offset in following) < len(following):
            self._gone_back_at, self._returned_to = where, max(self._returned_to, self.previous)
            self.report(
                replace(finding, detail=f"{error.detail}; later batches continue from its offset, so it is read")
            )
            self.previous = first - 1
            return where
        self.report(self._skipped(error, finding, batch, following, is_copied=original is not None))
        return behind

    def _copy_of(self, window: Window, original: Original | None, *, is_missing: bool) -> str | None:
        """The batch of which a window has a copy that is not returned, in words; None for none."""
        first = window.batches.first_offset
        is_repeated = original is not None and self.previous < first <= self._returned_to
        if (
            original is None
            and first > self.previous
            and self._originals.is_again_after(window, window.batches.end_position)
        ):
            self._originals.passed_over.add(window.start)
            return "a batch that comes later, after lower offsets"
        if original is None or (is_missing and not is_repeated):
            return None
        if is_repeated:  # the first batches of a copied range alone were new
            self.previous = self._returned_to
        segment = self._originals.segments[original.number]
        place = "" if segment.path == self.segment.path else f" of {segment.path.name}"
        return f"the batch at position {original.position}{place}"

    def _is_new(self, first: int, last: int, where: int, following: list[int]) -> bool:
        """Whether a batch at a position has the only intact copy of its offsets, and other batches confirm these."""
        if (
            where == self._gone_back_at
            or first < self.segment.base_offset
            or not self._originals.are_new(first, last, where)
        ):
            return False
        is_lost = (first, last) in self._lost
        return is_lost or following[:1] == [last + 1] or self._originals.is_damaged_before(first, last, where)

    def _go_back(self, finding: Finding, error: KafkalogError, batch: BatchTable) -> None:
        """Read a batch whose offsets are lower: what damage to its original lost is there again."""
        first, last, where = batch.first_offset, int(batch.last_offset[0]), int(batch.position[0])
        self._gone_back_at, self._returned_to = where, max(self._returned_to, self.previous)
        self.previous = first - 1
        detail = f"{error.detail}; no batch before has its offsets, so it is read"
        if self._is_lost(batch) or self._originals.is_damaged_before(first, last, where):
            detail = f"{error.detail}; the only intact copy of a damaged batch, so it is read"
            count = int(batch.records_count[0])
            finding = replace(finding, n_returned=count if count >= 0 else last - first + 1)
        self.report(replace(finding, detail=detail))

    def _skipped(
        self, error: KafkalogError, finding: Finding, batch: BatchTable, following: list[int], *, is_copied: bool
    ) -> Finding:
        """The finding about an intact batch that is not read, since its offset is wrong."""
        first, last, behind = batch.first_offset, int(batch.last_offset[0]), int(batch.next_position[0])
        if last < self.previous and following[:1] == [last + 1]:
            # the next batch continues its offsets, so they are right: the damage to its original is reported already
            detail = f"{error.detail}; a copy of a damaged batch, {finding.length} bytes skipped"
            return replace(finding, detail=detail, base_offset=first, last_offset=last)
        end = min(
            self._end_of_gap(behind, following, self.previous + 2 + last - first),
            max(self.segment.next_base_offset or kf.MAX_OFFSET, self.previous + 1),
        )
        is_marker = bool(batch.is_control[0] and batch.is_transactional[0] and batch.records_count[0])
        n, most = int(batch.n_user_records[0]), end - self.previous - 1
        lost = replace(
            finding,
            detail=f"{error.detail}; {finding.length} bytes skipped",
            base_offset=self.previous + 1,
            last_offset=end - 1,
            n_records=n if 0 <= n <= most else most,
            certainty="exact" if 0 <= n <= most and not is_copied else "at_most",
            n_markers=int(is_marker and most > 0 and not is_copied),
        )
        # a segment may be named above its first batches, whose offsets it then lacks from the beginning
        is_named_above = max(self.previous, last) < self.segment.base_offset and following[:1] <= [self.previous]
        if error.reason is Reason.OFFSET_OUTSIDE_SEGMENT and is_named_above:
            lost = replace(lost, last_offset=None, n_records=0, n_markers=0)
        return lost

    def _end_of_gap(self, behind: int, following: list[int], default: int) -> int:
        """The first offset of the next batch; the default if there is none, or its offset does not increase."""
        if not following:
            return default
        # the header of a compressed message has its last offset
        after = first_offset_at(self.source, behind, self.segment.limits)
        after = following[0] if after is None else after
        return after if after > self.previous else default


def with_bytes(source: ByteSource, window: Window) -> Window:
    """The window without the records that were read with it, but with the bytes to decode them again."""
    if window.records is not None and not window.data.size:
        window = window._replace(data=window_of(source, window.start, window.batches.end_position))
    return window._replace(records=None)
