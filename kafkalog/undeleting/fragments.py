"""Divides the batches of an image into fragments: rows of headers to runs of one file, and what they say of others.

Batches that follow each other within a block of the file system are of one file. At the start of a block another file
may begin: there the next offset, the leader epoch and the sequences of producers have to go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.header_walk as kernels
from kafkalog import format as kf

_CHUNK: Final = 2**18  # rows at a time
_MOST_PRODUCERS: Final = 256  # of a fragment that are remembered
_UNCHECKED: Final = 17  # bytes up to the checksum: offset, size, leader epoch, magic
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)  # odd: no two offsets give one product


class Sequence(NamedTuple):
    """A sequence of a producer, and the offset that has it."""

    epoch: int
    sequence: int
    offset: int


@dataclass(eq=False, slots=True)
class Fragment:
    """Batches of one file without a gap between them; without `image`, a segment that is not in an image."""

    first_row: int
    stop_row: int
    """Its rows in the journal."""
    image: int
    start: int
    end: int
    """Its bytes in the image."""
    first_offset: int
    last_offset: int
    first_epoch: int
    last_epoch: int
    first_timestamp: int
    last_timestamp: int
    """Largest timestamps of its first and last batch in ms; -1 for none."""
    is_v2: bool
    first_attributes: int = 0
    last_attributes: int = 0
    first_marker: int = -1
    """The producer whose transaction its first batch ends."""
    first_producers: dict[int, Sequence] = field(default_factory=dict)
    next_producers: dict[int, Sequence] = field(default_factory=dict)
    """By producer id, the first sequence here, and the one that comes next."""
    names: frozenset[str] = frozenset()
    """Partitions with live batches that are in this fragment, too: it is of one of them."""
    n_live: int = 0
    """Batches that are in live files, too."""
    copy_of: Fragment | None = None
    """Another fragment that has all its batches, too."""
    is_checkpoint: bool = False
    """Whether it is the content of a metadata snapshot, and of no partition."""

    @property
    def n_batches(self) -> int:
        """Batches, live ones included."""
        return self.stop_row - self.first_row

    @property
    def is_copy(self) -> bool:
        """Whether all its batches are in another fragment, too."""
        return self.copy_of is not None


class LiveBatches:
    """Batches of live files: what an image has of them is not deleted."""

    def __init__(self) -> None:
        self._keys: list[npt.NDArray[np.uint64]] = []
        self._numbers: list[int] = []
        self.names: list[str] = []
        self.segments: list[Fragment] = []
        """One for live segments without a hole between them, which fragments may go on from, or lead to."""
        self._sorted: npt.NDArray[np.uint64] | None = None

    def add(self, name: str, rows: npt.NDArray[np.void]) -> None:
        """Add the batches of a segment."""
        if not rows.size:
            return
        if name not in self.names:
            self.names.append(name)
        self._keys.append(keys_of(rows))
        self._numbers.append(self.names.index(name))
        fragment = _fragment(rows, 0, rows.size)
        fragment.image, fragment.names = -1, frozenset([name])
        before = self.segments[-1] if self.segments else None
        if before is not None and name in before.names and before.last_offset + 1 == fragment.first_offset:
            before.last_offset, before.last_epoch = fragment.last_offset, fragment.last_epoch
            before.last_timestamp, before.last_attributes = fragment.last_timestamp, fragment.last_attributes
            before.stop_row += fragment.n_batches
            before.next_producers |= fragment.next_producers
            return
        self.segments.append(fragment)

    def names_of(self, rows: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.bool_], frozenset[str]]:
        """Which rows are live, and the partitions that have all of these."""
        if not self._keys:
            return np.zeros(rows.size, np.bool_), frozenset()
        if self._sorted is None:
            numbers = np.repeat(np.array(self._numbers, np.int32), [keys.size for keys in self._keys])
            keys = np.concatenate(self._keys)
            order = np.argsort(keys, kind="stable")
            self._sorted, self._number_of = keys[order], numbers[order]
        wanted = keys_of(rows)
        first = np.searchsorted(self._sorted, wanted, side="left")
        stop = np.searchsorted(self._sorted, wanted, side="right")
        is_live = stop > first
        names: set[int] | None = None
        for begin, end in set(zip(first[is_live].tolist(), stop[is_live].tolist(), strict=True)):
            those = set(self._number_of[begin:end].tolist())
            names = those if names is None else names & those
        return is_live, frozenset(self.names[number] for number in names or ())


def keys_of(rows: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    """uint64[n]: checksum, size and offset of batches as one number."""
    content = (rows["crc"].astype(np.uint64) << np.uint64(32)) ^ rows["size"].astype(np.uint64)
    keys: npt.NDArray[np.uint64] = content ^ (rows["first_offset"].astype(np.uint64) * _MIX)
    return keys


def find_fragments(rows: npt.NDArray[np.void], blocks: Iterable[int], live: LiveBatches) -> Iterator[Fragment]:
    """Divide the rows of a journal; `blocks` has the block size of each image."""
    block_of = np.array([*blocks], np.int64)
    begin = 0
    while begin < rows.size:
        chunk = np.asarray(rows[begin : begin + _CHUNK])
        is_new = np.empty(chunk.size, np.bool_)
        kernels.find_starts(chunk, block_of, is_new.view(np.uint8))
        stop = begin + chunk.size
        firsts = np.flatnonzero(is_new)
        if stop < rows.size and firsts.size > 1:
            stop, firsts = begin + int(firsts[-1]), firsts[:-1]  # the last one may go on
            chunk = chunk[: stop - begin]
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), chunk.size], strict=True):
            part = chunk[first:end]
            if part["size"][0] <= 0:
                continue
            if not _has_sure_offset(part, int(block_of[part["image"][0]])):
                part, first = part[1:], first + 1
            if not part.size:
                continue
            fragment = _fragment(part, begin + first, begin + end)
            is_live, fragment.names = live.names_of(part)
            fragment.n_live = int(is_live.sum())
            yield fragment
        begin = stop


def torn_rows(rows: npt.NDArray[np.void]) -> Iterator[npt.NDArray[np.void]]:
    """Yield the rows of a journal that are headers without an intact batch."""
    for begin in range(0, rows.size, _CHUNK):
        chunk = np.asarray(rows[begin : begin + _CHUNK])
        yield from chunk[chunk["size"] < 0]


def place_of(image: int, position: int, next_offset: int) -> Fragment:
    """A fragment without batches: a place where one with this offset begins, or would be the next one."""
    return Fragment(
        0, 0, image, position, position, next_offset, next_offset - 1, -1, -1, -1, -1, is_v2=True
    )  # fmt: skip


def place_before(place: Fragment, batch: npt.NDArray[np.void]) -> Fragment:
    """A place with what is known from the batch that begins there."""
    return replace(
        _fragment(batch, 0, 1), stop_row=0, image=place.image, start=place.start, end=place.end,
        last_offset=place.last_offset,
    )  # fmt: skip


def place_after(place: Fragment, batch: npt.NDArray[np.void], before: Fragment) -> Fragment:
    """A place with what is known from the batch that ends there, and from the fragment before that."""
    result = replace(place_before(place, batch), first_offset=place.first_offset, first_producers={}, first_marker=-1)
    result.next_producers = before.next_producers | result.next_producers
    result.first_timestamp, result.names = before.first_timestamp, before.names
    return result


def _has_sure_offset(rows: npt.NDArray[np.void], block: int) -> bool:
    """Whether the offset of the first batch is its own: no checksum covers it, and another block may have its bytes.

    The next batch confirms it.
    """
    if rows["position"][0] % block <= block - _UNCHECKED:
        return True
    return rows.size > 1 and bool(rows["first_offset"][1] == rows["last_offset"][0] + 1)


def _next_sequence(rows: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """int64[n]: the sequence after each batch; after the largest one comes 0.

    Source: DefaultRecordBatch.incrementSequence, Kafka 4.3.
    """
    n_offsets = rows["last_offset"] - rows["first_offset"] + 1
    following: npt.NDArray[np.int64] = (rows["base_sequence"] + n_offsets) & kf.SEQUENCE_MASK
    return following


def _fragment(rows: npt.NDArray[np.void], first_row: int, stop_row: int) -> Fragment:
    first, last = rows[0], rows[-1]
    result = Fragment(
        first_row, stop_row, int(first["image"]), int(first["position"]), int(last["position"] + last["size"]),
        int(first["first_offset"]), int(last["last_offset"]), int(first["leader_epoch"]), int(last["leader_epoch"]),
        int(first["max_timestamp"]), int(last["max_timestamp"]), bool(first["magic"] == 2),
    )  # fmt: skip
    is_control = (first["attributes"] & kf.CONTROL_BIT) != 0 and result.is_v2
    result.first_attributes, result.last_attributes = int(first["attributes"]), int(last["attributes"])
    result.first_marker = int(first["producer_id"]) if is_control else -1
    result.is_checkpoint = bool(is_control and first["control_type"] == kf.ControlRecordType.SNAPSHOT_HEADER)
    numbers = np.flatnonzero((rows["producer_id"] >= 0) & (rows["base_sequence"] >= 0))
    if numbers.size:
        ids = rows["producer_id"][numbers]
        # the batches of each producer together, in the order of the file
        numbers = numbers[np.argsort(ids, kind="stable")] if (ids != ids[0]).any() else numbers
        ids = rows["producer_id"][numbers]
        starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        stops = np.concatenate([starts[1:], [ids.size]])[:_MOST_PRODUCERS]
        begin, end = rows[numbers[starts[: stops.size]]], rows[numbers[stops - 1]]
        of = begin["producer_id"].tolist()
        result.first_producers = _sequences(of, begin["producer_epoch"], begin["base_sequence"], begin["first_offset"])
        result.next_producers = _sequences(of, end["producer_epoch"], _next_sequence(end), end["last_offset"] + 1)
    return result


def _sequences(ids: list[int], *columns: npt.NDArray[Any]) -> dict[int, Sequence]:
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(ids, itertools.starmap(Sequence, rows), strict=True))


def mark_copies(fragments: list[Fragment], rows: npt.NDArray[np.void]) -> None:
    """Mark fragments whose batches are all in one longer fragment, or in an earlier one of the same length.

    Markers alone show no copy: those of one transaction are the same in all its partitions.
    """
    if not fragments:
        return
    owners = np.array([one.first_row for one in fragments], np.int64)
    heads = keys_of(rows[owners])
    ordered = np.sort(heads)
    may_be_head = np.zeros(2**16, np.bool_)
    may_be_head[heads >> np.uint64(48)] = True
    holders: dict[int, list[int]] = {}
    for begin in range(0, rows.size, _CHUNK):
        chunk = np.asarray(rows[begin : begin + _CHUNK])
        keys = keys_of(chunk)
        found = np.flatnonzero(may_be_head[keys >> np.uint64(48)] & (chunk["size"] > 0))
        place = np.minimum(np.searchsorted(ordered, keys[found]), ordered.size - 1)
        found = found[ordered[place] == keys[found]]
        owner = np.searchsorted(owners, begin + found, side="right") - 1
        for key, number in zip(keys[found].tolist(), owner.tolist(), strict=True):
            holders.setdefault(key, []).append(number)
    for number in sorted(range(len(fragments)), key=lambda number: (fragments[number].n_batches, -number)):
        others = holders[int(heads[number])]
        of_fragment = rows[fragments[number].first_row : fragments[number].stop_row]
        if len(others) == 1 or (of_fragment["attributes"] & kf.CONTROL_BIT).all():
            continue
        part = keys_of(of_fragment)
        for other in others:
            holder = fragments[other]
            if other == number or holder.is_copy or holder.n_batches < part.size:
                continue
            if np.isin(part, keys_of(rows[holder.first_row : holder.stop_row])).all():
                fragments[number].copy_of = holder
                break
