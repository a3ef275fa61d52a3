"""Finds the original of a batch that is in a log twice: a copy is returned once, and loses nothing.

All commands use this: readers where offsets go back, and salvage for batches that it does not keep.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, Limits
from kafkalog.log.searching.resync import IntactRuns, find_batches
from kafkalog.records.batch_table import Window
from kafkalog.records.header import BatchHeader, claims_of
from kafkalog.records.header_walk import LINKED, batch_at, claims_up_to, intact_batch_at
from kafkalog.storage.location import Place
from kafkalog.storage.source import ByteSource

_MOST_EARLIER: Final = 4
"""Earlier segments in which the originals of copied batches are looked for."""
_MOST_LATER: Final = 2
_MOST_SEARCHES: Final = 64
_MOST_AHEAD: Final = 1000
"""Batches that are looked for again in what comes after them."""
_EPOCH: Final = slice(12, 16)  # no checksum covers the leader epoch of a v2 batch


class CopiedSegment(Protocol):
    """The part of `Segment` that is used here."""

    path: Place
    base_offset: int

    def earlier(self, n: int) -> Sequence[CopiedSegment]: ...
    def later(self, n: int) -> Sequence[CopiedSegment]: ...
    def find_offsets(self, offsets: npt.ArrayLike) -> npt.NDArray[np.void]: ...
    def open(self) -> contextlib.AbstractContextManager[ByteSource]: ...
    def reopened(self) -> CopiedSegment: ...


class Original(NamedTuple):
    """Where the first of several equal batches is."""

    number: int
    """Number of the segment among `Originals.segments`; the last one is that of the copy."""
    position: int


class HeaderEnd(NamedTuple):
    """The last batch of a log, which is damaged: its header says where the log ended."""

    last_offset: int
    is_whole: bool
    """Whether the checksum of its bytes is right, so that its size field alone is wrong."""


class Originals:
    """Finds the originals of the copied batches of one segment, in it and in a few segments before it."""

    def __init__(self, segment: CopiedSegment, source: ByteSource) -> None:
        self._segment, self._source = segment, source
        self._next: Original | None = None
        self._n_searches = self._n_ahead = 0
        self._intact: dict[int, IntactRuns] = {}
        self.passed_over: set[int] = set()
        """Positions of batches that are not returned, since later ones are the same."""

    @cached_property
    def segments(self) -> list[CopiedSegment]:
        """The segments that are searched; listed when the first copy is found."""
        return [*self._segment.earlier(_MOST_EARLIER), self._segment]

    def of(self, copy: Window, neighbour: int | None = None) -> Original | None:
        """The batch that has the bytes of a window with one batch: an earlier one, or the one at `neighbour`.

        Consecutive copies mostly have consecutive originals, so the place after the last original is compared first.
        """
        here = len(self.segments) - 1
        places = [] if neighbour is None else [Original(here, neighbour)]
        is_later = self._next is not None and self._next.number == here and self._next.position >= copy.start
        places += [] if self._next is None or (is_later and (neighbour or 0) < copy.start) else [self._next]
        original = next((place for place in places if self._is_same(place, copy)), None)
        # each search may scan a segment: after this many, compare only neighbours
        if original is None and self._n_searches < _MOST_SEARCHES:
            self._n_searches += 1
            original = self._search(copy)
        if original is not None:
            self._next = Original(original.number, original.position + copy.data.size)
        return original

    def damaged_end(self, position: int, first: int, limits: Limits) -> HeaderEnd | None:
        """The damaged batch at a position, if it ends the file, or only copies of other batches come after it.

        Its first offset is `first`, unless it is whole. A damaged compressed message of v0 or v1 has only its last one.
        """
        source = self._source
        if (whole := claims_up_to(source, position, source.size, limits)) is not None:
            return HeaderEnd(whole.last_offset, is_whole=True)
        damaged, _ = batch_at(source, position, limits.max_batch_bytes)
        claims = None if damaged is None else claims_of(BatchHeader(damaged.data))
        if damaged is None or claims is None or claims.base_offset not in (None, first):
            return None
        if not 0 <= claims.last_offset - first <= kf.MAX_RELATIVE_OFFSET:
            return None
        end = damaged.batches.end_position
        while end < source.size:
            batch, _ = intact_batch_at(source, end, limits.max_batch_bytes)
            if batch is None or self.of(batch) is None:
                return None
            end = batch.batches.end_position
        return HeaderEnd(claims.last_offset, is_whole=False)

    def is_again_after(self, batch: Window, position: int) -> bool:
        """Whether the bytes of a window with one batch stand again from a position on, or in the next segments."""
        last, is_again = int(batch.batches.last_offset[0]), False
        self._n_ahead += 1
        if self._n_ahead > _MOST_AHEAD:
            return False
        intact = self._intact_of(len(self.segments) - 1)
        starts = intact.start[(intact.last_offset == last) & (intact.start >= position)].tolist()
        with contextlib.suppress(KafkalogError), contextlib.ExitStack() as stack:
            # the segment may be a part of one
            source = stack.enter_context(self._segment.reopened().open()) if starts else self._source
            is_again = any(_is_at(source, start, batch) for start in starts)
        for segment in () if is_again else self._segment.later(_MOST_LATER):
            with contextlib.suppress(KafkalogError), segment.open() as source:
                at = int(segment.find_offsets([last])["position"][0]) if segment.base_offset <= last else -1
                is_again |= _is_at(source, at, batch)
        return is_again

    def are_new(self, first: int, last: int, position: int) -> bool:
        """Whether no batch of the segment that was returned, before a position, has any of these offsets."""
        found = self._returned(position)
        return not ((found.first_offset <= last) & (found.last_offset >= first)).any()

    def have(self, first: int, end: int, position: int) -> bool:
        """Whether batches of the segment that were returned, before a position, have all these offsets."""
        found = self._returned(position)
        found = found[(found.first_offset < end) & (found.last_offset >= first)]
        n_there = np.minimum(found.last_offset + 1, end) - np.maximum(found.first_offset, first)
        return int(n_there.sum()) >= end - first

    def end_below(self, offset: int, position: int, base_offset: int) -> int:
        """The offset after the last batch that was returned, before a position, of those below an offset."""
        found = self._returned(position)
        return max(base_offset, int(found.last_offset[found.last_offset < offset].max(initial=-1)) + 1)

    def is_damaged_before(self, first: int, last: int, position: int) -> bool:
        """Whether the header of a damaged batch of the segment before a position has exactly these offsets."""
        found = self._intact_of(len(self.segments) - 1)
        found = found[(found.kind == LINKED) & (found.start < position)]
        return bool(((found.first_offset == first) & (found.last_offset == last)).any())

    def _returned(self, position: int) -> IntactRuns:
        """The intact batches of the segment before a position, without those that are passed over."""
        found = self._intact_of(len(self.segments) - 1)
        is_there = (found.kind != LINKED) & (found.start < position)
        return found[is_there & ~np.isin(found.start, [*self.passed_over])]

    def _search(self, copy: Window) -> Original | None:
        """Look up the offset of a copy in its own segment, then in those before."""
        last = int(copy.batches.last_offset[0])
        for number, segment in reversed([*enumerate(self.segments)]):
            if segment is not self.segments[-1] and segment.base_offset > last:
                continue
            for position in self._places(number, last):
                is_later = segment is self.segments[-1] and position >= copy.start
                if not is_later and self._is_same(Original(number, position), copy):
                    return Original(number, position)
        return None

    def _places(self, number: int, last: int) -> Iterator[int]:
        """Positions in a segment where the original of a batch with this last offset may be."""
        with contextlib.suppress(KafkalogError):  # earlier damage has been reported already
            whole = self.segments[number].reopened()  # a part of a segment may lack the first of them
            yield int(whole.find_offsets([last])["position"][0])
        # damage, and copies of other batches, mislead a lookup
        intact = self._intact_of(number)
        yield from intact.start[intact.last_offset == last].tolist()

    def _intact_of(self, number: int) -> IntactRuns:
        """The intact batches of a whole segment, which is searched once."""
        if number not in self._intact:
            with contextlib.suppress(KafkalogError), self.segments[number].reopened().open() as source:
                self._intact[number] = IntactRuns.concatenate([*find_batches(source)])
        return self._intact.setdefault(number, IntactRuns.empty())

    def _is_same(self, place: Original, copy: Window) -> bool:
        """Whether another batch has the bytes of a copy."""
        is_here = place.number == len(self.segments) - 1
        if place.position < 0 or (is_here and place.position in {copy.start, *self.passed_over}):
            return False
        with contextlib.suppress(KafkalogError), contextlib.ExitStack() as stack:
            source = self._source if is_here else stack.enter_context(self.segments[place.number].open())
            return _is_at(source, place.position, copy)
        return False


def _is_at(source: ByteSource, position: int, copy: Window) -> bool:
    """Whether the bytes of a copy are at a position."""
    if not 0 <= position <= source.size - copy.data.size:
        return False
    data = source.window(position, position + copy.data.size)
    is_same = _are_same(data, copy)
    source.release(data, position)
    return is_same


def _are_same(data: npt.NDArray[np.uint8], copy: Window) -> bool:
    if data.size != copy.data.size:
        return False
    differs = data != copy.data
    if copy.batches.magic[0] >= 2:
        differs[_EPOCH] = False
    return not differs.any()
