"""Merge keeps what the leader-epoch rule keeps, heals damage from the other copies, and invents nothing."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from effort import trials
from merges import batch, expected, hashes, replica
from refusals import fails_with
from salvages import output_of as content
from writing import sound

import kafkalog
from kafkalog import format as kf
from kafkalog.cli.app import main
from kafkalog.errors import OutputExistsError, Reason, UnsafePathError


def cluster(rng):
    """Logs of three replicas after some elections, and the number of the one that leads.

    In each epoch, one leads; some of the others reach it, truncate to what it has, and fetch.
    """
    logs = [[], [], []]
    number = 0
    for epoch in range(int(rng.integers(1, 8))):
        leader = int(rng.integers(3))
        for _ in range(int(rng.integers(1, 6))):
            number += 1
            logs[leader].append((epoch, number))
        for other in range(3):
            if other != leader and rng.integers(2):
                same = 0
                while same < min(len(logs[other]), len(logs[leader])) and logs[other][same] == logs[leader][same]:
                    same += 1
                fetched = int(rng.integers(same, len(logs[leader]) + 1))
                logs[other] = logs[leader][:fetched]
    rank = [(log[-1][0] if log else -1, len(log)) for log in logs]
    return logs, rank.index(max(rank))


def random_bases(rng, n):
    return (0, *(offset for offset in range(1, n) if rng.integers(5) == 0))


def test_simulated_leader_changes(tmp_path):
    """The result is the leader's log; what it lost and another has is healed, and nothing else is ever in it."""
    rng = np.random.default_rng(1)
    n_trials = trials(40, 120)
    n_cut = n_healed = n_missing = 0
    for number in range(n_trials):
        logs, leader = cluster(rng)
        folder = tmp_path / str(number)
        wanted = logs[leader]
        # the last batch stays, so that the same replica leads
        is_damaged = bool(rng.integers(4))
        damaged = [
            tuple(offset for offset in range(len(log) - 1) if is_damaged and rng.integers(4) == 0) for log in logs
        ]
        paths = [
            replica(
                folder / str(n), log, bases=random_bases(rng, len(log)), damaged=damaged[n], epochs=rng.integers(5) > 0
            )
            for n, log in enumerate(logs)
        ]
        report = kafkalog.merge(paths, output=folder / "out")
        [merged] = report.partitions
        assert logs[[str(path) for path in paths].index(merged.leader)] == wanted
        offsets = {
            offset
            for n, log in enumerate(logs)
            for offset in range(min(len(log), len(wanted)))
            if log[: offset + 1] == wanted[: offset + 1] and offset not in damaged[n]
        }
        found = content(folder / "out" / "t-0")
        by_offset = {int.from_bytes(one[:8], "big"): one for one in found}
        assert list(by_offset) == sorted(by_offset)
        for offset, one in by_offset.items():
            assert one == batch(offset, wanted[offset])
        assert set(by_offset) <= offsets
        sources = {
            offset: one.source for one in merged.ranges for offset in range(one.start_offset, one.end_offset or 0)
        }
        assert set(sources) == set(range(len(wanted)))
        assert {offset for offset, source in sources.items() if source} == set(by_offset)
        for offset, source in sources.items():
            if source:
                n = [str(path) for path in paths].index(source)
                assert offset not in damaged[n]
        if all((path / kf.LEADER_EPOCH_CHECKPOINT).exists() for path in paths):
            assert set(by_offset) == offsets
        if not is_damaged:
            assert sound(folder / "out" / "t-0") == []
        assert all(one.differs_from is None for one in merged.replicas)
        assert report.ok == (set(by_offset) == set(range(len(wanted))))
        n_cut += sum(one.truncate_to is not None for one in merged.replicas)
        n_healed += len(set(by_offset) & set(damaged[leader]))
        n_missing += len(wanted) - len(by_offset)
        shutil.rmtree(folder)
    assert min(n_cut, n_healed, n_missing) > n_trials // 6


def test_what_the_leader_lost_is_taken_from_a_follower(tmp_path):
    log = [(offset // 10, offset) for offset in range(40)]
    a = replica(tmp_path / "a", log, bases=(0, 17), damaged=(5, 6, 21))
    b = replica(tmp_path / "b", log[:30], bases=(0, 9), damaged=(12,))
    before = hashes(tmp_path)
    report = kafkalog.merge([a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)
    assert sound(tmp_path / "out" / "t-0") == []
    assert report.ok
    [merged] = report.partitions
    assert [(one.start_offset, one.end_offset, one.source) for one in merged.ranges] == [
        (0, 5, str(a)),
        (5, 7, str(b)),
        (7, 21, str(a)),
        (21, 22, str(b)),
        (22, 40, str(a)),
    ]
    assert [one.n_batches_taken for one in merged.replicas] == [37, 3]
    assert sorted(path.name for path in (tmp_path / "out" / "t-0").glob("*.log")) == [
        kf.segment_file_name(0),
        kf.segment_file_name(17),
    ]
    assert json.loads((tmp_path / "out" / "merge.json").read_text()) == json.loads(json.dumps(report.as_dict()))
    assert {path: one for path, one in hashes(tmp_path).items() if "/out/" not in path} == before


def test_log_dirs(tmp_path, log_dir):
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    for partition in ("p-multi-0", "p-compact-0"):
        path = max((copy / partition).glob("*.log"), key=lambda one: one.stat().st_size)
        data = bytearray(path.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 50] = bytes(50)
        path.write_bytes(data)
    report = kafkalog.merge([copy, log_dir], output=tmp_path / "out")
    assert report.ok
    for path in sorted(log_dir.glob("p-*")):
        assert content(tmp_path / "out" / path.name) == content(path), path.name
        assert sound(tmp_path / "out" / path.name) == []


def test_refusals_and_the_command(tmp_path, log_dir, capsys):
    a = replica(tmp_path / "a", [(0, 1), (0, 2), (0, 3)], damaged=(1,))
    b = replica(tmp_path / "b", [(0, 1), (0, 2)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kept").touch()
    with pytest.raises(OutputExistsError):
        kafkalog.merge([a, b], output=tmp_path / "out")
    with pytest.raises(UnsafePathError):
        kafkalog.merge([a, b], output=a / "out")
    with fails_with("not_kafka"):
        kafkalog.merge([log_dir / "p-multi-0", log_dir / "p-multi-1"], dry_run=True)
    with pytest.raises(ValueError, match="output="):
        kafkalog.merge([a, b])
    (a / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    (b / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw\n")
    with fails_with("not_kafka"):
        kafkalog.merge([a, b], dry_run=True)
    (b / "partition.metadata").unlink()
    assert main(["merge", str(a), str(b), "-o", str(tmp_path / "new")]) == 0
    assert f"offsets  1..2: from {b}" in capsys.readouterr().out
    assert main(["merge", str(a), "--dry-run", "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["ok"]
    assert main(["merge", str(a), str(b)]) == 2
    with fails_with("not_kafka"):
        kafkalog.merge([log_dir / "p-multi-0" / "00000000000000000000.log"], dry_run=True)
    assert main(["merge", str(log_dir / "p-multi-0" / "00000000000000000000.log"), "--dry-run"]) == 3


def test_a_damaged_topic_id_is_named_and_taken_from_another_copy(tmp_path):
    log = [(0, offset) for offset in range(10)]
    a, b = (replica(tmp_path / name, log, bases=(0,)) for name in "ab")
    (a / kf.PARTITION_METADATA).write_bytes(b"\xff\xfe")
    (b / kf.PARTITION_METADATA).write_text("version: 0\ntopic_id: pVtd5q9fv17AmQxDD_e9Gw")
    report = kafkalog.merge([a, b], output=tmp_path / "out")
    assert [(one.reason, one.path) for one in report.findings.rows] == [
        (Reason.CHECKPOINT_SYNTAX, str(a / kf.PARTITION_METADATA))
    ]
    assert kafkalog.open_partition(tmp_path / "out" / "t-0").topic_id == "pVtd5q9fv17AmQxDD_e9Gw"


def test_offsets_that_an_index_proves_are_missing_in_all_copies(log_dir, tmp_path):
    copies = [Path(shutil.copytree(log_dir / "p-multi-1", tmp_path / name / "p-multi-1")) for name in ("a", "b")]
    wanted = content(copies[0])
    for copy in copies:
        max(copy.glob("*.log")).unlink()
    report = kafkalog.merge(copies, dry_run=True)
    [partition] = report.partitions
    [verified] = kafkalog.verify(copies[0]).partitions
    [lost] = verified.losses
    assert [(one.start_offset, one.end_offset) for one in partition.missing] == [(lost.first_offset, lost.end_offset)]
    assert not report.ok
    shutil.copytree(log_dir / "p-multi-1", copies[1], dirs_exist_ok=True)
    report = kafkalog.merge(copies, output=tmp_path / "out")
    assert (report.ok, report.partitions[0].missing) == (True, [])
    assert content(tmp_path / "out" / "p-multi-1") == wanted


def test_a_wrong_leader_epoch_is_replaced(tmp_path):
    log = [(3, number) for number in range(8)]
    partition = replica(tmp_path / "a", log)
    [path] = partition.glob("*.log")
    data = bytearray(path.read_bytes())
    data[4 * len(batch(0, log[0])) + 14] ^= 1
    path.write_bytes(data)
    report = kafkalog.merge([partition], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)
    assert [(one.reason, one.base_offset) for one in report.findings.rows] == [(Reason.EPOCH_ORDER, 4)]
