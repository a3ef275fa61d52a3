"""Writing a partition: records or whole batches in, a directory that a real broker serves out.

`PartitionWriter` brings three together: `BatchBuilder` makes batches of records, `PartitionFiles` rolls segments as a
broker does, and `Destination` puts all of it into place. Mirrors `UnifiedLog` as far as it appends and closes, and a
producer as far as it fills batches and ends transactions.
"""

from __future__ import annotations

import contextlib
import operator
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Limits, Reason, TransactionWarning, UnsafePathError, WriteError, warn
from kafkalog.interchange.arrow_input import record_slices
from kafkalog.records.batch_table import Window
from kafkalog.records.codecs import Compression
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.log_config import LogConfig, checked_config
from kafkalog.state.producers import ProducerSnapshot, ProducerState
from kafkalog.writing.batch_builder import BatchBuilder, check_producer, now_ms
from kafkalog.writing.destination import Destination
from kafkalog.writing.log_end import LogEnd
from kafkalog.writing.options import (
    BATCH_SIZE,
    Producer,
    check_partition_name,
    checked_offset,
    checked_producer,
    chosen_compression,
    chosen_timestamp_type,
    conditions_of,
    whole_number,
)
from kafkalog.writing.partition_files import PartitionFiles

__all__ = ["BATCH_SIZE", "AppendResult", "PartitionWriter", "Producer", "check_partition_name"]


class AppendResult(NamedTuple):
    """What an append wrote."""

    first_offset: int
    """Of the first record; where nothing was appended, the offset that comes next."""
    last_offset: int
    """Of the last record; one less than `first_offset` where nothing was appended."""
    n_batches: int
    n_bytes: int


class PartitionWriter:
    """Writes a partition directory: a new one, or segments behind those that are there.

    Everything appears when the block ends well (or by `close`), or not at all.

    Parameters
    ----------
    path : path-like
        The directory, such as ``/var/lib/kafka/orders-0``. Its name says topic and partition.
    config : LogConfig, optional
        Settings of the topic; default: Kafka's defaults.
    compression : str or Compression, optional
        Default: the topic's `compression.type`, and none where that leaves it to the producer.
    compression_level : int, optional
    batch_size : int
        As a producer's `batch.size`: bytes of a batch before compression. A record that does not fit into what is left
        of a batch begins the next one; one that is larger has a batch of its own.
    max_records_per_batch : int, optional
    leader_epoch : int, optional
        Of the batches; default: the newest of the partition, 0 for a new one. -1 for none.
    topic_id : str, bytes or uuid.UUID, optional
        For `partition.metadata`, without which a KRaft broker sets the partition aside.
    timestamp_type : TimestampType or {"CreateTime", "LogAppendTime"}, optional
        Default: the topic's `message.timestamp.type`.
    log_append_time : int, optional
        What `LogAppendTime` batches are stamped with, ms; default: the clock.
    producer : Producer, optional
        Who writes; default: nobody in particular, as without `enable.idempotence`.
    start_offset : int, optional
        Where a new partition begins; default: the first offset that is appended, or 0.
    stage_in : path-like, optional
        Directory on the same file system to write in meanwhile; never in a log dir. Default: beside the log dir.
    truncate_tail : bool
        Whether a torn last batch of the partition may be cut off, and its last indexes trimmed.
    seed : int, optional
        For `segment.jitter.ms`: what brokers draw is drawn from here; no jitter without it.
    producer_snapshot : ProducerSnapshot, optional
        The producers that a new partition has known before its first batch.
    leader_epochs : sequence of (int, int), optional
        Epochs and where they began, for the checkpoint, beside those that the batches tell.
    limits : Limits

    Attributes
    ----------
    path : pathlib.Path
    topic_partition : TopicPartition
    is_new : bool
        Whether there was no such directory.

    Raises
    ------
    UnsafePathError
        The name is no topic's and partition's; a broker holds the lock of the log dir; another writer is at the
        partition; there is nowhere to stage.
    TruncatedTailError
        The partition that is there ends in a torn batch, and `truncate_tail` is False.
    CorruptionError
        Its last segment is damaged.
    WriteError
        The operating system refuses to write.

    Warns
    -----
    ConfigWarning
        A record makes a batch larger than `max.message.bytes`; once.
    TransactionWarning
        At the end of a writer that appended records a transaction is open.

    Notes
    -----
    All is staged outside of the log dir, made durable and renamed. A new partition appears in one step: a crash leaves
    it absent or complete. Of an existing one nothing is changed but `leader-epoch-checkpoint`, which goes first (a
    broker leaves out of it what begins behind the log's end) and an empty last segment, which is replaced: segments are
    moved in one after the other, the `.log` of each behind the rest of it and behind the snapshot of the producers
    where it begins, and the snapshot at the end last. So a crash leaves the old log, or that and some of the new
    segments, whole; a broker starts on it, clean shutdown marker or not. An error takes back what was moved in; only a
    torn tail that was cut off stays off.

    A partition that is there has one writer at a time, in any process: it is locked from beginning to end, and so is
    the log dir, if it has a lock file.

    Batches are appended one by one, as a leader does since Kafka 3.9; a segment is rolled as `SegmentRoll` says, and a
    batch larger than `segment.bytes`, which a broker refuses, has a segment of its own.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> table = pa.table({"key": [b"a", None], "value": [b"1", b"2"], "timestamp": pa.array([1000, 1001], "int64")})
    >>> with PartitionWriter(tempfile.mkdtemp() + "/orders-0", config=LogConfig()) as writer:
    ...     writer.append(table)
    AppendResult(first_offset=0, last_offset=1, n_batches=1, n_bytes=78)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: LogConfig | None = None,
        compression: str | Compression | None = None,
        compression_level: int | None = None,
        batch_size: int = BATCH_SIZE,
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
        conditions = conditions_of(config)
        batch_size = whole_number("batch_size", batch_size, 1)
        if max_records_per_batch is not None:
            max_records_per_batch = whole_number("max_records_per_batch", max_records_per_batch, 1)
        if log_append_time is not None:
            log_append_time = whole_number("log_append_time", log_append_time, 0)
        if leader_epoch is not None:
            leader_epoch = whole_number("leader_epoch", leader_epoch, kf.NO_EPOCH, 2**31 - 1)
        if start_offset is not None:
            start_offset = checked_offset("start_offset", start_offset)
        if not isinstance(limits, Limits):
            raise TypeError(f"limits is a Limits, not {type(limits).__name__}")
        self._producer = None if producer is None else checked_producer(producer)
        self._topic_id = None if topic_id is None else parse_topic_id(topic_id)
        self._producer_snapshot, self._leader_epochs = producer_snapshot, list(leader_epochs or ())

        self._process = os.getpid()
        self.path = Path(os.path.realpath(path))
        self.topic_partition = check_partition_name(self.path)
        self._builder = BatchBuilder(
            str(self.topic_partition),
            config,
            compression=chosen_compression(config, compression, compression_level),
            # what a producer sends is refused above either
            batch_size=min(batch_size, config.max_message_bytes, conditions.segment_bytes),
            max_records=max_records_per_batch,
            timestamp_type=chosen_timestamp_type(config, timestamp_type),
            log_append_time=log_append_time,
            leader_epoch=kf.NO_EPOCH,
            limits=limits,
        )
        self._failure: BaseException | None = None
        self._is_closed = True
        self._has_records = False
        self._destination = Destination(
            self.path,
            stage_in=stage_in,
            index_interval_bytes=conditions.index_interval_bytes,
            truncate_tail=truncate_tail,
            limits=limits,
        )
        try:
            existing = self._destination.existing
            self.is_new = existing is None
            next_offset, producers = start_offset, ProducerState(producer_snapshot, limits=limits)
            if existing is not None:
                next_offset, producers = self._continue(existing, start_offset), existing.producers
            self._builder.leader_epoch = self._choose_epoch(leader_epoch)
            self._files = PartitionFiles(
                self._destination.staged,
                conditions,
                next_offset=next_offset,
                producers=producers,
                seed=seed,
                limits=limits,
            )
            self._destination.keep_state(self._files)
        except BaseException as error:
            self._destination.abandon(error)
            raise
        self._is_closed = False

    def _continue(self, existing: LogEnd, start_offset: int | None) -> int | None:
        """Where a log goes on; None where the first record may say so."""
        if start_offset is not None and existing.last is not None and start_offset != existing.next_offset:
            raise ValueError(f"start_offset is {start_offset}, and the partition goes on at {existing.next_offset}")
        if start_offset is not None:
            existing.next_offset = max(start_offset, existing.next_offset)
        if self._topic_id is not None and existing.topic_id not in (None, self._topic_id):
            detail = f"the partition belongs to the topic with id {existing.topic_id}, not {self._topic_id}"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.path / kf.PARTITION_METADATA)
        # nobody knows yet where a directory without segments begins
        return start_offset if existing.last is None and not existing.next_offset else existing.next_offset

    def _choose_epoch(self, given: int | None) -> int:
        existing = self._destination.existing
        latest = kf.NO_EPOCH if existing is None else existing.latest_epoch
        latest = max([latest, *(epoch for epoch, _ in self._leader_epochs)])
        epoch = max(latest, 0) if given is None else given
        if epoch < max(latest, kf.NO_EPOCH):
            raise ValueError(f"leader_epoch {given} is older than {latest}, which the partition has seen")
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
        return f"PartitionWriter({str(self.topic_partition)!r}, {len(self._files.bases)} new segments, {state})"

    @property
    def next_offset(self) -> int:
        """The offset of the next record that comes without one."""
        return self._files.next_offset or 0

    def append(
        self,
        data: Any,
        *,
        producer: Producer | tuple[int, int] | None = None,
        transactional: bool = False,
        **options: Any,
    ) -> AppendResult:
        """Encode records and append them.

        Parameters
        ----------
        data : RecordColumns, pyarrow.Table, or anything else with ``__arrow_c_stream__``
            Columns `value`, `key`, `headers`, `timestamp` and `offset`, of which all but the first may be missing. A
            record without a timestamp has -1. Offsets, if there are any, have to rise; gaps are kept. A stream is
            written as it is read, and where it is cut does not show.
        producer : Producer, optional
            Who writes; default: the writer's.
        transactional : bool
            Whether the records are part of the producer's transaction, which begins with the first ones and is ended
            by `commit_transaction` or `abort_transaction`.
        **options
            What is to be made of the columns; see `kafkalog.interchange.arrow_input.record_slices`.

        Raises
        ------
        UnwritableError
            A record that Kafka's format cannot hold, a column that is none of Kafka's.
        ValueError
            Offsets do not rise.
        WriteError
            They could not be written. After any error nothing more is taken, and nothing appears.
        """
        self._check_open()
        who = self._producer if producer is None else checked_producer(producer)
        check_producer(self._files.producers, who, transactional)
        first: int | None = None
        n_batches, n_bytes = self._files.n_batches, self._files.n_bytes
        with self._writing():
            pieces = record_slices(data, **options)
            for window in self._builder.build(pieces, self._files, producer=who, transactional=transactional):
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
        """Append whole batches, of any format, byte for byte as they are.

        Parameters
        ----------
        window : Window
            Their bytes and their rows. Checksums are the caller's business; offsets have to rise.
        modified_ms : int, optional
            When they were written: retention counts from there in segments without timestamps. Default: now.

        Raises
        ------
        ValueError
            Offsets do not rise.
        WriteError
            They could not be written. After any error nothing more is taken, and nothing appears.
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
        """Write the marker that commits a producer's transaction; its offset.

        Parameters
        ----------
        producer : Producer, optional
        timestamp : int, optional
            Of the marker, ms, -1 for none; default: the largest so far, as if no time had passed.
        """
        return self._end_transaction(producer, timestamp, is_commit=True)

    def abort_transaction(
        self, *, producer: Producer | tuple[int, int] | None = None, timestamp: int | None = None
    ) -> int:
        """Write the marker that aborts a producer's transaction; see `commit_transaction`."""
        return self._end_transaction(producer, timestamp, is_commit=False)

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a segment now.

        Parameters
        ----------
        base_offset : int, optional
            What it is named after, at or behind the end of the log; default: there.
        """
        self._check_open()
        base = self.next_offset if base_offset is None else checked_offset("base_offset", base_offset)
        if self._files.bases and base == self._files.bases[-1]:
            return
        with self._writing():
            self._files.roll(base)

    def close(self) -> None:
        """Finish, and put everything into place.

        Raises
        ------
        WriteError
            It could not be written; the destination is as it was.

        Warns
        -----
        TransactionWarning
            A transaction is open, and `append` wrote records: those who read committed records get nothing from its
            first offset on, until it is ended.
        """
        if self._is_closed:
            return
        if self._process != os.getpid():
            self.abort()
            detail = f"process {self._process} writes it, and this is a fork of that"
            raise WriteError(Reason.WRITE_FAILED, detail, path=self.path)
        if self._failure is not None:
            error = WriteError(Reason.WRITE_FAILED, f"an append failed: {self._failure}", path=self.path)
            self._abandon(error)
            raise error from self._failure
        try:
            self._destination.finish(
                self._files,
                leader_epochs=self._leader_epochs,
                topic_id=self._topic_id,
                snapshot=self._producer_snapshot,
            )
        except BaseException as error:
            self._abandon(error)
            raise
        self._is_closed = True
        self._destination.close()
        if self._has_records:
            self._warn_of_open_transactions()

    def abort(self) -> None:
        """Forget everything; the destination is as it was."""
        self._abandon(_Aborted())

    def _abandon(self, error: BaseException) -> None:
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(_Aborted):
                self._destination.abandon(error)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the writer of {self.path} is closed")
        if self._failure is not None:
            raise ValueError(f"an append to {self.path} failed, and nothing of it will appear") from self._failure

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._failure = error  # what is on the disk is not known any more
            raise

    def _warn_of_open_transactions(self) -> None:
        found = self._files.producers.transactions.open_transactions()
        if not found:
            return
        first = min(found, key=operator.attrgetter("first_offset"))
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        warn(
            f"{self.topic_partition}: the transaction of producer {first.producer_id} that begins at offset"
            f" {first.first_offset} is still open{more}: consumers with isolation.level=read_committed get nothing from"
            " there on until commit_transaction or abort_transaction, with that producer, ends it",
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
            timestamp = whole_number("timestamp", timestamp, kf.NO_TIMESTAMP)
        else:
            existing = self._destination.existing
            earlier = kf.NO_TIMESTAMP if existing is None else existing.max_timestamp
            timestamp = max(self._files.max_timestamp, earlier)
            timestamp = now_ms() if timestamp < 0 else timestamp
        marker = self._builder.build_marker(self._files, who, is_commit=is_commit, timestamp=timestamp)
        with self._writing():
            self._files.append(marker)
        return int(marker.batches.base_offset[0])


class _Aborted(Exception):
    """Nobody has to hear of it."""
