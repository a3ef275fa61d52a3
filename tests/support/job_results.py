"""What Spark jobs gave, in plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafkalog.errors import Finding, Reason

SMALL = 2**16


KINDS = ("offset", "time", "txn", "snapshot", "epochs")


NOW = 1_700_100_000_000


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).to_pylist()


def arrow(frame: Any) -> pa.Table:
    return frame.toArrow()


def findings_of(rows: Iterable[Mapping[str, Any]] | None) -> list[Finding]:
    return [Finding(**{**row, "reason": Reason(row["reason"])}) for row in rows or ()]


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
