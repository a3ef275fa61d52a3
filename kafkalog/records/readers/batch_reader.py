"""Walks the batches of a segment with fast readers of valid batches, and with `walk` for all others.

Usually every batch is valid. A reader reads many megabytes in one kernel call, and stops silently before anything it
cannot read. From there, `walk` reads a few windows and reports errors; then the reader is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import kafkalog._kernels.header_walk as kernels
from kafkalog import format as kf
from kafkalog._kernels.header_rows import HeaderRows
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, Limits
from kafkalog.records.batch_table import BatchTable, Window, all_valid, columns_of, valid_crcs
from kafkalog.records.header_walk import WINDOW_BYTES, walk
from kafkalog.records.readers.record_windows import ALL_OFFSETS
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import NO_BYTES, Bytes, ByteSource

RUN_BYTES: Final = 2**25
"""Bytes per call: a tenth of a second on a slow disk, during which Ctrl-C and progress wait."""
_ROOM_BYTES: Final = 2**20  # a smaller buffer fits the L2 cache better, but takes more system calls
_CHECKED_ROWS: Final = 2**14
_MOST_WINDOWS: Final = 64


class BatchReader:
    """Reads valid batches faster than `walk`; those with one of the attribute bits `stop_at` are left to `walk`.

    A batch is valid if its header is consistent, its offset increases, and no limit is exceeded.
    """

    first_window_bytes: int | None = None
    """First window size for `walk`, if it may have little to read; doubled from window to window."""

    def __init__(self, *, limits: Limits, stop_at: int = 0) -> None:
        self._limits, self._stop_at = limits, stop_at

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """Read batches from a batch boundary on, with offsets above `previous_offset`.

        Returns None if `walk` must read the next batch, for example because it is too large. Raises FileChangedError if
        the file shrank, or its content changed, since it was opened, and it was not preallocated.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Leave the rest to `walk`: this reader cannot read much of it, and attempts cost time."""

    def close(self) -> None:
        """Wait for calls that read ahead."""


class CheckedReader(BatchReader):
    """Reads valid batches with correct checksums. The windows have no bytes."""

    def __init__(self, *, limits: Limits, stop_at: int = 0) -> None:
        super().__init__(limits=limits, stop_at=stop_at)
        self._room: Bytes | None = None
        self._rows: HeaderRows | None = None

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        descriptor = readable_descriptor(source, position)
        if descriptor is None:
            return None
        if self._room is None or self._rows is None:
            self._room, self._rows = empty(_ROOM_BYTES, np.uint8), HeaderRows(_CHECKED_ROWS)
        stop, limit = min(position + RUN_BYTES, source.size), self._limits.max_batch_bytes
        room, rows = self._room, self._rows
        while True:
            arguments = (descriptor, position, stop, previous_offset, limit, True, self._stop_at, *ALL_OFFSETS)
            n, needed, _ = kernels.read_intact(*arguments, room.size, room, None, None, rows)
            if n:
                batches = BatchTable(*(column.copy() for column in columns_of(rows)))
                return Window(NO_BYTES, position, batches, all_valid(n), next_offset=rows.next_offset)
            if not room.size < needed <= min(limit, stop - position):
                return None
            room = self._room = empty(needed, np.uint8)  # one batch larger than the buffer: again, with room for it


def readable_descriptor(source: ByteSource, position: int) -> int | None:
    """The descriptor to read a position from; None if windows must be used. Raises if the file has changed."""
    if source.descriptor is None or position >= source.size:
        return None
    try:
        source.check_unchanged()
    except FileChangedError:
        if not source.follow_cut(position):
            raise
    return source.descriptor


def walk_with(
    reader: BatchReader,
    source: ByteSource,
    *,
    start: int = 0,
    previous_offset: int = -1,
    window_bytes: int = WINDOW_BYTES,
    first_window_bytes: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Window]:
    """Walk the batches of a segment like `walk`, with the same parameters; `reader` reads the valid ones."""
    position, n_windows = start, 1
    try:
        while position < source.size:
            # After damage more damage may follow, which a small window finds more cheaply than a long kernel call
            run_start = position
            while first_window_bytes is None and (window := reader.read(source, position, previous_offset)) is not None:
                yield window  # of a run, the end is known after it
                position, previous_offset = window.batches.end_position, window.batches.end_offset - 1
                del window  # so that the next window can reuse its memory
                if position >= source.size:
                    return
            # after failed attempts, try the reader less often: each attempt may read ahead without use
            n_windows = 1 if position - run_start > window_bytes else min(2 * n_windows, _MOST_WINDOWS)
            left = n_windows
            for window in walk(
                source,
                start=position,
                previous_offset=previous_offset,
                window_bytes=window_bytes,
                first_window_bytes=first_window_bytes or reader.first_window_bytes,
                limits=limits,
            ):
                batches = window.batches
                position, previous_offset = batches.end_position, int(batches.last_offset[-1])
                yield window
                left -= 1
                if not left:
                    break
                del window, batches
            else:
                return
            del window, batches
            first_window_bytes = None
    finally:
        reader.close()


def walk_checked(source: ByteSource, *, needs_control_bytes: bool = False, **options: Any) -> Iterator[Window]:
    """Walk the batches of a segment like `walk`, with the same options, and compare their checksums in `valid`.

    `data` is empty if the kernel read the batches; all of them are valid then. With `needs_control_bytes`, windows with
    control batches have their bytes.
    """
    stop_at = kf.CONTROL_BIT if needs_control_bytes else 0
    reader = CheckedReader(limits=options.get("limits", DEFAULT_LIMITS), stop_at=stop_at)
    for window in walk_with(reader, source, **options):
        yield window if window.valid is not None else window._replace(valid=valid_crcs(window))
        del window
