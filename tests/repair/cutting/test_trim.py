"""Trim and truncate: one end of a log goes, and all files derived from it are right."""

import json
import shutil

import pytest
from files import content, offsets_of
from refusals import fails_with

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import UnsafePathError
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.storage.broker_lock import hold_locks

START = "log-start-offset-checkpoint"


@pytest.mark.parametrize("offset", [0, 1, 14, 100, 156, 304, 429, 430])
def test_records_before_an_offset_go(log_dir, tmp_path, offset):
    before = content(log_dir)
    expected = [one for one in offsets_of(log_dir / "p-txn-0") if one >= offset]
    out = tmp_path / "copy"
    shutil.rmtree(log_dir / "p-multi-0")
    shutil.rmtree(log_dir / "p-epochs-0")
    kafkalog.trim(log_dir, before_offset=offset, output=out)
    report = kafkalog.trim(log_dir, before_offset=offset, in_place=True, backup=tmp_path / "old")
    assert content(log_dir) == content(out)
    (row,) = report.partitions
    partition = kafkalog.open(out)["p-txn-0"]
    assert partition.log_start_offset == row.log_start_offset == offset
    assert partition.log_end_offset == 430
    assert offsets_of(out) == expected
    assert (read_offset_checkpoint(out / START) or {}).get(kafkalog.TopicPartition("p-txn", 0), 0) == offset
    assert kafkalog.verify(out).ok
    assert {one.verdict for one in kafkalog.preflight(out).partitions if one.stray is None} <= {"starts"}
    kept = content(tmp_path / "old")
    assert all(before[name] == data for name, data in kept.items())


def test_records_before_a_time_go(log_dir, tmp_path):
    source = log_dir / "p-multi-0"
    stamp = kafkalog.read_table(source)["timestamp"][60].as_py()
    (row,) = kafkalog.trim(source, before_timestamp=stamp, dry_run=True).partitions
    assert row.log_start_offset == kafkalog.Partition(source).offset_for_timestamp(stamp)
    (row,) = kafkalog.trim(source, before_timestamp=2**60, dry_run=True).partitions
    assert row.log_start_offset == row.log_end_offset == 125
    assert row.count("kept") == 1


def test_a_copy_of_one_partition_serves_what_the_report_says(log_dir, tmp_path):
    source = log_dir / "p-txn-0"
    # a log dir, with a checkpoint
    (row,) = kafkalog.trim(source, before_offset=170, output=tmp_path / "copy").partitions
    copied = kafkalog.open(tmp_path / "copy")["p-txn-0"]
    assert copied.log_start_offset == row.log_start_offset == 170
    assert [*(read_offset_checkpoint(tmp_path / "copy" / START) or {})] == [kafkalog.TopicPartition("p-txn", 0)]
    # the partition itself, which begins with a segment
    (row,) = kafkalog.trim(source, before_offset=170, output=tmp_path / "p-txn-0").partitions
    alone = kafkalog.Partition(tmp_path / "p-txn-0")
    assert alone.log_start_offset == row.log_start_offset == alone.segments[0].base_offset < 170


@pytest.mark.parametrize("offset", [0, 1, 14, 15, 100, 156, 200, 304, 305, 400, 429, 430, 1000])
def test_every_offset_below_stays_but_for_those_of_a_batch_that_reaches_it(log_dir, tmp_path, offset):
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


def test_an_epoch_and_a_time_say_the_same_place(log_dir, tmp_path):
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


def test_damage_before_the_cut_changes_nothing_and_the_bytes_of_the_cut_segment_count(log_dir, tmp_path):
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


POINTS = "recovery-point-offset-checkpoint"


def test_the_marker_of_a_truncated_log_does_not_vouch_for_the_replica(log_dir, tmp_path):
    """By the epoch in the marker, the controller trusts that no log has lost its end. Source: BrokerServer.startup,
    Kafka 4.3."""
    marker, named = log_dir / ".kafka_cleanshutdown", '{"version":0,"brokerEpoch":839}'
    marker.write_text(named)
    kafkalog.truncate(log_dir, to_offset=100, output=tmp_path / "truncated")
    kafkalog.trim(log_dir, before_offset=5, output=tmp_path / "trimmed")
    kafkalog.truncate(log_dir, to_offset=10**6, in_place=True, backup=tmp_path / "nothing")
    assert marker.read_text() == named
    kafkalog.truncate(log_dir, to_offset=100, in_place=True, backup=tmp_path / "old")
    for directory in (log_dir, tmp_path / "truncated"):
        assert json.loads((directory / ".kafka_cleanshutdown").read_text())["brokerEpoch"] == -1, directory
    # the end of a trimmed log is what it was
    assert (tmp_path / "trimmed" / ".kafka_cleanshutdown").read_text() == named
    marker.unlink()
    kafkalog.truncate(log_dir, to_offset=50, output=tmp_path / "unclean")
    assert not (tmp_path / "unclean" / ".kafka_cleanshutdown").exists()


def test_a_log_dir_is_cut_in_place_as_in_a_copy(log_dir, tmp_path):
    before = content(log_dir)
    kafkalog.truncate(log_dir, to_offset=100, output=tmp_path / "copy")
    report = kafkalog.truncate(log_dir, to_offset=100, in_place=True, backup=tmp_path / "old")
    assert content(log_dir) == content(tmp_path / "copy")
    kept = content(tmp_path / "old")
    after = content(log_dir)
    changed = {name for name, data in before.items() if after.get(name) != data}
    # the marker is absent meanwhile
    assert kept == {name: before[name] for name in (*changed, ".kafka_cleanshutdown")}
    assert report.n_backup_files == len(kept)
    points = read_offset_checkpoint(log_dir / POINTS) or {}
    assert {points[row.topic_partition] for row in report.partitions if row.topic_partition is not None} <= {
        row.log_end_offset for row in report.partitions
    }
    assert (log_dir / ".kafka_cleanshutdown").exists()
    assert {one.verdict for one in kafkalog.preflight(log_dir).partitions if one.stray is None} <= {"starts"}
    assert kafkalog.verify(log_dir, topics=["p-multi", "p-txn", "p-epochs"]).ok


def test_it_refuses_what_cannot_be(log_dir, tmp_path):
    before = content(tmp_path)
    source = log_dir / "p-multi-0"
    for options in ({}, {"to_offset": 1, "to_epoch": 1}, {"to_offset": 1, "output": "x", "in_place": True}):
        with pytest.raises(ValueError):
            kafkalog.truncate(source, **options)
    for options in ({}, {"before_offset": 126, "dry_run": True}, {"before_offset": 1, "in_place": True}):
        with pytest.raises(ValueError):
            kafkalog.trim(source, **options)
    with pytest.raises(ValueError, match="backup="):
        kafkalog.trim(source, before_offset=1, dry_run=True, backup="x")
    with pytest.raises(UnsafePathError):
        kafkalog.trim(source, before_offset=1, output=log_dir / "x")
    assert content(tmp_path) == before
    (log_dir / START).write_text("0\n1\np-multi 0 50\n")
    with pytest.raises(ValueError):
        kafkalog.truncate(log_dir, to_offset=40, dry_run=True)
    with hold_locks([log_dir]), fails_with("unsafe_path"):
        kafkalog.truncate(log_dir, to_offset=60, in_place=True, backup=tmp_path / "b")


@pytest.mark.parametrize("command", [["trim", "--before-offset", "100"], ["truncate", "--to-offset", "100"]])
def test_offsets_that_were_missing_before_are_reported(log_dir, command, capsys):
    partition = log_dir / "p-multi-0"
    name, *options = command
    assert main([name, str(partition), *options, "--dry-run"]) == 0
    max(partition.glob("*.log")).unlink()
    capsys.readouterr()
    assert main([name, str(partition), *options, "--dry-run", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)
    assert [(one["first_offset"], one["end_offset"], one["reason"]) for one in row["losses"]] == [
        (120, 125, "log_end_missing")
    ]


def test_a_truncation_that_was_killed_after_the_cut_is_finished_by_another(log_dir, tmp_path):
    source = log_dir / "p-epochs-0"
    partition = kafkalog.Partition(source)
    end = int(partition.epoch_cache.entries["start_offset"][-1])
    before = content(log_dir)
    kafkalog.truncate(log_dir, to_offset=end, in_place=True, backup=tmp_path / "old")
    wanted = content(log_dir)
    # as after the last `.log`: the rest is as before, and the new snapshot is not there
    for name in {*wanted, *before}:
        if not name.endswith((".log", "index")):
            (log_dir / name).unlink(missing_ok=True)
            if name in before and not (name.endswith(".snapshot") and name not in wanted):
                (log_dir / name).write_bytes(before[name])
    again = kafkalog.truncate(log_dir, to_offset=end, in_place=True, backup=tmp_path / "again")
    assert content(log_dir) == wanted
    assert not any(row.n_bytes_lost for row in again.partitions)
    assert kafkalog.truncate(log_dir, to_offset=end, in_place=True, backup=tmp_path / "third").n_backup_files == 0
    assert content(log_dir) == wanted
