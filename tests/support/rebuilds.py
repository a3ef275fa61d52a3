"""A partition to damage, and the files in it, for tests of rebuilds."""

import shutil

import golden_sets

import kafkalog

EPOCHS = "leader-epoch-checkpoint"


def files_in(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


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
