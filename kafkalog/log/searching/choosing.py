"""Chooses, among the intact batches found in a damaged segment, those that are the log's own.

A right checksum is not enough. Records may hold whole batches, as a topic of dumped segments does. No checksum covers a
batch's base offset and leader epoch, and a sector that was written to the wrong place holds intact batches, too. So the
batches of a log must agree: offsets rise, epochs do not fall, both fit the file name, the next segment and the
partition's `leader-epoch-checkpoint`. The largest set that agrees is kept; the others are suspects. Reads no record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.log.searching.copies import are_same, find_copies
from kafkalog.log.searching.resync import INSIDE, SEARCHED, Found, find_batches, heaviest_rising
from kafkalog.log.searching.wrapper_offsets import read_wrappers
from kafkalog.records.header_walk import LINKED
from kafkalog.state.leader_epochs import Epochs
from kafkalog.storage.source import ByteSource

Mask = npt.NDArray[np.bool_]

_PER_BATCH: Final = 6  # weight of a batch; agreement with a neighbour counts 1
_PER_CLAIM: Final = 2
_SUSPICIOUS_JUMP: Final = 16  # of epochs: elections between two batches are few, and one flipped bit may be any
_SUSPICIOUS_GAP: Final = 2**24  # of offsets
_FAR: Final = 1024  # as many times the offsets of a batch
_LEVELS: Final = 256  # of displacement: its logarithm, so that a far one is worse than another
_MAX_SPLITS: Final = 4096  # runs that are taken apart to look at each batch


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """What is kept of the runs of a segment."""

    kept: Found
    """In the order of their offsets."""
    places: npt.NDArray[np.int64]
    """Where in the segment each of them belongs, rising: the start of the run, or a position in the damage that a run
    of a second copy fills."""
    suspects: Found
    """In the order of their positions."""


def choose(
    source: ByteSource,
    found: Found,
    *,
    base_offset: int,
    end_offset: int,
    epochs: Epochs,
    limits: Limits = DEFAULT_LIMITS,
) -> Choice:
    """Choose the batches that agree with each other.

    Parameters
    ----------
    source : ByteSource
        The segment; runs of which only a part agrees are walked again.
    found : Found
        Runs from `find_batches`, joined.
    base_offset, end_offset : int
        Offsets that the segment may hold, half-open.
    epochs : list of (epoch, start offset)
        Content of the `leader-epoch-checkpoint`, empty if there is none that can be read.

    Returns
    -------
    Choice
        Linked rows are in neither of its two parts.
    """
    low, high = base_offset, end_offset
    claims = found[(found.kind == LINKED) & (found.first_offset >= 0) & (found.last_offset >= found.first_offset)]
    runs = found[found.kind != LINKED]
    if _is_lone_value(runs, low):
        return Choice(Found.empty(), runs.start[:0], runs)
    if _agree(runs, claims, low, high, epochs):
        return Choice(runs, runs.start, Found.empty())
    runs, doubted = _taken_apart(source, runs, low, high, limits)
    keep = (runs.kind != INSIDE) & (runs.first_offset >= low) & (runs.last_offset < high)
    keep &= (runs.last_offset >= runs.first_offset) & (runs.leader_epoch >= kf.NO_EPOCH)
    numbered, is_disproved = read_wrappers(source, runs, limits)
    doubted[np.isin(doubted, _cleared(numbered, doubted))] = 0
    keep[keep] = _rising_offsets(numbered[keep], claims, ((doubted > 0) | is_disproved)[keep], low)
    # where some of them contradict the log, they are a value's: the others only happen to fit
    is_wrong = ~keep & (doubted > 0)
    # unless it is one whose offset is wrong in one bit or byte: else it would be between its neighbours
    is_wrong[1:-1] &= ~((doubted[1:-1] == doubted[:-2]) & keep[:-2] & _would_fit(runs))
    # or is there twice
    rows = np.flatnonzero(is_wrong[:-1] & _touch(runs))
    is_wrong[rows] = ~are_same(source, runs[rows], runs[rows + 1])
    keep &= ~np.isin(doubted, doubted[is_wrong])
    keep[keep] = _rising_epochs(runs[keep], runs.leader_epoch)
    keep[keep] = _checkpointed(runs[keep], epochs)
    keep[keep] = ~_lone_jumps(runs[keep])
    misplaced = _misplaced(runs[keep], claims)
    if misplaced.any() and not _is_cleaned(source, runs[keep]):
        keep[keep] = ~misplaced
    is_possible = runs.kind != INSIDE
    is_possible[is_possible] = _checkpointed(runs[is_possible], epochs)
    return _with_copies(source, runs, keep, is_possible)


def _with_copies(source: ByteSource, runs: Found, keep: Mask, is_possible: Mask) -> Choice:
    """What is kept, and what second copies have of the holes in it."""
    others = np.flatnonzero(~keep)
    copies = find_copies(source, runs[keep], runs[others], is_possible[others])
    places = runs.start.copy()
    places[others[copies.rows]] = copies.places
    keep[others[copies.rows]] = True
    kept = np.flatnonzero(keep)
    kept = kept[np.lexsort((runs.first_offset[kept], places[kept]))]
    return Choice(runs[kept], places[kept], runs[~keep])


def _is_lone_value(runs: Found, low: int) -> bool:
    """Whether a message of offset 0 is all that is left, and does not stand where a log begins.

    Inside of a compressed v1 message offsets begin at 0, and a codec may store a message there as it was.
    """
    return (
        len(runs) == 1
        and int(runs.n_batches[0]) == 1
        and int(runs.leader_epoch[0]) < 0
        and int(runs.last_offset[0]) == low == 0
        and int(runs.start[0]) > 0
    )


def _agree(runs: Found, claims: Found, low: int, high: int, epochs: Epochs) -> bool:
    """Whether there is nothing to choose."""
    if not len(runs):
        return True
    is_right = (
        (runs.kind != INSIDE).all()
        and runs.first_offset[0] >= low
        and runs.last_offset[-1] < high
        and (runs.first_offset[1:] > runs.last_offset[:-1]).all()
        and (np.diff(runs.leader_epoch[runs.leader_epoch >= 0]) >= 0).all()
        and runs.leader_epoch.min() >= kf.NO_EPOCH
        and _checkpointed(runs, epochs).all()
    )
    return bool(is_right) and not _lone_jumps(runs).any() and not _misplaced(runs, claims).any()


def _taken_apart(
    source: ByteSource, runs: Found, low: int, high: int, limits: Limits
) -> tuple[Found, npt.NDArray[np.int64]]:
    """The runs; those of which a part contradicts another run, or the bounds, as single batches.

    Also, for each, the number of the run that it is of, if that run is doubted: found behind damage, with offsets that
    reach beyond those of the batch that begins where it ends. That is how a value of a v0 or v1 message looks. Else 0.
    """
    number = np.zeros(len(runs), np.int64)
    drops = _touch(runs) & (runs.first_offset[1:] <= runs.last_offset[:-1]) & (runs.kind[:-1] == SEARCHED)
    # behind the last value of a v2 batch there is a byte more
    drops &= (runs.n_batches[:-1] > 1) & (runs.leader_epoch[1:] < 0)
    number[:-1][drops] = np.flatnonzero(drops) + 1
    # another run begins or ends within its offsets; its own two ends are among those counted
    ends = np.sort(np.concatenate([runs.first_offset, runs.last_offset]))
    n_within = np.searchsorted(ends, runs.last_offset, side="right") - np.searchsorted(ends, runs.first_offset)
    is_split = (n_within > 2) | (runs.first_offset < low) | (runs.last_offset >= high)
    is_split &= runs.n_batches > 1
    rows = np.flatnonzero(is_split)[:_MAX_SPLITS]
    if not rows.size:
        return runs, number
    parts, numbers, done = [], [], 0
    for row in rows.tolist():
        parts.append(runs[done:row])
        numbers.append(number[done:row])
        done = row + 1
        for part in find_batches(source, start=int(runs.start[row]), stop=int(runs.end[row]), limits=limits):
            part.kind[:] = runs.kind[row]
            parts.append(part)
            numbers.append(np.full(len(part), number[row]))
    return Found.concatenate([*parts, runs[done:]]), np.concatenate([*numbers, number[done:]])


def _touch(runs: Found) -> Mask:
    """bool[n-1]: whether a run begins where the one before ends."""
    touches: Mask = runs.start[1:] == runs.end[:-1]
    return touches


def _cleared(runs: Found, doubted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Numbers of doubted runs whose offsets reach beyond the next batch's only since one of the two is wrong."""
    fits = np.zeros(len(runs) + 1, np.bool_)
    fits[1:-2] = _leaves_just_room(runs)
    is_last = np.append(doubted[1:] != doubted[:-1], True) & (doubted > 0)
    cleared: npt.NDArray[np.int64] = doubted[is_last & (fits[:-1] | fits[1:])]
    return cleared


def _leaves_just_room(runs: Found) -> Mask:
    """bool[n-2]: whether both neighbours of a run leave just its number of offsets: it is the one that is wrong."""
    span = runs.last_offset - runs.first_offset + 1
    touches = _touch(runs)
    leaves: Mask = touches[1:] & touches[:-1] & (runs.first_offset[2:] == runs.last_offset[:-2] + 1 + span[1:-1])
    return leaves


def _rising_offsets(runs: Found, claims: Found, is_doubted: Mask, base_offset: int) -> Mask:
    """The largest set of runs whose offsets rise.

    Damaged batches take part with less weight: their headers are witnesses, though no checksum vouches for them.
    """
    every = Found.concatenate([runs, claims])
    order = np.argsort(every.start, kind="stable")
    every = every[order]
    weight = np.where(every.kind == LINKED, _PER_CLAIM, _PER_BATCH * every.n_batches)
    follows = _touch(every) & (every.first_offset[1:] == every.last_offset[:-1] + 1)
    weight[1:] += follows
    weight[:-1] += follows
    # of two copies, that with an epoch that another one has
    _, number, n_runs = np.unique(every.leader_epoch, return_inverse=True, return_counts=True)
    weight -= (n_runs[number] == 1) & (every.leader_epoch >= 0)
    fits = _leaves_just_room(every)
    weight[2:] += fits
    weight[np.concatenate([is_doubted, np.zeros(len(claims), np.bool_)])[order]] = 1
    keep = heaviest_rising(every.first_offset, every.last_offset, weight)
    if not keep.all():
        weight = _LEVELS * weight - _displacement(every, keep, base_offset)
        keep = heaviest_rising(every.first_offset, every.last_offset, weight)
    chosen = np.empty(len(every), np.bool_)
    chosen[order] = keep
    return chosen[: len(runs)]


def _displacement(every: Found, keep: Mask, base_offset: int) -> npt.NDArray[np.int64]:
    """How far the offset of each run is from what its position lets expect, below `_LEVELS`: a doubt of last resort.

    Where two batches contradict each other and nothing else, one of them was moved, or has a wrong offset.
    """
    highest = np.maximum.accumulate(every.last_offset)
    lowest = np.minimum.accumulate(every.first_offset[::-1])[::-1]
    is_undisputed = np.ones(len(every), np.bool_)
    is_undisputed[1:] &= every.first_offset[1:] > highest[:-1]
    is_undisputed[:-1] &= every.last_offset[:-1] < lowest[1:]
    anchor = np.flatnonzero(keep & (is_undisputed | (every.n_batches > 2)))
    if not anchor.size:  # all that is left is disputed: an offset far beyond the others is doubted most
        per_batch = np.median((every.last_offset - every.first_offset + 1) / every.n_batches)
        is_far = every.first_offset - np.median(every.first_offset) >= _FAR * per_batch
        return np.where(is_far, _LEVELS - 1, 0).astype(np.int64)
    runs = every[anchor]
    n_bytes, n_batches = int((runs.end - runs.start).sum()), int(runs.n_batches.sum())
    # not by the offsets of each: a compressed message of v0 or v1 does not say where it begins
    rate = float(runs.last_offset[-1] + 1 - base_offset) / int(runs.end[-1])
    expected = np.interp(every.start, np.append(0, runs.start), np.append(base_offset, runs.first_offset))
    expected += np.maximum(every.start - runs.start[-1], 0) * rate
    span = max(rate * n_bytes / n_batches, 1)
    n_spans = np.abs(every.first_offset - expected) / span
    distance: npt.NDArray[np.int64] = np.minimum(16 * np.log2(1 + n_spans), _LEVELS - 1).astype(np.int64)
    distance[anchor] = 0
    return distance


def _rising_epochs(runs: Found, found: npt.NDArray[np.int32]) -> Mask:
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


def _checkpointed(runs: Found, epochs: Epochs) -> Mask:
    """Which runs have the epoch that the checkpoint has for their offsets; all, if most contradict it."""
    keep = np.ones(len(runs), np.bool_)
    if not epochs or not len(runs):
        return keep
    starts = np.array([start for _, start in epochs], np.int64)
    known = np.array([epoch for epoch, _ in epochs], np.int64)
    row = np.searchsorted(starts, runs.first_offset, side="right") - 1
    epoch = runs.leader_epoch.astype(np.int64)
    said = np.where(row >= 0, known[np.maximum(row, 0)], -1)
    # the file may be older than the last batches, and begin behind the first
    is_inside = (row >= 0) & (row < len(epochs) - 1)
    is_wrong = (epoch >= 0) & (is_inside & (epoch != said) | (row >= 0) & (epoch < said))
    is_wrong |= (epoch > known[-1]) & _is_suspicious(epoch, known[-1]) & (runs.n_batches == 1)
    n_wrong = int(runs.n_batches[is_wrong].sum())
    # what few contradict is damage; a file that most contradict is old, or of another log
    if 2 * n_wrong < int(runs.n_batches[epoch >= 0].sum()):
        keep &= ~is_wrong
    return keep


def _is_suspicious(epoch: npt.NDArray[np.int64], other: npt.NDArray[np.int64] | np.int64) -> Mask:
    """Whether two epochs differ by one bit, and by more than elections would explain."""
    is_odd: Mask = _is_one_bit(epoch, other) & (np.abs(epoch - other) >= _SUSPICIOUS_JUMP)
    return is_odd


def _is_one_bit(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64] | np.int64) -> Mask:
    """Whether two numbers differ by one bit at most."""
    difference = one ^ other
    is_one: Mask = (difference & (difference - 1)) == 0
    return is_one


def _would_fit(runs: Found) -> Mask:
    """bool[n-2]: which batches touch both neighbours, and would have offsets between theirs but for one bit or byte.

    Not for the two lowest bytes: small numbers often differ in no other.
    """
    touches = _touch(runs)
    first, span = runs.first_offset[1:-1], (runs.last_offset - runs.first_offset)[1:-1]
    low, high = runs.last_offset[:-2] + 1, runs.first_offset[2:] - 1 - span
    fits = np.zeros(len(runs) - 2 if len(runs) > 2 else 0, np.bool_)
    for bit in range(63):
        other = first ^ np.int64(1 << bit)
        fits |= (low <= other) & (other <= high)
    for byte in range(2, 8):
        mask = np.int64(0xFF << 8 * byte) if byte < 7 else np.int64(0x7F << 56)
        for end in (low, high):
            other = first & ~mask | end & mask
            fits |= (low <= other) & (other <= high)
    result: Mask = fits & touches[1:] & touches[:-1]
    return result


def _lone_jumps(runs: Found) -> Mask:
    """The first or the last batch, if one flipped bit explains that its epoch or its offset lies far from the others.

    Inside of the log a neighbour contradicts such a batch; at its ends nothing does.
    """
    odd = np.zeros(len(runs), np.bool_)
    if len(runs) < 2 or int(runs.n_batches.sum()) < _FEW:
        return odd
    for edge, neighbour in ((0, 1), (-1, -2)):
        if runs.n_batches[edge] != 1:
            continue
        one, other = runs.leader_epoch[edge : edge + 1 or None], runs.leader_epoch[neighbour]
        if one[0] >= 0 and other >= 0:
            odd[edge] = _is_suspicious(one.astype(np.int64), np.int64(other))[0]
        if runs.start[max(edge, neighbour)] != runs.end[min(edge, neighbour)]:
            continue
        first, last = int(runs.first_offset[edge]), int(runs.last_offset[edge])
        expected = int(runs.last_offset[-2]) + 1 if edge else int(runs.first_offset[1]) - 1 - (last - first)
        difference = first ^ expected
        if abs(first - expected) >= _SUSPICIOUS_GAP and difference & (difference - 1) == 0:
            odd[edge] = True
    return odd


_FEW: Final = 4


def _misplaced(runs: Found, claims: Found) -> Mask:
    """Batches that leave a gap to a neighbour in a log that has no gaps: their offset is wrong, and nothing else shows.

    Such a batch has room to be wrong since a neighbour is lost.
    """
    odd = np.zeros(len(runs), np.bool_)
    if len(runs) < 2:
        return odd
    touches = _touch(runs)
    is_v2 = runs.leader_epoch >= 0  # a compressed message of v0 or v1 does not say where it begins
    gap = touches & (runs.first_offset[1:] > runs.last_offset[:-1] + 1) & is_v2[1:] & is_v2[:-1]
    is_lone = runs.n_batches == 1
    # between two that follow each other on the disk, in a stretch without damage, only the outermost can be wrong
    is_first, is_last = np.ones(len(runs), np.bool_), np.ones(len(runs), np.bool_)
    is_first[1:], is_last[:-1] = ~touches, ~touches
    is_natural = gap & ~(is_first & is_lone)[:-1] & ~(is_last & is_lone)[1:]
    n_pairs = int((runs.n_batches - 1).sum()) + int((touches & ~gap).sum())
    if is_natural.any() or n_pairs < 4 * int(gap.sum()) or n_pairs < _FEW:
        return odd  # the log cleaner makes gaps: they say nothing
    # where one of two has a neighbour that agrees, the other is wrong
    agrees = np.zeros(len(runs), np.bool_)
    follows = touches & ~gap
    agrees[1:] |= follows
    agrees[:-1] |= follows
    agrees |= ~is_lone
    before, after = _claimed(runs, claims)
    agrees |= (before == runs.first_offset) | (after == runs.last_offset + 1)
    # a batch that would begin elsewhere by all that is beside it, and one flipped bit explains why it does not
    span = runs.last_offset - runs.first_offset + 1
    pair = np.flatnonzero(gap)
    odd[pair] |= agrees[pair + 1] & _is_one_bit(runs.first_offset[pair], runs.first_offset[pair + 1] - span[pair])
    odd[pair + 1] |= agrees[pair] & _is_one_bit(runs.first_offset[pair + 1], runs.last_offset[pair] + 1)
    odd |= (before >= 0) & (after >= 0) & (before + span == after) & _is_one_bit(runs.first_offset, before)
    odd &= is_lone & ~agrees
    return odd


def _is_cleaned(source: ByteSource, runs: Found) -> bool:
    """Whether a run begins with a batch of fewer records than offsets: the log cleaner made it, and makes gaps, too."""
    for start, end in zip(runs.start[:_MAX_SPLITS].tolist(), runs.end.tolist(), strict=False):
        if end - start < kf.RECORD_BATCH_OVERHEAD:
            continue
        window = source.window(start, start + kf.RECORD_BATCH_OVERHEAD)
        header = window.tobytes()
        source.release(window, start)
        last_offset_delta, n_records = int.from_bytes(header[23:27], "big"), int.from_bytes(header[57:61], "big")
        if header[16] == 2 and n_records <= last_offset_delta:
            return True
    return False


def _claimed(runs: Found, claims: Found) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The offsets where runs should begin, and end, by the headers of the damaged batches beside them; -1 for none."""
    before, after = np.full(len(runs), -1, np.int64), np.full(len(runs), -1, np.int64)
    if len(claims):
        row = np.minimum(np.searchsorted(claims.end, runs.start), len(claims) - 1)
        there = claims.end[row] == runs.start
        before[there] = claims.last_offset[row[there]] + 1
        row = np.minimum(np.searchsorted(claims.start, runs.end), len(claims) - 1)
        there = claims.start[row] == runs.end
        after[there] = claims.first_offset[row[there]]
    return before, after
