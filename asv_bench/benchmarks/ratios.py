"""kafkalog against the programs one would use instead: how many times as fast, by CPU seconds.

Both sides read the same segment and alternate in one run (`peers.compare`); a run whose sides disagree about the
records fails. Above 1 kafkalog is the quicker one. It always pays for opening and reading the file, for CRCs, and for
Arrow arrays of its own; aiokafka is handed bytes in memory, and Java builds nothing from what it decodes.
"""

from __future__ import annotations

from typing import Literal

from peers import Side, aiokafka_peer, compare
from peers.java import JavaPeer, JavaUnavailableError, require_java
from peers.ours import streaming

from .common import COMPRESSED, RECORD_COLUMNS, UNCOMPRESSED, Segments, make_segments

ROUNDS = 9


class Against:
    """A ratio a segment."""

    params = ([*UNCOMPRESSED, *COMPRESSED],)
    param_names = ("segment",)
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600


def ratio(ours: Side, theirs: Side) -> float:
    """Their CPU seconds over ours."""
    best = compare({"kafkalog": ours, "peer": theirs}, ROUNDS)
    return best["peer"] / best["kafkalog"]


class AgainstJava(Against):
    """Kafka's own `FileRecords` and, mapped, `MemoryRecords`; the aim is 1 at the least."""

    def setup(self, segments: Segments, name: str) -> None:
        try:
            require_java()
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem

    def track_ratio_file_records(self, segments: Segments, name: str) -> float:
        return self._against("file", segments, name)

    track_ratio_file_records.unit = "x"

    def track_ratio_memory_records(self, segments: Segments, name: str) -> float:
        return self._against("memory", segments, name)

    track_ratio_memory_records.unit = "x"

    def _against(self, how: Literal["file", "memory"], segments: Segments, name: str) -> float:
        path = segments[name].path
        with JavaPeer(how, path) as peer:
            return ratio(streaming(path, memory_map=how == "memory"), peer)


class AgainstAiokafka(Against):
    """aiokafka's Cython parser; the aim is 5 at the least."""

    def setup(self, segments: Segments, name: str) -> None:
        try:
            self.peer = aiokafka_peer.records_of(segments[name].path)
        except ImportError as problem:
            raise NotImplementedError("aiokafka is not installed") from problem

    def track_ratio_aiokafka(self, segments: Segments, name: str) -> float:
        return ratio(streaming(segments[name].path), self.peer)

    track_ratio_aiokafka.unit = "x"


class AgainstParquet(Against):
    """pyarrow reading the same records from Parquet of the same codec; the aim on B is 1 at the least."""

    params = (["A", "B", "C", *COMPRESSED],)

    def setup(self, segments: Segments, name: str) -> None:
        from peers import parquet

        self.parquet = parquet
        self.converted = parquet.written_from(segments[name])

    def track_ratio_parquet(self, segments: Segments, name: str) -> float:
        return self._against(segments, name, memory_map=False)

    track_ratio_parquet.unit = "x"

    def track_ratio_parquet_mapped(self, segments: Segments, name: str) -> float:
        return self._against(segments, name, memory_map=True)

    track_ratio_parquet_mapped.unit = "x"

    def _against(self, segments: Segments, name: str, memory_map: bool) -> float:
        ours = streaming(segments[name].path, columns=RECORD_COLUMNS, memory_map=memory_map)
        return ratio(ours, self.parquet.batches_of(self.converted, memory_map=memory_map))
