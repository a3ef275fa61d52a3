"""Reads the records of valid batches of a file, and reads windows ahead in threads."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.header_walk as kernels
from kafkalog._kernels.record_windows import RecordWindow, RecordWindows
from kafkalog.errors import KafkalogError
from kafkalog.records.batch_table import RecordRun, Window
from kafkalog.records.gathering import GatheredRecords
from kafkalog.records.readers.batch_reader import RUN_BYTES, BatchReader, readable_descriptor
from kafkalog.records.readers.record_windows import WindowOptions
from kafkalog.records.spans import thread_codecs, uses_kernels
from kafkalog.storage.source import NO_BYTES, Bytes, ByteSource


class RecordReader(BatchReader):
    """Reads valid batches (see `BatchReader`), and decodes their records in the same call.

    ``submit(call)`` runs a call in a thread, and returns a function that waits for its result; `n_ahead` windows are
    read ahead. `hints` returns increasing positions where batches may begin, for files of several windows; without it,
    size fields are followed to find some. `find_end` returns the position where the caller will probably stop, or None
    if unknown. Windows up to there are read ahead, others one by one. Omit it if the caller reads to the end.
    `may_append` returns whether all windows before were used, so that records may be appended to `options.into`.
    """

    def __init__(
        self,
        options: WindowOptions,
        *,
        submit: Submit | None = None,
        n_ahead: int = 0,
        hints: Callable[[], npt.NDArray[np.int64] | None] | None = None,
        find_end: Callable[[], int | None] | None = None,
        may_append: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(limits=options.limits, stop_at=options.stop_at)
        self._options, self._window_bytes = options, options.window_bytes
        self._submit, self._n_ahead = submit, n_ahead
        self._ahead: deque[_Ahead] = deque()
        self._memory: list[RecordWindows] = []  # of idle threads
        self._step, self._is_beginning, self._find_hints = self._window_bytes, False, hints
        self._hints: npt.NDArray[np.int64] | None = None
        self._find_end, self._end = find_end, _NO_END
        if find_end is not None:
            self.first_window_bytes = _FIRST_STEP  # `walk` reads the batch at which reading ends
        self._appends: bool | None = False if options.into is None else None  # None: not decided yet
        self._may_append = may_append
        self._is_used, self.plans = uses_kernels(), True
        self._unread: tuple[int, RecordWindow | None] | None = None

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """See `BatchReader.read`. The window has its records, and its bytes only for views.

        It is a run of windows if only record batches are needed, and the batches need no further checks.
        """
        readable_descriptor(source, position)
        if self._find_end is not None:
            end, self._find_end = self._find_end(), None
            if end is not None:
                self._end = end
            elif source.fetches_ranges:  # bounds the bytes fetched past the end
                self.plans = False
                self._window_bytes = _MOST_BEYOND // (self._n_ahead + 2)
                self.restart()
        found = None
        if self._unread is not None and self._unread[0] == position:
            found = self._unread[1]  # end of the last run
        # only a checksum reveals a half-written batch
        elif self._is_used and not (source.is_preallocated and not self._options.check_crcs):
            found = self._next(source, position, previous_offset)
        self._unread = None
        if found is None:
            self.close()
            return None
        if found.rows is None:
            run = RecordRun(position, found, partial(self._follow, source))
            return Window(NO_BYTES, position, run, run=run)  # type: ignore[arg-type]
        return self._options.window(found, position)

    def restart(self) -> None:
        """Start again with small reads, since few bytes may follow."""
        self.close()
        self._step, self._is_beginning = min(_FIRST_STEP, self._window_bytes), True

    def stop(self) -> None:
        self._is_used = False

    def close(self) -> None:
        while self._ahead:
            with contextlib.suppress(Exception):  # its result is not needed any more
                self._ahead.popleft().result()

    def _follow(self, source: ByteSource, run: RecordRun) -> RecordWindow | None:
        """The next window of a run; None for one that `read` must handle."""
        position, found = run.end_position, None
        if position < source.size:
            with contextlib.suppress(KafkalogError):  # `read` raises it
                source.check_unchanged()
                found = self._next(source, position, run.end_offset - 1)
        if found is not None and found.rows is None:
            return found
        self._unread = position, found
        return None

    def _next(self, source: ByteSource, position: int, previous_offset: int) -> RecordWindow | None:
        if position >= source.size:
            return None
        if self._appends is None:
            self._appends = self._can_append(source, position)
        if self._appends and not self._is_beginning and self._may_append():
            found = self._append(source, position, previous_offset)
            if found is None:
                found = self._read_apart(source, position, previous_offset)
                self._appends = found is None  # the next windows are probably alike
            return found
        return self._read_apart(source, position, previous_offset)

    def _read_apart(self, source: ByteSource, position: int, previous_offset: int) -> RecordWindow | None:
        """The next window with its own columns."""
        if self._is_beginning and not source.is_in_memory:
            return self._begin(source, position, previous_offset)
        if source.fetches_ranges and self.plans and position < self._end:
            source.plan(position, self._stop(source, position))
        if self._submit is not None:
            return self._take(source, position, previous_offset, self._submit)
        stop = self._stop(source, position)
        if source.descriptor is not None:
            return self._read(source, position, min(position + RUN_BYTES, stop), previous_offset)
        return self._read_there(source, position, stop, previous_offset)

    def _can_append(self, source: ByteSource, position: int) -> bool:
        """Whether to append records to those of `options.into`: a single window is faster on its own."""
        if self._options.into is None or (source.descriptor is None and not source.is_in_memory):
            return False
        return not self._options.into.is_empty or source.size - position >= _LEAST_APPENDED

    def _append(self, source: ByteSource, position: int, previous_offset: int) -> RecordWindow | None:
        """A window whose records were appended to others; None if that is not possible."""
        assert self._options.into is not None
        stop = min(position + RUN_BYTES, self._stop(source, position))
        found = self._read(source, position, stop, previous_offset, self._options.into)
        # threads share the work of decompressing; bytes that are not compressed take less time than their copy would
        if found is not None and found.is_compressed and self._submit is not None:
            self._appends = False
        return found

    def _begin(self, source: ByteSource, position: int, previous_offset: int) -> RecordWindow | None:
        """The first window at a position, a small one, before any reading ahead."""
        found = self._read(source, position, min(position + self._step, source.size), previous_offset)
        if found is None:  # or the bytes do not contain a whole batch
            found = self._read(source, position, min(position + self._window_bytes, source.size), previous_offset)
        self._step = min(2 * self._step, self._window_bytes)
        self._is_beginning = self._step < self._window_bytes
        return found

    def _read_there(self, source: ByteSource, position: int, stop: int, previous_offset: int) -> RecordWindow | None:
        """The window at a position of bytes in memory, or in a store."""
        n_wanted = min(self._step, stop - position)
        found = self._read(source, position, position + n_wanted, previous_offset)
        if found is not None:
            self._adapt_step(found.end_position - position, n_wanted // 8 * 7)
        return found

    def _adapt_step(self, n_read: int, n_expected: int) -> None:
        """Adapt to the bytes that one call processes: more would be fetched twice."""
        if n_read < n_expected:
            self._step = max(n_read // 8 * 9, _LEAST_STEP)
        else:
            self._step = min(2 * self._step, self._window_bytes)

    def _take(self, source: ByteSource, position: int, previous_offset: int, submit: Submit) -> RecordWindow | None:
        """The window at a position, which a thread may have read already; starts to read more."""
        ahead, end = self._ahead, self._stop(source, position)
        if ahead and position < ahead[0].start:  # the last call had no room for some of the batches
            found = self._read(source, position, ahead[0].start, previous_offset)
            if found is None:
                self._hints = None  # or the batches ended at another place than planned
            return found
        if ahead and position != ahead[0].start:
            self.close()
        while len(ahead) <= self._n_ahead:
            start = ahead[-1].stop if ahead else position
            if start >= end:
                break
            stop = self._boundary(source, start, end)
            # a thread does not know the previous offset: it is compared when the window is used
            ahead.append(_Ahead(start, stop, submit(partial(self._read, source, start, stop, -1))))
        first = ahead.popleft()
        found = first.result()
        if found is None or found.first_record_offset <= previous_offset:
            return None
        self._adapt_step(found.end_position - position, first.stop - position)
        return found

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
        return int(kernels.find_boundary(of, start, size, self._step))

    def _read(
        self, source: ByteSource, start: int, stop: int, previous_offset: int, into: GatheredRecords | None = None
    ) -> RecordWindow | None:
        """Batches from `start` on; None if `walk` must read the first one. They are appended to `into`, if given."""
        data: Bytes | None = None
        size = source.size
        if size < stop:
            return None  # the file was truncated since the end was planned: `walk` reports it
        descriptor, is_mapped = source.descriptor, False
        if descriptor is None:
            stop = min(stop, start + 2 * self._window_bytes)  # the next batch in an index may be far away
            try:
                data = source.window(start, stop)
            except KafkalogError:
                return None  # `walk` reports this with its position
        elif (mapping := source.mapping(for_views=self._options.form == "views")) is not None:
            data, is_mapped = mapping[start:stop], True
        memory = self._memory.pop() if self._memory else self._options.windows()
        growing = None if into is None else into.growing
        of = -1 if descriptor is None else descriptor
        try:
            found = memory.next(thread_codecs(), of, start, stop, size, previous_offset, data, is_mapped, growing)
        finally:
            self._memory.append(memory)
        if not (descriptor is None or self._options.check_crcs or _is_unchanged(source)):
            return None  # `walk` reports it
        if descriptor is None and data is not None and (found is None or found.data is None):
            source.release(data, start)
        return found


def _is_unchanged(source: ByteSource) -> bool:
    """Whether no bytes were cut: those read as zeros from a mapping, which only a checksum detects."""
    try:
        source.check_unchanged()
    except KafkalogError:
        return False
    return True


Submit = Callable[[Callable[[], Any]], Callable[[], Any]]
_LEAST_STEP: Final = 2**16
_FIRST_STEP: Final = 2**18
_NO_END: Final = 2**63 - 1
_LEAST_APPENDED: Final = 2**22
_MOST_BEYOND: Final = 2**21  # bytes fetched past an unknown end


class _Ahead(NamedTuple):
    start: int
    stop: int
    result: Callable[[], RecordWindow | None]
