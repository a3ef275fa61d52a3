"""The header fields of batches that are encoded: one value for all batches, or one for each.

Checks the fields against each other, and the offsets in headers against the records and the neighbouring batches. This
module does not encode anything: see `kafkalog.records.encode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.batch_spec import CONTRADICTIONS, FIELDS, Heads
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
        if self.newest is None and 1 in kinds:
            raise ValueError("batches of LogAppendTime need log_append_time")
        producer_id = _scalar(self.producer_id)
        if producer_id is not None:
            self._check_producer(producer_id)

    @property
    def newest(self) -> PerBatch | None:
        """The largest timestamps; None for those of the records."""
        return self.log_append_time if self.max_timestamp is None else self.max_timestamp

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


def heads_of(spec: BatchSpec, offset: Int64s, timestamp: Int64s, boundaries: Int64s) -> Heads:
    """Return header fields of batches before they are measured. See `complete_heads`.

    Raises ValueError or UnwritableError if boundaries and offsets contradict each other.
    """
    heads = Heads(boundaries.size - 1)
    for name in _BEFORE_RECORDS:
        if (value := getattr(spec, name)) is not _DEFAULTS[name]:
            _fill(heads, name, value)
    has_base, has_last = spec.base_offset is not None, spec.last_offset is not None
    contradiction, batch = heads.begin(boundaries, offset, timestamp, has_base, has_last)
    if contradiction:
        _refuse(contradiction, batch, heads, boundaries, offset)
    return heads


def complete_heads(heads: Heads, spec: BatchSpec, offset: Int64s, boundaries: Int64s) -> list[Compression]:
    """Check and complete the header fields of measured batches. Returns one compression for all, or one per batch."""
    contradiction, batch = heads.check(boundaries, offset)
    if contradiction:
        _refuse(contradiction, batch, heads, boundaries, offset)
    _fill(heads, "log_append_time" if spec.max_timestamp is None else "max_timestamp", spec.newest)
    sequence = _scalar(spec.base_sequence)
    if sequence is None or sequence < 0:
        _fill(heads, "base_sequence", spec.base_sequence)
    elif sequence > 2**31 - 1:
        raise ValueError(f"base_sequence {sequence} has more than 31 bits")
    else:
        heads.number_sequences(sequence)
    if isinstance(spec.compression, Compression):
        heads.fill(FIELDS["codec"], int(spec.compression.codec))
        return [spec.compression]
    compressions = list(spec.compression)
    if len(compressions) != len(heads):
        raise ValueError(f"compression has {len(compressions)} values for {len(heads)} batches")
    heads.fill(FIELDS["codec"], np.array([one.codec for one in compressions], np.int64))
    return compressions


_BEFORE_RECORDS: Final = (
    *("delete_horizon_ms", "base_offset", "last_offset", "timestamp_type", "leader_epoch", "producer_id"),
    *("producer_epoch", "is_transactional", "is_control"),
)
_DEFAULTS: Final = {field.name: field.default for field in fields(BatchSpec)}
"""With these, a field is not filled: it has them from the beginning, or takes its number from the records."""
_BITS: Final = {"leader_epoch": 32, "base_sequence": 32, "producer_epoch": 16, "timestamp_type": 8}
_NAMES: Final = {number: name for name, number in CONTRADICTIONS.items()}


def _fill(heads: Heads, name: str, value: Any) -> None:
    """Write one number, or one per batch, to a header field."""
    if value is _DEFAULTS[name]:
        return
    bits = _BITS.get(name, 64)
    if not isinstance(value, int):
        array = np.asarray(value)
        if array.dtype.kind not in "iub":
            raise TypeError(f"{name} is an integer or an array of integers, not {value!r}")
        if array.ndim and array.shape != (len(heads),):
            raise ValueError(f"{name} has {array.size} values for {len(heads)} batches")
        if not array.size:
            return
        least, most = int(array.min()), int(array.max())
        value = np.ascontiguousarray(array, np.int64) if array.ndim else least
    else:
        least = most = value
    if least < -(2 ** (bits - 1)) or most >= 2 ** (bits - 1):
        raise ValueError(f"{name} does not fit {bits} bits: {least} to {most}")
    heads.fill(FIELDS[name], value)


def _refuse(contradiction: int, batch: int, heads: Heads, boundaries: Int64s, offset: Int64s) -> NoReturn:
    base_offset, last_offset = heads[batch]
    row = int(boundaries[batch])
    match _NAMES[contradiction]:
        case "BOUNDARIES_FALL":
            raise ValueError(f"boundaries do not rise within 0 to {offset.size}")
        case "NO_RECORDS":
            raise ValueError(f"batch {batch} has no records: base_offset and last_offset must be given")
        case "BASE_OFFSET_NEGATIVE":
            raise unwritable(Reason.OFFSET_ORDER, f"offset {base_offset} is negative", row)
        case "LAST_OFFSET_LOW":
            raise ValueError(f"last_offset of batch {batch} is below its base offset or its last record")
        case "LAST_OFFSET_FAR":
            raise unwritable(
                Reason.HEADER_INCONSISTENT,
                f"offset {last_offset} is more than 2^31 - 1 above base offset {base_offset}",
                int(max(boundaries[batch + 1] - 1, 0)),
            )
    raise unwritable(
        Reason.OFFSET_ORDER,
        f"offset {base_offset} after {heads[batch - 1][1]} of the previous batch: offsets must increase",
        row,
    )


def unwritable(reason: Reason, detail: str, row: int) -> UnwritableError:
    return UnwritableError(reason, f"row {row}: {detail}", row=row)
