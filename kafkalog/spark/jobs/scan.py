"""Records and batch headers as DataFrames: the fast road, by `mapInArrow` over a table of tasks.

Lazy, as DataFrames are: what was planned is read anew by each action. Half again as fast as the data source, which has
to go through more hands, but without its options of a consumer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.errors import DEFAULT_LIMITS, CorruptionWarning, Finding, Limits, OnCorruption
from kafkalog.scanning.batch_scan import BatchScan, batch_schema
from kafkalog.scanning.planning import TASK_BYTES, Plan, ReadTask, plan, read_task
from kafkalog.scanning.query import Timestamp
from kafkalog.spark import types
from kafkalog.spark.jobs.tables import map_tasks
from kafkalog.state.read_committed import IsolationLevel

_SPARK_TYPES: Final = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
}


def scan(
    spark: SparkSession,
    path: Any,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    start_offset: Any = None,
    end_offset: Any = None,
    start_timestamp: Timestamp | None = None,
    end_timestamp: Timestamp | None = None,
    filters: Any = None,
    where: Callable[..., Any] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    include_control: bool = False,
    include_deleted: bool = False,
    internal: bool = False,
    on_corruption: OnCorruption = "raise",
    check_crcs: bool = True,
    task_bytes: int = TASK_BYTES,
    min_tasks: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> DataFrame:
    """Records as a DataFrame, with the columns of Spark's own Kafka source.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        As driver and executors both have it.
    columns : sequence of str, optional
        Default: key, value, topic, partition, offset, timestamp, timestampType. Also headers, leader_epoch,
        producer_id, producer_epoch, sequence, is_transactional, is_control, compression, batch_base_offset,
        batch_position, segment. What is not asked for is not decoded: Spark's ``select`` comes too late for that.
    include_headers : bool
        Also headers, beside the default columns.
    topics, partitions, start_offset, end_offset, start_timestamp, end_timestamp, filters, where, isolation_level, \
include_control, include_deleted, internal, on_corruption, check_crcs
        As `kafkalog.scan`. What `filters` and `where` leave out never reaches Spark.
    task_bytes : int
        About how many bytes of `.log` files a task reads: segments are cut, or packed together.
    min_tasks : int, optional
        Make tasks smaller, so that there are about as many.
    limits : Limits

    Returns
    -------
    pyspark.sql.DataFrame
        Of the log as it is now: what is appended later is not in it.

    Raises
    ------
    KafkalogError
        Here, where there is nothing to read. Damage is met by actions, which fail with file and position in the
        message, unless `on_corruption` says otherwise.

    Examples
    --------
    >>> frame = kafkalog.spark.scan(spark, "/backup/kafka", topics="orders")  # doctest: +SKIP
    >>> frame.groupBy("partition").count().show()  # doctest: +SKIP
    """
    chosen = types.check_columns(columns or (*types.KAFKA_COLUMNS, *(["headers"] if include_headers else [])))
    planned = plan(
        path,
        topics=listed(topics),
        partitions=listed(partitions),
        start_offset=start_offset,
        end_offset=end_offset,
        isolation_level=isolation_level,
        on_corruption=on_corruption,
        include_deleted=include_deleted,
        internal=internal,
        task_bytes=task_bytes,
        min_tasks=min_tasks,
        limits=limits,
    )
    warn_of(planned)
    options = {
        "columns": types.record_columns(chosen),
        "start_timestamp": start_timestamp,
        "end_timestamp": end_timestamp,
        "filters": filters,
        "where": where,
        "include_control": include_control,
        "check_crcs": check_crcs,
        "limits": limits,
    }
    schema = types.arrow_schema(chosen)

    def work(task: ReadTask) -> Iterator[pa.RecordBatch]:
        for batch in read_task(task, **options):
            yield from types.split(types.to_spark(batch, schema))

    return map_tasks(spark, planned.tasks, work, schema)


def batches(
    spark: SparkSession,
    path: Any,
    *,
    columns: Sequence[str] | None = None,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    start_offset: Any = None,
    end_offset: Any = None,
    on_corruption: OnCorruption = "raise",
    task_bytes: int = 8 * TASK_BYTES,
    limits: Limits = DEFAULT_LIMITS,
) -> DataFrame:
    """The batch table as a DataFrame: a row a record batch, out of their headers; nothing is decoded.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
    columns : sequence of str, optional
        As `kafkalog.scan_batches`: topic, partition, segment, position, size_in_bytes, base_offset, last_offset,
        compression, producer_id and so on. 8 and 16 bit integers become 32 bits wide, unsigned ones 64.
    topics, partitions, start_offset, end_offset, on_corruption, limits
        As `kafkalog.scan_batches`; what is deleted and still in the files is among the rows.
    task_bytes : int
        About how many bytes of `.log` files a task walks.

    Returns
    -------
    pyspark.sql.DataFrame

    Examples
    --------
    >>> frame = kafkalog.spark.batches(spark, "/backup/kafka")  # doctest: +SKIP
    >>> frame.groupBy("topic", "compression").avg("size_in_bytes").show()  # doctest: +SKIP
    """
    planned = plan(
        path,
        topics=listed(topics),
        partitions=listed(partitions),
        start_offset=start_offset,
        end_offset=end_offset,
        on_corruption=on_corruption,
        include_deleted=True,
        internal=True,
        task_bytes=task_bytes,
        limits=limits,
    )
    warn_of(planned)
    schema = pa.schema([pa.field(one.name, _SPARK_TYPES.get(one.type, one.type)) for one in batch_schema(columns)])

    def work(task: ReadTask) -> Iterator[pa.RecordBatch]:
        for part in task.parts:
            one = BatchScan(
                part.open(limits=limits),
                columns=schema.names,
                start_offset=part.start_offset,
                end_offset=part.end_offset,
                on_corruption=task.on_corruption,
            )
            for batch in one.to_batches():
                arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
                yield from types.split(pa.RecordBatch.from_arrays(arrays, schema=schema))

    return map_tasks(spark, planned.tasks, work, schema)


def warn_of(planned: Plan) -> None:
    """Say what was met while planning."""
    for finding in planned.findings:
        if finding.damage:
            _warn(finding)


def _warn(finding: Finding) -> None:
    warnings.warn(str(finding), CorruptionWarning, stacklevel=4)


def listed(one: Any) -> list[Any] | None:
    """One or several, as a list."""
    return None if one is None else [one] if isinstance(one, (str, int)) else list(one)
