"""``df.write.format("kafkalog")``: a DataFrame into the partitions of a log dir, all of it or nothing.

Each task writes partitions of its own in a directory of the job, beside the log dir; the driver renames them into place
when all tasks are through (`kafkalog.writing.job_commit`), which never happens where one was killed: what a killed task
sees is only that its rows end. Driver and executors share the file system. The sink cannot ask Spark for a
distribution: two tasks that wrote to one partition are refused, and `kafkalog.spark.prepare` is what brings a
partition's rows together.
"""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalog import format as kf
from kafkalog.errors import CorruptionWarning
from kafkalog.interchange.arrow_input import ColumnReader, slices
from kafkalog.records.columns import RecordColumns
from kafkalog.spark.sink_options import SinkOptions, match_columns
from kafkalog.storage.broker_lock import refuse_if_locked
from kafkalog.writing.job_commit import (
    INTENT_FILE,
    Place,
    StagedPartition,
    StagedWriter,
    commit,
    create_job,
    recover,
    remove_job,
    this_owner,
)
from kafkalog.writing.partition_writer import PartitionWriter
from kafkalog.writing.routing import Router, WaitingRecords


@dataclass
class SinkMessage(WriterCommitMessage):
    """What a task wrote, and where.

    Attributes
    ----------
    job : str
        Directory of the job.
    partitions : list of StagedPartition
    record : dict or None
        What is committed with it, where only tasks know: see `kafkalog.writing.commit_log.CommitLog.has`.
    """

    job: str
    partitions: list[StagedPartition] = field(default_factory=list)
    record: dict[str, Any] | None = None


class SinkWriter:
    """What batches and streams have in common.

    Parameters
    ----------
    options : SinkOptions
    schema : pyspark.sql.types.StructType
        Of the DataFrame.

    Raises
    ------
    ValueError
        A column that a record has not, or one that is missing.
    UnsafePathError
        A broker runs on the log dir.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = match_columns(schema, options)
        self._ignored = [name for name in schema.names if name not in self._columns.values()]
        self._place = Place.of(options.path, options.stage_in)
        refuse_if_locked([self._place.log_dir])
        finished = recover(self._place)
        if finished:
            warnings.warn(
                f"the commit of a job that died is finished: it wrote to {', '.join(finished)}; if this is that job"
                " again, its records are there already",
                CorruptionWarning,
                stacklevel=1,
            )
        self._owner = this_owner(driver_process())
        self._timestamp = time.time_ns() // 10**6

    def _stage(self, rows: Iterator[pa.RecordBatch], job: Path, *, sorts: bool = False) -> list[StagedPartition]:
        """Write the rows of a task in a directory that nobody else writes in."""
        task: _Task | None = None
        row = 0
        try:
            for batch in rows:
                if task is None and batch.num_rows:
                    directory = job / f"task-{secrets.token_hex(8)}"
                    os.mkdir(directory)
                    reader = self._reader(batch.schema)
                    task = _Task(self._place, directory, self._options, self._timestamp, reader, sorts=sorts)
                for part in slices(batch):
                    assert task is not None
                    task.take(part, row)
                    row += part.num_rows
            return [] if task is None else task.finish()
        except BaseException:
            if task is not None:
                task.abandon()
            raise

    def _reader(self, schema: pa.Schema) -> ColumnReader:
        return ColumnReader(
            schema,
            columns=self._columns,
            ignore_columns=self._ignored,
            truncate_timestamps=self._options.truncate_timestamps,
        )


class KafkaLogWriter(SinkWriter, DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._record = None if options.job_id is None else {"job": options.job_id}
        self._is_done = self._place.commits().has(self._record)
        self._job = self._place.job(f"job-{secrets.token_hex(16)}")
        if self._is_done:
            warnings.warn(f"job {options.job_id!r} was committed before: nothing is written", stacklevel=1)
        else:
            create_job(self._job, self._owner)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Stage what a task has; also one that is killed returns from here, and is not asked any more."""
        if self._is_done:
            return SinkMessage(str(self._job))
        return SinkMessage(str(self._job), self._stage(iterator, self._job))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks staged."""
        if not self._is_done:
            commit(self._place, self._job, staged_by(messages), self._record)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove everything, of tasks that nobody heard of too."""
        abandon(self._place, self._job)


def staged_by(messages: list[WriterCommitMessage | None]) -> list[StagedPartition]:
    """The partitions of all tasks."""
    return [each for message in messages if isinstance(message, SinkMessage) for each in message.partitions]


def abandon(place: Place, job: Path) -> None:
    """Remove a job that failed; a commit of it that has begun is finished, for some of it may have been seen."""
    if (job / INTENT_FILE).exists():
        recover(place)
    else:
        remove_job(job)


def driver_process() -> int | None:
    """The process that a job lives in: Java's, above the Python processes that Spark makes."""
    process = os.getppid()
    for _ in range(8):
        try:
            command = Path(f"/proc/{process}/comm").read_text().strip()
            if command == "java":
                return process
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return None


class _Task:
    """What a task writes: partitions of its own, in a directory that no other task writes in.

    Parameters
    ----------
    place : Place
    directory : Path
    options : SinkOptions
    timestamp : int
        Of records where the DataFrame has no such column, ms.
    reader : ColumnReader
    sorts : bool
        Whether records that have offsets are put in order, in memory; else they have to come in order.
    """

    def __init__(
        self, place: Place, directory: Path, options: SinkOptions, timestamp: int, reader: ColumnReader, *, sorts: bool
    ) -> None:
        self._place, self._directory, self._options = place, directory, options
        self._timestamp, self._reader = timestamp, reader
        self._writers: dict[kf.TopicPartition, StagedWriter] = {}
        self._router = Router(self._n_partitions, topic=options.topic, sticky_bytes=options.batch_size)
        self._waiting = WaitingRecords(
            self._open_writer,
            path=place.log_dir,
            batch_size=options.batch_size,
            sorts=sorts,
            hint="kafkalog.spark.prepare(df, preserve_offsets=True) sorts them, as preserveOffsets needs them",
        )

    def take(self, batch: pa.RecordBatch, row: int) -> None:
        """Take rows.

        Raises
        ------
        UnwritableError
            A value that a record cannot hold, or offsets that do not rise.
        """
        columns = self._reader.read(batch, row)
        given = dict(columns)
        if not self._options.preserve_offsets:
            given.pop("offset", None)
        if "timestamp" not in self._reader.names:
            given["timestamp"] = np.full(columns.n_records, self._timestamp, np.int64)
        for routed in self._router.route(RecordColumns(columns.n_records, given), batch, self._reader, row):
            self._waiting.give(routed)

    def finish(self) -> list[StagedPartition]:
        """Write what waits, and finish all partitions."""
        self._waiting.flush()
        written = self._waiting.partitions
        return [self._writers[key].finish(written[key].n_records, written[key].first_offset) for key in sorted(written)]

    def abandon(self) -> None:
        """Forget everything."""
        for writer in self._writers.values():
            writer.abandon()

    def _n_partitions(self, topic: str) -> int | None:
        """As a producer: over the partitions that the topic has, unless a column says."""
        if "partition" in self._reader.names:
            return None
        return self._options.partitions or count_partitions(self._place.log_dir, topic) or 1

    def _open_writer(self, key: kf.TopicPartition) -> PartitionWriter:
        writer = StagedWriter(self._place, self._directory, key, **self._options.writer_options())
        self._writers[key] = writer
        return writer.writer


def count_partitions(log_dir: Path, topic: str) -> int:
    """The partitions that a topic has in a log dir, if they are all there; else up to the last that is."""
    try:
        found = (kf.parse_partition_directory(name) for name in os.listdir(log_dir))
    except FileNotFoundError:
        return 0
    keys = (each.topic_partition for each in found if each is not None and each.kind is None)
    return max((key.partition + 1 for key in keys if key.topic == topic), default=0)
