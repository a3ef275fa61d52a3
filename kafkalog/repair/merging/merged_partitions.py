"""What a merge made of the copies of a partition: where each range of offsets comes from, and what no copy has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kafkalog.calls import leading_names
from kafkalog.html import ReportList
from kafkalog.repair.rescue.plan import Comparison, LogPlan, RescuePlan
from kafkalog.repair.rescue.replica import Replica, runs
from kafkalog.repair.salvaging.salvaged_partitions import CopyReport
from kafkalog.text import counted, offset_range


@leading_names
@dataclass(slots=True)
class MergedReplica:
    """One copy of a partition."""

    path: str
    last_epoch: int
    """Its latest leader epoch, -1 for none."""
    start_offset: int
    end_offset: int
    """Of its intact batches; `end_offset` is excluded."""
    n_batches: int
    """Intact batches."""
    n_batches_taken: int = 0
    """Those in the output."""
    n_batches_undecodable: int = 0
    """Those in the output that cannot be decoded. Each has a finding."""
    n_batches_left: int = 0
    """Those that were not taken, since they lie in gaps of the leader's copy without damage, as compaction leaves them.
    """
    n_bytes_lost: int = 0
    """Bytes that are damaged, suspect, or not readable. `salvage` of the copy describes them."""
    is_tail_lost: bool = False
    """Whether bytes were lost at the end of its last segment: its log may have been longer."""
    truncate_to: int | None = None
    """The offset from which on it has what the leader does not; None if there is nothing like that."""
    differs_from: int | None = None
    """The offset of its first batch that differs from the leader's although the leader epochs agree; None if there is
    none. Behind the last batch before it that both have, nothing was taken.
    """


@leading_names
@dataclass(frozen=True, slots=True)
class MergedRange:
    """Offsets that come from one copy, or that no copy has."""

    start_offset: int
    end_offset: int | None
    """Excluded. None after the last batch, where the leader's copy lost bytes, if nothing tells the end."""
    source: str | None
    """Path of the copy; None if no copy has these offsets, or none of which it is known that it is the same log."""
    n_batches: int = 0
    size_in_bytes: int = 0
    leader_epochs: tuple[int, int] | None = None
    """Of the first and the last batch."""


@leading_names
@dataclass(slots=True)
class MergedPartition:
    """What became of one partition."""

    output: str
    """The new partition directory."""
    leader: str
    """Path of the copy that leads."""
    start_offset: int = 0
    end_offset: int = 0
    """Of the output; `end_offset` is excluded."""
    replicas: list[MergedReplica] = field(default_factory=list)
    """In the order of the arguments."""
    ranges: list[MergedRange] = field(default_factory=list)
    """In order."""
    error: str | None = None
    """Why the copies could not be merged; None if they were."""

    plan: RescuePlan | None = None
    """The pieces of the output with the evidence for each, its holes, and intact batches that are in doubt."""

    @classmethod
    def of(cls, plan: LogPlan, output: str, n_undecodable: Sequence[int]) -> MergedPartition:
        """Describe a plan whose batches were written."""
        made = cls(output, str(plan.leader.partition.path), plan.start_offset, plan.end_offset, plan=plan.summary)
        n_taken = np.bincount(plan.rows["replica"], minlength=len(plan.replicas)).tolist()
        for number, replica in enumerate(plan.replicas):
            made.replicas.append(_described(replica, plan.comparisons.get(number), n_taken[number]))
            made.replicas[-1].n_batches_undecodable = n_undecodable[number]
        made.ranges = _ranges(plan)
        return made

    @property
    def missing(self) -> list[MergedRange]:
        """Ranges of offsets that no copy has."""
        return [one for one in self.ranges if one.source is None]


@dataclass(slots=True)
class MergeReport(CopyReport):
    """The result of `merge`: from which copy each range of offsets comes.

    Findings name offsets that no copy has, copies that differ although their leader epochs agree, batches that
    compaction seems to have removed from the base, and batches that cannot be decoded.
    """

    partitions: list[MergedPartition] = field(default_factory=ReportList)

    def __repr__(self) -> str:
        n_missing = sum(len(partition.missing) for partition in self.partitions)
        missing = f"{counted(n_missing, 'range')} of offsets in no copy" if n_missing else "nothing missing"
        return f"MergeReport({counted(len(self.partitions), 'partition')}, {missing})"

    def lines(self) -> Iterable[str]:
        """The report as text for people."""
        for partition in self.partitions:
            if partition.error is not None:
                yield f"{partition.output}: NOT MERGED: {partition.error}"
                continue
            yield f"{partition.output}: offsets {offset_range(partition.start_offset, partition.end_offset)}"
            for one in partition.replicas:
                role = "leader" if one.path == partition.leader else "copy"
                words = [f"leader epoch {one.last_epoch}, offsets {offset_range(one.start_offset, one.end_offset)}"]
                if one.n_bytes_lost:
                    words.append(f"{one.n_bytes_lost:,} bytes lost{', also at its end' if one.is_tail_lost else ''}")
                if one.n_batches_undecodable:
                    words.append(f"{counted(one.n_batches_undecodable, 'batch')} merged that cannot be decoded")
                if one.n_batches_left:
                    words.append(f"{counted(one.n_batches_left, 'batch')} not merged: the base looks compacted there")
                if one.truncate_to is not None:
                    words.append(f"cut at offset {one.truncate_to}")
                if one.differs_from is not None:
                    words.append(f"differs from offset {one.differs_from} on")
                yield f"  {role:<8} {one.path}: {', '.join(words)}"
            for each in partition.ranges:
                source = "MISSING: no copy has it" if each.source is None else f"from {each.source}"
                yield f"  offsets  {offset_range(each.start_offset, each.end_offset)}: {source}"


def _described(replica: Replica, compared: Comparison | None, n_taken: int) -> MergedReplica:
    rows = replica.rows
    is_cut = compared is not None and compared.end < replica.end_offset
    return MergedReplica(
        str(replica.partition.path),
        replica.last_epoch,
        int(rows["first_offset"][0]) if rows.size else replica.base_offset,
        int(rows["last_offset"][-1]) + 1 if rows.size else replica.base_offset,
        rows.size,
        n_taken,
        n_batches_left=0 if compared is None else compared.left.size,
        n_bytes_lost=replica.n_bytes_lost,
        is_tail_lost=replica.is_tail_lost,
        truncate_to=compared.end if compared is not None and is_cut else None,
        differs_from=None if compared is None else compared.conflict,
    )


def _ranges(plan: LogPlan) -> list[MergedRange]:
    """Where each range of offsets comes from, and what is missing."""
    rows = plan.rows
    ends = np.append(np.int64(plan.start_offset), rows["last_offset"] + 1)
    ranges = [MergedRange(one.first_offset or 0, one.end_offset, None) for one in plan.holes]
    is_gap = np.zeros(rows.size, np.bool_)
    for hole in ranges:
        is_gap |= (rows["first_offset"] > hole.start_offset) & (ends[:-1] < (hole.end_offset or 2**63 - 1))
    for begin, stop in runs(is_gap | (np.diff(rows["replica"], prepend=-1) != 0)):
        run = rows[begin:stop]
        start = int(run["first_offset"][0] if is_gap[begin] else ends[begin])
        source = str(plan.replicas[int(run["replica"][0])].partition.path)
        epochs = int(run["leader_epoch"][0]), int(run["leader_epoch"][-1])
        end, size = int(run["last_offset"][-1]) + 1, int(run["size_in_bytes"].sum())
        ranges.append(MergedRange(start, end, source, run.size, size, epochs))
    return sorted(ranges, key=lambda one: one.start_offset)
