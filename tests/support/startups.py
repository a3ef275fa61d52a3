"""What preflight says of a broker's start."""

import kafkalog


def _content(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def logs(partition):
    return sorted(partition.glob("*.log"))


def asked(partition, *, clean=False):
    before = _content(partition.parent)
    (row,) = kafkalog.preflight(partition, clean=clean).partitions
    assert _content(partition.parent) == before
    return row
