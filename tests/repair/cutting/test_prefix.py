"""The first bytes of a segment."""

from __future__ import annotations

from pathlib import Path

import builder
import pytest

import kafkalog
from kafkalog.repair.cutting.prefix import SegmentPrefix, position_of


@pytest.fixture
def segment(tmp_path: Path) -> kafkalog.Segment:
    batches = [
        builder.batch_v2([builder.record_v2(i, 0) for i in range(3)], base_offset=base, last_offset_delta=2)
        for base in (10, 13, 20)
    ]
    path = tmp_path / f"{10:020d}.log"
    path.write_bytes(b"".join(batches))
    return kafkalog.Segment(path)


def test_a_prefix_reads_as_a_file_that_ends_there(segment: kafkalog.Segment) -> None:
    positions = [*segment.batches.position.tolist(), segment.size_in_bytes]
    for n, end in enumerate(positions):
        prefix = SegmentPrefix(segment, end)
        assert prefix.batches.base_offset.tolist() == [10, 13, 20][:n]
        assert prefix.next_offset == [10, 13, 16, 23][n]
    assert SegmentPrefix(segment, 10**6).batches.base_offset.size == 3


@pytest.mark.parametrize(
    ("offset", "batch"), [(0, 0), (10, 0), (12, 0), (13, 1), (15, 1), (16, 2), (19, 2), (22, 2), (23, 3)]
)
def test_the_batch_that_reaches_an_offset_goes_whole(segment: kafkalog.Segment, offset: int, batch: int) -> None:
    assert position_of(segment, offset) == [*segment.batches.position.tolist(), segment.size_in_bytes][batch]
