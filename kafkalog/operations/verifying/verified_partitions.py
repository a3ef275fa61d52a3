"""The result of a check: a row for each partition and each segment, and the findings."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, FindingList, Loss
from kafkalog.html import JsonFields, ReportList
from kafkalog.operations.verifying.values import VerifiedValues
from kafkalog.state.transactions import TransactionEpochs
from kafkalog.survey.evidence import SegmentContents
from kafkalog.survey.losses import Lost, OffsetGap, PartitionsReport, losses_of, total
from kafkalog.survey.next_steps import Advised
from kafkalog.text import counted


@dataclass(slots=True)
class VerifiedSegment(SegmentContents, JsonFields):
    """The result of checking one segment."""

    _json_without = ("transaction_epochs", "epochs")
    n_more_findings: int = 0
    """Number of findings beyond `Limits.max_findings`, which are counted but not kept."""
    has_aborted: bool = False
    """Whether there is an abort marker, or a control batch whose type cannot be read."""
    transaction_epochs: TransactionEpochs = field(default_factory=TransactionEpochs, repr=False, compare=False)
    """Producer epochs of the transactions, to be joined with those of the next segment."""
    epochs: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """int64[n, 2]. Leader epoch and first offset, one row for each change of the epoch."""

    @property
    def ok(self) -> bool:
        """Whether no finding is damage."""
        return not any(finding.damage for finding in self.findings)


@dataclass(slots=True)
class VerifiedPartition(JsonFields):
    """The result of checking one partition."""

    _json_properties = ("ok", "findings")
    _json_without = ("own_findings", "log_dirs")

    path: str
    topic_partition: kf.TopicPartition | None
    kind: str | None
    """`"delete"`, `"future"` or `"stray"` for a directory that a broker has renamed with such a suffix."""
    segments: list[VerifiedSegment]
    own_findings: list[Finding] = field(default_factory=list)
    """Issues of the directory, its snapshots and checkpoints alone; `findings` has those of the segments, too."""
    n_more_findings: int = 0
    """Number of findings beyond `Limits.max_findings`, segments included, which are counted but not kept."""
    gaps: list[OffsetGap] = field(default_factory=list)
    """Gaps between segments, including those that compaction left."""

    @property
    def findings(self) -> FindingList:
        """The findings about the segments and their indexes, then those about the directory."""
        return FindingList([*(one for segment in self.segments for one in segment.findings), *self.own_findings])

    @property
    def losses(self) -> list[Lost]:
        """What is lost, by offset; losses that touch are one. `salvage` reports the same."""
        return losses_of(self.findings)

    @property
    def loss(self) -> Loss:
        """The sum of the losses."""
        return total(self.losses)

    @property
    def ok(self) -> bool:
        """Whether no finding is damage; a torn tail, for example, is normal and is not damage."""
        return not any(finding.damage for finding in self.findings)


@dataclass(slots=True)
class Verification(Advised, PartitionsReport, JsonFields):
    """The result of `verify`."""

    _json_properties = ("ok", "findings")
    _json_without = ("own_findings", "log_dirs")

    partitions: list[VerifiedPartition] = field(default_factory=ReportList)
    own_findings: list[Finding] = field(default_factory=list)
    """Issues of the log dirs themselves; `findings` has those of the partitions, too."""
    values: list[VerifiedValues] = field(default_factory=list)
    """With `decode`, the keys and values of each topic."""
    log_dirs: list[str] = field(default_factory=list)
    """What was verified."""

    @property
    def findings(self) -> FindingList:
        """The findings of all partitions, then those of the log dirs, and values that do not decode."""
        found = [*(one for partition in self.partitions for one in partition.findings), *self.own_findings]
        return FindingList([*found, *(one.to_finding() for one in self.values if not one.ok)])

    @property
    def ok(self) -> bool:
        """Whether no finding is damage."""
        return not any(finding.damage for finding in self.findings)

    def __repr__(self) -> str:
        n_segments = sum(len(partition.segments) for partition in self.partitions)
        n_damage = sum(finding.damage for finding in self.findings)
        state = "OK" if self.ok else f"{counted(n_damage, 'finding')} of damage"
        return f"Verification({counted(len(self.partitions), 'partition')}, {counted(n_segments, 'segment')}, {state})"
