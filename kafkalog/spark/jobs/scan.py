"""Records and batch headers as lazy DataFrames, read with `mapInArrow` over a table of tasks.

Each action reads the planned files again. This is about half again as fast as the data source, with fewer options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.scanning.batch_scan import BatchScan, batch_schema
from kafkalog.scanning.options import BatchOptions, TaskOptions, split_options
from kafkalog.scanning.planning import TASK_BYTES, ReadTask, plan
from kafkalog.scanning.tasks import plan_limits, read_task
from kafkalog.scanning.user_functions import Where
from kafkalog.spark import runner, types
from kafkalog.spark.task_losses import TaskLosses


def scan(
    spark: SparkSession,
    path: Any,
    *,
    task_bytes: int = TASK_BYTES,
    limits: Limits = DEFAULT_LIMITS,
    **options: Unpack[TaskOptions],
) -> DataFrame:
    """Return records as a DataFrame with the columns of Spark's Kafka source.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        Must be the same on the driver and the executors.
    task_bytes : int
        About how many bytes of `.log` files a task reads: large segments are split, small ones are read together.
    limits : Limits
    columns : sequence of str, optional
        Default: the columns of Spark's Kafka source. Also headers and the columns about batches. Other columns are not
        decoded: Spark's ``select`` comes too late to avoid that work.
    **options
        Options of `kafkalog.scan` that choose files, offsets, times and records. Records that `filters` and `where`
        exclude never reach Spark. Options for decoding and for one process are not accepted.

    Returns
    -------
    pyspark.sql.DataFrame
        The records that are in the log now; those appended later are not included.

    Raises
    ------
    KafkalogError
        There is nothing to read. Damage is found by actions: with `on_corruption="raise"` they fail, with file and
        position in the message. Otherwise the executors warn of it, in their logs; see `kafkalog.spark.losses`.

    Examples
    --------
    >>> frame = kafkalog.spark.scan(spark, "/backup/kafka", topics="orders")  # doctest: +SKIP
    >>> frame.groupBy("partition").count().show()  # doctest: +SKIP
    """
    planning, reading = split_options(options)
    chosen = types.check_columns(reading.get("columns") or types.KAFKA_COLUMNS)
    reading["columns"] = types.record_columns(chosen)
    if reading.get("where") is not None:
        # here, and not in a task: numba is missing, or the function does not compile
        Where(cast(Any, reading["where"]))
    limits_of = plan_limits(reading)
    planned = plan(runner.absolute(path), task_bytes=task_bytes, limits=limits, **planning, **limits_of)
    schema = types.arrow_schema(chosen)

    def work(task: ReadTask) -> Iterator[pa.RecordBatch]:
        losses = TaskLosses(task)
        for batch in read_task(task, limits=limits, report=losses.add, **reading):
            yield from types.split(types.to_spark(batch, schema))
        losses.log()

    return runner.run(spark, runner.pieces_of(planned), work, schema)


def batches(
    spark: SparkSession,
    path: Any,
    *,
    task_bytes: int = 8 * TASK_BYTES,
    **options: Unpack[BatchOptions],
) -> DataFrame:
    """Return the batch table as a DataFrame: a row for each record batch, from its header; no record is decoded.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
    columns, topics, partitions, start_offset, end_offset, on_corruption, limits
        See `kafkalog.batches`. 8 and 16 bit integers become 32 bits wide, unsigned 32 bit ones 64. Batches below the
        log start offset that are still in the files are included.
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
    planning: dict[str, Any] = {"limits": DEFAULT_LIMITS, **options}
    columns, limits = planning.pop("columns", None), planning["limits"]
    planned = plan(runner.absolute(path), include_deleted=True, internal=True, task_bytes=task_bytes, **planning)
    schema = pa.schema([pa.field(one.name, types.WIDER.get(one.type, one.type)) for one in batch_schema(columns)])

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

    return runner.run(spark, runner.pieces_of(planned), work, schema)
