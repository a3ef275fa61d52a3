"""Walk the batches of a segment and compare every checksum; bytes are returned only where they are needed.

Usually every batch is intact and only the headers are wanted. Then one kernel call reads, walks and checks many
megabytes, in pieces that fit a core's cache. Windows would cost a return to Python each, and would have left the cache
before their checksums are computed. The kernel stops before anything irregular, without reporting it. From there on
`header_walk` walks a few windows and reports what it finds; then the kernel is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.header_walk import read_intact
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, Limits
from kafkalog.records.batch_table import COLUMNS, BatchTable, Window, valid_crcs
from kafkalog.records.header_walk import WINDOW_BYTES, walk
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import Bytes, ByteSource

_RUN_BYTES: Final = 2**25  # per call: a tenth of a second on a slow disk, during which Ctrl-C and progress wait
_ROOM_BYTES: Final = 2**20  # a smaller buffer fits the L2 cache better, but takes more system calls
_ROWS: Final = 2**14
_MOST_WINDOWS: Final = 64
_NO_BYTES: Final[Bytes] = np.empty(0, np.uint8)
_NO_BYTES.flags.writeable = False


def walk_checked(
    source: ByteSource,
    *,
    start: int = 0,
    previous_offset: int = -1,
    window_bytes: int = WINDOW_BYTES,
    first_window_bytes: int | None = None,
    needs_control_bytes: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Window]:
    """Walk the batches of a segment as `header_walk.walk` does, and compare their checksums.

    Parameters
    ----------
    source, start, previous_offset, window_bytes, first_window_bytes, limits
        See `header_walk.walk`.
    needs_control_bytes : bool
        Whether windows with control batches must have their bytes.

    Yields
    ------
    Window
        `valid` is set. `data` is empty if the kernel read the batches; all of them are valid then.

    Raises
    ------
    KafkalogError
        See `header_walk.walk`.
    """
    reader = _IntactReader(source, limits=limits, stop_at_control=needs_control_bytes)
    position, n_windows = start, 1
    while True:
        # After damage more damage may follow, which a small window finds more cheaply than a long kernel call
        run_start = position
        while first_window_bytes is None and len(batches := reader.read(position, previous_offset)):
            yield Window(_NO_BYTES, position, batches, np.ones(len(batches), np.bool_))
            position, previous_offset = int(batches.next_position[-1]), int(batches.last_offset[-1])
        n_windows = 1 if position - run_start > window_bytes else min(2 * n_windows, _MOST_WINDOWS)
        left = n_windows
        for window in walk(
            source,
            start=position,
            previous_offset=previous_offset,
            window_bytes=window_bytes,
            first_window_bytes=first_window_bytes,
            limits=limits,
        ):
            yield window._replace(valid=valid_crcs(window))
            batches = window.batches
            position, previous_offset = int(batches.next_position[-1]), int(batches.last_offset[-1])
            left -= 1
            if not left:
                break
            del window  # so that the next window can reuse its memory
        else:
            return
        del window, batches
        first_window_bytes = None


class _IntactReader:
    """Reads and checks intact batches of a source; stops before anything irregular.

    Parameters
    ----------
    source : ByteSource
        For a source without a descriptor, no batches are returned.
    limits : Limits
    stop_at_control : bool
        Whether to stop before a control batch, because the caller needs its bytes.
    """

    def __init__(self, source: ByteSource, *, limits: Limits, stop_at_control: bool) -> None:
        self._source, self._limits, self._stop_at_control = source, limits, stop_at_control
        self._room: Bytes | None = None
        self._columns: list[npt.NDArray[Any]] = []

    def read(self, position: int, previous_offset: int) -> BatchTable:
        """Read batches from a batch boundary on, with right checksums and offsets that rise above `previous_offset`.

        Returns
        -------
        BatchTable
            Empty if the next batch has to be read by `header_walk.walk`, for example because it is too large.

        Raises
        ------
        FileChangedError
            The file shrank, or its content changed, since it was opened, and it was not preallocated.
        """
        source = self._source
        if source.descriptor is None or position >= source.size:
            return BatchTable.empty()
        try:
            source.check_unchanged()
        except FileChangedError:
            if not source.follow_cut(position):
                raise
        if self._room is None:
            self._room = empty(_ROOM_BYTES, np.uint8)
            self._columns = [empty(_ROWS, dtype) for dtype in COLUMNS.values()]
        stop = min(position + _RUN_BYTES, source.size)
        while True:
            n, needed = read_intact(
                source.descriptor,
                position,
                stop,
                previous_offset,
                self._limits.max_batch_bytes,
                self._stop_at_control,
                self._room,
                *self._columns,
            )
            if n or not self._room.size < needed <= min(self._limits.max_batch_bytes, stop - position):
                return BatchTable(*(column[:n].copy() for column in self._columns))
            self._room = empty(needed, np.uint8)  # one batch larger than the buffer: try again with room for it
