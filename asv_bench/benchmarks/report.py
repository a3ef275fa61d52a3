"""A report on log dirs: against the checksum pass that it cannot do without, and its memory with many partitions."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import kafkalog

from .common import CpuTimed, Segments, make_segments

N_PARTITIONS = 10_000


class Report(CpuTimed):
    """Segments of batches of usual size, of single messages, and compressed."""

    params = (["A", "B", "B-zstd"],)
    param_names = ("shape",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, shape: str) -> None:
        self.directory = Path(segments[shape].path).parent
        kafkalog.report(self.directory, threads=1)

    def time_report(self, segments: Segments, shape: str) -> None:
        kafkalog.report(self.directory, threads=1)

    def time_verify(self, segments: Segments, shape: str) -> None:
        kafkalog.verify(self.directory, threads=1)

    def time_space(self, segments: Segments, shape: str) -> None:
        kafkalog.space(self.directory, threads=1)


class ManyPartitions:
    """10,000 partitions of a few records: memory of the report and of its page."""

    timeout = 900.0

    def setup(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="kafkalog-report-"))
        kafkalog.write_table({"value": [b"value"] * 20}, self.root / "data", topic="first")
        for number in range(N_PARTITIONS):
            target = self.root / "data" / f"topic-{number // 2}-{number % 2}"
            shutil.copytree(self.root / "data" / "first-0", target)

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def peakmem_report(self) -> None:
        kafkalog.report(self.root / "data").write(self.root / "report.html")
