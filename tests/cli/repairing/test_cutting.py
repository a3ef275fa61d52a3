"""`kafkalog truncate` and `kafkalog trim`: what they say, and what they end with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import golden_sets
import pytest

import kafkalog
from kafkalog.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    target = tmp_path / "data" / "p-txn-0"
    shutil.copytree(golden_sets.partitions("k44")["p-txn-0"], target)
    return target


def run(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    code = main([*map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_end_goes(partition: Path, tmp_path: Path, capsys: Capture) -> None:
    code, out, err = run(capsys, "truncate", partition, "--to-offset", 200, "--dry-run")
    assert code == 0
    assert "2 segments deleted" in out
    assert "would be removed" in err
    code, out, _ = run(capsys, "truncate", partition, "--to-offset", 200, "--json", "-o", tmp_path / "copy")
    row = json.loads(out)
    assert kafkalog.open_partition(tmp_path / "copy" / partition.name).log_end_offset == row["log_end_offset"]
    code, _, err = run(capsys, "truncate", partition, "--to-epoch", 0, "--in-place", "--backup", tmp_path / "old", "-v")
    assert code == 0


def test_the_start_goes(partition: Path, tmp_path: Path, capsys: Capture) -> None:
    backup = tmp_path / "old"
    code, out, err = run(capsys, "trim", partition, "--before-offset", 200, "--in-place", "--backup", backup)
    assert (code, "offsets 200..430  3 segments deleted" in out) == (0, True)
    assert "old files kept" in err
    assert kafkalog.open_partition(partition).log_start_offset == 200


@pytest.mark.parametrize("place", [("truncate", "--to-offset"), ("trim", "--before-offset")])
def test_a_partition_that_cannot_be_cut_is_damage(partition: Path, tmp_path: Path, capsys: Capture, place: Any) -> None:
    command, option = place
    other = partition.parent / "p-txn-1"
    shutil.copytree(partition, other)
    (partition / "server.log").write_text("not a segment")
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    in_place = ("--in-place", "--backup", tmp_path / "old")
    for how in (("--dry-run",), ("-o", tmp_path / "copy"), in_place):
        code, _, err = run(capsys, command, partition.parent, option, 200, *how)
        assert code == 1
        assert "server.log: unknown_file: not named after an offset" in err
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before
    assert not (tmp_path / "copy").exists()
    cut = kafkalog.open_log_dir(partition.parent)
    bounds = {str(key): (one.log_start_offset, one.log_end_offset) for key, one in cut.items()}
    assert bounds["p-txn-0"] == (0, 430)
    assert bounds["p-txn-1"] in ((200, 430), (0, 198), (0, 199), (0, 200))
    # where nothing is to be cut, nothing is in the way
    at = 430 if command == "truncate" else 0
    assert run(capsys, command, partition.parent, option, at, "--dry-run")[0] == 0


def test_wrong_usage(partition: Path, capsys: Capture) -> None:
    for arguments in (
        ["truncate", partition, "--dry-run"],
        ["truncate", partition, "--to-offset", "x", "--dry-run"],
        ["truncate", partition, "--to-epoch", "-1", "--dry-run"],
        ["truncate", partition, "--to-offset", 5, "--to-epoch", 5, "--dry-run"],
        ["trim", partition, "--before-offset", 5],
        ["trim", partition, "--before-offset", 431, "--dry-run"],
        ["trim", partition, "--before-timestamp", "2026-11-21", "--dry-run"],
    ):
        assert run(capsys, *arguments)[0] == 2, arguments


def test_damage_beyond_the_most_findings_is_counted(partition: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(partition, partition.parent / "p-txn-1")
    for path in partition.parent.iterdir():
        (path / "server.log").write_text("not a segment")
    report = tmp_path / "report.json"
    limits = ("--limits", "max_findings=1", "--report", report)
    code, _, err = run(capsys, "trim", partition.parent, "--before-offset", 200, "--dry-run", *limits)
    found = json.loads(report.read_text())
    assert (code, len(found["findings"]), found["n_more_findings"]) == (1, 1, 1)
    assert "1 more findings of damage" in err
