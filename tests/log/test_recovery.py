"""Reading a segment as a broker's recovery does."""

from __future__ import annotations

from pathlib import Path

import golden_sets
import numpy as np
import pytest
from rebuilds import batches_of, copied_partition, hostile

import kafkalog
from kafkalog.log.recovery import rows_to_replay
from kafkalog.operations.rebuilding.rebuilder import KINDS
from kafkalog.state.producers import ProducerState


def test_leaving_out_rows_leaves_producers_as_they_would_be() -> None:
    n_left_out = 0
    for set_name in ("k44", "k44_extra"):
        for path in golden_sets.partitions(set_name).values():
            whole, some = ProducerState(), ProducerState()
            for segment in kafkalog.Partition(path).segments:
                batches = segment.batches
                rows = rows_to_replay(batches)
                n_left_out += int((batches.producer_id >= 0).sum()) - rows.size
                told = batches[rows]
                ended = whole.update(batches, log_position=batches.base_offset).tolist()
                assert some.update(told, log_position=told.base_offset).tolist() == ended
                assert some.entries().tobytes() == whole.entries().tobytes()
    assert n_left_out > 100


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return copied_partition(tmp_path)


def test_a_damaged_log_gives_findings_and_never_a_crash(partition: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    path, _ = batches_of(partition, 1)
    data = path.read_bytes()
    n_found = 0
    for _ in range(150):
        path.write_bytes(hostile(rng, data))
        report = kafkalog.reindex(partition, kinds=KINDS, dry_run=True, threads=2)
        n_found += bool(report.findings.rows)
        for finding in report.findings.rows:
            assert finding.position is None or 0 <= finding.position <= path.stat().st_size
    assert n_found > 100
