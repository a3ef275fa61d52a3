"""The result of a conversion or of its dry run: one row per partition, and the findings."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, Loss
from kafkalog.html import JsonFields, PartsReport, ReportList
from kafkalog.operations.converting.rewrite import Counts
from kafkalog.survey.next_steps import Advised
from kafkalog.text import counted


@dataclass(frozen=True, slots=True)
class ConvertedPartition(JsonFields):
    """A converted partition, with counts before and after."""

    topic_partition: kf.TopicPartition
    """Topic and partition of the output."""
    path: str
    source: str
    """Directory of the output (in a dry run, where it would be), and of the source."""
    start_offset: int
    end_offset: int
    """Offsets of the converted log, half-open; those of the source, unless damage ended it earlier."""
    n_batches_before: int
    n_batches_after: int
    n_batches_kept: int
    """`n_batches_kept` counts those copied byte for byte."""
    n_records_before: int
    n_records_after: int
    n_records_redacted: int
    """Control records are not counted, nor records that are left out below the log start offset.
    `n_records_before` includes lost records, if batch headers give their number.
    """
    n_bytes_before: int
    n_bytes_after: int
    """Bytes of the batches that were read and written."""
    lost: Loss = field(default_factory=Loss)
    """The records lost to damage."""
    findings: list[Finding] = field(default_factory=list)
    """Findings about the partition, as far as the report keeps them."""

    @property
    def n_records_dropped(self) -> int:
        """Number of records dropped by the filters, not lost to damage."""
        return self.n_records_before - self.n_records_after - _known(self.lost)

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {**JsonFields.as_dict(self), "n_records_dropped": self.n_records_dropped}


@dataclass(slots=True)
class ConversionReport(Advised, PartsReport):
    """What `kafkalog.convert` did."""

    partitions: list[ConvertedPartition] = field(default_factory=ReportList)
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """Damage that was skipped or that ended a partition, and remarks."""
    is_written: bool = False
    """False after a dry run."""
    n_undecoded: int = 0
    """Values that conditions on fields could not judge, since they did not decode. Their records are not dropped."""
    log_dirs: list[str] = field(default_factory=list)
    """What was converted."""

    def __repr__(self) -> str:
        n = counted(len(self.partitions), "partition")
        records = f"{self.total('n_records_before'):,} records to {self.total('n_records_after'):,}"
        sizes = f"{self.total('n_bytes_before'):,} bytes to {self.total('n_bytes_after'):,}"
        return f"ConversionReport({n}, {records}, {sizes})"

    def total(self, name: str) -> int:
        """The sum of a field of all partitions, such as `n_records_dropped`."""
        return sum(getattr(partition, name) for partition in self.partitions)


def converted(
    key: kf.TopicPartition, path: str, source: str, offsets: tuple[int, int], counts: Counts, found: Findings
) -> ConvertedPartition:
    """Make the row of a partition; `offsets` are its start and end offset."""
    lost = found.losses.get(source, Loss())
    numbers = asdict(counts)
    numbers["n_records_before"] += _known(lost)
    findings = [one for one in found.rows if one.path is not None and source in (one.path, os.path.dirname(one.path))]
    return ConvertedPartition(key, path, source, *offsets, **numbers, lost=lost, findings=findings)


def _known(lost: Loss) -> int:
    """Number of lost records by batch headers; 0 if only offsets bound it."""
    return 0 if lost.certainty == "at_most" else lost.n_records
