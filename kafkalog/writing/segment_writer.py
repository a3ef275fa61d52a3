"""One segment while it is written: the `.log` as it grows, and at its end the indexes that belong to it.

Entries are those that a broker makes while it appends batch by batch. Mirrors the writing half of `LogSegment`; what
comes when is decided by `kafkalog.writing.partition_writer`, where the files end up by `kafkalog.storage.staging`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.indexes.builder import IndexBuilder
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.state.transactions import aborted_entries
from kafkalog.storage.source import Bytes
from kafkalog.storage.staging import StagedDirectory
from kafkalog.writing.rolling import RollConditions, SegmentRoll

_NO_ENTRIES: Final = np.empty(0, kf.TRANSACTION_INDEX_DTYPE)


class SegmentWriter:
    """A segment of a directory that is being staged.

    Parameters
    ----------
    directory : StagedDirectory
    base_offset : int
    conditions : RollConditions
    jitter_ms : int
        See `SegmentRoll`.

    Attributes
    ----------
    base_offset : int
    names : list of str
        Of the files that are finished.

    Notes
    -----
    `.index` and `.timeindex` are as long as their entries, and the time index ends with the largest timestamp, as a
    roll or a clean shutdown leaves them; there is a `.txnindex` where a transaction was aborted.

    Source: LogSegment.append, LogSegment.onBecomeInactiveSegment, LogSegment.close, Kafka 4.3.
    """

    def __init__(
        self, directory: StagedDirectory, base_offset: int, conditions: RollConditions, jitter_ms: int = 0
    ) -> None:
        self.base_offset = base_offset
        self.names: list[str] = []
        self._directory = directory
        self._roll = SegmentRoll(base_offset, conditions, jitter_ms)
        self._builder = IndexBuilder(base_offset, conditions.index_interval_bytes)
        self._aborted = [_NO_ENTRIES]
        self._modified_ms: int | None = None
        self._log = directory.create(kf.segment_file_name(base_offset))

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the `.log` so far."""
        return self._log.n_bytes

    def take(self, window: Window) -> int:
        """Append batches until the segment is to be rolled; how many it took."""
        batches = window.batches
        n = self._roll.take(batches)
        if n:
            batches = batches if n == len(batches) else batches[:n]
            ends = self._log.n_bytes + np.cumsum(batches.size_in_bytes, dtype=np.int64)
            for piece in _pieces(window.data, window.start, batches):
                self._log.write(piece)
            n_fed, reason = self._builder.feed(replace(batches, position=ends - batches.size_in_bytes))
            if reason is not None:
                raise ValueError(f"batch {n_fed} (offset {batches.last_offset[n_fed]}): {reason.value}")
        return n

    def add_aborted(self, ended: npt.NDArray[np.void]) -> None:
        """Note the aborted ones of transactions that ended in this segment (ENDED_DTYPE[n])."""
        self._aborted.append(aborted_entries(ended))

    def set_modified(self, milliseconds: int | None) -> None:
        """When batches from elsewhere were written: retention counts from there if they have no timestamps."""
        if milliseconds is not None:
            self._modified_ms = max(milliseconds, self._modified_ms or 0)

    def close(self) -> None:
        """Finish all files of the segment; they are durable then."""
        if self._modified_ms is not None:
            self._log.set_modified(self._modified_ms)
        self._log.close()
        self.names.append(kf.segment_file_name(self.base_offset))
        self._put(kf.INDEX_SUFFIX, self._builder.offset_entries())
        self._put(kf.TIME_INDEX_SUFFIX, self._builder.time_entries())
        aborted = np.concatenate([entries.view(np.uint8) for entries in self._aborted])
        if aborted.size:
            self._put(kf.TRANSACTION_INDEX_SUFFIX, aborted)

    def _put(self, suffix: str, content: npt.NDArray[np.void] | Bytes) -> None:
        name = kf.segment_file_name(self.base_offset, suffix)
        with self._directory.create(name) as file:
            file.write(content.tobytes())
        self.names.append(name)


def _pieces(data: Bytes, start: int, batches: BatchTable) -> list[Bytes]:
    """The bytes of batches: stretches as long as they lie one behind the other."""
    position, end = batches.position - start, batches.next_position - start
    cuts = np.flatnonzero(position[1:] != end[:-1]) + 1
    first, last = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(batches)]]) - 1
    if first.size > _MANY_PIECES:
        return [np.concatenate([data[a:b] for a, b in zip(position.tolist(), end.tolist(), strict=True)])]
    return [data[a:b] for a, b in zip(position[first].tolist(), end[last].tolist(), strict=True)]


_MANY_PIECES: Final = 8
