"""Damaged logs, and what a salvage keeps of them."""

import builder
import golden_sets
from salvages import batch
from salvages import dense as dense

import kafkalog
from kafkalog import format as kf


def messages(n):
    """Messages of v0 and v1, one record each."""
    data = (golden_sets.partitions("k28")["p-v0v1v2-mixed-0"] / kf.segment_file_name(0)).read_bytes()
    return [data[start:end] for start, end in builder.batch_positions(data)][:n]


def salvaged(folder, *batches, next_base=None):
    """The batches that are kept of a segment of these bytes, and the report."""
    partition = folder / "t-0"
    partition.mkdir()
    (partition / kf.segment_file_name(0)).write_bytes(b"".join(batches))
    if next_base is not None:
        (partition / kf.segment_file_name(next_base)).write_bytes(batch(next_base))
    report = kafkalog.salvage(partition, output=folder / "out")
    data = (folder / "out" / "t-0" / kf.segment_file_name(0)).read_bytes()
    segment = report.partitions[0].segments[0]
    total = segment.n_bytes_kept + segment.n_bytes_lost + segment.n_bytes_padding + segment.n_bytes_suspect
    assert total == segment.size_in_bytes
    return [data[start:end] for start, end in builder.batch_positions(data)], report


def damaged(data):
    return b"\xff" * len(data)
