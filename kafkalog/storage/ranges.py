"""Bytes that are fetched in ranges: each request costs time, and so does each byte."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Final

import numpy as np

from kafkalog.storage.source import NO_BYTES, Bytes, ByteSource

_LEAST_BYTES: Final = 2**16
_KEPT_BYTES: Final = 2**24


class RangeSource(ByteSource):
    """Bytes that do not change and are fetched in ranges, such as an object of an object store.

    The source keeps the ranges that it fetched last. Windows that overlap, or that only look at a header again, are
    fetched once. Several threads may ask for windows.

    Parameters
    ----------
    size : int
    path : str, optional
        A name for messages.
    """

    fetches_ranges = True

    def __init__(self, size: int, *, path: str | None = None) -> None:
        self.size, self.path = size, path
        self._kept: list[tuple[int, Bytes]] = []  # start and bytes of each range, the newest last
        self._lock = threading.Lock()

    @abstractmethod
    def fetch(self, start: int, stop: int) -> Bytes:
        """Fetch bytes `start` to `stop`, all of them."""

    def window(self, start: int, stop: int) -> Bytes:
        """See `ByteSource.window`."""
        self._check_range(start, stop)
        parts = []
        while start < stop:
            part = self._part(start, stop)
            parts.append(part)
            start += part.size
        if len(parts) < 2:
            return parts[0] if parts else NO_BYTES
        whole: Bytes = np.concatenate(parts)
        whole.flags.writeable = False
        return whole

    def _part(self, start: int, stop: int) -> Bytes:
        """The first bytes of a window: those of one range, kept or fetched."""
        with self._lock:
            for begin, data in reversed(self._kept):
                if begin <= start < begin + data.size:
                    return data[start - begin : stop - begin]
            following = min((begin for begin, _ in self._kept if begin > start), default=self.size)
        # a little more than a header: the batches after it are often needed next
        end = min(max(stop, start + _LEAST_BYTES), following)
        data = self.fetch(start, end)
        data.flags.writeable = False
        with self._lock:
            self._kept.append((start, data))
            while len(self._kept) > 1 and sum(data.size for _, data in self._kept) > _KEPT_BYTES:
                del self._kept[0]
        return data[: stop - start]

    def close(self) -> None:
        """See `ByteSource.close`."""
        self._kept = []
