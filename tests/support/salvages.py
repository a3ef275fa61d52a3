"""Logs to salvage."""

from __future__ import annotations

import hashlib
from pathlib import Path

import builder

from kafkalog import format as kf


def written(folder: Path, *segments: bytes, name: str = "t-0") -> Path:
    """A partition of these segments, each named after its first offset."""
    partition = folder / name
    partition.mkdir()
    for data in segments:
        base = int.from_bytes(data[:8], "big")
        (partition / kf.segment_file_name(base)).write_bytes(data)
    return partition


def batch(base: int, n: int = 3, size: int = 30, **options: object) -> bytes:
    records = [builder.record_v2(i, i, b"k%d" % (base + i), b"v" * size) for i in range(n)]
    return builder.batch_v2(records, base_offset=base, base_timestamp=10**12 + base, **options)  # type: ignore[arg-type]


def log_of(*batches: bytes) -> bytes:
    return b"".join(batches)


def dense(n: int, n_records: int = 3, size: int = 30) -> list[bytes]:
    return [batch(n_records * number, n_records, size) for number in range(n)]


def hashes(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def output_of(path: Path) -> list[bytes]:
    found = []
    for log in sorted(path.glob("*.log")):
        data = log.read_bytes()
        found += [data[start:end] for start, end in builder.batch_positions(data)]
    return found


def named(folder: Path, data: bytes | bytearray) -> Path:
    partition = folder / "t-0"
    partition.mkdir()
    (partition / kf.segment_file_name(0)).write_bytes(bytes(data))
    return partition
