"""Encode record columns as v2 batches: choose batch boundaries, write headers and records, compress.

The counterpart of `kafkalog.records.decode`: takes the columns that decoding returns. Without compression, the bytes
equal those of Kafka's `MemoryRecordsBuilder` for the same records and boundaries; with compression, the frames are
those of Kafka's writers. This module does not know segments or files. It does not write formats v0 and v1.
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.encode as kernels
from kafkalog import format as kf
from kafkalog._kernels.batch_spec import Heads, write_heads
from kafkalog.errors import DEFAULT_LIMITS, Reason
from kafkalog.records.batch_spec import BatchSpec, Int64s, complete_heads, heads_of, unwritable
from kafkalog.records.batch_table import BatchTable, Window, table_of
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, ViewColumn, as_binary
from kafkalog.records.codecs import UNCOMPRESSED, Arena, Compression
from kafkalog.records.columns import RecordColumns, is_masked
from kafkalog.records.compress import compressor
from kafkalog.records.spans import scratch
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import Bytes

MAX_BATCH_BYTES: Final = 2**31 - 1
"""Largest batch: its size field is a signed 32-bit integer."""

_OK = kernels.STATUSES["OK"]
_GROUP_BYTES = 2**20  # bytes of records to compress at a time: few calls, but still in a core's cache


def cut_batches(
    columns: RecordColumns,
    *,
    batch_size: int,
    max_records: int | None = None,
    any_header_keys: bool = False,
    first_row: int = 0,
) -> Int64s:
    """Choose batch boundaries as a producer does when it fills batches of `batch_size` bytes (its `batch.size`).

    Returns int64[n_batches + 1]: batch `i` has the rows ``boundaries[i]:boundaries[i + 1]``; none is empty. A record
    that no longer fits, uncompressed, begins the next batch, and so does one larger than `batch_size`. A batch has at
    most `max_records`, by default as many as the default `Limits` allow to read. It also ends before an offset more
    than 2^31 - 1 above its first one. For a record larger than `batch_size`, a producer's buffer has room for the
    longest record header possible, so a tiny record can still fit after it.

    Raises UnwritableError if a record cannot be written, or the offsets do not increase; `row` is the record's row,
    counted from `first_row`.

    Source: MemoryRecordsBuilder.hasRoomFor, RecordAccumulator.append, Kafka 4.3.
    """
    if not 0 <= batch_size <= MAX_BATCH_BYTES:
        raise ValueError(f"batch_size is 0 to {MAX_BATCH_BYTES}, not {batch_size}")
    if max_records is not None and max_records < 1:
        raise ValueError(f"max_records is positive, not {max_records}")
    bound = _bind(columns, any_header_keys)
    boundaries = np.empty(columns.n_records + 1, np.int64)
    most = max_records or DEFAULT_LIMITS.max_records_per_batch
    status, row, n_batches = kernels.cut_batches(bound.kernel, batch_size, most, boundaries)
    if status != _OK:
        _refuse(status, row, bound.offset, first_row)
    return boundaries[: n_batches + 1].copy()


def encode_batches(columns: RecordColumns, boundaries: Int64s, spec: BatchSpec | None = None) -> Window:
    """Encode records as consecutive v2 batches: their bytes, from position 0 on, and the table of the batches.

    The columns are `offset` (increasing), and any of `timestamp`, `key`, `value` and `headers`, as decoding returns
    them. A missing column is null for every record; a null timestamp is -1. Batch `i` has the rows
    ``boundaries[i]:boundaries[i + 1]``. Rows before the first and after the last boundary are not written.

    Raises UnwritableError if Kafka's format cannot represent a record; `row` is its row. Values are never truncated or
    wrapped. Raises ValueError if columns, boundaries and spec do not match.
    """
    data = encode_bytes(columns, boundaries, spec)
    return Window(data, 0, table_of(data, len(boundaries) - 1) if data.size else BatchTable.empty())


def encode_bytes(columns: RecordColumns, boundaries: Int64s, spec: BatchSpec | None = None) -> Bytes:
    """Return the bytes of `encode_batches` alone."""
    spec = BatchSpec() if spec is None else spec
    bound = _bind(columns, spec.any_header_keys)
    boundaries = np.ascontiguousarray(boundaries, np.int64)
    if boundaries.ndim != 1 or not boundaries.size:
        raise ValueError("boundaries are a place more than there are batches")
    n_batches = boundaries.size - 1
    if not n_batches:
        return np.empty(0, np.uint8)
    plan = _plan(bound, boundaries, spec)
    n_bytes = int(plan.payload_size.sum()) + n_batches * kf.RECORD_BATCH_OVERHEAD
    if any(map(attrgetter("codec"), plan.compressions)):
        return _write_compressed(bound, boundaries, plan, n_bytes)
    out = empty(n_bytes + kernels.SLACK, np.uint8)
    status, written = kernels.write_batches(
        bound.kernel, boundaries, plan.heads, plan.body_size, plan.payload_size, 0, n_batches, True, out
    )
    if status != _OK or written != n_bytes:
        raise ValueError("the columns changed while they were written")
    return out[:n_bytes]


def encode_marker(
    offset: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    is_commit: bool,
    timestamp: int,
    leader_epoch: int = -1,
) -> Window:
    """Encode the marker that ends a transaction of a producer: a control batch of 78 bytes.

    Key: version 0 (i16), type (i16). Value: version 0 (i16), epoch of the transaction coordinator (i32).

    Source: MemoryRecords.withEndTransactionMarker, Kafka 4.3.
    """
    if producer_id < 0 or producer_epoch < 0:
        raise ValueError("a marker needs a producer_id and a producer_epoch")
    control_type = kf.ControlRecordType.COMMIT if is_commit else kf.ControlRecordType.ABORT
    columns = RecordColumns(
        1,
        {
            "offset": np.array([offset], np.int64),
            "timestamp": np.array([timestamp], np.int64),
            "key": BinaryColumn.of([struct.pack(">hh", 0, control_type)]),
            "value": BinaryColumn.of([struct.pack(">hi", 0, coordinator_epoch)]),
        },
    )
    spec = BatchSpec(
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return encode_batches(columns, np.array([0, 1]), spec)


class _KernelColumns(NamedTuple):
    """Columns in the form that the kernels take."""

    kernel: kernels.Columns
    offset: Int64s
    timestamp: Int64s


def _bind(columns: RecordColumns, any_header_keys: bool) -> _KernelColumns:
    if "offset" not in columns:
        raise ValueError("there is no column 'offset'")
    offset, timestamp = _numbers(columns, "offset"), _numbers(columns, "timestamp")
    headers: Any = columns.get("headers")
    parts: list[Any] = [None] * 7
    if headers is not None:
        if not isinstance(headers, HeadersColumn):
            raise TypeError(f"column 'headers' is a HeadersColumn, not {type(headers).__name__}")
        if len(headers.key):
            offsets = np.ascontiguousarray(headers.offsets, np.int64)
            parts = [offsets, *_binary("headers", headers.key), *_binary("headers", headers.value)]
    binary = (*_binary("key", columns.get("key")), *_binary("value", columns.get("value")))
    kernel = kernels.Columns(offset, timestamp, *binary, *parts, *[any_header_keys])
    return _KernelColumns(kernel, offset, timestamp)


def _numbers(columns: RecordColumns, name: str) -> Int64s:
    column: Any = columns.get(name)
    if column is None:
        return np.full(columns.n_records, kf.NO_TIMESTAMP, np.int64)
    if is_masked(column):
        column = column.filled(kf.NO_TIMESTAMP)
    array = np.asarray(column)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise TypeError(f"column {name!r} is int64, not {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


def _binary(name: str, column: Any) -> tuple[Any, Any, Any]:
    if column is None:
        return None, None, None
    if isinstance(column, ViewColumn):
        column = as_binary(column)
    if not isinstance(column, BinaryColumn):
        raise TypeError(f"column {name!r} is a BinaryColumn, not {type(column).__name__}")
    valid = column.validity
    return (
        np.ascontiguousarray(column.offsets, np.int64),
        np.ascontiguousarray(column.data, np.uint8),
        None if valid is None else np.ascontiguousarray(valid, np.bool_).view(np.uint8),
    )


class _BatchPlan(NamedTuple):
    """Header fields and sizes of batches, computed before any byte is written."""

    heads: Heads
    body_size: npt.NDArray[np.int32]
    payload_size: Int64s
    compressions: list[Compression]
    """One for all batches, or one per batch."""


def _plan(bound: _KernelColumns, boundaries: Int64s, spec: BatchSpec) -> _BatchPlan:
    heads = heads_of(spec, bound.offset, bound.timestamp, boundaries)
    body_size = scratch("body_size", int(boundaries[-1] - boundaries[0]), np.int32)
    payload_size = np.empty(len(heads), np.int64)
    status, row, _ = kernels.measure_batches(bound.kernel, boundaries, heads, body_size, payload_size)
    if status != _OK:
        _refuse(status, row, bound.offset)
    return _BatchPlan(heads, body_size, payload_size, complete_heads(heads, spec, bound.offset, boundaries))


def _write_compressed(bound: _KernelColumns, boundaries: Int64s, plan: _BatchPlan, n_bytes: int) -> Bytes:
    """Write compressed batches, a group at a time.

    The kernel writes the records of a group to scratch memory. Each batch is compressed from there to the output, after
    space for its header. Headers come last: they contain the sizes and the checksums of the compressed bytes.
    """
    out = Arena(n_bytes // 2)
    # lists instead of arrays: indexing an array once costs more than everything else done per batch here
    sizes, rows = plan.payload_size.tolist(), boundaries.tolist()
    n = len(sizes)
    if len(plan.compressions) == n:
        compressors = {one: compressor(one) for one in set(plan.compressions)}
        by_batch = [compressors[one] for one in plan.compressions]
    else:
        by_batch = [compressor(plan.compressions[0])] * n
    uncompressed = compressor(UNCOMPRESSED)
    first = 0
    while first < n:
        stop, n_raw = first + 1, sizes[first]
        while stop < n and n_raw + sizes[stop] <= _GROUP_BYTES:
            n_raw += sizes[stop]
            stop += 1
        raw = scratch("uncompressed", n_raw + kernels.SLACK, np.uint8)
        status, written = kernels.write_batches(
            bound.kernel, boundaries, plan.heads, plan.body_size, plan.payload_size, first, stop, False, raw
        )
        if status != _OK or written != n_raw:
            raise ValueError("the columns changed while they were written")
        view, at, positions, totals = memoryview(raw), 0, [], []
        for batch in range(first, stop):
            positions.append(out.used)
            out.reserve(kf.RECORD_BATCH_OVERHEAD)
            out.used += kf.RECORD_BATCH_OVERHEAD
            size = sizes[batch]
            compress = by_batch[batch] if rows[batch] < rows[batch + 1] else uncompressed
            compress(out, view[at : at + size])
            at += size
            totals.append(out.used - positions[-1])
            # the size is known once the whole batch is compressed, so the error names its first row
            if totals[-1] > MAX_BATCH_BYTES:
                raise unwritable(Reason.BATCH_TOO_LARGE, "its batch has 2 GiB or more", rows[batch])
        write_heads(plan.heads, first, np.array(positions, np.int64), np.array(totals, np.int64), out.data)
        first = stop
    return out.data[: out.used]


_REFUSALS: Final = {
    kernels.STATUSES["OFFSET_ORDER"]: (
        Reason.OFFSET_ORDER,
        "its offset does not lie after the one before, or lies before its batch's base offset",
    ),
    kernels.STATUSES["OFFSET_DELTA"]: (
        Reason.HEADER_INCONSISTENT,
        "its offset is more than 2^31 - 1 above its batch's base offset",
    ),
    kernels.STATUSES["HEADER_KEY_NULL"]: (Reason.HEADER_KEY_NULL, "a header has no key"),
    kernels.STATUSES["HEADER_KEY_UTF8"]: (Reason.HEADER_KEY_UTF8, "a header's key is not UTF-8"),
    kernels.STATUSES["TOO_LARGE"]: (Reason.BATCH_TOO_LARGE, "with it the batch has 2 GiB or more"),
}


def _refuse(status: int, row: int, offset: Int64s, first_row: int = 0) -> NoReturn:
    if status not in _REFUSALS:
        raise ValueError(f"row {first_row + row}: the offsets of a column fall, or lead outside of its data")
    reason, detail = _REFUSALS[status]
    raise unwritable(reason, f"{detail} (offset {offset[row]})", first_row + row)
