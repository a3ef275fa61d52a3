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
        if self._sorted is None:
            numbers = np.repeat(np.array(self._numbers, np.int32), [keys.size for keys in self._keys])
            keys = np.concatenate(self._keys) if self._keys else np.empty(0, np.uint64)
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
        is_new = _starts(chunk, block_of)
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


def _starts(rows: npt.NDArray[np.void], block_of: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Rows that another file may begin with."""
    is_new = np.ones(rows.size, np.bool_)
    before, after = rows[:-1], rows[1:]
    is_chain = (
        (before["size"] > 0)
        & (after["size"] > 0)
        & (before["image"] == after["image"])
        & (before["position"] + before["size"] == after["position"])
        & (after["first_offset"] > before["last_offset"])
        & ((after["leader_epoch"] >= before["leader_epoch"]) | (after["leader_epoch"] < 0))
    )
    is_block = after["position"] % block_of[after["image"]] == 0
    goes_on = after["first_offset"] == before["last_offset"] + 1
    is_same = (after["producer_id"] == before["producer_id"]) & (after["producer_epoch"] == before["producer_epoch"])
    has_sequences = (before["base_sequence"] >= 0) & (after["base_sequence"] >= 0)
    contradicts = is_same & has_sequences & (after["base_sequence"] != _next_sequence(before))
    is_new[1:] = ~is_chain | (is_block & (~goes_on | contradicts))
    return is_new


def _next_sequence(rows: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """int64[n]: the sequence after each batch; after the largest one comes 0.

    Source: DefaultRecordBatch.incrementSequence, Kafka 4.3.
    """
    n_offsets = rows["last_offset"] - rows["first_offset"] + 1
    following: npt.NDArray[np.int64] = (rows["base_sequence"] + n_offsets) & 0x7FFFFFFF
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
    idempotent = rows[(rows["producer_id"] >= 0) & (rows["base_sequence"] >= 0)]
    ids, at_first = np.unique(idempotent["producer_id"], return_index=True)
    _, at_last = np.unique(idempotent["producer_id"][::-1], return_index=True)
    ids = ids[:_MOST_PRODUCERS].tolist()
    begin, end = idempotent[at_first[: len(ids)]], idempotent[::-1][at_last[: len(ids)]]
    result.first_producers = _sequences(ids, begin["producer_epoch"], begin["base_sequence"], begin["first_offset"])
    result.next_producers = _sequences(ids, end["producer_epoch"], _next_sequence(end), end["last_offset"] + 1)
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
    heads = np.concatenate([keys_of(rows[one.first_row : one.first_row + 1]) for one in fragments])
    owners = np.array([one.first_row for one in fragments], np.int64)
    ordered = np.sort(heads)
    holders: dict[int, list[int]] = {}
    for begin in range(0, rows.size, _CHUNK):
        chunk = np.asarray(rows[begin : begin + _CHUNK])
        keys = keys_of(chunk)
        place = np.minimum(np.searchsorted(ordered, keys), ordered.size - 1)
        for row in np.flatnonzero((ordered[place] == keys) & (chunk["size"] > 0)).tolist():
            owner = int(np.searchsorted(owners, begin + row, side="right")) - 1
            holders.setdefault(int(keys[row]), []).append(owner)
    for number in sorted(range(len(fragments)), key=lambda number: (fragments[number].n_batches, -number)):
        of_fragment = rows[fragments[number].first_row : fragments[number].stop_row]
        if (of_fragment["attributes"] & kf.CONTROL_BIT).all():
            continue
        part = keys_of(of_fragment)
        for other in holders[int(heads[number])]:
            holder = fragments[other]
            if other == number or holder.is_copy or holder.n_batches < part.size:
                continue
            if np.isin(part, keys_of(rows[holder.first_row : holder.stop_row])).all():
                fragments[number].copy_of = holder
                break
