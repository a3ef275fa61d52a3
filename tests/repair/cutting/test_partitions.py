"""Where logs are cut: in place or in a copy, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from files import content

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import UnsafePathError
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.storage.broker_lock import hold_locks

START = "log-start-offset-checkpoint"
POINTS = "recovery-point-offset-checkpoint"


def test_a_log_dir_is_cut_in_place_as_in_a_copy(log_dir: Path, tmp_path: Path) -> None:
    before = content(log_dir)
    kafkalog.truncate(log_dir, to_offset=100, output=tmp_path / "copy")
    report = kafkalog.truncate(log_dir, to_offset=100, in_place=True, backup=tmp_path / "old")
    assert content(log_dir) == content(tmp_path / "copy")
    kept = content(tmp_path / "old")
    after = content(log_dir)
    assert kept == {name: data for name, data in before.items() if after.get(name) != data}
    assert report.n_backup_files == len(kept)
    points = read_offset_checkpoint(log_dir / POINTS) or {}
    assert {points[row.topic_partition] for row in report.partitions if row.topic_partition is not None} <= {
        row.log_end_offset for row in report.partitions
    }
    assert (log_dir / ".kafka_cleanshutdown").exists()
    assert {one.verdict for one in kafkalog.preflight(log_dir).partitions if one.stray is None} <= {"starts"}
    assert kafkalog.verify(log_dir, topics=["p-multi", "p-txn", "p-epochs"]).ok


def test_it_refuses_what_cannot_be(log_dir: Path, tmp_path: Path) -> None:
    before = content(tmp_path)
    source = log_dir / "p-multi-0"
    for options in ({}, {"to_offset": 1, "to_epoch": 1}, {"to_offset": 1, "output": "x", "in_place": True}):
        with pytest.raises(ValueError):
            kafkalog.truncate(source, **options)  # type: ignore[arg-type]
    for options in ({}, {"before_offset": 126, "dry_run": True}, {"before_offset": 1, "in_place": True}):
        with pytest.raises(ValueError):
            kafkalog.trim(source, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="go with in_place"):
        kafkalog.trim(source, before_offset=1, dry_run=True, backup="x")
    with pytest.raises(UnsafePathError):
        kafkalog.trim(source, before_offset=1, output=log_dir / "x")
    assert content(tmp_path) == before
    (log_dir / START).write_text("0\n1\np-multi 0 50\n")
    with pytest.raises(ValueError, match="starts at 50"):
        kafkalog.truncate(log_dir, to_offset=40, dry_run=True)
    with hold_locks([log_dir]), pytest.raises(UnsafePathError, match="a broker holds the lock"):
        kafkalog.truncate(log_dir, to_offset=60, in_place=True, backup=tmp_path / "b")


@pytest.mark.parametrize("command", [["trim", "--before-offset", "100"], ["truncate", "--to-offset", "100"]])
def test_offsets_that_were_missing_before_are_reported(
    log_dir: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    partition = log_dir / "p-multi-0"
    name, *options = command
    assert main([name, str(partition), *options, "--dry-run"]) == 0
    max(partition.glob("*.log")).unlink()
    capsys.readouterr()
    assert main([name, str(partition), *options, "--dry-run", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)
    assert [(one["first_offset"], one["end_offset"], one["reason"]) for one in row["losses"]] == [
        (120, 125, "log_end_missing")
    ]
