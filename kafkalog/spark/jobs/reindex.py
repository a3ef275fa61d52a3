"""`kafkalog.reindex` as a Spark job: executors read the segments, then make the files of each partition.

A task reads the batches of each segment, which is the expensive part, and keeps the result in the job's directory.
Then a task does what needs the segments of a partition in order: producers, aborted transactions, leader epochs, and
the point at which damage ends a recovery. The driver moves the files into place.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits, UnsafePathError, WriteError
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import RecoveredSegment, recover
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.choosing import Chosen, check_paths, choose
from kafkalog.operations.rebuilding.index_interval import IndexInterval, index_interval, max_index_bytes
from kafkalog.operations.rebuilding.rebuilder import Rebuilder, is_replayed
from kafkalog.operations.rebuilding.reindex import DEFAULT_KINDS, check_options
from kafkalog.operations.rebuilding.report import Damaged, RebuildReport
from kafkalog.operations.rebuilding.target import DryRun, InPlace, OutputDirectory, Target
from kafkalog.parsing import parse_milliseconds
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.jobs.findings import FOUND_FIELDS, PLACE_FIELDS, finding_rows
from kafkalog.spark.runner import (
    Piece,
    absolute,
    files_of,
    frame_of,
    job_directory,
    publish,
    results,
    task_directory,
)
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.output_paths import staging_directory
from kafkalog.storage.staging import staged_directory
from kafkalog.survey.startup import Kind

_FILE: Final = pa.struct(
    [
        ("path", pa.string()),
        ("kind", pa.string()),
        ("n_entries", pa.int64()),
        ("n_bytes", pa.int64()),
        ("change", pa.string()),
        ("backup", pa.string()),
    ]
)
SCHEMA: Final = pa.schema(
    [
        *PLACE_FIELDS,
        pa.field("size_in_bytes", pa.int64()),
        pa.field("index_interval_bytes", pa.int64()),
        pa.field("interval_origin", pa.string()),
        pa.field("files", pa.list_(_FILE)),
        pa.field("skipped", pa.list_(pa.struct([(name, pa.string()) for name in ("path", "kind", "why")]))),
        *FOUND_FIELDS,
    ]
)


class _Whole(NamedTuple):
    """A partition, and what its task needs."""

    partition: Partition
    interval: IndexInterval
    max_index_bytes: int
    read: list[str | None]
    """Files with what was read of each segment, None if that failed; empty if the task itself reads the segments."""


@dataclass(frozen=True, slots=True)
class _Writing:
    """Which files to write, and where."""

    kinds: frozenset[str]
    job: Path | None
    in_place: bool
    damaged: Damaged
    now_ms: int | None
    limits: Limits


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
    now: int | datetime | None = None,
    task_bytes: int = 4 * TASK_BYTES,
    limits: Limits = DEFAULT_LIMITS,
) -> DataFrame:
    """Rebuild the derived files of partitions, byte for byte as a broker's recovery does; runs before it returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path, kinds, output, in_place, backup, damaged, index_interval_bytes, topics, partitions, dry_run, now, limits
        See `kafkalog.reindex`. The driver holds the locks of log dirs and partitions. A dry run reads each partition in
        one task.
    task_bytes : int
        About how many bytes of `.log` files a task reads; at least one segment.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: path, topic, partition, size_in_bytes, index_interval_bytes, interval_origin, files
        (the fields of `kafkalog.RebuildReport.files`), skipped, findings, seconds.

    Raises
    ------
    KafkalogError, ValueError
        See `kafkalog.reindex`.

    Examples
    --------
    >>> kafkalog.spark.reindex(spark, "/backup/kafka", in_place=True).show()  # doctest: +SKIP
    """
    wanted = check_options(kinds, output=output, in_place=in_place, backup=backup, damaged=damaged, dry_run=dry_run)
    opened, found = _choose(absolute(path), topics, partitions, limits)
    roots, chosen = check_paths(opened, found, output=output, dry_run=dry_run), [one.partition for one in found]
    now_ms = None if now is None else parse_milliseconds("now", now)
    with contextlib.ExitStack() as stack:
        writes = not dry_run and bool(chosen)
        if in_place and writes:
            stack.enter_context(hold_locks(roots))
            stack.enter_context(hold_partitions(one.path for one in chosen))
        job = stack.enter_context(_job_directory(output, roots)) if writes else None
        wholes = _plan(spark, chosen, index_interval_bytes, task_bytes, limits)
        if job is not None:
            wholes = _read_segments(spark, wholes, job, task_bytes, with_producers=is_replayed(wanted))
        writing = _Writing(wanted, job, output is None, damaged, now_ms, limits)
        pieces = [Piece(one, one.partition.size_in_bytes, files_of(one.partition)) for one in wholes]
        rebuilt = results(spark, pieces, partial(_rebuild, writing), task_bytes=task_bytes)
        if output is not None and writes:
            staged = stack.enter_context(staged_directory(output))
            publish(staged, (file for directory, _ in rebuilt for file in _files_in(directory)))
        elif writes:
            _replace(rebuilt, InPlace(backup=backup is not False))
    return frame_of(spark, (row for _, row in rebuilt), SCHEMA)


def _choose(path: Any, topics: Any, partitions: Any, limits: Limits) -> tuple[LogDir | Partition, list[Chosen]]:
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    if isinstance(opened, Segment):
        raise ValueError(f"{opened.path} is one segment: a job is for partitions and log dirs")
    found = list(choose(opened, topics, partitions))
    if some := [one.partition.path for one in found if one.only is not None]:
        raise ValueError(f"segments of {some[0]} were named: a job is for partitions and log dirs")
    return opened, found


def _job_directory(output: Any, roots: Sequence[Path]) -> contextlib.AbstractContextManager[Path]:
    """The job's directory: next to the output, or to the first log dir if that can be."""
    if output is None:
        return job_directory(staging_directory(roots[0] / "any-0"), roots[0].name)
    target = Path(os.path.abspath(output))
    return job_directory(target.parent, target.name)


def _plan(
    spark: SparkSession, chosen: Sequence[Partition], given: int | None, task_bytes: int, limits: Limits
) -> list[_Whole]:
    """Find the settings of each partition; executors do, as that may need reading segments."""
    known: dict[Path, ClusterMetadata | None] = {}
    pieces = []
    for partition in chosen:
        root = partition.path.parent
        if given is None and root not in known:
            known[root] = read_cluster_metadata(root, limits=limits)
        # as without Spark, the cluster's metadata are not read if the interval is known
        pieces.append(Piece((partition, known.get(root), given), partition.size_in_bytes, files_of(partition)))
    if given is None:
        return results(spark, pieces, _find_settings, task_bytes=task_bytes)
    return [_find_settings(piece.value) for piece in pieces]


def _find_settings(about: tuple[Partition, ClusterMetadata | None, int | None]) -> _Whole:
    partition, known, given = about
    interval = index_interval(partition, known) if given is None else IndexInterval(given, "given")
    return _Whole(partition, interval, max_index_bytes(partition, known), [])


def _read_segments(
    spark: SparkSession, wholes: Sequence[_Whole], job: Path, task_bytes: int, *, with_producers: bool
) -> list[_Whole]:
    pieces = [
        Piece((segment, whole.interval.n_bytes), segment.size_in_bytes, files_of(segment))
        for whole in wholes
        for segment in whole.partition.segments
    ]
    function = partial(_read, job, with_producers=with_producers)
    found = iter(results(spark, pieces, function, task_bytes=task_bytes))
    return [whole._replace(read=[next(found) for _ in whole.partition.segments]) for whole in wholes]


def _read(job: Path, about: tuple[Segment, int], *, with_producers: bool) -> str | None:
    segment, interval = about
    try:
        found = recover(segment, interval, with_producers=with_producers)
    except KafkalogError:
        # the task of the partition reads the segment again, and decides what the error means
        return None
    with task_directory(job) as directory, directory.create("read") as file:
        file.write(pickle.dumps(found))
    return str(directory.path / "read")


def _rebuild(writing: _Writing, whole: _Whole) -> tuple[Path | None, dict[str, Any]]:
    """Make the files of a partition; return their directory, and the result row."""
    report = RebuildReport()
    start = time.monotonic()
    path = None
    read = {segment.base_offset: one for segment, one in zip(whole.partition.segments, whole.read, strict=False)}

    def cached(segment: Segment, interval: int, with_producers: bool) -> RecoveredSegment:
        one = read.get(segment.base_offset)
        if one is None:
            return recover(segment, interval, with_producers=with_producers)
        found: RecoveredSegment = pickle.loads(Path(one).read_bytes())
        found.segment = segment
        return found

    with contextlib.ExitStack() as stack:
        target: Target = DryRun()
        if writing.job is not None:
            directory = stack.enter_context(task_directory(writing.job))
            path, target = directory.path, OutputDirectory(directory)
        rebuilder = Rebuilder(
            report, target, is_in_place=writing.in_place, damaged=writing.damaged, limits=writing.limits, read=cached
        )
        work = rebuilder.plan(whole.partition, None, writing.kinds, whole.interval, writing.now_ms)
        work.max_index_bytes = whole.max_index_bytes
        rebuilder.run([work], 1)
    return path, _row(whole, report, time.monotonic() - start)


def _files_in(directory: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(directory.glob("*/*")):
        yield str(path), str(path.relative_to(directory))


def _replace(rebuilt: Sequence[tuple[Path, dict[str, Any]]], target: InPlace) -> None:
    """Replace the files that have changed, and add their backups to the rows.

    Raises
    ------
    WriteError, UnsafePathError
        A file could not be written; all other partitions are done.
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
        failed[0].add_note("all that could be written is in place; run it again for the rest, once the cause is gone")
        raise failed[0]


def _row(whole: _Whole, report: RebuildReport, seconds: float) -> dict[str, Any]:
    key = whole.partition.topic_partition
    return {
        "path": str(whole.partition.path),
        "topic": None if key is None else key.topic,
        "partition": None if key is None else key.partition,
        "size_in_bytes": whole.partition.size_in_bytes,
        "index_interval_bytes": whole.interval.n_bytes,
        "interval_origin": whole.interval.origin,
        "files": [file.as_dict() for file in report.files],
        "skipped": [asdict(one) for one in report.skipped],
        "findings": finding_rows(report.findings.rows),
        "seconds": seconds,
    }
