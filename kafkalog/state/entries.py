"""Columns of numbers to the entries of a file with a fixed dtype, and such a file as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import numpy.typing as npt

from kafkalog.html import Leading, PublicType
from kafkalog.parsing import datetime64_milliseconds, parse_time

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_ENTRIES: Final = "the attribute `entries` is the big-endian array of the file"
_INT64: Final = np.iinfo(np.int64)


class WrittenWhole(Leading, metaclass=PublicType):
    """An index or a snapshot: an array of entries that can be written as a new file.

    ``index["offset"]`` and ``index.offset`` are a column; other indexes take entries, as of `to_numpy`.
    """

    __slots__ = ()
    _led = ("open", "from_columns", "build", "check")
    _led_untyped = ("lookup", "floor", "to")

    entries: npt.NDArray[np.void]

    def __len__(self) -> int:
        return self.entries.size

    @overload
    def __getitem__(self, item: int) -> np.void: ...

    @overload
    def __getitem__(self, item: str | slice | Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[Any]: ...

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            columns = self.columns()
            if item not in columns:
                raise KeyError(f"no column {item!r} here; there are {', '.join(columns)}")
            return columns[item]
        entries = self.entries[item]
        return entries.astype(entries.dtype.newbyteorder("="))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The entries as contiguous native columns, offsets absolute."""
        return {name: self.to_numpy()[name].copy() for name in self.entries.dtype.names or ()}

    def to_numpy(self) -> npt.NDArray[np.void]:
        """The entries as a structured array in the machine's byte order, which numba takes; offsets as in the file.

        `entries` are those of the file, big-endian, without a copy.
        """
        return self.entries.astype(self.entries.dtype.newbyteorder("="))

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the entries."""
        return self.entries.nbytes

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in (object.__getattribute__(self, "entries").dtype.names or ()) and not name.startswith(
                "relative_"
            ):
                return self.columns()[name]
            return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.columns()]

    def to_arrow(self) -> pa.Table:
        """A `pyarrow.Table` of `columns`."""
        import pyarrow as pa

        return pa.table(self.columns())

    def to_pandas(self) -> pd.DataFrame:
        """A `pandas.DataFrame` of `columns`."""
        return self.to_arrow().to_pandas()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f"entries become an array in the machine's byte order by a copy; {_ENTRIES}")
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype)

    def tobytes(self) -> bytes:
        """The content of the file."""
        raise NotImplementedError

    def tofile(self, path: str | os.PathLike[str]) -> None:
        """Write a new file, without padding; raises OutputExistsError rather than replace one.

        `kafkalog.reindex` rebuilds the files of a log, and replaces them in place.
        """
        from kafkalog.storage.staging import staged_file  # needs locks, which reading does without

        with staged_file(path) as file:
            file.write(self.tobytes())


def integers(values: npt.ArrayLike, expected: str = "offsets are whole numbers") -> npt.NDArray[np.int64]:
    """Queries as an int64 array; a number beyond int64 becomes its nearest end. Raises TypeError for other types."""
    array = _whole_numbers(values, expected)
    return array if array.dtype == np.int64 else np.clip(array, _INT64.min, _INT64.max).astype(np.int64)


def times(values: npt.ArrayLike, *, is_rounded_up: bool = True) -> npt.NDArray[np.int64]:
    """Queries as an int64 array of milliseconds, like `integers`; also datetime64 in UTC and aware datetimes."""
    array = np.asarray(values)
    if array.dtype.kind == "O" and any(isinstance(value, datetime) for value in array.flat):
        moments = [_datetime64(value) for value in array.flat]
        array = np.array(moments, "datetime64").reshape(array.shape)
    if array.dtype.kind == "M":
        return np.asarray(datetime64_milliseconds("timestamp", array, is_rounded_up=is_rounded_up))
    return integers(values, "times are milliseconds, datetime64 or aware datetimes")


def _datetime64(value: object) -> np.datetime64:
    """A `datetime`, or a `pandas.Timestamp`, which has nanoseconds."""
    if value != value:
        return np.datetime64("NaT")
    if not isinstance(value, datetime):
        raise TypeError(f"times are milliseconds, datetime64 or aware datetimes, and not mixed: {value!r}")
    whole = parse_time("timestamp", value)
    assert isinstance(whole, datetime)
    exact = getattr(whole, "to_datetime64", None)  # of pandas
    return np.datetime64(whole.astimezone(UTC).replace(tzinfo=None)) if exact is None else exact()


def _whole_numbers(values: npt.ArrayLike, expected: str) -> npt.NDArray[Any]:
    """An array of int64, of uint64, or of Python's integers if they fit neither."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and not hasattr(values, "dtype"):
        exact = np.asarray(values, object)  # NumPy makes floats of integers that are partly beyond int64
        array = exact if exact.size else array
    if array.dtype.kind == "O" and all(
        isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in array.flat
    ):
        return array
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{expected}, not {np.asarray(values).dtype}")
    return array if array.dtype == np.uint64 else array.astype(np.int64, copy=False)


def _column(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """The numbers of a column, exact."""
    return times(values) if np.asarray(values).dtype.kind == "M" else _whole_numbers(values, f"{name}: whole numbers")


def entries_of(
    owner: str, dtype: np.dtype[np.void], columns: Mapping[str, npt.ArrayLike], base_offset: int = 0
) -> npt.NDArray[np.void]:
    """Return entries of `dtype` with these columns; offsets whose field is relative are those above `base_offset`.

    All fields need a column of the same length, except for `version`, which is 0. Raises TypeError or ValueError with
    `owner`, the class that makes the entries.
    """
    fields = {name.removeprefix("relative_"): name for name in dtype.names or ()}
    if "version" not in columns:
        fields.pop("version", None)
    if columns.keys() != fields.keys():
        raise TypeError(f"the columns of {owner} are {', '.join(fields)}, not {', '.join(columns) or 'none'}")
    arrays = {name: _column(name, values) for name, values in columns.items()}
    sizes = {array.shape for array in arrays.values()}
    if len(sizes) != 1 or len(shape := sizes.pop()) != 1:
        raise ValueError(f"the columns have the sizes {', '.join(str(array.size) for array in arrays.values())}")
    entries: npt.NDArray[Any] = np.zeros(shape, dtype)
    for name, array in arrays.items():
        field = fields[name]
        base = base_offset if field != name else 0
        limits = np.iinfo(dtype[field])
        if array.size and not limits.min <= int(array.min()) - base <= int(array.max()) - base <= limits.max:
            raise ValueError(f"{name} does not fit the {dtype[field].itemsize} bytes of its field")
        entries[field] = array.astype(np.int64) - base
    return entries
