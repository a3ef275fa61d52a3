"""Single records of damaged batches."""

from __future__ import annotations

import json
from pathlib import Path

from salvages import batch, log_of, named, output_of

import kafkalog


def test_single_records_of_a_damaged_batch_are_marked_unverified(tmp_path: Path) -> None:
    batches = [batch(10 * number, n=10) for number in range(3)]
    hit = bytearray(log_of(*batches))
    at = len(batches[0]) + 61 + 4 * 37  # in the fifth record
    hit[at : at + 10] = b"\xee" * 10
    report = kafkalog.salvage(named(tmp_path, hit), output=tmp_path / "out", records=True)
    [partition] = report.partitions
    assert partition.unverified_records is not None
    rows = [json.loads(line) for line in Path(partition.unverified_records).read_text().splitlines()]
    assert len(rows) == partition.n_unverified_records
    assert {row["offset"] for row in rows} >= {10, 11, 12, 16, 17, 18, 19}
    assert not any(row["is_verified"] for row in rows)
    assert output_of(tmp_path / "out" / "t-0") == [batches[0], batches[2]]
