"""Rewrites a window of batches: unchanged batches are copied, the others are decoded and encoded again.

Filters are evaluated on spans first, so that only batches that change are decoded into columns. `rewrite` is a pure
function of the window, its rules and the leader epochs that the caller passes; windows can be rewritten in any order. A
call may end early, at a damaged batch or at a limit; the next call continues. This module reads and writes no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    KafkalogError,
    Limits,
    Reason,
    UnwritableError,
)
from kafkalog.operations.converting.assemble import Part, assemble, empty_batches
from kafkalog.operations.converting.batch_boundaries import JoinRules, cut
from kafkalog.operations.converting.kept_records import BoundRules, NeededBatches
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.codecs import Compression, unknown_codec
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import decode, decode_all
from kafkalog.records.encode import encode_batches
from kafkalog.records.selection import Selection
from kafkalog.records.spans import batch_error, locate_error

_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "batch_position")
_ALL: Final = Selection()


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that apply to all batches, whatever their records are."""

    compression: Compression | None = None
    """Compression of rewritten batches; None keeps each batch's codec. If set, batches of another codec are
    rewritten.
    """
    batch_size: int | None = None
    """Size to which all batches are cut again, in bytes before compression; None keeps the batches."""
    limits: Limits = DEFAULT_LIMITS
    decodes_all: bool = False
    """Whether batches that stay as they are must be ones that a reader can decode."""

    @property
    def rewrites_all(self) -> bool:
        """Whether even batches of the right codec are encoded again."""
        return self.batch_size is not None or (self.compression is not None and self.compression.level is not None)


@dataclass(slots=True)
class Counts:
    """Counts of the input and the output; control records are not counted as records."""

    n_batches_before: int = 0
    n_batches_after: int = 0
    n_batches_kept: int = 0
    n_records_before: int = 0
    n_records_after: int = 0
    n_records_redacted: int = 0
    n_bytes_before: int = 0
    n_bytes_after: int = 0

    def add(self, other: Counts) -> None:
        """Add other counts to these."""
        for name in Counts.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_output(self, batches: BatchTable) -> None:
        """Count batches of the output."""
        self.n_batches_after += len(batches)
        self.n_bytes_after += int(batches.size_in_bytes.sum(dtype=np.int64))
        self.n_records_after += int(batches.n_user_records.sum(dtype=np.int64))


@dataclass(slots=True)
class Rewritten:
    """The output for some batches."""

    n_batches: int
    """Number of source batches that are done."""
    error: KafkalogError | None = None
    """The damage in the batch after them; None if there is none."""
    window: Window | None = None
    """The batches to write; None if there are none."""
    tail: Window | None = None
    """An empty batch with the last offset of the source batches, if the last one was dropped. It must be written if no
    batch follows, so that the log end offset stays.
    """
    counts: Counts = field(default_factory=Counts)


def rewrite(
    window: Window,
    batches: BatchTable,
    epochs: npt.NDArray[np.int32],
    *,
    settings: Settings,
    rules: BoundRules,
    needed_batches: NeededBatches | None,
    path: str,
) -> Rewritten:
    """Convert batches, which must be in the order of the log.

    `epochs` (int32[n]) has the leader epoch of each batch; it is used for legacy messages, which have none.
    `needed_batches` is None if there are no producers, or no batch is dropped or joined. `path` is for messages.
    """
    n_valid, error = _check(window, batches, path)
    job = _RewriteCall(window, batches[:n_valid], epochs[:n_valid], settings, rules, needed_batches, path)
    job.error = error
    return job.run()


def _check(window: Window, batches: BatchTable, path: str) -> tuple[int, KafkalogError | None]:
    """Count the batches before the first one whose checksum, codec or record count is none; also return its error."""
    valid = valid_crcs(window, batches)
    # a valid checksum does not make a count right: it covers what the producer wrote
    is_counted = (batches.magic < 2) | (batches.records_count >= 0)
    bad = np.flatnonzero(~valid | (batches.codec > kf.LAST_CODEC) | ~is_counted)
    if not bad.size:
        return len(batches), None
    row = int(bad[0])
    if not valid[row]:
        return row, batch_error(STATUS["CRC_MISMATCH"], batches, row, path)
    if not is_counted[row]:
        return row, batch_error(STATUS["RECORD_COUNT"], batches, row, path)
    unknown = unknown_codec(batches.codec[row])
    return row, locate_error(unknown, batches, row, path)


def _holds_data(batches: BatchTable) -> npt.NDArray[np.bool_]:
    """bool[n]: all batches but control batches and empty ones, which are copied."""
    is_data: npt.NDArray[np.bool_] = (batches.magic < 2) | (~batches.is_control & (batches.records_count != 0))
    return is_data


class _RewriteCall:
    """One call of `rewrite`. `batches` is cut at a batch that is damaged or left to the next call."""

    def __init__(
        self,
        window: Window,
        batches: BatchTable,
        epochs: npt.NDArray[np.int32],
        settings: Settings,
        rules: BoundRules,
        needed_batches: NeededBatches | None,
        path: str,
    ) -> None:
        self.window, self.batches, self.epochs = window, batches, epochs
        self.settings, self.rules, self.needed_batches, self.path = settings, rules, needed_batches, path
        self.error: KafkalogError | None = None
        self.is_redacted = np.empty(0, np.bool_)
        self.counts = Counts()

    def run(self) -> Rewritten:
        if self.settings.decodes_all:
            self._count(_holds_data(self.batches), _ALL, np.zeros(len(self.batches), np.int64))
        batches = self.batches
        is_legacy, is_data = batches.magic < 2, _holds_data(batches)
        must = is_data & (is_legacy | self._has_other_codec())
        is_open = is_data & ~self.rules.untouched(batches)
        redacts = self.rules.redaction is not None
        if not (must.any() or is_open.any() or (redacts and is_data.any())):
            return self._as_is()
        n_before = batches.records_count.astype(np.int64)
        n_kept = np.where(is_legacy, 1, n_before)
        if is_open.any():
            if (is_legacy & is_open).any():
                n_before = self._count(is_legacy & is_open, _ALL, n_before)
            n_kept = self._count(is_open, self.rules.kept, n_kept)
        affected = np.zeros(len(batches), np.bool_)
        if redacts and self.rules.redacted is not None:
            affected = is_data if self.rules.redacts_all else self._count(is_data, self.rules.redacted, affected) > 0
        n = len(self.batches)
        rewritten = (is_data & (must | affected | (n_kept < n_before)))[:n] & (n_kept[:n] > 0)
        # counted before they are decoded, since decoding may end early and shorten all of these
        is_gone = is_data[:n] & (n_kept[:n] == 0)
        records, row = self._decode(rewritten)
        n = len(self.batches)
        n_before, rewritten, is_gone = n_before[:n], rewritten[:n], is_gone[:n]
        # headers of legacy messages have no record count: the decoded records are counted
        unknown = (n_before < 0) | (is_legacy[:n] & ~is_open[:n])
        n_before = np.where(unknown, np.bincount(row, minlength=n)[:n], n_before)
        while True:
            n = len(self.batches)
            try:
                return self._put_together(records, row, n_before[:n], rewritten[:n], is_gone[:n])
            except UnwritableError as error:
                # end before the batch that cannot be encoded, and try again with those before it
                bad = int(row[error.row or 0])
                detail = f"{error.detail}: the batch cannot be rewritten"
                self._cut_off(bad, locate_error(CorruptionError(error.reason, detail), self.batches, bad, self.path))
                n_good = int(np.searchsorted(row, bad))
                records, row = records.slice(0, n_good), row[:n_good]

    def _as_is(self) -> Rewritten:
        batches = self.batches
        result = Rewritten(len(batches), self.error, None, None, self.counts)
        if len(batches):
            self._count_input(batches.n_user_records)
            self.counts.n_batches_kept = len(batches)
            result.window = assemble(
                [Part(np.arange(len(batches)), Window(self.window.data, self.window.start, batches))]
            )
        return result

    def _count_input(self, n_records: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> None:
        self.counts.n_batches_before = len(self.batches)
        self.counts.n_bytes_before = int(self.batches.size_in_bytes.sum(dtype=np.int64))
        self.counts.n_records_before = int(n_records.sum())

    def _has_other_codec(self) -> npt.NDArray[np.bool_]:
        batches, settings = self.batches, self.settings
        if settings.rewrites_all:
            return np.ones(len(batches), np.bool_)
        if settings.compression is None:
            return np.zeros(len(batches), np.bool_)
        differs: npt.NDArray[np.bool_] = batches.codec != int(settings.compression.codec)
        return differs

    def _cut_off(self, row: int, error: KafkalogError | None) -> None:
        """End this call before a batch: it is damaged (`error`), or left to the next call (None)."""
        self.batches, self.epochs, self.error = self.batches[:row], self.epochs[:row], error

    def _count(
        self, which: npt.NDArray[np.bool_], selection: Selection, counts: npt.NDArray[np.int64] | npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """Return `counts`, with the entries in `which` replaced by the number of records that a selection matches."""
        rows = np.flatnonzero(which[: len(self.batches)])
        decoded = decode(
            Window(self.window.data, self.window.start, self.batches[rows]),
            ("batch_position",),
            selection=selection,
            check_crcs=False,
            limits=self.settings.limits,
            path=self.path,
        )
        counts = counts.astype(np.int64)
        counts[rows] = 0
        if decoded.columns is not None:
            positions, n = np.unique(decoded.columns.batch_position, return_counts=True)
            counts[np.searchsorted(self.batches.position, positions)] = n
        if decoded.n_batches < rows.size:
            self._cut_off(int(rows[decoded.n_batches]), decoded.error)
        return counts

    def _decode(self, which: npt.NDArray[np.bool_]) -> tuple[RecordColumns, npt.NDArray[np.int64]]:
        """Decode the kept records of some batches and redact them; also return each record's batch row (int64)."""
        rows = np.flatnonzero(which)
        records, row = RecordColumns.empty(_COLUMNS), np.empty(0, np.int64)
        if not rows.size:
            return records, row
        part = Window(self.window.data, self.window.start, self.batches[rows])
        options = {"check_crcs": False, "limits": self.settings.limits, "path": self.path}
        decoded = decode(part, _COLUMNS, selection=self.rules.kept, **options)  # type: ignore[arg-type]
        if decoded.n_batches < rows.size:
            self._cut_off(int(rows[decoded.n_batches]), decoded.error)
        if decoded.columns is None:
            return records, row
        records = decoded.columns
        row = np.searchsorted(self.batches.position, records.batch_position)
        records, row = self._in_order(records, row)
        if self.rules.redaction is None or self.rules.redacted is None or not records.n_records:
            return records, row
        mask = np.ones(records.n_records, np.bool_)
        if not self.rules.redacts_all:
            done = part._replace(batches=part.batches[: decoded.n_batches])
            found = decode_all(done, ("offset",), selection=self.rules.redacted, **options)
            chosen = np.concatenate(
                [np.empty(0, np.int64), *(one.columns.offset for one in found if one.columns is not None)]
            )
            # matched by offset: both passes skip records, but not the same ones
            mask = np.isin(records.offset, chosen)
        self.is_redacted = mask
        return self.rules.redaction.apply(records, mask), row

    def _in_order(
        self, records: RecordColumns, row: npt.NDArray[np.int64]
    ) -> tuple[RecordColumns, npt.NDArray[np.int64]]:
        """The records up to the first batch whose offsets do not increase: such records cannot be encoded."""
        steps = np.flatnonzero(records.offset[1:] <= records.offset[:-1])
        if not steps.size:
            return records, row
        bad = int(row[steps[0] + 1])
        error = CorruptionError(
            Reason.OFFSET_ORDER, "the offsets of its records do not increase: it cannot be rewritten"
        )
        self._cut_off(bad, locate_error(error, self.batches, bad, self.path))
        n = int(np.searchsorted(row, bad))
        return records.slice(0, n), row[:n]

    def _put_together(
        self,
        records: RecordColumns,
        row: npt.NDArray[np.int64],
        n_before: npt.NDArray[np.int64],
        rewritten: npt.NDArray[np.bool_],
        is_gone: npt.NDArray[np.bool_],
    ) -> Rewritten:
        batches = self.batches
        epochs = np.where(batches.magic < 2, self.epochs, batches.partition_leader_epoch)
        batches = replace(batches, partition_leader_epoch=epochs.astype(np.int32))
        is_kept = ~rewritten & ~is_gone
        needed = np.zeros(len(batches), np.bool_)
        if self.needed_batches is not None and is_gone.any():
            needed = is_gone & self.needed_batches.are_needed(batches)
        kept, empty = np.flatnonzero(is_kept), np.flatnonzero(needed)
        parts = [Part(kept, Window(self.window.data, self.window.start, batches[kept]))]
        if empty.size:
            parts.append(Part(empty, empty_batches(batches[empty])))
        if records.n_records:
            parts.append(self._encode(records, row, batches, rewritten, is_kept | needed))
        result = Rewritten(len(batches), self.error, assemble(parts), None, self.counts)
        gone = np.flatnonzero(is_gone & ~needed)
        if gone.size and not (is_kept | needed | rewritten)[gone[-1] :].any():
            result.tail = empty_batches(batches[gone[-1:]])
        self._count_input(np.where(batches.is_control, 0, n_before))
        self.counts.n_batches_kept = kept.size
        self.counts.n_records_redacted = int(np.count_nonzero(self.is_redacted[: records.n_records]))
        return result

    def _encode(
        self,
        records: RecordColumns,
        row: npt.NDArray[np.int64],
        batches: BatchTable,
        rewritten: npt.NDArray[np.bool_],
        is_other: npt.NDArray[np.bool_],
    ) -> Part:
        settings = self.settings
        rows = np.flatnonzero(rewritten)
        sources = batches[rows]
        n_others = np.cumsum(is_other)[rows]
        is_apart = np.concatenate([[True], n_others[1:] != n_others[:-1]])
        codec = sources.codec
        if settings.compression is not None:
            codec = np.full(rows.size, int(settings.compression.codec), np.int8)
        is_needed = np.zeros(rows.size, np.bool_)
        if self.needed_batches is not None and settings.batch_size is not None:
            # a producer that retries its last batch is recognised by its boundaries alone
            is_needed = self.needed_batches.are_last(sources)
        made = cut(
            records,
            np.searchsorted(rows, row),
            sources,
            JoinRules(codec, is_apart, is_needed),
            batch_size=settings.batch_size,
            start_offset=self.rules.kept.start_offset,
        )
        compression: Compression | list[Compression]
        if settings.compression is not None:
            compression = settings.compression
        else:
            # the level of a producer is in no header, so that each codec has its default one
            known = {one: Compression(kf.Codec(one)) for one in np.unique(made.codec).tolist()}
            compression = [known[one] for one in made.codec.tolist()]
        window = encode_batches(
            records, made.boundaries, BatchSpec(compression=compression, any_header_keys=True, **made.header)
        )
        return Part(rows[made.source_row], window)
