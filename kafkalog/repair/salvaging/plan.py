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
from kafkalog.errors import FileChangedError, Finding, LimitExceededError, Limits, Reason
from kafkalog.log.searching.consistent_batches import read_wrappers, touching
from kafkalog.log.searching.damaged_sizes import with_skipped_batches
from kafkalog.log.searching.resync import INSIDE, IntactRuns, find_batches
from kafkalog.log.segment import Segment
from kafkalog.operations.verifying.record_headers import COLUMNS, going_back
from kafkalog.records.batch_table import BatchTable, Window, lost_batch, valid_crcs, whole_batches
from kafkalog.records.decode import decode_all
from kafkalog.records.header import MAGIC_END, BatchHeader
from kafkalog.records.header_walk import LINKED
from kafkalog.records.selection import Selection
from kafkalog.repair.salvaging.kept_batches import Choice, choose
from kafkalog.state.leader_epochs import Epochs
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.source import Bytes, ByteSource

_MOST_TAIL: Final = 4096
COPY_BYTES: Final = 2**23
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
    """Where the zeros at the end of the file begin; its size if it has none."""
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
    end_offset = _MAX_OFFSET if following is None else _end_offset(source, found, following.base_offset, limits)
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
    # bad sectors are read as zeros, and may have been anything
    is_unreadable = isinstance(source, BadSectorSource) and source.is_unreadable(end, source.size)
    padding = end if source.is_zero(end, source.size) and not is_unreadable else source.size
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
    """Like `gather`, with the batches, of which each range has `n_batches`.

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


def file_positions(
    at: npt.NDArray[np.int64], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Where in the file the bytes are that stand at `at` after each other in ranges that `gather` yielded together."""
    begins = np.concatenate([[0], np.cumsum(end - start)[:-1]])
    row = np.searchsorted(begins, at, side="right") - 1
    found: npt.NDArray[np.int64] = start[row] + at - begins[row]
    return found


def reason_of(head: bytes, n_bytes: int, left: int, *, is_zero: bool) -> Reason:
    """Why a range of bytes is lost, by its first bytes.

    `head` has 17, or fewer. `left` is the size from its start to the end of the file.
    """
    if is_zero:
        return Reason.ZERO_FILL
    header = BatchHeader(head)
    if len(header) < MAGIC_END:
        return Reason.PARTIAL_TAIL if n_bytes == left else Reason.SIZE_TOO_SMALL
    size = header.size_in_bytes
    if size < kf.LOG_OVERHEAD:
        return Reason.SIZE_NEGATIVE
    if size < kf.LOG_OVERHEAD + kf.MESSAGE_V0_OVERHEAD:
        return Reason.SIZE_TOO_SMALL
    if header.magic > 2:
        return Reason.BAD_MAGIC
    if size > left:
        return Reason.PARTIAL_TAIL if n_bytes == left else Reason.SIZE_EXCEEDS_FILE
    if header.offset < 0:
        return Reason.OFFSET_OUTSIDE_SEGMENT
    return Reason.CRC_MISMATCH


_MAX_OFFSET: Final = 2**63 - 1


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
    opaque: npt.NDArray[np.bool_] = (batches.codec != 0) & (batches.codec <= kf.Codec.ZSTD) & has_count
    opaque &= batches.magic >= 2  # older ones hide their first offset, too
    return opaque
