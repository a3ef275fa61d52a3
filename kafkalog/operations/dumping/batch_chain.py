"""Finds batches of a log by their size fields alone, from positions that an index gives.

Mirrors `FileLogInputStream.nextBatch`, as Kafka's tool uses it to compare indexes with the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.storage.source import ByteSource

WINDOW: Final = 2**21
MAGIC_END: Final = 17
"""Bytes up to and including the magic: Kafka takes a rest that is no longer for the end of a log."""

_OFFSET_AND_SIZE: Final = struct.Struct(">qi4xb")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")


class Found(Enum):
    """What there is at a position of a log."""

    BATCH = "batch"
    END = "end"
    """No batch starts there, and Kafka takes this for the end of the log."""
    BAD_SIZE = "bad_size"
    """A size field that no batch can have."""
    CUT_HEADER = "cut_header"
    """The file ends inside the header of the batch there."""


def find_batch(window: memoryview, at: int, left: int, left_in_file: int) -> tuple[Found, int, int]:
    """Return what there is at a place of a window, and the size and the last offset of the batch.

    Parameters
    ----------
    window : memoryview
        It has the header at `at`, as far as the file has it.
    left, left_in_file : int
        Bytes from there up to where the log is taken to end, and up to the end of the file.
    """
    if left <= MAGIC_END:
        return Found.END, 0, 0
    offset, size, magic = _OFFSET_AND_SIZE.unpack_from(window, at)
    if size < kf.MESSAGE_V0_OVERHEAD:
        return Found.BAD_SIZE, 0, 0
    if left - kf.LOG_OVERHEAD < size:
        return Found.END, 0, 0
    if magic >= 2:
        if left_in_file < kf.RECORD_BATCH_OVERHEAD:
            return Found.CUT_HEADER, 0, 0
        offset = wrapped(offset + _LAST_OFFSET_DELTA.unpack_from(window, at + 23)[0])
    return Found.BATCH, size + kf.LOG_OVERHEAD, offset


def wrapped(number: int) -> int:
    """Return a number as Java's `long` holds it."""
    return (number + 2**63) % 2**64 - 2**63


def last_offsets(
    log: ByteSource, position: npt.NDArray[np.int64], max_bytes: int
) -> tuple[npt.NDArray[np.int64], Found]:
    """Return the last offsets of the batches at positions, up to the first position without a batch, and why it ends.

    Parameters
    ----------
    max_bytes : int
        A batch that is larger does not count.
    """
    last: list[int] = []
    found = Found.BATCH
    for at in position.tolist():
        if not 0 <= at <= log.size:
            found = Found.END
            break
        left = log.size - at
        window = log.window(at, min(at + kf.RECORD_BATCH_OVERHEAD, log.size))
        found, _, last_offset = find_batch(memoryview(window), 0, min(left, max_bytes), left)
        log.release(window, at)
        if found is not Found.BATCH:
            break
        last.append(last_offset)
    return np.array(last, np.int64), found


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
        self._found = Found.BATCH
        self.position = start

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        log, window_bytes = self._log, self._window_bytes
        # windows grow: most entries lie close to their batch, and only some chains are followed far
        self._found = Found.BATCH
        while self._found is Found.BATCH:
            begin = self.position
            stop = min(begin + max(window_bytes, kf.RECORD_BATCH_OVERHEAD), log.size)
            window = log.window(begin, stop)
            view = memoryview(window)
            rows: list[tuple[int, int]] = []
            while stop == log.size or self.position <= stop - kf.RECORD_BATCH_OVERHEAD:
                left = log.size - self.position
                self._found, size, last_offset = find_batch(view, self.position - begin, left, left)
                if self._found is not Found.BATCH:
                    break
                rows.append((self.position, last_offset))
                self.position += size
            log.release(window, begin)
            if rows:
                positions, offsets = np.array(rows, np.int64).T
                yield positions, offsets
            window_bytes = min(2 * window_bytes, WINDOW)

    @property
    def is_broken(self) -> bool:
        """Whether the chain ended at a size field that leads nowhere."""
        return self._found is Found.BAD_SIZE

    @property
    def ends_in_header(self) -> bool:
        """Whether the file ends inside the header of the last batch."""
        return self._found is Found.CUT_HEADER
