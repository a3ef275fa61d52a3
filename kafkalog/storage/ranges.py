"""Bytes that are fetched in ranges: each request costs time, and so does each byte."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np

from kafkalog.storage.source import NO_BYTES, Bytes, ByteSource

_LEAST_BYTES: Final = 2**16
_KEPT_BYTES: Final = 2**24
PIECE_BYTES: Final = 2**22
"""Bytes of one request for what is read ahead."""
_MOST_AHEAD: Final = 2**25  # of all sources of the process
_N_THREADS: Final = _MOST_AHEAD // PIECE_BYTES


class _FetchAhead:
    """Threads that fetch pieces ahead, and the bytes that they have room for."""

    def __init__(self) -> None:
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()
        self._n_bytes = 0

    def submit(self, source: RangeSource, start: int, stop: int, *, must: bool) -> Future[Bytes] | None:
        """Fetch a piece in a thread; None if there is no room for it and it is not needed at once."""
        with self._lock:
            if self._n_bytes + stop - start > _MOST_AHEAD and not must:
                return None
            self._n_bytes += stop - start
            process = os.getpid()  # a fork has no threads
            if process not in self._pools:
                self._pools = {process: ThreadPoolExecutor(_N_THREADS, thread_name_prefix="kafkalog-fetch")}
            return self._pools[process].submit(source.fetch, start, stop)

    def give_back(self, n_bytes: int) -> None:
        """Make room for other pieces."""
        with self._lock:
            self._n_bytes -= n_bytes


_AHEAD: Final = _FetchAhead()


class RangeSource(ByteSource):
    """Bytes that do not change and are fetched in ranges, such as an object of an object store.

    The source keeps the ranges that it fetched last. Windows that overlap, or that only look at a header again, are
    fetched once. Several threads may ask for windows.
    """

    fetches_ranges = True
    unit_bytes: int = 1
    """What `fetch` is asked for begins and ends at multiples of this, or at the end of the file."""

    def __init__(self, size: int, *, path: str | None = None) -> None:
        self.size, self.full_size, self.path = size, size, path
        self._kept: list[tuple[int, Bytes]] = []  # start and bytes of each range, the newest last
        self._ahead: dict[int, tuple[int, Future[Bytes]]] = {}  # end and bytes of each piece, by its start
        self._planned = (0, 0)  # what is not yet asked for of what will be read
        self._lock = threading.Lock()

    @abstractmethod
    def fetch(self, start: int, stop: int) -> Bytes:
        """Fetch bytes `start` to `stop`, all of them."""

    def plan(self, start: int, stop: int) -> None:
        """See `ByteSource.plan`: pieces are fetched by threads until there."""
        with self._lock:
            self._kept = [(begin, data) for begin, data in self._kept if begin + data.size > start]
            if self._planned[1] == stop:
                return
            for begin, data in self._kept:
                start = begin + data.size if begin <= start < begin + data.size else start
            self._planned = (start, stop)
            self._piece(start)

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
            begin, piece = self._piece(start)
        if piece is not None:
            data = piece.result()
            self._keep(begin, data)
            return data[start - begin : stop - begin]
        # a little more than a header: the batches after it are often needed next
        begin, end = self._aligned(start, min(max(stop, start + _LEAST_BYTES), following))
        data = self.fetch(begin, end)
        self._keep(begin, data)
        return data[start - begin : stop - begin]

    def _aligned(self, start: int, stop: int) -> tuple[int, int]:
        unit = self.unit_bytes
        return start // unit * unit, min(-(-stop // unit) * unit, self.full_size)

    def _piece(self, start: int) -> tuple[int, Future[Bytes] | None]:
        """The piece that has a position, if it was planned to be read; more are fetched meanwhile."""
        found = next(((begin, of) for begin, (end, of) in self._ahead.items() if begin <= start < end), None)
        (position, stop), unit = self._planned, self.unit_bytes
        if found is None and position <= start < stop:
            position = self._aligned(start, start)[0]
        elif found is None:
            return start, None
        while position < stop:
            end = self._aligned(position, min(position + max(PIECE_BYTES // unit * unit, unit), stop))[1]
            future = _AHEAD.submit(self, position, end, must=found is None)
            if future is None:
                break
            self._ahead[position] = end, future
            found = found or (position, future)
            position = end
        self._planned = (position, stop)
        return found or (start, None)

    def _keep(self, start: int, data: Bytes) -> None:
        data.flags.writeable = False
        with self._lock:
            if start in self._ahead:
                end, _ = self._ahead.pop(start)
                _AHEAD.give_back(end - start)
            elif any(begin == start for begin, _ in self._kept):
                return  # another thread waited for the same piece
            self._kept.append((start, data))
            # threads may be far ahead of the position to which their caller has got, which `plan` tells
            most = 2 * _KEPT_BYTES if self._planned[1] else _KEPT_BYTES
            while len(self._kept) > 1 and sum(data.size for _, data in self._kept) > most:
                del self._kept[0]

    def close(self) -> None:
        """See `ByteSource.close`."""
        with self._lock:
            self._planned, self._kept = (0, 0), []
            for start, (end, future) in self._ahead.items():
                future.cancel()
                _AHEAD.give_back(end - start)
            self._ahead = {}
