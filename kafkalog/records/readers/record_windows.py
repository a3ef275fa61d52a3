"""Options for reading windows of records, and access to the columns that a kernel filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.header_rows import HeaderRows
from kafkalog._kernels.record_windows import RecordWindow, RecordWindows
from kafkalog.errors import Limits
from kafkalog.records.batch_columns import NEED_OFFSETS, Filled, Form, with_batch_columns
from kafkalog.records.batch_table import COLUMNS, BatchTable, ReadTable, Window, all_valid, filled_counts
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, ViewColumn
from kafkalog.records.columns import HEADERS, Column, RecordColumns
from kafkalog.records.gathering import GatheredRecords
from kafkalog.storage.source import NO_BYTES, Bytes

ALL_OFFSETS: Final = (-(2**63), 2**63 - 1)
_READ_BYTES: Final = 2**18  # read at a time: they stay in a core's cache until they are decoded


class BatchFields(NamedTuple):
    """Fields of record batches; see `kafkalog._kernels.record_windows.RecordWindows`."""

    fields: Sequence[tuple[int, Any]]
    schema: Any
    import_batch: Callable[[int, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions:
    names: Sequence[str]
    form: Form
    check_crcs: bool
    limits: Limits
    window_bytes: int
    """Decompressed bytes for which a window has room."""
    offsets: tuple[int, int]
    """Half-open range; a batch with other offsets ends a window."""
    stop_at: int = 0
    """Attribute bits of batches that end a window."""
    batch_fields: BatchFields | None = None
    """Fields of record batches, if requested instead of columns."""
    is_kept: bool = False
    """Whether the caller keeps all windows."""
    into: GatheredRecords | None = None
    """Records to which those of plain windows are appended, if requested instead of columns."""

    def windows(self) -> RecordWindows:
        """Memory for the windows of one thread."""
        limits, names = self.limits, set(self.names)
        if not NEED_OFFSETS.isdisjoint(names):
            names.add("offset")
        fields = self.batch_fields
        return RecordWindows(
            names,
            self.form,
            self.window_bytes,
            read_bytes=_READ_BYTES,
            max_batch_bytes=limits.max_batch_bytes,
            max_records=limits.max_records_per_batch,
            max_headers=limits.max_headers_per_record,
            max_batch_headers=limits.max_headers_per_batch,
            max_decompressed=limits.max_decompressed_bytes,
            check_crc=self.check_crcs,
            stop_at=self.stop_at,
            offsets=self.offsets,
            fields=() if fields is None else fields.fields,
            schema=None if fields is None else fields.schema,
            import_batch=None if fields is None else fields.import_batch,
            is_kept=self.is_kept,
        )

    def window(self, found: RecordWindow, start: int) -> Window:
        """A window with its batch table and columns, for callers that examine batches."""
        assert found.rows is not None
        data = NO_BYTES if found.data is None else _bytes(found.data)[: found.end_position - start]
        valid = all_valid(found.n_batches) if self.check_crcs else None
        batches = ReadTable(found.rows)
        if found.columns is not None:
            filled = Filled(found.n_batches, found.n_records, _columns(found, data))
            records = self._with_batch_columns(filled, batches, found.rows)
        else:
            records = RecordColumns.empty(self.names)
        return Window(data, start, batches, valid, records, found.next_offset)

    def _with_batch_columns(self, filled: Filled, batches: BatchTable, rows: HeaderRows) -> RecordColumns:
        is_usual = rows.magics == 1 << 2 and not rows.attribute_bits & kf.CONTROL_BIT
        of_records = (lambda: batches) if is_usual else partial(_of_records, batches, filled_counts(rows), filled)
        has_create_times = not (rows.magics & 1 or rows.attribute_bits & kf.TIMESTAMP_TYPE_BIT)
        names = self.names
        if rows.magics != 1 << 2 and "offset" in names:  # for callers that compare the order of offsets
            names = [*names, "batch_position"]
        return with_batch_columns(filled, of_records, names, has_create_times=has_create_times)


def _columns(found: RecordWindow, data: Bytes) -> dict[str, Column]:
    """The columns of a window, in the memory that the kernel filled."""
    buffers = (data,) if found.arena is None else (data, _bytes(found.arena))
    block: Any = found.block

    def array(place: tuple[str, int, int] | None) -> Any:
        return None if place is None else np.frombuffer(block, *place)

    columns: dict[str, Column] = {}
    for name, places in (found.columns or {}).items():
        if name in ("offset", "timestamp"):
            columns[name] = array(places)
        elif name == HEADERS:
            offsets, key, value = places
            keys, values = BinaryColumn(*map(array, key)), BinaryColumn(*map(array, value))
            has_some = len(keys) > 0
            columns[name] = (
                HeadersColumn(array(offsets), keys, values) if has_some else HeadersColumn.none(offsets[1] - 1)
            )
        elif len(places) == 3:
            columns[name] = BinaryColumn(*map(array, places))
        else:
            columns[name] = ViewColumn(array(places[0]), buffers, array(places[1]))
    return columns


def _bytes(data: Any) -> Bytes:
    return data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)


def _of_records(batches: BatchTable, n_filled: npt.NDArray[np.int32], filled: Filled) -> BatchTable:
    """The batches with records; adds counts and base offsets that v0 and v1 headers lack."""
    # v0 and v1 have a row per message: copying the table takes a tenth of the time
    if not n_filled.all():
        batches, n_filled = batches[n_filled > 0], n_filled[n_filled > 0]
    is_hidden = batches.records_count < 0
    if not is_hidden.any():
        return batches
    offset: Any = filled.columns.get("offset")
    base_offset = batches.base_offset
    if offset is not None:
        base_offset = base_offset.copy()
        base_offset[is_hidden] = offset[(np.cumsum(n_filled, dtype=np.int64) - n_filled)[is_hidden]]
    return BatchTable(
        **{name: getattr(batches, name) for name in COLUMNS} | {"records_count": n_filled, "base_offset": base_offset}
    )
