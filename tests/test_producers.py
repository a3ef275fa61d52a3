"""Producer snapshots as brokers left them, and as nobody did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_crc32c
from kafkalog.errors import SidecarError
from kafkalog.producers import read_snapshot


def snapshot(entries: bytes, *, n: int | None = None, version: int = 1, crc: int | None = None) -> bytes:
    size = kf.PRODUCER_SNAPSHOT_DTYPE.itemsize
    body = (len(entries) // size if n is None else n).to_bytes(4, "big") + entries
    whole = np.frombuffer(body, np.uint8)
    return version.to_bytes(2, "big") + (checksum_crc32c(whole) if crc is None else crc).to_bytes(4, "big") + body


def test_a_snapshot_is_viewed_as_entries(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000042.snapshot"
    entry = np.array([(7, 1, 9, 40, 4, 1_700_000_000_000, 3, 38)], kf.PRODUCER_SNAPSHOT_DTYPE)
    path.write_bytes(snapshot(entry.tobytes()))
    read = read_snapshot(path)
    assert (read.end_offset, len(read)) == (42, 1)
    assert read.entries[0] == entry[0]


def test_a_snapshot_without_producers_has_ten_bytes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.snapshot"
    path.write_bytes(snapshot(b""))
    assert path.stat().st_size == 10
    assert len(read_snapshot(path)) == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "snapshot_size"),
        (snapshot(b"")[:9], "snapshot_size"),
        (snapshot(b"", version=2), "snapshot_version"),
        (snapshot(b"", crc=1), "snapshot_crc"),
        (snapshot(b"\0" * 46)[:-1], "snapshot_crc"),
        (snapshot(b"\0" * 46, n=2), "snapshot_size"),
        (snapshot(b"", n=2**32 - 1), "snapshot_size"),
    ],
)
def test_a_bad_snapshot_is_refused_with_its_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "00000000000000000000.snapshot"
    path.write_bytes(content)
    with pytest.raises(SidecarError) as caught:
        read_snapshot(path)
    assert caught.value.reason == reason
