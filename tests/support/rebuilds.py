"""A partition to damage, and the files in it, for tests of rebuilds."""

import shutil

import golden_sets
from files import content

import kafkalog

EPOCHS = "leader-epoch-checkpoint"
files_in = content


def batches_of(partition, number=0):
    segment = kafkalog.Partition(partition).segments[number]
    return segment.path, segment.batches


def flip(path, position, value):
    data = bytearray(path.read_bytes())
    data[position] = value
    path.write_bytes(data)


def clock_of(set_name):
    """When the broker rebuilt, near enough: the time of the newest marker, which is the broker's own."""
    markers = [0]
    for path in golden_sets.partitions(set_name).values():
        for segment in kafkalog.Partition(path).segments:
            batches = segment.batches
            markers.append(int(batches.max_timestamp[batches.is_control].max(initial=0)))
    return max(markers)


def copied_partition(folder):
    """A copy of a partition of three batches a segment or more, to damage."""
    target = folder / "data" / "p-idem-now-0"
    shutil.copytree(golden_sets.unpacked("k44_extra") / "p-idem-now-0", target)
    return target
