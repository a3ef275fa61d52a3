"""Where the batches of a range of offsets end, in files whose offsets may go back."""

from __future__ import annotations

import numpy as np

from kafkalog.log.searching.odd_offsets import offsets_from
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.header_walk import intact_headers_at, valid_at
from kafkalog.storage.source import ByteSource


def rows_up_to(window: Window, source: ByteSource, end_offset: int, max_batch_bytes: int) -> int | None:
    """Number of batches of a window up to the first one after which no offset below `end_offset` follows; else None.

    Only batches with a correct checksum count: a damaged header may hold any offset. So may one that was written wrong:
    an intact batch after it has to have a higher offset.
    """
    batches = window.batches
    for row in np.flatnonzero(batches.last_offset >= end_offset - 1).tolist():
        if not valid_at(source, window, batches[row : row + 1])[0]:
            continue
        behind = int(batches.next_position[row])
        follows = min(offsets_from(source, behind, 1), default=end_offset) < end_offset
        if not follows or intact_headers_at(source, behind, max_batch_bytes) is None:
            return row + 1
    return None


def overlapping(batches: BatchTable, start_offset: int | None, end_offset: int | None) -> BatchTable:
    """Rows that may hold an offset of a range."""
    if start_offset is None and end_offset is None:
        return batches
    wanted = np.ones(len(batches), np.bool_)
    if start_offset is not None:
        wanted &= batches.last_offset >= start_offset
    if end_offset is not None:
        # a compressed v0 or v1 message hides its base offset: it cannot begin before the end of the previous batch
        behind = np.concatenate([batches.base_offset[:1], batches.last_offset[:-1] + 1])
        wanted &= np.where(batches.base_offset >= 0, batches.base_offset, behind) < end_offset
    return batches[wanted]
