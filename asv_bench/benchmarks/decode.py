"""Records from bytes on disk: every shape, codec and message format, whole and projected."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

from peers.ours import streaming

import kafkalog
from kafkalog.scanning import execution

from .common import (
    COMPRESSED,
    LEGACY,
    MS_PER_100_MB,
    RECORD_COLUMNS,
    UNCOMPRESSED,
    CpuTimed,
    Segments,
    drain,
    make_segments,
    ms_per_100_mb,
)

PROJECTIONS = {
    "offset,timestamp": ["offset", "timestamp"],
    "key": ["key"],
    "value": ["value"],
    "offset,timestamp,key,value": RECORD_COLUMNS,
}


class ToReader(CpuTimed):
    """All columns into Arrow, batch by batch, CRCs checked, one thread."""

    params = ([*UNCOMPRESSED, *COMPRESSED, *LEGACY],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_to_reader(self, segments: Segments, name: str) -> None:
        drain(segments[name].path, threads=1)

    def peakmem_to_reader(self, segments: Segments, name: str) -> None:
        drain(segments[name].path, threads=1)

    def track_ms_per_100_mb(self, segments: Segments, name: str) -> float:
        return ms_per_100_mb(segments[name], streaming(segments[name].path))

    track_ms_per_100_mb.unit = MS_PER_100_MB


class SmallCosts:
    """What Python costs: per window, and to open and read a segment of one batch."""

    timeout = 600

    def setup_cache(self) -> Segments:
        return make_segments(["A-none"])

    setup_cache.timeout = 600

    def track_us_per_window(self, segments: Segments) -> float:
        """The slope between few and many windows of the same bytes. The target is 20."""
        usual, least = execution._RUN_BYTES, {}
        try:
            for _ in range(5):
                for size in (2**17, 2**20):
                    execution._RUN_BYTES = size
                    start = time.process_time()
                    reader = kafkalog.scan(segments["A-none"].path, threads=1, columns=["offset"]).to_reader()
                    n_windows = sum(1 for _ in reader)
                    least[n_windows] = min(least.get(n_windows, math.inf), time.process_time() - start)
        finally:
            execution._RUN_BYTES = usual
        many, few = max(least), min(least)
        return (least[many] - least[few]) / (many - few) * 1e6

    track_us_per_window.unit = "us"

    def track_us_per_tiny_segment(self, segments: Segments) -> float:
        """The target is 300."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"{0:020d}.log"
            content = Path(segments["A-none"].path).read_bytes()
            path.write_bytes(content[: 12 + int.from_bytes(content[8:12], "big")])
            least = math.inf
            for _ in range(500):
                start = time.process_time()
                drain(str(path), threads=1)
                least = min(least, time.process_time() - start)
        return least * 1e6

    track_us_per_tiny_segment.unit = "us"


class Projection(CpuTimed):
    """A few columns: what is not asked for should not be paid for."""

    params = (["A", "B", "C", "B-lz4"], ["count", *PROJECTIONS], [True, False])
    param_names = ("segment", "columns", "check_crcs")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_to_reader(self, segments: Segments, name: str, columns: str, check_crcs: bool) -> None:
        path = segments[name].path
        if columns == "count":
            kafkalog.scan(path, check_crcs=check_crcs, threads=1).count_rows()
        else:
            drain(path, columns=PROJECTIONS[columns], check_crcs=check_crcs, threads=1)


class ToNumpy(CpuTimed):
    """All records as `RecordColumns`: the size of the result is part of the price."""

    params = (["A", "B", "C", "M", "B-lz4"],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_read_numpy(self, segments: Segments, name: str) -> None:
        kafkalog.read_numpy(segments[name].path, columns=RECORD_COLUMNS, threads=1)

    def peakmem_read_numpy(self, segments: Segments, name: str) -> None:
        kafkalog.read_numpy(segments[name].path, columns=RECORD_COLUMNS, threads=1)
