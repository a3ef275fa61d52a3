"""Finds intact batches inside a damaged one whose size field leads past them to a later batch.

Normally a damaged batch is not searched, since its records may contain whole batches. But if bytes were lost or
inserted, its size field may lead past intact batches to a later one by chance. Then offsets are missing between the
two, and an intact batch inside with exactly these offsets belongs to the log. Without missing offsets, nothing is
searched.

If the size field leads to the end of the file by chance, an intact batch inside also ends there. The value of a record
never does: at least one byte follows the last value of a v2 batch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog.errors import Limits
from kafkalog.log.searching.resync import INSIDE, SEARCHED, IntactRuns, find_batches
from kafkalog.records.header import MAGIC_END, BatchHeader
from kafkalog.records.header_walk import LINKED
from kafkalog.storage.source import ByteSource

_MOST_LINKS: Final = 4096
_LOOK_BACK: Final = 64  # runs to examine, since the nearest may be misplaced


def with_skipped_batches(source: ByteSource, found: IntactRuns, *, base_offset: int, limits: Limits) -> IntactRuns:
    """Add to joined runs the intact batches that the size field of a damaged batch skips by chance.

    A damaged batch ends where such a row begins, or is removed if its offsets contradict its neighbours.
    """
    found = _at_the_end(source, found, limits)
    is_link = found.kind == LINKED
    rows = np.flatnonzero(is_link[:-1])
    intact = np.flatnonzero(~is_link)
    number_before = np.searchsorted(intact, rows)  # number of the previous intact run
    before = np.append(base_offset - 1, found.last_offset[intact])[number_before]
    after, epoch_after = _what_follows(found, is_link)
    after, epoch_after = after[rows + 1], epoch_after[rows + 1]
    first, last = found.first_offset[rows], found.last_offset[rows]
    # no offset is missing after a damaged batch with a plausible header
    is_searched = (before + 1 != after) & ~((before < first) & (first <= last) & (last + 1 == after)) & (after >= 0)
    if not is_searched.any():
        return found
    parts, done = [], 0
    for number in np.flatnonzero(is_searched)[:_MOST_LINKS].tolist():
        row, end_offset = int(rows[number]), int(after[number])
        earlier = intact[max(number_before[number] - _LOOK_BACK, 0) : number_before[number]]
        lowest = next((one for one in found.last_offset[earlier][::-1].tolist() if one < end_offset), base_offset - 1)
        is_right = lowest < first[number] <= last[number] < end_offset
        if is_right:
            lowest = int(last[number])
        start, end = int(found.start[row]), int(found.end[row])
        inside = IntactRuns.concatenate(
            list(find_batches(source, start=start, stop=end, is_damaged=True, limits=limits))
        )
        inside = inside[(inside.kind != LINKED) & (inside.kind != INSIDE)]
        # only the last ones: earlier ones, before other damage, do not lead to the end
        inside = inside[_leading_to(inside, lowest, end_offset, int(epoch_after[number]))]
        if not len(inside):
            continue
        inside.kind[:] = SEARCHED
        parts.append(found[done:row])
        if is_right:
            link = found[row : row + 1]
            link.end[:] = inside.start[0]
            parts.append(link)
        parts.append(inside)
        done = row + 1
    return IntactRuns.concatenate([*parts, found[done:]])


def _at_the_end(source: ByteSource, found: IntactRuns, limits: Limits) -> IntactRuns:
    """Add the batches that lead to the end of the file, inside a damaged v2 batch that also ends there."""
    row = len(found) - 1
    if row < 0 or found.kind[row] != LINKED or found.end[row] != source.size:
        return found
    start, end = int(found.start[row]), int(found.end[row])
    window = source.window(start, min(start + MAGIC_END, end))
    header = BatchHeader(window)
    source.release(window, start)
    if len(header) < MAGIC_END or header.magic != 2:
        return found
    inside = IntactRuns.concatenate(list(find_batches(source, start=start, stop=end, is_damaged=True, limits=limits)))
    first = len(inside)
    while first and inside.kind[first - 1] != LINKED and inside.end[first - 1] == end:
        first -= 1
        end = int(inside.start[first])
    inside = inside[first:]
    if not len(inside):
        return found
    inside.kind[:] = SEARCHED
    link = found[row : row + 1]
    link.end[:] = end
    if not link.first_offset[0] <= link.last_offset[0] < inside.first_offset[0]:
        link = link[:0]
    return IntactRuns.concatenate([found[:row], link, inside])


def _what_follows(
    found: IntactRuns, is_link: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """First offset and leader epoch of each row.

    For a damaged batch, the offset is -1 unless its header is consistent with the next batch; for v0 and v1, the next
    offset only has to be higher. The epoch is that of the next intact batch.
    """
    first, epoch = np.where(is_link, -1, found.first_offset), found.leader_epoch.copy()
    # backwards, so that the target of a damaged batch is known before the batch itself
    for row in np.flatnonzero(is_link)[:-_MOST_LINKS:-1].tolist():
        begin, end = int(found.first_offset[row]), int(found.last_offset[row])
        if row + 1 < len(found):
            epoch[row] = epoch[row + 1]
            is_below = epoch[row] < 0 and end < first[row + 1]
            if 0 <= begin <= end and (is_below or end + 1 in (first[row + 1], found.first_offset[row + 1])):
                first[row] = begin
    return first, epoch


def _leading_to(inside: IntactRuns, lowest: int, end: int, epoch: int) -> npt.NDArray[np.int64]:
    """Row numbers of the last batches whose offsets are above `lowest` and lead to `end` without a gap.

    The header of a compressed v0 or v1 message lacks its first offset: there, offsets only need to increase, and other
    batches may lie in between.
    """
    rows: list[int] = []
    for row in range(len(inside) - 1, -1, -1):
        is_legacy = epoch < 0
        offsets = int(inside.first_offset[row]), int(inside.last_offset[row])
        is_between = lowest < offsets[0] <= offsets[1] < end
        if not is_between and is_legacy:
            continue
        if not is_between or (offsets[1] + 1 != end and not is_legacy):
            break
        if int(inside.leader_epoch[row]) > max(epoch, -1) and not is_legacy:
            break
        end, epoch = offsets[0], int(inside.leader_epoch[row])
        rows.append(row)
    return np.array(rows[::-1], np.int64)
