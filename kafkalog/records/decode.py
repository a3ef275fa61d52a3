"""Decode the batches of a window to `RecordColumns`, in three stages: walk to spans, select, fill.

*Spans* are the positions of each key, value and header block in a buffer. Selecting drops rows before anything is
copied. Filling writes contiguous columns that own their memory. If every record is wanted, walking and filling are one
pass. A call stops at a damaged batch, or once it has decompressed enough bytes. It returns how many batches are done,
so that the caller can continue with the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import decode as kernels
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.columns import (
    DEFAULT_COLUMNS,
    FIXED_COLUMNS,
    HEADERS,
    BinaryColumn,
    Column,
    HeadersColumn,
    RecordColumns,
)
from kafkalog.records.legacy import walk_legacy
from kafkalog.records.selection import FunctionFailure, Selection
from kafkalog.records.spans import (
    ARENA_BYTES,
    Payloads,
    Spans,
    batch_error,
    decompress_payloads,
    limit_records,
    record_counts,
    scratch,
    survey,
    walk_v2,
)
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import Bytes

_OK = STATUS["OK"]
_LEGACY_MAGICS = 0b011

Rows = npt.NDArray[np.int64] | None
"""Numbers of selected records, None for all."""


class Decoded(NamedTuple):
    """Result of decoding some batches of a window."""

    columns: RecordColumns | None
    """The records; None if none matched."""
    n_batches: int
    """Number of batches done, from the first one on."""
    error: KafkalogError | None
    """The error about the next batch, if it is bad."""
    n_records: int
    """Records that were walked, whether or not they matched."""
    failures: Sequence[FunctionFailure] = ()
    """Records on which the caller's functions failed."""


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
) -> Decoded:
    """Decode batches `first` to `stop` of a window to columns.

    Parameters
    ----------
    window : Window
    columns : sequence of str
        Names from `ALL_COLUMNS`; only these are filled. Derived columns are returned in addition.
    first, stop : int
        Rows of the batch table; default: all.
    selection : Selection, optional
        Default: all records except control records.
    check_crcs : bool
        Whether to compare each batch's checksum.
    limits : Limits
    path : str, optional
        For messages.

    Returns
    -------
    Decoded
        The columns own their memory, so the window may be released. Stops early, without an error, once `ARENA_BYTES`
        were decompressed.

    Notes
    -----
    A batch is decoded completely or not at all. Whether it is valid does not depend on `columns`: everything that
    Kafka's reader checks is checked in any case.
    """
    selection = selection or Selection()
    stop = len(window.batches) if stop is None else stop
    batches = window.batches if (first, stop) == (0, len(window.batches)) else window.batches[first:stop]
    numbers: Rows = None
    mask = selection.batch_mask(batches)
    if mask is not None and not mask.all():
        numbers = np.flatnonzero(mask)
        batches = batches[numbers]
    job = _Job(window, columns, selection, check_crcs, limits, path)
    done = 0
    error: KafkalogError | None = None
    for run in _runs(window, batches):
        n_done, error = job.decode(run)
        done += n_done
        if error is not None or n_done < len(run.batches):
            break
    else:
        return Decoded(job.result(), stop - first, None, job.n_records, job.failures)
    # batches that their headers rule out count as done, up to the first selected one that is not
    return Decoded(job.result(), done if numbers is None else int(numbers[done]), error, job.n_records, job.failures)


class _Run(NamedTuple):
    """Consecutive batches that are all of v2, or all older."""

    batches: BatchTable
    is_legacy: bool
    payloads: Payloads
    """Their payloads in the window, not decompressed."""


def _runs(window: Window, batches: BatchTable) -> Iterator[_Run]:
    """Split batches where the format changes between v2 and older ones."""
    if not len(batches):
        return
    magics, payloads = survey(window, batches)
    legacy, modern = magics & _LEGACY_MAGICS, magics & ~_LEGACY_MAGICS
    if legacy and modern:
        changes = np.flatnonzero(np.diff(batches.magic >= 2)) + 1
        for start, stop in itertools.pairwise([0, *changes.tolist(), len(batches)]):
            yield from _runs(window, batches[start:stop])
    else:
        yield _Run(batches, legacy != 0, payloads)


class _Job:
    """Arguments of one call of `decode`, and its results so far."""

    def __init__(
        self,
        window: Window,
        columns: Sequence[str],
        selection: Selection,
        check_crcs: bool,
        limits: Limits,
        path: str | None,
    ) -> None:
        self.window, self.columns, self.selection = window, columns, selection
        self.check_crcs, self.limits, self.path = check_crcs, limits, path
        self.room = ARENA_BYTES
        self.parts: list[RecordColumns] = []
        self.failures: list[FunctionFailure] = []
        self.n_records = 0

    def result(self) -> RecordColumns | None:
        return RecordColumns.concatenate(self.parts) if self.parts else None

    def decode(self, run: _Run) -> tuple[int, KafkalogError | None]:
        """Decode one run; returns how many batches are done, and the error about the next one, if it is bad."""
        options: dict[str, Any] = {"limits": self.limits, "path": self.path}
        if run.is_legacy:
            spans, n_done, used, error = walk_legacy(
                self.window, run.batches, check_crcs=self.check_crcs, room=self.room, **options
            )
            self.room -= used
            if spans is not None:
                self._select(spans)
            return n_done, error
        payloads = run.payloads
        payloads.check_crcs = self.check_crcs
        if payloads.attribute_bits & kf.CODEC_MASK:
            payloads = decompress_payloads(
                self.window, run.batches, check_crcs=self.check_crcs, room=self.room, **options
            )
            self.room -= payloads.n_decompressed
        else:
            payloads = limit_records(payloads, self.window, **options)
        if self.selection.takes_all_of(run.batches):
            return self._copy(payloads)
        headers = HEADERS in self.columns or self.selection.reads_headers
        spans, n_done, error = walk_v2(payloads, headers=headers, **options)
        self._select(spans)
        return n_done, error

    def _select(self, spans: Spans) -> None:
        self.n_records += len(spans)
        if len(spans):
            rows, derived, failures = self.selection.select(spans)
            self.failures += failures
            if rows is None or rows.size:
                self.parts.append(_fill(spans, rows, self.columns, derived))

    def _copy(self, payloads: Payloads) -> tuple[int, KafkalogError | None]:
        """Walk and fill in one pass, since every record is wanted."""
        batches, n = payloads.batches, payloads.n_records
        offset = self._room("offset", n, np.int64)
        timestamp = self._room("timestamp", n, np.int64)
        headers_start = headers_count = None
        if HEADERS in self.columns:
            headers_start, headers_count = (scratch(name, n, np.int32) for name in _HEADER_SPANS)
        key, value = (self._binary_room(name, payloads) for name in ("key", "value"))
        status, n_done, n_records, _, n_null_keys, n_null_values, n_headers = kernels.walk_records(
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
            self.limits.max_headers_per_record,
            self.limits.max_headers_per_batch,
            offset,
            timestamp,
            *_NO_SPANS,
            headers_start,
            headers_count,
            *key,
            *value,
        )
        error = payloads.error if status == _OK else batch_error(status, batches, n_done, self.path)
        self.n_records += n_records
        if not n_records:
            return n_done, error
        filled: dict[str, Column] = {}
        counts: npt.NDArray[np.int64] | None = None
        for name in self.columns:
            if name == "key":
                filled[name] = _filled(*key, n_records, n_null_keys, True)
            elif name == "value":
                filled[name] = _filled(*value, n_records, n_null_values, False)
            elif name == HEADERS:
                filled[name] = _headers(payloads.data, headers_start, headers_count, None, n_records, n_headers)
            elif name == "offset":
                filled[name] = offset[:n_records]
            elif name == "timestamp":
                filled[name] = timestamp[:n_records]
            elif name == "timestamp_type" and not payloads.attribute_bits & kf.TIMESTAMP_TYPE_BIT:
                filled[name] = np.zeros(n_records, np.int8)
            elif name == "sequence":
                counts = record_counts(batches, n_done) if counts is None else counts
                batch_row = np.repeat(np.arange(counts.size), counts)
                filled[name] = sequences(offset[:n_records], batches, batch_row)
            else:
                of_batch = batch_column(name, batches)
                if (of_batch[0] == of_batch).all():
                    filled[name] = np.full(n_records, of_batch[0], of_batch.dtype)
                else:
                    counts = record_counts(batches, n_done) if counts is None else counts
                    filled[name] = np.repeat(of_batch, counts)
        self.parts.append(RecordColumns(n_records, filled))
        return n_done, error

    def _room(self, name: str, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return empty(n, dtype) if name in self.columns else scratch(name, n, dtype)

    def _binary_room(self, name: str, payloads: Payloads) -> tuple[Any, Any, Any]:
        """Return arrays for offsets, data and validity of a column; None each if the column is not wanted."""
        if name not in self.columns:
            return None, None, None
        n, n_bytes = payloads.n_records, payloads.n_bytes
        # Values usually have most of the bytes. Keys go to scratch memory, which stays in cache, and are copied again
        data = empty(n_bytes, np.uint8) if name == "value" else scratch("key_data", n_bytes, np.uint8)
        return empty(n + 1, np.int64), data, np.empty(n, np.uint8)


_HEADER_SPANS = ("headers_start", "headers_count")
_NO_SPANS = (None,) * 4


def _filled(
    offsets: npt.NDArray[np.int64],
    data: Bytes,
    valid: npt.NDArray[np.uint8],
    n: int,
    n_null: int,
    is_scratch: bool,
) -> BinaryColumn:
    """Make a column of the bytes written; copies them out of scratch memory, or if over a quarter of it is unused."""
    n_bytes = int(offsets[n])
    if is_scratch or n_bytes < data.size // 4 * 3:
        whole, data = data, empty(n_bytes, np.uint8)
        data[:] = whole[:n_bytes]
    return BinaryColumn(offsets[: n + 1], data[:n_bytes], valid[:n].view(np.bool_) if n_null else None)


def _fill(spans: Spans, rows: Rows, columns: Sequence[str], derived: Mapping[str, npt.NDArray[Any]]) -> RecordColumns:
    n = len(spans) if rows is None else rows.size
    filled: dict[str, Column] = dict(derived)
    batch_row: npt.NDArray[np.int64] | None = None
    own = {
        "offset": spans.offset,
        "timestamp": spans.timestamp,
        "timestamp_type": spans.timestamp_type,
        "batch_base_offset": spans.batch_base_offset,
    }
    for name in columns:
        if name == "key":
            filled[name] = _fill_binary(spans.data, spans.key_start, spans.key_size, rows)
        elif name == "value":
            filled[name] = _fill_binary(spans.data, spans.value_start, spans.value_size, rows)
        elif name == HEADERS:
            filled[name] = _headers(spans.data, spans.headers_start, spans.headers_count, rows, n, spans.n_headers)
        elif (column := own.get(name)) is not None:
            filled[name] = column if rows is None else column[rows]
        else:
            of_batch = spans.batches.base_sequence if name == "sequence" else batch_column(name, spans.batches)
            if name != "sequence" and (of_batch[0] == of_batch).all():
                filled[name] = np.full(n, of_batch[0], of_batch.dtype)
                continue
            if batch_row is None:
                batch_row = spans.batch_row() if rows is None else spans.batch_row()[rows]
            if name == "sequence":
                offset = spans.offset if rows is None else spans.offset[rows]
                filled[name] = sequences(offset, spans.batches, batch_row)
            else:
                filled[name] = of_batch[batch_row]
    return RecordColumns(n, filled)


def _fill_binary(
    data: Bytes,
    start: npt.NDArray[np.int32],
    size: npt.NDArray[np.int32],
    rows: Rows,
) -> BinaryColumn:
    n = start.size if rows is None else rows.size
    n_bytes, n_null = kernels.measure_binary(size, rows)
    offsets, out = empty(n + 1, np.int64), empty(n_bytes, np.uint8)
    validity = np.empty(n, np.bool_) if n_null else None
    kernels.fill_binary(data, start, size, rows, offsets, out, None if validity is None else validity.view(np.uint8))
    return BinaryColumn(offsets, out, validity)


def _headers(
    data: Bytes,
    headers_start: npt.NDArray[np.int32] | None,
    headers_count: npt.NDArray[np.int32] | None,
    rows: Rows,
    n: int,
    n_headers: int,
) -> HeadersColumn:
    """Headers column of `n` records: the first ones, or those in `rows`."""
    if headers_start is None or headers_count is None or not n_headers:
        return HeadersColumn.none(n)
    start, counts = (headers_start[:n], headers_count[:n]) if rows is None else (headers_start, headers_count)
    total = n_headers if rows is None else int(counts[rows].sum(dtype=np.int64))
    offsets = empty(n + 1, np.int64)
    key_start, key_size, value_start, value_size = (scratch(name, total, np.int32) for name in _HEADER_PARTS)
    status, n_walked = kernels.walk_headers(
        data, start, counts, rows, offsets, key_start, key_size, value_start, value_size
    )
    if status != _OK or n_walked != total:
        raise AssertionError("headers that were walked once cannot be walked again")
    return HeadersColumn(
        offsets,
        _fill_binary(data, key_start, key_size, None),
        _fill_binary(data, value_start, value_size, None),
    )


_HEADER_PARTS = ("header_key_start", "header_key_size", "header_value_start", "header_value_size")


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


def sequences(
    offset: npt.NDArray[np.int64], batches: BatchTable, batch_row: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Base sequence plus offset delta, wrapping to 0 after 2^31 - 1; -1 if the batch has no base sequence.

    For a negative delta, which no producer writes, the result is that of Java's int arithmetic (`incrementSequence`).
    """
    base = batches.base_sequence[batch_row].astype(np.int64)
    delta = offset - batches.base_offset[batch_row]
    wrapped = np.where(delta < 0, base + delta - 2**31, (base + delta) & 0x7FFFFFFF)
    return np.where(base < 0, np.int64(-1), wrapped).astype(np.int32)
