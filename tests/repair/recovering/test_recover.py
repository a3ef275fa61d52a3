"""Recovery offline: what a broker's leaves, without the broker."""

import shutil
import sys
from pathlib import Path

import golden_sets
import pytest
from effort import THOROUGH, thinned
from faults import Faulty, is_killed_at
from files import content, flip
from recoveries import RECOVERY_POINTS, logs, small_log_dir
from refusals import fails_with

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import CorruptionError, OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.log.log_dir import LogDir
from kafkalog.repair.recovering.recover import recover, root_files
from kafkalog.state.checkpoints import read_leader_epochs, read_offset_checkpoint
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.storage.broker_lock import hold_locks

MARKER = ".kafka_cleanshutdown"


def test_files_are_those_that_the_broker_left_when_it_recovered(tmp_path):
    unclean = golden_sets.unpacked("k44", "unclean")
    before = content(unclean)
    report = recover(unclean, output=tmp_path / "out")
    assert report.is_clean
    assert report.n_bytes_lost == 0  # preallocated zeros are no records
    recovered = golden_sets.unpacked("k44", "unclean_recovered")
    names = [path.name for path in recovered.iterdir() if path.is_dir()]
    assert len(names) >= 5
    for name in names:
        ours, theirs = content(tmp_path / "out" / name), content(recovered / name)
        ours.pop("leader-epoch-checkpoint")
        theirs.pop("leader-epoch-checkpoint")
        epochs = LeaderEpochs(read_leader_epochs(tmp_path / "out" / name / "leader-epoch-checkpoint"))
        expected = LeaderEpochs(read_leader_epochs(recovered / name / "leader-epoch-checkpoint"))
        epochs.assign(*expected.entries[-1].tolist())  # that of the broker's own start
        assert epochs.entries.tolist() == expected.entries.tolist()
        assert ours == theirs, name
    assert content(unclean) == before


@pytest.mark.parametrize("set_name", thinned(["k44", "k28"], 2))
def test_the_log_dir_is_as_after_a_clean_shutdown(tmp_path, set_name):
    unclean = golden_sets.unpacked(set_name, "unclean")
    out = tmp_path / "out"
    report = recover(unclean, output=out)
    assert report.checkpoints[-1] == MARKER
    marker = (out / MARKER).read_bytes()
    assert marker == (b"" if set_name == "k28" else b'{"version":0,"brokerEpoch":-1}')
    points = read_offset_checkpoint(out / RECOVERY_POINTS)
    assert points is not None
    for key, partition in LogDir([out]).items():
        if key.topic != "__cluster_metadata":
            assert points[key] == partition.log_end_offset
    assert kafkalog.verify(out, indexes_only=True).ok
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint", "meta.properties"):
        assert (out / name).read_bytes() == (unclean / name).read_bytes()


@pytest.mark.parametrize("all_segments", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_second_recovery_has_nothing_to_do(tmp_path, all_segments):
    recover(golden_sets.unpacked("k44", "unclean"), output=tmp_path / "out", all_segments=all_segments)
    again = recover(tmp_path / "out", dry_run=True, all_segments=all_segments)
    assert again.n_bytes_lost == 0
    assert not again.findings.rows
    assert {file.change for one in again.partitions for file in one.files} <= {"same"}
    assert not any(one.removed for one in again.partitions)


def test_a_recovered_log_is_not_said_to_lose_records_again(tmp_path):
    log_dir = small_log_dir(tmp_path, ("p-txn-0", "p-multi-0"))
    end = kafkalog.open(log_dir / "p-txn-0").log_end_offset
    watermarks = log_dir / "replication-offset-checkpoint"
    watermarks.write_text(f"0\n2\np-txn 0 {end}\np-multi 0 3\n")
    last = [log for log in logs(log_dir / "p-txn-0") if log.stat().st_size][-1]
    last.write_bytes(last.read_bytes()[:-1])
    report = recover(log_dir, output=tmp_path / "out")
    assert report.losses
    assert not report.ok
    recovered = kafkalog.open(tmp_path / "out" / "p-txn-0").log_end_offset
    assert recovered < end
    points = read_offset_checkpoint(tmp_path / "out" / watermarks.name)
    assert points is not None
    assert {str(key): offset for key, offset in points.items()} == {"p-txn-0": recovered, "p-multi-0": 3}
    assert kafkalog.preflight(tmp_path / "out").ok
    assert kafkalog.verify(tmp_path / "out").ok


def test_in_place_gives_what_a_copy_gives_and_the_backup_has_all_that_changed(tmp_path):
    log_dir = small_log_dir(tmp_path)
    _, _, third, *_ = logs(log_dir / "p-txn-0")
    flip(third, third.stat().st_size // 2)
    (log_dir / MARKER).write_bytes(b"")
    (log_dir / "p-ooo-0" / "leader-epoch-checkpoint").unlink()
    before = content(log_dir)
    recover(log_dir, output=tmp_path / "out")
    assert content(log_dir) == before

    report = recover(log_dir, in_place=True, backup=tmp_path / "backup")
    after, kept = content(log_dir), content(tmp_path / "backup")
    assert after == content(tmp_path / "out")
    assert report.n_backup_files == len(kept)
    assert kept == {name: data for name, data in before.items() if after.get(name) != data or name == MARKER}
    assert not list(tmp_path.glob(".*kafkalog*"))


@pytest.mark.parametrize("all_segments", [False, True])
def test_a_segment_that_is_missing_in_the_middle_is_damage(tmp_path, all_segments):
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    partition = log_dir / "p-txn-0"
    assert kafkalog.recover(log_dir, dry_run=True, all_segments=all_segments).findings.rows == []
    _, middle, after, *_ = logs(partition)
    for file in partition.glob(f"{middle.stem}.*"):
        file.unlink()
    report = kafkalog.recover(log_dir, dry_run=True, all_segments=all_segments)
    [gap] = report.findings.rows
    assert (gap.reason, gap.damage) == (kafkalog.Reason.OFFSET_GAP, True)
    assert (gap.base_offset, gap.last_offset) == (int(middle.stem), int(after.stem) - 1)
    assert report.is_clean
    assert report.n_bytes_lost == 0


@pytest.mark.parametrize("change", ["no .log", "zeros after a clean shutdown"])
def test_what_recovery_calls_lost_is_damage_too(tmp_path, change):
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    (log_dir / MARKER).write_bytes(b"")
    for log in logs(log_dir / "p-txn-0"):
        if change == "no .log":
            log.unlink()
    if change != "no .log":
        log.write_bytes(log.read_bytes() + bytes(400))
    report = kafkalog.recover(log_dir, dry_run=True)
    # the snapshot at the log end shows that the zeros are no lost records
    assert bool(report.partitions[0].losses) == (change == "no .log")
    assert any(one.damage for one in report.findings.rows)
    assert main(["recover", str(log_dir), "--dry-run"]) == main(["preflight", str(log_dir)]) == 1


def test_a_partition_is_recovered_alone(tmp_path):
    log_dir = small_log_dir(tmp_path)
    path = logs(log_dir / "p-txn-0")[-1]
    path.write_bytes(path.read_bytes() + bytes(100))
    report = recover(log_dir / "p-txn-0", output=tmp_path / "p-txn-0")
    assert report.n_bytes_lost == 0
    assert logs(tmp_path / "p-txn-0")[-1].stat().st_size == path.stat().st_size - 100
    assert not report.checkpoints
    recover(log_dir / "p-txn-0", in_place=True, backup=tmp_path / "backup")
    assert content(log_dir / "p-txn-0") == content(tmp_path / "p-txn-0")


def test_what_cannot_be_recovered_is_said_and_there_is_no_marker(tmp_path):
    log_dir = small_log_dir(tmp_path)
    last = logs(log_dir / "p-ooo-0")[-1]
    data = last.read_bytes()
    last.write_bytes(data + (int(last.stem) + 2**31 + 10).to_bytes(8, "big") + data[8:])
    (log_dir / "p-multi-0" / "notes.log").write_text("mine")
    (log_dir / "lost+found").mkdir()
    (log_dir / MARKER).write_bytes(b"")
    report = recover(log_dir, output=tmp_path / "out")
    errors = {Path(one.path).name: one.error for one in report.partitions if one.error}
    assert set(errors) == {"p-ooo-0", "p-multi-0"}
    assert [Path(one.path).name for one in report.problems] == ["lost+found"]
    assert "kafkalog convert" in (errors["p-ooo-0"] or "")
    assert not report.is_clean
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "meta.properties",
        "p-txn-0",
        RECOVERY_POINTS,
    ]
    before = content(log_dir / "p-ooo-0")
    recover(log_dir, in_place=True, backup=tmp_path / "backup")
    assert content(log_dir / "p-ooo-0") == before
    assert not (log_dir / MARKER).exists()
    with pytest.raises(CorruptionError) as raised:
        recover(log_dir / "p-ooo-0", output=tmp_path / "alone")
    assert raised.value.reason is Reason.OFFSET_OUTSIDE_SEGMENT
    assert not (tmp_path / "alone").exists()


def test_a_bad_topic_id_is_a_finding_about_its_file(tmp_path):
    partition = small_log_dir(tmp_path) / "p-txn-0"
    path = partition / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAA\n")
    report = recover(partition, dry_run=True)
    found = [(one.reason, one.path) for one in report.findings.rows if one.damage]
    assert found == [(Reason.CHECKPOINT_SYNTAX, str(path))]
    assert str(partition) not in (report.partitions[0].error or str(partition))


def test_unreadable_checkpoints_count_as_none(tmp_path):
    log_dir = small_log_dir(tmp_path)
    (log_dir / RECOVERY_POINTS).write_text("0\n5\nhalf")
    (log_dir / "log-start-offset-checkpoint").write_text("what")
    report = recover(log_dir, output=tmp_path / "out")
    assert [one.reason for one in report.findings.rows] == [Reason.CHECKPOINT_SYNTAX] * 2
    assert {one.action for each in report.partitions for one in each.segments} == {"recovered"}
    assert read_offset_checkpoint(tmp_path / "out" / "log-start-offset-checkpoint") == {}
    assert len(read_offset_checkpoint(tmp_path / "out" / RECOVERY_POINTS) or {}) == 3


def test_it_refuses_what_would_do_harm(tmp_path):
    log_dir = small_log_dir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old").write_text("1")
    before = content(tmp_path)
    for options in ({"output": log_dir / "out"}, {"in_place": True, "backup": log_dir / "backup"}):
        with pytest.raises(UnsafePathError):
            recover(log_dir, **options)
    for options in ({"output": tmp_path / "full"}, {"in_place": True, "backup": tmp_path / "full"}):
        with pytest.raises(OutputExistsError):
            recover(log_dir, **options)
    wrong = [
        {},
        {"output": "x", "in_place": True},
        {"in_place": True},
        {"output": "x", "backup": "y"},
        {"dry_run": True, "stage_in": "x"},
        {"dry_run": True, "threads": 0},
    ]
    for options in wrong:
        with pytest.raises(ValueError):
            recover(log_dir, **options)
    assert content(tmp_path) == before


def test_it_refuses_where_a_broker_runs(tmp_path):
    log_dir = small_log_dir(tmp_path)
    with hold_locks([log_dir]):
        for options in ({"output": tmp_path / "out"}, {"in_place": True, "backup": tmp_path / "b"}, {"dry_run": True}):
            with fails_with("unsafe_path"):
                recover(log_dir, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def crash_dir(root):
    """A log dir with a cut, deleted segments, and changed indexes, snapshots and epochs."""
    log_dir = small_log_dir(root, ("p-multi-0", "p-txn-0"))
    third = logs(log_dir / "p-txn-0")[2]
    flip(third, third.stat().st_size // 2)
    (log_dir / "p-multi-0" / "leader-epoch-checkpoint").unlink()
    (log_dir / MARKER).write_bytes(b"")
    return log_dir


def killed(n, log_dir, **options):
    """Whether a fork that recovers is killed at its n-th call."""
    return is_killed_at(n, lambda: recover(log_dir, threads=1, **options))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_in_place_killed_at_any_step_nothing_is_lost_and_another_run_finishes(tmp_path):
    first = crash_dir(tmp_path)
    before = content(first)
    recover(first, output=tmp_path / "wanted")
    wanted = content(tmp_path / "wanted")
    n, step = 1, 3 if THOROUGH else 7
    while True:
        root = tmp_path / f"run-{n}"
        log_dir = crash_dir(root)
        was_killed = killed(n, log_dir, in_place=True, backup=root / "backup")
        after = content(log_dir)
        kept = content(root / "backup") if (root / "backup").exists() else {}
        for name, data in before.items():
            if after.get(name) != data:
                assert kept[name] == data, f"{name} changed before it was kept, at step {n}"
            # without the marker a broker recovers what is not done yet
            expected = (data, wanted.get(name), *([None] if name == MARKER else []))
            assert after.get(name) in expected, f"{name} is neither old nor new, at step {n}"
        if not was_killed:
            assert after == wanted
            break
        # a marker without its partitions done would be a lie
        if MARKER in after and after != before:
            assert {name: data for name, data in after.items() if name != RECOVERY_POINTS} == {
                name: data for name, data in wanted.items() if name != RECOVERY_POINTS
            }
        recover(log_dir, in_place=True, backup=root / "again")
        assert content(log_dir) == wanted, f"another run after step {n}"
        shutil.rmtree(root)
        n += step
    assert n > 60


def test_a_failed_write_leaves_the_partition_as_it_was(tmp_path):
    log_dir = crash_dir(tmp_path)
    before = content(log_dir)

    def fail(name):
        raise OSError(28, "No space left on device")

    n = 1
    while True:
        with Faulty(n, fail).installed():
            try:
                recover(log_dir, output=tmp_path / "out", threads=1)
                break
            except WriteError:
                pass
        assert content(log_dir) == before
        n += 5 if THOROUGH else 15
    assert n > 40
    assert not list(tmp_path.glob(".*"))


def test_an_interrupted_cleaning_before_damage_is_recovered_in_place(tmp_path):
    partition = small_log_dir(tmp_path, ["p-multi-0"]) / "p-multi-0"
    first, second, *_ = logs(partition)
    # a swap next to the file that it replaces, in a segment that is deleted for damage before it
    shutil.copy(second, f"{second}.swap")
    flip(first, 70)
    shutil.copytree(partition.parent, tmp_path / "copy")
    recover(tmp_path / "copy", in_place=True, backup=tmp_path / "old", all_segments=True)
    recover(partition.parent, output=tmp_path / "out", all_segments=True)
    assert content(tmp_path / "copy") == content(tmp_path / "out")


def test_the_high_watermark_of_a_partition_that_was_not_recovered_stays(tmp_path):
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\na 0 7\nb 0 9\n")
    a, b = kafkalog.TopicPartition("a", 0), kafkalog.TopicPartition("b", 0)
    found = root_files(tmp_path, {a: 7}, is_clean=False)
    assert "replication-offset-checkpoint" not in found
    found = root_files(tmp_path, {a: 5}, is_clean=False)
    (tmp_path / "replication-offset-checkpoint").write_bytes(found["replication-offset-checkpoint"])
    assert read_offset_checkpoint(tmp_path / "replication-offset-checkpoint") == {a: 5, b: 9}
