"""aiokafka's record parser (Cython) as a peer, on bytes that are already in memory: it is not charged for the read."""

from __future__ import annotations

import struct
from pathlib import Path

from peers import Side, timed

FETCH_BYTES = 1 << 20


def version() -> str:
    import aiokafka

    return str(aiokafka.__version__)


def records_of(path: str) -> Side:
    """Every record of a segment, in the slices of whole batches a fetch would bring; CRCs checked."""
    from aiokafka.record.memory_records import MemoryRecords

    fetches = _fetches(Path(path).read_bytes())

    def work() -> tuple[int, int]:
        n_records = value_bytes = 0
        for fetch in fetches:
            batches = MemoryRecords(fetch)
            while batches.has_next():
                batch = batches.next_batch()
                if not batch.validate_crc():
                    raise ValueError("aiokafka found a wrong CRC")
                for record in batch:
                    n_records += 1
                    value_bytes += len(record.value or b"")
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
