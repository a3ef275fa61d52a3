"""What is known of a partition without reading its records."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog import TopicPartition


def test_many_indexes_hold_no_descriptors(log_dir: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else pytest.skip("no /proc")
    kept = [kafkalog.open(log_dir) for _ in range(20)]
    for one in kept:
        assert all(segment.offset_index is not None for segment in one["p-multi", 0].segments)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_damaged_swap_file_hides_no_segments(log_dir: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    (directory / f"{0:020d}.log.swap").write_bytes(b"\0")
    partition = kafkalog.Partition(directory)
    assert [finding.reason for finding in partition.findings] == ["partial_tail"]
    assert partition.findings[0].damage
    with pytest.warns(kafkalog.CorruptionWarning, match="kafkalog ignores it"):
        assert kafkalog.scan(partition).count_rows() == kafkalog.scan(log_dir / "p-multi-0").count_rows()


def test_what_can_be_known_of_a_partition(log_dir: Path) -> None:
    opened = kafkalog.open(log_dir)
    assert isinstance(opened, kafkalog.LogDir)
    partition = opened["p-multi", 0]
    assert partition.topic_partition == ("p-multi", 0)
    assert partition.high_watermark == 125
    assert partition.log_end_offset == 125
    assert partition.leader_epochs.dtype.names == ("epoch", "start_offset")
    assert partition.leader_epochs.tolist()[0] == (0, 0)
    assert partition.topic_id is not None
    assert len(partition.topic_id) == 22
    assert opened.properties()["version"] == "1"
    assert TopicPartition("p-multi", 0) in opened
    assert ("absent", 0) not in opened
    assert not opened.is_live
    with pytest.raises(KeyError):
        opened["absent", 0]


def test_a_swap_left_by_a_crash_counts_as_a_broker_would_count_it(log_dir_copy: Path) -> None:
    directory = log_dir_copy / "p-compact-0"
    expected = kafkalog.read_table(directory)
    first = max(sorted(directory.glob("*.log"))[:-1], key=lambda path: path.stat().st_size)
    first.rename(first.with_name(first.name + ".swap"))
    scan = kafkalog.scan(directory)
    assert scan.to_table().equals(expected)
    assert "swap_file" in [finding.reason for finding in scan.findings]
    unfinished = directory / (first.name + ".cleaned")
    unfinished.touch()
    assert kafkalog.scan(directory).count_rows() < expected.num_rows


@pytest.mark.parametrize("start", [82, 83])
def test_a_log_start_offset_beyond_the_end_hides_no_record_without_a_word(
    log_dir: Path, tmp_path: Path, start: int
) -> None:
    shutil.copytree(log_dir / "p-multi-2", tmp_path / "log" / "p-multi-2")
    (tmp_path / "log" / "log-start-offset-checkpoint").write_text(f"0\n1\np-multi 2 {start}\n")
    scan = kafkalog.scan(tmp_path / "log")
    if start == 82:  # as after all records were deleted
        assert scan.count_rows() == len(scan.findings) == 0
        return
    with pytest.warns(kafkalog.CorruptionWarning, match="log_start_behind_end"):
        assert scan.count_rows() == 0
    assert [(one.reason, one.n_records) for one in scan.findings] == [("log_start_behind_end", 82)]
    assert kafkalog.scan(tmp_path / "log", include_deleted=True).count_rows() == 82
    for saved, save in (("salvaged", kafkalog.salvage), ("merged", lambda path, **to: kafkalog.merge([path], **to))):
        save(tmp_path / "log", output=tmp_path / saved)
        assert kafkalog.scan(tmp_path / saved).count_rows() == 82
    assert [one.reason for one in kafkalog.salvage(tmp_path / "log", dry_run=True).findings.rows] == [
        "log_start_behind_end"
    ]
