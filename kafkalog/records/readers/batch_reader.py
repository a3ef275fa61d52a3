"""Walks the batches of a segment with readers of good batches, which are faster than `walk` and report nothing.

Usually every batch is good. A reader reads many megabytes in one kernel call, and stops before anything that it does
not read, without a word about it; from there on `walk` walks a few windows and reports what it finds, then the reader
is tried again.
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
    """Reads good batches faster than `walk` can.

    A batch is good if its header is right, its offset rises, and no limit is exceeded.

    Parameters
    ----------
    limits : Limits
    stop_at : int
        Attribute bits of batches that are left to `walk`, because the caller needs their bytes.
    """

    first_window_bytes: int | None = None
    """Bytes that `walk` reads first of what is left to it, if that may be little; doubled from window to window."""

    def __init__(self, *, limits: Limits, stop_at: int = 0) -> None:
        self._limits, self._stop_at = limits, stop_at

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """Read batches from a batch boundary on, with offsets that rise above `previous_offset`.

        Returns
        -------
        Window or None
            None if the next batch has to be read by `walk`, for example because it is too large.

        Raises
        ------
        FileChangedError
            The file shrank, or its content changed, since it was opened, and it was not preallocated.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Leave all that follows to `walk`: there is much that this does not read, and tries may cost something."""

    def close(self) -> None:
        """Wait for what is read ahead."""


class CheckedReader(BatchReader):
    """Reads good batches with right checksums. The windows have no bytes."""

    def __init__(self, *, limits: Limits, stop_at: int = 0) -> None:
        super().__init__(limits=limits, stop_at=stop_at)
        self._room: Bytes | None = None
        self._rows: HeaderRows | None = None

    def read(self, source: ByteSource, position: int, previous_offset: int) -> Window | None:
        """See `BatchReader.read`."""
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
    """The descriptor to read a position from; None if windows have to be used. Raises if the file has changed."""
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
    """Walk the batches of a segment as `walk` does, whose parameters it has; `reader` reads the good ones."""
    position, n_windows = start, 1
    try:
        while True:
            # After damage more damage may follow, which a small window finds more cheaply than a long kernel call
            run_start = position
            while first_window_bytes is None and (window := reader.read(source, position, previous_offset)) is not None:
                yield window  # of a run, the end is known after it
                position, previous_offset = window.batches.end_position, window.batches.end_offset - 1
                del window  # so that the next window can reuse its memory
            # where the reader got nowhere it is asked less and less often: each try may read ahead in vain
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
    """Walk the batches of a segment as `walk` does, whose parameters it has, and compare their checksums.

    Parameters
    ----------
    source : ByteSource
    needs_control_bytes : bool
        Whether windows with control batches must have their bytes.
    **options
        See `walk`.

    Yields
    ------
    Window
        `valid` is set. `data` is empty if the kernel read the batches; all of them are valid then.
    """
    stop_at = kf.CONTROL_BIT if needs_control_bytes else 0
    reader = CheckedReader(limits=options.get("limits", DEFAULT_LIMITS), stop_at=stop_at)
    for window in walk_with(reader, source, **options):
        yield window if window.valid is not None else window._replace(valid=valid_crcs(window))
        del window
