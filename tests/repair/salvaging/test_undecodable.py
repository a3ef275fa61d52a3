"""Batches with a right checksum that no reader decodes are kept, and told of."""

from __future__ import annotations

from pathlib import Path

import builder
import pytest

import kafkalog


def good(offset: int) -> bytes:
    return builder.batch_v2([builder.record_v2(0, 0, None, b"v%d" % offset)], base_offset=offset)


BAD = {
    "a record that is none": ("varint_overlong", {"payload": b"\xff" * 30, "records_count": 1}),
    "a stream that is none": ("codec_stream", {"payload": b"nothing of gzip", "codec": 1, "records_count": 1}),
    "records that are denied": ("record_trailing_bytes", {"payload": b"\0" * 30, "records_count": 0}),
    "a codec that is none": ("unknown_codec", {"payload": b"\0" * 30, "attributes": 7, "records_count": 1}),
}


def partition_with(root: Path, **bad: object) -> tuple[Path, int]:
    """A partition whose third batch is bad; and its position. The second one has a wrong checksum."""
    damaged = good(1)[:-1] + b"?"
    before = good(0) + damaged
    data = before + builder.batch_v2(base_offset=2, last_offset_delta=0, **bad) + good(3)  # type: ignore[arg-type]
    partition = root / "t-0"
    partition.mkdir(parents=True)
    (partition / f"{0:020d}.log").write_bytes(data)
    return partition, len(before)


@pytest.mark.parametrize("case", BAD)
def test_salvage_keeps_what_cannot_be_decoded_and_names_it(tmp_path: Path, case: str) -> None:
    reason, bad = BAD[case]
    source, position = partition_with(tmp_path / "source", **bad)
    for output in (None, tmp_path / "to"):
        report = kafkalog.salvage(source, output=output, dry_run=output is None, records=True)
        assert not report.ok
        assert (report.total("n_batches_kept"), report.total("n_batches_undecodable")) == (3, 1)
        found = [finding for finding in report.findings.rows if finding.position == position]
        assert [(one.reason, one.base_offset, one.damage, one.n_records) for one in found] == [(reason, 2, True, 0)]
        assert "the batch is kept as it is" in found[0].detail
        assert any("1 batch of them cannot be decoded" in line for line in report.lines())
    kept = (tmp_path / "to" / "t-0" / f"{0:020d}.log").read_bytes()
    data = (source / f"{0:020d}.log").read_bytes()
    assert kept == good(0) + data[position:]


def test_compressed_batches_are_looked_into_on_request_only(tmp_path: Path) -> None:
    reason, bad = BAD["a stream that is none"]
    source, _ = partition_with(tmp_path / "source", **bad)
    for records in (False, True):
        report = kafkalog.salvage(source, dry_run=True, records=records)
        assert report.total("n_batches_undecodable") == records
        assert records == any(finding.reason == reason for finding in report.findings.rows)


def test_merge_names_them_with_their_copy_in_a_dry_run_too(tmp_path: Path) -> None:
    reason, bad = BAD["a record that is none"]
    one, position = partition_with(tmp_path / "one", **bad)
    other, _ = partition_with(tmp_path / "other", **bad)
    for output in (None, tmp_path / "to"):
        report = kafkalog.merge([one, other], output=output, dry_run=output is None)
        assert [replica.n_batches_undecodable for replica in report.partitions[0].replicas] == [1, 0]
        found = [finding for finding in report.findings.rows if finding.reason == reason]
        path = str(one / f"{0:020d}.log")
        assert [(one.path, one.position, one.base_offset) for one in found] == [(path, position, 2)]
        assert any("1 batch merged that cannot be decoded" in line for line in report.lines())


def test_a_batch_beyond_the_limits_is_told_of_and_is_no_damage(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(
        builder.batch_v2([builder.record_v2(n, 0, None, b"v") for n in range(3)], base_offset=0) + good(3)
    )
    report = kafkalog.salvage(partition, dry_run=True, limits=kafkalog.Limits(max_records_per_batch=2))
    assert report.ok
    assert report.total("n_batches_undecodable") == 1
    assert {finding.reason for finding in report.findings.rows} == {"too_many_records"}
