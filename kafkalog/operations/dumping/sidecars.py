"""Reads `.index`, `.timeindex`, `.txnindex` and `.snapshot` files: a line and an object for each entry.

Entries are compared with the log as Kafka's tool does it, which also lists valid entries as mismatches: before 4.0 an
append of several batches made one index entry, of the last offset and the position of the first batch; up to 3.7 a time
index entry may have the offset of a record instead of its batch's last one.

Mirrors `DumpLogSegments.dumpIndex`, `dumpTimeIndex`, `dumpTxnIndex` and `dumpProducerIdSnapshot`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, Reason, SidecarError, TruncatedTailError
from kafkalog.indexes.index_files import TransactionIndex
from kafkalog.indexes.view import IndexEntries, OffsetEntries, TimeEntries
from kafkalog.operations.dumping.files import beside, open_file, start_offset
from kafkalog.operations.dumping.mismatches import Kind, Mismatches
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.operations.dumping.rows import fields_of
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.readers.batch_reader import walk_with
from kafkalog.records.readers.header_reader import HeaderReader
from kafkalog.state.producers import read_snapshot
from kafkalog.storage.source import ByteSource

Row = dict[str, Any]
Numbers = npt.NDArray[np.int64]
Entry = tuple[str, Row | None]
"""A line, and the object that says the same, if there is one."""

_Index = TypeVar("_Index", bound=IndexEntries)


def read_index(path: str, key: str, options: DumpOptions, report: Mismatches) -> Iterator[Entry]:
    """Yield the entries of an offset index, compared with the log; `key` is the path to show in lists of mismatches.

    Raises SidecarError if the index fails the sanity check, or no batch starts at the position of an entry. Damage of
    the log raises only before the batch of an entry. ReadError: there is no `.log` for this index.
    """
    with open_file(beside(path, kf.LOG_SUFFIX), options) as log:
        index = _open(OffsetEntries, path, options)
        if not len(index) and not index.padding_bytes:
            yield f"{path} is empty.", None
            return
        if options.index_sanity_check:
            yield _checked(index, path)
            return
        # a broker may only have preallocated the file: then the tool shows an entry of zeros
        offset, position = (index.offset, index.position) if len(index) else (np.array([index.base_offset]), _ZERO)
        batches, found, error = _first_batches(log, "position", position, options)
        found &= (batches.position == position) & (batches.size_in_bytes <= options.max_message_size)
        n = offset.size if found.all() else int(np.argmin(found))
        last = batches.last_offset[:n]
        wrong = np.flatnonzero(offset[:n] != last)
        report.add_pairs("offset", key, np.stack([offset[wrong], last[wrong]]))
        for number in wrong[last[wrong] > offset[wrong]].tolist() if len(index) else ():
            detail = f"an entry for offset {offset[number]} leads to a batch that ends at {last[number]}"
            report.add_finding(Reason.INDEX_ENTRY, detail, path=path, base_offset=index.base_offset)
        if not options.verify_index_only:
            yield from _entries("offset_index_entry", offset[:n], position[:n])
        if n < len(index):
            detail = f"entry {n} leads to {position[n]}, where no batch of the log starts that could be read"
            wrong_entry = SidecarError(
                Reason.INDEX_ENTRY, detail, path=path, position=8 * n, base_offset=index.base_offset
            )
            raise error or wrong_entry


def read_time_index(path: str, key: str, options: DumpOptions, report: Mismatches) -> Iterator[Entry]:
    """Yield the entries of a time index, compared with the log; for parameters and errors see `read_index`."""
    with open_file(beside(path, kf.LOG_SUFFIX), options) as log:
        index = _open(TimeEntries, path, options)
        if options.index_sanity_check:
            # for a broker, zeros after the entries are entries, too
            if len(index) and (0 if index.padding_bytes else index.timestamp[-1]) < index.timestamp[0]:
                raise _unsound(index, "the last timestamp lies before the first")
            yield _checked(index, path)
            return
        timestamp, offset = index.timestamp, index.offset
        if not len(index) and index.padding_bytes:
            timestamp, offset = _ZERO, np.array([index.base_offset])
        batches, is_there, error = _first_batches(log, "last_offset", offset, options)
        n = offset.size if error is None or is_there.all() else int(np.argmin(is_there))
        last = np.where(is_there, batches.last_offset, -1)
        # compaction may remove all records of a batch; its header still has the largest timestamp
        shown = np.where(batches.records_count == 0, kf.NO_TIMESTAMP, np.maximum(batches.max_timestamp, -1))
        before = np.concatenate([np.array([kf.NO_TIMESTAMP]), timestamp[:-1]])
        is_exact = last == offset
        wrong_time, wrong_order = is_exact & (shown != timestamp), is_exact & (before >= timestamp)
        pairs: tuple[tuple[Kind, npt.NDArray[np.bool_], Numbers, Numbers], ...] = (
            ("missing", ~is_exact, offset, last),
            ("timestamp", wrong_time, timestamp, shown),
            ("order", wrong_order, timestamp, before),
        )
        for kind, is_wrong, first, second in pairs:
            rows = np.flatnonzero(is_wrong[:n])
            report.add_pairs(kind, key, np.stack([first[rows], second[rows]]))
        wrong_time &= batches.max_timestamp != timestamp
        for number in np.flatnonzero((~is_there | wrong_time | wrong_order)[:n]).tolist() if len(index) else ():
            if not is_there[number]:
                detail = f"no batch for the entry of offset {offset[number]}"
            elif wrong_time[number]:
                largest = batches.max_timestamp[number]
                detail = f"the entry has timestamp {timestamp[number]}, but the largest in the batch is {largest}"
            else:
                detail = f"the timestamp {timestamp[number]} does not lie after {before[number]}"
            report.add_finding(
                Reason.INDEX_ENTRY, detail, path=path, position=12 * number, base_offset=index.base_offset
            )
        if not options.verify_index_only:
            yield from _entries("time_index_entry", timestamp[:n], offset[:n])
        if n < offset.size:
            assert error is not None
            raise error


class _EntryBatches(NamedTuple):
    """The batches of a log that the entries of an index lead to."""

    batches: BatchTable
    """One for each entry, in the order of the entries; the first one of all if the entry has none."""
    found: npt.NDArray[np.bool_]
    error: KafkalogError | None
    """The damage at which the search ended, if it did not find a batch for each entry before."""


def _first_batches(log: ByteSource, column: str, keys: Numbers, options: DumpOptions) -> _EntryBatches:
    """Find the first batch that has at least each key in a column that rises: `position` or `last_offset`."""
    order = np.argsort(keys, kind="stable")
    wanted, done, error = keys[order], 0, None
    tables = []
    try:
        for window in walk_with(HeaderReader(limits=options.limits), log, limits=options.limits):
            values = getattr(window.batches, column)
            stop = int(np.searchsorted(wanted, values[-1], side="right"))
            tables.append(window.batches[np.searchsorted(values, wanted[done:stop])])
            done = stop
            log.release(window.data, window.start)
            if done == keys.size:
                break
    except TruncatedTailError:
        pass  # normal after a crash
    except KafkalogError as damage:
        error = damage
    rows = np.empty(keys.size, np.int64)
    rows[order] = np.arange(keys.size)
    found = rows < done
    batches = BatchTable.concatenate([*tables, BatchTable.empty(1)])
    return _EntryBatches(batches[np.where(found, rows, done)], found, error)


def read_transaction_index(path: str, key: str, options: DumpOptions, report: Mismatches) -> Iterator[Entry]:
    """Yield the entries of a transaction index; raises `SidecarError` for a version that Kafka does not define."""
    entries = _open(TransactionIndex, path, options).entries
    # Kafka reads the high byte as the version
    columns = {
        name: entries[name].astype(np.int64) >> (8 if name == "version" else 0) for name in entries.dtype.names or ()
    }
    wrong = np.flatnonzero(columns["version"] > 0)
    if wrong.size:
        at = int(wrong[0])
        detail = f"version {columns['version'][at]}; Kafka has 0"
        raise SidecarError(Reason.INDEX_ENTRY, detail, path=path, position=at * entries.dtype.itemsize)
    return _entries("aborted_transaction", *(columns[name] for name in fields_of("aborted_transaction")))


def _entries(kind: str, *columns: Numbers) -> Iterator[Entry]:
    names = fields_of(kind)
    words = [name.split("_") for name in names]
    template = " ".join(f"{first}{''.join(map(str.capitalize, others))}: {{}}" for first, *others in words)
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield template.format(*values), {"kind": kind, **dict(zip(names, values, strict=True))}


def _open(kind: type[_Index], path: str, options: DumpOptions) -> _Index:
    base_offset = start_offset(os.path.basename(path))
    open_file(path, options).close()
    return kind.open(path, base_offset)


def _checked(index: IndexEntries, path: str) -> Entry:
    """Run the sanity check of a broker, and return what there is to show of an index that passes."""
    if len(index) and not index.padding_bytes and index.entries["relative_offset"][-1] < 0:
        raise _unsound(index, "the last offset lies before the base offset")
    for finding in index.findings():
        raise SidecarError(finding.reason, finding.detail, path=path, base_offset=index.base_offset)
    return f"{path} passed sanity check.", {"kind": "sanity", "passed": True}


def _unsound(index: IndexEntries, detail: str) -> SidecarError:
    return SidecarError(Reason.INDEX_ENTRY, detail, path=index.path, base_offset=index.base_offset)


_ZERO: Final = np.zeros(1, np.int64)


def read_producers(path: str, key: str, options: DumpOptions, report: Mismatches) -> Iterator[Entry]:
    """Yield the producers in a snapshot.

    A damaged snapshot is reported and yields nothing: Kafka's tool also continues after one.
    """
    try:
        snapshot = read_snapshot(path)
    except SidecarError as error:
        report.findings.add(error.to_finding())
        return
    for entry in snapshot.entries:
        row: dict[str, int | None] = {
            name: int(entry[name]) for name in fields_of("producer") if name != "first_sequence"
        }
        if int(entry["current_txn_first_offset"]) < 0:
            row["current_txn_first_offset"] = None
        if int(entry["last_offset"]) < 0:
            row |= dict.fromkeys(_OF_BATCH)
        else:
            row["first_sequence"] = _first_sequence(int(entry["last_sequence"]), int(entry["offset_delta"]))
        yield _producer_line(row, is_2_8=options.is_2_8), {"kind": "producer", **row}


_OF_BATCH: Final = ("last_sequence", "last_offset", "offset_delta", "first_sequence")


def _producer_line(row: dict[str, int | None], *, is_2_8: bool) -> str:
    txn, timestamp = row["current_txn_first_offset"], row["timestamp"]
    line = (
        f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']}"
        f" coordinatorEpoch: {row['coordinator_epoch']} currentTxnFirstOffset: "
    )
    if is_2_8:
        line += "None" if txn is None else f"Some({txn})"
    else:
        line += "OptionalLong.empty" if txn is None else f"OptionalLong[{txn}]"
        line += f" lastTimestamp: {timestamp}"
    if row["last_offset"] is not None:
        line += (
            f" firstSequence: {row['first_sequence']} lastSequence: {row['last_sequence']}"
            f" lastOffset: {row['last_offset']} offsetDelta: {row['offset_delta']} timestamp: {timestamp}"
        )
    elif is_2_8:
        line += " "
    return line


def _first_sequence(last: int, delta: int) -> int:
    """Return the first sequence number of a batch, in Java's int arithmetic (`decrementSequence`)."""
    first = last - delta if last >= delta else 2**31 - (delta - last)
    return (first + 2**31) % 2**32 - 2**31
