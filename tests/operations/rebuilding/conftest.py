"""A partition to damage."""

import pytest
from rebuilds import copied_partition


@pytest.fixture
def partition(tmp_path):
    """A copy of a partition of three batches a segment or more."""
    return copied_partition(tmp_path)
