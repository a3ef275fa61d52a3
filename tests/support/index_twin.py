"""Indexes as brokers write them and as brokers read them, slow and plain, for tests to hold others against.

Appends are calls of one batch or more: before Kafka 4.1 an entry was made per call, since then per batch. Lookups are
those of `OffsetIndex.lookup` and `TimeIndex.lookup`, by halves, on whatever the file holds.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import builder


class Batch(NamedTuple):
    """What an index needs to know of a batch."""

    base_offset: int
    last_offset: int
    position: int
    size: int
    max_timestamp: int


class Indexes(NamedTuple):
    offset: list[tuple[int, int]]
    """(last offset, position), absolute."""
    time: list[tuple[int, int]]
    """(timestamp, offset), absolute."""

    def offset_bytes(self, base):
        return b"".join(struct.pack(">ii", offset - base, position) for offset, position in self.offset)

    def time_bytes(self, base):
        return b"".join(struct.pack(">qi", timestamp, offset - base) for timestamp, offset in self.time)


def make_log(drafts, base=0):
    """A log of v2 batches out of (gap before, records, bytes of a value, largest timestamp)."""
    parts, batches = [], []
    position, offset = 0, base
    for gap, n, size, timestamp in drafts:
        offset += gap
        records = [builder.record_v2(i, 0, None, bytes(size)) for i in range(n)]
        data = builder.batch_v2(records, base_offset=offset, base_timestamp=timestamp, max_timestamp=timestamp)
        batches.append(Batch(offset, offset + n - 1, position, len(data), timestamp))
        parts.append(data)
        position += len(data)
        offset += n
    return b"".join(parts), batches


def write_indexes(batches, interval, *, calls=(), reopened=(), closed=True):
    """What a broker writes of appends of `calls` batches (over and over; one each by default).

    Before the batches `reopened` the segment was closed and opened again; at the end it is `closed`.
    """
    offset_entries = []
    time_entries = []
    largest, of_largest = -1, -1
    since = row = turn = 0

    def add_time():
        if largest > (time_entries[-1][0] if time_entries else -1):
            time_entries.append((largest, of_largest))

    while row < len(batches):
        call = batches[row : row + (calls[turn % len(calls)] if calls else 1)]
        if any(row < number < row + len(call) for number in reopened):
            call = batches[row : min(number for number in reopened if number > row)]
        if row in reopened:
            add_time()
            since = 0
        for batch in call:
            if batch.max_timestamp > largest:
                largest, of_largest = batch.max_timestamp, batch.last_offset
        if since > interval:
            offset_entries.append((call[-1].last_offset, call[0].position))
            add_time()
            since = 0
        since += sum(batch.size for batch in call)
        row += len(call)
        turn += 1
    if closed:
        add_time()
    return Indexes(offset_entries, time_entries)
