"""Reads `.timeindex` files as Kafka's tool reads them, and compares entries with the log.

Mirrors `DumpLogSegments.dumpTimeIndex`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import KafkalogError, Reason, error_from_status
from kafkalog.operations.dumping.batch_chain import WINDOW, Chain
from kafkalog.operations.dumping.files import beside, start_offset
from kafkalog.operations.dumping.log_walk import BatchReader, explain_end, header_row, too_large, unknown_codec
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.operations.dumping.report import Report
from kafkalog.operations.dumping.sidecars import CHUNK, EntryTable, IndexFile, Remark, passed
from kafkalog.storage.source import Bytes, ByteSource, open_source

_FIRST_WINDOW: Final = 2**14
_STRAY_BYTES: Final = 2**26
"""The most bytes to walk from positions at which no batch starts; bounds the work on a damaged index."""
_KEPT: Final = 2**16
"""The most batches whose largest timestamps are cached."""


def read_time_index(path: str, key: str, options: DumpOptions, report: Report) -> Iterator[EntryTable | Remark]:
    """Yield the entries of a time index, compared with the log; for parameters and errors see `read_index`."""
    base_offset = start_offset(os.path.basename(path))
    with open_source(beside(path, kf.LOG_SUFFIX), memory_map=False) as log:
        offset_index = IndexFile(beside(path, kf.INDEX_SUFFIX), kf.OFFSET_INDEX_DTYPE, base_offset, options.limits)
        index = IndexFile(path, kf.TIME_INDEX_DTYPE, base_offset, options.limits)
        if options.index_sanity_check:
            if len(index) and index.entries["timestamp"][-1] < index.entries["timestamp"][0]:
                raise index.sanity_check_error("the last timestamp lies before the first")
            index.check_end()
            yield passed(path)
            return
        n = index.used()
        offset = index.offsets()[:n]
        checker = _TimeChecker(log, index, offset_index.positions_for(offset), key, options, report)
        timestamp = index.entries["timestamp"][:n].astype(np.int64)
        for at in range(0, n, CHUNK):
            done, error = checker.check(at, min(at + CHUNK, n))
            if not options.verify_index_only:
                yield EntryTable("time_index_entry", ("timestamp", "offset"), (timestamp[at:done], offset[at:done]))
            if error is not None:
                raise error


class _TimeChecker:
    """Compares time index entries with the log.

    For each entry Kafka's tool walks from the entry's position to the end of the log, and throws where that fails. Here
    the log is walked to its end once, which gives the same errors in linear time.
    """

    def __init__(
        self,
        log: ByteSource,
        index: IndexFile,
        starts: npt.NDArray[np.int64],
        key: str,
        options: DumpOptions,
        report: Report,
    ) -> None:
        self._log, self._index, self._starts = log, index, starts
        self._key, self._options, self._report = key, options, report
        self._previous = kf.NO_TIMESTAMP
        self._offsets = index.offsets()
        self._is_unused = index.is_unused
        self._found: tuple[int, int, tuple[int, int] | None] = -1, 0, None
        self._largest: dict[int, int] = {}
        self._walked_bytes = 0
        self._stray_bytes = 0
        self._batches = BatchReader(options.limits, log.path)
        self._needed = np.unique(starts[(starts >= 0) & (starts <= log.size)])
        self._is_batch = np.zeros(self._needed.size, np.bool_)
        self._broken_at: int | None = None
        self._walk_all()

    def check(self, at: int, stop: int) -> tuple[int, KafkalogError | None]:
        """Check entries from `at` up to `stop`; return where it stopped, and the error for what Kafka throws there."""
        offsets = self._offsets[at:stop].tolist()
        timestamps = self._index.entries["timestamp"][at:stop].tolist()
        for number, (offset, timestamp) in enumerate(zip(offsets, timestamps, strict=True), at):
            try:
                self._check(int(self._starts[number]), offset, timestamp, number)
            except KafkalogError as error:
                return number, error
            self._previous = timestamp
        return stop, None

    def _check(self, start: int, offset: int, timestamp: int, number: int) -> None:
        if not 0 <= start <= self._log.size:
            raise self._index.sanity_check_error(f"the offset index leads to {start}, where the log has no byte")
        self._check_end(start)
        found = self._find(start, offset)
        if found is None:
            self._report.add_pair("missing", self._key, offset, -1)
            self._add_finding(number, f"no batch for the entry of offset {offset}")
            return
        position, last_offset = found
        if last_offset != offset:
            # up to 3.7 an entry may have the offset of the record instead of the batch's last one: not an issue,
            # though the tool lists it
            self._report.add_pair("missing", self._key, offset, last_offset)
            return
        largest = self._largest.get(position)
        if largest is None:
            # entries come in order, so that old answers are hardly asked for again
            if len(self._largest) == _KEPT:
                self._largest.clear()
            largest = self._largest[position] = self._largest_timestamp(position)
        if largest != timestamp:
            self._report.add_pair("timestamp", self._key, timestamp, largest)
            if not self._is_empty_batch_of(position, timestamp):
                self._add_finding(
                    number, f"the entry has timestamp {timestamp}, but the largest in the batch is {largest}"
                )
        if self._previous >= timestamp:
            self._report.add_pair("order", self._key, timestamp, self._previous)
            self._add_finding(number, f"the timestamp {timestamp} does not lie after {self._previous}")

    def _add_finding(self, number: int, detail: str) -> None:
        index = self._index
        if not self._is_unused:
            self._report.add_finding(
                Reason.INDEX_ENTRY, detail, path=index.path, position=12 * number, base_offset=index.base_offset
            )

    def _is_empty_batch_of(self, position: int, timestamp: int) -> bool:
        """Whether compaction removed all records of a batch, and its header still has the largest timestamp."""
        row = header_row(_batch_at(self._log, position, self._options), position)
        return bool(row.magic[0] >= 2 and row.records_count[0] == 0 and row.max_timestamp[0] == timestamp)

    def _walk_all(self) -> None:
        """Find out which needed positions are those of batches, and where the walk over all batches fails."""
        needed = self._needed
        if not needed.size:
            return
        chain = Chain(self._log, int(needed[0]), WINDOW)
        for positions, _ in chain:
            at = np.searchsorted(needed, positions)
            hit = at[(at < needed.size) & (needed[np.minimum(at, needed.size - 1)] == positions)]
            self._is_batch[hit] = True
        # the walk began at the lowest position; a position at the end of the file has nothing after it that could fail
        self._is_batch[0] = True
        self._is_batch[needed == self._log.size] = True
        self._broken_at = chain.position if chain.is_broken else None

    def _check_end(self, start: int) -> None:
        """Raise an error if the batches from a position on do not lead to the end of the log."""
        broken_at = self._broken_at
        if not self._is_batch[np.searchsorted(self._needed, start)]:
            chain = Chain(self._log, start, _FIRST_WINDOW)
            for positions, _ in chain:
                self._stray_bytes += int(positions[-1] - positions[0])
                if self._stray_bytes > _STRAY_BYTES:
                    raise self._index.sanity_check_error("too many entries lead to positions where no batch starts")
            broken_at = chain.position if chain.is_broken else None
        if broken_at is not None:
            raise explain_end(self._log, broken_at, self._log.size, self._options)

    def _find(self, start: int, offset: int) -> tuple[int, int] | None:
        """Return position and last offset of the first batch from `start` on whose last offset is at least `offset`."""
        from_start, from_offset, found = self._found
        walk_from = start
        if start == from_start and offset >= from_offset:
            # with a sparse offset index many entries start at the same position: continue from the previous answer
            if found is None:
                return None
            walk_from = found[0]
        self._found = start, offset, self._search(walk_from, offset)
        return self._found[2]

    def _search(self, start: int, offset: int) -> tuple[int, int] | None:
        chain = Chain(self._log, start, _FIRST_WINDOW)
        for positions, last_offsets in chain:
            rows = np.flatnonzero(last_offsets >= offset)
            reached = int(positions[rows[0] if rows.size else -1])
            # entries of a damaged index may each go back to the start: without a bound the work would be quadratic
            self._walked_bytes += reached - start
            if self._walked_bytes > 8 * self._log.size + _STRAY_BYTES:
                raise self._index.sanity_check_error("the entries lead back and forth over the log too often")
            if rows.size:
                return reached, int(last_offsets[rows[0]])
            start = reached
        if chain.ends_in_header:
            # Kafka's tool reads a whole header only to compare its offset, so only here does it throw
            raise explain_end(self._log, chain.position, self._log.size, self._options)
        return None

    def _largest_timestamp(self, position: int) -> int:
        """Return the largest timestamp of the records of a batch, -1 for none."""
        batch = _batch_at(self._log, position, self._options)
        row = header_row(batch, position)
        magic, codec = int(row.magic[0]), int(row.attributes[0]) & kf.CODEC_MASK
        if magic < 2 and not codec:
            return max(kf.NO_TIMESTAMP, int(row.max_timestamp[0]))
        if magic < 0:
            raise self._batches.error(STATUS["BAD_MAGIC"], row)
        if magic >= 2 and row.records_count[0] == 0:
            return kf.NO_TIMESTAMP
        if codec > kf.Codec.ZSTD:
            raise unknown_codec(row, self._log.path)
        return max(kf.NO_TIMESTAMP, self._batches.largest_timestamp(batch, row))


def _batch_at(log: ByteSource, position: int, options: DumpOptions) -> Bytes:
    head = log.window(position, position + kf.LOG_OVERHEAD)
    size = kf.LOG_OVERHEAD + int.from_bytes(head[8:12].tobytes(), "big")
    if size > options.limits.max_batch_bytes:
        raise too_large(size, log.path, position, options.limits)
    batch = log.window(position, position + size)
    if 2 <= int(batch[16]) <= 127 and size < kf.RECORD_BATCH_OVERHEAD:
        raise error_from_status(STATUS["SIZE_TOO_SMALL"], path=log.path, position=position)
    return batch
