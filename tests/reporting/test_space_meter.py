"""Bytes of files by kind, and of batches by day and codec: each sum is over all bytes."""

from __future__ import annotations

from pathlib import Path

import builder

import kafkalog
from kafkalog.reporting.space_meter import SpaceMeter


def test_days_codecs_and_bytes_in_no_batch(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    times = (-1, 0, 86_399_999, 86_400_000, 2**62)
    batches = [
        builder.batch_v2(base_offset=row, records_count=1, last_offset_delta=0, base_timestamp=one, max_timestamp=one)
        for row, one in enumerate(times)
    ]
    log = b"".join(batches) + batches[0][:30]
    (path / f"{0:020d}.log").write_bytes(log)
    (path / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    meter = SpaceMeter()
    partition = kafkalog.open_partition(path)
    for _, one in partition.iter_batches(on_corruption="skip"):
        meter.add(one)
    assert meter.add_files(path, partition.size_in_bytes) == len(log) + 4
    size = len(batches[0])
    days = meter.rows("days")
    assert days[:3] == [("no timestamp", 1, size), ("1970-01-01", 2, 2 * size), ("1970-01-02", 1, size)]
    assert days[-1] == ("no batch", 0, 30)
    assert meter.rows("codecs") == [("none", 5, 5 * size), ("no batch", 0, 30)]
    assert meter.rows("files") == [(".log", 1, len(log)), ("other", 1, 4)]
