"""Memory for windows and columns that is reused once it is free, or that grows: see `kafkalog._kernels.buffer_pool`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.buffer_pool import Block, Growing

_SMALL = 2**16


def empty(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Like `np.empty`; arrays of 64 KiB or more reuse freed memory if there is any."""
    # below that the allocator's own caches are as fast
    size = n * np.dtype(dtype).itemsize
    if size < _SMALL:
        return np.empty(n, dtype)
    block: Any = Block(size)
    return np.frombuffer(block, dtype)


class GrowingArray:
    """An array that is made of parts that come one by one; memory holds it and one part.

    `expected` is about how many elements there will be. The elements are those of `growing`, if there is one: a kernel
    may append to it, too.
    """

    def __init__(self, dtype: npt.DTypeLike, expected: float = 0, growing: Any = None) -> None:
        self._dtype = np.dtype(dtype)
        self.growing: Any = Growing(int(expected) * self._dtype.itemsize) if growing is None else growing

    def __len__(self) -> int:
        return len(self.growing) // self._dtype.itemsize

    def extend(self, n: int) -> npt.NDArray[Any]:
        """Room for `n` more elements, not initialised; to be filled and forgotten before the next call."""
        start = self.growing.extend(n * self._dtype.itemsize)
        return np.frombuffer(self.growing, self._dtype, n, start) if n else np.empty(0, self._dtype)

    def finish(self) -> npt.NDArray[Any]:
        """The array; nothing may be added after that."""
        if not len(self.growing):
            return np.empty(0, self._dtype)
        self.growing.trim()
        return np.frombuffer(self.growing, self._dtype)
