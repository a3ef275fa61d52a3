"""Filters of a conversion take what a scan takes, and leave the rest alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_sets
import strategies
from conversions import (
    batches_of,
    logs,
    partition_of,
    raw_batches,
    rows,
    stands,
)
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.log.partition import Partition

FILTERS = st.sampled_from(
    [
        [("offset", ">=", 5)],
        [("offset", "in", [1, 3, 4, 8, 9, 20])],
        [("value", "contains", b"1")],
        [("value", "starts_with", b"old")],
        [("key", "==", b"k"), ("offset", "<", 9)],
        [("key", "is null")],
        [("producer_id", "==", 1)],
        [("is_transactional", "==", True)],
        [("timestamp", ">", 0)],
        [[("sequence", ">=", 0)], [("compression", "==", "lz4")]],
    ]
)


@settings(max_examples=examples(60))
@given(log=strategies.transaction_logs(), filters=FILTERS, is_drop=st.booleans(), threads=st.sampled_from([1, 2]))
def test_filters_take_what_a_scan_takes_and_leave_the_rest_alone(
    log: strategies.TransactionLog, filters: Any, is_drop: bool, threads: int
) -> None:
    with partition_of(log.segments) as source:
        target = source.parent / "out" / "t-0"
        target.parent.mkdir()
        kafkalog.convert(source, target, threads=threads, **{"drop" if is_drop else "filters": filters})
        wanted = {row[0] for row in rows(source, filters=filters)}
        for level in ("read_uncommitted", "read_committed"):
            expected = [row for row in rows(source, isolation_level=level) if (row[0] in wanted) != is_drop]
            assert rows(target, isolation_level=level) == expected
        assert stands(target) == stands(source)

        raw = set(raw_batches(source))
        kept_offsets = {row[0] for row in rows(target)}
        for data, batch in zip(raw_batches(source), batches_of(source), strict=True):
            is_whole = batch.magic == 2 and {record.offset for record in batch.records} <= kept_offsets
            if is_whole and (batch.is_control or batch.records):
                assert data in raw_batches(target)
        before = {batch.base_offset: batch for batch in batches_of(source)}
        for data, batch in zip(raw_batches(target), batches_of(target), strict=True):
            if data in raw or batch.base_offset not in before or before[batch.base_offset].magic < 2:
                continue
            same = before[batch.base_offset]
            for name in ("last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
                assert getattr(batch, name) == getattr(same, name)
            assert batch.records or len(data) == 61


def test_records_below_the_log_start_offset_are_left_out(tmp_path: Path) -> None:
    root = golden_sets.unpacked("k44")
    start = golden_sets.log_start_offsets("k44")["p-delrec-0"]
    report = kafkalog.convert(root, tmp_path / "out", topics="p-delrec")
    target = kafkalog.open(tmp_path / "out" / "p-delrec-0")
    assert isinstance(target, Partition)
    assert target.log_start_offset == report.partitions[0].start_offset == start > 0
    assert rows(target) == rows(root, topics="p-delrec")
    first = batches_of(target.path)[0]
    assert first.base_offset == start
    whole = kafkalog.convert(root, tmp_path / "whole", topics="p-delrec", include_deleted=True)
    assert logs(tmp_path / "whole" / "p-delrec-0") == logs(root / "p-delrec-0")
    assert whole.partitions[0].n_records_after > report.partitions[0].n_records_after
