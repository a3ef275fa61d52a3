"""`read_committed`: free without transactions, and what it costs where every batch is in one."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import shapes

import kafkalog
from kafkalog._kernels.crc import checksum_crc32c

from .common import CpuTimed, drain

LEVELS = ["read_uncommitted", "read_committed"]
N_PRODUCERS = 4


def transactional(source: str, target: Path, per_transaction: int) -> None:
    """A segment's batches as those of interleaved transactions; a third of them are aborted."""
    parts: list[bytes] = []
    n_markers = 0
    data = Path(source).read_bytes()
    table = kafkalog.Segment(source).batches
    for row, (position, size) in enumerate(zip(table.position.tolist(), table.size_in_bytes.tolist(), strict=True)):
        producer = row % N_PRODUCERS
        batch = bytearray(data[position : position + size])
        batch[0:8] = struct.pack(">q", int(table.base_offset[row]) + n_markers)
        batch[22] |= 0x10
        batch[43:53] = struct.pack(">qh", producer, 0)
        parts.append(_with_crc(batch))
        if row // N_PRODUCERS % per_transaction == per_transaction - 1:
            offset = int(table.last_offset[row]) + n_markers + 1
            kind = int(row // N_PRODUCERS // per_transaction % 3 > 0)
            header = struct.pack(">qiibIhiqqqhii", offset, 66, 0, 2, 0, 0x30, 0, 0, 0, producer, 0, -1, 1)
            parts.append(_with_crc(bytearray(header + b"\x20\0\0\0\x08\0\0\0" + bytes([kind]) + b"\x0c" + bytes(7))))
            n_markers += 1
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_suffix(".tmp")  # a run that is stopped leaves no half of a log to measure
    staged.write_bytes(b"".join(parts))
    staged.rename(target)


def _with_crc(batch: bytearray) -> bytes:
    batch[17:21] = struct.pack(">I", checksum_crc32c(np.frombuffer(batch, np.uint8)[21:]))
    return bytes(batch)


class Isolation(CpuTimed):
    """Both levels side by side, on batches as they are and as those of transactions of one and of eight batches."""

    params = (["A", "C", "A-transactions-1", "A-transactions-8", "C-transactions-1"], LEVELS)
    param_names = ("segment", "isolation_level")

    def setup_cache(self) -> dict[str, str]:
        paths = {}
        for name in self.params[0]:
            shape, _, per_transaction = name.partition("-transactions-")
            paths[name] = shapes.segment(shape).path
            if per_transaction:
                target = shapes.cache_dir() / f"{name}-{Path(paths[name]).stat().st_size}" / "bench-0" / "0.log"
                if not target.exists():
                    transactional(paths[name], target, int(per_transaction))
                paths[name] = str(target)
        return paths

    setup_cache.timeout = 600

    def time_to_reader(self, paths: dict[str, str], name: str, isolation_level: str) -> None:
        drain(paths[name], threads=1, isolation_level=isolation_level)

    def peakmem_to_reader(self, paths: dict[str, str], name: str, isolation_level: str) -> None:
        drain(paths[name], threads=1, isolation_level=isolation_level)

    def time_last_stable_offset(self, paths: dict[str, str], name: str, isolation_level: str) -> None:
        partition = kafkalog.open(Path(paths[name]).parent)
        assert isinstance(partition, kafkalog.Partition)
        _ = partition.log_end_offset if isolation_level == "read_uncommitted" else partition.last_stable_offset
