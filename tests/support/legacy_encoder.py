"""Record columns to messages of formats v0 and v1: for test data.

Brokers have written v2 since 0.11 and refuse older messages since 4.0; what is written here is for trying out readers
and conversions of old logs. It is plain Python, a record at a time. Without compression the bytes are those of Kafka's
`MemoryRecordsBuilder`; with it, a message wraps those of a batch.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Reason, UnwritableError
from kafkalog.records.batch_table import Window, table_of
from kafkalog.records.codecs import UNCOMPRESSED, Arena, Compression
from kafkalog.records.columns import BINARY_COLUMNS, HeadersColumn, RecordColumns
from kafkalog.records.compress import compressor

_MAX_MESSAGE_SIZE = 2**31 - 1 - kf.LOG_OVERHEAD
_HEAD = struct.Struct(">qiIbb")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_NULL = _I32.pack(-1)


def encode_messages(
    columns: RecordColumns,
    boundaries: npt.NDArray[np.int64] | None = None,
    *,
    magic: int,
    compression: Compression = UNCOMPRESSED,
    timestamp_type: int = kf.TimestampType.CREATE_TIME,
    log_append_time: int | None = None,
) -> Window:
    """Write records in message format v0 or v1: for test data, as current brokers take neither.

    Parameters
    ----------
    columns : RecordColumns
        `offset` (strictly rising), and any of `timestamp`, `key` and `value`. Records have no headers then, and those
        of v0 no timestamps: what is there of the latter is left out.
    boundaries : int64[n_batches + 1], optional
        Which records are compressed together; None for all. Without compression each message stands on its own.
    magic : int
        0 or 1.
    compression : Compression
        Not zstd.
    timestamp_type : int
        Of v1; with `LOG_APPEND_TIME` every message says `log_append_time`.
    log_append_time : int, optional
        Milliseconds.

    Returns
    -------
    Window
        The bytes, from position 0 on, and their table: a row a message, or a wrapper.

    Raises
    ------
    UnwritableError
        A record that the format cannot hold; `row` says which.
    ValueError
        Arguments that do not fit each other.

    Notes
    -----
    Offsets inside a wrapper are absolute in v0, relative to the first in v1; the wrapper's offset is the last one's,
    its timestamp the largest. An LZ4 frame in v0 has the header checksum of KAFKA-3160.

    Source: MemoryRecordsBuilder.appendLegacyRecord, LegacyRecord.write, Kafka 4.3.
    """
    if magic not in (0, 1):
        raise ValueError(f"magic is 0 or 1, not {magic}; encode_batches writes v2")
    if compression.codec == kf.Codec.ZSTD:
        raise ValueError("zstd came with message format v2")
    is_append_time = timestamp_type == kf.TimestampType.LOG_APPEND_TIME
    if magic == 1 and is_append_time and log_append_time is None:
        raise ValueError("messages of LogAppendTime need log_append_time")
    n = columns.n_records
    bounds = np.array([0, n]) if boundaries is None else np.asarray(boundaries, np.int64)
    if not bounds.size or bounds[0] < 0 or bounds[-1] > n or (np.diff(bounds) <= 0).any():
        if n or boundaries is not None:
            raise ValueError(f"boundaries do not rise strictly within 0 to {n}")
        return Window(np.empty(0, np.uint8), 0, table_of(np.empty(0, np.uint8), 0))
    rows = _Rows(columns, log_append_time if is_append_time and magic else None)
    bits = kf.TIMESTAMP_TYPE_BIT if is_append_time and magic else 0
    parts: list[bytes] = []
    for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if not compression.codec:
            parts += (rows.message(row, magic, bits, 0) for row in range(first, stop))
            continue
        relative_to = rows.offset[first] if magic else 0
        inner = b"".join(rows.message(row, magic, bits, relative_to) for row in range(first, stop))
        arena = Arena()
        compressor(compression, magic=magic)(arena, memoryview(inner))
        value = arena.data[: arena.used].tobytes()
        newest = max(rows.timestamp[first:stop])
        parts.append(_message(stop - 1, rows.offset[stop - 1], newest, None, value, magic, bits | compression.codec))
    data = np.frombuffer(b"".join(parts), np.uint8)
    return Window(data, 0, table_of(data, len(parts)))


class _Rows:
    """Records as Python values."""

    def __init__(self, columns: RecordColumns, log_append_time: int | None) -> None:
        n = columns.n_records
        headers: Any = columns.get("headers")
        if isinstance(headers, HeadersColumn) and len(headers.key):
            row = int(np.argmax(np.diff(headers.offsets) > 0))
            raise UnwritableError(Reason.HEADER_COUNT, f"row {row}: message formats v0 and v1 have no headers", row=row)
        self.offset: list[int] = np.asarray(columns["offset"]).tolist()
        if log_append_time is None:
            timestamp: Any = columns.get("timestamp")
            if isinstance(timestamp, np.ma.MaskedArray):
                timestamp = timestamp.filled(kf.NO_TIMESTAMP)
            self.timestamp = [kf.NO_TIMESTAMP] * n if timestamp is None else np.asarray(timestamp).tolist()
        else:
            self.timestamp = [log_append_time] * n
        self.key, self.value = (_values(columns, name) for name in BINARY_COLUMNS)

    def message(self, row: int, magic: int, attributes: int, relative_to: int) -> bytes:
        """The message of a row."""
        if self.offset[row] < 0 or (row and self.offset[row] <= self.offset[row - 1]):
            detail = f"row {row}: offset {self.offset[row]} is negative, or does not lie after the one before"
            raise UnwritableError(Reason.OFFSET_ORDER, detail, row=row)
        return _message(
            row, self.offset[row] - relative_to, self.timestamp[row], self.key[row], self.value[row], magic, attributes
        )


def _values(columns: RecordColumns, name: str) -> list[bytes | None]:
    column: Any = columns.get(name)
    values: list[bytes | None] = [None] * columns.n_records if column is None else column.to_pylist()
    return values


def _message(
    row: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, magic: int, attributes: int
) -> bytes:
    if len(key or b"") + len(value or b"") > _MAX_MESSAGE_SIZE - kf.MESSAGE_V1_OVERHEAD:
        raise UnwritableError(Reason.BATCH_TOO_LARGE, f"row {row}: a message of 2 GiB or more", row=row)
    content = b"".join(
        (
            _I64.pack(timestamp) if magic else b"",
            _NULL if key is None else _I32.pack(len(key)) + key,
            _NULL if value is None else _I32.pack(len(value)) + value,
        )
    )
    crc = zlib.crc32(content, zlib.crc32(bytes((magic, attributes))))
    return _HEAD.pack(offset, 6 + len(content), crc, magic, attributes) + content
