"""Converts record columns from kafkalog's Arrow types to those that Spark takes; no other module converts records.

The columns are those of Spark's Kafka source, with its names and types, followed by kafkalog's own. Milliseconds become
microseconds, 8 and 16 bit integers become 32 bits wide, and the headers of a record without headers are null, as in
that source. The timestamp is null if the record's format has none, or if Spark cannot hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kafkalog.column_names import EXTRA_COLUMNS
from kafkalog.interchange.arrow_output import TIMESTAMP, record_schema
from kafkalog.interchange.table_types import LossCounts, converted
from kafkalog.parsing import check_once

KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's Kafka source, in its order; `headers` follows if it is requested."""

ALL_COLUMNS: Final = (*KAFKA_COLUMNS, "headers", *EXTRA_COLUMNS)
"""All columns, including those that a consumer does not get: about a record's batch and file."""

MAX_BATCH_BYTES: Final = 2**24
MAX_BATCH_ROWS: Final = 50_000

WIDER: Final = {
    **dict.fromkeys((pa.int8(), pa.int16()), pa.int32()),
    pa.uint32(): pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
"""The types of columns that Spark has in a wider form alone, and that form."""


def check_columns(columns: Sequence[str], decoded: Collection[str] = ()) -> tuple[str, ...]:
    """Return column names in Spark's spelling; the case of the given names does not matter.

    Of the columns in `decoded` there are fields, such as ``value.id``, and ``value_error`` and ``value_bytes``. Raises
    ValueError for an unknown column, and for one that is named twice.
    """
    spelling = {name.lower(): name for name in ALL_COLUMNS}
    names = []
    for name in columns:
        is_decoded = name.partition(".")[0] in decoded or name.removesuffix("_error").removesuffix("_bytes") in decoded
        if not is_decoded and name.lower() not in spelling:
            raise ValueError(f"no column {name!r}; there are {', '.join(ALL_COLUMNS)}")
        names.append(name if is_decoded else spelling[name.lower()])
    check_once(names)
    return tuple(names)


def spark_schema(columns: Sequence[str] = KAFKA_COLUMNS) -> StructType:
    """Return the schema in Spark's types; needs no session."""
    return from_arrow_schema(arrow_schema(columns))


def arrow_schema(columns: Sequence[str] = KAFKA_COLUMNS) -> pa.Schema:
    """Return the Arrow schema of the batches that `to_spark` returns."""
    types = record_schema(record_columns(columns)).types
    return pa.schema([(name, WIDER.get(kind, kind)) for name, kind in zip(columns, types, strict=True)])


def record_columns(columns: Sequence[str]) -> list[str]:
    """Return the names of these columns in `kafkalog.scan`."""
    return ["timestamp_type" if name == "timestampType" else name for name in columns]


def to_spark(batch: pa.RecordBatch, schema: pa.Schema, lost: LossCounts | None = None) -> pa.RecordBatch:
    """Convert a record batch of a scan, with the columns of `record_columns`, to the types of `arrow_schema`.

    Values that Spark cannot hold are null, and counted in `lost`. The case of names in the schema does not matter.
    """
    lost = LossCounts() if lost is None else lost
    columns = zip(batch.schema.names, batch.columns, schema, strict=True)
    arrays = [_cast(name, column, field.type, lost) for name, column, field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a record batch into slices of at most `MAX_BATCH_ROWS` and about `MAX_BATCH_BYTES`, at least a row each."""
    n = batch.num_rows
    rows = min(MAX_BATCH_ROWS, max(MAX_BATCH_BYTES * n // max(batch.nbytes, 1), 1))
    for start in range(0, n, rows):
        yield batch.slice(start, rows)


def _cast(name: str, column: pa.Array, kind: pa.DataType, lost: LossCounts) -> pa.Array:
    if name == "headers":
        has_some = pc.greater(pc.list_value_length(column), 0)
        # the usual case, which needs no look at each row
        if has_some.true_count == 0:
            return pa.nulls(len(column), kind)
        if has_some.true_count < len(column):
            column = pc.if_else(has_some, column, pa.scalar(None, column.type))
    return converted(column, kind, lost.report, (name,), target="spark")
