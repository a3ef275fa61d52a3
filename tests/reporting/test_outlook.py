"""What retention and the log cleaner will do, and what holds them up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from writing import columns_of, draw

import kafkalog
from kafkalog import LogConfig, PartitionWriter
from kafkalog.repair.recovering.settings import Cluster
from kafkalog.reporting.outlook import Outlook, outlook

DAY = 86_400_000
START = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=256)


def looked(path: Path, now: int, first_open: int | None = None, **settings: Any) -> Outlook:
    partition = kafkalog.open_partition(path)
    return outlook(partition, Cluster(None, 1, settings), now, first_open)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Five or more segments of half an hour each."""
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    with PartitionWriter(path, config=CONFIG, batch_size=400) as writer:
        writer.append(columns_of(draw(150, step=60_000, start=START)))
    return path


def test_old_segments_are_deleted_and_young_ones_say_when(partition: Path) -> None:
    never = looked(partition, START + 10 * DAY, **{"log.retention.ms": "-1"})
    assert (never.n_segments_expired, never.next_deletion) == (0, None)
    assert never.reasons == ("no limit: retention.ms and retention.bytes are -1",)
    every = looked(partition, START + 30 * DAY)
    assert every.n_bytes_expired == kafkalog.open_partition(partition).size_in_bytes
    some = looked(partition, START + 7 * DAY + 60 * 60_000)
    assert 0 < some.n_segments_expired < every.n_segments_expired
    assert some.next_deletion is not None
    assert some.next_deletion > START + 7 * DAY + 60 * 60_000
    assert some.settings == "broker"


def test_a_timestamp_in_the_future_holds_up_all_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    with PartitionWriter(path, config=CONFIG) as writer:
        for start in (START + 1000 * DAY, START, START):
            writer.append({"value": [b"v" * 500], "timestamp": np.array([start])})
            writer.roll()
    found = looked(path, START + 30 * DAY)
    assert found.n_segments_expired == 0
    (reason,) = found.reasons
    assert reason.startswith("segment 0 has timestamps in the future, up to 2026-08-10")
    assert reason.endswith("2 later segments that expired wait for it")


COMPACT = {"log.cleanup.policy": "compact"}


def test_cleaning_waits_for_the_dirty_ratio_lag_and_open_transactions(partition: Path) -> None:
    segments = kafkalog.open_partition(partition).segments
    dirty = sum(one.size_in_bytes for one in segments[:-1])
    ready = looked(partition, START + DAY, **COMPACT)
    assert (ready.dirty_bytes, ready.dirty_ratio, ready.will_be_cleaned, ready.reasons) == (dirty, 1.0, True, ())
    checkpoint = partition.parent / "cleaner-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nt 0 {segments[-2].base_offset}\n")
    below = looked(partition, START + DAY, **COMPACT)
    assert below.dirty_bytes == segments[-2].size_in_bytes
    assert not below.will_be_cleaned
    assert "is not above min.cleanable.dirty.ratio 0.5" in below.reasons[0]
    overdue = looked(partition, START + DAY, **COMPACT, **{"log.cleaner.max.compaction.lag.ms": "1000"})
    assert overdue.will_be_cleaned
    checkpoint.unlink()
    held = looked(partition, START + DAY, first_open=segments[1].base_offset + 1, **COMPACT)
    assert held.dirty_bytes == segments[0].size_in_bytes
    assert held.reasons[0].startswith("a transaction is open from offset")
    young = looked(partition, START + 60_000, **COMPACT, **{"log.cleaner.min.compaction.lag.ms": str(DAY)})
    assert (young.dirty_bytes, young.will_be_cleaned) == (0, False)
    assert "has timestamps in the future" in young.reasons[0]
    checkpoint.write_text(f"0\n1\nt 0 {segments[-1].base_offset}\n")
    done = looked(partition, START + DAY, **COMPACT)
    assert done.reasons == ("all that is not cleaned is in the active segment",)


def test_a_partition_that_was_cleaned_counts_as_compacted(partition: Path) -> None:
    (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    found = outlook(kafkalog.open_partition(partition), Cluster(None, None), START, None)
    assert (found.policy, found.settings) == (["compact"], "assumed")
