"""How a forecast is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from startups import logs

import kafkalog
from kafkalog.cli import main

Capture = pytest.CaptureFixture[str]


def test_the_command_says_it_and_ends_with_1_where_something_is_lost(partition: Path, capsys: Capture) -> None:
    assert main(["preflight", str(partition), "--clean"]) == 0
    assert capsys.readouterr().out == ""
    last = logs(partition)[-1]
    last.write_bytes(last.read_bytes() + bytes(50))
    assert main(["preflight", str(partition), "--clean"]) == 1
    printed = capsys.readouterr()
    assert "does not start" in printed.out
    assert main(["preflight", str(partition), "--unclean", "--json", "--broker", "2.8"]) == 0
    assert '"action": "cut"' in capsys.readouterr().out
    assert main(["preflight", str(partition), "--broker", "1.0"]) == 2
    with pytest.raises(ValueError, match="no broker"):
        kafkalog.preflight(partition, broker="1.0")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads"):
        kafkalog.preflight(partition, threads=0)


def test_each_stray_is_one_finding_of_the_report_beside_other_damage(log_dir_copy: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    strays = [log_dir_copy / name for name in ("p-v0v1v2-mixed-0", "p-v1-lz4-0")]
    assert main(["preflight", str(log_dir_copy), "-q", "--report", str(report)]) == 1
    assert [one["path"] for one in json.loads(report.read_text())["findings"]] == [*map(str, strays)]
    (log_dir_copy / "recovery-point-offset-checkpoint").write_text("nonsense")
    assert main(["preflight", str(log_dir_copy), "-q", "--report", str(report)]) == 1
    paths = [one["path"] for one in json.loads(report.read_text())["findings"]]
    assert len(paths) > 2
    assert {*map(str, strays)} < {*paths}
