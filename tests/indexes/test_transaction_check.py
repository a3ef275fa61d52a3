"""Every entry of a transaction index that would mislead a reader is found."""

from __future__ import annotations

import golden_sets
import numpy as np
import pytest

import kafkalog
from kafkalog.errors import Finding
from kafkalog.indexes.index_files import TransactionIndex
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import BatchTable


def reasons(findings: list[Finding]) -> set[str]:
    assert all(finding.damage for finding in findings)
    return {finding.reason.value for finding in findings}


def transactional() -> tuple[list[BatchTable], Segment]:
    partition = kafkalog.Partition(golden_sets.LOG_DIR / "p-txn-0")
    before: list[BatchTable] = []
    for segment in partition.segments:
        before += segment.iter_batches()
        if segment.transaction_index is not None and len(segment.transaction_index) > 3:
            return before, segment
    raise AssertionError("no transaction index")


@pytest.mark.parametrize("rows", [1, 2**20])
@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("producer_id", 1),
        ("producer_id", -1000),
        ("first_offset", 1),
        ("first_offset", -1),
        ("first_offset", 10**6),
        ("last_offset", 1),
        ("last_offset", -1),
        ("last_offset", 10**6),
        ("last_offset", -(10**6)),
        ("last_stable_offset", 2),
        ("last_stable_offset", -(10**6)),
        ("version", 256),
    ],
)
def test_every_wrong_field_of_a_transaction_index_is_found(field: str, change: int, rows: int) -> None:
    batches, segment = transactional()
    batches = [table[n : n + rows] for table in batches for n in range(0, len(table), rows)]
    index = segment.transaction_index
    assert index is not None
    for row in range(len(index)):
        entries = index.entries.copy()
        entries[field][row] += change
        changed = TransactionIndex(np.frombuffer(entries.tobytes(), np.uint8), segment.base_offset)
        assert reasons(changed.check(batches)) & {"index_transaction", "index_order"}, row


def test_a_missing_aborted_transaction_is_found() -> None:
    batches, segment = transactional()
    index = segment.transaction_index
    assert index is not None
    for row in range(len(index)):
        entries = np.delete(index.entries, row)
        changed = TransactionIndex(np.frombuffer(entries.tobytes(), np.uint8), segment.base_offset)
        (finding,) = changed.check(batches)
        assert finding.reason == "index_transaction"
        assert f"producer {index.entries['producer_id'][row]} from offset" in finding.detail
