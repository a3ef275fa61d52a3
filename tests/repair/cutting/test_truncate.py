"""Truncate: the end of a log goes, and all that is derived is right; what truncate and trim refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from files import content, offsets_of

import kafkalog
from kafkalog.errors import UnsafePathError
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.storage.broker_lock import hold_locks

START = "log-start-offset-checkpoint"
POINTS = "recovery-point-offset-checkpoint"


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


def test_a_log_dir_is_cut_in_place_as_in_a_copy(log_dir: Path, tmp_path: Path) -> None:
    before = content(log_dir)
    kafkalog.truncate(log_dir, to_offset=100, output=tmp_path / "copy")
    report = kafkalog.truncate(log_dir, to_offset=100, in_place=True, backup=tmp_path / "old")
    assert content(log_dir) == content(tmp_path / "copy")
    kept = content(tmp_path / "old")
    after = content(log_dir)
    assert kept == {name: data for name, data in before.items() if after.get(name) != data}
    assert report.n_backup_files == len(kept)
    points = read_offset_checkpoint(log_dir / POINTS) or {}
    assert {points[row.topic_partition] for row in report.partitions if row.topic_partition is not None} <= {
        row.log_end_offset for row in report.partitions
    }
    assert (log_dir / ".kafka_cleanshutdown").exists()
    assert kafkalog.preflight(log_dir, broker="2.8").verdict == "starts"
    assert kafkalog.verify(log_dir, topics=["p-multi", "p-txn", "p-epochs"]).ok


def test_it_refuses_what_cannot_be(log_dir: Path, tmp_path: Path) -> None:
    before = content(tmp_path)
    source = log_dir / "p-multi-0"
    for options in ({}, {"to_offset": 1, "to_epoch": 1}, {"to_offset": 1, "output": "x", "in_place": True}):
        with pytest.raises(ValueError):
            kafkalog.truncate(source, **options)  # type: ignore[arg-type]
    for options in ({}, {"before_offset": 126, "dry_run": True}, {"before_offset": 1, "in_place": True}):
        with pytest.raises(ValueError):
            kafkalog.trim(source, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="go with in_place"):
        kafkalog.trim(source, before_offset=1, dry_run=True, backup="x")
    with pytest.raises(UnsafePathError):
        kafkalog.trim(source, before_offset=1, output=log_dir / "x")
    assert content(tmp_path) == before
    (log_dir / START).write_text("0\n1\np-multi 0 50\n")
    with pytest.raises(ValueError, match="starts at 50"):
        kafkalog.truncate(log_dir, to_offset=40, dry_run=True)
    with hold_locks([log_dir]), pytest.raises(UnsafePathError, match="a broker holds the lock"):
        kafkalog.truncate(log_dir, to_offset=60, in_place=True, backup=tmp_path / "b")
