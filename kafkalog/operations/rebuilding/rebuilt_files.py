"""The result of a rebuild or of its dry run: one row per file, and the files that were skipped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from kafkalog.errors import DEFAULT_LIMITS, Findings
from kafkalog.html import PartsReport
from kafkalog.operations.rebuilding.index_interval import IndexInterval
from kafkalog.survey.startup import Change, Kind, RebuiltFile
from kafkalog.text import counted

Damaged = Literal["keep", "cut"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kind of file that was not rebuilt, and why."""

    path: str
    kind: Kind
    why: str


@dataclass(slots=True)
class RebuildReport(PartsReport):
    """What `reindex` did."""

    files: list[RebuiltFile] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    intervals: dict[str, IndexInterval] = field(default_factory=dict)
    """`index.interval.bytes` by the name of the partition directory, and where the value comes from."""
    n_bytes_read: int = 0
    """Bytes of `.log` files that a broker's recovery would keep."""
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """Damage in `.log` files, with the position at which recovery would cut them; files that could not be read."""
    is_written: bool = False
    """False after a dry run."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{n:,} {change}" for change in get_args(Change) if (n := self.count(change)))
        return f"RebuildReport({counted(len(self.files), 'file')}{counts and ': '}{counts})"

    def count(self, change: Change) -> int:
        """Number of files with a given change."""
        return sum(file.change == change for file in self.files)
