"""The index files of a segment: `OffsetIndex`, `TimeIndex`, `TransactionIndex`.

Each is a view of the entries in a file (`kafkalog.indexes.view`). An offset or time index can be built from batches,
each kind can be checked against batches, and an offset index can be measured. Nothing here writes files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from kafkalog import format as kf
from kafkalog.calls import leading
from kafkalog.errors import Finding
from kafkalog.indexes.builder import build
from kafkalog.indexes.checks import OffsetIndexCheck, TimeIndexCheck
from kafkalog.indexes.transaction_check import TransactionIndexCheck
from kafkalog.indexes.view import IndexEntries, OffsetEntries, TimeEntries
from kafkalog.records.batch_table import BatchTable

if TYPE_CHECKING:
    import numpy.typing as npt


def max_index_entries(log_bytes: int) -> int:
    """Return the largest number of entries: one per batch, and one that a roll or close adds to the time index."""
    # no batch of any format is shorter than a v0 message, so no log of this size has more batches
    return log_bytes // kf.LEAST_BATCH_BYTES + 2


class HasBatches(Protocol):
    """A segment, as far as its batches are concerned."""

    base_offset: int

    @property
    def batches(self) -> BatchTable:
        """All batches."""

    def iter_batches(self) -> Iterator[BatchTable]:
        """The batches, one window at a time."""


def _tables_of(batches: Iterable[BatchTable] | BatchTable | HasBatches) -> Iterable[BatchTable]:
    """The batches in tables one after another."""
    if isinstance(batches, BatchTable):
        return [batches]
    if isinstance(batches, (str, os.PathLike)):
        raise TypeError(f"batches are a Segment or a BatchTable: kafkalog.open_segment({os.fspath(batches)!r})")
    return cast(HasBatches, batches).iter_batches() if hasattr(batches, "iter_batches") else batches


def _batches_of(batches: BatchTable | HasBatches, base_offset: int | None) -> tuple[BatchTable, int]:
    """The batches of a segment in one table, and its base offset."""
    if isinstance(batches, BatchTable):
        if base_offset is None:
            raise TypeError(
                "the base offset of the segment is needed, too: build(segment.batches, segment.base_offset)"
            )
        return batches, base_offset
    if not hasattr(batches, "batches"):
        raise TypeError(
            f"batches are a Segment or a BatchTable, not {type(batches).__name__}: kafkalog.open_segment(path)"
        )
    return batches.batches, batches.base_offset if base_offset is None else base_offset


class OffsetIndex(OffsetEntries):
    """`.index`: (last offset of a batch, its position), 8 bytes per entry.

    Notes
    -----
    ``i32 offset - base_offset | i32 position``. Source: OffsetIndex, Kafka 4.3.

    Examples
    --------
    >>> index = OffsetIndex(np.frombuffer(bytes.fromhex("0000000a00001000"), np.uint8), 100)
    >>> index
    OffsetIndex(1 entries, base_offset=100)
    >>> index.lookup([105, 110, 2000]).tolist()
    [0, 4096, 4096]
    """

    @classmethod
    @leading
    def build(
        cls,
        batches: BatchTable | HasBatches,
        base_offset: int | None = None,
        *,
        index_interval_bytes: int = kf.INDEX_INTERVAL_BYTES,
    ) -> OffsetIndex:
        """The index that a broker's recovery builds for a segment.

        Parameters
        ----------
        batches : BatchTable or Segment
            All batches of the segment.
        base_offset : int, optional
            That of the segment; default: that of the Segment.
        index_interval_bytes : int
            The topic's `index.interval.bytes`.

        Raises
        ------
        ValueError
            Offsets do not rise from entry to entry, or lie outside the segment. A broker gives up there too.

        Notes
        -----
        A batch gets an entry if it starts more than `index_interval_bytes` after the batch of the previous entry (or
        the start of the segment). Source: LogSegment.recover, Kafka 4.3.
        """
        table, base_offset = _batches_of(batches, base_offset)
        entries = build(table, base_offset, index_interval_bytes).offset_entries()
        return cls(entries.view(np.uint8), base_offset)

    @leading
    def check(
        self,
        batches: Iterable[BatchTable] | BatchTable | HasBatches,
        *,
        time_index: TimeIndex | None = None,
        interval_bytes: int | None = None,
        is_last: bool = False,
    ) -> list[Finding]:
        """Check that the entries are those that a broker writes for these batches.

        Parameters
        ----------
        batches : Segment, BatchTable or iterable of BatchTable
            The whole segment; one window at a time bounds the memory, such as `Segment.iter_batches()`.
        time_index : TimeIndex, optional
            The time index of the same segment.
        interval_bytes : int, optional
            The topic's `index.interval.bytes`, if it is known.
        is_last : bool
            Whether zeros after the entries are normal, as in the active segment of a broker that runs or has crashed.

        Returns
        -------
        list of Finding
            One finding per kind of fault, with the first entry that has it and what a broker does with it. Empty for an
            index that no version of Kafka would be misled by.

        Examples
        --------
        >>> segment = kafkalog.open("tests/golden/log_dir/p-txn-0").segments[0]
        >>> segment.offset_index.check(segment)
        []
        """
        check = OffsetIndexCheck(self, time_index=time_index, interval_bytes=interval_bytes)
        for table in _tables_of(batches):
            check.feed(table)
        return [*self.findings(), *self.padding_findings(is_last=is_last), *check.finish()]


class TimeIndex(TimeEntries):
    """`.timeindex`: (largest timestamp so far, last offset of the batch that reached it), 12 bytes per entry.

    Notes
    -----
    ``i64 timestamp ms | i32 offset - base_offset``. Source: TimeIndex, Kafka 4.3.
    """

    @classmethod
    @leading
    def build(
        cls,
        batches: BatchTable | HasBatches,
        base_offset: int | None = None,
        *,
        index_interval_bytes: int = kf.INDEX_INTERVAL_BYTES,
    ) -> TimeIndex:
        """The index that a broker's recovery builds for a segment; for parameters and errors see `OffsetIndex.build`.

        Notes
        -----
        With each entry of the offset index comes one for the largest timestamp so far, if it has risen since the last
        entry. The last entry is for the largest timestamp of the segment. Source: LogSegment.recover,
        TimeIndex.maybeAppend, Kafka 4.3.
        """
        table, base_offset = _batches_of(batches, base_offset)
        entries = build(table, base_offset, index_interval_bytes).time_entries()
        return cls(entries.view(np.uint8), base_offset)

    @leading
    def check(
        self,
        batches: Iterable[BatchTable] | BatchTable | HasBatches,
        *,
        offset_index: OffsetIndex | None = None,
        is_last: bool = False,
    ) -> list[Finding]:
        """Check that the entries are those that a broker writes for these batches.

        Parameters
        ----------
        batches : Segment, BatchTable or iterable of BatchTable
            The whole segment.
        offset_index : OffsetIndex, optional
            The offset index of the same segment. A broker writes entries to both at the same time.
        is_last : bool
            Whether the segment is the last one, where the entry for the largest timestamp may still be missing, and
            zeros after the entries are normal.

        Returns
        -------
        list of Finding
            See `OffsetIndex.check`.
        """
        check = TimeIndexCheck(self, offset_index=offset_index, is_last=is_last)
        for table in _tables_of(batches):
            check.feed(table)
        found = check.finish()
        used = self.dtype.itemsize if check.starts_with_zeros else 0
        return [*self.findings(), *self.padding_findings(is_last=is_last, used=used), *found]


class TransactionIndex(IndexEntries):
    """`.txnindex`: aborted transactions whose abort marker is in the segment, 34 bytes per entry.

    Notes
    -----
    ``i16 version | i64 producerId | i64 firstOffset | i64 lastOffset | i64 lastStableOffset``. Source: AbortedTxn,
    Kafka 4.3.
    """

    # for editors and type checkers
    if TYPE_CHECKING:
        version: npt.NDArray[np.int16]
        producer_id: npt.NDArray[np.int64]
        first_offset: npt.NDArray[np.int64]
        last_offset: npt.NDArray[np.int64]
        last_stable_offset: npt.NDArray[np.int64]

    dtype = kf.TRANSACTION_INDEX_DTYPE
    suffix = kf.TRANSACTION_INDEX_SUFFIX

    @leading
    def check(self, batches: Iterable[BatchTable] | BatchTable | HasBatches) -> list[Finding]:
        """Check that the entries are the aborted transactions of these batches.

        Parameters
        ----------
        batches : Segment, BatchTable or iterable of BatchTable
            From the start of the earliest of the transactions, or of the partition, to the end of the segment, one
            window at a time.

        Returns
        -------
        list of Finding
            See `OffsetIndex.check`. `kafkalog.verify` checks the indexes of a whole partition in one pass.
        """
        check = TransactionIndexCheck([self.entries])
        is_before = True
        for table in _tables_of(batches):
            row = int(np.searchsorted(table.last_offset, self.base_offset)) if is_before else 0
            if is_before:
                check.feed(table[:row])
            if row < len(table):
                if is_before:
                    check.begin(self.entries, self.path, self.base_offset)
                    is_before = False
                check.feed(table[row:])
        if is_before:
            check.begin(self.entries, self.path, self.base_offset)
        return [*self.findings(), *self.padding_findings(), *check.finish(), *check.missing_markers()]
