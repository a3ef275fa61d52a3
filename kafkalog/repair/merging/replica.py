"""Reads one copy of a partition: the intact batches that are the log's own, and its leader epochs. Writes nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Limits, Reason
from kafkalog.log.compaction import GapMeter
from kafkalog.log.partition import Partition
from kafkalog.log.searching.resync import Found
from kafkalog.records.batch_table import whole_batches
from kafkalog.repair.salvaging.plan import SegmentPlan, file_positions, gather, plan_segment, wrong_epochs
from kafkalog.state.checkpoints import read_leader_epochs
from kafkalog.state.leader_epochs import Epochs, LeaderEpochs, epochs_of, merge
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.source import Bytes, FileIdentity
from kafkalog.survey.evidence import LogDirState, SegmentContents
from kafkalog.survey.losses import Lost, losses_of, survey

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
    ]
)
"""A batch: its replica and segment, by number, and whether bytes were lost directly before it."""


@dataclass(eq=False, slots=True)
class Replica:
    """One copy of a partition."""

    partition: Partition
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
    is_compacted: bool
    """Whether gaps between batches, where no byte is lost, may be compaction; see `kafkalog.log.compaction`."""
    missing: list[Lost]
    """The offsets that other files prove to be missing."""

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch, -1 if there is none."""
        return self.epochs[-1][0] if self.epochs else kf.NO_EPOCH

    @property
    def base_offset(self) -> int:
        """Base offset of the first segment."""
        return self.partition.segments[0].base_offset if self.partition.segments else 0


def read_replica(
    partition: Partition,
    number: int,
    note: Callable[[Finding], object],
    progress: Callable[[int], object],
    limits: Limits,
) -> Replica:
    """Search a copy of a partition; `number` is what its rows name it."""
    try:
        checkpoint = LeaderEpochs(read_leader_epochs(partition.path / kf.LEADER_EPOCH_CHECKPOINT)).entries
    except KafkalogError as error:
        note(error.to_finding(damage=False))
        checkpoint = LeaderEpochs().entries
    found = _Segments(number)
    bases = [segment.base_offset for segment in partition.segments]
    segments = partition.segments
    for segment, following in zip(segments, [*segments[1:], None][: len(segments)], strict=True):
        try:
            source = BadSectorSource(segment.path)
        except KafkalogError as error:
            note(error.to_finding(damage=False))
            found.skip(segment.path, segment.base_offset)
            continue
        with source:
            plan = plan_segment(segment, source, following, checkpoint.tolist(), limits, progress)
            for finding in wrong_epochs(plan):
                note(finding)
            found.add(plan, source)
            source.check_unchanged()
    rows = np.concatenate(found.parts) if found.parts else np.empty(0, ROW_DTYPE)
    # the cleaner never touches the last segment, and gaps that it explains end before it
    rows_of = [row for one in found.contents if (row := one.density) is not None]
    is_compacted = bool(partition.is_compacted(bases[-1], rows_of)) if bases else False
    end = max([*bases[-1:], *(rows["last_offset"][-1:] + 1).tolist()], default=0)
    if found.is_end_lost and len(checkpoint):
        # an epoch starts at what the log end was then: the log reached as far at least
        end = max(end, int(checkpoint["start_offset"][-1]))
    is_new = np.ones(rows.size, np.bool_)
    is_new[1:] = rows["leader_epoch"][1:] > rows["leader_epoch"][:-1]
    firsts = rows[is_new & (rows["leader_epoch"] >= 0)]
    in_batches = epochs_of([list(zip(firsts["leader_epoch"].tolist(), firsts["first_offset"].tolist(), strict=True))])
    with_epoch = rows["last_offset"][rows["leader_epoch"] >= 0]
    covered_to = int(with_epoch[-1]) + 1 if with_epoch.size else 0
    epochs = merge(checkpoint, in_batches, end, covered_to=covered_to)
    return Replica(
        partition,
        rows,
        found.identities,
        epochs,
        frozenset(checkpoint["epoch"].tolist()),
        end,
        found.n_bytes_lost,
        found.is_tail_lost,
        found.is_end_lost,
        is_compacted,
        _missing(partition, found.contents),
    )


def _missing(partition: Partition, contents: list[SegmentContents]) -> list[Lost]:
    """The offsets that other files prove to be missing."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(partition.path))
    found = survey(partition, contents, LogDirState.of(partition), names)
    proofs = (Reason.SEGMENT_MISSING, Reason.LOG_END_MISSING)
    return losses_of(one for one in found.findings if one.reason in proofs)


class _Segments:
    """Collects the rows of a replica's segments."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.parts: list[Rows] = []
        self.identities: list[FileIdentity | None] = []
        self.n_bytes_lost = 0
        self.contents: list[SegmentContents] = []
        self.is_tail_lost = False  # whether bytes are lost at the end of the last segment so far
        self.is_end_lost = False  # whether bytes are lost after the last row

    def skip(self, path: Path, base_offset: int) -> None:
        """Pass over a segment that cannot be opened."""
        self.identities.append(None)
        self.contents.append(SegmentContents(str(path), base_offset, base_offset - 1, 0))
        self.is_tail_lost = self.is_end_lost = True

    def add(self, plan: SegmentPlan, source: BadSectorSource) -> None:
        """Add the batches that a plan keeps."""
        kept, lost = plan.kept, plan.lost
        base = plan.segment.base_offset
        gaps = GapMeter(base)
        parts = [
            self._rows(base, kept[first:last], data, gaps) for data, first, last in gather(source, kept.start, kept.end)
        ]
        rows = np.concatenate(parts) if parts else np.empty(0, ROW_DTYPE)
        is_v2 = rows["leader_epoch"] != kf.NO_EPOCH
        rows["leader_epoch"][is_v2] = np.repeat(plan.epochs, kept.n_batches)[is_v2]
        last = int(rows["last_offset"][-1]) if rows.size else base - 1
        path, size = str(plan.segment.path), plan.size_in_bytes
        self.contents.append(SegmentContents(path, base, last, size, has_gaps=gaps.has_gaps))
        # the batch after each lost range, by its number; one too large if there is none
        first = np.append(0, np.cumsum(kept.n_batches))
        behind = np.unique(first[np.searchsorted(plan.places, lost.start, side="right")])
        rows["is_after_loss"][behind[behind < rows.size]] = True
        if rows.size:
            rows["is_after_loss"][0] |= self.is_end_lost
            self.is_end_lost = False
        self.is_tail_lost = bool((behind == rows.size).any())
        self.is_end_lost |= self.is_tail_lost
        self.n_bytes_lost += int((lost.end - lost.start).sum())
        self.parts.append(rows)
        self.identities.append(source.identity)

    def _rows(self, base_offset: int, runs: Found, data: Bytes, gaps: GapMeter) -> Rows:
        batches = whole_batches(data, 0)
        rows = np.zeros(len(batches), ROW_DTYPE)
        rows["replica"], rows["segment"] = self._number, len(self.identities)
        rows["position"] = file_positions(batches.position, runs.start, runs.end)
        rows["size_in_bytes"] = batches.size_in_bytes
        is_known = batches.base_offset >= 0
        rows["first_offset"] = np.where(is_known, batches.base_offset, batches.last_offset)
        rows["last_offset"] = batches.last_offset
        rows["leader_epoch"] = np.where(batches.magic >= 2, batches.partition_leader_epoch, kf.NO_EPOCH)
        rows["crc"] = batches.crc
        gaps.feed(batches, rows["position"])
        # only the content of a compressed v0 or v1 message says where its offsets begin: like nearly all, it is dense
        follows = rows["position"][1:] == (rows["position"] + rows["size_in_bytes"])[:-1]
        which = np.flatnonzero(~is_known[1:] & follows) + 1
        rows["first_offset"][which] = rows["last_offset"][which - 1] + 1
        rows["first_offset"][~is_known & (rows["position"] == 0)] = base_offset
        return rows
