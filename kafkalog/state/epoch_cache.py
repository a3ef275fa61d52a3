"""`leader-epoch-checkpoint` out of batches, merged with what the file says.

Mirrors `LeaderEpochFileCache.assign`, `truncateFromStart` and `LeaderEpochCheckpointFile`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf

Epochs = list[tuple[int, int]]


def epochs_of(segments: Iterable[Epochs]) -> Epochs:
    """Leader epochs of a partition out of those of its segments: each epoch above all before it, where it begins."""
    found: Epochs = []
    for epochs in segments:
        for epoch, start in epochs:
            if not found or epoch > found[-1][0]:
                while found and found[-1][1] >= start:
                    found.pop()
                found.append((epoch, start))
    return found


def merge(
    existing: npt.NDArray[np.void] | None, found: Epochs, log_end_offset: int | None, *, covered_to: int = 0
) -> Epochs:
    """What the file says and what the batches say.

    Parameters
    ----------
    existing : LEADER_EPOCH_DTYPE[n] or None
    found : list of (epoch, start offset)
        Out of the batches.
    log_end_offset : int or None
        Epochs that begin behind it are left out; None to keep them.
    covered_to : int
        Behind the last batch that has an epoch: below it none begins that is above all that batches have.

    Notes
    -----
    Where both know an epoch, the file's start counts as long as it is not behind the first batch: a leader is elected
    before it writes. Epochs and starts both rise; where they cannot, the batches are right.
    """
    said: Epochs = [] if existing is None else [(int(epoch), int(start)) for epoch, start in existing.tolist()]
    known = dict(found)
    merged = dict(found)
    for epoch, start in said:
        if epoch < 0 or start < 0 or (log_end_offset is not None and start > log_end_offset):
            continue
        if start > known.get(epoch, start):
            continue
        if known and epoch > max(known) and start < covered_to:
            continue
        after = min((other for one, other in known.items() if one > epoch), default=None)
        before = max((other for one, other in known.items() if one < epoch), default=None)
        # two elections may come without a batch in between: then both begin at the same offset, and the later counts
        if (after is not None and start >= after) or (before is not None and start <= before):
            continue
        merged[epoch] = start
    result: Epochs = []
    for epoch, start in sorted(merged.items()):
        while result and result[-1][1] >= start and result[-1][0] not in known:
            result.pop()
        if not result or start > result[-1][1]:
            result.append((epoch, start))
    return result


def truncate_from_start(epochs: Epochs, offset: int) -> Epochs:
    """Leave out what ended before an offset; the epoch that was current there begins there."""
    kept = [one for one in epochs if one[1] > offset]
    gone = epochs[: len(epochs) - len(kept)]
    return [(gone[-1][0], offset), *kept] if gone else kept


def as_array(epochs: Epochs) -> npt.NDArray[np.void]:
    """LEADER_EPOCH_DTYPE[n]."""
    return np.array(epochs, kf.LEADER_EPOCH_DTYPE)
