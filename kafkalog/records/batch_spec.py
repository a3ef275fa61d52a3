"""The header fields of batches that are encoded: one value for all batches, or one for each.

Checks the fields against each other, and the offsets in headers against the records and the neighbouring batches. This
module does not encode anything: see `kafkalog.records.encode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Reason, UnwritableError
from kafkalog.records.codecs import UNCOMPRESSED, Compression

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
PerBatch = int | npt.NDArray[Any] | Sequence[int]
"""A number for all batches, or one for each."""


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """Header fields of batches. A field is one number for all batches, or an array with one number per batch.

    A batch without records, as compaction leaves it, needs `base_offset` and `last_offset`. It is not compressed, its
    base timestamp is -1 and it has no delete horizon. Raises ValueError for numbers that contradict each other by the
    rules of `MemoryRecordsBuilder`. Arrays are not checked: they may come from a log that has such values.

    Source: MemoryRecordsBuilder, DefaultRecordBatch.writeHeader and writeEmptyHeader, Kafka 4.3.
    """

    compression: Compression | Sequence[Compression] = UNCOMPRESSED
    timestamp_type: PerBatch = kf.TimestampType.CREATE_TIME
    """`TimestampType.CREATE_TIME` or `LOG_APPEND_TIME`."""
    log_append_time: PerBatch | None = None
    """Milliseconds; the largest timestamp of LogAppendTime batches, and thereby the timestamp of all their records."""
    leader_epoch: PerBatch = -1
    producer_id: PerBatch = -1
    producer_epoch: PerBatch = -1
    """-1 for none; so is the leader epoch and the producer id."""
    base_sequence: PerBatch = -1
    """An array has the base sequence of each batch. A number is that of the first batch; the following ones continue
    from it as a producer's do, wrapping to 0 after 2^31 - 1. -1 for none."""
    is_transactional: bool | Bools = False
    is_control: bool | Bools = False
    delete_horizon_ms: PerBatch | None = None
    """Stored in place of the base timestamp; -1 for none."""
    base_offset: PerBatch | None = None
    """Default: the offset of the first record. It may be lower than that."""
    last_offset: PerBatch | None = None
    """Default: the offset of the last record. It may be higher than that, as after compaction."""
    max_timestamp: PerBatch | None = None
    """Default: the largest timestamp of the records; with LogAppendTime, `log_append_time`."""
    any_header_keys: bool = False
    """Whether header keys may be other than UTF-8, as some clients write them; for records read from a log."""

    def __post_init__(self) -> None:
        kinds = (self.timestamp_type,) if isinstance(self.timestamp_type, int) else np.unique(self.timestamp_type)
        if not {0, 1}.issuperset(kinds):
            raise ValueError(f"timestamp_type is CREATE_TIME or LOG_APPEND_TIME, not {self.timestamp_type!r}")
        if self.log_append_time is None and self.max_timestamp is None and np.any(np.asarray(self.timestamp_type) == 1):
            raise ValueError("batches of LogAppendTime need log_append_time")
        producer_id = _scalar(self.producer_id)
        if producer_id is not None:
            self._check_producer(producer_id)

    def _check_producer(self, producer_id: int) -> None:
        """Raise ValueError if the numbers of the producer of all batches contradict each other."""
        is_control = _scalar(self.is_control)
        epoch, sequence = _scalar(self.producer_epoch), _scalar(self.base_sequence)
        if producer_id < 0:
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
    return int(value) if isinstance(value, int) or np.ndim(value) == 0 else None


def offset_bounds(offset: Int64s, boundaries: Int64s, is_empty: Bools, spec: BatchSpec) -> tuple[Int64s, Int64s]:
    """First and last offset of each batch, as written to its header."""
    n = is_empty.size
    if is_empty.any() and (spec.base_offset is None or spec.last_offset is None):
        raise ValueError(f"batch {int(is_empty.argmax())} has no records: base_offset and last_offset must be given")
    if spec.base_offset is None:
        base_offset = offset[boundaries[:-1]]
    else:
        base_offset = spread("base_offset", spec.base_offset, n, np.int64)
    if spec.last_offset is None:
        last_offset = offset[boundaries[1:] - 1]
    else:
        last_offset = spread("last_offset", spec.last_offset, n, np.int64)
    wrong = base_offset < 0
    if wrong.any():
        batch = int(wrong.argmax())
        raise unwritable(Reason.OFFSET_ORDER, f"offset {base_offset[batch]} is negative", int(boundaries[batch]))
    return base_offset, last_offset


def check_bounds(offset: Int64s, boundaries: Int64s, base_offset: Int64s, last_offset: Int64s, is_empty: Bools) -> None:
    """Check header offsets against the records (whose order was checked before) and the neighbouring batches."""
    wrong = last_offset < base_offset
    if offset.size:
        wrong |= ~is_empty & (last_offset < offset[np.clip(boundaries[1:] - 1, 0, offset.size - 1)])
    if wrong.any():
        raise ValueError(f"last_offset of batch {int(wrong.argmax())} is below its base offset or its last record")
    wrong = last_offset - base_offset > 2**31 - 1
    if wrong.any():
        batch = int(wrong.argmax())
        raise unwritable(
            Reason.HEADER_INCONSISTENT,
            f"offset {last_offset[batch]} is more than 2^31 - 1 above base offset {base_offset[batch]}",
            int(max(boundaries[batch + 1] - 1, 0)),
        )
    wrong = base_offset[1:] <= last_offset[:-1]
    if wrong.any():
        batch = int(wrong.argmax()) + 1
        raise unwritable(
            Reason.OFFSET_ORDER,
            f"offset {base_offset[batch]} after {last_offset[batch - 1]} of the previous batch: offsets must increase",
            int(boundaries[batch]),
        )


def base_sequences(base_sequence: PerBatch, base_offset: Int64s, last_offset: Int64s) -> npt.NDArray[np.int32]:
    # a producer uses one sequence number per offset, so a compacted batch still spans all of them
    first = _scalar(base_sequence)
    if first is None or first < 0:
        return spread("base_sequence", base_sequence, base_offset.size, np.int32)
    if first > 2**31 - 1:
        raise ValueError(f"base_sequence {first} has more than 31 bits")
    # steps are reduced modulo 2^31, so that their sum cannot overflow 64 bits
    steps = (last_offset - base_offset + 1) & 0x7FFFFFFF
    before = np.zeros(base_offset.size, np.int64)
    np.cumsum(steps[:-1], out=before[1:])
    return ((before + first) & 0x7FFFFFFF).astype(np.int32)


def spread(name: str, value: Any, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Convert one number, or one per batch, to an array of the header field's dtype."""
    if isinstance(value, int) and -(2**7) <= value < 2**7:  # fits every field; the checks take longer
        return np.full(n, value, dtype)
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


def unwritable(reason: Reason, detail: str, row: int) -> UnwritableError:
    return UnwritableError(reason, f"row {row}: {detail}", row=row)
