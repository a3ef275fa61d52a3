"""The Arrow types of record columns to Spark's: the one place where records change type on their way into Spark.

The columns are those of Spark's own Kafka source, with its names and types, then kafkalog's own. Milliseconds become
microseconds, 8 and 16 bit integers 32, and a record without headers has none (null), as that source has it. A record
whose format has no timestamp has a null one, and so has one whose timestamp Spark cannot hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalog.interchange.arrow_buffers import milliseconds
from kafkalog.interchange.arrow_output import EXTRA_COLUMNS, TIMESTAMP, record_schema

KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's Kafka source, in its order; `headers` follows where it is asked for."""

ALL_COLUMNS: Final = (*KAFKA_COLUMNS, "headers", *EXTRA_COLUMNS)
"""With what a consumer is not told: of the batch and the file that a record is in."""

MAX_BATCH_BYTES: Final = 2**24
MAX_BATCH_ROWS: Final = 50_000

_MICROSECOND_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_WIDER: Final = {pa.int8(): pa.int32(), pa.int16(): pa.int32(), TIMESTAMP: _MICROSECOND_TIMESTAMP}
_SPARK_TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    _MICROSECOND_TIMESTAMP: TimestampType(),
}
_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_MICROSECONDS: Final = 1000
_LARGEST_MILLISECONDS: Final = (2**63 - 1) // _MICROSECONDS


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, in Spark's spelling, whatever their case.

    Raises
    ------
    ValueError
        There is no such column, or it is named twice.
    """
    spelling = {name.lower(): name for name in ALL_COLUMNS}
    names = []
    for name in columns:
        if name.lower() not in spelling:
            raise ValueError(f"no column {name!r}; there are {', '.join(ALL_COLUMNS)}")
        names.append(spelling[name.lower()])
    if len(set(names)) != len(names):
        raise ValueError(f"columns names a column twice: {', '.join(columns)}")
    return tuple(names)


def spark_schema(columns: Sequence[str] = KAFKA_COLUMNS) -> StructType:
    """The schema as Spark has it; needs no session."""
    return StructType(
        [StructField(field.name, _SPARK_TYPES.get(field.type, _HEADERS)) for field in arrow_schema(columns)]
    )


def arrow_schema(columns: Sequence[str] = KAFKA_COLUMNS) -> pa.Schema:
    """The schema of what `to_spark` makes."""
    types = record_schema(record_columns(columns)).types
    return pa.schema([(name, _WIDER.get(kind, kind)) for name, kind in zip(columns, types, strict=True)])


def record_columns(columns: Sequence[str]) -> list[str]:
    """What to ask `kafkalog.scan` for."""
    return ["timestamp_type" if name == "timestampType" else name for name in columns]


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of ours in types that Spark takes.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        With the columns of `record_columns`, from `kafkalog.scan`.
    schema : pyarrow.Schema
        From `arrow_schema`, in the same order; the case of a name does not matter.
    """
    columns = zip(batch.schema.names, batch.columns, schema, strict=True)
    arrays = [_cast(name, column, field.type) for name, column, field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of a record batch that are small enough to hand to Spark: a row at least."""
    n = batch.num_rows
    rows = min(MAX_BATCH_ROWS, max(MAX_BATCH_BYTES * n // max(batch.nbytes, 1), 1))
    for start in range(0, n, rows):
        yield batch.slice(start, rows)


def n_overflows(batch: pa.RecordBatch) -> int:
    """Of a record batch of ours: timestamps that Spark cannot hold."""
    if "timestamp" not in batch.schema.names:
        return 0
    return int(np.count_nonzero(~_fits(batch.column("timestamp"))))


def _cast(name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
    if name == "timestamp":
        fits = _fits(column)
        if not fits.all():
            column = pc.if_else(pa.array(fits), column, pa.scalar(None, column.type))
    elif name == "headers":
        has_some = pc.greater(pc.list_value_length(column), 0)
        if has_some.true_count == 0:
            return pa.nulls(len(column), kind)
        if has_some.true_count < len(column):
            column = pc.if_else(has_some, column, pa.scalar(None, column.type))
    return column if column.type == kind else column.cast(kind)


def _fits(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which timestamps, null ones included, are few enough milliseconds to be counted in microseconds."""
    stamps = milliseconds(column)
    fits: np.ndarray[tuple[int], np.dtype[np.bool_]] = (stamps <= _LARGEST_MILLISECONDS) & (
        stamps >= -_LARGEST_MILLISECONDS
    )
    return fits
