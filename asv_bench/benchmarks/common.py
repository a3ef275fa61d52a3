"""What the benchmarks share: segments made once, passes that consume what they read."""

from __future__ import annotations

import time
from collections.abc import Iterable
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


def mb_per_s(segment: BenchSegment, side: Side) -> float:
    """Megabytes a CPU second, of bytes before compression."""
    return segment.raw_bytes / compare({"kafkalog": side}, rounds=5)["kafkalog"] / 1e6
