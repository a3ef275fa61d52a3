"""Verifying against the checksum pass that it cannot do without, and checking indexes against walking headers."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from peers import Pass, compare, dump_tool
from peers.java import JavaUnavailableError

import kafkalog
from kafkalog._kernels.crc import check_crcs

from .common import MS_PER_100_MB, CpuTimed, Segments, make_segments


class Verify(CpuTimed):
    """Segments of batches of usual size, of single messages, compressed, and of v1."""

    params = (["A", "B", "C", "M", "B-zstd", "V1"],)
    param_names = ("shape",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, shape: str) -> None:
        self.directory = Path(segments[shape].path).parent
        self.result = kafkalog.verify(self.directory, threads=1)
        self.size = sum(segment.size_in_bytes for one in self.result.partitions for segment in one.segments)

    def time_verify(self, segments: Segments, shape: str) -> None:
        kafkalog.verify(self.directory, threads=1)

    def time_indexes_only(self, segments: Segments, shape: str) -> None:
        kafkalog.verify(self.directory, threads=1, indexes_only=True)

    def time_deep(self, segments: Segments, shape: str) -> None:
        kafkalog.verify(self.directory, threads=1, deep=True)

    def peakmem_verify(self, segments: Segments, shape: str) -> None:
        kafkalog.verify(self.directory, threads=1)

    def time_limit_crcs(self, segments: Segments, shape: str) -> None:
        for segment in kafkalog.Partition(self.directory).segments:
            with segment.open() as source:
                for window in segment.iter_windows(source):
                    batches = window.batches
                    place = batches.position, batches.size_in_bytes, batches.magic, batches.crc
                    check_crcs(window.data, window.start, *place, np.zeros(len(batches), np.uint8))
                    source.release(window.data, window.start)
                    del window

    def time_limit_headers(self, segments: Segments, shape: str) -> None:
        for segment in kafkalog.Partition(self.directory).segments:
            for _ in segment.iter_batches():
                pass

    def track_ms_per_100_mb(self, segments: Segments, shape: str) -> float:
        best = 1e9
        for _ in range(5):
            start = self.timer()
            kafkalog.verify(self.directory, threads=1)
            best = min(best, self.timer() - start)
        return best * 1e3 / (self.size / 1e8)

    track_ms_per_100_mb.unit = MS_PER_100_MB


class DeepAgainstDumpLogSegments:
    """How many times the CPU seconds that DumpLogSegments --deep-iteration takes; the aim is 20."""

    params = (["A", "B", "B-zstd", "V1"],)
    param_names = ("shape",)
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, shape: str) -> None:
        path = segments[shape].path

        def ours() -> Pass:
            start = time.process_time()
            kafkalog.verify(Path(path).parent, threads=1, deep=True)
            return Pass(time.process_time() - start, 0)

        try:
            tool = dump_tool.tool(path, "--deep-iteration")
            self.sides = {"tool": tool, "startup": dump_tool.startup(), "deep": ours}
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem

    def track_ratio(self, segments: Segments, shape: str) -> float:
        best = compare(self.sides, 3)
        return best["deep"] / best["tool"]

    track_ratio.unit = "kafkalog / DumpLogSegments, CPU time"

    def track_ratio_less_startup(self, segments: Segments, shape: str) -> float:
        best = compare(self.sides, 3)
        return best["deep"] / (best["tool"] - best["startup"])

    track_ratio_less_startup.unit = "kafkalog / DumpLogSegments, CPU time"
