"""``df.write.format("kafkalog")``: a DataFrame into the partitions of a log dir, all of it or nothing.

Each task writes partitions of its own in a directory of the job, beside the log dir; the driver renames them into place
when all tasks are through (`kafkalog.adoption`), which never happens where one was killed: what a killed task sees is
only that its rows end. Driver and executors share the file system. The sink cannot ask Spark for a distribution: two
tasks that wrote to one partition are refused, and `kafkalog.spark.prepare` is what brings a partition's rows together.
"""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalog import format as kf
from kafkalog.adoption import (
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
from kafkalog.arrow_input import ColumnReader, integer_values, slices
from kafkalog.columns import RecordColumns
from kafkalog.errors import CorruptionWarning, Reason, UnwritableError
from kafkalog.lock import refuse_if_locked
from kafkalog.partitioner import Partitioner, record_sizes
from kafkalog.spark.sink_options import SinkOptions, check_partition_name_of, match_columns

WAITING_BYTES: Final = 32 * 2**20
"""Records of all partitions of a task that wait to be written, about."""
_MOST_AT_ONCE: Final = 2**22
_INT_MAX: Final = 2**31 - 1


@dataclass
class SinkMessage(WriterCommitMessage):
    """What a task wrote, and where.

    Attributes
    ----------
    job : str
        Directory of the job.
    partitions : list of StagedPartition
    record : dict or None
        What is committed with it, where only tasks know: see `kafkalog.commits.Commits.has`.
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
        router: Router | None = None
        row = 0
        try:
            for batch in rows:
                if router is None and batch.num_rows:
                    task = job / f"task-{secrets.token_hex(8)}"
                    os.mkdir(task)
                    router = Router(self._place, task, self._options, self._timestamp, sorts=sorts)
                    reader = self._reader(batch.schema)
                for part in slices(batch):
                    assert router is not None
                    router.take(part, reader, row)
                    row += part.num_rows
            return [] if router is None else router.finish()
        except BaseException:
            if router is not None:
                router.abandon()
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


class Router:
    """Brings the rows of a task to its partitions.

    Parameters
    ----------
    place : Place
    task : Path
        Directory of the task.
    options : SinkOptions
    timestamp : int
        Of records where the DataFrame has no such column, ms.
    sorts : bool
        Whether records that have offsets are put in order, in memory; else they have to come in order.
    """

    def __init__(self, place: Place, task: Path, options: SinkOptions, timestamp: int, *, sorts: bool = False) -> None:
        self._place, self._task, self._options = place, task, options
        self._timestamp, self._sorts = timestamp, sorts
        self._open: dict[kf.TopicPartition, _Partition] = {}
        self._partitioners: dict[str, Partitioner] = {}
        self._n_waiting = 0

    def take(self, batch: pa.RecordBatch, reader: ColumnReader, row: int) -> None:
        """Take rows.

        Raises
        ------
        UnwritableError
            A value that a record cannot hold, or offsets that do not rise.
        """
        columns = reader.read(batch, row)
        given = dict(columns)
        if not self._options.preserve_offsets:
            given.pop("offset", None)
        if "timestamp" not in reader.names:
            given["timestamp"] = np.full(columns.n_records, self._timestamp, np.int64)
        columns = RecordColumns(columns.n_records, given)
        topics, codes = self._topics(batch, reader, row)
        numbers = self._numbers(batch, reader, row, columns, topics, codes)
        order = np.lexsort((numbers, codes))  # stable: a partition's records stay in their order
        codes, numbers = codes[order], numbers[order]
        edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(numbers) != 0)) + 1
        starts = [0, *edges.tolist()]
        for start, stop in zip(starts, [*starts[1:], columns.n_records], strict=True):
            key = kf.TopicPartition(topics[int(codes[start])], int(numbers[start]))
            self._give(key, columns.take(order[start:stop]))

    def finish(self) -> list[StagedPartition]:
        """Write what waits, and finish all partitions."""
        return [self._open[key].finish() for key in sorted(self._open)]

    def abandon(self) -> None:
        """Forget everything."""
        for partition in self._open.values():
            partition.writer.abandon()

    def _topics(self, batch: pa.RecordBatch, reader: ColumnReader, row: int) -> tuple[list[str], npt.NDArray[np.int64]]:
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(batch.num_rows, np.int64)
        column = batch.column(reader.names["topic"])
        if column.null_count:
            bad = row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            detail = f"null topic present in the data (row {bad} of a task). Use the topic option for setting one."
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        coded = pc.dictionary_encode(column.cast(pa.string()))
        topics = coded.dictionary.to_pylist()
        for topic in topics:
            check_partition_name_of(topic)
        return topics, integer_values(coded.indices, "topic")[0]

    def _numbers(
        self,
        batch: pa.RecordBatch,
        reader: ColumnReader,
        row: int,
        columns: RecordColumns,
        topics: list[str],
        codes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        if "partition" in reader.names:
            numbers = reader.integers("partition", batch, row)
            if numbers.size and numbers.max() > _INT_MAX:
                bad = row + int(np.argmax(numbers > _INT_MAX))
                raise UnwritableError(Reason.COLUMN_VALUE, f"partition, row {bad} is beyond {_INT_MAX}", row=bad)
            return numbers
        numbers = np.zeros(columns.n_records, np.int64)
        for code, topic in enumerate(topics):
            rows = np.flatnonzero(codes == code)
            numbers[rows] = self._partitioner(topic).assign(columns.take(rows))
        return numbers

    def _partitioner(self, topic: str) -> Partitioner:
        """As a producer: over the partitions that the topic has."""
        if topic not in self._partitioners:
            n = self._options.partitions or count_partitions(self._place.log_dir, topic) or 1
            self._partitioners[topic] = Partitioner(n, sticky_bytes=self._options.batch_size)
        return self._partitioners[topic]

    def _give(self, key: kf.TopicPartition, columns: RecordColumns) -> None:
        partition = self._open.get(key)
        if partition is None:
            writer = StagedWriter(self._place, self._task, key, **self._options.writer_options())
            partition = self._open[key] = _Partition(key, writer, self._sorts)
        self._n_waiting += partition.give(columns)
        if self._sorts:
            return  # a micro-batch is as large as its trigger lets it be
        if partition.n_waiting >= _MOST_AT_ONCE:
            self._n_waiting -= partition.flush()
        elif self._n_waiting >= WAITING_BYTES:
            largest = max(self._open.values(), key=lambda each: each.n_waiting)
            self._n_waiting -= largest.flush()


def count_partitions(log_dir: Path, topic: str) -> int:
    """The partitions that a topic has in a log dir, if they are all there; else up to the last that is."""
    try:
        found = (kf.parse_partition_directory(name) for name in os.listdir(log_dir))
    except FileNotFoundError:
        return 0
    keys = (each.topic_partition for each in found if each is not None and each.kind is None)
    return max((key.partition + 1 for key in keys if key.topic == topic), default=0)


class _Partition:
    """A partition of a task, and its records that wait for more of them."""

    def __init__(self, key: kf.TopicPartition, writer: StagedWriter, sorts: bool) -> None:
        self.writer, self.n_waiting = writer, 0
        self._key, self._sorts = key, sorts
        self._parts: list[RecordColumns] = []
        self._n_records = 0
        self._first: int | None = None
        self._last = writer.writer.next_offset - 1

    def give(self, columns: RecordColumns) -> int:
        size = int(record_sizes(columns).sum())
        self._parts.append(columns)
        self.n_waiting += size
        return size

    def flush(self) -> int:
        """Write what waits; how many bytes did."""
        n_waiting, self.n_waiting = self.n_waiting, 0
        if not self._parts:
            return 0
        columns, self._parts = RecordColumns.concatenate(self._parts), []
        if "offset" in columns:
            if self._sorts:
                columns = columns.take(np.argsort(columns.offset, kind="stable"))
            self._check_offsets(columns.offset)
        result = self.writer.writer.append(columns)
        self._first = result.first_offset if self._first is None else self._first
        self._last = result.last_offset
        self._n_records += columns.n_records
        return n_waiting

    def _check_offsets(self, offsets: npt.NDArray[np.int64]) -> None:
        falls = np.flatnonzero(np.diff(offsets, prepend=self._last) <= 0)
        if not falls.size:
            return
        at = int(falls[0])
        if at or self._n_records:
            before = int(offsets[at - 1]) if at else self._last
            detail = (
                f"{self._key}: offset {offsets[at]} comes behind {before}, and preserveOffsets needs them to rise:"
                " kafkalog.spark.prepare(df, preserve_offsets=True) sorts them"
            )
        else:
            detail = f"{self._key}: offset {offsets[0]} is to be written, and the log goes on at {self._last + 1}"
        raise UnwritableError(Reason.OFFSET_ORDER, detail)

    def finish(self) -> StagedPartition:
        self.flush()
        assert self._first is not None
        return self.writer.finish(self._n_records, self._first)
