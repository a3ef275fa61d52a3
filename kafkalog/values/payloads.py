"""`Payloads`: byte strings as positions in one buffer; and `DecodedValues`: values with reasons for failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.table_types import LostValues, Path, field_name

Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class Payloads:
    data: npt.NDArray[np.uint8]
    start: Rows
    stop: Rows
    """int64[n]: start and end of each; both are -1 for null."""

    @classmethod
    def of(cls, array: pa.Array) -> Self:
        """The byte strings of an Arrow array of `binary`, `large_binary` or `binary_view`."""
        if array.type not in (pa.binary(), pa.large_binary()):
            array = array.cast(pa.large_binary())
        n, (_, offsets, data) = len(array), array.buffers()
        if not n or offsets is None:
            return cls(np.empty(0, np.uint8), np.full(n, -1, np.int64), np.full(n, -1, np.int64))
        kind = np.int32 if array.type == pa.binary() else np.int64
        bounds = np.frombuffer(offsets, kind, n + 1, array.offset * np.dtype(kind).itemsize).astype(np.int64)
        start, stop = bounds[:-1].copy(), bounds[1:].copy()
        valid = validity(array)
        if valid is not None:
            start[~valid] = stop[~valid] = -1
        return cls(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), start, stop)

    def __len__(self) -> int:
        return self.start.size

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """bool[n]: which are not null."""
        return self.start >= 0

    def take(self, rows: npt.NDArray[Any]) -> Payloads:
        return Payloads(self.data, self.start[rows], self.stop[rows])

    def bytes(self, row: int) -> bytes | None:
        start = int(self.start[row])
        return None if start < 0 else self.data[start : int(self.stop[row])].tobytes()

    def gather(self, rows: Rows, at: int, n: int) -> npt.NDArray[np.uint8]:
        """uint8[m, n]: the `n` bytes at position `at` of some byte strings, which must be long enough."""
        found: npt.NDArray[np.uint8] = self.data[(self.start[rows] + at)[:, None] + np.arange(n)]
        return found

    def packed(self) -> tuple[Rows, npt.NDArray[np.uint8]]:
        """Offsets (int64[n + 1]) and bytes of the same byte strings one after another; null is empty."""
        sizes = self.stop - self.start
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        # without nulls and frames, the bytes are contiguous
        if len(self) and (self.start[1:] == self.stop[:-1]).all() and self.start[0] >= 0:
            return offsets, self.data[self.start[0] : self.stop[-1]]
        parts = [self.data[a:b] for a, b in zip(self.start.tolist(), self.stop.tolist(), strict=True) if b > a]
        return offsets, np.concatenate(parts) if parts else np.empty(0, np.uint8)


Faults = list[tuple[Path, str]]
"""The fields of a value that do not decode, with reasons; in a reason, ``{}`` stands for the field."""
_MOST_FAULTS: Final = 5


def faults_text(faults: Faults) -> str:
    """The faults of a value, such as ``a.b: text that is not UTF-8``; only the first ones if there are many."""
    texts = dict.fromkeys(_fault_text(field_name(path) or "the value", why) for path, why in faults)
    return "; ".join([*texts][:_MOST_FAULTS]) + ("; ..." if len(texts) > _MOST_FAULTS else "")


def _fault_text(name: str, why: str) -> str:
    return why.replace("{}", name) if "{}" in why else f"{name}: {why}"


@dataclass(slots=True)
class DecodedValues:
    """A column of values."""

    array: pa.Array
    """Null for null, and for values that do not decode."""
    failures: dict[int, str] = field(default_factory=dict)
    """Reason for each row that did not decode."""
    faults: dict[int, str] = field(default_factory=dict)
    """For each row with fields that did not decode and are null: which, and why."""
    lost: list[LostValues] = field(default_factory=list)
    """Parts of decoded values that the array cannot hold."""
