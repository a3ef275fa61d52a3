"""`kafkalog recover`: what it says, and what it ends with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import golden_sets
import pytest

from kafkalog.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    source = golden_sets.unpacked("k44")
    root = tmp_path / "data"
    root.mkdir()
    for name in ("p-multi-0", "p-txn-0"):
        shutil.copytree(source / name, root / name)
    shutil.copy(source / "meta.properties", root)
    return root


def run(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    code = main(["recover", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_healthy_log_dir_gets_its_marker(log_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    code, out, err = run(capsys, log_dir, "-o", tmp_path / "out")
    assert code == 0
    assert out.count("1 file rebuilt") == 2  # leader epochs: one that begins at the log end goes, as in a broker
    assert "2 partitions: 0 segments cut or deleted, 0 bytes" in err
    assert (tmp_path / "out" / ".kafka_cleanshutdown").exists()


def test_damage_is_said_and_counted(log_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    log = sorted((log_dir / "p-txn-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    code, out, err = run(capsys, log_dir, "--dry-run", "--report", tmp_path / "report.json")
    assert code == 1
    assert f"{log.name} cut" in out
    assert out.count("deleted") == 4
    assert "would be cut or deleted" in err
    assert json.loads((tmp_path / "report.json").read_text())["findings"][0]["reason"] == "crc_mismatch"
    code, out, _ = run(capsys, log_dir, "--in-place", "--backup", tmp_path / "old", "--json")
    assert code == 1
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["topic"], row["n_bytes_lost"] > 0) for row in rows] == [("p-multi", False), ("p-txn", True)]
    assert (tmp_path / "old" / "p-txn-0" / log.name).read_bytes() == data
    code, _, err = run(capsys, log_dir, "--dry-run")
    assert (code, "0 segments" in err) == (0, True)


def test_wrong_usage(log_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "there").mkdir()
    for arguments, code in (
        ([log_dir], 2),
        ([log_dir, "--in-place"], 2),
        ([log_dir, "-o", "x", "--backup", "y"], 2),
        ([log_dir, log_dir, "--dry-run"], 2),
        ([log_dir, "--dry-run", "--index-interval-bytes", "many"], 2),
        ([log_dir, "-o", tmp_path / "there"], 6),
        ([log_dir, "-o", log_dir / "new"], 6),
        ([tmp_path / "absent", "--dry-run"], 3),
    ):
        assert run(capsys, *arguments)[0] == code, arguments


def test_a_name_that_stops_a_broker_is_damage(log_dir: Path, capsys: Capture) -> None:
    (log_dir / "p-txn-0" / "server.log").write_text("mine")
    code, _, err = run(capsys, log_dir, "--dry-run")
    assert code == 1
    assert err.count("server.log") == 1
