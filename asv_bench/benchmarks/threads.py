"""One thread and two: wall seconds, since CPU seconds hide what threads are for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

from .common import CpuTimed, Segments, drain, make_segments


class Threads(CpuTimed):
    """`to_reader` with one thread next to two."""

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
    """Two threads next to one, in turns; the aims are 1/1.8 by the clock, and 1 by CPU time."""

    params = (["A", "B", "C", "B-zstd"],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str) -> None:
        if len(os.sched_getaffinity(0)) < 2:
            raise NotImplementedError("two threads need two CPUs")

    def track_ratio_two_threads(self, segments: Segments, name: str) -> float:
        return _ratio(segments[name].path, time.perf_counter)

    track_ratio_two_threads.unit = "two threads / one, by the clock"

    def track_cpu_two_threads(self, segments: Segments, name: str) -> float:
        return _ratio(segments[name].path, time.process_time)

    track_cpu_two_threads.unit = "two threads / one, CPU time"


def _ratio(path: str, clock: Callable[[], float]) -> float:
    """The time of two threads over that of one: the median of pairs, since other programs disturb both."""
    ratios = []
    for _ in range(9):
        spent = []
        for threads in (1, 2):
            start = clock()
            drain(path, threads=threads)
            spent.append(clock() - start)
        ratios.append(spent[1] / spent[0])
    return median(ratios)
