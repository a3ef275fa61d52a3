"""The order in which a broker replays the producers of the segments that it recovers. Mirrors `LogLoader.load`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.repair.startup.load_plan import LoadPlan
from kafkalog.repair.startup.producer_loading import ProducerLoading
from kafkalog.repair.startup.segment_reading import LoadedSegment


@dataclass(slots=True)
class ReplayOrder:
    """Replays the producers of a partition, segment by segment.

    Source: LogLoader.load, LogLoader.recoverLog, Kafka 4.3.
    """

    plan: LoadPlan
    recovered: Mapping[int, RecoveredSegment]
    """What was found in the segments that are recovered, by base offset."""
    index_interval_bytes: int
    _segments: dict[int, Segment] = field(default_factory=dict)
    _loaded: dict[int, LoadedSegment] = field(default_factory=dict)

    def run(self, producers: ProducerLoading, removed: Collection[int], log_end_offset: int) -> None:
        """Recover the segments, delete those at the base offsets `removed`, and load the log up to its end.

        Raises
        ------
        LoadFailure
            A broker does not start.
        NotPlain
            Batches have to be replayed one by one.
        """
        plan, loaded = self.plan, self._loaded
        self._segments |= {one.base_offset: one for one in plan.partition.segments}
        self._segments |= {base: one.segment for base, one in self.recovered.items()}
        # those without an index are recovered before the others, when only the segments below are loaded
        for segment in plan.partition.segments:
            base = segment.base_offset
            if base in plan.lone or base in plan.cut_before:
                self._recover(producers, base)
            loaded.setdefault(base, LoadedSegment(segment, "4.3"))
        for base in sorted(self.recovered):
            if base not in plan.lone:
                self._recover(producers, base)
        producers.remove(removed)
        left = [one for base, one in loaded.items() if base not in removed]
        log_start = max(plan.log_start, left[0].base_offset if left else 0)
        producers.load(left, log_start, log_end_offset, is_clean=False)

    def _recover(self, producers: ProducerLoading, base: int) -> None:
        found = self.recovered.get(base)
        if found is None or producers.is_exact:  # its index was not kept, or damage lies before it
            found = recover(self._segments[base], self.index_interval_bytes)
        manager = producers.begin_recovery([*self._loaded.values()], base, self.plan.log_start)
        producers.recover(manager, LoadedSegment(found.segment, "4.3"), found)
        n_bytes = 0 if found.is_emptied else found.n_valid_bytes
        self._loaded[base] = LoadedSegment(found.segment, "4.3", n_bytes, found.offset_entries)
