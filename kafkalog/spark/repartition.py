"""Repartitions and sorts a DataFrame for the sink: the records of each Kafka partition in one task, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.interchange.arrow_values import binary_column
from kafkalog.records.partitioner import MAX_PARTITIONS, hash_keys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def prepare(
    df: DataFrame,
    *,
    partitions: int | None = None,
    num_partitions: int | None = None,
    topic: str | None = None,
    order_by: Sequence[str | Column] | str | None = None,
    preserve_offsets: bool = False,
) -> DataFrame:
    """Bring the records of each partition into one task, in order.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Has `value`, and any of `key`, `headers`, `topic`, `partition`, `timestamp`, `offset`.
    partitions : int, optional
        Number of partitions of each topic: adds or replaces the column `partition`, by murmur2 of the key, as Kafka's
        default partitioner. Without a key the content of the record decides, so that the same record always goes to the
        same partition. Default: use the column `partition`.
    num_partitions : int, optional
        The earlier name of `partitions`.
    topic : str, optional
        The topic of all records; it is put into the column `topic`. Default: the column `topic`, or the sink's option.
    order_by : sequence of str or Column, optional
        The order of the records of a partition. Default: `offset` with `preserve_offsets`, else `timestamp` if there is
        such a column. Records with equal values may come in any order.
    preserve_offsets : bool
        Whether the sink's option `preserveOffsets` will be set.

    Returns
    -------
    pyspark.sql.DataFrame
        Each of its tasks has one partition of a topic, or several whole ones. There are `partitions` tasks, or
        `spark.sql.shuffle.partitions`.

    Raises
    ------
    ValueError
        A column that is needed is missing, or options contradict each other.

    Examples
    --------
    >>> ready = prepare(df, topic="orders", partitions=12)  # doctest: +SKIP
    >>> ready.write.format("kafkalog").mode("append").save("/var/lib/kafka")  # doctest: +SKIP
    """
    from pyspark.sql import functions as sf

    partitions = num_partitions if partitions is None else partitions
    names = {name.lower() for name in df.columns}
    if preserve_offsets and not {"offset", "partition"} <= names:
        raise ValueError("preserve_offsets needs the columns offset and partition")
    if preserve_offsets and partitions is not None:
        raise ValueError("preserve_offsets keeps records in their partitions: partitions would spread them")
    if partitions is None and "partition" not in names:
        raise ValueError("partitions is needed where there is no column partition")
    if partitions is not None and not 1 <= partitions <= MAX_PARTITIONS:
        raise ValueError(f"partitions is 1 to {MAX_PARTITIONS}, not {partitions}")
    if partitions is not None and "key" in names:
        _check_key(df)
    if topic is not None:
        df = df.withColumn("topic", sf.lit(topic))
        names.add("topic")
    if partitions is not None:
        df = df.withColumn("partition", _partition(partitions, names))
        names.add("partition")
    num_tasks = partitions or int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    # partitions of several topics may share a task; each is whole, as topic and partition alone determine the task
    task: Any = sf.col("partition").cast("long")
    if "topic" in names and topic is None:
        # else partition 0 of each topic would be in the same task
        task = task + sf.pmod(sf.xxhash64("topic"), sf.lit(2**31))
    df = df.repartitionById(num_tasks, sf.pmod(task, sf.lit(num_tasks)).cast("int"))
    if order_by is None:
        order_by = ["offset"] if preserve_offsets else ["timestamp"] if "timestamp" in names else []
    elif isinstance(order_by, str):
        order_by = [order_by]
    keys = [name for name in ("topic", "partition") if name in names]
    return df.sortWithinPartitions(*keys, *order_by)


def _check_key(df: DataFrame) -> None:
    """Raise ValueError for keys whose bytes would depend on a conversion that Kafka's clients do, each in its way."""
    from pyspark.sql.types import BinaryType, StringType

    kind = next(field.dataType for field in df.schema if field.name.lower() == "key")
    if not isinstance(kind, (BinaryType, StringType)):
        raise ValueError(
            f"the column key is {kind.simpleString()}, and its bytes decide on the partition: cast it to binary or"
            " string as its producers do"
        )


def _partition(num_partitions: int, names: set[str]) -> Any:
    """Return a column expression for the partition of a record."""
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.functions import arrow_udf

    # not at random: a task that is retried would send its records elsewhere
    parts = [sf.col(name) for name in ("value", "timestamp", "headers") if name in names]
    spread = sf.pmod(sf.xxhash64(*parts), sf.lit(num_partitions)).cast("int")
    if "key" not in names:
        return spread

    def of_key(keys: pa.Array) -> pa.Array:
        # as Kafka's BuiltInPartitioner.partitionForKey (4.3); the result for a null key is not used
        return pa.array((hash_keys(binary_column(keys)) & 0x7FFFFFFF) % num_partitions, pa.int32())

    wrap: Any = arrow_udf  # its type hints do not cover plain arrays
    return sf.when(sf.col("key").isNull(), spread).otherwise(wrap(of_key, "int")(sf.col("key")))
