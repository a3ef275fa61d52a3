"""The result of a load: partitions, counts and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog.html import JsonFields, PartsReport
from kafkalog.text import counted
from kafkalog.writing.routing import RoutedPartition


@dataclass(frozen=True, slots=True)
class LoadedPartition(JsonFields):
    """A partition that was written, or would be."""

    topic: str
    partition: int
    n_records: int
    n_batches: int
    n_bytes: int
    """Counts of its `.log` files. A dry run has no batches; its `n_bytes` is the approximate size of the records."""
    first_offset: int
    next_offset: int
    """Offset of the first record, and one past the last."""

    @classmethod
    def of(cls, partition: RoutedPartition) -> LoadedPartition:
        """The counts of a `RoutedPartition`."""
        counts = (partition.n_records, partition.n_batches, partition.n_bytes)
        return cls(*partition.key, *counts, partition.first_offset, partition.next_offset)


@dataclass(frozen=True, slots=True)
class LoadResult(PartsReport):
    """What a load wrote."""

    path: str
    """The log dir."""
    partitions: list[LoadedPartition]
    notes: list[str] = field(default_factory=list)
    """Remarks, for example that internal topics were left out, or that records are older than the topic's retention.
    They are part of ``repr``; the command prints them.
    """
    partitioner: str | None = None
    """The partitioner that chose partitions; None if the input has them."""

    n_tombstones: int = 0
    """Records with a key and a null value. In a compacted topic, they delete their keys."""
    n_undecoded: int = 0
    """Keys and values that did not decode when they were exported, so that they are null; see `on_decode_error`."""

    @property
    def n_records(self) -> int:
        """Records in all partitions."""
        return sum(each.n_records for each in self.partitions)

    @property
    def n_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(each.n_bytes for each in self.partitions)

    def __repr__(self) -> str:
        what = f"{counted(self.n_records, 'record')} in {counted(len(self.partitions), 'partition')}"
        notes = f", notes={self.notes}" if self.notes else ""
        undecoded = f", n_undecoded={self.n_undecoded}" if self.n_undecoded else ""
        return f"LoadResult({what}, {self.path!r}{undecoded}{notes})"
