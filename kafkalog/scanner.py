"""A scan: which records of which partitions, as which columns; nothing is read until it is asked for.

Windows of segments are planned by one thread and decoded by several, and come out in order: by topic, partition and
offset. What is in memory at once is a few windows and what was decoded out of them, whatever the size of the files.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, cast

import numpy as np
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.arrow import (
    ALL_COLUMNS,
    CONTEXT_COLUMNS,
    DEFAULT_COLUMNS,
    ArrowWriter,
    check_binary_type,
    columns_needed,
    extend_schema,
    record_schema,
)
from kafkalog.batches import WINDOW_BYTES, BatchTable
from kafkalog.columns import BinaryColumn, Column, RecordColumns
from kafkalog.compiled import Extract, Where
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionWarning,
    Finding,
    Findings,
    FunctionWarning,
    KafkalogError,
    Limits,
    Reason,
)
from kafkalog.expressions import Residual, is_expression
from kafkalog.log_dir import LogDir, open_path
from kafkalog.partition import OnCorruption, Partition, Piece
from kafkalog.predicates import Filter, Filters, milliseconds, parse_filters
from kafkalog.records import Decoded, decode
from kafkalog.segment import Segment
from kafkalog.selection import Predicate, Selection, Trouble
from kafkalog.statistics import Explanation, ScanStatistics

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc

MAX_BATCH_BYTES: Final = 2**26
"""Record batches are cut before a column of key or value bytes grows beyond this, one record aside."""

_MIN_WINDOW_BYTES: Final = 2**20
_COMPRESSED_BYTES: Final = 2**19

Offsets = int | Mapping[kf.TopicPartition, int] | Mapping[tuple[str, int], int]
Timestamp = int | datetime


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


@dataclass(slots=True)
class _Failures:
    """On which records of a segment a function failed."""

    n: int
    first: list[int]
    last: int
    detail: str


_SHOWN_OFFSETS = 5


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
        filters: Filters | pc.Expression | None = None,
        where: Callable[..., Any] | None = None,
        extract: Mapping[str, tuple[Any, Callable[..., Any]]] | None = None,
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
        if isinstance(path, (LogDir, Partition, Segment)):
            self._target: LogDir | Partition | Segment = path
        else:
            self._target = open_path(path, memory_map=memory_map, limits=limits)
        self.columns = _check_columns(columns)
        self._extract = Extract(extract) if extract else None
        derived = {} if self._extract is None else self._extract.dtypes
        for name in derived:
            if name in ALL_COLUMNS:
                raise ValueError(f"extract[{name!r}]: records have a column of that name; choose another")
        self.schema = extend_schema(record_schema(self.columns, check_binary_type(binary_type)), derived)
        self._filter: Filter | None = None
        self._residual: Residual | None = None
        if is_expression(filters):
            self._residual = Residual(filters, extend_schema(record_schema(ALL_COLUMNS), derived))
        elif filters is not None:
            self._filter = parse_filters(filters, derived)
        self._where = None if where is None else Where(where)
        self._topics = None if topics is None else [topics] if isinstance(topics, str) else list(topics)
        self._partitions = (
            None if partitions is None else [partitions] if isinstance(partitions, int) else [*partitions]
        )
        self._start_offset = _check_offsets("start_offset", start_offset)
        self._end_offset = _check_offsets("end_offset", end_offset)
        self._start_timestamp = _milliseconds("start_timestamp", start_timestamp)
        self._end_timestamp = _milliseconds("end_timestamp", end_timestamp)
        self._include_control, self._include_deleted = bool(include_control), bool(include_deleted)
        self._on_corruption: OnCorruption = on_corruption
        self._check_crcs = bool(check_crcs)
        self._threads = _positive("threads", threads, os.cpu_count() or 1)
        self._batch_size = None if batch_size is None else _positive("batch_size", batch_size, 1)
        self._limits = limits
        self._found = Findings(limits.max_findings)
        self._statistics = ScanStatistics()
        self._troubles: dict[tuple[str, str], _Failures] = {}
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
        names = columns_needed(self._record_schema())
        writer: ArrowWriter | None = None
        segment: Segment | None = None
        for task, columns in self._decoded(names):
            if writer is None or task.piece.segment is not segment:
                self._report_header_keys(writer, segment)
                segment = task.piece.segment
                writer = ArrowWriter(self.schema, task.topic_partition, segment.path.name)
            del task
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
        derived = [name for name in self.schema.names if name not in ALL_COLUMNS]
        parts: list[RecordColumns] = []
        contexts: list[tuple[_Task, int]] = []
        for task, columns in self._decoded(names or ["offset"]):
            parts.append(columns)
            contexts.append((task, columns.n_records))
        records = RecordColumns.concatenate(parts) if parts else RecordColumns.empty(names or ["offset"])
        columns_out: dict[str, Column] = {}
        for name in (*self.columns, *derived):
            if name in CONTEXT_COLUMNS:
                columns_out[name] = _context_column(name, contexts)
            elif name in records:
                columns_out[name] = records[name]
            else:  # derived, and there was not one record
                columns_out[name] = np.empty(0, self.schema.field(name).type.to_pandas_dtype())
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

    def explain(self, *, analyze: bool = False) -> Explanation:
        """What is ruled out where: partitions, segments, batches, and with `analyze` records.

        Parameters
        ----------
        analyze : bool
            Decode, too, and count records; else batch headers are walked and no more.
        """
        if analyze:
            self.count_rows()
        else:
            self._statistics = ScanStatistics()
            for event in self._plan(set()):
                if isinstance(event, KafkalogError) and self._on_corruption == "raise":
                    raise event
        conditions = self._conditions()
        if self._statistics.n_bytes_jumped and not conditions["bytes"]:
            conditions["bytes"].append("the log start offset by the offset index")
        return Explanation(conditions, self._statistics)

    def _conditions(self) -> dict[str, list[str]]:
        """What is judged at which level, as text."""
        levels: dict[str, list[str]] = {"partitions": [], "segments": [], "bytes": [], "batches": [], "records": []}
        for name, value in (("topics", self._topics), ("partitions", self._partitions)):
            if value is not None:
                levels["partitions"].append(f"{name}={value}")
        ranges: dict[str, Any] = {
            "start_offset": self._start_offset,
            "end_offset": self._end_offset,
            "start_timestamp": self._start_timestamp,
            "end_timestamp": self._end_timestamp,
        }
        if self._filter is not None:
            for name, bound in self._filter.bounds().items():
                if not isinstance(ranges[name], Mapping):
                    ranges[name] = (_smaller if name == "end_offset" else _larger)(ranges[name], bound)
        for name, bound in ranges.items():
            if bound is not None:
                text = f"{name}={bound}"
                levels["records"].append(text)
                if name != "end_timestamp":
                    levels["batches"].append(text)
                if name.endswith("offset"):
                    levels["segments"].append(text)
                if name == "start_offset":
                    levels["bytes"].append(f"{text} by the offset index")
        if not self._include_control:
            levels["batches"].append("no control batches")
        for predicate in (self._filter, self._where):
            if predicate is not None:
                levels["records"].append(str(predicate))
        if self._filter is not None:
            terms = [term for group in self._filter.groups for term in group]
            levels["partitions"] += [str(term) for term in terms if term.column in ("topic", "partition")]
            levels["segments"] += [str(term) for term in terms if term.column == "segment"]
            levels["batches"] += [str(term) for term in terms if term.is_of_batch]
        if self._residual is not None:
            levels["records"].append(str(self._residual.expression))
        return levels

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

    def _selection(self, key: kf.TopicPartition | None, condition: Filter | None) -> Selection:
        bounds = {} if condition is None else condition.bounds()
        return Selection(
            _larger(_offset_of(self._start_offset, key), bounds.get("start_offset")),
            _smaller(_offset_of(self._end_offset, key), bounds.get("end_offset")),
            _larger(self._start_timestamp, bounds.get("start_timestamp")),
            self._end_timestamp,
            self._include_control,
            self._predicates(condition),
            self._extract,
        )

    def _predicates(self, condition: Filter | None) -> tuple[Predicate, ...]:
        parts = () if condition is None else condition.split()
        return (*parts, *(() if self._where is None else (self._where,)))

    def _bind(self, condition: Filter | None, **place: Any) -> tuple[bool, Filter | None]:
        """Whether anything in a place can match, and what is left to judge there."""
        if condition is None:
            return True, None
        bound = condition.bind(place)
        return bound is not None, None if bound is True else bound

    def _count_partitions(self) -> int:
        return len(self._target) if isinstance(self._target, LogDir) else 1

    def _record_schema(self) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name in ALL_COLUMNS])

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
        window_bytes = max(WINDOW_BYTES // self._threads, _MIN_WINDOW_BYTES)
        try:
            counts = self._statistics
            counts.n_partitions = self._count_partitions()
            for key, partition in self.partitions():
                topic, number = key or (None, None)
                possible, condition = self._bind(self._filter, topic=topic, partition=number)
                if not possible:
                    continue
                counts.n_partitions_read += 1
                selection = partition.effective(self._selection(key, condition), include_deleted=self._include_deleted)
                selections = {
                    segment.path: replace(selection, predicates=self._predicates(rest)) if condition else selection
                    for segment in partition.segments
                    for possible, rest in [self._bind(condition, segment=segment.path.name)]
                    if possible
                }
                found = list(partition.findings)
                pieces = partition.pieces(
                    selection,
                    on_corruption=self._on_corruption,
                    report=found.append,
                    window_bytes=window_bytes,
                    wanted=lambda segment, selections=selections: segment.path in selections,  # type: ignore[misc]
                    statistics=counts,
                )
                for piece in pieces:
                    while found:
                        yield _Found(partition, found.pop(0))
                    if id(partition) in stopped:
                        break
                    mine = selections[piece.segment.path]
                    mask = mine.batch_mask(piece.window.batches)
                    n_wanted = len(piece.window.batches) if mask is None else int(np.count_nonzero(mask))
                    counts.n_batches_decoded += n_wanted
                    if not n_wanted:
                        piece.source.release(piece.window.data, piece.window.start)
                        del piece
                        continue
                    for first, stop in _split(piece.window.batches):
                        yield _Task(piece, key, partition, mine, first, stop)
                    del piece  # the memory of a window serves the next one once nobody holds it
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
        )

    def _decoded(self, names: Sequence[str]) -> Iterator[tuple[_Task, RecordColumns]]:
        """Tasks and their columns, in order, decoded a few windows ahead by the threads.

        What the planner meets while earlier windows are still being decoded is raised or reported in its turn, so the
        number of threads changes nothing but the time.
        """
        self._found = Findings(self._limits.max_findings)
        self._statistics = ScanStatistics(n_records=0, n_records_selected=0)
        if self._residual is not None:
            record_schema = pa.schema([field for field in self._residual.schema if field.name in ALL_COLUMNS])
            names = list(dict.fromkeys([*names, *columns_needed(record_schema)]))
        if isinstance(self._target, LogDir):
            for finding in self._target.findings:
                self._report(finding)
        stopped: set[int] = set()
        plan = self._plan(stopped)
        waiting: deque[_Event] = deque()
        ahead = self._threads if self._threads > 1 else 0
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(self._threads, "kafkalog")) if ahead else None
            stack.callback(self._report_troubles)
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
                event = None

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
            self._statistics.n_records = (self._statistics.n_records or 0) + decoded.n_records
            self._note(task, decoded.troubles)
            columns = self._rest(task, decoded.columns)
            if columns is not None:
                self._statistics.n_records_selected = (self._statistics.n_records_selected or 0) + columns.n_records
                yield task, columns
                del columns
            if decoded.error is not None:
                self._meet(task, decoded.error, stopped)

    def _rest(self, task: _Task, columns: RecordColumns | None) -> RecordColumns | None:
        """What an expression leaves of records."""
        if self._residual is None or columns is None:
            return columns
        writer = ArrowWriter(self._residual.schema, task.topic_partition, task.piece.segment.path.name)
        rows = self._residual.rows(writer.batch(columns), columns.n_records)
        if rows.size == columns.n_records:
            return columns
        return columns.take(rows) if rows.size else None

    def _note(self, task: _Task, troubles: Sequence[Trouble]) -> None:
        """Add up where a caller's functions failed, by function and segment."""
        for trouble in troubles:
            key = (trouble.function, str(task.piece.segment.path))
            offsets = trouble.offsets.tolist()
            if key not in self._troubles:
                self._troubles[key] = _Failures(0, offsets[:_SHOWN_OFFSETS], offsets[-1], trouble.detail)
            known = self._troubles[key]
            room = _SHOWN_OFFSETS - len(known.first)
            known.first += offsets[:room] if known.n else []
            known.n += len(offsets)
            known.last = offsets[-1]

    def _report_troubles(self) -> None:
        for (function, path), failures in self._troubles.items():
            shown = ", ".join(map(str, failures.first)) + (", ..." if failures.n > len(failures.first) else "")
            finding = Finding(
                Reason.FUNCTION_ERROR,
                f"{function} failed on {failures.n} records (offsets {shown}); the first: {failures.detail}",
                path=path,
                base_offset=failures.first[0],
                last_offset=failures.last,
                damage=False,
            )
            self._found.add(finding)
            warnings.warn(str(finding), FunctionWarning, stacklevel=4)
        self._troubles = {}

    def _meet(self, task: _Task, error: KafkalogError, stopped: set[int]) -> None:
        if self._on_corruption == "raise":
            raise error
        if self._on_corruption == "stop":
            stopped.add(id(task.partition))
        self._report(error.to_finding())


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


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
    return None if value is None else milliseconds(name, value)


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
