"""Records that are read in runs of windows: the same as any other way gives, and an error where a file changes."""

import ctypes
import mmap
import os
import sys
from pathlib import Path

import builder
import numpy as np
import pyarrow as pa
import pytest
import salvage_trials
from effort import THOROUGH, thinned
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import FileChangedError, KafkalogError, ReadError
from kafkalog.interchange.arrow_output import record_schema
from kafkalog.records.readers import record_windows
from kafkalog.scanning import execution
from kafkalog.storage import source as source_module

COLUMNS = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "segment"]


def batches(n_bytes=5 * 2**20):
    """Batches of all formats and some codecs, with and without nulls and headers; two are large."""
    rng = np.random.default_rng(7)
    offset = size = 0
    while size < n_bytes:
        kind = int(rng.integers(0, 40))
        value = rng.bytes(int(rng.integers(0, 3000)))
        n = 1
        if kind < 2 and rng.random() < 0.1:
            batch = builder.message(offset, b"k", value, magic=kind, timestamp=offset)
        else:
            n = int(rng.integers(1, 12))
            if kind == 2 and size > 2**21:
                value = rng.bytes(2**21 + 5)
            headers = [(b"h", b"x"), (b"i", None)] if kind == 4 else []
            records = [
                builder.record_v2(i, i, None if i % 5 == 4 else b"key", value if i == 0 else b"v" * i, headers)
                for i in range(n)
            ]
            codec = kf.Codec.GZIP if kind == 3 else 0
            batch = builder.batch_v2(records, base_offset=offset, codec=codec)
        yield batch
        offset, size = offset + n, size + len(batch)


@pytest.fixture(scope="module")
def content():
    return b"".join(batches())


@pytest.fixture
def partition(tmp_path, content):
    """A closed segment, and the one after it."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(content)
    end = kafkalog.open(directory / f"{0:020d}.log").next_offset
    (directory / f"{end:020d}.log").touch()
    return directory


def closed(partition):
    return partition / f"{0:020d}.log"


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(execution, "_RUN_BYTES", 2**14)
    monkeypatch.setattr(execution, "_ALONE_BYTES", 2**14)
    monkeypatch.setattr(record_windows, "_READ_BYTES", 2**12)
    monkeypatch.setattr(source_module, "_LEAST_MAPPED", 1)


@pytest.mark.parametrize("kind", thinned([pa.binary(), pa.large_binary(), pa.binary_view()], 3))
@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("windows", ["small", "usual"])
def test_runs_give_what_columns_give(partition, request, kind, memory_map, threads, windows):
    options = {"columns": COLUMNS, "binary_type": kind, "memory_map": memory_map}
    expected = kafkalog.read_table(partition, threads=1, limit=10**9, **options)  # a limit counts columns
    if windows == "small":
        request.getfixturevalue("small_windows")
    scan = kafkalog.scan(partition, threads=threads, **options)
    table = scan.to_table()
    table.validate(full=True)
    assert table.equals(expected)
    assert table.schema == record_schema(COLUMNS, kind)
    stream = pa.Table.from_batches(scan.to_batches())
    stream.validate(full=True)
    assert stream.equals(expected)


@pytest.mark.parametrize("kind", thinned([pa.binary(), pa.large_binary(), pa.binary_view()], 2))
@pytest.mark.parametrize("columns", [[name] for name in COLUMNS] + [["key", "offset"], ["headers", "segment"]])
def test_any_columns(partition, columns, kind):
    whole = kafkalog.read_table(partition, threads=1, limit=10**9, columns=COLUMNS, binary_type=kind)
    found = kafkalog.read_table(partition, threads=1, columns=columns, binary_type=kind)
    found.validate(full=True)
    assert found.equals(whole.select(columns))


def test_statistics_and_progress_of_runs_are_those_of_windows(partition, small_windows):
    expected = kafkalog.scan(partition, threads=1).explain(analyze=True).statistics
    seen = []
    scan = kafkalog.scan(partition, threads=1)
    scan.progress = seen.append
    n_records = sum(map(len, scan.to_batches()))
    assert scan._last.statistics == expected
    assert expected.n_records == n_records
    assert sum(seen) == closed(partition).stat().st_size
    assert len(seen) > 10


def test_batches_outlive_the_scan_and_its_memory(partition, small_windows):
    expected = kafkalog.read_table(partition, threads=1, limit=10**9)
    kept = list(kafkalog.scan(partition, threads=1).to_batches())[::3]
    for _ in range(3):
        assert sum(map(len, kafkalog.scan(partition, threads=1).to_batches())) == len(expected)
    rows = {row: number for number, row in enumerate(expected["offset"].to_pylist())}
    for batch in kept:
        first = rows[batch["offset"][0].as_py()]
        assert pa.Table.from_batches([batch]).equals(expected.slice(first, len(batch)))


def test_a_child_may_outlive_its_batch(partition):
    batch = next(iter(kafkalog.scan(partition, threads=1).to_batches()))
    values, expected = batch.column("value"), batch.column("value").to_pylist()
    headers, pairs = batch.column("headers").flatten(), batch.column("headers").to_pylist()
    del batch
    list(kafkalog.scan(partition, threads=1).to_batches())
    assert values.to_pylist() == expected
    assert headers.to_pylist() == [pair for row in pairs for pair in row]


@pytest.mark.parametrize("memory_map", thinned([False, True, "auto"], 2))
@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_is_cut_between_windows_is_an_error_with_a_place(
    partition, small_windows, content, memory_map, threads
):
    """In a thorough run two hundred cuts, after any number of windows, to any size."""
    path = closed(partition)
    rng = np.random.default_rng(3 * threads + ["auto", False, True].index(memory_map))
    expected = kafkalog.read_table(path, threads=1, columns=["offset"])["offset"].to_pylist()
    n_windows = len(list(kafkalog.scan(path, threads=1, columns=["offset"]).to_batches()))
    for _ in range(34 if THOROUGH else 10):
        path.write_bytes(content)
        cut, after = int(rng.integers(0, len(content))), int(rng.integers(1, n_windows - 20))
        read = []
        stream = kafkalog.scan(partition, threads=threads, columns=["offset"], memory_map=memory_map).to_batches()
        for _ in range(after):
            read += next(stream)["offset"].to_pylist()
        os.truncate(path, cut)
        with pytest.raises(KafkalogError) as raised:  # noqa: PT012 - the batches before the error count
            for batch in stream:
                read += batch["offset"].to_pylist()
        assert isinstance(raised.value, FileChangedError)
        assert raised.value.path == str(path)
        assert read == expected[: len(read)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux populates mappings")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_closed_segment_is_mapped_and_the_last_one_is_read(partition, small_windows, threads):
    path = closed(partition)
    for memory_map, is_mapped in (("auto", True), (True, True), (False, False)):
        stream = kafkalog.scan(partition, threads=threads, columns=["key"], memory_map=memory_map).to_batches()
        next(stream)
        assert (str(path) in Path("/proc/self/maps").read_text()) is is_mapped
        list(stream)
        assert str(path) not in Path("/proc/self/maps").read_text()
    views = kafkalog.scan(partition, threads=threads, columns=["key"], binary_type=pa.binary_view()).to_batches()
    next(views)
    assert str(path) not in Path("/proc/self/maps").read_text(), "a consumer may keep views for a long time"
    for following in set(partition.iterdir()) - {path}:
        following.unlink()
    stream = kafkalog.scan(partition, threads=threads, columns=["key"]).to_batches()
    next(stream)
    assert str(path) not in Path("/proc/self/maps").read_text(), "a broker may write to it"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux populates mappings")
@pytest.mark.parametrize("memory_map", ["auto", True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_bad_sector_of_a_mapped_file_is_an_error_with_a_position(
    partition, small_windows, monkeypatch, memory_map, threads
):
    path, page = closed(partition), mmap.PAGESIZE
    bad = path.stat().st_size // 2 // page * page
    memory = mmap.mmap(-1, path.stat().st_size)
    memory.write(path.read_bytes())
    mapping = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert not protect(ctypes.c_void_p(mapping.ctypes.data + bad), ctypes.c_size_t(page), 0)  # touching it is a signal
    monkeypatch.setattr(source_module.FileSource, "mapping", lambda source, for_views=False: mapping)
    expected = kafkalog.read_table(path, threads=1, columns=["offset"], memory_map=False)["offset"].to_pylist()
    read = []
    with salvage_trials.bad_sectors(path, [(bad, bad + page)]):
        stream = kafkalog.scan(partition, threads=threads, columns=["offset"], memory_map=memory_map).to_batches()
        with pytest.raises(ReadError) as raised:  # noqa: PT012 - the batches before the error count
            for batch in stream:
                read += batch["offset"].to_pylist()
    assert raised.value.path == str(path)
    assert raised.value.position is not None
    assert bad - 2**22 <= raised.value.position <= bad
    assert read == expected[: len(read)]
    assert len(read) > len(expected) // 3


@pytest.mark.parametrize("memory_map", [False, True])
def test_a_file_that_is_written_to_between_windows_is_an_error(partition, small_windows, memory_map):
    stream = kafkalog.scan(partition, threads=1, columns=["offset"], memory_map=memory_map).to_batches()
    next(stream)
    os.utime(closed(partition), ns=(1, 1))
    with fails_with("file_changed"):
        list(stream)


def test_read_committed_reads_windows_where_there_are_no_transactions(partition):
    *_, following = sorted(partition.iterdir())
    end = int(following.stem)
    following.unlink()
    committed = kafkalog.read_table(partition, threads=1, isolation_level="read_committed")
    assert committed.equals(kafkalog.read_table(partition, threads=1))
    transactional = builder.batch_v2(
        [builder.record_v2(0, 0, b"k", b"v")], base_offset=end, producer_id=5, producer_epoch=0, transactional=True
    )
    with closed(partition).open("ab") as file:
        file.write(transactional)
    # the transaction is open: its record is none that a consumer would get
    assert kafkalog.read_table(partition, threads=1, isolation_level="read_committed").equals(committed)
