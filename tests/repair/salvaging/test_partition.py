"""What a salvage writes: all of it or nothing, and every byte accounted for."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from faults import Faulty
from salvages import dense, log_of, named, output_of, written

import kafkalog
from kafkalog.errors import WriteError


def test_kept_lost_padding_and_suspect_bytes_add_up(tmp_path: Path) -> None:
    batches = dense(20)
    data = log_of(*batches[:10], batches[3], b"\xff" * 100, *batches[10:], bytes(5000))
    report = kafkalog.salvage(written(tmp_path, data), output=tmp_path / "out")
    [segment] = report.partitions[0].segments
    assert output_of(tmp_path / "out" / "t-0") == batches
    assert segment.n_bytes_kept == sum(map(len, batches))
    assert (segment.n_bytes_lost, segment.n_bytes_padding, segment.n_bytes_suspect) == (100, 5000, len(batches[3]))
    assert segment.size_in_bytes == len(data)


def test_a_failed_write_leaves_no_output(tmp_path: Path) -> None:
    batches = dense(30)
    data = bytearray(log_of(*batches))
    data[500] ^= 1
    partition = named(tmp_path, data)
    for n in range(1, 400, 4):
        code = errno.ENOSPC if n % 8 == 1 else errno.EIO

        def fail(name: str, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        faulty = Faulty(n, fail)
        try:
            with faulty.installed():
                kafkalog.salvage(partition, output=tmp_path / "out")
        except WriteError:
            assert {path.name for path in tmp_path.iterdir()} == {"t-0"}
        else:
            assert (tmp_path / "out" / "salvage.json").exists()
            shutil.rmtree(tmp_path / "out")
        if faulty.n_calls < n:
            break
    else:
        raise AssertionError("it never came to an end")
    assert next(partition.glob("*.log")).read_bytes() == bytes(data)
