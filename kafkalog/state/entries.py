"""Columns of numbers to the entries of a file with a fixed dtype, and such a file as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import numpy.typing as npt

from kafkalog.html import PublicNames
from kafkalog.parsing import datetime64_milliseconds

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_ENTRIES: Final = "the attribute `entries` is the big-endian array of the file"


class WrittenWhole(PublicNames):
    """An index or a snapshot: an array of entries that can be written as a new file.

    ``index["offset"]`` and ``index.offset`` are a column; other indexes take entries, as of `to_numpy`.
    """

    __slots__ = ()

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


def integers(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Queries as an int64 array. Raises TypeError for floats and dates."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"whole numbers are expected (times in milliseconds), not {array.dtype}")
    return array.astype(np.int64, copy=False)


def times(values: npt.ArrayLike, *, is_rounded_up: bool = True) -> npt.NDArray[np.int64]:
    """Queries as an int64 array of milliseconds; like `integers`, and datetime64 is a time in UTC."""
    array = np.asarray(values)
    if array.dtype.kind == "M":
        array = np.asarray(datetime64_milliseconds("timestamp", array, is_rounded_up=is_rounded_up))
    return integers(array)


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
    arrays = {name: integers(values) for name, values in columns.items()}
    sizes = {array.shape for array in arrays.values()}
    if len(sizes) != 1 or len(shape := sizes.pop()) != 1:
        raise ValueError(f"the columns have the sizes {', '.join(str(array.size) for array in arrays.values())}")
    entries: npt.NDArray[Any] = np.zeros(shape, dtype)
    for name, array in arrays.items():
        field = fields[name]
        stored = array - base_offset if field != name else array
        limits = np.iinfo(dtype[field])
        if stored.size and not limits.min <= stored.min() <= stored.max() <= limits.max:
            raise ValueError(f"{name} does not fit the {dtype[field].itemsize} bytes of its field")
        entries[field] = stored
    return entries
