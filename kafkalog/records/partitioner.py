"""Chooses the partition of each record as a client's partitioner does: Kafka's default one, librdkafka's, Sarama's.

Mirrors `BuiltInPartitioner` and `Utils.murmur2`, and the functions `rd_kafka_msg_partitioner_*` of librdkafka. Keys are
hashed; records without a key stick to one partition for about a batch. A producer then picks the next partition at
random. This module takes partitions in turn, so that the same input always gives the same partitions.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.partitioner as kernels
from kafkalog import format as kf
from kafkalog.parsing import one_of
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.columns import RecordColumns

MAX_PARTITIONS: Final = 2**31 - 1

HashName = Literal["murmur2", "fnv1a", "crc32"]


class Partitioning(NamedTuple):
    """How a client chooses partitions."""

    hash: HashName
    hashes_null: bool = False
    """Whether a record without a key goes where an empty key goes; else such records take partitions in turn."""
    hashes_empty: bool = True
    """Whether an empty key counts as a key."""

    def __str__(self) -> str:
        without = "as with an empty one" if self.hashes_null else "in turn"
        which = "" if self.hashes_empty else " or with an empty one"
        return f"{self.hash.replace('crc', 'CRC')} of the key, records without a key{which} {without}"


PARTITIONERS: Final = {
    "kafka": Partitioning("murmur2"),
    "consistent_random": Partitioning("crc32", hashes_empty=False),
    "consistent": Partitioning("crc32", hashes_null=True),
    "murmur2_random": Partitioning("murmur2"),
    "murmur2": Partitioning("murmur2", hashes_null=True),
    "fnv1a_random": Partitioning("fnv1a"),
    "fnv1a": Partitioning("fnv1a", hashes_null=True),
    "sarama": Partitioning("fnv1a"),
}
"""By name: Kafka's default partitioner, those of librdkafka's setting `partitioner`, and Sarama's default one.

Source: rd_kafka_msg_partitioner_consistent_random and so on, librdkafka 2.16; hashPartitioner.Partition, Sarama 1.45.
"""


def murmur2(key: bytes) -> int:
    """The murmur2 hash of a key, as the signed 32-bit integer that Java computes.

    Source: Utils.murmur2, Kafka 4.3.

    >>> murmur2(b"foobar")
    -790332482
    """
    return int(hash_keys(BinaryColumn(np.array([0, len(key)], np.int64), np.frombuffer(key, np.uint8)))[0])


def hash_keys(keys: BinaryColumn, name: HashName = "murmur2") -> npt.NDArray[np.int32]:
    """The hash of each key, int32[n]; a null gets the hash of an empty key, which the caller may have to ignore."""
    hashes = np.empty(len(keys), np.int32)
    data = np.ascontiguousarray(keys.data, np.uint8)
    n = kernels.hash_keys(np.ascontiguousarray(keys.offsets, np.int64), data, hashes, kernels.HASHES[name])
    if n != len(keys):
        raise ValueError(f"key {n} does not lie within the bytes of the column")
    return hashes


class Partitioner:
    """Spreads records over the partitions of a topic; keeps its state from call to call.

    With a key (an empty key counts as one): ``(murmur2(key) & 0x7fffffff) % n_partitions``, or another of
    `PARTITIONERS`. Without a key: partition 0 until it has `sticky_bytes` or more, then 1 and so on; after the last
    partition comes 0 again. A producer instead begins with a random partition, continues with another random one, and
    takes the load of brokers into account.

    Source: BuiltInPartitioner.partitionForKey, BuiltInPartitioner.updatePartitionInfo, Kafka 4.3.

    >>> from kafkalog.interchange.arrow_input import record_slices
    >>> (columns,) = record_slices({"key": ["a", "b", None], "value": ["", "", ""]})
    >>> Partitioner(6).assign(columns).tolist()
    [4, 2, 0]
    """

    def __init__(self, n_partitions: int, *, sticky_bytes: int = kf.BATCH_SIZE, name: str = "kafka") -> None:
        if not 1 <= n_partitions <= MAX_PARTITIONS:
            raise ValueError(f"n_partitions is 1 to {MAX_PARTITIONS}, not {n_partitions}")
        if sticky_bytes < 1:
            raise ValueError(f"sticky_bytes is positive, not {sticky_bytes}")
        self.n_partitions = n_partitions
        self._how = PARTITIONERS[one_of("partitioner", name, [*PARTITIONERS])]
        self._sticky_bytes = sticky_bytes
        self._turn = 0
        self._given = 0

    def assign(self, columns: RecordColumns) -> npt.NDArray[np.int32]:
        """The partition of each record (int32[n]), from its key, or else its size."""
        keys: Any = columns.get("key")
        if keys is None:
            n = columns.n_records
            keys = BinaryColumn(np.zeros(n + 1, np.int64), np.empty(0, np.uint8), np.zeros(n, np.bool_))
        partitions = self.of_keys(keys)
        rows = np.flatnonzero(partitions < 0)
        if rows.size:
            partitions[rows] = self._take_turns(columns, rows)
        return partitions

    def of_keys(self, keys: BinaryColumn) -> npt.NDArray[np.int32]:
        """The partition of each key (int32[n]); -1 for a record whose partition does not depend on its key."""
        hashes = hash_keys(keys, self._how.hash).astype(np.int64)
        if self._how.hash == "murmur2":
            # not the absolute value: Java's `toPositive` clears the sign, which gives another partition
            hashes &= 0x7FFFFFFF
        elif self._how.hash == "fnv1a":
            hashes = np.abs(hashes)
        else:
            hashes &= 0xFFFFFFFF
        partitions = (hashes % self.n_partitions).astype(np.int32)
        if keys.validity is not None and not self._how.hashes_null:
            partitions[~keys.validity] = -1
        if not self._how.hashes_empty:
            partitions[np.diff(keys.offsets) == 0] = -1
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
