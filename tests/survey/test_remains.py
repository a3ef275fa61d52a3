"""What a cut loses: the damage and the intact batches from a position on."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.losses import losses_of, remains


@pytest.mark.parametrize("name", ["p-multi-0", "p-v1-lz4-0", "p-v0v1v2-mixed-0", "p-txn-0"])
@pytest.mark.parametrize("row", [0, 1, -1])
def test_all_from_the_cut_on_is_lost(log_dir: Path, name: str, row: int) -> None:
    segment = kafkalog.Partition(log_dir / name).segments[0]
    batches = segment.batches
    start = int(batches.position[row])
    contents, lost = remains(segment, start, LogDirState())
    [loss] = losses_of(lost)
    scan = kafkalog.scan(segment.path, columns=["offset"], include_control=True)
    offsets = [one for one in scan.to_table()["offset"].to_pylist() if row == 0 or one > batches.last_offset[row - 1]]
    assert (loss.first_offset, loss.end_offset) == (offsets[0], offsets[-1] + 1)
    assert loss.n_records == len(offsets) or (loss.certainty == "at_most" and loss.n_records > len(offsets))
    assert (contents.last_offset, contents.findings) == (batches.last_offset[-1], [])


def test_damage_after_the_cut_is_lost_too(log_dir_copy: Path) -> None:
    log = min((log_dir_copy / "p-multi-0").glob("*.log"))
    segment = kafkalog.Segment(log)
    batches = segment.batches
    data = bytearray(log.read_bytes())
    data[int(batches.position[2]) + 70] ^= 1
    log.write_bytes(data)
    segment = kafkalog.Segment(log)
    _, lost = remains(segment, int(batches.position[1]), LogDirState())
    [loss] = losses_of(lost)
    assert (loss.first_offset, loss.end_offset) == (batches.base_offset[1], batches.last_offset[-1] + 1)
    assert (loss.n_records, loss.certainty) == (batches.records_count[1:].sum(), "exact")
    _, all_after = remains(segment, int(batches.position[3]), LogDirState())
    assert sum(one.n_records or 0 for one in all_after) == batches.records_count[3:].sum()
