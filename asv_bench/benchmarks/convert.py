"""Whole segments as one Arrow table or one pandas frame."""

from __future__ import annotations

import kafkalog

from .common import RECORD_COLUMNS, CpuTimed, Libraries, Segments, make_segments

with Libraries() as libraries:
    import pandas as pd  # noqa: F401 - importing it must not fall into the first sample


class Convert(CpuTimed):
    """`read_table` and `read_pandas` next to the conversion pyarrow alone would make."""

    params = (["A", "B", "C"],)
    param_names = ("segment",)
    repeat = (2, 5, 20.0)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str) -> None:
        libraries.require()

    def time_read_table(self, segments: Segments, name: str) -> None:
        kafkalog.read_table(segments[name].path, threads=1)

    def peakmem_read_table(self, segments: Segments, name: str) -> None:
        kafkalog.read_table(segments[name].path, threads=1)

    def time_read_table_four_columns(self, segments: Segments, name: str) -> None:
        kafkalog.read_table(segments[name].path, columns=RECORD_COLUMNS, threads=1)

    def time_read_pandas(self, segments: Segments, name: str) -> None:
        kafkalog.read_pandas(segments[name].path, columns=RECORD_COLUMNS, threads=1)

    def time_read_pandas_pyarrow(self, segments: Segments, name: str) -> None:
        scan = kafkalog.scan(segments[name].path, columns=RECORD_COLUMNS, threads=1)
        scan.to_pandas(dtype_backend="pyarrow")

    def time_rival_table_to_pandas(self, segments: Segments, name: str) -> None:
        kafkalog.read_table(segments[name].path, columns=RECORD_COLUMNS, threads=1).to_pandas()
