"""The functions that most programs need: `open`, `scan`, and the `read_*` that collect a scan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, Unpack

import pyarrow as pa

from kafkalog.batch_scan import BatchScan
from kafkalog.columns import RecordColumns
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.exporter import Exporter, ExportResult
from kafkalog.isolation import IsolationLevel
from kafkalog.log_dir import LogDir, open_path
from kafkalog.partition import Partition
from kafkalog.predicates import Filters
from kafkalog.repair.verify import verify as verify
from kafkalog.scanner import Offsets, Scan, Timestamp
from kafkalog.segment import Segment
from kafkalog.streams import OnCorruption

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def open(
    path: Paths, *, memory_map: bool | str = "auto", limits: Limits = DEFAULT_LIMITS
) -> Segment | Partition | LogDir:
    """Open what a path holds: a segment, a partition, or a log dir.

    Parameters
    ----------
    path : path-like or sequence of path-like
        A `.log` file, a topic-partition directory, or a log dir (a value of a broker's `log.dirs`). Several paths make
        one `LogDir`.
    memory_map : {"auto", True, False}
        `"auto"` maps only what nobody writes to any more.
    limits : Limits

    Returns
    -------
    Segment or Partition or LogDir

    Raises
    ------
    NotKafkaError
        Nothing there looks like Kafka's log.
    ReadError
        It cannot be read.

    Examples
    --------
    >>> log_dir = kafkalog.open("tests/golden/log_dir")
    >>> log_dir.topics[:2]
    ['p-compact', 'p-delrec']
    >>> log_dir["p-multi", 0].log_end_offset
    125
    """
    return open_path(path, memory_map=memory_map, limits=limits)


class ScanOptions(TypedDict, total=False):
    """The keywords of `scan`, which every function that reads records takes."""

    columns: Sequence[str] | None
    topics: str | Sequence[str] | None
    partitions: Sequence[int] | int | None
    start_offset: Offsets | None
    end_offset: Offsets | None
    start_timestamp: Timestamp | None
    end_timestamp: Timestamp | None
    filters: Filters | pc.Expression | None
    where: Callable[..., Any] | None
    extract: Mapping[str, tuple[Any, Callable[..., Any]]] | None
    isolation_level: IsolationLevel
    include_control: bool
    include_deleted: bool
    on_corruption: OnCorruption
    check_crcs: bool
    threads: int | None
    batch_size: int | None
    memory_map: bool | str
    binary_type: pa.DataType | None
    limits: Limits | None


def scan(
    path: Paths | LogDir | Partition | Segment,
    *,
    columns: Sequence[str] | None = None,
    topics: str | Sequence[str] | None = None,
    partitions: Sequence[int] | int | None = None,
    start_offset: Offsets | None = None,
    end_offset: Offsets | None = None,
    start_timestamp: Timestamp | None = None,
    end_timestamp: Timestamp | None = None,
    filters: Filters | pc.Expression | None = None,
    where: Callable[..., Any] | None = None,
    extract: Mapping[str, tuple[Any, Callable[..., Any]]] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    include_control: bool = False,
    include_deleted: bool = False,
    on_corruption: OnCorruption = "raise",
    check_crcs: bool = True,
    threads: int | None = None,
    batch_size: int | None = None,
    memory_map: bool | str = "auto",
    binary_type: pa.DataType | None = None,
    limits: Limits | None = None,
) -> Scan:
    """Say what to read; nothing is read yet.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `open` returned
    columns : sequence of str, optional
        Default: topic, partition, offset, timestamp, timestamp_type, key, value, headers. On request also
        leader_epoch, producer_id, producer_epoch, sequence, is_transactional, is_control, compression,
        batch_base_offset, batch_position, segment. What is not asked for is not decoded.
    topics : str or sequence of str, optional
    partitions : int or sequence of int, optional
        Of each topic.
    start_offset, end_offset : int or mapping of (topic, partition) to int, optional
        Half-open.
    start_timestamp, end_timestamp : int (ms) or aware datetime, optional
        Half-open, on the records' own timestamps; a record whose format has none never matches.
    filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
        ``(column, operation, value)``: all of a list have to hold, or all of one list out of several. Operations are
        ``==, !=, <, <=, >, >=, in, not in, is null, is not null`` and, for key, value and headers, ``starts_with`` and
        ``contains``. Columns are all that there are, asked for or not, those of `extract`, ``headers.NAME`` (true if
        any header of that name matches) and ``("headers", "has", NAME)``. Null compares with nothing. Judged before
        anything is copied; what batch headers tell rules out whole batches. An expression is applied to decoded
        columns.
    where : callable, optional
        A function of any of offset, timestamp, timestamp_type, key, value, key_is_null, value_is_null and headers, by
        these names, that returns whether a record is wanted. It is compiled with numba (``kafkalog[numba]``); keys and
        values come as read-only `uint8` arrays (empty if null), and `kafkalog.functions` has what looks into them. It
        is called on what the filters leave. A record on which it raises is left out, with a warning and a finding
        a segment; integers wrap at 64 bits, and what it indexes is checked.
    extract : mapping of str to (dtype, callable), optional
        Columns of numbers, filled from records in the same pass by such functions: ``{"price": ("f8", function)}``.
        Null (masked in NumPy) where a function returns None, or raises, or returns what the dtype does not hold, the
        latter two with a warning and a finding. dtypes are bool, i1, i2, i4, i8, u1, u2, u4, f4 and f8.
    isolation_level : {"read_uncommitted", "read_committed"}
        With `"read_committed"`, as a consumer of that level: without records of aborted transactions, and only up to
        the last stable offset, which is where the earliest open transaction begins. The markers in the log count; the
        high watermark and `.txnindex` files do not. A transaction whose outcome cannot be known, because damage may
        have hit its marker, is met as `on_corruption` says: its records are never read as committed, and never left
        out silently.
    include_control : bool
        Also the records that brokers write for themselves: transaction markers, Raft's.
    include_deleted : bool
        Also records below the log start offset that are still in the file.
    on_corruption : {"raise", "stop", "skip"}
        Damage raises; or ends its partition there, as a broker's recovery would; or is passed over. The latter two
        warn (`CorruptionWarning`) and fill `Scan.findings`. A file that cannot be read, be it for a bad disk, is
        damage, too. A torn tail of a last segment is none. What ranges and filters rule out by segment or batch header
        is not read, and its damage not met.
    check_crcs : bool
        Compare the checksum of every batch that is read.
    threads : int, optional
        Threads that decode; default: as many as there are CPUs.
    batch_size : int, optional
        Most rows in a record batch; default: a window's.
    memory_map : {"auto", True, False}
        Whether to map the `.log` files; reading them is as fast, and safe on files that change.
    binary_type : pyarrow.DataType, optional
        `pa.binary()` (default), `pa.large_binary()` or `pa.binary_view()` for key, value and header values.
    limits : Limits

    Returns
    -------
    Scan

    Raises
    ------
    ValueError, TypeError
        An option is not one.
    NotKafkaError, ReadError
        As `open`.

    Examples
    --------
    >>> scan = kafkalog.scan("tests/golden/log_dir", topics="p-multi", columns=["partition", "offset", "value"])
    >>> scan.count_rows()
    303
    >>> scan.head(2).column("offset").to_pylist()
    [0, 1]
    >>> kafkalog.scan("tests/golden/log_dir", filters=[("key", "starts_with", b"k1"), ("offset", "<", 50)]).count_rows()
    0
    """
    return Scan(
        path,
        columns=columns,
        topics=topics,
        partitions=partitions,
        start_offset=start_offset,
        end_offset=end_offset,
        start_timestamp=start_timestamp,
        end_timestamp=end_timestamp,
        filters=filters,
        where=where,
        extract=extract,
        isolation_level=isolation_level,
        include_control=include_control,
        include_deleted=include_deleted,
        on_corruption=on_corruption,
        check_crcs=check_crcs,
        threads=threads,
        batch_size=batch_size,
        memory_map=memory_map,
        binary_type=binary_type,
        limits=limits,
    )


def scan_batches(
    path: Paths | LogDir | Partition | Segment,
    *,
    columns: Sequence[str] | None = None,
    topics: str | Sequence[str] | None = None,
    partitions: Sequence[int] | int | None = None,
    start_offset: Offsets | None = None,
    end_offset: Offsets | None = None,
    on_corruption: OnCorruption = "raise",
    memory_map: bool | str = "auto",
    limits: Limits | None = None,
) -> BatchScan:
    """The batch table of all that a path holds: a row a record batch, out of their headers; nothing is read yet.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `open` returned
    columns : sequence of str, optional
        Default: topic, partition, segment (file name), the columns of `BatchTable` with their meanings, and compression
        (the codec's name).
    start_offset, end_offset : int or mapping of (topic, partition) to int, optional
        Half-open; batches that may hold such offsets. What is deleted and still in the files is among them.
    topics, partitions, on_corruption, memory_map, limits
        As `scan`. Checksums are not checked: damage is what headers show. With "stop" and "skip" a partition that
        cannot be opened is a finding as well, and the others are read.

    Returns
    -------
    BatchScan

    Examples
    --------
    >>> batches = kafkalog.scan_batches("tests/golden/log_dir", topics="p-txn").to_table()
    >>> sum(batches["is_control"].to_pylist()), len(batches)
    (72, ...)
    """
    return BatchScan(
        path,
        columns=columns,
        topics=topics,
        partitions=partitions,
        start_offset=start_offset,
        end_offset=end_offset,
        on_corruption=on_corruption,
        memory_map=memory_map,
        limits=limits,
    )


def read_table(path: Paths | LogDir | Partition | Segment, **options: Unpack[ScanOptions]) -> pa.Table:
    """Records as a `pyarrow.Table`; options of `scan`.

    Examples
    --------
    >>> table = kafkalog.read_table("tests/golden/log_dir/p-multi-0", columns=["offset", "key"])
    >>> table.schema.names, table.num_rows
    (['offset', 'key'], 122)
    """
    return scan(path, **options).to_table()


def read_pandas(
    path: Paths | LogDir | Partition | Segment, *, dtype_backend: str | None = None, **options: Unpack[ScanOptions]
) -> pd.DataFrame:
    """Records as a `pandas.DataFrame`; options of `scan`, and ``dtype_backend="pyarrow"``."""
    return scan(path, **options).to_pandas(**({} if dtype_backend is None else {"dtype_backend": dtype_backend}))


def read_numpy(path: Paths | LogDir | Partition | Segment, **options: Unpack[ScanOptions]) -> RecordColumns:
    """Records as NumPy columns (`RecordColumns`); options of `scan`.

    Examples
    --------
    >>> records = kafkalog.read_numpy("tests/golden/log_dir/p-multi-0")
    >>> records.offset[:3].tolist(), records.key[0]
    ([0, 1, 2], b'...')
    """
    return scan(path, **options).to_numpy()


def export(
    path: Paths | LogDir | Partition | Segment | Scan,
    to: str | os.PathLike[str] | BinaryIO,
    *,
    format: str | None = None,
    partition_by: str | Sequence[str] = (),
    compression: str | None = None,
    row_group_rows: int | None = None,
    encoding: str | None = None,
    null: str | None = None,
    max_records: int | None = None,
    overwrite: bool = False,
    **scan: Any,
) -> ExportResult:
    """Write records to a file or a directory, all of them or nothing, in bounded memory.

    Parameters
    ----------
    path : path-like, sequence of path-like, what `open` returned, or a Scan
    to : path-like or binary file
        Where to; a path must not be there yet, nor lie in a log dir. It appears when all is written and durable; a
        failure leaves it as it was. A binary file is written to as it goes.
    format : {"parquet", "arrow", "arrows", "csv", "jsonl"}, optional
        Default: what the name ends in; for a directory, Parquet. `arrow` is Arrow's IPC file, `arrows` its stream.
    partition_by : sequence of {"topic", "partition", "date"}
        Make a directory, with ``topic=orders/partition=0/date=2026-11-21/part-0.parquet`` and so on. The topic and the
        partition are then in the path and not in the files. The date is the timestamp's in UTC; without one it is
        ``__HIVE_DEFAULT_PARTITION__``.
    compression : str, optional
        Parquet: zstd (default), snappy, lz4, gzip, brotli, none. Arrow: none (default), lz4, zstd. CSV and JSON lines:
        none (default), gzip, zstd; ``.csv.gz`` and the like ask for it too.
    row_group_rows : int, optional
        Most rows in a Parquet row group (default: 2**20, and 64 MiB in memory) or in a record batch of an Arrow file.
    encoding : {"base64", "utf8", "hex"}, optional
        Of key, value and header values in CSV and JSON lines; default: base64.
    null : str, optional
        What stands for null in CSV; default: nothing, where an empty value is ``""`` in quotes.
    max_records : int, optional
        Stop after so many.
    overwrite : bool
        Replace a file, or a directory that an export made.
    **scan
        Options of `scan`: columns, topics, ranges, on_corruption, threads, ...

    Returns
    -------
    ExportResult
        With `n_records`, `n_bytes`, `n_files` and `findings`.

    Raises
    ------
    ValueError, TypeError
        An option is not one.
    OutputExistsError, UnsafePathError
        The destination is taken, or it is where output would do harm.
    WriteError
        It could not be written.
    KafkalogError
        As `scan` on damage, unless `on_corruption` says otherwise; then too nothing is left.

    Examples
    --------
    >>> import tempfile
    >>> to = tempfile.mkdtemp() + "/p-multi.parquet"
    >>> kafkalog.export("tests/golden/log_dir", to, topics="p-multi")
    ExportResult(n_records=303, n_bytes=..., n_files=1)
    >>> import pyarrow.parquet
    >>> pyarrow.parquet.read_table(to).equals(kafkalog.read_table("tests/golden/log_dir", topics="p-multi"))
    True
    """
    return Exporter(
        path,
        to,
        format=format,
        partition_by=partition_by,
        compression=compression,
        row_group_rows=row_group_rows,
        encoding=encoding,
        null=null,
        max_records=max_records,
        overwrite=overwrite,
        **scan,
    ).run()
