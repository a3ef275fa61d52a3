"""Record code of Python clients as peers, on bytes that are in memory: aiokafka's is in C, kafka-python's in Python."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peers import Side, timed

PACKAGES = {"aiokafka": "aiokafka.record", "kafka-python": "kafka.record"}
FETCH_BYTES = 1 << 20

Rows = Sequence[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
"""Offset, timestamp, key, value, headers."""

__all__ = ["PACKAGES", "building", "decoding", "records_of", "version"]


def records_of(path: str, client: str = "aiokafka") -> Side:
    """Every record of a segment, in the slices of whole batches a fetch would bring; CRCs checked."""
    return decoding(_fetches(Path(path).read_bytes()), client)


def decoding(fetches: Sequence[bytes], client: str) -> Side:
    """Every record of some fetched bytes as an object; CRCs checked."""
    memory_records = importlib.import_module(f"{PACKAGES[client]}.memory_records").MemoryRecords

    def work() -> tuple[int, int]:
        n_records = value_bytes = 0
        for fetch in fetches:
            batches = memory_records(fetch)
            while batches.has_next():
                batch = batches.next_batch()
                if not batch.validate_crc():
                    raise ValueError(f"{client} found a wrong CRC")
                for record in batch:
                    n_records += 1
                    value_bytes += len(record.value or b"")
        return n_records, value_bytes

    return timed(work)


def building(batches: Sequence[Rows], client: str) -> Side:
    """Some batches out of records, not compressed."""
    builder: Any = importlib.import_module(f"{PACKAGES[client]}.default_records").DefaultRecordBatchBuilder

    def work() -> tuple[int, int]:
        n_records = value_bytes = 0
        for rows in batches:
            batch = builder(
                magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
                batch_size=2**30,
            )  # fmt: skip
            for offset, timestamp, key, value, headers in rows:
                batch.append(offset, timestamp=timestamp, key=key, value=value, headers=headers)
                value_bytes += len(value or b"")
            batch.build()
            n_records += len(rows)
        return n_records, value_bytes

    return timed(work)


def _fetches(log: bytes) -> list[bytes]:
    fetches = []
    start = position = 0
    while position < len(log):
        (length,) = struct.unpack_from(">i", log, position + 8)
        if position + 12 + length - start > FETCH_BYTES and position > start:
            fetches.append(log[start:position])
            start = position
        position += 12 + length
    fetches.append(log[start:])
    return fetches
