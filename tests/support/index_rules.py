"""Segments without indexes, and the indexes that the rule of `LogSegment.recover` gives them, batch by batch."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import builder

import kafkalog


class Batch(NamedTuple):
    """What a figure needs to know of a batch."""

    position: int
    size: int
    first: int
    last: int
    timestamp: int


def entries_of(batches: list[Batch], interval: int) -> list[tuple[int, int]]:
    """The rule of `LogSegment.recover`, batch by batch."""
    entries, last = [], 0
    for batch in batches:
        if batch.position - last > interval:
            entries.append((batch.last, batch.position))
            last = batch.position
    return entries


def time_entries_of(batches: list[Batch], interval: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    positions = {position for _, position in entries_of(batches, interval)}
    largest = (-1, -1)
    for batch in batches:
        largest = (batch.timestamp, batch.last) if batch.timestamp > largest[0] else largest
        if batch.position in positions and largest[0] > (entries[-1][0] if entries else -1):
            entries.append(largest)
    if largest[0] > (entries[-1][0] if entries else -1):
        entries.append(largest)
    return entries


def golden_batches(segment: kafkalog.Segment) -> list[Batch]:
    table, previous, batches = segment.batches, segment.base_offset - 1, []
    columns = (table.position, table.size_in_bytes, table.base_offset, table.last_offset, table.max_timestamp)
    for position, size, base, last, timestamp in zip(*(column.tolist() for column in columns), strict=True):
        batches.append(Batch(position, size, base if base >= 0 else previous + 1, last, timestamp))
        previous = last
    return batches


def rebuild(directory: Path, interval: int) -> None:
    """Write the indexes anew, by the rule."""
    for segment in kafkalog.Partition(directory).segments:
        batches, base = golden_batches(segment), segment.base_offset
        offset_entries = [struct.pack(">ii", last - base, place) for last, place in entries_of(batches, interval)]
        segment.path.with_suffix(".index").write_bytes(b"".join(offset_entries))
        time_entries = [struct.pack(">qi", time, last - base) for time, last in time_entries_of(batches, interval)]
        segment.path.with_suffix(".timeindex").write_bytes(b"".join(time_entries))


def a_log(path: Path, timestamps: list[int], *, payload: int = 200, base_offset: int = 0) -> Path:
    """A partition of one segment, a record a batch, without indexes."""
    directory = path / "orders-0"
    directory.mkdir(exist_ok=True)
    data = b"".join(
        builder.batch_v2(
            base_offset=base_offset + i,
            base_timestamp=time,
            records_count=1,
            last_offset_delta=0,
            payload=bytes(payload),
        )
        for i, time in enumerate(timestamps)
    )
    (directory / f"{base_offset:020}.log").write_bytes(data)
    return directory
