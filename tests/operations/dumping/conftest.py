"""Logs to dump."""

import struct
from pathlib import Path

import builder
import pytest
from dumping_support import ONE, dumped, write_log


@pytest.fixture
def log(tmp_path):
    """Write a log, dump it: the lines behind the two that name it."""

    def call(data, **options):
        return dumped(write_log(tmp_path, data), **options)[2:]

    return call


@pytest.fixture
def indexed(tmp_path):
    """A log of four batches, and its right indexes."""
    batches = [builder.batch_v2([ONE], base_offset=n, base_timestamp=100 + n) for n in range(4)]
    path = Path(write_log(tmp_path, b"".join(batches)))
    size = len(batches[0])
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", n, n * size) for n in (1, 2, 3)))
    path.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", 100 + n, n) for n in (1, 2, 3)))
    return path
