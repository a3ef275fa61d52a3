"""Where partitions are written to."""

import pytest


@pytest.fixture
def path(tmp_path):
    """Where a partition may go: what is above the log dir is for staging."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "orders-0"
