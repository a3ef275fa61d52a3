"""Salvage of a healthy segment, of a damaged one and of hostile bytes; preflight of an unclean log dir."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np
import shapes

import kafkalog
import kafkalog.repair.recovering.preflight
import kafkalog.repair.salvaging.salvage

from .common import MS_PER_100_MB, CpuTimed, Segments

MIB = 128
HOSTILE_MIB = 16
CLAIMED = 3000
"""Size that each header of the hostile bytes claims."""


def hostile(n_bytes: int) -> bytes:
    """A header of a batch every 61 bytes, and no batch."""
    head = struct.pack(">qiibIhiqqqhii", 5, CLAIMED, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1)
    return head * (n_bytes // len(head))


class Salvage(CpuTimed):
    """A dry run over one segment; the aims are 1 GB/s for a healthy log, and 100 MB/s for hostile bytes."""

    params = (["healthy", "damaged", "hostile"],)
    param_names = ("bytes",)

    def setup_cache(self) -> Segments:
        return {"B": shapes.segment("B", MIB)}

    setup_cache.timeout = 1800

    def setup(self, segments: Segments, name: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="kafkalog-salvage-")
        directory = Path(self._home.name) / "data" / "t-0"
        directory.mkdir(parents=True)
        self.root = directory.parent
        self.path = segments["B"].copied_to(directory)
        if name == "hostile":
            self.path.write_bytes(hostile(HOSTILE_MIB * 2**20))
        elif name == "damaged":
            rng = np.random.default_rng(3)
            with self.path.open("r+b") as file:
                for at in rng.integers(0, MIB * 2**20 - 100, 200).tolist():
                    file.seek(at)
                    file.write(rng.bytes(50))

    def teardown(self, segments: Segments, name: str) -> None:
        self._home.cleanup()

    def salvage(self) -> None:
        """One pass over the log dir."""
        kafkalog.salvage(self.root, dry_run=True)

    def time_salvage(self, segments: Segments, name: str) -> None:
        self.salvage()

    def peakmem_salvage(self, segments: Segments, name: str) -> None:
        self.salvage()

    def track_ms_per_100_mb(self, segments: Segments, name: str) -> float:
        """CPU milliseconds for 100 MB of the log, the best of five passes."""
        best = float("inf")
        for _ in range(5):
            start = self.timer()
            self.salvage()
            best = min(best, self.timer() - start)
        return best * 1e3 / (self.path.stat().st_size / 1e8)

    track_ms_per_100_mb.unit = MS_PER_100_MB


class Preflight(Salvage):
    """What a broker would do after a crash: reads what recovery reads."""

    params = (["healthy", "damaged"],)

    def salvage(self) -> None:
        """One forecast."""
        kafkalog.preflight(self.root, clean=False, index_interval_bytes=4096)
