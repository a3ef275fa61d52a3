"""Rebuilding indexes as a side, next to the least that it has to do: read the bytes and check CRCs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kafkalog
from kafkalog._kernels.crc import check_crcs
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.header_walk import WINDOW_BYTES, walk
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.files import open_source
from peers import Side, timed


def rebuild(directory: Path, *, jobs: int = 1, dry_run: bool = False) -> Side:
    """Both indexes of each partition below, from nothing, written and made durable or not; the entries count."""

    def work() -> tuple[int, int]:
        for path in directory.rglob("*index"):
            path.unlink()
        report = kafkalog.reindex(directory, in_place=True, dry_run=dry_run, index_interval_bytes=4096, threads=jobs)
        return sum(file.n_entries for file in report.files), -1

    return timed(work)


class Limit:
    """A segment read with `pread` into the same memory again and again; its batches are known beforehand.

    Parameters
    ----------
    path : str
        The segment.
    n_records : int
        What to count, which the other sides count as well.
    """

    def __init__(self, path: str, n_records: int) -> None:
        self._path, self._n_records = path, n_records
        self._windows: list[tuple[int, int, BatchTable]] = []
        with open_source(path, memory_map=False) as source:
            for window in walk(source):
                batches = window.batches[np.arange(len(window.batches))]
                self._windows.append((window.start, int(batches.size_in_bytes.sum()), batches))

    def read(self) -> Side:
        """Only read."""
        return timed(lambda: self._pass(with_crcs=False))

    def read_and_check(self) -> Side:
        """Read, and compare the checksum of every batch, a window after the other."""
        return timed(lambda: self._pass(with_crcs=True))

    def _pass(self, *, with_crcs: bool) -> tuple[int, int]:
        room = empty(max(WINDOW_BYTES, *(size for _, size, _ in self._windows)), np.uint8)
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            for start, size, batches in self._windows:
                if os.preadv(descriptor, [memoryview(room)[:size]], start) != size:
                    raise ValueError("the file was cut")
                if with_crcs:
                    place = batches.position, batches.size_in_bytes, batches.magic, batches.crc
                    status, _, _ = check_crcs(room[:size], start, *place, np.empty(len(batches), np.uint8))
                    if status:
                        raise ValueError("a wrong CRC")
        finally:
            os.close(descriptor)
        return self._n_records, -1

    def wall_seconds(self, passes: int, threads: int) -> float:
        """How long so many passes take, shared out among threads."""
        each = [self._passes(passes // threads) for _ in range(threads)]
        start = time.perf_counter()
        running = [threading.Thread(target=one) for one in each]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return time.perf_counter() - start

    def _passes(self, n: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(n):
                self._pass(with_crcs=True)

        return work
