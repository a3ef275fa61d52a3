"""Plans the log of a partition out of one or many copies: the pieces, the holes, and what stays in doubt.

As among brokers, leader epochs decide: the copy with the latest epoch leads and, of those, the longest. The others are
cut where a follower would truncate. Below, a batch is taken from another copy where the leader's copy lost it, if one
of two things proves that it is the same log: a later batch that both have, since two logs that share a batch of one
epoch share all before it; or its epoch, if the leader's history has that epoch at its offset. Compaction leaves gaps,
too: those of a compacted copy are filled if a record there is the last of its key, which compaction keeps. Only that
reads batches again; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason, lost_markers
from kafkalog.html import JsonFields
from kafkalog.log.searching.consistent_batches import OFFSETS_PER_BYTE
from kafkalog.log.searching.missing import offsets_finding
from kafkalog.repair.diff import truncate
from kafkalog.repair.rescue.batches import has_last_records
from kafkalog.repair.rescue.replica import ROW_DTYPE, Replica, Rows, file_numbers, runs, without_last
from kafkalog.state.leader_epochs import LeaderEpochs, LogProgress
from kafkalog.survey.losses import Lost
from kafkalog.text import counted, offset_range

Mask = npt.NDArray[np.bool_]
Evidence = Literal["leader", "shared batch", "leader epoch"]
EVIDENCE: Final[tuple[Evidence, ...]] = ("leader", "shared batch", "leader epoch")
"""What proves that a batch is of the log: the copy that leads has it; a later batch is in that copy, too; or the
history of that copy has its leader epoch at its offset.
"""
Doubt = Literal["cut", "unproven", "compacted"]
"""Why a batch is not in the log: the history that leads has another epoch there; nothing proves that it is of the log;
or the copy that leads has no damage there, so that compaction may have removed it, and no key proves the contrary.
"""

_IDENTITY: Final = ("last_offset", "crc", "size_in_bytes", "leader_epoch")


def rank(replica: Replica) -> tuple[LogProgress, tuple[bool, int, bool, int], bytes]:
    """The order in which replicas lead and fill holes; equal only for equal batches, so that no argument order decides.

    Of two that have come equally far, the one that lost less leads: a copy
    without damage may also have a hole, such as the output of `salvage`, so the offsets that it has count first.
    """
    rows = replica.rows
    n_offsets = int((rows["last_offset"] - rows["first_offset"] + 1).sum())
    content = b"".join(rows[name].tobytes() for name in ("first_offset", "last_offset", "crc"))
    is_tail_kept, is_complete = not replica.is_tail_lost, not replica.losses
    damage = is_tail_kept, n_offsets, is_complete, -replica.n_bytes_lost
    return LogProgress(replica.last_epoch, replica.end_offset), damage, content


def corrected(replicas: Sequence[Replica]) -> tuple[list[Replica], list[Finding]]:
    """Return the copies without last batches of wrong offsets, and with the epochs that other copies have.

    No checksum covers either. A wrong one at the end of a copy would make it lead, although others have more.
    """
    found: list[Finding] = []
    fixed = []
    for number, replica in enumerate(replicas):
        others = [*replicas[:number], *replicas[number + 1 :]]
        place = _true_offset(replica, others)
        if place is not None:
            wrong = replica.rows["first_offset"][-1]
            detail = f"the last batch has offset {wrong}, and {place} in other copies: it is not taken from this one"
            found.append(_about(replica, replica.rows.size - 1, Reason.OFFSET_ORDER, detail))
            replica = without_last(replica, place)
        changes = [*_true_epochs(replica, others)]
        if changes:
            row, epoch = changes[0]
            wrong = replica.rows["leader_epoch"][row]
            detail = f"leader epoch {wrong} is not in leader-epoch-checkpoint, and is {epoch} in other copies"
            found.append(_about(replica, row, Reason.EPOCH_ORDER, detail))
            rows = replica.rows.copy()
            for row, epoch in changes:
                rows["leader_epoch"][row] = epoch
            replica = replica.remade(replica.bases, rows)
            replica.is_changed = True
        fixed.append(replica)
    return fixed, found


def _about(replica: Replica, row: int, reason: Reason, detail: str) -> Finding:
    """The note about a wrong field of a batch."""
    batch = replica.rows[row]
    path = str(replica.partition.segments[int(batch["segment"])].path)
    offset = int(batch["first_offset"])
    return Finding(reason, detail, path, int(batch["position"]), base_offset=offset, damage=False)


def _true_offset(replica: Replica, others: Sequence[Replica]) -> int | None:
    """The true offset of the last batch of a copy, if evidence contradicts its own; None without any.

    Another copy has the same batch at a lower offset, which is free here, and none has it where this one does. Equal
    bytes alone do not prove that: a producer that sent a batch again has written it twice.
    """
    rows = replica.rows
    if not rows.size:
        return None
    last = rows[-1]
    base = replica.partition.segments[int(last["segment"])].base_offset
    # a salvage names a segment after a wrong offset
    start = int(rows["last_offset"][-2]) + 1 if rows.size > 1 else replica.base_offset
    n_free = int(last["first_offset"]) - start
    if n_free <= 0:
        return None
    is_explained = bool(last["is_after_loss"]) and n_free <= OFFSETS_PER_BYTE * _n_bytes_before(rows)
    places = []
    for other in others:
        span = other.rows["last_offset"] - other.rows["first_offset"]
        same = (other.rows["crc"] == last["crc"]) & (other.rows["size_in_bytes"] == last["size_in_bytes"])
        at = other.rows["first_offset"]
        same &= (span == last["last_offset"] - last["first_offset"]) & _places(rows[:-1], other.rows)[1]
        if np.isin(last["first_offset"], at[same]):
            return None
        for number in np.flatnonzero(same & (at < last["first_offset"])).tolist():
            if is_explained:
                batch = other.rows[number]
                other_base = other.partition.segments[int(batch["segment"])].base_offset
                if (other_base, batch["position"]) != (base, last["position"]):
                    continue
            places.append(int(at[number]))
    return min(places, default=None)


def _places(rows: Rows, others: Rows) -> tuple[npt.NDArray[np.int64], Mask]:
    """The place of each row of another copy among these rows, and whether its offsets are free there."""
    place = np.searchsorted(rows["last_offset"], others["first_offset"])
    following = np.append(rows["first_offset"], np.iinfo(np.int64).max)
    return place, following[place] > others["last_offset"]


def _n_bytes_before(rows: Rows) -> int:
    """The bytes between the last two rows, or before the only one."""
    last, before = rows[-1], rows[-2] if rows.size > 1 else None
    if before is None or before["segment"] != last["segment"]:
        return int(last["position"])
    return int(last["position"] - before["position"] - before["size_in_bytes"])


def _true_epochs(replica: Replica, others: Sequence[Replica]) -> Iterator[tuple[int, int]]:
    """The rows whose epoch no other copy and no checkpoint has, each with the epoch that another copy has of it."""
    rows = replica.rows
    if not replica.checkpointed or not others:
        return
    known = {*replica.checkpointed, *(epoch for other in others for epoch in other.checkpointed)}
    known |= {int(epoch) for other in others for epoch in np.unique(other.rows["leader_epoch"])}
    for row in np.flatnonzero(~np.isin(rows["leader_epoch"], [*known])).tolist():
        for other in others:
            at = int(np.searchsorted(other.rows["last_offset"], rows["last_offset"][row]))
            if at == other.rows.size:
                continue
            batch = other.rows[at]
            names = ("first_offset", "last_offset", "crc", "size_in_bytes")
            if all(batch[name] == rows[name][row] for name in names):
                yield row, int(batch["leader_epoch"])
                break


class Comparison(NamedTuple):
    """How a replica relates to the leader."""

    end: int
    """The offset at which it is cut, by its leader epochs."""
    conflict: int | None
    """The offset of its first batch that differs although leader epochs agree. The replica is not trusted after the
    last batch before that both have.
    """
    doubts: list[tuple[Doubt, Rows]]
    """The batches that are not taken, and are not in the log."""

    @property
    def left(self) -> Rows:
        """Those that compaction may have removed from the leader's copy."""
        return next((rows for doubt, rows in self.doubts if doubt == "compacted"), np.empty(0, ROW_DTYPE))


class _Log:
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
        is_cut = rows["last_offset"] >= end
        cut, rows = rows[is_cut], rows[~is_cut]
        place, is_free = _places(self.rows, rows)
        is_same = self.same(rows)
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
        rows["evidence"] = np.where(is_proven, EVIDENCE.index("shared batch"), EVIDENCE.index("leader epoch"))
        is_proven[:trusted] |= self._has_epoch(rows[:trusted], place[:trusted])
        is_wanted = is_free & is_proven
        take = is_wanted & self._is_hole(rows, place)
        doubts: list[tuple[Doubt, Rows]] = [("cut", cut), ("unproven", rows[is_free & ~is_proven])]
        doubts.append(("compacted", rows[is_wanted & ~take]))
        # its first batch may be where its log begins
        rows["is_after_loss"] |= ~np.append(False, is_proven[:-1])[: rows.size]
        self.rows = np.insert(self.rows, place[take], rows[take])
        self._confirm(rows[:n_shared])
        return Comparison(end, conflict, [(doubt, some) for doubt, some in doubts if some.size])

    def fill(self, replicas: Sequence[Replica], number: int, known: Comparison) -> Comparison:
        """Take what was left of a replica as compacted, if a key proves that compaction has not left these gaps."""
        place, is_free = _places(self.rows, known.left)
        left, place, replica = known.left[is_free], place[is_free], replicas[number]
        end = min(known.end, replica.end_offset)
        if not left.size or not has_last_records(replicas, self.rows, left, replica, end):
            return known
        self.rows = np.insert(self.rows, place, left)
        return known._replace(doubts=[pair for pair in known.doubts if pair[0] != "compacted"])

    def same(self, rows: Rows) -> Mask:
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


@dataclass(frozen=True, slots=True)
class PlanPiece(JsonFields):
    """Batches that follow each other in a segment of one copy."""

    first_offset: int
    last_offset: int
    source: str
    """Path of the copy's partition directory."""
    segment: str
    """Name of the `.log`."""
    start: int
    end: int
    """The bytes; `end` is excluded."""
    n_batches: int
    leader_epochs: tuple[int, int]
    """Of the first and the last batch."""
    why: Evidence | Doubt
    """What proves that the batches are of the log; for a piece in doubt, why they are not in it."""


@dataclass(frozen=True, slots=True)
class RescuePlan(JsonFields):
    """The plan for a partition as data."""

    leader: str
    """Path of the copy that leads."""
    log_start_offset: int
    end_offset: int
    """Excluded."""
    pieces: list[PlanPiece]
    """Where the batches come from, in order."""
    holes: list[Lost]
    """What no copy has."""
    doubts: list[PlanPiece]
    """Intact batches of any copy that are not in the log."""


class LogPlan:
    """The log of a partition out of its copies.

    `rows` (ROW_DTYPE[n]) has its batches in order, `replicas` the copies, and `order` their numbers, from the one that
    leads. `leader` is that copy, and `comparisons` how each other relates to it, by number. `boundaries` are the base
    offsets of the segments, each with the number of its first row. `holes` is what no copy has. `findings` name these,
    and what the copies disagree about.
    """

    def __init__(self, replicas: list[Replica]) -> None:
        replicas, corrections = corrected(replicas)
        self.replicas = replicas
        # of equal ones, the first leads
        self.order = sorted(range(len(replicas)), key=lambda n: rank(replicas[n]), reverse=True)
        first, *others = self.order
        self.leader = replicas[first]
        self.findings = corrections
        self.holes: list[Lost] = []
        self.comparisons: dict[int, Comparison] = {}
        log = _Log(self.leader)
        for other in others:
            self.comparisons[other] = log.add(replicas[other])
        for other in others:
            self.comparisons[other] = log.fill(replicas, other, self.comparisons[other])
            self._compare(other)
        self._log = log
        self.rows = rows = log.rows
        self.boundaries = self._segments(rows)
        self.start_offset = self.boundaries[0][0]
        self.end_offset = max(self.boundaries[-1][0], *(rows["last_offset"][-1:] + 1).tolist(), 0)
        # a start past the end would hide all that was saved
        starts = (start for one in replicas if (start := one.checkpointed_start) <= self.end_offset)
        self.log_start_offset = max([self.start_offset, *starts])
        ends = np.append(np.int64(self.start_offset), rows["last_offset"] + 1)
        self._find_missing(rows, ends)
        self._find_doubtful(rows, ends)

    @property
    def pieces(self) -> list[PlanPiece]:
        """Where the batches come from, in order, each with its evidence."""
        return self._pieces(self.rows, None)

    @property
    def doubts(self) -> list[PlanPiece]:
        """The intact batches of all copies that are not in the log, and why not."""
        pairs = [pair for _, one in sorted(self.comparisons.items()) for pair in one.doubts]
        return [piece for doubt, rows in pairs for piece in self._pieces(rows, doubt)]

    @property
    def summary(self) -> RescuePlan:
        """The plan as data."""
        leader = str(self.leader.partition.path)
        return RescuePlan(leader, self.log_start_offset, self.end_offset, self.pieces, self.holes, self.doubts)

    def is_whole(self, replica: Replica) -> bool:
        """Whether a copy is this log, and lost nothing: it can be served as it is."""
        rows = replica.rows
        return (
            not (replica.losses or replica.is_changed)
            and rows.size == self.rows.size
            and bool(self._log.same(rows).all())
        )

    def follows(self, number: int) -> bool:
        """Whether a broker makes the log of a copy when it follows this one: nothing inside of it is lost or differs.

        A follower cuts what a later epoch does not have, but sees no other difference.
        """
        replica, known = self.replicas[number], self.comparisons.get(number)
        if replica.losses or replica.is_changed or known is None or known.conflict is not None:
            return self.is_whole(replica)
        rows = replica.rows[replica.rows["last_offset"] < known.end]
        if not rows.size:
            return not self.rows.size  # the leader would send all of it
        # other files doubt that its log began there; that of the leader shows what was before
        if any((gap.last_offset or 0) < replica.base_offset for gap in replica.gaps):
            return self.start_offset >= replica.base_offset
        first, last = min(replica.base_offset, int(rows["first_offset"][0])), rows["last_offset"][-1]
        theirs = self.rows[(self.rows["first_offset"] >= first) & (self.rows["last_offset"] <= last)]
        if replica.is_compacted or self.leader.is_compacted:
            left = theirs[_places(rows, theirs)[1]]
            return not has_last_records(self.replicas, rows, left, self.leader, known.end)
        return rows.size == theirs.size and bool(self._log.same(rows).all())

    def _compare(self, number: int) -> None:
        """Note what another copy disagrees about."""
        known, leader = self.comparisons[number], self.leader.partition.path
        path = str(self.replicas[number].partition.path)
        if known.conflict is not None:
            detail = f"it differs from {leader} from offset {known.conflict} on, although leader epochs agree"
            self.findings.append(Finding(Reason.EPOCH_ORDER, detail, path=path, base_offset=known.conflict))
        if known.left.size:
            detail = (
                f"{counted(known.left.size, 'batch')} from here on not merged: {leader} has gaps there, and no damage."
                " Compaction leaves such gaps; without compaction, the base lost them"
            )
            first = int(known.left["first_offset"][0])
            found = Finding(Reason.OFFSET_GAP, detail, path=path, base_offset=first, damage=False)
            self.findings.append(found)

    def _pieces(self, rows: Rows, doubt: Doubt | None) -> list[PlanPiece]:
        file = file_numbers(rows)
        stop = rows["position"] + rows["size_in_bytes"]
        follows = (file[1:] == file[:-1]) & (rows["position"][1:] == stop[:-1])
        follows &= rows["evidence"][1:] == rows["evidence"][:-1]
        found = []
        for begin, end in runs(np.append(True, ~follows)[: rows.size]):
            first, last = rows[begin], rows[end - 1]
            partition = self.replicas[int(first["replica"])].partition
            found.append(
                PlanPiece(
                    int(first["first_offset"]),
                    int(last["last_offset"]),
                    str(partition.path),
                    partition.segments[int(first["segment"])].path.name,
                    int(first["position"]),
                    int(stop[end - 1]),
                    end - begin,
                    (int(first["leader_epoch"]), int(last["leader_epoch"])),
                    doubt or EVIDENCE[int(first["evidence"])],
                )
            )
        return found

    def _segments(self, rows: Rows) -> list[tuple[int, int]]:
        """Base offsets of the output's segments, each with the number of the first row in it."""
        bases = {*self.leader.bases}
        # where the leader has no segment, those of the others
        for row, _ in runs(np.diff(file_numbers(rows), prepend=-1) != 0):
            replica = self.replicas[int(rows["replica"][row])]
            base_offset = replica.partition.segments[int(rows["segment"][row])].base_offset
            if not row or base_offset > rows["last_offset"][row - 1]:
                bases.add(base_offset)
        ordered = np.array(sorted(bases or {0}), np.int64)
        at = np.searchsorted(rows["first_offset"], ordered)
        before = np.append(np.int64(-1), rows["last_offset"])[at]
        is_good = before < ordered  # not in the middle of a batch
        return list(zip(ordered[is_good].tolist(), at[is_good].tolist(), strict=True))

    def _find_missing(self, rows: Rows, ends: npt.NDArray[np.int64]) -> None:
        """Report what the leader lost, and no other copy has."""
        leader = self.leader
        losses = [*leader.losses]
        if self.start_offset < leader.base_offset:
            # the other copies may have holes before the offset at which the leader's begins
            path, start, end = str(leader.partition.path), self.start_offset, leader.base_offset
            losses.append(Lost(path, start, end, None, None, 1, Reason.OFFSET_GAP))
        for lost in losses:
            if lost.first_offset is None:
                self._miss(lost, None, None)
            else:
                self._find_gaps(lost, lost.first_offset, rows, ends)
        is_open = any(one.end_offset is None for one in self.holes)
        # damage at the end may have said where it ended
        end = max([int(ends[-1]), *(one.end_offset or 0 for one in self.holes)])
        if leader.is_end_lost and end < leader.end_offset and not is_open:
            self._miss(None, end, leader.end_offset)

    def _find_gaps(self, lost: Lost, start: int, rows: Rows, ends: npt.NDArray[np.int64]) -> None:
        """Report the parts of a loss from `start` on that no other copy has."""
        is_after_loss = np.append(rows["is_after_loss"], True)
        is_compacted = self.leader.is_compacted
        stop = kf.MAX_OFFSET if lost.end_offset is None else lost.end_offset
        row = int(np.searchsorted(rows["last_offset"], start))
        while start < stop:
            first = min(int(rows["first_offset"][row]), stop) if row < rows.size else stop
            # where a copy lost nothing, compaction left the gap
            if first > start and (is_after_loss[row] or not is_compacted or not lost.n_bytes):
                self._miss(lost, start, first if first < kf.MAX_OFFSET else None)
            row += 1
            start = int(ends[row]) if row <= rows.size else stop

    def _doubted(self) -> list[Finding]:
        """The gaps of the leader; if it does not say where its log began, also one before the start of another copy."""
        gaps = [*self.leader.gaps]
        if not self.leader.checkpointed:
            starts = (one for some in self.replicas for one in some.gaps if (one.last_offset or 0) < some.base_offset)
            gaps += [*starts][:1]
        return list(dict.fromkeys(gaps))

    def _find_doubtful(self, rows: Rows, ends: npt.NDArray[np.int64]) -> None:
        """Note the offsets of which the files do not tell whether they are lost, and that no copy has."""
        holes = [(one.first_offset or 0, one.end_offset or kf.MAX_OFFSET) for one in self.holes]
        firsts = np.append(rows["first_offset"], np.iinfo(np.int64).max)
        for gap in self._doubted():
            begin, stop = gap.base_offset or 0, (gap.last_offset or 0) + 1
            if self.leader.is_compacted:  # which explains all gaps from its first segment on
                stop = max(min(stop, self.leader.base_offset), begin)
            # `ends` begins with the start of the log, before which nothing is
            starts_of = np.clip(np.append(begin, ends[1:]), begin, stop)
            stops = np.clip(firsts, begin, stop)
            for at in np.flatnonzero(starts_of < stops).tolist():
                start, end = int(starts_of[at]), int(stops[at])
                if not any(low < end and start < high for low, high in holes):
                    path = gap.path or ""
                    self.findings.append(offsets_finding(gap.reason, gap.detail, path, start, end, damage=False))

    def _miss(self, lost: Lost | None, start: int | None, end: int | None) -> None:
        """Note offsets that no copy has, or a part of what the leader lost."""
        detail = f"no copy has offsets {offset_range(start, end)}"
        path = str(self.leader.partition.path) if lost is None else lost.path
        found = Finding(Reason.OFFSET_GAP, detail, path=path, base_offset=start)
        if start is not None and end is not None:
            found = offsets_finding(found.reason, detail, path, start, end)
        if lost is not None and (lost.first_offset, lost.end_offset) == (start, end):
            detail = f"{detail}, with {lost_markers(lost.n_markers)}" if lost.n_markers else detail
            found = replace(found, detail=detail, n_records=lost.n_records, certainty=lost.certainty)
            found = replace(found, n_markers=lost.n_markers)
        if any(one.has_limit for one in self.replicas):
            self.findings.append(replace(found, detail=f"{detail} below the limit", damage=False))
            return
        self.findings.append(found)
        hole = Lost(path, start, end, found.n_records, found.certainty, 0, found.reason, found.n_markers)
        self.holes.append(hole)
