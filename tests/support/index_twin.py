"""Indexes as brokers write them and as brokers read them, slow and plain, for tests to hold others against.

Appends are calls of one batch or more: before Kafka 4.1 an entry was made per call, since then per batch. Lookups are
those of `OffsetIndex.lookup` and `TimeIndex.lookup`, by halves, on whatever the file holds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import builder

import kafkalog


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

    def offset_bytes(self, base: int) -> bytes:
        return b"".join(struct.pack(">ii", offset - base, position) for offset, position in self.offset)

    def time_bytes(self, base: int) -> bytes:
        return b"".join(struct.pack(">qi", timestamp, offset - base) for timestamp, offset in self.time)


def make_log(drafts: Sequence[tuple[int, int, int, int]], base: int = 0) -> tuple[bytes, list[Batch]]:
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


def write_indexes(
    batches: Sequence[Batch],
    interval: int,
    *,
    calls: Sequence[int] = (),
    reopened: Sequence[int] = (),
    closed: bool = True,
) -> Indexes:
    """What a broker writes.

    Parameters
    ----------
    calls : sequence of int
        Batches of each append, over and over; default: one each.
    reopened : sequence of int
        Numbers of batches before which the segment was closed and opened again.
    closed : bool
        Whether it was closed at the end.
    """
    offset_entries: list[tuple[int, int]] = []
    time_entries: list[tuple[int, int]] = []
    largest, of_largest = -1, -1
    since = row = turn = 0

    def add_time() -> None:
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


def _floor(keys: Sequence[int], target: int) -> int:
    """The slot that `AbstractIndex` finds by halves."""
    if not keys or keys[0] > target:
        return -1
    low, high = 0, len(keys) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle] > target:
            high = middle - 1
        elif keys[middle] < target:
            low = middle
        else:
            return middle
    return low


def find_offset(indexes: Indexes, batches: Sequence[Batch], target: int) -> Batch | str | None:
    """The batch that a broker finds for an offset; a word where it fails."""
    slot = _floor([offset for offset, _ in indexes.offset], target)
    position = indexes.offset[slot][1] if slot >= 0 else 0
    return _scan(batches, position, lambda batch: batch.last_offset >= target)


def find_timestamp(indexes: Indexes, batches: Sequence[Batch], target: int, base: int) -> Batch | str | None:
    """The batch that a broker finds for a timestamp in this segment, None where it does not look or finds none."""
    largest = indexes.time[-1][0] if indexes.time else -1
    if largest < target:
        return None
    slot = _floor([timestamp for timestamp, _ in indexes.time], target)
    offset = indexes.time[slot][1] if slot >= 0 else base
    slot = _floor([entry for entry, _ in indexes.offset], offset)
    position = indexes.offset[slot][1] if slot >= 0 else 0
    return _scan(batches, position, lambda batch: batch.max_timestamp >= target)


def _scan(batches: Sequence[Batch], position: int, is_it: object) -> Batch | str | None:
    end = batches[-1].position + batches[-1].size if batches else 0
    if position not in [*(batch.position for batch in batches), end]:
        return "no batch begins there"
    return next((batch for batch in batches if batch.position >= position and is_it(batch)), None)  # type: ignore[operator]


def misleads(indexes: Indexes, batches: Sequence[Batch], base: int) -> bool:
    """Whether any lookup of a broker goes wrong."""
    for target in range(base, batches[-1].last_offset + 1):
        right = next(batch for batch in batches if batch.last_offset >= target)
        if find_offset(indexes, batches, target) != right:
            return True
    times = {batch.max_timestamp + more for batch in batches for more in (-1, 0, 1)}
    times |= {timestamp + more for timestamp, _ in indexes.time for more in (-1, 0, 1)}
    largest = max(batch.max_timestamp for batch in batches)
    for target in sorted(time for time in times if time >= 0):
        right_one = next((batch for batch in batches if batch.max_timestamp >= target), None)
        if find_timestamp(indexes, batches, target, base) != right_one:
            return True
        if target > largest and indexes.time and indexes.time[-1][0] >= target:
            return True  # the broker looks here, and not in a later segment
    return False


def golden_batches(segment: kafkalog.Segment) -> list[Batch]:
    table, previous, batches = segment.batches, segment.base_offset - 1, []
    columns = (table.base_offset, table.last_offset, table.position, table.size_in_bytes, table.max_timestamp)
    for base, last, *others in zip(*(column.tolist() for column in columns), strict=True):
        batches.append(Batch(base if base >= 0 else previous + 1, last, *others))
        previous = last
    return batches


def rebuild(directory: Path, interval: int) -> None:
    """Write the indexes anew, by the rule of recovery: batch by batch."""
    for segment in kafkalog.Partition(directory).segments:
        indexes = write_indexes(golden_batches(segment), interval)
        segment.path.with_suffix(".index").write_bytes(indexes.offset_bytes(segment.base_offset))
        segment.path.with_suffix(".timeindex").write_bytes(indexes.time_bytes(segment.base_offset))
