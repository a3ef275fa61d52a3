"""The one pass of a scan: threads, windows and an early end change nothing of what is read."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from effort import thinned

import kafkalog


@pytest.mark.parametrize(
    ("threads", "memory_map", "batch_size"),
    thinned(itertools.product((1, 2, 4), ("auto", True, False), (None, 1, 7, 10**6)), 5),
)
def test_threads_mapping_and_batch_size_change_nothing(
    log_dir: Path, threads: int, memory_map: bool | str, batch_size: int | None
) -> None:
    expected = kafkalog.read_table(log_dir, threads=1)
    scan = kafkalog.scan(log_dir, threads=threads, memory_map=memory_map, batch_size=batch_size)
    batches = list(scan.to_batches())
    assert pa.Table.from_batches(batches).equals(expected)
    if batch_size:
        assert max(map(len, batches)) <= batch_size


def test_head_reads_no_more_than_it_needs(log_dir: Path) -> None:
    assert kafkalog.scan(log_dir).head(3).num_rows == 3
    assert kafkalog.scan(log_dir).head(0).num_rows == 0
    assert kafkalog.scan(log_dir).head(10**6).num_rows == kafkalog.scan(log_dir).count_rows()


def test_streaming_a_large_file_takes_bounded_memory(tmp_path: Path, log_dir: Path) -> None:
    """ru_maxrss of a process that streams 200 MB, less that of one that streams 1 MB: within the documented 32 MiB."""
    program = f"""
import resource, sys
from pathlib import Path
import kafkalog
batch = Path({str(log_dir)!r}, "p-headers-0", "00000000000000000000.log").read_bytes()
size = 12 + int.from_bytes(batch[8:12], "big")
count = int.from_bytes(batch[23:27], "big") + 1
directory = Path(sys.argv[1])
directory.mkdir()
n = 0
with open(directory / "00000000000000000000.log", "wb") as f:
    while f.tell() < int(sys.argv[2]):
        f.write(n.to_bytes(8, "big") + batch[8:size])
        n += count
rows = sum(len(b) for b in kafkalog.scan(directory, memory_map=eval(sys.argv[3]), threads=2).to_reader())
assert rows == n
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""

    def peak(name: str, size: int, memory_map: bool) -> int:
        arguments = [sys.executable, "-c", program, str(tmp_path / name), str(size), str(memory_map)]
        return int(subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120).stdout)

    for memory_map in (False, True):
        small, large = (
            peak(f"small{memory_map}-0", 10**6, memory_map),
            peak(f"large{memory_map}-0", 2 * 10**8, memory_map),
        )
        assert large - small <= 32, f"{small} MiB for 1 MB, {large} MiB for 200 MB"


def test_limits_hold_for_batches_inside_a_window_too(log_dir: Path) -> None:
    path = log_dir / "p-multi-0" / "00000000000000000000.log"
    sizes = kafkalog.Segment(path).batches.size_in_bytes
    limits = kafkalog.Limits(max_batch_bytes=int(sizes.max()) - 1)
    with pytest.raises(kafkalog.LimitExceededError, match="max_batch_bytes") as caught:
        kafkalog.scan(path, limits=limits).count_rows()
    assert caught.value.length == sizes.max()
    assert kafkalog.scan(path, limits=kafkalog.Limits(max_batch_bytes=int(sizes.max()))).count_rows() > 0


def test_a_scan_given_up_early_leaves_no_file_open(log_dir: Path) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for threads in (1, 3):
        for _ in range(20):
            kafkalog.scan(log_dir, threads=threads).head(1)
            next(kafkalog.scan(log_dir, threads=threads, batch_size=1).to_batches())
    assert len(list(descriptors.iterdir())) <= before + 1
