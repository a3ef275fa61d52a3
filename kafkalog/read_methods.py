"""`ReadMethods`: the functions of `kafkalog` that read, as methods of logs; and the options of a scan.

The functions are above this package. They are called through `kafkalog` itself, and only when they are used, so this is
the one module whose imports point upwards. Columns become Arrow objects in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

from kafkalog import format as kf
from kafkalog import html
from kafkalog.html import PublicNames

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    import kafkalog
    from kafkalog.errors import Limits, OnCorruption
    from kafkalog.parsing import Time
    from kafkalog.scanning.conditions.filter_tuples import Filters
    from kafkalog.state.read_committed import IsolationLevel
    from kafkalog.values.options import Decode

Offsets = int | Mapping[kf.TopicPartition, int] | Mapping[tuple[str, int], int]


def _functions() -> Any:
    # imported when called: this package is below those that it hands over to
    import kafkalog

    return kafkalog


def _arrow() -> Any:
    # imported when called: records know no Arrow
    import kafkalog.interchange.column_arrays

    return kafkalog.interchange.column_arrays


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


class PlanOptions(TypedDict, total=False):
    """The options of `scan` that choose files and offsets; `plan` takes them."""

    topics: str | Sequence[str] | None
    partitions: Sequence[int] | int | None
    start_offset: Offsets | None
    end_offset: Offsets | None
    isolation_level: IsolationLevel
    include_deleted: bool
    internal: bool
    on_corruption: OnCorruption


class RecordOptions(TypedDict, total=False):
    """The options of `scan` that choose records and columns; `read_task` takes them."""

    columns: Sequence[str] | None
    start_timestamp: Time | None
    end_timestamp: Time | None
    filters: Filters | pc.Expression | None
    where: Callable[..., Any] | None
    include_control: bool
    check_crcs: bool
    use_time_index: bool
    latest: Literal["key"] | None


class TaskOptions(PlanOptions, RecordOptions, total=False):
    """The options of `scan` for a scan that is divided into tasks."""


class ScanOptions(TaskOptions, total=False):
    """The keyword arguments of `scan`. Every function that reads records takes them."""

    limit: int | None
    max_disorder: int | None
    extract: Mapping[str, tuple[Any, Callable[..., Any]]] | None
    threads: int | None
    batch_size: int | None
    memory_map: bool | str
    binary_type: pa.DataType | None
    decode: Mapping[str, Decode] | None
    schemas: Any
    schema_context: str | None
    limits: Limits | None
    storage_options: Mapping[str, Any] | None
    value_format: Decode | None
    key_format: Decode | None
    tiered: str | os.PathLike[str] | None
    tiered_keys: Mapping[str, Any] | None


OPENING: Final = ("storage_options", "tiered", "tiered_keys")
"""Options of `open` that whatever takes a path takes."""


def with_formats(decode: Mapping[str, Decode] | None, options: Mapping[str, Any]) -> dict[str, Decode]:
    """Return `decode` with the formats that are named as in the shell: `value_format` and `key_format`."""
    given = {column: options.get(f"{column}_format") for column in ("key", "value")}
    return {**(decode or {}), **{column: format for column, format in given.items() if format is not None}}


class ReadMethods(PublicNames):
    """What can be read of a log dir, a partition or a segment. The options are those of the functions."""

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a row for each segment."""
        segments: list[Any] = getattr(self, "segments", [self])
        rows = ((one.path.name, one.base_offset, one.size_in_bytes) for one in segments[: html.MOST_ROWS])
        return html.table(repr(self), ("segment", "base offset", "bytes"), rows, n_rows=len(segments))

    def scan(self, **options: Unpack[ScanOptions]) -> kafkalog.Scan:
        """See `kafkalog.scan`."""
        return _functions().scan(self, **options)  # type: ignore[no-any-return]

    def to_table(self, **options: Unpack[ScanOptions]) -> pa.Table:
        """Records as a `pyarrow.Table`; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_table()

    def to_pandas(self, **options: Unpack[ScanOptions]) -> pd.DataFrame:
        """Records as a `pandas.DataFrame`; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_pandas()

    def to_polars(self, **options: Unpack[ScanOptions]) -> pl.DataFrame:
        """Records as a `polars.DataFrame`; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_polars()

    def to_numpy(self, **options: Unpack[ScanOptions]) -> kafkalog.RecordColumns:
        """Records as NumPy columns; see `kafkalog.scan` for the options."""
        return self.scan(**options).to_numpy()

    def head(self, n: int = 5, **options: Unpack[ScanOptions]) -> pa.Table:
        """The first records; see `kafkalog.scan` for the options."""
        return self.scan(**options).head(n)

    def tail(self, n: int = 5, **options: Unpack[ScanOptions]) -> pa.Table:
        """The last records of each partition; see `kafkalog.scan` for the options."""
        return self.scan(**options).tail(n)

    def count_rows(self, **options: Unpack[ScanOptions]) -> int:
        """The number of records; see `kafkalog.scan` for the options."""
        return self.scan(**options).count_rows()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    def __kafkalog_stream__(self) -> pa.RecordBatchReader:
        return self.scan().__kafkalog_stream__()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the records: see `kafkalog.cat`."""
        return self.cat()

    def cat(self, **options: Any) -> Iterator[kafkalog.Record]:
        """See `kafkalog.cat`."""
        return _functions().cat(self, **options)  # type: ignore[no-any-return]

    def ls(self, **options: Any) -> list[kafkalog.PartitionSummary]:
        """See `kafkalog.ls`."""
        return _functions().ls(self, **options)  # type: ignore[no-any-return]

    def lookup(self, **options: Any) -> kafkalog.Lookup:
        """See `kafkalog.lookup`."""
        return _functions().lookup(self, **options)  # type: ignore[no-any-return]

    def producers(self, **options: Any) -> list[kafkalog.PartitionProducers]:
        """See `kafkalog.producers`."""
        return _functions().producers(self, **options)  # type: ignore[no-any-return]

    def epochs(self, **options: Any) -> list[kafkalog.PartitionEpochs]:
        """See `kafkalog.epochs`."""
        return _functions().epochs(self, **options)  # type: ignore[no-any-return]

    def verify(self, **options: Any) -> kafkalog.Verification:
        """See `kafkalog.verify`."""
        return _functions().verify(self, **options)  # type: ignore[no-any-return]
