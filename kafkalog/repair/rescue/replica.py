"""Reads one copy of a partition: the intact batches that are the log's own, and its leader epochs. Writes nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Limits, Reason
from kafkalog.log.compaction import Density
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import Window
from kafkalog.repair.salvaging.partition import PartitionSalvage, SalvageOutput
from kafkalog.repair.salvaging.plan import KeptRanges, moved_batches, wrong_epochs
from kafkalog.repair.salvaging.salvaged_partitions import SalvagedPartition
from kafkalog.scanning.ordered_pool import OrderedPool
from kafkalog.state.checkpoints import checkpointed_offset, read_leader_epochs
from kafkalog.state.leader_epochs import Epochs, LeaderEpochs, epochs_of, merge
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.location import Place
from kafkalog.storage.source import FileIdentity
from kafkalog.survey.losses import Lost
from kafkalog.survey.origins import known_losses, source_copies

Rows = npt.NDArray[np.void]

ROW_DTYPE: Final = np.dtype(
    [
        ("replica", np.int32),
        ("segment", np.int32),
        ("position", np.int64),
        ("size_in_bytes", np.int64),
        ("first_offset", np.int64),
        ("last_offset", np.int64),
        ("leader_epoch", np.int32),
        ("crc", np.uint32),
        ("is_after_loss", np.bool_),
        ("evidence", np.int8),
    ]
)
"""A batch: its replica and segment, by number, whether bytes were lost directly before it, and what proves that it is
of the log (a number of `kafkalog.repair.rescue.plan.EVIDENCE`).
"""


def file_numbers(rows: Rows) -> npt.NDArray[np.int64]:
    """A number for the file of each row: its replica and segment."""
    numbers: npt.NDArray[np.int64] = rows["replica"] * np.int64(2**32) + rows["segment"]
    return numbers


def runs(is_first: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The runs of rows, by the numbers of their first row and of the row after them; the first row begins one."""
    return itertools.pairwise([*np.flatnonzero(is_first).tolist(), is_first.size])


@dataclass(eq=False, slots=True)
class Replica:
    """One copy of a partition."""

    partition: Partition
    bases: list[int]
    """Base offsets of its segments, without one that a salvage has named after a wrong offset."""
    rows: Rows
    """ROW_DTYPE[n]: intact batches, in order."""
    identities: list[FileIdentity | None]
    """Of each segment when it was read; None if it could not be opened."""
    epochs: Epochs
    """(epoch, start offset), of the `leader-epoch-checkpoint` and the batches."""
    checkpointed: frozenset[int]
    """The epochs of that file; empty if it cannot be read."""
    end_offset: int
    n_bytes_lost: int
    """Bytes that are damaged, suspect, or not readable."""
    is_tail_lost: bool
    """Whether bytes were lost at the end of the last segment: the log may have been longer."""
    is_end_lost: bool
    """Whether bytes were lost after the last intact batch."""
    is_changed: bool
    """Whether `rows` have other leader epochs than the files, or another order: the files cannot be served."""
    is_compacted: bool
    """Whether gaps between batches, where no byte is lost, may be compaction; see `kafkalog.log.compaction`."""
    losses: list[Lost]
    """What the copy lost; `salvage` reports the same."""
    gaps: list[Finding]
    """Offsets before and between its segments that may be lost: the files do not tell."""
    has_limit: bool
    """Whether it has batches that are larger than a limit: they are not among `rows`, and may be intact."""
    remade: Callable[[list[int], Rows], Replica]
    """Makes this copy again, of other base offsets and rows."""

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch, -1 if there is none."""
        return self.epochs[-1][0] if self.epochs else kf.NO_EPOCH

    @property
    def base_offset(self) -> int:
        """Base offset of the first segment."""
        return self.bases[0] if self.bases else 0

    @property
    def checkpointed_start(self) -> int:
        """Log start offset of the log dir's checkpoint; 0 if there is none.

        The first segment's base offset is no such: it may be what is left of a damaged log, and another copy has the
        rest.
        """
        key = self.partition.topic_partition
        if key is None or self.partition.kind is not None:
            return 0
        path = self.partition.path.absolute().parent / kf.LOG_START_OFFSET_CHECKPOINT
        return checkpointed_offset(path, key) or 0


def read_replica(
    partition: Partition,
    number: int,
    note: Callable[[Finding], object],
    progress: Callable[[int], object],
    limits: Limits,
) -> Replica:
    """Search a copy of a partition; `number` is what its rows name it."""
    search = _Search(partition, number, note, limits)
    with OrderedPool(0, "kafkalog-merge") as pool:
        search.run(pool, 1, progress)
    bases = [segment.base_offset for segment in partition.segments]
    return _replica(search, partition, bases, np.concatenate([np.empty(0, ROW_DTYPE), *search.parts]))


def without_last(replica: Replica, place: int) -> Replica:
    """A copy without its last batch, whose offset is wrong: it belongs to `place`."""
    rows, last = replica.rows[:-1], replica.rows[-1]
    found = replica.remade([base for base in replica.bases if base != last["first_offset"]], rows)
    end = place + int(last["last_offset"] - last["first_offset"]) + 1
    path, n_bytes = str(replica.partition.segments[int(last["segment"])].path), int(last["size_in_bytes"])
    start = max(int(rows["last_offset"][-1]) + 1, place) if rows.size else place
    lost = Lost(path, start, end, end - start, "at_most", n_bytes, Reason.OFFSET_ORDER)
    found.losses, found.n_bytes_lost = [*replica.losses, lost], replica.n_bytes_lost + n_bytes
    found.is_tail_lost = found.is_end_lost = True
    found.end_offset = max(found.end_offset, end)
    return found


def _replica(search: _Search, partition: Partition, bases: list[int], rows: Rows) -> Replica:
    """The copy that a search has read, or what remains of it."""
    checkpoint = _checkpoint(partition, np.concatenate([np.empty(0, np.int32), *search.epochs]))
    # the cleaner never touches the last segment, and gaps that it explains end before it
    is_compacted = bool(partition.is_compacted(max(bases, default=0), search.densities(rows)))
    end = max([*bases[-1:], *(rows["last_offset"][-1:] + 1).tolist()], default=0)
    if search.is_end_lost and len(checkpoint):
        # an epoch starts at what the log end was then: the log reached as far at least
        end = max(end, int(checkpoint["start_offset"][-1]))
    is_new = np.ones(rows.size, np.bool_)
    is_new[1:] = rows["leader_epoch"][1:] > rows["leader_epoch"][:-1]
    firsts = rows[is_new & (rows["leader_epoch"] >= 0)]
    in_batches = epochs_of([list(zip(firsts["leader_epoch"].tolist(), firsts["first_offset"].tolist(), strict=True))])
    with_epoch = rows["last_offset"][rows["leader_epoch"] >= 0]
    covered_to = int(with_epoch[-1]) + 1 if with_epoch.size else 0
    return Replica(
        partition,
        bases,
        rows,
        [search.identities.get(segment.base_offset) for segment in partition.segments],
        merge(checkpoint, in_batches, end, covered_to=covered_to),
        frozenset(checkpoint["epoch"].tolist()),
        end,
        search.n_bytes_lost,
        search.is_tail_lost,
        search.is_end_lost,
        search.is_changed,
        is_compacted,
        _with_known(rows, search.losses, partition.path),
        search.gaps,
        search.has_limit,
        partial(_replica, search, partition),
    )


def _checkpoint(partition: Partition, in_batches: npt.NDArray[np.int32]) -> npt.NDArray[np.void]:
    """The entries of `leader-epoch-checkpoint`, without those that a command made of the batches alone.

    Its source has a file without them. Made of a wrong epoch of a batch, they would prove it.
    """
    entries = _entries(partition.path)
    sources = [_entries(path)["epoch"] for path in source_copies(partition.path)]
    listed = np.concatenate([np.empty(0, np.int32), *sources])
    is_made = np.isin(entries["epoch"], in_batches) & ~np.isin(entries["epoch"], listed)
    return entries[~is_made] if listed.size else entries


def _entries(directory: Place) -> npt.NDArray[np.void]:
    """The entries of a directory's `leader-epoch-checkpoint`; none if it cannot be read, which the search notes."""
    try:
        return LeaderEpochs(read_leader_epochs(directory / kf.LEADER_EPOCH_CHECKPOINT)).entries
    except KafkalogError:
        return LeaderEpochs().entries


def _with_known(rows: Rows, losses: list[Lost], partition: Place) -> list[Lost]:
    """Add the losses in the report of the command that made the copy, and mark the batches after lost segments.

    No compaction left these gaps.
    """
    known = known_losses(partition)
    _begin_after(rows, [*known, *losses])
    for lost in (*known, *(one for one in losses if not one.n_bytes)):
        row = int(np.searchsorted(rows["first_offset"], lost.first_offset or 0))
        if row < rows.size:
            rows["is_after_loss"][row] = True
    found = [*losses]
    for lost in known:
        start, end = lost.first_offset or 0, kf.MAX_OFFSET if lost.end_offset is None else lost.end_offset
        if not any((one.first_offset or 0) < end and start < (one.end_offset or kf.MAX_OFFSET) for one in losses):
            found.append(lost)
    return found


def _begin_after(rows: Rows, losses: list[Lost]) -> None:
    """Let compressed v0 or v1 messages, whose first offset was taken from the one before, begin after what is lost."""
    for start, end in ((one.first_offset, one.end_offset) for one in losses):
        row = rows.size if start is None else int(np.searchsorted(rows["last_offset"], start))
        if row == rows.size or end is None or rows["leader_epoch"][row] >= 0:
            continue
        if rows["first_offset"][row] == start and end <= rows["last_offset"][row]:
            rows["first_offset"][row] = end


class _Search(PartitionSalvage):
    """Collects the batches that a salvage would keep, and what it would report as lost."""

    def __init__(self, partition: Partition, number: int, note: Callable[[Finding], object], limits: Limits) -> None:
        self._report_of_copy = SalvagedPartition(str(partition.path), "")
        nothing = SalvageOutput(None, "", Path())
        super().__init__(partition, None, self._report_of_copy, nothing, note, limits)
        self._number, self._numbers = number, {one.base_offset: n for n, one in enumerate(partition.segments)}
        self.parts: list[Rows] = []
        self.identities: dict[int, FileIdentity] = {}
        self.gaps: list[Finding] = []
        self.has_limit = False
        self.n_bytes_lost = 0
        self.is_tail_lost = False  # whether bytes are lost at the end of the last segment so far
        self.is_end_lost = False  # whether bytes are lost after the last row
        self.is_changed = False

    @property
    def losses(self) -> list[Lost]:
        """The losses of the copy."""
        return self._report_of_copy.losses

    def densities(self, rows: Rows) -> list[Density]:
        """How dense the offsets of each segment are, of these rows: all, or those before the last one."""
        found = [row for one in self._contents.values() if (row := one.density) is not None]
        if found and self.n_rows > rows.size:
            found[-1] = found[-1]._replace(has_gaps=self._gaps.had_gaps)
        return found

    @property
    def epochs(self) -> list[npt.NDArray[np.int32]]:
        """The leader epochs of all batches that were found."""
        return [np.unique(part["leader_epoch"]) for part in self.parts]

    @property
    def n_rows(self) -> int:
        """The batches that were found."""
        return sum(part.size for part in self.parts)

    def _note(self, finding: Finding) -> None:
        """Pass on what does not depend on other copies; a hole may be filled from them."""
        if len(self._found) < self._limits.max_findings:
            self._found.append(finding)
        if finding.reason is Reason.OFFSET_GAP and not finding.damage and finding.last_offset is not None:
            self.gaps.append(finding)
        if finding.reason is Reason.FILE_UNREADABLE and finding.position is None:
            self.is_tail_lost = self.is_end_lost = True  # a segment that cannot be opened
        if finding.is_limit:
            self.has_limit = True
            self._report_finding(finding)
        is_of_log, name = finding.reason is Reason.EPOCH_ORDER, os.path.basename(finding.path or "")
        if is_of_log or (not name.endswith(kf.LOG_SUFFIX) and finding.n_records is None):
            self._report_finding(finding if is_of_log else replace(finding, damage=False))

    def _add(self, plan: KeptRanges, source: BadSectorSource) -> None:
        """Add the batches that a plan keeps."""
        self.identities[plan.segment.base_offset] = source.identity
        self.is_changed |= any((*wrong_epochs(plan), *moved_batches(plan)))
        first_part = len(self.parts)
        super()._add(plan, source)
        rows = np.concatenate([np.empty(0, ROW_DTYPE), *self.parts[first_part:]])
        # the batch after each lost range, by its number; one too large if there is none
        behind = np.unique(np.searchsorted(np.maximum.accumulate(rows["position"]), plan.lost.start))
        rows["is_after_loss"][behind[behind < rows.size]] = True
        if rows.size:
            rows["is_after_loss"][0] |= self.is_end_lost
            self.is_end_lost = False
        self.is_tail_lost = bool((behind == rows.size).any())
        # zeros at the end of a segment are no lost bytes, but batches may have been there
        described = self._report_of_copy.lost[-1:]
        is_zero = any(one.segment == str(plan.segment.path) and not one.pieces and one.n_records for one in described)
        self.is_end_lost |= self.is_tail_lost or is_zero
        self.n_bytes_lost += int((plan.lost.end - plan.lost.start).sum())
        self.parts[first_part:] = [rows]

    def _undecodable(self, *window: Any) -> list[Finding]:
        """Only the batches that are merged are decoded."""
        return []

    def _keep(self, segment: Segment, window: Window, position: npt.NDArray[np.int64]) -> None:
        batches = window.batches
        rows = np.zeros(len(batches), ROW_DTYPE)
        rows["replica"], rows["segment"] = self._number, self._numbers[segment.base_offset]
        rows["position"] = position
        rows["size_in_bytes"] = batches.size_in_bytes
        is_known = batches.base_offset >= 0
        rows["first_offset"] = np.where(is_known, batches.base_offset, batches.last_offset)
        rows["last_offset"] = batches.last_offset
        rows["leader_epoch"] = np.where(batches.magic >= 2, batches.partition_leader_epoch, kf.NO_EPOCH)
        rows["crc"] = batches.crc
        # only the content of a compressed v0 or v1 message says where its offsets begin: like nearly all, it is dense
        follows = position[1:] == (position + rows["size_in_bytes"])[:-1]
        which = np.flatnonzero(~is_known[1:] & follows) + 1
        rows["first_offset"][which] = rows["last_offset"][which - 1] + 1
        rows["first_offset"][~is_known & (position == 0)] = segment.base_offset
        self.parts.append(rows)
