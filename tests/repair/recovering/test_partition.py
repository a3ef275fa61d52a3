"""Which segments of a partition are recovered, cut or deleted."""

import shutil
from datetime import UTC, datetime

import builder
import golden_sets
import pytest
from files import content, flip
from recoveries import RECOVERY_POINTS, logs, row, small_log_dir

import kafkalog
from kafkalog.errors import CorruptionError, Reason
from kafkalog.repair.recovering.recover import recover
from kafkalog.state.producers import read_snapshot


def test_damage_below_the_recovery_point_is_kept_and_cut_only_if_asked_for(tmp_path):
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


def test_an_old_segment_without_an_index_is_recovered_alone_and_later_ones_stay(tmp_path):
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


def test_a_segment_without_an_index_costs_the_snapshots_behind_it_as_with_a_broker(tmp_path):
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    partition = log_dir / "p-txn-0"
    _, second, third, *_, before, last = logs(partition)
    (log_dir / RECOVERY_POINTS).write_text(f"0\n1\np-txn 0 {int(last.stem) + 1}\n")
    wanted = kafkalog.open(partition).log_end_offset
    second.with_suffix(".index").unlink()
    third.with_suffix(".snapshot").write_bytes(b"bad")
    found = row(recover(log_dir, output=tmp_path / "out", now=0), "p-txn-0")
    left = {int(path.stem) for path in (tmp_path / "out" / "p-txn-0").glob("*.snapshot")}
    assert left == {int(second.stem), int(third.stem), int(before.stem), int(last.stem), wanted}
    clean = golden_sets.partitions("k44")["p-txn-0"]
    for name in (third.with_suffix(".snapshot").name, before.with_suffix(".snapshot").name):
        assert (tmp_path / "out" / "p-txn-0" / name).read_bytes() == (clean / name).read_bytes()
    assert all(name.endswith(".snapshot") for name in found.removed)


def test_a_missing_time_index_below_the_recovery_point_is_made_empty_as_by_a_broker(tmp_path):
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    first, *_, last = logs(log_dir / "p-txn-0")
    (log_dir / RECOVERY_POINTS).write_text(f"0\n1\np-txn 0 {int(last.stem) + 1}\n")
    first.with_suffix(".timeindex").unlink()
    found = row(recover(log_dir, output=tmp_path / "out"), "p-txn-0")
    assert (tmp_path / "out" / "p-txn-0" / first.with_suffix(".timeindex").name).read_bytes() == b""
    assert [(one.n_bytes, one.change) for one in found.files if one.path.endswith(f"{first.stem}.timeindex")] == [
        (0, "new")
    ]


def test_what_a_crash_left_half_done_is_finished(tmp_path):
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


def test_a_log_start_above_the_end_leaves_an_empty_log_there(tmp_path):
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


def test_swap_files_beside_what_they_replace(tmp_path, log_dir_copy):
    """An empty `.swap` replaces the log of its name; one of a snapshot gives way to the snapshot that is built anew."""
    partition = log_dir_copy / "p-txn-0"
    last = sorted(partition.glob("*.log"))[-1]
    (partition / f"{last.name}.swap").write_bytes(b"")
    snapshot = last.with_suffix(".snapshot")
    (partition / f"{snapshot.name}.swap").write_bytes(b"old")
    report = kafkalog.recover(log_dir_copy, output=tmp_path / "recovered", all_segments=True)
    assert report.is_clean
    recovered = tmp_path / "recovered" / "p-txn-0"
    assert not list(recovered.glob("*.swap"))
    assert (recovered / last.name).read_bytes() == b""
    assert (recovered / snapshot.name).read_bytes() != b"old"


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("kind", ["short value", "leader change", "unknown type"])
def test_a_marker_at_which_a_broker_fails_is_named(tmp_path, at_end, kind):
    """Its checksum is right, so that nothing is cut."""
    value = b"\0\0\0" if kind == "short value" else None
    control_type = {"leader change": 2, "unknown type": 77}.get(kind, 1)
    wrong = builder.control_batch(control_type, base_offset=1, producer_id=7, value=value)
    record = builder.record_v2(0, 0, b"k", b"v")
    data = builder.batch_v2([record], transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    behind = builder.batch_v2([record], base_offset=2)
    partition = tmp_path / "t-0"
    partition.mkdir()
    for base, batches in ((0, data + wrong), (2, behind)) if at_end else ((0, data + wrong + behind),):
        for suffix in (".log", ".index", ".timeindex"):
            path = partition / f"{base:020d}{suffix}"
            path.write_bytes(batches if suffix == ".log" else b"")
    path = partition / f"{0:020d}.log"
    report = kafkalog.recover(partition, dry_run=True)
    [finding] = report.findings.rows
    assert (finding.reason, finding.path, finding.position) == (Reason.CONTROL_RECORD, str(path), len(data))
    assert f"{path.name}@{len(data)}" in (report.partitions[0].error or "")
    with pytest.raises(CorruptionError) as raised:
        kafkalog.recover(partition, output=tmp_path / "out")
    assert (raised.value.path, raised.value.position) == (str(path), len(data))
    path.write_bytes(path.read_bytes().replace(wrong, builder.control_batch(1, base_offset=1, producer_id=7)))
    assert kafkalog.recover(partition, output=tmp_path / "out").is_clean


def test_a_file_that_no_broker_loads_is_the_reason(tmp_path):
    partition = small_log_dir(tmp_path, ("p-txn-0",)) / "p-txn-0"
    (partition / "notes.log").write_text("mine")
    report = kafkalog.recover(partition, dry_run=True)
    assert [(one.reason, one.path) for one in report.findings.rows] == [
        (Reason.UNKNOWN_FILE, str(partition / "notes.log"))
    ]
    (partition / "notes.log").unlink()
    index = logs(partition)[0].with_suffix(".txnindex")
    index.write_bytes(b"\1" * 34)
    report = kafkalog.recover(partition, dry_run=True)
    assert [(one.reason, one.path) for one in report.findings.rows] == [(Reason.INDEX_TRANSACTION, str(index))]


def test_producers_that_were_just_replayed_have_not_expired(tmp_path):
    partition = tmp_path / "data" / "p-idem-now-0"
    shutil.copytree(golden_sets.partitions("k44_extra")["p-idem-now-0"], partition)
    last = logs(partition)[-1]
    (tmp_path / "data" / RECOVERY_POINTS).write_text(f"0\n1\np-idem-now 0 {int(last.stem) + 1}\n")
    snapshot = last.with_suffix(".snapshot")
    n_producers = len(read_snapshot(snapshot).entries)
    snapshot.unlink()
    recover(tmp_path / "data", output=tmp_path / "out", now=datetime(2100, 1, 1, tzinfo=UTC))
    found = [
        len(read_snapshot(path).entries) for path in sorted((tmp_path / "out" / "p-idem-now-0").glob("*.snapshot"))
    ]
    assert found[-2:] == [n_producers, n_producers]


def test_a_snapshot_at_the_log_start_offset_goes_as_with_a_broker(tmp_path):
    """Source: ProducerStateManager.truncateAndReload, Kafka 4.3."""
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    first, second, third, *_ = logs(log_dir / "p-txn-0")
    for path in (log_dir / "p-txn-0").glob(f"{first.stem}.*"):
        path.unlink()
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\np-txn 0 {int(second.stem)}\n")
    recover(log_dir, output=tmp_path / "out")
    names = {path.name for path in (tmp_path / "out" / "p-txn-0").glob("*.snapshot")}
    assert f"{second.stem}.snapshot" not in names
    assert f"{third.stem}.snapshot" in names


def test_a_snapshot_between_the_starts_of_segments_goes_as_with_a_broker(tmp_path):
    """Only one past the last segment's start may stay. Source: ProducerStateManager.removeStraySnapshots, Kafka 4.3."""
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    partition = log_dir / "p-txn-0"
    _, second, *_, last = logs(partition)
    (log_dir / RECOVERY_POINTS).write_text(f"0\n1\np-txn 0 {int(last.stem) + 1}\n")
    for path in partition.glob("*.snapshot"):
        if int(path.stem) > int(last.stem):
            path.unlink()
    stray = partition / f"{int(second.stem) + 1:020d}.snapshot"
    shutil.copy(second.with_suffix(".snapshot"), stray)
    found = row(recover(log_dir, output=tmp_path / "out"), "p-txn-0")
    assert stray.name in found.removed
    assert not (tmp_path / "out" / "p-txn-0" / stray.name).exists()
    assert (tmp_path / "out" / "p-txn-0" / second.with_suffix(".snapshot").name).exists()


def test_a_clean_start_keeps_the_preallocated_index_of_the_last_segment(tmp_path):
    shutil.copytree(golden_sets.unpacked("k44"), tmp_path / "data")
    last = max((tmp_path / "data" / "p-multi-0").glob("*.index"))
    with last.open("ab") as file:
        file.write(bytes(80))
    assert not row(kafkalog.preflight(tmp_path / "data"), "p-multi-0").files


@pytest.mark.parametrize(("past", "action"), [(0, "recovered"), (1, "deleted")])
def test_only_a_log_start_offset_past_the_end_empties_the_log(tmp_path, past, action):
    log_dir = small_log_dir(tmp_path, ("p-multi-0",))
    end = kafkalog.open(log_dir / "p-multi-0").log_end_offset
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\np-multi 0 {end + past}\n")
    found = row(recover(log_dir, output=tmp_path / "out"), "p-multi-0")
    assert {one.action for one in found.segments} == {action}
    assert found.log_start_offset == found.log_end_offset == end + past


def test_what_is_cut_off_is_counted_once_and_not_as_offsets_that_go_back_too(partition):
    flip(logs(partition)[-1], 100)
    [row] = kafkalog.recover(partition, dry_run=True).partitions
    assert row.log_end_offset < row.log_end_offset_before
    assert not any("go back" in one.detail for one in row.lost)
    assert row.loss.n_records <= sum(one.n_records or 0 for one in row.lost)
