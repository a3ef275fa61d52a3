"""Logs that are planned, and tasks that are read."""

import pickle

import builder
import golden_sets
import pyarrow as pa

import kafkalog
from kafkalog import format as kf
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.scanning.tasks import read_task

_SCHEMA = kafkalog.scan(golden_sets.LOG_DIR).schema


def batch(offset, n=4, size=100, **options):
    records = [builder.record_v2(i, 0, None, b"%d " % (offset + i) * size) for i in range(n)]
    return builder.batch_v2(records, base_offset=offset, **options)


def make(folder, segments, *, name="t-0", interval=1024):
    """A partition, with offset indexes."""
    path = folder / name
    path.mkdir(parents=True)
    for base_offset, batches in segments.items():
        (path / kf.segment_file_name(base_offset)).write_bytes(b"".join(batches))
    index(path, interval)
    return path


def index(path, interval=1024):
    for segment in kafkalog.Partition(path).segments:
        built = OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=interval)
        segment.path.with_suffix(".index").write_bytes(built.entries.tobytes())


def read(tasks, **options):
    """Through pickles, as by other processes."""
    travelled = pickle.loads(pickle.dumps(tasks.tasks))
    batches = [batch for task in travelled for batch in read_task(task, **options)]
    return pa.Table.from_batches(batches, _SCHEMA)


def offsets(tasks, **options):
    return read(tasks, **options)["offset"].to_pylist()
