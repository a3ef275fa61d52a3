"""Rebuilding next to damage: where it stops, which files stay, and what the report has."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import builder
import numpy as np
import pytest
from rebuilds import EPOCHS, batches_of, clock_of, files_in, flip
from refusals import fails_with

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import FileChangedError, Reason
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.operations.rebuilding.rebuilder import KINDS
from kafkalog.state import leader_epochs as epochs
from kafkalog.state.checkpoints import read_leader_epochs
from kafkalog.state.producers import read_snapshot
from kafkalog.storage.own_names import BACKUP_SUFFIX


def test_a_flipped_bit_stops_the_rebuild_at_its_batch_and_before_later_segments(partition):
    path, batches = batches_of(partition, 1)
    row = len(batches) // 2
    start = int(batches.position[row])
    data = path.read_bytes()
    flip(path, start + 70, data[start + 70] ^ 1)
    report = kafkalog.reindex(partition, kinds=KINDS, damaged="cut", dry_run=True)
    (finding,) = report.findings.rows
    assert (finding.reason, finding.position, finding.path) == (Reason.CRC_MISMATCH, start, str(path))
    assert "its indexes also end there" in finding.detail
    assert finding.damage
    base = kafkalog.Partition(partition).segments[1].base_offset
    (index,) = (one for one in report.files if one.path.endswith(f"{base:020d}.index"))
    assert index.n_entries == len(OffsetIndex.build(batches[:row], base, index_interval_bytes=1024))
    assert {Path(one.path).name for one in report.skipped} == {
        segment.path.name for segment in kafkalog.Partition(partition).segments[2:]
    }
    assert not [one for one in report.files if one.change == "removed"], "nothing is thrown away over damage"


@pytest.mark.parametrize("cut", [5, 20, 70])
def test_a_torn_tail_ends_the_rebuild_there(partition, cut):
    path, batches = batches_of(partition, -1)
    start = int(batches.position[-1])
    path.write_bytes(path.read_bytes()[: start + cut])
    report = kafkalog.reindex(partition, kinds=KINDS, dry_run=True)
    (finding,) = report.findings.rows
    assert (finding.reason, finding.position, finding.damage) == (Reason.PARTIAL_TAIL, start, False)
    assert any(one.path.endswith(f"{int(batches.last_offset[-2]) + 1:020d}.snapshot") for one in report.files)


@pytest.mark.parametrize(
    ("at", "value"), [(16, 3), (16, 127), (15, 77)], ids=["magic 3", "magic 127", "leader epoch 77"]
)
def test_what_no_checksum_covers_passes_as_it_does_in_a_broker(partition, at, value):
    path, batches = batches_of(partition)
    before = {file.path: file.n_entries for file in kafkalog.reindex(partition, dry_run=True).files}
    flip(path, int(batches.position[2]) + at, value)
    report = kafkalog.reindex(partition, dry_run=True, damaged="cut", index_interval_bytes=1024)
    assert report.findings.rows == []
    assert {file.path: file.n_entries for file in report.files} == before
    assert {file.change for file in report.files} == {"same"}


def test_an_offset_that_goes_back_passes_until_an_index_entry_needs_it(partition):
    path, batches = batches_of(partition)
    flip(path, int(batches.position[2]) + 6, 3)  # base offset + 768
    passes = kafkalog.reindex(partition, dry_run=True, damaged="cut", index_interval_bytes=2**30)
    assert passes.findings.rows == []
    for index in partition.glob("*index"):
        index.unlink()
    report = kafkalog.reindex(partition, damaged="cut", dry_run=True, index_interval_bytes=0)
    (finding,) = report.findings.rows
    assert (finding.reason, finding.position) == (Reason.OFFSET_ORDER, int(batches.position[3]))
    assert "empties the segment" in finding.detail
    assert {one.n_entries for one in report.files} == {0}


def test_a_magic_byte_that_is_negative_in_java_stops_it(partition):
    path, batches = batches_of(partition)
    flip(path, int(batches.position[2]) + 16, 200)
    (finding,) = kafkalog.reindex(partition, dry_run=True).findings.rows
    assert (finding.reason, finding.position) == (Reason.CRC_MISMATCH, int(batches.position[2]))


@pytest.mark.parametrize("position", ["first", "last"])
def test_a_segment_with_damage_keeps_its_files_unless_asked_otherwise(partition, position, capsys):
    number = 0 if position == "first" else -1
    path, batches = batches_of(partition, number)
    start = int(batches.position[1])
    flip(path, start + 70, path.read_bytes()[start + 70] ^ 1)
    whole = files_in(partition)
    assert main(["reindex", str(partition), "--in-place", "--kinds", ",".join(KINDS), "--now", "0"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"damage: {path}@{start} base_offset={batches.base_offset[1]}: crc_mismatch" in printed.err
    assert (
        f"{path}: offset, time and txn are not rebuilt: its .log is damaged, so its old files stay;"
        ' damaged="cut" (--damaged cut) writes indexes that end before the damage'
    ) in printed.err
    assert files_in(partition) == whole
    assert main(["reindex", "-q", str(partition), "--in-place", "--damaged", "cut"]) == 1
    after = files_in(partition)
    assert {name for name, data in after.items() if whole.get(name) != data} == {
        f"{path.stem}{suffix}"
        for ending in ("", BACKUP_SUFFIX)
        for suffix in (f".index{ending}", f".timeindex{ending}")
    }
    assert after[f"{path.stem}.index{BACKUP_SUFFIX}"] == whole[f"{path.stem}.index"]
    with pytest.raises(ValueError, match="damaged"):
        kafkalog.reindex(partition, dry_run=True, damaged="skip")


@pytest.mark.parametrize(("at", "value", "reason"), [(16, 3, Reason.BAD_MAGIC), (6, 3, Reason.OFFSET_ORDER)])
@pytest.mark.parametrize("number", [0, -1])
def test_damage_that_recovery_does_not_notice_leaves_a_segment_alone_too(partition, number, at, value, reason, capsys):
    path, batches = batches_of(partition, number)
    flip(path, int(batches.position[1]) + at, value)
    for index in partition.glob(f"{path.stem}.*index"):
        index.write_bytes(b"old")
    whole = files_in(partition)
    assert main(["reindex", str(partition), "--in-place", "--kinds", ",".join(KINDS), "--now", "0"]) == 1
    printed = capsys.readouterr()
    assert reason.value in printed.err
    assert f"{path}: offset, time and txn are not rebuilt: its .log is damaged" in printed.err
    assert {name for name, data in files_in(partition).items() if whole.get(name) != data} == set()
    report = kafkalog.reindex(partition, dry_run=True)
    assert [(finding.reason, finding.damage, finding.path) for finding in report.findings.rows] == [
        (reason, True, str(path))
    ]


def test_segments_behind_damage_get_the_indexes_that_do_not_depend_on_it(log_dir, tmp_path):
    directory = shutil.copytree(log_dir / "p-txn-0", tmp_path / "p-txn-0")
    options = {"kinds": KINDS, "index_interval_bytes": 1024, "now": 1_700_000_100_000}
    kafkalog.reindex(directory, in_place=True, backup=False, **options)
    log = directory / f"{156:020d}.log"
    flip(log, 70, log.read_bytes()[70] ^ 1)
    whole = files_in(directory)
    for path in directory.iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.write_bytes(b"old")
    report = kafkalog.reindex(directory, in_place=True, **options)
    after = files_in(directory)
    kept = {f"{offset:020d}.txnindex" for offset in (164, 304)} | {
        f"{offset:020d}.snapshot" for offset in (164, 300, 304, 430)
    }
    kept |= {f"{156:020d}.{suffix}" for suffix in ("index", "timeindex")}
    assert {name for name in whole if after[name] == b"old"} == kept
    assert {name: data for name, data in after.items() if name in whole.keys() - kept} == {
        name: data for name, data in whole.items() if name not in kept
    }
    assert [(finding.reason, finding.path) for finding in report.findings.rows] == [(Reason.CRC_MISMATCH, str(log))]
    skipped = {(Path(one.path).name, one.kind) for one in report.skipped}
    assert skipped == {(log.name, kind) for kind in ("offset", "time", "txn")} | {("p-txn-0", "snapshot")} | {
        (f"{offset:020d}.log", "txn") for offset in (164, 300, 304)
    }
    assert {file.backup for file in report.files} == {
        f"{file.path}{BACKUP_SUFFIX}" for file in report.files if file.change == "changed"
    } | {None}


def test_an_epoch_without_a_batch_is_not_lost(partition):
    end = kafkalog.Partition(partition).log_end_offset
    (partition / EPOCHS).write_bytes(b"0\n2\n0 0\n9 %d\n" % end)
    kafkalog.reindex(partition, kinds=["epochs"], in_place=True)
    kept = read_leader_epochs(partition / EPOCHS)
    assert kept is not None
    assert kept.tolist() == [(0, 0), (9, end)]
    assert epochs.merge(None, [(0, 0), (2, 10)], 20) == [(0, 0), (2, 10)]
    assert epochs.truncate_from_start([(0, 0), (2, 10), (3, 15)], 12) == [(2, 12), (3, 15)]
    assert epochs.truncate_from_start([(0, 20)], 12) == [(0, 20)]


def test_an_epoch_that_the_batches_contradict_is_left_out(partition):
    for start in (143, 100, 1):
        (partition / EPOCHS).write_bytes(b"0\n2\n0 0\n8 %d\n" % start)
        assert not kafkalog.verify(partition).ok
        report = kafkalog.reindex(partition, kinds=["epochs"], in_place=True)
        assert report.count("changed") == 1
        assert (partition / EPOCHS).read_bytes() == b"0\n1\n0 0\n"
        assert kafkalog.verify(partition).ok


def test_what_is_behind_a_file_that_changes_is_not_said_to_be_deleted_by_recovery(partition, monkeypatch):
    changing, later, *_ = sorted(partition.glob("*.log"))
    whole = kafkalog.Segment.open

    def opened(segment):
        if segment.path == changing:
            raise FileChangedError(Reason.FILE_CHANGED, "was written to while it was read", path=segment.path)
        return whole(segment)

    target = kafkalog.Partition(partition)
    monkeypatch.setattr(kafkalog.Segment, "open", opened)
    report = kafkalog.reindex(target, dry_run=True)
    assert [finding.reason for finding in report.findings.rows] == [Reason.FILE_CHANGED]
    assert {skipped.why for skipped in report.skipped} == {
        f"{changing.name} before it could not be read to its end (file_changed)"
    }
    assert str(later) in {skipped.path for skipped in report.skipped}


def test_an_index_that_a_broker_has_no_room_for_is_said(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    message = np.frombuffer(builder.message(0, magic=0), np.uint8)
    log = np.tile(message, (10 * 2**20 // 8 + 2, 1))  # all but the first get an entry
    log[:, :8] = np.arange(len(log), dtype=">i8").view(np.uint8).reshape(-1, 8)
    for n, reasons in ((len(log) - 1, []), (len(log), [Reason.INDEX_SIZE])):
        log[:n].tofile(directory / f"{0:020d}.log")
        report = kafkalog.reindex(directory, dry_run=True, index_interval_bytes=0)
        assert [file.n_entries for file in report.files] == ([0] if reasons else [n - 1, 0])
        assert [finding.reason for finding in report.findings.rows] == reasons


def test_one_partition_that_cannot_be_written_leaves_the_others_to_be_done(log_dir_copy, capsys):
    healthy = files_in(log_dir_copy)
    bad = log_dir_copy / "p-multi-1" / f"{0:020d}.index"
    for path in log_dir_copy.rglob("*index"):
        path.unlink()
    bad.mkdir()
    with fails_with("unsafe_path") as raised:
        kafkalog.reindex(log_dir_copy, dry_run=True, index_interval_bytes=4096)
    assert raised.value.path == str(bad)
    assert main(["reindex", str(log_dir_copy), "--in-place", "-q", "--index-interval-bytes", "4096"]) == 6
    printed = capsys.readouterr()
    assert f"{bad}: unsafe_path" in printed.err
    assert "run it again" in printed.err
    made = {path for path in log_dir_copy.rglob("*index") if path != bad}
    assert {line.split()[-1] for line in printed.out.splitlines()} == {str(path) for path in made}
    bad.rmdir()
    report = kafkalog.reindex(log_dir_copy, in_place=True, index_interval_bytes=4096)
    assert {Path(file.path).parent.name for file in report.files if file.change != "same"} == {"p-multi-1"}
    assert files_in(log_dir_copy).keys() - {".lock"} == healthy.keys()


def test_a_stale_transaction_index_is_emptied_and_a_dry_run_says_so(partition, tmp_path):
    stale = partition / "00000000000000000000.txnindex"
    assert not stale.exists()
    stale.write_bytes(bytes(34))
    for options in ({"dry_run": True}, {"output": tmp_path / "out"}, {"in_place": True}):
        report = kafkalog.reindex(partition, kinds="txn", **options)
        (file,) = report.files
        assert (file.path, file.n_entries, file.change) == (str(stale), 0, "changed")
    assert stale.read_bytes() == (tmp_path / "out" / partition.name / stale.name).read_bytes() == b""


def test_the_command_says_what_changes(partition, capsys):
    (partition / "00000000000000000000.index").unlink()
    assert main(["reindex", str(partition), "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split()[:4] == ["new", "offset", "6", "entries"]
    assert printed.out.count("\n") == 1
    assert "1 new, 7 same" in printed.err
    assert main(["reindex", str(partition), "--dry-run", "--json", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 8
    assert rows[0]["change"] == "new"
    assert main(["reindex", str(partition)]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--kinds", "all"]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--backup"]) == 2
    assert not (partition / "00000000000000000000.index").exists()


def test_producers_expire_only_by_a_time_that_is_given(partition, tmp_path):
    def n_producers(name, *options):
        assert main(["reindex", "-q", str(partition), "--kinds", "snapshot", "-o", str(tmp_path / name), *options]) == 0
        # the last one follows from one that was loaded
        return len(read_snapshot(max((tmp_path / name / partition.name).glob("*.snapshot"))).entries)

    newest = clock_of("k44_extra")
    a_day_on = datetime.fromtimestamp(newest / 1000, UTC) + timedelta(days=1, seconds=1)
    there = n_producers("default")
    assert there == len(read_snapshot(max(partition.glob("*.snapshot"))).entries) > 0
    assert n_producers("then", "--now", str(newest)) == there
    assert n_producers("later", "--now", a_day_on.isoformat()) < there
    stale = kafkalog.reindex(partition, kinds="snapshot", dry_run=True, now=a_day_on)
    assert stale.count("changed") > 0
    with pytest.raises(ValueError, match="now"):
        kafkalog.reindex(partition, dry_run=True, now=a_day_on.replace(tzinfo=None))
