"""Parses Confluent's wire format: the schema of a value, and the start of its own bytes.

A frame is a magic byte 0 and a schema id of 4 bytes, or a magic byte 1 and a GUID of 16 bytes. It precedes the value,
or is in the header `__key_schema_id` or `__value_schema_id`. In Protobuf, message indexes follow it.

Source: SchemaId, DualSchemaIdDeserializer, Confluent Schema Registry 8.1.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog.values.payloads import Payloads, Rows

SchemaKey = int | str
"""The id of a schema, or its GUID as text."""

HEADER_NAMES: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
MOST_INDEXES: Final = 64
_MOST_ROUNDS: Final = 64
"""Values usually have few different indexes; beyond this number, they are read one by one."""
_ID_SIZE: Final = 5
_GUID_SIZE: Final = 17


class Framed(NamedTuple):
    """Values written with the same schema and message."""

    key: SchemaKey | None
    """None if there is no frame."""
    indexes: tuple[int, ...]
    """Protobuf's message indexes; empty if none are read."""
    rows: Rows
    payloads: Payloads
    """The values of these rows, without frames."""


def read_frames(
    payloads: Payloads, headers: pa.Array | None, header_name: str, *, has_indexes: bool = False
) -> tuple[list[Framed], dict[int, str]]:
    """Group values by the schema in their frames, or in the headers of the same records; null values are left out.

    Returns the groups, and by row the reason why a value is in none. With `has_indexes`, message indexes follow the id.
    """
    failures: dict[int, str] = {}
    keys: dict[tuple[SchemaKey, tuple[int, ...]], list[Rows]] = {}
    start = payloads.start.copy()
    left = payloads.valid
    for row, frame in _header_frames(headers, header_name):
        # skip tombstones, and rows whose first header of this name was used
        if not left[row]:
            continue
        left[row] = False
        parsed = _parse(frame, has_indexes)
        if isinstance(parsed, str):
            failures[row] = parsed
        else:
            keys.setdefault((parsed[0], parsed[1]), []).append(np.array([row], np.int64))
    rows = np.flatnonzero(left)
    sizes = (payloads.stop - payloads.start)[rows]
    empty = rows[sizes == 0]
    failures |= dict.fromkeys(empty.tolist(), "empty, so there is no schema id")
    rows = rows[sizes > 0]
    magic = payloads.data[payloads.start[rows]]
    failures |= dict.fromkeys(
        rows[magic > 1].tolist(), "no schema id: the first byte is not 0 or 1 (without ids: framed=False, --no-frame)"
    )
    for number, size in ((0, _ID_SIZE), (1, _GUID_SIZE)):
        mine = rows[magic == number]
        sizes = (payloads.stop - payloads.start)[mine]
        failures |= dict.fromkeys(mine[sizes < size].tolist(), "the bytes end inside the schema id")
        mine = mine[sizes >= size]
        if not mine.size:
            continue
        raw = np.ascontiguousarray(payloads.gather(mine, 1, size - 1)).view(f"V{size - 1}").reshape(-1)
        start[mine] += size
        # void dtypes cannot be sorted; convert them to bytes for grouping
        texts = raw.view(f"S{size - 1}") if number else raw.view(">u4")
        distinct, inverse = np.unique(texts, return_inverse=True)
        for at, text in enumerate(distinct.tolist()):
            key = str(uuid.UUID(bytes=text.ljust(16, b"\0"))) if number else int(text)
            group = mine[inverse.reshape(-1) == at]
            if not has_indexes:
                keys.setdefault((key, ()), []).append(group)
                continue
            for indexes, mine_of_it, n in _by_indexes(payloads, start, group):
                if isinstance(indexes, str):
                    failures |= dict.fromkeys(mine_of_it.tolist(), indexes)
                else:
                    start[mine_of_it] += n
                    keys.setdefault((key, indexes), []).append(mine_of_it)
    groups = []
    for (key, indexes), parts in keys.items():
        mine = np.sort(np.concatenate(parts))
        groups.append(Framed(key, indexes, mine, Payloads(payloads.data, start[mine], payloads.stop[mine])))
    return groups, failures


def _by_indexes(payloads: Payloads, start: Rows, rows: Rows) -> Iterator[tuple[tuple[int, ...] | str, Rows, int]]:
    """Group rows by the message indexes at `start`. Yield these, or an error text, with the rows and their size."""
    n_rounds = 0
    while rows.size:
        first = int(rows[0])
        frame = payloads.data[start[first] : payloads.stop[first]][: 10 * MOST_INDEXES].tobytes()
        found = _read_indexes(frame, 0)
        n_rounds += 1
        # one by one: each round examines all remaining rows, which damaged bytes would make quadratic
        if isinstance(found, str) or n_rounds > _MOST_ROUNDS:
            yield (found, rows[:1], 0) if isinstance(found, str) else (found[0], rows[:1], found[1])
            rows = rows[1:]
            continue
        indexes, n = found
        # the same bytes mean the same indexes
        same = payloads.stop[rows] - start[rows] >= n
        for i in range(n):
            at = start[rows] + i
            same[same] = payloads.data[at[same]] == frame[i]
        yield indexes, rows[same], n
        rows = rows[~same]


def strip_frames(
    payloads: Payloads, headers: pa.Array | None, header_name: str, *, has_indexes: bool = False
) -> tuple[Payloads, dict[int, str]]:
    """Remove the frames of values, for any schema; null for values without one."""
    groups, failures = read_frames(payloads, headers, header_name, has_indexes=has_indexes)
    start, stop = np.full(len(payloads), -1, np.int64), np.full(len(payloads), -1, np.int64)
    for group in groups:
        start[group.rows], stop[group.rows] = group.payloads.start, group.payloads.stop
    return Payloads(payloads.data, start, stop), failures


def _header_frames(headers: pa.Array | None, name: str) -> Iterator[tuple[int, bytes]]:
    """Rows with the header, and its value. The first of several counts, as in Confluent's deserializers."""
    if headers is None or not len(headers):
        return
    first, last = headers.offsets[0].as_py(), headers.offsets[len(headers)].as_py()
    if first == last:
        return
    items = headers.values.slice(first, last - first)
    names = items.field("key")
    known = names.dictionary_encode()
    if name not in known.dictionary.to_pylist():
        return
    mine = np.flatnonzero(known.indices.to_numpy(zero_copy_only=False) == known.dictionary.to_pylist().index(name))
    bounds = headers.offsets.to_numpy() - first
    rows = np.searchsorted(bounds, mine, side="right") - 1
    values = items.field("value").take(pa.array(mine)).to_pylist()
    seen = -1
    for row, value in zip(rows.tolist(), values, strict=True):
        if row != seen and value is not None:
            seen = row
            yield row, value


def _parse(frame: bytes, has_indexes: bool) -> tuple[SchemaKey, tuple[int, ...]] | str:
    if frame[:1] == b"\0" and len(frame) >= _ID_SIZE:
        key: SchemaKey = int.from_bytes(frame[1:_ID_SIZE], "big")
        size = _ID_SIZE
    elif frame[:1] == b"\1" and len(frame) >= _GUID_SIZE:
        key, size = str(uuid.UUID(bytes=frame[1:_GUID_SIZE])), _GUID_SIZE
    else:
        return "the header holds no schema id"
    if not has_indexes:
        return key, ()
    found = _read_indexes(frame, size)
    return found if isinstance(found, str) else (key, found[0])


def _read_indexes(frame: bytes, at: int) -> tuple[tuple[int, ...], int] | str:
    """Message indexes, and the position after them; empty for the first message.

    Source: MessageIndexes.readFrom, Confluent Schema Registry 8.1.
    """
    first = _read_varint(frame, at)
    if first is None or not 0 <= first[0] <= MOST_INDEXES:
        return "the message indexes are damaged"
    n, at = first
    indexes = []
    for _ in range(n):
        one = _read_varint(frame, at)
        if one is None or one[0] < 0:
            return "the message indexes are damaged"
        indexes.append(one[0])
        at = one[1]
    return tuple(indexes) or (0,), at


def _read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            return None
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
    return None
