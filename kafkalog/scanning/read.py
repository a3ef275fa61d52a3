"""`scan`, and the `read_*` functions that collect a scan into one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from kafkalog.log.open import Paths
from kafkalog.records.columns import RecordColumns
from kafkalog.scanning.options import ScanOptions
from kafkalog.scanning.query import Opened
from kafkalog.scanning.scan import Scan

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow.dataset


def scan(path: Paths | Opened, **options: Unpack[ScanOptions]) -> Scan:
    """Define which records to read, as which columns. Nothing is read yet.

    Parameters
    ----------
    path : path-like or URL, sequence of them, or what `open` returned
    columns : sequence of str, optional
        Default: topic, partition, offset, timestamp, timestamp_type, key, value, headers. On request also
        leader_epoch, producer_id, producer_epoch, sequence, is_transactional, is_control, compression,
        batch_base_offset, batch_position, segment, and ``headers.NAME``: the value of the last header of that name.
        Other columns are not decoded. ``headers`` is a list of key and value for each record, since a key may be there
        twice: ``{one["key"]: one["value"] for one in headers}`` is a dict of the last ones.
    topics : str or sequence of str, optional
        Names, globs (``orders.*``), and either of these after ``!`` to leave topics out.
    partitions : int or sequence of int, optional
        Partition numbers, for each topic.
    start_offset, end_offset : int or mapping of TopicPartition to int, optional
        Half-open.
    start_timestamp, end_timestamp : int (ms), str or aware datetime, optional
        Half-open, compared with the record timestamps. A record whose format has no timestamp never matches. Text is
        ISO 8601 (UTC without a zone), a time before now such as ``-1h``, or before the latest timestamp such as
        ``end-1h``.
    max_disorder : int (ms), optional
        With `end_timestamp`: no record is expected to be this much older than one before it in its partition. Reading
        then stops at the first record this much past the end, which the time indexes lead to, and a finding
        (`end_assumed`) has its offset. By default everything from the start on is read, since producers set timestamps.
    limit : int, optional
        At most this many records, the first ones.
    filters : str, list of str or tuple, list of lists of these, or pyarrow.compute.Expression, optional
        ``(column, operation, value)``, or text as in the command line (``"key == abc"``). All conditions of a list must
        hold, or all of one of several lists. Operations are ``==, !=, <, <=, >, >=, in, not in, is null, is not null``
        and, for key, value and headers, ``starts_with``, ``contains``, ``like`` (SQL) and ``matches`` (RE2). Filters
        may use any column, in `columns` or not, and those of `extract`. ``headers.NAME`` is true if any header of that
        name matches; there is also ``("headers", "has", NAME)``. Comparisons with null are false. Filters are applied
        before any record is copied, and rule out whole batches by their headers. An expression rules out what it can in
        the same way, and is applied to decoded columns where that is not all it says.
    where : callable, optional
        A function that returns whether a record is wanted. Its parameters are any of offset, timestamp, timestamp_type,
        key, value, key_is_null, value_is_null and headers, by these names. It is compiled with numba
        (``kafkalog[numba]``). Keys and values are read-only `uint8` arrays (empty if null); `kafkalog.functions` has
        helpers to parse them. It is called for records that pass the filters. A record on which it raises is left out,
        with one warning and one finding per segment. Integers wrap at 64 bits, and array indexes are checked.
    extract : mapping of str to tuple, optional
        Columns of numbers, computed from records in the same pass by such functions: ``{"price": ("f8", function)}``. A
        value is null (masked in NumPy) if the function returns None. With a warning and a finding, it is also null if
        the function raises or returns a number that does not fit the dtype. dtypes are bool, i1, i2, i4, i8, u1, u2,
        u4, f4 and f8.
    latest : {"key"}, optional
        Read a topic as a table, compacted or not: only the last record of each key of a partition, and none if its
        value is null (a tombstone). Records without a key are left out. Offsets, timestamps and `isolation_level` say
        in which records the last one is looked for; `filters`, `where` and `limit` choose among those found. The keys
        of a partition are read first. Memory is bounded: keys that do not fit are sorted out in a temporary directory
        (``TMPDIR``).
    isolation_level : {"read_uncommitted", "read_committed"}
        With `"read_committed"`, read like a consumer of that level: without records of aborted transactions, and up to
        the last stable offset, where the earliest open transaction begins. The markers in the log decide; the high
        watermark and `.txnindex` files are not used. If damage hides the outcome of a transaction, `on_corruption`
        decides. Its records are never returned as committed, and never left out silently.
    include_control : bool
        Also read control records: transaction markers and those of KRaft.
    include_deleted : bool
        Also read records below the log start offset that are still in the files.
    internal : bool
        Also read the topics in which brokers keep their state (``__consumer_offsets``, ``__transaction_state``,
        ``__share_group_state``, ``__cluster_metadata``, ``__remote_log_metadata``). By default a scan of a log dir
        leaves them out. A topic that `topics` names, or whose directory or file is the path, is always read.
    on_corruption : {"raise", "stop", "skip"}
        Damage raises, ends its partition there, as a broker's recovery would, or is skipped. The latter two warn
        (`CorruptionWarning`) and fill `Scan.findings`. A file that cannot be read, for example on a bad disk, is damage
        too. A partial last batch of a last segment is not. Segments and batches that ranges and filters rule out are
        not read, so damage in them is not found.
    check_crcs : bool
        Verify the checksum of every batch that is read.
    use_time_index : bool
        With a lower bound on timestamps, start each segment at the position from its ``.timeindex``, instead of reading
        the header of every batch. Each index entry is compared with its batch, and a cut index leaves nothing out.
        Other wrong indexes can hide records.
        With LogAppendTime, reading also ends a minute past an upper bound, with a finding; see `max_disorder`.
    threads : int, optional
        Number of threads that decode; default: the number of CPUs.
    batch_size : int, optional
        Maximum number of rows in a record batch; default: the records of one window.
    memory_map : {"auto", True, False}
        Whether to map the `.log` files, which is faster than reading them. `"auto"` maps closed segments, unless
        `binary_type` asks for views; True maps all; False reads. A bad sector raises an error, and so does a file that
        is truncated, also while a window is decoded. One case ends the process (SIGBUS): with True and views, the
        record batches point into the mapped file, and another process truncates the file before you use them. Brokers
        delete closed segments, and do not truncate them.
    binary_type : pyarrow.DataType, optional
        `pa.binary()` (default), `pa.large_binary()` or `pa.binary_view()` for key, value and header values.
    decode : mapping of {"key", "value"} to str or mapping, optional
        The formats of the bytes, such as ``{"key": "long", "value": "json"}``. Of Kafka's serializers: utf8, json,
        short, int, long, float, double, uuid. Of Kafka Connect with schemas: connectjson. In frames of Confluent,
        Apicurio or AWS Glue: avro, protobuf, jsonschema. Instead of a name, use a mapping with ``format``, and
        optionally ``schema`` (text, path or dict, for all values), ``framed=False`` (values without a schema id),
        ``id_size`` (bytes of a schema id, 4 or 8), ``reader_schema`` (of Avro, resolved from any other),
        ``branches=True`` (names of branches and members of oneofs) and ``message`` (of Protobuf). The column then has
        typed values. `columns` and `filters` may name fields, such as ``value.customer.id``. A value that does not
        decode is null, with a finding and a `DecodeWarning`; the columns ``value_error`` and ``value_bytes`` have the
        reason and the bytes. Where the types depend on the values, records are read twice. `where` sees bytes.
    schemas : path-like, str or mapping, optional
        Where schemas are looked up: a directory with files such as ``7.avsc``, a log dir with the topic ``_schemas``,
        a registry's URL, or a mapping of id or UUID to schema. Default: the topic ``_schemas`` in the same log dir.
    schema_context : str, optional
        The registry's context in which schema ids are looked up, such as ``.partner``; ``.`` is the default one.
        Without it, an id that several contexts have is that of the topic's subject.
    limits : Limits
    storage_options : mapping, optional
        Options for URLs; see `kafkalog.location`.
    value_format, key_format : str or mapping, optional
        The entries of `decode`, by the names of the command line: ``value_format="json"``.
    tiered, tiered_keys : optional
        Remote storage whose segments are read as well; see `kafkalog.open`.

    Returns
    -------
    Scan

    Raises
    ------
    ValueError, TypeError
        An option is invalid.
    NotKafkaError, ReadError
        See `open`.

    Examples
    --------
    >>> scan = kafkalog.scan("tests/golden/log_dir", topics="p-multi", columns=["partition", "offset", "value"])
    >>> scan.count_rows()
    303
    >>> scan.head(2).column("offset").to_pylist()
    [0, 1]
    >>> kafkalog.scan("tests/golden/log_dir", filters=[("key", "starts_with", b"k1"), ("offset", "<", 50)]).count_rows()
    0
    >>> kafkalog.read_table(
    ...     "tests/golden/log_dir/p-multi-0", key_format="utf8", columns=["offset", "key"], limit=1
    ... ).schema.field("key").type
    DataType(string)
    """
    return Scan(path, **options)


def dataset(path: Paths | Opened, **options: Unpack[ScanOptions]) -> pa.dataset.Dataset:
    """Records as a `pyarrow.dataset.Dataset`; see `Scan.to_dataset`. The options are those of `scan`.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> log = kafkalog.dataset("tests/golden/log_dir")
    >>> log.count_rows(filter=(pc.field("topic") == "p-multi") & (pc.field("offset") < 10))
    30
    """
    return scan(path, **options).to_dataset()


def read_table(path: Paths | Opened, **options: Unpack[ScanOptions]) -> pa.Table:
    """Records as a `pyarrow.Table`. The options are those of `scan`.

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
    """Records as a `pandas.DataFrame`. The options are those of `scan`, and ``dtype_backend="pyarrow"``."""
    return scan(path, **options).to_pandas(**({} if dtype_backend is None else {"dtype_backend": dtype_backend}))


def read_polars(path: Paths | Opened, **options: Unpack[ScanOptions]) -> pl.DataFrame:
    """Records as a `polars.DataFrame`. The options are those of `scan`."""
    return scan(path, **options).to_polars()


def read_numpy(path: Paths | Opened, **options: Unpack[ScanOptions]) -> RecordColumns:
    """Records as NumPy columns (`RecordColumns`). The options are those of `scan`.

    Examples
    --------
    >>> records = kafkalog.read_numpy("tests/golden/log_dir/p-multi-0")
    >>> records.offset[:3].tolist(), records.key[0]
    ([0, 1, 2], b'...')
    """
    return scan(path, **options).to_numpy()
