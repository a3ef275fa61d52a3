"""Decides when a new segment begins, by all of a broker's conditions, for many batches at a time.

A segment is rolled before a batch that would make it too large, whose timestamp is too far after that of its first
batch, whose offset is too far from its base offset, or that finds an index full. Mirrors `LogSegment.shouldRoll`,
`LogConfig.maxSegmentMs` and `AbstractIndex.isFull`. This module writes nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels.indexes import count_until_roll
from kafkalog.records.batch_table import BatchTable
from kafkalog.state.log_config import LogConfig

MAX_SEGMENT_BYTES: Final = 2**31 - 1


class SegmentRoll:
    """Counts how many batches a segment takes before it is rolled.

    Parameters
    ----------
    base_offset : int
        Base offset of the segment.
    config : LogConfig
        Settings of the topic.
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
    >>> roll = SegmentRoll(0, LogConfig(segment_bytes=250))
    >>> batches = BatchTable.empty(3)
    >>> batches.size_in_bytes[:] = 100
    >>> roll.take(batches)
    2
    """

    def __init__(self, base_offset: int, config: LogConfig, jitter_ms: int = 0) -> None:
        self.base_offset = base_offset
        self._config, self._roll_ms = config, config.max_segment_ms - jitter_ms
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
        n_batches: int = count_until_roll(
            batches.size_in_bytes,
            batches.last_offset,
            batches.max_timestamp,
            self.base_offset,
            self._config.segment_bytes,
            self._roll_ms,
            self._config.index_interval_bytes,
            self._config.segment_index_bytes // kf.OFFSET_INDEX_DTYPE.itemsize,
            self._config.segment_index_bytes // kf.TIME_INDEX_DTYPE.itemsize,
            self._carried,
        )
        return n_batches


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
