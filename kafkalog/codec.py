"""Record batches in memory: bytes to columns, and columns to bytes, for clients and tools.

`decode` takes the `records` of a fetch response, and `encode` returns those of a produce request. Bytes are checked as
those of files are: wrong ones raise a `KafkalogError` with the position.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.crc import checksum_crc32c, joined_crc32c
from kafkalog._kernels.encode import write_varints
from kafkalog._kernels.record_windows import RecordWindows
from kafkalog._kernels.wire import STATUS, read_varints
from kafkalog.calls import keywords_of, leading
from kafkalog.column_names import OWN_COLUMNS
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Limits, Reason, TruncatedTailError
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import ALL_COLUMNS, BINARY_COLUMNS, HEADERS, RecordColumns
from kafkalog.records.decode import decode_all
from kafkalog.records.encode import cut_batches, encode_bytes
from kafkalog.records.gathering import GatheredRecords
from kafkalog.records.header_walk import walk
from kafkalog.records.partitioner import Partitioner
from kafkalog.records.readers.record_windows import ALL_OFFSETS, WindowOptions
from kafkalog.records.selection import Selection
from kafkalog.records.spans import thread_codecs, uses_kernels
from kafkalog.storage.source import BufferSource
from kafkalog.words import unknown_function, unknown_keyword

__all__ = [
    *("check_crcs", "crc32c", "decode", "decode_headers", "decode_varints", "encode", "encode_varints", "partitions"),
]

_WINDOW_BYTES: Final = 2**22
_MOST_VARINT_BYTES: Final = 10


class HeaderFields(TypedDict, total=False):
    """Fields of batch headers that `encode` takes."""

    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    timestamp_type: int
    log_append_time: int | None


class EncodedFields(HeaderFields, total=False):
    """What `encode` takes by name: fields of batch headers, and columns."""

    offset: Any
    timestamp: Any
    key: Any
    value: Any
    headers: Any


@leading
def decode(
    buffer: Any,
    *,
    columns: str | Sequence[str] = OWN_COLUMNS,
    check_crcs: bool = True,
    include_control: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> RecordColumns:
    """Decode the batches of a buffer, such as the records of a fetch response, of any format and codec.

    Parameters
    ----------
    buffer : bytes-like
        Batches one after another, with offsets that increase. A partial last batch is left out: brokers cut responses.
    columns : sequence of str
        Default: offset, timestamp, timestamp_type, key, value, headers. On request also leader_epoch, producer_id,
        producer_epoch, sequence, is_transactional, is_control, compression, batch_base_offset and batch_position.
    check_crcs : bool
        Verify the checksum of every batch.
    include_control : bool
        Also return control records.
    limits : Limits

    Returns
    -------
    RecordColumns
        They own their memory.

    Raises
    ------
    CorruptionError
        A batch is damaged. Its position is that in the buffer.
    LimitExceededError
        A batch is above a limit.

    Examples
    --------
    >>> from kafkalog import codec
    >>> from pathlib import Path
    >>> data = Path("tests/golden/log_dir/p-multi-0/00000000000000000000.log").read_bytes()
    >>> codec.decode(data).offset[:3].tolist()
    [0, 1, 2]
    """
    source, names = _source(buffer), _names_of(columns)
    # a window has all that a small buffer holds, in one call
    if not include_control and uses_kernels() and source.size:
        options, memory = _memory(names, check_crcs, limits)
        data = source.window(0, source.size)
        found = memory.next(thread_codecs(), -1, 0, source.size, source.size, -1, data)
        if found is not None and found.end_position == source.size:
            return options.window(found, 0).records or RecordColumns.empty(names)
    gathered = GatheredRecords(names)
    selection = Selection(include_control=include_control)
    for window in _windows(source, limits):
        for done in decode_all(window, names, selection=selection, check_crcs=check_crcs, limits=limits):
            if done.error is not None:
                raise done.error
            if done.columns is not None:
                gathered.add(done.columns)
    return gathered.finish()


@leading
def decode_headers(buffer: Any, *, limits: Limits = DEFAULT_LIMITS) -> BatchTable:
    """Decode the headers of the batches of a buffer; a partial last batch is left out.

    Returns
    -------
    BatchTable
        A row per batch. Checksums are not compared.

    Raises
    ------
    CorruptionError, LimitExceededError
        See `decode`.
    """
    tables = [window.batches for window in _windows(_source(buffer), limits)]
    return BatchTable.concatenate(tables) if tables else BatchTable.empty()


@leading
def encode(
    columns: RecordColumns | Mapping[str, Any] | Any = None,
    *,
    compression: str | Compression | None = None,
    compression_level: int | None = None,
    batch_size: int | None = None,
    **fields: Unpack[EncodedFields],
) -> bytes:
    """Encode records as batches of format v2, such as the records of a produce request.

    Parameters
    ----------
    columns : RecordColumns, dict of lists and arrays, or table
        Any of offset, timestamp, key, value and headers; others are ignored. Without offsets, these are 0, 1, 2 ...,
        as in a produce request. Arrays and tables may be of all types that `kafkalog.write_table` takes. Instead,
        columns may be given by name: ``encode(key=[b"a"], value=[b"1"])``.
    compression : {"none", "gzip", "snappy", "lz4", "zstd"}, optional
    compression_level : int, optional
    batch_size : int, optional
        Bytes before compression at which a producer begins another batch; default: all records in one batch.
    **fields
        Columns, and fields of the batch headers: leader_epoch, producer_id, producer_epoch, base_sequence,
        is_transactional, timestamp_type, log_append_time.

    Returns
    -------
    bytes

    Raises
    ------
    UnwritableError
        Kafka's format cannot represent a record or a column. The message has its row.

    Examples
    --------
    >>> from kafkalog import codec
    >>> data = codec.encode({"timestamp": [5, 6], "value": [b"a", None]}, compression="lz4")
    >>> codec.decode(data).value.to_pylist()
    [b'a', None]
    >>> codec.encode(timestamp=[5, 6], value=[b"a", None], compression="lz4") == data
    True

    Structured arrays, rows of bytes and big-endian numbers are written as their bytes:

    >>> import numpy as np
    >>> codec.decode(codec.encode({"value": np.array([1, 2], ">i8")})).value.as_dtype(">i8").tolist()
    [1, 2]
    """
    options = dict[str, Any](fields)
    if unknown := sorted(options.keys() - EncodedFields.__annotations__.keys()):
        meant = unknown_keyword(unknown[0], keywords_of(cast(Any, encode)))
        raise TypeError(f"encode has no option {unknown[0]!r}; {meant}")
    named = {name: options.pop(name) for name in fields if name not in HeaderFields.__annotations__}
    if (columns is None) != bool(named):
        raise TypeError("encode takes all columns by name, or in one object: encode({'key': [...], 'value': [...]})")
    spec = BatchSpec(compression=Compression.parse(compression, level=compression_level), **options)
    columns = named or columns
    if not isinstance(columns, RecordColumns):
        columns = _records_of(columns)
    n = columns.n_records
    if not n:
        return b""
    records = columns
    if "offset" not in columns:
        records = RecordColumns(n, {**columns, "offset": np.arange(n, dtype=np.int64)}, is_known=True)
    boundaries = np.array([0, n]) if batch_size is None else cut_batches(records, batch_size=batch_size)
    return encode_bytes(records, boundaries, spec).tobytes()


def _records_of(columns: Any) -> RecordColumns:
    if isinstance(columns, Mapping):
        for name, values in columns.items():
            if isinstance(values, (int, str, bytes, bytearray, datetime, np.datetime64)):
                column = f"np.arange({values!r}, {values!r} + n)" if name == "offset" else f"[{values!r}]"
                raise TypeError(f"{name} is a column, with a value per record: {name}={column}, not {values!r}")
        n = len(next(iter(columns.values()), ()))
        if all(_is_column(name, values) for name, values in columns.items()):
            return RecordColumns(n, columns)
        columns = {"value": [None] * n, **columns}
    # imports Arrow, which lists of bytes do not need
    from kafkalog.interchange.arrow_input import record_slices

    slices = [*record_slices(columns, ignore_columns=True)]
    return RecordColumns.concatenate(slices) if slices else RecordColumns.empty(("value",))


def _is_column(name: str, values: Any) -> bool:
    """Whether `RecordColumns` take these values as they are."""
    if name in BINARY_COLUMNS:
        return isinstance(values, BinaryColumn) or _is_list_of(values, bytes, type(None))
    if name == HEADERS:
        return isinstance(values, HeadersColumn) or _is_list_of(values, list, tuple, dict)
    return (isinstance(values, np.ndarray) and values.dtype == np.int64) or _is_list_of(values, int)


def _is_list_of(values: Any, *types: type) -> bool:
    return isinstance(values, (list, tuple)) and {*map(type, values)} <= {*types}


@leading
def crc32c(buffer: Any, previous: int = 0) -> int:
    """Return the CRC-32C of a buffer or an array, as in batches of format v2 from their attributes on.

    Parameters
    ----------
    buffer : bytes-like or array
    previous : int
        The checksum of the bytes before these, as for `zlib.crc32`.

    Examples
    --------
    >>> from kafkalog import codec
    >>> hex(codec.crc32c(b"123456789"))
    '0xe3069283'
    >>> codec.crc32c(b"56789", codec.crc32c(b"1234")) == codec.crc32c(b"123456789")
    True
    """
    if isinstance(buffer, np.ndarray):  # of any dtype, and not contiguous
        buffer = np.ascontiguousarray(buffer).reshape(-1).view(np.uint8)
    data = memoryview(buffer).cast("B")
    crc = int(checksum_crc32c(data))
    return joined_crc32c(previous, crc, data.nbytes) if previous else crc


@leading
def encode_varints(values: npt.ArrayLike, *, zigzag: bool = True) -> bytes:
    """Encode integers as varints one after another.

    Parameters
    ----------
    values : array_like of int
    zigzag : bool
        Signed numbers, as in records. False: unsigned ones, as in Kafka's protocol.

    Examples
    --------
    >>> from kafkalog import codec
    >>> codec.encode_varints([0, -1, 64]).hex()
    '00018001'
    """
    numbers = np.asarray(values)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"varints are integers, not {numbers.dtype}")
    if numbers.ndim != 1:
        raise ValueError(f"varints have one dimension, not {numbers.ndim}")
    if zigzag and numbers.dtype == np.uint64 and numbers.size and int(numbers.max()) > 2**63 - 1:
        raise ValueError(f"{int(numbers.max())} has more than 64 bits as a signed varint")
    if not zigzag and numbers.dtype.kind == "i" and numbers.size and int(numbers.min()) < 0:
        raise ValueError(f"{int(numbers.min())} is negative: use zigzag=True")
    # unsigned numbers of 64 bits wrap, and the kernel takes them as they are
    out = np.empty(_MOST_VARINT_BYTES * numbers.size, np.uint8)
    return out[: write_varints(np.ascontiguousarray(numbers.astype(np.int64, copy=False)), zigzag, out)].tobytes()


@leading
def decode_varints(buffer: Any, *, zigzag: bool = True) -> npt.NDArray[np.int64] | npt.NDArray[np.uint64]:
    """Decode a buffer of varints; see `encode_varints`.

    Returns
    -------
    int64[...] or uint64[...]

    Raises
    ------
    CorruptionError
        The last varint is incomplete, or one has more than 64 bits.

    Examples
    --------
    >>> from kafkalog import codec
    >>> codec.decode_varints(bytes.fromhex("00018001")).tolist()
    [0, -1, 64]
    """
    data = np.frombuffer(buffer, np.uint8)
    numbers = np.empty(data.size, np.int64)
    status, n, position = read_varints(data, zigzag, numbers)
    if status == STATUS["VARINT_TRUNCATED"]:
        raise CorruptionError(Reason.VARINT_TRUNCATED, "the buffer ends in a varint", position=position)
    if status:
        raise CorruptionError(Reason.VARINT_OVERLONG, "a varint has more than 64 bits", position=position)
    return numbers[:n].copy() if zigzag else numbers[:n].astype(np.uint64)


@leading
def partitions(keys: Any, n_partitions: int, *, partitioner: str = "kafka") -> npt.NDArray[np.int32]:
    """Return the partition that a producer chooses for each key.

    Parameters
    ----------
    keys : BinaryColumn, sequence of bytes and None, or array
        Arrays and columns of tables are those that `kafkalog.write_table` takes.
    n_partitions : int
    partitioner : str
        ``"kafka"``, the default of Kafka's own clients (murmur2), or another of ``kafkalog load --partitioner``:
        consistent_random, consistent, murmur2_random, murmur2, fnv1a_random, fnv1a (librdkafka), sarama.

    Returns
    -------
    int32[n]
        -1 for null (and, for consistent_random, for an empty key) where the client chooses without regard to keys.

    Examples
    --------
    >>> from kafkalog import codec
    >>> codec.partitions([b"ann", b"bob", None, b"ann"], 12).tolist()
    [2, 6, -1, 2]
    """
    if isinstance(keys, RecordColumns):
        raise TypeError("the keys of records are a column: partitions(records.key, n_partitions)")
    return Partitioner(n_partitions, name=partitioner).of_keys(_records_of({"key": keys}).key)


@leading
def check_crcs(buffer: Any, *, limits: Limits = DEFAULT_LIMITS) -> npt.NDArray[np.bool_]:
    """Return whether the checksum of each batch of a buffer matches its bytes.

    Returns
    -------
    bool[n]
        For the batches of `decode_headers`, in their order.

    Raises
    ------
    CorruptionError, LimitExceededError
        See `decode_headers`: a damaged size field ends the batches.

    Examples
    --------
    >>> from kafkalog import codec
    >>> data = bytearray(codec.encode(value=[b"a"]) + codec.encode(value=[b"b"], offset=[1]))
    >>> data[-2] ^= 1
    >>> codec.check_crcs(data).tolist()
    [True, False]
    """
    checked = [valid_crcs(window) for window in _windows(_source(buffer), limits)]
    return np.concatenate(checked) if checked else np.empty(0, np.bool_)


def __getattr__(name: str) -> Any:
    """Raise AttributeError, with the function that is meant, or those that are here."""
    meant = None if name.startswith("_") else unknown_function(name, ())
    there = meant if meant and ".codec." in meant else f"there are {', '.join(__all__)}"
    # with an object, Python would add the name that is most similar, however little
    raise AttributeError(f"module 'kafkalog.codec' has no attribute {name!r}; {there}", name=name, obj=None)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__"])


def _source(buffer: Any) -> BufferSource:
    """The bytes of a buffer. Raises TypeError for what has bytes but is none."""
    if isinstance(buffer, (str, os.PathLike)):
        path = os.fspath(buffer)
        raise TypeError(f"batches are bytes: open({path!r}, 'rb').read(); kafkalog.read_numpy({path!r}) reads a file")
    if hasattr(buffer, "read") or hasattr(buffer, "to_numpy"):
        what = "read() its bytes" if hasattr(buffer, "read") else "it is decoded by its own to_numpy()"
        raise TypeError(f"batches are bytes, not {type(buffer).__name__}: {what}")
    return BufferSource(buffer)


def _names_of(columns: Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if name not in ALL_COLUMNS:
            header = name.removeprefix("headers.")
            meant = f"; use records.headers[{header!r}]" if header != name else ""
            raise ValueError(f"no column {name!r}: there are {', '.join(ALL_COLUMNS)}{meant}")
    return names


def _windows(source: BufferSource, limits: Limits) -> Iterator[Window]:
    """Windows of whole batches; a partial last batch ends them."""
    try:
        yield from walk(source, limits=limits)
    except TruncatedTailError as error:
        if error.reason is not Reason.PARTIAL_TAIL:
            raise


def _new_memory(names: tuple[str, ...], check_crcs: bool, limits: Limits) -> tuple[WindowOptions, RecordWindows]:
    options = WindowOptions(
        names=names,
        form="numpy",
        check_crcs=check_crcs,
        limits=limits,
        window_bytes=_WINDOW_BYTES,
        offsets=ALL_OFFSETS,
    )
    return options, options.windows()


class _ThreadMemory(threading.local):
    """What threads decode with: each has its own."""

    def __init__(self) -> None:
        self.of = lru_cache(maxsize=8)(_new_memory)


_thread = _ThreadMemory()


def _memory(names: tuple[str, ...], check_crcs: bool, limits: Limits) -> tuple[WindowOptions, RecordWindows]:
    return _thread.of(names, check_crcs, limits)
