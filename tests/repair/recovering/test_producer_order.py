"""In which order the producers of a partition's segments are replayed."""

from __future__ import annotations

import shutil
from pathlib import Path

import golden_sets
import pytest
from recoveries import RECOVERY_POINTS, logs, row, small_log_dir

from kafkalog.repair.recovering import partition as recovering
from kafkalog.repair.recovering.recover import recover
from kafkalog.state.producers import read_snapshot

YEARS_LATER_MS = 1_900_000_000_000


def test_a_segment_without_an_index_begins_with_the_snapshots_that_were_there(tmp_path: Path) -> None:
    """It is recovered before the others: of the last snapshot, whose producers have expired, and not of a replay."""
    name = "p-compact-idem-0"
    log_dir = tmp_path / "data"
    shutil.copytree(golden_sets.partitions("k44", "unclean")[name], log_dir / name)
    behind = f"{1716:020d}"
    (log_dir / name / f"{behind}.log").touch()
    (log_dir / RECOVERY_POINTS).write_text("0\n1\np-compact-idem 0 1000000\n")

    kept = row(recover(log_dir, output=tmp_path / "then"), name)
    later = row(recover(log_dir, output=tmp_path / "later", now=YEARS_LATER_MS), name)
    assert kept.error is later.error is None
    found = [
        read_snapshot(tmp_path / root / name / f"{behind}.snapshot").entries["producer_id"].tolist()
        for root in ("then", "later")
    ]
    assert found == [[7, 8], []]


def test_lost_indexes_alone_do_not_have_batches_replayed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = small_log_dir(tmp_path, ("p-txn-0",))
    for log in logs(log_dir / "p-txn-0"):
        log.with_suffix(".index").unlink(missing_ok=True)
    (log_dir / RECOVERY_POINTS).unlink(missing_ok=True)
    replays = []
    run = recovering.ReplayOrder.run

    def noted(self: recovering.ReplayOrder, producers: recovering.ProducerLoading, *arguments: object) -> None:
        replays.append(producers.is_exact)
        run(self, producers, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(recovering.ReplayOrder, "run", noted)
    assert row(recover(log_dir, output=tmp_path / "out"), "p-txn-0").error is None
    assert replays == [False]
