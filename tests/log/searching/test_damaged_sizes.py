"""Batches behind a head whose size field leads over them."""

from __future__ import annotations

from pathlib import Path

from searches import dense, salvaged


def test_a_size_field_that_leads_over_other_batches_by_chance_hides_none_of_them(tmp_path: Path) -> None:
    batches = dense(20)
    # what is cut is as long as two batches: the size field of the damaged one leads to the fourth behind it
    size = len(batches[10])
    assert len({len(one) for one in batches[8:14]}) == 1
    head = batches[10][:40]
    middle = b"\xff" * (size - 40)
    larger = head[:8] + (3 * size - 12).to_bytes(4, "big") + head[12:] + middle
    kept, report = salvaged(tmp_path, *batches[:10], larger, *batches[11:])
    assert kept == batches[:10] + batches[11:]
    [hole] = report.partitions[0].lost
    assert (hole.first_offset, hole.end_offset, hole.n_records) == (30, 33, 3)
