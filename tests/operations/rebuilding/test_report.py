"""What a rebuild says that it changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import golden_sets
import pytest

from kafkalog.cli.app import main


# damage: (where and what, position where Kafka's table says that recovery stops)
@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A copy of a partition of three batches a segment or more, to damage."""
    target = tmp_path / "data" / "p-idem-now-0"
    shutil.copytree(golden_sets.unpacked("k44_extra") / "p-idem-now-0", target)
    return target


def test_the_command_says_what_changes(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / "00000000000000000000.index").unlink()
    assert main(["reindex", str(partition), "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split()[:4] == ["new", "offset", "6", "entries"]
    assert printed.out.count("\n") == 1
    assert "8 files, if it were done: 1 new, 7 same" in printed.err
    assert main(["reindex", str(partition), "--dry-run", "--json", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 8
    assert rows[0]["change"] == "new"
    assert main(["reindex", str(partition)]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--kinds", "all"]) == 2
    assert main(["reindex", str(partition), "--dry-run", "--backup"]) == 2
    assert not (partition / "00000000000000000000.index").exists()
