"""What a salvage writes: all of it or nothing, and every byte accounted for."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from faults import Faulty
from salvages import batch, dense, log_of, named, output_of, written

import kafkalog
from kafkalog.errors import WriteError
from kafkalog.records import header_walk
from kafkalog.repair.salvaging import partition as salvaging_partition
from kafkalog.repair.salvaging import plan
from kafkalog.storage.source import FileSource


def test_kept_lost_padding_and_suspect_bytes_add_up(tmp_path):
    batches = dense(20)
    data = log_of(*batches[:10], batches[3], b"\xff" * 100, *batches[10:], bytes(5000))
    report = kafkalog.salvage(written(tmp_path, data), output=tmp_path / "out")
    [segment] = report.partitions[0].segments
    assert output_of(tmp_path / "out" / "t-0") == batches
    assert segment.n_bytes_kept == sum(map(len, batches))
    assert (segment.n_bytes_lost, segment.n_bytes_padding, segment.n_bytes_suspect) == (100, 5000, len(batches[3]))
    assert segment.size_in_bytes == len(data)


def test_a_failed_write_leaves_no_output(tmp_path):
    batches = dense(30)
    data = bytearray(log_of(*batches))
    data[500] ^= 1
    partition = named(tmp_path, data)
    for n in range(1, 400, 4):
        code = errno.ENOSPC if n % 8 == 1 else errno.EIO

        def fail(name, code=code):
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


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="this system does not tell of holes")
def test_holes_of_a_sparse_file_count_as_the_zeros_that_they_are_and_are_not_read(tmp_path, monkeypatch):
    for module, name in ((plan, "COPY_BYTES"), (salvaging_partition, "COPY_BYTES"), (header_walk, "_SEARCH_BYTES")):
        monkeypatch.setattr(module, name, 2**20)
    read = 0

    def counted(self, start, stop):
        nonlocal read
        read += stop - start
        return window(self, start, stop)

    window = FileSource.window
    monkeypatch.setattr(FileSource, "window", counted)
    pieces = [(0, batch(0) + batch(3)), (15 * 2**20 + 5, batch(30)), (30 * 2**20 - 3, batch(60) + b"x"), (2**26, b"")]
    reports = []
    for name in ("sparse", "dense"):
        log = tmp_path / name / "t-0" / f"{0:020d}.log"
        log.parent.mkdir(parents=True)
        with log.open("wb") as file:
            for position, data in pieces:
                if name == "dense":
                    file.write(bytes(position - file.tell()))
                file.seek(position)
                file.write(data)
            file.truncate()
        read = 0
        report = kafkalog.salvage(log.parent, output=tmp_path / name / "out")
        reports.append(report)
        assert (read < 2**24) == (name == "sparse")
    sparse, dense = (report.partitions[0] for report in reports)
    (segment,) = sparse.segments
    assert segment.n_bytes_kept + segment.n_bytes_lost + segment.n_bytes_padding == segment.size_in_bytes == 2**26
    for name in ("kept", "lost", "padding", "suspect"):
        assert sparse.total(f"n_bytes_{name}") == dense.total(f"n_bytes_{name}")
    for one, other in zip(sparse.lost, dense.lost, strict=True):
        assert replace(one, segment="") == replace(other, segment="")
    assert sparse.quarantine is not None
    assert dense.quarantine is not None
    assert Path(sparse.quarantine).read_bytes() == Path(dense.quarantine).read_bytes()
    assert Path(sparse.quarantine).stat().st_blocks * 512 < 2**24
