"""Byte sources: the same bytes by every way, and an error, never a signal, when the file changes."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from effort import thinned
from refusals import fails_with

from kafkalog.errors import FileChangedError, ReadError, Reason
from kafkalog.storage import source as source_module
from kafkalog.storage.files import open_source
from kafkalog.storage.source import BufferSource, FileSource

SIZE = 3 * 2**20 + 17


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "some.log"
    path.write_bytes(np.random.default_rng(1).bytes(SIZE))
    return path


def sources(path):
    return [FileSource(path), FileSource(path, memory_map=True), BufferSource(path.read_bytes())]


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (5, 4096), (4095, 4098), (1 << 20, SIZE), (SIZE, SIZE)])
def test_every_source_gives_the_same_window(path, start, stop):
    expected = path.read_bytes()[start:stop]
    for source in sources(path):
        with source:
            window = source.window(start, stop)
            assert window.tobytes() == expected
            assert not window.flags.writeable
            assert source.size == SIZE


def test_a_released_window_is_used_again_and_others_stay_as_they_are(path):
    data = path.read_bytes()
    for source in sources(path):
        with source:
            kept = source.window(0, 1 << 20)
            passing = source.window(1 << 20, 2 << 20)
            source.release(passing, 1 << 20)
            again = source.window(2 << 20, 3 << 20)
            assert again.tobytes() == data[2 << 20 : 3 << 20]
            assert kept.tobytes() == data[: 1 << 20]


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4), (0, SIZE + 1)])
def test_a_window_outside_the_file_is_misuse(path, start, stop):
    for source in sources(path):
        with source, pytest.raises(ValueError):
            source.window(start, stop)


@pytest.mark.parametrize("memory_map", [True, False])
def test_a_file_that_shrinks_while_read_is_an_error(path, memory_map):
    with open_source(path, memory_map=memory_map) as source:
        source.window(0, 100)
        os.truncate(path, 4096)
        with pytest.raises(FileChangedError) as caught:
            source.window(2 << 20, 3 << 20)
        assert caught.value.path == str(path)
        assert caught.value.reason is Reason.FILE_CHANGED
        assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("memory_map", [True, False])
def test_a_file_that_is_written_to_while_read_is_an_error(path, memory_map):
    with open_source(path, memory_map=memory_map) as source:
        source.window(0, 100)
        with path.open("r+b") as file:
            file.write(b"other")
        os.utime(path, ns=(1, 1))
        with fails_with("file_changed"):
            source.window(0, 100)


@pytest.mark.parametrize("memory_map", [True, False])
def test_a_file_that_grows_is_read_up_to_its_old_end(path, memory_map):
    data = path.read_bytes()
    with open_source(path, memory_map=memory_map) as source:
        with path.open("ab") as file:
            file.write(b"more")
        assert source.window(0, SIZE).tobytes() == data


@pytest.mark.parametrize("memory_map", thinned(["auto", True, False], 2))
def test_a_segment_that_is_cut_in_the_middle_of_a_scan_is_an_error_never_a_signal(tmp_path, log_dir, memory_map):
    # in a process of its own: a SIGBUS would end it
    program = f"""
import os, sys, kafkalog
from pathlib import Path
source = Path({str(log_dir)!r}) / "p-v0v1v2-mixed-0"
directory = Path({str(tmp_path)!r}) / "big-0"
directory.mkdir()
one = b"".join(p.read_bytes() for p in sorted(source.glob("*.log")))
n = 0
batch = Path({str(log_dir)!r}, "p-headers-0", "00000000000000000000.log").read_bytes()
size = 12 + int.from_bytes(batch[8:12], "big")
count = int.from_bytes(batch[23:27], "big") + 1
with open(directory / "00000000000000000000.log", "wb") as f:
    while f.tell() < 12 << 20:
        f.write(n.to_bytes(8, "big") + batch[8:size])
        n += count
(directory / f"{{n:020d}}.log").touch()
reader = kafkalog.scan(directory, threads=1, memory_map={memory_map!r}).to_reader()
first = next(reader)
os.truncate(directory / "00000000000000000000.log", 100)
try:
    for _ in reader:
        pass
except kafkalog.FileChangedError as error:
    print("FileChangedError", error.reason)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "FileChangedError file_changed\n"), done.stderr


def test_what_is_not_a_regular_file_is_refused_and_does_not_hang(tmp_path):
    fifo = tmp_path / "00000000000000000000.log"
    os.mkfifo(fifo)
    for memory_map in (True, False):
        with pytest.raises(ReadError) as caught:
            open_source(fifo, memory_map=memory_map)
        assert caught.value.reason is Reason.NOT_A_FILE
    with pytest.raises(ReadError):
        open_source(tmp_path / "absent.log", memory_map=False)


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="this system does not tell of holes")
def test_holes_are_passed_over_without_reading_them(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"x" * 5000)
        file.seek(2**30)
        file.write(b"y")
        file.truncate(2**31)
    with FileSource(path) as source:
        assert source.next_data(10) == 10
        behind = source.next_data(2**20)
        assert 2**20 < behind <= 2**30
        assert 2**30 < source.next_data(2**30 + 2**20) <= 2**31
        assert source.window(2**30, 2**30 + 1).tobytes() == b"y"
        assert 2**30 < source.data_end() <= 2**30 + 2**20
    with BufferSource(b"abc") as buffer:
        assert buffer.next_data(1) == 1
        assert buffer.data_end() == 3


def test_a_file_that_is_just_being_appended_to_has_not_changed(tmp_path, monkeypatch):
    """The system sets a file's time before it writes, and its size after that."""
    path = tmp_path / "f"
    path.write_bytes(b"x" * 200)

    def append(seconds):
        with path.open("ab") as file:
            file.write(b"y" * 100)

    with FileSource(path) as source:
        os.utime(path, ns=(1, 1))
        with monkeypatch.context() as patched:
            patched.setattr("kafkalog.storage.source.time.sleep", append)
            assert source.window(0, 200).tobytes() == b"x" * 200
    with FileSource(path) as source:
        os.utime(path, ns=(2, 2))
        with fails_with("file_changed"):
            source.window(0, 200)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux populates mappings")
def test_a_file_is_mapped_if_that_was_asked_for_and_its_size_is_fixed(path, tmp_path):
    data = path.read_bytes()
    with FileSource(path) as source:
        assert source.mapping() is None
    with FileSource(path, memory_map="auto") as source:
        mapping = source.mapping()
        assert mapping is not None
        assert mapping.tobytes() == data
        assert source.mapping(for_views=True) is None
    with FileSource(path, memory_map=True) as source:
        kept = source.mapping(for_views=True)
    assert kept is not None
    assert kept.tobytes() == data, "a view outlives its source"
    small = tmp_path / "small"
    small.write_bytes(b"x" * 5000)
    for memory_map, is_mapped in (("auto", False), (True, True)):
        with FileSource(small, memory_map=memory_map) as source:
            assert (source.mapping() is not None) is is_mapped
    with small.open("ab") as file:
        file.truncate(2**22)
    with FileSource(small, memory_map=True) as source:
        assert source.is_preallocated
        assert source.mapping() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux populates mappings")
def test_a_mapping_is_populated_up_to_the_end_of_its_file(path):
    with FileSource(path, memory_map=True) as source:
        mapping = source.mapping()
        assert mapping is not None
        assert source_module.populate(mapping)
        os.truncate(path, 4096)
        assert source_module.populate(mapping[:4096])
        assert not source_module.populate(mapping[:4097])


def test_a_system_that_cannot_populate_pages_reads(path, monkeypatch):
    monkeypatch.setattr(source_module, "populate", lambda data: False)
    with open_source(path, memory_map=True) as source:
        assert source.mapping() is None
        assert source.window(5, 9000).tobytes() == path.read_bytes()[5:9000]


def test_a_missing_permission_comes_with_advice():
    missing, denied = (ReadError.of(OSError(code, "no"), "t-0") for code in (errno.ENOENT, errno.EACCES))
    assert (missing.detail, missing.path) == ("no", "t-0")
    assert "read permission is needed" in denied.detail


def test_a_search_asks_for_holes_once_per_run_of_data(tmp_path, monkeypatch):
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.write(b"x" * 2**20)
        file.seek(8 * 2**20)
        file.write(b"y" * 2**20)
    if path.stat().st_blocks * 512 >= path.stat().st_size:
        pytest.skip("the file system has no holes")
    calls = []
    lseek = os.lseek
    monkeypatch.setattr(os, "lseek", lambda *args: calls.append(args[2]) or lseek(*args))
    with source_module.FileSource(path) as source:
        assert [source.next_hole(at) for at in (0, 5, 2**20 - 1)] == [2**20] * 3
        assert [source.next_data(at) for at in (0, 2**19)] == [0, 2**19]
        assert calls == [os.SEEK_HOLE]
        # at the end of what is known, and in another run, the system is asked
        assert source.next_data(2**20) == 8 * 2**20
        assert source.next_hole(8 * 2**20) == 9 * 2**20
        assert source.next_data(0) == 0
        assert len(calls) == 4
