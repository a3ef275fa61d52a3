"""Index statistics: what measuring the indexes there are, and others, costs next to the walk over the headers."""

from __future__ import annotations

from peers import compare, timed

import kafkalog

from .common import CpuTimed, Segments, make_segments

WHAT_IF = (512, 4096, 65536)


class IndexStatistics(CpuTimed):
    """`kafkalog.index_stats` of a segment, against the walk that it cannot do without.

    V1 has a row a message, and so most rows and most entries a byte. The segments come to 256 MiB together with
    ``KAFKALOG_BENCH_MIB=128``.
    """

    params = (["B", "V1"], ["as it is", "what-if"])
    param_names = ("segment", "what")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 1200

    def _measure(self, segments: Segments, name: str, what: str) -> tuple[int, int]:
        segment = kafkalog.Segment(segments[name].path)
        (statistics,) = kafkalog.index_stats(segment, what_if=WHAT_IF if what == "what-if" else ())
        if statistics.n_batches != segments[name].n_batches or statistics.index is None:
            raise AssertionError(f"{name}: {statistics}")
        if what == "what-if" and statistics.what_if[1].n_entries != statistics.index.n_entries:
            raise AssertionError(f"{name}: made with 4096, and not the same")
        return statistics.n_batches, -1

    def _walk(self, segments: Segments, name: str) -> tuple[int, int]:
        return sum(len(table) for table in kafkalog.Segment(segments[name].path).iter_batches()), -1

    def time_index_statistics(self, segments: Segments, name: str, what: str) -> None:
        self._measure(segments, name, what)

    def peakmem_index_statistics(self, segments: Segments, name: str, what: str) -> None:
        self._measure(segments, name, what)

    def time_limit_header_walk(self, segments: Segments, name: str, what: str) -> None:
        self._walk(segments, name)

    def track_times_the_walk(self, segments: Segments, name: str, what: str) -> float:
        measure, walk = timed(lambda: self._measure(segments, name, what)), timed(lambda: self._walk(segments, name))
        seconds = compare({"statistics": measure, "walk": walk}, rounds=5)
        return seconds["statistics"] / seconds["walk"]

    track_times_the_walk.unit = "statistics / walk, CPU time"
