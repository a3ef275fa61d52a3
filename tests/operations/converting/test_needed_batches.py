"""Batches that producers and transactions need stay, as empty ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builder
from conversions import (
    batches_of,
    idempotent,
    rows,
    stands,
    write_partition,
)

import kafkalog


def test_the_last_batch_of_a_producer_and_of_the_log_stay_as_empty_ones(tmp_path: Path) -> None:
    plain = builder.batch_v2([builder.record_v2(0, 0, b"k9", b"v")], base_offset=9)
    parts = [idempotent(0, 0), idempotent(3, 3), idempotent(6, 0, producer_id=8), plain]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(parts))])
    report = kafkalog.convert(source, tmp_path / "u-0", filters=[("key", "==", b"nobody")])
    after = batches_of(tmp_path / "u-0")
    assert [(batch.base_offset, batch.last_offset, batch.size_in_bytes) for batch in after] == [
        (3, 5, 61),
        (6, 8, 61),
        (9, 9, 61),
    ]
    assert stands(tmp_path / "u-0") == stands(source)
    assert report.partitions[0].n_records_dropped == 10
    assert kafkalog.open(tmp_path / "u-0").log_end_offset == 10  # type: ignore[union-attr]


def test_markers_stay_and_a_transaction_begins_where_it_began(tmp_path: Path) -> None:
    def txn(offset: int, **options: Any) -> bytes:
        return idempotent(offset, offset, n=1, transactional=True, **options)

    abort = builder.control_batch(builder.ABORT, base_offset=3, producer_id=7)
    parts = [txn(0), txn(1), txn(2), abort, txn(4, producer_id=9), txn(5, producer_id=9)]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(parts))])
    kafkalog.convert(source, tmp_path / "u-0", filters=[("key", "==", b"k1")])
    after = batches_of(tmp_path / "u-0")
    assert [(batch.base_offset, len(batch.records)) for batch in after] == [
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
        (4, 0),
        (5, 0),
    ]
    assert stands(tmp_path / "u-0") == stands(source)
    assert rows(tmp_path / "u-0", isolation_level="read_committed") == []
