"""Writes a partition: records or whole batches become a partition directory that a broker serves.

`PartitionWriter` combines three classes: `BatchBuilder` encodes records into batches, `PartitionFiles` writes and rolls
segments as a broker does, and `PartitionStaging` moves the files into place. Mirrors the append and close of
`UnifiedLog`, and a producer where it fills batches and ends transactions. It does not choose partitions: see `routing`.
"""

from __future__ import annotations

import contextlib
import operator
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, Unpack

from kafkalog import format as kf
from kafkalog.calls import leading_class, leading_names
from kafkalog.errors import DEFAULT_LIMITS, Limits, Reason, TransactionWarning, UnsafePathError, WriteError, warn
from kafkalog.html import Leading
from kafkalog.interchange.arrow_input import InputOptions, record_slices
from kafkalog.parsing import integer, optional_integer
from kafkalog.records.batch_table import Window
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.log_config import LogConfig, checked_config
from kafkalog.state.producers import ProducerSnapshot, ProducerState
from kafkalog.storage.atomic import URL, resolve
from kafkalog.text import counted
from kafkalog.writing.batch_builder import BatchBuilder, check_producer, now_ms
from kafkalog.writing.log_end import LogEnd
from kafkalog.writing.option_checks import (
    LAST_OFFSET,
    Producer,
    check_partition_name,
    checked_producer,
    chosen_compression,
    chosen_timestamp_type,
)
from kafkalog.writing.partition_files import PartitionFiles
from kafkalog.writing.partition_staging import PartitionStaging

_INT64_MAX: Final = 2**63 - 1

__all__ = ["AppendResult", "PartitionWriter", "Producer", "check_partition_name"]


@leading_names
class AppendResult(NamedTuple):
    """What an append wrote."""

    first_offset: int
    """Offset of the first record; the next offset if nothing was appended."""
    last_offset: int
    """Offset of the last record; one less than `first_offset` if nothing was appended."""
    n_batches: int
    n_bytes: int


@leading_class
class PartitionWriter(Leading):
    """Writes a partition directory: a new one, or new segments after those of an existing one.

    All files appear when the ``with`` block ends without an error (or on `close`), or none of them does.

    Parameters
    ----------
    path : path-like
        The directory, such as ``/var/lib/kafka/orders-0``. Topic and partition are taken from its name.
    config : LogConfig, optional
        Settings of the topic; default: Kafka's defaults.
    compression : str or Compression, optional
        Default: the topic's `compression.type`; no compression if that is ``producer``.
    compression_level : int, optional
    batch_size : int
        A producer's `batch.size`: bytes of a batch before compression. A record that does not fit into a batch starts
        the next one. A record larger than `batch_size` gets its own batch.
    max_records_per_batch : int, optional
    leader_epoch : int, optional
        Leader epoch of the batches; -1 for none. Default: the newest of the partition, 0 for a new one.
    topic_id : str, bytes or uuid.UUID, optional
        Topic id for `partition.metadata`. A KRaft broker sets a partition without that file aside.
    timestamp_type : TimestampType or {"CreateTime", "LogAppendTime"}, optional
        Default: the topic's `message.timestamp.type`. Records whose column `timestamp_type` is 1 (LogAppendTime) then
        stay such, with their timestamps.
    log_append_time : int, optional
        Timestamp of `LogAppendTime` batches, ms; default: the clock.
    producer : Producer, optional
        Id and epoch of the producer; default: none, as without `enable.idempotence`.
    start_offset : int, optional
        Start offset of a new partition; default: the first offset that is appended, or 0.
    stage_in : path-like, optional
        Directory on the same file system to stage files in; never in a log dir. Default: beside the log dir.
    truncate_tail : bool
        Whether a torn last batch of the partition may be cut off, and the indexes of its last segment trimmed.
    seed : int, optional
        Seed of the random numbers for `segment.jitter.ms`; default: no jitter.
    producer_snapshot : ProducerSnapshot, optional
        Producer state of a new partition before its first batch.
    leader_epochs : sequence of (int, int), optional
        Leader epochs with their start offsets, added to those of the batches in `leader-epoch-checkpoint`.
    limits : Limits

    Attributes
    ----------
    path : pathlib.Path
    topic_partition : TopicPartition
    is_new : bool
        Whether the directory did not exist.

    Raises
    ------
    UnsafePathError
        The directory's name is not TOPIC-N, a broker or another writer holds the lock, or no directory can hold
        temporary files.
    TruncatedTailError
        The existing partition ends in a torn batch, and `truncate_tail` is False.
    CorruptionError
        The last segment of the existing partition is damaged.
    WriteError
        The operating system refused a write.

    Warns
    -----
    ConfigWarning
        A batch is larger than `max.message.bytes`. Warned of once.
    TransactionWarning
        The writer appended records, and a transaction is still open when it closes.

    Notes
    -----
    Files are staged outside the log dir, made durable and then renamed. A new partition appears in one step: a crash
    leaves it absent or complete.

    Of an existing partition only two things change. `leader-epoch-checkpoint` is replaced first; a broker drops epochs
    that start after the log's end. An empty last segment is replaced by the first new one. New segments are moved in
    one after the other. Otherwise, the `.log` of each comes after its other files and after the producer snapshot at
    its base offset. The snapshot at the log end comes last. A crash therefore leaves the old log, or the old log and
    some complete new segments. A broker starts on either, with or without the clean shutdown marker. An error moves the
    new files back out; only a torn tail that was cut off is not restored.

    An existing partition has one writer at a time, in any process. The writer holds a lock on the partition, and on the
    log dir if that has a lock file.

    Batches are appended one by one, as a leader does since Kafka 3.9. `SegmentRoll` decides when a segment is rolled.
    A batch larger than `segment.bytes`, which a broker refuses, gets a segment of its own.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> table = pa.table({"key": [b"a", None], "value": [b"1", b"2"], "timestamp": pa.array([1000, 1001], "int64")})
    >>> with PartitionWriter(tempfile.mkdtemp() + "/orders-0", config=LogConfig()) as writer:
    ...     writer.append(table)
    AppendResult(first_offset=0, last_offset=1, n_batches=1, n_bytes=78)
    """

    _led = ()
    _led_untyped = ("append", "abort_", "commit", "roll")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: LogConfig | None = None,
        compression: str | Compression | None = None,
        compression_level: int | None = None,
        batch_size: int = kf.BATCH_SIZE,
        max_records_per_batch: int | None = None,
        leader_epoch: int | None = None,
        topic_id: str | bytes | uuid.UUID | None = None,
        timestamp_type: kf.TimestampType | str | None = None,
        log_append_time: int | None = None,
        producer: Producer | tuple[int, int] | None = None,
        start_offset: int | None = None,
        stage_in: str | os.PathLike[str] | None = None,
        truncate_tail: bool = False,
        seed: int | None = None,
        producer_snapshot: ProducerSnapshot | None = None,
        leader_epochs: Sequence[tuple[int, int]] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        config = checked_config(config)
        batch_size = integer("batch_size", batch_size, 1)
        max_records_per_batch = optional_integer("max_records_per_batch", max_records_per_batch, 1)
        log_append_time = optional_integer("log_append_time", log_append_time, 0, _INT64_MAX)
        leader_epoch = optional_integer("leader_epoch", leader_epoch, kf.NO_EPOCH, 2**31 - 1)
        start_offset = optional_integer("start_offset", start_offset, 0, LAST_OFFSET)
        self._producer = None if producer is None else checked_producer(producer)
        self._topic_id = None if topic_id is None else parse_topic_id(topic_id)
        self._producer_snapshot, self._leader_epochs = producer_snapshot, list(leader_epochs or ())

        self._process = os.getpid()
        # renames happen next to the directory itself, not next to a link to it
        if URL.match(os.fspath(path)):
            resolve(path)  # raises
        self.path = Path(os.path.realpath(path))
        self.topic_partition = check_partition_name(self.path)
        self._builder = BatchBuilder(
            str(self.topic_partition),
            config,
            compression=chosen_compression(config, compression, compression_level),
            # a broker refuses a producer's batch that is larger than either limit
            batch_size=min(batch_size, config.max_message_bytes, config.segment_bytes),
            max_records=max_records_per_batch,
            timestamp_type=chosen_timestamp_type(config, timestamp_type),
            log_append_time=log_append_time,
            keeps_append_times=timestamp_type is None,
            # chosen below, when the end of the existing log is known
            leader_epoch=kf.NO_EPOCH,
            limits=limits,
        )
        self._failure: BaseException | None = None
        self._is_closed = True  # until set-up is done: `__del__` aborts only an open writer
        self._has_records = False
        self._staging = PartitionStaging(
            self.path,
            stage_in=stage_in,
            index_interval_bytes=config.index_interval_bytes,
            truncate_tail=truncate_tail,
            limits=limits,
        )
        try:
            existing = self._staging.existing
            self.is_new = existing is None
            next_offset, producers = start_offset, ProducerState(producer_snapshot, limits=limits)
            if existing is not None:
                next_offset, producers = self._continue(existing, start_offset), existing.producers
            self._builder.leader_epoch = self._choose_epoch(leader_epoch)
            self._files = PartitionFiles(
                self._staging.staged,
                config,
                next_offset=next_offset,
                producers=producers,
                seed=seed,
                limits=limits,
            )
            self._staging.keep_state(self._files)
        except BaseException as error:
            self._staging.abandon(error)
            raise
        self._is_closed = False

    def _continue(self, existing: LogEnd, start_offset: int | None) -> int | None:
        """The offset to continue from; None if the first record may decide it."""
        if start_offset is not None and existing.last is not None and start_offset != existing.next_offset:
            raise ValueError(f"start_offset is {start_offset}, but the partition continues at {existing.next_offset}")
        if start_offset is not None:
            existing.next_offset = max(start_offset, existing.next_offset)
        if self._topic_id is not None and existing.topic_id not in (None, self._topic_id):
            detail = f"the partition belongs to the topic with id {existing.topic_id}, not {self._topic_id}"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.path / kf.PARTITION_METADATA)
        # a directory without segments does not tell its start offset
        return start_offset if existing.last is None and not existing.next_offset else existing.next_offset

    def _choose_epoch(self, given: int | None) -> int:
        existing = self._staging.existing
        latest = kf.NO_EPOCH if existing is None else existing.latest_epoch
        latest = max([latest, *(epoch for epoch, _ in self._leader_epochs)])
        epoch = max(latest, 0) if given is None else given
        if epoch < max(latest, kf.NO_EPOCH):
            raise ValueError(f"leader_epoch {given} is older than {latest} in the partition")
        return epoch

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._abandon(error)

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self.abort()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"next_offset={self.next_offset}"
        return (
            f"PartitionWriter({str(self.topic_partition)!r}, {counted(len(self._files.bases), 'new segment')}, {state})"
        )

    @property
    def next_offset(self) -> int:
        """The offset that the next record without an offset gets."""
        return self._files.next_offset or 0

    def append(
        self,
        data: Any,
        *,
        producer: Producer | tuple[int, int] | None = None,
        transactional: bool = False,
        any_header_names: bool = False,
        **options: Unpack[InputOptions],
    ) -> AppendResult:
        """Encode records and append them.

        Parameters
        ----------
        data : RecordColumns, pyarrow.Table, or anything else with ``__arrow_c_stream__``
            Columns `value`, `key`, `headers`, `timestamp` and `offset`; all but `value` are optional. A record without
            a timestamp gets -1. Offsets must increase; gaps are kept. A stream is written while it is read, and the
            batches do not depend on how it is divided.
        producer : Producer, optional
            Default: the producer of the writer.
        transactional : bool
            Whether the records belong to a transaction of the producer. The first ones begin it;
            `commit_transaction` or `abort_transaction` ends it.
        any_header_names : bool
            Whether the header names of RecordColumns may be other bytes than UTF-8, which some clients send. Those of a
            `Scan` always may.
        **options
            How columns are read; see `kafkalog.interchange.arrow_input.record_slices`.

        Raises
        ------
        UnwritableError
            A record does not fit Kafka's format, or a column is unknown.
        ValueError
            Offsets do not increase; or the producer may not write: it is fenced, or outside its open transaction.
        WriteError
            The records could not be written. After any error the writer accepts no more records and publishes nothing.
        """
        self._check_open()
        who = self._producer if producer is None else checked_producer(producer)
        check_producer(self._files.producers, who, transactional)
        first: int | None = None
        n_batches, n_bytes = self._files.n_batches, self._files.n_bytes
        with self._writing():
            pieces = record_slices(data, **options)
            # `record_slices` has checked the names of Arrow's headers
            how = {"any_header_names": any_header_names or not isinstance(data, RecordColumns)}
            for window in self._builder.build(pieces, self._files, producer=who, transactional=transactional, **how):
                if first is None:
                    first = int(window.batches.base_offset[0])
                self._files.append(window)
                self._has_records = True
        return AppendResult(
            self.next_offset if first is None else first,
            self.next_offset - 1,
            self._files.n_batches - n_batches,
            self._files.n_bytes - n_bytes,
        )

    def append_batches(self, window: Window, *, modified_ms: int | None = None) -> AppendResult:
        """Append whole batches of any format, byte for byte.

        Parameters
        ----------
        window : Window
            The batches and their bytes. Checksums are not checked here; offsets must increase.
        modified_ms : int, optional
            When the batches were written, ms. A broker's retention uses it for segments without timestamps. Default:
            now.

        Raises
        ------
        ValueError
            Offsets do not increase.
        WriteError
            The batches could not be written. After any error the writer accepts nothing more and publishes nothing.
        """
        self._check_open()
        batches = window.batches
        n_batches, n_bytes = self._files.n_batches, self._files.n_bytes
        first = self.next_offset
        if len(batches):
            first = int(batches.base_offset[0] if batches.base_offset[0] >= 0 else batches.last_offset[0])
        with self._writing():
            self._files.append(window, modified_ms=modified_ms)
        return AppendResult(
            first, self.next_offset - 1, self._files.n_batches - n_batches, self._files.n_bytes - n_bytes
        )

    def commit_transaction(
        self, *, producer: Producer | tuple[int, int] | None = None, timestamp: int | None = None
    ) -> int:
        """Write the marker that commits a producer's transaction, and return the marker's offset.

        Parameters
        ----------
        producer : Producer, optional
            Default: the producer of the writer.
        timestamp : int, optional
            Timestamp of the marker, ms; -1 for none. Default: the largest of the log so far; the clock if there is
            none.
        """
        return self._end_transaction(producer, timestamp, is_commit=True)

    def abort_transaction(
        self, *, producer: Producer | tuple[int, int] | None = None, timestamp: int | None = None
    ) -> int:
        """Write the marker that aborts a producer's transaction; see `commit_transaction`."""
        return self._end_transaction(producer, timestamp, is_commit=False)

    def roll(self, base_offset: int | None = None) -> None:
        """Start a new segment now.

        Parameters
        ----------
        base_offset : int, optional
            Base offset of the segment, not below the log end offset; default: the log end offset.
        """
        self._check_open()
        base = self.next_offset if base_offset is None else integer("base_offset", base_offset, 0, LAST_OFFSET)
        if self._files.bases and base == self._files.bases[-1]:
            return
        with self._writing():
            self._files.roll(base)

    def close(self) -> None:
        """Finish the files and move them into place.

        Raises
        ------
        WriteError
            The files could not be written; the destination is unchanged.

        Warns
        -----
        TransactionWarning
            `append` wrote records and a transaction is open. Until it ends, consumers with
            `isolation.level=read_committed` read nothing from its first offset on.
        """
        if self._is_closed:
            return
        if self._process != os.getpid():  # a fork shares the staged files: only the process that made them publishes
            self.abort()
            detail = f"process {self._process} writes it, and this is a fork of that"
            raise WriteError(Reason.WRITE_FAILED, detail, path=self.path)
        if self._failure is not None:
            error = WriteError(Reason.WRITE_FAILED, f"an append failed: {self._failure}", path=self.path)
            self._abandon(error)
            raise error from self._failure
        try:
            self._staging.finish(
                self._files,
                leader_epochs=self._leader_epochs,
                topic_id=self._topic_id,
                snapshot=self._producer_snapshot,
            )
        except BaseException as error:
            self._abandon(error)
            raise
        self._is_closed = True
        self._staging.close()
        if self._has_records:
            self._warn_of_open_transactions()

    def abort(self) -> None:
        """Discard everything that was appended; the destination is unchanged."""
        self._abandon(_Aborted())

    def _abandon(self, error: BaseException) -> None:
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(_Aborted):
                self._staging.abandon(error)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the writer of {self.path} is closed")
        if self._failure is not None:
            raise ValueError(f"an append to {self.path} failed: nothing is written") from self._failure

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._failure = error  # the staged files may be incomplete
            raise

    def _warn_of_open_transactions(self) -> None:
        found = self._files.producers.transactions.open_transactions()
        if not found:
            return
        first = min(found, key=operator.attrgetter("first_offset"))
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        warn(
            f"{self.topic_partition}: the transaction of producer {first.producer_id} that begins at offset"
            f" {first.first_offset} is still open{more}: read_committed consumers get no records from there"
            " on, until that producer ends it with commit_transaction or abort_transaction",
            TransactionWarning,
        )

    def _end_transaction(
        self, producer: Producer | tuple[int, int] | None, timestamp: int | None, *, is_commit: bool
    ) -> int:
        self._check_open()
        who = self._producer if producer is None else checked_producer(producer)
        check_producer(self._files.producers, who, True)
        assert who is not None
        if timestamp is not None:
            timestamp = integer("timestamp", timestamp, kf.NO_TIMESTAMP, _INT64_MAX)
        else:
            existing = self._staging.existing
            earlier = kf.NO_TIMESTAMP if existing is None else existing.max_timestamp
            timestamp = max(self._files.max_timestamp, earlier)
            timestamp = now_ms() if timestamp < 0 else timestamp
        marker = self._builder.build_marker(self._files, who, is_commit=is_commit, timestamp=timestamp)
        with self._writing():
            self._files.append(marker)
        return int(marker.batches.base_offset[0])


class _Aborted(Exception):
    """Raised internally to unwind an aborted write; it never reaches the caller."""
