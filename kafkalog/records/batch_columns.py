"""Columns of decoded records, joined by those that have one value per batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.records.batch_table import BatchTable, create_time_types, sequences
from kafkalog.records.columns import FIXED_COLUMNS, Column, RecordColumns
from kafkalog.records.spans import record_counts

Form = Literal["numpy", "arrow", "views"]
"""The form of byte strings: with int64 offsets, with int32 offsets, or as views into the window."""


class Filled(NamedTuple):
    """What one call filled."""

    n_batches: int
    """Batches done; 0 if the first one is unusual or damaged."""
    n_records: int
    columns: dict[str, Column]
    """`offset`, `timestamp`, `key`, `value` and `headers`, as far as they are wanted."""


def batch_column(name: str, batches: BatchTable) -> npt.NDArray[Any]:
    """A column with one value per batch, in the dtype of the record column of this name."""
    of_batch: npt.NDArray[Any] = getattr(batches, _BATCH_COLUMN.get(name, name))
    return of_batch.astype(FIXED_COLUMNS[name], copy=False)


_BATCH_COLUMN = {
    "leader_epoch": "partition_leader_epoch",
    "compression": "codec",
    "batch_base_offset": "base_offset",
    "batch_position": "position",
}


NEED_OFFSETS: Final = frozenset(("offset", "sequence", "batch_base_offset"))


def with_batch_columns(
    filled: Filled,
    of_records: Callable[[], BatchTable],
    names: Sequence[str],
    *,
    has_create_times: bool = False,
    batch_rows: Callable[[], npt.NDArray[np.int64]] | None = None,
) -> RecordColumns:
    """The columns that were filled of some batches, and those with one value per batch, in the order of their names.

    Both functions are called if a column needs them: `of_records` returns the batches that have records, `batch_rows`
    the row there of each record, if not all records of these batches were filled in.
    """
    columns: dict[str, Column] = {}
    batches: BatchTable | None = None
    batch_row: npt.NDArray[np.int64] | None = None
    n = filled.n_records
    for name in names:
        if name in filled.columns and name != "sequence":
            columns[name] = filled.columns[name]
            continue
        if name == "timestamp_type" and has_create_times:
            columns[name] = create_time_types(n)
            continue
        if batches is None:
            batches = of_records()
        of_batch = batches.base_sequence if name == "sequence" else batch_column(name, batches)
        if name != "sequence" and (of_batch[0] == of_batch).all():
            columns[name] = np.full(n, of_batch[0], of_batch.dtype)
            continue
        if batch_row is None:
            counts = record_counts(batches, filled.n_batches)
            batch_row = np.repeat(np.arange(counts.size), counts) if batch_rows is None else batch_rows()
        if name == "sequence":
            columns[name] = sequences(filled.columns["offset"], batches, batch_row)  # type: ignore[arg-type]
        else:
            columns[name] = of_batch[batch_row]
    return RecordColumns(n, columns, is_known=True)
