"""Transaction markers that are damaged: each command says once that one is lost, unless another copy has it."""

import json
import random
import shutil

import pytest
from effort import trials

import kafkalog
from kafkalog.cli import app
from kafkalog.repair.recovering.preflight import preflight
from tests.support import golden_sets

WORDS = "1 transaction marker (read_committed consumers wait for its transaction, or see its records differently)"
EACH = pytest.mark.parametrize("n_cases", [1, pytest.param(trials(3, 12), marks=pytest.mark.slow)])
NAMES = ("p-txn-now-0", "p-compact-txn-now-0")


def markers(partition):
    """Path, position and base offset of the control batches of a partition that hold a marker."""
    found = []
    for segment in kafkalog.open(partition).segments:
        for batches in kafkalog.open(segment.path).iter_batches():
            for row in range(len(batches)):
                if batches.is_control[row] and batches.records_count[row]:
                    found.append((segment.path, int(batches.position[row]), int(batches.base_offset[row])))
    return found


def copied(name, folder):
    folder.mkdir(parents=True)
    shutil.copytree(golden_sets.partitions("k44_extra")[name], folder / name)
    return folder / name


def damaged(name, folder, number, at):
    """A copy of a partition in which a marker is damaged, and the marker's offset; `at` is a byte of its record."""
    partition = copied(name, folder)
    path, position, offset = markers(partition)[number]
    data = bytearray(path.read_bytes())
    data[position + at] ^= 0x40
    path.write_bytes(data)
    return partition, offset


def cases(n_cases):
    """Random markers: partition, number and the byte to damage."""
    random_source = random.Random(56)
    for name in NAMES:
        n = len(markers(golden_sets.partitions("k44_extra")[name]))
        for number in random_source.sample(range(n), n_cases):
            yield name, number, random_source.randrange(61, 78)


def lost_of(report):
    return [(one.base_offset, one.n_records, one.n_markers) for one in report.findings.rows if one.damage]


@EACH
def test_a_lost_marker_is_said_once_by_each_command(tmp_path, n_cases):
    for number, (name, row, at) in enumerate(cases(n_cases)):
        folder = tmp_path / str(number)
        partition, offset = damaged(name, folder / "disk", row, at)
        (loss,) = kafkalog.verify(partition).partitions[0].losses
        # where compaction left gaps, they may be lost offsets
        assert loss.n_markers == 1
        assert loss.first_offset <= offset < loss.end_offset, (name, row, at)
        # a damaged count may hide that it is no record
        assert loss.n_records in (0, loss.end_offset - loss.first_offset), (name, row, at)
        lost = [(loss.first_offset, loss.n_records, 1)]
        case = name, row, at
        salvaged = kafkalog.salvage(partition, folder / "salvaged" / name)
        assert [(one.first_offset, one.n_records, one.n_markers) for one in salvaged.partitions[0].losses] == lost, case
        other, _ = damaged(name, folder / "other", row, at)
        merged = kafkalog.merge([partition, other], folder / "merged" / name)
        assert lost_of(merged) == lost, case
        for sources in (
            [folder / "disk"],
            [folder / "disk", folder / "salvaged"],
            [folder / "salvaged", folder / "disk"],
            [folder / "salvaged"],
            [folder / "merged"],
            [folder / "disk", folder / "other"],
        ):
            report = kafkalog.boot(sources, folder / "booted", dry_run=True)
            assert lost_of(report) == lost, (case, sources)
            assert report.text().count(WORDS) == 1, (case, sources)
            assert "1 line under Lost" in report.verdict
            assert not report.as_dict()["ok"]


@EACH
def test_a_marker_that_another_copy_has_is_not_lost(tmp_path, n_cases):
    for number, (name, row, at) in enumerate(cases(n_cases)):
        folder = tmp_path / str(number)
        partition, _ = damaged(name, folder / "disk", row, at)
        whole = copied(name, folder / "whole")
        kafkalog.salvage(partition, folder / "salvaged" / name)
        for first in ("disk", "salvaged"):
            output = folder / f"of-{first}"
            report = kafkalog.boot([folder / first, folder / "whole"], output)
            assert lost_of(report) == [], (name, row, at, first)
            assert "transaction marker" not in report.text()
            logs = [*(output / "data" / name).glob("*.log")]
            assert {one.name: one.read_bytes() for one in logs} == {
                one.name: one.read_bytes() for one in whole.glob("*.log")
            }
        assert kafkalog.merge([partition, whole], dry_run=True).ok


def test_report_and_cli_name_a_lost_marker(tmp_path, capsys):
    partition, offset = damaged("p-txn-now-0", tmp_path / "disk", 9, 70)
    assert offset == 67
    assert ("Lost", f"{WORDS} in 1 partition") in kafkalog.report(tmp_path / "disk").key_figures()
    for command in (["verify"], ["salvage", "-o", str(tmp_path / "salvaged")], ["boot", "--dry-run"]):
        assert app.main([command[0], str(tmp_path / "disk"), *command[1:]]) == 1
        assert f"lost: {partition}" in (text := capsys.readouterr().err)
        assert text.count(f"{WORDS}, offsets 67..68") == 1
    app.main(["verify", str(tmp_path / "disk"), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["losses"][0]["n_markers"] for row in rows if row.get("losses")] == [1]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_preflight_names_a_marker_that_a_broker_cuts(tmp_path, is_damaged):
    """The last batch of a log is a marker: an unclean start cuts a damaged one, and with it no record."""
    partition = copied("p-txn-now-0", tmp_path / "disk")
    path, position, offset = markers(partition)[-1]
    data = bytearray(path.read_bytes()[: position + 78])
    data[position + 70] ^= 0x40 * is_damaged
    path.write_bytes(data)
    for one in partition.glob("*"):
        if one.suffix == ".snapshot" and int(one.stem) > offset:
            one.unlink()
    plan = preflight(tmp_path / "disk", clean=False).partitions[0]
    assert (plan.verdict == "loses") == is_damaged
    assert [(one.first_offset, one.n_markers) for one in plan.losses] == [(offset, 1)] * is_damaged
    assert sum(WORDS in line for line in plan.lines()) == is_damaged
