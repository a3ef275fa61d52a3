"""The transaction marker of a control batch as a broker reads it, checksum or not, and what it dies of there.

Mirrors `DefaultRecordBatch.iterator`, `DefaultRecord.readFrom` and `EndTransactionMarker.deserialize`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.repair.startup.forecast import LoadFailure
from kafkalog.repair.startup.segment_reading import BatchHeader

_TIMESTAMP_TYPE_BIT = 8
_N_KEY_BYTES, _N_VALUE_BYTES = 4, 6
_STREAM_MAGIC: dict[int, bytes] = {
    kf.Codec.GZIP: b"\x1f\x8b",
    kf.Codec.SNAPPY: b"\x82SNAPPY\0",
    kf.Codec.LZ4: b"\x04\x22\x4d\x18",
}


class Marker(NamedTuple):
    """The end of a transaction."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


def marker(batch: BatchHeader, content: bytes, broker: str) -> Marker | None:
    """The marker of a control batch; None if it has no record.

    Raises
    ------
    LoadFailure
        The broker dies of it.
    """
    if len(content) < kf.RECORD_BATCH_OVERHEAD:
        raise LoadFailure("IndexOutOfBoundsException", f"the control batch at {batch.position} has no header")
    n_records, attributes = batch.field(57, 4), batch.head[22]
    if not n_records:
        return None
    codec = attributes & 7
    if codec > kf.Codec.ZSTD:
        raise LoadFailure("IllegalArgumentException", f"the control batch at {batch.position} has codec {codec}")
    data = content[kf.RECORD_BATCH_OVERHEAD :]
    if n_records < 0:
        if not data.startswith(_STREAM_MAGIC.get(codec, b"")):  # the stream is opened first
            _decompressed(data, codec, batch)
        raise _invalid(batch, f"{n_records} records")
    if codec:
        data = _decompressed(data, codec, batch)
    is_null = broker == "2.8" and not codec  # what it makes of a record that is cut off
    timestamp, key, value = _Cursor(data, batch).record(is_only=n_records == 1, is_null=is_null)
    if attributes & _TIMESTAMP_TYPE_BIT:
        timestamp = batch.field(35, 8)
    else:
        timestamp = (batch.field(27, 8) + timestamp + 2**63) % 2**64 - 2**63
    return _marker(batch, key, value, timestamp, broker)


def _marker(batch: BatchHeader, key: bytes | None, value: bytes | None, timestamp: int, broker: str) -> Marker:
    if key is None:
        raise LoadFailure("NullPointerException", f"the marker at {batch.position} has no key")
    if len(key) < _N_KEY_BYTES or key[0] & 0x80:
        raise _invalid(batch, "a wrong key")
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in (kf.ControlRecordType.ABORT, kf.ControlRecordType.COMMIT):
        raise LoadFailure("IllegalArgumentException", f"the control batch at {batch.position} has type {kind}")
    if value is None:
        raise LoadFailure("NullPointerException", f"the marker at {batch.position} has no value")
    if len(value) < _N_VALUE_BYTES and (broker == "2.8" or len(value) < 2 or not value[0] & 0x80):
        name = "InvalidRecordException" if broker == "2.8" else "BufferUnderflowException"
        raise LoadFailure(name, f"the marker at {batch.position} has {len(value)} bytes")
    if value[0] & 0x80:
        raise _invalid(batch, "a negative version")
    return Marker(kind == kf.ControlRecordType.ABORT, int.from_bytes(value[2:6], "big", signed=True), timestamp)


def _decompressed(data: bytes, codec: int, batch: BatchHeader) -> bytes:
    arena = Arena()
    try:
        decompress_into(arena, codec, np.frombuffer(data, np.uint8), magic=2, limits=DEFAULT_LIMITS)
    except KafkalogError as error:
        detail = f"the control batch at {batch.position} cannot be decompressed: {error}"
        raise LoadFailure("KafkaException", detail) from error
    return arena.data[: arena.used].tobytes()


def _invalid(batch: BatchHeader, detail: str) -> LoadFailure:
    return LoadFailure("InvalidRecordException", f"the control batch at {batch.position} has {detail}")


class _Cursor:
    """Reads the first record of a batch."""

    def __init__(self, data: bytes, batch: BatchHeader) -> None:
        self._data, self._at, self._batch = data, 0, batch

    def record(self, *, is_only: bool, is_null: bool) -> tuple[int, bytes | None, bytes | None]:
        """The difference of its timestamp, its key and its value."""
        size = self._varint(5)
        start = self._at
        n_left = len(self._data) - start
        if is_null and size > n_left and not (is_only and n_left):
            raise LoadFailure("NullPointerException", f"the control batch at {self._batch.position} is cut off")
        if not 0 <= size <= n_left:
            raise _invalid(self._batch, f"a record of {size} bytes")
        self._bytes(1)  # its attributes
        timestamp = self._varint(10)
        self._varint(5)  # the difference of its offset
        key, value = self._bytes(self._varint(5)), self._bytes(self._varint(5))
        n_headers = self._varint(5)
        if not 0 <= n_headers <= len(self._data) - self._at:
            raise _invalid(self._batch, f"{n_headers} headers")
        for _ in range(n_headers):
            n_bytes = self._varint(5)
            if n_bytes < 0:
                raise _invalid(self._batch, "a header without a name")
            self._bytes(n_bytes)
            self._bytes(self._varint(5))
        if self._at - start != size or (is_only and self._at < len(self._data)):
            raise _invalid(self._batch, "a record of a wrong size")
        return timestamp, key, value

    def _varint(self, most: int) -> int:
        value = 0
        for shift in range(0, 7 * most, 7):
            if self._at == len(self._data):
                raise _invalid(self._batch, "a record that is cut off")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value >> 1 ^ -(value & 1)
        raise _invalid(self._batch, "a number that does not end")

    def _bytes(self, n: int) -> bytes | None:
        if n < 0:
            return None
        if n > len(self._data) - self._at:
            raise _invalid(self._batch, "a record that is cut off")
        self._at += n
        return self._data[self._at - n : self._at]
