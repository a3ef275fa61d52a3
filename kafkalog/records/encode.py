"""Record columns to v2 batches: where batches begin, their headers, their records, compressed or not.

The counterpart of `kafkalog.records.decode`: what decoding gives, encoding takes. Without compression the bytes are
those of Kafka's `MemoryRecordsBuilder` for the same records and boundaries; with it, frames are as Kafka's writers make
them. Nothing here knows segments or files. Formats v0 and v1 are left to `legacy_encoder`.
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
"""A batch's size field has 32 bits."""

_OK = kernels.STATUSES["OK"]
_GROUP_BYTES = 2**20  # records to compress at a time: enough for few calls, little enough to stay in a core's cache

Int64s = npt.NDArray[np.int64]
PerBatch = int | npt.NDArray[Any] | Sequence[int]
"""A number for all batches, or one for each."""


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """What batches have besides their records. A field is a number for all of them, or an array with one for each.

    Attributes
    ----------
    compression : Compression, or a sequence of one for each batch
    timestamp_type : int
        `TimestampType.CREATE_TIME` or `LOG_APPEND_TIME`.
    log_append_time : int, optional
        Milliseconds; what batches of LogAppendTime say as their largest timestamp, and so all their records.
    leader_epoch : int
    producer_id, producer_epoch : int
        -1 for none.
    base_sequence : int
        Of an array, each batch's own. A number is that of the first batch: the others go on from it as a producer
        does, at 0 after 2^31 - 1. -1 for none.
    is_transactional, is_control : bool
    delete_horizon_ms : int, optional
        Goes where the base timestamp is; -1 for none.
    base_offset : array, optional
        Where it is not the first record's offset, but below.
    last_offset : array, optional
        Where it is not the last record's offset, but above, as the cleaner leaves it.
    max_timestamp : array, optional
        Where it is not the largest of the records' timestamps.
    any_header_keys : bool
        Whether header keys may be other than UTF-8, as some clients write them; for records that come out of a log.

    Raises
    ------
    ValueError
        Numbers that contradict each other, as `MemoryRecordsBuilder` has it. Arrays are taken as they are: they may
        come from a log that says so.

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
    """The number that holds for all batches; None where each has its own."""
    return int(value) if np.ndim(value) == 0 else None


def cut_batches(
    columns: RecordColumns,
    *,
    batch_size: int,
    max_records: int | None = None,
    any_header_keys: bool = False,
    first_row: int = 0,
) -> Int64s:
    """Where batches begin, as a producer fills them.

    Parameters
    ----------
    columns : RecordColumns
        See `encode_batches`.
    batch_size : int
        Bytes, as a producer's `batch.size`: a record that does not fit any more, uncompressed, begins the next batch,
        and one that is larger begins one too.
    max_records : int, optional
        Records in a batch at most; default: what is read again without other `Limits`.
    any_header_keys : bool
        See `BatchSpec`.
    first_row : int
        The place of the columns in the whole, for messages.

    Returns
    -------
    int64[n_batches + 1]
        Batch `i` has the rows ``boundaries[i]:boundaries[i + 1]``; none is empty.

    Raises
    ------
    UnwritableError
        A record that cannot be written, or offsets that do not rise strictly; `row` says which.

    Notes
    -----
    A batch also ends where an offset is further than 2^31 - 1 from its first. A producer's buffer for a record larger
    than `batch_size` has room for the longest header that record may get, so a tiny one can still fit behind it.

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
    """Write records as v2 batches, one behind the other.

    Parameters
    ----------
    columns : RecordColumns
        `offset` (strictly rising), and any of `timestamp`, `key`, `value` and `headers`, as decoding gives them. What
        is not there is null for every record, and a null timestamp is -1.
    boundaries : int64[n_batches + 1]
        Batch `i` has the rows ``boundaries[i]:boundaries[i + 1]``. Rows before the first and behind the last boundary
        are not written.
    spec : BatchSpec, optional

    Returns
    -------
    Window
        The bytes, from position 0 on, and the table of their batches.

    Raises
    ------
    UnwritableError
        A record that Kafka's format cannot hold; `row` says which. Nothing is cut or wrapped around.
    ValueError
        Columns, boundaries and spec do not fit each other.
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
    """Write the marker that ends a transaction: a control batch of 78 bytes.

    Parameters
    ----------
    offset : int
    producer_id, producer_epoch : int
        Whose transaction it ends.
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
    """Columns in the form that kernels take."""

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
    """What was found out about batches before a byte of them is written."""

    heads: kernels.Heads
    body_size: npt.NDArray[np.int32]
    payload_size: Int64s
    compressions: list[Compression]
    """One for all batches, or one for each."""


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
    """First and last offset of each batch, as its header will say."""
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
    """Hold the offsets in headers against records whose order was checked, and against the batches around them."""
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
    # modulo 2^31 each step is below that, so the sum stays far below 2^63
    steps = (last_offset - base_offset + 1) & 0x7FFFFFFF
    before = np.zeros(base_offset.size, np.int64)
    np.cumsum(steps[:-1], out=before[1:])
    return ((before + first) & 0x7FFFFFFF).astype(np.int32)


def _spread(name: str, value: Any, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A number, or one for each batch, as an array of the header's width."""
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
    """A group of batches at a time: records into scratch memory, from there compressed behind room for a header."""
    n = boundaries.size - 1
    out = Arena(n_bytes // 2)
    # sizes and so on as lists: an element of an array costs more than all else that is done for a batch here
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
    """Raise what a kernel found about the record in a row."""
    if status not in _REFUSALS:
        raise ValueError(f"row {first_row + row}: the offsets of a column fall, or lead outside of its data")
    reason, detail = _REFUSALS[status]
    raise _unwritable(reason, f"{detail} (offset {offset[row]})", first_row + row)


def _unwritable(reason: Reason, detail: str, row: int) -> UnwritableError:
    return UnwritableError(reason, f"row {row}: {detail}", row=row)
