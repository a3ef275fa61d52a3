"""Reads tasks on executors for batch and streaming queries; also has the reader of batch queries.

Turns a `ReadTask` into Arrow record batches of the data source's schema.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from kafkalog import format as kf
from kafkalog.errors import CorruptionWarning, Finding, ReadError, Reason
from kafkalog.interchange.table_types import LossCounts, lost_findings
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.scanning.options import RecordOptions
from kafkalog.scanning.planning import Plan, ReadTask, plan
from kafkalog.scanning.tasks import plan_limits, read_task
from kafkalog.spark import types
from kafkalog.spark.decoded import wrong_type
from kafkalog.spark.offsets import open_paths, resolve, wanted_partitions
from kafkalog.spark.runner import check_files, check_log_dirs, files_of_task, pieces_of
from kafkalog.spark.source_options import SourceOptions
from kafkalog.spark.task_losses import GONE, TaskLosses
from kafkalog.state.outcomes import TransactionOutcomes
from kafkalog.values.decoding import DecodeWarning, Decoding


class TaskReader:
    """Reads tasks on an executor; the base class of the readers of batch and streaming queries.

    The schema is that of the source, or columns of it that the user chose: others are a ValueError.
    """

    def __init__(self, options: SourceOptions, schema: StructType, *, learns: bool = True) -> None:
        self._options = options
        decode = options.decode
        columns = types.check_columns(schema.names, () if decode is None else decode.formats)
        self._decoding: Decoding | None = None
        self._fails = decode is not None and decode.fails(columns)
        self._columns: Sequence[str] = types.record_columns(columns)
        if decode is not None:
            # on the driver: executors get what was learned, so that all tasks have the same types
            named = zip(schema, columns, strict=True)
            spelled = StructType([StructField(name, one.dataType, one.nullable, one.metadata) for one, name in named])
            batches = partial(record_batches, options) if learns else None
            self._decoding, kinds = decode.decoding(spelled, open_paths(options.paths), batches)
            self._columns = self._decoding.record_columns
        else:
            kinds = types.arrow_schema(columns)
            for field, own in zip(schema, types.spark_schema(columns), strict=True):
                if (theirs := field.dataType.simpleString()) != own.dataType.simpleString():
                    raise ValueError(wrong_type(field.name, own.dataType.simpleString(), theirs))
        # names as the user's schema spells them: Spark compares them, and is case-insensitive
        typed = zip(schema, kinds, strict=True)
        self._schema = pa.schema([pa.field(field.name, one.type, nullable=field.nullable) for field, one in typed])

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yield the records of a task; for an empty plan Spark calls this once without a task."""
        return iter(()) if partition is None or partition.value is None else self._batches(partition.value)

    def _batches(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task in Spark's types."""
        if self._options.fail_on_data_loss:
            check_files(files_of_task(task))
        else:
            check_log_dirs(task)
        decoding, lost, path = self._decoding, LossCounts(), str(task.parts[0].path)
        losses = TaskLosses(task)

        def report(finding: Finding) -> None:
            losses.add(finding)
            self._report(finding)

        for raw in _records(self._options, task, self._columns, report):
            batch = raw if decoding is None else decoding.decode(raw, path, decoding.schema())
            yield from types.split(types.to_spark(batch, self._schema, lost))
        n_undecoded = 0 if decoding is None else decoding.n_undecoded()
        findings = [] if decoding is None else decoding.take_findings()
        if n_undecoded and self._fails:
            raise _undecoded(n_undecoded, findings, path)
        losses.n_undecoded, losses.n_nulls = n_undecoded, sum(lost.counts().values())
        losses.log()
        # where Spark does not collect the logs, an executor can only warn
        for finding in findings:
            warnings.warn(str(finding), DecodeWarning, stacklevel=1)
        for finding in lost_findings(lost.counts(), None):
            warnings.warn(str(finding), RuntimeWarning, stacklevel=1)

    def _report(self, finding: Finding) -> None:
        # the scan warns of damage itself, but not of files that disappeared or changed
        if not self._options.fail_on_data_loss and finding.reason in GONE:
            warnings.warn(str(finding), CorruptionWarning, stacklevel=1)


def _undecoded(n: int, findings: Sequence[Finding], path: str) -> ReadError:
    """The error of a task whose values do not all decode."""
    first = next(finding for finding in findings if finding.reason is Reason.VALUE_UNDECODED)
    return ReadError(
        Reason.VALUE_UNDECODED,
        f"{n} of the values that this task reads {'does' if n == 1 else 'do'} not decode: {first.detail}. Set the"
        " option onDecodeError to null or skip, or read the column value_error",
        path=path,
        base_offset=first.base_offset,
    )


class KafkaLogReader(TaskReader, DataSourceReader):
    """Reads the files as they were when the query was planned."""

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the query, of about `taskBytes` each."""
        return [InputPartition(piece.value) for piece in pieces_of(_planned(self._options))]


def _planned(options: SourceOptions) -> Plan:
    log_dir = open_paths(options.paths)
    keys = wanted_partitions(log_dir, options)
    return plan_tasks(log_dir, options, keys, *resolve(log_dir, keys, options))


def plan_tasks(
    log_dir: LogDir,
    options: SourceOptions,
    keys: Collection[kf.TopicPartition],
    start: Mapping[kf.TopicPartition, int],
    end: Mapping[kf.TopicPartition, int],
    outcomes: Callable[[Partition, int | None], TransactionOutcomes] | None = None,
) -> Plan:
    """Return the tasks for ranges of offsets, without what the filters rule out; see `kafkalog.scanning.planning`."""
    return plan(
        log_dir,
        topic_partitions=keys,
        start_offset=start,
        end_offset=end,
        outcomes=outcomes,
        **options.planning,
        **plan_limits(options.reading),
    )


def _records(
    options: SourceOptions,
    task: ReadTask,
    columns: Sequence[str],
    report: Callable[[Finding], object] = lambda finding: None,
) -> Iterator[pa.RecordBatch]:
    """Record batches of a task, before they are decoded."""
    reading: RecordOptions = {**options.reading, "columns": columns}
    on_data_loss = "raise" if options.fail_on_data_loss else "skip"
    return read_task(task, report=report, on_data_loss=on_data_loss, **reading)


def record_batches(options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read columns of all records of a batch query, on the driver."""
    for task in _planned(options).tasks:
        yield from _records(options, task, columns)
