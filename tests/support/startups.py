"""What preflight says of a broker's start."""

from __future__ import annotations

from pathlib import Path

import kafkalog
from kafkalog.survey.startup import PartitionPlan


def _content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def asked(partition: Path, *, clean: bool = False) -> PartitionPlan:
    before = _content(partition.parent)
    (row,) = kafkalog.preflight(partition, clean=clean).partitions
    assert _content(partition.parent) == before
    return row
