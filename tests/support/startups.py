"""What preflight says of a broker's start."""

from files import content

import kafkalog


def logs(partition):
    return sorted(partition.glob("*.log"))


def asked(partition, *, clean=False):
    before = content(partition.parent)
    (row,) = kafkalog.preflight(partition, clean=clean).partitions
    assert content(partition.parent) == before
    return row
