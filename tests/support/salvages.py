"""Logs to salvage."""

import builder
from files import hashes as hashes

from kafkalog import format as kf


def written(folder, *segments, name="t-0"):
    """A partition of these segments, each named after its first offset."""
    partition = folder / name
    partition.mkdir()
    for data in segments:
        base = int.from_bytes(data[:8], "big")
        (partition / kf.segment_file_name(base)).write_bytes(data)
    return partition


def batch(base, n=3, size=30, **options):
    records = [builder.record_v2(i, i, b"k%d" % (base + i), b"v" * size) for i in range(n)]
    return builder.batch_v2(records, base_offset=base, base_timestamp=10**12 + base, **options)


def log_of(*batches):
    return b"".join(batches)


def dense(n, n_records=3, size=30):
    return [batch(n_records * number, n_records, size) for number in range(n)]


def output_of(path):
    found = []
    for log in sorted(path.glob("*.log")):
        data = log.read_bytes()
        found += [data[start:end] for start, end in builder.batch_positions(data)]
    return found


def named(folder, data):
    partition = folder / "t-0"
    partition.mkdir()
    (partition / kf.segment_file_name(0)).write_bytes(bytes(data))
    return partition
