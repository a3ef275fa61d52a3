"""What a broker would do on its next start; `conformance/test_preflight.py` asks real brokers."""

from __future__ import annotations

import os
from pathlib import Path

import golden_sets
import numpy as np
import pytest
from startups import asked, logs

import kafkalog
from kafkalog.repair.startup.segment_reading import LoadedSegment


def test_a_healthy_partition_just_starts_or_is_recovered_behind_the_recovery_point(partition: Path) -> None:
    assert asked(partition, clean=True).verdict == "starts"
    row = asked(partition)
    assert row.verdict == "recovers"
    assert [one.action for one in row.segments] == ["kept", "kept", "recovered"]
    assert row.n_bytes_read == logs(partition)[-1].stat().st_size


def test_names_and_ids_that_stop_or_displace(partition: Path) -> None:
    (partition / "broker.log").write_text("text")
    assert asked(partition).exceptions[0].name == "NumberFormatException"
    (partition / "broker.log").unlink()
    (partition / "leader-epoch-checkpoint").write_text("0\n9\n")
    assert asked(partition).exceptions[0].is_offline
    assert not asked(partition, broker="2.8").exceptions[0].is_offline
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    (partition.parent / "backup").mkdir()
    (partition / "partition.metadata").unlink()
    result = kafkalog.preflight(partition.parent)
    assert [one.path for one in result.problems] == [str(partition.parent / "backup")]
    assert "no topic id" in (result.partitions[0].stray or "")
    old = kafkalog.preflight(partition.parent, broker="2.8")
    assert old.partitions[0].stray is None
    assert result.verdict == "does not start"
    assert result.as_dict()["partitions"][0]["verdict"] == "loses"


def test_it_agrees_with_recover(partition: Path) -> None:
    """The plan of one is the deed of the other."""
    data = bytearray(logs(partition)[-1].read_bytes())
    data[len(data) // 2] ^= 1
    logs(partition)[-1].write_bytes(data)
    row = asked(partition)
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert [(one.action, one.n_bytes) for one in row.segments] == [(one.action, one.n_bytes) for one in done.segments]
    assert row.log_end_offset == done.log_end_offset


@pytest.mark.parametrize("set_name", ["k44", "k28"])
def test_the_log_end_is_that_of_the_reader_where_all_is_well(set_name: str) -> None:
    for path in golden_sets.partitions(set_name).values():
        segment = kafkalog.Partition(path).segments[-1]
        assert LoadedSegment(segment, "4.3").next_offset() == segment.next_offset, path.name


def test_an_index_that_a_running_broker_trims_meanwhile_is_not_touched_any_more(partition: Path) -> None:
    log = logs(partition)[-1]
    index = log.with_suffix(".index")
    n_bytes = index.stat().st_size // 8 * 8
    os.truncate(index, 2**20)
    segment = LoadedSegment(kafkalog.Segment(log), "4.3")
    assert len(segment.entries) == 2**17
    os.truncate(index, n_bytes)
    assert not isinstance(segment.entries, np.memmap)
    assert not segment.entries["position"][n_bytes // 8 :].any()
    assert segment.entries[: n_bytes // 8].tobytes() == index.read_bytes()
