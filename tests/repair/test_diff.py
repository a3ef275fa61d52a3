"""Diff finds the first batch in which replicas differ, and who would truncate; true replicas do not differ."""

import json

import builder
import numpy as np
import pytest
from effort import examples
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.cli.app import main
from kafkalog.errors import NotKafkaError

Entry = tuple[int, int]
"""Leader epoch and a number that makes the content."""


def replica(folder, log, rng, *, first=0):
    """A partition with a batch an offset, in segments of random length; it begins at offset `first`."""
    partition = folder / "t-0"
    partition.mkdir(parents=True)
    epochs = []
    data, base = b"", first
    for offset, (epoch, number) in enumerate(log):
        if not epochs or epoch > epochs[-1][0]:
            epochs.append((epoch, offset))
        if offset < first:
            continue
        if data and rng.integers(4) == 0:
            (partition / kf.segment_file_name(base)).write_bytes(data)
            data, base = b"", offset
        record = builder.record_v2(0, 0, None, b"%d" % number)
        data += builder.batch_v2([record], base_offset=offset, leader_epoch=epoch)
    (partition / kf.segment_file_name(base)).write_bytes(data)
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    (partition / kf.LEADER_EPOCH_CHECKPOINT).write_text("\n".join(lines) + "\n")
    return partition


def elections(rng):
    """Two logs that a common start, and then leaders of their own, have written; and how much they share."""
    common = []
    epoch, number = 0, 0
    for _ in range(int(rng.integers(1, 20))):
        epoch += int(rng.integers(4) == 0)
        number += 1
        common.append((epoch, number))
    logs = [list(common), list(common)]
    for _ in range(int(rng.integers(0, 6))):
        epoch += 1
        side = int(rng.integers(2))
        for _ in range(int(rng.integers(1, 5))):
            number += 1
            logs[side].append((epoch, number))
    return logs[0], logs[1], len(common)


def test_simulated_leader_changes(tmp_path):
    rng = np.random.default_rng(1)
    n_diverged = 0
    for number in range(examples(600)):
        one, other, n_common = elections(rng)
        first = int(rng.integers(0, n_common))
        a = replica(tmp_path / f"{number}a", one, rng)
        b = replica(tmp_path / f"{number}b", other, rng, first=first)
        found = kafkalog.diff(a, b)
        assert (found.end_offset_a, found.end_offset_b) == (len(one), len(other))
        if len(one) == n_common or len(other) == n_common:
            assert found.ok
            continue
        n_diverged += 1
        assert found.offset == n_common
        assert found.batch_a is not None
        assert found.batch_b is not None
        assert (found.batch_a.base_offset, found.batch_a.leader_epoch) == (n_common, one[n_common][0])
        assert found.batch_b.leader_epoch == other[n_common][0]
        assert found.leader == ("a" if one[-1][0] > other[-1][0] else "b")
        # the epochs behind the common start differ, so the follower goes back to it
        assert found.truncate_to == n_common
        assert not found.is_kept
    assert n_diverged > examples(600) // 3


@pytest.mark.parametrize("cleaned", [0, 3])
def test_what_leader_epochs_do_not_show(tmp_path, capsys, cleaned):
    rng = np.random.default_rng(2)
    a = replica(tmp_path / "a", [(0, 1), (0, 2), (0, 3)], rng)
    b = replica(tmp_path / "b", [(0, 1), (0, 9), (0, 3)], rng)
    found = kafkalog.diff(a, b)
    assert (found.offset, found.n_batches, found.leader, found.truncate_to) == (1, 1, None, None)
    assert found.is_kept
    for one in (a, b):
        (one.parent / kf.CLEANER_OFFSET_CHECKPOINT).write_text(f"0\n1\nt 0 {cleaned}\n")
    assert kafkalog.diff(a, b).is_compacted == bool(cleaned)
    assert main(["diff", str(a), str(b)]) == 1
    assert ("was compacted" in capsys.readouterr().out) == bool(cleaned)


def test_golden_partitions_are_their_own_replicas(log_dir):
    for path in sorted(log_dir.glob("p-*")):
        assert kafkalog.diff(path, path).ok


def test_damage_and_other_paths_are_errors(tmp_path, log_dir):
    a = replica(tmp_path / "a", [(0, n) for n in range(9)], np.random.default_rng(3))
    with pytest.raises(NotKafkaError):
        kafkalog.diff(a, log_dir)
    log = min(a.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with fails_with("crc_mismatch") as caught:
        kafkalog.diff(a, a)
    assert "kafkalog diff --content compares the intact records" in str(caught.value)
    data[8] = 0xFF
    log.write_bytes(data)
    with fails_with("size_negative") as caught:
        kafkalog.diff(a, a)
    assert "kafkalog diff --content" in str(caught.value)


def test_the_command(tmp_path, capsys):
    rng = np.random.default_rng(4)
    a = replica(tmp_path / "a", [(0, 1), (1, 2)], rng)
    b = replica(tmp_path / "b", [(0, 1), (2, 3)], rng)
    assert main(["diff", str(a), str(a)]) == 0
    assert "equal up to 2" in capsys.readouterr().out
    assert main(["diff", str(a), str(b)]) == 1
    assert f"{a} would truncate to offset 1" in capsys.readouterr().out
    assert main(["diff", "--json", str(a), str(b)]) == 1
    assert json.loads(capsys.readouterr().out)["truncate_to"] == 1
    capsys.readouterr()
    assert main(["diff", str(a)]) == 2
    assert "required: B " in capsys.readouterr().err
    for option in ("-h", "--help"):
        assert main(["diff", option]) == 0
        assert " A B\n" in (shown := capsys.readouterr().out)
        assert "A B A B" not in shown


def test_a_replica_that_ends_earlier_is_equal_up_to_its_end(tmp_path, capsys):
    log = [(0, number) for number in range(9)]
    rng = np.random.default_rng(0)
    short, long = replica(tmp_path / "a", log[:5], rng), replica(tmp_path / "b", log, rng)
    found = kafkalog.diff(short, long)
    assert (found.ok, found.equal_to, found.continues) == (True, 5, "b")
    assert (kafkalog.diff(long, short).continues, kafkalog.diff(long, long).continues) == ("a", None)
    assert found.as_dict()["equal_to"] == 5
    assert main(["diff", str(short), str(long)]) == 0
    assert f"{long} continues to 9" in capsys.readouterr().out
    apart = replica(tmp_path / "c", log, rng, first=7)
    assert main(["diff", str(short), str(apart)]) == 0
    assert "no common offset" in capsys.readouterr().out
    other = replica(tmp_path / "d", [*log[:5], (1, 99)], rng)
    assert (kafkalog.diff(long, other).equal_to, kafkalog.diff(long, other).continues) == (5, None)
