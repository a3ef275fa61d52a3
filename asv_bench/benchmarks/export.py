"""Exports: how fast and in how much memory, next to pyarrow that writes the same records from memory.

The rival has the records as one table in memory already, and neither reads nor checks anything; its settings are
pyarrow's own, but for the codec.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from peers import Side, compare, timed

import kafkalog

from .common import MS_PER_100_MB, CpuTimed, Segments, make_segments, ms_per_100_mb
from .memory import peak_mib

ROUNDS = 5
_EXPORT = """
import pyarrow.parquet
kafkalog.export(sys.argv[1], sys.argv[2], threads=int(sys.argv[3]))
"""
_IMPORTS = "import pyarrow.parquet, kafkalog.interchange.text_output"


class _Output:
    """A directory to write to, for as long as a benchmark runs."""

    params: tuple[list[str], ...] = (["A", "B", "C", "B-lz4", "B-zstd"],)
    param_names: tuple[str, ...] = ("segment",)
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return make_segments(_Output.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str, *_: object) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalog-export-"))

    def teardown(self, *_: object) -> None:
        shutil.rmtree(self.directory)


class ExportParquet(_Output):
    """To Parquet with zstd; pyarrow's time over ours, CPU seconds, reading and checking the log included in ours."""

    def _ours(self, segments: Segments, name: str) -> Side:
        to = self.directory / "ours.parquet"
        return timed(lambda: (kafkalog.export(segments[name].path, to, threads=1, overwrite=True).n_records, -1))

    def track_ratio_pyarrow_from_memory(self, segments: Segments, name: str) -> float:
        table = kafkalog.read_table(segments[name].path)

        def write() -> tuple[int, int]:
            pq.write_table(table, self.directory / "theirs.parquet", compression="zstd")
            return table.num_rows, -1

        best = compare({"kafkalog": self._ours(segments, name), "pyarrow": timed(write)}, ROUNDS)
        return best["kafkalog"] / best["pyarrow"]

    track_ratio_pyarrow_from_memory.unit = "kafkalog / pyarrow, CPU time"

    def track_ms_per_100_mb(self, segments: Segments, name: str) -> float:
        return ms_per_100_mb(segments[name], self._ours(segments, name))

    track_ms_per_100_mb.unit = MS_PER_100_MB


class ExportFormats(_Output, CpuTimed):
    """Seconds a format."""

    params = (["B"], ["parquet", "arrow", "csv", "jsonl"])
    param_names = ("segment", "format")

    def time_export(self, segments: Segments, name: str, format: str) -> None:
        kafkalog.export(segments[name].path, self.directory / f"x.{format}", threads=1, overwrite=True)

    def peakmem_export(self, segments: Segments, name: str, format: str) -> None:
        kafkalog.export(segments[name].path, self.directory / f"x.{format}", threads=1, overwrite=True)


class ExportMemory(_Output):
    """MiB that an export adds to the import, in a process of its own: the size of the log must not show in it.

    A Parquet row group is put together in memory, 64 MiB of records and what encoding takes; the others stream.
    """

    params = (["B", "C", "B-zstd"], ["parquet", "arrow", "csv"], [1, 2])
    param_names = ("segment", "format", "threads")

    def track_export_mib(self, segments: Segments, name: str, format: str, threads: int) -> float:
        to = self.directory / f"x.{format}"
        return peak_mib(_EXPORT, segments[name].path, to, threads) - peak_mib(_IMPORTS)

    track_export_mib.unit = "MiB"
