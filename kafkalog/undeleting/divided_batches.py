"""Makes batches whole that lie in two places of an image, by their checksums.

The first place has the bytes up to the division, the second one those after it. The checksum of a batch made of both is
a sum over GF(2): that of the second bytes alone, and a term for each block before the division, which depends on how
both places differ in that block. So each pair of places is tried in time linear in the size of the batch.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.codec import crc32c, decode
from kafkalog.errors import KafkalogError, Limits
from kafkalog.records.batch_table import HeaderParser, Window, valid_crcs
from kafkalog.records.header import MAGIC_END, BatchHeader
from kafkalog.records.header_walk import window_of
from kafkalog.storage.source import Bytes, ByteSource
from kafkalog.undeleting.fragments import Fragment, LiveBatches, place_after, place_before, place_of
from kafkalog.undeleting.images import BATCH, rows_of
from kafkalog.undeleting.joining import Divided

_MOST_DIVIDED: Final = 2**24  # bytes of a batch whose division between two places is looked for
_NEAR: Final = 2**24  # bytes before and after a place where the rest of a batch is looked for
_MOST_NEAR: Final = 2**28  # bytes that are read for all places of a round
_READ: Final = 2**23  # bytes at a time
_ROUNDS: Final = 8  # divided batches after each other, without an intact one between them
_MOST_TRIED: Final = 2**12  # batches whose rest is looked for in a round
_MOST_STARTS: Final = 2**16  # headers at starts of blocks whose batch is divided
_MOST_ENDS: Final = 64  # places where the rest of one may end
_MOST_ZEROS: Final = 64  # that a batch ends with: the last record has no headers
_MOST_BYTES: Final = 2**34  # compared in all; a try counts as at least 1 MiB

Parts = tuple[tuple[int, int], ...]


def parts_of(tail: Fragment, head: Fragment, divided: Divided, cut: int) -> Parts:
    """Where the two parts of a divided batch begin and end."""
    return (tail.end, tail.end + cut), (head.start - (divided.size - cut), head.start)


class DividedBatches:
    """The batches after fragments that do not end in the same place."""

    def __init__(self, sources: Sequence[ByteSource], blocks: Sequence[int], limits: Limits) -> None:
        self.sources, self.blocks, self._limits = sources, blocks, limits
        self._most_bytes = min(_MOST_DIVIDED, limits.max_batch_bytes)

    def after(self, tail: Fragment) -> Divided | None:
        """The batch whose header comes after a fragment; None if no header does."""
        source = self.sources[tail.image]
        header = BatchHeader(window_of(source, tail.end, min(tail.end + kf.RECORD_BATCH_OVERHEAD, source.size)))
        if not header.is_whole_v2 or header.offset != tail.last_offset + 1 or header.last_offset_delta < 0:
            return None
        if not kf.RECORD_BATCH_OVERHEAD < header.size_in_bytes <= self._most_bytes:
            return None
        return Divided(header.size_in_bytes, header.offset + header.last_offset_delta, header.crc)

    def cut(self, tail: Fragment, head: Fragment, divided: Divided) -> int | None:
        """Bytes of the batch after `tail`, if the others end before `head` and its checksum is correct."""
        block, size = self.blocks[tail.image], divided.size
        if tail.image != head.image or (tail.end + size - head.start) % block:
            return None
        first = self._window(tail.image, tail.end, tail.end + size)
        second = self._window(head.image, head.start - size, head.start)
        for cut in divisions(first, second, divided.crc, block - tail.end % block, block):
            if self.whole(tail.image, parts_of(tail, head, divided, cut)) is not None:
                return cut
        return None

    def whole(self, image: int, parts: Parts) -> Window | None:
        """The batch that parts of an image make; None unless its checksum is correct and its records can be read."""
        data = np.concatenate([self._window(image, start, end) for start, end in parts])
        tables, *_ = HeaderParser().parse(data, 0, -1)
        if sum(map(len, tables)) != 1 or tables[0].end_position != data.size:
            return None
        window = Window(data, 0, tables[0])
        try:
            decode(data, columns=["offset"], limits=self._limits)
        except KafkalogError:
            return None
        return window if valid_crcs(window).all() else None

    def _window(self, image: int, start: int, end: int) -> Bytes:
        """Bytes of an image, with zeros before its start and after its end."""
        source = self.sources[image]
        first, last = max(start, 0), min(end, source.size)
        data = window_of(source, first, last)
        return data if data.size == end - start else np.pad(data, (first - start, end - last))


class Places:
    """Looks for places where files begin or end with a divided batch, or where one divided batch follows another.

    No intact batch shows them. They become fragments without batches, which the joins of others lead to or come from.
    """

    def __init__(self, divided: DividedBatches, fragments: Iterable[Fragment], live: LiveBatches | None) -> None:
        self._divided, self._live = divided, live
        spans = np.array(sorted((one.image, one.start, one.end) for one in fragments), np.int64).reshape(-1, 3)
        self._taken = [spans[spans[:, 0] == image, 1:].T for image in range(len(divided.sources))]
        self._heads: dict[int, list[Fragment]] = defaultdict(list)
        self._used: dict[int, Fragment] = {}
        """By their ids, which stay theirs as long as they are here."""
        self._starts: set[int] = set()
        self._n_bytes = 0
        self.n_untried = 0
        """Divided batches whose rest was not looked for everywhere, since there were too many."""

    def find(self, fragments: Iterable[Fragment], torn: Iterable[npt.NDArray[np.void]]) -> list[Fragment]:
        """Find them for the ends of fragments, and for headers at the start of a block whose batch is divided."""
        tails = [one for one in fragments if not one.is_checkpoint]
        ends = {(one.image, one.end, one.last_offset) for one in tails}
        for fragment in tails:
            self._heads[fragment.first_offset].append(fragment)
        starts = self._starts_of(torn)
        tails += (one for one in starts if (one.image, one.end, one.last_offset) not in ends)
        places: list[Fragment] = []
        for _ in range(_ROUNDS):
            searched = [*self._without_head(tails, places)]
            self.n_untried += max(len(searched) - _MOST_TRIED, 0)
            tails = []
            for image in range(len(self._taken)):
                self._search(image, [one for one in searched[:_MOST_TRIED] if one.tail.image == image])
            for search in searched:
                found = self._try(search.tail, search.divided, search.places())
                if found is not None:
                    before, batch, head = found
                    tails.append(place_after(head, batch, before))
                    places += [tails[-1]] if before is search.tail else [before, tails[-1]]
        return places

    def _starts_of(self, torn: Iterable[npt.NDArray[np.void]]) -> list[Fragment]:
        """The places before the headers at starts of blocks, which are fragments without batches."""
        rows = iter(torn)
        starts = [
            place_of(int(row["image"]), int(row["position"]), int(row["first_offset"]))
            for row in itertools.islice(rows, _MOST_STARTS)
        ]
        self.n_untried += sum(1 for _ in rows)
        self._starts = {id(one) for one in starts}
        return starts

    def _without_head(self, tails: Iterable[Fragment], places: list[Fragment]) -> Iterator[_SecondPart]:
        """The divided batches after these fragments that end before no known one; `places` gets those that do."""
        for tail in tails:
            divided = self._divided.after(tail)
            if divided is None or self._is_live(tail, divided):
                continue
            found = self._try(tail, divided, self._heads[divided.last_offset + 1])
            if found is None:
                yield _SecondPart(tail, divided)
            elif found[0] is not tail:
                places.append(found[0])

    def _is_live(self, tail: Fragment, divided: Divided) -> bool:
        row = np.zeros(1, BATCH)
        row["first_offset"], row["size"], row["crc"] = tail.last_offset + 1, divided.size, divided.crc
        return self._live is not None and bool(self._live.names_of(row)[0].any())

    def _try(
        self, tail: Fragment, divided: Divided, heads: Iterable[Fragment]
    ) -> tuple[Fragment, npt.NDArray[np.void], Fragment] | None:
        """Join a fragment, the divided batch after it, and the first of `heads` that goes on there; or None."""
        for head in heads:
            if head is tail or id(head) in self._used:
                continue
            self._n_bytes += divided.size + 2**20
            if self._n_bytes > _MOST_BYTES:
                self.n_untried += 1
                return None
            if (cut := self._divided.cut(tail, head, divided)) is None:
                continue
            window = self._divided.whole(tail.image, parts_of(tail, head, divided, cut))
            if window is not None:
                self._used[id(head)] = head
                batch = rows_of(window.batches)
                return place_before(tail, batch) if id(tail) in self._starts else tail, batch, head
        return None

    def _search(self, image: int, searches: Sequence[_SecondPart]) -> None:
        """Look for the places where divided batches of an image may end."""
        source, block = self._divided.sources[image], self._divided.blocks[image]
        n_left = _MOST_NEAR
        reach = [(one.tail.end - _NEAR, one.tail.end + one.divided.size + _NEAR) for one in searches]
        for start, end in _joined(reach, block, source.size):
            if n_left <= 0:
                self.n_untried += sum(start <= one.tail.end < end for one in searches)
            position = start
            while n_left > 0 and (position := source.next_data(position) // block * block) < end:
                data = window_of(source, position, min(position + _READ, end))
                near = [one for one, (low, high) in zip(searches, reach, strict=True)
                        if low < position + data.size and position < high]  # fmt: skip
                self._look(data, position, image, near)
                n_left -= data.size
                position += data.size

    def _look(self, data: Bytes, position: int, image: int, searches: Iterable[_SecondPart]) -> None:
        """Add the places of some blocks, of which no intact batch has the first byte."""
        block = self._divided.blocks[image]
        n = data.size // block
        at = position + np.arange(n) * block
        starts, ends = self._taken[image]
        row = np.searchsorted(starts, at, side="right") - 1
        blocks = data[: n * block].reshape(n, block)
        length = np.full(n, block)
        ended = np.flatnonzero(blocks[:, -1] == 0)  # most do not end in zeros
        is_other = blocks[ended] != 0
        length[ended] = np.where(is_other.any(axis=1), block - np.argmax(is_other[:, ::-1], axis=1), 0)
        is_free = (length > 0) & ((row < 0) | (at >= (ends[row] if ends.size else 0)))
        for search in searches:
            end = (search.tail.end + search.divided.size) % block
            if not end:
                continue
            is_end = is_free & (length <= end) & (length > end - _MOST_ZEROS)
            for number in np.flatnonzero(is_end).tolist():
                search.ends.append(int(at[number]) + end)
            magics = data[end + MAGIC_END - 1 :: block][:n]
            for number in np.flatnonzero(is_free[: magics.size] & (magics == 2)).tolist():
                header = BatchHeader(data[number * block + end :])
                if header.offset == search.divided.last_offset + 1:
                    search.ends.append(int(at[number]) + end)
            search.keep_nearest()


class _SecondPart:
    """A divided batch, and the places where it may end."""

    def __init__(self, tail: Fragment, divided: Divided) -> None:
        self.tail, self.divided = tail, divided
        self.ends: list[int] = []

    def keep_nearest(self) -> None:
        """Forget the places that are far from its first part, if there are many."""
        if len(self.ends) > _MOST_ENDS:
            self.ends = sorted(self.ends, key=lambda end: abs(end - self.tail.end))[:_MOST_ENDS]

    def places(self) -> list[Fragment]:
        """The places that are left, the nearest first."""
        ends = sorted(self.ends, key=lambda end: abs(end - self.tail.end))
        return [place_of(self.tail.image, end, self.divided.last_offset + 1) for end in ends]


def _joined(spans: Iterable[tuple[int, int]], block: int, size: int) -> list[tuple[int, int]]:
    """Ranges of whole blocks that cover these, without overlaps."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        first, last = max(start // block * block, 0), min(-(-end // block) * block, size)
        if result and first <= result[-1][1]:
            result[-1] = result[-1][0], max(last, result[-1][1])
        else:
            result.append((first, last))
    return result


_CHECKED_FROM: Final = 21  # bytes of a v2 batch that its checksum does not cover
_POLYNOMIAL: Final = np.uint32(0x82F63B78)  # of CRC-32C; bit 31 is x^0, as in the checksums
_ONE: Final = np.uint32(0x80000000)
_EIGHT: Final = np.uint32(0x00800000)  # x^8


def divisions(first: Bytes, second: Bytes, crc: int, cut: int, block: int) -> Iterator[int]:
    """Yield the divisions of a batch at which its checksum is `crc`: at `cut`, or a multiple of `block` after it.

    `first` has the bytes that follow the batch's first one in one place, and `second` those up to its last one in the
    other. Both have the size of the batch; what is not there is zero.
    """
    size = first.size
    if cut < _CHECKED_FROM:
        cut += block
    if cut >= size:
        return
    differences = first ^ second
    edges = [_CHECKED_FROM, *range(cut, size, block)]
    # without the parts of a checksum that any bytes of this length have
    zeros = np.zeros(block, np.uint8)
    spans = itertools.pairwise(edges)
    terms = [crc32c(differences[start:end]) ^ crc32c(zeros[: end - start]) for start, end in spans]
    shifts = _multiply(_shifts(block, len(terms))[::-1], _shift(size - edges[-1]))
    sums = np.bitwise_xor.accumulate(_multiply(shifts, np.array(terms, np.uint32)))
    wanted = np.uint32(crc32c(second[_CHECKED_FROM:]) ^ crc)
    for number in np.flatnonzero(sums == wanted).tolist():
        yield edges[number + 1]


def _multiply(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32] | np.uint32) -> npt.NDArray[np.uint32]:
    """Products of polynomials, modulo that of the checksum."""
    result = np.zeros_like(a)
    factor = np.broadcast_to(b, a.shape).copy()
    for bit in range(31, -1, -1):
        result ^= np.where((a >> np.uint32(bit)) & np.uint32(1), factor, np.uint32(0))
        factor = (factor >> np.uint32(1)) ^ np.where(factor & np.uint32(1), _POLYNOMIAL, np.uint32(0))
    return result


@functools.lru_cache(64)
def _shift(n_bytes: int) -> np.uint32:
    """The factor of a checksum that is followed by this many bytes."""
    result, power = np.array([_ONE]), np.array([_EIGHT])
    while n_bytes:
        if n_bytes & 1:
            result = _multiply(result, power)
        power = _multiply(power, power)
        n_bytes >>= 1
    return np.uint32(result[0])


@functools.lru_cache(8)
def _shifts(block: int, n: int) -> npt.NDArray[np.uint32]:
    """The same for 0, 1, 2 ... blocks."""
    result = np.array([_ONE])
    while result.size < n:
        result = np.concatenate([result, _multiply(result, _shift(block * result.size))])
    return result[:n]
