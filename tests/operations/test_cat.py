"""Records one by one."""

from __future__ import annotations

from pathlib import Path

import kafkalog
from kafkalog.operations.cat import Record, cat


def test_records_are_those_of_a_scan(log_dir: Path) -> None:
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    rows = kafkalog.read_table(log_dir, topics=["p-multi", "p-headers"], columns=columns).to_pylist()
    records = list(cat(log_dir, topics=["p-multi", "p-headers"]))
    assert len(records) == len(rows) > 100
    for record, row in zip(records, rows, strict=True):
        stamp = row.pop("timestamp")
        headers = tuple((one["key"], one["value"]) for one in row.pop("headers"))
        assert record == Record(
            **row, timestamp=None if stamp is None else round(stamp.timestamp() * 1000), headers=headers
        )
    assert any(record.headers for record in records)


def test_the_last_of_each_partition(log_dir: Path) -> None:
    found = [(record.partition, record.offset) for record in cat(log_dir, topics="p-multi", tail=2)]
    everything = [(record.partition, record.offset) for record in cat(log_dir, topics="p-multi")]
    assert found == [one for n in range(3) for one in [each for each in everything if each[0] == n][-2:]]
