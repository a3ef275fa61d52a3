"""Partitions to convert, and what of them a conversion must keep."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import builder
import numpy as np
import reference

import kafkalog
from kafkalog import format as kf
from kafkalog.log.partition import Partition
from kafkalog.system_topics.list_producers import list_producers

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


def write_partition(directory, segments):
    directory.mkdir()
    for base_offset, data in segments:
        (directory / kf.segment_file_name(base_offset)).write_bytes(data)
    return directory


@contextmanager
def partition_of(segments):
    """A partition directory ``t-0`` in a directory of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield write_partition(Path(folder) / "t-0", segments)


def logs(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def batches_of(directory):
    found = []
    for data in logs(directory).values():
        result = reference.read_segment(data)
        assert result.problem is None
        found += result.batches
    return found


def raw_batches(directory):
    return [data[start:stop] for data in logs(directory).values() for start, stop in builder.batch_positions(data)]


def rows(path, **options):
    """Records as the log has them, but that a v0 record reads like one without a timestamp."""
    records = kafkalog.read_numpy(path, columns=COLUMNS, threads=1, **options)
    return list(
        zip(
            records.offset.tolist(),
            np.ma.filled(records.timestamp, -1).tolist(),
            np.maximum(records.timestamp_type, 0).tolist(),
            records.key.to_pylist(),
            records.value.to_pylist(),
            records.headers.to_pylist(),
            strict=True,
        )
    )


def stands(path):
    """Producers and transactions, apart from when a producer's last batch was."""
    partition = Partition(path)
    listed = list_producers(partition, now_ms=0)
    producers = [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_offset,
            one.coordinator_epoch,
            one.transaction_start_offset,
        )
        for one in listed.producers
    ]
    aborted = partition.aborted_transactions().tolist()
    return producers, aborted, partition.last_stable_offset, partition.log_end_offset, partition.log_start_offset


def idempotent(offset, sequence, n=3, producer_id=7, **options):
    records = [builder.record_v2(i, i, b"k%d" % (offset + i), b"v") for i in range(n)]
    return builder.batch_v2(
        records, base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options
    )
