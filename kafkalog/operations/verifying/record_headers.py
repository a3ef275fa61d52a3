"""Compares batch headers with the records in the batch.

Readers choose batches by their headers, so they miss records that a wrong header hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.columns import RecordColumns
from kafkalog.records.spans import batch_error
from kafkalog.text import iso_milliseconds, offset_range

COLUMNS: Final = ("offset", "timestamp", "batch_position")
"""The record columns that `incoherent` needs."""
_MOST_BYTES_OF_NOTHING: Final = 64
"""Larger than any codec's frame of empty content."""


def miscounted(batches: BatchTable, path: str, lost: Callable[[KafkalogError], Finding]) -> Iterator[Finding]:
    """Yield findings about v2 batches too small for the record count in their header; `lost` makes a finding.

    Of a batch with a record count of 0, Kafka's consumers and the readers here return nothing, whatever follows.
    """
    n_bytes = batches.size_in_bytes - kf.RECORD_BATCH_OVERHEAD
    most = np.where(batches.codec == 0, n_bytes // kf.MIN_RECORD_BYTES, np.iinfo(np.int32).max)
    n = batches.records_count
    hides = (n == 0) & (n_bytes > np.where(batches.codec == 0, 0, _MOST_BYTES_OF_NOTHING))
    for row in np.flatnonzero((batches.magic >= 2) & ((n < 0) | (n > most) | hides)).tolist():
        status = STATUS["RECORD_TRAILING_BYTES" if hides[row] else "RECORD_COUNT"]
        yield lost(batch_error(status, batches, row, path))


def incoherent(columns: RecordColumns, batches: BatchTable, path: str) -> Iterator[Finding]:
    """Yield findings about v2 batches whose header disagrees with their records, at most one per batch.

    `columns` has `COLUMNS` of all records of the batches, in order. A leader rejects or corrects such batches when they
    are produced. Decoding accepts them, as Kafka's consumers do. But a search by offset or timestamp chooses batches by
    their headers, and does not find such records. Source: LogValidator, Kafka 4.3.
    """
    row = np.searchsorted(batches.position, columns.batch_position)
    is_v2 = (batches.magic >= 2)[row]
    offset, timestamp = columns.offset, columns.timestamp
    outside = is_v2 & ((offset < batches.base_offset[row]) | (offset > batches.last_offset[row]))
    falls = np.zeros(row.size, np.bool_)
    falls[1:] = is_v2[1:] & (row[1:] == row[:-1]) & (offset[1:] <= offset[:-1])
    late = is_v2 & (timestamp > batches.max_timestamp[row])
    bad = np.flatnonzero(outside | falls | late)
    _, first = np.unique(row[bad], return_index=True)
    for record in bad[first].tolist():
        batch = int(row[record])
        base, last = int(batches.base_offset[batch]), int(batches.last_offset[batch])
        if outside[record]:
            reason = Reason.HEADER_INCONSISTENT
            detail = f"a record has offset {offset[record]}, but its batch header has {offset_range(base, last + 1)}"
        elif falls[record]:
            reason = Reason.OFFSET_ORDER
            detail = f"a record with offset {offset[record]} follows one with {offset[record - 1]} in a batch"
        else:
            reason = Reason.HEADER_INCONSISTENT
            detail = (
                f"a record has timestamp {iso_milliseconds(int(timestamp[record]))}, later than the largest in its"
                f" batch header, {iso_milliseconds(int(batches.max_timestamp[batch]))}: lookups of later times skip it"
            )
        yield Finding(
            reason,
            detail,
            path=path,
            position=int(batches.position[batch]),
            length=int(batches.size_in_bytes[batch]),
            base_offset=base,
            last_offset=last,
        )


def going_back(columns: RecordColumns, batches: BatchTable, path: str, before: int | None = None) -> Iterator[Finding]:
    """Yield findings about v0 and v1 batches whose record offsets do not rise, at most one per batch.

    The header of a compressed message has its last offset alone: that of its first record is found by decoding.
    `before` is the last offset before the batches; None or negative if it is not known.
    """
    if not (batches.magic < 2).any():
        return
    row = np.searchsorted(batches.position, columns.batch_position)
    previous = np.append(-1 if before is None else before, batches.last_offset[:-1])[row]
    follows = np.append(False, row[1:] == row[:-1])
    previous[follows] = columns.offset[:-1][follows[1:]]
    bad = np.flatnonzero((batches.magic[row] < 2) & (columns.offset <= previous))
    _, first = np.unique(row[bad], return_index=True)
    for record in bad[first].tolist():
        batch = int(row[record])
        detail = f"record offsets go back from {previous[record]} to {columns.offset[record]}"
        yield Finding(
            Reason.OFFSET_ORDER,
            f"{detail}: readers get offsets twice; kafkalog convert can leave the batch out",
            path=path,
            position=int(batches.position[batch]),
            length=int(batches.size_in_bytes[batch]),
            base_offset=int(columns.offset[record]),
            n_records=0,
            certainty="exact",
        )
