"""kafkalog against the programs one would use instead: CPU seconds over theirs.

Both sides read the same segment and alternate in one run (`peers.compare`); a run whose sides disagree about the
records fails. Below 1 kafkalog is faster. What we aim at is in `side_by_side.AIMS`, which also has the sides.
"""

from __future__ import annotations

from contextlib import ExitStack

from peers import compare
from peers.java import JavaUnavailableError
from peers.programs import ProgramUnavailableError
from side_by_side import AIMS, SEGMENTS, side_of

from .common import Segments, make_segments

ROUNDS = 9


class Ratios:
    """A ratio for each aim and segment that has one."""

    params = ([name for name, aim in AIMS.items() if aim.least], list(SEGMENTS))
    param_names = ("ours_theirs", "segment")
    timeout = 600.0

    def setup_cache(self) -> Segments:
        return make_segments(SEGMENTS)

    setup_cache.timeout = 600

    def setup(self, segments: Segments, aim: str, name: str) -> None:
        chosen = AIMS[aim]
        if name not in chosen.least:
            raise NotImplementedError(f"no aim for {name}")
        self.processes = ExitStack()
        try:
            sides = {side: side_of(side, segments[name], self.processes) for side in (chosen.ours, *chosen.theirs)}
        except (JavaUnavailableError, ProgramUnavailableError, ImportError) as problem:
            self.processes.close()
            raise NotImplementedError(str(problem)) from problem
        self.sides = {side: one for side, one in sides.items() if one is not None}

    def teardown(self, segments: Segments, aim: str, name: str) -> None:
        if name in AIMS[aim].least:
            self.processes.close()

    def track_ratio(self, segments: Segments, aim: str, name: str) -> float:
        """Ours over the fastest of theirs."""
        best = compare(self.sides, ROUNDS)
        return best[AIMS[aim].ours] / min(best[side] for side in AIMS[aim].theirs)

    track_ratio.unit = "kafkalog / fastest peer, CPU time"
