"""`ReadMethods`: the functions of `kafkalog` that read, as methods of logs.

The functions are above this package. They are called through `kafkalog` itself, and only when they are used, so no
import points upwards. Columns become Arrow objects in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from kafkalog import html
from kafkalog.calls import lead, named
from kafkalog.html import Bulk

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    import kafkalog


def _functions() -> Any:
    # imported when called: this package is below those that it hands over to
    import kafkalog

    return kafkalog


def _arrow() -> Any:
    return _functions().column_arrays  # records know no Arrow


class ArrowMethods:
    """How columns of records become Arrow and pandas objects. Both hold copies only where the formats differ."""

    __slots__ = ()

    def to_arrow(self, binary_type: pa.DataType | None = None) -> Any:
        """Return a `pyarrow.Table` of records, or a `pyarrow.Array` of one column, with the types of a scan.

        Parameters
        ----------
        binary_type : pyarrow.DataType, optional
            `pa.binary()`, `pa.large_binary()` or `pa.binary_view()` for keys, values and header values. Default:
            `pa.binary()`, and `pa.large_binary()` for a column of more than 2 GiB. Views stay views.
        """
        return _arrow().to_arrow(self, binary_type)

    def to_pandas(self, **options: Any) -> Any:
        """Return a `pandas.DataFrame` of records, or a `pandas.Series` of one column.

        Parameters
        ----------
        **options
            Options of `Scan.to_pandas`, for records.
        """
        return _arrow().to_pandas(self, **options)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return _arrow().one_array(self).__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return _arrow().stream(self).__arrow_c_stream__(requested_schema)

    def __kafkalog_stream__(self) -> pa.RecordBatchReader:
        return _arrow().stream(self, stored_names=True)


def with_remote_segments(path: Any, tiered: Any, **options: Any) -> Any:
    """See `kafkalog.tiered_location`."""
    return _functions().tiered_location(path, tiered, **options)


class ReadMethods(Bulk):
    """What can be read of a log dir, a partition or a segment. The options are those of the functions."""

    _led_untyped = ("find_", "offset_for", "aborted_transactions", "end_offset_for_epoch", "iter_batches")

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave most methods of logs as they are: scans call them, and each call counts."""
        lead(cls, cls._led_untyped, named)

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a row for each segment."""
        segments: list[Any] = getattr(self, "segments", [self])
        rows = ((one.path.name, one.base_offset, one.size_in_bytes) for one in segments[: html.MOST_ROWS])
        return html.table(repr(self), ("segment", "base offset", "bytes"), rows, n_rows=len(segments))

    def scan(self, **options: Unpack[kafkalog.types.ScanOptions]) -> kafkalog.Scan:
        """See `kafkalog.scan`."""
        return _functions().scan(self, **options)  # type: ignore[no-any-return]

    def to_table(self, **options: Unpack[kafkalog.types.ScanOptions]) -> pa.Table:
        """Records as a `pyarrow.Table`; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_table()

    def to_pandas(self, **options: Unpack[kafkalog.types.ScanOptions]) -> pd.DataFrame:
        """Records as a `pandas.DataFrame`; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_pandas()

    def to_polars(self, **options: Unpack[kafkalog.types.ScanOptions]) -> pl.DataFrame:
        """Records as a `polars.DataFrame`; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_polars()

    def to_numpy(self, **options: Unpack[kafkalog.types.ScanOptions]) -> kafkalog.RecordColumns:
        """Records as NumPy columns; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_numpy()

    def head(self, n: int = 5, **options: Unpack[kafkalog.types.ScanOptions]) -> pa.Table:
        """The first records; see `kafkalog.scan` for the options."""
        return self.scan(**options).head(n)

    def tail(self, n: int = 5, **options: Unpack[kafkalog.types.ScanOptions]) -> pa.Table:
        """The last records of each partition; see `kafkalog.scan` for the options."""
        return self.scan(**options).tail(n)

    def count_rows(self, **options: Unpack[kafkalog.types.ScanOptions]) -> int:
        """The number of records; see `kafkalog.scan` for the options."""
        return self.scan(**options).count_rows()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    def __kafkalog_stream__(self) -> pa.RecordBatchReader:
        return self.scan().__kafkalog_stream__()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the records: see `kafkalog.cat`."""
        return self.cat()

    def cat(
        self, *, tail: int | None = None, **options: Unpack[kafkalog.types.ScanOptions]
    ) -> Iterator[kafkalog.Record]:
        """See `kafkalog.cat`."""
        return _functions().cat(self, tail=tail, **options)  # type: ignore[no-any-return]

    def ls(self, **options: Unpack[kafkalog.types.ListOptions]) -> list[kafkalog.PartitionSummary]:
        """See `kafkalog.ls`."""
        return _functions().ls(self, **options)  # type: ignore[no-any-return]

    def lookup(self, **options: Unpack[kafkalog.types.LookupOptions]) -> kafkalog.Lookup:
        """See `kafkalog.lookup`."""
        return _functions().lookup(self, **options)  # type: ignore[no-any-return]

    def producers(self, **options: Unpack[kafkalog.types.ProducersOptions]) -> list[kafkalog.types.PartitionProducers]:
        """See `kafkalog.producers`."""
        return _functions().producers(self, **options)  # type: ignore[no-any-return]

    def epochs(self, **options: Unpack[kafkalog.types.EpochsOptions]) -> list[kafkalog.types.PartitionEpochs]:
        """See `kafkalog.epochs`."""
        return _functions().epochs(self, **options)  # type: ignore[no-any-return]

    def verify(
        self,
        *,
        decode: Mapping[str, kafkalog.types.Decode] | None = None,
        schemas: Any = None,
        schema_context: str | None = None,
        **options: Unpack[kafkalog.types.VerifyOptions],
    ) -> kafkalog.Verification:
        """See `kafkalog.verify`."""
        return _functions().verify(  # type: ignore[no-any-return]
            self, decode=decode, schemas=schemas, schema_context=schema_context, **options
        )
