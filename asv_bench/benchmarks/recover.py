"""A log dir recovered offline, against `LogSegment.recover` over the same segments one after the other."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import shapes
from peers.java import JavaPeer, JavaUnavailableError, require_java

import kafkalog
import kafkalog.repair.recovering.recover

from .common import CpuTimed, Segments

MIB = 128
N_PARTITIONS = 4


class LogDirs(CpuTimed):
    """Four partitions of 128 MiB without any derived file; a dry run reads and builds all, and writes nothing."""

    params = (["B", "B-zstd", "V1"],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return {name: shapes.segment(name, MIB) for name in self.params[0]}

    setup_cache.timeout = 1800

    def setup(self, segments: Segments, name: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="kafkalog-recover-")
        self.root = Path(self._home.name) / "data"
        for number in range(N_PARTITIONS):
            directory = self.root / f"t-{number}"
            directory.mkdir(parents=True)
            self.path = segments[name].copied_to(directory)

    def teardown(self, segments: Segments, name: str) -> None:
        self._home.cleanup()

    def recover(self) -> None:
        """One pass over the log dir."""
        kafkalog.recover(self.root, dry_run=True, index_interval_bytes=4096)


class RecoverDirectory(LogDirs):
    """CPU seconds and peak memory of a pass."""

    def time_recover(self, segments: Segments, name: str) -> None:
        self.recover()

    def peakmem_recover(self, segments: Segments, name: str) -> None:
        self.recover()


class RecoverAgainstJava(LogDirs):
    """How many times as fast as `LogSegment.recover` for each segment in turn, CPU seconds; the aim is 3."""

    def setup(self, segments: Segments, name: str) -> None:
        try:
            require_java()
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem
        super().setup(segments, name)

    def track_ratio_recover_directory(self, segments: Segments, name: str) -> float:
        ours = theirs = float("inf")
        with JavaPeer("recover", self.path) as peer:
            for _ in range(7):
                start = time.process_time()
                self.recover()
                ours = min(ours, time.process_time() - start)
                theirs = min(theirs, peer().cpu_seconds)
        return ours / (N_PARTITIONS * theirs)

    track_ratio_recover_directory.unit = "kafkalog / LogSegment.recover, CPU time"


class RecoverAgainstReading(LogDirs):
    """CPU seconds of a recovery over those of only reading its bytes, which is what no faster recovery can save.

    The bytes are in the page cache. They are read into one buffer of 1 MiB, which stays in a core's cache.
    """

    def read(self) -> None:
        """Read all segments."""
        room = memoryview(bytearray(2**20))
        for path in self.root.glob("*/*.log"):
            descriptor = os.open(path, os.O_RDONLY)
            position = 0
            while n := os.preadv(descriptor, [room], position):
                position += n
            os.close(descriptor)

    def track_ratio_of_reading(self, segments: Segments, name: str) -> float:
        ours = reading = float("inf")
        for _ in range(9):
            start = time.process_time()
            self.recover()
            between = time.process_time()
            self.read()
            ours, reading = min(ours, between - start), min(reading, time.process_time() - between)
        return ours / reading

    track_ratio_of_reading.unit = "recover / reading, CPU time"
