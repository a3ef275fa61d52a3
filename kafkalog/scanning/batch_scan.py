"""A scan of record batches: the batch table of segments, partitions and log dirs, in bounded memory.

It extends `Segment.iter_batches` to everything at a path, and adds the topic, partition and segment to each row. Use it
for questions about producers, sizes and compression. Records are not decoded, and checksums are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.column_names import CONTEXT_COLUMNS
from kafkalog.errors import CorruptionWarning, Finding, Findings, KafkalogError, Loss, warn
from kafkalog.interchange.arrow_streams import ArrowStream
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, removed_from
from kafkalog.log.partition import Partition
from kafkalog.records.batch_table import COLUMNS, DERIVED, BatchTable
from kafkalog.scanning.options import BatchOptions
from kafkalog.scanning.query import Opened, Query, Target, check_columns, html_of, offset_of
from kafkalog.words import unknown_keyword

if TYPE_CHECKING:
    import pandas as pd

BATCH_COLUMNS: Final = (*CONTEXT_COLUMNS, *COLUMNS, *DERIVED, "compression")
"""Topic, partition and segment, the columns of `BatchTable`, and the name of the codec."""

_TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "segment": pa.string(),
    "compression": pa.string(),
    "codec": pa.int8(),
    "timestamp_type": pa.int8(),
    "is_transactional": pa.bool_(),
    "is_control": pa.bool_(),
    "delete_horizon_ms": pa.int64(),
    **{name: pa.from_numpy_dtype(np.dtype(dtype)) for name, dtype in COLUMNS.items()},
}


class BatchRows(NamedTuple):
    """Rows of a batch table, and their topic-partition and segment."""

    topic_partition: kf.TopicPartition | None
    segment: str
    """File name of the segment."""
    batches: BatchTable


class BatchScan(ArrowStream):
    """A lazy scan of record batches. `kafkalog.batches` makes it and documents the parameters.

    Each call walks the headers again. Like a `Scan`, it is an Arrow stream for anything that takes one.

    Attributes
    ----------
    schema : pyarrow.Schema
    progress : callable or None
        Called with the number of bytes of `.log` files read since the last call; None by default.
    """

    def __init__(self, path: Paths | Opened, **options: Unpack[BatchOptions]) -> None:
        if unknown := sorted(set(options) - set(BatchOptions.__annotations__)):
            raise TypeError(
                f"batches has no option {unknown[0]!r}; {unknown_keyword(unknown[0], BatchOptions.__annotations__)}"
            )
        self.schema = batch_schema(options.get("columns"))
        self.columns = tuple(self.schema.names)
        self._query = Query.of(path, internal=True, **options)
        self._found = Findings(self._query.limits.max_findings)
        self.progress: Callable[[int], object] | None = None

    def __repr__(self) -> str:
        return f"BatchScan({self._query.target!r})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the columns, and the conditions at each level. Nothing is read."""
        # control batches have rows here, and no records are decoded
        conditions = replace(self._query, include_control=True).conditions()
        return html_of(repr(self), self.schema, {**conditions, "records": []})

    @property
    def target(self) -> Target:
        """The opened log dir, partition or segment."""
        return self._query.target

    @property
    def findings(self) -> list[Finding]:
        """The findings of the last pass."""
        return list(self._found.rows)

    @property
    def n_damage(self) -> int:
        """How many findings of the last pass are damage, those beyond `Limits.max_findings` included."""
        return self._found.n_damage

    def partitions(self) -> Iterator[tuple[kf.TopicPartition | None, Partition]]:
        """The partitions to walk, in order. One that cannot be opened raises, or gives a finding."""
        for partition in self._query.iter_partitions():
            if isinstance(partition, KafkalogError):
                self._handle(partition)
            else:
                yield partition.topic_partition, partition

    def iter_rows(self) -> Iterator[BatchRows]:
        """Batch tables in order, each one window of one segment.

        Raises
        ------
        KafkalogError
            On damage, with `on_corruption="raise"`. The batches before the damage are yielded first.
        """
        self._found = Findings(self._query.limits.max_findings)
        if isinstance(self._query.target, LogDir):
            for finding in self._query.target.findings:
                self._report(finding)
        for key, partition in self.partitions():
            _ = partition.log_start_offset  # the partition reads its checkpoint here, and adds what it finds
            for finding in partition.findings:
                self._report(finding)
            try:
                for segment, batches in partition.iter_batches(
                    start_offset=offset_of(self._query.start_offset, partition.key),
                    end_offset=offset_of(self._query.end_offset, partition.key),
                    on_corruption=self._query.on_corruption,
                    report=self._report,
                    progress=self._advance,
                ):
                    yield BatchRows(key, segment.path.name, batches)
            except KafkalogError as error:
                self._handle(error)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches."""
        for rows in self.iter_rows():
            arrays = [_array(name, rows) for name in self.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a `pandas.DataFrame`."""
        return self.to_table().to_pandas()

    def _advance(self, n_bytes: int) -> None:
        if self.progress is not None:
            self.progress(n_bytes)

    @property
    def losses(self) -> dict[str, Loss]:
        """Data lost in the last pass, by partition directory."""
        return dict(self._found.losses)

    def _handle(self, error: KafkalogError) -> None:
        if self._query.on_corruption == "raise" and removed_from(self._query.target, error) is None:
            raise error
        self._report(error.to_finding())

    def _report(self, finding: Finding) -> None:
        self._found.add(finding)
        if finding.damage:
            warn(finding, CorruptionWarning)


def batch_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of these columns; default: all."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in check_columns(columns, BATCH_COLUMNS, BATCH_COLUMNS)])


def batch_column(name: str, batches: BatchTable) -> npt.NDArray[Any]:
    """A stored or derived column, or the codec's name as str."""
    if name == "compression":
        return np.array(kf.CODEC_NAMES)[batches.codec]
    column: npt.NDArray[Any] = getattr(batches, name)
    return column


def _array(name: str, rows: BatchRows) -> pa.Array:
    """A column as an Arrow array. It is built from buffers, because `pa.array` imports pandas."""
    n = len(rows.batches)
    if name in CONTEXT_COLUMNS:
        topic, partition = rows.topic_partition or (None, None)
        value = {"topic": topic, "partition": partition, "segment": rows.segment}[name]
        if value is None:
            return pa.nulls(n, _TYPES[name])
        if isinstance(value, int):
            return _numbers(np.full(n, value, np.int32), pa.int32())
        return _texts([value], np.zeros(n, np.int8))
    if name == "compression":
        return _texts(kf.CODEC_NAMES, rows.batches.codec)
    return _numbers(batch_column(name, rows.batches), _TYPES[name])


def _numbers(column: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    data = np.packbits(column, bitorder="little") if kind == pa.bool_() else np.ascontiguousarray(column)
    return pa.Array.from_buffers(kind, column.size, [None, pa.py_buffer(data)])


def _texts(names: Sequence[str], numbers: npt.NDArray[np.int8]) -> pa.Array:
    texts = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    known = pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))])
    return known.take(_numbers(numbers, pa.int8()))


def batches(path: Paths | Opened, **options: Unpack[BatchOptions]) -> BatchScan:
    """The batch table of everything at a path: one row per record batch, from its header. Nothing is read yet.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `open` returned
    columns : sequence of str, optional
        Default: topic, partition, segment (file name), the stored and derived columns of `BatchTable`, and compression
        (the codec's name).
    start_offset, end_offset : int or mapping of TopicPartition to int, optional
        Half-open. Batches that may hold such offsets, including batches below the log start offset.
    topics, partitions, on_corruption, memory_map, limits
        See `scan`. Checksums are not checked, so only damage that shows in headers is found. With "stop" and "skip" a
        partition that cannot be opened is a finding, and the others are read.

    Returns
    -------
    BatchScan

    Examples
    --------
    >>> batches = kafkalog.batches("tests/golden/log_dir", topics="p-txn").to_table()
    >>> sum(batches["is_control"].to_pylist()), len(batches)
    (72, ...)
    """
    return BatchScan(path, **options)
