"""`kafkalog.export` as a Spark job: each task writes its own files, and all appear together when all are written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Unpack, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits, OutputExistsError
from kafkalog.interchange.arrow_output import DEFAULT_COLUMNS, record_schema
from kafkalog.interchange.record_writers import OutputFormat
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.operations.exporting.export import OutputOptions, check_keys, check_replaceable
from kafkalog.operations.exporting.partitioned_files import PartitionedFiles, check_topics, split_by_directory
from kafkalog.scanning.options import RecordOptions, TaskOptions, split_options
from kafkalog.scanning.planning import TASK_BYTES, Plan, ReadTask, plan
from kafkalog.scanning.tasks import plan_limits, read_task
from kafkalog.spark import runner
from kafkalog.storage.listing import files_below
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import StagedDirectory, staged_directory

SCHEMA: Final = pa.schema(
    [
        pa.field("files", pa.list_(pa.string())),
        pa.field("n_records", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        runner.FINDINGS_FIELD,
    ]
)


class ExportJobOptions(OutputOptions, TaskOptions, total=False):
    """The keyword arguments of `export` that are those of `kafkalog.export`."""


def export(
    spark: SparkSession,
    path: Any,
    out: str | os.PathLike[str],
    *,
    task_bytes: int = 2 * TASK_BYTES,
    limits: Limits = DEFAULT_LIMITS,
    **options: Unpack[ExportJobOptions],
) -> DataFrame:
    """Write records to a directory of files, all of them or nothing; the job runs before this returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path
        See `kafkalog.export`.
    out : path-like
        The directory to make, on a file system that driver and executors share. It appears when everything is written.
    task_bytes : int
        About how many bytes of `.log` files a task reads; this also sets the size of the files written.
    limits : Limits
    **options
        See `kafkalog.export`. Without `partition_by` there is a file for each task, ``part-00000-0.parquet`` and so on.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each task: files, n_records, size_in_bytes (of the `.log` files that were read), findings. A row
        without files has the findings of the planning.

    Examples
    --------
    >>> kafkalog.spark.export(spark, "/backup/kafka", "/lake/kafka", partition_by=["topic", "date"])  # doctest: +SKIP
    """
    scan: dict[str, Any] = {**options}
    output = {name: scan.pop(name) for name in OutputOptions.__annotations__ if name in scan}
    overwrite, keys = output.pop("overwrite", False), check_keys(output.pop("partition_by", ()))
    output_format = OutputFormat(output.pop("format", None) or "parquet", **output)
    planning, reading = split_options(cast(TaskOptions, scan))
    columns = tuple(reading.pop("columns", None) or DEFAULT_COLUMNS)
    reading["columns"], written = _columns(columns, keys)
    opened, target = _places(path, out, limits, overwrite=overwrite)
    planned = plan(opened, task_bytes=task_bytes, limits=limits, **planning, **plan_limits(reading))
    if "topic" in keys:
        check_topics(_topics(planned))
    with runner.job_directory(target.parent, target.name) as job:
        work = partial(_export, job, (written, output_format, limits.max_directories), keys, reading, limits)
        done = runner.results(spark, runner.pieces_of(planned), work, task_bytes=0)
        with staged_directory(target, overwrite=overwrite) as staged:
            rows = [_publish(staged, number, *task) for number, task in enumerate(done)]
    if planned.findings:
        found = [one.as_dict() for one in planned.findings]
        rows.append({"files": [], "n_records": 0, "size_in_bytes": 0, "findings": found})
    return runner.frame_of(spark, rows, SCHEMA)


def _columns(columns: Sequence[str], keys: Sequence[str]) -> tuple[list[str], pa.Schema]:
    """Return the columns to read, and the schema of those that stand in the files."""
    needed = ["timestamp" if name == "date" else name for name in keys]
    read = list(dict.fromkeys([*columns, *needed, "topic", "partition", "segment"]))
    schema = record_schema(read)
    written = pa.schema([schema.field(name) for name in columns if name not in keys])
    if not written:
        raise ValueError("partition_by takes all the columns: nothing is left to write into the files")
    return read, written


def _topics(planned: Plan) -> set[str]:
    named = (part.topic_partition for task in planned.tasks for part in task.parts)
    return {key.topic for key in named if key is not None}


def _places(path: Any, out: str | os.PathLike[str], limits: Limits, *, overwrite: bool) -> tuple[Any, Path]:
    """Return what to read and the directory to make, before any task runs."""
    opened = open_path(runner.absolute(path), limits=limits)
    target = Path(os.path.abspath(out))
    check_outside(target, opened.paths if isinstance(opened, LogDir) else [opened.path])
    if overwrite:
        check_replaceable(target)
    elif os.path.lexists(target):
        error = OutputExistsError.at(target)
        error.advise("use overwrite=True to replace it")
        raise error
    return opened, target


def _export(
    job: Path, files: tuple[Any, ...], keys: Sequence[str], reading: RecordOptions, limits: Limits, task: ReadTask
) -> tuple[Path, dict[str, Any]]:
    """Write the files of a task; return their directory, and the result row."""
    found: list[Finding] = []
    with runner.task_directory(job) as directory:
        writer = PartitionedFiles(directory, *files)
        try:
            for batch in read_task(task, report=found.append, limits=limits, **reading):
                for name, part in split_by_directory(batch, keys):
                    writer.write(name, part)
            writer.close()
        except BaseException:
            writer.abandon()
            raise
    names = [*files_below(directory.path)]
    return directory.path, {
        "files": names,
        "n_records": writer.n_records,
        "size_in_bytes": task.n_bytes,
        "findings": [one.as_dict() for one in found[: runner.MAX_FINDINGS]],
    }


def _publish(staged: StagedDirectory, number: int, directory: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Move the files of a task into the output; their names get its number, since all tasks use the same."""
    targets = {name: f"-{number:05d}-".join(name.rsplit("-", 1)) for name in row["files"]}
    runner.publish(staged, ((str(directory / name), target) for name, target in targets.items()))
    return {**row, "files": list(targets.values())}
