"""Finds batches of a log by their size fields alone, from positions that an index gives.

Mirrors `FileLogInputStream.nextBatch`, as Kafka's tool uses it to compare indexes with the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import dump_chain as kernels
from kafkalog._kernels.dump_walk import STATUSES
from kafkalog._kernels.wire import STATUS
from kafkalog.storage.source import ByteSource

WINDOW: Final = 2**20
_ROWS: Final = 8192

OK = STATUS["OK"]
END = STATUSES["END"]
_NEED_MORE = STATUS["NEED_MORE"]
_OUTPUT_FULL = STATUS["OUTPUT_FULL"]
_HEADER_CUT = STATUSES["HEADER_CUT"]


def last_offsets(
    log: ByteSource, position: npt.NDArray[np.int64], max_bytes: int
) -> tuple[npt.NDArray[np.int64], int, int]:
    """Read the last offsets of the batches at positions; return them, the kernel's status, and how many are done."""
    last = np.empty(position.size, np.int64)
    at, status = 0, OK
    while at < position.size:
        first = int(position[at])
        if not 0 <= first <= log.size:
            return last, END, at
        # the longest run of positions that fits into one window
        inside = (position[at:] >= first) & (position[at:] < first + WINDOW)
        n = int(np.argmin(inside)) if not inside.all() else inside.size
        stop = min(int(position[at : at + n].max()) + kf.RECORD_BATCH_OVERHEAD, log.size)
        window = log.window(first, stop)
        status, done = kernels.find_last_offsets(
            window, first, log.size, position[at : at + n], max_bytes, last[at : at + n]
        )
        log.release(window, first)
        at += done
        if status != OK:
            break
    return last, status, at


class Chain:
    """Yields positions and last offsets of batches, following the size fields from a position on.

    Parameters
    ----------
    window_bytes : int
        Bytes to read at first; doubled until there are `WINDOW`.

    Attributes
    ----------
    position : int
        Where the chain has ended, once it has been iterated over.
    """

    def __init__(self, log: ByteSource, start: int, window_bytes: int) -> None:
        self._log, self._window_bytes = log, window_bytes
        self._status = _OUTPUT_FULL
        self.position = start

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        log, window_bytes = self._log, self._window_bytes
        room = np.empty((2, _ROWS), np.int64)
        # windows grow: most entries lie close to their batch, and only some chains are followed far
        self._status = _NEED_MORE
        while self._status == _NEED_MORE:
            begin = self.position
            window = log.window(begin, min(begin + max(window_bytes, kf.RECORD_BATCH_OVERHEAD), log.size))
            self._status = _OUTPUT_FULL
            while self._status == _OUTPUT_FULL:
                self._status, n, self.position = kernels.walk_chain(window, begin, self.position, log.size, *room)
                if n:
                    yield room[0, :n], room[1, :n]
            log.release(window, begin)
            window_bytes = min(2 * window_bytes, WINDOW)

    @property
    def is_broken(self) -> bool:
        """Whether the chain ended at a size field that leads nowhere."""
        return self._status not in (OK, END, _HEADER_CUT)

    @property
    def ends_in_header(self) -> bool:
        """Whether the file ends inside the header of the last batch."""
        return self._status == _HEADER_CUT
