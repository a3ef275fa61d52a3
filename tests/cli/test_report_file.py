"""``--report FILE``."""

import errno
import json
import os

from kafkalog.cli.app import main
from kafkalog.storage import staging


def test_it_is_durable_before_it_has_its_name_and_destroys_no_other_file(log_dir, tmp_path, monkeypatch):
    report, neighbour = tmp_path / "report.json", tmp_path / "report.json.tmp"
    report.write_text("old")
    neighbour.write_text("somebody's")
    synced = []

    def fsync(descriptor, real=os.fsync):
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert main(["verify", str(log_dir), "-q", "--report", str(report)]) == 0
    assert json.loads(report.read_text())["command"] == "verify"
    assert {report.stat().st_ino, tmp_path.stat().st_ino} <= {*synced}
    assert neighbour.read_text() == "somebody's"
    assert sorted(os.listdir(tmp_path)) == ["report.json", "report.json.tmp"]


def test_one_that_cannot_be_written_leaves_the_old_one(log_dir, tmp_path, monkeypatch, capsys):
    report = tmp_path / "report.json"
    report.write_text("old")

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(staging.os, "write", full)
    assert main(["verify", str(log_dir), "-q", "--report", str(report)]) != 0
    assert "the report could not be written" in capsys.readouterr().err
    assert report.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.json"]
