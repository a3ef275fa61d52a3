"""What a rebuild says that it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkalog.cli.app import main


def test_the_command_says_what_changes(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / "00000000000000000000.index").unlink()
    assert main(["reindex", str(partition), "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split()[:4] == ["new", "offset", "6", "entries"]
    assert printed.out.count("\n") == 1
    assert "1 new, 7 same" in printed.err
    assert main(["reindex", str(partition), "--dry-run", "--json", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 8
    assert rows[0]["change"] == "new"
    assert main(["reindex", str(partition)]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--kinds", "all"]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--backup"]) == 2
    assert not (partition / "00000000000000000000.index").exists()
