"""The result of a compaction: a row per partition."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog.repair.recovering.recovered_partitions import RecoveryReport
from kafkalog.survey.startup import PartitionPlan
from kafkalog.text import counted


@dataclass(slots=True)
class CompactedPartition(PartitionPlan):
    """What became of a partition. Segments that were merged into the one before are "deleted"."""

    _json_properties = (*PartitionPlan._json_properties, "n_bytes_before")
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


@dataclass(slots=True)
class CompactionReport(RecoveryReport):
    """What `compact` did; `partitions` has a `CompactedPartition` for each partition of a compacted topic."""

    _json_properties = (*RecoveryReport._json_properties, "n_records_removed")

    @property
    def n_records_removed(self) -> int:
        """Records that are gone."""
        return sum(row.n_records_removed for row in self.partitions if isinstance(row, CompactedPartition))

    def __repr__(self) -> str:
        removed = f"{counted(self.n_records_removed, 'record')} and {counted(self.n_bytes_lost, 'byte')} removed"
        return f"CompactionReport({counted(len(self.partitions), 'partition')}, {removed})"
