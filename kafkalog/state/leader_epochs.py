"""Leader epochs of a partition: where each begins, where it ends, and where a follower has to truncate.

Entries come from `leader-epoch-checkpoint`, from the batches, or from both, merged. Mirrors `LeaderEpochFileCache`, and
of `AbstractFetcherThread` what a leader's answer makes a follower do; reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.records.batch_table import BatchTable

UNDEFINED: Final = -1
"""Epoch and offset of an answer that there is none."""


Epochs = list[tuple[int, int]]
"""Leader epochs and where they start."""


class EpochEndOffset(NamedTuple):
    """A leader's answer about an epoch."""

    leader_epoch: int
    """The largest epoch at or below the one asked for; -1 where the leader cannot tell."""
    end_offset: int
    """Where that epoch ends: the start of the next one, or the log end offset; -1 where it cannot tell."""


class Truncation(NamedTuple):
    """What a follower does after a leader's answer."""

    leader_epoch: int
    end_offset: int
    """The answer, as in `EpochEndOffset`."""
    truncate_to: int
    """The offset that the follower keeps nothing at or behind of; -1 for its own high watermark."""
    is_final: bool
    """Whether that is all. Else the follower knows more epochs than the leader: it truncates there or where its own
    epoch `leader_epoch` ends, whichever is lower, and asks again about what is then its last epoch."""

    def removes(self, follower_end_offset: int) -> bool:
        """Whether a log that ends there loses anything."""
        return 0 <= self.truncate_to < follower_end_offset


class LeaderEpochs:
    """Epochs and their start offsets, both rising.

    Parameters
    ----------
    entries : LEADER_EPOCH_DTYPE[n], optional
        As a checkpoint has them; what contradicts a later line is dropped, as by a broker that loads it.
    """

    def __init__(self, entries: npt.NDArray[np.void] | None = None) -> None:
        self._entries: list[tuple[int, int]] = []
        for epoch, start in [] if entries is None else entries.tolist():
            if epoch >= 0 and start >= 0:
                self.assign(epoch, start)

    @classmethod
    def from_batches(cls, batches: Iterable[BatchTable]) -> LeaderEpochs:
        """Of the batches of a partition, in the order of the log, as a broker makes them when it recovers segments."""
        epochs = cls()
        latest = UNDEFINED
        for table in batches:
            for epoch, start in new_epochs(table, latest):
                epochs.assign(epoch, start)
                latest = epoch
        return epochs

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"LeaderEpochs({self._entries})"

    @property
    def entries(self) -> npt.NDArray[np.void]:
        """LEADER_EPOCH_DTYPE[n]."""
        return np.array(self._entries, kf.LEADER_EPOCH_DTYPE)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that an epoch begins at an offset; what contradicts it, later epochs or starts, is forgotten."""
        if self._entries and self._entries[-1][0] == epoch and start_offset >= self._entries[-1][1]:
            return
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))

    def truncate_from_start(self, offset: int) -> None:
        """Forget what lies below a log start offset; the epoch that goes on there begins there."""
        self._entries = truncate_from_start(self._entries, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where an epoch ends, as a leader answers.

        Notes
        -----
        The latest epoch ends at the log end offset. One above all, or -1, cannot be answered. One that is below all
        ends where the first begins; one between ends, with the largest below it, where the next begins.

        Source: LeaderEpochFileCache.endOffsetFor, Kafka 4.3.
        """
        if epoch == UNDEFINED or not self._entries or epoch > self._entries[-1][0]:
            return EpochEndOffset(UNDEFINED, UNDEFINED)
        if epoch == self._entries[-1][0]:
            return EpochEndOffset(epoch, log_end_offset)
        number = next(i for i, entry in enumerate(self._entries) if entry[0] > epoch)
        floor = self._entries[number - 1][0] if number else epoch
        return EpochEndOffset(floor, self._entries[number][1])

    def truncation_for(self, follower_epoch: int, follower_end_offset: int, log_end_offset: int) -> Truncation:
        """Where a follower has to truncate whose last epoch and log end offset are given.

        Notes
        -----
        Source: AbstractFetcherThread.getOffsetTruncationState, Kafka 4.3.
        """
        answer = self.end_offset_for(follower_epoch, log_end_offset)
        if answer.end_offset == UNDEFINED:
            return Truncation(*answer, UNDEFINED, True)
        is_final = answer.leader_epoch == follower_epoch
        return Truncation(*answer, min(follower_end_offset, answer.end_offset), is_final)


def new_epochs(batches: BatchTable, latest: int) -> Epochs:
    """Leader epochs of batches above all before them, and the base offset of the first batch of each.

    Parameters
    ----------
    batches : BatchTable
        In the order of the log; messages before v2 have no epoch.
    latest : int
        The largest epoch before them, `UNDEFINED` for none.
    """
    if not len(batches) or int(batches.partition_leader_epoch.max()) <= latest:
        return []
    epoch = np.where(batches.magic >= 2, batches.partition_leader_epoch, np.int32(UNDEFINED))
    before = np.maximum.accumulate(np.concatenate([[latest], epoch[:-1]]))
    rows = np.flatnonzero(epoch > before)
    return list(zip(epoch[rows].tolist(), batches.base_offset[rows].tolist(), strict=True))


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
