"""Chooses the batches of the best log out of several copies: one leads, and the others fill its holes.

As among brokers, leader epochs decide: the copy with the latest epoch leads and, of those, the longest. The others are
cut where a follower would truncate. Below, a batch is taken from another copy where the leader's copy lost it, if one
of two things proves that it is the same log: a later batch that both have, since two logs that share a batch of one
epoch share all before it; or its epoch, if the leader's history has that epoch at its offset. Reads and writes nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.repair.diff import truncate
from kafkalog.repair.merging.replica import Replica, Rows
from kafkalog.state.leader_epochs import LeaderEpochs

Mask = npt.NDArray[np.bool_]

_IDENTITY: Final = ("last_offset", "crc", "size_in_bytes", "leader_epoch")


def rank(replica: Replica) -> tuple[int, int, bool, int, int, bytes]:
    """The order in which replicas lead and fill holes; equal only for equal batches, so that no argument order decides.

    The latest leader epoch comes first, then the highest end. Of two that are equal, the one that lost less: a copy
    without damage may also have a hole, such as the output of `salvage`, so the offsets that it has count first.
    """
    rows = replica.rows
    n_offsets = int((rows["last_offset"] - rows["first_offset"] + 1).sum())
    content = b"".join(rows[name].tobytes() for name in ("first_offset", "last_offset", "crc"))
    is_tail_kept = not replica.is_tail_lost
    return replica.last_epoch, replica.end_offset, is_tail_kept, n_offsets, -replica.n_bytes_lost, content


def leader_of(replicas: list[Replica]) -> int:
    """Number of the replica that leads; of equal ones, the first."""
    return max(range(len(replicas)), key=lambda n: (rank(replicas[n]), -n))


class Comparison(NamedTuple):
    """How a replica relates to the leader."""

    end: int
    """The offset at which it is cut, by its leader epochs."""
    conflict: int | None
    """The offset of its first batch that differs although leader epochs agree. The replica is not trusted after the
    last batch before that both have.
    """
    n_left: int
    """Its batches that were not taken, since compaction may have left the gap in which they lie."""
    left_from: int | None
    """The offset of the first one."""


class MergedLog:
    """The log of the leader, to which other replicas are added.

    `rows` (ROW_DTYPE[n]) has its batches in order; `is_after_loss` is whether some may be missing before.
    """

    def __init__(self, leader: Replica) -> None:
        self._leader = leader
        self._epochs = LeaderEpochs(np.array(leader.epochs, kf.LEADER_EPOCH_DTYPE))
        self.rows: Rows = leader.rows.copy()

    def add(self, replica: Replica) -> Comparison:
        """Take what is missing from another replica."""
        rows = replica.rows
        end = truncate(replica.epochs, replica.end_offset, self._epochs, self._leader.end_offset)
        # a follower that has truncated never reaches beyond its leader
        end = min(end, self._leader.end_offset)
        rows = rows[rows["last_offset"] < end]
        place, is_free = self._places(rows)
        is_same = self._same(rows)
        conflict, trusted = None, rows.size
        if not self._leader.is_compacted and not replica.is_compacted:
            differs = np.flatnonzero(~is_free & ~is_same)
            if differs.size:
                offset = int(rows["first_offset"][differs[0]])
                if rows["leader_epoch"][differs[0]] == self.rows["leader_epoch"][place[differs[0]]]:
                    conflict = offset
                else:
                    end = offset  # the leader's history does not show it, as without its checkpoint
                # only a batch that both have vouches for what comes before it, so after it nothing is trusted
                same_before = np.flatnonzero(is_same[: differs[0]])
                trusted = int(same_before[-1]) + 1 if same_before.size else 0
        same = np.flatnonzero(is_same[:trusted])
        n_shared = int(same[-1]) + 1 if same.size else 0
        is_proven = np.arange(rows.size) < n_shared
        is_proven[:trusted] |= self._has_epoch(rows[:trusted], place[:trusted])
        is_wanted = is_free & is_proven
        take = is_wanted & self._is_hole(rows, place)
        left = rows["first_offset"][is_wanted & ~take]
        # its first batch may be where its log begins
        rows["is_after_loss"] |= ~np.append(False, is_proven[:-1])[: rows.size]
        self.rows = np.insert(self.rows, place[take], rows[take])
        self._confirm(rows[:n_shared])
        return Comparison(end, conflict, left.size, int(left[0]) if left.size else None)

    def _places(self, rows: Rows) -> tuple[npt.NDArray[np.int64], Mask]:
        """Where each row belongs among the rows that are there, and whether its offsets are free."""
        place = np.searchsorted(self.rows["last_offset"], rows["first_offset"])
        following = np.append(self.rows["first_offset"], np.iinfo(np.int64).max)
        return place, following[place] > rows["last_offset"]

    def _same(self, rows: Rows) -> Mask:
        """Which rows are there already."""
        if not self.rows.size:
            return np.zeros(rows.size, np.bool_)
        at = np.minimum(np.searchsorted(self.rows["last_offset"], rows["last_offset"]), self.rows.size - 1)
        same = np.ones(rows.size, np.bool_)
        for name in _IDENTITY:
            same &= self.rows[name][at] == rows[name]
        return same

    def _has_epoch(self, rows: Rows, place: npt.NDArray[np.int64]) -> Mask:
        """Which rows have the epoch that the leader's history has at their offsets; not those before v2."""
        entries = self._epochs.entries
        if not entries.size:
            return np.zeros(rows.size, np.bool_)
        number = np.searchsorted(entries["start_offset"], rows["first_offset"], side="right") - 1
        agrees: Mask = (number >= 0) & (entries["epoch"][number] == rows["leader_epoch"])
        if not self._leader.checkpointed:
            # without the file, epochs that begin in the hole are unknown: it has to lie within one
            after = np.append(self.rows["leader_epoch"], np.int32(kf.NO_EPOCH))[place]
            agrees &= after == rows["leader_epoch"]
        return agrees

    def _is_hole(self, rows: Rows, place: npt.NDArray[np.int64]) -> Mask:
        """Which rows lie where the leader lost something; compaction leaves gaps, too, where nothing is lost."""
        if not self._leader.is_compacted:
            return np.ones(rows.size, np.bool_)
        is_hole = np.append(self.rows["is_after_loss"], True)[place]
        return is_hole | (rows["last_offset"] < self._leader.base_offset)

    def _confirm(self, rows: Rows) -> None:
        """Note where another replica lost nothing: bytes that are no batch there never were one, or were compacted."""
        if not rows.size:
            return
        doubted = np.flatnonzero(self.rows["is_after_loss"])
        at = np.searchsorted(rows["last_offset"], self.rows["first_offset"][doubted])
        is_inside = at < rows.size
        at[~is_inside] = 0
        self.rows["is_after_loss"][doubted[is_inside & ~rows["is_after_loss"][at]]] = False
