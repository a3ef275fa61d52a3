"""Turns record columns into the batches of a partition: checks, numbers, collects and encodes records.

Does what a producer and the partition's leader do together: assigns offsets, sequence numbers and epochs, and enforces
the limits of both. This module does not write batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import ConfigWarning, Limits, Reason, UnwritableError, warn
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import cut_batches, encode_batches, encode_marker
from kafkalog.state.log_config import LogConfig
from kafkalog.state.producers import ProducerState
from kafkalog.writing.option_checks import LAST_OFFSET, Producer
from kafkalog.writing.partition_files import PartitionFiles

_STEP_BYTES: Final = 2**20
_TOGETHER: Final = 8
_NOT_APPENDED: Final = -(2**63)

Filled = tuple[RecordColumns, npt.NDArray[np.int64]]
"""Records and their boundaries as from `cut_batches`; rows after the last boundary belong to a later batch."""


@dataclass(slots=True)
class BatchBuilder:
    """Makes the batches that continue a partition."""

    name: str
    """Name of the partition, for messages."""
    config: LogConfig
    compression: Compression
    batch_size: int
    """See `cut_batches`."""
    max_records: int | None
    """See `cut_batches`."""
    timestamp_type: kf.TimestampType
    log_append_time: int | None
    """Timestamp of `LogAppendTime` batches, ms; None for the clock."""
    keeps_append_times: bool
    """Whether records with the `timestamp_type` LogAppendTime stay such, with their timestamps."""
    leader_epoch: int
    limits: Limits
    """Larger batches are refused, since a reader with these limits could not read them."""
    _has_warned: bool = False
    _any_header_names: bool = False

    def build(
        self,
        pieces: Iterable[RecordColumns],
        files: PartitionFiles,
        *,
        producer: Producer | None,
        transactional: bool,
        any_header_names: bool = False,
    ) -> Iterator[Window]:
        """Encode records into windows of batches, which do not depend on how the records are divided into pieces.

        The caller must append each window to `files` before it takes the next one. Raises UnwritableError, whose `row`
        counts from the start of the first piece. With `any_header_names`, header names need not be UTF-8.
        """
        self._any_header_names = any_header_names
        records = RecordAccumulator(
            batch_size=self.batch_size, max_records=self.max_records, any_header_names=any_header_names
        )
        row = 0
        for piece in pieces:
            if not piece.n_records:
                continue
            self._check(piece, row)
            # records that wait have offsets already, which `files` does not know yet
            next_offset = files.next_offset or 0 if records.last_offset is None else records.last_offset + 1
            filled = records.add(_numbered(piece, next_offset, row))
            row += piece.n_records
            if filled is not None:
                yield self._encode(filled, files.producers, producer, transactional)
        filled = records.finish()
        if filled is not None:
            yield self._encode(filled, files.producers, producer, transactional)

    def build_marker(self, files: PartitionFiles, producer: Producer, *, is_commit: bool, timestamp: int) -> Window:
        """Encode the marker that ends a producer's transaction; ValueError if none is open."""
        if producer.producer_id not in files.producers.transactions:
            raise ValueError(f"producer {producer.producer_id} has no transaction open")
        return encode_marker(
            files.next_offset or 0,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            # the lowest there is: a broker refuses a marker of a lower epoch than the last one's, and a real
            # coordinator's must pass
            coordinator_epoch=0,
            is_commit=is_commit,
            timestamp=timestamp,
            leader_epoch=self.leader_epoch,
        )

    def _check(self, piece: RecordColumns, row: int) -> None:
        """Raise for records that a broker would refuse or no reader could read; `row` is the first of the piece."""
        if "offset" in piece and int(np.max(piece.offset)) > LAST_OFFSET:
            bad = row + int(np.argmax(piece.offset > LAST_OFFSET))
            detail = f"column 'offset', row {bad} is beyond 2^63 - 2: no offset would be left for the next record"
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        if self.config.is_compacted and (piece.get("key") is None or piece.key.null_count):
            # a leader refuses such records, too: the cleaner compares keys
            bad = row + (0 if piece.get("key") is None else int(np.argmax(piece.key.is_null())))
            detail = f"row {bad} has no key, and compacted topics (cleanup.policy=compact) need one"
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        if "headers" in piece:
            count = np.diff(piece.headers.offsets)
            bad, limit = int(np.argmax(count)), self.limits.max_headers_per_record
            if count[bad] > limit:
                detail = f"row {row + bad} has {int(count[bad])} headers; with Limits(max_headers_per_record={limit})"
                raise UnwritableError(Reason.COLUMN_VALUE, f"{detail}, kafkalog could not read it again", row=row + bad)

    def _encode(
        self, filled: Filled, producers: ProducerState, producer: Producer | None, transactional: bool
    ) -> Window:
        columns, cuts = filled
        times = self._append_times(columns)
        if times is not None:  # a batch has one append time
            changes = np.flatnonzero(np.diff(times)) + 1
            cuts = np.union1d(cuts, changes[(changes > cuts[0]) & (changes < cuts[-1])])
        spec = self._spec(columns, cuts, producers, producer, transactional)
        if times is not None:
            times = times[cuts[:-1]]
            is_other = times == _NOT_APPENDED
            spec = replace(
                spec,
                timestamp_type=np.where(is_other, self.timestamp_type, kf.TimestampType.LOG_APPEND_TIME),
                log_append_time=np.where(is_other, self._now(), times),
            )
        encoded = encode_batches(columns, cuts, spec)
        self._check_sizes(encoded.batches, np.diff(columns.value.offsets[cuts]))
        self._warn_of_size(encoded.batches)
        return encoded

    def _append_times(self, columns: RecordColumns) -> npt.NDArray[np.int64] | None:
        """The append times of records to keep, `_NOT_APPENDED` for others; None if there are none."""
        if not self.keeps_append_times or "timestamp_type" not in columns or not columns.timestamp_type.any():
            return None
        is_append = columns.timestamp_type == kf.TimestampType.LOG_APPEND_TIME
        return np.where(is_append & (columns.timestamp != kf.NO_TIMESTAMP), columns.timestamp, _NOT_APPENDED)

    def _now(self) -> int:
        return now_ms() if self.log_append_time is None else self.log_append_time

    def _check_sizes(self, batches: BatchTable, value_bytes: npt.NDArray[np.int64]) -> None:
        """Raise for batches above the `Limits`: they could be written, but not read again."""
        for name, sizes in (("max_batch_bytes", batches.size_in_bytes), ("max_decompressed_bytes", value_bytes)):
            limit, row = getattr(self.limits, name), int(np.argmax(sizes))
            if sizes[row] > limit:
                detail = f"the batch at offset {int(batches.base_offset[row])} has {int(sizes[row])} bytes;"
                raise UnwritableError(
                    Reason.COLUMN_VALUE, f"{detail} with Limits({name}={limit}), kafkalog could not read it again"
                )

    def _warn_of_size(self, batches: BatchTable) -> None:
        """Warn once of a batch above `max.message.bytes`: only a single large record (or little more) makes one."""
        row, limit = int(np.argmax(batches.size_in_bytes)), self.config.max_message_bytes
        size = int(batches.size_in_bytes[row])
        if size <= limit or self._has_warned:
            return
        self._has_warned = True
        warn(
            f"{self.name}: the batch at offset {int(batches.base_offset[row])} has {size} bytes, but max.message.bytes"
            f" is {limit}: consumers can read it, but brokers refuse it from producers and mirrors. Set the topic's"
            " limit with LogConfig(max_message_bytes=...) (--config)",
            ConfigWarning,
        )

    def _spec(
        self,
        columns: RecordColumns,
        cuts: npt.NDArray[np.int64],
        producers: ProducerState,
        producer: Producer | None,
        transactional: bool,
    ) -> BatchSpec:
        spec = BatchSpec(
            compression=self.compression,
            timestamp_type=self.timestamp_type,
            log_append_time=self._now(),
            leader_epoch=self.leader_epoch,
            any_header_keys=self._any_header_names,
        )
        if producer is None:
            return spec
        first, last = columns.offset[cuts[:-1]], columns.offset[cuts[1:] - 1]
        # as many sequence numbers as a batch spans offsets
        begun = np.concatenate([[0], np.cumsum(last - first + 1)[:-1]])
        return replace(
            spec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=(next_sequence(producers, producer) + begun) & kf.SEQUENCE_MASK,
            is_transactional=transactional,
        )


class RecordAccumulator:
    """Collects records until they fill batches. Mirrors a producer's `RecordAccumulator` for one partition.

    At most about one batch and one piece wait. Eight pieces of similar size are merged at a time: a record is copied
    only a few times, however small the pieces are, and the input's memory can be freed. `last_offset` is that of the
    last waiting record.
    """

    def __init__(self, *, batch_size: int, max_records: int | None = None, any_header_names: bool = False) -> None:
        self.last_offset: int | None = None
        self._any_header_names = any_header_names
        self._batch_size, self._max_records = batch_size, max_records
        self._enough = batch_size
        self._parts: list[RecordColumns] = []
        self._sizes: list[int] = []
        self._n_done = 0

    def add(self, piece: RecordColumns) -> Filled | None:
        """Add records with their offsets, and return the batches that are full now; None if there are none."""
        if not piece.n_records:
            return None
        self._keep(piece, _least_bytes(piece))
        # merge the last eight pieces only when they are of similar size: a record is then copied few times
        while len(self._parts) >= _TOGETHER and self._sizes[-_TOGETHER] < _TOGETHER * self._sizes[-1]:
            merged, size = RecordColumns.concatenate(self._parts[-_TOGETHER:]), sum(self._sizes[-_TOGETHER:])
            del self._parts[-_TOGETHER:], self._sizes[-_TOGETHER:]
            self._keep(merged, size)
        n_waiting, size = sum(map(attrgetter("n_records"), self._parts)), sum(self._sizes)
        # `size` is a lower bound, so that this comes too late at worst; `cut_batches` measures exactly
        if size < self._enough and (self._max_records is None or n_waiting <= self._max_records):
            return None
        columns, boundaries = self._cut()
        boundaries = boundaries[:-1]  # later records may still fit into the last batch
        rest = columns.slice(int(boundaries[-1]), columns.n_records)
        self._keep(rest, _least_bytes(rest))
        self._n_done += int(boundaries[-1])
        if boundaries.size > 1:
            self._enough = self._batch_size
            return columns, boundaries
        self._enough = size + min(size, _STEP_BYTES)  # else every further piece would cut all waiting records again
        return None

    def finish(self) -> Filled | None:
        """Return the batches of all waiting records; None if none wait."""
        if not self._parts:
            return None
        columns, boundaries = self._cut()
        self._n_done += columns.n_records
        self._enough, self.last_offset = self._batch_size, None
        return columns, boundaries

    def _keep(self, part: RecordColumns, size: int) -> None:
        self._parts.append(part)
        self._sizes.append(size)
        self.last_offset = int(part.offset[-1])

    def _cut(self) -> Filled:
        columns = RecordColumns.concatenate(self._parts)
        self._parts, self._sizes = [], []
        boundaries = cut_batches(
            columns,
            batch_size=self._batch_size,
            max_records=self._max_records,
            any_header_keys=self._any_header_names,
            first_row=self._n_done,
        )
        return columns, boundaries


def _least_bytes(columns: RecordColumns) -> int:
    """A lower bound of the bytes of records in a batch, provided that null values span no bytes in their column."""
    size = columns.n_records * kf.MIN_RECORD_BYTES
    for column in columns.values():
        if isinstance(column, BinaryColumn):
            size += int(column.offsets[-1] - column.offsets[0])
        elif isinstance(column, HeadersColumn):
            first, last = column.offsets[0], column.offsets[-1]
            for part in (column.key, column.value):
                size += int(part.offsets[last] - part.offsets[first])
    return size


def _numbered(piece: RecordColumns, next_offset: int, row: int) -> RecordColumns:
    """The records with their own offsets, or numbered from `next_offset`."""
    if "offset" in piece:
        return piece
    n_left = LAST_OFFSET + 1 - next_offset
    if piece.n_records > n_left:
        bad = row + n_left
        detail = f"row {bad} would exceed offset {LAST_OFFSET}, the largest that a record can have"
        raise UnwritableError(Reason.OFFSET_ORDER, detail, row=bad)
    offsets = np.arange(piece.n_records, dtype=np.int64) + next_offset
    return RecordColumns(piece.n_records, {**piece, "offset": offsets})


def check_producer(producers: ProducerState, producer: Producer | None, transactional: bool) -> None:
    """Raise ValueError for a fenced producer, or a write that does not fit the open transaction."""
    if producer is None:
        if transactional:
            raise ValueError("a transaction needs a producer: give producer=(id, epoch)")
        return
    known = producers.epoch_and_sequence(producer.producer_id)
    if known is not None and known[0] > producer.producer_epoch:
        raise ValueError(f"producer {producer.producer_id} is fenced: the log has its later epoch {known[0]}")
    if not transactional and producer.producer_id in producers.transactions:
        raise ValueError(
            f"producer {producer.producer_id} has an open transaction: end it first, or write with transactional=True"
        )


def next_sequence(producers: ProducerState, producer: Producer) -> int:
    """The sequence number of a producer's next record; a new epoch begins at 0."""
    known = producers.epoch_and_sequence(producer.producer_id)
    return known[1] + 1 if known is not None and known[0] == producer.producer_epoch else 0


def now_ms() -> int:
    """The current time, in milliseconds since 1970."""
    return time.time_ns() // 10**6
