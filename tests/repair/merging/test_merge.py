"""Merge keeps what the leader-epoch rule keeps, heals damage from the other copies, and invents nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import builder
import numpy as np
import pytest
from effort import THOROUGH
from writing import sound

import kafkalog
from kafkalog import format as kf
from kafkalog.cli.app import main
from kafkalog.errors import NotKafkaError, OutputExistsError, UnsafePathError

Entry = tuple[int, int]
"""Leader epoch and a number that makes the content."""


def batch(offset: int, entry: Entry) -> bytes:
    record = builder.record_v2(0, 0, None, b"%d" % entry[1])
    return builder.batch_v2([record], base_offset=offset, leader_epoch=entry[0])


def checkpoint(log: list[Entry]) -> list[tuple[int, int]]:
    epochs: list[tuple[int, int]] = []
    for offset, (epoch, _) in enumerate(log):
        if not epochs or epoch > epochs[-1][0]:
            epochs.append((epoch, offset))
    return epochs


def replica(
    folder: Path, log: list[Entry], *, bases: tuple[int, ...] = (0,), damaged: tuple[int, ...] = (), epochs: bool = True
) -> Path:
    """A partition with a batch an offset; `damaged` batches have a wrong byte."""
    partition = folder / "t-0"
    partition.mkdir(parents=True)
    for base, end in zip(bases, [*bases[1:], len(log)], strict=True):
        data = b""
        for offset in range(base, end):
            one = bytearray(batch(offset, log[offset]))
            one[-1] ^= offset in damaged
            data += one
        (partition / kf.segment_file_name(base)).write_bytes(data)
    if epochs:
        entries = checkpoint(log)
        lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        (partition / kf.LEADER_EPOCH_CHECKPOINT).write_text("\n".join(lines) + "\n")
    return partition


def content(partition: Path) -> list[bytes]:
    found = []
    for log in sorted(partition.glob("*.log")):
        data = log.read_bytes()
        found += [data[start:end] for start, end in builder.batch_positions(data)]
    return found


def expected(log: list[Entry], start: int = 0) -> list[bytes]:
    return [batch(offset, log[offset]) for offset in range(start, len(log))]


def hashes(root: Path) -> dict[str, str]:
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in root.rglob("*") if one.is_file()}


def cluster(rng: np.random.Generator) -> tuple[list[list[Entry]], int]:
    """Logs of three replicas after some elections, and the number of the one that leads.

    In each epoch, one leads; some of the others reach it, truncate to what it has, and fetch.
    """
    logs: list[list[Entry]] = [[], [], []]
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


def random_bases(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    return (0, *(offset for offset in range(1, n) if rng.integers(5) == 0))


def test_simulated_leader_changes(tmp_path: Path) -> None:
    """The result is the leader's log; what it lost and another has is healed, and nothing else is ever in it."""
    rng = np.random.default_rng(1)
    n_cut = n_healed = n_missing = 0
    for number in range(2000 if THOROUGH else 60):
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
    assert min(n_cut, n_healed, n_missing) > 10


def test_what_the_leader_lost_is_taken_from_a_follower(tmp_path: Path) -> None:
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


def test_a_follower_that_diverged_heals_only_what_it_shares(tmp_path: Path) -> None:
    leader = [(0, 1), (0, 2), (0, 3), (2, 4), (2, 5), (2, 6)]
    other = [(0, 1), (0, 2), (0, 3), (1, 7), (1, 8), (1, 9), (1, 10)]
    a = replica(tmp_path / "a", leader, damaged=(1, 3))
    b = replica(tmp_path / "b", other)
    report = kafkalog.merge([b, a], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == [one for n, one in enumerate(expected(leader)) if n != 3]
    [merged] = report.partitions
    assert (merged.leader, merged.replicas[0].truncate_to) == (str(a), 3)
    assert [(one.start_offset, one.end_offset) for one in merged.missing] == [(3, 4)]
    assert not report.ok


def test_without_the_epoch_file_a_hole_over_an_election_is_not_filled_by_guess(tmp_path: Path) -> None:
    leader = [(1, 1), (1, 2), (2, 3), (3, 4)]
    other = [(1, 1), (1, 2), (1, 9)]  # 9 was truncated by the others
    a = replica(tmp_path / "a", leader, damaged=(2,), epochs=False)
    b = replica(tmp_path / "b", other)
    report = kafkalog.merge([a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == [one for n, one in enumerate(expected(leader)) if n != 2]
    assert not report.ok


def test_another_epoch_where_the_leaders_history_is_lost_is_a_cut(tmp_path: Path) -> None:
    leader = [(1, 1), (1, 2), (1, 3), (1, 4)]
    a = replica(tmp_path / "a", leader, damaged=(0,), epochs=False)
    b = replica(tmp_path / "b", leader[:2], epochs=False)
    c = replica(tmp_path / "c", [(0, 8), (0, 9)])
    report = kafkalog.merge([c, a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(leader)
    [merged] = report.partitions
    assert (merged.replicas[0].truncate_to, merged.replicas[0].differs_from) == (0, None)
    assert report.ok


def test_lost_segments_and_older_ones_come_from_a_copy(tmp_path: Path) -> None:
    log = [(0, offset) for offset in range(30)]
    a = replica(tmp_path / "a", log, bases=(0, 10, 20))
    b = replica(tmp_path / "b", log[:25], bases=(0, 7, 14, 21))
    (a / kf.segment_file_name(0)).unlink()
    (a / kf.segment_file_name(10)).write_bytes(bytes(500))
    report = kafkalog.merge([a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)
    assert sound(tmp_path / "out" / "t-0") == []
    assert report.ok
    assert [(one.start_offset, one.end_offset, one.source) for one in report.partitions[0].ranges] == [
        (0, 20, str(b)),
        (20, 30, str(a)),
    ]


def test_copies_that_differ_in_one_epoch_are_not_mixed(tmp_path: Path) -> None:
    leader = [(0, offset) for offset in range(10)]
    other = [*leader[:4], (0, 99), *leader[5:]]
    a = replica(tmp_path / "a", leader, damaged=(2, 6))
    b = replica(tmp_path / "b", other[:9])
    report = kafkalog.merge([a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == [one for n, one in enumerate(expected(leader)) if n != 6]
    assert report.partitions[0].replicas[1].differs_from == 4
    assert not report.ok


def test_a_leader_epoch_that_may_be_wrong_is_named(tmp_path: Path) -> None:
    log = [(0, offset) for offset in range(10)]
    a = replica(tmp_path / "a", log)
    b = replica(tmp_path / "b", [*log[:8], (3, 8)], epochs=False)
    report = kafkalog.merge([a, b], dry_run=True)
    [partition] = report.partitions
    assert partition.leader == str(b)
    assert [one.doubted_from for one in partition.replicas] == [8, 8]
    assert report.findings.n_damage == 0
    assert [finding.base_offset for finding in report.findings.rows] == [8, 8]
    assert all("checksum covers" in finding.detail for finding in report.findings.rows)
    assert any("may be wrong" in line for line in report.lines())
    # the file of either copy, or another batch, vouches for it
    for name, copy in (
        ("file", replica(tmp_path / "c", [*log[:8], (3, 8)])),
        ("two", replica(tmp_path / "d", [*log[:8], (3, 8), (3, 9)], epochs=False)),
    ):
        [partition] = kafkalog.merge([a, copy], dry_run=True).partitions
        assert partition.replicas[1].doubted_from is None, name
    c = replica(tmp_path / "e", [*log[:8], (3, 9)], epochs=False)
    assert kafkalog.merge([b, c], dry_run=True).partitions[0].replicas[0].doubted_from is None
    assert kafkalog.merge([b], dry_run=True).partitions[0].replicas[0].doubted_from is None


def test_a_lost_end_is_said(tmp_path: Path) -> None:
    log = [(0, offset) for offset in range(10)]
    a = replica(tmp_path / "a", log, damaged=(9,))
    report = kafkalog.merge([a], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)[:9]
    assert [(one.start_offset, one.end_offset) for one in report.partitions[0].missing] == [(9, None)]
    b = replica(tmp_path / "b", log)
    report = kafkalog.merge([a, b], dry_run=True)
    assert report.ok
    assert report.partitions[0].leader == str(b)


def test_a_copy_without_segments(tmp_path: Path) -> None:
    log = [(0, 1), (0, 2)]
    a = replica(tmp_path / "a", log)
    b = replica(tmp_path / "b", log)
    (b / kf.segment_file_name(0)).unlink()
    assert kafkalog.merge([b, a], output=tmp_path / "out").ok
    assert content(tmp_path / "out" / "t-0") == expected(log)
    (a / kf.segment_file_name(0)).write_bytes(bytes(100))
    kafkalog.merge([b, a], output=tmp_path / "nothing")
    assert content(tmp_path / "nothing" / "t-0") == []


def test_log_dirs(tmp_path: Path, log_dir: Path) -> None:
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


def test_refusals_and_the_command(tmp_path: Path, log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = replica(tmp_path / "a", [(0, 1), (0, 2), (0, 3)], damaged=(1,))
    b = replica(tmp_path / "b", [(0, 1), (0, 2)])
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputExistsError):
        kafkalog.merge([a, b], output=tmp_path / "out")
    with pytest.raises(UnsafePathError):
        kafkalog.merge([a, b], output=a / "out")
    with pytest.raises(NotKafkaError, match="no copies of one partition"):
        kafkalog.merge([log_dir / "p-multi-0", log_dir / "p-multi-1"], dry_run=True)
    with pytest.raises(ValueError, match="say where to"):
        kafkalog.merge([a, b])
    (a / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    (b / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw\n")
    with pytest.raises(NotKafkaError, match="topic id"):
        kafkalog.merge([a, b], dry_run=True)
    (b / "partition.metadata").unlink()
    assert main(["merge", str(a), str(b), "-o", str(tmp_path / "new")]) == 0
    assert f"offsets  1..2: from {b}" in capsys.readouterr().out
    assert main(["merge", str(a), "--dry-run", "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["ok"]
    assert main(["merge", str(a), str(b)]) == 2
