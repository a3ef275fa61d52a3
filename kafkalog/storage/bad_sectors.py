"""Read a file from a disk with bad sectors: unreadable bytes become zeros, and their ranges are kept."""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from kafkalog.errors import FileChangedError, ReadError
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.files import open_source
from kafkalog.storage.source import Bytes, ByteSource, DeviceSource, FileIdentity

_SECTOR: Final = 512


class BadSectorSource(ByteSource):
    """A file of which some sectors cannot be read: they are given as zeros.

    A read that fails is halved until what fails is one sector of 512 bytes. `unreadable` has the start and end of each
    range that could not be read so far, in order, without overlaps. With `devices`, it may be a block device.
    """

    def __init__(self, path: str | os.PathLike[str], *, devices: bool = False) -> None:
        self._file = DeviceSource(path) if devices else open_source(path, memory_map=False)
        self.path, self.size, self.is_preallocated = self._file.path, self._file.size, self._file.is_preallocated
        self.identity: FileIdentity = self._file.identity  # type: ignore[attr-defined]
        self.unreadable: list[tuple[int, int]] = []

    def window(self, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop`; zeros where the disk cannot read them."""
        try:
            return self._file.window(start, stop)
        except FileChangedError:
            raise
        except ReadError:
            if self._file.fetches_ranges:
                raise  # a store has no sectors
            result: Bytes = empty(stop - start, np.uint8)
            self._fill(result, start, start, stop)
            result.flags.writeable = False
            return result

    def next_data(self, position: int) -> int:
        """See `ByteSource.next_data`."""
        return self._file.next_data(position)

    def next_hole(self, position: int) -> int:
        """See `ByteSource.next_hole`."""
        return self._file.next_hole(position)

    def is_unreadable(self, start: int, stop: int) -> bool:
        """Whether some of these bytes could not be read."""
        return any(begin < stop and start < end for begin, end in self.unreadable)

    def is_padding(self, start: int, stop: int) -> bool:
        """See `ByteSource.is_padding`: False if the disk cannot read some of it, which may have been anything."""
        return super().is_padding(start, stop) and not self.is_unreadable(start, stop)

    def check_unchanged(self) -> None:
        """Raise `FileChangedError` if the file has changed since it was opened."""
        self._file.check_unchanged()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _fill(self, result: Bytes, origin: int, start: int, stop: int) -> None:
        if start >= stop:
            return
        try:
            result[start - origin : stop - origin] = self._file.window(start, stop)
            return
        except FileChangedError:
            raise
        except ReadError:
            if start // _SECTOR == (stop - 1) // _SECTOR:
                result[start - origin : stop - origin] = 0
                self._note(start, stop)
                return
        # whole sectors on both sides: a disk cannot read half of one
        middle = max((start + stop) // 2 // _SECTOR, start // _SECTOR + 1) * _SECTOR
        self._fill(result, origin, start, middle)
        self._fill(result, origin, middle, stop)

    def _note(self, start: int, stop: int) -> None:
        if not self.unreadable or self.unreadable[-1][1] < start:
            self.unreadable.append((start, stop))
            return
        if self.unreadable[-1][1] == start:
            self.unreadable[-1] = (self.unreadable[-1][0], stop)
            return
        kept = []  # read again
        for begin, end in self.unreadable:
            if end < start or stop < begin:
                kept.append((begin, end))
            else:
                start, stop = min(start, begin), max(stop, end)
        self.unreadable = sorted([*kept, (start, stop)])
