"""The records of two topics as rows of a database: where each is, and a digest of what it holds.

DuckDB keeps the rows on disk, so that memory does not grow with the topics.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads

from kafkalog.errors import Findings, NotKafkaError, Reason, WriteError, not_installed
from kafkalog.interchange.file_types import file_type
from kafkalog.interchange.input_paths import input_files
from kafkalog.log.log_dir import LogDir, missing_path
from kafkalog.parsing import decoder_count
from kafkalog.scanning.read import scan

if TYPE_CHECKING:
    import duckdb

Field = Literal["key", "value", "headers", "timestamp"]
FIELDS: Final[tuple[Field, ...]] = ("key", "value", "headers", "timestamp")
"""What makes the content of a record."""

_LEAST_MEMORY: Final = 2**26
_USUAL_MEMORY: Final = 2**28
_PLACE: Final = ("partition", "offset")
_KINDS: Final = {"parquet": "parquet", "arrow": "ipc"}
# each part with its length before it, and null as n: no two records have the same text unless they are equal
_NET: Final = "coalesce(encode(octet_length({0})::varchar || ':') || {0}, 'n'::blob)"
_PARTS: Final[dict[Field, str]] = {
    "key": _NET.format("key"),
    "value": _NET.format("value"),
    "headers": "encode(coalesce(array_to_string(list_transform(headers,"
    " lambda header: hex(header.key) || ':' || coalesce(hex(header.value), 'n')), ','), '') || ';')",
    "timestamp": "encode(coalesce(timestamp::varchar, 'n'))",
}

_TYPES: Final = {
    "i": pa.int64(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": pa.int64(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}

Source: TypeAlias = LogDir | pads.Dataset
"""A log dir, or an exported table, which is one topic."""


def table_at(path: str | os.PathLike[str]) -> pads.Dataset | None:
    """The exported table at a path: a .parquet or .arrow file, or a directory of such files. None if it is none.

    Raises NotKafkaError if the columns `partition` and `offset` are missing.
    """
    try:
        files = [str(file.path) for file in input_files([path])]
    except NotKafkaError:
        return None
    kinds = {_KINDS.get(file_type(file)[0] or "") for file in files}
    kind = kinds.pop()
    if kinds or kind is None:
        return None
    try:
        table = pads.dataset(files, format=kind, partitioning="hive")
    except FileNotFoundError as error:
        raise missing_path(str(path)) from error
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(error, str(path)) from error
    if missing := [name for name in _PLACE if name not in table.schema.names]:
        detail = f"the table has no column {missing[0]!r}: only tables from 'kafkalog export' can be compared"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=str(path))
    return table


def table_batches(table: pads.Dataset, **how: Any) -> Iterator[pa.RecordBatch]:
    """The rows of an exported table; raises NotKafkaError for damage."""
    try:
        yield from table.scanner(**how).to_batches()
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(error, table.files[0]) from error


def _unreadable(error: Exception, path: str) -> NotKafkaError:
    return NotKafkaError(Reason.NOT_KAFKA, f"the table cannot be read, export it again: {error}", path=path)


class Database:
    """A database in a temporary directory, with the tables ``a`` and ``b``; a context manager.

    Both have the columns ``i`` (number of the record on its side), ``partition``, ``offset`` and ``digest`` (128 bits
    of `fields`). `memory` bounds what DuckDB holds; the rest goes to `directory`.
    """

    def __init__(self, fields: Sequence[Field], memory: int | None, directory: str | os.PathLike[str] | None) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise ImportError(not_installed("comparing content needs duckdb", "sql")) from error
        memory = _USUAL_MEMORY if memory is None else memory
        if memory < _LEAST_MEMORY:
            raise ValueError(f"memory (--memory) must be at least {_LEAST_MEMORY // 2**20}M")
        self.memory: Final = memory
        self._fields = fields
        self._failed: BaseException | None = None
        self._stack = contextlib.ExitStack()
        self._home = home = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkalog-", dir=directory))
        self.connection: duckdb.DuckDBPyConnection = self._stack.enter_context(
            contextlib.closing(duckdb.connect(f"{home}/records.duckdb"))
        )
        self.run(f"set memory_limit = '{memory // 2**20} MiB'")
        self.run(f"set temp_directory = '{home}/spilled'")
        self.run("set preserve_insertion_order = false")
        # it goes to standard output, between the results
        self.run("set enable_progress_bar_print = false")
        # per thread, sorting holds buffers of its own
        self.run(f"set threads = {min(decoder_count(), 8)}")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        import duckdb

        self._stack.close()
        # DuckDB gives errors of what it reads other types
        if isinstance(error, duckdb.Error) and self._failed is not None:
            raise self._failed from None
        if isinstance(error, duckdb.OutOfMemoryException):
            detail = f"comparing needs more memory than {self.memory // 2**20} MiB: raise memory (--memory)"
            raise MemoryError(detail) from error
        if isinstance(error, duckdb.IOException):
            raise WriteError(Reason.WRITE_FAILED, f"the temporary directory: {error}", path=self._home) from error

    def _noting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches; keep the error of a batch that cannot be read."""
        try:
            yield from batches
        except BaseException as error:
            self._failed = error
            raise

    def run(self, query: str, **parameters: object) -> Any:
        """Run a query; its result has `fetchall` and `fetchnumpy`."""
        return self.connection.execute(query, parameters) if parameters else self.connection.execute(query)

    @contextlib.contextmanager
    def input(self, name: str, rows: pa.Table | pa.RecordBatchReader) -> Iterator[None]:
        """Let queries read rows of Arrow under a name."""
        self.connection.register(name, rows)
        try:
            yield
        finally:
            self.connection.unregister(name)

    def fill(self, side: str, batches: Iterable[pa.RecordBatch], *, is_sorted: bool = True) -> int:
        """Fill a side with records, in the order of partitions and offsets or not; returns how many there are."""
        columns = [*_PLACE, *self._fields]
        numbered = self._noting(_numbered(batches, columns))
        first = next(numbered)
        reader = pa.RecordBatchReader.from_batches(first.schema, _chain(first, numbered))
        digest = " || ".join(_PARTS[name] for name in self._fields)
        number = "i" if is_sorted else 'row_number() over (order by partition, "offset") - 1'
        with self.input("records", reader):
            self.run(
                f'create or replace table {side} as select {number} as i, partition, "offset", digest'
                f' from (select i, partition, "offset", md5_number({digest}) as digest from records)'
            )
        ((n_records,),) = self.run(f"select count(*) from {side}").fetchall()
        return int(n_records)


def batches_of(
    source: Source,
    topic: str,
    fields: Sequence[Field],
    progress: Callable[[int], object],
    options: Any,
    findings: Findings | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a topic of a source, with their place and `fields`; those of a log are in order.

    `findings` gets the damage that was skipped.
    """
    columns = [*_PLACE, *fields]
    if isinstance(source, LogDir):
        records = scan(source, topics=[topic], columns=columns, internal=True, **options)
        for batch in records.to_batches():
            progress(batch.num_rows)
            yield batch
        if findings is not None:
            for one in records.findings:
                if one.damage:
                    findings.add(one)
        return
    if missing := [name for name in fields if name not in source.schema.names]:
        detail = f"the table has no column {missing[0]!r}: leave it out of the comparison with --ignore (ignore)"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=source.files[0])
    chosen = None if not topic else pads.field("topic") == topic
    for batch in table_batches(source, columns=columns, filter=chosen):
        progress(batch.num_rows)
        yield batch


def _numbered(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Batches with the number of each record, times as milliseconds, keys and values as bytes; at least one."""
    n_records = 0
    for batch in batches:
        columns = [_stored(name, batch.column(name)) for name in names]
        numbers = pa.array(np.arange(n_records, n_records + batch.num_rows, dtype=np.int64))
        n_records += batch.num_rows
        yield pa.RecordBatch.from_arrays([numbers, *columns], names=["i", *names])
    if not n_records:
        yield pa.RecordBatch.from_arrays([pa.array([], _TYPES[name]) for name in ["i", *names]], names=["i", *names])


def _stored(name: str, column: pa.Array) -> pa.Array:
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    try:
        return column.cast(_TYPES[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        detail = f"column {name!r} is {column.type}, not bytes: compare a table that was exported without formats"
        raise NotKafkaError(Reason.COLUMN_TYPE, detail, path="") from None


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
