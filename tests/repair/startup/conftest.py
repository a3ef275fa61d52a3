"""A partition that a broker is about to load."""

from __future__ import annotations

import shutil
from pathlib import Path

import golden_sets
import pytest


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three segments, in a log dir with recovery points that name the last."""
    target = tmp_path / "data" / "p-txn-now-0"
    shutil.copytree(golden_sets.partitions("k44_extra")["p-txn-now-0"], target)
    (target.parent / "recovery-point-offset-checkpoint").write_text("0\n1\np-txn-now 0 300\n")
    return target
