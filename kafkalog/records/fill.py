"""Fill columns with all records of some v2 batches, in one kernel call that checks, decompresses, walks and copies.

Memory for the columns is measured by what the thread's last call needed. The kernel ends at a batch for which there is
no more room, and before one that is not plainly good. `kafkalog.records.spans` then reads that one, and says what is
wrong with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.fill as kernels
from kafkalog import format as kf
from kafkalog.errors import Limits
from kafkalog.records.batch_table import (
    BatchTable,
    batch_column,
    create_time_types,
    sequences,
)
from kafkalog.records.columns import (
    HEADERS,
    BinaryColumn,
    Column,
    HeadersColumn,
    RecordColumns,
    ViewColumn,
)
from kafkalog.records.spans import Payloads, record_counts, thread_codecs
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import Bytes

Form = Literal["numpy", "arrow", "views"]
"""The form of byte strings: with int64 offsets, with int32 offsets, or as views into the window."""

FILL_BYTES: Final = 2**22
"""Number of decompressed bytes for which a call makes room; the rest of the window is left to the next call."""

_ARENA_BYTES: Final = 2**18  # stays in a core's cache
_KEPT_ARENA: Final = 2**22
VIEWED_ARENA: Final = 3 * 2**21  # views keep it: as large as memory that is used again for the next windows
_INT32_MAX: Final = 2**31 - 1
_COLUMNS_FULL, _ARENA_FULL = kernels.ENDINGS["columns full"], kernels.ENDINGS["arena full"]


class Filled(NamedTuple):
    """What one call filled."""

    n_batches: int
    """Batches done; 0 if the first one is unusual or damaged."""
    n_records: int
    columns: dict[str, Column]
    """`offset`, `timestamp`, `key`, `value` and `headers`, as far as they are wanted."""


@dataclass(slots=True)
class _Rates:
    """How much of each column a byte of payload filled in a thread's last call, and what else that call met."""

    key: float = 0.25
    value: float = 1.0
    n_headers: float = 1 / 64
    header_key: float = 1 / 16
    header_value: float = 1 / 16
    n_batches: float = 2**-12
    largest: int = 2**16
    """Size of the largest batch."""
    is_compressed: bool = False


_threads = threading.local()


def fill(payloads: Payloads, names: Sequence[str], *, form: Form, decompress: bool, limits: Limits) -> Filled:
    """Fill columns with all records of batches, from the first one on.

    Parameters
    ----------
    payloads : Payloads
    names : sequence of str
        Columns; other ones than those of `Filled.columns` are passed over.
    form : {"numpy", "arrow", "views"}
    decompress : bool
        Whether the payloads still have to be decompressed.
    limits : Limits
    """
    batches = payloads.batches
    announced = int(np.maximum(batches.records_count, 0).sum(dtype=np.int64)) if decompress else payloads.n_records
    n_bytes = room_for(payloads.n_bytes, FILL_BYTES) if decompress else payloads.n_bytes
    call = FillCall(names, form, n_bytes, limits, announced=announced, decompress=decompress)
    thread_rates().is_compressed = decompress
    call.largest = int((payloads.stop - payloads.start).max(initial=0))

    def work(filler: kernels.Filler) -> tuple[int, int]:
        done: tuple[int, int] = kernels.fill_columns(
            payloads.data,
            payloads.start,
            payloads.stop,
            batches.base_offset,
            batches.base_timestamp,
            batches.max_timestamp,
            batches.attributes,
            batches.records_count,
            batches.crc,
            payloads.check_crcs,
            filler,
        )
        return done

    return call.filled(call.make(work), payloads.data)


def room_for(n_bytes: int, most: int) -> int:
    """For how many decompressed bytes to make room, given the compressed ones."""
    # compression is rarely better than that; where it is, the call is made again with more memory
    return min(most, max(64 * n_bytes, 2**16))


class FillCall:
    """A call of a kernel, made again with more memory until there is enough for one batch.

    Parameters
    ----------
    names, form, limits
        See `fill`.
    n_bytes : int
        Number of bytes of payload for which to make room.
    announced : int
        Number of records.
    decompress : bool
        Whether payloads may be compressed.
    """

    def __init__(
        self,
        names: Sequence[str],
        form: Form,
        n_bytes: int,
        limits: Limits,
        *,
        announced: int,
        decompress: bool,
    ) -> None:
        self._names, self._form, self._n_bytes, self._limits = names, form, n_bytes, limits
        self._announced, self._decompress = announced, decompress
        self._rates = thread_rates()
        self._room: _Room | None = None
        self._arena: Bytes | None = None
        self._n_filled = 0
        self.largest = self._rates.largest

    def make(self, work: Callable[[kernels.Filler], tuple[int, int]]) -> int:
        """How many batches `work` fills in, 0 if the first is unusual; `work` returns its ending and that number."""
        limits, form, n_bytes = self._limits, self._form, self._n_bytes
        while True:
            arena = self._take_arena(n_bytes)
            largest = self.largest
            if arena is not None and form != "views" and self._rates.is_compressed:
                largest = max(largest, arena.size)
            n_rows = min(self._announced, n_bytes // kf.MIN_RECORD_BYTES)
            room = _Room(self._names, form, n_rows, n_bytes, largest, self._rates, is_bound=not self._decompress)
            filler = kernels.Filler(
                room.columns,
                thread_codecs() if self._decompress else None,
                arena,
                min(limits.max_records_per_batch, _INT32_MAX),
                min(limits.max_headers_per_record, _INT32_MAX),
                min(limits.max_headers_per_batch, _INT32_MAX),
                limits.max_decompressed_bytes,
            )
            ending, n_batches = work(filler)
            used, arena_size = filler.arena_used, 0 if arena is None else arena.size
            if n_batches:
                # others than views own their bytes: a large arena is freed before these are copied again
                self._arena = arena if used and form == "views" else None
                self._room, self._n_filled = room, filler.n_bytes
                return n_batches
            del room, arena, filler  # their memory is used again
            if arena_size > _KEPT_ARENA:
                _threads.arena = None
            most = limits.max_decompressed_bytes + kernels.PAD
            if ending == _ARENA_FULL and not self._rates.is_compressed:
                self._rates.is_compressed = True
                n_bytes = min(n_bytes, VIEWED_ARENA) if form == "views" else n_bytes
            elif ending == _ARENA_FULL and arena_size < most:
                arena_size = min(2 * arena_size, most)
                n_bytes = max(n_bytes, arena_size)
                if form != "views":
                    # a large one is not worth keeping: its memory goes back to the system
                    make = empty if arena_size <= _KEPT_ARENA else np.empty
                    _threads.arena = make(arena_size, np.uint8)
            # offsets of strings have 32 bits: what needs more room than they can tell is left to the exact way
            elif ending == _COLUMNS_FULL and n_bytes < _INT32_MAX // 4:
                n_bytes = self.largest = max(2 * n_bytes, used)
            else:
                return 0

    def filled(self, n_batches: int, data: Bytes) -> Filled:
        """What was filled; views of plain payloads point to `data`."""
        if self._room is None:
            return Filled(0, 0, {})
        return self._room.filled(n_batches, self._n_filled, data, self._arena, self._rates)

    def _take_arena(self, n_bytes: int) -> Bytes | None:
        """Memory to decompress into: the thread's, unless its content has to be kept."""
        if not self._decompress:
            return None
        if self._form == "views":
            return empty((n_bytes if self._rates.is_compressed else 0) + kernels.PAD, np.uint8)
        arena: Bytes | None = getattr(_threads, "arena", None)
        if arena is None:
            arena = _threads.arena = empty(_ARENA_BYTES + kernels.PAD, np.uint8)
        elif arena.size > _KEPT_ARENA:
            _threads.arena = None  # a large one is freed after this call
        return arena


_newest = _Rates()


def thread_rates() -> _Rates:
    """The thread's rates; a new thread begins with those of the one that began last."""
    global _newest
    rates: _Rates | None = getattr(_threads, "rates", None)
    if rates is None:
        rates = _newest = _threads.rates = replace(_newest)
    return rates


NEED_OFFSETS: Final = frozenset(("offset", "sequence", "batch_base_offset"))


class _Room:
    """Memory for the columns of one call."""

    def __init__(
        self,
        names: Sequence[str],
        form: Form,
        n_rows: int,
        n_bytes: int,
        largest: int,
        rates: _Rates,
        *,
        is_bound: bool,
    ) -> None:
        self.n_bytes = n_bytes
        self._most = n_bytes if is_bound else _INT32_MAX // 2
        self._largest, self._form = largest, form
        self._offsets: npt.DTypeLike = np.int64 if form == "numpy" else np.int32
        self._offset = empty(n_rows, np.int64) if not NEED_OFFSETS.isdisjoint(names) else None
        self._timestamp = empty(n_rows, np.int64) if "timestamp" in names else None
        self._key = self._strings(n_rows, rates.key) if "key" in names else None
        self._value = self._strings(n_rows, rates.value) if "value" in names else None
        self._headers: Any = None
        if HEADERS in names:
            n = min(int(rates.n_headers * n_bytes) + largest // 2, self._most // 2)
            parts = (self._copies(n, rate) for rate in (rates.header_key, rates.header_value))
            self._headers = (empty(n_rows + 1, self._offsets), *parts)
        self.columns = kernels.Columns(n_rows, self._offset, self._timestamp, self._key, self._value, self._headers)

    def _strings(self, n: int, rate: float) -> Any:
        if self._form == "views":
            return empty(16 * n, np.uint8), np.empty(n, np.uint8)
        return self._copies(n, rate)

    def _copies(self, n: int, rate: float) -> Any:
        size = min(int(rate * self.n_bytes) + self._largest, self._most)
        return empty(n + 1, self._offsets), empty(size + kernels.PAD, np.uint8), np.empty(n, np.uint8)

    def filled(self, n_batches: int, n_bytes: int, data: Bytes, arena: Bytes | None, rates: _Rates) -> Filled:
        """What the kernel has written; `n_bytes` is the size of the payloads."""
        n, n_headers = self.columns.n_records, self.columns.n_headers
        key, value, header_key, header_value = self.columns.sizes()
        filled: dict[str, Column] = {}
        if self._offset is not None:
            filled["offset"] = _first(self._offset, n)
        if self._timestamp is not None:
            filled["timestamp"] = _first(self._timestamp, n)
        buffers = (data,) if arena is None else (data, arena)
        for name, arrays, sizes in (("key", self._key, key), ("value", self._value, value)):
            if arrays is not None and len(arrays) == 2:
                filled[name] = ViewColumn(_first(arrays[0], 16 * n), buffers, _validity(arrays[1], n, sizes[1]))
            elif arrays is not None:
                filled[name] = _column(arrays, n, *sizes, spare=n_bytes // 64)
        if self._headers is not None and not n_headers:
            filled[HEADERS] = HeadersColumn.none(n)
        elif self._headers is not None:
            keys, values = (
                _column(part, n_headers, *sizes, spare=n_bytes // 64)
                for part, sizes in zip(self._headers[1:], (header_key, header_value), strict=True)
            )
            filled[HEADERS] = HeadersColumn(_first(self._headers[0], n + 1), keys, values)
        if n_bytes and self._form != "views":
            if self._key is not None:
                rates.key = _adapted(rates.key, key[0] / n_bytes, n)
            if self._value is not None:
                rates.value = _adapted(rates.value, value[0] / n_bytes, n)
            if self._headers is not None:
                rates.n_headers = _adapted(rates.n_headers, n_headers / n_bytes, n)
                rates.header_key = _adapted(rates.header_key, header_key[0] / n_bytes, n)
                rates.header_value = _adapted(rates.header_value, header_value[0] / n_bytes, n)
        return Filled(n_batches, n, filled)


_ENOUGH_RECORDS = 1000


def _adapted(rate: float, needed: float, n: int) -> float:
    """The rate itself if it is about right: blocks of the same size are used again."""
    if needed <= rate and (n < _ENOUGH_RECORDS or rate <= 1.25 * needed + 1 / 64):
        return rate
    return min(1.125 * needed, 1.0)


def _column(arrays: Any, n: int, n_bytes: int, n_null: int, *, spare: int) -> BinaryColumn:
    """The strings written; they are copied if over a quarter of their memory, and over `spare` bytes, are unused."""
    offsets, data, valid = arrays
    if n_bytes + spare < data.size - kernels.PAD and n_bytes < (data.size - kernels.PAD) // 4 * 3:
        whole, data = data, empty(n_bytes, np.uint8)
        data[:] = whole[:n_bytes]
    return BinaryColumn(_first(offsets, n + 1), data[:n_bytes], _validity(valid, n, n_null))


def _first(array: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """The first elements; copied if most of the memory is unused, as columns of tiny logs may be kept by thousands."""
    return array[:n].copy() if 4 * n < array.size else array[:n]


def _validity(valid: npt.NDArray[np.uint8], n: int, n_null: int) -> npt.NDArray[np.bool_] | None:
    return valid[:n].view(np.bool_) if n_null else None


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
