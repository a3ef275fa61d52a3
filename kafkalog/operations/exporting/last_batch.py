"""The last exported batch of a partition: by it, a later export detects that a log has other records at old offsets.

A topic that was deleted and created again begins at offset 0, and after an unclean election a leader writes other
records at offsets that another one had given before. Both logs may be longer than what was exported. The checksum and
the leader epoch of the last exported batch tell. A cleaner may remove records of that batch, or the batch; the leader
epochs of the partition then decide.

Source: KIP-320, by which consumers detect a truncated log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, Reason, SidecarError
from kafkalog.log.partition import Partition
from kafkalog.text import offset_range


class LastBatch(NamedTuple):
    """The batch with the last exported offset: what its header says."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    """-1 before format v2."""
    crc: int
    n_records: int
    """-1 if the header does not say, as for a compressed message before v2."""

    @classmethod
    def before(cls, partition: Partition, end: int) -> LastBatch | None:
        """The batch with the offset before `end`; None if the log does not have it."""
        latest = None
        if end <= partition.log_start_offset:
            return None
        # damage there is the business of the scan
        for piece in partition.iter_batches(start_offset=end - 1, end_offset=end, on_corruption="skip"):
            table = piece.batches
            has_offset = (table.base_offset < end) & (table.last_offset >= end - 1)
            for row in has_offset.nonzero()[0].tolist():
                latest = cls(
                    base_offset=int(table.base_offset[row]),
                    last_offset=int(table.last_offset[row]),
                    leader_epoch=int(table.partition_leader_epoch[row]),
                    crc=int(table.crc[row]),
                    n_records=int(table.records_count[row]),
                )
        return latest

    def check(self, partition: Partition, end: int) -> None:
        """Raise FileChangedError if the log has other records than those that were exported up to `end`."""
        batch = LastBatch.before(partition, end)
        if batch is None:
            self._check_epochs(partition, end)
        elif batch != self and not self._is_cleaned(partition, batch):
            detail = (
                f"the batch with offset {end - 1} is not the one that was exported: {batch._facts(self)}. The log was"
                f" truncated and written again, at {batch._first_changed(partition, self)} or before, or its topic was"
                " created again"
            )
            raise self._error(partition, batch.base_offset, detail)

    def _is_cleaned(self, partition: Partition, batch: LastBatch) -> bool:
        """Whether `batch` is this one after a cleaner has removed records of it."""
        is_same = (batch.last_offset, batch.leader_epoch) == (self.last_offset, self.leader_epoch)
        if self.n_records < 0:  # a cleaner compresses the messages of a set again
            return is_same and partition.is_compacted(batch.last_offset + 1) is True
        return is_same and batch.base_offset == self.base_offset and batch.n_records < self.n_records

    def _facts(self, exported: LastBatch) -> str:
        pairs = [("leader epoch", self.leader_epoch, exported.leader_epoch), ("checksum", self.crc, exported.crc)]
        if (self.base_offset, self.last_offset) != (exported.base_offset, exported.last_offset):
            return f"it has the offsets {self._offsets()} and had {exported._offsets()}"
        return ", ".join(f"its {name} is {now} and was {was}" for name, now, was in pairs if now != was)

    def _offsets(self) -> str:
        return offset_range(max(self.base_offset, 0), self.last_offset + 1)

    def _first_changed(self, partition: Partition, exported: LastBatch) -> str:
        """The first offset that is known to have another record."""
        start = _start_after(partition, exported.leader_epoch)
        first = max(min(self.base_offset, exported.base_offset), 0)
        return f"offset {first if start is None else start}"

    def _check_epochs(self, partition: Partition, end: int) -> None:
        """Raise if a later leader epoch begins before the end of what was exported."""
        start = _start_after(partition, self.leader_epoch)
        if start is not None and start < end:
            detail = (
                f"offsets {offset_range(start, end)} were exported with leader epoch {self.leader_epoch} or before, and"
                f" a later epoch begins at {start}: the log was truncated and written again"
            )
            raise self._error(partition, start, detail)
        latest = max((int(epoch) for epoch in _epochs(partition)["epoch"]), default=self.leader_epoch)
        if latest < self.leader_epoch:
            detail = (
                f"the latest leader epoch is {latest}, and offset {self.last_offset} was exported with epoch"
                f" {self.leader_epoch}: its topic was created again, or the log is an old copy"
            )
            raise self._error(partition, self.last_offset, detail)

    @staticmethod
    def _error(partition: Partition, offset: int, detail: str) -> FileChangedError:
        advice = "Read a replica that has the exported records, or export to another output"
        return FileChangedError(
            Reason.FILE_CHANGED, f"{detail}. {advice}", path=str(partition.path), base_offset=offset
        )

    @classmethod
    def of(cls, known: dict[str, Any] | None) -> LastBatch | None:
        """The batch in a manifest's entry of a partition; None if there is none, as in manifests of older versions."""
        fields = None if known is None else known.get("last_batch")
        return None if fields is None else cls(**fields)


def _start_after(partition: Partition, epoch: int) -> int | None:
    """Where the first leader epoch after `epoch` begins, by the partition's checkpoint."""
    entries = _epochs(partition)
    later = entries[entries["epoch"] > epoch]
    return int(later["start_offset"].min()) if len(later) and epoch != kf.NO_EPOCH else None


def _epochs(partition: Partition) -> npt.NDArray[np.void]:
    """The entries of `leader-epoch-checkpoint`; none if it cannot be read, which is not what an export checks."""
    try:
        return partition.leader_epochs
    except SidecarError:
        return np.empty(0, kf.LEADER_EPOCH_DTYPE)
