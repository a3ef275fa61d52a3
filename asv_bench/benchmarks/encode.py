"""Records in columns to batches, against Kafka's own builder, with every codec."""

from __future__ import annotations

from typing import Any

import numpy as np
from peers import Side, compare, timed
from peers.java import JavaPeer, JavaUnavailableError, require_java

from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.encode import cut_batches, encode_batches
from kafkalog.records.header_walk import walk
from kafkalog.storage.files import open_source
from kafkalog.writing.batch_builder import RecordAccumulator

from .common import MS_PER_100_MB, UNCOMPRESSED, CpuTimed, Segments, make_segments, ms_per_100_mb

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
CODECS = ["none", "lz4", "snappy", "zstd", "gzip"]
ROUNDS = 9

Slices = list[tuple[RecordColumns, Any]]


def records_of(path: str) -> Slices:
    """The records of a segment, some MiB at a time as a writer has them, and the boundaries of their batches."""
    slices: Slices = []
    for window in walk(open_source(path, memory_map=False)):
        first = 0
        while first < len(window.batches):
            decoded = decode(window, COLUMNS, first=first)
            if decoded.columns is None:
                raise ValueError(f"no records in {path}")
            counts = window.batches.records_count[first : first + decoded.n_batches]
            slices.append((decoded.columns, np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))))
            first += decoded.n_batches
    return slices


def encoding(slices: Slices, codec: str) -> Side:
    """One pass over all slices; what comes out is dropped, as by a writer that wrote it."""
    spec = BatchSpec(compression=Compression.parse(codec), leader_epoch=7)

    def work() -> tuple[int, int]:
        n_records = value_bytes = 0
        for columns, boundaries in slices:
            window = encode_batches(columns, boundaries, spec)
            n_records += int(window.batches.records_count.sum())
            value_bytes += columns.value.data.size
        return n_records, value_bytes

    return timed(work)


class _Encode(CpuTimed):
    params = (UNCOMPRESSED, CODECS)
    param_names = ("segment", "codec")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str, codec: str) -> None:
        self.slices = records_of(segments[name].path)
        self.side = encoding(self.slices, codec)


class Encode(_Encode):
    """64 MiB, into the batches that they came from."""

    def time_encode(self, segments: Segments, name: str, codec: str) -> None:
        self.side()

    def track_ms_per_100_mb(self, segments: Segments, name: str, codec: str) -> float:
        return ms_per_100_mb(segments[name], self.side)

    track_ms_per_100_mb.unit = MS_PER_100_MB

    def peakmem_encode(self, segments: Segments, name: str, codec: str) -> None:
        self.side()


class Cut(CpuTimed):
    """Where a producer would end its batches."""

    params = (UNCOMPRESSED,)
    param_names = ("segment",)

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str) -> None:
        self.slices = records_of(segments[name].path)

    def time_cut(self, segments: Segments, name: str) -> None:
        for columns, _ in self.slices:
            cut_batches(columns, batch_size=16_384)


class Collect(CpuTimed):
    """Batches of 16 MiB out of pieces of a thousand records, and of megabytes: less than five times as long."""

    params = (UNCOMPRESSED, (1000, 10**9))
    param_names = ("segment", "records_per_piece")

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str, records_per_piece: int) -> None:
        self.pieces = [
            columns.slice(row, row + records_per_piece)
            for columns, _ in records_of(segments[name].path)
            for row in range(0, columns.n_records, records_per_piece)
        ]

    def time_collect(self, segments: Segments, name: str, records_per_piece: int) -> None:
        records = RecordAccumulator(batch_size=16 * 2**20)
        for piece in self.pieces:
            records.add(piece)
        records.finish()


class EncodeAgainstJava(_Encode):
    """How many times as fast as `MemoryRecordsBuilder`, CPU seconds; the aim is 2.5 on A, 1.6 on B, 1 with codecs."""

    def setup(self, segments: Segments, name: str, codec: str) -> None:
        try:
            require_java()
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem
        super().setup(segments, name, codec)

    def track_ratio_builder(self, segments: Segments, name: str, codec: str) -> float:
        with JavaPeer("encode", segments[name].path, codec=codec) as peer:
            best = compare({"kafkalog": self.side, "peer": peer}, ROUNDS)
        return best["kafkalog"] / best["peer"]

    track_ratio_builder.unit = "kafkalog / Kafka's builder, CPU time"
