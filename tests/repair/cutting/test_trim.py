"""Trim: the start of a log goes, and all that is derived is right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from files import content, offsets_of

import kafkalog
from kafkalog.state.checkpoints import read_offset_checkpoint

START = "log-start-offset-checkpoint"


@pytest.mark.parametrize("offset", [0, 1, 14, 100, 156, 304, 429, 430])
def test_records_before_an_offset_go(log_dir: Path, tmp_path: Path, offset: int) -> None:
    before = content(log_dir)
    expected = [one for one in offsets_of(log_dir / "p-txn-0") if one >= offset]
    out = tmp_path / "copy"
    shutil.rmtree(log_dir / "p-multi-0")
    shutil.rmtree(log_dir / "p-epochs-0")
    kafkalog.trim(log_dir, before_offset=offset, output=out)
    report = kafkalog.trim(log_dir, before_offset=offset, in_place=True, backup=tmp_path / "old")
    assert content(log_dir) == content(out)
    (row,) = report.partitions
    partition = kafkalog.open(out)["p-txn-0"]  # type: ignore[index]
    assert partition.log_start_offset == row.log_start_offset == offset
    assert partition.log_end_offset == 430
    assert offsets_of(out) == expected
    assert (read_offset_checkpoint(out / START) or {}).get(kafkalog.TopicPartition("p-txn", 0), 0) == offset
    assert kafkalog.verify(out).ok
    assert {one.verdict for one in kafkalog.preflight(out).partitions if one.stray is None} <= {"starts"}
    kept = content(tmp_path / "old")
    assert all(before[name] == data for name, data in kept.items())


def test_records_before_a_time_go(log_dir: Path, tmp_path: Path) -> None:
    source = log_dir / "p-multi-0"
    stamp = kafkalog.read_table(source)["timestamp"][60].as_py()
    (row,) = kafkalog.trim(source, before_timestamp=stamp, dry_run=True).partitions
    assert row.log_start_offset == kafkalog.Partition(source).offset_for_timestamp(stamp)
    (row,) = kafkalog.trim(source, before_timestamp=2**60, dry_run=True).partitions
    assert row.log_start_offset == row.log_end_offset == 125
    assert row.count("kept") == 1


def test_a_copy_of_one_partition_serves_what_the_report_says(log_dir: Path, tmp_path: Path) -> None:
    source = log_dir / "p-txn-0"
    # a log dir, with a checkpoint
    (row,) = kafkalog.trim(source, before_offset=170, output=tmp_path / "copy").partitions
    copied = kafkalog.open(tmp_path / "copy")["p-txn-0"]  # type: ignore[index]
    assert copied.log_start_offset == row.log_start_offset == 170
    assert [*(read_offset_checkpoint(tmp_path / "copy" / START) or {})] == [kafkalog.TopicPartition("p-txn", 0)]
    # the partition itself, which begins with a segment
    (row,) = kafkalog.trim(source, before_offset=170, output=tmp_path / "p-txn-0").partitions
    alone = kafkalog.Partition(tmp_path / "p-txn-0")
    assert alone.log_start_offset == row.log_start_offset == alone.segments[0].base_offset < 170
