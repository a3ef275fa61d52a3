"""Finds parts that are missing from the middle of a `.log`, by the entries of its offset index.

A file system that lost a range of pages, or a tool that skipped a block, leaves two intact batches next to each other,
with a jump in their offsets. The log cleaner leaves such jumps, too, but writes an index with the positions of the new
file. So all entries after a jump that point past their batches by one distance prove that bytes were cut out there.

A garbled index proves nothing: its entries must rise, and two of them at least must agree on the cut. Nor does an old
one, whose distances grow with each jump: in a segment that the cleaner may have rewritten, entries on both sides of
another jump must agree, so that the index is of this file.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.log.searching.consistent_batches import first_offset_at
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import valid_crcs
from kafkalog.records.header_walk import intact_headers_at
from kafkalog.storage.files import size_if_there
from kafkalog.storage.source import ByteSource

Numbers = npt.NDArray[np.int64]

_MOST_CUTS: Final = 8
"""An index that needs more cuts to fit is of another log."""
_MOST_DISTANCES: Final = 256
"""Batches before that of an entry which may have begun the append that the entry is for."""


class MissingPart(NamedTuple):
    """Whole batches that are gone from a place in a `.log`."""

    start: int
    end: int
    """Offsets between the batches around it; `end` is exclusive."""
    position: int
    """Position of the batch after it."""
    n_offsets: int
    """Offsets that no batch has there: fewer than `end - start` if it is one of several jumps, which is not known."""


class MissingParts(NamedTuple):
    """What is gone from the middle of a segment, and what is left of it."""

    parts: list[MissingPart]
    has_gaps: bool
    """Whether offsets are missing inside of batches, or elsewhere between two of them."""


def missing_parts(
    segment: Segment, opened: ByteSource | None, was_cleaned: Callable[[], bool | None]
) -> MissingParts | None:
    """The cuts that the offset index of a segment proves; None for none. It is read from `opened`, if given.

    `was_cleaned` returns whether the log cleaner may have rewritten the segment, None if that is not known; it is
    called only if the index does not fit. A healthy segment costs one entry of its index and the batch there.
    """
    if not segment.has_base_offset or segment.part is not None:
        return None
    if not size_if_there(segment.sidecar_path(kf.INDEX_SUFFIX)):
        return None
    try:
        index = segment.read_index(OffsetIndex)
        if index is None or not len(index):
            return None
        with segment.open() if opened is None else contextlib.nullcontext(opened) as source:
            if _is_fitting(segment, source, index):
                return None
            offset, position = index.offset, index.position
            if not (np.all(np.diff(offset) > 0) and np.all(np.diff(position) > 0)):
                return None
            times = segment.index_or_none(TimeIndex)
            timed = np.empty(0, np.int64) if times is None or np.any(np.diff(times.offset) <= 0) else times.offset
            proof = _Proof(_IntactBatches.of(segment, source), offset, position, timed)
    except KafkalogError:
        return None  # its check reports what cannot be read
    return proof.parts(was_cleaned)


def _is_fitting(segment: Segment, source: ByteSource, index: OffsetIndex) -> bool:
    """Whether the last entry of an index is for the batch at its position. After a cut, it points past its batch."""
    offset, position = int(index.offset[-1]), int(index.position[-1])
    batch = intact_headers_at(source, position, segment.limits.max_batch_bytes)
    if batch is None:
        return False
    # a compressed message of v0 or v1 hides its first offset
    return (batch.first_offset if batch.first_offset >= 0 else int(batch.last_offset[0])) <= offset


class _IntactBatches(NamedTuple):
    """The intact batches of a segment."""

    position: Numbers
    first: Numbers
    last: Numbers
    before: Numbers
    """The last offset before each batch."""
    follows: npt.NDArray[np.bool_]
    """Whether it begins where the batch before it ends."""
    is_sparse: npt.NDArray[np.bool_]
    """Whether it lacks offsets."""

    @classmethod
    def of(cls, segment: Segment, source: ByteSource) -> _IntactBatches:
        parts = [np.empty((4, 0), np.int64)]
        for window in segment.iter_windows(source, on_corruption="skip"):
            batches = window.batches[np.flatnonzero(valid_crcs(window))]
            last, n = batches.last_offset, batches.records_count
            is_sparse = (batches.magic >= 2) & (n <= last - batches.base_offset)
            size = np.where(is_sparse, -1, 1) * batches.size_in_bytes
            base = batches.base_offset.astype(np.int64)
            for row in np.flatnonzero(base < 0).tolist():  # a compressed message of v0 or v1 hides its first offset
                inside = first_offset_at(source, int(batches.position[row]), segment.limits)
                base[row] = -1 if inside is None else inside
            parts.append(np.stack([batches.position, base, last, size]).astype(np.int64))
            source.release(window.data, window.start)
        position, first, last, size = np.concatenate(parts, axis=1)
        before = np.concatenate([[segment.base_offset - 1], last])[: last.size]
        ends = np.concatenate([[0], position + np.abs(size)])[: last.size]
        return cls(position, np.where(first < 0, before + 1, first), last, before, position == ends, size < 0)

    @property
    def jumps(self) -> npt.NDArray[np.bool_]:
        """Whether offsets are missing before each batch, and no bytes are damaged there."""
        return self.follows & (self.first > self.before + 1)

    def at(self, position: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """The batches at positions, and whether one begins there."""
        row = np.minimum(np.searchsorted(self.position, position), max(self.position.size - 1, 0))
        return row, self.position[row] == position if self.position.size else np.zeros(position.size, np.bool_)


class _Region(NamedTuple):
    """Consecutive entries that point past their batches by one distance."""

    begin: int
    end: int
    """Numbers of the entries."""
    distance: int
    is_sure: bool
    """Whether no other distance fits."""


class _Best(NamedTuple):
    """The distance that explains most entries from one on."""

    begin: int
    distance: int
    n_entries: int
    is_sure: bool


class _Proof:
    """Compares the entries of an offset index with the batches, and finds what moved them."""

    def __init__(self, rows: _IntactBatches, offset: Numbers, position: Numbers, timed: Numbers) -> None:
        self._rows, self._timed = rows, timed
        row = np.searchsorted(rows.last, offset)
        is_there = row < rows.last.size
        is_there[is_there] = rows.first[row[is_there]] <= offset[is_there]
        self._offset, self._position, self._row = offset[is_there], position[is_there], row[is_there]
        # where bytes are damaged, or after the end, other findings tell of the batches that are gone
        is_gone = ~is_there & np.append(rows.jumps, False)[row]
        self._gone, self._gone_at = offset[is_gone], position[is_gone]

    def parts(self, was_cleaned: Callable[[], bool | None]) -> MissingParts | None:
        """The missing parts that the index entries prove; None if they prove none."""
        rows = self._rows
        regions = self._regions() if rows.last.size else None
        places = None if regions is None else self._places(regions)
        if regions is None or not places:
            return None
        is_cut = np.zeros(rows.last.size, np.bool_)
        for place in places:
            is_cut[place] = place.size == 1
        has_gaps = bool((rows.is_sparse | (rows.jumps & ~is_cut)).any())
        if not self._is_of_this_log(regions, len(places), was_cleaned(), has_gaps=has_gaps):
            return None
        return MissingParts([self._part(place) for place in places], has_gaps)

    def _is_of_this_log(self, regions: list[_Region], n_parts: int, is_cleaned: bool | None, *, has_gaps: bool) -> bool:
        """Whether the index is as old as the file, and not of the log before the cleaner came."""
        if is_cleaned is False:
            return True
        if n_parts > 1:
            return False
        if is_cleaned is None and not has_gaps:
            return True
        return all(one.is_sure or self._is_strict(one) for one in regions) and self._spans_gap(regions)

    def _regions(self) -> list[_Region] | None:
        """All entries whose batches are there, by their distances; None if no few distances explain them."""
        found: list[_Region] = []
        begin, distance, is_sure = 0, 0, True
        while True:
            end = begin + self._n_fitting(begin, distance, len(self._offset))
            if found or end > begin:
                found.append(_Region(begin, end, distance, is_sure))
            if end == len(self._offset):
                return found
            if len(found) > _MOST_CUTS:
                return None
            # an append of several batches may begin among those that are gone, and end after them
            best = max(self._best_distance(end), self._best_distance(end + 1), key=lambda one: one.n_entries)
            if not best.n_entries:
                return None
            begin, distance, is_sure = best.begin, best.distance, best.is_sure

    def _n_fitting(self, begin: int, distance: int, end: int) -> int:
        """How many entries from one on point past their batches by a distance.

        An entry has the last offset of an append, and the position of its first batch. The appends before it have lower
        offsets.
        """
        rows, offset = self._rows, self._offset[begin:end]
        row, is_start = rows.at(self._position[begin:end] - distance)
        told = np.concatenate([self._offset[begin - 1 : begin] if begin else [-1], offset[:-1]])
        fits = is_start & (rows.first[row] <= offset) & (rows.before[row] < offset) & (told <= rows.before[row])
        return int(np.argmin(fits)) if not fits.all() else offset.size

    def _best_distance(self, begin: int) -> _Best:
        """The distance that explains most entries from one on."""
        if begin >= len(self._offset):
            return _Best(begin, 0, 0, False)
        row = int(self._row[begin])
        # with single appends, or with batches of one append before that of the offset
        choices = range(row, max(row - _MOST_DISTANCES, int(self._row[begin - 1]) if begin else -1), -1)
        distances = [int(self._position[begin] - self._rows.position[choice]) for choice in choices]
        near = [self._n_fitting(begin, one, begin + 8) for one in distances]
        best = [one for one, n in zip(distances, near, strict=True) if n == max(near)]
        fitting = [self._n_fitting(begin, one, len(self._offset)) for one in best]
        most = max(fitting, default=0)
        return _Best(begin, best[fitting.index(most)] if most else 0, most, fitting.count(most) == 1)

    def _places(self, regions: list[_Region]) -> list[Numbers] | None:
        """The jumps that may be each of the cuts, as numbers of batches; None if the entries contradict each other."""
        jumps = np.flatnonzero(self._rows.jumps)
        gone = np.searchsorted(self._rows.last, self._gone)  # for each index entry without its batch, the next batch
        found = []
        for before, after in itertools.pairwise([None, *regions, None]):
            place = self._place(before, after, jumps, gone)
            if place is None:
                return None
            found.append(place)
        return [place for place in found if place.size] if np.isin(gone, np.concatenate(found)).all() else None

    def _place(self, before: _Region | None, after: _Region | None, jumps: Numbers, gone: Numbers) -> Numbers | None:
        """The jumps between two regions that may be a cut; none if nothing is cut there, None for a contradiction."""
        low, high = self._bounds(before, after)
        moved = 0 if after is None else after.distance - (0 if before is None else before.distance)
        if 0 < moved < kf.LEAST_BATCH_BYTES:  # less than a batch: the entries are damaged
            return None
        if moved and not self._rows.follows[low + 1 : high + 1].all():
            return jumps[:0]  # damage, which has findings, moved the entries
        here = jumps[(jumps > low) & (jumps <= high)]
        if moved and not here.size:  # the append of the entry before may have lost its first batches
            here = jumps[jumps == low]
        named = np.intersect1d(here, gone)
        if not moved and (after is not None or not named.size):
            return jumps[:0]
        place = named if named.size else here
        return place if moved >= 0 and place.size and self._is_told(place, after) else None

    def _bounds(self, before: _Region | None, after: _Region | None) -> tuple[int, int]:
        """The batches that a cut is after, and before: the first of the append of one entry, the last of the next."""
        low = -1 if before is None else int(self._rows.at(self._position[[before.end - 1]] - before.distance)[0][0])
        return low, self._rows.last.size - 1 if after is None else int(self._row[after.begin])

    def _is_told(self, place: Numbers, after: _Region | None) -> bool:
        """Whether several entries agree on a cut. One alone may be a damaged one."""
        rows = self._rows
        in_gap = [self._within(place, offsets) for offsets in (self._gone, self._timed)]
        n = 0 if after is None else after.end - after.begin
        if n + sum(int(one.sum()) for one in in_gap) > 1:
            return True
        # one whose position is right for another batch has a wrong offset
        position = self._gone_at[in_gap[0]]
        return bool(position.size and not rows.at(position)[1].any())

    def _within(self, place: Numbers, offsets: Numbers) -> npt.NDArray[np.bool_]:
        """Which offsets are those that are missing at jumps."""
        row = np.minimum(np.searchsorted(self._rows.last, offsets), self._rows.last.size - 1)
        return np.isin(row, place) & (offsets > self._rows.before[row]) & (offsets < self._rows.first[row])

    def _is_strict(self, region: _Region) -> bool:
        """Whether each entry of a region points past the very batch that has its offset."""
        part = slice(region.begin, region.end)
        return bool((self._rows.position[self._row[part]] + region.distance == self._position[part]).all())

    def _spans_gap(self, regions: list[_Region]) -> bool:
        """Whether entries before and after other missing offsets agree: so the index is no older than those."""
        rows = self._rows
        # one before a batch counts with it, one inside with the next
        is_gap = rows.jumps | np.concatenate([[False], rows.is_sparse[:-1]])
        return any(is_gap[self._row[one.begin] + 1 : self._row[one.end - 1] + 1].any() for one in regions)

    def _part(self, place: Numbers) -> MissingPart:
        rows = self._rows
        n_offsets = int((rows.first[place] - rows.before[place] - 1).sum())
        start, end, position = rows.before[place[0]] + 1, rows.first[place[-1]], rows.position[place[0]]
        return MissingPart(int(start), int(end), int(position), n_offsets)
