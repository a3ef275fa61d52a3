"""Ranges of offsets: those asked for, the log start offset, and headers that cannot be believed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import builder
import pytest

import kafkalog
from kafkalog import TopicPartition


def test_a_range_does_not_end_where_only_a_damaged_header_says_so(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    batches = [builder.batch_v2([builder.record_v2(0, 0, None, b"x")], base_offset=n) for n in range(8)]
    batches[3] = batches[3][:23] + b"\x7f" + batches[3][24:]  # of the last offset delta
    path.write_bytes(b"".join(batches))
    for window_bytes in (100, 2**22):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafkalog.scanning.execution.WINDOW_BYTES", window_bytes)
            patch.setattr("kafkalog.scanning.execution._MIN_WINDOW_BYTES", window_bytes)
            scan = kafkalog.scan(path, end_offset=6, on_corruption="skip")
            with pytest.warns(kafkalog.CorruptionWarning):
                assert scan.to_numpy().offset.tolist() == [0, 1, 2, 4, 5], window_bytes


@pytest.mark.parametrize(
    "options",
    [
        {"start_offset": 50},
        {"end_offset": 50},
        {"start_offset": 20, "end_offset": 60},
        {"start_offset": 60, "end_offset": 20},
        {"start_offset": {("p-multi", 0): 100, ("p-multi", 1): 98}},
        {"end_offset": {TopicPartition("p-txn", 0): 0}},
        {"start_timestamp": 1_700_000_005_000},
        {"end_timestamp": 1_700_000_005_000},
        {"start_timestamp": 1_700_000_003_001, "end_timestamp": 1_700_000_009_001},
        {"start_timestamp": datetime(2023, 11, 14, 22, 13, 25, tzinfo=UTC)},
        {"start_timestamp": -10, "end_timestamp": 10},
        {"topics": "p-multi"},
        {"topics": ["p-multi", "p-txn"], "partitions": 0},
        {"partitions": [1, 2]},
        {"topics": "p-txn", "start_offset": 30, "start_timestamp": 1_700_000_005_000},
    ],
)
def test_a_range_equals_filtering_the_whole(log_dir: Path, options: dict[str, Any]) -> None:
    whole = kafkalog.read_table(log_dir).to_pylist()

    def bound(name: str, row: dict[str, Any]) -> Any:
        value = options.get(name)
        return value.get((row["topic"], row["partition"])) if isinstance(value, dict) else value

    def wanted(row: dict[str, Any]) -> bool:
        for name, compare in (("start_offset", int.__ge__), ("end_offset", int.__lt__)):
            limit = bound(name, row)
            if limit is not None and not compare(row["offset"], limit):
                return False
        for name, compare in (("start_timestamp", int.__ge__), ("end_timestamp", int.__lt__)):
            limit = options.get(name)
            if limit is None:
                continue
            limit = round(limit.timestamp() * 1000) if isinstance(limit, datetime) else limit
            if row["timestamp"] is None or not compare(round(row["timestamp"].timestamp() * 1000), limit):
                return False
        topics = options.get("topics", [row["topic"]])
        if row["topic"] not in ([topics] if isinstance(topics, str) else topics):
            return False
        partitions = options.get("partitions", [row["partition"]])
        return row["partition"] in ([partitions] if isinstance(partitions, int) else partitions)

    assert kafkalog.read_table(log_dir, **options).to_pylist() == [row for row in whole if wanted(row)]


def test_deleted_records_are_left_out_unless_asked_for(log_dir: Path) -> None:
    partition = kafkalog.open(log_dir / "p-delrec-0")
    assert isinstance(partition, kafkalog.Partition)
    assert partition.log_start_offset == 334
    assert partition.log_end_offset == 500
    assert kafkalog.read_table(partition, columns=["offset"]).column(0).to_pylist() == list(range(334, 500))
    everything = kafkalog.read_table(partition, columns=["offset"], include_deleted=True).column(0).to_pylist()
    assert min(everything) < 334
    assert everything == list(range(everything[0], 500))
