"""Two passes over partitions: first each segment alone, then the segments of each partition together, in order.

The first pass does the expensive work; its tasks are groups of segments of about the same size in bytes. The second
does the cheap work that needs the segments of a partition in order; its tasks are groups of partitions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.spark.jobs.tables import batch_of, frame_of, map_groups, map_tasks, pack

_RESULTS: Final = pa.schema(
    [("group", pa.int32()), ("partition", pa.int32()), ("segment", pa.int32()), ("data", pa.binary())]
)
_HEAD: Final = -1  # instead of a segment's number, for the row with the partition itself
_GROUP_FACTOR: Final = 16  # the second pass is about this much faster


def two_passes(
    spark: SparkSession,
    partitions: Sequence[tuple[Partition, Any]],
    of_segment: Callable[[Segment, Any], Any],
    of_partition: Callable[[Partition, Any, list[Any]], list[dict[str, Any]]],
    schema: pa.Schema,
    *,
    task_bytes: int,
) -> DataFrame:
    """Return a lazy DataFrame of rows about partitions.

    Parameters
    ----------
    partitions : sequence of (Partition, object)
        Each partition, and a value about it that is passed to both functions.
    of_segment : callable
        ``of_segment(segment, about)`` returns a result that can be pickled.
    of_partition : callable
        ``of_partition(partition, about, results)`` returns rows of the schema; results are in the order of segments.
    task_bytes : int
        About how many bytes of `.log` files a task of the first pass reads; at least one segment.
    """
    groups = pack([partition.size_in_bytes for partition, _ in partitions], _GROUP_FACTOR * task_bytes)
    segments = [
        (group, number, at, segment, about)
        for number, ((partition, about), group) in enumerate(zip(partitions, groups, strict=True))
        for at, segment in enumerate(partition.segments)
    ]
    tasks: dict[int, list[tuple[int, int, int, Segment, Any]]] = {}
    for one, task in zip(segments, pack([one[3].size_in_bytes for one in segments], task_bytes), strict=True):
        tasks.setdefault(task, []).append(one)

    def first(task: list[tuple[int, int, int, Segment, Any]]) -> Iterator[pa.RecordBatch]:
        for group, number, at, segment, about in task:
            yield _result(group, number, at, of_segment(segment, about))

    def second(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[int, dict[int, bytes]] = {}
        for batch in rows:
            for row in batch.to_pylist():
                found.setdefault(row["partition"], {})[row["segment"]] = row["data"]
        for number in sorted(found):
            # taken out as it is used: a group may hold the results of a thousand segments
            results = found.pop(number)
            partition, about = pickle.loads(results.pop(_HEAD))
            made = of_partition(partition, about, [pickle.loads(results.pop(at)) for at in sorted(results)])
            yield batch_of(made, schema)

    # each partition travels as a row of its group, so that a task gets only the partitions it works on
    heads = [
        _result(group, number, _HEAD, head) for number, (head, group) in enumerate(zip(partitions, groups, strict=True))
    ]
    results = map_tasks(spark, list(tasks.values()), first, _RESULTS)
    results = results.union(frame_of(spark, pa.Table.from_batches(heads, _RESULTS)))
    return map_groups(results, "group", max(groups, default=0) + 1, second, schema)


def _result(group: int, partition: int, segment: int, value: Any) -> pa.RecordBatch:
    row = {"group": group, "partition": partition, "segment": segment, "data": pickle.dumps(value)}
    return batch_of([row], _RESULTS)
