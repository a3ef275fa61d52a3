"""Distributing and sorting a DataFrame for the sink: the records of each partition in one task, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.interchange.arrow_values import binary_column
from kafkalog.writing.partitioner import MAX_PARTITIONS, hash_keys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def prepare(
    df: DataFrame,
    *,
    num_partitions: int | None = None,
    topic: str | None = None,
    order_by: Sequence[str | Column] | str | None = None,
    preserve_offsets: bool = False,
    num_tasks: int | None = None,
) -> DataFrame:
    """Bring the records of each partition into one task, in order.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        With the columns of the sink: `value`, and any of `key`, `headers`, `topic`, `partition`, `timestamp`,
        `offset`. It may be a stream.
    num_partitions : int, optional
        Partitions of each topic, over which records are spread as Kafka's default partitioner does: by murmur2 of the
        key, and without a key by what is in the record, so that the same record always goes to the same partition. The
        column `partition` is made, or replaced. Default: the column says.
    topic : str, optional
        The one topic; it is put into the column `topic`. Default: the column says, or the option of the sink will.
    order_by : sequence of str or Column, optional
        The order of the records of a partition. Default: `offset` with `preserve_offsets`, else `timestamp` where
        there is such a column; records that are equal in that come in any order.
    preserve_offsets : bool
        Whether the sink will be told to.
    num_tasks : int, optional
        Default: `num_partitions`, or the session's `spark.sql.shuffle.partitions`. A task has several whole partitions
        where there are fewer tasks than partitions.

    Returns
    -------
    pyspark.sql.DataFrame
        A task of it has exactly one topic's partition, or several whole ones; of a stream it is not sorted, which Spark
        does not do: the sink sorts what has offsets.

    Raises
    ------
    ValueError
        There is no column to go by.

    Examples
    --------
    >>> ready = prepare(df, topic="orders", num_partitions=12)  # doctest: +SKIP
    >>> ready.write.format("kafkalog").mode("append").save("/var/lib/kafka")  # doctest: +SKIP
    """
    from pyspark.sql import functions as sf

    names = {name.lower() for name in df.columns}
    if preserve_offsets and not {"offset", "partition"} <= names:
        raise ValueError("preserve_offsets needs the columns offset and partition")
    if preserve_offsets and num_partitions is not None:
        raise ValueError("preserve_offsets keeps records in their partitions: num_partitions would spread them")
    if num_partitions is None and "partition" not in names:
        raise ValueError("num_partitions is needed where there is no column partition")
    if num_partitions is not None and not 1 <= num_partitions <= MAX_PARTITIONS:
        raise ValueError(f"num_partitions is 1 to {MAX_PARTITIONS}, not {num_partitions}")
    if topic is not None:
        df = df.withColumn("topic", sf.lit(topic))
        names.add("topic")
    if num_partitions is not None:
        df = df.withColumn("partition", _partition(num_partitions, names))
        names.add("partition")
    session = df.sparkSession
    if num_tasks is None:
        num_tasks = num_partitions or int(str(session.conf.get("spark.sql.shuffle.partitions")))
    # several topics may meet in a task: whole ones all the same, since it follows from topic and partition alone
    task: Any = sf.col("partition").cast("long")
    if "topic" in names and topic is None:
        task = task + sf.pmod(sf.xxhash64("topic"), sf.lit(2**31))
    df = df.repartitionById(num_tasks, sf.pmod(task, sf.lit(num_tasks)).cast("int"))
    if df.isStreaming:
        return df
    if order_by is None:
        order_by = ["offset"] if preserve_offsets else ["timestamp"] if "timestamp" in names else []
    elif isinstance(order_by, str):
        order_by = [order_by]
    keys = [name for name in ("topic", "partition") if name in names]
    return df.sortWithinPartitions(*keys, *order_by)


def _partition(num_partitions: int, names: set[str]) -> Any:
    """The partition of a record, as a column."""
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.functions import arrow_udf

    parts = [sf.col(name) for name in ("value", "timestamp", "headers") if name in names]
    spread = sf.pmod(sf.xxhash64(*parts), sf.lit(num_partitions)).cast("int")
    if "key" not in names:
        return spread

    def of_key(keys: pa.Array) -> pa.Array:
        return partitions_of(keys, num_partitions)

    wrap: Any = arrow_udf  # its overloads say nothing of plain arrays
    made = wrap(of_key, "int")(sf.col("key"))
    return sf.when(sf.col("key").isNull(), spread).otherwise(made)


def partitions_of(keys: pa.Array, num_partitions: int) -> pa.Array:
    """Where Kafka's default partitioner sends records with these keys; a null one means nothing.

    Notes
    -----
    Source: BuiltInPartitioner.partitionForKey, Kafka 4.3.
    """
    return pa.array((hash_keys(binary_column(keys)) & 0x7FFFFFFF) % num_partitions, pa.int32())
