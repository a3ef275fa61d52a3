"""The result of a recovery or of its dry run: a row per partition, with its segments."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Finding, Findings, Loss
from kafkalog.html import HtmlReport
from kafkalog.operations.rebuilding.report import RebuiltFile
from kafkalog.survey.startup_root import StartProblem
from kafkalog.text import counted

Action = Literal["kept", "recovered", "cut", "emptied", "deleted"]


@dataclass(frozen=True, slots=True)
class SegmentRecovery:
    """What becomes of one segment."""

    name: str
    """File name of the `.log`; that of a `.swap` file without its suffix."""
    base_offset: int
    action: Action
    """What is done with it. "kept": on disk according to the recovery point, and not read. "recovered": read, and
    intact. "cut": truncated before damage. "emptied": truncated to 0 bytes, because its offsets do not rise. "deleted":
    it lies behind damage.
    """
    n_bytes_before: int
    n_bytes: int
    """Size of the `.log` before and after."""
    finding: Finding | None = None
    """The damage, or the torn tail."""

    @property
    def n_bytes_lost(self) -> int:
        """Bytes that are cut off or deleted, but for a torn tail or preallocated zeros, which are no records."""
        is_tail = self.action == "cut" and self.finding is not None and not self.finding.damage
        return 0 if is_tail else self.n_bytes_before - self.n_bytes

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {**asdict(self), "finding": None if self.finding is None else self.finding.as_dict()}


@dataclass(slots=True)
class RecoveredPartition:
    """What becomes of one partition."""

    path: str
    topic_partition: kf.TopicPartition | None
    segments: list[SegmentRecovery] = field(default_factory=list)
    files: list[RebuiltFile] = field(default_factory=list)
    """Indexes, snapshots and epochs that were derived from the segments."""
    removed: dict[str, str] = field(default_factory=dict)
    """Other files that are deleted, and why."""
    renamed: dict[str, str] = field(default_factory=dict)
    """`.swap` files and their new names."""
    log_start_offset: int = 0
    log_end_offset: int = 0
    """Afterwards."""
    log_end_offset_before: int | None = None
    """The offset after the last intact batch, before anything was cut; None if it cannot be read."""
    problem: Finding | None = None
    """Why the partition could not be recovered; it is then unchanged, or left out of the copy."""

    @property
    def error(self) -> str | None:
        """The problem in one line, without the directory."""
        if self.problem is None:
            return None
        where = "" if self.problem.position is None else f"@{self.problem.position}"
        return f"{Path(self.problem.path or self.path).name}{where}: {self.problem.detail}"

    @property
    def n_bytes_lost(self) -> int:
        """Bytes of `.log` files that are cut off or deleted, but for a torn tail, which is no record."""
        return sum(segment.n_bytes_lost for segment in self.segments)

    @property
    def loss(self) -> Loss | None:
        """The records that are cut off or deleted, by their offsets; None for none."""
        before = self.log_end_offset_before
        if self.problem is not None or not (self.n_bytes_lost or (before or 0) > self.log_end_offset):
            return None
        if before is None or before <= self.log_end_offset:
            return Loss(1, n_unknown=1, first_offset=self.log_end_offset)
        n_records = before - self.log_end_offset
        return Loss(1, n_records, "at_most", first_offset=self.log_end_offset, last_offset=before - 1)

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files afterwards."""
        return sum(segment.n_bytes for segment in self.segments)

    def count(self, action: Action) -> int:
        """Number of segments with a given action."""
        return sum(segment.action == action for segment in self.segments)

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        topic, number = self.topic_partition or (None, None)
        names = ("error", "log_start_offset", "log_end_offset", "log_end_offset_before", "n_bytes", "n_bytes_lost")
        return {
            "path": self.path,
            "topic": topic,
            "partition": number,
            **{name: getattr(self, name) for name in names},
            "loss": None if self.loss is None else self.loss.as_dict(),
            "segments": [segment.as_dict() for segment in self.segments],
            "files": [file.as_dict() for file in self.files],
            "removed": self.removed,
            "renamed": self.renamed,
        }


@dataclass(slots=True)
class RecoveryReport(HtmlReport):
    """What `recover` did."""

    partitions: list[RecoveredPartition] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    """Files of the log dir itself that were written, the clean-shutdown marker among them."""
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """Damage, torn tails, files that could not be read."""
    problems: list[StartProblem] = field(default_factory=list)
    """Files of the log dir with which a broker does not start even afterwards."""
    n_backup_files: int = 0
    """Files that are in the backup."""
    is_written: bool = False
    """False after a dry run."""

    def add(self, row: RecoveredPartition) -> None:
        """Take the row of a partition; its problem is a finding, unless one about the same bytes is there."""
        found = row.problem
        is_told = any(
            one.damage and found is not None and (one.path, one.position) == (found.path, found.position)
            for one in self.findings.rows
        )
        if found is not None and not is_told:
            self.findings.add(found)
        self.partitions.append(row)

    def check(self) -> None:
        """Raise why a partition could not be recovered or cut, for output in which nothing may be half done."""
        for row in self.partitions:
            if row.problem is not None:
                raise CorruptionError.about(row.problem, row.problem.detail)

    @property
    def is_clean(self) -> bool:
        """Whether a broker can start on the result as after a clean shutdown: every partition was recovered."""
        return not any(partition.error for partition in self.partitions)

    @property
    def n_bytes_lost(self) -> int:
        """Bytes of `.log` files that are cut off or deleted."""
        return sum(partition.n_bytes_lost for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "partitions": [partition.as_dict() for partition in self.partitions],
            "checkpoints": self.checkpoints,
            "problems": [problem.as_dict() for problem in self.problems],
            "findings": [finding.as_dict() for finding in self.findings.rows],
            "n_more_findings": self.findings.n_more,
            "n_backup_files": self.n_backup_files,
            "n_bytes_lost": self.n_bytes_lost,
            "is_clean": self.is_clean,
            "is_written": self.is_written,
        }

    def __repr__(self) -> str:
        n_failed = sum(partition.error is not None for partition in self.partitions)
        state = f"{counted(self.n_bytes_lost, 'byte')} lost" if self.n_bytes_lost else "nothing lost"
        failed = f", {n_failed} not recovered" if n_failed else ""
        return f"RecoveryReport({counted(len(self.partitions), 'partition')}, {state}{failed})"
