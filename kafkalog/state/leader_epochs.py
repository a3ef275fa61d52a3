"""Leader epochs of a partition: where each begins and ends, and where a follower has to truncate.

Entries come from `leader-epoch-checkpoint`, from the batches, or from both, merged. Mirrors `LeaderEpochFileCache`, and
the part of `AbstractFetcherThread` by which a follower truncates after a leader's response. Reads no file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import Finding, Reason
from kafkalog.records.batch_table import BatchTable

UNDEFINED: Final = -1
"""Epoch and offset of a response if there is none."""


Epochs = list[tuple[int, int]]
"""Leader epochs and their start offsets."""


class LogProgress(NamedTuple):
    """How far a copy of a log has come. Of several copies, the greatest leads.

    The latest leader epoch comes first, since the later epoch had the later leader. In one epoch, the longer log has
    all that the shorter one has.
    """

    latest_epoch: int
    log_end_offset: int


@leading_names
class EpochEndOffset(NamedTuple):
    """A leader's response about the end of an epoch."""

    leader_epoch: int
    """The largest epoch at or below the requested one; -1 if the leader does not know."""
    end_offset: int
    """End of that epoch: the start of the next one, or the log end offset; -1 if the leader does not know."""


class Truncation(NamedTuple):
    """How a follower truncates after a leader's response."""

    leader_epoch: int
    end_offset: int
    """The response, as in `EpochEndOffset`."""
    truncate_to: int
    """The follower removes everything from this offset on; -1 means its own high watermark."""
    is_final: bool
    """Whether truncation is complete. If not, the follower has epochs that the leader does not know: it truncates to
    `truncate_to` or to the end of its own epoch `leader_epoch`, whichever is lower, and asks again about its epoch that
    is then the last."""

    def removes(self, follower_end_offset: int) -> bool:
        """Whether a follower's log that ends at `follower_end_offset` loses records."""
        return 0 <= self.truncate_to < follower_end_offset


class LeaderEpochs:
    """Epochs and their start offsets, both strictly rising.

    Entries of a checkpoint (LEADER_EPOCH_DTYPE[n]) that contradict a later entry are dropped, as when a broker loads
    the file.
    """

    def __init__(self, entries: npt.NDArray[np.void] | None = None) -> None:
        self._entries: list[tuple[int, int]] = []
        for epoch, start in [] if entries is None else entries.tolist():
            if epoch >= 0 and start >= 0:
                self.assign(epoch, start)

    @classmethod
    def from_batches(cls, batches: Iterable[BatchTable]) -> LeaderEpochs:
        """Find the epochs of a partition's batches, in log order, as a broker does when it recovers segments."""
        epochs = cls()
        latest = UNDEFINED
        for table in batches:
            for epoch, start in new_epochs(table, latest):
                epochs.assign(epoch, start)
                latest = epoch
        return epochs

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> npt.NDArray[np.void]:
        """LEADER_EPOCH_DTYPE[n]."""
        return np.array(self._entries, kf.LEADER_EPOCH_DTYPE)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch and its start offset; entries with the same or a later epoch or start are removed."""
        if self._entries and self._entries[-1][0] == epoch and start_offset >= self._entries[-1][1]:
            return
        # a leader that wrote nothing leaves no trace: the epoch after it has the same start, and replaces it
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))

    @property
    def latest(self) -> int:
        """The last epoch; -1 if there is none."""
        return self._entries[-1][0] if self._entries else UNDEFINED

    def truncate_from_end(self, offset: int) -> None:
        """Remove epochs that begin at or after an offset."""
        while self._entries and self._entries[-1][1] >= offset:
            self._entries.pop()

    def truncate_from_start(self, offset: int) -> None:
        """Remove epochs that end below a log start offset; the epoch current at the offset then begins there."""
        self._entries = truncate_from_start(self._entries, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the end of an epoch, as a leader does.

        The latest epoch ends at the log end offset. For an epoch above all known ones, or -1, the response is
        undefined. An epoch below all known ones ends where the first begins. For an unknown epoch in between, the
        response has the largest known epoch below it and the start of the next one. Source:
        LeaderEpochFileCache.endOffsetFor, Kafka 4.3.
        """
        if epoch == UNDEFINED or not self._entries or epoch > self._entries[-1][0]:
            return EpochEndOffset(UNDEFINED, UNDEFINED)
        if epoch == self._entries[-1][0]:
            return EpochEndOffset(epoch, log_end_offset)
        number = next(i for i, entry in enumerate(self._entries) if entry[0] > epoch)
        floor = self._entries[number - 1][0] if number else epoch
        return EpochEndOffset(floor, self._entries[number][1])

    def truncation_for(self, follower_epoch: int, follower_end_offset: int, log_end_offset: int) -> Truncation:
        """Return where a follower with this last epoch and log end offset has to truncate.

        Source: AbstractFetcherThread.getOffsetTruncationState, Kafka 4.3.
        """
        answer = self.end_offset_for(follower_epoch, log_end_offset)
        if answer.end_offset == UNDEFINED:
            return Truncation(*answer, UNDEFINED, True)
        is_final = answer.leader_epoch == follower_epoch
        return Truncation(*answer, min(follower_end_offset, answer.end_offset), is_final)


def new_epochs(batches: BatchTable, latest: int) -> Epochs:
    """Return epochs of batches that are larger than all before, each with the base offset of its first batch.

    Batches are in log order; messages before v2 have no epoch. `latest` is the largest epoch before them, `UNDEFINED`
    for none.
    """
    if not len(batches) or int(batches.partition_leader_epoch.max()) <= latest:
        return []
    epoch = np.where(batches.magic >= 2, batches.partition_leader_epoch, np.int32(UNDEFINED))
    before = np.maximum.accumulate(np.concatenate([[latest], epoch[:-1]]))
    rows = np.flatnonzero(epoch > before)
    return list(zip(epoch[rows].tolist(), batches.base_offset[rows].tolist(), strict=True))


def falling_epoch(batches: BatchTable, last: int, path: str) -> Finding | None:
    """Return a finding about the first batch whose epoch is below that of the batch before it, which no broker writes.

    `last` is the epoch of the batch before them, `UNDEFINED` for none; `path` is their segment.
    """
    rows = np.flatnonzero(batches.magic >= 2)
    epoch = batches.partition_leader_epoch[rows]
    before = np.concatenate([[last], epoch])[:-1]
    # one wrong epoch makes every later one look wrong
    for at in np.flatnonzero(epoch < before)[:1].tolist():
        row = int(rows[at])
        return Finding(
            Reason.EPOCH_ORDER,
            f"leader epoch {epoch[at]} after {before[at]}: one of the two is wrong, and no checksum covers it",
            path=path,
            position=int(batches.position[row]),
            base_offset=int(batches.base_offset[row]),
            n_records=0,
        )
    return None


def epochs_of(segments: Iterable[Epochs]) -> Epochs:
    """Combine the leader epochs of segments to those of the partition; epochs that do not rise are left out."""
    found = LeaderEpochs()
    for epoch, start in itertools.chain.from_iterable(segments):
        if epoch > found.latest:
            found.assign(epoch, start)
    return list(found.entries.tolist())


def merge(
    checkpointed: npt.NDArray[np.void] | None, found: Epochs, log_end_offset: int | None, *, covered_to: int = 0
) -> Epochs:
    """Merge the epochs of the checkpoint file (LEADER_EPOCH_DTYPE[n] or None) with those of the batches.

    Epochs that begin after `log_end_offset` are left out. `covered_to` is the offset after the last batch that has an
    epoch: below it, no epoch can begin that is larger than all epochs of the batches. If both have an epoch, the file's
    start offset is used unless it lies after the epoch's first batch: a leader is elected before it writes. Epochs and
    start offsets both rise; where the two sources contradict each other, the batches win.
    """
    entries = [] if checkpointed is None else checkpointed.tolist()
    known = dict(found)
    merged = dict(found)
    for epoch, start in entries:
        if epoch < 0 or start < 0 or (log_end_offset is not None and start > log_end_offset):
            continue
        if start > known.get(epoch, start):  # it has a batch before the start that the file gives
            continue
        # all batches up to `covered_to` have older epochs, so this one cannot have begun among them
        if known and epoch > max(known) and start < covered_to:
            continue
        after = min((other for one, other in known.items() if one > epoch), default=None)
        before = max((other for one, other in known.items() if one < epoch), default=None)
        # Two elections without a batch in between give two epochs with the same start: only the later one counts
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
    """Remove epochs that ended before an offset; the epoch current at the offset then begins there."""
    kept = [one for one in epochs if one[1] > offset]
    gone = epochs[: len(epochs) - len(kept)]
    return [(gone[-1][0], offset), *kept] if gone else kept
