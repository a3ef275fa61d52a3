"""A damaged log for jobs."""

import pytest
from job_results import flip


@pytest.fixture
def damaged(log_dir_copy):
    """A value, an offset index, a transaction index and leader epochs are damaged, in four partitions."""
    flip(log_dir_copy / "p-multi-1" / "00000000000000000000.log", 200)
    flip(sorted((log_dir_copy / "p-zstd-java-0").glob("*.index"))[0], 5)
    flip(next(path for path in sorted((log_dir_copy / "p-txn-0").glob("*.txnindex")) if path.stat().st_size), 20)
    (log_dir_copy / "p-headers-0" / "leader-epoch-checkpoint").write_text("0\n2\n5 0\n3 10\n")
    return log_dir_copy
