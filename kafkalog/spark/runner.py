"""Runs a function for pieces of a log on executors, and publishes the files that its tasks write.

The driver plans pieces by bytes, and neighbours share a task. A task first opens each file that the driver has listed:
what it cannot see fails the job, since a function would report it as damage. A task writes into a directory of its own,
in the hidden directory of the job. The driver moves the files of the attempts whose results it has; those of killed and
repeated attempts are removed with the directory. Findings become rows of a DataFrame.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import secrets
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from kafkalog import format as kf
from kafkalog.errors import CorruptionWarning, Finding, KafkalogError, ReadError, Reason, WriteError
from kafkalog.log.log_dir import LogDir, located
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.result_kinds import arrow_types
from kafkalog.scanning.planning import Plan, ReadTask
from kafkalog.storage.atomic import remove_tree, writing
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import is_url
from kafkalog.storage.staging import StagedDirectory
from kafkalog.text import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS: Final = pa.schema([("number", pa.int32()), ("task", pa.binary())])
_RESULTS: Final = pa.schema([("number", pa.int32()), ("data", pa.binary()), ("error", pa.binary())])


@dataclass(frozen=True, slots=True)
class Piece:
    """What a function is called with."""

    value: Any
    n_bytes: int
    files: tuple[str, ...] = ()
    """Paths that the driver has listed, and that the task must be able to open."""


def run(
    spark: SparkSession,
    pieces: Sequence[Piece],
    function: Callable[[Any], Iterable[pa.RecordBatch]],
    schema: pa.Schema,
    *,
    task_bytes: int = 0,
) -> DataFrame:
    """Return the record batches that a function yields on executors, as a lazy DataFrame.

    Neighbours of together at most `task_bytes` share a task; by default each piece has one.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    tasks: list[list[Piece]] = []
    total = 0
    for piece in pieces:
        if not tasks or total + piece.n_bytes > task_bytes:
            tasks.append([])
            total = 0
        tasks[-1].append(piece)
        total += piece.n_bytes
    columns = [pa.array(range(len(tasks)), pa.int32()), pa.array(map(pickle.dumps, tasks), pa.binary())]
    load = shipped(functools.partial(_run_tasks, function))

    def body(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from load()(batches)

    frame = spark.createDataFrame(pa.Table.from_arrays(columns, schema=_TASKS))
    # by the number itself: a hash would put several tasks into one partition and leave others empty
    frame = frame.repartitionById(max(len(tasks), 1), "number")
    return frame.mapInArrow(body, from_arrow_schema(schema))


def _run_tasks(function: Callable[[Any], Iterable[Any]], batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    for batch in batches:
        for data in batch.column("task"):
            for piece in pickle.loads(data.as_py()):
                check_files(piece.files)
                yield from function(piece.value)


def results(
    spark: SparkSession, pieces: Sequence[Piece], function: Callable[[Any], Any], *, task_bytes: int
) -> list[Any]:
    """Run a function for pieces now, and return its results in the order of the pieces.

    Raises the first KafkalogError of a task; no task runs again for it. Any other error is Spark's.
    """

    def work(numbered: tuple[int, Piece]) -> Iterator[pa.RecordBatch]:
        number, piece = numbered
        row: dict[str, Any] = {"number": number}
        try:
            check_files(piece.files)
            row["data"] = pickle.dumps(function(piece.value))
        except KafkalogError as error:
            # as a row: an error that a task raises makes Spark run it three times again
            row["error"] = pickle.dumps(error)
        yield pa.RecordBatch.from_pylist([row], _RESULTS)

    numbered = [Piece(one, one[1].n_bytes) for one in enumerate(pieces)]
    found = run(spark, numbered, work, _RESULTS, task_bytes=task_bytes).toArrow().sort_by("number")
    for error in found["error"].drop_null()[:1]:
        raise pickle.loads(error.as_py())
    return [pickle.loads(data.as_py()) for data in found["data"]]


def frame_of(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> DataFrame:
    """Return rows of the driver as a DataFrame."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema))


def shipped(value: Any) -> Callable[[], Any]:
    """Return a function that returns a value on an executor, and needs no module; it explains what is missing there."""
    from pyspark import cloudpickle

    dumps: Any = cloudpickle.dumps  # has no type hints
    data = dumps(value)

    def load() -> Any:
        import pickle
        import socket

        try:
            return pickle.loads(data)
        except ImportError as error:
            name = (error.name or str(error)).partition(".")[0]
            how = f"ship it with spark.addArtifacts('{name}.py', pyfile=True) or spark.sparkContext.addPyFile"
            if name in ("kafkalog", "pyarrow", "numpy"):
                how = (
                    "install it on every node, or ship a packed environment (--archives env.tar.gz#env) and set"
                    " PYSPARK_PYTHON=env/bin/python"
                )
            raise ImportError(f"{socket.gethostname()} cannot import {name!r} ({error}): {how}") from None

    return load


def check_files(paths: Iterable[str]) -> None:
    """Open files that the driver has listed; a file that this machine cannot open is a ReadError, not a finding."""
    for path in paths:
        try:
            # without waiting for the writer of a FIFO
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            raise _unseen(path, error.strerror or str(error)) from None


def check_log_dirs(task: ReadTask) -> None:
    """Raise ReadError for a log dir that this machine does not have; an empty mount point is none.

    For tasks whose partitions or segments a broker may have deleted.
    """
    for root in sorted({os.path.dirname(part.path) for part in task.parts if not is_url(part.path)}):
        check_files([root])
        if not any(map(kf.parse_partition_directory, Listing(Path(root)).names)) and not any(
            os.path.isdir(part.path) for part in task.parts
        ):
            raise _unseen(root, "no partitions here")


def _unseen(path: str, why: str) -> ReadError:
    detail = (
        f"{socket.gethostname()} cannot open it ({why}), but the driver could: mount the log dir at this path on"
        " every node, or run the job again if a broker has deleted it"
    )
    return ReadError(Reason.FILE_UNREADABLE, detail, path=path)


def piece_of(one: Partition | Segment, *more: Any) -> Piece:
    """The piece of a partition or segment; its task must be able to open the files that the driver can open."""
    segments = [one] if isinstance(one, Segment) else one.segments
    place = one.path if isinstance(one, Partition) else one.path.parent
    if is_url(place):
        return Piece((one, *more), one.size_in_bytes)
    found = tuple(str(segment.path) for segment in segments if segment.error is None) or (str(place),)
    return Piece((one, *more), one.size_in_bytes, found)


def files_of_task(task: ReadTask) -> tuple[str, ...]:
    """The files that a planned task must be able to open; none of a store, as reading them tells."""
    local = [part for part in task.parts if not is_url(part.path)]
    return tuple(f"{part.path}/{segment.name}" for part in local for segment in part.segments)


def pieces_of(planned: Plan) -> list[Piece]:
    """The pieces of a plan; warns of damage that planning found, and of logs whose first segments are gone."""
    for finding in planned.findings:
        if finding.damage:
            warnings.warn(str(finding), CorruptionWarning, stacklevel=3)
    if starts := [one for one in planned.findings if one.reason is Reason.OFFSET_GAP and not one.damage]:
        more = f" The same is true of {counted(len(starts) - 1, 'other partition')}." if len(starts) > 1 else ""
        warnings.warn(
            f"{starts[0]}.{more} Name the remote storage of tiered topics (tiered=)", UserWarning, stacklevel=3
        )
    return [Piece(task, task.n_bytes, files_of_task(task)) for task in planned.tasks]


def absolute(path: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return paths, or those of what `kafkalog.open` returned, with absolute local paths: executors run elsewhere.

    A URL becomes a `Location`, which executors open with the credentials that they have.
    """
    if isinstance(path, (LogDir, Partition, Segment)):
        path = path.paths if isinstance(path, LogDir) else path.path
    if is_url(path) and not isinstance(path, str):
        return path  # the text of a location does not lead back to its store
    if not isinstance(path, (str, os.PathLike)):
        return [absolute(one, storage_options) for one in path]
    scheme, found, rest = os.fspath(path).partition(":")
    if found and scheme == "file":
        path = "/" + unquote(rest).lstrip("/")
    elif found and scheme in _MOUNTS and not is_url(path):
        mount = _MOUNTS[scheme] + "/" + rest.lstrip("/")
        raise ValueError(f"{path}: name the path where the file system is mounted on every node, such as {mount}")
    elif "*" in os.fspath(path):
        raise ValueError(f"{path}: not a pattern but a path is needed. Name the log dir, and choose topics by name")
    return located(path, storage_options) if is_url(path) else os.path.abspath(path)


_MOUNTS: Final = {"dbfs": "/dbfs", "hdfs": "/mnt/hdfs", "maprfs": "/mapr", "viewfs": "/mnt/hdfs"}
"""Schemes of Hadoop's file systems, and where these are often mounted."""


def make_task_directory(job: Path) -> Path:
    """Make a directory for one attempt of a task: Spark may run a task again, or twice at the same time."""
    path = job / f"task-{secrets.token_hex(8)}"
    try:
        path.mkdir()
    except OSError as error:
        detail = (
            f"{socket.gethostname()} cannot write there ({error.strerror}), but the driver could: driver and"
            " executors must share this file system. An attempt after the end of its job also fails"
        )
        raise WriteError(Reason.WRITE_FAILED, detail, path=job) from None
    return path


@contextlib.contextmanager
def task_directory(job: Path) -> Iterator[StagedDirectory]:
    """A directory for one attempt of a task; its files are durable when the block ends."""
    path = make_task_directory(job)
    staged = StagedDirectory(path, path)
    try:
        yield staged
        staged.close()
    except BaseException:
        staged.discard()
        remove_tree(path)
        raise


def publish(staged: StagedDirectory, files: Iterable[tuple[str, str]]) -> None:
    """Move files of tasks into the output of a job: pairs of their paths, and their names in the output."""
    with writing(staged.target):
        for path, name in files:
            target = staged.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target)


def row_type(result: type) -> pa.StructType:
    """Return the Arrow type of a class of results: numbers, booleans and text."""
    return pa.struct(list(arrow_types(result).items()))


PLACE_FIELDS: Final = (
    pa.field("path", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
)
FINDINGS_FIELD: Final = pa.field("findings", pa.list_(row_type(Finding)))

MAX_FINDINGS: Final = 100
"""The most findings kept for each segment by default; they are sent to the driver."""


def place_of(path: object, key: kf.TopicPartition | None) -> dict[str, Any]:
    """Return the values of `PLACE_FIELDS`."""
    topic, partition = (None, None) if key is None else (key.topic, key.partition)
    return {"path": None if path is None else str(path), "topic": topic, "partition": partition}
