"""Chooses the partition of each record as Kafka's default partitioner does.

Mirrors `BuiltInPartitioner` and `Utils.murmur2`: keys are hashed; records without a key stick to one partition for
about a batch. A producer then picks the next partition at random. This module takes partitions in turn, so that the
same input always gives the same partitions.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.partitioner as kernels
from kafkalog import format as kf
from kafkalog.records.columns import BinaryColumn, HeadersColumn, RecordColumns

MAX_PARTITIONS: Final = 2**31 - 1


def murmur2(key: bytes) -> int:
    """The murmur2 hash of a key, as the signed 32-bit integer that Java computes.

    Source: Utils.murmur2, Kafka 4.3.

    >>> murmur2(b"foobar")
    -790332482
    """
    return int(hash_keys(BinaryColumn(np.array([0, len(key)], np.int64), np.frombuffer(key, np.uint8)))[0])


def hash_keys(keys: BinaryColumn) -> npt.NDArray[np.int32]:
    """The murmur2 hash of each key, int32[n]; a null gets the hash of an empty key, which the caller must ignore."""
    hashes = np.empty(len(keys), np.int32)
    n = kernels.hash_keys(
        np.ascontiguousarray(keys.offsets, np.int64), np.ascontiguousarray(keys.data, np.uint8), hashes
    )
    if n != len(keys):
        raise ValueError(f"key {n} does not lie within the bytes of the column")
    return hashes


class Partitioner:
    """Spreads records over the partitions of a topic; keeps its state from call to call.

    With a key (an empty key counts as one): ``(murmur2(key) & 0x7fffffff) % n_partitions``. Without a key: partition 0
    until it has `sticky_bytes` or more, then 1 and so on; after the last partition comes 0 again. A producer instead
    begins with a random partition, continues with another random one, and takes the load of brokers into account.

    Source: BuiltInPartitioner.partitionForKey, BuiltInPartitioner.updatePartitionInfo, Kafka 4.3.

    >>> from kafkalog.interchange.arrow_input import record_slices
    >>> (columns,) = record_slices({"key": ["a", "b", None], "value": ["", "", ""]})
    >>> Partitioner(6).assign(columns).tolist()
    [4, 2, 0]
    """

    def __init__(self, n_partitions: int, *, sticky_bytes: int = kf.BATCH_SIZE) -> None:
        if not 1 <= n_partitions <= MAX_PARTITIONS:
            raise ValueError(f"n_partitions is 1 to {MAX_PARTITIONS}, not {n_partitions}")
        if sticky_bytes < 1:
            raise ValueError(f"sticky_bytes is positive, not {sticky_bytes}")
        self.n_partitions = n_partitions
        self._sticky_bytes = sticky_bytes
        self._turn = 0
        self._given = 0

    def assign(self, columns: RecordColumns) -> npt.NDArray[np.int32]:
        """The partition of each record (int32[n]), from its key, or else its size."""
        keys: Any = columns.get("key")
        if keys is None:
            return self._take_turns(columns, np.arange(columns.n_records))
        # not the absolute value: Java's `toPositive` clears the sign, which gives another partition
        partitions = (hash_keys(keys) & np.int32(0x7FFFFFFF)) % np.int32(self.n_partitions)
        if keys.validity is not None:
            rows = np.flatnonzero(~keys.validity)
            partitions[rows] = self._take_turns(columns, rows)
        return partitions

    def _take_turns(self, columns: RecordColumns, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Assign partitions in turn to records without a key, and remember the current partition and its bytes."""
        turns = np.empty(rows.size, np.int32)
        end = np.cumsum(record_sizes(columns)[rows])
        start, before = 0, -self._given
        while start < rows.size:
            # the record that reaches `sticky_bytes` is the last one for the partition
            stop = min(int(np.searchsorted(end, before + self._sticky_bytes)) + 1, rows.size)
            turns[start:stop] = self._turn
            self._given = int(end[stop - 1]) - before
            if self._given >= self._sticky_bytes:
                self._turn = (self._turn + 1) % self.n_partitions
                self._given = 0
            before = int(end[stop - 1]) - self._given
            start = stop
        return turns


def record_sizes(columns: RecordColumns) -> npt.NDArray[np.int64]:
    """Approximate bytes of each record in a batch: its key, value and headers plus the least overhead of a record."""
    sizes = np.full(columns.n_records, kf.MIN_RECORD_BYTES, np.int64)
    for column in columns.values():
        if isinstance(column, BinaryColumn):
            sizes += np.diff(column.offsets)
        elif isinstance(column, HeadersColumn):
            for part in (column.key, column.value):
                sizes += np.diff(part.offsets[column.offsets])
    return sizes
