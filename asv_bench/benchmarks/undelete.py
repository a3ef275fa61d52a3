"""The search of `undelete` through an image, next to reading the image with a checksum of all bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import shapes
from peers import compare, timed

import kafkalog
import kafkalog.undeleting.undelete
from kafkalog.codec import crc32c

from .common import CpuTimed, Segments

MIB = 64
WINDOW = 2**23


class Undelete(CpuTimed):
    """A dry run over an image: a segment of small or of large batches, or random bytes."""

    params = (["A", "B", "random"],)
    param_names = ("content",)

    def setup_cache(self) -> Segments:
        return {name: shapes.segment(name, MIB) for name in ("A", "B")}

    setup_cache.timeout = 1800

    def setup(self, segments: Segments, name: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="kafkalog-undelete-")
        self.path = Path(self._home.name) / "image"
        if name == "random":
            self.path.write_bytes(np.random.default_rng(7).bytes(MIB * 2**20))
        else:
            self.path.write_bytes(bytes(4096) + Path(segments[name].path).read_bytes())

    def teardown(self, segments: Segments, name: str) -> None:
        self._home.cleanup()

    def search(self) -> tuple[int, int]:
        """One search, without writing."""
        kafkalog.undelete(self.path, dry_run=True)
        return 0, -1

    def read(self) -> tuple[int, int]:
        """One pass over the bytes, with a checksum."""
        with self.path.open("rb") as file:
            while data := file.read(WINDOW):
                crc32c(data)
        return 0, -1

    def time_search(self, segments: Segments, name: str) -> None:
        self.search()

    def peakmem_search(self, segments: Segments, name: str) -> None:
        self.search()

    def track_ratio_reading(self, segments: Segments, name: str) -> float:
        """The search over reading with checksums: 1.25 is 80 % of its speed."""
        best = compare({"undelete": timed(self.search), "reading": timed(self.read)})
        return best["undelete"] / best["reading"]

    track_ratio_reading.unit = "undelete / reading with CRC-32C, CPU time"
