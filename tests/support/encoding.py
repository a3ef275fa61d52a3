"""Batches to write: drawn, handed to the library as columns, built by the twin, or put as JSON for Kafka's builder."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import builder
import numpy as np

from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.codecs import UNCOMPRESSED, Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import encode_batches

Headers = list[tuple[bytes, bytes | None]]
Row = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, timestamp, key, value, headers."""


@dataclass
class Wanted:
    """A batch to be written."""

    rows: list[Row]
    base_offset: int
    last_offset: int
    log_append_time: int | None = None
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int = -1
    max_timestamp: int | None = None
    """Of a batch without records; else the largest there is."""
    compression: Compression = field(default=UNCOMPRESSED)

    @property
    def newest(self):
        """The largest timestamp that the header says."""
        if self.max_timestamp is not None:
            return self.max_timestamp
        if self.log_append_time is not None:
            return self.log_append_time
        return max([-1, *(row[1] for row in self.rows)])


def binary(values):
    """A column of byte strings."""
    offsets = np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int64)
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    valid = np.array([value is not None for value in values], np.bool_)
    return BinaryColumn(offsets, data, None if valid.all() else valid)


def columns_of(rows):
    """Records as columns."""
    return RecordColumns(
        len(rows),
        {
            "offset": np.array([row[0] for row in rows], np.int64),
            "timestamp": np.array([row[1] for row in rows], np.int64),
            "key": binary([row[2] for row in rows]),
            "value": binary([row[3] for row in rows]),
            "headers": HeadersColumn.of([row[4] for row in rows]),
        },
    )


def encoded(batches):
    """The library's bytes, all batches in one call, an array for each field."""
    spec = BatchSpec(
        compression=[batch.compression for batch in batches],
        timestamp_type=np.array([batch.log_append_time is not None for batch in batches], np.int8),
        leader_epoch=np.array([batch.leader_epoch for batch in batches]),
        producer_id=np.array([batch.producer_id for batch in batches]),
        producer_epoch=np.array([batch.producer_epoch for batch in batches]),
        base_sequence=np.array([batch.base_sequence for batch in batches]),
        is_transactional=np.array([batch.is_transactional for batch in batches]),
        is_control=np.array([batch.is_control for batch in batches]),
        delete_horizon_ms=np.array([batch.delete_horizon_ms for batch in batches]),
        base_offset=np.array([batch.base_offset for batch in batches]),
        last_offset=np.array([batch.last_offset for batch in batches]),
        max_timestamp=np.array([batch.newest for batch in batches]),
    )
    boundaries = np.cumsum([0, *(len(batch.rows) for batch in batches)])
    return encode_batches(columns_of([row for batch in batches for row in batch.rows]), boundaries, spec)


def encoded_alone(batch):
    """The library's bytes of one batch, a number for each field, and what can be left out left out."""
    given = {
        name: getattr(batch, name)
        for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence")
        if getattr(batch, name) != -1
    }
    given |= {name: True for name in ("is_transactional", "is_control") if getattr(batch, name)}
    if batch.delete_horizon_ms >= 0:
        given["delete_horizon_ms"] = batch.delete_horizon_ms
    if batch.log_append_time is not None:
        given |= {"timestamp_type": 1, "log_append_time": batch.log_append_time}
    if not batch.rows or batch.base_offset != batch.rows[0][0]:
        given["base_offset"] = batch.base_offset
    if not batch.rows or batch.last_offset != batch.rows[-1][0]:
        given["last_offset"] = batch.last_offset
    if batch.max_timestamp is not None:
        given["max_timestamp"] = batch.max_timestamp
    spec = BatchSpec(compression=batch.compression, **given)
    return encode_batches(columns_of(batch.rows), np.array([0, len(batch.rows)]), spec)


def twin_of(batch):
    """The bytes as `builder` has them, not compressed."""
    has_horizon = batch.delete_horizon_ms >= 0 and bool(batch.rows)
    base_timestamp = batch.rows[0][1] if batch.rows else -1
    if has_horizon:
        base_timestamp = batch.delete_horizon_ms
    return builder.batch_v2(
        [
            builder.record_v2(
                offset - batch.base_offset, builder.wrap64(timestamp - base_timestamp), key, value, headers
            )
            for offset, timestamp, key, value, headers in batch.rows
        ],
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        log_append_time=batch.log_append_time is not None,
        transactional=batch.is_transactional,
        control=batch.is_control,
        delete_horizon=has_horizon,
        last_offset_delta=batch.last_offset - batch.base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=batch.newest,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


SIZES = (0, 0, 1, 7, 15, 16, 17, 31, 50, 63, 64, 65, 127, 128, 200, 1000, 8191, 8192, 20_000)
NAMES = (b"", b"n", b"trace-id", "Schlüssel".encode(), "鍵".encode(), "🔑".encode(), b"x" * 70)
STEPS = (0, 0, 1, 3, -1, -40, 5000, 2**31, 2**40)
FIRST_TIMESTAMPS = (-1, 0, 1_700_000_000_000, 2**62)


def some_bytes(source, *, nulls=True):
    """Null, empty, short and long ones."""
    if nulls and source.random() < 0.15:
        return None
    size = source.choice(SIZES[: source.choice((6, 13, len(SIZES)))])
    unit = source.randbytes(source.choice((1, 8, 97)))
    return (unit * (size // len(unit) + 1))[:size]


def some_rows(source, base_offset, n, *, headers=True):
    """Records whose offsets and timestamps step in all ways that Kafka allows."""
    gap = source.choice((1, 1, 1, 2, 100, 10**7))
    timestamp = source.choice(FIRST_TIMESTAMPS)
    forgetful, stepping = source.random() < 0.3, source.random() < 0.7
    rows = []
    offset = base_offset
    for _ in range(n):
        names = [source.choice(NAMES) for _ in range(source.choice((0, 0, 0, 1, 2, 5)))] if headers else []
        stamp = -1 if forgetful and source.random() < 0.5 else timestamp
        key, value = some_bytes(source), some_bytes(source)
        rows.append((offset, stamp, key, value, [(name, some_bytes(source)) for name in names]))
        offset += source.randint(1, gap)
        if stepping:
            timestamp = max(0, min(timestamp + source.choice(STEPS), 2**63 - 1))
    return rows


def some_batch(source, base_offset, compression=UNCOMPRESSED):
    """A batch that Kafka's builder takes."""
    n = source.choice((1, 1, 2, 3, 8, 40))
    skipped = source.choice((0, 0, 0, 1, 2**31 - 1 - 40 * 10**7))
    rows = some_rows(source, base_offset + skipped, n)
    batch = Wanted(rows, base_offset, rows[-1][0], compression=compression)
    batch.leader_epoch = source.choice((-1, 0, 7, 2**31 - 1))
    if source.random() < 0.3:
        batch.log_append_time = source.choice((0, 1_700_000_000_500, 2**62))
    if source.random() < 0.5:
        batch.producer_id = source.choice((0, 5, 2**40, 2**63 - 1))
        batch.producer_epoch = source.choice((0, 3, 2**15 - 1))
        batch.base_sequence = source.choice((0, 17, 2**31 - 2, 2**31 - 1))
        batch.is_transactional = source.random() < 0.5
    if source.random() < 0.15:
        batch.is_control = True
        keys = [struct.pack(">hh", 0, source.choice((0, 1, 2, 5))) for _ in rows]
        batch.rows = [(offset, stamp, key, *rest) for (offset, stamp, _, *rest), key in zip(rows, keys, strict=True)]
        batch.base_sequence = -1
    if source.random() < 0.2:
        batch.delete_horizon_ms = source.choice((0, 1_700_000_000_000, 2**62))
    if source.random() < 0.2:
        batch.last_offset += source.choice((1, 100))
    return batch


def some_batches(source, n, first_offset=0, **options):
    """Batches one behind the other, with gaps."""
    batches = []
    offset = first_offset
    for _ in range(n):
        batches.append(some_batch(source, offset, **options))
        offset = batches[-1].last_offset + source.choice((1, 1, 1, 1000))
    return batches
