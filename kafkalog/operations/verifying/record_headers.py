"""Whether batches say of their records what is true: readers go by headers, and miss what these hide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kafkalog.errors import Finding, Reason
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.columns import RecordColumns

COLUMNS: Final = ("offset", "timestamp", "batch_position")
"""Columns of records that are looked at."""


def incoherent(columns: RecordColumns, batches: BatchTable, path: str) -> Iterator[Finding]:
    """Findings about batches of v2 whose header does not go with their records, one a batch.

    Parameters
    ----------
    columns : RecordColumns
        `COLUMNS` of all records of the batches, in order.
    batches : BatchTable
    path : str

    Notes
    -----
    A leader refuses such batches or mends them when they are produced, and decoding takes them as they are, as Kafka's
    consumers do. But whoever asks for offsets or times chooses batches by their headers.

    Source: LogValidator, Kafka 4.3.
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
            detail = f"a record has offset {offset[record]}, and the batch says that it holds {base} to {last}"
        elif falls[record]:
            reason = Reason.OFFSET_ORDER
            detail = f"a record of offset {offset[record]} comes behind one of {offset[record - 1]} in a batch"
        else:
            reason = Reason.HEADER_INCONSISTENT
            detail = (
                f"a record has timestamp {timestamp[record]}, and the batch says that {batches.max_timestamp[batch]}"
                " is the largest: a search for later times passes it over"
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
