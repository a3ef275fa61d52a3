"""A scan: which records of which partitions, as which columns; nothing is read until it is asked for.

Windows of segments are planned by one thread and decoded by several, and come out in order: by topic, partition and
offset. What is in memory at once is a few windows and what was decoded out of them, whatever the size of the files.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, cast

import numpy as np
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.arrow import (
    ALL_COLUMNS,
    CONTEXT_COLUMNS,
    DEFAULT_COLUMNS,
    ArrowWriter,
    arrow_memory,
    check_binary_type,
    columns_needed,
    record_schema,
)
from kafkalog.batches import WINDOW_BYTES, BatchTable
from kafkalog.errors import DEFAULT_LIMITS, CorruptionWarning, Finding, Findings, KafkalogError, Limits, Reason
from kafkalog.isolation import ISOLATION_LEVELS, IsolationLevel
from kafkalog.log_dir import LogDir, open_path
from kafkalog.partition import OnCorruption, Partition, Piece
from kafkalog.records import BinaryColumn, Column, Decoded, RecordColumns, Selection, decode
from kafkalog.segment import Segment
from kafkalog.source import SpareMemory

if TYPE_CHECKING:
    import pandas as pd

MAX_BATCH_BYTES: Final = 2**26
"""Record batches are cut before a column of key or value bytes grows beyond this, one record aside."""

_MIN_WINDOW_BYTES: Final = 2**20
_COMPRESSED_BYTES: Final = 2**19

Offsets = int | Mapping[kf.TopicPartition, int] | Mapping[tuple[str, int], int]
Timestamp = int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Task:
    """Batches of a window, on their way through the pool."""

    piece: Piece
    topic_partition: kf.TopicPartition | None
    partition: Partition
    selection: Selection
    first: int
    stop: int
    future: Future[Decoded] | None = None

    @property
    def is_last(self) -> bool:
        """Whether nothing of the window comes after these."""
        return self.stop == len(self.piece.window.batches)


class _Found(NamedTuple):
    """A finding, in its place among the tasks."""

    partition: Partition
    finding: Finding


_Event = _Task | _Found | KafkalogError


class Scan:
    """Records to come; made by `kafkalog.scan`.

    Each call reads the files anew. A scan is also anything that takes an Arrow stream's input:
    ``pa.table(scan)``, ``polars.DataFrame(scan)``, ``duckdb.sql("select ... from scan")``.

    Attributes
    ----------
    schema : pyarrow.Schema
    findings : list of Finding
        What the last pass found.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
        *,
        columns: Sequence[str] | None = None,
        topics: str | Sequence[str] | None = None,
        partitions: Sequence[int] | int | None = None,
        start_offset: Offsets | None = None,
        end_offset: Offsets | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        include_control: bool = False,
        include_deleted: bool = False,
        on_corruption: OnCorruption = "raise",
        check_crcs: bool = True,
        threads: int | None = None,
        batch_size: int | None = None,
        memory_map: bool | str = "auto",
        binary_type: pa.DataType | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if on_corruption not in ("raise", "stop", "skip"):
            raise ValueError(f"on_corruption must be 'raise', 'stop' or 'skip', not {on_corruption!r}")
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level must be 'read_uncommitted' or 'read_committed', not {isolation_level!r}")
        if isinstance(path, (LogDir, Partition, Segment)):
            self._target: LogDir | Partition | Segment = path
        else:
            self._target = open_path(path, memory_map=memory_map, limits=limits)
        self.columns = _check_columns(columns)
        self.schema = record_schema(self.columns, check_binary_type(binary_type))
        self._topics = None if topics is None else [topics] if isinstance(topics, str) else list(topics)
        self._partitions = (
            None if partitions is None else [partitions] if isinstance(partitions, int) else [*partitions]
        )
        self._start_offset = _check_offsets("start_offset", start_offset)
        self._end_offset = _check_offsets("end_offset", end_offset)
        self._start_timestamp = _milliseconds("start_timestamp", start_timestamp)
        self._end_timestamp = _milliseconds("end_timestamp", end_timestamp)
        self._include_control, self._include_deleted = bool(include_control), bool(include_deleted)
        self._isolation_level: IsolationLevel = isolation_level
        self._on_corruption: OnCorruption = on_corruption
        self._check_crcs = bool(check_crcs)
        self._threads = _positive("threads", threads, os.cpu_count() or 1)
        self._batch_size = None if batch_size is None else _positive("batch_size", batch_size, 1)
        self._limits = limits
        self._found = Findings(limits.max_findings)
        self._check_topics()

    def __repr__(self) -> str:
        return f"Scan({self._target!r}, columns={list(self.columns)})"

    @property
    def findings(self) -> list[Finding]:
        """What the last pass found: damage that was passed over, torn tails, odd header keys."""
        return list(self._found.rows)

    @property
    def n_damage(self) -> int:
        """How many findings of the last pass are damage, those beyond `Limits.max_findings` included."""
        return self._found.n_damage

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches as they are read; memory stays bounded.

        Raises
        ------
        KafkalogError
            On damage, unless `on_corruption` says otherwise. The batches before it have been handed out.
        """
        names = columns_needed(self.schema)
        writer: ArrowWriter | None = None
        segment: Segment | None = None
        for task, columns in self._decoded(names):
            if writer is None or task.piece.segment is not segment:
                self._report_header_keys(writer, segment)
                segment = task.piece.segment
                writer = ArrowWriter(self.schema, task.topic_partition, segment.path.name)
            for part in self._cut(columns):
                yield writer.batch(part)
        self._report_header_keys(writer, segment)

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as a `pyarrow.RecordBatchReader`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """All records as a `pyarrow.Table`."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All records as a `pandas.DataFrame`.

        Parameters
        ----------
        **options
            Of `pyarrow.Table.to_pandas`, and ``dtype_backend="pyarrow"``, which keeps Arrow's memory and types instead
            of making an object a cell.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("pandas is not installed: pip install 'kafkalog[pandas]'") from error
        backend = options.pop("dtype_backend", None)
        if backend not in (None, "pyarrow"):
            raise ValueError(f"dtype_backend must be 'pyarrow' or left out, not {backend!r}")
        if backend == "pyarrow":
            options.setdefault("types_mapper", pd.ArrowDtype)
        return self.to_table().to_pandas(**options)

    def to_numpy(self) -> RecordColumns:
        """All records as NumPy columns: see `kafkalog.RecordColumns`.

        `topic` and `segment` are arrays of str, `partition` an int32 array, -1 and "" for a `.log` that lies outside a
        topic-partition directory.
        """
        names = [name for name in self.columns if name not in CONTEXT_COLUMNS]
        parts: list[RecordColumns] = []
        contexts: list[tuple[_Task, int]] = []
        for task, columns in self._decoded(names or ["offset"]):
            parts.append(columns)
            contexts.append((task, columns.n_records))
        records = RecordColumns.concatenate(parts) if parts else RecordColumns.empty(names or ["offset"])
        columns_out: dict[str, Column] = {}
        for name in self.columns:
            columns_out[name] = _context_column(name, contexts) if name in CONTEXT_COLUMNS else records[name]
        return RecordColumns(records.n_records, columns_out)

    def head(self, n: int = 5) -> pa.Table:
        """The first records."""
        if n < 0:
            raise ValueError("n must not be negative")
        batches: list[pa.RecordBatch] = []
        left = n
        stream = self.to_batches()
        while left > 0:
            batch = next(stream, None)
            if batch is None:
                break
            batches.append(batch[:left])
            left -= len(batches[-1])
        cast(Any, stream).close()
        return pa.Table.from_batches(batches, self.schema)

    def count_rows(self) -> int:
        """How many records there are. They are walked and checked, not copied."""
        return sum(columns.n_records for _, columns in self._decoded(["offset"]))

    def partitions(self) -> Iterator[tuple[kf.TopicPartition | None, Partition]]:
        """The partitions that are read, in order."""
        if isinstance(self._target, Segment):
            segment = self._target
            yield segment.topic_partition, _lone_segment(segment)
        elif isinstance(self._target, Partition):
            if self._wanted(self._target.topic_partition):
                yield self._target.topic_partition, self._target
        else:
            for key in self._target:
                if self._wanted(key):
                    partition = self._target[key]
                    yield partition.topic_partition, partition

    def _wanted(self, key: kf.TopicPartition | None) -> bool:
        if key is None:
            return self._topics is None and self._partitions is None
        return (self._topics is None or key.topic in self._topics) and (
            self._partitions is None or key.partition in self._partitions
        )

    def _check_topics(self) -> None:
        if self._topics is None or not isinstance(self._target, LogDir):
            return
        known = set(self._target.topics)
        for topic in self._topics:
            if topic not in known:
                near = ", ".join(sorted(known)[:8]) + (", ..." if len(known) > 8 else "")
                raise ValueError(f"no topic {topic!r} here; there are {near or 'none'}")

    def _selection(self, key: kf.TopicPartition | None) -> Selection:
        return Selection(
            _offset_of(self._start_offset, key),
            _offset_of(self._end_offset, key),
            self._start_timestamp,
            self._end_timestamp,
            self._include_control,
        )

    def _cut(self, columns: RecordColumns) -> Iterator[RecordColumns]:
        """Slices of at most `batch_size` records and `MAX_BATCH_BYTES` of keys or values."""
        n = columns.n_records
        step = min(self._batch_size or n, n)
        size = max((column.data.size for column in columns.values() if isinstance(column, BinaryColumn)), default=0)
        if size <= MAX_BATCH_BYTES:
            if step == n:
                yield columns
                return
            for start in range(0, n, step):
                yield columns.slice(start, start + step)
            return
        start = 0
        while start < n:
            stop = min(start + step, n)
            for column in columns.values():
                if isinstance(column, BinaryColumn):
                    limit = column.offsets[start] + MAX_BATCH_BYTES
                    stop = min(stop, max(int(np.searchsorted(column.offsets, limit, side="right")) - 1, start + 1))
            yield columns.slice(start, stop)
            start = stop

    def _report(self, finding: Finding) -> None:
        self._found.add(finding)
        if finding.damage:
            warnings.warn(str(finding), CorruptionWarning, stacklevel=3)

    def _report_header_keys(self, writer: ArrowWriter | None, segment: Segment | None) -> None:
        if writer is not None and segment is not None and writer.n_bad_header_keys:
            detail = f"{writer.n_bad_header_keys} header keys are not UTF-8 and show U+FFFD; to_numpy() keeps the bytes"
            self._report(Finding(Reason.HEADER_KEY_UTF8, detail, path=str(segment.path), damage=False))

    def _plan(self, stopped: set[int]) -> Iterator[_Event]:
        """What there is to do, in order; an error ends it."""
        spare = SpareMemory()
        window_bytes = max(WINDOW_BYTES // self._threads, _MIN_WINDOW_BYTES)
        try:
            for key, partition in self.partitions():
                selection = partition.effective(self._selection(key), include_deleted=self._include_deleted)
                found = list(partition.findings)
                pieces = partition.pieces(
                    selection,
                    isolation_level=self._isolation_level,
                    on_corruption=self._on_corruption,
                    check_crcs=self._check_crcs,
                    report=found.append,
                    spare=spare,
                    window_bytes=window_bytes,
                )
                for piece in pieces:
                    while found:
                        yield _Found(partition, found.pop(0))
                    if id(partition) in stopped:
                        break
                    for first, stop in _split(piece.window.batches):
                        yield _Task(piece, key, partition, selection, first, stop)
                for finding in found:
                    yield _Found(partition, finding)
        except KafkalogError as error:
            yield error

    def _decode(self, task: _Task, names: Sequence[str]) -> Decoded:
        return decode(
            task.piece.window,
            names,
            first=task.first,
            stop=task.stop,
            selection=task.selection,
            check_crcs=self._check_crcs,
            limits=self._limits,
            path=str(task.piece.segment.path),
            allocate=arrow_memory,
        )

    def _decoded(self, names: Sequence[str]) -> Iterator[tuple[_Task, RecordColumns]]:
        """Tasks and their columns, in order, decoded a few windows ahead by the threads.

        What the planner meets while earlier windows are still being decoded is raised or reported in its turn, so the
        number of threads changes nothing but the time.
        """
        self._found = Findings(self._limits.max_findings)
        if isinstance(self._target, LogDir):
            for finding in self._target.findings:
                self._report(finding)
        stopped: set[int] = set()
        plan = self._plan(stopped)
        waiting: deque[_Event] = deque()
        ahead = self._threads if self._threads > 1 else 0
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(self._threads, "kafkalog")) if ahead else None
            stack.callback(lambda: [event.future.cancel() for event in waiting if _is_running(event)])
            while True:
                while len(waiting) <= ahead and (event := next(plan, None)) is not None:
                    if isinstance(event, _Task) and pool is not None:
                        event.future = pool.submit(self._decode, event, names)
                    waiting.append(event)
                if not waiting:
                    return
                event = waiting.popleft()
                if isinstance(event, KafkalogError):
                    raise event
                if isinstance(event, _Found):
                    if id(event.partition) not in stopped:
                        self._report(event.finding)
                    continue
                yield from self._finish(event, names, pool, stopped)
                if event.is_last:
                    event.piece.source.release(event.piece.window.data, event.piece.window.start)

    def _finish(
        self, task: _Task, names: Sequence[str], pool: ThreadPoolExecutor | None, stopped: set[int]
    ) -> Iterator[tuple[_Task, RecordColumns]]:
        """Hand out what a task decoded, and go on with what it left, until all of it is done."""
        while task.first < task.stop and id(task.partition) not in stopped:
            decoded = self._decode(task, names) if task.future is None else task.future.result()
            task.first += decoded.n_batches + (decoded.error is not None)
            task.future = None
            if pool is not None and task.first < task.stop:
                task.future = pool.submit(self._decode, task, names)
            if decoded.columns is not None:
                yield task, decoded.columns
            if decoded.error is not None:
                self._meet(task, decoded.error, stopped)

    def _meet(self, task: _Task, error: KafkalogError, stopped: set[int]) -> None:
        if self._on_corruption == "raise":
            raise error
        if self._on_corruption == "stop":
            stopped.add(id(task.partition))
        self._report(error.to_finding())


def _is_running(event: _Event) -> TypeGuard[Any]:
    return isinstance(event, _Task) and event.future is not None


def _split(batches: BatchTable) -> Iterator[tuple[int, int]]:
    """Rows of a window to decode at a time: all, or what of compressed batches several threads can share."""
    n = len(batches)
    if not np.bitwise_or.reduce(batches.attributes) & kf.CODEC_MASK:
        yield 0, n
        return
    share = (batches.position - batches.position[0]) // _COMPRESSED_BYTES
    first = 0
    for stop in [*(np.flatnonzero(np.diff(share)) + 1).tolist(), n]:
        yield first, stop
        first = stop


def _lone_segment(segment: Segment) -> Partition:
    """A partition of one segment, as if nothing else were there."""
    partition = Partition.__new__(Partition)
    partition.path = segment.path.parent
    partition.topic_partition = segment.topic_partition
    partition.kind = None
    partition.limits = segment.limits
    partition.findings = []
    partition.segments = [segment]
    partition.__dict__["log_start_offset"] = 0
    partition.__dict__["high_watermark"] = None
    return partition


def _check_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return DEFAULT_COLUMNS
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names, not a string; did you mean columns=[{columns!r}]?")
    for name in columns:
        if name not in ALL_COLUMNS:
            raise ValueError(f"no column {name!r}; there are {', '.join(ALL_COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise ValueError("columns names a column twice")
    return tuple(columns)


def _check_offsets(name: str, value: Offsets | None) -> int | dict[kf.TopicPartition, int] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {kf.TopicPartition(*key): _integer(name, offset) for key, offset in value.items()}
    return _integer(name, value)


def _offset_of(offsets: int | dict[kf.TopicPartition, int] | None, key: kf.TopicPartition | None) -> int | None:
    if isinstance(offsets, dict):
        return None if key is None else offsets.get(key)
    return offsets


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return int(value)


def _positive(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if _integer(name, value) < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return int(value)


def _milliseconds(name: str, value: Timestamp | None) -> int | None:
    if value is None or not isinstance(value, datetime):
        return None if value is None else _integer(name, value)
    if value.tzinfo is None:
        raise ValueError(f"{name} is a naive datetime; say which zone, such as datetime(..., tzinfo=timezone.utc)")
    microseconds = (value - _EPOCH) // timedelta(microseconds=1)
    return -(-microseconds // 1000)  # the first whole millisecond at or after it


def _context_column(name: str, contexts: Sequence[tuple[_Task, int]]) -> Column:
    counts = np.array([n for _, n in contexts], np.int64)
    if name == "partition":
        numbers = [-1 if task.topic_partition is None else task.topic_partition.partition for task, _ in contexts]
        return np.repeat(np.array(numbers, np.int32), counts)
    if name == "topic":
        names = ["" if task.topic_partition is None else task.topic_partition.topic for task, _ in contexts]
    else:
        names = [task.piece.segment.path.name for task, _ in contexts]
    return np.repeat(np.array(names, np.str_), counts)
