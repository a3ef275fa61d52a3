"""What a boot of many small partitions costs, next to `cp` of the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import kafkalog

_TOPICS, _PARTITIONS, _RECORDS = 10, 100, 50


class BootOfManyPartitions:
    """1,000 partitions of 50 records each: files and names cost more than bytes."""

    timeout = 900.0

    def setup_cache(self) -> str:
        source = Path(tempfile.mkdtemp(prefix="kafkalog-boot-")) / "source"
        n = _PARTITIONS * _RECORDS
        for number in range(_TOPICS):
            table = {"value": [b"value %d" % i for i in range(n)], "timestamp": [1000 + i for i in range(n)]}
            kafkalog.write_table(table, source, topic=f"topic-{number}", partitions=_PARTITIONS)
        return str(source)

    def track_times_of_cp(self, source: str) -> float:
        """Wall time of a boot over that of `cp` and `sync`, each the least of three turns."""
        seconds: dict[str, list[float]] = {"boot": [], "cp": []}
        for _ in range(3):
            for name, times in seconds.items():
                output = Path(source).with_name(name)
                os.sync()
                began = time.perf_counter()
                if name == "boot":
                    kafkalog.boot(source, output)
                else:
                    subprocess.run(["cp", "-r", source, output], check=True)
                    os.sync()
                times.append(time.perf_counter() - began)
                shutil.rmtree(output)
        return min(seconds["boot"]) / min(seconds["cp"])

    track_times_of_cp.unit = "boot / cp, by the clock"
