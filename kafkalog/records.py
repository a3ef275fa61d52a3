"""Records in columns: batches of a window are walked to spans, selected, and filled into `RecordColumns`.

Three named stages. *Spans* say where in a buffer each key, value and header block lies; selecting drops rows before
anything is copied; filling writes contiguous columns that own their memory. What one call cannot take, because a batch
is damaged or enough bytes came out of the compressed ones, is left to the next: the caller is told how many batches are
done. Mirrors the record half of `DefaultRecordBatch` and `AbstractLegacyRecordBatch.DeepRecordsIterator`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import crc as crc_kernels
from kafkalog._kernels import legacy as legacy_kernels
from kafkalog._kernels import records as kernels
from kafkalog._kernels.wire import STATUS
from kafkalog.batches import BatchTable, Window
from kafkalog.compression import Arena, decompress_into
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    KafkalogError,
    Limits,
    Reason,
    UnsupportedError,
    error_from_status,
)
from kafkalog.source import Bytes

ARENA_BYTES: Final = 2 * 2**20
"""Once this much came out of compressed batches, the rest of a window is left to the next call."""

FIXED_COLUMNS: Final[dict[str, npt.DTypeLike]] = {
    "offset": np.int64,
    "timestamp": np.int64,
    "timestamp_type": np.int8,
    "leader_epoch": np.int32,
    "producer_id": np.int64,
    "producer_epoch": np.int16,
    "sequence": np.int32,
    "is_transactional": np.bool_,
    "is_control": np.bool_,
    "compression": np.int8,
    "batch_base_offset": np.int64,
    "batch_position": np.int64,
}
"""Columns of one number a record, and their dtypes. Timestamps are milliseconds."""

BINARY_COLUMNS: Final = ("key", "value")
HEADERS: Final = "headers"
DEFAULT_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
ALL_COLUMNS: Final = (*FIXED_COLUMNS, *BINARY_COLUMNS, HEADERS)

_OK = STATUS["OK"]


@dataclass(frozen=True, eq=False, slots=True)
class BinaryColumn:
    """Byte strings one behind the other.

    Attributes
    ----------
    offsets : int64[n + 1]
        Value `i` is ``data[offsets[i]:offsets[i + 1]]``.
    data : uint8[offsets[-1]]
    validity : bool[n] or None
        False for null; None when nothing is null. Null and empty are different things in Kafka.
    """

    offsets: npt.NDArray[np.int64]
    data: Bytes
    validity: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, row: int) -> bytes | None:
        n = len(self)
        if not -n <= row < n:
            raise IndexError(f"row {row} of {n}")
        row %= n
        if self.validity is not None and not self.validity[row]:
            return None
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.to_pylist())

    def __repr__(self) -> str:
        return f"BinaryColumn({len(self)} values, {self.data.size} bytes, {self.null_count} null)"

    @property
    def null_count(self) -> int:
        """How many are null."""
        return 0 if self.validity is None else int(self.validity.size - np.count_nonzero(self.validity))

    def to_pylist(self) -> list[bytes | None]:
        """The values as `bytes` and None."""
        data = self.data.tobytes()
        at = self.offsets.tolist()
        values: list[bytes | None] = [data[start:stop] for start, stop in itertools.pairwise(at)]
        if self.validity is not None:
            for row in np.flatnonzero(~self.validity).tolist():
                values[row] = None
        return values

    def slice(self, start: int, stop: int) -> BinaryColumn:
        """Rows `start` to `stop`, offsets beginning at 0; shares the bytes."""
        offsets = self.offsets[start : stop + 1]
        data = self.data[offsets[0] : offsets[-1]]
        return BinaryColumn(offsets - offsets[0], data, None if self.validity is None else self.validity[start:stop])

    @classmethod
    def concatenate(cls, parts: Sequence[BinaryColumn]) -> BinaryColumn:
        """The rows of several columns one behind the other."""
        offsets = _concatenate_offsets([part.offsets for part in parts])
        validity = None
        if any(part.validity is not None for part in parts):
            validity = np.concatenate(
                [np.ones(len(part), np.bool_) if part.validity is None else part.validity for part in parts]
            )
        return cls(offsets, np.concatenate([part.data for part in parts]), validity)


@dataclass(frozen=True, eq=False, slots=True)
class HeadersColumn:
    """The headers of records: a list of key and value each, in order, duplicates kept.

    Attributes
    ----------
    offsets : int64[n + 1]
        Record `i` has the headers ``offsets[i]:offsets[i + 1]`` of `key` and `value`.
    key : BinaryColumn
        The bytes as they are, never null; Kafka means them to be UTF-8.
    value : BinaryColumn
    """

    offsets: npt.NDArray[np.int64]
    key: BinaryColumn
    value: BinaryColumn

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, row: int) -> list[tuple[bytes, bytes | None]]:
        n = len(self)
        if not -n <= row < n:
            raise IndexError(f"row {row} of {n}")
        row %= n
        return [
            (cast(bytes, self.key[i]), self.value[i]) for i in range(int(self.offsets[row]), int(self.offsets[row + 1]))
        ]

    def __repr__(self) -> str:
        return f"HeadersColumn({len(self)} records, {len(self.key)} headers)"

    def to_pylist(self) -> list[list[tuple[bytes, bytes | None]]]:
        """A list of (key, value) pairs a record."""
        pairs = list(zip(self.key.to_pylist(), self.value.to_pylist(), strict=True))
        at = self.offsets.tolist()
        return [cast(Any, pairs[start:stop]) for start, stop in itertools.pairwise(at)]

    def slice(self, start: int, stop: int) -> HeadersColumn:
        """Records `start` to `stop`; shares the bytes."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return HeadersColumn(offsets - first, self.key.slice(first, last), self.value.slice(first, last))

    @classmethod
    def concatenate(cls, parts: Sequence[HeadersColumn]) -> HeadersColumn:
        """The rows of several columns one behind the other."""
        return cls(
            _concatenate_offsets([part.offsets for part in parts]),
            BinaryColumn.concatenate([part.key for part in parts]),
            BinaryColumn.concatenate([part.value for part in parts]),
        )


def _concatenate_offsets(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    offsets = np.empty(sum(part.size - 1 for part in parts) + 1, np.int64)
    offsets[0] = 0
    row = 0
    for part in parts:
        offsets[row + 1 : row + part.size] = part[1:] + (offsets[row] - part[0])
        row += part.size - 1
    return offsets


Column = npt.NDArray[Any] | BinaryColumn | HeadersColumn


class RecordColumns(Mapping[str, Column]):
    """Records as named columns that own their memory.

    A mapping from column name to `numpy.ndarray` (one number a record), `BinaryColumn` (key, value) or `HeadersColumn`;
    columns are attributes too. Only those that were asked for are there.

    Notes
    -----
    `timestamp` is in milliseconds and `timestamp_type` -1 where the format has none (v0); a record of a later format
    without a timestamp keeps -1.
    """

    __slots__ = ("_columns", "n_records")

    def __init__(self, n_records: int, columns: Mapping[str, Column]) -> None:
        self.n_records = n_records
        self._columns = dict(columns)
        for name, column in self._columns.items():
            if len(column) != n_records:
                raise ValueError(f"column {name!r} has {len(column)} rows, not {n_records}")

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_columns")[name]
        except KeyError:
            raise AttributeError(
                f"no column {name!r} here; there are {', '.join(self._columns)}"
                + (f" (ask for it with columns=[..., {name!r}])" if name in ALL_COLUMNS else "")
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """Number of columns, as of any mapping; records are counted by `n_records`."""
        return len(self._columns)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    def __repr__(self) -> str:
        return f"RecordColumns({self.n_records} records: {', '.join(self._columns)})"

    def __reduce__(self) -> Any:
        return RecordColumns, (self.n_records, self._columns)

    def slice(self, start: int, stop: int) -> RecordColumns:
        """Records `start` to `stop`; shares the memory."""
        stop = min(stop, self.n_records)
        return RecordColumns(
            stop - start,
            {
                name: column[start:stop] if isinstance(column, np.ndarray) else column.slice(start, stop)
                for name, column in self._columns.items()
            },
        )

    @classmethod
    def concatenate(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """The records of several one behind the other; all must have the same columns, and there must be one."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Column] = {}
        for name, first in parts[0].items():
            these: list[Any] = [part[name] for part in parts]
            columns[name] = np.concatenate(these) if isinstance(first, np.ndarray) else type(first).concatenate(these)
        return cls(sum(part.n_records for part in parts), columns)

    @classmethod
    def empty(cls, columns: Sequence[str]) -> RecordColumns:
        """No records."""
        return cls(0, {name: _empty_column(name) for name in columns})


def _empty_column(name: str) -> Column:
    if name in FIXED_COLUMNS:
        return np.empty(0, FIXED_COLUMNS[name])
    offsets, data = np.zeros(1, np.int64), np.empty(0, np.uint8)
    binary = BinaryColumn(offsets, data)
    return binary if name in BINARY_COLUMNS else HeadersColumn(offsets.copy(), binary, binary)


@dataclass(slots=True)
class Spans:
    """Where the parts of records lie in a buffer; -1 as a size is null.

    Attributes
    ----------
    data : uint8[...]
        What the starts refer to: a window of the file, or what was decompressed.
    batch_row : int32[n]
        Row of the batch table.
    offset, timestamp : int64[n]
    key_start, key_size, value_start, value_size : int32[n]
    headers_start, headers_count : int32[n] or None
        None for v0 and v1, which have no headers.
    timestamp_type : int8[n] or None
        Where it is the record's own; None where the batch's holds.
    batch_base_offset : int64[n] or None
        Where it became known inside; None where the batch's holds.
    key, value : BinaryColumn or None
        Filled already, in the same pass as the walk.
    """

    data: Bytes
    batch_row: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    key_start: npt.NDArray[np.int32]
    key_size: npt.NDArray[np.int32]
    value_start: npt.NDArray[np.int32]
    value_size: npt.NDArray[np.int32]
    headers_start: npt.NDArray[np.int32] | None = None
    headers_count: npt.NDArray[np.int32] | None = None
    timestamp_type: npt.NDArray[np.int8] | None = None
    batch_base_offset: npt.NDArray[np.int64] | None = None
    key: BinaryColumn | None = None
    value: BinaryColumn | None = None

    def __len__(self) -> int:
        return self.offset.size


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of a partition are wanted; half-open ranges, None for no bound.

    Attributes
    ----------
    start_offset, end_offset : int or None
    start_timestamp, end_timestamp : int or None
        Milliseconds. A record of a format without timestamps never matches.
    include_control : bool
        Whether control records are records, too.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    include_control: bool = False

    @property
    def has_timestamps(self) -> bool:
        """Whether timestamps are looked at at all."""
        return self.start_timestamp is not None or self.end_timestamp is not None

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """Batches that may hold such a record, by their headers alone; None for all.

        A largest timestamp before the start rules a batch out; there is no smallest one in a header.
        """
        masks = []
        if self.start_offset is not None:
            # a v1 wrapper at offset 0 may be produce data as librdkafka writes it: its last offset is only inside
            hidden = (batches.magic == 1) & (batches.codec != 0) & (batches.last_offset == 0)
            masks.append((batches.last_offset >= self.start_offset) | hidden)
        if self.end_offset is not None:
            first = np.where(batches.base_offset >= 0, batches.base_offset, np.int64(-1))
            masks.append(first < self.end_offset)
        if self.start_timestamp is not None:
            # what a v0 wrapper hides may be v1 messages
            hidden = (batches.magic == 0) & (batches.codec != 0)
            masks.append((batches.max_timestamp >= self.start_timestamp) | hidden)
        if not self.include_control and np.bitwise_or.reduce(batches.attributes) & kf.CONTROL_BIT:
            masks.append(~batches.is_control)
        return np.logical_and.reduce(masks) if masks else None

    def takes_all_of(self, batches: BatchTable) -> bool:
        """Whether every record of these batches is wanted, by their headers alone."""
        return (
            not self.has_timestamps
            and (self.start_offset is None or bool((batches.base_offset >= self.start_offset).all()))
            and (self.end_offset is None or bool((batches.last_offset < self.end_offset).all()))
        )

    def rows(self, spans: Spans, batches: BatchTable) -> npt.NDArray[np.int64] | None:
        """Numbers of the records that match; None for all."""
        masks = []
        n = len(spans)
        if n and self.start_offset is not None:
            mask = spans.offset >= self.start_offset
            masks += [] if mask.all() else [mask]
        if n and self.end_offset is not None:
            mask = spans.offset < self.end_offset
            masks += [] if mask.all() else [mask]
        if n and self.has_timestamps:
            if self.start_timestamp is not None:
                masks.append(spans.timestamp >= self.start_timestamp)
            if self.end_timestamp is not None:
                masks.append(spans.timestamp < self.end_timestamp)
            types = spans.timestamp_type
            without = (batches.magic == 0)[spans.batch_row] if types is None else types == -1
            masks.append(~(without & (spans.timestamp == kf.NO_TIMESTAMP)))
        return np.flatnonzero(np.logical_and.reduce(masks)) if masks else None


Allocate = Callable[[int, npt.DTypeLike], npt.NDArray[Any]]


class Decoded(NamedTuple):
    """What became of some batches of a window."""

    columns: RecordColumns | None
    """The records, None when none matched."""
    n_batches: int
    """Batches that are done, from the first one on."""
    error: KafkalogError | None
    """What is wrong with the batch behind them, if anything."""


def decode(
    window: Window,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    *,
    first: int = 0,
    stop: int | None = None,
    selection: Selection | None = None,
    check_crcs: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    path: str | None = None,
    allocate: Allocate = np.empty,
) -> Decoded:
    """Decode the batches of a window, from `first` to `stop`, to columns.

    Parameters
    ----------
    window : Window
    columns : sequence of str
        Names out of `ALL_COLUMNS`; what is not asked for is not filled.
    first, stop : int
        Rows of the batch table; default: all.
    selection : Selection, optional
        Default: every record but control records.
    check_crcs : bool
        Compare each batch's checksum.
    limits : Limits
    path : str, optional
        For messages.
    allocate : callable
        Gives memory for columns, as `np.empty(n, dtype)` does.

    Returns
    -------
    Decoded
        Columns own their memory: the window may go. Stops early, without error, once `ARENA_BYTES` were decompressed.

    Notes
    -----
    A batch counts whole or not at all. Whether it is good does not depend on the columns: everything Kafka's reader
    checks is checked for each projection.
    """
    selection = selection or Selection()
    batches = window.batches
    stop = len(batches) if stop is None else stop
    todo = np.arange(first, stop, dtype=np.int64)
    mask = selection.batch_mask(batches)
    if mask is not None:
        todo = todo[mask[first:stop]]
    done, error = stop, None
    parts: list[RecordColumns] = []
    room = ARENA_BYTES
    for run in _runs(batches, todo):
        walk = _walk_v2 if batches.magic[run[0]] >= 2 else _walk_legacy
        fills = [name for name in columns if name in BINARY_COLUMNS] if selection.takes_all_of(batches) else []
        spans, n_done, used, error = walk(window, run, check_crcs, room, limits, path, allocate, fills)
        room -= used
        if spans is not None and len(spans):
            rows = selection.rows(spans, batches)
            if rows is None or rows.size:
                parts.append(_fill(spans, rows, batches, columns, allocate))
        if error is not None or n_done < run.size:
            done = int(run[n_done])
            break
    return Decoded(RecordColumns.concatenate(parts) if parts else None, done - first, error)


def _runs(batches: BatchTable, rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Split rows where the format changes between v2 and what was before."""
    if not rows.size:
        return []
    modern = batches.magic[rows] >= 2
    if modern.all() or not modern.any():
        return [rows]
    return np.split(rows, np.flatnonzero(modern[1:] != modern[:-1]) + 1)


Walked = tuple[Spans | None, int, int, KafkalogError | None]
"""Spans, batches done, bytes decompressed, what is wrong with the next batch."""


def _batch_error(status: int, batches: BatchTable, row: int, path: str | None) -> KafkalogError:
    base_offset = int(batches.base_offset[row])
    return error_from_status(
        status,
        path=path,
        position=int(batches.position[row]),
        base_offset=base_offset if base_offset >= 0 else int(batches.last_offset[row]),
        length=int(batches.size_in_bytes[row]),
    )


def _place(error: KafkalogError, batches: BatchTable, row: int, path: str | None) -> KafkalogError:
    """An error of a codec, with the batch that it is about."""
    base_offset = int(batches.base_offset[row])
    error.path = path
    error.position = int(batches.position[row])
    error.base_offset = base_offset if base_offset >= 0 else int(batches.last_offset[row])
    if error.length is None:
        error.length = int(batches.size_in_bytes[row])
    # it is returned, not raised: the frames of its traceback would hold the arena, in a circle at that
    error.__traceback__ = None
    if error.__cause__ is not None:
        error.__cause__.__traceback__ = None
    return error


def _first_bad_crc(window: Window, rows: npt.NDArray[np.int64]) -> int:
    """How many batches from the first on have the checksum of their bytes."""
    batches = window.batches
    valid = np.empty(rows.size, np.uint8)
    crc_kernels.check_crcs(
        window.data,
        window.start,
        batches.position[rows],
        batches.size_in_bytes[rows],
        batches.magic[rows],
        batches.crc[rows],
        valid,
    )
    bad = np.flatnonzero(valid == 0)
    return int(bad[0]) if bad.size else rows.size


def _walk_v2(
    window: Window,
    rows: npt.NDArray[np.int64],
    check_crcs: bool,
    room: int,
    limits: Limits,
    path: str | None,
    allocate: Allocate,
    fills: Sequence[str],
) -> Walked:
    """Walk v2 batches, and fill keys and values in the same pass where `fills` names them."""
    batches = window.batches
    chosen = batches if rows.size == len(batches) else batches[rows]
    start = chosen.position + (kf.RECORD_BATCH_OVERHEAD - window.start)
    stop = chosen.next_position - window.start
    data, error, used, fused = window.data, None, 0, check_crcs
    if np.bitwise_or.reduce(chosen.attributes) & kf.CODEC_MASK:
        codec = chosen.attributes & kf.CODEC_MASK
        arena, start, stop, error = _decompress_v2(window, rows, codec, check_crcs, room, limits, path)
        data, used, fused = arena.data[: arena.used], arena.used, False
        if start.size < rows.size:
            rows = rows[: start.size]
            chosen = batches[rows]
    # an honest count fits into its batch; the kernel says so of one that does not
    n = int(np.clip(chosen.records_count, 0, (stop - start) // kf.MIN_RECORD_BYTES).sum(dtype=np.int64))
    headers_start, headers_count = allocate(n, np.int32), allocate(n, np.int32)
    spans = Spans(
        data=data,
        batch_row=allocate(n, np.int32),
        offset=allocate(n, np.int64),
        timestamp=allocate(n, np.int64),
        key_start=allocate(n, np.int32),
        key_size=allocate(n, np.int32),
        value_start=allocate(n, np.int32),
        value_size=allocate(n, np.int32),
        headers_start=headers_start,
        headers_count=headers_count,
    )
    n_bytes = int((stop - start).sum())
    filled = {name: (allocate(n + 1, np.int64), allocate(n_bytes, np.uint8)) for name in fills}
    status, n_done, n_records, _ = kernels.walk_records(
        data,
        start,
        stop,
        chosen.base_offset,
        chosen.base_timestamp,
        chosen.max_timestamp,
        chosen.attributes,
        chosen.records_count,
        chosen.crc,
        fused,
        limits.max_headers_per_record,
        spans.offset,
        spans.timestamp,
        spans.key_start,
        spans.key_size,
        spans.value_start,
        spans.value_size,
        headers_start,
        headers_count,
        spans.batch_row,
        *filled.get("key", (None, None)),
        *filled.get("value", (None, None)),
    )
    if status != _OK:
        error = _batch_error(status, batches, int(rows[n_done]), path)
    if n_records < n:
        for name in _V2_SPAN_COLUMNS:
            setattr(spans, name, getattr(spans, name)[:n_records])
    if rows.size != len(batches):
        spans.batch_row = rows.astype(np.int32)[spans.batch_row]
    if "key" in filled:
        spans.key = _filled_column(*filled["key"], spans.key_size, allocate)
    if "value" in filled:
        spans.value = _filled_column(*filled["value"], spans.value_size, allocate)
    return spans, n_done, used, error


def _filled_column(
    offsets: npt.NDArray[np.int64], data: Bytes, size: npt.NDArray[np.int32], allocate: Allocate
) -> BinaryColumn:
    """A column of what was written; memory that is mostly empty is not kept."""
    offsets = offsets[: size.size + 1]
    n_bytes = int(offsets[-1])
    if n_bytes < data.size // 4 * 3:
        whole, data = data, allocate(n_bytes, np.uint8)
        data[:] = whole[:n_bytes]
    present = size >= 0
    return BinaryColumn(offsets, data[:n_bytes], None if present.all() else present)


_V2_SPAN_COLUMNS = (
    "batch_row",
    "offset",
    "timestamp",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "headers_start",
    "headers_count",
)


def _decompress_v2(
    window: Window,
    rows: npt.NDArray[np.int64],
    codec: npt.NDArray[np.int16],
    check_crcs: bool,
    room: int,
    limits: Limits,
    path: str | None,
) -> tuple[Arena, npt.NDArray[np.int64], npt.NDArray[np.int64], KafkalogError | None]:
    """Payloads of batches, plain ones too, one behind the other in an arena."""
    batches = window.batches
    error: KafkalogError | None = None
    n_valid = rows.size
    if check_crcs:
        n_valid = _first_bad_crc(window, rows)
        if n_valid < rows.size:
            error = _batch_error(STATUS["CRC_MISMATCH"], batches, int(rows[n_valid]), path)
    payload_start = (batches.position[rows] - window.start + kf.RECORD_BATCH_OVERHEAD).tolist()
    payload_stop = (batches.next_position[rows] - window.start).tolist()
    counts = batches.records_count[rows].tolist()
    codecs = codec.tolist()
    arena = _thread_arena()
    ends = [0]
    for i in range(n_valid):
        # Kafka does not look into a batch that says it is empty
        if counts[i] != 0:
            if ends[-1] >= room or arena.used > _MAX_ARENA - limits.max_decompressed_bytes:
                return arena, *_bounds(ends), None
            payload = window.data[payload_start[i] : payload_stop[i]]
            try:
                decompress_into(arena, codecs[i], payload, magic=2, limits=limits)
            except KafkalogError as problem:
                return arena, *_bounds(ends), _place(problem, batches, int(rows[i]), path)
        elif codecs[i] > kf.Codec.ZSTD:
            unknown = UnsupportedError(Reason.UNKNOWN_CODEC, f"codec {codecs[i]}; Kafka has 0 to 4")
            return arena, *_bounds(ends), _place(unknown, batches, int(rows[i]), path)
        ends.append(arena.used)
    return arena, *_bounds(ends), error


_MAX_ARENA = 2**31 - 1
_KEPT_ARENA = 2 * ARENA_BYTES
_threads = threading.local()


def _thread_arena() -> Arena:
    """An empty arena; the memory of the thread's last one, whose content was copied out, unless it grew large."""
    arena: Arena | None = getattr(_threads, "arena", None)
    if arena is None or arena.data.size > _KEPT_ARENA:
        arena = _threads.arena = Arena(ARENA_BYTES)
    arena.used = 0
    return arena


def _bounds(ends: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    bounds = np.array(ends, np.int64)
    return bounds[:-1], bounds[1:]


def _walk_legacy(
    window: Window,
    rows: npt.NDArray[np.int64],
    check_crcs: bool,
    room: int,
    limits: Limits,
    path: str | None,
    allocate: Allocate,
    fills: Sequence[str],
) -> Walked:
    batches = window.batches
    n = rows.size
    key_start, key_size = allocate(n, np.int32), allocate(n, np.int32)
    value_start, value_size = allocate(n, np.int32), allocate(n, np.int32)
    status, n_done = legacy_kernels.walk_messages(
        window.data,
        batches.position[rows] - window.start,
        batches.size_in_bytes[rows],
        batches.magic[rows],
        batches.crc[rows],
        check_crcs,
        key_start,
        key_size,
        value_start,
        value_size,
    )
    error: KafkalogError | None = None
    if status != _OK:
        row = int(rows[n_done])
        codec_id = int(batches.attributes[row]) & kf.CODEC_MASK
        if status != STATUS["CRC_MISMATCH"] and codec_id > kf.Codec.ZSTD:
            unknown = UnsupportedError(Reason.UNKNOWN_CODEC, f"codec {codec_id}; Kafka has 0 to 4")
            error = _place(unknown, batches, row, path)
        else:
            error = _batch_error(status, batches, row, path)
    rows = rows[:n_done]
    codec = batches.attributes[rows] & kf.CODEC_MASK
    if not codec.any():
        spans = Spans(
            data=window.data,
            batch_row=rows.astype(np.int32),
            offset=batches.last_offset[rows],
            timestamp=batches.max_timestamp[rows],
            key_start=key_start[:n_done],
            key_size=key_size[:n_done],
            value_start=value_start[:n_done],
            value_size=value_size[:n_done],
        )
        return spans, n_done, 0, error
    return _walk_wrappers(window, rows, codec, key_start, key_size, value_start, value_size, error, room, limits, path)


def _walk_wrappers(
    window: Window,
    rows: npt.NDArray[np.int64],
    codec: npt.NDArray[np.int16],
    key_start: npt.NDArray[np.int32],
    key_size: npt.NDArray[np.int32],
    value_start: npt.NDArray[np.int32],
    value_size: npt.NDArray[np.int32],
    error: KafkalogError | None,
    room: int,
    limits: Limits,
    path: str | None,
) -> Walked:
    """Messages of compressed wrappers, and plain ones between them, all out of one arena."""
    batches = window.batches
    arena = _thread_arena()
    parts: list[list[npt.NDArray[Any]]] = []
    n_done = 0
    for i, row in enumerate(rows.tolist()):
        if arena.used >= room or arena.used > _MAX_ARENA - limits.max_decompressed_bytes:
            error = None
            break
        magic = int(batches.magic[row])
        at = arena.used
        try:
            if not codec[i]:
                parts.append(
                    _plain_message(window, row, arena, key_start[i], key_size[i], value_start[i], value_size[i])
                )
            else:
                if value_size[i] < 0:
                    raise CorruptionError(Reason.LEGACY_NULL_WRAPPER, "a compressed message has no value")
                payload = window.data[value_start[i] : value_start[i] + value_size[i]]
                decompress_into(arena, int(codec[i]), payload, magic=magic, limits=limits)
                parts.append(_message_set(batches, row, arena, at, path))
        except KafkalogError as problem:
            arena.used = at
            error = _place(problem, batches, row, path)
            break
        n_done += 1
    if not parts:
        return None, n_done, arena.used, error
    columns: dict[str, Any] = {
        name: np.concatenate(column)
        for name, column in zip(_LEGACY_SPAN_COLUMNS, zip(*parts, strict=True), strict=True)
    }
    spans = Spans(arena.data[: arena.used], **columns)
    return spans, n_done, arena.used, error


_LEGACY_SPAN_COLUMNS = (
    "batch_row",
    "offset",
    "timestamp",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "timestamp_type",
    "batch_base_offset",
)


def _plain_message(
    window: Window, row: int, arena: Arena, key_start: int, key_size: int, value_start: int, value_size: int
) -> list[npt.NDArray[Any]]:
    batches = window.batches
    at = arena.used
    for start, size in ((key_start, key_size), (value_start, value_size)):
        if size > 0:
            arena.append(window.data[start : start + size])
    timestamp_type = batches.timestamp_type[row : row + 1]
    offset = batches.last_offset[row : row + 1]
    i32 = np.int32
    return [
        np.array([row], i32),
        offset,
        batches.max_timestamp[row : row + 1],
        np.array([at], i32),
        np.array([key_size], i32),
        np.array([at + max(key_size, 0)], i32),
        np.array([value_size], i32),
        timestamp_type,
        offset,
    ]


def _message_set(batches: BatchTable, row: int, arena: Arena, start: int, path: str | None) -> list[npt.NDArray[Any]]:
    capacity = (arena.used - start) // (kf.LOG_OVERHEAD + kf.MESSAGE_V0_OVERHEAD)
    offset, timestamp = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    timestamp_type = np.empty(capacity, np.int8)
    spans = [np.empty(capacity, np.int32) for _ in range(4)]
    status, n, _ = legacy_kernels.walk_message_set(
        arena.data,
        start,
        arena.used,
        int(batches.last_offset[row]),
        int(batches.magic[row]),
        int(batches.attributes[row]),
        int(batches.max_timestamp[row]),
        offset,
        timestamp,
        timestamp_type,
        *spans,
    )
    if status != _OK:
        raise _batch_error(status, batches, row, path)
    return [
        np.full(n, row, np.int32),
        offset[:n],
        timestamp[:n],
        *(span[:n] for span in spans),
        timestamp_type[:n],
        np.full(n, offset[0], np.int64),
    ]


def _fill(
    spans: Spans, rows: npt.NDArray[np.int64] | None, batches: BatchTable, columns: Sequence[str], allocate: Allocate
) -> RecordColumns:
    n = len(spans) if rows is None else rows.size
    filled: dict[str, Column] = {}
    batch_row = spans.batch_row if rows is None else spans.batch_row[rows]
    for name in columns:
        if name == "key" and spans.key is not None and rows is None:
            filled[name] = spans.key
        elif name == "value" and spans.value is not None and rows is None:
            filled[name] = spans.value
        elif name == "key":
            filled[name] = _fill_binary(spans.data, spans.key_start, spans.key_size, rows, allocate)
        elif name == "value":
            filled[name] = _fill_binary(spans.data, spans.value_start, spans.value_size, rows, allocate)
        elif name == HEADERS:
            filled[name] = _fill_headers(spans, rows, n, allocate)
        else:
            filled[name] = _fill_fixed(name, spans, rows, batches, batch_row)
    return RecordColumns(n, filled)


def _fill_binary(
    data: Bytes,
    start: npt.NDArray[np.int32],
    size: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int64] | None,
    allocate: Allocate,
) -> BinaryColumn:
    n = start.size if rows is None else rows.size
    n_bytes, n_null = kernels.measure_binary(size, rows)
    offsets, out = allocate(n + 1, np.int64), allocate(n_bytes, np.uint8)
    validity = np.empty(n, np.bool_) if n_null else None
    kernels.fill_binary(data, start, size, rows, offsets, out, None if validity is None else validity.view(np.uint8))
    return BinaryColumn(offsets, out, validity)


def _fill_headers(spans: Spans, rows: npt.NDArray[np.int64] | None, n: int, allocate: Allocate) -> HeadersColumn:
    if spans.headers_count is None or spans.headers_start is None or not spans.headers_count.any():
        return _no_headers(n)
    counts = spans.headers_count if rows is None else spans.headers_count[rows]
    total = int(counts.sum(dtype=np.int64))
    offsets = allocate(n + 1, np.int64)
    key_start, key_size, value_start, value_size = (allocate(total, np.int32) for _ in range(4))
    status, n_headers = kernels.walk_headers(
        spans.data,
        spans.headers_start,
        spans.headers_count,
        rows,
        offsets,
        key_start,
        key_size,
        value_start,
        value_size,
    )
    if status != _OK or n_headers != total:
        raise AssertionError("headers that were walked once cannot be walked again")
    return HeadersColumn(
        offsets,
        _fill_binary(spans.data, key_start, key_size, None, allocate),
        _fill_binary(spans.data, value_start, value_size, None, allocate),
    )


def _no_headers(n: int) -> HeadersColumn:
    empty = BinaryColumn(np.zeros(1, np.int64), np.empty(0, np.uint8))
    return HeadersColumn(np.zeros(n + 1, np.int64), empty, empty)


def _fill_fixed(
    name: str,
    spans: Spans,
    rows: npt.NDArray[np.int64] | None,
    batches: BatchTable,
    batch_row: npt.NDArray[np.int32],
) -> npt.NDArray[Any]:
    own: npt.NDArray[Any] | None = None
    if name == "offset":
        own = spans.offset
    elif name == "timestamp":
        own = spans.timestamp
    elif name == "timestamp_type":
        own = spans.timestamp_type
    elif name == "batch_base_offset":
        own = spans.batch_base_offset
    if own is not None:
        return own if rows is None else own[rows]
    if name == "sequence":
        return _sequences(spans.offset if rows is None else spans.offset[rows], batches, batch_row)
    of_batch: npt.NDArray[Any] = getattr(batches, _BATCH_COLUMN.get(name, name))
    if of_batch.size and (of_batch[0] == of_batch).all():
        return np.full(batch_row.size, of_batch[0], FIXED_COLUMNS[name])
    return of_batch[batch_row].astype(FIXED_COLUMNS[name], copy=False)


_BATCH_COLUMN = {
    "leader_epoch": "partition_leader_epoch",
    "compression": "codec",
    "batch_base_offset": "base_offset",
    "batch_position": "position",
}


def _sequences(
    offset: npt.NDArray[np.int64], batches: BatchTable, batch_row: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Base sequence plus offset delta, going on at 0 after 2^31 - 1; -1 where the batch has none.

    A negative delta, which no producer writes, gives what Java's int arithmetic gives (`incrementSequence`).
    """
    base = batches.base_sequence[batch_row].astype(np.int64)
    delta = offset - batches.base_offset[batch_row]
    wrapped = np.where(delta < 0, base + delta - 2**31, (base + delta) & 0x7FFFFFFF)
    return np.where(base < 0, np.int64(-1), wrapped).astype(np.int32)
