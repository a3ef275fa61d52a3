"""In which order the producers of a partition's segments are replayed."""

from __future__ import annotations

import shutil
from pathlib import Path

import builder
import golden_sets
import numpy as np
import pytest
from recoveries import RECOVERY_POINTS, logs, row, small_log_dir

import kafkalog
from kafkalog import format as kf
from kafkalog.repair.recovering import partition as recovering
from kafkalog.repair.recovering.recover import recover
from kafkalog.state.producers import encode_snapshot, read_snapshot

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


def test_a_transaction_that_is_open_in_a_snapshot_has_to_go_on(tmp_path: Path) -> None:
    partition = tmp_path / "data" / "t-0"
    partition.mkdir(parents=True)
    for base, is_transactional in ((0, True), (10, False)):
        batches = [
            builder.batch_v2(
                [builder.record_v2(0, 0, b"k", b"v")],
                base_offset=base + i,
                producer_id=1,
                producer_epoch=0,
                base_sequence=base + i,
                transactional=is_transactional,
            )
            for i in range(10)
        ]
        (partition / f"{base:020d}.log").write_bytes(b"".join(batches))
        (partition / f"{base:020d}.index").touch()
        (partition / f"{base:020d}.timeindex").touch()
    entries = np.zeros(1, kf.PRODUCER_SNAPSHOT_DTYPE)
    entries[0] = (1, 0, 9, 9, 0, 0, -1, 0)
    (partition / f"{10:020d}.snapshot").write_bytes(encode_snapshot(entries))
    (partition.parent / RECOVERY_POINTS).write_text("0\n1\nt 0 10\n")
    foretold = kafkalog.preflight(partition.parent, clean=False).partitions[0].exceptions
    assert [one.name for one in foretold] == ["InvalidTxnStateException"]
    found = row(recover(partition.parent, dry_run=True), "t-0")
    assert "InvalidTxnStateException" in (found.error or "")
