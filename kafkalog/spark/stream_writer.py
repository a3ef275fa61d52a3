"""``df.writeStream.format("kafkalog")``: writes each micro-batch of a query exactly once, also after a restart.

A batch is identified by its query and its number. Both are recorded in the same step that publishes its records
(`kafkalog.writing.job_directories`). If Spark dies before it notes the commit in its checkpoint, it runs the batch
again, and the sink skips it. Tasks get query and number from their context; the driver gets them from the tasks'
messages.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalog.spark.sink_options import SinkOptions
from kafkalog.spark.source_options import local_path
from kafkalog.spark.writer import SinkMessage, SinkWriter, abandon, staged_by
from kafkalog.writing.job_commit import commit
from kafkalog.writing.job_directories import create_job, remove_job

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


class KafkaLogStreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.job_id is not None:
            raise ValueError("jobId is for batch jobs: a stream is identified by its query and its checkpoint")
        super().__init__(options, schema)
        self._token = secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Stage the rows of a task, unless the batch was committed before."""
        record = _this_batch()
        # the token tells attempts apart: files of one that died must not get into the commit of the next
        job = self._area.job(f"{_prefix(record['query'])}{record['batch']}-{self._token}")
        # Spark runs a batch again if it died between the sink's commit and its own
        if self._area.commits().has(record):
            return SinkMessage(str(job), [], record)
        create_job(job, self._owner)
        # a second attempt of a task may come after all others, and make anew what their commit removed; a commit after
        # this line removes it
        if self._area.commits().has(record):
            remove_job(job)
            return SinkMessage(str(job), [], record)
        staged = self._stage(iterator, job, sorts=self._options.preserve_offsets)
        return SinkMessage(str(job), staged, record)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the partitions that all tasks staged, and record that this batch is done."""
        told = [message for message in messages if isinstance(message, SinkMessage)]
        if not told:
            return  # a batch without tasks has no rows
        record = told[0].record
        assert record is not None
        commit(self._area, Path(told[0].job), staged_by(messages), record)
        for left in self._area.jobs(_prefix(record["query"])):
            remove_job(left)  # of attempts that failed: a query runs once at a time

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the job directories of this batch.

        Those that messages name, and all if the option `checkpointLocation` names a local directory, which has the id
        of the query. The next commit of the query removes any others.
        """
        jobs = {Path(message.job) for message in messages if isinstance(message, SinkMessage)}
        # tasks that were killed or failed send no message, and the driver is not told which query this is
        query = _query_of(self._options.checkpoint)
        if query is not None:
            jobs.update(self._area.jobs(f"{_prefix(query)}{batchId}-"))
        for job in jobs:
            abandon(self._area, job)


def _this_batch() -> dict[str, Any]:
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    batch = context.getLocalProperty(_BATCH) if context is not None else None
    if query is None or batch is None:
        raise RuntimeError("Spark does not say which batch of which query this is: it cannot be written exactly once")
    return {"query": query, "batch": int(batch)}


def _query_of(checkpoint: str | None) -> str | None:
    """The id of the query of a checkpoint location; None if it cannot be read here."""
    try:
        query = json.loads((Path(local_path(checkpoint or "")) / "metadata").read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return query if isinstance(query, str) else None


def _prefix(query: str) -> str:
    return f"job-{query.replace('-', '')}-"
