"""Lookups of many offsets or timestamps in one call, through a segment's indexes, and next to Kafka's `OffsetIndex`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import shapes
from peers import compare, timed
from peers.java import JavaPeer, JavaUnavailableError, require_java

import kafkalog
from kafkalog.indexes.index_files import OffsetIndex

from .common import CpuTimed, Segments, make_segments

N_QUERIES = 100_000
N_INDEX_QUERIES = 2_000_000
INDEX_MIB = 256


class Lookup(CpuTimed):
    """100 000 queries a call, against what NumPy alone would need for the index part."""

    params = (["random", "sorted"],)
    param_names = ("order",)

    def setup_cache(self) -> Segments:
        return make_segments(["A"])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, order: str) -> None:
        chosen = segments["A"]
        rng = np.random.default_rng(1)
        self.segment = kafkalog.open(chosen.path)
        self.offsets = rng.integers(0, chosen.last_offset + 1, N_QUERIES)
        self.timestamps = rng.integers(chosen.first_timestamp, chosen.last_timestamp + 1, N_QUERIES)
        if order == "sorted":
            self.offsets.sort()
            self.timestamps.sort()
        index = np.fromfile(chosen.path.removesuffix(".log") + ".index", dtype=[("offset", ">i4"), ("position", ">i4")])
        self.index_offsets = index["offset"].astype(np.int64)
        self.segment.find_offsets(self.offsets[:1])
        self.segment.find_timestamps(self.timestamps[:1])

    def time_find_offsets(self, segments: Segments, order: str) -> None:
        self.segment.find_offsets(self.offsets)

    def peakmem_find_offsets(self, segments: Segments, order: str) -> None:
        self.segment.find_offsets(self.offsets)

    def time_find_timestamps(self, segments: Segments, order: str) -> None:
        self.segment.find_timestamps(self.timestamps)

    def time_limit_searchsorted(self, segments: Segments, order: str) -> None:
        np.searchsorted(self.index_offsets, self.offsets, side="right")

    def track_ns_per_offset(self, segments: Segments, order: str) -> float:
        best = min(self._seconds() for _ in range(5))
        return best / N_QUERIES * 1e9

    track_ns_per_offset.unit = "ns"

    def _seconds(self) -> float:
        start = self.timer()
        self.segment.find_offsets(self.offsets)
        return self.timer() - start


class AgainstOffsetIndex:
    """How many times as fast as Kafka's `OffsetIndex.lookup` 2 M lookups in one call are, CPU seconds.

    An index of 16 K entries; both sides have it open, and must find the same. The aim is 4 for random offsets, 2 for
    sorted ones. The limit is what NumPy's `searchsorted` alone takes.
    """

    params = (["random", "sorted"],)
    param_names = ("order",)
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return {"B": shapes.segment("B", INDEX_MIB)}

    setup_cache.timeout = 1800

    def setup(self, segments: Segments, order: str) -> None:
        try:
            require_java()
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem
        self.path = segments["B"].path.removesuffix(".log") + ".index"
        self.index = OffsetIndex.open(self.path, 0)
        self.queries = np.random.default_rng(1).integers(0, segments["B"].last_offset + 1, N_INDEX_QUERIES)
        if order == "sorted":
            self.queries.sort()

    def track_ratio_lookup(self, segments: Segments, order: str) -> float:
        def ours() -> tuple[int, int]:
            return self.queries.size, int(self.index.lookup(self.queries).sum())

        with JavaPeer("lookup", self.path, queries=self.queries) as peer:
            best = compare({"kafkalog": timed(ours), "peer": peer}, 9)
        return best["kafkalog"] / best["peer"]

    track_ratio_lookup.unit = "kafkalog / OffsetIndex of Kafka, CPU time"

    def track_ratio_searchsorted(self, segments: Segments, order: str) -> float:
        def ours() -> tuple[int, int]:
            return self.queries.size, int(self.index.lookup(self.queries).sum())

        def numpy() -> tuple[int, int]:
            entry = np.searchsorted(self.index.offset, self.queries, side="right") - 1
            return self.queries.size, int(np.where(entry >= 0, self.index.position[entry], 0).sum())

        best = compare({"kafkalog": timed(ours), "peer": timed(numpy)}, 9)
        return best["kafkalog"] / best["peer"]

    track_ratio_searchsorted.unit = "kafkalog / searchsorted, CPU time"


class OffsetForTimestamp(CpuTimed):
    """Timestamps to offsets over a partition that was not looked at before, against walking its headers alone."""

    params = (["A", "B", "M", "B-zstd", "V1"], [1, 10_000])
    param_names = ("shape", "timestamps")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, shape: str, timestamps: int) -> None:
        chosen = segments[shape]
        self.directory = Path(chosen.path).parent
        rng = np.random.default_rng(1)
        self.timestamps = rng.integers(chosen.first_timestamp, chosen.last_timestamp + 1, timestamps)
        if timestamps == 1:
            self.timestamps[:] = chosen.last_timestamp  # the farthest there is
        self.known = kafkalog.Partition(self.directory)
        self.known.offset_for_timestamp(self.timestamps)

    def time_offset_for_timestamp(self, segments: Segments, shape: str, timestamps: int) -> None:
        kafkalog.Partition(self.directory).offset_for_timestamp(self.timestamps)

    def peakmem_offset_for_timestamp(self, segments: Segments, shape: str, timestamps: int) -> None:
        kafkalog.Partition(self.directory).offset_for_timestamp(self.timestamps)

    def time_asked_again(self, segments: Segments, shape: str, timestamps: int) -> None:
        self.known.offset_for_timestamp(self.timestamps)

    def time_limit_headers(self, segments: Segments, shape: str, timestamps: int) -> None:
        for segment in kafkalog.Partition(self.directory).segments:
            for _ in segment.iter_batches():
                pass
