"""`kafkalog.reindex` as a Spark job: a task makes the files of whole partitions, and the driver moves them into place.

The segments of a partition stay together: producers, transactions, epochs and damage need them in order.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits, UnsafePathError, WriteError
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.partitions import ChosenPartition, check_paths, choose
from kafkalog.operations.rebuilding.rebuilder import RUN_AGAIN, Rebuilder
from kafkalog.operations.rebuilding.rebuilt_files import Damaged, RebuildReport, Skipped
from kafkalog.operations.rebuilding.reindex import DEFAULT_KINDS, check_options
from kafkalog.operations.rebuilding.target import DryRun, InPlace, OutputDirectory, RebuildTarget
from kafkalog.parsing import parse_milliseconds
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark import runner
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.listing import files_below
from kafkalog.storage.location import local_path
from kafkalog.storage.output_paths import staging_directory
from kafkalog.storage.staging import scratch_directory, staged_directory
from kafkalog.survey.startup import Kind, RebuiltFile
from kafkalog.survey.topics import TopicSettings

SCHEMA: Final = pa.schema(
    [
        *runner.PLACE_FIELDS,
        pa.field("size_in_bytes", pa.int64()),
        pa.field("index_interval_bytes", pa.int64()),
        pa.field("interval_origin", pa.string()),
        pa.field("files", pa.list_(runner.row_type(RebuiltFile))),
        pa.field("skipped", pa.list_(runner.row_type(Skipped))),
        runner.FINDINGS_FIELD,
    ]
)


def reindex(
    spark: SparkSession,
    path: Any,
    *,
    kinds: Iterable[Kind] | Kind = DEFAULT_KINDS,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: bool | None = None,
    damaged: Damaged = "keep",
    index_interval_bytes: int | None = None,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | None = None,
    dry_run: bool = False,
    now: int | str | datetime | None = None,
    task_bytes: int = 4 * TASK_BYTES,
    limits: Limits = DEFAULT_LIMITS,
) -> DataFrame:
    """Rebuild the derived files of partitions, byte for byte as a broker's recovery does; runs before it returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path, kinds, output, in_place, backup, damaged, index_interval_bytes, topics, partitions, dry_run, now, limits
        See `kafkalog.reindex`. The driver holds the locks of log dirs and partitions.
    task_bytes : int
        About how many bytes of `.log` files a task reads; at least one partition.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: path, topic, partition, size_in_bytes, index_interval_bytes, interval_origin, files
        (the fields of `kafkalog.RebuildReport.files`), skipped, findings.

    Examples
    --------
    >>> kafkalog.spark.reindex(spark, "/backup/kafka", in_place=True).show()  # doctest: +SKIP
    """
    wanted = check_options(kinds, output=output, in_place=in_place, backup=backup, damaged=damaged, dry_run=dry_run)
    opened, found = _choose(runner.absolute(path), topics, partitions, limits)
    roots, chosen = check_paths(opened, found, output=output, dry_run=dry_run), [one.partition for one in found]
    now_ms = None if now is None else parse_milliseconds("now", now)
    with contextlib.ExitStack() as stack:
        writes = not dry_run and bool(chosen)
        if in_place and writes:
            stack.enter_context(hold_locks(roots))
            stack.enter_context(hold_partitions(one.path for one in chosen))
        job = stack.enter_context(_job_directory(output, [local_path(root) for root in roots])) if writes else None
        how: dict[str, Any] = {"is_in_place": output is None, "damaged": damaged, "limits": limits}
        # the settings of topics: read once, and only to find index intervals
        parents = {one.path.parent for one in chosen} if index_interval_bytes is None else ()
        how["configs"] = {root: TopicSettings.of([root], limits=limits) for root in parents}
        work = partial(_rebuild, job, how, (wanted, index_interval_bytes, now_ms))
        rebuilt = runner.results(spark, [runner.piece_of(one) for one in chosen], work, task_bytes=task_bytes)
        if output is not None and writes:
            staged = stack.enter_context(staged_directory(output))
            runner.publish(staged, _files_in(directory for directory, _ in rebuilt))
        elif writes:
            _replace(rebuilt, InPlace(backup=backup is not False))
    return runner.frame_of(spark, (row for _, row in rebuilt), SCHEMA)


def _choose(
    path: Any, topics: Any, partitions: Any, limits: Limits
) -> tuple[LogDir | Partition, list[ChosenPartition]]:
    opened = open_path(path, limits=limits)
    if isinstance(opened, Segment):
        raise ValueError(f"{opened.path} is one segment; a job needs partitions or log dirs")
    found = list(choose(opened, topics, partitions))
    if some := [one.partition.path for one in found if one.only is not None]:
        raise ValueError(f"segments of {some[0]} are named; a job needs partitions or log dirs")
    return opened, found


def _job_directory(output: Any, roots: Sequence[Path]) -> contextlib.AbstractContextManager[Path]:
    """The job's directory: next to the output, or to the first log dir if that can be."""
    if output is None:
        return scratch_directory(staging_directory(roots[0] / "any-0"), roots[0].name)
    target = Path(os.path.abspath(output))
    return scratch_directory(target.parent, target.name)


def _rebuild(
    job: Path | None, how: dict[str, Any], what: tuple[Any, ...], about: tuple[Partition]
) -> tuple[Path | None, dict[str, Any]]:
    """Make the files of a partition; return their directory, and the result row."""
    (partition,), report, path = about, RebuildReport(), None
    with contextlib.ExitStack() as stack:
        target: RebuildTarget = DryRun()
        if job is not None:
            directory = stack.enter_context(runner.task_directory(job))
            path, target = directory.path, OutputDirectory(directory)
        rebuilder = Rebuilder(report, target, **how)
        rebuilder.run([rebuilder.plan(partition, None, *what)], 1)
    (interval,) = report.intervals.values()
    return path, {
        **runner.place_of(partition.path, partition.topic_partition),
        "size_in_bytes": partition.size_in_bytes,
        "index_interval_bytes": interval.n_bytes,
        "interval_origin": interval.origin,
        "files": [file.as_dict() for file in report.files],
        "skipped": [asdict(one) for one in report.skipped],
        "findings": [one.as_dict() for one in report.findings.rows],
    }


def _files_in(directories: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for one in directories:
        yield from ((str(one / name), name) for name in files_below(one))


def _replace(rebuilt: Sequence[tuple[Path, dict[str, Any]]], target: InPlace) -> None:
    """Replace the files that have changed, and add their backups to the rows.

    An error about a file is raised after all other partitions are done.
    """
    failed: list[KafkalogError] = []
    for directory, row in rebuilt:
        try:
            for file in row["files"]:
                path, backup = Path(file["path"]), None
                if file["change"] == "removed":
                    backup = target.remove(path)
                elif file["change"] != "same":
                    backup = target.put(path, (directory / path.parent.name / path.name).read_bytes())
                file["backup"] = None if backup is None else str(backup)
            target.sync()
        except (WriteError, UnsafePathError) as error:
            failed.append(error)
    if failed:
        failed[0].add_note(RUN_AGAIN)
        raise failed[0]
