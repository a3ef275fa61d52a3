"""Checksums of the messages inside compressed ones."""

from __future__ import annotations

from pathlib import Path

import builder
import pytest

import kafkalog

GZIP, SNAPPY, LZ4 = 1, 2, 3


def log_of(tmp_path: Path, magic: int, codec: int, wrong: list[int], key: bytes | None = None) -> Path:
    """Two wrappers; the second holds offsets 5 to 8, which v1 counts from 0, some of them with a wrong checksum."""
    messages = [
        builder.message(n + 5 * (magic == 0), b"k", b"v" * n, magic=magic, crc=7 if n in wrong else None)
        for n in range(4)
    ]
    parts = [
        builder.wrapper([builder.message(0, magic=magic)], offset=0, magic=magic, codec=codec),
        builder.wrapper(messages, offset=8, magic=magic, codec=codec, key=key),
    ]
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(parts))
    return path


@pytest.mark.parametrize(("codec", "key"), [(GZIP, None), (SNAPPY, b"of a wrapper"), (LZ4, b"")])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrong_one_is_noted_and_its_record_is_read(tmp_path: Path, magic: int, codec: int, key: bytes | None) -> None:
    path = log_of(tmp_path, magic, codec, [1, 3], key)
    assert kafkalog.read_table(path)["offset"].to_pylist() == [0, 5, 6, 7, 8]
    assert "crc_mismatch" not in [finding.reason for finding in kafkalog.verify(path).all_findings()]
    report = kafkalog.verify(path, deep=True)
    [note] = [finding for finding in report.all_findings() if finding.reason == "crc_mismatch"]
    assert (note.damage, note.last_offset) == (False, 8)
    assert note.position is not None
    assert note.detail.startswith("2 of the 4 messages inside")
    assert report.ok


@pytest.mark.parametrize("magic", [0, 1])
def test_right_ones_are_not(tmp_path: Path, magic: int) -> None:
    path = log_of(tmp_path, magic, GZIP, [])
    assert "crc_mismatch" not in [finding.reason for finding in kafkalog.verify(path, deep=True).all_findings()]
