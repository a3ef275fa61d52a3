"""`Pass`: one run of a `Query`. One thread plans windows of segments, several decode them.

Columns come out ordered by partition and offset. Memory holds a few windows and the records decoded from them, whatever
the size of the files. What the planner finds while earlier windows are still being decoded is raised or reported in
order, after those. So the number of threads changes the time, not the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.errors import (
    CorruptionWarning,
    Finding,
    Findings,
    FunctionWarning,
    KafkalogError,
    ReadError,
    Reason,
    warn,
)
from kafkalog.interchange.arrow_output import ArrowWriter, batch_fields, binary_array
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import removed_from
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import ReadOptions, ScanStatistics, SegmentWindow
from kafkalog.log.segment_stream import with_bytes
from kafkalog.records.batch_columns import Form
from kafkalog.records.batch_table import BatchTable, RecordRun
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import Decoded, decode
from kafkalog.records.gathering import APPENDED, Appended, GatheredRecords
from kafkalog.records.header_walk import WINDOW_BYTES, walk
from kafkalog.records.readers.batch_reader import BatchReader
from kafkalog.records.readers.header_reader import HeaderReader, RangeReader, records_in_range
from kafkalog.records.readers.record_reader import RecordReader
from kafkalog.records.readers.record_windows import ALL_OFFSETS, WindowOptions
from kafkalog.records.selection import FunctionFailure, Selection
from kafkalog.scanning.conditions.latest import LatestOffsets
from kafkalog.scanning.ordered_pool import BatchTask, DoneTask, OrderedPool, shares
from kafkalog.scanning.query import Query
from kafkalog.state.transactions import TRANSACTION_BITS
from kafkalog.storage.location import Place

_MIN_WINDOW_BYTES: Final = 2**20
# with small windows, each call's work in Python is felt, and with large ones the pool of memory does not hold what all
# of them need: then each pass takes fresh pages
_ALONE_BYTES: Final = 3 * 2**21
_TOGETHER_BYTES: Final = 13 * 2**20
_RUN_BYTES: Final = 2**21  # in a run a window takes little Python, and a small one stays in a core's cache
_SHOWN_OFFSETS: Final = 5


@dataclass(slots=True)
class Task:
    """Batches of a window, and the work that decodes them."""

    window: SegmentWindow
    partition: Partition
    work: BatchTask[Decoded] | DoneTask[Decoded] | RecordRun
    is_last: bool
    """Whether these are the last batches of the window."""
    latest: LatestOffsets | None = None
    """With `latest`, the offsets of the records that are the last of their keys."""


class _Found(NamedTuple):
    """A finding, queued among the tasks so that it is reported in order."""

    partition: Partition | None
    finding: Finding
    ends_reading: bool = True
    """Whether damage ends the partition with ``on_corruption="stop"``."""


_Event = Task | _Found | KafkalogError


@dataclass(slots=True)
class _Failures:
    """The records of a segment on which a function failed."""

    n: int
    first: list[int]
    last: int
    detail: str


class Pass:
    """One run of a query; `findings` and `statistics` have what was found and counted so far.

    `progress` is called with the number of bytes of `.log` files read since the last call.
    """

    def __init__(self, query: Query, progress: Callable[[int], object] | None = None) -> None:
        self.query = query
        self.progress = progress
        self.path = ""
        """For messages: of the segment of what was read last."""
        self.findings = Findings(query.limits.max_findings)
        self.n_undecoded = 0
        """Values, and fields of others, that did not decode."""
        self.statistics = ScanStatistics(n_partitions=query.n_partitions)
        self._stopped: set[int] = set()
        # both by the id of a partition
        self._reached: dict[int, int] = {}  # the highest offset
        self._in_sets: set[int] = set()  # has batches of v0 or v1, whose records may go back
        self._gone_back: set[Place] = set()
        self._failures: dict[tuple[str, str], _Failures] = {}
        self._schema: pa.Schema | None = None
        self._is_kept = self._keeps_positions = False
        self._into: GatheredRecords | None = None
        self._n_waiting = 0  # tasks that were planned and not begun

    def report(self, finding: Finding) -> None:
        """Keep a finding, and warn of damage."""
        self.findings.add(finding)
        if finding.damage:
            warn(finding, CorruptionWarning)

    def walk(self) -> None:
        """Walk batch headers to fill the statistics; decode nothing."""
        for event in self._plan(OrderedPool(0), None, "numpy"):
            if isinstance(event, KafkalogError):
                raise event

    def run(
        self,
        names: Sequence[str],
        form: Form = "numpy",
        *,
        schema: pa.Schema | None = None,
        is_kept: bool = False,
        into: GatheredRecords | None = None,
    ) -> Iterator[tuple[Task, RecordColumns | Appended | pa.RecordBatch]]:
        """Columns of the wanted records as they are decoded, never empty, with the task they come from.

        Derived columns, and those that the residual reads, are added to `names`. With `schema`, record batches take the
        place of columns where nothing else of the records is needed. `is_kept` says that the caller keeps all that it
        gets. With `into`, some records are appended to these. The caller adds them (`Appended`) before it asks for
        more.
        """
        query = self.query
        self._schema, self._is_kept, self._into, self._n_waiting = schema, is_kept, into, 0
        self.statistics.n_records = self.statistics.n_records_selected = 0
        self._keeps_positions = "batch_position" in names
        if query.residual is not None and query.residual.is_needed:
            names = list(dict.fromkeys([*names, *query.residual.record_columns]))
        if query.latest is not None:
            names = list(dict.fromkeys([*names, "offset"]))
        if isinstance(query.target, LogDir):
            for finding in query.target.findings:
                self.report(finding)
        # without threads, windows are decoded on demand, so their memory can be reused
        threads = query.threads if query.threads > 1 else 0
        left = query.limit
        if left == 0:
            return
        try:
            with OrderedPool(threads, caller_works=threads > 0) as pool:
                plan = self._plan(pool, names, form)
                for event in pool.ahead(plan, threads, is_done=_is_done) if threads else plan:
                    if isinstance(event, KafkalogError):
                        raise event
                    self._n_waiting -= isinstance(event, Task)
                    if isinstance(event, Task) and isinstance(event.work, RecordRun):
                        yield from self._batches(event, event.work)
                    elif isinstance(event, Task):
                        for columns in self._decoded(event):
                            if left is not None and columns.n_records >= left:
                                yield event, columns.slice(0, left)
                                return
                            yield event, columns
                            left = None if left is None else left - columns.n_records
                            del columns
                        if event.is_last:
                            self._leave(event.window)
                    # the planner is ahead: what it found after the damage at which the partition stopped does not
                    # count
                    elif id(event.partition) not in self._stopped:
                        ended = event.partition if event.ends_reading else None
                        self.report(self._up_to_end(ended, event.finding))
                    del event
        finally:
            if self._failures:
                self._report_failures()

    def _plan(self, pool: OrderedPool, names: Sequence[str] | None, form: Form) -> Iterator[_Event]:
        """Tasks and findings in order; ends after an error. With None for names, nothing will be decoded."""
        query = self.query
        try:
            for partition in query.iter_partitions():
                try:
                    if not isinstance(partition, KafkalogError):
                        yield from self._plan_partition(partition, pool, names, form)
                    elif query.on_corruption == "raise":
                        raise partition
                    else:
                        yield _Found(None, partition.to_finding())
                except ReadError as error:
                    removed = removed_from(query.target, error)
                    if removed is None:
                        raise
                    yield _Found(None, removed)
        except KafkalogError as error:
            yield error

    def _plan_partition(
        self, partition: Partition, pool: OrderedPool, names: Sequence[str] | None, form: Form
    ) -> Iterator[_Event]:
        query, counts = self.query, self.statistics
        end = query.assumed_end(partition)
        selections = query.selections(partition, end)
        if selections is None:
            return
        if end is not None:
            why = "use_time_index" if query.max_disorder is None else f"max_disorder={query.max_disorder}"
            detail = f"reading stopped at offset {end}, as {why} allows"
            note = Finding(Reason.END_ASSUMED, detail, str(partition.path), base_offset=end, damage=False)
            yield _Found(partition, note, ends_reading=False)
        counts.n_partitions_read += 1
        # before its segments are walked: they keep what the last walk found
        latest = self._latest(partition) if query.latest is not None and names else None
        whole, by_segment = selections
        # a time rules out many batches by their headers: the other costs of a window count more then
        n_shares = query.threads if whole.start_timestamp is None else (query.threads + 1) // 2
        window_bytes = max(WINDOW_BYTES // n_shares, _MIN_WINDOW_BYTES)
        # they are about names, checkpoints and files that are not read: no reading ends there
        for finding in partition.findings:
            yield _Found(partition, finding, ends_reading=False)
        found: list[Finding] = []
        is_committed = query.isolation_level == "read_committed"
        read = partition.reader.committed_windows if is_committed else partition.reader.windows
        options = ReadOptions(
            on_corruption=query.on_corruption,
            check_crcs=query.check_crcs,
            report=found.append,
            window_bytes=window_bytes,
            wanted=by_segment.__contains__,
            start_at=partial(query.start_at, whole),
            reader_for=partial(self._reader, pool, partition, by_segment, names, form),
            statistics=counts,
        )
        for window in read(whole, options):
            while found:
                yield _Found(partition, found.pop(0))
            if id(partition) in self._stopped:
                break
            run = window.window.run
            if run is not None:
                self._n_waiting += 1
                yield Task(window, partition, run, True, latest)
                counts.n_batches_decoded += len(run)
                del window, run
                continue
            selection, batches = by_segment[partition.segments[window.number]], window.batches
            records = window.window.records
            # whoever decoded the records compared the checksums, those of control batches included
            check_crcs = query.check_crcs and records is None
            mask = selection.wanted_batches(window.window, check_crcs=check_crcs)
            n_records = 0 if records is None else records.n_records
            if records is not None and selection.has_timestamps:
                records = records_in_range(selection, records, batches, mask, _with_positions(names or (), batches))
                if records is None:  # which of them are of which batch is only known inside
                    window = window._replace(window=with_bytes(window.source, window.window))
                elif mask is not None and not mask.all():
                    n_records = int(batches.records_count[mask].sum())
            n_wanted = len(batches) if mask is None else int(np.count_nonzero(mask))
            counts.n_batches_decoded += n_wanted
            if n_wanted and records is not None:
                done = DoneTask(Decoded(records if records.n_records else None, len(batches), None, n_records))
                self._n_waiting += 1
                yield Task(window, partition, done, True, latest)
                del done
            elif n_wanted:
                decode_rows = partial(self._decode, window, selection, _with_positions(names or (), batches), form)
                for first, stop in shares(batches):
                    work = BatchTask(pool, decode_rows, first, stop)
                    self._n_waiting += 1
                    yield Task(window, partition, work, stop == len(batches), latest)
                    del work
                del decode_rows
            else:
                self._leave(window)
            del (
                window,
                batches,
                records,
            )  # without references to it, a window's memory can be reused for the next one
        for finding in found:
            yield _Found(partition, finding)

    def _latest(self, partition: Partition) -> LatestOffsets:
        """The offsets of the last records of the keys of a partition. Findings are left to the pass that follows."""
        latest, one = LatestOffsets(), _SilentPass(self.query.of_keys(partition))
        for _, columns in one.run(["key", "offset"]):
            assert isinstance(columns, RecordColumns)
            keys = columns["key"]
            if isinstance(keys, BinaryColumn):
                latest.add(binary_array(keys, pa.binary()), pa.array(columns["offset"]))
        latest.finish()
        return latest

    def _reader(
        self,
        pool: OrderedPool,
        partition: Partition,
        selections: Mapping[Segment, Selection],
        names: Sequence[str] | None,
        form: Form,
        segment: Segment,
    ) -> BatchReader | None:
        """The reader of a segment; None if each batch has to be looked at."""
        query, selection = self.query, selections[segment]
        has_timestamps = selection.has_timestamps
        # of bytes in memory only the pages of headers are looked at
        is_by_header = has_timestamps and segment.is_in_memory
        if not names or not selection.is_range or selection.include_control or is_by_header:
            return self._header_reader(selection, has_names=names is not None)
        # the caller decodes, too: with one more window, threads stay busy while it makes record batches
        n_ahead = query.threads if query.threads > 1 else 0
        records = RecordReader(
            self._window_options(partition, segment, selection, names, form, n_ahead, has_timestamps),
            submit=(lambda call: pool.submit(call).result) if n_ahead else None,
            n_ahead=n_ahead,
            hints=partial(_batch_positions, segment),
            find_end=None if selection.end_offset is None else partial(_end_position, segment, selection.end_offset),
            may_append=lambda: not self._n_waiting,
        )
        if query.limit is not None:
            records.restart()  # few records may be wanted
        if not has_timestamps:
            return records
        headers = self._header_reader(selection, has_names=True)
        return RangeReader(selection, headers, records, limits=query.limits)

    def _window_options(
        self,
        partition: Partition,
        segment: Segment,
        selection: Selection,
        names: Sequence[str],
        form: Form,
        n_ahead: int,
        has_timestamps: bool,
    ) -> WindowOptions:
        """How the records of a segment are read: which columns, and how large the windows are."""
        query, fields = self.query, None
        is_committed = query.isolation_level == "read_committed"
        # record batches are made at once if nobody has to look at their records
        is_whole = not has_timestamps and self._is_whole()
        if self._schema is not None and is_whole:
            fields = batch_fields(self._schema, partition.topic_partition, segment.path.name)
        if fields is not None and not self._is_kept and form != "views":
            window_bytes = _RUN_BYTES
        elif n_ahead:
            # those that are read, and the one that the consumer has until it has the next
            window_bytes = max(_TOGETHER_BYTES // (n_ahead + 2), _MIN_WINDOW_BYTES)
        else:
            window_bytes = _ALONE_BYTES
        if has_timestamps:
            names = list(dict.fromkeys([*names, "timestamp", "timestamp_type"]))
        return WindowOptions(
            names=names,
            form=form,
            check_crcs=query.check_crcs,
            limits=query.limits,
            window_bytes=window_bytes,
            offsets=_offsets_of(selection),
            stop_at=TRANSACTION_BITS if is_committed else 0,
            batch_fields=fields,
            is_kept=self._is_kept,
            into=self._into if is_whole and form == "numpy" and APPENDED.issuperset(names) else None,
        )

    def _is_whole(self) -> bool:
        """Whether all records of a range are wanted, as they are, and nobody has to look at them."""
        query = self.query
        if query.isolation_level == "read_committed" or query.limit is not None:
            return False
        return query.check_crcs and query.latest is None and query.residual is None

    def _header_reader(self, selection: Selection, *, has_names: bool) -> HeaderReader:
        """A reader of headers, which gives the bytes of the batches that are decoded, or whose checksum is compared."""
        query = self.query
        # the checksums of control batches, and of those without records, are compared even if nothing is decoded
        needed = selection.batch_mask if has_names else _without_records
        stop_at = kf.CONTROL_BIT if query.check_crcs and not selection.include_control else 0
        headers = HeaderReader(needed, limits=query.limits, stop_at=stop_at)
        if query.isolation_level == "read_committed":
            headers.stop()  # its consumers compare the checksums of all batches
        return headers

    def _leave(self, window: SegmentWindow) -> None:
        """Release a window and report progress."""
        window.release()
        if self.progress is not None:
            self.progress(window.n_bytes)

    def _decode(
        self, window: SegmentWindow, selection: Selection, names: Sequence[str], form: Form, first: int, stop: int
    ) -> Decoded:
        return decode(
            window.window,
            names,
            first=first,
            stop=stop,
            selection=selection,
            form=form,
            check_crcs=self.query.check_crcs,
            limits=self.query.limits,
            path=str(window.segment.path),
        )

    def _batches(self, task: Task, run: RecordRun) -> Iterator[tuple[Task, pa.RecordBatch | Appended]]:
        """The record batches of a run, or what was appended; none if earlier damage ended its partition."""
        if id(task.partition) in self._stopped:
            return
        counts, position, progress = self.statistics, run.start, self.progress
        reached = self._reached.get(id(task.partition), -1)
        may_go_back = id(task.partition) in self._in_sets
        n_records = 0
        try:
            for batch in run:
                if isinstance(batch, tuple):
                    batch = Appended(*batch)
                if may_go_back and not n_records and run.n_records:
                    self._compare_first(task, run, _first_offset(batch), reached)
                if run.last_record_offset is not None and run.last_record_offset > reached:
                    reached = run.last_record_offset
                n_records += run.n_records
                yield task, batch
                del batch  # its memory can be reused for the next one
                if progress is not None:
                    progress(run.end_position - position)
                position = run.end_position
        finally:
            counts.n_records = (counts.n_records or 0) + n_records
            counts.n_records_selected = (counts.n_records_selected or 0) + n_records
            self._reached[id(task.partition)] = reached
            if progress is not None:
                progress(run.end_position - position)

    def _compare_first(self, task: Task, run: RecordRun, first: int | None, reached: int) -> None:
        """Report the first record of a run if its offset goes back."""
        if first is not None and first <= reached:
            self._note_return(task, reached, first, _first_with_records(task, run))

    def _decoded(self, task: Task) -> Iterator[RecordColumns]:
        """The columns that a task decodes, until it is done or damage ends its partition."""
        counts = self.statistics
        if id(task.partition) in self._stopped:
            return
        assert not isinstance(task.work, RecordRun)
        for decoded in task.work.results():
            counts.n_records = (counts.n_records or 0) + decoded.n_records
            self._count_failures(task, decoded.failures)
            columns = self._apply_residual(task, _latest_of(decoded.columns, task.latest))
            if columns is not None:
                counts.n_records_selected = (counts.n_records_selected or 0) + columns.n_records
                if "offset" in columns:
                    self._note_order(task, columns)
                    if not self._keeps_positions and "batch_position" in columns:
                        names = [name for name in columns if name != "batch_position"]
                        columns = RecordColumns(columns.n_records, {name: columns[name] for name in names})
                yield columns
                del columns
            if decoded.error is not None:
                self._handle_damage(task, decoded.error)
                if id(task.partition) in self._stopped:
                    return
            del decoded

    def _note_order(self, task: Task, columns: RecordColumns) -> None:
        """Report the first record of a segment whose offset goes back: no header of a v0 or v1 batch tells."""
        if not columns.n_records:
            return
        partition, batches, offset = id(task.partition), task.window.whole, columns.offset
        before = self._reached.get(partition, -1)
        if not _has_sets(batches) and partition not in self._in_sets:
            self._reached[partition] = max(before, int(offset[-1]))
            return  # in v2, headers tell
        reached = np.maximum.accumulate(np.append(before, offset))
        self._reached[partition] = int(reached[-1])
        self._in_sets.add(partition)
        back = np.flatnonzero(offset <= reached[:-1])
        if not back.size:
            return
        row = int(back[0])
        if "batch_position" in columns:
            position = int(columns.batch_position[row])
        else:  # of v2 alone: the header has the range of its offsets
            is_it = (batches.last_offset >= offset[row]) & (batches.records_count != 0)
            position = int(batches.position[int(np.argmax(is_it))])
        self._note_return(task, int(reached[row]), int(offset[row]), position)

    def _note_return(self, task: Task, before: int, first: int, position: int) -> None:
        """Report it once for a segment: how its windows were cut and decoded must not show."""
        path = task.window.segment.path
        if path not in self._gone_back:
            self._gone_back.add(path)
            detail = f"record offsets go back from {before} to {first}: some offsets appear twice"
            self.report(
                Finding(Reason.OFFSET_ORDER, detail, str(path), position=position, base_offset=first, damage=False)
            )

    def _apply_residual(self, task: Task, columns: RecordColumns | None) -> RecordColumns | None:
        """The records for which the residual expression is true; None if there are none."""
        residual = self.query.residual
        if residual is None or not residual.is_needed or columns is None:
            return columns
        writer = ArrowWriter(residual.schema, task.partition.topic_partition, task.window.segment.path.name)
        rows = residual.rows(writer.batch(columns), columns.n_records)
        if rows.size == columns.n_records:
            return columns
        return columns.take(rows) if rows.size else None

    def _handle_damage(self, task: Task, error: KafkalogError) -> None:
        if self.query.on_corruption == "raise":
            raise error
        if self.query.on_corruption == "stop":
            self._stopped.add(id(task.partition))
        self.report(self._up_to_end(task.partition, task.window.lost(error)))

    def _up_to_end(self, partition: Partition | None, finding: Finding) -> Finding:
        """The finding; if it ends its partition, all records after it count as lost too."""
        is_end = self.query.on_corruption == "stop" and partition is not None and finding.damage
        return partition.reader.lost_from(finding) if is_end and partition is not None else finding

    def _count_failures(self, task: Task, failures: Sequence[FunctionFailure]) -> None:
        """Count the failures of the user's functions, by function and segment."""
        for failure in failures:
            # the user's functions fail on many records alike: the first offsets, the last and a number say enough
            key = (failure.function, str(task.window.segment.path))
            offsets = failure.offsets.tolist()
            known = self._failures.setdefault(key, _Failures(0, [], offsets[-1], failure.detail))
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


class _SilentPass(Pass):
    """A pass whose findings another one reports."""

    def report(self, finding: Finding) -> None:
        """Keep a finding."""
        self.findings.add(finding)


def _latest_of(columns: RecordColumns | None, latest: LatestOffsets | None) -> RecordColumns | None:
    """The records that are the last of their keys; None if there are none."""
    if columns is None or latest is None:
        return columns
    rows = latest.rows(np.asarray(columns["offset"]))
    if rows.size == columns.n_records:
        return columns
    return columns.take(rows) if rows.size else None


def _first_offset(batch: pa.RecordBatch | Appended) -> int | None:
    """The offset of the first record; None if offsets were not asked for."""
    if isinstance(batch, Appended):
        return batch.first_offset
    return batch.column("offset")[0].as_py() if "offset" in batch.schema.names else None


def _has_sets(batches: BatchTable) -> bool:
    """Whether there are batches of v0 or v1, whose headers do not tell whether the offsets of their records rise."""
    return bool((batches.magic < 2).any())


def _with_positions(names: Sequence[str], batches: BatchTable) -> Sequence[str]:
    """The names of columns, and the position of the batch of each record if the order of offsets is compared."""
    return [*names, "batch_position"] if _has_sets(batches) and "offset" in names else names


def _first_with_records(task: Task, run: RecordRun) -> int:
    """Position of the first batch of a run that has records."""
    for window in walk(task.window.source, start=run.start):
        mask = (window.batches.records_count != 0) & ~window.batches.is_control
        position = int(window.batches.position[int(np.argmax(mask))])
        task.window.source.release(window.data, window.start)
        if mask.any():
            return position
    return run.start


def _without_records(batches: BatchTable) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = batches.records_count == 0
    return mask


def _is_done(event: _Event) -> bool:
    """Whether the records of an event were decoded when it was planned."""
    return isinstance(event, Task) and (isinstance(event.work, RecordRun) or event.work.is_done)


def _offsets_of(selection: Selection) -> tuple[int, int]:
    """The half-open range of offsets whose batches are read together."""
    first, stop = ALL_OFFSETS
    if selection.start_offset is not None:
        first = selection.start_offset
    if selection.end_offset is not None:
        stop = max(selection.end_offset - 1, ALL_OFFSETS[0])  # the batch that ends there ends the reading, too
    return first, stop


def _batch_positions(segment: Segment) -> npt.NDArray[np.int64] | None:
    """Where some batches begin, if the offset index is right."""
    return None if segment.offset_hint is None else segment.offset_hint.position


def _end_position(segment: Segment, end_offset: int) -> int | None:
    """A position before which all records below an offset lie, if the offset index is right."""
    index = segment.offset_hint
    if index is None or not len(index):
        return None
    # the batch of the first entry at the end or later may begin before it; the next entry is after that batch
    row = int(np.searchsorted(index.offset, end_offset)) + 1
    return int(index.position[row]) if row < len(index) else segment.size_in_bytes
