"""`kafkalog compact`: what it says, and what it ends with."""

import json

import pytest
from compactions import RandomPartition

import kafkalog
from kafkalog.cli import main
from kafkalog.cli.json_schemas import json_schema

NOW = 1_795_000_000_000


@pytest.fixture
def log_dir(tmp_path):
    for number in range(2):
        directory = tmp_path / "data" / f"t-{number}"
        directory.mkdir(parents=True)
        RandomPartition(3, NOW, ends_transactions=True, has_gaps=False).append(directory, 5, is_first=True)
    return tmp_path / "data"


def test_what_is_removed_is_said(log_dir, tmp_path, capsys):
    options = ["--topics", "t", "--now", "2026-11-18T00:00Z"]
    assert main(["compact", str(log_dir), *options, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("cleaned to offset") == 2
    assert "would be removed" in printed.err
    assert main(["compact", str(log_dir), *options, "--json", "-o", str(tmp_path / "out")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    schema = json_schema("compact")["$defs"]["compacted_partition"]
    for row in rows:
        assert {*row} == {*schema["properties"]} == {*schema["required"]}
        assert row["n_records"] < row["n_records_before"]
        assert row["n_bytes"] < row["n_bytes_before"]
    assert kafkalog.verify(tmp_path / "out").ok
    backup = str(tmp_path / "old")
    assert main(["compact", str(log_dir), *options, "--in-place", "--backup", backup]) == 0
    assert "old files kept" in capsys.readouterr().err


def test_why_nothing_is_cleaned_is_said(tmp_path, capsys):
    kafkalog.write_table({"key": [b"a", b"a"], "value": [b"1", b"2"]}, tmp_path / "data", topic="t")
    assert main(["compact", str(tmp_path / "data"), "--topics", "t", "--dry-run"]) == 0
    assert "nothing to clean; the only segment is the active one" in capsys.readouterr().out


def test_damage_and_wrong_usage(log_dir, capsys):
    for arguments in (
        [],
        ["--dry-run", "--topics", "nobody"],
        ["--dry-run", "--backup", "x"],
    ):
        assert main(["compact", str(log_dir), *arguments]) == 2, arguments
    first = min((log_dir / "t-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    capsys.readouterr()
    assert main(["compact", str(log_dir), "--topics", "t", "--dry-run"]) == 1
    printed = capsys.readouterr()
    assert "crc_mismatch" in printed.err
    assert "kafkalog salvage" in printed.err
