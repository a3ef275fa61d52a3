"""`ReadMethods`: the functions of `kafkalog` that read, as methods of logs; and the options of a scan.

The functions are above this package. They are called through `kafkalog` itself, and only when they are used, so this is
the one module whose imports point upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

from kafkalog import format as kf
from kafkalog import html

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

_OTHER_NAMES: Final = {
    "start_offset": "log_start_offset",
    "end_offset": "log_end_offset",
    "first_offset": "log_start_offset",
    "last_offset": "log_end_offset",
    "earliest_offset": "log_start_offset",
    "latest_offset": "log_end_offset",
    "beginning_offset": "log_start_offset",
    "size": "size_in_bytes",
    "n_bytes": "size_in_bytes",
    "count": "count_rows()",
    "n_records": "count_rows()",
    "records": "cat()",
    "read": "scan()",
    "read_table": "to_table()",
    "read_pandas": "to_pandas()",
    "to_arrow": "to_table()",
    "to_df": "to_pandas()",
    "to_parquet": "kafkalog.export(...)",
    "batches": "segments[0].batches, or kafkalog.batches(...)",
    "seek": "scan(start_offset=...)",
    "offsets": "log_start_offset, log_end_offset",
    "dataset": "scan().to_dataset()",
    "to_dataset": "scan().to_dataset()",
    "to_reader": "scan().to_reader()",
    "to_batches": "scan().to_batches()",
    "follow": "cat(start_offset=...), called again from the offset after the last one",
    "get": "scan(filters=...)",
    "find": "scan(filters=...)",
    "filter": "scan(filters=...)",
    "offsets_for_times": "lookup(timestamp=...)",
    "partitions": "topics, values()",
    "partition": "log_dir[topic, number]",
    "topic": "topic_partition",
    "index": "offset_index",
    "timeindex": "time_index",
    "txnindex": "transaction_index",
    "check": "verify()",
    "index_stats": "index_statistics(), or kafkalog.index_stats(...)",
}


def no_attribute(of: object, name: str, other_names: Mapping[str, str]) -> Any:
    """Raise AttributeError from ``__getattr__``, with the right name where it is known."""
    meant = other_names.get(name)
    # a property that raised AttributeError by itself also leads here: its own error is the right one
    if meant is None or hasattr(type(of), name):
        return object.__getattribute__(of, name)  # raises what it raised before
    kind = type(of).__name__
    raise AttributeError(f"{kind!r} object has no attribute {name!r}; did you mean {meant}?", name=name, obj=of)


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
    extract: Mapping[str, tuple[Any, Callable[..., Any]]] | None
    threads: int | None
    batch_size: int | None
    memory_map: bool | str
    binary_type: pa.DataType | None
    decode: Mapping[str, Decode] | None
    schemas: Any
    schema_context: str | None
    limits: Limits | None


class ReadMethods:
    """What can be read of a log dir, a partition or a segment. The options are those of the functions."""

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a row for each segment."""
        segments: list[Any] = getattr(self, "segments", [self])
        rows = ((one.path.name, one.base_offset, one.size_in_bytes) for one in segments[: html.MOST_ROWS])
        return html.table(repr(self), ("segment", "base offset", "bytes"), rows, n_rows=len(segments))

    def scan(self, **options: Unpack[ScanOptions]) -> kafkalog.Scan:
        """See `kafkalog.scan`."""
        # imported when called: this package is below those that it hands over to
        import kafkalog

        return kafkalog.scan(self, **options)  # type: ignore[arg-type]

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

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the records: see `kafkalog.cat`."""
        return self.cat()

    def cat(self, **options: Any) -> Iterator[kafkalog.Record]:
        """See `kafkalog.cat`."""
        import kafkalog

        return kafkalog.cat(self, **options)  # type: ignore[arg-type]

    def ls(self, **options: Any) -> list[kafkalog.PartitionSummary]:
        """See `kafkalog.ls`."""
        import kafkalog

        return kafkalog.ls(self, **options)  # type: ignore[arg-type]

    def lookup(self, **options: Any) -> list[kafkalog.Trace]:
        """See `kafkalog.lookup`."""
        import kafkalog

        return kafkalog.lookup(self, **options)  # type: ignore[arg-type]

    def producers(self, **options: Any) -> list[kafkalog.PartitionProducers]:
        """See `kafkalog.producers`."""
        import kafkalog

        return kafkalog.producers(self, **options)  # type: ignore[arg-type]

    def epochs(self, **options: Any) -> list[kafkalog.PartitionEpochs]:
        """See `kafkalog.epochs`."""
        import kafkalog

        return kafkalog.epochs(self, **options)  # type: ignore[arg-type]

    def verify(self, **options: Any) -> kafkalog.Verification:
        """See `kafkalog.verify`."""
        import kafkalog

        return kafkalog.verify(self, **options)  # type: ignore[arg-type]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the right name where it is known."""
            return no_attribute(self, name, _OTHER_NAMES)

        def __bool__(self) -> bool:
            """True, without a count of records."""
            return True

        def __len__(self) -> int:
            """Raise: a count is a pass over the files."""
            raise TypeError(f"a {type(self).__name__} has no len(): count_rows() reads and counts its records")

        def __getitem__(self, at: object) -> Any:
            """Raise: records are found by offset, of which some may be missing."""
            raise TypeError(
                f"a {type(self).__name__} has no [...]: scan(start_offset=..., end_offset=...) reads offsets"
            )
