"""Writes the files of a partition: segments, rolled as a broker rolls them, and producer snapshots.

Takes whole batches that have their offsets. Mirrors the append path of `UnifiedLog` after offsets are assigned. This
module does not choose the staging directory and does not move files into place: see `partition_staging`.
"""

from __future__ import annotations

import random

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.state.leader_epochs import new_epochs
from kafkalog.state.log_config import LogConfig
from kafkalog.state.producers import ProducerState, encode_snapshot, with_markers
from kafkalog.state.transactions import aborted_entries
from kafkalog.storage.staging import StagedDirectory
from kafkalog.text import offset_range
from kafkalog.writing.segment_writer import SegmentWriter, rolled_base_offset


class PartitionFiles:
    """Writes the segments of a partition one after the other, as the settings of the topic decide.

    `next_offset` is the log end offset so far, at which the first segment begins; None to begin with the first batch.
    `producers` is their state there, and is updated with each batch. `seed` is that of the jitter that a broker draws
    for each segment; without one there is no jitter. `epochs` are the leader epochs of the batches, each with its start
    offset. `bases` are the base offsets of the segments, `names` the file names of each finished one. `snapshots` has
    the name of each producer snapshot by its offset; "" for one that needs no file.
    """

    def __init__(
        self,
        directory: StagedDirectory,
        config: LogConfig,
        *,
        next_offset: int | None,
        producers: ProducerState,
        seed: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.next_offset, self.producers = next_offset, producers
        self.max_timestamp = kf.NO_TIMESTAMP
        self.epochs: list[tuple[int, int]] = []
        self.bases: list[int] = []
        self.names: list[list[str]] = []
        self.snapshots: dict[int, str] = {}
        self.n_batches = self.n_bytes = 0
        self._directory, self._config, self._limits = directory, config, limits
        self._jitter = random.Random(seed) if seed is not None else None
        self._segment: SegmentWriter | None = None

    def append(self, window: Window, *, modified_ms: int | None = None) -> None:
        """Append whole batches unchanged, and roll segments where a broker would; ValueError if offsets do not
        increase.
        """
        _check_order(window.batches, self.next_offset)
        # the kernels take contiguous columns, and a window may be a selection
        if not window.batches.position.flags.c_contiguous:
            window = window._replace(batches=window.batches[np.arange(len(window.batches))])
        done = 0
        while done < len(window.batches):
            if self._segment is None:
                base = self.next_offset
                self.roll(rolled_base_offset(window.batches, done, 0) if base is None else base)
                continue
            rest = Window(window.data, window.start, window.batches[done:] if done else window.batches)
            n = self._segment.take(rest)
            if n:
                self._segment.set_modified(modified_ms)
                self._note(Window(window.data, window.start, rest.batches[:n]), self._segment)
                done += n
            if done < len(window.batches):
                self.roll(rolled_base_offset(window.batches, done, self.next_offset or 0))

    def roll(self, base_offset: int) -> None:
        """Start a new segment: finish the one before and write a producer snapshot at the new base offset."""
        if self.next_offset is not None and base_offset < self.next_offset:
            raise ValueError(f"a segment at {base_offset} would begin before the end of the log, {self.next_offset}")
        if self.bases and base_offset <= self.bases[-1]:
            raise ValueError(f"the log already has a segment at {self.bases[-1]}")
        if base_offset < 0:
            raise ValueError(f"an offset must not be negative: {base_offset}")
        is_first = not self.bases
        if self._segment is not None and not self._segment.size_in_bytes:
            # without timestamps a broker uses the file's modification time as the segment's largest timestamp: 0 keeps
            # lookups by timestamp out of an empty segment
            self._segment.set_modified(0)
        self._finish_segment()
        self.next_offset = base_offset
        if not is_first:
            self.snapshot(base_offset)
        self._segment = SegmentWriter(self._directory, base_offset, self._config, self._draw())
        self.bases.append(base_offset)

    def snapshot(self, offset: int) -> None:
        """Write the producer snapshot at an offset, unless there is one."""
        if offset in self.snapshots:
            return
        name = kf.segment_file_name(offset, kf.PRODUCER_SNAPSHOT_SUFFIX)
        with self._directory.create(name) as file:
            file.write(encode_snapshot(self.producers.entries()))
        self.snapshots[offset] = name

    def close(self) -> None:
        """Finish the last segment and write a producer snapshot at the log end, as a clean shutdown does."""
        if self._segment is None:
            self.roll(self.next_offset or 0)
        self._finish_segment()
        # a broker takes no snapshot of a log that nothing was appended to
        if self.n_batches or len(self.bases) > 1:
            self.snapshot(self.next_offset or 0)

    def _finish_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self.names.append(self._segment.names)
            self._segment = None

    def _draw(self) -> int:
        # drawn for each segment, as a broker does, so that not all partitions roll at the same time
        most = min(self._config.segment_jitter_ms, self._config.max_segment_ms)
        return self._jitter.randrange(most) if self._jitter is not None and most else 0

    def _note(self, window: Window, segment: SegmentWriter) -> None:
        """Update offsets, timestamps, epochs and producers with batches that were written."""
        batches = window.batches
        self.next_offset = int(batches.last_offset[-1]) + 1
        self.max_timestamp = max(self.max_timestamp, int(batches.max_timestamp.max()))
        self.n_batches += len(batches)
        self.n_bytes += int(batches.size_in_bytes.sum(dtype=np.int64))
        self.epochs += new_epochs(batches, self.epochs[-1][0] if self.epochs else kf.NO_EPOCH)
        rows = np.flatnonzero((batches.producer_id >= 0) & (batches.magic >= 2))
        if not rows.size:
            return
        told, coordinator_epoch = with_markers(window, batches[rows], limits=self._limits)
        ended = self.producers.update(told, log_position=told.base_offset, coordinator_epoch=coordinator_epoch)
        if ended.size:
            segment.add_aborted(aborted_entries(ended))


def _check_order(batches: BatchTable, next_offset: int | None) -> None:
    """Raise unless offsets increase from batch to batch, and no batch ends before it begins."""
    if not len(batches):
        return
    last = batches.last_offset
    if (last == kf.MAX_OFFSET).any():
        raise ValueError(f"offset {kf.MAX_OFFSET} is too large: the next record would have none")
    before = np.concatenate([[-1 if next_offset is None else next_offset - 1], last[:-1]])
    wrong = (last <= before) | (batches.base_offset > last)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"offsets must increase: a batch with offsets {offset_range(batches.base_offset[row], int(last[row]) + 1)}"
            f" follows offset {before[row]}"
        )
