"""`kafkalog.export` as a Spark job: each task writes its own files, and all appear together when all are written.

The driver plans, and commits once: it runs the `Exporter` of the command, whose parts are written by tasks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.operations.exporting.export import Exporter, ExportResult, OutputOptions
from kafkalog.operations.exporting.parts import DirectoryWriter, PartWriter, WrittenPart
from kafkalog.scanning.options import ScanOptions
from kafkalog.scanning.planning import TASK_BYTES, Plan, ReadTask
from kafkalog.scanning.scan import Scan
from kafkalog.spark import runner
from kafkalog.storage.listing import files_below
from kafkalog.storage.staging import StagedDirectory, scratch_directory
from kafkalog.storage.uploads import RemoteDirectory
from kafkalog.text import counted

SCHEMA: Final = pa.schema(
    [
        pa.field("files", pa.list_(pa.string())),
        pa.field("n_records", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        runner.FINDINGS_FIELD,
        pa.field("n_undecoded", pa.int64()),
        pa.field("n_lost_records", pa.int64()),
    ]
)

_LOG: Final = logging.getLogger("kafkalog.spark")


class ExportJobOptions(OutputOptions, ScanOptions, total=False):
    """The keyword arguments of `export` that are those of `kafkalog.export`."""


def export(
    spark: SparkSession,
    path: Any,
    out: Any,
    *,
    task_bytes: int = 2 * TASK_BYTES,
    **options: Unpack[ExportJobOptions],
) -> DataFrame:
    """Write records to a directory of files or a table, all of them or nothing; the job runs before this returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path
        See `kafkalog.export`. Log dirs and stores must be the same on the driver and the executors.
    out : path-like, str or pyiceberg.table.Table
        The directory to make, on a file system that driver and executors share; or the URL of one in an object store.
        With `resume`, it is one that earlier exports made. A table is named as in `kafkalog.export`.
    task_bytes : int
        About how many bytes of `.log` files a task reads; this also sets the size of the files written.
    **options
        See `kafkalog.export`, which continues a directory or a table that this job made with `resume`, and this job one
        of it. Without `partition_by` there is a file for each task, ``part-00000-0.parquet`` and so on.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each task: files, n_records, size_in_bytes (of the `.log` files that were read), findings, n_undecoded
        and n_lost_records. A row without files has the findings of the planning. The logger ``kafkalog.spark`` gets
        the totals.

    Examples
    --------
    >>> kafkalog.spark.export(spark, "/backup/kafka", "/lake/kafka", partition_by=["topic", "date"])  # doctest: +SKIP
    >>> kafkalog.spark.export(
    ...     spark, "s3://backup/kafka", "s3://lake/orders", format="delta", topics="orders", decode={"value": "json"},
    ...     partition_by=["date"], resume=True,
    ... )  # doctest: +SKIP
    """
    source = runner.absolute(path, options.get("storage_options"))
    to = out if options.get("format") == "iceberg" else runner.absolute(out, options.get("storage_options"))
    if options.get("format") == "delta":
        to = os.fspath(to)
    exporter = Exporter(source, to, is_directory=True, **options)
    cluster = _Cluster(spark, task_bytes)
    result = exporter.run(cluster)
    _report(to, result, cluster.parts)
    return runner.frame_of(spark, cluster.rows(result), SCHEMA)


class _Cluster:
    """Writes the parts of a scan in tasks of a session, and keeps what was written."""

    def __init__(self, spark: SparkSession, task_bytes: int) -> None:
        self._spark, self._task_bytes = spark, task_bytes
        self._planned = Plan([])
        self.parts: list[WrittenPart] = []

    def __call__(self, writer: PartWriter, scan: Scan) -> list[WrittenPart]:
        """Write the scan; see `kafkalog.operations.exporting.parts.Spread`."""
        self._planned = scan.tasks(self._task_bytes)
        # once for all tasks: it has the types of values, which the driver learned
        bare = scan.of_task(None)
        if isinstance(writer, DirectoryWriter) and isinstance(writer.directory, StagedDirectory):
            self.parts = self._moved(writer, writer.directory, bare)
        else:
            with _adopting(writer):
                self.parts = self._run(partial(_write, writer, bare))
        return self.parts

    def _moved(self, writer: DirectoryWriter, staged: StagedDirectory, scan: Scan) -> list[WrittenPart]:
        """Write to directories of the tasks, and move the files of those that count."""
        with scratch_directory(staged.target.parent, staged.target.name) as job:
            done = self._run(partial(_export, job, replace(writer, directory=None), scan))
            return [_publish(staged, number, *task) for number, task in enumerate(done)]

    def _run(self, work: Any) -> list[Any]:
        return runner.results(self._spark, runner.pieces_of(self._planned), work, task_bytes=0)

    def rows(self, result: ExportResult) -> list[dict[str, Any]]:
        """A row for each task, and one for what was found before and after them."""
        rows = [
            {
                "files": [*part.files],
                "n_records": part.n_records,
                "size_in_bytes": task.n_bytes,
                "findings": [one.as_dict() for one in part.findings],
                "n_undecoded": part.n_undecoded,
                "n_lost_records": part.n_lost_records,
            }
            for task, part in zip(self._planned.tasks, self.parts, strict=True)
        ]
        of_tasks = sum(len(part.findings) for part in self.parts)
        more = [*self._planned.findings, *result.findings[: len(result.findings) - of_tasks]]
        if more:
            nothing = dict.fromkeys(("n_records", "size_in_bytes", "n_undecoded", "n_lost_records"), 0)
            rows.append({"files": [], **nothing, "findings": [one.as_dict() for one in more]})
        return rows


@contextlib.contextmanager
def _adopting(writer: PartWriter) -> Iterator[None]:
    """After an error, let a directory in a store know what ended tasks wrote: their names were not returned."""
    try:
        yield
    except BaseException:
        if isinstance(writer, DirectoryWriter) and isinstance(writer.directory, RemoteDirectory):
            names = files_below(writer.directory.target.fresh())
            writer.directory.adopt(name for name in names if name.rpartition("/")[2].startswith(f"{writer.name}-"))
        raise


def _write(writer: PartWriter, scan: Scan, task: ReadTask) -> WrittenPart:
    """Write the files of a task where they count once they are committed."""
    if isinstance(writer, DirectoryWriter):
        # an attempt has names of its own, since Spark may run a task again, or twice at the same time
        writer = replace(writer, name=f"{writer.name}-{secrets.token_hex(4)}")
    return _shortened(writer.write(scan.of_task(task)))


def _export(job: Path, writer: DirectoryWriter, scan: Scan, task: ReadTask) -> tuple[Path, WrittenPart]:
    """Write the files of a task to a directory of its attempt; return both."""
    with runner.task_directory(job) as directory:
        part = replace(writer, directory=directory).write(scan.of_task(task))
    return directory.path, _shortened(part)


def _shortened(part: WrittenPart) -> WrittenPart:
    part.findings = part.findings[: runner.MAX_FINDINGS]
    return part


def _publish(staged: StagedDirectory, number: int, directory: Path, part: WrittenPart) -> WrittenPart:
    """Move the files of a task into the output; their names get its number, since all tasks use the same."""
    targets = {name: f"-{number:05d}-".join(name.rsplit("-", 1)) for name in part.files}
    runner.publish(staged, ((str(directory / name), target) for name, target in targets.items()))
    part.files = {targets[name]: size for name, size in part.files.items()}
    return part


def _report(to: Any, result: ExportResult, parts: list[WrittenPart]) -> None:
    """Log what was written, and what was lost or is null, in one line."""
    n_lost = sum(part.n_lost_records for part in parts)
    level = logging.WARNING if n_lost or result.n_undecoded else logging.INFO
    text = f"{counted(result.n_records, 'record')} in {counted(result.n_files, 'file')}"
    undecoded, lost = counted(result.n_undecoded, "undecoded value"), counted(n_lost, "lost record")
    _LOG.log(level, "export to %s: %s, %s, %s", to, text, undecoded, lost)
