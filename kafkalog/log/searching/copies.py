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

from kafkalog.errors import KafkalogError
from kafkalog.log.searching.resync import IntactRuns, find_batches
from kafkalog.records.batch_table import Window
from kafkalog.storage.location import Place
from kafkalog.storage.source import ByteSource

_MOST_EARLIER: Final = 4
"""Earlier segments in which the originals of copied batches are looked for."""
_MOST_SEARCHES: Final = 64
_EPOCH: Final = slice(12, 16)  # no checksum covers the leader epoch of a v2 batch


class CopiedSegment(Protocol):
    """The part of `Segment` that is used here."""

    path: Place
    base_offset: int

    def earlier(self, n: int) -> Sequence[CopiedSegment]: ...
    def find_offsets(self, offsets: npt.ArrayLike) -> npt.NDArray[np.void]: ...
    def open(self) -> contextlib.AbstractContextManager[ByteSource]: ...
    def reopened(self) -> CopiedSegment: ...


class Original(NamedTuple):
    """Where the first of several equal batches is."""

    number: int
    """Number of the segment among `Originals.segments`; the last one is that of the copy."""
    position: int


class Originals:
    """Finds the originals of the copied batches of one segment, in it and in a few segments before it."""

    def __init__(self, segment: CopiedSegment, source: ByteSource) -> None:
        self._segment, self._source = segment, source
        self._next: Original | None = None
        self._n_searches = 0
        self._intact: dict[int, IntactRuns] = {}

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
            whole = self.segments[number].reopened()  # a part would lack the batches before it
            yield int(whole.find_offsets([last])["position"][0])
        # damage, and copies of other batches, mislead a lookup: search the whole segment once
        if number not in self._intact:
            with contextlib.suppress(KafkalogError), self.segments[number].reopened().open() as source:
                self._intact[number] = IntactRuns.concatenate([*find_batches(source)])
        intact = self._intact.setdefault(number, IntactRuns.empty())
        yield from intact.start[intact.last_offset == last].tolist()

    def _is_same(self, place: Original, copy: Window) -> bool:
        """Whether another batch has the bytes of a copy."""
        is_here = place.number == len(self.segments) - 1
        if place.position < 0 or (is_here and place.position == copy.start):
            return False
        with contextlib.suppress(KafkalogError), contextlib.ExitStack() as stack:
            source = self._source if is_here else stack.enter_context(self.segments[place.number].open())
            data = source.window(place.position, min(place.position + copy.data.size, source.size))
            is_same = _are_same(data, copy)
            source.release(data, place.position)
            return is_same
        return False


def _are_same(data: npt.NDArray[np.uint8], copy: Window) -> bool:
    if data.size != copy.data.size:
        return False
    differs = data != copy.data
    if copy.batches.magic[0] >= 2:
        differs[_EPOCH] = False
    return not differs.any()
