"""What a scan read and what it did not have to: the counts behind `Scan.explain`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class ScanStatistics:
    """Counts of one pass, each level out of what the one above left.

    Attributes
    ----------
    n_partitions, n_partitions_read : int
        Ruled out by topic and partition, those asked for and those filtered by.
    n_segments, n_segments_read : int
        Of the partitions that are read. Ruled out by offsets, or by their name.
    n_bytes, n_bytes_jumped, n_bytes_read : int
        Of the `.log` files of those partitions; `jumped` lie before the index entry that a segment is read from.
    n_batches, n_batches_decoded : int
        Whose headers were walked, and which may hold a wanted record by them.
    n_records, n_records_selected : int or None
        Walked, and handed out. None where nothing was decoded.
    """

    n_partitions: int = 0
    n_partitions_read: int = 0
    n_segments: int = 0
    n_segments_read: int = 0
    n_bytes: int = 0
    n_bytes_jumped: int = 0
    n_bytes_read: int = 0
    n_batches: int = 0
    n_batches_decoded: int = 0
    n_records: int | None = None
    n_records_selected: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The counts, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a scan does, step by step; printed, it is a table.

    Attributes
    ----------
    conditions : dict of str to str
        What rules out, by the level at which it is judged.
    statistics : ScanStatistics
    """

    conditions: dict[str, list[str]]
    statistics: ScanStatistics

    def __str__(self) -> str:
        counts = self.statistics
        rows = [
            ("partitions", counts.n_partitions, counts.n_partitions_read),
            ("segments", counts.n_segments, counts.n_segments_read),
            ("bytes", counts.n_bytes, counts.n_bytes_read),
            ("batches", counts.n_batches, counts.n_batches_decoded),
            ("records", counts.n_records, counts.n_records_selected),
        ]
        lines = [f"{'':12}{'there':>16}{'taken':>16}  by"]
        for name, there, taken in rows:
            by = "; ".join(self.conditions.get(name, [])) or "-"
            lines.append(f"{name:12}{_number(there):>16}{_number(taken):>16}  {by}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"conditions": self.conditions, **self.statistics.as_dict()}


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
