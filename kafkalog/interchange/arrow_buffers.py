"""Reads the buffers of Arrow arrays as NumPy arrays, without copying where possible, and makes pandas objects of them.

Arrow's own `to_numpy`, and functions that take a Python value, import pandas if it is installed. `pyarrow.compute` is
slow to import too. Either import takes longer than a small command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog import format as kf
from kafkalog._kernels.columns import make_objects
from kafkalog.records.byte_columns import OUTSIDE_COLUMN

if TYPE_CHECKING:
    import pandas as pd

_OFFSETS: Final[dict[int, npt.DTypeLike]] = {pa.binary().id: np.int32, pa.large_binary().id: np.int64}
_NO_HEADERS: Final = np.empty(0, np.object_)
_NO_HEADERS.flags.writeable = False


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


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """int32[n] or int64[n]: dates, times or timestamps as numbers; any number for null."""
    n, data, width = len(array), array.buffers()[1], array.type.bit_width // 8
    return np.frombuffer(data, f"i{width}", n, array.offset * width) if n and data is not None else np.zeros(n, "i8")


def milliseconds(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """int64[n]: an array of ``timestamp[ms]`` as numbers, -1 for null."""
    stamps, valid = numbers_of(timestamps), validity(timestamps)
    return stamps if valid is None else np.where(valid, stamps, np.int64(kf.NO_TIMESTAMP))


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A record batch without rows. With it columns are checked even if there are no records."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def data_frame(table: pa.Table, **options: Any) -> pd.DataFrame:
    """The table as a `pandas.DataFrame`; `options` are those of `pyarrow.Table.to_pandas`.

    Byte strings become `bytes` and lists of headers arrays, as pyarrow makes them, but in a fraction of its time. Text
    columns, whose values repeat, become categorical. All records without headers share one empty array. Whole numbers
    with nulls become floats only if these hold them all, and never inside lists and structs.
    """
    import pandas as pd

    objects = {
        name: column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if column.type.id in _OFFSETS or (name == "headers" and pa.types.is_list(column.type))
    }
    rest = table.drop_columns(list(objects))
    options.setdefault("integer_object_nulls", any(map(_loses_digits, rest.columns)))
    if pa.binary_view() not in rest.schema.types:  # pyarrow would make those categorical, too
        options.setdefault("strings_to_categorical", True)
    frame = rest.to_pandas(**options) if rest.num_columns else pd.DataFrame(index=pd.RangeIndex(len(table)))
    for place, name in enumerate(table.column_names):
        if name in objects:
            values = np.empty(len(table), np.object_)
            row = 0
            for chunk in objects[name].chunks:
                _fill_objects(chunk, values[row : row + len(chunk)])
                row += len(chunk)
            frame.insert(place, name, pd.Series(values, index=frame.index, dtype=object, copy=False))
    return frame


def _loses_digits(column: pa.ChunkedArray) -> bool:
    """Whether a float column for numbers with nulls would round some."""
    if pa.types.is_nested(column.type):
        return True
    if not (pa.types.is_integer(column.type) and column.type.bit_width == 64 and column.null_count):
        return False
    least, most = pc.min_max(column).as_py().values()
    return least is not None and max(-least, most) > 2**53


def _fill_objects(array: pa.Array, values: npt.NDArray[np.object_]) -> None:
    n = len(array)
    if pa.types.is_list(array.type):
        # records without headers are usual: one array serves all of them
        values.fill(_NO_HEADERS)
        has_some = np.diff(array.offsets.to_numpy()) != 0
        if has_some.any():
            # runs of records with headers: pyarrow cannot take single ones of views
            bounds = np.flatnonzero(np.diff(has_some, prepend=False, append=False)).tolist()
            for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
                values[start:stop] = array.slice(start, stop - start).to_numpy(zero_copy_only=False)
        return
    valid = validity(array)
    dtype = np.dtype(_OFFSETS[array.type.id])
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, dtype, n + 1, array.offset * dtype.itemsize) if n else np.zeros(1, dtype)
    bytes_ = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    done = make_objects(
        places.astype(np.int64, copy=False), bytes_, None if valid is None else valid.view(np.uint8), values
    )
    if done != n:
        raise ValueError(OUTSIDE_COLUMN)
