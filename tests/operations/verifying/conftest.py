"""What is damaged and then verified."""

import shutil
from pathlib import Path

import golden_sets
import pytest


@pytest.fixture
def log_dir(tmp_path):
    """A copy of one's own."""
    return Path(shutil.copytree(golden_sets.LOG_DIR, tmp_path / "logs"))


@pytest.fixture
def partition(log_dir):
    """A partition of several segments, with transactions."""
    return log_dir / "p-txn-0"
