"""Turns record columns into the batches of a partition: checks, numbers, collects and encodes records.

Does what a producer and the partition's leader do together: assigns offsets, sequence numbers and epochs, and enforces
the limits of both. This module does not write batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import ConfigWarning, Limits, Reason, UnwritableError, warn
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import BatchSpec, encode_batches, encode_marker
from kafkalog.state.log_config import LogConfig
from kafkalog.state.producers import ProducerState
from kafkalog.writing.options import LAST_OFFSET, Producer
from kafkalog.writing.partition_files import PartitionFiles
from kafkalog.writing.record_accumulator import Filled, RecordAccumulator


@dataclass(slots=True)
class BatchBuilder:
    """Makes the batches that continue a partition.

    Attributes
    ----------
    name : str
        Name of the partition, for messages.
    config : LogConfig
    compression : Compression
    batch_size : int
        See `cut_batches`.
    max_records : int or None
        See `cut_batches`.
    timestamp_type : TimestampType
    log_append_time : int or None
        Timestamp of `LogAppendTime` batches, ms; None for the clock.
    leader_epoch : int
    limits : Limits
        Larger batches are refused, since a reader with these limits could not read them.
    """

    name: str
    config: LogConfig
    compression: Compression
    batch_size: int
    max_records: int | None
    timestamp_type: kf.TimestampType
    log_append_time: int | None
    leader_epoch: int
    limits: Limits
    _has_warned: bool = False

    def build(
        self, pieces: Iterable[RecordColumns], files: PartitionFiles, *, producer: Producer | None, transactional: bool
    ) -> Iterator[Window]:
        """Encode records into windows of batches.

        The caller must append each window to `files` before it takes the next one.

        Parameters
        ----------
        pieces : iterable of RecordColumns
            The batches do not depend on how the records are divided into pieces.
        files : PartitionFiles
            Provides the next offset and the producers' sequence numbers.
        producer : Producer or None
        transactional : bool

        Raises
        ------
        UnwritableError
            See `PartitionWriter.append`; `row` counts from the start of the first piece.
        """
        records = RecordAccumulator(batch_size=self.batch_size, max_records=self.max_records)
        row = 0
        for piece in pieces:
            if not piece.n_records:
                continue
            self._check(piece, row)
            next_offset = files.next_offset or 0 if records.last_offset is None else records.last_offset + 1
            filled = records.add(_numbered(piece, next_offset, row))
            row += piece.n_records
            if filled is not None:
                yield self._encode(filled, files.producers, producer, transactional)
        filled = records.finish()
        if filled is not None:
            yield self._encode(filled, files.producers, producer, transactional)

    def build_marker(self, files: PartitionFiles, producer: Producer, *, is_commit: bool, timestamp: int) -> Window:
        """Encode the marker that ends a producer's transaction.

        Raises
        ------
        ValueError
            The producer has no open transaction.
        """
        if producer.producer_id not in files.producers.transactions:
            raise ValueError(f"producer {producer.producer_id} has no transaction open")
        return encode_marker(
            files.next_offset or 0,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=0,
            is_commit=is_commit,
            timestamp=timestamp,
            leader_epoch=self.leader_epoch,
        )

    def _check(self, piece: RecordColumns, row: int) -> None:
        """Raise for records that a broker would refuse or no reader could read; `row` is the first of the piece."""
        if "timestamp" in piece and int(np.min(piece.timestamp)) < kf.NO_TIMESTAMP:
            bad = row + int(np.argmax(piece.timestamp < kf.NO_TIMESTAMP))
            detail = f"column 'timestamp', row {bad} is before 1970, which no record's timestamp can be"
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        if "offset" in piece and int(np.max(piece.offset)) > LAST_OFFSET:
            bad = row + int(np.argmax(piece.offset > LAST_OFFSET))
            detail = f"column 'offset', row {bad} is beyond 2^63 - 2: no offset would be left for the next record"
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        if self.config.is_compacted and (piece.get("key") is None or piece.key.null_count):
            bad = row + (0 if piece.get("key") is None else int(np.argmin(piece.key.validity)))
            detail = f"row {bad} has no key, and compacted topics (cleanup.policy=compact) need one"
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        if "headers" in piece:
            count = np.diff(piece.headers.offsets)
            bad, limit = int(np.argmax(count)), self.limits.max_headers_per_record
            if count[bad] > limit:
                detail = f"row {row + bad} has {int(count[bad])} headers, and Limits(max_headers_per_record={limit})"
                raise UnwritableError(Reason.COLUMN_VALUE, f"{detail} lets none read it again", row=row + bad)

    def _encode(
        self, filled: Filled, producers: ProducerState, producer: Producer | None, transactional: bool
    ) -> Window:
        columns, cuts, _ = filled
        encoded = encode_batches(columns, cuts, self._spec(columns, cuts, producers, producer, transactional))
        self._check_sizes(encoded.batches, np.diff(columns.value.offsets[cuts]))
        self._warn_of_size(encoded.batches)
        return encoded

    def _check_sizes(self, batches: BatchTable, value_bytes: npt.NDArray[np.int64]) -> None:
        """Raise for batches above the `Limits`: they could be written, but not read again."""
        for name, sizes in (("max_batch_bytes", batches.size_in_bytes), ("max_decompressed_bytes", value_bytes)):
            limit, row = getattr(self.limits, name), int(np.argmax(sizes))
            if sizes[row] > limit:
                detail = f"the batch at offset {int(batches.base_offset[row])} has {int(sizes[row])} bytes, and"
                raise UnwritableError(Reason.COLUMN_VALUE, f"{detail} Limits({name}={limit}) lets none read it again")

    def _warn_of_size(self, batches: BatchTable) -> None:
        """Warn once of a batch above `max.message.bytes`: only a single large record (or little more) makes one."""
        row, limit = int(np.argmax(batches.size_in_bytes)), self.config.max_message_bytes
        size = int(batches.size_in_bytes[row])
        if size <= limit or self._has_warned:
            return
        self._has_warned = True
        warn(
            f"{self.name}: the batch at offset {int(batches.base_offset[row])} has {size} bytes, and"
            f" max.message.bytes is {limit}: consumers can read it, but a broker takes none like it from a producer, so"
            " that it cannot be mirrored. A topic that has another limit: LogConfig(max_message_bytes=...), --config",
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
            log_append_time=now_ms() if self.log_append_time is None else self.log_append_time,
            leader_epoch=self.leader_epoch,
        )
        if producer is None:
            return spec
        first, last = columns.offset[cuts[:-1]], columns.offset[cuts[1:] - 1]
        # as many sequence numbers as a batch spans offsets; after 2^31 - 1 comes 0
        begun = np.concatenate([[0], np.cumsum(last - first + 1)[:-1]])
        return replace(
            spec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=(next_sequence(producers, producer) + begun) & 0x7FFFFFFF,
            is_transactional=transactional,
        )


def _numbered(piece: RecordColumns, next_offset: int, row: int) -> RecordColumns:
    """The records with their own offsets, or numbered from `next_offset`."""
    if "offset" in piece:
        return piece
    n_left = LAST_OFFSET + 1 - next_offset
    if piece.n_records > n_left:
        bad = row + n_left
        detail = f"row {bad} would come behind offset {LAST_OFFSET}, the last one that a record can have"
        raise UnwritableError(Reason.OFFSET_ORDER, detail, row=bad)
    offsets = np.arange(piece.n_records, dtype=np.int64) + next_offset
    return RecordColumns(piece.n_records, {**piece, "offset": offsets})


def check_producer(producers: ProducerState, producer: Producer | None, transactional: bool) -> None:
    """Raise for a producer that a leader refuses: a fenced one, or one that writes outside its open transaction.

    Raises
    ------
    ValueError
        Also if `transactional` is set without a producer.
    """
    if producer is None:
        if transactional:
            raise ValueError("a transaction is some producer's: say whose, with producer=(id, epoch)")
        return
    known = producers.epoch_and_sequence(producer.producer_id)
    if known is not None and known[0] > producer.producer_epoch:
        raise ValueError(f"producer {producer.producer_id} has been seen with epoch {known[0]}: this one is fenced")
    if not transactional and producer.producer_id in producers.transactions:
        raise ValueError(f"producer {producer.producer_id} has a transaction open: what it writes is part of that")


def next_sequence(producers: ProducerState, producer: Producer) -> int:
    """The sequence number of a producer's next record; a new epoch begins at 0."""
    known = producers.epoch_and_sequence(producer.producer_id)
    return known[1] + 1 if known is not None and known[0] == producer.producer_epoch else 0


def now_ms() -> int:
    """The current time, in milliseconds since 1970."""
    return time.time_ns() // 10**6
