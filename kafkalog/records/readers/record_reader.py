"""Reads the records of good batches out of a file, a window a call, ahead of who asks for them."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog._kernels import header_walk as kernels
from kafkalog._kernels.header_walk import can_map
from kafkalog.errors import KafkalogError, Limits
from kafkalog.records.batch_table import Window
from kafkalog.records.fill import Form
from kafkalog.records.header_walk import WINDOW_BYTES
from kafkalog.records.readers.batch_reader import RUN_BYTES, BatchReader, readable_descriptor
from kafkalog.records.readers.pace import PACE
from kafkalog.records.readers.read_filled import read_filled
from kafkalog.records.spans import uses_kernels
from kafkalog.storage.source import Bytes, ByteSource


class RecordReader(BatchReader):
    """Reads good batches (see `BatchReader`), and decodes their records in the same call.

    Parameters
    ----------
    columns, form, check_crcs, limits
        See `decode`.
    offsets : tuple of int
        Batches with other offsets than these are left to `walk`; half-open.
    window_bytes : int
        Number of bytes to decode at a time.
    submit, n_ahead : callable, int
        ``submit(call)`` runs a call in a thread, and returns a function that waits for its result; `n_ahead` windows
        are read ahead.
    hints : callable, optional
        Returns rising positions where batches may begin; without them, size fields are followed to find some. It is
        called for a file of several windows.
    find_end : callable, optional
        Returns the position where the caller will probably end reading, or None if it does not know. Windows up to
        there are read ahead, the others one by one. Leave it out if the caller reads to the end.
    stop_at : int
        Attribute bits of batches that are left to `walk`.
    may_map : bool
        Whether nothing writes to the file, so that it may be mapped piece by piece instead of read, where that takes
        less time. Views are read all the same.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        form: Form,
        offsets: tuple[int, int],
        check_crcs: bool,
        limits: Limits,
        window_bytes: int = WINDOW_BYTES,
        submit: Submit | None = None,
        n_ahead: int = 0,
        hints: Callable[[], npt.NDArray[np.int64] | None] | None = None,
        find_end: Callable[[], int | None] | None = None,
        stop_at: int = 0,
        may_map: bool = False,
    ) -> None:
        super().__init__(limits=limits, stop_at=stop_at)
        self._names, self._form, self._offsets, self._check_crcs = columns, form, offsets, check_crcs
        self._window_bytes, self._submit, self._n_ahead = window_bytes, submit, n_ahead
        self._ahead: deque[_Ahead] = deque()
        self._step, self._is_beginning, self._find_hints = window_bytes, False, hints
        self._hints: npt.NDArray[np.int64] | None = None
        self._find_end, self._end = find_end, _NO_END
        if find_end is not None:
            self.first_window_bytes = _FIRST_STEP  # `walk` reads the batch that ends the reading
        self._is_used, self._may_map = uses_kernels(), may_map and form != "views" and can_map()

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """See `BatchReader.read`. The window has its records, and its bytes only for views or out of a mapping."""
        descriptor = readable_descriptor(source, position)
        if self._find_end is not None:
            end, self._find_end = self._find_end(), None
            if end is not None:
                self._end = end
            elif source.fetches_ranges:  # what is fetched beyond the end has a bound
                self._window_bytes = _MOST_BEYOND // (self._n_ahead + 2)
                self.restart()
        # a half-written batch shows only in its checksum
        if not self._is_used or position >= source.size or (source.is_preallocated and not self._check_crcs):
            window = None
        elif self._is_beginning and not source.is_in_memory:
            window = self._begin(source, position, previous_offset)
        elif self._submit is not None:
            window = self._take(source, position, previous_offset, self._submit)
        elif descriptor is None:
            window = self._read_there(source, position, previous_offset)
        else:
            stop = min(position + RUN_BYTES, self._stop(source, position))
            window = self._read(source, position, stop, previous_offset)
        if window is None:
            self.close()
        return window

    def restart(self) -> None:
        """Begin with few bytes, as if nothing had been read: what follows may be little."""
        self.close()
        self._step, self._is_beginning = min(_FIRST_STEP, self._window_bytes), True

    def stop(self) -> None:
        """See `BatchReader.stop`."""
        self._is_used = False

    def _begin(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """The window at a position of a file, of few bytes; nothing is read ahead yet."""
        window = self._read(source, position, min(position + self._step, source.size), previous_offset)
        if window is None:  # or there is no whole batch in so few bytes
            window = self._read(source, position, min(position + self._window_bytes, source.size), previous_offset)
        self._step = min(2 * self._step, self._window_bytes)
        self._is_beginning = self._step < self._window_bytes
        return window

    def _read_there(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """The window at a position out of a mapping, or out of memory."""
        n_wanted = min(self._step, self._stop(source, position) - position)
        window = self._read(source, position, position + n_wanted, previous_offset)
        # the step follows what one call got through: bytes beyond would be mapped and read twice
        if window is not None and window.data.size < n_wanted // 8 * 7:
            self._step = max(window.data.size // 8 * 9, _LEAST_STEP)
        elif window is not None:
            self._step = min(2 * self._step, self._window_bytes)
        return window

    def close(self) -> None:
        """See `BatchReader.close`."""
        while self._ahead:
            with contextlib.suppress(Exception):  # its result is not needed any more
                self._ahead.popleft().result()

    def _take(self, source: ByteSource, position: int, previous_offset: int, submit: Submit) -> Window | None:
        """The window at a position, which a thread may have read already; more are read meanwhile."""
        ahead, end = self._ahead, self._stop(source, position)
        if ahead and position < ahead[0].start:  # the last call had no room for some of the batches
            window = self._read(source, position, ahead[0].start, previous_offset)
            if window is None:
                self._hints = None  # or the batches ended elsewhere than planned
            return window
        if ahead and position != ahead[0].start:
            self.close()
        while len(ahead) <= self._n_ahead:
            start = ahead[-1].stop if ahead else position
            if start >= end:
                break
            stop = self._boundary(source, start, end)
            # a thread does not know which offset comes before its bytes: that is compared when its turn comes
            ahead.append(_Ahead(start, stop, submit(partial(self._read, source, start, stop, -1))))
        first = ahead.popleft()
        window = first.result()
        if window is None:
            return None
        batches = window.batches
        if batches.first_offset <= previous_offset:
            return None
        n_read = batches.end_position - position
        if n_read < first.stop - position:
            self._step = max(n_read // 8 * 7, _LEAST_STEP)
        else:
            self._step = min(2 * self._step, self._window_bytes)
        return window

    def _stop(self, source: ByteSource, position: int) -> int:
        """Where to end reading ahead from a position."""
        return self._end if position < self._end < source.size else source.size

    def _boundary(self, source: ByteSource, start: int, end: int) -> int:
        """Where the next window may end, at most at `end`."""
        size = source.size
        if end - start <= self._step:
            return end
        if self._find_hints is not None:
            self._hints, self._find_hints = self._find_hints(), None
        hints = self._hints
        if hints is not None:
            row = hints.searchsorted(start + self._step)
            if row < hints.size and (stop := hints.item(row)) <= end:
                return stop
        of: int | Bytes | None = source.descriptor
        if of is None:  # only the bytes that the window will have
            of = source.window(start, size if source.is_in_memory else min(start + self._step, size))
        return kernels.find_boundary(of, start, size, self._step)

    def _read(self, source: ByteSource, start: int, stop: int, previous_offset: int) -> Window | None:
        """Batches from `start` on; None if the first one has to be read by `walk`."""
        of: int | Bytes | None = None if source.is_in_memory else source.descriptor
        if of is None:
            stop = min(stop, start + 2 * self._window_bytes)  # the next batch that an index names may be far away
            try:
                of = source.window(start, stop)
            except KafkalogError:
                return None  # `walk` finds the same, and says where
        read = partial(
            read_filled,
            of,
            start,
            stop,
            previous_offset,
            self._names,
            form=self._form,
            offsets=self._offsets,
            check_crcs=self._check_crcs,
            n_bytes=self._window_bytes,
            limits=self._limits,
            stop_at=self._stop_at,
        )
        if self._may_map and isinstance(of, int) and stop - start >= _LEAST_MAPPED:
            window = self._read_or_map(source, read)
        else:
            window = read()
        if window is None and not isinstance(of, int):
            source.release(of, start)
        return window

    def _read_or_map(self, source: ByteSource, read: Callable[..., Window | None]) -> Window | None:
        """The window, read or mapped."""
        maps, before = PACE.maps_next(), time.perf_counter_ns()
        window = read(maps=maps)
        if window is not None:
            PACE.took(maps, time.perf_counter_ns() - before, window.batches.end_position - window.start)
        # checksum and records are two looks at a mapping: bytes that changed in between are read, once for both
        if maps and (window is None or not source.is_as_opened()):
            return read()
        return window


Submit = Callable[[Callable[[], Window | None]], Callable[[], Window | None]]
_LEAST_STEP = 2**16
_FIRST_STEP = 2**18
_NO_END = 2**63 - 1
_MOST_BEYOND = 2**21  # fetched beyond an end that is not known
_LEAST_MAPPED = 2**20  # less is read sooner than it is mapped


class _Ahead(NamedTuple):
    start: int
    stop: int
    result: Callable[[], Window | None]
