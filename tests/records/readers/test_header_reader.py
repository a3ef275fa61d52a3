"""Headers that are read alone are those that `walk` finds, and what is asked of a log is the same with them."""

import os
from pathlib import Path

import builder
import golden_sets
import numpy as np
import pytest
import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._kernels.header_rows import HeaderRows
from kafkalog._kernels.header_walk import read_headers
from kafkalog.errors import KafkalogError, Limits
from kafkalog.records.batch_table import COLUMNS, BatchTable
from kafkalog.records.header_walk import walk
from kafkalog.records.readers import header_reader
from kafkalog.records.readers.batch_reader import walk_with
from kafkalog.records.readers.header_reader import HeaderReader
from kafkalog.storage.files import open_source


def outcome(windows):
    """Rows, what was raised, and the windows."""
    found = []
    error = None
    try:
        found.extend(windows)
    except KafkalogError as raised:
        error = (type(raised), raised.reason, raised.position, raised.base_offset, raised.detail)
    table = BatchTable.concatenate([BatchTable.empty(), *(window.batches for window in found)])
    return list(zip(*(getattr(table, name).tolist() for name in COLUMNS), strict=True)), error, found


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(header_reader, "_LEAST_ROWS", 2)
    monkeypatch.setattr(header_reader, "_MOST_ROWS", 8)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_the_same_as_walk_on_damaged_files(few_rows, tmp_path, data):
    segment = data.draw(strategies.segments())
    is_damaged = data.draw(st.booleans())
    content = data.draw(strategies.damaged(segment)).data if is_damaged else segment.data
    limits = Limits(max_batch_bytes=2**20 if is_damaged else data.draw(st.sampled_from([500, 2**20])))
    path = tmp_path / "0.log"
    path.write_bytes(content)
    rest = data.draw(st.integers(0, 3))
    needed = [
        None,
        lambda batches: batches.base_offset % 4 == rest,
        lambda batches: None,
    ]
    with open_source(path, memory_map=False) as source:
        expected = outcome(walk(source, limits=limits))[:2]
        for wanted in needed:
            for stop_at in (0, 0x20):
                reader = HeaderReader(wanted, limits=limits, stop_at=stop_at)
                rows, error, found = outcome(walk_with(reader, source, limits=limits))
                assert (rows, error) == expected
                for window in found:
                    end = window.batches.end_position
                    following = int.from_bytes(content[end : end + 8], "big", signed=True)
                    assert window.next_offset is None or window.next_offset == following
                    if not window.data.size:
                        assert window.valid is None
                        assert wanted is None or not np.any(wanted(window.batches))
                        assert not stop_at or not window.batches.is_control.any()


@pytest.mark.parametrize("set_name", ["k44", "k28"])
def test_all_headers_of_the_golden_sets_are_read_alone(set_name):
    n_alone = n = 0
    for partition in golden_sets.partitions(set_name).values():
        for path in golden_sets.log_files(partition):
            path.read_bytes()  # headers that are not in the page cache are not read alone
            with open_source(path, memory_map=False) as source:
                rows, error, found = outcome(walk_with(HeaderReader(limits=Limits()), source))
                assert (rows, error) == outcome(walk(source))[:2], path
            n_alone += sum(len(window.batches) for window in found if not window.data.size)
            n += len(rows)
    assert n_alone == n > 100


def log_of(path, sizes):
    """A batch of each size, with one record; timestamps are a second apart."""
    path.write_bytes(
        b"".join(
            builder.batch_v2(
                [builder.record_v2(0, 0, b"k", b"v" * size)],
                base_offset=n,
                base_timestamp=1000 * n,
                max_timestamp=1000 * n,
            )
            for n, size in enumerate(sizes)
        )
    )
    return path


def test_of_large_batches_little_is_read(disk_path):
    path = log_of(disk_path / f"{0:020d}.log", [50_000] * 40 + [100] * 200 + [50_000] * 40)
    n_bytes = 0
    for _ in range(2):  # the first time, modules may be read, too
        before = _n_bytes_read()
        with open_source(path, memory_map=False) as source:
            (window,) = list(walk_with(HeaderReader(limits=Limits()), source))[-1:]
        n_bytes = _n_bytes_read() - before
    assert int(window.batches.last_offset[-1]) == 279
    assert n_bytes < 200 * 300 + 100 * 128 + 2 * 8192 < path.stat().st_size // 20


def _n_bytes_read():
    if not Path("/proc/self/io").exists():
        pytest.skip("the system does not count the bytes that a process reads")
    (line,) = [line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar")]
    return int(line.split()[1])


def test_where_nothing_is_in_memory_the_answers_are_the_same(tmp_path, monkeypatch):
    path = log_of(tmp_path / f"{0:020d}.log", [20_000] * 60)
    asked = {
        "scan": lambda: kafkalog.scan(path, start_timestamp=30_000, end_timestamp=45_000).to_table().to_pydict(),
        "filters": lambda: kafkalog.scan(path, filters=[("timestamp", ">", 50_500)]).count_rows(),
        "batches": lambda: kafkalog.open(path).batches.position.tolist(),
        "find": lambda: kafkalog.open(path).find_timestamps([0, 15_000, 59_001, 31_001]).tolist(),
        "offsets": lambda: kafkalog.open(path).find_offsets([0, 31, 59]).tolist(),
    }
    with_headers = {name: ask() for name, ask in asked.items()}
    calls = []
    monkeypatch.setattr(header_reader, "read_headers", lambda *arguments: calls.append(arguments) or 0)
    assert {name: ask() for name, ask in asked.items()} == with_headers
    assert len(calls) >= len(asked)
    assert len(with_headers["scan"]["offset"]) == 15
    assert with_headers["filters"] == 9


@pytest.mark.parametrize("n", [0, 1, 5, 63])
def test_no_more_rows_than_there_is_room_for(disk_path, n):
    path = log_of(disk_path / "0.log", [10] * 80)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        rows = HeaderRows(n)
        size = path.stat().st_size
        found = read_headers(descriptor, 0, size, -1, 2**20, 0, rows)
        assert found == rows.n == min(rows.capacity, 80)
        assert rows.capacity < n + 8
        # up to the end of a batch, and no further
        assert read_headers(descriptor, 0, size // 80 * 3 + 5, -1, 2**20, 0, HeaderRows(64)) == 3
        assert read_headers(descriptor, 0, size, -1, size // 80 - 1, 0, HeaderRows(64)) == 0
        assert read_headers(descriptor, 0, size, 0, 2**20, 0, HeaderRows(64)) == 0
        with pytest.raises(ValueError):
            read_headers(descriptor, 5, 4, -1, 2**20, 0, HeaderRows(64))
    finally:
        os.close(descriptor)
    assert read_headers(descriptor, 0, 100, -1, 2**20, 0, HeaderRows(64)) == -1
