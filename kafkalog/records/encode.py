"""Encode record columns as v2 batches: choose batch boundaries, write headers and records, compress.

The counterpart of `kafkalog.records.decode`: takes the columns that decoding returns. Without compression, the bytes
equal those of Kafka's `MemoryRecordsBuilder` for the same records and boundaries; with compression, the frames are
those of Kafka's writers. Nothing here knows segments or files. Formats v0 and v1 are not written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import encode as kernels
from kafkalog.errors import DEFAULT_LIMITS, Reason, UnwritableError
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.codecs import UNCOMPRESSED, Arena, Compression
from kafkalog.records.columns import BinaryColumn, HeadersColumn, RecordColumns
from kafkalog.records.compress import compressor
from kafkalog.records.header_walk import table_of
from kafkalog.records.spans import scratch
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import Bytes

MAX_BATCH_BYTES: Final = 2**31 - 1
"""Largest batch: its size field is a signed 32-bit integer."""

_OK = kernels.STATUSES["OK"]
_GROUP_BYTES = 2**20  # records to compress at a time: enough for few calls, few enough to stay in a core's cache

Int64s = npt.NDArray[np.int64]
PerBatch = int | npt.NDArray[Any] | Sequence[int]
"""A number for all batches, or one for each."""


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """Header fields of batches. A field is one number for all batches, or an array with one number per batch.

    Attributes
    ----------
    compression : Compression, or a sequence of one per batch
    timestamp_type : int
        `TimestampType.CREATE_TIME` or `LOG_APPEND_TIME`.
    log_append_time : int, optional
        Milliseconds; the largest timestamp of LogAppendTime batches, and thereby the timestamp of all their records.
    leader_epoch : int
    producer_id, producer_epoch : int
        -1 for none.
    base_sequence : int
        An array has the base sequence of each batch. A number is that of the first batch; the following ones continue
        from it as a producer's do, wrapping to 0 after 2^31 - 1. -1 for none.
    is_transactional, is_control : bool
    delete_horizon_ms : int, optional
        Stored in place of the base timestamp; -1 for none.
    base_offset : array, optional
        Default: the offset of the first record. It may be lower than that.
    last_offset : array, optional
        Default: the offset of the last record. It may be higher than that, as after compaction.
    max_timestamp : array, optional
        Default: the largest timestamp of the records; with LogAppendTime, `log_append_time`.
    any_header_keys : bool
        Whether header keys may be other than UTF-8, as some clients write them; for records read from a log.

    Raises
    ------
    ValueError
        Numbers contradict each other by the rules of `MemoryRecordsBuilder`. Arrays are not checked: they may come
        from a log that has such values.

    Notes
    -----
    A batch without records, as compaction leaves it, needs `base_offset` and `last_offset`. It is not compressed, its
    base timestamp is -1 and it has no delete horizon.

    Source: MemoryRecordsBuilder, DefaultRecordBatch.writeHeader and writeEmptyHeader, Kafka 4.3.
    """

    compression: Compression | Sequence[Compression] = UNCOMPRESSED
    timestamp_type: PerBatch = kf.TimestampType.CREATE_TIME
    log_append_time: PerBatch | None = None
    leader_epoch: PerBatch = -1
    producer_id: PerBatch = -1
    producer_epoch: PerBatch = -1
    base_sequence: PerBatch = -1
    is_transactional: bool | npt.NDArray[np.bool_] = False
    is_control: bool | npt.NDArray[np.bool_] = False
    delete_horizon_ms: PerBatch | None = None
    base_offset: PerBatch | None = None
    last_offset: PerBatch | None = None
    max_timestamp: PerBatch | None = None
    any_header_keys: bool = False

    def __post_init__(self) -> None:
        if not np.isin(self.timestamp_type, (0, 1)).all():
            raise ValueError(f"timestamp_type is CREATE_TIME or LOG_APPEND_TIME, not {self.timestamp_type!r}")
        if self.log_append_time is None and self.max_timestamp is None and np.any(np.asarray(self.timestamp_type) == 1):
            raise ValueError("batches of LogAppendTime need log_append_time")
        has_producer = _scalar(self.producer_id)
        if has_producer is None:
            return
        is_control = _scalar(self.is_control)
        epoch, sequence = _scalar(self.producer_epoch), _scalar(self.base_sequence)
        if has_producer < 0:
            if _scalar(self.is_transactional):
                raise ValueError("transactional batches need a producer_id")
            if (epoch is not None and epoch >= 0) or (sequence is not None and sequence >= 0):
                raise ValueError("a producer_epoch or base_sequence needs a producer_id")
        elif epoch is not None and epoch < 0:
            raise ValueError("a producer_id needs a producer_epoch")
        elif sequence is not None and sequence < 0 and is_control is not None and not is_control:
            raise ValueError("a producer_id needs a base_sequence")


def _scalar(value: Any) -> int | None:
    """The number for all batches; None if each has its own."""
    return int(value) if np.ndim(value) == 0 else None


def cut_batches(
    columns: RecordColumns,
    *,
    batch_size: int,
    max_records: int | None = None,
    any_header_keys: bool = False,
    first_row: int = 0,
) -> Int64s:
    """Choose batch boundaries as a producer does when it fills batches.

    Parameters
    ----------
    columns : RecordColumns
        See `encode_batches`.
    batch_size : int
        Bytes, as a producer's `batch.size`: a record that no longer fits, uncompressed, begins the next batch. A
        record larger than `batch_size` begins a batch, too.
    max_records : int, optional
        Most records in a batch; default: as many as the default `Limits` allow to read.
    any_header_keys : bool
        See `BatchSpec`.
    first_row : int
        Row number of the first record in the caller's data, for messages.

    Returns
    -------
    int64[n_batches + 1]
        Batch `i` has the rows ``boundaries[i]:boundaries[i + 1]``; none is empty.

    Raises
    ------
    UnwritableError
        A record cannot be written, or the offsets do not rise strictly; `row` is the record's row.

    Notes
    -----
    A batch also ends before an offset more than 2^31 - 1 above its first one. For a record larger than `batch_size`,
    a producer's buffer has room for the longest record header possible, so a tiny record can still fit after it.

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
    """Encode records as consecutive v2 batches.

    Parameters
    ----------
    columns : RecordColumns
        `offset` (strictly rising), and any of `timestamp`, `key`, `value` and `headers`, as decoding returns them. A
        missing column is null for every record; a null timestamp is -1.
    boundaries : int64[n_batches + 1]
        Batch `i` has the rows ``boundaries[i]:boundaries[i + 1]``. Rows before the first and after the last boundary
        are not written.
    spec : BatchSpec, optional

    Returns
    -------
    Window
        The bytes, from position 0 on, and the table of their batches.

    Raises
    ------
    UnwritableError
        Kafka's format cannot represent a record; `row` is its row. Values are never truncated or wrapped.
    ValueError
        Columns, boundaries and spec do not match.
    """
    spec = BatchSpec() if spec is None else spec
    bound = _bind(columns, spec.any_header_keys)
    boundaries = np.ascontiguousarray(boundaries, np.int64)
    if boundaries.ndim != 1 or not boundaries.size:
        raise ValueError("boundaries are a place more than there are batches")
    if boundaries[0] < 0 or boundaries[-1] > columns.n_records or (np.diff(boundaries) < 0).any():
        raise ValueError(f"boundaries do not rise within 0 to {columns.n_records}")
    n_batches = boundaries.size - 1
    if not n_batches:
        return Window(np.empty(0, np.uint8), 0, BatchTable.empty())
    plan = _plan(bound, boundaries, spec)
    n_bytes = int(plan.payload_size.sum()) + n_batches * kf.RECORD_BATCH_OVERHEAD
    if any(one.codec for one in plan.compressions):
        data = _write_compressed(bound, boundaries, plan, n_bytes)
    else:
        out = empty(n_bytes + kernels.SLACK, np.uint8)
        status, written = kernels.write_batches(
            bound.kernel, boundaries, plan.heads, plan.body_size, plan.payload_size, 0, n_batches, True, out
        )
        if status != _OK or written != n_bytes:
            raise ValueError("the columns changed while they were written")
        data = out[:n_bytes]
    return Window(data, 0, table_of(data, n_batches))


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
    """Encode the marker that ends a transaction: a control batch of 78 bytes.

    Parameters
    ----------
    offset : int
    producer_id, producer_epoch : int
        Producer whose transaction ends.
    coordinator_epoch : int
        Of the transaction coordinator.
    is_commit : bool
        Commit or abort.
    timestamp : int
        Milliseconds.
    leader_epoch : int

    Returns
    -------
    Window

    Notes
    -----
    Key: version 0 (i16), type (i16). Value: version 0 (i16), coordinator epoch (i32).

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
            "key": _one(struct.pack(">hh", 0, control_type)),
            "value": _one(struct.pack(">hi", 0, coordinator_epoch)),
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


def _one(value: bytes) -> BinaryColumn:
    return BinaryColumn(np.array([0, len(value)], np.int64), np.frombuffer(value, np.uint8))


class _Bound(NamedTuple):
    """Columns in the form that the kernels take."""

    kernel: kernels.Columns
    offset: Int64s
    timestamp: Int64s


def _bind(columns: RecordColumns, any_header_keys: bool) -> _Bound:
    if "offset" not in columns:
        raise ValueError("there is no column 'offset'")
    offset, timestamp = (_numbers(columns, name) for name in ("offset", "timestamp"))
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
    return _Bound(kernel, offset, timestamp)


def _numbers(columns: RecordColumns, name: str) -> Int64s:
    column: Any = columns.get(name)
    if column is None:
        return np.full(columns.n_records, kf.NO_TIMESTAMP, np.int64)
    if isinstance(column, np.ma.MaskedArray):
        column = column.filled(kf.NO_TIMESTAMP)
    array = np.asarray(column)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise TypeError(f"column {name!r} is int64, not {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


def _binary(name: str, column: Any) -> tuple[Any, Any, Any]:
    if column is None:
        return None, None, None
    if not isinstance(column, BinaryColumn):
        raise TypeError(f"column {name!r} is a BinaryColumn, not {type(column).__name__}")
    valid = column.validity
    return (
        np.ascontiguousarray(column.offsets, np.int64),
        np.ascontiguousarray(column.data, np.uint8),
        None if valid is None else np.ascontiguousarray(valid, np.bool_).view(np.uint8),
    )


class _Plan(NamedTuple):
    """Header fields and sizes of batches, computed before any byte is written."""

    heads: kernels.Heads
    body_size: npt.NDArray[np.int32]
    payload_size: Int64s
    compressions: list[Compression]
    """One for all batches, or one per batch."""


def _plan(bound: _Bound, boundaries: Int64s, spec: BatchSpec) -> _Plan:
    n = boundaries.size - 1
    counts = np.diff(boundaries)
    is_empty = counts == 0
    base_offset, last_offset = _offset_bounds(bound, boundaries, is_empty, spec)
    horizon = _spread("delete_horizon_ms", -1 if spec.delete_horizon_ms is None else spec.delete_horizon_ms, n, _I64)
    has_horizon = (horizon >= 0) & ~is_empty
    if bound.timestamp.size:
        base_timestamp = bound.timestamp[np.minimum(boundaries[:-1], bound.timestamp.size - 1)]
        base_timestamp = np.where(has_horizon, horizon, np.where(is_empty, np.int64(-1), base_timestamp))
    else:
        base_timestamp = np.full(n, -1, np.int64)
    body_size = scratch("body_size", int(boundaries[-1] - boundaries[0]), np.int32)
    payload_size, max_timestamp = np.empty(n, np.int64), np.empty(n, np.int64)
    status, row, _ = kernels.measure_batches(
        bound.kernel, boundaries, base_offset, base_timestamp, body_size, payload_size, max_timestamp
    )
    if status != _OK:
        _refuse(status, row, bound.offset)
    _check_bounds(bound.offset, boundaries, base_offset, last_offset, is_empty)
    timestamp_type = _spread("timestamp_type", spec.timestamp_type, n, np.int8)
    if spec.max_timestamp is not None:
        max_timestamp = _spread("max_timestamp", spec.max_timestamp, n, _I64)
    elif spec.log_append_time is not None:
        append_time = _spread("log_append_time", spec.log_append_time, n, _I64)
        max_timestamp = np.where(timestamp_type == kf.TimestampType.LOG_APPEND_TIME, append_time, max_timestamp)
    compressions = [spec.compression] if isinstance(spec.compression, Compression) else list(spec.compression)
    if len(compressions) != n and not isinstance(spec.compression, Compression):
        raise ValueError(f"compression has {len(compressions)} values for {n} batches")
    codec = np.array([one.codec for one in compressions], np.int16)
    attributes = (
        np.where(is_empty, np.int16(0), codec)
        | kf.TIMESTAMP_TYPE_BIT * timestamp_type.astype(np.int16)
        | kf.TRANSACTIONAL_BIT * _spread("is_transactional", spec.is_transactional, n, np.int16)
        | kf.CONTROL_BIT * _spread("is_control", spec.is_control, n, np.int16)
        | kf.DELETE_HORIZON_BIT * has_horizon.astype(np.int16)
    )
    heads = kernels.Heads(
        base_offset,
        last_offset,
        _spread("leader_epoch", spec.leader_epoch, n, np.int32),
        attributes.astype(np.int16, copy=False),
        base_timestamp,
        max_timestamp,
        _spread("producer_id", spec.producer_id, n, _I64),
        _spread("producer_epoch", spec.producer_epoch, n, np.int16),
        _sequences(spec.base_sequence, base_offset, last_offset),
        counts.astype(np.int32),
    )
    return _Plan(heads, body_size, payload_size, compressions)


_I64 = np.int64


def _offset_bounds(
    bound: _Bound, boundaries: Int64s, is_empty: npt.NDArray[np.bool_], spec: BatchSpec
) -> tuple[Int64s, Int64s]:
    """First and last offset of each batch, as written to its header."""
    n = is_empty.size
    if is_empty.any() and (spec.base_offset is None or spec.last_offset is None):
        raise ValueError(f"batch {int(is_empty.argmax())} has no records: base_offset and last_offset must be given")
    if spec.base_offset is None:
        base_offset = bound.offset[boundaries[:-1]]
    else:
        base_offset = _spread("base_offset", spec.base_offset, n, _I64)
    if spec.last_offset is None:
        last_offset = bound.offset[boundaries[1:] - 1]
    else:
        last_offset = _spread("last_offset", spec.last_offset, n, _I64)
    wrong = base_offset < 0
    if wrong.any():
        batch = int(wrong.argmax())
        raise _unwritable(Reason.OFFSET_ORDER, f"offset {base_offset[batch]} is negative", int(boundaries[batch]))
    return base_offset, last_offset


def _check_bounds(
    offset: Int64s, boundaries: Int64s, base_offset: Int64s, last_offset: Int64s, is_empty: npt.NDArray[np.bool_]
) -> None:
    """Check header offsets against the records (whose order was checked before) and the neighbouring batches."""
    wrong = last_offset < base_offset
    if offset.size:
        wrong |= ~is_empty & (last_offset < offset[np.clip(boundaries[1:] - 1, 0, offset.size - 1)])
    if wrong.any():
        raise ValueError(f"last_offset of batch {int(wrong.argmax())} is below its base offset or its last record")
    wrong = last_offset - base_offset > 2**31 - 1
    if wrong.any():
        batch = int(wrong.argmax())
        raise _unwritable(
            Reason.HEADER_INCONSISTENT,
            f"offset {last_offset[batch]} is more than 2^31 - 1 above base offset {base_offset[batch]}",
            int(max(boundaries[batch + 1] - 1, 0)),
        )
    wrong = base_offset[1:] <= last_offset[:-1]
    if wrong.any():
        batch = int(wrong.argmax()) + 1
        raise _unwritable(
            Reason.OFFSET_ORDER,
            f"offset {base_offset[batch]} does not lie after {last_offset[batch - 1]} of the batch before",
            int(boundaries[batch]),
        )


def _sequences(base_sequence: PerBatch, base_offset: Int64s, last_offset: Int64s) -> npt.NDArray[np.int32]:
    first = _scalar(base_sequence)
    if first is None or first < 0:
        return _spread("base_sequence", base_sequence, base_offset.size, np.int32)
    if first > 2**31 - 1:
        raise ValueError(f"base_sequence {first} has more than 31 bits")
    # steps are reduced modulo 2^31, so that their sum cannot overflow 64 bits
    steps = (last_offset - base_offset + 1) & 0x7FFFFFFF
    before = np.zeros(base_offset.size, np.int64)
    np.cumsum(steps[:-1], out=before[1:])
    return ((before + first) & 0x7FFFFFFF).astype(np.int32)


def _spread(name: str, value: Any, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Convert one number, or one per batch, to an array of the header field's dtype."""
    array = np.asarray(value)
    if array.dtype.kind not in "iub":
        raise TypeError(f"{name} is an integer or an array of integers, not {value!r}")
    if array.ndim and array.shape != (n,):
        raise ValueError(f"{name} has {array.size} values for {n} batches")
    wide = np.dtype(dtype)
    if array.dtype != wide and array.size and array.dtype.kind != "b":
        limits = np.iinfo(wide)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise ValueError(f"{name} does not fit {limits.bits} bits: {int(array.min())} to {int(array.max())}")
    if not array.ndim:
        return np.full(n, array, wide)
    return np.ascontiguousarray(array, wide)


def _write_compressed(bound: _Bound, boundaries: Int64s, plan: _Plan, n_bytes: int) -> Bytes:
    """Write compressed batches, a group at a time.

    The kernel writes the records of a group to scratch memory. Each batch is compressed from there to the output, after
    space for its header. Headers come last: they contain the sizes and the checksums of the compressed bytes.
    """
    n = boundaries.size - 1
    out = Arena(n_bytes // 2)
    # Lists instead of arrays: indexing an array once costs more than everything else done per batch here
    payload_sizes = plan.payload_size.tolist()
    ends = np.cumsum(plan.payload_size)
    compressors = {one: compressor(one) for one in {*plan.compressions, UNCOMPRESSED}}
    by_batch = [compressors[one] for one in plan.compressions]
    if len(by_batch) != n:
        by_batch *= n
    for batch in np.flatnonzero(np.diff(boundaries) == 0).tolist():
        by_batch[batch] = compressors[UNCOMPRESSED]
    first = 0
    while first < n:
        done = int(ends[first - 1]) if first else 0
        stop = max(int(np.searchsorted(ends, done + _GROUP_BYTES, "right")), first + 1)
        raw = scratch("uncompressed", int(ends[stop - 1]) - done + kernels.SLACK, np.uint8)
        status, written = kernels.write_batches(
            bound.kernel, boundaries, plan.heads, plan.body_size, plan.payload_size, first, stop, False, raw
        )
        if status != _OK or written != ends[stop - 1] - done:
            raise ValueError("the columns changed while they were written")
        view = memoryview(raw)
        starts = []
        at = 0
        for batch in range(first, stop):
            starts.append(out.used)
            out.reserve(kf.RECORD_BATCH_OVERHEAD)
            out.used += kf.RECORD_BATCH_OVERHEAD
            size = payload_sizes[batch]
            by_batch[batch](out, view[at : at + size])
            at += size
        position = np.array(starts, np.int64)
        total = np.diff(position, append=out.used)
        if (total > MAX_BATCH_BYTES).any():
            row = int(boundaries[first + int(total.argmax())])
            raise _unwritable(Reason.BATCH_TOO_LARGE, "its batch has 2 GiB or more", row)
        kernels.write_heads(plan.heads, first, position, total, out.data)
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
    """Raise the error for a kernel's status about the record in a row."""
    if status not in _REFUSALS:
        raise ValueError(f"row {first_row + row}: the offsets of a column fall, or lead outside of its data")
    reason, detail = _REFUSALS[status]
    raise _unwritable(reason, f"{detail} (offset {offset[row]})", first_row + row)


def _unwritable(reason: Reason, detail: str, row: int) -> UnwritableError:
    return UnwritableError(reason, f"row {row}: {detail}", row=row)
