"""Writing a partition: records or whole batches in, a directory that a real broker serves out.

`PartitionWriter` encodes records, rolls segments as a broker does and leaves every file as a clean shutdown leaves it.
Segments are written by `partition_files`, what they continue is read by `existing`, and `publish` puts them into place.
Mirrors `UnifiedLog` as far as it appends and closes, and a producer as far as it fills batches.
"""

from __future__ import annotations

import contextlib
import operator
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.arrow_input import record_slices
from kafkalog.batches import BatchTable, Window
from kafkalog.checkpoints import encode_checkpoint, encode_partition_metadata, parse_topic_id
from kafkalog.columns import RecordColumns
from kafkalog.compression import Compression
from kafkalog.config import LogConfig
from kafkalog.encoder import BatchSpec, cut_batches, encode_batches, encode_marker
from kafkalog.errors import (
    DEFAULT_LIMITS,
    FileChangedError,
    KafkalogError,
    Limits,
    Reason,
    UnsafePathError,
    UnwritableError,
    WriteError,
)
from kafkalog.existing import ExistingLog, read_existing
from kafkalog.lock import hold_locks
from kafkalog.partition_files import PartitionFiles
from kafkalog.producers import ProducerSnapshot, ProducerState, encode_snapshot, read_snapshot
from kafkalog.publish import (
    Move,
    check_log_dir,
    check_stage_in,
    hand_over,
    staged_additions,
    staged_directory,
    staging_directory,
    truncate_file,
)
from kafkalog.repair.epochs import as_array, merge
from kafkalog.repair.recovery import RecoveredSegment
from kafkalog.rolling import RollConditions

BATCH_SIZE: Final = 16_384
"""Default of a producer's `batch.size`."""


class AppendResult(NamedTuple):
    """What an append wrote."""

    first_offset: int
    """Of the first record; where nothing was appended, the offset that comes next."""
    last_offset: int
    """Of the last record; one less than `first_offset` where nothing was appended."""
    n_batches: int
    n_bytes: int


class Producer(NamedTuple):
    """Who an idempotent or transactional producer is to the broker."""

    producer_id: int
    producer_epoch: int = 0


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
        The name is no topic's and partition's; a broker holds the lock of the log dir; there is nowhere to stage.
    TruncatedTailError
        The partition that is there ends in a torn batch, and `truncate_tail` is False.
    CorruptionError
        Its last segment is damaged.
    WriteError
        The operating system refuses to write.

    Notes
    -----
    All is staged outside of the log dir, made durable and renamed. A new partition appears in one step: a crash leaves
    it absent or complete. Of an existing one nothing is changed but `leader-epoch-checkpoint`, which goes first (a
    broker leaves out of it what begins behind the log's end) and an empty last segment, which is replaced: segments are
    moved in one after the other, the `.log` of each behind the rest of it and behind the snapshot of the producers
    where it begins, and the snapshot at the end last. So a crash leaves the old log, or that and some of the new
    segments, whole; a broker starts on it, clean shutdown marker or not. An error takes back what was moved in; only a
    torn tail that was cut off stays off.

    The lock of the log dir is held from beginning to end, if there is one.

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
        self._config = LogConfig() if config is None else config
        self._conditions = conditions_of(self._config)
        self._compression = _compression(self._config, compression, compression_level)
        if batch_size < 1 or (max_records_per_batch is not None and max_records_per_batch < 1):
            raise ValueError("batch_size and max_records_per_batch are at least 1")
        # what a producer sends is refused above either
        self._batch_size = min(batch_size, self._config.max_message_bytes, self._conditions.segment_bytes)
        self._max_records = max_records_per_batch
        self._timestamp_type = _timestamp_type(
            self._config.message_timestamp_type if timestamp_type is None else timestamp_type
        )
        self._log_append_time = log_append_time
        self._producer = None if producer is None else _checked(Producer(*producer))
        self._topic_id = None if topic_id is None else parse_topic_id(topic_id)
        if start_offset is not None:
            start_offset = _offset("start_offset", start_offset)
        self._producer_snapshot, self._leader_epochs = producer_snapshot, list(leader_epochs or ())
        self._truncate_tail, self._limits = truncate_tail, limits

        self._process = os.getpid()
        self.path = Path(os.path.realpath(path))
        self.topic_partition = check_partition_name(self.path)
        self._failure: BaseException | None = None
        self._is_closed = False
        self._groups: list[list[Move]] = []
        self._existing: ExistingLog | None = None
        self._stack = contextlib.ExitStack()
        try:
            self._begin(start_offset, stage_in, leader_epoch, seed)
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            self._is_closed = True
            raise

    def _begin(
        self,
        start_offset: int | None,
        stage_in: str | os.PathLike[str] | None,
        leader_epoch: int | None,
        seed: int | None,
    ) -> None:
        self._stack.enter_context(hold_locks([self.path.parent]))
        check_log_dir(self.path.parent)
        if stage_in is None:
            stage_in = staging_directory(self.path)
        else:
            check_stage_in(stage_in)
        self.is_new = not os.path.lexists(self.path)
        if self.is_new:
            self._staged = self._stack.enter_context(staged_directory(self.path, stage_in=stage_in))
            producers = ProducerState(self._producer_snapshot, limits=self._limits)
            next_offset = start_offset
        else:
            existing = self._continue(start_offset)
            prepare = partial(_prepare, self.path, existing, self._groups)
            additions = staged_additions(self.path, self._groups, stage_in=stage_in, prepare=prepare)
            self._staged = self._stack.enter_context(additions)
            # nobody knows yet where a directory without segments begins
            producers, next_offset = existing.producers, existing.next_offset
            if existing.last is None and not next_offset:
                next_offset = start_offset
        latest = kf.NO_EPOCH if self._existing is None else self._existing.latest_epoch
        latest = max([latest, *(epoch for epoch, _ in self._leader_epochs)])
        self._leader_epoch = max(latest, 0) if leader_epoch is None else leader_epoch
        if self._leader_epoch < max(latest, kf.NO_EPOCH):
            raise ValueError(f"leader_epoch {leader_epoch} is older than {latest}, which the partition has seen")
        self._files = PartitionFiles(
            self._staged,
            self._conditions,
            next_offset=next_offset,
            producers=producers,
            seed=seed,
            limits=self._limits,
        )
        if self._existing is not None:
            self._keep_state(self._existing)

    def _keep_state(self, existing: ExistingLog) -> None:
        """A broker that rolls notes what it knows of producers; one that was shut down cleanly has done so."""
        if not existing.next_offset or existing.last is None or existing.is_last_empty:
            return
        name = kf.segment_file_name(existing.next_offset, kf.PRODUCER_SNAPSHOT_SUFFIX)
        with contextlib.suppress(KafkalogError):
            if (self.path / name).exists():
                read_snapshot(self.path / name)
                self._files.snapshots[existing.next_offset] = ""
        if existing.next_offset not in self._files.snapshots:
            self._files.snapshot(existing.next_offset)

    def _continue(self, start_offset: int | None) -> ExistingLog:
        """Read what is there."""
        if not self.path.is_dir():
            raise UnsafePathError(Reason.UNSAFE_PATH, "what is there is not a directory", path=self.path)
        self._existing = existing = read_existing(
            self.path,
            index_interval_bytes=self._conditions.index_interval_bytes,
            truncate_tail=self._truncate_tail,
            limits=self._limits,
        )
        if start_offset is not None and existing.last is not None and start_offset != existing.next_offset:
            raise ValueError(f"start_offset is {start_offset}, and the partition goes on at {existing.next_offset}")
        if start_offset is not None:
            existing.next_offset = max(start_offset, existing.next_offset)
        if self._topic_id is not None and existing.topic_id not in (None, self._topic_id):
            detail = f"the partition belongs to the topic with id {existing.topic_id}, not {self._topic_id}"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.path / kf.PARTITION_METADATA)
        return existing

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
            What is to be made of the columns; see `kafkalog.arrow_input.record_slices`.

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
        who = self._producer if producer is None else _checked(Producer(*producer))
        self._check_producer(who, transactional)
        first: int | None = None
        n_batches, n_bytes = self._files.n_batches, self._files.n_bytes
        with self._writing():
            rest: RecordColumns | None = None
            n_seen = 0
            for piece in record_slices(data, **options):
                self._check_records(piece, n_seen)
                n_seen += piece.n_records
                columns = self._with_offsets(piece, rest)
                if not columns.n_records:
                    continue
                if first is None:
                    first = int(columns.offset[0])
                rest = self._encode(columns, who, transactional, is_last=False)
            if rest is not None and rest.n_records:
                self._encode(rest, who, transactional, is_last=True)
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
            Of the marker, ms; default: the largest so far, as if no time had passed.
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
        base = self.next_offset if base_offset is None else _offset("base_offset", base_offset)
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
            self._finish()
        except BaseException as error:
            self._abandon(error)
            raise
        self._is_closed = True
        self._stack.close()

    def abort(self) -> None:
        """Forget everything; the destination is as it was."""
        self._abandon(_Aborted())

    def _abandon(self, error: BaseException) -> None:
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(_Aborted):
                self._stack.__exit__(type(error), error, error.__traceback__)

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

    def _check_records(self, piece: RecordColumns, row: int) -> None:
        """Refuse what a broker would refuse, or what nobody could read again; `row` is the first of the piece."""
        if not piece.n_records:
            return
        if self._config.is_compacted and (piece.get("key") is None or piece.key.null_count):
            bad = row + (0 if piece.get("key") is None else int(np.argmin(piece.key.validity)))
            detail = f"row {bad} has no key, and compacted topics (cleanup.policy=compact) need one"
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        if "headers" in piece:
            count = np.diff(piece.headers.offsets)
            bad, limit = int(np.argmax(count)), self._limits.max_headers_per_record
            if count[bad] > limit:
                detail = f"row {row + bad} has {int(count[bad])} headers, and Limits(max_headers_per_record={limit})"
                raise UnwritableError(Reason.COLUMN_VALUE, f"{detail} lets none read it again", row=row + bad)

    def _check_sizes(self, batches: BatchTable, value_bytes: npt.NDArray[np.int64]) -> None:
        """Refuse what is larger than anybody reads without other `Limits`: it would be written, and be lost."""
        for name, sizes in (("max_batch_bytes", batches.size_in_bytes), ("max_decompressed_bytes", value_bytes)):
            limit, row = getattr(self._limits, name), int(np.argmax(sizes))
            if sizes[row] > limit:
                detail = f"the batch at offset {int(batches.base_offset[row])} has {int(sizes[row])} bytes, and"
                raise UnwritableError(Reason.COLUMN_VALUE, f"{detail} Limits({name}={limit}) lets none read it again")

    def _with_offsets(self, piece: RecordColumns, rest: RecordColumns | None) -> RecordColumns:
        """Records that have offsets, behind those that still wait for a batch to be full."""
        if "timestamp" in piece and piece.n_records and int(piece.timestamp.min()) < kf.NO_TIMESTAMP:
            row = int(np.argmax(piece.timestamp < kf.NO_TIMESTAMP))
            detail = f"column 'timestamp', row {row} is before 1970, which no record's timestamp can be"
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=row)
        if "offset" not in piece:
            start = self.next_offset if rest is None or not rest.n_records else int(rest.offset[-1]) + 1
            piece = RecordColumns(
                piece.n_records, {**piece, "offset": np.arange(start, start + piece.n_records, dtype=np.int64)}
            )
        return piece if rest is None or not rest.n_records else RecordColumns.concatenate([rest, piece])

    def _encode(
        self, columns: RecordColumns, producer: Producer | None, transactional: bool, *, is_last: bool
    ) -> RecordColumns:
        """Encode and append all but the last batch, which more records may go into; the records of that."""
        cuts = cut_batches(columns, batch_size=self._batch_size, max_records=self._max_records)
        if not is_last:
            cuts = cuts[:-1]
        if cuts.size > 1:
            encoded = encode_batches(columns, cuts, self._spec(columns, cuts, producer, transactional))
            self._check_sizes(encoded.batches, np.diff(columns.value.offsets[cuts]))
            self._files.append(encoded)
        return columns.slice(int(cuts[-1]), columns.n_records)

    def _spec(
        self, columns: RecordColumns, cuts: npt.NDArray[np.int64], producer: Producer | None, transactional: bool
    ) -> BatchSpec:
        spec = BatchSpec(
            compression=self._compression,
            timestamp_type=self._timestamp_type,
            log_append_time=_now() if self._log_append_time is None else self._log_append_time,
            leader_epoch=self._leader_epoch,
        )
        if producer is None:
            return spec
        first, last = columns.offset[cuts[:-1]], columns.offset[cuts[1:] - 1]
        begun = np.concatenate([[0], np.cumsum(last - first + 1)[:-1]])
        return replace(
            spec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=(self._next_sequence(producer) + begun) & 0x7FFFFFFF,
            is_transactional=transactional,
        )

    def _next_sequence(self, producer: Producer) -> int:
        known = self._files.producers.epoch_and_sequence(producer.producer_id)
        return known[1] + 1 if known is not None and known[0] == producer.producer_epoch else 0

    def _check_producer(self, producer: Producer | None, transactional: bool) -> None:
        if producer is None:
            if transactional:
                raise ValueError("a transaction is some producer's: say whose, with producer=(id, epoch)")
            return
        known = self._files.producers.epoch_and_sequence(producer.producer_id)
        if known is not None and known[0] > producer.producer_epoch:
            raise ValueError(f"producer {producer.producer_id} has been seen with epoch {known[0]}: this one is fenced")
        if not transactional and producer.producer_id in self._files.producers.transactions:
            raise ValueError(f"producer {producer.producer_id} has a transaction open: what it writes is part of that")

    def _end_transaction(
        self, producer: Producer | tuple[int, int] | None, timestamp: int | None, *, is_commit: bool
    ) -> int:
        self._check_open()
        who = self._producer if producer is None else _checked(Producer(*producer))
        self._check_producer(who, True)
        assert who is not None
        if who.producer_id not in self._files.producers.transactions:
            raise ValueError(f"producer {who.producer_id} has no transaction open")
        if timestamp is None:
            earlier = kf.NO_TIMESTAMP if self._existing is None else self._existing.max_timestamp
            timestamp = max(self._files.max_timestamp, earlier)
            timestamp = _now() if timestamp < 0 else timestamp
        offset = self.next_offset
        with self._writing():
            self._files.append(
                encode_marker(
                    offset,
                    producer_id=who.producer_id,
                    producer_epoch=who.producer_epoch,
                    coordinator_epoch=0,
                    is_commit=is_commit,
                    timestamp=timestamp,
                    leader_epoch=self._leader_epoch,
                )
            )
        return offset

    def _finish(self) -> None:
        """Write all that is still to be written, and say in which order it goes into place."""
        files, existing = self._files, self._existing
        if existing is None or files.bases:
            files.close()
        first: list[Move] = []
        epochs = None if existing is None else existing.leader_epochs
        if self._leader_epochs:
            said = as_array(self._leader_epochs)
            epochs = said if epochs is None else np.concatenate([epochs, said])
        merged = merge(epochs, files.epochs, files.next_offset)
        known = None if existing is None or existing.leader_epochs is None else existing.leader_epochs.tolist()
        if merged and merged != known and (files.bases or self._leader_epochs):
            self._create(kf.LEADER_EPOCH_CHECKPOINT, encode_checkpoint(merged))
            first.append(Move(kf.LEADER_EPOCH_CHECKPOINT, "put"))
        if self._topic_id is not None and (existing is None or existing.topic_id is None):
            self._create(kf.PARTITION_METADATA, encode_partition_metadata(self._topic_id))
            first.append(Move(kf.PARTITION_METADATA, "put"))
        snapshot = self._producer_snapshot
        if existing is None and snapshot is not None and files.bases and snapshot.end_offset == files.bases[0]:
            self._keep_snapshot(snapshot)
        if existing is not None:
            self._groups.append(first)
            self._plan(existing)
        hand_over(self._staged.path, self.path.parent if self.is_new else self.path)

    def _create(self, name: str, content: bytes) -> None:
        with self._staged.create(name) as file:
            file.write(content)

    def _keep_snapshot(self, snapshot: ProducerSnapshot) -> None:
        """The state before the first batch, which the replay of an aborted transaction may begin with."""
        name = kf.segment_file_name(self._files.bases[0], kf.PRODUCER_SNAPSHOT_SUFFIX)
        self._create(name, encode_snapshot(snapshot.entries))

    def _plan(self, existing: ExistingLog) -> None:
        """The order in which new files come to those that are there; see the class for what a crash leaves."""
        files = self._files
        is_wanted = files.bases and not existing.is_last_empty
        if existing.tail is not None and (is_wanted or (self._truncate_tail and not files.bases)):
            self._trim_indexes(existing.tail)
        for base, names in zip(files.bases, files.names, strict=True):
            log, index = kf.segment_file_name(base), kf.segment_file_name(base, kf.INDEX_SUFFIX)
            others = [name for name in (*names, files.snapshots.get(base)) if name and name not in (log, index)]
            rest = [Move(name, "put") for name in others]
            aborted = kf.segment_file_name(base, kf.TRANSACTION_INDEX_SUFFIX)
            if aborted not in others:
                rest.append(Move(aborted, "take"))  # that of a segment which a crash kept from coming
            if existing.is_last_empty and existing.last is not None and base == existing.last.base_offset:
                # a broker makes the index of a segment that has none, and believes one that is there
                self._groups += [[Move(index, "take")], [Move(log, "put")], rest, [Move(index, "add")]]
            else:
                # and deletes indexes without a segment
                self._groups += [[Move(index, "put"), *rest], [Move(log, "add")]]
        end = files.snapshots.get(self.next_offset)
        if end and files.bases and self.next_offset not in files.bases:
            self._groups.append([Move(end, "put")])

    def _trim_indexes(self, found: RecoveredSegment) -> None:
        names = []
        for suffix, entries in ((kf.INDEX_SUFFIX, found.offset_entries), (kf.TIME_INDEX_SUFFIX, found.time_entries)):
            names.append(kf.segment_file_name(found.segment.base_offset, suffix))
            self._create(names[-1], entries.tobytes())
        self._groups.append([Move(name, "put") for name in names])


def _prepare(path: Path, existing: ExistingLog, groups: list[list[Move]]) -> None:
    """The last look before anything is changed, and the one change in place: a torn tail is cut off."""
    if not existing.is_unchanged(path):
        detail = "somebody wrote to the partition in the meantime"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=path)
    if existing.tail is not None and existing.tail.is_cut and any(groups):
        truncate_file(existing.tail.segment.path, existing.tail.n_valid_bytes)


class _Aborted(Exception):
    """Nobody has to hear of it."""


def check_partition_name(path: Path) -> kf.TopicPartition:
    """Topic and partition that a directory's name says.

    Raises
    ------
    UnsafePathError
        A broker would not make a directory of that name, or not take it for a topic's.

    Notes
    -----
    Source: Topic.validate, LocalLog.parseTopicPartitionName, Kafka 4.3.
    """
    directory = kf.parse_partition_directory(path.name)
    if directory is None or directory.kind is not None or str(directory.topic_partition) != path.name:
        detail = (
            f"{path.name!r} is not TOPIC-N, with a topic of 1 to 249 ASCII letters, digits, '.', '_' and '-'"
            " and the number of a partition"
        )
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)
    if directory.topic_partition.topic == _METADATA_TOPIC:
        detail = "this is the log of the cluster's metadata, which nobody but its controllers write"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)
    return directory.topic_partition


def conditions_of(config: LogConfig) -> RollConditions:
    """When segments of a topic are rolled."""
    return RollConditions(
        segment_bytes=config.segment_bytes,
        segment_ms=config.max_segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def _compression(config: LogConfig, given: str | Compression | None, level: int | None) -> Compression:
    if given is None:
        name = config.compression_type
        given = "none" if name in ("producer", "uncompressed") else name
    if isinstance(given, str) and level is None:
        level = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }.get(given)
    return Compression.parse(given, level=level)


def _timestamp_type(given: kf.TimestampType | str) -> kf.TimestampType:
    if isinstance(given, str):
        names = {kf.TIMESTAMP_TYPE_NAMES[number]: number for number in (0, 1)}
        if given not in names:
            raise ValueError(f"timestamp_type is CreateTime or LogAppendTime, not {given!r}")
        given = kf.TimestampType(names[given])
    if given not in (kf.TimestampType.CREATE_TIME, kf.TimestampType.LOG_APPEND_TIME):
        raise ValueError(f"timestamp_type is CreateTime or LogAppendTime, not {given!r}")
    return kf.TimestampType(given)


def _checked(producer: Producer) -> Producer:
    if not 0 <= producer.producer_id < 2**63 or not 0 <= producer.producer_epoch < 2**15:
        raise ValueError(f"a producer has an id of 63 bits and an epoch of 15, not {tuple(producer)}")
    return producer


def _offset(name: str, offset: int) -> int:
    try:
        number = operator.index(offset)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {offset!r}") from None
    if not 0 <= number < 2**63 - 1:  # an offset has to be left for what comes behind
        raise ValueError(f"{name} is from 0 to 2**63 - 2, not {number}")
    return number


def _now() -> int:
    return time.time_ns() // 10**6


_METADATA_TOPIC: Final = "__cluster_metadata"
