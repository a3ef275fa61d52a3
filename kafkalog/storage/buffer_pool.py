"""Memory for windows and columns that is used again when it is free: see `kafkalog._kernels.buffer_pool`."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.buffer_pool import Block

_SMALL = 2**16


def empty(n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """`np.empty`, out of memory that was used before if there is any."""
    size = n * np.dtype(dtype).itemsize
    return np.empty(n, dtype) if size < _SMALL else np.frombuffer(cast(Any, Block(size)), dtype)
