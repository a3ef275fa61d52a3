"""Plans the salvage of one segment: which of its bytes are kept, lost, suspect and padding. Writes nothing.

A batch with a right checksum is kept even if its records cannot be decoded, or are out of order; `undecodable` reports
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, Finding, LimitExceededError, Limits, Reason
from kafkalog.log.searching.consistent_batches import Mask, agreeing, read_wrappers, touching
from kafkalog.log.searching.damaged_sizes import with_skipped_batches
from kafkalog.log.searching.odd_offsets import Witnesses, odd_last
from kafkalog.log.searching.resync import CHAINED, INSIDE, SEARCHED, IntactRuns, find_batches, heaviest_rising
from kafkalog.log.segment import Segment
from kafkalog.operations.verifying.record_headers import COLUMNS, going_back
from kafkalog.records.batch_table import BatchTable, Window, lost_batch, valid_crcs, whole_batches
from kafkalog.records.decode import decode_all
from kafkalog.records.header_walk import LINKED
from kafkalog.records.selection import Selection
from kafkalog.state.leader_epochs import Epochs
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.copying import COPY_BYTES
from kafkalog.storage.source import Bytes, ByteSource
from kafkalog.text import offset_range

_MOST_TAIL: Final = 4096
"""Bytes that are read or written at a time."""


@dataclass(frozen=True, eq=False, slots=True)
class DroppedRanges:
    """Ranges of bytes that are not kept, in order."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    """int64[n]."""
    is_suspect: npt.NDArray[np.bool_]
    """bool[n]."""
    is_linked: npt.NDArray[np.bool_]
    """bool[n]: whether the range is one damaged batch, whose size field can be believed."""

    def __len__(self) -> int:
        return self.start.size


@dataclass(frozen=True, eq=False, slots=True)
class KeptRanges:
    """What to do with the bytes of a segment."""

    segment: Segment
    next_base_offset: int | None
    size_in_bytes: int
    kept: IntactRuns
    """Runs of batches, in the order of their offsets."""
    epochs: npt.NDArray[np.int32]
    """int32[n]: the leader epoch to write of each."""
    lost: DroppedRanges
    padding_start: int
    """Where the padding at the end of the file begins; its size if it has none."""
    n_suspect_batches: int


def plan_segment(
    segment: Segment,
    source: BadSectorSource,
    following: Segment | None,
    epochs: Epochs,
    limits: Limits,
    progress: Callable[[int], object],
) -> KeptRanges:
    """Find the intact batches of a segment, and choose those that are the log's own."""
    parts, done = [], 0
    for part in find_batches(source, limits=limits):
        joined = part.joined()
        parts.append(joined)
        progress(int(joined.end[-1]) - done)
        done = int(joined.end[-1])
    progress(source.size - done)
    found = IntactRuns.concatenate(parts)
    del parts
    found = with_skipped_batches(source, found, base_offset=segment.base_offset, limits=limits)
    next_base_offset = None if following is None else following.base_offset
    end_offset = kf.MAX_OFFSET if following is None else _end_offset(source, found, following.base_offset, limits)
    choice = choose(
        source,
        found,
        base_offset=segment.base_offset,
        end_offset=end_offset,
        epochs=epochs,
        witnesses=segment.witnesses,
        limits=limits,
    )
    end = int(found.end[-1]) if len(found) else 0
    padding = end if source.is_padding(end, source.size) else source.size
    lost = _lost(choice, found[found.kind == LINKED], padding)
    n_suspects = int(choice.suspects.n_batches.sum())
    kept, written = choice.kept, choice.epochs
    return KeptRanges(segment, next_base_offset, source.size, kept, written, lost, padding, n_suspects)


def _end_offset(source: ByteSource, found: IntactRuns, base_offset: int, limits: Limits) -> int:
    """The bound of a segment's offsets: where the next one begins, or its last batches end, which may reach into it.

    They are the log's own if they continue from a batch before `base_offset`, the next segment's. Readers return them,
    too, and not the copies in the next segment.
    """
    runs = found[(found.kind != LINKED) & (found.kind != INSIDE)]
    if not len(runs) or int(runs.last_offset[-1]) < base_offset:
        return base_offset
    runs, _ = read_wrappers(source, runs[-_MOST_TAIL:], limits)
    follows = touching(runs) & (runs.first_offset[1:] == runs.last_offset[:-1] + 1)
    follows &= runs.leader_epoch[1:] >= runs.leader_epoch[:-1]
    breaks = np.flatnonzero(~follows)
    tail = runs[int(breaks[-1]) + 1 :] if breaks.size else runs
    is_own = int(tail.n_batches.sum()) > 1 and int(tail.first_offset[0]) < base_offset
    return int(tail.last_offset[-1]) + 1 if is_own else base_offset


def _lost(choice: Choice, linked: IntactRuns, stop: int) -> DroppedRanges:
    """What lies between the kept runs, cut where suspects and damaged batches begin and end."""
    kept, suspects = choice.kept, choice.suspects
    start = np.concatenate([kept.start, suspects.start, linked.start])
    end = np.concatenate([kept.end, suspects.end, linked.end])
    kind = np.repeat(np.array([0, 1, 2], np.int8), [len(kept), len(suspects), len(linked)])
    order = np.argsort(start, kind="stable")
    start, end, kind = start[order], end[order], kind[order]
    free_start = np.concatenate([[0], end])
    free_end = np.concatenate([start, [stop]])
    is_free = free_start < free_end
    rest = kind > 0
    all_start = np.concatenate([free_start[is_free], start[rest]])
    all_end = np.concatenate([free_end[is_free], end[rest]])
    all_kind = np.concatenate([np.zeros(int(is_free.sum()), np.int8), kind[rest]])
    order = np.argsort(all_start, kind="stable")
    return DroppedRanges(all_start[order], all_end[order], all_kind[order] == 1, all_kind[order] == 2)


def gather(
    source: ByteSource, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> Iterator[tuple[Bytes, int, int]]:
    """Read ranges of a file, several at a time; yields the bytes of the ranges `first` to `last` (excluded).

    A range that is longer than `COPY_BYTES` is yielded alone and whole. The ranges need not be in order.
    """
    first = 0
    breaks = np.append(np.flatnonzero(start[1:] < end[:-1]) + 1, start.size)
    while first < start.size:
        low = int(start[first])
        stop = int(breaks[np.searchsorted(breaks, first, side="right")])
        last = max(first + int(np.searchsorted(end[first:stop], low + COPY_BYTES, side="right")), first + 1)
        high = int(end[last - 1])
        window = source.window(low, high)
        if int((end[first:last] - start[first:last]).sum()) == high - low:
            yield window, first, last
        else:
            pieces = zip((start[first:last] - low).tolist(), (end[first:last] - low).tolist(), strict=True)
            yield np.concatenate([window[a:b] for a, b in pieces]), first, last
        source.release(window, low)
        del window
        first = last


def read_intact(
    source: ByteSource,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    n_batches: npt.NDArray[np.integer[Any]],
) -> Iterator[tuple[Window, int, int]]:
    """Read ranges as `gather` does, and parse the `n_batches` that each holds.

    Raises FileChangedError if one is not intact now.
    """
    for data, first, last in gather(source, start, end):
        window = Window(data, 0, whole_batches(data, 0))
        if len(window.batches) != n_batches[first:last].sum() or not valid_crcs(window).all():
            detail = "the bytes changed after the search: another process writes to the file, or the disk fails"
            raise FileChangedError(Reason.FILE_CHANGED, detail, path=source.path, position=int(start[first]))
        yield window, first, last


def with_epochs(window: Window, epochs: npt.NDArray[np.int32]) -> Window:
    """The window with these leader epochs in its v2 batches; no checksum covers them."""
    batches = window.batches
    wrong = np.flatnonzero((batches.magic >= 2) & (batches.partition_leader_epoch != epochs))
    if not wrong.size:
        return window
    data = window.data.copy()
    for row in wrong.tolist():
        at = int(batches.position[row]) + kf.LOG_OVERHEAD
        data[at : at + 4] = np.frombuffer(int(epochs[row]).to_bytes(4, "big", signed=True), np.uint8)
    return Window(data, 0, whole_batches(data, 0))


def wrong_epochs(plan: KeptRanges) -> Iterator[Finding]:
    """The findings about leader epochs that are replaced, one for each run of batches."""
    path, kept = str(plan.segment.path), plan.kept
    for row in np.flatnonzero(kept.leader_epoch != plan.epochs).tolist():
        detail = (
            f"leader epoch {kept.leader_epoch[row]} contradicts its neighbours, so salvage writes {plan.epochs[row]}"
        )
        first, last = int(kept.first_offset[row]), int(kept.last_offset[row])
        found = Finding(Reason.EPOCH_ORDER, detail, path, int(kept.start[row]), base_offset=first, last_offset=last)
        yield replace(found, n_records=0, certainty="exact")


def moved_batches(plan: KeptRanges) -> Iterator[Finding]:
    """The findings about batches that stand behind later ones, and are written in the order of their offsets."""
    kept, path = plan.kept, str(plan.segment.path)
    for row in (np.flatnonzero(np.diff(np.maximum.accumulate(kept.start)) == 0) + 1).tolist():
        first, last = int(kept.first_offset[row]), int(kept.last_offset[row])
        detail = f"offsets {offset_range(first, last + 1)} stand before lower ones: both are kept,"
        detail += " in the order of their offsets"
        found = Finding(Reason.OFFSET_ORDER, detail, path, int(kept.start[row]), base_offset=first, last_offset=last)
        yield replace(found, n_records=0, certainty="exact")


def file_positions(
    at: npt.NDArray[np.int64], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return positions in the file for positions in the joined bytes of ranges that `gather` yielded together."""
    begins = np.concatenate([[0], np.cumsum(end - start)[:-1]])
    row = np.searchsorted(begins, at, side="right") - 1
    found: npt.NDArray[np.int64] = start[row] + at - begins[row]
    return found


def undecodable(
    window: Window,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    path: str,
    limits: Limits,
    *,
    before: int | None = None,
) -> list[Finding]:
    """Findings about the batches of gathered ranges (see `gather`) that cannot be decoded.

    `before` is the last offset before. Their checksums are right, or are compared elsewhere. A batch that is larger
    than the limits allow is no damage.
    """
    everything = Selection(include_control=True)
    found: list[Finding] = []
    window = window._replace(batches=window.batches[~_is_opaque(window.batches)], valid=None)
    batches = window.batches
    for decoded in decode_all(window, COLUMNS, selection=everything, check_crcs=False, limits=limits, path=path):
        if decoded.columns is not None:
            found += going_back(decoded.columns, batches, path, before)
        if decoded.error is not None:
            is_damage = not isinstance(decoded.error, LimitExceededError)
            found.append(replace(lost_batch(decoded.error, batches), damage=is_damage))
    at = np.array([finding.position for finding in found], np.int64)
    kept = "its checksum is right, so the batch is kept as it is"
    return [
        replace(one, detail=f"{one.detail}; {kept}", position=position, n_records=0, certainty="exact")
        for position, one in sorted(zip(file_positions(at, start, end).tolist(), found, strict=True), key=itemgetter(0))
    ]


def _is_opaque(batches: BatchTable) -> npt.NDArray[np.bool_]:
    """Whether batches have to be decompressed to tell whether they can be decoded."""
    has_count = batches.records_count >= 0
    opaque: npt.NDArray[np.bool_] = (batches.codec != 0) & (batches.codec <= kf.LAST_CODEC) & has_count
    opaque &= batches.magic >= 2  # older ones hide their first offset, too
    return opaque


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """What is kept of the runs of a segment."""

    kept: IntactRuns
    """In the order of their offsets and positions."""
    suspects: IntactRuns
    """In the order of their positions."""
    epochs: npt.NDArray[np.int32]
    """int32[n]: the leader epoch of each run that is kept, where its own is wrong that of the batches around it."""


def choose(
    source: ByteSource,
    found: IntactRuns,
    *,
    base_offset: int,
    end_offset: int,
    epochs: Epochs,
    witnesses: Callable[[], Witnesses] = Witnesses,
    limits: Limits = DEFAULT_LIMITS,
) -> Choice:
    """Choose the batches that agree with each other.

    No checksum covers the base offset and the leader epoch of a batch. `kafkalog.log.searching` keeps the largest set
    of batches whose offsets rise, as for readers. A leader epoch that contradicts the others, or the partition's
    `leader-epoch-checkpoint`, is replaced: the records are intact.

    `found` has joined runs, `base_offset` to `end_offset` are the offsets that the segment may hold, `epochs` is the
    content of `leader-epoch-checkpoint`, and `witnesses` returns the evidence about the end of the segment. Linked rows
    are in neither part of the result.
    """
    agreement = agreeing(source, found, base_offset=base_offset, end_offset=end_offset, limits=limits)
    runs, keep = agreement.runs, agreement.is_kept.copy()
    if _has_odd_end(source, runs[keep], base_offset, witnesses):
        keep[np.flatnonzero(keep)[-1]] = False
    moved = _moved(source, runs, keep, base_offset, end_offset)
    keep[moved] = True
    if moved.size:
        # suspects and kept ones each in the order of their offsets from here on
        order = np.argsort(runs.first_offset, kind="stable")
        runs, keep = runs[order], keep[order]
    right = keep & (runs.leader_epoch >= kf.NO_EPOCH)
    right[right] = _rising_epochs(runs[right], runs.leader_epoch)
    right[right] = _checkpointed(runs[right], epochs)
    epochs_now = _replaced_epochs(runs, keep & ~right, np.flatnonzero(right & (runs.leader_epoch >= 0)), epochs)
    if keep.all():
        return Choice(runs, IntactRuns.empty(), epochs_now)
    suspects = runs[~keep]
    return Choice(runs[keep], suspects[np.argsort(suspects.start)], epochs_now[keep])


def _moved(
    source: ByteSource, runs: IntactRuns, keep: Mask, base_offset: int, end_offset: int
) -> npt.NDArray[np.int64]:
    """The runs that are not kept only because they stand in another place, as after two batches were swapped.

    Such a run fills a gap between kept ones exactly, and stands between intact batches: no bytes are lost there, in
    which it could have been a part of a value. If there is no offset for it where it stands, it may also fill one side
    of a gap, whose rest is lost.
    """
    if keep.all() or not keep.any():
        return np.empty(0, np.int64)
    others = np.flatnonzero(~keep & _is_reached(runs, keep, source.size) & (runs.first_offset < end_offset))
    kept = runs[keep]
    if not others.size:
        return others
    ends = np.append(base_offset - 1, kept.last_offset)
    starts = np.append(kept.first_offset, end_offset)
    gap = np.searchsorted(starts, runs.first_offset[others])
    fits_start = runs.first_offset[others] == ends[gap] + 1
    fits_end = (runs.last_offset[others] + 1 == starts[gap]) | (starts[gap] == kf.MAX_OFFSET)
    end = np.minimum(starts[gap], end_offset)
    is_inside = (runs.first_offset[others] > ends[gap]) & (runs.last_offset[others] < end)
    before, after = np.append(base_offset - 1, runs.last_offset), np.append(runs.first_offset, kf.MAX_OFFSET)
    has_no_place = np.append(True, keep)[others] & np.append(keep, False)[others + 1]
    has_no_place &= before[others] + 1 == after[others + 1]
    fits = is_inside & ((fits_start & fits_end) | (has_no_place & (fits_start | fits_end)))
    touches = np.concatenate([[runs.start[0] == 0], touching(runs), [True]])
    fits &= touches[others] & touches[others + 1]
    # of copies, the first one counts
    _, first = np.unique(gap[fits], return_index=True)
    found: npt.NDArray[np.int64] = others[fits][first]
    return found


def _is_reached(runs: IntactRuns, keep: Mask, size: int) -> Mask:
    """Which runs batches of the log lead to: after damage, those that follow a kept one up to another, or to the end.

    Batches in the value of a damaged one reach neither the next batch nor the end.
    """
    group = np.cumsum(np.append(True, ~touching(runs)))  # the same number: no gap between them
    before = np.maximum.accumulate(np.where(keep, group, 0))
    last = group[-1] if runs.end[-1] == size else group[-1] + 1
    after = np.minimum.accumulate(np.where(keep, group, last)[::-1])[::-1]
    is_between = (before == group) & (after == group)
    reached: Mask = (runs.kind == CHAINED) | ((runs.kind == SEARCHED) & is_between)
    return reached


def _replaced_epochs(
    runs: IntactRuns, is_wrong: Mask, right: npt.NDArray[np.int64], known: Epochs
) -> npt.NDArray[np.int32]:
    """The epochs of the runs, wrong ones replaced by that of the `right` row before, or else after.

    One that begins at a wrong row, as the `known` epochs of the checkpoint say, replaces it if it fits between these
    two. If there is no right row, the last of the checkpoint replaces all.
    """
    epochs, wrong = runs.leader_epoch.copy(), np.flatnonzero(is_wrong)
    if right.size:
        place = np.searchsorted(right, wrong)
        epochs[wrong] = epochs[right[np.maximum(place - 1, 0)]]
        begins = {start: epoch for epoch, start in known}
        for row, at in zip(wrong.tolist(), place.tolist(), strict=True):
            told = begins.get(int(runs.first_offset[row]), kf.NO_EPOCH)
            if told > epochs[row] and (at == right.size or told <= epochs[right[at]]):
                epochs[row] = told
    elif known:
        epochs[wrong] = known[-1][0]
    return epochs


def _rising_epochs(runs: IntactRuns, found: npt.NDArray[np.int32]) -> Mask:
    """The largest set of runs whose epochs do not fall.

    Of two such sets, that with fewer epochs that only one of all that were `found` has; then that of lower epochs: few
    epochs are large, and a flipped bit rarely makes one smaller.
    """
    keep = np.ones(len(runs), np.bool_)
    rows = np.flatnonzero(runs.leader_epoch >= 0)
    epoch = runs.leader_epoch[rows].astype(np.int64)
    known, n_found = np.unique(found, return_counts=True)
    is_shared = n_found[np.searchsorted(known, epoch)] > 1
    n_zero_bits = 32 - np.frexp(epoch)[1]
    # batches come first: all zero bits of a segment together weigh less than one batch
    weight = (2 * runs.n_batches[rows] + is_shared) * (32 * rows.size + 1) + n_zero_bits
    # as ranges that end right below where they begin, so that equal epochs count as rising
    keep[rows] = heaviest_rising(2 * epoch + 1, 2 * epoch, weight)
    return keep


def _checkpointed(runs: IntactRuns, epochs: Epochs) -> Mask:
    """Which runs have the epoch that the checkpoint has for their offsets; all, if most contradict it."""
    keep = np.ones(len(runs), np.bool_)
    if not epochs or not len(runs):
        return keep
    starts = np.array([start for _, start in epochs], np.int64)
    known = np.array([epoch for epoch, _ in epochs], np.int64)
    row = np.searchsorted(starts, runs.first_offset, side="right") - 1
    epoch = runs.leader_epoch.astype(np.int64)
    said = np.where(row >= 0, known[np.maximum(row, 0)], -1)
    # the file may be older than the last batches, and begin past the first
    is_inside = (row >= 0) & (row < len(epochs) - 1)
    is_wrong = (epoch >= 0) & (is_inside & (epoch != said) | (row >= 0) & (epoch < said))
    n_wrong = int(runs.n_batches[is_wrong].sum())
    # epochs that few batches contradict are damaged; a file that most contradict is old, or of another log
    if 2 * n_wrong < int(runs.n_batches[epoch >= 0].sum()):
        keep &= ~is_wrong
    # a broker writes an epoch to the file before its first batch: where that batch or an earlier one has the last epoch
    # of the file, the file is not older than the log
    last_epoch, last_start = epochs[-1]
    is_lone = len(runs) == 1 or int(epoch[-2]) == last_epoch or int(runs.first_offset[-1]) == last_start
    keep[-1] &= int(runs.n_batches[-1]) > 1 or not is_lone or int(epoch[-1]) <= last_epoch
    return keep


def _has_odd_end(source: ByteSource, runs: IntactRuns, base_offset: int, witnesses: Callable[[], Witnesses]) -> bool:
    """Whether the last batch of the segment has a wrong offset, as readers find; see `odd_last`."""
    if not len(runs) or runs.n_batches[-1] > 1 or source.size - runs.end[-1] >= kf.LOG_OVERHEAD:
        return False
    start, before = (int(runs.end[-2]), int(runs.last_offset[-2])) if len(runs) > 1 else (0, base_offset - 1)
    last_run, _ = read_wrappers(source, runs[-1:], DEFAULT_LIMITS)
    first, last = int(last_run.first_offset[0]), int(last_run.last_offset[0])
    is_far = runs.start[-1] == start and first > before + 1
    return is_far and odd_last(before, first, last, witnesses()) is not None
