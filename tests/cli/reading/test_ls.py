"""What `ls` and `verify` print about many partitions, torn tails, and records below the log start offset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builder import batch_v2, record_v2

from kafkalog.cli import main


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for number in range(4):
        (tmp_path / f"t-{number}").mkdir()
        batches = [batch_v2([record_v2(at) for at in range(5)], base_offset=base) for base in (0, 5, 10)]
        (tmp_path / f"t-{number}" / f"{0:020d}.log").write_bytes(b"".join(batches))
    return tmp_path


def test_ls_counts_the_records_that_can_be_read(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / "log-start-offset-checkpoint").write_text("0\n2\nt 1 7\nt 2 10\n")
    assert main(["ls", str(logs), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["n_records"], row["n_readable_records"]) for row in rows] == [(15, 15), (15, 8), (15, 5), (15, 15)]
    assert main(["ls", str(logs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[5] for line in lines[1:5]] == ["15", "8", "5", "15"]
    assert lines[-1].endswith("43 records")


def test_ls_marks_a_torn_tail(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logs / "t-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + bytes.fromhex("000000000000000f"))
    assert main(["ls", str(logs)]) == 0
    marked = [line for line in capsys.readouterr().out.splitlines() if line.endswith("torn tail of 8 bytes")]
    assert [line.split()[0] for line in marked] == ["t-1"]


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_damaged_partitions_are_listed_before_the_total(
    logs: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for number in (1, 3):
        log = logs / f"t-{number}" / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        data[100 + 16] = 9  # the magic of a batch
        log.write_bytes(data[: len(data) // 3 + 16] + b"\x09" + data[len(data) // 3 + 17 :])
    assert main([command, str(logs)]) == 1
    *_, damaged, total = capsys.readouterr().out.splitlines()
    assert damaged == "damaged: t-1, t-3"
    assert total.startswith("total: ")
