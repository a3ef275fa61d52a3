"""Defines the batch table (one row per batch, one array per column) and windows: runs of bytes with batches.

`HeaderParser` fills the table from bytes, `header_walk` from files. It has every field of the batch headers; verifying,
indexing, planning and lookups need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, overload

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog import html
from kafkalog._kernels.crc import check_crcs
from kafkalog._kernels.header_rows import HeaderRows
from kafkalog._kernels.header_walk import walk_batches
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import Certainty, Finding, KafkalogError, Reason
from kafkalog.html import Leading, PublicType
from kafkalog.storage.source import Bytes
from kafkalog.text import counted, offset_range

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kafkalog._kernels.record_windows import RecordWindow
    from kafkalog.records.columns import RecordColumns

COLUMNS: Final[dict[str, npt.DTypeLike]] = {
    "position": np.int64,
    "size_in_bytes": np.int32,
    "base_offset": np.int64,
    "last_offset": np.int64,
    "partition_leader_epoch": np.int32,
    "magic": np.int8,
    "crc": np.uint32,
    "attributes": np.int16,
    "base_timestamp": np.int64,
    "max_timestamp": np.int64,
    "producer_id": np.int64,
    "producer_epoch": np.int16,
    "base_sequence": np.int32,
    "records_count": np.int32,
    "control_type": np.int16,
}
"""Stored columns of a `BatchTable` and their dtypes."""

_ROWS = 8192  # batches per kernel call


@dataclass(frozen=True, eq=False, slots=True)
class BatchTable(Leading, metaclass=PublicType):
    """Headers of the record batches of a segment, one row per batch."""

    _led = ()
    _led_untyped = ("to_",)

    position: npt.NDArray[np.int64]
    """Bytes from the start of the `.log`."""
    size_in_bytes: npt.NDArray[np.int32]
    """Size of the whole batch, including the 12 bytes of offset and size field."""
    base_offset: npt.NDArray[np.int64]
    last_offset: npt.NDArray[np.int64]
    """The base offset of a compressed v0 or v1 message is -1: only its compressed content has it."""
    partition_leader_epoch: npt.NDArray[np.int32]
    """-1 before v2."""
    magic: npt.NDArray[np.int8]
    crc: npt.NDArray[np.uint32]
    """The stored checksum: CRC-32C for v2, CRC-32 before."""
    attributes: npt.NDArray[np.int16]
    base_timestamp: npt.NDArray[np.int64]
    max_timestamp: npt.NDArray[np.int64]
    """Both in milliseconds, -1 for none. In a batch with a delete horizon, the base timestamp is the horizon."""
    producer_id: npt.NDArray[np.int64]
    producer_epoch: npt.NDArray[np.int16]
    base_sequence: npt.NDArray[np.int32]
    records_count: npt.NDArray[np.int32]
    """-1 for a compressed v0 or v1 message."""
    control_type: npt.NDArray[np.int16]
    """`ControlRecordType` of the first record of a control batch; -1 for other batches, -2 if it has no readable
    one."""

    @classmethod
    def empty(cls, n: int = 0) -> BatchTable:
        """Return a table of `n` rows of zeros."""
        return cls(**{name: np.zeros(n, dtype) for name, dtype in COLUMNS.items()})

    @classmethod
    def concatenate(cls, tables: list[BatchTable]) -> BatchTable:
        """Concatenate the rows of several tables."""
        if not tables:
            return cls.empty()
        return cls(**{name: np.concatenate([getattr(table, name) for table in tables]) for name in COLUMNS})

    def __len__(self) -> int:
        return self.position.size

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            """Raise TypeError: a table has columns."""
            raise TypeError("a BatchTable has columns, such as base_offset; for rows use to_arrow().to_pylist()")

        def __call__(self, *args: object, **options: object) -> NoReturn:
            """Raise TypeError: `Segment.batches` is a property."""
            raise TypeError("batches is a property, a table: leave out the parentheses")

    @overload
    def __getitem__(self, rows: str) -> npt.NDArray[Any]: ...

    @overload
    def __getitem__(self, rows: slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]) -> BatchTable: ...

    def __getitem__(self, rows: Any) -> Any:
        """Select rows by a slice (a view), or by a mask or an array of row numbers (a copy); a name is a column."""
        if isinstance(rows, str):
            if rows not in (*COLUMNS, *DERIVED):
                raise KeyError(f"no column {rows!r} here; there are {', '.join((*COLUMNS, *DERIVED))}")
            return getattr(self, rows)
        if isinstance(rows, (int, np.integer)):
            raise TypeError("a BatchTable takes a slice, a mask or an array of rows; for one row use table[i:i+1]")
        return BatchTable(**{name: getattr(self, name)[rows] for name in COLUMNS})

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a BatchTable becomes a structured array by a copy; its columns are arrays")
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of its columns."""
        return sum(getattr(self, name).nbytes for name in COLUMNS)

    def __repr__(self) -> str:
        if not len(self):
            return "BatchTable(0 batches)"
        first = self.base_offset[0] if self.base_offset[0] >= 0 else None
        return (
            f"BatchTable({counted(len(self), 'batch')}, offsets {offset_range(first, int(self.last_offset[-1]) + 1)}, "
            f"{counted(int(self.size_in_bytes.sum(dtype=np.int64)), 'byte')})"
        )

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the first rows."""
        rows = zip(*(getattr(self, name)[: html.MOST_ROWS].tolist() for name in COLUMNS), strict=True)
        return html.table(repr(self), [*COLUMNS], rows, n_rows=len(self))

    @property
    def next_position(self) -> npt.NDArray[np.int64]:
        """int64[n]: position of the first byte after the batch."""
        return self.position + self.size_in_bytes

    @property
    def end_position(self) -> int:
        """Position of the first byte after the last batch."""
        return int(self.position[-1]) + int(self.size_in_bytes[-1])

    @property
    def last_position(self) -> int:
        """Position of the last batch."""
        return int(self.position[-1])

    @property
    def first_offset(self) -> int:
        """Base offset of the first batch; its last one if a compressed v0 or v1 message hides the base offset."""
        return int(self.base_offset[0]) if self.base_offset[0] >= 0 else int(self.last_offset[0])

    @property
    def end_offset(self) -> int:
        """The offset after the last batch."""
        return int(self.last_offset[-1]) + 1

    @property
    def attribute_bits(self) -> int:
        """All attribute bits that occur."""
        return int(np.bitwise_or.reduce(self.attributes))

    @property
    def codec(self) -> npt.NDArray[np.int8]:
        """int8[n]: compression codec id."""
        return (self.attributes & kf.CODEC_MASK).astype(np.int8)

    @property
    def timestamp_type(self) -> npt.NDArray[np.int8]:
        """int8[n]: -1 for v0, else 0 (CreateTime) or 1 (LogAppendTime)."""
        if not self.attribute_bits & kf.TIMESTAMP_TYPE_BIT and self.magic.all():
            return np.zeros(len(self), np.int8)
        bit = ((self.attributes & kf.TIMESTAMP_TYPE_BIT) != 0).astype(np.int8)
        return np.where(self.magic == 0, np.int8(-1), bit)

    @property
    def is_transactional(self) -> npt.NDArray[np.bool_]:
        """bool[n]."""
        return self._v2_bit(kf.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> npt.NDArray[np.bool_]:
        """bool[n]: batches of transaction markers or Raft control records instead of user records."""
        return self._v2_bit(kf.CONTROL_BIT)

    @property
    def n_user_records(self) -> npt.NDArray[np.int32]:
        """int32[n]: the records of users, as headers count them: 0 in control batches, -1 if a header has no count."""
        return np.where(self.is_control, np.int32(0), self.records_count)

    @property
    def delete_horizon_ms(self) -> npt.NDArray[np.int64]:
        """int64[n]: time (ms) after which the cleaner may drop the batch's tombstones or marker; -1 for no horizon."""
        return np.where(self._v2_bit(kf.DELETE_HORIZON_BIT), self.base_timestamp, np.int64(-1))

    def to_numpy(self) -> npt.NDArray[np.void]:
        """Return a structured array, with a row per batch and the columns of `to_arrow`."""
        columns = {name: getattr(self, name) for name in (*COLUMNS, *DERIVED)}
        table = np.empty(len(self), [(name, column.dtype) for name, column in columns.items()])
        for name, column in columns.items():
            table[name] = column
        return table

    def to_arrow(self) -> pa.Table:
        """Return a `pyarrow.Table` of the stored and the derived columns, timestamps as int64 milliseconds."""
        import pyarrow as pa

        return pa.table({name: getattr(self, name) for name in (*COLUMNS, *DERIVED)})

    def to_pandas(self) -> pd.DataFrame:
        """Return a `pandas.DataFrame` with the columns of `to_arrow`."""
        return self.to_arrow().to_pandas()

    def _v2_bit(self, bit: int) -> npt.NDArray[np.bool_]:
        bits: npt.NDArray[np.bool_] = ((self.attributes & bit) != 0) & (self.magic >= 2)
        return bits


class ReadTable(BatchTable):
    """The table of batches that a kernel read, with columns created on first use; `rows` must not be filled again."""

    __slots__ = (
        *("_rows", "attribute_bits"),
        *("end_offset", "end_position", "first_offset", "last_position"),
    )

    def __init__(self, rows: HeaderRows) -> None:
        put = object.__setattr__
        put(self, "_rows", rows)
        put(self, "first_offset", rows.first_offset)
        put(self, "last_position", rows.last_position)
        put(self, "end_position", rows.end_position)
        put(self, "end_offset", rows.last_offset + 1)
        put(self, "attribute_bits", rows.attribute_bits)

    def __getattr__(self, name: str) -> Any:
        # called only for attributes that are not set
        if name not in COLUMNS:
            return super().__getattr__(name)  # type: ignore[misc]
        for column, array in zip(COLUMNS, columns_of(self._rows), strict=True):
            object.__setattr__(self, column, array)
        value: npt.NDArray[Any] = object.__getattribute__(self, name)
        return value

    def __len__(self) -> int:
        n: int = self._rows.n
        return n

    def __reduce__(self) -> Any:
        return BatchTable, tuple(getattr(self, name) for name in COLUMNS)


def columns_of(rows: HeaderRows) -> list[npt.NDArray[Any]]:
    """The columns of a batch table, in the memory of the rows."""
    block: Any = rows.block
    return [
        np.frombuffer(block, dtype, rows.n, start * rows.capacity)
        for dtype, start in zip(COLUMNS.values(), _STARTS, strict=False)
    ]


def filled_counts(rows: HeaderRows) -> npt.NDArray[np.int32]:
    """int32[n]: the number of records filled in from each batch."""
    block: Any = rows.block
    return np.frombuffer(block, np.int32, rows.n, _STARTS[-1] * rows.capacity)


_STARTS: Final[list[int]] = [0, *np.cumsum([np.dtype(dtype).itemsize for dtype in COLUMNS.values()]).tolist()]
"""Start of each column's share in a row; the last number is the size of a row."""
_MOST_OFFSETS: Final = 2**31  # offsets in a segment: entries of its index have 32 bits
DERIVED: Final = ("codec", "timestamp_type", "is_transactional", "is_control", "delete_horizon_ms")


HIDDEN: Final = -2
"""Marks an offset hidden by damage."""


class RecordRun:
    """Record batches of consecutive windows, without their batch tables.

    It can be iterated once. Its end attributes describe the windows returned so far; `start` is its start in the file.
    `read_next` returns the next window of the run; None if another reader must continue.
    """

    attribute_bits = 0

    def __init__(self, start: int, first: RecordWindow, read_next: Callable[[RecordRun], RecordWindow | None]) -> None:
        self.start, self.first_offset = start, first.first_offset
        self.n_batches = self.n_records_read = 0
        self._next: RecordWindow | None = first
        self._read_next = read_next
        self._reach(first)

    def _reach(self, window: RecordWindow) -> None:
        self.end_position, self.last_position = window.end_position, window.last_position
        self.end_offset, self.last_record_offset = window.last_offset + 1, window.last_record_offset
        self.n_records = window.n_records

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[Any]:
        window, self._next = self._next, None
        while window is not None:
            self.n_batches += window.n_batches
            self.n_records_read += window.n_records
            batch = window.batch
            del window  # its memory can be reused for the next one
            if batch is not None:
                yield batch
            del batch
            window = self._read_next(self)
            if window is not None:
                self._reach(window)


class Window(NamedTuple):
    """A run of bytes of a segment, and the complete batches in it."""

    data: Bytes
    """The bytes; batch `i` is ``data[batches.position[i] - start:][:batches.size_in_bytes[i]]``.

    Empty if a kernel read and checked the batches in one call."""
    start: int
    """Position of `data[0]` in the file."""
    batches: BatchTable
    valid: npt.NDArray[np.bool_] | None = None
    """Batches with correct checksums; None if they were not compared."""
    records: RecordColumns | None = None
    """Their records, except control records, if decoded in the same call."""
    next_offset: int | None = None
    """The offset field after the last batch, if its bytes were read."""
    run: RecordRun | None = None
    """Instead of batches and records: a run of windows that needs no further checks."""
    before: int | None = None
    """The last offset before the first batch; `HIDDEN` after damage, None if the bytes before were not read."""

    def first(self, n: int) -> Window:
        """The window with its first `n` batches, without their records."""
        valid = None if self.valid is None else self.valid[:n]
        return self._replace(batches=self.batches[:n], valid=valid, records=None, next_offset=None)


def row_of(error: KafkalogError, batches: BatchTable) -> int:
    """Row of the batch that an error is about, from its position; -1 if there is none."""
    return int(np.searchsorted(batches.position, -1 if error.position is None else error.position, side="right")) - 1


def _neighbours(batches: BatchTable, row: int, before: int | None, after: int | None) -> tuple[int | None, int | None]:
    """The last offset before a batch, and the base offset of the batch after it; see `lost_batch`."""
    before = int(batches.last_offset[row - 1]) if row else None if before == HIDDEN else before
    after = int(batches.base_offset[row + 1]) if row + 1 < len(batches) else after
    return before, after


def lost_batch(
    error: KafkalogError, batches: BatchTable, *, before: int | None = None, after: int | None = None
) -> Finding:
    """The finding about a batch that cannot be read, with its offsets and the record count of its header.

    The position of the error identifies it in `batches`. `before` is the last offset before the first of them, and
    `after` the base offset of the batch after the last.
    """
    finding = error.to_finding()
    row = row_of(error, batches)
    if row < 0:
        return finding
    base, last, count = (
        int(column[row]) for column in (batches.base_offset, batches.last_offset, batches.records_count)
    )
    before, after = _neighbours(batches, row, before, after)
    if base < 0:
        base = last if before is None else before + 1
    if before is not None and last - before > _MOST_OFFSETS:
        return replace(finding, base_offset=before + 1)  # too many offsets for a segment: not a header
    # no batch follows to confirm the end offset in the header of a damaged last batch
    is_unconfirmed = error.reason is Reason.CRC_MISMATCH and after is None
    certainty: Certainty = "header" if is_unconfirmed else "at_most"
    if error.reason is Reason.CRC_MISMATCH:
        # if the header does not fit between its neighbours, or is zeros, the header itself is damaged
        start = base if before is None else min(base, before + 1)
        end = last + 1 if after is None or after <= start else after
        if not count or start < base or (last + 1 != end and end <= start + _MOST_OFFSETS):
            finding = replace(finding, n_markers=_n_markers(batches, row, end))
            return replace(finding, base_offset=start, last_offset=end - 1, n_records=end - start, certainty=certainty)
    if 0 <= count <= last - base + 1:
        is_confirmed = before == base - 1 and after == last + 1 and count == last - base + 1
        certainty = "header" if error.reason is Reason.CRC_MISMATCH and not is_confirmed else "exact"
        finding = replace(finding, n_markers=_n_markers(batches, row, last + 1))
        count = 0 if finding.n_markers else count  # a marker is no record
    else:
        count, certainty = last - base + 1, "at_most"
    return replace(finding, base_offset=base, last_offset=last, n_records=count, certainty=certainty)


def _n_markers(batches: BatchTable, row: int, end: int) -> int:
    """1 if the header of a batch is that of a transaction marker before the offset `end`, otherwise 0."""
    is_of_transaction = bool(batches.is_control[row] and batches.is_transactional[row])
    return int(is_of_transaction and batches.base_offset[row] == batches.last_offset[row] < end)


_ALL_VALID: Final = np.ones(2**13, np.bool_)
_ALL_VALID.flags.writeable = False


def all_valid(n: int) -> npt.NDArray[np.bool_]:
    """bool[n]: true; not to be written to."""
    return _ALL_VALID[:n] if n <= _ALL_VALID.size else np.ones(n, np.bool_)


_CREATE_TIMES: Final = np.zeros(2**17, np.int8)
_CREATE_TIMES.flags.writeable = False


def create_time_types(n: int) -> npt.NDArray[np.int8]:
    """The `timestamp_type` of records whose timestamps are all create times; not to be written to."""
    return _CREATE_TIMES[:n] if n <= _CREATE_TIMES.size else np.zeros(n, np.int8)


def may_lack_timestamps(types: npt.NDArray[np.int8]) -> bool:
    """Whether any `timestamp_type` is that of format v0, which has no timestamps."""
    return types.base is not _CREATE_TIMES and types.size > 0 and int(types.min()) < 0


def valid_crcs(window: Window, batches: BatchTable | None = None) -> npt.NDArray[np.bool_]:
    """bool[n]: whether some batches of a window, by default all, have a correct checksum."""
    if batches is None and window.valid is not None:
        return window.valid
    rows = window.batches if batches is None else batches
    if window.valid is not None and not window.data.size:
        return all_valid(len(rows))  # see `Window.data`
    valid = np.empty(len(rows), np.bool_)
    check_crcs(
        window.data,
        window.start,
        rows.position,
        rows.size_in_bytes,
        rows.magic,
        rows.crc,
        valid.view(np.uint8),
    )
    return valid


class HeaderParser:
    """Parses batch headers from bytes into reused arrays, `rows` per kernel call."""

    def __init__(self, rows: int | None = None) -> None:
        n = _ROWS if rows is None else rows
        self._columns: list[npt.NDArray[Any]] = [np.empty(n, dtype) for dtype in COLUMNS.values()]

    def parse(self, data: Bytes, start: int, previous_offset: int) -> tuple[list[BatchTable], int, int, int, int]:
        """Parse from the start of `data`; returns tables, status, position reached, bytes needed there, last offset.

        `start` is the position of `data` in its file. Offsets must increase from `previous_offset`.
        """
        tables: list[BatchTable] = []
        status, reached, needed = STATUS["OUTPUT_FULL"], start, 0
        columns = self._columns
        while status == STATUS["OUTPUT_FULL"]:
            status, n, reached, needed = walk_batches(data, reached - start, start, previous_offset, *columns)
            if n:
                tables.append(BatchTable(*[column[:n].copy() for column in columns]))
                previous_offset = int(tables[-1].last_offset[-1])
        return tables, status, reached, needed, previous_offset


def table_of(data: Bytes, n_batches: int) -> BatchTable:
    """Return the table of `n_batches` complete batches that fill `data`; positions are relative to `data`."""
    tables, status, reached, _, _ = HeaderParser(n_batches).parse(data, 0, -1)
    table = tables[0] if tables else BatchTable.empty()
    if status != STATUS["NEED_MORE"] or reached != data.size or len(table) != n_batches:
        raise ValueError(f"{data.size} bytes are not {n_batches} batches with rising offsets")
    return table


def whole_batches(data: Bytes, position: int) -> BatchTable:
    """Return the table of the complete batches at the start of `data`, as long as offsets increase; it may be empty."""
    return BatchTable.concatenate(HeaderParser().parse(data, position, -1)[0])


def sequences(
    offset: npt.NDArray[np.int64], batches: BatchTable, batch_row: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Base sequence plus offset delta, wrapping to 0 after 2^31 - 1; -1 if the batch has no base sequence.

    For a negative delta, which no producer writes, the result is that of Java's int arithmetic (`incrementSequence`).
    """
    base = batches.base_sequence[batch_row].astype(np.int64)
    delta = offset - batches.base_offset[batch_row]
    wrapped = np.where(delta < 0, base + delta - 2**31, (base + delta) & kf.SEQUENCE_MASK)
    return np.where(base < 0, np.int64(-1), wrapped).astype(np.int32)
