"""Segments whose bytes are fetched in ranges, with a count of what is fetched."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from kafkalog.log.segment import Segment
from kafkalog.storage.ranges import RangeSource
from kafkalog.storage.source import Bytes, ByteSource


class CountingSource(RangeSource):
    """The bytes of a file; `fetched` collects the ranges that are fetched."""

    def __init__(self, path: Path, fetched: list[tuple[int, int]]) -> None:
        self._content = path.read_bytes()
        self._fetched, self._counting = fetched, threading.Lock()
        super().__init__(len(self._content), path=str(path))

    def fetch(self, start: int, stop: int) -> Bytes:
        """Fetch bytes, and count them."""
        with self._counting:
            self._fetched.append((start, stop))
        return np.frombuffer(bytearray(self._content[start:stop]), np.uint8)


class CountedSegment(Segment):
    """A segment that is read through `CountingSource`.

    Attributes
    ----------
    fetched : list of tuple of int
        Start and stop of each range that was fetched.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        self.fetched: list[tuple[int, int]] = []
        super().__init__(path, **options)
        self.fetched.clear()

    def open(self) -> ByteSource:
        """The bytes of the file, fetched in ranges."""
        return CountingSource(self.path, self.fetched)

    def reopened(self) -> Segment:
        """A segment that counts, too."""
        return self

    @property
    def n_fetched(self) -> int:
        """How many bytes were fetched, those fetched twice counted twice."""
        return sum(stop - start for start, stop in self.fetched)
