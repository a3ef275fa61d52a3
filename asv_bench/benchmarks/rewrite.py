"""Segments converted: another codec, records filtered, old formats; as a share of the speed of a scan."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import shapes
from peers import compare, timed
from peers.ours import streaming

import kafkalog
import kafkalog.operations.converting.convert

from .common import CpuTimed, Segments

MIB = 64
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "copy": ("B", {}),
    "to-lz4": ("B", {"compression": "lz4"}),
    "to-zstd": ("B", {"compression": "zstd"}),
    "zstd-to-none": ("B-zstd", {"compression": "none"}),
    "drop-a-key": ("B", {"drop": [("key", "==", b"no-such-key")]}),
    "drop-a-tenth": ("B", {"drop": [("key", "contains", b"7")]}),
    "batches-of-256K": ("B", {"batch_size": 2**18}),
    "v1-to-v2": ("V1", {}),
}


class Rewrite(CpuTimed):
    """One thread, the files written and made durable."""

    params = (list(WAYS),)
    param_names = ("way",)
    repeat = (2, 5, 20.0)

    def setup_cache(self) -> Segments:
        return {name: shapes.segment(name, MIB) for name, _ in WAYS.values()}

    setup_cache.timeout = 1800

    def setup(self, segments: Segments, way: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="kafkalog-rewrite-")
        name, self.options = WAYS[way]
        self.source = segments[name].path
        self.target = Path(self._home.name) / "t-0"

    def teardown(self, segments: Segments, way: str) -> None:
        self._home.cleanup()

    def convert(self) -> tuple[int, int]:
        """One pass; the records that were read."""
        shutil.rmtree(self.target, ignore_errors=True)
        report = kafkalog.convert(self.source, self.target, threads=1, **self.options)
        return report.total("n_records_before"), -1

    def time_convert(self, segments: Segments, way: str) -> None:
        self.convert()

    def peakmem_convert(self, segments: Segments, way: str) -> None:
        self.convert()

    def track_ratio_to_scan(self, segments: Segments, way: str) -> float:
        best = compare({"convert": timed(self.convert), "scan": streaming(self.source)}, 5)
        return best["convert"] / best["scan"]

    track_ratio_to_scan.unit = "convert / scan, CPU time"
