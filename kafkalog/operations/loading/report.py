"""What a load wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafkalog.writing.routing import RoutedPartition


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """What became of a partition.

    Attributes
    ----------
    topic : str
    partition : int
    n_records, n_batches, n_bytes : int
        Of its `.log` files; a dry run knows no batches, and the bytes of keys, values and headers.
    first_offset, next_offset : int
        Of its first record, and behind its last one.
    """

    topic: str
    partition: int
    n_records: int
    n_batches: int
    n_bytes: int
    first_offset: int
    next_offset: int

    @classmethod
    def of(cls, partition: RoutedPartition) -> LoadedPartition:
        """What a partition says of itself."""
        counts = (partition.n_records, partition.n_batches, partition.n_bytes)
        return cls(*partition.key, *counts, partition.first_offset, partition.next_offset)

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was written.

    Attributes
    ----------
    path : str
        The log dir.
    partitions : list of LoadedPartition
    notes : list of str
        What is worth knowing, such as records that are older than the topic's retention.
    """

    path: str
    partitions: list[LoadedPartition]
    notes: list[str] = field(default_factory=list)

    @property
    def n_records(self) -> int:
        """Records in all partitions."""
        return sum(each.n_records for each in self.partitions)

    @property
    def n_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(each.n_bytes for each in self.partitions)

    def __repr__(self) -> str:
        return f"LoadResult({self.n_records} records in {len(self.partitions)} partitions, {self.path!r})"
