"""`kafkalog.export` as a Spark job: each task writes its own files, and all appear together when all are written.

A task writes into a hidden directory that gets its final name when it is complete. A killed task therefore leaves
nothing visible, and finished tasks are recognised when the job is run again. The driver reads no records: it links the
tasks' files into one directory, adds a manifest, and publishes that directory last.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Unpack, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    Limits,
    OutputExistsError,
    Reason,
    WriteError,
)
from kafkalog.interchange.arrow_output import DEFAULT_COLUMNS, record_schema
from kafkalog.interchange.record_writers import OutputFormat
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.exporting.export import (
    MANIFEST,
    OutputOptions,
    check_keys,
    check_replaceable,
)
from kafkalog.operations.exporting.partitioned_files import PartitionedFiles, split_by_directory
from kafkalog.read_methods import RecordOptions, TaskOptions
from kafkalog.scanning.planning import TASK_BYTES, ReadTask, plan
from kafkalog.scanning.query import split_options
from kafkalog.scanning.tasks import plan_limits, read_task
from kafkalog.spark.jobs.finished_tasks import FinishedTasks, job_directory, key_of
from kafkalog.spark.jobs.scan import warn_of
from kafkalog.spark.jobs.tables import (
    FOUND_FIELDS,
    MAX_FINDINGS,
    PLACE_FIELDS,
    batch_of,
    error_data,
    finding_rows,
    frame_of,
    map_tasks,
    run_now,
)
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import StagedDirectory, staged_directory

SCHEMA: Final = pa.schema(
    [
        *PLACE_FIELDS,
        pa.field("status", pa.string()),
        pa.field("n_records", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        pa.field("files", pa.list_(pa.string())),
        *FOUND_FIELDS,
    ]
)
_RESULTS: Final = pa.schema(
    [("number", pa.int32()), ("key", pa.string()), ("result", pa.string()), ("error", pa.binary())]
)
_FILES: Final = "files"
_THREADS: Final = 8
_NOTHING: Final = {"n_records": 0, "size_in_bytes": 0, "seconds": 0.0}


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A task, and the number that its files have in their names."""

    number: int
    task: ReadTask


@dataclass(frozen=True, slots=True)
class _Writing:
    """The options of all tasks."""

    finished: FinishedTasks
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    options: OutputFormat
    reading: RecordOptions
    limits: Limits
    resume_key: str

    def key(self, task: ReadTask) -> str:
        """Return a hash of everything that the files of a task depend on."""
        paths = [f"{part.path}/{segment.name}" for part in task.parts for segment in part.segments]
        reading = {**self.reading, "where": self.resume_key if self.reading.get("where") else None}
        options = sorted(reading.items())
        return key_of("export", task, self.columns, self.keys, self.options, options, self.limits, files=paths)


class ExportJobOptions(OutputOptions, TaskOptions, total=False):
    """The keyword arguments of `export` that are those of `kafkalog.export`."""


def export(
    spark: SparkSession,
    path: Any,
    out: str | os.PathLike[str],
    *,
    task_bytes: int = 2 * TASK_BYTES,
    resume_key: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    report: Callable[[Finding], object] = lambda finding: None,
    **options: Unpack[ExportJobOptions],
) -> DataFrame:
    """Write records to a directory of files, all of them or nothing; the job runs before this returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        Must be the same on the driver and the executors.
    out : path-like
        The directory to make, on a file system that driver and executors share. It appears when everything is written.
    format, partition_by, columns, compression, row_group_rows, encoding, null, escape_formulas, overwrite
        See `kafkalog.export`. Without `partition_by` there is a file for each task, ``part-00000-0.parquet`` and so on.
    topics, partitions, start_offset, end_offset, start_timestamp, end_timestamp, filters, where, isolation_level, \
include_control, include_deleted, internal, on_corruption, check_crcs, use_time_index, latest
        See `kafkalog.scan`.
    task_bytes : int
        About how many bytes of `.log` files a task reads; this also sets the size of the files written.
    resume_key : str, optional
        Stands for `where`, whose code cannot be compared with that of an earlier run: give another one when the
        function changes. Without it a job with `where` does not resume.
    limits : Limits
    report : callable
        Called with each finding that is about no segment that is read, such as a partition that cannot be opened.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each segment: path, topic, partition, status ("written"; "resumed" if an earlier run wrote it;
        "present" if `out` already had this export), n_records, size_in_bytes (of the `.log` that was read), files,
        findings, seconds.

    Raises
    ------
    ValueError, TypeError
        An option is invalid.
    OutputExistsError
        The destination exists, and is not this export of the log as it is now.
    KafkalogError
        See `kafkalog.export`. The files of finished tasks are kept.

    Notes
    -----
    Files of finished tasks are kept beside `out`, in ``.NAME.kafkalog-job``, until the job has succeeded. A job that
    failed or was killed resumes from them when it is run again, if the options and the files of the log are the same.

    Examples
    --------
    >>> kafkalog.spark.export(spark, "/backup/kafka", "/lake/kafka", partition_by=["topic", "date"])  # doctest: +SKIP
    """
    scan: dict[str, Any] = {**options}
    output = {name: scan.pop(name) for name in OutputOptions.__annotations__ if name in scan}
    overwrite, keys = output.pop("overwrite", False), check_keys(output.pop("partition_by", ()))
    output_format = OutputFormat(output.pop("format", None) or "parquet", **output)
    planning, reading = split_options(cast(TaskOptions, scan))
    chosen = tuple(reading.pop("columns", None) or DEFAULT_COLUMNS)
    record_schema(chosen)
    if not set(chosen) - set(keys):
        raise ValueError("partition_by takes all the columns: nothing is left to write into the files")
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    check_outside(out, opened.paths if isinstance(opened, LogDir) else [opened.path])
    planned = plan(opened, task_bytes=task_bytes, limits=limits, **planning, **plan_limits(reading))
    warn_of(planned)
    for finding in planned.findings:
        report(finding)
    finished = FinishedTasks(str(job_directory(out)))
    writing = _Writing(finished, chosen, keys, output_format, reading, limits, resume_key or uuid4().hex)
    # covers options and files: the same export of the same log need not be made again
    fingerprint = key_of([writing.key(task) for task in planned.tasks])
    if os.path.lexists(out):
        # a job that died after it had published has nothing left to do
        rows = _present(Path(out), fingerprint)
        if rows is not None:
            return frame_of(spark, pa.Table.from_pylist(rows, SCHEMA))
        if not overwrite:
            detail = "it is there already, and not from this export of the log as it is now"
            error = OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=out)
            error.advise("overwrite=True replaces it")
            raise error
        check_replaceable(Path(out))

    def work(one: _Numbered) -> Iterator[pa.RecordBatch]:
        row: dict[str, Any] = {"number": one.number}
        try:
            row["key"], result = _export(one.task, writing)
            row["result"] = json.dumps(result)
        except KafkalogError as error:
            row["error"] = error_data(error)
        yield batch_of([row], _RESULTS)

    numbered = [_Numbered(number, task) for number, task in enumerate(planned.tasks)]
    # the tasks' files are removed only after `out` is published: after a crash in between the job can resume
    with finished.held():
        found = run_now(map_tasks(spark, numbered, work, _RESULTS)).sort_by("number").to_pylist()
        with staged_directory(out, overwrite=overwrite) as staged:
            rows = _collect(found, finished, staged)
            with staged.create(MANIFEST) as file:
                file.write(json.dumps({"fingerprint": fingerprint, "segments": rows}).encode())
    return frame_of(spark, pa.Table.from_pylist(rows, SCHEMA))


def _export(task: ReadTask, writing: _Writing) -> tuple[str, dict[str, Any]]:
    """Write the files of a task, unless an earlier run did; return the task's key and result."""
    key = writing.key(task)
    done: dict[str, Any] | None = writing.finished.find(key)
    place = writing.finished.make_directory(key)
    if done is not None and all(_has_size(place / _FILES / name, size) for name, size in done["files"].items()):
        return key, {**done, "status": "resumed"}
    # a second attempt of a task replaces the directory of the first one as a whole
    with staged_directory(place / _FILES, overwrite=True) as directory:
        segments = _write(task, writing, directory)
        directory.close()
        files = {
            str(path.relative_to(directory.path)): path.stat().st_size
            for path in sorted(directory.path.rglob("*"))
            if path.is_file()
        }
    result = {"status": "written", "segments": segments, "files": files}
    writing.finished.put(key, result)  # after the files: a result means that they are complete
    return key, result


def _write(task: ReadTask, writing: _Writing, directory: StagedDirectory) -> list[dict[str, Any]]:
    needed = ["timestamp" if name == "date" else name for name in writing.keys]
    columns = list(dict.fromkeys([*writing.columns, *needed, "topic", "partition", "segment"]))
    schema = record_schema(columns)
    written = pa.schema([schema.field(name) for name in writing.columns if name not in writing.keys])
    files = PartitionedFiles(directory, written, writing.options, writing.limits.max_directories)
    found: list[Finding] = []
    rows = _Rows(task)
    try:
        reading: RecordOptions = {**writing.reading, "columns": columns}
        for batch in read_task(task, report=found.append, limits=writing.limits, **reading):
            rows.add(batch)
            parts = split_by_directory(batch, writing.keys) if writing.keys else [(".", batch)]
            for name, part in parts:
                files.write(name, part)
        files.close()
    except BaseException:
        files.abandon()
        raise
    return rows.finish(found)


class _Rows:
    """Collects the result rows for the segments of a task."""

    def __init__(self, task: ReadTask) -> None:
        self._rows: dict[tuple[str | None, int | None, str], dict[str, Any]] = {}
        for part in task.parts:
            topic, number = part.topic_partition or (None, None)
            for segment in part.segments:
                self._rows[topic, number, segment.name] = {
                    "path": f"{part.path}/{segment.name}",
                    "topic": topic,
                    "partition": number,
                    "n_records": 0,
                    "size_in_bytes": segment.stop - segment.start,
                    "findings": [],
                    "seconds": 0.0,
                }
        self._since = time.monotonic()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch, which is of one segment, to its row: its records, and the time since the previous batch."""
        row = self._rows[tuple(batch.column(name)[0].as_py() for name in ("topic", "partition", "segment"))]
        now = time.monotonic()
        row["n_records"] += batch.num_rows
        row["seconds"] += now - self._since
        self._since = now

    def finish(self, findings: Sequence[Finding]) -> list[dict[str, Any]]:
        """Return all rows, with the findings added."""
        rows = list(self._rows.values())
        by_path = {row["path"]: row for row in rows}
        for finding in findings:
            stem = os.path.splitext(finding.path or "")[0]
            row = by_path.get(f"{stem}.log", rows[0])
            if len(row["findings"]) < MAX_FINDINGS:
                row["findings"] += finding_rows([finding])
        return rows


def _collect(found: Sequence[dict[str, Any]], finished: FinishedTasks, staged: StagedDirectory) -> list[dict[str, Any]]:
    """Link the tasks' files into the staged directory; return a row for each segment."""
    rows: dict[str, dict[str, Any]] = {}
    links: list[tuple[Path, Path]] = []
    for one in found:
        result = json.loads(one["result"])
        names = {}
        for name in result["files"]:
            folder, _, base = name.rpartition("/")
            names[name] = f"{folder}/" * bool(folder) + base.replace("part-", f"part-{one['number']:05d}-", 1)
            links.append((finished.make_directory(one["key"]) / _FILES / name, staged.path / names[name]))
        for segment in result["segments"]:
            row = rows.setdefault(segment["path"], {**segment, **_NOTHING, "files": [], "findings": []})
            for name in (*_NOTHING, "findings"):  # several tasks may have read parts of a large segment
                row[name] += segment[name]
            row["files"] += sorted(names.values()) if segment["n_records"] else []
            row["status"] = max(row.get("status", ""), result["status"])
    try:
        # a link takes a round trip on a network file system
        with ThreadPoolExecutor(_THREADS, "kafkalog-export") as pool:
            for folder in sorted({target.parent for _, target in links}):
                folder.mkdir(parents=True, exist_ok=True)
            for _ in pool.map(_link, links):
                pass
    except OSError as error:
        raise WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=staged.target) from error
    return list(rows.values())


def _link(names: tuple[Path, Path]) -> None:
    source, target = names
    try:
        os.link(source, target)
    except OSError:  # not every file system has hard links
        os.rename(source, target)


def _present(out: Path, fingerprint: str) -> list[dict[str, Any]] | None:
    """Return the rows of an existing export with the same fingerprint; else None."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        manifest = json.loads((out / MANIFEST).read_bytes())
        if manifest["fingerprint"] == fingerprint:
            return [{**row, "status": "present"} for row in manifest["segments"]]
    return None


def _has_size(path: Path, size: int) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == size
    return False
