"""Records from bytes on disk: every shape, codec and message format, whole and projected."""

from __future__ import annotations

from peers.ours import streaming

import kafkalog

from .common import (
    COMPRESSED,
    LEGACY,
    RECORD_COLUMNS,
    UNCOMPRESSED,
    CpuTimed,
    Segments,
    drain,
    make_segments,
    mb_per_s,
)

PROJECTIONS = {
    "offset,timestamp": ["offset", "timestamp"],
    "key": ["key"],
    "value": ["value"],
    "offset,timestamp,key,value": RECORD_COLUMNS,
}


class ToReader(CpuTimed):
    """All columns into Arrow, batch by batch, CRCs checked, one thread."""

    params = ([*UNCOMPRESSED, *COMPRESSED, *LEGACY],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_to_reader(self, segments: Segments, name: str) -> None:
        drain(segments[name].path, threads=1)

    def peakmem_to_reader(self, segments: Segments, name: str) -> None:
        drain(segments[name].path, threads=1)

    def track_mb_per_s(self, segments: Segments, name: str) -> float:
        return mb_per_s(segments[name], streaming(segments[name].path))

    track_mb_per_s.unit = "MB/s"


class Projection(CpuTimed):
    """A few columns: what is not asked for should not be paid for."""

    params = (["A", "B", "C", "B-lz4"], ["count", *PROJECTIONS], [True, False])
    param_names = ("segment", "columns", "check_crcs")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_to_reader(self, segments: Segments, name: str, columns: str, check_crcs: bool) -> None:
        path = segments[name].path
        if columns == "count":
            kafkalog.scan(path, check_crcs=check_crcs, threads=1).count_rows()
        else:
            drain(path, columns=PROJECTIONS[columns], check_crcs=check_crcs, threads=1)


class ToNumpy(CpuTimed):
    """All records as `RecordColumns`: the size of the result is part of the price."""

    params = (["A", "B", "C", "M", "B-lz4"],)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def time_read_numpy(self, segments: Segments, name: str) -> None:
        kafkalog.read_numpy(segments[name].path, columns=RECORD_COLUMNS, threads=1)

    def peakmem_read_numpy(self, segments: Segments, name: str) -> None:
        kafkalog.read_numpy(segments[name].path, columns=RECORD_COLUMNS, threads=1)
