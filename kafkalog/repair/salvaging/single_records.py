"""Tries the single records of damaged batches, for a file of their own: no checksum vouches for them.

Source: DefaultRecord.readFrom, LegacyRecord, Kafka 4.3.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, Limits
from kafkalog.log.segment import Segment
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.storage.source import ByteSource
from kafkalog.storage.staging import StagedFile

_MAX_BATCH_BYTES: Final = 2**24  # a larger damaged batch is not tried
_MAX_STEPS: Final = 2**20  # positions of a batch that are tried after a bad record


class _Record(NamedTuple):
    """A record as its bytes say it."""

    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class SingleRecords:
    """Writes the records of damaged batches as JSON lines.

    Parameters
    ----------
    create : callable or None
        Returns the file; called before the first record. None in a dry run.
    """

    def __init__(self, create: Callable[[], StagedFile] | None, *, is_wanted: bool) -> None:
        self._create, self._is_wanted = create, is_wanted
        self._file: StagedFile | None = None
        self.n_records = 0

    def add(self, source: ByteSource, segment: Segment, start: int, end: int) -> None:
        """Try the records of the damaged batch that begins at `start`, if one does."""
        if not self._is_wanted or not kf.RECORD_BATCH_OVERHEAD < end - start <= _MAX_BATCH_BYTES:
            return
        window = source.window(start, end)
        data = window.tobytes()
        source.release(window, start)
        for found in _records(data, segment.limits):
            self.n_records += 1
            if self._create is not None:
                self._file = self._file or self._create()
                line = {"segment": str(segment.path), "batch_position": start, "is_verified": False, **found}
                self._file.write((json.dumps(line) + "\n").encode())

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()


def _records(data: bytes, limits: Limits) -> Iterator[dict[str, Any]]:
    """The records of a damaged batch, as far as they can be parsed."""
    size = int.from_bytes(data[8:12], "big", signed=True) + kf.LOG_OVERHEAD
    if data[16] != 2:
        return
    base, delta = int.from_bytes(data[:8], "big", signed=True), int.from_bytes(data[23:27], "big", signed=True)
    base_timestamp = int.from_bytes(data[27:35], "big", signed=True)
    codec = data[22] & kf.CODEC_MASK
    # the size field may be what is damaged
    payload = data[kf.RECORD_BATCH_OVERHEAD : size if size > kf.RECORD_BATCH_OVERHEAD else len(data)]
    if codec:
        arena = Arena()
        try:
            decompress_into(arena, codec, np.frombuffer(payload, np.uint8), magic=2, limits=limits)
        except KafkalogError:
            return
        payload = arena.data[: arena.used].tobytes()
    for one in _walk(payload, delta):
        yield {
            "offset": base + one.offset_delta,
            "timestamp": base_timestamp + one.timestamp_delta,
            "key": _text(one.key),
            "value": _text(one.value),
            "headers": [{"key": _text(key), "value": _text(value)} for key, value in one.headers],
        }


def _walk(payload: bytes, last_delta: int) -> Iterator[_Record]:
    """Records one after another; after a bad one, from the next position at which two follow each other."""
    position, before, steps = 0, -1, 0
    is_lost = False
    while position < len(payload) and steps < _MAX_STEPS:
        one = _parse(payload, position)
        if one is not None and not before < one.offset_delta <= max(last_delta, before + 1):
            one = None
        # any few bytes may look like a record: after damage it counts only if another follows it
        if one is not None and is_lost and one.end < len(payload):
            after = _parse(payload, one.end)
            if after is None or after.offset_delta <= one.offset_delta:
                one = None
        if one is None:
            is_lost, position, steps = True, position + 1, steps + 1
            continue
        yield one
        is_lost, position, before = False, one.end, one.offset_delta


def _parse(data: bytes, position: int) -> _Record | None:
    """The record at a position, None if there is none."""
    try:
        length, at = _varint(data, position)
        end = at + length
        if length < kf.MIN_RECORD_BYTES - 1 or end > len(data) or data[at]:
            return None
        timestamp, at = _varint(data, at + 1, 10)
        offset, at = _varint(data, at)
        key, at = _sized(data, at, end)
        value, at = _sized(data, at, end)
        n, at = _varint(data, at)
        headers = []
        if not 0 <= n <= end - at:
            return None
        for _ in range(n):
            name, at = _sized(data, at, end)
            content, at = _sized(data, at, end)
            if name is None:
                return None
            headers.append((name, content))
    except (IndexError, ValueError):
        return None
    return _Record(end, timestamp, offset, key, value, headers) if at == end else None


def _varint(data: bytes, at: int, most: int = 5) -> tuple[int, int]:
    value = 0
    for n in range(most):
        byte = data[at + n]
        value |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + n + 1
    raise ValueError("a variable-length integer is too long")


def _sized(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if size > end - at:
        raise ValueError("a field is longer than its record")
    return data[at : at + size], at + size


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
