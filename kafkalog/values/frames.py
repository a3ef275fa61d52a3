"""Parses the frames of schema registries: the schema of a value, and the start of its own bytes.

    Confluent     a magic byte 0 and an id of 4 bytes, or a magic byte 1 and a GUID of 16 bytes: before the value, or in
                  the header `__key_schema_id` or `__value_schema_id`
    Apicurio      a magic byte 0 and an id of 4 or 8 bytes; or an id of 8 bytes in a header such as
                  `apicurio.value.globalId`
    AWS Glue      a byte 3, a byte 0 or 5 (compressed by zlib), and a UUID of 16 bytes

In Protobuf, something that selects the message follows the frame, or is in a header: see `Selector`.

Source: SchemaId, DualSchemaIdDeserializer, Confluent Schema Registry 8.1. DefaultHeadersHandler,
OptimisticFallbackIdHandler, ProtobufDeserializer, Apicurio Registry 3.3; ProtobufKafkaDeserializer, Apicurio Registry
2.6. GlueSchemaRegistryDeserializerDataParser, ProtobufWireFormatDecoder, AWS Glue Schema Registry Library 1.1.
"""

from __future__ import annotations

import functools
import re
import uuid
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.values.payloads import Payloads, Rows

SchemaKey = int | str
"""The id of a schema, or its GUID as text."""
Selector = tuple[int, ...] | int | str
"""The Protobuf message of a value: Confluent's message indexes, Glue's number, or Apicurio's name. Empty for none."""

MOST_INDEXES: Final = 64
MOST_INFLATED_BYTES: Final = 64 * 2**20
"""Largest value after decompression."""
MOST_INFLATED_TOTAL: Final = 2**30
"""Largest sum of the decompressed values that are read together."""
_MOST_ROUNDS: Final = 64
"""Values usually have few different selectors; beyond this number, they are read one by one."""
_ID, _LONG_ID = 4, 8
"""Sizes of ids."""
_UUID_SIZES: Final = {1: 17, 3: 18}
"""Sizes of frames with a UUID, by their first byte; the UUID is at the end."""
_STORED, _DEFLATED = 0, 5
_CONFLUENT_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
_APICURIO_HEADERS: Final = {
    column: (f"apicurio.{column}.contentId", f"apicurio.{column}.globalId") for column in ("key", "value")
}
_ENCODING_HEADERS: Final = {column: f"apicurio.{column}.encoding" for column in ("key", "value")}
_MESSAGE_HEADERS: Final = {"key": "apicurio.protobuf.type.key", "value": "apicurio.protobuf.type"}
_NAME: Final = re.compile(rb"[A-Za-z_][\w.]*", re.ASCII)
_DAMAGED: Final = "the message indexes are damaged"
_ENDS: Final = "the bytes end inside the schema id"


class Framed(NamedTuple):
    """Values written with the same schema and message."""

    key: SchemaKey | None
    """None if there is no frame."""
    selector: Selector
    rows: Rows
    payloads: Payloads
    """The values of these rows, without frames."""


class FrameReader:
    """Reads the frames of the key or value column.

    With `has_messages`, the values are of Protobuf. An `id_size` of None recognizes ids of 8 bytes: registries number
    schemas from 1, so an id of 0 is the first half of a longer one, unless `source` has a schema with the id 0.
    """

    def __init__(
        self, column: str, *, has_messages: bool = False, id_size: int | None = None, source: Any = None
    ) -> None:
        self._column, self._has_messages = column, has_messages
        self._id_size, self._source = id_size, source

    def read(self, payloads: Payloads, headers: pa.Array | None) -> tuple[list[Framed], dict[int, str]]:
        """Group values by the schema in their frames, or in the headers of the same records.

        Returns the groups, and by row the reason why a value is in none; null values are left out.
        """
        frames = _Frames(payloads, has_messages=self._has_messages)
        if headers is not None and len(headers):
            frames.read_headers(headers, self._column)
        frames.read_values(self._is_long)
        return frames.groups(), frames.failures

    def strip(self, payloads: Payloads, headers: pa.Array | None) -> tuple[Payloads, dict[int, str]]:
        """Remove the frames of values, for any schema; null for values without one."""
        groups, failures = self.read(payloads, headers)
        start, stop = np.full(len(payloads), -1, np.int64), np.full(len(payloads), -1, np.int64)
        for group in groups:
            start[group.rows], stop[group.rows] = group.payloads.start, group.payloads.stop
        return Payloads(groups[0].payloads.data if groups else payloads.data, start, stop), failures

    def _is_long(self, ids: Rows) -> npt.NDArray[np.bool_]:
        """bool[n]: which ids of four bytes are the first half of one of eight."""
        is_zero: npt.NDArray[np.bool_] = ids == 0
        if self._id_size is not None or not is_zero.any():
            return np.full(ids.size, self._id_size == _LONG_ID)
        return np.zeros(ids.size, np.bool_) if self._has_zero else is_zero

    @functools.cached_property
    def _has_zero(self) -> bool:
        return self._source is not None and self._source.by_id(0) is not None


class _Frames:
    """The frames of some values, collected by schema and message."""

    def __init__(self, payloads: Payloads, *, has_messages: bool) -> None:
        self.failures: dict[int, str] = {}
        self._values = Payloads(payloads.data, payloads.start.copy(), payloads.stop.copy())
        self._left = payloads.valid
        self._has_messages = has_messages
        self._rows: defaultdict[tuple[SchemaKey, Selector], list[Rows]] = defaultdict(list)

    def groups(self) -> list[Framed]:
        groups = []
        for (key, selector), parts in self._rows.items():
            rows = np.sort(np.concatenate(parts))
            groups.append(Framed(key, selector, rows, self._values.take(rows)))
        return groups

    def _fail(self, rows: Rows, why: str) -> None:
        self.failures |= dict.fromkeys(rows.tolist(), why)

    def read_headers(self, headers: pa.Array, column: str) -> None:
        """Take the values whose schema is in a header."""
        # Confluent's deserializers take the first of several headers with a name, Apicurio's the last
        for rows, frame in _header_values(headers, _CONFLUENT_HEADERS[column], is_first=True):
            rows = self._take(rows)
            parsed = _parse(frame, self._has_messages)
            if isinstance(parsed, str):
                self._fail(rows, parsed)
            elif rows.size:
                self._rows[parsed].append(rows)
        for name in _APICURIO_HEADERS[column]:
            for rows, value in _header_values(headers, name):
                rows = self._take(rows)
                if len(value) < _LONG_ID:
                    self._fail(rows, f"the header {name} holds no schema id")
                elif rows.size:
                    self._read_apicurio(rows, int.from_bytes(value[:_LONG_ID], "big", signed=True), headers, column)

    def _take(self, rows: Rows) -> Rows:
        """The rows among some that are neither null nor taken."""
        rows = rows[self._left[rows]]
        self._left[rows] = False
        return rows

    def _read_apicurio(self, rows: Rows, key: int, headers: pa.Array, column: str) -> None:
        """Add values with an id in Apicurio's header."""
        for those, encoding in _header_values(headers, _ENCODING_HEADERS[column]):
            if encoding == b"JSON":
                self._fail(np.intersect1d(rows, those), "Avro's JSON encoding is not decoded")
                rows = np.setdiff1d(rows, those)
        if not self._has_messages:
            self._rows[key, ()].append(rows)
            return
        for those, name in _header_values(headers, _MESSAGE_HEADERS[column]):
            named = np.intersect1d(rows, those)
            rows = np.setdiff1d(rows, those)
            # serializers of version 3 write the name before the message, too
            prefix = bytes([len(name) + 2, 10, len(name), *name]) if len(name) < 126 else b"\xff"
            has_name = self._starts_with(named, prefix)
            self._values.start[named[has_name]] += len(prefix)
            self._rows[key, name.decode("utf-8", "replace")].append(named)
        self._add(key, rows, _read_reference)

    def read_values(self, is_long: Callable[[Rows], npt.NDArray[np.bool_]]) -> None:
        """Take the values that begin with a frame."""
        rows = self._take(np.arange(len(self._left)))
        values = self._values
        sizes = (values.stop - values.start)[rows]
        self._fail(rows[sizes == 0], "empty, so there is no schema id")
        rows = rows[sizes > 0]
        magic = values.data[values.start[rows]]
        self._fail(
            rows[~np.isin(magic, (0, *_UUID_SIZES))],
            "no schema id: the first byte is not 0, 1 or 3 (without ids: framed=False, --no-frame)",
        )
        self._read_ids(rows[magic == 0], is_long)
        for number, size in _UUID_SIZES.items():
            self._read_uuids(rows[magic == number], number, size)

    def _long_enough(self, rows: Rows, size: int) -> Rows:
        sizes = (self._values.stop - self._values.start)[rows]
        self._fail(rows[sizes < size], _ENDS)
        return rows[sizes >= size]

    def _read_ids(self, rows: Rows, is_long: Callable[[Rows], npt.NDArray[np.bool_]]) -> None:
        rows = self._long_enough(rows, 1 + _ID)
        ids = self._numbers(rows, 1)
        has_more = is_long(ids) & ((self._values.stop - self._values.start)[rows] > _LONG_ID)
        long_rows = rows[has_more]
        ids[has_more] = (ids[has_more] << 32) | self._numbers(long_rows, 1 + _ID)
        self._values.start[rows] += np.where(has_more, 1 + _LONG_ID, 1 + _ID)
        distinct, inverse = np.unique(ids, return_inverse=True)
        for at, key in enumerate(distinct.tolist()):
            self._add(key, rows[inverse.reshape(-1) == at], _read_confluent)

    def _numbers(self, rows: Rows, at: int) -> Rows:
        """int64[n]: the four bytes at a position, as numbers."""
        raw = np.ascontiguousarray(self._values.gather(rows, at, _ID))
        return raw.view(">u4").reshape(-1).astype(np.int64)

    def _read_uuids(self, rows: Rows, magic: int, size: int) -> None:
        rows = self._long_enough(rows, size)
        values = self._values
        is_glue = magic == 3
        if is_glue:
            codes = values.data[values.start[rows] + 1]
            is_known = np.isin(codes, (_STORED, _DEFLATED))
            self._fail(rows[~is_known], "AWS Glue's frame names an unknown compression")
            rows, codes = rows[is_known], codes[is_known]
        if not rows.size:
            return
        raw = np.ascontiguousarray(values.gather(rows, size - 16, 16)).view("V16").reshape(-1)
        values.start[rows] += size
        if is_glue:
            is_whole = ~np.isin(rows, self._inflate(rows[codes == _DEFLATED]))
            rows, raw = rows[is_whole], raw[is_whole]
        # void dtypes cannot be sorted; convert them to bytes for grouping
        distinct, inverse = np.unique(raw.view("S16"), return_inverse=True)
        for at, text in enumerate(distinct.tolist()):
            key = str(uuid.UUID(bytes=text.ljust(16, b"\0")))
            self._add(key, rows[inverse.reshape(-1) == at], _read_glue if is_glue else _read_confluent)

    def _inflate(self, rows: Rows) -> list[int]:
        """Replace values by what zlib has compressed; return the rows of those that do not decompress."""
        values = self._values
        parts, failed = [values.data], []
        end, left = values.data.size, MOST_INFLATED_TOTAL
        for row in rows.tolist():
            data = _inflated(values.bytes(row) or b"", min(left, MOST_INFLATED_BYTES))
            if isinstance(data, str):
                self.failures[row] = data
                failed.append(row)
                continue
            parts.append(np.frombuffer(data, np.uint8))
            values.start[row], values.stop[row] = end, end + len(data)
            end += len(data)
            left -= len(data)
        if len(parts) > 1:
            values.data = np.concatenate(parts)
        return failed

    def _add(self, key: SchemaKey, rows: Rows, read: _ReadSelector) -> None:
        """Add values of a schema, in Protobuf grouped by the selectors at their start."""
        if not self._has_messages:
            if rows.size:
                self._rows[key, ()].append(rows)
            return
        n_rounds = 0
        while rows.size:
            first = int(rows[0])
            start, stop = int(self._values.start[first]), int(self._values.stop[first])
            frame = self._values.data[start:stop][: 10 * MOST_INDEXES].tobytes()
            found = read(frame)
            n_rounds += 1
            # one by one: each round examines all remaining rows, which damaged bytes would make quadratic
            same = np.zeros(rows.size, np.bool_)
            same[0] = True
            if isinstance(found, str):
                self._fail(rows[same], found)
            else:
                selector, n = found
                if n and n_rounds <= _MOST_ROUNDS:
                    same = self._starts_with(rows, frame[:n])  # the same bytes mean the same
                self._values.start[rows[same]] += n
                self._rows[key, selector].append(rows[same])
            rows = rows[~same]

    def _starts_with(self, rows: Rows, prefix: bytes) -> npt.NDArray[np.bool_]:
        """bool[n]: which values start with some bytes."""
        start = self._values.start[rows]
        same: npt.NDArray[np.bool_] = self._values.stop[rows] - start >= len(prefix)
        for i, byte in enumerate(prefix):
            same[same] = self._values.data[start[same] + i] == byte
        return same


_ReadSelector = Callable[[bytes], tuple[Selector, int] | str]
"""Reads a selector at the start of some bytes: the selector and its size, or a reason."""


def _header_values(headers: pa.Array, name: str, *, is_first: bool = False) -> Iterator[tuple[Rows, bytes]]:
    """The distinct values of a header that are not null, each with its rows; only the first or last one of a record."""
    first, last = headers.offsets[0].as_py(), headers.offsets[len(headers)].as_py()
    if first == last:
        return
    items = headers.values.slice(first, last - first)
    known = items.field("key").dictionary_encode()
    if name not in known.dictionary.to_pylist():
        return
    is_named = known.indices.to_numpy(zero_copy_only=False) == known.dictionary.to_pylist().index(name)
    at = np.flatnonzero(is_named & items.field("value").is_valid().to_numpy(zero_copy_only=False))
    rows = np.searchsorted(headers.offsets.to_numpy() - first, at, side="right") - 1
    order = np.arange(at.size) if is_first else np.arange(at.size)[::-1]
    # `unique` finds the first of equal rows
    rows, chosen = np.unique(rows[order], return_index=True)
    values = items.field("value").take(pa.array(at[order][chosen])).dictionary_encode()
    codes = values.indices.to_numpy(zero_copy_only=False)
    for code, value in enumerate(values.dictionary.to_pylist()):
        yield rows[codes == code].astype(np.int64), value


def _parse(frame: bytes, has_messages: bool) -> tuple[SchemaKey, Selector] | str:
    """The schema and message in the header of Confluent's clients."""
    if frame[:1] == b"\0" and len(frame) > _ID:
        key: SchemaKey = int.from_bytes(frame[1 : 1 + _ID], "big")
        size = 1 + _ID
    elif frame[:1] == b"\1" and len(frame) >= _UUID_SIZES[1]:
        size = _UUID_SIZES[1]
        key = str(uuid.UUID(bytes=frame[1:size]))
    else:
        return "the header holds no schema id"
    if not has_messages:
        return key, ()
    found = _read_indexes(frame[size:])
    return found if isinstance(found, str) else (key, found[0])


def _inflated(data: bytes, most: int) -> bytes | str:
    """The bytes that zlib has compressed, or the reason why there are none."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, most + 1)
    except zlib.error as error:
        return f"zlib does not decompress the value: {error}"
    if len(found) > most:
        return "the value takes too much memory"
    return found if stream.eof else "the compressed bytes end inside the value"


def _read_confluent(frame: bytes) -> tuple[Selector, int] | str:
    """Confluent's message indexes, or the reference of Apicurio's serializers, whose bytes are no indexes."""
    found = _read_reference(frame)
    return found if found[1] else _read_indexes(frame)


def _read_reference(frame: bytes) -> tuple[Selector, int]:
    """The name in a message `Ref`, which follows its size; empty if there is none."""
    size = frame[0] if frame else 0
    name = frame[3 : size + 1]
    if 2 < size < 128 and frame[1:3] == bytes([10, size - 2]) and len(name) == size - 2 and _NAME.fullmatch(name):
        return name.decode(), size + 1
    return (), 0


def _read_glue(frame: bytes) -> tuple[Selector, int] | str:
    """The number of the message, a varint without zigzag."""
    found = _read_varint(frame, 0)
    return _DAMAGED if found is None else found


def _read_indexes(frame: bytes) -> tuple[Selector, int] | str:
    """Message indexes, and their size; those of the first message may be empty.

    Source: MessageIndexes.readFrom, Confluent Schema Registry 8.1.
    """
    first = _read_varint(frame, 0)
    if first is None or not 0 <= _unzigzag(first[0]) <= MOST_INDEXES:
        return _DAMAGED
    n, at = first
    indexes = []
    for _ in range(_unzigzag(n)):
        number = _read_varint(frame, at)
        if number is None or _unzigzag(number[0]) < 0:
            return _DAMAGED
        indexes.append(_unzigzag(number[0]))
        at = number[1]
    return tuple(indexes) or (0,), at


def _read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            return None
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    return None


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
