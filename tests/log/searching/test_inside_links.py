"""Batches behind a head whose size field leads over them."""

from __future__ import annotations

from pathlib import Path

import builder

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
