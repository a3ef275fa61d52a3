"""What a recovery says that it did, or would do."""

from __future__ import annotations

from pathlib import Path

from files import content, flip
from recoveries import logs, small_log_dir

from kafkalog.repair.recovering.recover import recover


def test_a_dry_run_writes_nothing_and_says_the_same(tmp_path: Path) -> None:
    log_dir = small_log_dir(tmp_path)
    flip(logs(log_dir / "p-txn-0")[2], 100)
    before = content(tmp_path)
    dry = recover(log_dir, dry_run=True)
    assert content(tmp_path) == before
    assert not dry.is_written
    written = recover(log_dir, output=tmp_path / "out")
    assert [one.as_dict() for one in dry.partitions] == [one.as_dict() for one in written.partitions]
    assert repr(dry) == f"RecoveryReport(3 partitions, {dry.n_bytes_lost:,} bytes lost)"
