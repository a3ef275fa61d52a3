"""What a conversion says that it did, or would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_sets
from conversions import (
    logs,
    raw_batches,
    rows,
)

import kafkalog


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    root = golden_sets.unpacked("k28")
    options: dict[str, Any] = {"topics": ["p-v1-none", "p-v2-txn"], "drop": [("value", "contains", b"alpha")]}
    dry = kafkalog.convert(root, tmp_path / "out", dry_run=True, **options)
    assert list(tmp_path.iterdir()) == []
    wet = kafkalog.convert(root, tmp_path / "out", **options)
    assert dry.partitions == wet.partitions
    assert (dry.is_written, wet.is_written) == (False, True)
    for partition in wet.partitions:
        assert partition.n_bytes_after == sum(map(len, logs(Path(partition.path)).values()))
        assert partition.n_records_after == len(rows(Path(partition.path))) < partition.n_records_before
        assert partition.n_batches_after == len(raw_batches(Path(partition.path)))
