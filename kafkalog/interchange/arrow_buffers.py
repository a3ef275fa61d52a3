"""Reads the buffers of Arrow arrays as NumPy arrays, without copying where possible.

Arrow's own `to_numpy`, and functions that take a Python value, import pandas if it is installed. `pyarrow.compute` is
slow to import too. Either import takes longer than a small command.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog import format as kf


def validity(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """bool[n]: which values are not null; None if none is null."""
    n = len(array)
    if not n or not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:  # an array of type null
        return np.zeros(n, np.bool_)
    first = array.offset // 8
    bits = np.frombuffer(bitmap, np.uint8, (array.offset + n + 7) // 8 - first, first)
    shift = array.offset % 8
    return np.unpackbits(bits, bitorder="little")[shift : shift + n].view(np.bool_)


def milliseconds(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """int64[n]: an array of ``timestamp[ms]`` as numbers, -1 for null."""
    n, data = len(timestamps), timestamps.buffers()[1]
    stamps = np.zeros(n, np.int64)
    if n and data is not None:
        stamps = np.frombuffer(data, np.int64, n, timestamps.offset * 8)
    valid = validity(timestamps)
    return stamps if valid is None else np.where(valid, stamps, np.int64(kf.NO_TIMESTAMP))


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A record batch without rows. With it columns are checked even if there are no records."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
