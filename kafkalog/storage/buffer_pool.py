"""Memory for windows and columns that is reused once it is free: see `kafkalog._kernels.buffer_pool`."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.buffer_pool import Block

_SMALL = 2**16


def empty(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Like `np.empty`; arrays of 64 KiB or more reuse freed memory if there is any."""
    size = n * np.dtype(dtype).itemsize
    return np.empty(n, dtype) if size < _SMALL else np.frombuffer(cast(Any, Block(size)), dtype)
