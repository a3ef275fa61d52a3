"""Snapshots: producers expire only by a time that is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rebuilds import clock_of

import kafkalog
from kafkalog.cli.app import main
from kafkalog.state.producers import read_snapshot


def test_producers_expire_only_by_a_time_that_is_given(partition: Path, tmp_path: Path) -> None:
    def n_producers(name: str, *options: str) -> int:
        assert main(["reindex", "-q", str(partition), "--kinds", "snapshot", "-o", str(tmp_path / name), *options]) == 0
        # the last one follows from one that was loaded
        return len(read_snapshot(max((tmp_path / name / partition.name).glob("*.snapshot"))).entries)

    newest = clock_of("k44_extra")
    a_day_on = datetime.fromtimestamp(newest / 1000, UTC) + timedelta(days=1, seconds=1)
    there = n_producers("default")
    assert there == len(read_snapshot(max(partition.glob("*.snapshot"))).entries) > 0
    assert n_producers("then", "--now", str(newest)) == there
    assert n_producers("later", "--now", a_day_on.isoformat()) < there
    stale = kafkalog.reindex(partition, kinds="snapshot", dry_run=True, now=a_day_on)
    assert stale.count("changed") > 0
    with pytest.raises(ValueError, match="now is a naive datetime"):
        kafkalog.reindex(partition, dry_run=True, now=a_day_on.replace(tzinfo=None))
