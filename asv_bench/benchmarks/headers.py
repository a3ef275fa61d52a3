"""The walk over batch headers: what lookups, index rebuilds and counting stand on."""

from __future__ import annotations

from peers import timed

import kafkalog

from .common import MS_PER_100_MB, CpuTimed, Segments, make_segments, ms_per_100_mb


class HeaderWalk(CpuTimed):
    """`Segment.iter_batches`: a table of batches a window, records untouched."""

    params = (["A", "C", "B-zstd", "V1"],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def _walk(self, segments: Segments, name: str) -> tuple[int, int]:
        n_batches = sum(len(table) for table in kafkalog.open(segments[name].path).iter_batches())
        if n_batches != segments[name].n_batches:
            raise AssertionError(f"{name}: {n_batches} batches, not {segments[name].n_batches}")
        return n_batches, -1

    def time_iter_batches(self, segments: Segments, name: str) -> None:
        self._walk(segments, name)

    def peakmem_iter_batches(self, segments: Segments, name: str) -> None:
        self._walk(segments, name)

    def track_ms_per_100_mb(self, segments: Segments, name: str) -> float:
        return ms_per_100_mb(segments[name], timed(lambda: self._walk(segments, name)))

    track_ms_per_100_mb.unit = MS_PER_100_MB

    def time_count_rows(self, segments: Segments, name: str) -> None:
        kafkalog.scan(segments[name].path, check_crcs=False, threads=1).count_rows()
