"""Finds batches that survive only in a second copy of a part of the log, elsewhere in the same file.

A part of a log may be in its file twice, for example after a repeated write, with damage in both copies. `choosing`
keeps the batches of one copy, since the other contradicts it. A batch that is intact only in the other copy fills the
hole in the first. Batches that are intact in both copies prove that they are copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog.log.searching.resync import CHAINED, Found
from kafkalog.storage.source import ByteSource

_MOST_ROWS: Final = 4096  # search copies of at most this many batches


@dataclass(slots=True)
class Copies:
    """Batches of second copies that fill holes of the first."""

    rows: list[int] = field(default_factory=list)
    """Indices into the rows that are not kept."""
    places: list[int] = field(default_factory=list)
    """For each, a position in the hole to fill."""


def find_copies(source: ByteSource, kept: Found, others: Found, is_wanted: npt.NDArray[np.bool_]) -> Copies:
    """Find batches that are missing from the kept copy of the log, but intact in another.

    Kept rows have increasing offsets, the others are in order of position; `is_wanted` says which of these may be used.
    """
    copies = Copies()
    if not len(kept) or not len(others) or len(others) > _MOST_ROWS:
        return copies
    twin = _twins(source, kept, others)
    known = np.flatnonzero(twin >= 0)
    if not known.size:
        return copies
    taken: dict[int, tuple[int, int]] = {}  # per hole: last offset and position of the last batch put there
    for row in np.flatnonzero(is_wanted & (twin < 0)).tolist():
        hole = int(np.searchsorted(kept.first_offset, int(others.first_offset[row]), side="right"))
        # holes at the start and end have only one neighbour, so their extent is unknown
        if not 0 < hole < len(kept):
            continue
        taken_to, lowest = taken.get(hole, (int(kept.last_offset[hole - 1]), int(kept.end[hole - 1])))
        place = _place(kept, others, twin, known, row, hole)
        if place is None or place < lowest or not _fits(kept, others, row, hole, taken_to):
            continue
        taken[hole] = int(others.last_offset[row]), place
        copies.rows.append(row)
        copies.places.append(place)
    return copies


def _fits(kept: Found, others: Found, row: int, hole: int, taken_to: int) -> bool:
    """Whether the offsets and the epoch of a row lie between those of the hole's neighbours."""
    epoch, before, after = (int(one) for one in (others.leader_epoch[row], *kept.leader_epoch[hole - 1 : hole + 1]))
    is_epoch_right = epoch < 0 or ((before < 0 or before <= epoch) and (after < 0 or epoch <= after))
    first, last = int(others.first_offset[row]), int(others.last_offset[row])
    return taken_to < first <= last < int(kept.first_offset[hole]) and is_epoch_right


def _place(
    kept: Found, others: Found, twin: npt.NDArray[np.int64], known: npt.NDArray[np.int64], row: int, hole: int
) -> int | None:
    """Position of a row within the hole of the kept copy, by its neighbours; None if they do not determine it."""
    start, end = int(kept.end[hole - 1]), int(kept.start[hole])
    at = int(np.searchsorted(known, row))
    before = int(known[at - 1]) if at else -1
    after = int(known[at]) if at < known.size else -1
    is_before = before >= 0 and twin[before] < hole
    is_after = after >= 0 and twin[after] >= hole
    for there, is_good in ((before, is_before), (after, is_after)):
        if is_good:
            place = int(others.start[row]) - int(others.start[there]) + int(kept.start[twin[there]])
            if start <= place and place + int(others.end[row] - others.start[row]) <= end:
                return place
    # damage may have changed the distance; a batch right after an intact one belongs to the same copy
    is_chained = is_before and others.kind[row] == CHAINED
    return start if is_chained or (is_before and is_after) else None


def _twins(source: ByteSource, kept: Found, others: Found) -> npt.NDArray[np.int64]:
    """For each of the others, the kept row with the same bytes; -1 for none."""
    twin = np.full(len(others), -1, np.int64)
    at = np.minimum(np.searchsorted(kept.first_offset, others.first_offset), len(kept) - 1)
    same = are_same(source, kept[at], others)
    twin[same] = at[same]
    return twin


def are_same(source: ByteSource, one: Found, other: Found) -> npt.NDArray[np.bool_]:
    """Compare two equally long sets row by row: which have the same bytes."""
    same: npt.NDArray[np.bool_] = (one.first_offset == other.first_offset) & (one.last_offset == other.last_offset)
    # compare sizes first: they need no read
    same &= one.end - one.start == other.end - other.start
    for row in np.flatnonzero(same).tolist():
        a, b = int(one.start[row]), int(other.start[row])
        first, second = source.window(a, int(one.end[row])), source.window(b, int(other.end[row]))
        same[row] = np.array_equal(first, second)
        source.release(second, b)
        source.release(first, a)
    return same
