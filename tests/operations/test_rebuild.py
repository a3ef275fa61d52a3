"""Rebuilt files are, byte for byte, those that brokers rebuilt; damage stops where a broker's recovery stops."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import builder
import golden_sets
import numpy as np
import pytest
from faults import Faulty

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import FileChangedError, KafkalogError, OutputExistsError, Reason, UnsafePathError
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.log.recovery import rows_to_replay
from kafkalog.operations.rebuilding.index_interval import _roundest, interval_bounds
from kafkalog.operations.rebuilding.outputs import BACKUP_SUFFIX
from kafkalog.operations.rebuilding.rebuilder import KINDS
from kafkalog.state import leader_epochs as epochs
from kafkalog.state.checkpoints import read_leader_epochs
from kafkalog.state.cluster_metadata import TOPIC, read_cluster_metadata
from kafkalog.state.producers import ProducerState, read_snapshot

EPOCHS = "leader-epoch-checkpoint"


def interval_of(set_name: str, directory: str) -> int | None:
    """What the topics of a set were made with; None where the cluster's metadata says it."""
    if set_name == "k28":
        return 4096 if directory.startswith("__") or "-vintage-" in directory or "-big-" in directory else 1024
    if set_name == "k44_extra":
        return 512 if "-compact-" in directory else 1024
    return None


def clock_of(set_name: str) -> int:
    """When the broker rebuilt, near enough: the time of the newest marker, which is the broker's own."""
    markers = [0]
    for path in golden_sets.partitions(set_name).values():
        for segment in kafkalog.Partition(path).segments:
            batches = segment.batches
            markers.append(int(batches.max_timestamp[batches.is_control].max(initial=0)))
    return max(markers)


def files_in(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def rebuilt(set_name: str, tmp_path: Path, **options: Any) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What we make of a set's `.log` files, and what the broker made."""
    expected = files_in(golden_sets.unpacked(set_name, "rebuilt"))
    names = sorted({name.partition("/")[0] for name in expected})
    log_dir = tmp_path / "logs"
    shutil.copytree(golden_sets.unpacked(set_name), log_dir)
    for path in log_dir.rglob("*"):  # out of the .log files alone
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.unlink()
    ours: dict[str, bytes] = {}
    for name in names:
        out = tmp_path / "out" / name
        out.parent.mkdir(exist_ok=True)
        report = kafkalog.reindex(
            log_dir / name,
            kinds=KINDS,
            output=out,
            index_interval_bytes=interval_of(set_name, name),
            now=clock_of(set_name),
            **options,
        )
        assert not report.findings.n_damage
        ours |= files_in(out)
    return ours, expected


def but_for_the_reboot(content: bytes, log_end_offset: int) -> list[list[int]]:
    """Epochs that begin before the end of the log: elections without a batch, such as the reboot's, come and go."""
    _, _, *lines = content.decode().splitlines()
    return [entry for line in lines if (entry := [int(word) for word in line.split()])[1] < log_end_offset]


@pytest.mark.parametrize(("set_name", "n_files"), [("k44", 343), ("k28", 302), ("k44_extra", 53)])
def test_every_file_that_a_broker_rebuilt_is_reproduced(set_name: str, n_files: int, tmp_path: Path) -> None:
    """Byte for byte, but for one kind of file: `leader-epoch-checkpoint` has the epoch of the broker's reboot."""
    ours, expected = rebuilt(set_name, tmp_path, threads=2)
    assert len(expected) >= n_files
    n_epochs = 0
    for name in sorted(expected):
        if not name.endswith(EPOCHS):
            assert ours[name] == expected[name], name
            continue
        end = kafkalog.Partition(golden_sets.unpacked(set_name) / name.partition("/")[0]).log_end_offset
        assert but_for_the_reboot(ours.get(name, b"0\n0\n"), end) == but_for_the_reboot(expected[name], end), name
        n_epochs += 1
    assert n_epochs > 3
    assert not [name for name in ours if name not in expected and not name.endswith(EPOCHS)]


def test_what_is_not_there_to_go_by_is_found_out(tmp_path: Path) -> None:
    configs = read_cluster_metadata(golden_sets.unpacked("k44"))
    assert configs is not None
    assert configs.findings == []
    assert configs.settings[TOPIC, "p-mixcodec"]["index.interval.bytes"] == "2048"
    report = kafkalog.reindex(golden_sets.unpacked("k44"), dry_run=True)
    assert report.intervals["p-mixcodec-0"] == (2048, "cluster metadata")
    assert report.intervals["p-dense-0"] == (0, "cluster metadata")
    alone = kafkalog.reindex(golden_sets.unpacked("k44_extra"), dry_run=True)
    assert {origin for _, origin in alone.intervals.values()} == {"existing indexes"}
    assert alone.intervals["p-idem-now-0"].n_bytes == 1024
    shutil.copytree(golden_sets.unpacked("k44_extra") / "p-idem-now-0", tmp_path / "p-idem-now-0")
    for path in tmp_path.rglob("*.index"):
        path.unlink()
    assert kafkalog.reindex(tmp_path, dry_run=True).intervals["p-idem-now-0"] == (4096, "default")
    assert kafkalog.reindex(tmp_path, dry_run=True, index_interval_bytes=7).intervals["p-idem-now-0"][1] == ("given")


def test_the_bounds_of_an_interval_are_those_that_give_the_same_index() -> None:
    n_bounded = 0
    for path in golden_sets.partitions("k44").values():
        for segment in kafkalog.Partition(path).segments:
            bounds = interval_bounds(segment)
            if bounds is None or segment.offset_index is None:
                continue
            n_bounded += 1
            least, most = bounds

            def entries(interval: int, segment: kafkalog.Segment = segment) -> bytes:
                built = OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=interval)
                return built.entries.tobytes()

            right = segment.offset_index.entries.tobytes()
            assert entries(least) == entries(most) == right
            assert least == 0 or entries(least - 1) != right
            assert entries(most + 1) != right
    assert n_bounded > 30


def test_a_built_index_finds_what_is_there() -> None:
    (segment, *_) = kafkalog.Partition(golden_sets.unpacked("k44") / "p-none-java-0").segments
    index = OffsetIndex.build(segment.batches, segment.base_offset)
    times = TimeIndex.build(segment.batches, segment.base_offset)
    assert len(index) == 7
    assert len(times) == len(index)
    assert times.timestamp[-1] == segment.batches.max_timestamp.max()
    with pytest.raises(ValueError, match="offset_outside_segment"):
        OffsetIndex.build(segment.batches, segment.base_offset + 10_000)
    with pytest.raises(ValueError, match="negative"):
        OffsetIndex.build(segment.batches, 0, index_interval_bytes=-1)


def test_leaving_out_rows_leaves_producers_as_they_would_be() -> None:
    n_left_out = 0
    for set_name in ("k44", "k44_extra"):
        for path in golden_sets.partitions(set_name).values():
            whole, some = ProducerState(), ProducerState()
            for segment in kafkalog.Partition(path).segments:
                batches = segment.batches
                rows = rows_to_replay(batches)
                n_left_out += int((batches.producer_id >= 0).sum()) - rows.size
                told = batches[rows]
                ended = whole.update(batches, place=batches.base_offset).tolist()
                assert some.update(told, place=told.base_offset).tolist() == ended
                assert some.entries().tobytes() == whole.entries().tobytes()
    assert n_left_out > 100


# damage: (where and what, position where Kafka's table says that recovery stops)
@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A copy of a partition of three batches a segment or more, to damage."""
    target = tmp_path / "data" / "p-idem-now-0"
    shutil.copytree(golden_sets.unpacked("k44_extra") / "p-idem-now-0", target)
    return target


def batches_of(partition: Path, number: int = 0) -> tuple[Path, Any]:
    segment = kafkalog.Partition(partition).segments[number]
    return segment.path, segment.batches


def flip(path: Path, position: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] = value
    path.write_bytes(data)


def test_a_flipped_bit_stops_the_rebuild_at_its_batch_and_before_later_segments(partition: Path) -> None:
    path, batches = batches_of(partition, 1)
    row = len(batches) // 2
    start = int(batches.position[row])
    data = path.read_bytes()
    flip(path, start + 70, data[start + 70] ^ 1)
    report = kafkalog.reindex(partition, kinds=KINDS, damaged="cut", dry_run=True)
    (finding,) = report.findings.rows
    assert (finding.reason, finding.position, finding.path) == (Reason.CRC_MISMATCH, start, str(path))
    assert "its indexes end there, too" in finding.detail
    assert finding.damage
    base = kafkalog.Partition(partition).segments[1].base_offset
    (index,) = (one for one in report.files if one.path.endswith(f"{base:020d}.index"))
    assert index.n_entries == len(OffsetIndex.build(batches[:row], base, index_interval_bytes=1024))
    assert {Path(one.path).name for one in report.skipped} == {
        segment.path.name for segment in kafkalog.Partition(partition).segments[2:]
    }
    assert not [one for one in report.files if one.change == "removed"], "nothing is thrown away over damage"


@pytest.mark.parametrize("cut", [5, 20, 70])
def test_a_torn_tail_ends_the_rebuild_there(partition: Path, cut: int) -> None:
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
def test_what_no_checksum_covers_passes_as_it_does_in_a_broker(partition: Path, at: int, value: int) -> None:
    path, batches = batches_of(partition)
    before = {file.path: file.n_entries for file in kafkalog.reindex(partition, dry_run=True).files}
    flip(path, int(batches.position[2]) + at, value)
    report = kafkalog.reindex(partition, dry_run=True, damaged="cut", index_interval_bytes=1024)
    assert report.findings.rows == []
    assert {file.path: file.n_entries for file in report.files} == before
    assert {file.change for file in report.files} == {"same"}


def test_an_offset_that_goes_back_passes_until_an_index_entry_needs_it(partition: Path) -> None:
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


def test_a_magic_byte_that_is_negative_in_java_stops_it(partition: Path) -> None:
    path, batches = batches_of(partition)
    flip(path, int(batches.position[2]) + 16, 200)
    (finding,) = kafkalog.reindex(partition, dry_run=True).findings.rows
    assert (finding.reason, finding.position) == (Reason.BAD_MAGIC, int(batches.position[2]))


def test_in_place_replaces_what_is_wrong_and_keeps_the_old(partition: Path) -> None:
    whole = files_in(partition)
    first = partition / "00000000000000000000.index"
    first.write_bytes(b"\0" * 13)
    (partition / "00000000000000000070.timeindex").unlink()
    (partition / "00000000000000000070.snapshot").write_bytes(b"\1")
    (partition / "00000000000000000099.snapshot").write_bytes(b"left over")
    (partition / EPOCHS).unlink()
    assert main(["reindex", "-q", str(partition), "--in-place", "--backup", "--kinds", ",".join(KINDS)]) == 0
    after = files_in(partition)
    backups = {name: after.pop(name) for name in list(after) if name.endswith(BACKUP_SUFFIX)}
    assert after == whole or {**after, EPOCHS: b""} == {**whole, EPOCHS: b""}
    assert set(backups) == {
        f"{name}{BACKUP_SUFFIX}"
        for name in (first.name, "00000000000000000070.snapshot", "00000000000000000099.snapshot")
    }
    assert backups[first.name + BACKUP_SUFFIX] == b"\0" * 13
    assert kafkalog.reindex(partition, in_place=True).count("same") == 8


@pytest.mark.parametrize("position", ["first", "last"])
def test_a_segment_with_damage_keeps_its_files_unless_asked_otherwise(
    partition: Path, position: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
        f"{path}: offset, time and txn are not rebuilt: its .log is damaged, so the files there are kept;"
        ' damaged="cut" (--damaged cut) makes indexes that end before the damage'
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
    with pytest.raises(ValueError, match="damaged must be 'keep' or 'cut', not 'skip'"):
        kafkalog.reindex(partition, dry_run=True, damaged="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize(("at", "value", "reason"), [(16, 3, Reason.BAD_MAGIC), (6, 3, Reason.OFFSET_ORDER)])
@pytest.mark.parametrize("number", [0, -1])
def test_damage_that_recovery_does_not_notice_leaves_a_segment_alone_too(
    partition: Path, number: int, at: int, value: int, reason: Reason, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_segments_behind_damage_get_the_indexes_that_do_not_depend_on_it(log_dir: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(log_dir / "p-txn-0", tmp_path / "p-txn-0")
    options: dict[str, Any] = {"kinds": KINDS, "index_interval_bytes": 1024, "now": 1_700_000_100_000}
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


def test_a_backup_is_never_replaced_and_may_be_left_out(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = partition / f"{0:020d}.index"
    whole = index.read_bytes()
    for number, old in enumerate((b"first", b"second", b"first"), 1):
        index.write_bytes(old)
        assert main(["reindex", str(partition), "--in-place"]) == 0
        assert index.read_bytes() == whole
        assert "1 old file kept beside the new ones as NAME.kafkalog-backup" in capsys.readouterr().err, number
    backups = {name: data for name, data in files_in(partition).items() if BACKUP_SUFFIX in name}
    assert backups == {index.name + BACKUP_SUFFIX: b"first", f"{index.name}{BACKUP_SUFFIX}-2": b"second"}
    index.write_bytes(b"third")
    assert main(["reindex", str(partition), "--in-place", "--no-backup"]) == 0
    assert "backup" not in capsys.readouterr().err
    assert {name: data for name, data in files_in(partition).items() if BACKUP_SUFFIX in name} == backups
    assert kafkalog.verify(partition).is_ok


def test_producers_expire_only_by_a_time_that_is_given(partition: Path, tmp_path: Path) -> None:
    def n_producers(name: str, *options: str) -> int:
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
    with pytest.raises(ValueError, match="now is a naive datetime"):
        kafkalog.reindex(partition, dry_run=True, now=a_day_on.replace(tzinfo=None))


def test_an_epoch_without_a_batch_is_not_lost(partition: Path) -> None:
    end = kafkalog.Partition(partition).log_end_offset
    (partition / EPOCHS).write_bytes(b"0\n2\n0 0\n9 %d\n" % end)
    kafkalog.reindex(partition, kinds=["epochs"], in_place=True)
    kept = read_leader_epochs(partition / EPOCHS)
    assert kept is not None
    assert kept.tolist() == [(0, 0), (9, end)]
    assert epochs.merge(None, [(0, 0), (2, 10)], 20) == [(0, 0), (2, 10)]
    assert epochs.truncate_from_start([(0, 0), (2, 10), (3, 15)], 12) == [(2, 12), (3, 15)]
    assert epochs.truncate_from_start([(0, 20)], 12) == [(0, 20)]


def test_an_epoch_that_the_batches_contradict_is_left_out(partition: Path) -> None:
    for start in (143, 100, 1):
        (partition / EPOCHS).write_bytes(b"0\n2\n0 0\n8 %d\n" % start)
        assert not kafkalog.verify(partition).is_ok
        report = kafkalog.reindex(partition, kinds=["epochs"], in_place=True)
        assert report.count("changed") == 1
        assert (partition / EPOCHS).read_bytes() == b"0\n1\n0 0\n"
        assert kafkalog.verify(partition).is_ok


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_written_where_a_link_leads(partition: Path, tmp_path: Path, there: bool) -> None:
    path, outside = batches_of(partition)[0].with_suffix(".index"), tmp_path / "outside"
    path.unlink()
    path.symlink_to(outside)
    if there:
        outside.write_bytes(b"theirs")
    with pytest.raises(UnsafePathError, match="leads out of the partition"):
        kafkalog.reindex(partition, in_place=True)
    assert path.is_symlink()
    assert outside.exists() == there
    assert not there or outside.read_bytes() == b"theirs"


def test_a_segment_alone_says_what_it_cannot_tell(partition: Path, tmp_path: Path) -> None:
    path, _ = batches_of(partition, 2)
    shutil.copy(path, tmp_path)
    report = kafkalog.reindex(tmp_path / path.name, kinds=KINDS, dry_run=True)
    assert {file.kind for file in report.files} == {"offset", "time"}
    assert {skipped.kind for skipped in report.skipped} == {"txn", "snapshot", "epochs"}
    inside = kafkalog.reindex(path, kinds=KINDS[:4], dry_run=True, now=clock_of("k44_extra"))
    assert inside.skipped == []
    assert {file.change for file in inside.files} == {"same"}
    assert {file.kind for file in inside.files} == {"offset", "time", "snapshot"}


def test_a_running_broker_is_not_disturbed(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = partition.parent / ".lock"
    lock.touch()
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UnsafePathError, match="stop it first"):
            kafkalog.reindex(partition, in_place=True)
        assert main(["reindex", str(partition), "--in-place"]) == 6
        holder.communicate("\n")
    assert "a broker holds the lock" in capsys.readouterr().err
    assert main(["reindex", "-q", str(partition), "--in-place"]) == 0


def test_output_into_the_log_dir_is_refused(partition: Path, tmp_path: Path) -> None:
    (partition.parent / "meta.properties").touch()  # what makes it a broker's
    for out in (partition / "new", partition.parent / "new"):
        with pytest.raises(UnsafePathError):
            kafkalog.reindex(partition, output=out)
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputExistsError):
        kafkalog.reindex(partition, output=tmp_path / "there")


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from faults import Faulty
import kafkalog.operations.rebuilding.rebuild
damaged, root = Path(sys.argv[1]), Path(sys.argv[2])
for n in range(1, 10**6, int(sys.argv[3])):
    target = root / str(n) / damaged.name
    shutil.copytree(damaged, target)
    child = os.fork()
    if not child:
        with Faulty(n, lambda name: os.kill(os.getpid(), signal.SIGKILL)).installed():
            kafkalog.reindex(target, kinds=kafkalog.operations.rebuilding.rebuild.KINDS, in_place=True, now=0)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        print(n)
        sys.exit(os.WEXITSTATUS(status))
"""


@pytest.mark.slow
def test_killed_anywhere_each_file_is_old_or_new(partition: Path, tmp_path: Path) -> None:
    for path in partition.iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot"):
            path.write_bytes(b"damaged")
    old = files_in(partition)
    new_place = tmp_path / "new" / partition.name
    shutil.copytree(partition, new_place)
    kafkalog.reindex(new_place, kinds=KINDS, in_place=True, now=0)
    new = files_in(new_place)
    command = [sys.executable, "-c", KILLED, str(partition), str(tmp_path / "killed"), "3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment)
    states = set()
    for root in sorted((tmp_path / "killed").iterdir()):
        found = files_in(root / partition.name)
        staged = [name for name in found if name.startswith(".")]
        assert len(staged) <= 1
        for name in old:
            assert found[name] in (old[name], new[name]), name
        states.add(sum(found[name] == new[name] != old[name] for name in old))
        kafkalog.reindex(root / partition.name, kinds=KINDS, in_place=True, now=0)
        again = files_in(root / partition.name)
        assert {name: again[name] for name in new} == new
    assert len(states) > 8, "a kill came before, between and behind the files"
    assert int(done.stdout) > 100


def hostile(rng: np.random.Generator, data: bytes) -> bytes:
    """A derived file, damaged."""
    kind = int(rng.integers(5))
    if kind == 0:
        return data[: int(rng.integers(len(data) + 1))]
    if kind == 1:
        return rng.bytes(int(rng.integers(200)))
    if kind == 2:
        return data + bytes(int(rng.integers(1, 5000)))
    if kind == 3:
        return b"\xff" * len(data)
    changed = bytearray(data or b"\0")
    for at in rng.integers(len(changed), size=3).tolist():
        changed[at] = int(rng.integers(256))
    return bytes(changed)


def derived(partition: Path) -> Iterator[Path]:
    yield from (path for path in sorted(partition.iterdir()) if path.suffix not in (".log", ".metadata"))


def test_one_kind_may_be_named_without_a_list(partition: Path) -> None:
    one = kafkalog.reindex(partition, kinds="offset", dry_run=True)
    listed = kafkalog.reindex(partition, kinds=["offset"], dry_run=True)
    assert [file.path for file in one.files] == [file.path for file in listed.files]
    assert {file.kind for file in one.files} == {"offset"}
    with pytest.raises(ValueError, match="no kind 'offsets'; there are offset"):
        kafkalog.reindex(partition, kinds="offsets", dry_run=True)  # type: ignore[arg-type]


@pytest.mark.slow
def test_damaged_derived_files_never_matter_to_a_rebuild(partition: Path) -> None:
    rng = np.random.default_rng(5)
    options = {"kinds": KINDS, "index_interval_bytes": 1024, "now": clock_of("k44_extra")}
    kafkalog.reindex(partition, in_place=True, backup=False, **options)  # type: ignore[arg-type]
    right = files_in(partition)
    segments = kafkalog.Partition(partition).segments
    for number in range(120):
        for path in derived(partition):
            path.write_bytes(hostile(rng, right[path.name]))
        try:
            kafkalog.reindex(segments[number % 4].path, kinds=KINDS, dry_run=True)
            report = kafkalog.reindex(partition, kinds=KINDS, dry_run=True)
        except KafkalogError as error:
            pytest.fail(f"{error} in round {number}")
        assert {finding.reason for finding in report.findings.rows} <= {Reason.CHECKPOINT_SYNTAX}
        (partition / EPOCHS).unlink()
        kafkalog.reindex(partition, in_place=True, backup=False, **options)  # type: ignore[arg-type]
        assert {**files_in(partition), EPOCHS: b""} == {**right, EPOCHS: b""}


def test_a_damaged_log_gives_findings_and_never_a_crash(partition: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    path, _ = batches_of(partition, 1)
    data = path.read_bytes()
    n_found = 0
    for _ in range(150):
        path.write_bytes(hostile(rng, data))
        report = kafkalog.reindex(partition, kinds=KINDS, dry_run=True, threads=2)
        n_found += bool(report.findings.rows)
        for finding in report.findings.rows:
            assert finding.position is None or 0 <= finding.position <= path.stat().st_size
    assert n_found > 100


def test_what_is_behind_a_file_that_changes_is_not_said_to_be_deleted_by_recovery(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing, later, *_ = sorted(partition.glob("*.log"))
    whole = kafkalog.Segment.open

    def opened(segment: kafkalog.Segment) -> Any:
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


def test_the_command_says_what_changes(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / "00000000000000000000.index").unlink()
    assert main(["reindex", str(partition), "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split()[:4] == ["new", "offset", "6", "entries"]
    assert printed.out.count("\n") == 1
    assert "8 files would be 1 new, 7 same" in printed.err
    assert main(["reindex", str(partition), "--dry-run", "--json", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 8
    assert rows[0]["change"] == "new"
    assert main(["reindex", str(partition)]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--kinds", "all"]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--backup"]) == 2
    assert not (partition / "00000000000000000000.index").exists()


def test_options_that_make_no_sense_are_refused(partition: Path) -> None:
    for options in (
        {},
        {"in_place": True, "output": "x"},
        {"dry_run": True, "backup": True},
        {"dry_run": True, "threads": 0},
    ):
        with pytest.raises(ValueError, match=r"say where|backup|threads"):
            kafkalog.reindex(partition, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no kind"):
        kafkalog.reindex(partition, dry_run=True, kinds=["all"])  # type: ignore[list-item]


def test_an_interrupted_write_is_an_error_and_leaves_each_file_old_or_new(partition: Path) -> None:
    def fail(name: str) -> None:
        raise OSError(28, "No space left on device")

    healthy = files_in(partition)
    names = ("00000000000000000000.index", "00000000000000000000.timeindex")
    left = set()
    for step in range(1, 200):
        for name in names:
            (partition / name).write_bytes(b"old")
        fault = Faulty(step, fail)
        with fault.installed():
            try:
                kafkalog.reindex(partition, in_place=True, backup=False)
            except kafkalog.WriteError:
                assert fault.n_calls >= step
            else:
                assert fault.n_calls < step or files_in(partition) == healthy
        after = files_in(partition)
        assert after.keys() == healthy.keys(), step
        assert all(
            after[name] == (b"old" if name in names else data) or after[name] == data for name, data in healthy.items()
        )
        left.add(tuple(after[name] == b"old" for name in names))
        if fault.n_calls < step:
            break
    else:
        raise AssertionError("it never came to its end")
    assert after == healthy
    assert left == {(True, True), (False, True), (False, False)}


def test_an_index_that_a_broker_has_no_room_for_is_said(tmp_path: Path) -> None:
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


def test_one_partition_that_cannot_be_written_leaves_the_others_to_be_done(
    log_dir_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy = files_in(log_dir_copy)
    bad = log_dir_copy / "p-multi-1" / f"{0:020d}.index"
    for path in log_dir_copy.rglob("*index"):
        path.unlink()
    bad.mkdir()
    with pytest.raises(UnsafePathError, match="not a regular file") as raised:
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


def test_a_stale_transaction_index_is_emptied_and_a_dry_run_says_so(partition: Path, tmp_path: Path) -> None:
    stale = partition / "00000000000000000000.txnindex"
    assert not stale.exists()
    stale.write_bytes(bytes(34))
    for options in ({"dry_run": True}, {"output": tmp_path / "out"}, {"in_place": True}):
        report = kafkalog.reindex(partition, kinds="txn", **options)  # type: ignore[arg-type]
        (file,) = report.files
        assert (file.path, file.n_entries, file.change) == (str(stale), 0, "changed")
    assert stale.read_bytes() == (tmp_path / "out" / partition.name / stale.name).read_bytes() == b""


def test_who_reads_the_output_may_go_before_the_work_is_done(partition: Path) -> None:
    names = files_in(partition).keys()
    for path in partition.glob("*index"):
        path.unlink()
    program = "import sys; from kafkalog.cli.app import main; sys.exit(main(sys.argv[1:]))"
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", program, "reindex", "--in-place", str(partition)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode not in (0, 70), done.stderr
    assert files_in(partition).keys() == names
    assert kafkalog.verify(partition).is_ok


def test_segments_that_are_named_are_no_partition_of_their_own(log_dir: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(log_dir / "p-txn-0", tmp_path / "p-txn-0")
    kafkalog.reindex(directory, in_place=True, backup=False, kinds=KINDS, now=1_700_000_100_000)
    whole = files_in(directory)
    named = [directory / f"{offset:020d}.log" for offset in (164, 300)]
    mine = {f"{offset:020d}.{suffix}" for offset in (164, 300) for suffix in ("index", "timeindex", "txnindex")}
    mine |= {f"{offset:020d}.snapshot" for offset in (300, 304)}  # that of 164 is what the replay begins with
    for path in directory.iterdir():
        if path.name in mine and path.suffix != ".snapshot":
            path.write_bytes(b"")
    for kinds in (("offset", "time"), KINDS):
        report = kafkalog.reindex(named, in_place=True, backup=False, kinds=kinds, now=1_700_000_100_000)
        assert {Path(file.path).name for file in report.files} <= mine
    assert {Path(file.path).name for file in report.files} == mine & whole.keys()
    assert [skipped.kind for skipped in report.skipped] == ["epochs"]
    assert files_in(directory) == whole


def test_what_is_odd_about_a_log_dir_is_said(log_dir: Path, tmp_path: Path) -> None:
    twice = [shutil.copytree(log_dir / "p-multi-0", tmp_path / name / "p-multi-0") for name in ("a", "b")]
    report = kafkalog.reindex(twice, dry_run=True)
    assert [finding.reason for finding in report.findings.rows] == [Reason.PARTITION_TWICE]


def test_topics_and_partitions_may_be_one(log_dir: Path) -> None:
    report = kafkalog.reindex(log_dir, dry_run=True, topics="p-multi", partitions=1)
    assert {Path(file.path).parent.name for file in report.files} == {"p-multi-1"}


def test_a_segment_that_lies_anywhere_can_be_rebuilt_beside_it(log_dir: Path, tmp_path: Path) -> None:
    alone = shutil.copy(log_dir / "p-multi-0" / f"{0:020d}.log", tmp_path)
    report = kafkalog.reindex(alone, output=tmp_path / "out", kinds=("offset", "time"))
    assert len(report.files) == len([path for path in (tmp_path / "out").rglob("*index") if path.is_file()]) == 2
    beside = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    kafkalog.reindex(beside, output=tmp_path / "more")
    with pytest.raises(UnsafePathError):
        kafkalog.reindex(beside, output=beside / "inside")
    with pytest.raises(UnsafePathError):
        kafkalog.reindex(kafkalog.LogDir([tmp_path]), output=tmp_path / "inside")
    report = kafkalog.reindex(kafkalog.LogDir([tmp_path]), topics="!*", output=tmp_path / "none")
    assert not report.files
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("least", "most", "found"), [(9592, 10_800, 10_000), (19_300, 20_400, 20_000), (7, 7, 7)])
def test_of_many_intervals_the_roundest_is_taken(least: int, most: int, found: int) -> None:
    assert _roundest(least, most) == found


def test_a_failed_write_leaves_no_backup_of_what_was_not_replaced(partition: Path) -> None:
    def fail(name: str) -> None:
        raise OSError(28, "No space left on device")

    (partition / f"{0:020d}.index").write_bytes(b"old")
    before = files_in(partition)
    failed = 0
    for step in range(1, 60):
        with Faulty(step, fail).installed():
            try:
                kafkalog.reindex(partition, in_place=True, backup=True)
            except kafkalog.WriteError as error:
                failed += 1
                if "it is in place" in str(error):
                    break
                assert files_in(partition) == before, step
            else:
                break
    assert failed > 10
    assert (partition / f"{0:020d}.index{BACKUP_SUFFIX}").read_bytes() == b"old"


def test_indexes_of_an_unfinished_swap_are_its_own(log_dir: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    for path in directory.glob(f"{120:020d}.*"):
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex"):
            shutil.copy(path, path.with_name(path.name + ".swap"))
    whole = files_in(directory)
    (directory / f"{120:020d}.index.swap").write_bytes(bytes(13))
    (partition,) = kafkalog.verify(directory).partitions
    findings = [finding for segment in partition.segments for finding in segment.findings]
    assert {Path(one.path or "").name for one in findings if one.damage} == {f"{120:020d}.index.swap"}
    kafkalog.reindex(directory, in_place=True, backup=False)
    assert files_in(directory) == whole
