"""Reads the batches and records of a `.log` or `.checkpoint` file, for the text (`dump_text`) and the objects (`rows`).

Checksums are compared, but do not decide: a batch with a wrong one is shown, as Kafka's tool does, if it can be read.
All other damage ends the walk with the error of the ordinary reader, after the batches before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.crc import check_crcs
from kafkalog.errors import WRONG_CHECKSUM, CorruptionError, KafkalogError, Reason, TruncatedTailError
from kafkalog.operations.dumping.mismatches import Mismatches
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.records.batch_table import BatchTable, Window, lost_batch, valid_crcs
from kafkalog.records.codecs import unknown_codec
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import decode, fill_spans
from kafkalog.records.header_walk import walk
from kafkalog.records.legacy import walk_legacy
from kafkalog.records.selection import Selection
from kafkalog.records.spans import ARENA_BYTES, Spans, locate_error
from kafkalog.storage.source import ByteSource

_COLUMNS: Final = (
    *("offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    *("sequence", "batch_base_offset"),
)
Checksums = tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]
_ALL: Final = Selection(include_control=True)
_SEEN_AS_END: Final = 17
"""Bytes up to the magic of a batch: Kafka takes a rest that is no longer for the end of a log, whatever it is."""
_V0_KEY, _V1_KEY = 22, 30
"""Where the key of a message of v0 or v1 starts."""


class BatchRun(NamedTuple):
    """Batches that follow each other: of v2, of uncompressed messages, or of compressed ones."""

    batches: BatchTable
    is_valid: npt.NDArray[np.bool_]
    """Whether each batch has the right checksum."""
    counts: npt.NDArray[np.int64]
    """Number of records of each batch that are in `records`."""
    records: RecordColumns | None = None
    """None if records are not read, and where there are none."""
    inner: Checksums | None = None
    """Of compressed messages: the checksums of the messages in them, and whether they are right."""

    @property
    def is_v2(self) -> bool:
        return bool(self.batches.magic[0] >= 2)

    def batch_rows(self) -> npt.NDArray[np.int64]:
        """Return the row of the batch of each record."""
        return np.repeat(np.arange(self.counts.size), self.counts)

    def first(self, n_batches: int) -> BatchRun:
        """Return the first batches and their records."""
        counts = self.counts[:n_batches]
        n = int(counts.sum())
        records = None if self.records is None or not n else self.records.slice(0, n)
        inner = None if self.inner is None else (self.inner[0][:n], self.inner[1][:n])
        return BatchRun(self.batches[:n_batches], self.is_valid[:n_batches], counts, records, inner)

    def checksums(self) -> Checksums:
        """Return the checksum of each record, or that of its batch, and whether it is right."""
        return self.inner or (np.repeat(self.batches.crc, self.counts), np.repeat(self.is_valid, self.counts))


class LogWalk:
    """Walks one file; `position` is how far it has come.

    `path` is shown in the lists at the end. `is_last` says that no other segment follows: then a torn tail is normal.
    """

    def __init__(
        self, source: ByteSource, options: DumpOptions, report: Mismatches, path: str, *, is_last: bool
    ) -> None:
        self._source, self._options, self._report, self._is_last = source, options, report, is_last
        self._stop = source.size if options.max_bytes is None else min(source.size, options.max_bytes)
        self._previous_offset = -1
        self.path = path
        self.position = 0
        self.trailing_bytes = 0
        """Bytes of an incomplete batch at the end, known after the walk."""

    def parts(self) -> Iterator[BatchRun]:
        """Yield batches and their records; the caller passes what it shows of each part to `report_shown`.

        Raises KafkalogError for damage or a limit, after the batches before that.
        """
        try:
            for window in walk(self._source, stop=self._stop, limits=self._options.limits):
                yield from self._decoded(window) if self._options.is_deep else self._headers(window)
                self._source.release(window.data, window.start)
        except TruncatedTailError as error:
            n = self._stop - self.position
            if error.reason is not Reason.PARTIAL_TAIL and n > _SEEN_AS_END:
                raise
            if self._options.max_bytes is None:
                self.trailing_bytes = n
                self._report.findings.add(error.to_finding(damage=not self._is_last))

    def _headers(self, window: Window) -> Iterator[BatchRun]:
        for first, stop, _ in _runs(window.batches):
            batches = window.batches[first:stop]
            unknown = np.flatnonzero(batches.codec > kf.LAST_CODEC)
            shown = batches[: int(unknown[0])] if unknown.size else batches
            if len(shown):
                self.position = shown.end_position
                yield BatchRun(shown, valid_crcs(window, shown), np.zeros(len(shown), np.int64))
            if unknown.size:
                error = unknown_codec(batches.codec[unknown[0]])
                raise locate_error(error, batches, int(unknown[0]), self._source.path)

    def _decoded(self, window: Window) -> Iterator[BatchRun]:
        limits, path = self._options.limits, self._source.path
        for first, stop, is_wrapped in _runs(window.batches):
            while first < stop:
                records, inner = None, None
                if is_wrapped:
                    spans, n, error = walk_legacy(
                        window,
                        window.batches[first:stop],
                        check_crcs=False,
                        room=ARENA_BYTES,
                        limits=limits,
                        path=path,
                    )
                    counts = np.zeros(0, np.int64)
                    if spans is not None and len(spans):
                        counts, inner = spans.counts[:n], _inner_checksums(spans)
                        records = fill_spans(spans, _COLUMNS)
                else:
                    records, n, error, *_ = decode(
                        window,
                        _COLUMNS,
                        first=first,
                        stop=stop,
                        selection=_ALL,
                        check_crcs=False,
                        limits=limits,
                        path=path,
                    )
                    counts = window.batches.records_count[first : first + n].astype(np.int64)
                if n:
                    batches = window.batches[first : first + n]
                    self.position = batches.end_position
                    yield BatchRun(batches, valid_crcs(window, batches), counts, records, inner)
                if error is not None:
                    raise error
                first += n

    def report_shown(self, part: BatchRun) -> None:
        """Report wrong checksums and gaps between offsets."""
        for row in np.flatnonzero(~part.is_valid).tolist():
            error = CorruptionError(Reason.CRC_MISMATCH, WRONG_CHECKSUM)
            self._report.findings.add(lost_batch(self.locate(error, part, row), part.batches))
        if part.records is None:
            return
        offset = part.records.offset
        before = np.concatenate([[self._previous_offset], offset[:-1]])
        self._previous_offset = int(offset[-1])
        gaps = np.flatnonzero(offset != before + 1)
        if self._options.is_2_8:
            gaps = gaps[before[gaps] != -1]
        if gaps.size:
            self._report.add_pairs("gap", self.path, np.stack([before[gaps], offset[gaps]]))

    def locate(self, error: KafkalogError, part: BatchRun, row: int) -> KafkalogError:
        """Add path, position and base offset of a batch of a part to an error about it; return the error."""
        return locate_error(error, part.batches, row, self._source.path)


def _runs(batches: BatchTable) -> Iterator[tuple[int, int, bool]]:
    """Yield first and last row of batches of the same kind, and whether they are compressed messages of v0 or v1."""
    kind = np.where(batches.magic >= 2, 2, batches.codec != 0)
    changes = (np.flatnonzero(np.diff(kind)) + 1).tolist()
    for first, stop in zip([0, *changes], [*changes, len(batches)], strict=True):
        yield first, stop, bool(kind[first] == 1)


def _inner_checksums(spans: Spans) -> Checksums:
    """Return the checksums of the messages in wrappers, and whether they are right."""
    data = spans.data
    end = (spans.value_start + np.maximum(spans.value_size, 0)).astype(np.int64)
    start = spans.key_start - np.int64(_V1_KEY)
    # in a v0 message of 16 MiB the size looks like the magic of v1, but then the size of v1 does not fit
    magic = (start >= 0) & (data[start + 16] == 1)
    magic &= start + _numbers_at(data, start + 8) + kf.LOG_OVERHEAD >= end
    start = np.where(magic, start, spans.key_start - _V0_KEY)
    crc, is_valid = _numbers_at(data, start + 12), np.empty(len(spans), np.bool_)
    size = (_numbers_at(data, start + 8) + kf.LOG_OVERHEAD).astype(np.int32)
    check_crcs(data, 0, start, size, magic.astype(np.int8), crc, is_valid.view(np.uint8))
    return crc, is_valid


def _numbers_at(data: npt.NDArray[np.uint8], start: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the big-endian numbers of 4 bytes at places."""
    return np.ascontiguousarray(data[start[:, None] + np.arange(4)]).view(">u4")[:, 0].astype(np.uint32)
