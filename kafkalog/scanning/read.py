"""`scan`, and the `read_*` functions that collect a scan into one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from kafkalog.log.open import Paths
from kafkalog.records.columns import RecordColumns
from kafkalog.scanning.query import Opened, ScanOptions
from kafkalog.scanning.scan import Scan

if TYPE_CHECKING:
    import pandas as pd


def scan(path: Paths | Opened, **options: Unpack[ScanOptions]) -> Scan:
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
        have hit its marker, is handled according to `on_corruption`: its records are never read as committed, and never
        left out silently.
    include_control : bool
        Also the records that brokers write for themselves: transaction markers, Raft's.
    include_deleted : bool
        Also records below the log start offset that are still in the file.
    internal : bool
        Also the topics that hold the state of brokers (``__consumer_offsets``, ``__transaction_state``,
        ``__share_group_state``, ``__cluster_metadata``, ``__remote_log_metadata``). By default they are left out of a
        log dir; one that `topics` names, or whose directory or file is the path, is always read.
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
        An option is invalid.
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
    return Scan(path, **options)


def read_table(path: Paths | Opened, **options: Unpack[ScanOptions]) -> pa.Table:
    """Records as a `pyarrow.Table`; options of `scan`.

    Examples
    --------
    >>> table = kafkalog.read_table("tests/golden/log_dir/p-multi-0", columns=["offset", "key"])
    >>> table.schema.names, table.num_rows
    (['offset', 'key'], 122)
    """
    return scan(path, **options).to_table()


def read_pandas(
    path: Paths | Opened, *, dtype_backend: str | None = None, **options: Unpack[ScanOptions]
) -> pd.DataFrame:
    """Records as a `pandas.DataFrame`; options of `scan`, and ``dtype_backend="pyarrow"``."""
    return scan(path, **options).to_pandas(**({} if dtype_backend is None else {"dtype_backend": dtype_backend}))


def read_numpy(path: Paths | Opened, **options: Unpack[ScanOptions]) -> RecordColumns:
    """Records as NumPy columns (`RecordColumns`); options of `scan`.

    Examples
    --------
    >>> records = kafkalog.read_numpy("tests/golden/log_dir/p-multi-0")
    >>> records.offset[:3].tolist(), records.key[0]
    ([0, 1, 2], b'...')
    """
    return scan(path, **options).to_numpy()
