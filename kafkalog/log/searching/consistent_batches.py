"""Chooses which of the intact batches in a damaged segment belong to the log.

A correct checksum is not enough. Records may contain whole batches, as in a topic of dumped segments. No checksum
covers a batch's base offset, and a misplaced sector also contains intact batches. So the batches of a log must be
consistent: offsets increase, and fit the file name and the next segment. The largest consistent set is kept.

Messages inside a compressed v0 or v1 message whose header is lost do not belong to the log either. Their offsets are
relative, or contain bytes of the compressor. `unproved` finds them. The messages inside an intact compressed message
show its first offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.log.searching.resync import CHAINED, INSIDE, PLAIN, SEARCHED, IntactRuns, find_batches, heaviest_rising
from kafkalog.records.batch_table import Window, whole_batches
from kafkalog.records.decode import decode
from kafkalog.records.header import BatchHeader
from kafkalog.records.header_walk import LINKED, intact_batch_at
from kafkalog.storage.source import Bytes, ByteSource

_MOST_ROWS: Final = 4096
_MAGIC, _ATTRIBUTES = 16, 17  # positions in a message


class MessageHeader(NamedTuple):
    """The fields in the first bytes of a v0 or v1 message."""

    magic: int
    is_compressed: bool


def header_of(source: ByteSource, position: int) -> MessageHeader:
    """Read the magic and the codec of a message."""
    head = source.window(position, min(position + _ATTRIBUTES + 1, source.size))
    header = MessageHeader(int(head[_MAGIC]), bool(head[_MAGIC] < 2 and head[_ATTRIBUTES] & kf.CODEC_MASK))
    source.release(head, position)
    return header


def read_wrappers(source: ByteSource, runs: IntactRuns, limits: Limits) -> tuple[IntactRuns, npt.NDArray[np.bool_]]:
    """Set the first offset of each single compressed message, and find those that prove their own offset wrong."""
    first, is_wrong = runs.first_offset.copy(), np.zeros(len(runs), np.bool_)
    is_lone = (runs.leader_epoch < 0) & (runs.n_batches == 1) & (runs.first_offset == runs.last_offset)
    for row in np.flatnonzero(is_lone)[:_MOST_ROWS].tolist():
        start, end = int(runs.start[row]), int(runs.end[row])
        data = source.window(start, end)
        if data[_MAGIC] < 2 and data[_ATTRIBUTES] & kf.CODEC_MASK:
            offsets = _offsets_inside(data, limits)
            if offsets.size and int(offsets[-1]) == int(runs.last_offset[row]):
                first[row] = offsets[0]
            # in v1, inner offsets are relative: they prove nothing about the wrapper's own
            elif offsets.size and data[_MAGIC] == 0:
                is_wrong[row] = True
        source.release(data, start)
        del data
    return replace(runs, first_offset=first), is_wrong


def first_offset_at(source: ByteSource, position: int, limits: Limits) -> int | None:
    """Return the first offset of the intact batch at a position, from its records if the header does not have it.

    None if there is no intact batch, or if it cannot be decoded.
    """
    window, _ = intact_batch_at(source, position, limits.max_batch_bytes)
    if window is None:
        return None
    offsets = window.batches.base_offset[:1]
    if offsets[0] < 0:
        offsets = _offsets_of_records(window, limits)
    source.release(window.data, window.start)
    return int(offsets[0]) if offsets.size else None


def _offsets_inside(data: Bytes, limits: Limits) -> npt.NDArray[np.int64]:
    """Offsets of the messages in a wrapper; empty if it cannot be decoded, which does not prove its offset wrong."""
    batches = whole_batches(data, 0)
    return np.empty(0, np.int64) if len(batches) != 1 else _offsets_of_records(Window(data, 0, batches), limits)


def _offsets_of_records(window: Window, limits: Limits) -> npt.NDArray[np.int64]:
    columns = decode(window, ["offset"], check_crcs=False, limits=limits).columns
    return np.empty(0, np.int64) if columns is None else np.asarray(columns["offset"])


Mask = npt.NDArray[np.bool_]

_PER_BATCH: Final = 6  # weight of a batch; consistency with a neighbour adds 1
_PER_CLAIM: Final = 2
_FAR: Final = 1024  # multiple of a batch's number of offsets
_LEVELS: Final = 256  # levels of displacement: its logarithm, so that a larger one is worse
_MAX_SPLITS: Final = 4096  # runs that may be split into single batches
OFFSETS_PER_BYTE: Final = 64
"""After damage, a single batch is doubted if its offset is farther away than the lost bytes explain."""
_MOST_COMPRESSED: Final = 2  # maximum compression ratio; incompressible messages have neighbours that compress little


@dataclass(frozen=True, eq=False, slots=True)
class Agreement:
    """The intact batches of a segment, and which of them are consistent."""

    runs: IntactRuns
    """The runs, in order of position."""
    is_kept: Mask
    unproved: npt.NDArray[np.int64]
    """Positions of batches that only `unproved` excludes."""

    @property
    def kept(self) -> IntactRuns:
        """The consistent runs."""
        return self.runs[self.is_kept]


def agreeing(
    source: ByteSource,
    found: IntactRuns,
    *,
    base_offset: int,
    end_offset: int,
    start: int = 0,
    limits: Limits = DEFAULT_LIMITS,
) -> Agreement:
    """Find the largest set of batches with increasing offsets, from `base_offset` up to `end_offset`.

    `found` are joined runs of `find_batches` from `start` on; runs of which only a part is consistent are walked again.
    """
    low, high = base_offset, end_offset
    disbelieved = found.start[:0]
    if (found.kind != CHAINED).any():
        is_wrong = unproved(source, found, start, low, limits)
        disbelieved = found.start[is_wrong & (found.first_offset >= low) & (found.last_offset < high)]
        found = replace(found, kind=np.where(is_wrong, INSIDE, found.kind))
    claims = found[(found.kind == LINKED) & (found.first_offset >= 0) & (found.last_offset >= found.first_offset)]
    runs = found[found.kind != LINKED]
    if _agree(runs, low, high):
        return Agreement(runs, np.ones(len(runs), np.bool_), disbelieved)
    runs, doubted = _taken_apart(source, runs, low, high, limits)
    keep = (runs.kind != INSIDE) & (runs.first_offset >= low) & (runs.last_offset < high)
    keep &= runs.last_offset >= runs.first_offset
    numbered, is_disproved = read_wrappers(source, runs, limits)
    doubted[np.isin(doubted, _cleared(numbered, doubted))] = 0
    is_again = _is_again(source, numbered[keep])
    keep[keep] = _rising_offsets(numbered[keep], claims, ((doubted > 0) | is_disproved)[keep], is_again, low)
    # if some of them contradict the log, all come from a value: the others fit by chance
    is_wrong = ~keep & (doubted > 0)
    # one with a wrong offset would lie between its neighbours
    is_wrong[1:] &= ~((doubted[1:] == doubted[:-1]) & keep[:-1] & _would_fit(runs)[1:])
    keep &= ~np.isin(doubted, doubted[is_wrong])
    return Agreement(runs, keep, disbelieved)


def unproved(source: ByteSource, found: IntactRuns, start: int, base_offset: int, limits: Limits) -> Mask:
    """Which batches after damage are not proved to belong to the log.

    An uncompressed v0 or v1 message may come from inside a compressed one whose header is lost. A compressor may store
    consecutive messages unchanged, except for the offset of the first, where it puts its own bytes. In v1 all their
    offsets are relative. Also, if damage ends within the offset of a batch, that offset may be any number.
    """
    is_wrong = np.zeros(len(found), np.bool_)
    is_plain, touches = found.kind == PLAIN, np.append(touching(found), False)
    is_batch = (found.kind != LINKED) & (found.kind != INSIDE)
    rises = touches[:-1] & is_batch[1:] & (found.first_offset[1:] > found.last_offset[:-1])
    continues = np.append(rises & is_plain[1:], False)
    rises = np.append(rises, False)
    previous, end = base_offset - 1, start  # last offset and end of the last accepted run
    claimed = previous  # the last offset of the previous damaged batch, from its header
    last = -1
    while last + 1 < len(found):
        row = last = last + 1
        if not is_batch[row]:
            claimed = int(found.last_offset[row]) if found.kind[row] == LINKED else claimed
            continue
        while is_plain[row] and continues[last]:
            last += 1
        first, n_lost = int(found.first_offset[row]), int(found.start[row]) - end
        n_bytes, n_batches = int(found.end[last] - found.start[row]), int(found.n_batches[row : last + 1].sum())
        n_offsets = n_lost if is_plain[row] else OFFSETS_PER_BYTE * (n_lost + n_bytes)
        is_near = any(one < first <= one + 1 + n_offsets for one in (previous, claimed))
        if n_lost and n_batches == 1 and not rises[row] and first > previous and not is_near:
            # a compressed v0 or v1 message does not contain v2 batches
            is_wrong[row] = header_of(source, int(found.start[row])).magic < 2
        # a relative offset is the number of messages before it, which must fit into the lost bytes
        elif is_plain[row] and first * n_bytes <= _MOST_COMPRESSED * n_lost * n_batches:
            is_v1 = header_of(source, int(found.start[row])).magic == 1
            is_wrong[row : last + 1] = is_v1 and not _leads_on(source, found, last, bool(touches[last]), limits)
        if not is_wrong[row]:
            previous, end = int(found.last_offset[last]), int(found.end[last])
    return is_wrong


def _leads_on(source: ByteSource, found: IntactRuns, last: int, touches: bool, limits: Limits) -> bool:
    """Whether the uncompressed messages up to a row lead to the next offset, or to the next batch."""
    if touches:
        following, _ = read_wrappers(source, found[last + 1 : last + 2], limits)
        if int(following.first_offset[0]) == int(found.last_offset[last]) + 1:
            return True
    elif int(found.end[last]) != source.size:
        return False
    legacy = found.start[(found.leader_epoch < 0) & (found.kind != PLAIN)]
    return not any(header_of(source, position).is_compressed for position in legacy.tolist())


def _agree(runs: IntactRuns, low: int, high: int) -> bool:
    """Whether all runs are consistent."""
    return not len(runs) or bool(
        (runs.kind != INSIDE).all()
        and runs.first_offset[0] >= low
        and runs.last_offset[-1] < high
        and (runs.first_offset[1:] > runs.last_offset[:-1]).all()
        and runs.leader_epoch.min() >= kf.NO_EPOCH
    )


def _taken_apart(
    source: ByteSource, runs: IntactRuns, low: int, high: int, limits: Limits
) -> tuple[IntactRuns, npt.NDArray[np.int64]]:
    """Split runs of which a part contradicts another run, or the bounds, into single batches.

    Also return for each row the number of its run if that run is doubted, else 0. A run is doubted if it was found
    after damage, and its offsets exceed those of the batch that begins at its end. A value of a v0 or v1 message looks
    like this; in a v2 batch, at least one byte follows the last value.
    """
    number = np.zeros(len(runs), np.int64)
    drops = touching(runs) & (runs.first_offset[1:] <= runs.last_offset[:-1]) & (runs.leader_epoch[1:] < 0)
    drops &= np.isin(runs.kind[:-1], (SEARCHED, PLAIN)) & (runs.n_batches[:-1] > 1)
    number[:-1][drops] = np.flatnonzero(drops) + 1
    # another run begins or ends within its offsets; its own two ends are counted as well
    ends = np.sort(np.concatenate([runs.first_offset, runs.last_offset]))
    n_within = np.searchsorted(ends, runs.last_offset, side="right") - np.searchsorted(ends, runs.first_offset)
    is_split = (n_within > 2) | (runs.first_offset < low) | (runs.last_offset >= high)
    is_split &= runs.n_batches > 1
    parts, numbers, done = [], [np.empty(0, np.int64)], 0
    for row in np.flatnonzero(is_split)[:_MAX_SPLITS].tolist():
        parts.append(runs[done:row])
        numbers.append(number[done:row])
        done = row + 1
        for part in find_batches(source, start=int(runs.start[row]), stop=int(runs.end[row]), limits=limits):
            part.kind[:] = runs.kind[row]
            parts.append(part)
            numbers.append(np.full(len(part), number[row]))
    return IntactRuns.concatenate([*parts, runs[done:]]), np.concatenate([*numbers, number[done:]])


def touching(runs: IntactRuns) -> Mask:
    """bool[n-1]: whether a run begins at the end of the previous one."""
    touches: Mask = runs.start[1:] == runs.end[:-1]
    return touches


def _cleared(runs: IntactRuns, doubted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Clear the doubt about runs whose offsets exceed the next batch's only because one of the two is wrong."""
    fits = np.zeros(len(runs) + 1, np.bool_)
    fits[1:-2] = _leaves_just_room(runs)
    is_last = np.append(doubted[1:] != doubted[:-1], True) & (doubted > 0)
    cleared: npt.NDArray[np.int64] = doubted[is_last & (fits[:-1] | fits[1:])]
    return cleared


def _would_fit(runs: IntactRuns) -> Mask:
    """bool[n]: which batches touch both neighbours, and would have offsets between theirs but for one bit or byte.

    Not for the two lowest bytes: small numbers often differ in no other.
    """
    touches = touching(runs)
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
    result = np.zeros(len(runs), np.bool_)
    result[1:-1] = fits & touches[1:] & touches[:-1]
    return result


def _leaves_just_room(runs: IntactRuns) -> Mask:
    """bool[n-2]: whether a run's neighbours leave exactly its number of offsets, so that the run itself is wrong."""
    span = runs.last_offset - runs.first_offset + 1
    touches = touching(runs)
    leaves: Mask = touches[1:] & touches[:-1] & (runs.first_offset[2:] == runs.last_offset[:-2] + 1 + span[1:-1])
    return leaves


def _is_again(source: ByteSource, runs: IntactRuns) -> Mask:
    """bool[n]: which runs are copies of earlier ones."""
    earlier, is_again = _earlier(runs), np.zeros(len(runs), np.bool_)
    for row in np.flatnonzero(earlier < np.arange(len(runs)))[:_MOST_ROWS].tolist():
        # a batch with a wrong offset may have the offsets of another
        is_again[row] = _checksum(source, int(runs.start[row])) == _checksum(source, int(runs.start[earlier[row]]))
    return is_again


def _checksum(source: ByteSource, position: int) -> int:
    """The checksum in the header of the batch at a position."""
    head = source.window(position, min(position + kf.RECORD_BATCH_OVERHEAD, source.size))
    header = BatchHeader(head)
    source.release(head, position)
    return header.crc


def _rising_offsets(runs: IntactRuns, claims: IntactRuns, is_doubted: Mask, is_copy: Mask, base_offset: int) -> Mask:
    """Find the largest set of runs with increasing offsets.

    Damaged batches count with less weight: their headers are evidence, although no checksum confirms them.
    """
    every = IntactRuns.concatenate([runs, claims])
    order = np.argsort(every.start, kind="stable")
    every = every[order]
    weight = np.where(every.kind == LINKED, _PER_CLAIM, _PER_BATCH * every.n_batches)
    # a copy confirms no other batch
    is_again = np.concatenate([is_copy, np.zeros(len(claims), np.bool_)])[order]
    follows = touching(every) & (every.first_offset[1:] == every.last_offset[:-1] + 1)
    follows &= is_again[1:] | ~is_again[:-1]
    weight[1:] += follows
    weight[:-1] += follows
    # of two copies, prefer the one whose epoch also occurs elsewhere
    _, number, n_runs = np.unique(every.leader_epoch, return_inverse=True, return_counts=True)
    weight -= (n_runs[number] == 1) & (every.leader_epoch >= 0)
    weight[2:] += _leaves_just_room(every) & ~is_again[2:]
    weight[np.concatenate([is_doubted, np.zeros(len(claims), np.bool_)])[order]] = 1
    keep = heaviest_rising(every.first_offset, every.last_offset, weight)
    if not keep.all():
        weight = _LEVELS * weight - _displacement(every, keep, base_offset)
        keep = heaviest_rising(every.first_offset, every.last_offset, weight)
    chosen = np.empty(len(every), np.bool_)
    chosen[order] = keep
    return chosen[: len(runs)]


def _displacement(every: IntactRuns, keep: Mask, base_offset: int) -> npt.NDArray[np.int64]:
    """Distance of each run's offset from the one its position suggests, below `_LEVELS`: a tie-breaker.

    If only two batches contradict each other, one of them was moved, or has a wrong offset.
    """
    highest = np.maximum.accumulate(every.last_offset)
    lowest = np.minimum.accumulate(every.first_offset[::-1])[::-1]
    is_undisputed = np.ones(len(every), np.bool_)
    is_undisputed[1:] &= every.first_offset[1:] > highest[:-1]
    is_undisputed[:-1] &= every.last_offset[:-1] < lowest[1:]
    anchor = np.flatnonzero(keep & (is_undisputed | (every.n_batches > 2)))
    if not anchor.size:  # everything is disputed: doubt an offset far beyond the others most
        per_batch = np.median((every.last_offset - every.first_offset + 1) / every.n_batches)
        is_far = every.first_offset - np.median(every.first_offset) >= _FAR * per_batch
        return np.where(is_far, _LEVELS - 1, 0).astype(np.int64)
    runs = every[anchor]
    n_bytes, n_batches = int((runs.end - runs.start).sum()), int(runs.n_batches.sum())
    # not from single batches: the header of a compressed v0 or v1 message lacks its first offset
    rate = float(runs.last_offset[-1] + 1 - base_offset) / int(runs.end[-1])
    expected = np.interp(every.start, np.append(0, runs.start), np.append(base_offset, runs.first_offset))
    expected += np.maximum(every.start - runs.start[-1], 0) * rate
    span = max(rate * n_bytes / n_batches, 1)
    n_spans = np.abs(every.first_offset - expected) / span
    distance: npt.NDArray[np.int64] = np.minimum(16 * np.log2(1 + n_spans), _LEVELS - 1).astype(np.int64)
    distance[anchor] = 0
    # of two copies, prefer the earlier one, as readers do: what lies between them is then after both neighbours
    earlier = _earlier(every)
    is_later = earlier < np.arange(len(every))
    return np.minimum(np.maximum(distance, distance[earlier] + is_later), _LEVELS - 1)


def _earlier(runs: IntactRuns) -> npt.NDArray[np.int64]:
    """int64[n]: the number of the first run with the offsets and the size of each."""
    if (runs.first_offset[1:] > runs.last_offset[:-1]).all():
        return np.arange(len(runs))
    identity = np.stack([runs.first_offset, runs.last_offset, runs.end - runs.start])
    _, first, number = np.unique(identity, axis=1, return_index=True, return_inverse=True)
    earlier: npt.NDArray[np.int64] = first[number.reshape(-1)]
    return earlier
