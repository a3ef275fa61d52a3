"""`Scan`: selected records of selected partitions, as Arrow, pandas or NumPy columns. It reads lazily.

One thread plans windows of segments, several decode them, and records come out ordered by topic, partition and offset.
Memory holds a few windows and the records decoded from them, whatever the size of the files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.column_names import ALL_COLUMNS, CONTEXT_COLUMNS, DEFAULT_COLUMNS
from kafkalog.errors import (
    CorruptionWarning,
    Finding,
    Findings,
    KafkalogError,
    Loss,
    ReadError,
    Reason,
    UnwritableError,
    not_installed,
    warn,
)
from kafkalog.interchange.arrow_buffers import data_frame
from kafkalog.interchange.arrow_output import (
    HEADER_FIELD,
    ArrowWriter,
    check_binary_type,
    columns_needed,
    extend_schema,
    form_needed,
    record_schema,
    stored_names_schema,
)
from kafkalog.interchange.arrow_streams import ArrowStream
from kafkalog.log.open import Paths, removed_from
from kafkalog.log.partition import Partition
from kafkalog.log.ranges import PartitionRanges
from kafkalog.log.segment import Segment
from kafkalog.parsing import integer, optional_integer
from kafkalog.records.batch_columns import Form
from kafkalog.records.byte_columns import BinaryColumn, as_views
from kafkalog.records.columns import Column, RecordColumns, sized_slices
from kafkalog.records.gathering import GatheredRecords
from kafkalog.scanning.conditions.expressions import implied_filter, narrowed
from kafkalog.scanning.decoded import divide_options, known_fields, resolved, schemas_for
from kafkalog.scanning.execution import Pass, Task
from kafkalog.scanning.options import ScanOptions, first_or_last
from kafkalog.scanning.planning import TASK_BYTES, Plan, ReadTask, plan
from kafkalog.scanning.query import Explanation, Opened, Query, Target, check_columns, html_of, offset_of
from kafkalog.survey.next_steps import NextStep, log_dirs_of, paths_read, steps_after_damage
from kafkalog.values.conditions import ArrowCondition, Conditions
from kafkalog.values.decoding import DecodeWarning, Decoding
from kafkalog.values.options import ColumnFormat
from kafkalog.values.schemas import in_context

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc
    import pyarrow.dataset

MAX_BATCH_BYTES: Final = 2**26
"""Record batches are cut before a column of key or value bytes exceeds this. A single larger record is not cut."""


_OF_DECODING: Final = frozenset({"decode", "value_format", "key_format", "schemas", "schema_context", "filters"})
_MOST_CHARACTERS: Final = 200
_JOINED: Final = 256


class Scan(ArrowStream):
    """A lazy scan of records; made by `kafkalog.scan`.

    Each call reads the files again: those that existed when the path was opened. A scan is an Arrow stream, and works
    as input of whatever takes one: ``pa.table(scan)``, ``polars.DataFrame(scan)``,
    ``duckdb.sql("select ... from scan")``.

    Attributes
    ----------
    schema : pyarrow.Schema
    findings : list of Finding
        The findings of the last pass.
    progress : callable or None
        Called with the number of bytes of `.log` files read since the last call; None by default.
    """

    def __init__(self, path: Paths | Opened, **options: Unpack[ScanOptions]) -> None:
        columns = options.get("columns")
        if columns is not None and not columns and not options.get("extract"):
            raise ValueError("columns is empty; count_rows() counts records without any")
        formats: dict[str, ColumnFormat] = {}
        after: Conditions | None = None
        if not _OF_DECODING.isdisjoint(options):
            formats, options, after = divide_options(options)
        self._query = query = Query.of(path, **options)
        self._decoding: Decoding | None = None
        self._limit: int | None = None  # with conditions on decoded columns, the limit that counts after them
        derived = {} if query.extract is None else query.extract.dtypes
        has_headers = False
        if columns is not None and not isinstance(columns, str):
            has_headers = any(str(name).startswith(HEADER_FIELD) for name in columns)
        if formats or after is not None or has_headers:
            after = resolved(after, query)
            source = schemas_for(options.get("schemas"), query.target, formats)
            source = in_context(source, options.get("schema_context"))
            self._decoding = Decoding(formats, source, columns, after, derived)
            columns = self._decoding.record_columns
            if isinstance(after, ArrowCondition):
                query = replace(query, filter=implied_filter(after.expression, formats))
            if after is not None:  # counted after these filters
                self._query, self._limit = replace(query, limit=None), query.limit
        columns = check_columns(columns, ALL_COLUMNS, DEFAULT_COLUMNS, derived)
        self.columns = columns if self._decoding is None else self._decoding.columns
        self._derived = tuple(derived)
        self._binary_type = check_binary_type(options.get("binary_type"))
        self._read(columns)
        self._batch_size = optional_integer("batch_size", options.get("batch_size"), 1)
        self.progress: Callable[[int], object] | None = None
        self._last: Pass | None = None

    def __copy__(self) -> Scan:
        """The same scan with its `progress`, which a pickle leaves out; nothing has been read with it yet."""
        one = type(self).__new__(type(self))
        one.__dict__.update(self.__dict__, _last=None)
        return one

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "progress": None, "_last": None}

    def __repr__(self) -> str:
        after = None if self._decoding is None else self._decoding.conditions
        filters = [*self._query.selected_records(), *([] if after is None else [str(after)])]
        shown = [one if len(one) <= _MOST_CHARACTERS else f"{one[:_MOST_CHARACTERS]}..." for one in filters]
        parts = [repr(self._query.target), *self._query.selected_partitions(), *shown]
        return f"Scan({', '.join(parts)}, columns={list(self.columns)})"

    def _repr_html_(self, title: str | None = None) -> str:
        """Return HTML for a notebook: the columns, and the conditions at each level. Nothing is read."""
        return html_of(title or repr(self), self.schema, self._query.conditions())

    @property
    def schema(self) -> pa.Schema:
        """The schema of the record batches. With `decode`, the records are read for it unless formats say the types."""
        if self._decoding is None:
            return self._raw_schema
        self._learn(self._decoding)
        return self._decoding.schema(self._binary_type)

    @property
    def mixed_paths(self) -> frozenset[tuple[str, ...]]:
        """Paths of decoded fields that are JSON text because their values have no common type."""
        if self._decoding is None:
            return frozenset()
        self._learn(self._decoding)
        return self._decoding.mixed_paths

    @property
    def findings(self) -> list[Finding]:
        """The findings of the last pass: damage, partial last batches, header keys that are not UTF-8 and others."""
        return [] if self._last is None else list(self._last.findings.rows)

    @property
    def next(self) -> list[NextStep]:
        """What serves the intact batches after the damage of the last pass; empty without it."""
        return steps_after_damage(self.findings, log_dirs_of(paths_read(self.target)))

    @property
    def losses(self) -> dict[str, Loss]:
        """Data lost in the last pass, by partition directory. Partitions without loss have no entry."""
        return {} if self._last is None else dict(self._last.findings.losses)

    @property
    def n_damage(self) -> int:
        """How many findings of the last pass are damage, those beyond `Limits.max_findings` included."""
        return 0 if self._last is None else self._last.findings.n_damage

    @property
    def n_undecoded(self) -> int:
        """How many values, or fields of values, the last pass could not decode; they are null (see `decode`)."""
        return 0 if self._last is None else self._last.n_undecoded

    def without_undecoded(self) -> Scan:
        """The same scan without records of which a value, or a field of one, does not decode."""
        one = copy(self)
        if self._decoding is not None:
            one._decoding = copy(self._decoding)
            one._decoding.leaves_out = True
        return one

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches as they are read, in bounded memory.

        Raises
        ------
        KafkalogError
            On damage, with `on_corruption="raise"`. The batches before the damage are yielded first.
        """
        if self._decoding is not None:
            return self._decoded_batches(self._decoding)
        return self._raw_batches(self._pass())

    def to_table(self) -> pa.Table:
        """All rows as a `pyarrow.Table`."""
        if self._decoding is not None:
            return super().to_table()
        return pa.Table.from_batches(self._raw_batches(self._pass(), is_kept=True), self.schema)

    def __kafkalog_stream__(self) -> pa.RecordBatchReader:
        """The rows to be written to another log: header names are the bytes of this one.

        Where values are decoded, names are text: raises UnwritableError for one that is not UTF-8.
        """
        if self._decoding is not None:
            return pa.RecordBatchReader.from_batches(self.schema, self._with_text_names())
        schema = stored_names_schema(self._raw_schema)
        return pa.RecordBatchReader.from_batches(schema, self._raw_batches(self._pass(), schema))

    def _with_text_names(self) -> Iterator[pa.RecordBatch]:
        previous: pa.RecordBatch | None = None
        for batch in chain(self.to_batches(), [None]):
            bad = next((one for one in self.findings if one.reason is Reason.HEADER_KEY_UTF8), None)
            if bad is not None:
                detail = f"{bad.detail}; to copy them, scan without decoding"
                raise UnwritableError(Reason.HEADER_KEY_UTF8, detail, path=bad.path)
            if previous is not None:
                yield previous
            previous = batch

    def _raw_batches(
        self, one: Pass, schema: pa.Schema | None = None, *, is_kept: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Record batches before anything is decoded; `one.path` is that of their segment."""
        schema = self._raw_schema if schema is None else schema
        writer: ArrowWriter | None = None
        segment: Segment | None = None
        whole = schema if self._batch_size is None else None
        form = form_needed(self._records)
        for task, columns in one.run(columns_needed(self._records), form, schema=whole, is_kept=is_kept):
            one.path = str(task.window.segment.path)
            if isinstance(columns, pa.RecordBatch):
                del task
                yield columns
                del columns  # its memory can be reused for the next one
                continue
            if writer is None or task.window.segment is not segment:
                if writer is not None:
                    _report_header_keys(one, writer, segment)
                segment = task.window.segment
                writer = ArrowWriter(schema, task.partition.topic_partition, segment.path.name)
            del task
            assert isinstance(columns, RecordColumns)
            for part in self._cut(columns):
                yield writer.batch(part)
        if writer is not None:
            _report_header_keys(one, writer, segment)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All records as a `pandas.DataFrame`.

        Parameters
        ----------
        **options
            Options of `pyarrow.Table.to_pandas`, and ``dtype_backend="pyarrow"``, which keeps Arrow's memory and types
            instead of creating one Python object per cell. Otherwise text, such as the topic, is categorical unless
            ``strings_to_categorical=False``, and all records without headers share one empty array.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(not_installed("to_pandas() needs pandas", "pandas")) from error
        backend = options.pop("dtype_backend", None)
        if backend not in (None, "pyarrow"):
            raise ValueError(f"dtype_backend must be 'pyarrow' or left out, not {backend!r}")
        if backend == "pyarrow":
            options.setdefault("types_mapper", pd.ArrowDtype)
        table = self.to_table()
        if "types_mapper" in options:
            return table.to_pandas(**options)
        try:
            return data_frame(table, **options)
        except (ValueError, OverflowError) as error:  # such as of the year 10000
            detail = (
                f"pandas objects cannot hold a value ({error}); use dtype_backend='pyarrow', which keeps Arrow's types"
            )
            raise ValueError(detail) from error

    def to_numpy(self) -> RecordColumns:
        """All records as NumPy columns; see `kafkalog.RecordColumns`.

        `topic` and `segment` are arrays of str, `partition` is an int32 array; all are read-only, and without memory of
        their own if there is one value. For a `.log` outside a topic-partition directory, `topic` is "" and `partition`
        is -1.

        With ``binary_type=pa.binary_view()``, keys and values are views (`kafkalog.records.columns.ViewColumn`) into
        the bytes that were read, which they keep in memory. Otherwise columns own their bytes, with offsets of 64 bits.
        """
        names = self._numpy_names()
        contexts: list[_Context] = []
        gathered = GatheredRecords(names)
        for task, part in self._pass().run(names, self._numpy_form(), into=gathered):
            contexts.append(_context_of(task, part.n_records))
            gathered.add(
                self._in_form(part) if isinstance(part, RecordColumns) else part,
                task.window.source.size / max(task.window.n_bytes, 1),
            )
            del task, part  # their memory can be reused for the next ones
        return self._with_context(gathered.finish(), contexts)

    def iter_numpy(self) -> Iterator[RecordColumns]:
        """Records as NumPy columns, a window at a time or `batch_size` rows, in bounded memory; see `to_numpy`.

        Raises
        ------
        KafkalogError
            On damage, with `on_corruption="raise"`. The records before the damage are yielded first.

        Examples
        --------
        >>> scan = kafkalog.scan("tests/golden/log_dir/p-multi-0", columns=["offset"], batch_size=100)
        >>> [records.n_records for records in scan.iter_numpy()][:1]
        [100]
        """
        names = self._numpy_names()
        for task, part in self._pass().run(names, self._numpy_form()):
            assert isinstance(part, RecordColumns)
            for piece in self._cut(self._in_form(part)):
                yield self._with_context(piece, [_context_of(task, piece.n_records)])
            del task, part

    def _in_form(self, part: RecordColumns) -> RecordColumns:
        """Records with their strings as views if these are asked for: older formats and damaged batches have none."""
        if self._numpy_form() != "views":
            return part
        columns = {name: as_views(one) if isinstance(one, BinaryColumn) else one for name, one in part.items()}
        return RecordColumns(part.n_records, columns, is_known=True)

    def _numpy_names(self) -> list[str]:
        """The columns to decode for NumPy."""
        if self._decoding is not None:
            headers = [name.removeprefix("headers.") for name in self.columns if name.startswith("headers.")]
            if headers:
                meant = f"columns=['headers'], and records.headers[{headers[0]!r}]"
                raise ValueError(f"headers.{headers[0]} is a column of tables only: use {meant}")
            raise ValueError("decoded columns exist in Arrow only: use to_table(), or read without them")
        return [name for name in self.columns if name not in CONTEXT_COLUMNS] or ["offset"]

    def _numpy_form(self) -> Form:
        return "views" if self._binary_type == pa.binary_view() else "numpy"

    def _with_context(self, records: RecordColumns, contexts: Sequence[_Context]) -> RecordColumns:
        """The requested columns of records, in order, with those for where they are stored."""
        columns: dict[str, Column] = {}
        for name in (*self.columns, *self._derived):
            if name in CONTEXT_COLUMNS:
                columns[name] = _context_column(name, contexts)
            elif name in records:
                columns[name] = records[name]
            else:  # a derived column, and not one record
                columns[name] = np.empty(0, self.schema.field(name).type.to_pandas_dtype())
        return RecordColumns(records.n_records, columns, is_known=True)

    def head(self, n: int = 5) -> pa.Table:
        """The first records."""
        if integer("n", n) < 0:
            raise ValueError("n must not be negative")
        n = min(n, 2**62)  # Arrow's lengths are int64
        if self._decoding is None or self._decoding.conditions is None:
            limit = n if self._query.limit is None else min(n, self._query.limit)
            one = self._with(limit=limit)  # a limit reads no more than it needs
            one._decoding = copy(self._decoding)
            table = one.to_table()
            self._last = one._last
            return table
        batches: list[pa.RecordBatch] = []
        left = n
        stream = self.to_batches()
        while left > 0:
            batch = next(stream, None)
            if batch is None:
                break
            batches.append(batch[:left])
            left -= len(batches[-1])
        cast(Any, stream).close()  # stops the threads that decode ahead
        return pa.Table.from_batches(batches, self.schema)

    def tail(self, n: int = 5) -> pa.Table:
        """The last records of each partition, `n` of each at most; not with a `limit`, which counts the first ones."""
        integer("n", n, 0)
        if self._query.limit is not None or self._limit is not None:
            raise ValueError(first_or_last("limit", "tail"))
        if self._decoding is not None and self._decoding.needs_to_learn and self._decoding.conditions is None:
            return self._decoded_tail(copy(self._decoding), n)
        found = Findings(self._query.limits.max_findings)
        tables = [self.schema.empty_table()]
        n_joined = 0
        for partition in self._query.iter_partitions():
            try:
                if isinstance(partition, Partition):
                    tables.append(self._tail_of(partition, n, found))
                    # a table of a few rows takes kilobytes
                    if len(tables) - n_joined >= _JOINED:
                        tables[n_joined:] = [pa.concat_tables(tables[n_joined:]).combine_chunks()]
                        n_joined = len(tables)
                elif self._query.on_corruption == "raise":
                    raise partition
                else:
                    found.add(partition.to_finding())
            except ReadError as error:
                removed = removed_from(self.target, error)
                if removed is None:
                    raise
                found.add(removed)
        self._last = Pass(self._query)
        self._last.findings = found
        return pa.concat_tables(tables)

    def _tail_of(self, partition: Partition, n: int, found: Findings) -> pa.Table:
        key = partition.key
        begin = max(offset_of(self._query.start_offset, key) or 0, 0)
        end: int | None
        until, reach = offset_of(self._query.end_offset, key), max(2 * n, 64)
        end = until
        try:
            end = partition.log_end_offset if until is None else min(until, partition.log_end_offset)
        except KafkalogError:
            reach = 2**62  # the end is damaged: read all, and handle the damage as asked
        first = partition.segments[0].base_offset if partition.segments else begin
        least = first if self._query.include_deleted else max(partition.log_start_offset, first)
        while True:
            start = begin if end is None or end - reach <= max(begin, least) else end - reach
            # not up to `end`: a compressed message of offset 0 ends the log at 1, whatever it holds
            one = self._with(target=partition, topics=None, partitions=None, start_offset=start, end_offset=until)
            table = one.to_table()
            if len(table) >= n or start == begin:
                for finding in one.findings:
                    found.add(finding)
                return table[max(len(table) - n, 0) :]
            # from ever farther before the end: compaction and control batches leave fewer records than offsets
            reach *= 8

    def count_rows(self) -> int:
        """The number of records. They are read and checked, and only their offsets are copied."""
        if self._decoding is not None and self._decoding.conditions is not None:
            return sum(map(len, self.to_batches()))
        return sum(columns.n_records for _, columns in self._pass().run(["offset"]))

    def explain(self, *, analyze: bool = False) -> Explanation:
        """What is ruled out at each level: partitions, segments, batches, and with `analyze` records.

        Parameters
        ----------
        analyze : bool
            Also decode, and count records. Otherwise only batch headers are walked.
        """
        one = self._pass()
        if analyze:
            for _ in one.run(["offset"]):
                pass
        else:
            one.walk()
        conditions = self._query.conditions()
        if one.statistics.n_bytes_jumped and not conditions["bytes"]:
            conditions["bytes"].append("the log start offset by the offset index")
        return Explanation(conditions, one.statistics)

    @property
    def target(self) -> Target:
        """The opened log dir, partition or segment, or the parts of a plan."""
        return self._query.target

    def partitions(self) -> Iterator[tuple[kf.TopicPartition | None, Partition]]:
        """The selected partitions in order, without those that cannot be opened."""
        for partition in self._query.iter_partitions():
            if isinstance(partition, Partition):
                yield partition.topic_partition, partition

    def plan(self, *, target_bytes: int = TASK_BYTES) -> list[Scan]:
        """Divide the scan into scans of parts of the files, which together read each record once, in the same order.

        A part is small and pickles, so that other processes with the same paths can read it, each with one thread. What
        `filters` rule out of partitions and offsets is in no part. With `latest`, no partition is divided.

        Parameters
        ----------
        target_bytes : int
            About how many bytes of `.log` files a part has. Large segments are divided, small ones read together. Bytes
            in memory (`kafkalog.open_buffer`) are one part.

        Returns
        -------
        list of Scan
            Reading one raises `FileChangedError` if its files are no longer those that were planned, and `ReadError`
            if they are gone. What is appended after planning is in no part.

        Raises
        ------
        ValueError
            The scan has a `limit`: then what a part has to read depends on the parts before it.
        KafkalogError
            A partition or a segment cannot be opened, with ``on_corruption="raise"``.

        Examples
        --------
        >>> scan = kafkalog.scan("tests/golden/log_dir", topics="p-multi")
        >>> parts = scan.plan(target_bytes=2**14)
        >>> len(parts), sum(part.count_rows() for part in parts)
        (..., 303)
        """
        planned = self.tasks(target_bytes)
        return [self] if self._divisible is None else [self.of_task(task) for task in planned.tasks]

    @property
    def _divisible(self) -> Opened | None:
        """What is divided into tasks; None for a part of a plan, and for bytes in memory."""
        target = self._query.target
        if isinstance(target, PartitionRanges) or (isinstance(target, Segment) and target.is_in_memory):
            return None
        return target

    def tasks(self, target_bytes: int = TASK_BYTES) -> Plan:
        """Divide the scan as `plan` does; `of_task` returns the scan of a task. One that is not divided has none."""
        integer("target_bytes", target_bytes, 1)
        query = self._query
        if query.limit is not None or self._limit is not None:
            raise ValueError("a scan with a limit cannot be divided: each part depends on the earlier ones")
        target = self._divisible
        if target is None:
            return Plan([])
        planned = plan(
            target,
            topics=query.topics,
            partitions=query.partitions,
            start_offset=query.start_offset,
            end_offset=query.end_offset,
            isolation_level=query.isolation_level,
            on_corruption=query.on_corruption,
            include_deleted=query.include_deleted,
            internal=query.internal,
            check_crcs=query.check_crcs,
            task_bytes=target_bytes,
            whole_partitions=query.latest is not None,
            condition=query.of_plan,
            limits=query.limits,
        )
        if self._decoding is not None:
            self._learn(self._decoding)  # once for all parts
        self._last = Pass(query)
        for finding in planned.findings:
            self._last.report(finding)
        return planned

    def of_task(self, task: ReadTask | None) -> Scan:
        """The scan of a task of its plan; without a task one of nothing, to be shipped once for all tasks."""
        whole = {"topics": None, "partitions": None, "start_offset": None, "end_offset": None, "threads": 1}
        parts = () if task is None else task.parts
        return self._with(target=PartitionRanges(parts, self._query.limits), **whole)

    def to_dataset(self) -> pa.dataset.Dataset:
        """The records as a `pyarrow.dataset.Dataset`, to which an engine hands the columns and filters of a query.

        Filters on topic, partition, offset, timestamp, key and other columns exclude partitions, segments, batches and
        records before decoding. Other filters are applied to decoded records.

        Examples
        --------
        >>> import duckdb
        >>> log = kafkalog.scan("tests/golden/log_dir").to_dataset()
        >>> duckdb.sql("select count(*) from log where topic = 'p-multi' and partition = 0").fetchall()
        [(122,)]
        """
        from kafkalog.scanning.dataset import ScanDataset

        return ScanDataset(self)

    @property
    def can_be_narrowed(self) -> bool:
        """Whether conditions may be added: not with a `limit`, which counts what comes first, nor with `decode`."""
        return self._query.limit is None and self._decoding is None

    def narrowed(self, columns: Sequence[str] | None = None, expression: pc.Expression | None = None) -> Scan:
        """This scan with other columns, or of only those of its records for which an expression is true.

        Raises
        ------
        ValueError
            The scan has a `limit`, which counts records before the expression is applied; a name is no column.
        """
        query, one = self._query, copy(self)
        if expression is not None:
            if self._query.limit is not None or self._limit is not None:
                raise ValueError("a scan with a limit cannot be narrowed: the limit applies first")
            if self._decoding is not None:
                one = self.without_ruled_out(expression)
                one._decoding = self._decoding.where(ArrowCondition(expression, known_fields(expression)))
            else:
                derived = {} if query.extract is None else query.extract.dtypes
                condition, residual = narrowed(query.filter, query.residual, expression, derived)
                one = self._with(filter=condition, residual=residual)
        if columns is not None:
            names = [name for name in columns if name not in self._derived]
            one.columns = check_columns(names, self.columns, (), self._derived)
            if one._decoding is not None:
                one._decoding = one._decoding.select(names)
        one._read(one.columns if one._decoding is None else one._decoding.record_columns)
        return one

    def _read(self, columns: Sequence[str]) -> None:
        """Set the columns of records that are read."""
        self._records = record_schema(columns, self._binary_type)
        extract = self._query.extract
        self._raw_schema = self._records if extract is None else extend_schema(self._records, extract.dtypes)

    def without_ruled_out(self, expression: pc.Expression) -> Scan:
        """This scan without records that an expression rules out before they are decoded; others may not match it."""
        if self._decoding is None or self._query.limit is not None or self._limit is not None:
            return self
        return self._with(filter=implied_filter(expression, self._decoding.decoded, self._query.filter))

    def _with(self, **changes: Any) -> Scan:
        """This scan with changes of its query."""
        one = copy(self)
        one._query = replace(self._query, **changes)
        return one

    def _pass(self) -> Pass:
        self._last = one = Pass(self._query, self.progress)
        return one

    def _decoded_batches(self, decoding: Decoding) -> Iterator[pa.RecordBatch]:
        """Record batches with decoded columns."""
        schema, left = self.schema, self._limit
        one, decoding = self._pass(), decoding.for_pass()
        try:
            for raw in self._raw_batches(one):
                batch = decoding.decode(raw, one.path, schema)
                if left is not None:
                    batch = batch[:left]
                    left -= len(batch)
                if len(batch):
                    yield batch
                if left == 0:
                    return
        finally:
            self._report_undecoded(decoding, one)

    def _report_undecoded(self, decoding: Decoding, one: Pass) -> None:
        one.n_undecoded += decoding.n_undecoded()
        for finding in decoding.take_findings():
            one.report(finding)
            warn(finding, DecodeWarning)

    def _learn(self, decoding: Decoding) -> None:
        """Read the records for the types of decoded columns. At damage that raises, the pass after this one raises."""
        if not decoding.needs_to_learn:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorruptionWarning)  # of which the pass after this one warns
            on_corruption = "stop" if self._query.on_corruption == "raise" else self._query.on_corruption
            query = replace(self._query, on_corruption=on_corruption)
            decoding.learn(lambda: self._raw_batches(Pass(query)))

    def _decoded_tail(self, decoding: Decoding, n: int) -> pa.Table:
        """The last records, with the types that they have themselves: not all of the log is read for them."""
        one = copy(self)
        one._decoding = None
        batches = one.tail(n).to_batches()
        self._last = found = cast(Pass, one._last)
        decoding.learn(lambda: batches)
        schema = decoding.schema(self._binary_type)
        path = str(self.target.path if isinstance(self.target, (Partition, Segment)) else self.target.paths[0])
        table = pa.Table.from_batches([decoding.decode(batch, path, schema) for batch in batches], schema)
        self._report_undecoded(decoding, found)
        return table

    def _cut(self, columns: RecordColumns) -> Iterator[RecordColumns]:
        """Slices of at most `batch_size` records and `MAX_BATCH_BYTES`."""
        return sized_slices(columns, MAX_BATCH_BYTES, self._batch_size)


def _report_header_keys(one: Pass, writer: ArrowWriter, segment: Segment | None) -> None:
    if segment is not None and writer.n_bad_header_keys:
        detail = f"{writer.n_bad_header_keys} header keys are not UTF-8 and show U+FFFD; to_numpy() keeps the bytes"
        one.report(Finding(Reason.HEADER_KEY_UTF8, detail, path=str(segment.path), damage=False))


_Context = tuple[kf.TopicPartition | None, str, int]
"""Where records are stored, and how many: the partition, the name of the segment."""


def _context_of(task: Task, n_records: int) -> _Context:
    return task.partition.topic_partition, task.window.segment.path.name, n_records


def _context_column(name: str, contexts: Sequence[_Context]) -> Column:
    values: list[Any] = [segment for _, segment, _ in contexts]
    if name != "segment":
        values = [getattr(key or kf.TopicPartition("", -1), name) for key, _, _ in contexts]
    counts = [n for _, _, n in contexts]
    if len(set(values)) == 1:  # as `np.broadcast_to`, in a fifth of its time
        array = np.array(values[:1], np.int32 if name == "partition" else np.str_)
        column: npt.NDArray[Any] = np.ndarray(sum(counts), array.dtype, array, strides=(0,))
    else:
        column = np.repeat(np.array(values, np.int32 if name == "partition" else np.str_), counts)
    column.flags.writeable = False
    return column
