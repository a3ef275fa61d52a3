"""A partition to damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from rebuilds import copied_partition


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A copy of a partition of three batches a segment or more."""
    return copied_partition(tmp_path)
