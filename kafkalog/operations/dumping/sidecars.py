"""Reads `.index`, `.txnindex` and `.snapshot` files as Kafka's tool reads them, for text and objects alike.

Entries are compared with the log as Kafka's tool does it, which also lists valid entries as mismatches: before 4.0 an
append of several batches made one entry, of the last offset and the position of the first batch.

Mirrors `DumpLogSegments.dumpIndex`, `dumpTxnIndex` and `dumpProducerIdSnapshot`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, LimitExceededError, Limits, Reason, SidecarError
from kafkalog.operations.dumping.batch_chain import Found, last_offsets
from kafkalog.operations.dumping.files import beside, start_offset
from kafkalog.operations.dumping.log_walk import explain_end
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.operations.dumping.report import Report
from kafkalog.state.producers import read_snapshot
from kafkalog.storage.source import ByteSource, open_source

CHUNK: Final = 4096
"""Entries processed at a time."""
_WARM: Final = 8192  # as AbstractIndex.warmEntries: bytes at the end of an index that Kafka searches first

Row = dict[str, Any]


class EntryTable(NamedTuple):
    """Entries of an index: a line and an object each."""

    kind: str
    names: tuple[str, ...]
    """Names of the columns in objects; in lines the same in Java's spelling."""
    columns: tuple[npt.NDArray[np.int64], ...]

    def text(self) -> str:
        line = " ".join(f"{_java_name(name)}: {{}}" for name in self.names) + "\n"
        return "".join(map(line.format, *(column.tolist() for column in self.columns)))

    def rows(self) -> Iterator[Row]:
        for values in zip(*(column.tolist() for column in self.columns), strict=True):
            yield {"kind": self.kind, **dict(zip(self.names, values, strict=True))}


class Remark(NamedTuple):
    """A line about a whole index, and the object that says the same, if there is one."""

    line: str
    row: Row | None = None

    def text(self) -> str:
        return f"{self.line}\n"

    def rows(self) -> Iterator[Row]:
        if self.row is not None:
            yield self.row


def passed(path: str) -> Remark:
    """Return what there is to show of an index that passes the sanity check."""
    return Remark(f"{path} passed sanity check.", {"kind": "sanity", "passed": True})


def _java_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class IndexFile:
    """All entries of an index file, including the zeros after the last one, as Kafka's `AbstractIndex` sees them."""

    def __init__(self, path: str, dtype: np.dtype[np.void], base_offset: int, limits: Limits) -> None:
        with open_source(path, memory_map=False) as source:
            self.size_in_bytes = source.size
            if source.size > limits.max_segment_bytes:
                detail = f"the file has {source.size} bytes, max_segment_bytes is {limits.max_segment_bytes}"
                raise LimitExceededError(Reason.SEGMENT_TOO_LARGE, detail, path=path, length=source.size)
            data = source.window(0, source.size)
        self.odd_bytes = data.size % dtype.itemsize
        self.entries: npt.NDArray[np.void] = data[: data.size - self.odd_bytes].view(dtype)
        self.base_offset = base_offset
        self.path = path

    def __len__(self) -> int:
        return self.entries.size

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the absolute offsets, int64[n]."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    def used(self) -> int:
        """Return the number of entries before the padding: before the first zero offset, entry 0 not counted."""
        zero = np.flatnonzero(self.entries["relative_offset"][1:] == 0)
        return int(zero[0]) + 1 if zero.size else len(self)

    @property
    def is_unused(self) -> bool:
        """Whether a broker only preallocated the file, so that entry 0 is padding too."""
        return len(self) > 0 and self.used() == 1 and not any(self.entries[0].tolist())

    def sanity_check_error(self, detail: str) -> SidecarError:
        return SidecarError(Reason.INDEX_ENTRY, detail, path=self.path, base_offset=self.base_offset)

    def check_end(self) -> None:
        """Run the part of Kafka's sanity checks that all indexes share."""
        if len(self) and self.entries["relative_offset"][-1] < 0:
            raise self.sanity_check_error("the last offset lies before the base offset")
        if self.odd_bytes:
            detail = f"{self.size_in_bytes} bytes are not a multiple of {self.entries.dtype.itemsize}"
            raise SidecarError(Reason.INDEX_SIZE, detail, path=self.path, base_offset=self.base_offset)

    def positions_for(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Look up positions for offsets, int64[m], in an offset index whose entries need not be sorted."""
        relative = self.entries["relative_offset"].astype(np.int32)
        targets = offsets - self.base_offset
        if (np.diff(relative.astype(np.int64)) > 0).all():
            floors = np.searchsorted(relative, targets, side="right") - 1
        else:
            floors = np.fromiter((self._floor(relative, target) for target in targets.tolist()), np.int64, targets.size)
        if not len(self):
            return np.zeros(offsets.size, np.int64)
        return np.where(floors < 0, 0, self.entries["position"][floors]).astype(np.int64)

    def _floor(self, relative: npt.NDArray[np.int32], target: int) -> int:
        """Return the number of the entry that Kafka finds, -1 for none.

        Repeats Kafka's binary search step by step: with entries out of order another search would find another one.
        """
        first_hot = max(0, len(self) - 1 - _WARM // self.entries.dtype.itemsize)
        low, high = 0, first_hot
        if relative[first_hot] < target:
            low, high = first_hot, len(self) - 1
        elif relative[0] > target:
            return -1
        while low < high:
            middle = (low + high + 1) >> 1
            found = relative[middle]
            if found > target:
                high = middle - 1
            elif found < target:
                low = middle
            else:
                return middle
        return low


def read_index(path: str, key: str, options: DumpOptions, report: Report) -> Iterator[EntryTable | Remark]:
    """Yield the entries of an offset index, compared with the log.

    Parameters
    ----------
    key : str
        The path to show in lists of mismatches.

    Raises
    ------
    SidecarError
        The index fails the sanity check, or the position of an entry is outside the log.
    CorruptionError
        The bytes at the position of an entry are not a batch.
    ReadError
        There is no `.log` for this index.
    """
    base_offset = start_offset(os.path.basename(path))
    with open_source(beside(path, kf.LOG_SUFFIX), memory_map=False) as log:
        index = IndexFile(path, kf.OFFSET_INDEX_DTYPE, base_offset, options.limits)
        if not len(index):
            yield Remark(f"{path} is empty.")
            return
        if options.index_sanity_check:
            index.check_end()
            yield passed(path)
            return
        n = index.used()
        offset = index.offsets()[:n]
        position = index.entries["position"][:n].astype(np.int64)
        at = 0
        while at < n:
            stop = min(at + CHUNK, n)
            last, found = last_offsets(log, position[at:stop], options.max_message_size)
            done = slice(at, at + last.size)
            _report_mismatches(offset[done], last, key, path, index, report)
            if not options.verify_index_only:
                yield EntryTable("offset_index_entry", ("offset", "position"), (offset[done], position[done]))
            at += last.size
            if found is Found.END and index.is_unused:
                # a segment that was just rolled has no batch yet: not an issue, though the tool throws
                return
            if found is not Found.BATCH:
                raise _entry_error(log, index, int(position[at]), at, found, options)


def _report_mismatches(
    offset: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    key: str,
    path: str,
    index: IndexFile,
    report: Report,
) -> None:
    wrong = np.flatnonzero(offset != last)
    if not wrong.size:
        return
    report.add_pairs("offset", key, np.stack([offset[wrong], last[wrong]]))
    # before 4.0 an append of several batches made one entry: its first batch ends before the entry's offset, which is
    # valid; a batch that ends after it is not
    behind = wrong[last[wrong] > offset[wrong]] if not index.is_unused else wrong[:0]
    for row in behind.tolist():
        detail = f"an entry for offset {offset[row]} leads to a batch that ends at {last[row]}"
        report.add_finding(Reason.INDEX_ENTRY, detail, path=path, base_offset=index.base_offset)


def _entry_error(
    log: ByteSource, index: IndexFile, position: int, number: int, found: Found, options: DumpOptions
) -> KafkalogError:
    if found is Found.END or not 0 <= position <= log.size:
        detail = f"entry {number} leads to {position}, where no batch of the log starts that could be read"
        return SidecarError(
            Reason.INDEX_ENTRY, detail, path=index.path, position=8 * number, base_offset=index.base_offset
        )
    return explain_end(log, position, log.size, options)


def read_transaction_index(path: str, key: str, options: DumpOptions, report: Report) -> Iterator[EntryTable]:
    """Yield the entries of a transaction index.

    Raises
    ------
    SidecarError
        An entry has a version that Kafka does not define.
    """
    start_offset(os.path.basename(path))
    entries = IndexFile(path, kf.TRANSACTION_INDEX_DTYPE, 0, options.limits).entries
    # Kafka reads the high byte as the version, and reads all entries before it prints the first one
    versions = entries["version"].astype(np.int64) >> 8
    wrong = np.flatnonzero(versions > 0)
    if wrong.size:
        at = int(wrong[0])
        detail = f"version {versions[at]}; Kafka has 0"
        raise SidecarError(Reason.INDEX_ENTRY, detail, path=path, position=at * entries.dtype.itemsize)
    names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    for at in range(0, entries.size, CHUNK):
        rows = slice(at, at + CHUNK)
        columns = (versions[rows], *(entries[name][rows].astype(np.int64) for name in names))
        yield EntryTable("aborted_transaction", ("version", *names), columns)


class ProducerEntry(NamedTuple):
    """A producer in a snapshot."""

    row: dict[str, int | None]
    is_2_8: bool

    def text(self) -> str:
        row = self.row
        txn, timestamp = row["current_txn_first_offset"], row["timestamp"]
        line = (
            f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']}"
            f" coordinatorEpoch: {row['coordinator_epoch']} currentTxnFirstOffset: "
        )
        if self.is_2_8:
            line += "None" if txn is None else f"Some({txn})"
        else:
            line += "OptionalLong.empty" if txn is None else f"OptionalLong[{txn}]"
            line += f" lastTimestamp: {timestamp}"
        if row["last_offset"] is not None:
            line += (
                f" firstSequence: {row['first_sequence']} lastSequence: {row['last_sequence']}"
                f" lastOffset: {row['last_offset']} offsetDelta: {row['offset_delta']} timestamp: {timestamp}"
            )
        elif self.is_2_8:
            line += " "
        return f"{line}\n"

    def rows(self) -> Iterator[Row]:
        yield {"kind": "producer", **self.row}


def read_producers(path: str, key: str, options: DumpOptions, report: Report) -> Iterator[ProducerEntry]:
    """Yield the producers in a snapshot.

    A damaged snapshot is reported and yields nothing: Kafka's tool also continues after one.
    """
    try:
        snapshot = read_snapshot(path)
    except SidecarError as error:
        report.findings.add(error.to_finding())
        return
    for entry in snapshot.entries:
        row: dict[str, int | None] = {name: int(entry[name]) for name in _PRODUCER}
        txn = int(entry["current_txn_first_offset"])
        row["current_txn_first_offset"] = None if txn < 0 else txn
        has_batch = int(entry["last_offset"]) >= 0
        for name in _BATCH:
            row[name] = int(entry[name]) if has_batch else None
        first = _first_sequence(int(entry["last_sequence"]), int(entry["offset_delta"])) if has_batch else None
        yield ProducerEntry({**row, "first_sequence": first}, options.is_2_8)


_PRODUCER: Final = ("producer_id", "producer_epoch", "coordinator_epoch", "timestamp")
_BATCH: Final = ("last_sequence", "last_offset", "offset_delta")


def _first_sequence(last: int, delta: int) -> int:
    """Return the first sequence number of a batch, in Java's int arithmetic.

    Source: `DefaultRecordBatch.decrementSequence`.
    """
    first = last - delta if last >= delta else 2**31 - 1 - (delta - last) + 1
    return (first + 2**31) % 2**32 - 2**31
