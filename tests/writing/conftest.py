"""Where partitions are written to."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a partition may go: what is above the log dir is for staging."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "orders-0"
