"""Large log dirs to measure Spark on, and how much memory its processes take meanwhile.

One generated segment (`shapes`) is copied many times with other base offsets, which no checksum covers; so are its
indexes, whose entries are relative to the base offset.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapes

import kafkalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Made:
    """A log dir: how many records, segments and bytes of `.log` files it holds."""

    path: Path
    n_records: int
    n_segments: int
    n_bytes: int


def make(root: Path, shape: str, mib: int, n_partitions: int, n_segments: int, topic: str = "orders") -> Made:
    """Write segments of about `mib` MiB each, evenly over partitions."""
    base = shapes.segment(shape, mib)
    source = Path(base.path)
    data = np.fromfile(source, np.uint8)
    batches = kafkalog.Segment(source).batches
    rows = batches.position[:, None] + np.arange(8)
    step = base.last_offset + 1
    each = n_segments // n_partitions
    for partition in range(n_partitions):
        directory = root / f"{topic}-{partition}"
        directory.mkdir(parents=True)
        for number in range(each):
            shifted = (batches.base_offset + number * step).astype(">i8")
            data[rows] = shifted.view(np.uint8).reshape(-1, 8)
            stem = directory / f"{number * step:020d}"
            data.tofile(stem.with_suffix(".log"))
            for suffix in (".index", ".timeindex"):
                shutil.copyfile(source.with_suffix(suffix), stem.with_suffix(suffix))
    n = each * n_partitions
    return Made(root, n * base.n_records, n, n * base.size_in_bytes)


def start(master: str, **conf: str) -> SparkSession:
    """A quiet session."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        **conf,
    }
    builder = SparkSession.builder.master(master).appName("kafkalog bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@dataclass
class Memory:
    """Peaks of resident memory in bytes while a block runs, by what the kernel keeps of each process (`VmHWM`).

    Attributes
    ----------
    driver, jvm, worker : int
        Of this process, of the JVM, and of the Python worker that took most.
    """

    spark: Any
    driver: int = 0
    jvm: int = 0
    worker: int = 0
    n_workers: set[int] = field(default_factory=set)

    def __enter__(self) -> Memory:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        java = self.spark.sparkContext._gateway.proc.pid
        while not self._ended.wait(0.1):
            self.driver = max(self.driver, _resident(os.getpid(), "VmRSS"))
            self.jvm = max(self.jvm, _resident(java, "VmRSS"))
            for pid in _descendants(java):
                peak = _resident(pid, "VmHWM")
                if peak:
                    self.worker = max(self.worker, peak)
                    self.n_workers.add(pid)


def _resident(pid: int, name: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parents[int(path.name)] = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, new = [], [root]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        found += new
    return found
