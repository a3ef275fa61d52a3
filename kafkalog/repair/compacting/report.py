"""The result of a compaction: a row per partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafkalog.repair.recovering.report import RecoveryReport
from kafkalog.survey.startup import PartitionPlan
from kafkalog.text import counted


@dataclass(slots=True)
class CompactedPartition(PartitionPlan):
    """What became of a partition. Segments that were merged into the one before are "deleted"."""

    cleaned_to: int | None = None
    """Records below this offset were cleaned; None if the partition is unchanged."""
    n_records_before: int = 0
    n_records: int = 0
    """Records of the cleaned segments, without markers of transactions, before and after."""

    @property
    def n_bytes_before(self) -> int:
        """Bytes of all `.log` files before."""
        return sum(one.n_bytes_before for one in self.segments)

    @property
    def n_records_removed(self) -> int:
        """Records that are gone."""
        return self.n_records_before - self.n_records

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        topic, number = self.topic_partition or (None, None)
        names = ("error", "log_start_offset", "log_end_offset", "cleaned_to", "n_records_before", "n_records")
        return {
            "path": self.path,
            "topic": topic,
            "partition": number,
            **{name: getattr(self, name) for name in (*names, "n_bytes_before", "n_bytes", "remarks")},
            "segments": [one.as_dict() for one in self.segments],
            "problem": None if self.problem is None else self.problem.as_dict(),
        }


@dataclass(slots=True)
class CompactionReport(RecoveryReport):
    """What `compact` did; `partitions` has a `CompactedPartition` for each partition of a compacted topic."""

    @property
    def n_records_removed(self) -> int:
        """Records that are gone."""
        return sum(row.n_records_removed for row in self.partitions if isinstance(row, CompactedPartition))

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "partitions": [partition.as_dict() for partition in self.partitions],
            "checkpoints": self.checkpoints,
            "findings": [finding.as_dict() for finding in self.findings.rows],
            "n_more_findings": self.findings.n_more,
            "n_backup_files": self.n_backup_files,
            "n_records_removed": self.n_records_removed,
            "n_bytes_removed": self.n_bytes_lost,
            "is_written": self.is_written,
        }

    def __repr__(self) -> str:
        removed = f"{counted(self.n_records_removed, 'record')} and {counted(self.n_bytes_lost, 'byte')} removed"
        return f"CompactionReport({counted(len(self.partitions), 'partition')}, {removed})"
