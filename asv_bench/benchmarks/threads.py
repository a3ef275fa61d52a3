"""One thread and two: wall seconds, since CPU seconds hide what threads are for."""

from __future__ import annotations

import os
import time

from .common import CpuTimed, Segments, drain, make_segments


class Threads(CpuTimed):
    """`to_reader` with one thread beside two."""

    timer = time.perf_counter
    params = (["A", "B", "C", "B-zstd"], [1, 2])
    param_names = ("segment", "threads")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_to_reader(self, segments: Segments, name: str, threads: int) -> None:
        drain(segments[name].path, threads=threads)

    def peakmem_to_reader(self, segments: Segments, name: str, threads: int) -> None:
        drain(segments[name].path, threads=threads)


class TwoThreads(CpuTimed):
    """How many times as fast two threads are as one: both alternate; the aim is 1.8."""

    params = (["A", "B", "C", "B-zstd"],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str) -> None:
        if len(os.sched_getaffinity(0)) < 2:
            raise NotImplementedError("two threads need two CPUs")

    def track_ratio_two_threads(self, segments: Segments, name: str) -> float:
        best = {1: float("inf"), 2: float("inf")}
        for _ in range(8):
            for threads in best:
                start = time.perf_counter()
                drain(segments[name].path, threads=threads)
                best[threads] = min(best[threads], time.perf_counter() - start)
        return best[1] / best[2]

    track_ratio_two_threads.unit = "x"
