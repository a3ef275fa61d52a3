"""What is foretold of a broker's start."""

from __future__ import annotations

from pathlib import Path

import kafkalog
from kafkalog.repair.startup.forecast import PartitionForecast


def _content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def asked(partition: Path, *, clean: bool = False, broker: str = "4.3") -> PartitionForecast:
    before = _content(partition.parent)
    (row,) = kafkalog.preflight(partition, clean=clean, broker=broker).partitions  # type: ignore[arg-type]
    assert _content(partition.parent) == before
    return row
