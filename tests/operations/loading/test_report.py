"""What a load says that it did."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from loaded import table_of

from kafkalog import OutputExistsError, write_table
from kafkalog.errors import UnwritableError


def test_a_dry_run_reads_everything_and_writes_nothing(tmp_path: Path) -> None:
    table = table_of(100, partition=[i % 4 for i in range(100)])
    dry = write_table(table, tmp_path / "log", topic="t", dry_run=True)
    assert os.listdir(tmp_path) == []
    wet = write_table(table, tmp_path / "log", topic="t")
    assert [(e.partition, e.n_records, e.next_offset) for e in dry.partitions] == [
        (e.partition, e.n_records, e.next_offset) for e in wet.partitions
    ]
    with pytest.raises(OutputExistsError):
        write_table(table, tmp_path / "log", topic="t", dry_run=True)
    with pytest.raises(UnwritableError):
        write_table({"value": [b""], "timestamp": [-5]}, tmp_path / "log", topic="u", dry_run=True)
