"""Read the bytes of a file in windows, with `pread` or from memory; a file may also be mapped.

A source remembers the size and the identity of the file it opened, and raises `FileChangedError` if the file changes
while it is read. It never looks the path up a second time. Touching a mapped file beyond its end kills the process, so
pages are populated before they are used: if the file shrank, that fails, and the window is read to report it.
Mirrors the reading half of Kafka's `FileRecords`; knows nothing about batches.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.buffer_pool import populate
from kafkalog.errors import FileChangedError, ReadError, Reason
from kafkalog.storage.buffer_pool import empty

Bytes = npt.NDArray[np.uint8]
NO_BYTES: Final[Bytes] = np.empty(0, np.uint8)
NO_BYTES.flags.writeable = False

_WINDOW_BYTES = 2**22  # read at a time to look for other bytes than padding
_LEAST_MAPPED = 2**20  # mapping and unmapping a smaller file takes longer than copying it
_BLOCK = 512  # unit of `st_blocks`, in bytes
_LEAST_BATCH = 26  # bytes of the smallest message
# O_NONBLOCK: a FIFO that is named like a segment must not hang us. Windows has other flags
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_HAS_PREAD = hasattr(os, "preadv")
_RECENT_SECONDS = 2.0  # a file modified this recently is assumed to be still written to
_FIRST_PAUSE_SECONDS = 0.001
_APPEND_ATTEMPTS = 8  # a quarter of a second
_PATIENCE_SECONDS = 1.0  # total pauses for one file, so that a file with much damage does not cause many waits


class FileIdentity(NamedTuple):
    """Identifies a file and its state: device, inode, size in bytes, modification time in ns."""

    device: int
    inode: int
    size: int
    modified_ns: int


def is_padding(data: Bytes) -> bool:
    """Whether bytes are those of a part of a file that was allotted ahead, and not written yet: zeros."""
    return not data.any()


class ByteSource(ABC):
    """A sequence of bytes that is read in windows."""

    path: str | None
    """The file, for messages; may be None for bytes in memory."""
    size: int
    """Size in bytes when opened; a file that grows while it is read is read up to here."""
    is_preallocated: bool = False
    """Whether the file was created at its full size and filled later (`preallocate=true`). A broker may write batches
    into the zeros at its end while it is read, and cuts off the remaining zeros when it rolls the segment."""
    is_in_memory: bool = False
    """Whether windows are the bytes themselves: they cost nothing until they are touched."""
    fetches_ranges: bool = False
    """Whether each window is a request that takes time, as in an object store (`RangeSource`)."""
    descriptor: int | None = None
    """File descriptor that compiled code may `pread` from; None if windows have to be used."""

    @abstractmethod
    def window(self, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop` as a read-only uint8 array, valid until `release` is called with it.

        Raises FileChangedError if the file shrank, or its content changed, since it was opened; ReadError if it is
        unreadable.
        """

    def next_data(self, position: int) -> int:
        """Where bytes begin, at or after a position, that are not in a hole of a sparse file, which reads as zeros."""
        return position

    def next_hole(self, position: int) -> int:
        """Where a hole begins, at or after a position; the size of the file if it has none there."""
        return self.size

    def data_end(self) -> int:
        """A position from which on the file is a hole; its size if it does not end with one."""
        return self.size

    def is_padding(self, start: int, stop: int) -> bool:
        """Whether all bytes of a range are those of `is_padding`. Holes of a sparse file are not read."""
        while (start := self.next_data(start)) < stop:
            end = min(start + _WINDOW_BYTES, stop)
            data = self.window(start, end)
            has_others = not is_padding(data)
            self.release(data, start)
            if has_others:
                return False
            start = end
        return True

    def release(self, window: Bytes, start: int) -> None:  # noqa: B027 - nothing to do is a proper answer
        """Release a window that is no longer needed, so that its mapped pages may leave memory."""

    def plan(self, start: int, stop: int) -> None:  # noqa: B027
        """Expect reads from one position up to another, in order; what takes time to fetch may be fetched ahead."""

    def check_unchanged(self) -> None:  # noqa: B027
        """Raise `FileChangedError` if the file has changed since it was opened."""

    def mapping(self, *, for_views: bool = False) -> Bytes | None:
        """The whole file, mapped; None if it is to be read. Its pages have to be populated before they are touched.

        `for_views` says that the bytes are used after their window was decoded.
        """
        return None

    def is_being_written(self) -> bool:
        """Whether the file is preallocated and was modified within the last seconds, or since it was opened."""
        return False

    def await_writer(self, position: int) -> bool:
        """Pause if the bytes at a position may be half written; returns whether to read them again."""
        return False

    def follow_cut(self, position: int) -> bool:
        """Adopt the new size of a preallocated file that was cut at or after a position; returns whether it was cut."""
        return False

    def close(self) -> None:  # noqa: B027
        """Close the file. Windows returned before stay valid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path or 'buffer'!r}, size={self.size})"

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"window {start}:{stop} lies outside 0:{self.size}")


class BufferSource(ByteSource):
    """Anything with the buffer protocol, not copied; `path` is a name for messages."""

    is_in_memory = True

    def __init__(self, data: Any, *, path: str | None = None) -> None:
        view = memoryview(data)
        self._data = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
        self._data.flags.writeable = False
        self.size = self._data.size
        self.path = path

    def window(self, start: int, stop: int) -> Bytes:
        self._check_range(start, stop)
        return self._data[start:stop]


def _back_off(n_before: int) -> float:
    """Pause, twice as long as the time before; returns how long."""
    pause: float = _FIRST_PAUSE_SECONDS * 2**n_before
    time.sleep(pause)
    return pause


class FileSource(ByteSource):
    """A file, read with `pread`; windows reuse memory.

    It may also be mapped: always (True), or only to copy from it at once ("auto").
    """

    def __init__(self, path: str | os.PathLike[str], *, memory_map: bool | str = False, devices: bool = False) -> None:
        self.path = os.fspath(path)
        self._memory_map = memory_map
        self._mapping: Bytes | None = None
        self._descriptor, status = open_regular(self.path, devices=devices)
        self.descriptor = self._descriptor if _HAS_PREAD else None
        self.identity = FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        self.size = status.st_size
        # sparse, as `setLength` leaves it; Windows does not tell
        self.is_preallocated = getattr(status, "st_blocks", status.st_size) * _BLOCK < status.st_size
        self._waited_at, self._n_waits, self._patience = -1, 0, _PATIENCE_SECONDS
        self._extent = 0, 0  # bytes that are known to be in no hole
        self._lock = threading.Lock()
        self._closed = False
        self._ends_in_zeros = not self.is_preallocated and self._zeros_at_end()

    def check_unchanged(self) -> None:
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        # the name of a file may lead elsewhere by now: so the open file is checked
        now = os.fstat(self._descriptor)
        # a file that has grown is no problem: nothing is read beyond the size it had
        if now.st_size < self.size:
            raise FileChangedError(
                Reason.FILE_CHANGED, f"shrank from {self.size} to {now.st_size} bytes while it was read", path=self.path
            )
        if self.is_preallocated or now.st_size != self.size or now.st_mtime_ns == self.identity.modified_ns:
            return
        if self._ends_in_zeros:
            self.is_preallocated = True
        elif not self._grows():
            raise FileChangedError(Reason.FILE_CHANGED, "was written to while it was read", path=self.path)

    def _grows(self) -> bool:
        """Whether bytes are just being appended: the system sets the time before it writes, and the size after it."""
        for attempt in range(_APPEND_ATTEMPTS):
            _back_off(attempt)
            if os.fstat(self._descriptor).st_size > self.size:
                return True
        return False

    def _zeros_at_end(self) -> bool:
        """Whether zeros in which a batch fits are at the end: once its last block is written, no file is sparse."""
        end = bytearray(min(_LEAST_BATCH, self.size))
        try:
            self._read_at(memoryview(end), self.size - len(end))
        except OSError:
            return False  # who reads it finds that out
        # as `is_padding`; each file that is opened comes here
        return len(end) == _LEAST_BATCH and not any(end)

    def _read_at(self, room: memoryview, position: int) -> int:
        """Read bytes at a position into a buffer; returns how many, at least 1 before the end of the file."""
        if _HAS_PREAD:
            return os.preadv(self._descriptor, [room], position)
        # without preadv, threads share the position of the descriptor
        with self._lock:
            os.lseek(self._descriptor, position, os.SEEK_SET)
            data = os.read(self._descriptor, len(room))
        room[: len(data)] = data
        return len(data)

    def _copy(self, start: int, stop: int) -> Bytes:
        """Read bytes into memory that is used again for other windows."""
        result: Bytes = empty(stop - start, np.uint8)
        view = memoryview(result)
        done = 0
        # one call may return fewer bytes than asked for: more than 2 GiB, or a signal
        while done < len(view):
            try:
                n = self._read_at(view[done:], start + done)
            except OSError as error:
                raise ReadError.of(error, self.path, start + done) from error
            if n == 0:
                raise FileChangedError(
                    Reason.FILE_CHANGED, f"ends at byte {start + done}, but had {self.size} bytes", path=self.path
                )
            done += n
        result.flags.writeable = False
        return result

    def is_being_written(self) -> bool:
        if not self.is_preallocated:
            return False
        # a clock that runs late gives times in the future: those count as recent, too
        modified_ns = os.fstat(self._descriptor).st_mtime_ns
        return modified_ns != self.identity.modified_ns or abs(time.time() - modified_ns / 1e9) < _RECENT_SECONDS

    def await_writer(self, position: int) -> bool:
        if self._patience <= 0 or not self.is_being_written():
            return False
        # Writing a page takes microseconds, but the writer may be descheduled between two pages: back off
        self._n_waits = self._n_waits + 1 if position == self._waited_at else 0
        self._waited_at = position
        self._patience -= _back_off(self._n_waits)
        return True

    def follow_cut(self, position: int) -> bool:
        size = os.fstat(self._descriptor).st_size
        # a cut of so few bytes takes no whole batch along
        is_known = self.is_preallocated or self._ends_in_zeros or self.size - size < _LEAST_BATCH
        if not is_known or not position <= size < self.size:
            return False
        self.size, self.is_preallocated = size, True
        return True

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed, self._mapping = True, None
                os.close(self._descriptor)

    def __del__(self) -> None:
        # During interpreter shutdown the modules that `close` needs may be gone; the descriptor is closed anyway
        if getattr(self, "_closed", True) is False and not sys.is_finalizing():
            self.close()

    def next_data(self, position: int) -> int:
        """See `ByteSource.next_data`; the position itself where the system does not tell of holes."""
        if not hasattr(os, "SEEK_DATA") or self._extent[0] <= position < self._extent[1]:
            return position
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            # a hole up to the end of the file, unless the file was cut: then reading there finds that out
            is_hole = error.errno == errno.ENXIO and os.fstat(self._descriptor).st_size >= self.size
            return max(position, self.size) if is_hole else position

    def next_hole(self, position: int) -> int:
        """See `ByteSource.next_hole`."""
        start, hole = self._extent
        if start <= position < hole:
            return min(hole, self.size)
        try:
            hole = min(os.lseek(self._descriptor, position, os.SEEK_HOLE), self.size)
        except (OSError, AttributeError):
            return self.size
        # file systems look through all data up to a hole: for each window of a large file, that would take long
        self._extent = position, hole
        return hole

    def data_end(self) -> int:
        if not self.is_preallocated:
            return self.size
        end = 0
        try:
            while (position := self.next_data(end)) < self.size:
                end = os.lseek(self._descriptor, position, os.SEEK_HOLE)
        except (OSError, AttributeError):
            return self.size
        return min(end, self.size)

    def window(self, start: int, stop: int) -> Bytes:
        self._check_range(start, stop)
        # before each window: bytes of a file that was changed meanwhile must not be mixed with those read before
        self.check_unchanged()
        return self._copy(start, stop)

    def mapping(self, *, for_views: bool = False) -> Bytes | None:
        """See `ByteSource.mapping`. A preallocated file is not mapped, since its broker cuts it."""
        if not self._memory_map or self.is_preallocated or (for_views and self._memory_map == "auto"):
            return None
        if self._mapping is None and (self.size >= _LEAST_MAPPED or self._memory_map is True):
            with contextlib.suppress(OSError, ValueError):
                mapped = np.frombuffer(mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ), np.uint8)
                # systems that cannot populate would end the process
                self._mapping = mapped if populate(mapped[:1]) else None
        if self._mapping is None:
            self._memory_map = False
        return self._mapping


class DeviceSource(FileSource):
    """A block device, or the image of one. Somebody may write to it while it is read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, devices=True)
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)  # the status of a device has no size
        self.is_preallocated = False

    def check_unchanged(self) -> None:
        """Do nothing: who uses its bytes compares checksums."""


def open_regular(path: str, *, devices: bool = False) -> tuple[int, os.stat_result]:
    """Open a regular file, or a block device; raises ReadError."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise ReadError.of(error, path) from error
    status = os.fstat(descriptor)
    if not (stat.S_ISREG(status.st_mode) or (devices and stat.S_ISBLK(status.st_mode))):
        os.close(descriptor)
        named = "; name the image of a disk, or a device, such as disk.img or /dev/sdb1" if devices else ""
        raise ReadError(Reason.NOT_A_FILE, f"not a regular file{named}", path=path)
    return descriptor, status
