"""One log from the copies of a partition: what is intact on any disk, in the history that leads.

`repair.merging` chooses the batches. It is used where copies differ, and where the copy that would be taken is damaged.
A single damaged copy gives its intact batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog import format as kf
from kafkalog.booting.sources import Copy
from kafkalog.booting.staging import StagedPartition
from kafkalog.errors import Finding, KafkalogError, Limits, Reason
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import rows_to_replay
from kafkalog.records.batch_table import Window
from kafkalog.repair.merging.merge import PartitionMerge
from kafkalog.repair.merging.replica import Replica, read_replica
from kafkalog.state.producers import with_markers
from kafkalog.state.transactions import TransactionReplay


@dataclass(eq=False)
class JoinedLog:
    """The best log of a partition out of its copies; `write` writes it."""

    copies: Sequence[Copy]
    leader: Copy
    """The copy that leads."""
    merge: PartitionMerge
    limits: Limits
    notes: list[Finding] = field(default_factory=list)
    """What is lost, and what comes from where."""

    @classmethod
    def of(
        cls,
        copies: Sequence[Copy],
        limits: Limits,
        progress: Callable[[int], object],
        *,
        is_compacted: bool | None,
    ) -> JoinedLog:
        """Read the copies, and choose the batches. Raises the last KafkalogError if no copy can be read."""
        notes: list[Finding] = []
        replicas: list[Replica] = []
        read: list[Copy] = []
        problem: KafkalogError | None = None
        for copy in copies:
            try:
                partition = Partition(copy.path, limits=limits)
                replicas.append(
                    read_replica(partition, len(replicas), notes.append, progress, limits, is_compacted=is_compacted)
                )
                read.append(copy)
            except KafkalogError as error:
                problem = error
                notes.append(error.to_finding(damage=False))
        if problem is not None and not replicas:
            raise problem
        merge = PartitionMerge(replicas, "", notes.append)
        leader = next(copy for copy in read if str(copy.path) == merge.report.leader)
        found = cls(read, leader, merge, limits, notes)
        found._note_sources()
        return found

    def _note_sources(self) -> None:
        report = self.merge.report
        for one in report.ranges:
            if one.source not in (None, report.leader):
                detail = f"offsets {one.start_offset}..{one.end_offset} of {self.leader.key} come from this copy"
                detail += f": {report.leader}, which leads, lacks them"
                self.notes.append(Finding(Reason.PARTITION_TWICE, detail, path=one.source, damage=False))
        for replica in report.replicas:
            if replica.truncate_to is not None:
                shared = max(min(replica.end_offset, report.end_offset), replica.truncate_to)
                pairs = (replica.truncate_to, shared), (shared, replica.end_offset)
                parts = [f"offsets {start} to {end - 1}" for start, end in pairs if start < end]
                detail = f"{' and '.join(parts)} of this copy are dropped: {report.leader}, which leads, has a later"
                detail += " leader epoch there"
                self.notes.append(Finding(Reason.PARTITION_TWICE, detail, path=replica.path, damage=False))

    def write(self, directory: Path | None, topic_id: str | None, node_id: int) -> StagedPartition:
        """Write the partition's files and return the facts about them; None only reads."""
        replay = TransactionReplay(limits=self.limits)
        if directory is not None:
            directory.parent.mkdir(parents=True, exist_ok=True)

        def see(window: Window) -> None:
            rows = rows_to_replay(window.batches)
            if rows.size:
                told, _ = with_markers(window, window.batches[rows], limits=self.limits)
                replay.update(told, told.base_offset)

        self.merge.write(directory, topic_id, self.limits, see=see)
        report = self.merge.report
        return StagedPartition(
            self.leader,
            node_id,
            report.start_offset,
            report.end_offset,
            sum(one.size_in_bytes for one in report.ranges),
            self.merge.n_segments,
            max((one.last_epoch for one in report.replicas), default=kf.NO_EPOCH),
            open_transactions=[(one.producer_id, one.first_offset) for one in replay.open_transactions()],
        )
