"""Writes one segment: the `.log` while batches arrive, and its indexes when it is closed.

Index entries are those that a broker makes when it appends batch by batch. `SegmentRoll` returns before which batch a
broker rolls. Mirrors the writing half of `LogSegment`, and `LogSegment.shouldRoll`.
This module does not decide which segments there are (`kafkalog.writing.partition_files`) or where the files end up
(`kafkalog.storage.staging`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.indexes import count_until_roll
from kafkalog.indexes.builder import IndexBuilder
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.source import Bytes
from kafkalog.storage.staging import OutputFiles


class SegmentRoll:
    """Counts how many batches a segment takes before it is rolled; `jitter_ms` is subtracted from `segment.ms`.

    Batches are counted one by one, as brokers append them. An empty segment takes a batch of any size (a broker refuses
    one larger than `segment.bytes`). If the first batch has no timestamp, a broker compares with its clock; here such a
    segment is never rolled for its age.

    Source: LogSegment.shouldRoll, LogSegment.timeWaitedForRoll, Kafka 4.3.

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
        first = int(batches.last_offset[row]) - kf.MAX_RELATIVE_OFFSET
    return max(first, log_end_offset)


_NO_ENTRIES: Final = np.empty(0, kf.TRANSACTION_INDEX_DTYPE)


class SegmentWriter:
    """Writes a segment in a staged directory, or in another that creates files; `names` are its finished files.

    `.index` and `.timeindex` are trimmed to their entries, and the time index ends with the largest timestamp, as after
    a roll or a clean shutdown. A `.txnindex` is written only if a transaction was aborted.

    Source: LogSegment.append, LogSegment.onBecomeInactiveSegment, LogSegment.close, Kafka 4.3.
    """

    def __init__(self, directory: OutputFiles, base_offset: int, config: LogConfig, jitter_ms: int = 0) -> None:
        self.base_offset = base_offset
        self.names: list[str] = []
        self._directory = directory
        self._roll = SegmentRoll(base_offset, config, jitter_ms)
        self._builder = IndexBuilder(base_offset, config.index_interval_bytes)
        self._aborted = [_NO_ENTRIES]
        self._modified_ms: int | None = None
        self._log = directory.create(kf.segment_file_name(base_offset))

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the `.log` so far."""
        return self._log.n_bytes

    def take(self, window: Window) -> int:
        """Append batches until the segment must be rolled, and return how many were appended."""
        batches = window.batches
        n = self._roll.take(batches)
        if n:
            batches = batches if n == len(batches) else batches[:n]
            ends = self._log.n_bytes + np.cumsum(batches.size_in_bytes, dtype=np.int64)
            for piece in _pieces(window.data, window.start, batches):
                self._log.write(piece)
            # index entries point into this file, and the positions of the window are of another one
            n_fed, reason = self._builder.feed(replace(batches, position=ends - batches.size_in_bytes))
            if reason is not None:
                raise ValueError(f"batch {n_fed} (offset {batches.last_offset[n_fed]}): {reason.value}")
        return n

    def add_aborted(self, entries: npt.NDArray[np.void]) -> None:
        """Add aborted transactions to the index: TRANSACTION_INDEX_DTYPE[n]."""
        self._aborted.append(entries)

    def set_modified(self, milliseconds: int | None) -> None:
        """Set when batches were written, ms; a broker's retention uses it if they have no timestamps.

        The latest of several times counts; None changes nothing.
        """
        if milliseconds is not None:
            self._modified_ms = max(milliseconds, self._modified_ms or 0)

    def close(self) -> None:
        """Finish all files of the segment and make them durable."""
        if self._modified_ms is not None:
            self._log.set_modified(self._modified_ms)
        self._log.close()
        self.names.append(kf.segment_file_name(self.base_offset))
        self._put(kf.INDEX_SUFFIX, self._builder.offset_entries())
        self._put(kf.TIME_INDEX_SUFFIX, self._builder.time_entries())
        # a broker creates this file with its first entry, too, and not before
        aborted = np.concatenate([entries.view(np.uint8) for entries in self._aborted])
        if aborted.size:
            self._put(kf.TRANSACTION_INDEX_SUFFIX, aborted)

    def _put(self, suffix: str, content: npt.NDArray[np.void] | Bytes) -> None:
        name = kf.segment_file_name(self.base_offset, suffix)
        with self._directory.create(name) as file:
            file.write(content.tobytes())
        self.names.append(name)


def _pieces(data: Bytes, start: int, batches: BatchTable) -> list[Bytes]:
    """The bytes of batches, in runs of batches that are contiguous in `data`; `start` is the position of `data`."""
    position, end = batches.position - start, batches.next_position - start
    cuts = np.flatnonzero(position[1:] != end[:-1]) + 1
    first, last = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(batches)]]) - 1
    # batches picked one by one: many short writes cost more than one copy
    if first.size > _MANY_PIECES:
        return [np.concatenate([data[a:b] for a, b in zip(position.tolist(), end.tolist(), strict=True)])]
    return [data[a:b] for a, b in zip(position[first].tolist(), end[last].tolist(), strict=True)]


_MANY_PIECES: Final = 8
"""More runs than this are copied into one before they are written."""
