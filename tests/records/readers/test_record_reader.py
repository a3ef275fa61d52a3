"""A file that nothing writes to may be mapped piece by piece: the same records, and an error where it changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import builder
import numpy as np
import pyarrow as pa
import pytest

import kafkalog
from kafkalog import format as kf
from kafkalog._kernels import header_walk as kernels
from kafkalog._kernels.header_rows import HeaderRows
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError
from kafkalog.records.columns import DEFAULT_COLUMNS
from kafkalog.records.readers import record_reader
from kafkalog.records.readers.batch_reader import ALL_OFFSETS
from kafkalog.records.readers.read_filled import read_filled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files are mapped piece by piece on Linux only")


@pytest.fixture(autouse=True)
def _mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_reader.PACE, "maps_next", lambda: True)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call that read a window mapped the file."""
    seen: list[bool] = []

    def noted(*arguments: Any, maps: bool = False, **options: Any) -> Any:
        seen.append(maps)
        return read_filled(*arguments, maps=maps, **options)

    monkeypatch.setattr(record_reader, "read_filled", noted)
    return seen


def batches() -> Iterator[bytes]:
    """5 MiB of all formats and some codecs, in batches whose ends fall anywhere; two are larger than a piece."""
    rng = np.random.default_rng(7)
    offset = size = 0
    while size < 5 * 2**20:
        kind = int(rng.integers(0, 20))
        value = rng.bytes(int(rng.integers(0, 3000)))
        if kind < 2:
            batch = builder.message(offset, b"k", value, magic=kind, timestamp=offset)
            n = 1
        else:
            n = int(rng.integers(1, 12))
            if kind == 2 and size > 2**21:
                value = rng.bytes(2**21 + 5)
            records = [
                builder.record_v2(i, i, None if i % 5 == 4 else b"key", value if i == 0 else b"v" * i) for i in range(n)
            ]
            codec = kf.Codec.GZIP if kind == 3 else 0
            batch = builder.batch_v2(records, base_offset=offset, codec=codec)
        yield batch
        offset, size = offset + n, size + len(batch)


@pytest.fixture(scope="module")
def content() -> bytes:
    return b"".join(batches())


@pytest.fixture
def partition(tmp_path: Path, content: bytes) -> Path:
    """A closed segment, and the one after it."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(content)
    (directory / f"{kafkalog.Segment(closed(directory)).next_offset:020d}.log").touch()
    return directory


def closed(partition: Path) -> Path:
    return partition / f"{0:020d}.log"


def test_pieces_give_what_reading_gives(partition: Path, calls: list[bool]) -> None:
    mapped = kafkalog.read_table(partition, threads=1)
    assert all(calls)
    assert calls
    assert mapped.equals(kafkalog.read_table(partition, threads=1, memory_map=False))
    assert mapped.num_rows > 1000


def test_read_committed_is_read_in_one_call_where_there_are_no_transactions(partition: Path, calls: list[bool]) -> None:
    committed = kafkalog.read_table(partition, threads=1, isolation_level="read_committed")
    assert calls
    calls.clear()
    assert committed.equals(kafkalog.read_table(partition, threads=1))
    whole = len(calls)
    calls.clear()
    transactional = builder.batch_v2(
        [builder.record_v2(0, 0, b"k", b"v")], base_offset=900_000, producer_id=5, producer_epoch=0, transactional=True
    )
    with closed(partition).open("ab") as file:
        file.write(transactional)
    # the transaction is open: its record is none that a consumer would get
    assert kafkalog.read_table(partition, threads=1, isolation_level="read_committed").equals(committed)
    assert len(calls) <= whole + 2


@pytest.mark.parametrize("what", ["the last segment", "a broker", "threads", "memory_map=False", "views"])
def test_what_may_change_or_gains_nothing_is_read(partition: Path, calls: list[bool], what: str) -> None:
    options: dict[str, Any] = {"threads": 1}
    if what == "the last segment":
        max(partition.glob("*.log")).unlink()
    elif what == "threads":
        options["threads"] = 2
    elif what == "memory_map=False":
        options["memory_map"] = False
    elif what == "views":
        options["binary_type"] = pa.binary_view()
    broker = None
    if what == "a broker":
        program = (
            "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
        )
        arguments = [sys.executable, "-c", program, str(partition.parent / ".lock")]
        broker = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert broker.stdout is not None
        broker.stdout.readline()
    try:
        assert sum(map(len, kafkalog.scan(partition, **options).to_batches())) > 1000
    finally:
        if broker is not None:
            broker.communicate(b"\n")
    assert calls
    assert not any(calls)


def test_a_part_of_the_last_segment_is_read(partition: Path, calls: list[bool]) -> None:
    max(partition.glob("*.log")).unlink()
    parts = kafkalog.scan(partition, threads=1).plan(target_bytes=2**21)
    assert sum(len(batch) for part in parts for batch in part.to_batches()) > 1000
    assert not any(calls)


@pytest.mark.parametrize("kept", [0, 100, 4096, 2**20, 2**20 + 5, 2**20 + 4096])
def test_where_a_file_ends_within_a_piece_no_more_than_its_batches_count(
    partition: Path, content: bytes, kept: int
) -> None:
    """The kernel is told the size that the file had: what is missing would end the process without the guard."""
    os.truncate(closed(partition), kept)
    descriptor = os.open(closed(partition), os.O_RDONLY)
    options: dict[str, Any] = {"form": "arrow", "offsets": ALL_OFFSETS, "check_crcs": True, "n_bytes": 2**23}
    try:
        for _ in range(3):
            arguments = descriptor, 0, len(content), -1, DEFAULT_COLUMNS
            window = read_filled(*arguments, **options, limits=DEFAULT_LIMITS, maps=True)
            assert window is None or window.batches.end_position <= kept
            assert window is None or kept > 4096  # the first batch that crosses the end touches what is missing
    finally:
        os.close(descriptor)


def test_a_file_that_is_cut_under_a_scan_is_an_error(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut when its size has been looked at, right before the kernel maps it."""

    def cut_first(*arguments: Any, **options: Any) -> Any:
        if options.get("maps"):
            os.truncate(closed(partition), 2**20 + 77)
        return read_filled(*arguments, **options)

    monkeypatch.setattr(record_reader, "read_filled", cut_first)
    with pytest.raises(FileChangedError, match="shrank"):
        kafkalog.read_table(partition, threads=1)


def test_a_file_that_is_written_to_under_a_mapping_is_read_again(
    partition: Path, calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = record_reader.read_filled

    def touched_after(*arguments: Any, **options: Any) -> Any:
        window = noted(*arguments, **options)
        if options.get("maps"):
            os.utime(closed(partition), ns=(1, 1))
        return window

    monkeypatch.setattr(record_reader, "read_filled", touched_after)
    with pytest.raises(FileChangedError, match="written to"):
        list(kafkalog.scan(partition, threads=1, columns=["offset"]).to_batches())
    assert calls[:2] == [True, False]


def test_more_threads_than_pieces_that_can_be_guarded(partition: Path, content: bytes) -> None:
    options: dict[str, Any] = {"form": "arrow", "offsets": ALL_OFFSETS, "check_crcs": True, "n_bytes": 2**22}

    def read(_: int) -> int | None:
        descriptor = os.open(closed(partition), os.O_RDONLY)
        try:
            arguments = descriptor, 0, len(content), -1, DEFAULT_COLUMNS
            window = read_filled(*arguments, **options, limits=DEFAULT_LIMITS, maps=True)
            if window is None or window.records is None:
                return None
            assert window.records.offset.tolist() == [*range(window.records.n_records)]
            return window.records.n_records
        finally:
            os.close(descriptor)

    with ThreadPoolExecutor(80) as pool:
        found = {one for one in pool.map(read, range(400)) if one is not None}
    # where no piece is left to be guarded, or no room in the columns, a window ends with the batches before
    assert found <= {*np.cumsum(kafkalog.open(closed(partition)).batches.records_count).tolist()}
    assert max(found) > 5000


OWN = """
import faulthandler, kafkalog, mmap, os, signal, sys
from kafkalog._kernels.header_walk import can_map
path, before, after, what = sys.argv[1:]
if before == "faulthandler":
    faulthandler.enable()
assert can_map()
if after == "faulthandler":
    faulthandler.enable()
elif after == "python":
    signal.signal(signal.SIGBUS, lambda *arguments: None)
print(can_map(), flush=True)
if what == "kill":
    os.kill(os.getpid(), signal.SIGBUS)
elif what == "touch":
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 8192, access=mmap.ACCESS_READ)
        os.ftruncate(file.fileno(), 0)
        mapped[4097]
"""


@pytest.mark.parametrize(
    ("before", "after", "what", "can_map", "ends_by"),
    [
        ("", "", "", True, 0),
        ("", "faulthandler", "", False, 0),
        ("", "python", "", False, 0),
        ("", "", "kill", True, -signal.SIGBUS),
        ("", "", "touch", True, -signal.SIGBUS),
        ("faulthandler", "", "touch", True, -signal.SIGBUS),
        ("faulthandler", "", "kill", True, -signal.SIGBUS),
        ("", "faulthandler", "touch", False, -signal.SIGBUS),
    ],
)
def test_what_else_raises_the_signal_goes_where_it_went(
    tmp_path: Path, before: str, after: str, what: str, can_map: bool, ends_by: int
) -> None:
    path = tmp_path / "other"
    path.write_bytes(bytes(8192))
    arguments = [sys.executable, "-c", OWN, str(path), before, after, what]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == (f"{can_map}\n", ends_by), done.stderr
    assert ("Bus error" in done.stderr) == ("faulthandler" in (before, after) and bool(what)), done.stderr


def test_where_somebody_else_handles_the_signal_files_are_read(
    partition: Path, calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_reader, "can_map", lambda: False)
    assert kafkalog.scan(partition, threads=1).count_rows() > 1000
    assert kafkalog.read_table(partition, threads=1, columns=["key"]).num_rows > 1000
    assert not any(calls)


def test_a_call_that_cannot_map_says_so() -> None:
    with pytest.raises(ValueError, match="neither bytes nor room"):
        kernels.read_intact(0, 0, 10, -1, 100, True, 0, *ALL_OFFSETS, 100, None, None, None, HeaderRows(3))
