"""Turns a table of tasks into a DataFrame of results; each task is a row, and a Spark partition of its own.

A task is any value that can be pickled. `map_tasks` passes each to a function in a Python worker, with `mapInArrow`;
the record batches that the function yields make up the DataFrame. `run_now` runs the work once and keeps the result,
since a DataFrame would run it again for each action.
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kafkalog.errors import Finding, Findings, KafkalogError, Reason

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
"""The Arrow type of a `Finding`."""

PLACE_FIELDS: Final = (
    pa.field("path", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
)
"""What a row is about."""

FOUND_FIELDS: Final = (pa.field("findings", pa.list_(FINDING)), pa.field("seconds", pa.float64()))
"""What was found about it, and how long that took."""

FILE_FIELDS: Final = (
    pa.field("path", pa.string()),
    pa.field("kind", pa.string()),
    pa.field("n_entries", pa.int64()),
    pa.field("n_bytes", pa.int64()),
    pa.field("change", pa.string()),
)
"""Of a rebuilt file."""

PICKLED_RESULTS: Final = pa.schema([("number", pa.int32()), ("data", pa.binary()), ("error", pa.binary())])
"""A row for each task: its pickled result, or its pickled error."""

MAX_FINDINGS: Final = 100
"""The most findings kept for each segment by default; they are sent to the driver."""

_TASKS: Final = pa.schema([("number", pa.int32()), ("task", pa.binary())])

Work = Callable[[Any], Iterable[pa.RecordBatch]]


class TaskFindings:
    """Findings of tasks, brought to the driver with Spark's accumulators, which Spark Connect does not have.

    Spark may run a task, or a whole query, more than once: each finding counts once.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._sum = spark.sparkContext.accumulator({}, _Union())

    def add(self, finding: Finding) -> None:
        """Add a finding; called in a task or on the driver."""
        self._sum.add({finding: None})

    @property
    def rows(self) -> list[Finding]:
        """The findings of the tasks that have ended, by path and position."""
        return sorted(self._sum.value, key=lambda one: (one.path or "", one.position or 0))


class _Union(AccumulatorParam[dict[Finding, None]]):
    """Adds dicts; a key that is there already changes nothing."""

    def zero(self, value: dict[Finding, None]) -> dict[Finding, None]:
        return {}

    def addInPlace(self, value1: dict[Finding, None], value2: dict[Finding, None]) -> dict[Finding, None]:
        # a new one each time: Spark may keep the old value for a task that it runs again
        return {**value1, **value2}


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table of the driver as a DataFrame."""
    with _quiet():
        return spark.createDataFrame(table)


def map_tasks(spark: SparkSession, tasks: Sequence[Any], work: Work, schema: pa.Schema) -> DataFrame:
    """Return the results of a function for tasks as a lazy DataFrame.

    Parameters
    ----------
    tasks : sequence
        Each becomes a Spark task.
    work : callable
        Runs on executors; yields record batches of the schema.
    """
    numbers = pa.array(range(len(tasks)), pa.int32())
    table = pa.Table.from_arrays([numbers, pa.array(map(pickle.dumps, tasks), pa.binary())], schema=_TASKS)
    return map_groups(frame_of(spark, table), "number", len(tasks), lambda rows: _each(rows, work), schema)


def map_groups(rows: DataFrame, number: str, n: int, work: Work, schema: pa.Schema) -> DataFrame:
    """Return the results of a function for groups of rows as a lazy DataFrame; each group becomes a Spark task.

    Parameters
    ----------
    number : str
        The column with the number of the group, from 0 on.
    n : int
        How many groups there are.
    work : callable
        Called with an iterator of record batches; yields record batches of the schema.
    """

    def body(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(batches)

    with _quiet():
        # by the number itself: a hash would put several tasks into one partition and leave others empty
        return rows.repartitionById(max(n, 1), number).mapInArrow(body, from_arrow_schema(schema))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress PySpark's warning about pandas 3, which it gives for Arrow too, although no pandas is used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
        yield


def _each(rows: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        for data in batch.column("task"):
            yield from work(pickle.loads(data.as_py()))


def run_now(frame: DataFrame) -> pa.Table:
    """Run the work, and return its rows in the driver's memory: about one for each segment.

    Raises
    ------
    KafkalogError
        A task returned it in the column `error`.
    """
    with _quiet():
        table = frame.toArrow()
    if "error" in table.schema.names:
        for data in table.column("error").drop_null()[:1]:
            raise pickle.loads(data.as_py())
        table = table.drop_columns(["error"])
    return table


def batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a record batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as rows of `FINDING`."""
    return [finding.as_dict() for finding in findings]


def findings_of(rows: Iterable[Mapping[str, Any]] | None) -> list[Finding]:
    """Return rows of `FINDING` as findings."""
    return [Finding(**{**row, "reason": Reason(row["reason"])}) for row in rows or ()]


def add_findings(findings: Findings, of_task: Findings) -> None:
    """Add the findings of a task to those of the job; they are about other directories than these."""
    kept = of_task.rows[: max(findings.limit - len(findings.rows), 0)]
    findings.rows += kept
    findings.n_more += of_task.n_more + len(of_task.rows) - len(kept)
    findings.n_damage += of_task.n_damage
    findings.losses.update(of_task.losses)


def error_data(error: KafkalogError) -> bytes:
    """Pickle an error for the column `error`: if the task raised it, Spark would retry, and fail again."""
    return pickle.dumps(error)


def pack(sizes: Sequence[int], most: int) -> list[int]:
    """Group neighbours so that a group has at most `most` bytes, unless one alone has more; return group numbers."""
    numbers: list[int] = []
    number, total = 0, 0
    for size in sizes:
        if numbers and total + size > most:
            number, total = number + 1, 0
        numbers.append(number)
        total += size
    return numbers
