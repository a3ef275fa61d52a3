"""Logs that are planned, and tasks that are read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import builder
import golden_sets
import pyarrow as pa

import kafkalog
from kafkalog import format as kf
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.scanning.planning import Plan
from kafkalog.scanning.tasks import read_task

_SCHEMA = kafkalog.scan(golden_sets.LOG_DIR).schema


def batch(offset: int, n: int = 4, size: int = 100, **options: Any) -> bytes:
    records = [builder.record_v2(i, 0, None, b"%d " % (offset + i) * size) for i in range(n)]
    return builder.batch_v2(records, base_offset=offset, **options)


def make(folder: Path, segments: dict[int, list[bytes]], *, name: str = "t-0", interval: int = 1024) -> Path:
    """A partition, with offset indexes."""
    path = folder / name
    path.mkdir(parents=True)
    for base_offset, batches in segments.items():
        (path / kf.segment_file_name(base_offset)).write_bytes(b"".join(batches))
    index(path, interval)
    return path


def index(path: Path, interval: int = 1024) -> None:
    for segment in kafkalog.Partition(path).segments:
        built = OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=interval)
        segment.path.with_suffix(".index").write_bytes(built.entries.tobytes())


def read(tasks: Plan, **options: Any) -> pa.Table:
    """Through pickles, as by other processes."""
    travelled = pickle.loads(pickle.dumps(tasks.tasks))
    batches = [batch for task in travelled for batch in read_task(task, **options)]
    return pa.Table.from_batches(batches, _SCHEMA)


def offsets(tasks: Plan, **options: Any) -> list[int]:
    return read(tasks, **options)["offset"].to_pylist()
