"""What a compaction costs, next to Kafka's own `Cleaner` on copies of the same partition."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from peers.java import JavaUnavailableError, require_java

import kafkalog

from .common import CpuTimed

N_RECORDS, N_KEYS, SEGMENT_BYTES = 1_000_000, 200_000, 2**25
_CLEANING = Path(__file__).parents[2] / "tests" / "conformance" / "Cleaning.java"
_TURNS = 5


class Compact(CpuTimed):
    """A million records of 200,000 keys, 130 MiB before compression."""

    params = (["none", "lz4", "zstd"],)
    param_names = ("codec",)

    def setup_cache(self) -> str:
        root = Path(tempfile.mkdtemp(prefix="kafkalog-compact-"))
        rng = np.random.default_rng(1)
        values = [rng.bytes(60).hex().encode() for _ in range(2000)]
        for codec in self.params[0]:
            table = {
                "key": [b"key-%09d" % key for key in rng.integers(0, N_KEYS, N_RECORDS).tolist()],
                "value": [values[number % 2000] for number in range(N_RECORDS)],
            }
            config = kafkalog.LogConfig(segment_bytes=SEGMENT_BYTES)
            kafkalog.write_table(table, root / codec, topic="t", compression=codec, config=config)
        return str(root)

    setup_cache.timeout = 600

    def time_compact(self, root: str, codec: str) -> None:
        kafkalog.compact(f"{root}/{codec}/t-0", dry_run=True, threads=1)

    def peakmem_compact(self, root: str, codec: str) -> None:
        kafkalog.compact(f"{root}/{codec}/t-0", dry_run=True, threads=1)

    def track_times_of_cleaner(self, root: str, codec: str) -> float:
        """Wall time in place over that of Kafka's Cleaner, warm; the least of five turns."""
        try:
            command = require_java(_CLEANING, "kafka-storage")
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem
        copy = Path(root) / "copy" / "t-0"
        ours = theirs = float("inf")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(_TURNS):
                for is_theirs in (False, True):
                    shutil.copytree(f"{root}/{codec}/t-0", copy)
                    os.sync()
                    began = time.perf_counter()
                    if is_theirs:
                        process.stdin.write(
                            f"{time.time_ns() // 10**6}\t1\t{copy}\t-1\tsegment.bytes={SEGMENT_BYTES}\n"
                        )
                        assert int(process.stdout.readline()) > 0
                        theirs = min(theirs, time.perf_counter() - began)
                    else:
                        kafkalog.compact(copy, in_place=True, threads=1)
                        ours = min(ours, time.perf_counter() - began)
                    shutil.rmtree(copy.parent, ignore_errors=True)  # Kafka deletes files meanwhile
        return ours / theirs

    track_times_of_cleaner.unit = "kafkalog / Cleaner, by the clock"
