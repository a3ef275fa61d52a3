"""Truncate: the end of a log goes, and all that is derived is right; what truncate and trim refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from files import content, offsets_of

import kafkalog


@pytest.mark.parametrize("offset", [0, 1, 14, 15, 100, 156, 200, 304, 305, 400, 429, 430, 1000])
def test_every_offset_below_stays_but_for_those_of_a_batch_that_reaches_it(
    log_dir: Path, tmp_path: Path, offset: int
) -> None:
    source = log_dir / "p-txn-0"
    before = content(source)
    (row,) = kafkalog.truncate(source, to_offset=offset, output=tmp_path / "p-txn-0").partitions
    assert content(source) == before
    batches = [
        (int(first), int(last))
        for segment in kafkalog.Partition(source).segments
        for first, last in zip(segment.batches.base_offset, segment.batches.last_offset, strict=True)
    ]
    end = max((last for _, last in batches if last < offset), default=-1) + 1
    assert offsets_of(tmp_path / "p-txn-0") == [one for one in offsets_of(source) if one < end]
    assert row.log_end_offset in (end, min(offset, 430))
    assert kafkalog.Partition(tmp_path / "p-txn-0").log_end_offset == row.log_end_offset
    assert kafkalog.verify(tmp_path / "p-txn-0").ok
    snapshots = {path.name for path in (tmp_path / "p-txn-0").glob("*.snapshot")}
    if 0 < row.log_end_offset < 430:
        assert max(snapshots) == f"{row.log_end_offset:020d}.snapshot"


def test_an_epoch_and_a_time_say_the_same_place(log_dir: Path, tmp_path: Path) -> None:
    source = log_dir / "p-epochs-0"
    epochs = kafkalog.Partition(source).leader_epochs.tolist()
    assert len(epochs) > 2
    (row,) = kafkalog.truncate(source, to_epoch=epochs[0][0], output=tmp_path / "p-epochs-0").partitions
    assert row.log_end_offset == epochs[1][1]
    assert kafkalog.Partition(tmp_path / "p-epochs-0").leader_epochs.tolist() == epochs[:1]
    table = kafkalog.read_table(source)
    stamp = table["timestamp"][50].as_py()
    (row,) = kafkalog.truncate(source, to_timestamp=stamp, output=tmp_path / "by-time").partitions
    assert row.log_end_offset <= kafkalog.Partition(source).offset_for_timestamp(stamp)
    kept = kafkalog.read_table(tmp_path / "by-time")["timestamp"].to_pylist()
    assert kept
    assert max(kept) < stamp
    (row,) = kafkalog.truncate(source, to_epoch=10**6, dry_run=True).partitions
    assert row.log_end_offset == kafkalog.Partition(source).log_end_offset


def test_damage_before_the_cut_changes_nothing_and_the_bytes_of_the_cut_segment_count(
    log_dir: Path, tmp_path: Path
) -> None:
    source = tmp_path / "p-txn-0"
    shutil.copytree(log_dir / "p-txn-0", source)
    segment = max(kafkalog.Partition(source).segments, key=lambda one: len(one.batches))
    batches = segment.batches
    end = int(batches.base_offset[-1])
    (row,) = kafkalog.truncate(source, to_offset=end, dry_run=True).partitions
    assert row.n_bytes_lost == sum(log.stat().st_size for log in source.glob("*.log")) - row.n_bytes > 0
    data = bytearray(segment.path.read_bytes())
    data[batches.position[1] + 70] ^= 1
    segment.path.write_bytes(data)
    before = content(source)
    with pytest.raises(kafkalog.CorruptionError) as raised:
        kafkalog.truncate(source, to_offset=end, in_place=True, backup=tmp_path / "backup")
    assert raised.value.position == batches.position[1]
    assert content(source) == before
    (row,) = kafkalog.truncate(source, to_offset=int(batches.base_offset[1]), dry_run=True).partitions
    assert row.log_end_offset == batches.base_offset[1]
