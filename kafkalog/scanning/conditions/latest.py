"""`LatestOffsets`: the offset of the last record of each key of a partition, in bounded memory.

Keys and offsets are collected, and of each key the largest offset is kept. Where they outgrow the memory that they may
take, they are divided by a hash of the key into files of a temporary directory, so that all of a key is in one file;
then each file is done by itself, and divided again if it is too large. Keys are compared as bytes: the hash decides
nothing but the file. The result is sorted offsets, which a second pass over the records looks up.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.storage.file_locks import lock, try_lock
from kafkalog.storage.listing import Listing

MEMORY_BYTES: Final = 2**25
"""What the keys and offsets of one partition may take; grouping them takes a few times as much."""

_PREFIX: Final = "kafkalog-latest-"
_OPEN: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_N_FILES: Final = 32
_HASHED_BYTES: Final = 2**20
_WEIGHTS: Final = 2**12
_SHIFT: Final = np.uint64(64 - 5)  # 32 files


class LatestOffsets:
    """The offset of the last record of each key. After `finish`, `runs` has sorted int64 offsets, or files of them.

    No offset is in two runs. Files are made in `directory`; by default in a new one of ``TMPDIR``, which is removed
    with this object, or after a kill by the next process that makes one.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, directory: Path | None = None) -> None:
        self.runs: list[npt.NDArray[np.int64] | Path] = []
        self._memory_bytes, self._directory = memory_bytes, directory
        self._tables: list[pa.Table] = []
        self._n_bytes = 0
        self._writers: list[Any] = []
        self._files = ExitStack()
        # random for each object: keys that one object puts into a single file are divided by the next
        self._weights = np.random.default_rng().integers(0, 2**64, _WEIGHTS, np.uint64) | np.uint64(1)

    def add(self, keys: pa.Array, offsets: pa.Array) -> None:
        """Add keys of records, none of them null, and the offsets of the records."""
        table = pa.table({"key": keys, "offset": offsets})
        self._tables.append(table)
        self._n_bytes += table.nbytes
        if self._n_bytes > self._memory_bytes:
            table = self._reduce()
            if table.nbytes > self._memory_bytes // 2 and table.num_rows > 1:  # one key cannot be divided
                self._spill(table)
            else:
                self._tables, self._n_bytes = [table], table.nbytes

    def finish(self) -> None:
        """Fill `runs`. Nothing can be added afterwards."""
        table = self._reduce()
        if not self._writers:
            self.runs = [np.sort(table["offset"].to_numpy())] if table.num_rows else []
            return
        self._spill(table)
        del table
        self._files.close()
        assert self._directory is not None
        for number in range(_N_FILES):
            path = self._directory / f"{number}.arrow"
            part = LatestOffsets(self._memory_bytes, self._directory / str(number))
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    part.add(batch.column("key"), batch.column("offset"))
            path.unlink()
            part.finish()
            for at, run in enumerate(part.runs):
                if isinstance(run, Path):
                    self.runs.append(run)
                else:
                    stored = self._directory / f"{number}-{at}.offsets"
                    run.tofile(stored)
                    self.runs.append(stored)

    def rows(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[m]: the numbers of the rows with one of these offsets."""
        if not offsets.size:
            return np.empty(0, np.int64)
        # offsets are looked up by the windows of a second pass, each of which needs a short range of them
        low, high = offsets.min(), offsets.max()
        near = [_between(run, int(low), int(high)) for run in self.runs]
        latest = np.sort(np.concatenate([np.empty(0, np.int64), *near]))
        if not latest.size:
            return np.empty(0, np.int64)
        at = np.minimum(np.searchsorted(latest, offsets), latest.size - 1)
        return np.flatnonzero(latest[at] == offsets)

    def _reduce(self) -> pa.Table:
        """All that is in memory, each key once; it is forgotten here."""
        if not self._tables:
            return pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())})
        whole = pa.concat_tables(self._tables)
        self._tables, self._n_bytes = [], 0
        table = whole.group_by("key", use_threads=False).aggregate([("offset", "max")])
        return pa.table({"key": table["key"], "offset": table["offset_max"]})

    def _spill(self, table: pa.Table) -> None:
        if not self._writers:
            if self._directory is None:
                self._directory, descriptor = _new_directory()
                weakref.finalize(self, _remove_directory, self._directory, descriptor, os.getpid())
            self._directory.mkdir(exist_ok=True)
            for number in range(_N_FILES):
                file = self._files.enter_context(pa.OSFile(str(self._directory / f"{number}.arrow"), "wb"))
                self._writers.append(self._files.enter_context(pa.ipc.new_stream(file, table.schema)))
        for batch in table.to_batches():
            for part in _pieces(batch):
                numbers = self._file_numbers(part.column("key"))
                order = np.argsort(numbers, kind="stable")
                bounds = np.searchsorted(numbers[order], np.arange(_N_FILES + 1))
                ordered = part.take(pa.array(order))
                for number in np.flatnonzero(np.diff(bounds)).tolist():
                    self._writers[number].write(ordered.slice(bounds[number], bounds[number + 1] - bounds[number]))

    def _file_numbers(self, keys: pa.Array) -> npt.NDArray[np.uint64]:
        """The number of the file of each key: a sum of its bytes, each weighted by its position, and of its size."""
        offsets, data = _bytes_of(keys)
        sizes = np.diff(offsets)
        positions = np.arange(data.size, dtype=np.int64) - np.repeat(offsets[:-1], sizes)
        weighted = self._weights[positions % _WEIGHTS] * (data.astype(np.uint64) + np.uint64(1))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighted, dtype=np.uint64)])
        hashed: npt.NDArray[np.uint64] = (sums[offsets[1:]] - sums[offsets[:-1]]) * self._weights[0] >> _SHIFT
        return hashed


def _new_directory() -> tuple[Path, int | None]:
    """A temporary directory, and the descriptor by which it is locked; what killed processes left is removed before.

    Tasks of Spark are killed without a chance to remove anything.
    """
    if sys.platform == "win32":  # without such locks
        return Path(tempfile.mkdtemp(prefix=_PREFIX)), None
    from kafkalog.storage.atomic import is_same

    temporary = Listing.or_empty(Path(tempfile.gettempdir()))
    for left in (temporary.path / name for name in temporary.names if name.startswith(_PREFIX)):
        with suppress(OSError):
            descriptor = os.open(left, _OPEN)
            try:
                lock(descriptor)  # raises if its process lives
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        descriptor = os.open(path, _OPEN)
        # before the lock, another process may have found it abandoned
        if try_lock(descriptor) and is_same(descriptor, path):
            return path, descriptor
        os.close(descriptor)


def _remove_directory(path: Path, descriptor: int | None, process: int) -> None:
    if process == os.getpid():  # and not a fork of it, which uses the same files
        shutil.rmtree(path, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of a record batch with about `_HASHED_BYTES` of keys each."""
    n = -(-max(batch.column("key").nbytes, 1) // _HASHED_BYTES)
    step = max(batch.num_rows // n, 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _bytes_of(keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The bytes of binary values, and where each begins and ends in them."""
    _, ends, data = keys.buffers()
    offsets = np.frombuffer(ends, np.int32, len(keys) + 1, 4 * keys.offset).astype(np.int64)
    size = int(offsets[-1] - offsets[0])
    held = np.frombuffer(data, np.uint8, size, int(offsets[0])) if size else np.empty(0, np.uint8)
    return offsets - offsets[0], held


def _between(run: npt.NDArray[np.int64] | Path, low: int, high: int) -> npt.NDArray[np.int64]:
    """The offsets of a run from `low` to `high`. A file is mapped again, so that pages that were read leave memory."""
    offsets = np.memmap(run, np.int64, "r") if isinstance(run, Path) else run
    return np.array(offsets[np.searchsorted(offsets, low) : np.searchsorted(offsets, high, side="right")])
