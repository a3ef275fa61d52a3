"""Records to write, as lists of Python objects and as columns, for tests of what writes."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from encoding import columns_of as columns_of_rows

import kafkalog
from kafkalog import LogConfig, PartitionWriter
from kafkalog.errors import Reason
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.columns import RecordColumns

# a few batches a segment
SMALL = LogConfig(segment_bytes=3000, index_interval_bytes=256)
TOPIC_ID = "Bi_SuNQpR1iN9_1u84nflQ"
TEXT = b"the quick brown fox jumps over the lazy dog, "


class Record(NamedTuple):
    """What is to come out again; no offset is the next one."""

    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int | None = None


def columns_of(records):
    """As columns; with offsets if the first record has one."""
    columns = columns_of_rows(
        [(one.offset or 0, *one[:3], [(name.encode(), value) for name, value in one.headers]) for one in records]
    )
    has_offsets = bool(records) and records[0].offset is not None
    return RecordColumns(len(records), {name: columns[name] for name in columns if name != "offset" or has_offsets})


def draw(n, seed=0, *, start=1_700_000_000_000, step=10, size=80):
    """Records of text, with nulls, empty strings and headers among them; timestamps rise."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 12, (n, 2)).tolist()
    sizes = rng.integers(1, size, n).tolist()
    numbers = rng.integers(0, 40, n).tolist()
    records = []
    for row in range(n):
        text = (TEXT * (sizes[row] // len(TEXT) + 1))[: sizes[row]]
        key, value = kinds[row]
        headers = ()
        if numbers[row] < 6:
            headers = (("trace", b"%d" % row), ("état", None), ("trace", b""))[: numbers[row] % 4]
        records.append(
            Record(
                start + step * row,
                None if key == 0 else b"" if key == 1 else b"key-%d" % numbers[row],
                None if value == 0 else b"" if value == 1 else b"%d " % row + text,
                headers,
            )
        )
    return records


def batch_table(size, last_offset, max_timestamp=-1):
    """Batches of one record each."""
    n = np.broadcast(size, last_offset, max_timestamp).size
    batches = BatchTable.empty(n)
    batches.magic[:] = 2
    batches.size_in_bytes[:] = size
    batches.last_offset[:] = batches.base_offset[:] = last_offset
    batches.max_timestamp[:] = max_timestamp
    return batches


def write(path, n=150, seed=0, **options):
    """A partition of `n` drawn records; options of `PartitionWriter`."""
    with PartitionWriter(path, **{"config": SMALL, "batch_size": 400, **options}) as writer:
        writer.append(columns_of(draw(n, seed)))


def write_two_and_roll(path):
    """A partition whose last segment is empty, in a directory without a lock file."""
    path.parent.mkdir()
    with PartitionWriter(path) as writer:
        writer.append({"value": [b"old 0", b"old 1"], "timestamp": [0, 1]})
        writer.roll()
    assert not (path.parent / ".lock").exists()
    return path


def files_in(path):
    """The contents of a partition's files by name."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())} if path.exists() else {}


def sound(path):
    """What is wrong with a partition; offsets that no segment holds were left out on purpose here."""
    found = kafkalog.verify(path, deep=True).findings
    return [str(finding) for finding in found if finding.damage or finding.reason is not Reason.OFFSET_GAP]


def read(path):
    """Everything, as it was given."""
    table = kafkalog.read_table(path)
    return [
        Record(
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((one["key"], one["value"]) for one in row["headers"]),
        )
        for row in table.set_column(
            table.schema.get_field_index("timestamp"), "timestamp", table.column("timestamp").cast(pa.int64())
        ).to_pylist()
    ]


def nothing_left(path):
    """Whether there is nothing but the partition in the log dir, and nothing hidden beside it."""
    return os.listdir(path.parent) in ([], [path.name]) and os.listdir(path.parent.parent) == [path.parent.name]


def unclean(path, tail):
    """As a crash leaves it: indexes allocated ahead, no last snapshot, a torn batch."""
    partition = kafkalog.Partition(path)
    last = partition.segments[-1]
    for suffix, size in ((".index", 4096), (".timeindex", 4092)):
        os.truncate(last.path.with_suffix(suffix), size)
    (path / f"{partition.log_end_offset:020d}.snapshot").unlink()
    with last.path.open("ab") as file:
        file.write(tail)
