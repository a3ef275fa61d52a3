"""`kafkalog dump` alone, and next to Kafka's own DumpLogSegments."""

from __future__ import annotations

from typing import Any

from peers import compare, dump_tool
from peers.java import JavaUnavailableError

from .common import CpuTimed, Segments, make_segments

MODES: dict[str, tuple[str | None, dict[str, Any]]] = {
    "plain": (None, {}),
    "print-data-log": ("--print-data-log", {"print_data_log": True}),
}
SEGMENTS = ["A", "B", "C", "M", "B-lz4", "V1"]
ROUNDS = 3


class Dump(CpuTimed):
    """One pass, to /dev/null."""

    params = (SEGMENTS, [*MODES])
    param_names = ("segment", "mode")

    def setup_cache(self) -> Segments:
        return make_segments(SEGMENTS)

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str, mode: str) -> None:
        self.side = dump_tool.ours(segments[name].path, **MODES[mode][1])

    def time_dump(self, segments: Segments, name: str, mode: str) -> None:
        self.side()


class AgainstDumpLogSegments:
    """CPU seconds over those of Kafka's tool; the aim is 1/20 with print-data-log and 1/50 plain.

    Plain, what is left to be quick about is reading: the bytes have to be copied out of the page cache and summed.
    """

    params = (["A", "B", "M", "B-lz4", "V1"], [*MODES])
    param_names = ("segment", "mode")
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return make_segments(SEGMENTS)

    setup_cache.timeout = 600

    def setup(self, segments: Segments, name: str, mode: str) -> None:
        option, options = MODES[mode]
        path = segments[name].path
        try:
            self.sides = {
                "tool": dump_tool.tool(path, *((option,) if option else ())),
                "startup": dump_tool.startup(),
                "kafkalog": dump_tool.ours(path, **options),
            }
            dump_tool.check_same_text(path, option, **options)
        except JavaUnavailableError as problem:
            raise NotImplementedError(str(problem)) from problem

    def track_ratio(self, segments: Segments, name: str, mode: str) -> float:
        best = compare(self.sides, ROUNDS)
        return best["kafkalog"] / best["tool"]

    track_ratio.unit = "kafkalog / DumpLogSegments, CPU time"

    def track_ratio_less_startup(self, segments: Segments, name: str, mode: str) -> float:
        best = compare(self.sides, ROUNDS)
        return best["kafkalog"] / (best["tool"] - best["startup"])

    track_ratio_less_startup.unit = "kafkalog / DumpLogSegments, CPU time"
