"""Arrow streams: a base for objects that export one, and any Arrow-compatible object opened as one.

Such objects come from pyarrow, pandas, Polars, DuckDB or a scan, or are a dict of arrays. The contents of the batches
are not checked here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.errors import Reason, UnwritableError
from kafkalog.html import Bulk
from kafkalog.interchange.arrow_values import one_line
from kafkalog.interchange.table_types import Conversion, stored_schema
from kafkalog.records.byte_columns import fixed_size_bytes
from kafkalog.records.columns import BINARY_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class ArrowStream(Bulk, ABC):
    """Gives record batches, as a reader, as a table, and to whatever takes an Arrow stream."""

    schema: pa.Schema

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""

    def __iter__(self) -> Iterator[Any]:
        """Raise TypeError: rows may be meant, or batches."""
        arrays = " iter_numpy()," if hasattr(self, "iter_numpy") else ""
        raise TypeError(
            f"a {type(self).__name__} is not iterable: use to_batches(),{arrays} to_table().to_pylist(), or"
            " kafkalog.cat(path) for records"
        )

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a `pyarrow.RecordBatchReader`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """All rows as a `pyarrow.Table`."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_arrow(self) -> pa.Table:
        """All rows as a `pyarrow.Table`, as `to_table`; every result has this name."""
        return self.to_table()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a `pandas.DataFrame`."""
        return self.to_table().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a `polars.DataFrame`. Decimals of more than 38 digits are text, since Polars lacks them."""
        try:
            import polars as pl
        except ImportError as error:
            raise ImportError("polars is not installed: pip install polars") from error
        schema = stored_schema(self.schema, "polars")
        if schema == self.schema:
            return pl.DataFrame(self.to_reader())
        batches = map(Conversion(schema, "polars").of, self.to_batches())
        return pl.DataFrame(pa.RecordBatchReader.from_batches(schema, batches))

    def to_dict(self) -> dict[str, list[Any]]:
        """All rows as a dict of columns."""
        columns: dict[str, list[Any]] = self.to_table().to_pydict()
        return columns


def open_batches(data: Any) -> pa.RecordBatchReader:
    """Open data as a stream of record batches.

    Records of a log, which have `__kafkalog_stream__`, keep header names that are not UTF-8.

    Raises TypeError if it has no Arrow interface, UnwritableError if the values of a column have no common Arrow type.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, np.ndarray) and data.dtype.names:
        data = {name: data[name] for name in data.dtype.names}
    try:
        if hasattr(data, "__kafkalog_stream__"):
            return data.__kafkalog_stream__()
        return _open(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise UnwritableError(Reason.COLUMN_TYPE, one_line(error)) from error


def _open(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, Mapping) and not hasattr(data, "__arrow_c_stream__"):  # a log dir is a mapping, too
        return pa.table({name: _as_array(name, values) for name, values in data.items()}).to_reader()
    if type(data).__module__.partition(".")[0] == "pandas":
        if not hasattr(data, "columns"):
            raise TypeError(f"a pandas DataFrame is expected, not a {type(data).__name__}")
        # a named index is a column like the others; an unnamed one is just the row number
        named = any(name is not None for name in data.index.names)
        return pa.Table.from_pandas(data, preserve_index=named).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return _open(pa.record_batch(data))
    # a dataset of pyarrow, which has no stream of its own
    if hasattr(data, "scanner") and hasattr(data, "schema"):
        return data.scanner().to_reader()
    if hasattr(data, "to_reader"):
        return data.to_reader()
    raise TypeError(
        "records are a table that speaks Arrow (pyarrow, pandas, Polars, DuckDB ...) or a dict of arrays, "
        f"not {type(data).__name__}; {_table_of(data)}"
    )


def _table_of(data: object) -> str:
    """How to make a table of something that is none."""
    if hasattr(data, "collect"):
        return "collect() it first"
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        return "pyarrow.Table.from_pylist(rows) makes one of dicts"
    return 'such as {"key": [b"a"], "value": [b"b"]}'


def _as_array(name: Any, values: Any) -> Any:
    """A column of a dict as an Arrow array; headers may be lists of (key, value) tuples."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"records have a list or an array for each column, and {name!r} is {values!r}")
    if isinstance(values, np.ndarray | list | tuple) and name == "headers":
        first = next((pair for headers in values if headers is not None for pair in headers), None)
        if isinstance(first, tuple):
            return pa.array(list(values), type=pa.map_(pa.binary(), pa.binary()))
    if isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(values, "__arrow_c_stream__"):
        return values
    if isinstance(values, list | tuple) and values and isinstance(values[0], np.datetime64):
        values = np.array(values)
    return _of_numpy(name, values) if type(values) is np.ndarray else pa.array(values)


def _of_numpy(name: Any, values: npt.NDArray[Any]) -> pa.Array:
    """An array of NumPy as one of Arrow; values of one size are bytes, and its times, which have no zone, are UTC."""
    kind, dtype = values.dtype.kind, values.dtype
    is_swapped = dtype != dtype.newbyteorder("=")
    data = fixed_size_bytes(values) if kind not in "iuf" or values.ndim == 2 or name in BINARY_COLUMNS else None
    if data is not None:
        size = data.size // max(len(values), 1)
        return pa.Array.from_buffers(pa.binary(size), len(values), [None, pa.py_buffer(data)])
    if kind == "M":
        unit = np.datetime_data(dtype)[0]
        unit = unit if unit in ("s", "ms", "us", "ns") else "s"
        return pa.array(values.astype(f"M8[{unit}]"), pa.timestamp(unit, "UTC"))
    return pa.array(values.astype(dtype.newbyteorder("=")) if is_swapped else values)
