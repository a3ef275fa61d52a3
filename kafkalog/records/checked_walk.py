"""A walk that checks the checksum of every batch, and hands out bytes only where somebody has to look at them.

Mostly all is well, and the headers are all that is wanted. Then one kernel call reads, walks and checks many megabytes,
piece by piece through a core's own cache, where a window costs a trip through Python and has left the cache before it
is summed. The call ends before whatever is not as it should be and says nothing about it: from there on windows are
walked as ever, until all is well again.
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

_RUN_BYTES: Final = 2**25  # in one call: a tenth of a second on a slow disk, for which Ctrl-C and progress wait
_ROOM_BYTES: Final = 2**20  # less misses the second cache of a core less, and costs more calls of the system
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
    """Walk the batches of a segment as `batches.walk` does, and check their bytes.

    Parameters
    ----------
    source, start, previous_offset, window_bytes, first_window_bytes, limits
        See `batches.walk`.
    needs_control_bytes : bool
        Whether the bytes of control batches have to be in their windows.

    Yields
    ------
    Window
        `valid` is set. `data` is empty for windows all of whose batches are valid.

    Raises
    ------
    KafkalogError
        See `batches.walk`.
    """
    reader = _IntactReader(source, limits=limits, stop_at_control=needs_control_bytes)
    position, n_windows = start, 1
    while True:
        # behind damage more of the same may follow: a small window is the cheaper way to find out
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
            del window  # its memory can serve the next one
        else:
            return
        del window, batches
        first_window_bytes = None


class _IntactReader:
    """Reads a source from batch to batch while all is well.

    Parameters
    ----------
    source : ByteSource
        One without a descriptor gives no batches.
    limits : Limits
    stop_at_control : bool
        Whether to end before a control batch, whose bytes are wanted.
    """

    def __init__(self, source: ByteSource, *, limits: Limits, stop_at_control: bool) -> None:
        self._source, self._limits, self._stop_at_control = source, limits, stop_at_control
        self._room: Bytes | None = None
        self._columns: list[npt.NDArray[Any]] = []

    def read(self, position: int, previous_offset: int) -> BatchTable:
        """Batches from a boundary on, their checksums right and their offsets rising above `previous_offset`.

        Returns
        -------
        BatchTable
            Without rows where the next batch has to be looked at by `batches.walk`, if only for its size.

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
            self._room = empty(needed, np.uint8)
