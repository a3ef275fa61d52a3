"""The functions that most programs need: `open`, `scan`, and the `read_*` that collect a scan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.isolation import IsolationLevel
from kafkalog.log_dir import LogDir, open_path
from kafkalog.partition import OnCorruption, Partition
from kafkalog.records import RecordColumns
from kafkalog.scanner import Offsets, Scan, Timestamp
from kafkalog.segment import Segment

if TYPE_CHECKING:
    import pandas as pd

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
    isolation_level: IsolationLevel = "read_uncommitted",
    include_control: bool = False,
    include_deleted: bool = False,
    on_corruption: OnCorruption = "raise",
    check_crcs: bool = True,
    threads: int | None = None,
    batch_size: int | None = None,
    memory_map: bool | str = "auto",
    binary_type: pa.DataType | None = None,
    limits: Limits = DEFAULT_LIMITS,
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
        warn (`CorruptionWarning`) and fill `Scan.findings`. A torn tail of a last segment is no damage.
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


def read_table(path: Paths | LogDir | Partition | Segment, **options: Any) -> pa.Table:
    """Records as a `pyarrow.Table`; options of `scan`.

    Examples
    --------
    >>> table = kafkalog.read_table("tests/golden/log_dir/p-multi-0", columns=["offset", "key"])
    >>> table.schema.names, table.num_rows
    (['offset', 'key'], 122)
    """
    return scan(path, **options).to_table()


def read_pandas(
    path: Paths | LogDir | Partition | Segment, *, dtype_backend: str | None = None, **options: Any
) -> pd.DataFrame:
    """Records as a `pandas.DataFrame`; options of `scan`, and ``dtype_backend="pyarrow"``."""
    return scan(path, **options).to_pandas(**({} if dtype_backend is None else {"dtype_backend": dtype_backend}))


def read_numpy(path: Paths | LogDir | Partition | Segment, **options: Any) -> RecordColumns:
    """Records as NumPy columns (`RecordColumns`); options of `scan`.

    Examples
    --------
    >>> records = kafkalog.read_numpy("tests/golden/log_dir/p-multi-0")
    >>> records.offset[:3].tolist(), records.key[0]
    ([0, 1, 2], b'...')
    """
    return scan(path, **options).to_numpy()
