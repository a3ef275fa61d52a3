"""Searches that keep few records: filters judged on spans, and a function compiled by numba."""

from __future__ import annotations

from functools import partial

from peers import compare, searches, timed

import kafkalog

from .common import CpuTimed, Segments, make_segments

ROUNDS = 9


class Search(CpuTimed):
    """CPU seconds of each kind of search, one thread, CRCs checked."""

    params = (["A", "B", "C", "B-lz4"], ["key ==", "key in, 1 in 1,000", "key starts_with", "where= starts_with"])
    param_names = ("segment", "search")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str, search: str) -> None:
        sides = searches.sides(segments[name])
        if search not in sides:
            raise NotImplementedError("numba is not installed")
        self.side = sides[search]

    def time_search(self, segments: Segments, name: str, search: str) -> None:
        self.side()

    def peakmem_search(self, segments: Segments, name: str, search: str) -> None:
        self.side()


class AgainstTheLeast:
    """How many CRC passes a search of a key takes (the aim on B and C: 2 at most), `where=` how many filters (1.5)."""

    params = (["A", "B", "C"],)
    param_names = ("segment",)
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def track_crc_passes(self, segments: Segments, name: str) -> float:
        sides = searches.sides(segments[name])
        best = compare({one: sides[one] for one in ("CRC pass", "key in, 1 in 1,000")}, ROUNDS)
        return best["key in, 1 in 1,000"] / best["CRC pass"]

    track_crc_passes.unit = "search / CRC pass, CPU time"

    def track_where_against_filter(self, segments: Segments, name: str) -> float:
        sides = searches.sides(segments[name])
        if "where= starts_with" not in sides:
            raise NotImplementedError("numba is not installed")
        best = compare({one: sides[one] for one in ("key starts_with", "where= starts_with")}, ROUNDS)
        return best["where= starts_with"] / best["key starts_with"]

    track_where_against_filter.unit = "where= / filter, CPU time"


class Pruned(CpuTimed):
    """What headers rule out costs a walk of headers: a time window at the end of a segment."""

    params = (["A", "B", "B-zstd"],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_last_second(self, segments: Segments, name: str) -> None:
        last = segments[name].last_timestamp
        scan = kafkalog.scan(segments[name].path, filters=[("timestamp", ">", last - 1000)], threads=1)
        assert scan.to_table().num_rows < segments[name].n_records


class Ranges:
    """What a range of times costs next to the same range of offsets, and headers alone next to reading the file."""

    params = (["A", "B", "C"],)
    param_names = ("segment",)
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def track_time_against_offsets(self, segments: Segments, name: str) -> float:
        """CPU seconds for the second half of a segment; the aim is 1.3."""
        path = segments[name].path
        stamps = kafkalog.read_numpy(path, columns=["offset", "timestamp"])
        half = int(stamps.timestamp[stamps.n_records // 2])
        first = int(stamps.offset[(stamps.timestamp >= half).argmax()])
        options = {"columns": ["offset", "timestamp", "key", "value"], "threads": 1}
        ranges = {"time": {"start_timestamp": half}, "offsets": {"start_offset": first}}

        def rows(range_: dict[str, int]) -> tuple[int, int]:
            return sum(len(batch) for batch in kafkalog.scan(path, **options, **range_).to_batches()), -1

        best = compare({side: timed(partial(rows, range_)) for side, range_ in ranges.items()}, ROUNDS)
        return best["time"] / best["offsets"]

    track_time_against_offsets.unit = "times / offsets, CPU time"

    def track_headers_against_reading(self, segments: Segments, name: str) -> float:
        """CPU seconds of `Segment.iter_batches` over those of reading the bytes in pieces of 1 MiB."""
        path, room = segments[name].path, bytearray(2**20)

        def headers() -> tuple[int, int]:
            return sum(len(table) for table in kafkalog.open(path).iter_batches()), -1

        def reading() -> tuple[int, int]:
            with open(path, "rb", buffering=0) as file:
                while file.readinto(room):
                    pass
            return segments[name].n_batches, -1

        best = compare({"headers": timed(headers), "reading": timed(reading)}, ROUNDS)
        return best["headers"] / best["reading"]

    track_headers_against_reading.unit = "headers / reading, CPU time"
