"""Batches that only a second copy of a piece of the log still has."""

from __future__ import annotations

from pathlib import Path

import pytest
from searches import damaged, dense, salvaged


@pytest.mark.parametrize("n_cut", [0, 60])
def test_a_batch_that_only_a_second_copy_has_fills_the_hole_in_the_first(tmp_path: Path, n_cut: int) -> None:
    batches = dense(20)
    copy = [damaged(one) if number == 12 else one for number, one in enumerate(batches)]
    copy[12] = copy[12][n_cut:]
    other = batches[:18]
    other[14] = damaged(other[14])
    kept, report = salvaged(tmp_path, *copy[:18], *other[8:], *batches[18:])
    assert kept == batches
    [partition] = report.partitions
    # the hole is there, but no offset is missing in it
    assert {(one.n_records, one.first_offset, one.end_offset) for one in partition.lost if one.reason != "offset_order"}
    assert partition.total("n_batches_kept") == 20
    assert partition.total("n_batches_suspect") == 8  # ten, of which one is damaged and one is kept
