"""Segments of a partition one behind the other, past damage as asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from damaged_partitions import damaged_partition
from files import flip

import kafkalog
from kafkalog.log.segment import Segment


def test_an_unreadable_file_is_passed_over_like_damage(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = str(log_dir / "p-multi-1")
    opened = Segment.open

    def refuse(self: Segment) -> Any:
        if str(self.path).startswith(broken):
            raise kafkalog.ReadError("file_unreadable", "Input/output error", path=self.path)
        return opened(self)

    expected = kafkalog.scan(log_dir).count_rows() - kafkalog.scan(log_dir / "p-multi-1").count_rows()
    scan = kafkalog.scan(kafkalog.open(log_dir), on_corruption="skip")
    assert len(list(scan.partitions())) == 10
    monkeypatch.setattr(Segment, "open", refuse)
    with pytest.warns(kafkalog.CorruptionWarning, match="Input/output error"):
        assert scan.count_rows() == expected
    with pytest.raises(kafkalog.ReadError):
        kafkalog.scan(scan.target).count_rows()


def test_a_segment_over_a_limit_is_passed_over_like_damage(log_dir: Path) -> None:
    sizes = {segment.size_in_bytes for segment in kafkalog.Partition(log_dir / "p-multi-0").segments}
    limits = kafkalog.Limits(max_segment_bytes=max(sizes) - 1)
    with pytest.raises(kafkalog.LimitExceededError):
        kafkalog.scan(log_dir / "p-multi-0", limits=limits).count_rows()
    scan = kafkalog.scan(log_dir / "p-multi-0", limits=limits, on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning, match="max_segment_bytes"):
        assert scan.to_numpy().offset.tolist() == [121, 123]
    assert [finding.reason for finding in scan.findings] == ["segment_too_large"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_stop_ends_a_partition_and_skip_leaves_out_one_batch(log_dir_copy: Path, policy: Any, threads: int) -> None:
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    flip(path, int(batches.position[bad]) + 80)
    scan = kafkalog.scan(log_dir_copy, threads=threads, columns=["topic", "offset"], on_corruption=policy)
    with pytest.warns(kafkalog.CorruptionWarning, match="crc_mismatch"):
        table = scan.to_table()
    offsets = [offset for topic, offset in zip(*(c.to_pylist() for c in table.columns), strict=True) if "zstd" in topic]
    first, last = int(batches.base_offset[bad]), int(batches.last_offset[bad])
    expected = list(range(first)) + ([] if policy == "stop" else list(range(last + 1, 600)))
    assert offsets == expected
    (finding,) = [finding for finding in scan.findings if finding.damage]
    assert (finding.path, finding.position) == (str(path), batches.position[bad])
    assert finding.length == batches.size_in_bytes[bad]
    assert scan.n_damage == 1


@pytest.mark.parametrize("size", [0x7FFFFF00, 70, 0, -1, 13])
def test_a_wrong_length_in_a_sealed_segment_is_reported_and_skip_goes_on_at_the_next_batch(
    log_dir_copy: Path, size: int
) -> None:
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    data = bytearray(path.read_bytes())
    position = int(batches.position[bad])
    data[position + 8 : position + 12] = size.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    with pytest.raises(kafkalog.CorruptionError) as caught:
        kafkalog.scan(path.parent).count_rows()
    assert caught.value.position in (position, position + size + 12)
    scan = kafkalog.scan(path.parent, columns=["offset"], on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        offsets = scan.to_table().column(0).to_pylist()
    assert offsets == [*range(batches.base_offset[bad]), *range(batches.last_offset[bad] + 1, 600)]
    assert sum(finding.n_records or 0 for finding in scan.findings) == batches.records_count[bad]


def test_a_log_file_without_an_offset_for_a_name_is_a_finding(log_dir_copy: Path) -> None:
    (log_dir_copy / "p-multi-0" / "server.log").write_text("hello")
    scan = kafkalog.scan(log_dir_copy, topics="p-multi")
    assert scan.count_rows() == 303
    assert [finding.reason for finding in scan.findings] == ["unknown_file"]
