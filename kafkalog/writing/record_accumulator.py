"""Collects records until they fill batches: pieces of any size in, columns with batch boundaries out.

Batches do not depend on how a stream was divided into pieces, and small pieces cost no more than large ones. Mirrors a
producer's `RecordAccumulator` for one partition. This module does not encode batches.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.records.columns import BinaryColumn, HeadersColumn, RecordColumns
from kafkalog.records.encode import cut_batches

_STEP_BYTES: Final = 2**20
_TOGETHER: Final = 8


class Filled(NamedTuple):
    """Records of whole batches."""

    columns: RecordColumns
    boundaries: npt.NDArray[np.int64]
    """int64[n_batches + 1], as from `cut_batches`; rows after the last boundary belong to a later batch."""
    first_row: int
    """Number of records before the first of `columns`, counted over all pieces."""


class RecordAccumulator:
    """Collects records until they fill batches.

    Parameters
    ----------
    batch_size, max_records
        See `cut_batches`.

    Attributes
    ----------
    last_offset : int or None
        Offset of the last waiting record; None if none waits.

    Notes
    -----
    At most about one batch and one piece wait. Eight pieces of similar size are merged at a time: a record is copied
    only a few times, however small the pieces are, and the input's memory can be freed.
    """

    def __init__(self, *, batch_size: int, max_records: int | None = None) -> None:
        self.last_offset: int | None = None
        self._batch_size, self._max_records = batch_size, max_records
        self._enough = batch_size
        self._parts: list[RecordColumns] = []
        self._sizes: list[int] = []
        self._n_done = 0

    def add(self, piece: RecordColumns) -> Filled | None:
        """Add records, and return the batches that are full now; None if there are none.

        Parameters
        ----------
        piece : RecordColumns
            Must have the column `offset`.

        Raises
        ------
        UnwritableError
            See `cut_batches`; `row` counts from the first record of all pieces.
        """
        if not piece.n_records:
            return None
        self._keep(piece, _least_bytes(piece))
        # merge the last eight pieces only when they are of similar size: a record is then copied few times
        while len(self._parts) >= _TOGETHER and self._sizes[-_TOGETHER] < _TOGETHER * self._sizes[-1]:
            merged, size = RecordColumns.concatenate(self._parts[-_TOGETHER:]), sum(self._sizes[-_TOGETHER:])
            del self._parts[-_TOGETHER:], self._sizes[-_TOGETHER:]
            self._keep(merged, size)
        n_waiting, size = sum(part.n_records for part in self._parts), sum(self._sizes)
        if size < self._enough and (self._max_records is None or n_waiting <= self._max_records):
            return None
        filled = self._cut()
        boundaries = filled.boundaries[:-1]  # later records may still fit into the last batch
        rest = filled.columns.slice(int(boundaries[-1]), filled.columns.n_records)
        self._keep(rest, _least_bytes(rest))
        self._n_done += int(boundaries[-1])
        if boundaries.size > 1:
            self._enough = self._batch_size
            return filled._replace(boundaries=boundaries)
        self._enough = size + min(size, _STEP_BYTES)  # else every further piece would cut all waiting records again
        return None

    def finish(self) -> Filled | None:
        """Return the batches of all waiting records; None if none wait."""
        if not self._parts:
            return None
        filled = self._cut()
        self._n_done += filled.columns.n_records
        self._enough, self.last_offset = self._batch_size, None
        return filled

    def _keep(self, part: RecordColumns, size: int) -> None:
        self._parts.append(part)
        self._sizes.append(size)
        self.last_offset = int(part.offset[-1])

    def _cut(self) -> Filled:
        columns = RecordColumns.concatenate(self._parts)
        self._parts, self._sizes = [], []
        boundaries = cut_batches(
            columns, batch_size=self._batch_size, max_records=self._max_records, first_row=self._n_done
        )
        return Filled(columns, boundaries, self._n_done)


def _least_bytes(columns: RecordColumns) -> int:
    """A lower bound of the bytes of records in a batch, provided that null values span no bytes in their column."""
    size = columns.n_records * kf.MIN_RECORD_BYTES
    for column in columns.values():
        if isinstance(column, BinaryColumn):
            size += int(column.offsets[-1] - column.offsets[0])
        elif isinstance(column, HeadersColumn):
            first, last = column.offsets[0], column.offsets[-1]
            size += sum(int(part.offsets[last] - part.offsets[first]) for part in (column.key, column.value))
    return size
