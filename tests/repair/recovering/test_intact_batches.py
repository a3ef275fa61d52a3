"""Intact batches that recovery leaves out are counted, and its next command returns them."""

import json
import shutil
from pathlib import Path

import pytest
from broken_clusters import TOPICS, Cluster
from effort import fuzz_inputs, thinned
from merges import replica
from recoveries import RECOVERY_POINTS
from salvages import output_of

import kafkalog
from kafkalog.cli.app import main

LOG = [(1, offset) for offset in range(24)]
BASES = (0, 6, 12, 18)


def intact(cluster, log_dir):
    return {topic: cluster.intact(log_dir / f"{topic}-0", topic) for topic in TOPICS}


def n_records(batches):
    """Records of users: a transaction marker is none."""
    return sum(int.from_bytes(one.data[57:61], "big") for one in batches if not one.data[22] & 0x20)


def damaged_disk(root, seed):
    """A disk of a cluster, killed or not, with indexes or not, and with recovery points at random places."""
    cluster = Cluster(root / "it's here", seed)
    rng, disk = cluster.rng, cluster.disks[seed % 3]
    for partition in disk.iterdir() if seed % 2 else ():
        if partition.is_dir():
            kafkalog.reindex(partition, in_place=True)
    cluster.damage(rng.choice((2, 4, 8)))
    if rng.random() < 0.5:
        (disk / ".kafka_cleanshutdown").unlink(missing_ok=True)
    if rng.random() < 0.5:
        rows = [f"{topic} 0 {rng.randrange(60)}" for topic in TOPICS]
        (disk / RECOVERY_POINTS).write_text("\n".join(["0", str(len(rows)), *rows, ""]))
    return cluster, disk


@pytest.mark.parametrize("how", ["dry_run", "output", "in_place"])
@pytest.mark.parametrize("seed", thinned(range(max(fuzz_inputs() // 1500, 20)), 20))
def test_what_recovery_leaves_out_is_counted_and_its_next_command_serves_it(tmp_path, capsys, seed, how):
    cluster, disk = damaged_disk(tmp_path, seed)
    if not any(one.is_dir() for one in disk.iterdir()):
        return  # that disk is lost
    before, out = intact(cluster, disk), tmp_path / "out"
    if how == "dry_run":
        shutil.copytree(disk, tmp_path / "copy")
        kafkalog.recover(tmp_path / "copy", out)
        report = kafkalog.recover(disk, dry_run=True)
    elif how == "output":
        report = kafkalog.recover(disk, out)
    else:
        report, out = kafkalog.recover(disk, in_place=True, backup=tmp_path / "backup"), disk
    found = [(one.path, one.position) for one in report.findings.rows if one.damage]
    assert len(found) == len({*found})
    after, left_out = intact(cluster, out), 0
    rows = {Path(row.path).name: row for row in report.partitions}
    for topic, batches in before.items():
        row, gone = rows.get(f"{topic}-0"), batches - after[topic]
        left_out += len(gone)
        if row is not None and row.problem is None:
            # a broker sets a whole directory aside
            assert row.loss.n_intact == n_records(batches if row.stray else gone), topic
    if not left_out:
        return
    step = report.next[0]
    assert not report.ok
    assert step.command[:2] == ("kafkalog", "boot")
    assert main([*step.command[1:], "-q"]) == 1
    capsys.readouterr()
    booted = Path(step.command[-1]) / "data"
    for topic, batches in before.items():
        served = {*output_of(booted / f"{topic}-0")} if (booted / f"{topic}-0").is_dir() else set()
        assert {one.data for one in batches} <= served, topic


def flipped(folder):
    return replica(folder, LOG, bases=BASES, damaged=(7,))


def test_text_json_and_python_say_how_many_are_intact_and_what_serves_them(tmp_path, capsys):
    disk, backup = tmp_path / "disk", tmp_path / "backup"
    flipped(disk)
    line = f"kafkalog boot {disk} -o {disk}-booted"
    lost = "lost: 5 records, offsets 7..12, 4 of them in intact batches"
    for options in (["--dry-run"], ["-o", str(tmp_path / "out")]):
        assert main(["recover", str(disk), *options]) == 1
        output, notes = capsys.readouterr()
        assert lost in output
        assert f"next: {line} (" in notes
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert main(["recover", str(disk), "--dry-run", "--json"]) == 1
    row, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["n_intact"] for one in row["losses"]] == [4]
    assert (total["ok"], total["is_written"]) == (False, False)
    assert [" ".join(step["command"]) for step in total["next"]] == [line]
    # afterwards, the backup has them
    assert main(["recover", str(disk), "--in-place", "--backup", str(backup)]) == 1
    notes = capsys.readouterr().err
    assert "keep it: it has the intact batches that were cut" in notes
    assert f"next: kafkalog boot {disk} {backup} -o {disk}-booted (" in notes


def test_a_recovery_that_loses_nothing_has_no_next_command(tmp_path):
    replica(tmp_path / "disk", LOG, bases=BASES)
    assert kafkalog.recover(tmp_path / "disk", dry_run=True).next == []
    assert kafkalog.truncate(tmp_path / "disk", to_offset=20, dry_run=True).next == []


def test_a_backup_of_the_end_of_a_log_is_joined_to_what_is_left_of_it(tmp_path):
    partition = replica(tmp_path / "disk", LOG, bases=BASES, damaged=(18,))
    kafkalog.recover(tmp_path / "disk", in_place=True, backup=tmp_path / "backup")
    assert output_of(partition)[-1:] == output_of(partition)[17:]
    kafkalog.boot([tmp_path / "disk", tmp_path / "backup"], tmp_path / "out")
    assert len(output_of(tmp_path / "out" / "data" / "t-0")) == 23


def test_damage_below_the_recovery_point_is_one_finding(tmp_path):
    flipped(tmp_path / "disk")
    (tmp_path / "disk" / RECOVERY_POINTS).write_text("0\n1\nt 0 24\n")
    for report in (kafkalog.recover(tmp_path / "disk", dry_run=True), kafkalog.preflight(tmp_path / "disk")):
        assert [(one.base_offset, one.damage) for one in report.findings.rows] == [(7, True)]
