"""Indexes rebuilt from a segment and written, against `LogSegment.recover`, and with two jobs."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import shapes
from peers import compare, timed
from peers.java import JavaPeer, JavaUnavailableError, require_java

import kafkalog
import kafkalog.operations.rebuilding.reindex

from .common import CpuTimed, Segments

MIB = 256
NAMES = ["A", "B", "C", "B-zstd", "V1"]


class _Rebuild(CpuTimed):
    params = (NAMES,)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return {name: shapes.segment(name, MIB) for name in self.params[0]}

    setup_cache.timeout = 1800

    def setup(self, segments: Segments, name: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="kafkalog-rebuild-")
        self.directory = Path(self._home.name) / "t-0"
        self.directory.mkdir()
        self.path = segments[name].copied_to(self.directory)

    def teardown(self, segments: Segments, name: str) -> None:
        self._home.cleanup()

    def rebuild(self) -> tuple[int, int]:
        """One pass, from files without indexes; the entries written."""
        for path in self.directory.glob("*index"):
            path.unlink()
        report = kafkalog.reindex(self.directory, in_place=True, backup=False, index_interval_bytes=4096)
        return sum(file.n_entries for file in report.files), -1


class Rebuild(_Rebuild):
    """256 MiB, both indexes written and made durable; memory is that of windows and entries."""

    def time_rebuild(self, segments: Segments, name: str) -> None:
        self.rebuild()

    def peakmem_rebuild(self, segments: Segments, name: str) -> None:
        self.rebuild()


class RebuildAgainstJava(_Rebuild):
    """How many times as fast as `LogSegment.recover`, CPU seconds; the aim is 2.5."""

    def setup(self, segments: Segments, name: str) -> None:
        try:
            require_java()
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem
        super().setup(segments, name)

    def track_ratio_recover(self, segments: Segments, name: str) -> float:
        with JavaPeer("recover", self.path) as peer:
            best = compare({"kafkalog": timed(self.rebuild), "peer": peer}, 7)
        return best["kafkalog"] / best["peer"]

    track_ratio_recover.unit = "kafkalog / LogSegment.recover, CPU time"


class TwoJobs(CpuTimed):
    """How many times as fast two jobs are as one, over four segments, wall seconds; the aim is 1.7."""

    def setup_cache(self) -> Segments:
        return {"B": shapes.segment("B", MIB)}

    setup_cache.timeout = 1800

    def setup(self, segments: Segments) -> None:
        if len(os.sched_getaffinity(0)) < 2:
            raise NotImplementedError("two jobs need two CPUs")
        self._home = tempfile.TemporaryDirectory(prefix="kafkalog-rebuild-")
        self.root = Path(self._home.name)
        for number in range(4):
            (self.root / f"t-{number}").mkdir()
            segments["B"].copied_to(self.root / f"t-{number}")

    def teardown(self, segments: Segments) -> None:
        self._home.cleanup()

    def track_ratio_two_jobs(self, segments: Segments) -> float:
        best = {1: float("inf"), 2: float("inf")}
        for _ in range(5):
            for jobs in best:
                start = time.perf_counter()
                kafkalog.reindex(self.root, in_place=True, backup=False, index_interval_bytes=4096, threads=jobs)
                best[jobs] = min(best[jobs], time.perf_counter() - start)
        return best[2] / best[1]

    track_ratio_two_jobs.unit = "two threads / one, by the clock"
