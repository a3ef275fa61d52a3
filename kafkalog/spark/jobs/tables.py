"""Tables of tasks, and what becomes of them: a task a row, a Spark partition a task.

A task is any value that can be pickled. `map_tasks` hands each to a function in a Python worker, by way of
`mapInArrow`; what the function yields is the DataFrame. `run_now` does that at once, for work that is to be done once
and not again whenever somebody looks at the result.
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kafkalog.errors import Finding, KafkalogError, Reason

FINDING: Final = pa.struct(
    [
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("path", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("damage", pa.bool_()),
        pa.field("n_records", pa.int64()),
        pa.field("certainty", pa.string()),
    ]
)
"""A `Finding` as Arrow has it."""

MAX_FINDINGS: Final = 100
"""Kept of a segment, unless limits say otherwise: rows come back to the driver."""

_TASKS: Final = pa.schema([("number", pa.int32()), ("task", pa.binary())])

Work = Callable[[Any], Iterable[pa.RecordBatch]]


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table of the driver's as a DataFrame."""
    with _quiet():
        return spark.createDataFrame(table)


def map_tasks(spark: SparkSession, tasks: Sequence[Any], work: Work, schema: pa.Schema) -> DataFrame:
    """What a function makes of tasks, when it is asked for.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    tasks : sequence
        Each is a Spark task.
    work : callable
        Runs on executors; yields record batches of the schema.
    schema : pyarrow.Schema
    """
    numbers = pa.array(range(len(tasks)), pa.int32())
    table = pa.Table.from_arrays([numbers, pa.array(map(pickle.dumps, tasks), pa.binary())], schema=_TASKS)
    return map_groups(frame_of(spark, table), "number", len(tasks), lambda rows: _each(rows, work), schema)


def map_groups(rows: DataFrame, number: str, n: int, work: Work, schema: pa.Schema) -> DataFrame:
    """What a function makes of rows, brought together by a number: each number is a Spark task.

    Parameters
    ----------
    rows : pyspark.sql.DataFrame
    number : str
        Column of integers from 0 on.
    n : int
        How many there are.
    work : callable
        Is given an iterator of record batches.
    schema : pyarrow.Schema
    """

    def body(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(batches)

    with _quiet():
        return rows.repartitionById(max(n, 1), number).mapInArrow(body, from_arrow_schema(schema))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PySpark warns of pandas 3 whenever Arrow is used, though none of pandas is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
        yield


def _each(rows: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        for data in batch.column("task"):
            yield from work(pickle.loads(data.as_py()))


def run_now(frame: DataFrame) -> pa.Table:
    """Do the work; what it returns is a row a segment or so, and the driver holds it.

    Raises
    ------
    KafkalogError
        What a task says in its column `error`.
    """
    with _quiet():
        table = frame.toArrow()
    if "error" in table.schema.names:
        for data in table.column("error").drop_null()[:1]:
            raise pickle.loads(data.as_py())
        table = table.drop_columns(["error"])
    return table


def batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a record batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as rows of `FINDING`."""
    return [finding.as_dict() for finding in findings]


def findings_of(rows: Iterable[Mapping[str, Any]] | None) -> list[Finding]:
    """The same back again."""
    return [Finding(**{**row, "reason": Reason(row["reason"])}) for row in rows or ()]


def error_data(error: KafkalogError) -> bytes:
    """An error on its way to the driver: what would fail again is not tried again."""
    return pickle.dumps(error)


def pack(sizes: Sequence[int], most: int) -> list[int]:
    """Numbers of groups of neighbours that together have at most so many bytes, unless one alone has more."""
    numbers: list[int] = []
    number, total = 0, 0
    for size in sizes:
        if numbers and total + size > most:
            number, total = number + 1, 0
        numbers.append(number)
        total += size
    return numbers
