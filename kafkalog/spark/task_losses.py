"""Counts of the records and values that tasks lost, from executors to the driver.

A task of a reader returns rows and nothing else. Spark has one more channel: the logs of its Python workers, which it
collects if `spark.sql.pyspark.worker.logging.enabled` is true. A task that loses something logs one line of JSON.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalog.errors import UNREADABLE, Finding, Findings, Reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalog.scanning.planning import ReadTask

GONE: Final = (*UNREADABLE, Reason.PARTITION_REMOVED)
"""Reasons for which a query without `failOnDataLoss` skips a segment."""

_ENABLED: Final = "spark.sql.pyspark.worker.logging.enabled"
_LOGGER: Final = "kafkalog.spark.losses"
_PLACES: Final = {
    "query": "sql.streaming.queryId",
    "batch": "streaming.sql.batchId",
    "execution": "spark.sql.execution.id",
}
"""Spark's names of the properties of a task that say where it belongs."""


@dataclass(slots=True)
class TaskLosses:
    """What a task did not return."""

    task: ReadTask
    n_lost_records: int = 0
    n_skipped_segments: int = 0
    n_undecoded: int = 0
    n_nulls: int = 0
    _found: Findings = field(default_factory=lambda: Findings(0), repr=False)

    def add(self, finding: Finding) -> None:
        """Add a finding of the scan."""
        self.n_skipped_segments += finding.reason in GONE
        self._found.add(finding)
        self.n_lost_records = sum(loss.n_records for loss in self._found.losses.values())

    def log(self) -> None:
        """Log the counts in one line, with the place of the task in Spark, unless all are 0."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        if any(counts.values()):
            logging.getLogger(_LOGGER).warning("%s", json.dumps({**_place(), "begins": self._begins(), **counts}))

    def _begins(self) -> str:
        """The position where the task begins: a task of Spark runs several after `coalesce`."""
        first = self.task.parts[0]
        return str(first.path) + "".join(f"/{segment.name}@{segment.start}" for segment in first.segments[:1])


_COUNTS: Final = ("n_lost_records", "n_skipped_segments", "n_undecoded", "n_nulls")


def _place() -> dict[str, str | int]:
    """The streaming query and its batch, the execution, the stage and the task that run here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return {}
    given = {name: context.getLocalProperty(key) for name, key in _PLACES.items()}
    place: dict[str, str | int] = {
        name: int(text) if text.isdecimal() else text for name, text in given.items() if text is not None
    }
    return {**place, "stage": context.stageId(), "task": context.partitionId()}


def losses(spark: SparkSession) -> DataFrame:
    """Return what batch queries of the data source and of `scan` lost, counted on executors.

    Spark keeps the counts if ``spark.sql.pyspark.worker.logging.enabled`` was true when the query ran. Of streams it
    keeps none: their executors log the same counts, with the batch.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each execution that lost something: execution (its number in Spark's UI), n_lost_records (in damage),
        n_skipped_segments (deleted since the query was planned), n_undecoded (values that are null or whose records
        were left out) and n_nulls (values that Spark's types cannot hold).

    Raises
    ------
    ValueError
        The session does not collect the logs of workers.

    Examples
    --------
    >>> spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")  # doctest: +SKIP
    >>> frame = spark.read.format("kafkalog").option("onCorruption", "skip").load("/backup/kafka")  # doctest: +SKIP
    >>> frame.write.parquet("/lake/orders")  # doctest: +SKIP
    >>> kafkalog.spark.losses(spark).show()  # doctest: +SKIP
    """
    from pyspark.sql import functions as F

    if spark.conf.get(_ENABLED, "false") != "true":
        raise ValueError(f"Spark does not collect what executors lose: set {_ENABLED} to true before the query")
    place = ("execution", "stage", "task", "begins")
    schema = ", ".join([*(f"{name} bigint" for name in (*place[:-1], *_COUNTS)), "begins string"])
    logged = spark.tvf.python_worker_logs().where(F.col("logger") == _LOGGER)
    rows = logged.select(F.from_json("msg", schema).alias("row")).select("row.*")
    # an attempt that runs again counts once
    tasks = rows.groupBy(*place).agg(*(F.max(name).alias(name) for name in _COUNTS))
    return tasks.groupBy("execution").agg(*(F.sum(name).alias(name) for name in _COUNTS))
