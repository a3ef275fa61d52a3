"""One pass over partitions: windows of segments are planned by one thread, decoded by several, and come out in order.

By partition and offset. What is in memory at once is a few windows and what was decoded out of them, whatever the size
of the files. What the planner meets while earlier windows are still being decoded is raised or reported in its turn, so
the number of threads changes nothing but the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeGuard

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionWarning,
    Finding,
    Findings,
    FunctionWarning,
    KafkalogError,
    Limits,
    Reason,
    warn,
)
from kafkalog.interchange.arrow_output import ArrowWriter
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition, lone_segment
from kafkalog.log.scan_statistics import ScanStatistics
from kafkalog.log.segment import Segment
from kafkalog.log.segment_chain import Piece
from kafkalog.log.segment_stream import OnCorruption
from kafkalog.records.batch_table import WINDOW_BYTES, BatchTable
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import Decoded, decode
from kafkalog.records.selection import Predicate, Selection, Trouble
from kafkalog.scanning.expressions import Residual
from kafkalog.scanning.filters import Filter
from kafkalog.scanning.user_functions import Extract, Where
from kafkalog.state.read_committed import IsolationLevel

_MIN_WINDOW_BYTES: Final = 2**20
_COMPRESSED_BYTES: Final = 2**19
_SHOWN_OFFSETS: Final = 5
_STEP_BEHIND_DAMAGE: Final = 8
_ALL: Final = 2**31


@dataclass(frozen=True, slots=True)
class Query:
    """What is wanted of what, checked and in the types that the layers below take.

    Attributes
    ----------
    target : LogDir or Partition or Segment
    topics, partitions : list or None
    start_offset, end_offset : int, dict of TopicPartition to int, or None
    start_timestamp, end_timestamp : int or None
        Milliseconds.
    filter : Filter or None
    where : Where or None
    extract : Extract or None
    residual : Residual or None
        Judged on decoded columns.
    """

    target: LogDir | Partition | Segment
    topics: Sequence[str] | None = None
    partitions: Sequence[int] | None = None
    start_offset: int | Mapping[kf.TopicPartition, int] | None = None
    end_offset: int | Mapping[kf.TopicPartition, int] | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    filter: Filter | None = None
    where: Where | None = None
    extract: Extract | None = None
    residual: Residual | None = None
    isolation_level: IsolationLevel = "read_uncommitted"
    include_control: bool = False
    include_deleted: bool = False
    on_corruption: OnCorruption = "raise"
    check_crcs: bool = True
    threads: int = 1
    limits: Limits = DEFAULT_LIMITS

    @property
    def n_partitions(self) -> int:
        """How many there are, wanted or not."""
        return len(self.target) if isinstance(self.target, LogDir) else 1

    def iter_partitions(self) -> Iterator[Partition | KafkalogError]:
        """The partitions that topics and numbers leave, in order, or why one cannot be opened."""
        if isinstance(self.target, (Segment, Partition)):
            if self._names(self.target.topic_partition):
                yield lone_segment(self.target) if isinstance(self.target, Segment) else self.target
            return
        for key in self.target:
            if self._names(key):
                try:
                    yield self.target[key]
                except KafkalogError as error:
                    yield error

    def _names(self, key: kf.TopicPartition | None) -> bool:
        if key is None:
            return self.topics is None and self.partitions is None
        return (self.topics is None or key.topic in self.topics) and (
            self.partitions is None or key.partition in self.partitions
        )

    def selections(self, partition: Partition) -> tuple[Selection, dict[Segment, Selection]] | None:
        """What to select of a partition and of each of its segments; None, or no entry, where nothing can match."""
        key = partition.topic_partition
        topic, number = key or (None, None)
        possible, condition = _bind(self.filter, topic=topic, partition=number)
        if not possible:
            return None
        bounds = {} if condition is None else condition.bounds()
        selection = Selection(
            _larger(_offset_of(self.start_offset, key), bounds.get("start_offset")),
            _smaller(_offset_of(self.end_offset, key), bounds.get("end_offset")),
            _larger(self.start_timestamp, bounds.get("start_timestamp")),
            self.end_timestamp,
            self.include_control,
            self._predicates(condition),
            self.extract,
        )
        selection = partition.effective(selection, include_deleted=self.include_deleted)
        mine = {}
        for segment in partition.segments:
            possible, rest = _bind(condition, segment=segment.path.name)
            if possible:
                mine[segment] = replace(selection, predicates=self._predicates(rest))
        return selection, mine

    def _predicates(self, condition: Filter | None) -> tuple[Predicate, ...]:
        parts = () if condition is None else condition.split()
        return (*parts, *(() if self.where is None else (self.where,)))

    def conditions(self) -> dict[str, list[str]]:
        """What is judged at which level, as text."""
        levels: dict[str, list[str]] = {"partitions": [], "segments": [], "bytes": [], "batches": [], "records": []}
        for name, value in (("topics", self.topics), ("partitions", self.partitions)):
            if value is not None:
                levels["partitions"].append(f"{name}={value}")
        ranges: dict[str, Any] = {
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "start_timestamp": self.start_timestamp,
            "end_timestamp": self.end_timestamp,
        }
        if self.filter is not None:
            for name, bound in self.filter.bounds().items():
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
        if self.isolation_level == "read_committed":
            levels["batches"].append("read_committed")
        if not self.include_control:
            levels["batches"].append("no control batches")
        for predicate in (self.filter, self.where):
            if predicate is not None:
                levels["records"].append(str(predicate))
        if self.filter is not None:
            terms = [term for group in self.filter.groups for term in group]
            levels["partitions"] += [str(term) for term in terms if term.column in ("topic", "partition")]
            levels["segments"] += [str(term) for term in terms if term.column == "segment"]
            levels["batches"] += [str(term) for term in terms if term.is_of_batch]
        if self.residual is not None:
            levels["records"].append(str(self.residual.expression))
        return levels


def _bind(condition: Filter | None, **place: Any) -> tuple[bool, Filter | None]:
    """Whether anything in a place can match, and what is left to judge there."""
    if condition is None:
        return True, None
    bound = condition.bind(place)
    return bound is not None, None if bound is True else bound


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _offset_of(offsets: int | Mapping[kf.TopicPartition, int] | None, key: kf.TopicPartition | None) -> int | None:
    if isinstance(offsets, Mapping):
        return None if key is None else offsets.get(key)
    return offsets


@dataclass(slots=True)
class Task:
    """Batches of a window, on their way through the pool."""

    piece: Piece
    partition: Partition
    selection: Selection
    first: int
    stop: int
    step: int = _ALL
    """Most batches to decode in one call: few behind damage, where more may be near."""
    future: Future[Decoded] | None = None

    @property
    def is_last(self) -> bool:
        """Whether nothing of the window comes after these."""
        return self.stop == len(self.piece.window.batches)


class _Found(NamedTuple):
    """A finding, in its place among the tasks."""

    partition: Partition | None
    finding: Finding


_Event = Task | _Found | KafkalogError


@dataclass(slots=True)
class _Failures:
    """On which records of a segment a function failed."""

    n: int
    first: list[int]
    last: int
    detail: str


class Pass:
    """One run of a query.

    Parameters
    ----------
    query : Query
    progress : callable, optional
        Told how many more bytes of `.log` files are done.

    Attributes
    ----------
    findings : Findings
        What was found so far.
    statistics : ScanStatistics
        What was read so far.
    """

    def __init__(self, query: Query, progress: Callable[[int], object] | None = None) -> None:
        self.query = query
        self.progress = progress or (lambda n_bytes: None)
        self.findings = Findings(query.limits.max_findings)
        self.statistics = ScanStatistics(n_partitions=query.n_partitions)
        self._stopped: set[int] = set()
        self._failures: dict[tuple[str, str], _Failures] = {}

    def report(self, finding: Finding) -> None:
        """Keep a finding, and warn of damage."""
        self.findings.add(finding)
        if finding.damage:
            warn(finding, CorruptionWarning)

    def walk(self) -> None:
        """Walk batch headers and decode nothing; for the statistics.

        Raises
        ------
        KafkalogError
            As `run`.
        """
        for event in self._plan():
            if isinstance(event, KafkalogError):
                raise event

    def run(self, names: Sequence[str]) -> Iterator[tuple[Task, RecordColumns]]:
        """Columns of the wanted records as they are decoded, never empty, with the task they come from.

        Parameters
        ----------
        names : sequence of str
            Columns to decode; derived ones come in addition, and those that the residual reads.

        Raises
        ------
        KafkalogError
            On damage, unless `on_corruption` says otherwise; all before it was handed out.
        """
        query = self.query
        self.statistics.n_records = self.statistics.n_records_selected = 0
        if query.residual is not None:
            names = list(dict.fromkeys([*names, *query.residual.record_columns]))
        if isinstance(query.target, LogDir):
            for finding in query.target.findings:
                self.report(finding)
        plan = self._plan()
        waiting: deque[_Event] = deque()
        ahead = query.threads if query.threads > 1 else 0
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(query.threads, "kafkalog")) if ahead else None
            stack.callback(self._report_failures)
            stack.callback(lambda: [event.future.cancel() for event in waiting if _is_running(event)])
            while True:
                while len(waiting) <= ahead and (event := next(plan, None)) is not None:
                    if isinstance(event, Task) and pool is not None:
                        event.future = pool.submit(self._decode, event, names)
                    waiting.append(event)
                if not waiting:
                    return
                event = waiting.popleft()
                if isinstance(event, KafkalogError):
                    raise event
                if isinstance(event, _Found):
                    if id(event.partition) not in self._stopped:
                        self.report(event.finding)
                    continue
                yield from self._finish(event, names, pool)
                if event.is_last:
                    self._leave(event.piece)
                event = None

    def _plan(self) -> Iterator[_Event]:
        """What there is to do, in order; an error ends it."""
        query, counts = self.query, self.statistics
        window_bytes = max(WINDOW_BYTES // query.threads, _MIN_WINDOW_BYTES)
        try:
            for partition in query.iter_partitions():
                if isinstance(partition, KafkalogError):
                    if query.on_corruption == "raise":
                        raise partition
                    yield _Found(None, partition.to_finding())
                    continue
                selections = query.selections(partition)
                if selections is None:
                    continue
                counts.n_partitions_read += 1
                whole, by_segment = selections
                found = list(partition.findings)
                pieces = partition.pieces(
                    whole,
                    isolation_level=query.isolation_level,
                    on_corruption=query.on_corruption,
                    check_crcs=query.check_crcs,
                    report=found.append,
                    window_bytes=window_bytes,
                    wanted=by_segment.__contains__,
                    statistics=counts,
                )
                for piece in pieces:
                    while found:
                        yield _Found(partition, found.pop(0))
                    if id(partition) in self._stopped:
                        break
                    selection = by_segment[piece.segment]
                    mask = selection.batch_mask(piece.window.batches)
                    n_wanted = len(piece.window.batches) if mask is None else int(np.count_nonzero(mask))
                    counts.n_batches_decoded += n_wanted
                    if n_wanted:
                        for first, stop in _split(piece.window.batches):
                            yield Task(piece, partition, selection, first, stop)
                    else:
                        self._leave(piece)
                    del piece  # the memory of a window serves the next one once nobody holds it
                for finding in found:
                    yield _Found(partition, finding)
        except KafkalogError as error:
            yield error

    def _leave(self, piece: Piece) -> None:
        """A window is done with."""
        size = piece.window.data.size
        piece.source.release(piece.window.data, piece.window.start)
        self.progress(size)

    def _decode(self, task: Task, names: Sequence[str]) -> Decoded:
        return decode(
            task.piece.window,
            names,
            first=task.first,
            stop=min(task.stop, task.first + task.step),
            selection=task.selection,
            check_crcs=self.query.check_crcs,
            limits=self.query.limits,
            path=str(task.piece.segment.path),
        )

    def _finish(
        self, task: Task, names: Sequence[str], pool: ThreadPoolExecutor | None
    ) -> Iterator[tuple[Task, RecordColumns]]:
        """Hand out what a task decoded, and go on with what it left, until all of it is done."""
        counts = self.statistics
        while task.first < task.stop and id(task.partition) not in self._stopped:
            decoded = self._decode(task, names) if task.future is None else task.future.result()
            task.first += decoded.n_batches + (decoded.error is not None)
            task.step = _STEP_BEHIND_DAMAGE if decoded.error is not None else min(4 * task.step, _ALL)
            task.future = None
            # a few batches are sooner decoded than handed to another thread
            if pool is not None and task.first < task.stop and task.step == _ALL:
                task.future = pool.submit(self._decode, task, names)
            counts.n_records = (counts.n_records or 0) + decoded.n_records
            self._note(task, decoded.troubles)
            columns = self._rest(task, decoded.columns)
            if columns is not None:
                counts.n_records_selected = (counts.n_records_selected or 0) + columns.n_records
                yield task, columns
                del columns
            if decoded.error is not None:
                self._meet(task, decoded.error)

    def _rest(self, task: Task, columns: RecordColumns | None) -> RecordColumns | None:
        """What an expression leaves of records."""
        residual = self.query.residual
        if residual is None or columns is None:
            return columns
        writer = ArrowWriter(residual.schema, task.partition.topic_partition, task.piece.segment.path.name)
        rows = residual.rows(writer.batch(columns), columns.n_records)
        if rows.size == columns.n_records:
            return columns
        return columns.take(rows) if rows.size else None

    def _meet(self, task: Task, error: KafkalogError) -> None:
        if self.query.on_corruption == "raise":
            raise error
        if self.query.on_corruption == "stop":
            self._stopped.add(id(task.partition))
        self.report(error.to_finding())

    def _note(self, task: Task, troubles: Sequence[Trouble]) -> None:
        """Add up where a caller's functions failed, by function and segment."""
        for trouble in troubles:
            key = (trouble.function, str(task.piece.segment.path))
            offsets = trouble.offsets.tolist()
            known = self._failures.setdefault(key, _Failures(0, [], offsets[-1], trouble.detail))
            known.first += offsets[: _SHOWN_OFFSETS - len(known.first)]
            known.n += len(offsets)
            known.last = offsets[-1]

    def _report_failures(self) -> None:
        for (function, path), failures in self._failures.items():
            shown = ", ".join(map(str, failures.first)) + (", ..." if failures.n > len(failures.first) else "")
            finding = Finding(
                Reason.FUNCTION_ERROR,
                f"{function} failed on {failures.n} records (offsets {shown}); the first: {failures.detail}",
                path=path,
                base_offset=failures.first[0],
                last_offset=failures.last,
                damage=False,
            )
            self.findings.add(finding)
            warn(finding, FunctionWarning)
        self._failures = {}


def _is_running(event: _Event) -> TypeGuard[Any]:
    return isinstance(event, Task) and event.future is not None


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
