"""Decode the batches of a window to `RecordColumns`.

If every record of batches that follow each other is wanted, the kernel of `readers.record_windows` decodes them.
Otherwise, and for a batch that is unusual or damaged, there are three stages: walk to spans, select, fill. *Spans* are
the positions of each key, value and header block in a buffer. Selecting drops rows before anything is copied. Filling
writes contiguous columns that own their memory. A call may stop early, and stops at a damaged batch; it says how many
are done, for the caller to go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.decode as kernels
from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.column_names import OWN_COLUMNS
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits
from kafkalog.records.batch_columns import Filled, Form, with_batch_columns
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.columns import HEADERS, Column, RecordColumns
from kafkalog.records.legacy import walk_legacy
from kafkalog.records.readers.record_windows import ALL_OFFSETS, WindowOptions
from kafkalog.records.selection import FunctionFailure, Selection
from kafkalog.records.spans import (
    ARENA_BYTES,
    PayloadSpans,
    Spans,
    decompress_payloads,
    limit_records,
    release_arena,
    scratch,
    survey,
    thread_codecs,
    uses_kernels,
    walk_v2,
)
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import Bytes

_FEW = 16
_FILL_BYTES = 2**22  # decompressed, for which a call makes room; the rest of the window is left to the next call
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
    columns: Sequence[str] = OWN_COLUMNS,
    *,
    first: int = 0,
    stop: int | None = None,
    selection: Selection | None = None,
    form: Form = "numpy",
    check_crcs: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    path: str | None = None,
) -> Decoded:
    """Decode batches `first` to `stop` of a window to columns; by default all records except control records.

    Only the columns named are filled; derived columns are returned in addition. They own their memory, except for
    views, so the window may be released. `form` is that of byte strings: int64 offsets (numpy), or, if all records are
    selected, int32 offsets (arrow) or views into the window. May stop early without an error, after one batch or more;
    the caller continues with another call.

    A batch is decoded completely or not at all, and with all checks of Kafka's reader, whatever the columns. A wrong
    checksum of a control batch is damage, too.
    """
    selection = selection or Selection()
    stop = len(window.batches) if stop is None else stop
    batches = window.batches if (first, stop) == (0, len(window.batches)) else window.batches[first:stop]
    numbers: Rows = None
    mask = selection.wanted_batches(window._replace(batches=batches, valid=None), check_crcs=check_crcs)
    if mask is not None and not mask.all():
        numbers = np.flatnonzero(mask)
        batches = batches[numbers]
    job = _Job(window, columns, selection, form, check_crcs, limits, path)
    run = _first_run(window, batches)
    n_done, error = (0, None) if run is None else job.decode(run)
    release_arena()
    # batches after the last selected one are excluded by their headers, and so also done
    if n_done == len(batches):
        n_done = stop - first
    elif numbers is not None:
        # batches excluded by their headers count as done, up to the next selected one
        n_done = int(numbers[n_done])
    return Decoded(job.columns, n_done, error, job.n_records, job.failures)


def decode_all(window: Window, columns: Sequence[str], **options: Any) -> Iterator[Decoded]:
    """Decode all batches of a window, in several calls of `decode`; continues after one that cannot be decoded."""
    done = 0
    while done < len(window.batches):
        decoded = decode(window, columns, first=done, **options)
        done += decoded.n_batches + (decoded.error is not None)
        yield decoded
        del decoded


class _Run(NamedTuple):
    """Consecutive batches that are all of v2, or all older."""

    batches: BatchTable
    is_legacy: bool
    payloads: PayloadSpans
    """Their payloads in the window, still compressed."""

    def first(self) -> PayloadSpans:
        payloads, batches = self.payloads, self.batches[:_FEW]
        start, stop = payloads.start[:_FEW], payloads.stop[:_FEW]
        most = np.clip(batches.records_count, 0, (stop - start) // kf.MIN_RECORD_BYTES)
        return replace(payloads, start=start, stop=stop, batches=batches, n_records=int(most.sum(dtype=np.int64)))


def _first_run(window: Window, batches: BatchTable) -> _Run | None:
    """The batches before the format changes between v2 and older."""
    if not len(batches):
        return None
    magics, payloads = survey(window, batches)
    legacy, modern = magics & _LEGACY_MAGICS, magics & ~_LEGACY_MAGICS
    # a change of the message format leaves batches of both kinds in one segment
    if legacy and modern:
        change = int(np.argmax(np.diff(batches.magic >= 2))) + 1
        return _first_run(window, batches[:change])
    return _Run(batches, legacy != 0, payloads)


class _Job:
    """Arguments of one call of `decode`, and its results."""

    def __init__(
        self,
        window: Window,
        names: Sequence[str],
        selection: Selection,
        form: Form,
        check_crcs: bool,
        limits: Limits,
        path: str | None,
    ) -> None:
        self.window, self.names, self.selection, self.form = window, names, selection, form
        self.check_crcs, self.limits, self.path = check_crcs, limits, path
        self.columns: RecordColumns | None = None
        self.failures: list[FunctionFailure] = []
        self.n_records = 0

    def decode(self, run: _Run) -> tuple[int, KafkalogError | None]:
        """Decode one run, or a part of it; returns how many batches are done, and the error about the next one."""
        if run.is_legacy:
            spans, n_done, error = walk_legacy(
                self.window,
                run.batches,
                check_crcs=self.check_crcs,
                room=ARENA_BYTES,
                limits=self.limits,
                path=self.path,
            )
            if spans is not None:
                self._select(spans)
            return n_done, error
        run.payloads.check_crcs = self.check_crcs
        if not self.selection.takes_all_of(run.batches):
            return self._walk(self._plain(run.payloads))
        # where the first one is unusual or damaged, the next ones may be like it
        n_done = self._fill(run)
        return (n_done, None) if n_done else self._walk(self._plain(run.first() if uses_kernels() else run.payloads))

    def _fill(self, run: _Run) -> int:
        """Decode good batches that follow each other in one kernel call; returns how many, from the first one on."""
        batches, bits = run.batches, run.payloads.attribute_bits
        start, stop = int(batches.position[0]), batches.end_position
        # the kernel leaves out the records of control batches
        if bits & kf.CONTROL_BIT or not uses_kernels() or stop - start != batches.size_in_bytes.sum(dtype=np.int64):
            return 0
        options = WindowOptions(
            names=self.names,
            form=self.form,
            check_crcs=self.check_crcs,
            limits=self.limits,
            window_bytes=_FILL_BYTES,
            offsets=ALL_OFFSETS,
        )
        data = self.window.data[start - self.window.start : stop - self.window.start]
        found = options.windows().next(thread_codecs(), -1, start, stop, stop, -1, data)
        if found is None:
            return 0
        if found.n_records:
            self.n_records, self.columns = found.n_records, options.window(found, start).records
        return int(found.n_batches)

    def _plain(self, payloads: PayloadSpans) -> PayloadSpans:
        """Decompress payloads, with at most as many records as the limit allows."""
        if payloads.attribute_bits & kf.CODEC_MASK:
            return decompress_payloads(
                self.window,
                payloads.batches,
                check_crcs=self.check_crcs,
                room=ARENA_BYTES,
                limits=self.limits,
                path=self.path,
            )
        return limit_records(payloads, self.window, self.limits, self.path)

    def _walk(self, payloads: PayloadSpans) -> tuple[int, KafkalogError | None]:
        headers = HEADERS in self.names or self.selection.reads_headers
        spans, n_done, error = walk_v2(payloads, headers=headers, limits=self.limits, path=self.path)
        self._select(spans)
        return n_done, error

    def _select(self, spans: Spans) -> None:
        self.n_records = len(spans)
        if len(spans):
            rows, derived, failures = self.selection.select(spans)
            self.failures += failures
            if rows is None or rows.size:
                self.columns = fill_spans(spans, self.names, rows, derived)


def fill_spans(
    spans: Spans, names: Sequence[str], rows: Rows = None, derived: Mapping[str, npt.NDArray[Any]] | None = None
) -> RecordColumns:
    """Copy the records of spans, or some of them, to columns; derived columns are added unchanged."""
    n = len(spans) if rows is None else rows.size
    filled: dict[str, Column] = {}
    own = {
        "offset": spans.offset,
        "timestamp": spans.timestamp,
        "timestamp_type": spans.timestamp_type,
        "batch_base_offset": spans.batch_base_offset,
    }
    for name in (*names, "offset") if "sequence" in names else names:
        if name == "key":
            filled[name] = _fill_binary(spans.data, spans.key_start, spans.key_size, rows)
        elif name == "value":
            filled[name] = _fill_binary(spans.data, spans.value_start, spans.value_size, rows)
        elif name == HEADERS:
            filled[name] = headers_of(spans.data, spans.headers_start, spans.headers_count, rows, n, spans.n_headers)
        elif (column := own.get(name)) is not None:
            filled[name] = column if rows is None else column[rows]

    def batch_rows() -> npt.NDArray[np.int64]:
        return spans.batch_row() if rows is None else spans.batch_row()[rows]

    columns = with_batch_columns(Filled(0, n, filled), lambda: spans.batches, names, batch_rows=batch_rows)
    return RecordColumns(n, {**derived, **columns}) if derived else columns


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


def headers_of(
    data: Bytes,
    headers_start: npt.NDArray[np.int32] | None,
    headers_count: npt.NDArray[np.int32] | None,
    rows: Rows,
    n: int,
    n_headers: int,
) -> HeadersColumn:
    """The headers of `n` records: the first ones, or those in `rows`."""
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
