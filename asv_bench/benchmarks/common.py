"""What the benchmarks share: segments made once, passes that consume what they read."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, ClassVar

import shapes
from peers import Side, compare
from shapes import BenchSegment

import kafkalog
import kafkalog.scanning.read  # the package itself is lazy, and importing Arrow must not fall into the first sample

UNCOMPRESSED = ["A", "B", "C", "M"]
COMPRESSED = ["B-lz4", "B-zstd", "B-snappy", "B-gzip"]
LEGACY = ["V1", "V1-gzip", "V0"]
RECORD_COLUMNS = ["offset", "timestamp", "key", "value"]

Segments = dict[str, BenchSegment]


def make_segments(names: Iterable[str]) -> Segments:
    """The segments of these names, for a class's `setup_cache`."""
    return {name: shapes.segment(name) for name in names}


class CpuTimed:
    """Times are CPU seconds of the process, one pass a sample: a pass takes milliseconds and files stay in cache."""

    timer = time.process_time
    number = 1
    repeat = (3, 10, 10.0)
    warmup_time = 0.1
    timeout = 600.0
    processes: ClassVar[int] = 1


def drain(path: str, **options: Any) -> int:
    """Stream a segment batch by batch, keeping none; the number of records."""
    return sum(batch.num_rows for batch in kafkalog.scan(path, **options).to_reader())


MS_PER_100_MB = "ms / 100 MB"


def ms_per_100_mb(segment: BenchSegment, side: Side) -> float:
    """CPU milliseconds for 100 MB, of bytes before compression."""
    return compare({"kafkalog": side}, rounds=5)["kafkalog"] * 1e3 / (segment.raw_bytes / 1e8)


class Libraries:
    """The imports of libraries that benchmarks compare with: where one is missing, those benchmarks are skipped.

    asv imports all modules to find benchmarks, so an import that fails would end the whole run.
    """

    def __init__(self) -> None:
        self._problem = ""

    def __enter__(self) -> Libraries:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, ImportError):
            return False
        self._problem = f"{error}: pip install 'kafkalog[bench]'"
        print(f"benchmarks are skipped: {self._problem}", file=sys.stderr)
        return True

    def require(self) -> None:
        """Skip the benchmark if a library is missing; the first call of its `setup`."""
        if self._problem:
            raise NotImplementedError(self._problem)
