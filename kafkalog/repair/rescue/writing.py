"""Writes the batches of a plan into a partition, from one segment of a copy after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from kafkalog.errors import Finding, Limits
from kafkalog.operations.converting.target import ConvertedPartitions, PartitionSink
from kafkalog.records.batch_table import Window
from kafkalog.repair.rescue.batches import read_rows
from kafkalog.repair.rescue.plan import LogPlan
from kafkalog.repair.rescue.replica import Rows
from kafkalog.repair.salvaging.plan import undecodable


class PlanWriter:
    """Writes a plan; `note` gets findings about batches that cannot be decoded, and `see` the batches, in order.

    `n_undecodable` counts such batches by the number of their copy.
    """

    def __init__(
        self,
        plan: LogPlan,
        limits: Limits,
        note: Callable[[Finding], object],
        see: Callable[[Window], object] = lambda window: None,
    ) -> None:
        self._plan, self._limits, self._note, self._see = plan, limits, note, see
        self.n_undecodable = [0] * len(plan.replicas)

    def write(self, directory: Path | None, topic_id: str | None) -> None:
        """Write the partition; with None it is only read, to find batches that cannot be decoded."""
        plan = self._plan
        rows, leader = plan.rows, plan.leader
        first = plan.replicas[int(rows["replica"][0])] if rows.size else leader
        targets = ConvertedPartitions(None, self._limits, lambda finding: None)
        start = plan.start_offset
        with contextlib.ExitStack() as stack:
            sink: PartitionSink | None = None
            if directory is not None:
                sink = stack.enter_context(
                    targets.open(directory, first.partition, start, leader_epochs=leader.epochs, topic_id=topic_id)
                )
            done = 0
            for base_offset, row in plan.boundaries:
                self._copy(rows[done:row], sink)
                if sink is not None:
                    sink.roll(base_offset)
                done = row
            self._copy(rows[done:], sink)

    def _copy(self, rows: Rows, sink: PartitionSink | None) -> None:
        """Append rows."""
        for window, done, segment in read_rows(self._plan.replicas, rows):
            start, path = done["position"], str(segment.path)
            for finding in undecodable(window, start, start + done["size_in_bytes"], path, self._limits):
                self.n_undecodable[int(done["replica"][0])] += 1
                self._note(finding)
            self._see(window)
            if sink is not None:
                sink.append(window, segment)
