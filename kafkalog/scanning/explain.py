"""The result of `Scan.explain`: what a scan rules out at each level, and how much it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafkalog import html
from kafkalog.html import PublicNames
from kafkalog.log.segment_reader import ScanStatistics


@dataclass(frozen=True, slots=True)
class Explanation(PublicNames):
    """What a scan rules out and reads at each level. `str` gives a table."""

    conditions: dict[str, list[str]]
    """Conditions by the level at which they apply: partitions, segments, bytes, batches, records."""
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

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the table, as it is printed."""
        return html.preformatted(str(self))

    def as_dict(self) -> dict[str, Any]:
        """Conditions and counts as a dict, for JSON."""
        return {"conditions": self.conditions, **self.statistics.as_dict()}


def html_of(title: str, schema: pa.Schema, conditions: dict[str, list[str]]) -> str:
    """Return HTML for a notebook: the columns of a scan, and its conditions at each level."""
    columns = html.table(title, ("column", "type"), ((one.name, str(one.type)) for one in schema))
    plan = [(level, "; ".join(said)) for level, said in conditions.items() if said]
    return columns + "\n" + html.table("conditions" if plan else "all records", ("level", "taken by"), plan)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
