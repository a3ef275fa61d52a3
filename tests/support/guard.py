"""Buffers between pages that nobody may touch: a kernel that reads a byte too far dies at once, on any build.

A sanitizer does not see the byte behind `bytes` (it is the object's own NUL) or inside an arena; the machine sees this.
"""

import ctypes
import mmap
import os

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0


class Guard:
    """Room for one input of so many bytes, with a page without access on either side; used for many inputs."""

    def __init__(self, capacity=256 * 1024):
        pages = max(1, -(-capacity // _PAGE))
        self.capacity = pages * _PAGE
        self._mapping = mmap.mmap(-1, self.capacity + 2 * _PAGE)
        whole = np.frombuffer(self._mapping, np.uint8)
        self.room = whole[_PAGE : _PAGE + self.capacity]
        for address in (whole.ctypes.data, self.room.ctypes.data + self.capacity):
            _protect(address)

    def ending(self, data):
        """A copy of `data` whose last byte is the last one that may be touched; valid until the next call."""
        given = np.frombuffer(data, np.uint8)
        target = self.room[self.capacity - given.size :]
        target[:] = given
        return target

    def starting(self, data):
        """A copy of `data` whose first byte is the first one that may be touched; valid until the next call."""
        given = np.frombuffer(data, np.uint8)
        target = self.room[: given.size]
        target[:] = given
        return target


def _protect(address):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(address, _PAGE, _NO_ACCESS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_shared = Guard()


def guarded(data, *, at_start=False):
    """A copy of `data` that ends (or starts) where access ends, in a buffer that the next call overwrites."""
    global _shared
    if len(data) > _shared.capacity:
        _shared = Guard(2 * len(data))
    return _shared.starting(data) if at_start else _shared.ending(data)
