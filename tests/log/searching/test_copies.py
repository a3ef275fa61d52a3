"""Batches that only a second copy of a piece of the log still has."""

from __future__ import annotations

from pathlib import Path

import builder
import pytest

import kafkalog
from kafkalog import format as kf


def batch(base: int, n: int = 3, **options: object) -> bytes:
    records = [builder.record_v2(i, i, b"k%d" % (base + i), b"v" * 30) for i in range(n)]
    return builder.batch_v2(records, base_offset=base, base_timestamp=10**12 + base, **options)  # type: ignore[arg-type]


def dense(n: int, **options: object) -> list[bytes]:
    return [batch(3 * number, **options) for number in range(n)]


def salvaged(folder: Path, *batches: bytes, next_base: int | None = None) -> tuple[list[bytes], kafkalog.SalvageReport]:
    """The batches that are kept of a segment of these bytes, and the report."""
    partition = folder / "t-0"
    partition.mkdir()
    (partition / kf.segment_file_name(0)).write_bytes(b"".join(batches))
    if next_base is not None:
        (partition / kf.segment_file_name(next_base)).write_bytes(batch(next_base))
    report = kafkalog.salvage(partition, output=folder / "out")
    data = (folder / "out" / "t-0" / kf.segment_file_name(0)).read_bytes()
    segment = report.partitions[0].segments[0]
    total = segment.n_bytes_kept + segment.n_bytes_lost + segment.n_bytes_padding + segment.n_bytes_suspect
    assert total == segment.size_in_bytes
    return [data[start:end] for start, end in builder.batch_positions(data)], report


def damaged(data: bytes) -> bytes:
    return b"\xff" * len(data)


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
