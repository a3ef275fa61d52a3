"""What the metadata log says of topics."""

from __future__ import annotations

from pathlib import Path

from builder import ZSTD, batch_v2, record_v2

from kafkalog.state.cluster_metadata import read_cluster_metadata


def topic_record(name: str, topic_id: bytes) -> bytes:
    """`TopicRecord`, version 0, as a value: frame version, type, version, compact name, id, no tagged fields."""
    return b"\x01\x02\x00" + bytes((len(name) + 1,)) + name.encode() + topic_id + b"\x00"


def test_a_window_that_decompresses_to_many_megabytes_is_read_whole(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    filler = bytes(3 * 2**20)
    log = b"".join(
        batch_v2([record_v2(key=filler, value=topic_record(f"t{n}", bytes([n + 1] * 16)))], base_offset=n, codec=ZSTD)
        for n in range(6)
    )
    (directory / f"{0:020d}.log").write_bytes(log)
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None
    assert metadata.findings == []
    assert sorted(metadata.topic_ids) == [f"t{n}" for n in range(6)]


def test_a_record_of_a_newer_version_is_a_finding_and_the_others_count(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    newer = b"\x01\x02\x09" + topic_record("new", bytes([1] * 16))[3:]
    unknown = b"\x01\x7f\x00"
    values = [newer, unknown, topic_record("old", bytes([2] * 16))]
    log = batch_v2([record_v2(delta, value=value) for delta, value in enumerate(values)])
    (directory / f"{0:020d}.log").write_bytes(log)
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None
    assert list(metadata.topic_ids) == ["old"]
    finding, unknown_type = metadata.findings
    assert "type 127 is not known" in unknown_type.detail
    assert finding.reason == "internal_record"
    assert finding.detail == "TopicRecord has version 9; known are 0 to 0"
