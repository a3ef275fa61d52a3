"""``df.write.format("kafkalog")``: writes a DataFrame to the partitions of a log dir, all of it or nothing.

Each task writes its partitions into a directory of the job, next to the log dir. When all tasks have finished, the
driver renames them into place (`kafkalog.writing.job_commit`). A killed task only sees its rows end and returns
normally, but then Spark does not call `commit`. The sink cannot ask Spark for a distribution, so the job fails if two
tasks write to the same partition: `kafkalog.spark.prepare` brings the rows of a partition into one task.
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kafkalog import format as kf
from kafkalog.errors import CorruptionWarning
from kafkalog.interchange.arrow_input import ColumnReader, slices
from kafkalog.records.columns import RecordColumns
from kafkalog.spark.runner import make_task_directory
from kafkalog.spark.sink_options import SinkOptions, match_columns
from kafkalog.storage.broker_lock import refuse_if_locked
from kafkalog.writing.job_commit import StagedPartition, StagedWriter, commit, has_begun, recover
from kafkalog.writing.job_directories import StagingArea, create_job, remove_job
from kafkalog.writing.partition_writer import PartitionWriter
from kafkalog.writing.routing import Router, WaitingRecords


@dataclass
class SinkMessage(WriterCommitMessage):
    """The message of a task to the driver: the partitions that it staged."""

    partitions: list[StagedPartition] = field(default_factory=list)


class KafkaLogWriter(DataSourceArrowWriter):
    """Writes a DataFrame.

    The constructor runs on the driver. It checks the columns and their types, refuses a log dir with a running broker,
    and finishes the commit of a job that died while it committed.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = match_columns(schema, options)
        self._ignored = [name for name in schema.names if name not in self._columns.values()]
        self._reader(to_arrow_schema(schema, timezone="UTC"))  # which checks the types
        self._area = StagingArea.of(options.path, options.stage_in)
        # before any task runs: the commit would be refused after all the work
        refuse_if_locked([self._area.log_dir])
        if finished := recover(self._area):
            detail = f"finished the commit of a job that had died, in {', '.join(finished)}. If this is the same job,"
            warnings.warn(f"{detail} its records are already there", CorruptionWarning, stacklevel=1)
        # one time for all tasks, as for a producer's batch, and a task that is retried writes the same
        self._timestamp = time.time_ns() // 10**6
        # asked on the driver: the tasks of a job that is run again have nothing to do then
        self._is_done = options.job_id is not None and self._area.commits().has(options.job_id)
        self._job = self._area.job(f"job-{secrets.token_hex(16)}")
        if self._is_done:
            warnings.warn(f"job {options.job_id!r} is already committed: nothing is written", stacklevel=1)
        else:
            create_job(self._job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Stage the rows of a task; a killed task returns from here too, and Spark discards its message."""
        if self._is_done:
            return SinkMessage()
        task: _TaskWriter | None = None
        row = 0
        try:
            for batch in iterator:
                reader = self._reader(batch.schema)
                task = task or _TaskWriter(self._area, make_task_directory(self._job), self._options, self._timestamp)
                for part in slices(batch):
                    task.take(part, reader, row)
                    row += part.num_rows
            return SinkMessage([] if task is None else task.finish())
        except BaseException:
            if task is not None:
                task.abandon()
            raise

    def _reader(self, schema: pa.Schema) -> ColumnReader:
        # Spark has microseconds, and Kafka milliseconds
        return ColumnReader(schema, columns=self._columns, ignore_columns=self._ignored, truncate_timestamps=True)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the partitions that all tasks staged."""
        if not self._is_done:
            staged = [each for message in messages if isinstance(message, SinkMessage) for each in message.partitions]
            commit(self._area, self._job, staged, self._options.job_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the whole job directory, including files of tasks that sent no message."""
        if has_begun(self._job):
            recover(self._area)
        else:
            remove_job(self._job)


class _TaskWriter:
    """Writes the partitions of one task into a directory of its own; `timestamp` (ms) is for records without one."""

    def __init__(self, area: StagingArea, directory: Path, options: SinkOptions, timestamp: int) -> None:
        self._area, self._directory, self._options, self._timestamp = area, directory, options, timestamp
        self._writers: dict[kf.TopicPartition, StagedWriter] = {}
        self._router = Router(lambda topic: None, topic=options.topic)
        self._waiting = WaitingRecords(
            self._open_writer,
            path=area.log_dir,
            batch_size=options.batch_size,
            hint="kafkalog.spark.prepare(df, preserve_offsets=True) sorts them for preserveOffsets",
        )

    def take(self, batch: pa.RecordBatch, reader: ColumnReader, row: int) -> None:
        """Route rows to partitions, and write full batches."""
        columns = reader.read(batch, row)
        given = dict(columns)
        if "timestamp" not in reader.names:
            given["timestamp"] = np.full(columns.n_records, self._timestamp, np.int64)
        for routed in self._router.route(RecordColumns(columns.n_records, given), batch, reader, row):
            self._waiting.give(routed)

    def finish(self) -> list[StagedPartition]:
        """Write the waiting records, and finish all partitions."""
        self._waiting.flush()
        written = self._waiting.partitions
        return [self._writers[key].finish(written[key].n_records, written[key].first_offset) for key in sorted(written)]

    def abandon(self) -> None:
        """Stop writing and discard all partitions of the task."""
        for writer in self._writers.values():
            writer.abandon()

    def _open_writer(self, key: kf.TopicPartition) -> PartitionWriter:
        options = self._options
        settings = {"config": options.config, "compression": options.compression, "batch_size": options.batch_size}
        self._writers[key] = writer = StagedWriter(self._area, self._directory, key, **settings)
        return writer.writer
