"""Reads one batch header without checks, as Kafka's tool does: any magic, offsets and size are accepted."""

from __future__ import annotations

import struct
from typing import Final

from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_crc32, checksum_crc32c
from kafkalog.records.batch_table import BatchTable
from kafkalog.storage.source import Bytes

_V2: Final = struct.Struct(">qiibIhiqqqhii")
_LEGACY: Final = struct.Struct(">qiIbb")


def read_header(data: Bytes, position: int) -> BatchTable:
    """Read the header of a batch into a batch table of one row.

    Parameters
    ----------
    data : uint8[n]
        Bytes that begin with the batch. From v2 on, at least 61.
    position : int
        Position of the batch in the file.
    """
    head = data[: kf.RECORD_BATCH_OVERHEAD].tobytes()
    if _magic(head) >= 2:
        base, size, leader_epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp, *rest = _V2.unpack(head)
        producer_id, producer_epoch, base_sequence, count = rest
        last = _wrap(base + delta)
    else:
        last, size, crc, magic, attributes = _LEGACY.unpack_from(head)
        max_timestamp = int.from_bytes(head[18:26], "big", signed=True) if magic == 1 else kf.NO_TIMESTAMP
        is_compressed = attributes & kf.CODEC_MASK != 0
        base, base_timestamp, count = (-1, max_timestamp, -1) if is_compressed else (last, max_timestamp, 1)
        leader_epoch = producer_id = producer_epoch = base_sequence = -1
    values = {
        "position": position,
        "size_in_bytes": kf.LOG_OVERHEAD + size,
        "base_offset": base,
        "last_offset": last,
        "partition_leader_epoch": leader_epoch,
        "magic": magic,
        "crc": crc,
        "attributes": attributes,
        "base_timestamp": base_timestamp,
        "max_timestamp": max_timestamp,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "records_count": count,
        "control_type": kf.NOT_CONTROL,
    }
    table = BatchTable.empty(1)
    for name, value in values.items():
        getattr(table, name)[0] = value
    return table


def _magic(head: bytes) -> int:
    return head[16] - 256 if head[16] > 127 else head[16]


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def add_sequence(sequence: int, delta: int) -> int:
    """Add to a sequence number that wraps from 2^31 - 1 to 0, in Java's int arithmetic.

    Source: `DefaultRecordBatch.incrementSequence`.
    """
    if sequence > _wrap_int(2**31 - 1 - delta):
        return _wrap_int(delta - (2**31 - 1 - sequence) - 1)
    return _wrap_int(sequence + delta)


def _wrap_int(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def is_valid(batch: Bytes, table: BatchTable) -> bool:
    """Whether a batch has the minimum length and a correct checksum."""
    if table.magic[0] >= 2:
        return bool(batch.size >= kf.RECORD_BATCH_OVERHEAD and checksum_crc32c(batch[21:]) == table.crc[0])
    return bool(checksum_crc32(batch[16:]) == table.crc[0])
