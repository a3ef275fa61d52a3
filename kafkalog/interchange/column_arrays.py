"""Record columns of NumPy as Arrow and pandas objects, with the types of a scan; see `kafkalog.read_methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.column_names import ALL_COLUMNS, CONTEXT_COLUMNS
from kafkalog.interchange.arrow_buffers import data_frame
from kafkalog.interchange.arrow_output import (
    INT32_MAX,
    ArrowWriter,
    binary_array,
    check_binary_type,
    headers_array,
    record_schema,
    repeated,
    stored_names_schema,
)
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, ViewColumn
from kafkalog.records.columns import Column, RecordColumns, is_masked, sized_slices

if TYPE_CHECKING:
    import pandas as pd

_BATCH_BYTES: Final = 2**26


def to_arrow(data: RecordColumns | Column, binary_type: pa.DataType | None = None) -> pa.Table | pa.Array:
    """The table of records, or the array of one column."""
    if isinstance(data, RecordColumns):
        batches = _batches(data, _schema(data, binary_type))
        return pa.Table.from_batches(batches, batches[0].schema)
    if isinstance(data, HeadersColumn):
        kind = record_schema(["headers"], binary_type or _binary_type(data.value)).field(0).type
        return headers_array(data, kind)[0]
    assert not isinstance(data, np.ndarray)
    return binary_array(data, _binary_type(data) if binary_type is None else check_binary_type(binary_type))


def one_array(data: RecordColumns | Column) -> pa.RecordBatch | pa.Array:
    """The record batch of all records, or the array of one column."""
    if isinstance(data, RecordColumns):
        return _ColumnWriter(_schema(data, None)).batch(data)
    return to_arrow(data)


def stream(data: RecordColumns | Column, *, stored_names: bool = False) -> pa.ChunkedArray | pa.RecordBatchReader:
    """A reader of records, or one column in chunks. With `stored_names`, header names are bytes."""
    if not isinstance(data, RecordColumns):
        return pa.chunked_array([to_arrow(data)])
    schema = _schema(data, None)
    batches = _batches(data, stored_names_schema(schema) if stored_names else schema)
    return pa.RecordBatchReader.from_batches(batches[0].schema, batches)


def to_pandas(data: RecordColumns | Column, **options: Any) -> pd.DataFrame | pd.Series:
    """The data frame of records, or the series of one column."""
    if isinstance(data, RecordColumns):
        return data_frame(to_arrow(data), **options)
    import pandas as pd

    return pd.Series(np.asarray(data), dtype=object, **options)


def _batches(records: RecordColumns, schema: pa.Schema) -> list[pa.RecordBatch]:
    writer = _ColumnWriter(schema)
    return [writer.batch(part) for part in sized_slices(records, _BATCH_BYTES)] or [writer.batch(records)]


class _ColumnWriter(ArrowWriter):
    """Makes record batches of columns that have all fields, also those of a record's place."""

    def _array(self, name: str, kind: pa.DataType, columns: RecordColumns, n: int) -> pa.Array:
        column = columns[name]
        if name == "timestamp" and "timestamp_type" not in columns and isinstance(column, np.ndarray):
            types = np.where(column == kf.NO_TIMESTAMP, np.int8(kf.NO_TIMESTAMP), np.int8(0))
            columns = RecordColumns(n, {name: column, "timestamp_type": types}, is_known=True)
        elif name in CONTEXT_COLUMNS and isinstance(column, np.ndarray):
            if n and column.strides == (0,):
                return repeated(column[0].item(), kind, n)
            return pa.array(column, kind)
        elif name not in ALL_COLUMNS and isinstance(column, np.ndarray):
            mask = np.ma.getmaskarray(column) if is_masked(column) else None
            return pa.array(np.ma.getdata(column), kind, mask=mask)
        return super()._array(name, kind, columns, n)


def _binary_type(column: BinaryColumn | ViewColumn) -> pa.DataType:
    """The type of a column that holds its bytes."""
    if isinstance(column, ViewColumn):
        return pa.binary_view()
    return pa.large_binary() if column.data.size > INT32_MAX else pa.binary()


def _schema(records: RecordColumns, binary_type: pa.DataType | None) -> pa.Schema:
    """The schema of a scan with these columns; of others, the types follow from their dtypes."""
    if binary_type is None and any(isinstance(column, ViewColumn) for column in records.values()):
        binary_type = pa.binary_view()
    known = record_schema([name for name in records if name in ALL_COLUMNS], binary_type)
    fields = []
    for name, column in records.items():
        if name in ALL_COLUMNS:
            fields.append(known.field(name))
        elif isinstance(column, np.ndarray):
            fields.append(pa.field(name, pa.from_numpy_dtype(column.dtype)))
        else:
            fields.append(pa.field(name, to_arrow(column[:0], binary_type).type))
    return pa.schema(fields)
