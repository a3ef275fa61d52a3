"""Recovery offline: what a broker's leaves, without the broker."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import golden_sets
import pytest
from faults import Faulty
from files import content

import kafkalog
from kafkalog.errors import CorruptionError, OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.log.log_dir import LogDir
from kafkalog.repair.recovering.recover import recover
from kafkalog.repair.recovering.report import RecoveredPartition, RecoveryReport
from kafkalog.state.checkpoints import read_leader_epochs, read_offset_checkpoint
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.storage.broker_lock import hold_locks

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
MARKER = ".kafka_cleanshutdown"


def small_log_dir(root: Path, names: tuple[str, ...] = ("p-multi-0", "p-txn-0", "p-ooo-0")) -> Path:
    """A log dir of some partitions, as after a crash: no marker, and no recovery points."""
    log_dir = root / "data"
    log_dir.mkdir(parents=True)
    source = golden_sets.unpacked("k44")
    for name in names:
        shutil.copytree(source / name, log_dir / name)
    shutil.copy(source / "meta.properties", log_dir)
    return log_dir


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def row(report: RecoveryReport, name: str) -> RecoveredPartition:
    (found,) = [one for one in report.partitions if Path(one.path).name == name]
    return found


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def test_files_are_those_that_the_broker_left_when_it_recovered(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("set_name", ["k44", "k28"])
def test_the_log_dir_is_as_after_a_clean_shutdown(tmp_path: Path, set_name: str) -> None:
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


@pytest.mark.parametrize("all_segments", [False, True])
def test_a_second_recovery_has_nothing_to_do(tmp_path: Path, all_segments: bool) -> None:
    recover(golden_sets.unpacked("k44", "unclean"), output=tmp_path / "out", all_segments=all_segments)
    again = recover(tmp_path / "out", dry_run=True, all_segments=all_segments)
    assert again.n_bytes_lost == 0
    assert not again.findings.rows
    assert {file.change for one in again.partitions for file in one.files} <= {"same"}
    assert not any(one.removed for one in again.partitions)


def test_damage_below_the_recovery_point_is_kept_and_cut_only_if_asked_for(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    first, *_, last = logs(log_dir / "p-txn-0")
    flip(first, first.stat().st_size // 2)
    (log_dir / RECOVERY_POINTS).write_text(f"0\n1\np-txn 0 {int(last.stem) + 1}\n")

    kept = row(recover(log_dir, output=tmp_path / "kept"), "p-txn-0")
    assert [one.action for one in kept.segments] == ["kept"] * 5 + ["recovered"]
    assert content(tmp_path / "kept" / "p-txn-0")[first.name] == first.read_bytes()

    cut = row(recover(log_dir, output=tmp_path / "cut", all_segments=True), "p-txn-0")
    assert [one.action for one in cut.segments] == ["cut"] + ["deleted"] * 5
    assert cut.n_bytes_lost == sum(path.stat().st_size for path in logs(log_dir / "p-txn-0")) - cut.n_bytes
    out = tmp_path / "cut" / "p-txn-0"
    assert {path.name for path in out.iterdir() if path.suffix in (".log", ".index", ".timeindex")} == {
        first.with_suffix(suffix).name for suffix in (".log", ".index", ".timeindex")
    }
    assert first.read_bytes().startswith((out / first.name).read_bytes())
    assert kafkalog.open(out).log_end_offset == cut.log_end_offset


def test_an_old_segment_without_an_index_is_recovered_alone_and_later_ones_stay(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    first, second, *_, last = logs(log_dir / "p-txn-0")
    (log_dir / RECOVERY_POINTS).write_text(f"0\n1\np-txn 0 {int(last.stem) + 1}\n")
    first.with_suffix(".index").unlink()
    flip(first, first.stat().st_size - 10)
    second.with_suffix(".index").unlink()
    found = row(recover(log_dir, output=tmp_path / "out"), "p-txn-0")
    assert [one.action for one in found.segments] == ["cut", "recovered", "kept", "kept", "kept", "recovered"]
    clean = golden_sets.partitions("k44")["p-txn-0"]
    assert (tmp_path / "out" / "p-txn-0" / f"{second.stem}.index").read_bytes() == (
        clean / f"{second.stem}.index"
    ).read_bytes()


def test_segments_behind_a_damaged_one_without_an_index_stay_as_with_a_broker(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    first, second, *_ = logs(log_dir / "p-txn-0")
    first.with_suffix(".index").unlink()
    flip(first, first.stat().st_size - 10)
    found = row(recover(log_dir, output=tmp_path / "out"), "p-txn-0")
    assert [one.action for one in found.segments] == ["cut", *["recovered"] * 5]
    assert found.log_end_offset == kafkalog.open(golden_sets.partitions("k44")["p-txn-0"]).log_end_offset
    foretold = kafkalog.preflight(log_dir, clean=False).partitions[0]
    assert [one.action for one in foretold.segments] == [one.action for one in found.segments]
    assert foretold.log_end_offset == found.log_end_offset
    # the first damage behind an index ends the log
    flip(second, second.stat().st_size - 10)
    found = row(recover(log_dir, dry_run=True), "p-txn-0")
    assert [one.action for one in found.segments] == ["cut", "cut", *["deleted"] * 4]


def test_what_a_crash_left_half_done_is_finished(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path, ("p-txn-0", "p-multi-0"))
    partition = log_dir / "p-txn-0"
    _, second, third, *_ = logs(partition)
    for suffix in (".log", ".index", ".timeindex"):
        path = second.with_suffix(suffix)
        path.rename(f"{path}.swap")
    (partition / f"{third.name}.cleaned").write_bytes(b"half")
    (partition / "00000000000000000077.log.deleted").write_bytes(b"old")
    (partition / "00000000000000000099.timeindex").write_bytes(bytes(12))
    # a .swap at or above a .cleaned may be of a split that did not finish: the old segments count
    multi = log_dir / "p-multi-0"
    base = logs(multi)[0]
    shutil.copy(base, f"{base}.swap")
    (multi / f"{base.name}.cleaned").write_bytes(b"")
    report = recover(log_dir, output=tmp_path / "out")
    found = row(report, "p-txn-0")
    assert set(found.renamed.values()) == {
        second.with_suffix(suffix).name for suffix in (".log", ".index", ".timeindex")
    }
    assert {"00000000000000000077.log.deleted", "00000000000000000099.timeindex"} <= set(found.removed)
    names = {path.name for path in (tmp_path / "out" / "p-txn-0").iterdir()}
    clean = {path.name for path in golden_sets.partitions("k44")["p-txn-0"].iterdir()}
    assert {name for name in names if not name.endswith(".snapshot")} == {
        name for name in clean if not name.endswith(".snapshot")
    }
    assert kafkalog.verify(tmp_path / "out").ok
    assert set(row(report, "p-multi-0").removed) == {f"{base.name}.swap", f"{base.name}.cleaned"}

    recover(log_dir, in_place=True, backup=tmp_path / "backup")
    assert content(log_dir) == content(tmp_path / "out")
    assert f"p-txn-0/{second.name}.swap" in content(tmp_path / "backup")


def test_a_log_start_above_the_end_leaves_an_empty_log_there(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\np-multi 0 1000\n")
    found = row(recover(log_dir, output=tmp_path / "out"), "p-multi-0")
    assert {one.action for one in found.segments} == {"deleted"}
    assert (found.log_start_offset, found.log_end_offset) == (1000, 1000)
    partition = kafkalog.open(tmp_path / "out" / "p-multi-0")
    assert isinstance(partition, kafkalog.Partition)
    assert [one.base_offset for one in partition.segments] == [1000]
    assert partition.size_in_bytes == 0
    assert kafkalog.verify(tmp_path / "out").ok


def test_in_place_gives_what_a_copy_gives_and_the_backup_has_all_that_changed(tmp_path: Path) -> None:
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


def test_a_dry_run_writes_nothing_and_says_the_same(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    flip(logs(log_dir / "p-txn-0")[2], 100)
    before = content(tmp_path)
    dry = recover(log_dir, dry_run=True)
    assert content(tmp_path) == before
    assert not dry.is_written
    written = recover(log_dir, output=tmp_path / "out")
    assert [one.as_dict() for one in dry.partitions] == [one.as_dict() for one in written.partitions]
    assert repr(dry) == f"RecoveryReport(3 partitions, {dry.n_bytes_lost:,} bytes lost)"


@pytest.mark.parametrize("all_segments", [False, True])
def test_a_segment_that_is_missing_in_the_middle_is_a_note(tmp_path: Path, all_segments: bool) -> None:
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    partition = log_dir / "p-txn-0"
    assert kafkalog.recover(log_dir, dry_run=True, all_segments=all_segments).findings.rows == []
    _, middle, after, *_ = logs(partition)
    for file in partition.glob(f"{middle.stem}.*"):
        file.unlink()
    report = kafkalog.recover(log_dir, dry_run=True, all_segments=all_segments)
    [gap] = report.findings.rows
    assert (gap.reason, gap.damage) == (kafkalog.Reason.OFFSET_GAP, False)
    assert (gap.base_offset, gap.last_offset) == (int(middle.stem), int(after.stem) - 1)
    assert report.is_clean
    assert report.n_bytes_lost == 0


def test_a_partition_is_recovered_alone(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    path = logs(log_dir / "p-txn-0")[-1]
    path.write_bytes(path.read_bytes() + bytes(100))
    report = recover(log_dir / "p-txn-0", output=tmp_path / "p-txn-0")
    assert report.n_bytes_lost == 0
    assert logs(tmp_path / "p-txn-0")[-1].stat().st_size == path.stat().st_size - 100
    assert not report.checkpoints
    recover(log_dir / "p-txn-0", in_place=True, backup=tmp_path / "backup")
    assert content(log_dir / "p-txn-0") == content(tmp_path / "p-txn-0")


def test_what_cannot_be_recovered_is_said_and_there_is_no_marker(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    last = logs(log_dir / "p-ooo-0")[-1]
    data = last.read_bytes()
    last.write_bytes(data + (int(last.stem) + 2**31 + 10).to_bytes(8, "big") + data[8:])
    (log_dir / "p-multi-0" / "notes.log").write_text("mine")
    (log_dir / "lost+found").mkdir()
    (log_dir / MARKER).write_bytes(b"")
    report = recover(log_dir, output=tmp_path / "out")
    errors = {Path(one.path).name: one.error for one in report.partitions if one.error}
    assert set(errors) == {"p-ooo-0", "p-multi-0", "lost+found"}
    assert "splits the segment" in (errors["p-ooo-0"] or "")
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


def test_unreadable_checkpoints_count_as_none(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    (log_dir / RECOVERY_POINTS).write_text("0\n5\nhalf")
    (log_dir / "log-start-offset-checkpoint").write_text("what")
    report = recover(log_dir, output=tmp_path / "out")
    assert [one.reason for one in report.findings.rows] == [Reason.CHECKPOINT_SYNTAX] * 2
    assert {one.action for each in report.partitions for one in each.segments} == {"recovered"}
    assert read_offset_checkpoint(tmp_path / "out" / "log-start-offset-checkpoint") == {}
    assert len(read_offset_checkpoint(tmp_path / "out" / RECOVERY_POINTS) or {}) == 3


def test_it_refuses_what_would_do_harm(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old").write_text("1")
    before = content(tmp_path)
    for options in ({"output": log_dir / "out"}, {"in_place": True, "backup": log_dir / "backup"}):
        with pytest.raises(UnsafePathError):
            recover(log_dir, **options)  # type: ignore[arg-type]
    for options in ({"output": tmp_path / "full"}, {"in_place": True, "backup": tmp_path / "full"}):
        with pytest.raises(OutputExistsError):
            recover(log_dir, **options)  # type: ignore[arg-type]
    wrong: list[dict[str, object]] = [
        {},
        {"output": "x", "in_place": True},
        {"in_place": True},
        {"output": "x", "backup": "y"},
        {"dry_run": True, "stage_in": "x"},
        {"dry_run": True, "threads": 0},
    ]
    for options in wrong:
        with pytest.raises(ValueError):
            recover(log_dir, **options)  # type: ignore[arg-type]
    assert content(tmp_path) == before


def test_it_refuses_where_a_broker_runs(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    with hold_locks([log_dir]):
        for options in ({"output": tmp_path / "out"}, {"in_place": True, "backup": tmp_path / "b"}, {"dry_run": True}):
            with pytest.raises(UnsafePathError, match="a broker holds the lock"):
                recover(log_dir, **options)  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def crash_dir(root: Path) -> Path:
    """A log dir with a cut, deleted segments, and changed indexes, snapshots and epochs."""
    log_dir = small_log_dir(root, ("p-multi-0", "p-txn-0"))
    third = logs(log_dir / "p-txn-0")[2]
    flip(third, third.stat().st_size // 2)
    (log_dir / "p-multi-0" / "leader-epoch-checkpoint").unlink()
    (log_dir / MARKER).write_bytes(b"")
    return log_dir


def killed(n: int, log_dir: Path, **options: object) -> bool:
    """Whether a fork that recovers is killed at its n-th call."""
    child = os.fork()
    if not child:
        with Faulty(n, lambda name: os.kill(os.getpid(), signal.SIGKILL)).installed():
            recover(log_dir, threads=1, **options)  # type: ignore[arg-type]
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_a_copy_that_is_killed_at_any_step_is_absent_or_complete(tmp_path: Path) -> None:
    log_dir = crash_dir(tmp_path)
    before = content(log_dir)
    recover(log_dir, output=tmp_path / "wanted")
    wanted, n = content(tmp_path / "wanted"), 1
    step = 7 if not os.environ.get("KAFKALOG_THOROUGH") else 1
    while killed(n, log_dir, output=tmp_path / "out"):
        if (tmp_path / "out").exists():
            assert content(tmp_path / "out") == wanted
            shutil.rmtree(tmp_path / "out")
        n += step
    assert n > 40
    assert content(tmp_path / "out") == wanted
    assert content(log_dir) == before


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_in_place_killed_at_any_step_nothing_is_lost_and_another_run_finishes(tmp_path: Path) -> None:
    first = crash_dir(tmp_path)
    before = content(first)
    recover(first, output=tmp_path / "wanted")
    wanted = content(tmp_path / "wanted")
    n, step = 1, 7 if not os.environ.get("KAFKALOG_THOROUGH") else 1
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


def test_a_failed_write_leaves_the_partition_as_it_was(tmp_path: Path) -> None:
    log_dir = crash_dir(tmp_path)
    before = content(log_dir)

    def fail(name: str) -> None:
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
        n += 5
    assert n > 40
    assert not list(tmp_path.glob(".*"))
