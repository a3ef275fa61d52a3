"""Decides when a new segment begins, by all of a broker's conditions, for many batches at a time.

A segment is rolled before a batch that would make it too large, whose timestamp is too far after that of its first
batch, whose offset is too far from its base offset, or that finds an index full. Mirrors `LogSegment.shouldRoll`,
`LogConfig.maxSegmentMs` and `AbstractIndex.isFull`. This module writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels.rolling import count_until_roll
from kafkalog.records.batch_table import BatchTable

MAX_SEGMENT_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RollConditions:
    """Settings that decide when a segment is rolled; the defaults are Kafka's.

    Attributes
    ----------
    segment_bytes, segment_ms, segment_jitter_ms, segment_index_bytes, index_interval_bytes : int
        Settings of the topic: `segment.bytes` and so on. For a compacted topic `segment_ms` is the smaller of
        `segment.ms` and `max.compaction.lag.ms`.
    """

    segment_bytes: int = 2**30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = kf.INDEX_INTERVAL_BYTES

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(f"segment.bytes must be 1 to {MAX_SEGMENT_BYTES}, not {self.segment_bytes}")
        if self.segment_ms < 1 or self.segment_jitter_ms < 0 or self.index_interval_bytes < 0:
            raise ValueError("segment.ms is at least 1, segment.jitter.ms and index.interval.bytes at least 0")
        if self.segment_index_bytes < kf.TIME_INDEX_DTYPE.itemsize:
            raise ValueError(
                f"segment.index.bytes is {self.segment_index_bytes}: no time index entry fits, and a broker fails at"
                " every append"
            )

    @property
    def max_offset_entries(self) -> int:
        """How many entries fill the offset index."""
        return self.segment_index_bytes // kf.OFFSET_INDEX_DTYPE.itemsize

    @property
    def max_time_entries(self) -> int:
        """How many entries fill the time index; the last one is reserved for when the segment is closed."""
        return self.segment_index_bytes // kf.TIME_INDEX_DTYPE.itemsize


class SegmentRoll:
    """Counts how many batches a segment takes before it is rolled.

    Parameters
    ----------
    base_offset : int
        Base offset of the segment.
    conditions : RollConditions
    jitter_ms : int
        The jitter drawn for this segment, ms; it is subtracted from `segment.ms`.

    Notes
    -----
    Batches are counted one by one, as brokers append them. An empty segment takes a batch of any size (a broker refuses
    one larger than `segment.bytes`). If the first batch has no timestamp, a broker compares with its clock; here such a
    segment is never rolled for its age.

    Source: LogSegment.shouldRoll, LogSegment.timeWaitedForRoll, Kafka 4.3.

    Examples
    --------
    >>> roll = SegmentRoll(0, RollConditions(segment_bytes=250))
    >>> batches = BatchTable.empty(3)
    >>> batches.size_in_bytes[:] = 100
    >>> roll.take(batches)
    2
    """

    def __init__(self, base_offset: int, conditions: RollConditions, jitter_ms: int = 0) -> None:
        self.base_offset = base_offset
        self._conditions, self._roll_ms = conditions, conditions.segment_ms - jitter_ms
        # the kernel's state between calls: bytes, timestamp of the first batch, bytes since the last index entry,
        # entries of the offset and the time index, largest timestamp, timestamp of the last time index entry
        self._carried = np.array([0, -1, 0, 0, 0, -1, -1], np.int64)

    @property
    def size_in_bytes(self) -> int:
        """Bytes taken so far."""
        return int(self._carried[0])

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp so far, ms; -1 for none."""
        return int(self._carried[5])

    def take(self, batches: BatchTable) -> int:
        """Count the next batches that go into the segment: fewer than given if it is rolled before one of them."""
        return count_until_roll(
            batches.size_in_bytes,
            batches.last_offset,
            batches.max_timestamp,
            self.base_offset,
            self._conditions.segment_bytes,
            self._roll_ms,
            self._conditions.index_interval_bytes,
            self._conditions.max_offset_entries,
            self._conditions.max_time_entries,
            self._carried,
        )


def rolled_base_offset(batches: BatchTable, row: int, log_end_offset: int) -> int:
    """Base offset of the segment that begins with a batch.

    It is the batch's first offset. The header of a v0 or v1 batch does not have that offset; a broker uses a lower
    bound instead.

    Source: UnifiedLog.maybeRoll, Kafka 4.3.
    """
    if batches.magic[row] >= 2:
        first = int(batches.base_offset[row])
    else:
        first = int(batches.last_offset[row]) - MAX_SEGMENT_BYTES
    return max(first, log_end_offset)
