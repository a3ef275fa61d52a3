"""Chooses the batches that a salvage keeps, and the leader epochs that it writes.

No checksum covers the base offset and the leader epoch of a batch. `kafkalog.log.searching` keeps the largest set of
batches whose offsets rise, as for readers. A leader epoch that contradicts the others, or the partition's
`leader-epoch-checkpoint`, is replaced: the records are intact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.log.searching.consistent_batches import Mask, agreeing, read_wrappers
from kafkalog.log.searching.odd_offsets import Witnesses, odd_last
from kafkalog.log.searching.resync import IntactRuns, heaviest_rising
from kafkalog.state.leader_epochs import Epochs
from kafkalog.storage.source import ByteSource


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

    `found` has joined runs, `base_offset` to `end_offset` are the offsets that the segment may hold, `epochs` is the
    content of `leader-epoch-checkpoint`, and `witnesses` returns the evidence about the end of the segment. Linked rows
    are in neither part of the result.
    """
    agreement = agreeing(source, found, base_offset=base_offset, end_offset=end_offset, limits=limits)
    runs, keep = agreement.runs, agreement.is_kept.copy()
    if _has_odd_end(source, runs[keep], base_offset, witnesses):
        keep[np.flatnonzero(keep)[-1]] = False
    right = keep & (runs.leader_epoch >= kf.NO_EPOCH)
    right[right] = _rising_epochs(runs[right], runs.leader_epoch)
    right[right] = _checkpointed(runs[right], epochs)
    epochs_now = _replaced_epochs(runs, np.flatnonzero(keep & ~right), np.flatnonzero(right & (runs.leader_epoch >= 0)))
    if keep.all():
        return Choice(runs, IntactRuns.empty(), epochs_now)
    return Choice(runs[keep], runs[~keep], epochs_now[keep])


def _replaced_epochs(
    runs: IntactRuns, wrong: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """The epochs of the runs, those of the `wrong` rows replaced by that of the `right` row before, or else after."""
    epochs = runs.leader_epoch.copy()
    if right.size:
        epochs[wrong] = epochs[right[np.maximum(np.searchsorted(right, wrong) - 1, 0)]]
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
    # what few contradict is damage; a file that most contradict is old, or of another log
    if 2 * n_wrong < int(runs.n_batches[epoch >= 0].sum()):
        keep &= ~is_wrong
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
