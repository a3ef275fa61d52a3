"""`.index`, `.timeindex`, `.txnindex` and `.snapshot` files as the lines that Kafka's tool prints of them.

Entries are compared with the log as Kafka's tool compares them, which is stricter than right: an append of several
batches made one entry of its last offset and its first position before 4.0. Mirrors `DumpLogSegments.dumpIndex`,
`dumpTimeIndex`, `dumpTxnIndex` and `dumpProducerIdSnapshot`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import dump as kernels
from kafkalog._kernels.crc import checksum_crc32, checksum_crc32c
from kafkalog._kernels.wire import STATUS
from kafkalog.batches import BatchTable
from kafkalog.dumper.headers import read_header
from kafkalog.dumper.logs import Payloads, explain_end, start_offset, unknown_codec
from kafkalog.dumper.options import DumpOptions
from kafkalog.dumper.report import Report
from kafkalog.errors import KafkalogError, LimitExceededError, Reason, SidecarError, error_from_status
from kafkalog.producers import read_snapshot
from kafkalog.source import Bytes, ByteSource, PreadSource

_OFFSET, _TIME = 0, 1
_CHUNK: Final = 4096
"""Entries looked at at a time."""
_LINE: Final = 80
_WINDOW: Final = 2**20
_FIRST_WINDOW: Final = 2**14
_WARM: Final = 8192
_ROWS: Final = 8192
_STRAY_BYTES: Final = 2**26
"""Bytes walked, at most, from positions at which no batch starts."""

_NEED_MORE = STATUS["NEED_MORE"]
_OUTPUT_FULL = STATUS["OUTPUT_FULL"]
_OK = STATUS["OK"]
_END = kernels.STATUSES["END"]
_HEADER_CUT = kernels.STATUSES["HEADER_CUT"]


class _Entries:
    """The entries of an index file, zeros behind them and all, as Kafka's `AbstractIndex` sees them."""

    def __init__(self, path: str, dtype: np.dtype[np.void], base_offset: int) -> None:
        with PreadSource(path) as source:
            self.size_in_bytes = source.size
            data = source.window(0, source.size).copy()
        self.odd_bytes = data.size % dtype.itemsize
        self.entries: npt.NDArray[np.void] = data[: data.size - self.odd_bytes].view(dtype)
        self.base_offset = base_offset
        self.path = path

    def __len__(self) -> int:
        return self.entries.size

    def offsets(self) -> npt.NDArray[np.int64]:
        """int64[n]: absolute."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    def used(self) -> int:
        """Entries before the first, other than the very first, that is taken for padding."""
        zero = np.flatnonzero(self.entries["relative_offset"][1:] == 0)
        return int(zero[0]) + 1 if zero.size else len(self)

    def insane(self, detail: str) -> SidecarError:
        return SidecarError(Reason.INDEX_ENTRY, detail, path=self.path, base_offset=self.base_offset)

    def check_end(self) -> None:
        """What Kafka's sanity checks have in common."""
        if len(self) and self.entries["relative_offset"][-1] < 0:
            raise self.insane("the last offset lies before the base offset")
        if self.odd_bytes:
            detail = f"{self.size_in_bytes} bytes are not a multiple of {self.entries.dtype.itemsize}"
            raise SidecarError(Reason.INDEX_SIZE, detail, path=self.path, base_offset=self.base_offset)

    def floor(self, offset: int) -> int:
        """Number of the entry that Kafka finds for an offset, -1 for none: its very search, for unsorted entries."""
        relative = self.entries["relative_offset"]
        target = offset - self.base_offset
        if not len(self):
            return -1
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


def dump_index(path: str, key: str, options: DumpOptions, report: Report) -> Iterator[bytes]:
    """Lines of an offset index.

    Parameters
    ----------
    path : str
    key : str
        The path in lists of mismatches.
    options : DumpOptions
    report : Report

    Raises
    ------
    SidecarError
        The index is not sane, or an entry leads nowhere.
    CorruptionError
        There are bytes at a position that are no batch.
    ReadError
        There is no log beside it.
    """
    base_offset = start_offset(os.path.basename(path))
    with PreadSource(_beside(path, kf.LOG_SUFFIX)) as log:
        index = _Entries(path, kf.OFFSET_INDEX_DTYPE, base_offset)
        if not len(index):
            yield f"{path} is empty.\n".encode()
            return
        if options.index_sanity_check:
            index.check_end()
            yield f"{path} passed sanity check.\n".encode()
            return
        n = index.used()
        offset = index.offsets()[:n]
        position = index.entries["position"][:n].astype(np.int64)
        at = 0
        while at < n:
            stop = min(at + _CHUNK, n)
            last, status, n_done = _last_offsets(log, position[at:stop], options.max_message_size)
            done = slice(at, at + n_done)
            _note_mismatches(offset[done], last[:n_done], key, path, index, report)
            if not options.verify_index_only:
                yield _lines(base_offset, index.entries["relative_offset"][done], position[done], _OFFSET)
            at += n_done
            if status != _OK:
                raise _entry_error(log, index, int(position[at]), at, status, options)


def _note_mismatches(
    offset: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    key: str,
    path: str,
    index: _Entries,
    report: Report,
) -> None:
    wrong = np.flatnonzero(offset != last)
    if not wrong.size:
        return
    report.add_pairs("offset", key, np.stack([offset[wrong], last[wrong]]))
    # the first batch of an append that made one entry ends before the append does
    behind = wrong[last[wrong] > offset[wrong]]
    for row in behind.tolist():
        detail = f"an entry for offset {offset[row]} leads to a batch that ends at {last[row]}"
        report.add_finding(Reason.INDEX_ENTRY, detail, path=path, base_offset=index.base_offset)


def _last_offsets(
    log: ByteSource, position: npt.NDArray[np.int64], max_bytes: int
) -> tuple[npt.NDArray[np.int64], int, int]:
    """Last offsets of the batches at positions; what stopped, and how many are done."""
    last = np.empty(position.size, np.int64)
    at, status = 0, _OK
    while at < position.size:
        first = int(position[at])
        if not 0 <= first <= log.size:
            return last, _END, at
        # as many as lie, one behind the other, in one window
        inside = (position[at:] >= first) & (position[at:] < first + _WINDOW)
        n = int(np.argmin(inside)) if not inside.all() else inside.size
        stop = min(int(position[at : at + n].max()) + kf.RECORD_BATCH_OVERHEAD, log.size)
        window = log.window(first, stop)
        status, done = kernels.find_last_offsets(
            window, first, log.size, position[at : at + n], max_bytes, last[at : at + n]
        )
        log.release(window, first)
        at += done
        if status != _OK:
            break
    return last, status, at


def _entry_error(
    log: ByteSource, index: _Entries, position: int, number: int, status: int, options: DumpOptions
) -> KafkalogError:
    if status == _END or not 0 <= position <= log.size:
        detail = f"entry {number} leads to {position}, where no batch of the log starts that could be read"
        return SidecarError(
            Reason.INDEX_ENTRY, detail, path=index.path, position=8 * number, base_offset=index.base_offset
        )
    return explain_end(log, position, log.size, options)


def _lines(base_offset: int, relative: npt.NDArray[np.int32], other: npt.NDArray[np.int64], kind: int) -> bytes:
    n = relative.size
    out = np.empty(_LINE * n + 1, np.uint8)
    numbers = relative.astype(np.int64)
    first, second = (numbers, other) if kind == _OFFSET else (other, numbers)
    n_bytes = kernels.dump_pairs(base_offset, first, second, kind, out)
    return out[:n_bytes].tobytes()


def dump_time_index(path: str, key: str, options: DumpOptions, report: Report) -> Iterator[bytes]:
    """Lines of a time index; parameters and errors as of `dump_index`."""
    base_offset = start_offset(os.path.basename(path))
    with PreadSource(_beside(path, kf.LOG_SUFFIX)) as log:
        offset_index = _Entries(_beside(path, kf.INDEX_SUFFIX), kf.OFFSET_INDEX_DTYPE, base_offset)
        index = _Entries(path, kf.TIME_INDEX_DTYPE, base_offset)
        if options.index_sanity_check:
            if len(index) and index.entries["timestamp"][-1] < index.entries["timestamp"][0]:
                raise index.insane("the last timestamp lies before the first")
            index.check_end()
            yield f"{path} passed sanity check.\n".encode()
            return
        n = index.used()
        floors = [offset_index.floor(offset) for offset in index.offsets()[:n].tolist()]
        starts = [0 if floor < 0 else int(offset_index.entries["position"][floor]) for floor in floors]
        checker = _TimeChecker(log, index, starts, key, options, report)
        timestamp = index.entries["timestamp"][:n].astype(np.int64)
        for at in range(0, n, _CHUNK):
            stop = min(at + _CHUNK, n)
            done, error = checker.check(at, stop)
            if not options.verify_index_only:
                yield _lines(base_offset, index.entries["relative_offset"][at:done], timestamp[at:done], _TIME)
            if error is not None:
                raise error


class _TimeChecker:
    """Compares time index entries with the log.

    Kafka's tool walks from each entry's position to the end of the log, and throws where that fails; here the end is
    looked for once.
    """

    def __init__(
        self, log: ByteSource, index: _Entries, starts: list[int], key: str, options: DumpOptions, report: Report
    ) -> None:
        self._log, self._index, self._starts = log, index, starts
        self._key, self._options, self._report = key, options, report
        self._previous = kf.NO_TIMESTAMP
        self._stray_bytes = 0
        self._payloads = Payloads(options.limits)
        needed = np.unique(np.array([start for start in starts if 0 <= start <= log.size], np.int64))
        self._good: set[int] = set()
        self._broken_at: int | None = None
        self._walk_all(needed)

    def check(self, at: int, stop: int) -> tuple[int, KafkalogError | None]:
        """Look at entries; how far that went, and what Kafka's tool throws there."""
        offsets = self._index.offsets()[at:stop].tolist()
        timestamps = self._index.entries["timestamp"][at:stop].tolist()
        for number, (offset, timestamp) in enumerate(zip(offsets, timestamps, strict=True), at):
            try:
                self._check(self._starts[number], offset, timestamp, number)
            except KafkalogError as error:
                return number, error
            self._previous = timestamp
        return stop, None

    def _check(self, start: int, offset: int, timestamp: int, number: int) -> None:
        if not 0 <= start <= self._log.size:
            raise self._index.insane(f"the offset index leads to {start}, where the log has no byte")
        self._check_end(start)
        found = self._find(start, offset)
        path, base_offset, at = self._index.path, self._index.base_offset, 12 * number
        if found is None:
            self._report.add_pair("missing", self._key, offset, -1)
            detail = f"no batch for the entry of offset {offset}"
            self._report.add_finding(Reason.INDEX_ENTRY, detail, path=path, position=at, base_offset=base_offset)
            return
        position, last_offset = found
        if last_offset != offset:
            # up to 3.7 the entry may name the record, not the batch: nothing is wrong with that
            self._report.add_pair("missing", self._key, offset, last_offset)
            return
        largest = self._largest_timestamp(position)
        if largest != timestamp:
            self._report.add_pair("timestamp", self._key, timestamp, largest)
            detail = f"the entry says {timestamp}, the records of the batch say {largest}"
            self._report.add_finding(Reason.INDEX_ENTRY, detail, path=path, position=at, base_offset=base_offset)
        if self._previous >= timestamp:
            self._report.add_pair("order", self._key, timestamp, self._previous)
            detail = f"the timestamp {timestamp} does not lie after {self._previous}"
            self._report.add_finding(Reason.INDEX_ENTRY, detail, path=path, position=at, base_offset=base_offset)

    def _walk_all(self, needed: npt.NDArray[np.int64]) -> None:
        """Which of the positions are those of batches, and where the walk over all batches fails, if it does."""
        if not needed.size:
            return
        for positions, _ in self._chain(int(needed[0]), _WINDOW):
            self._good.update(np.intersect1d(needed, positions, assume_unique=True).tolist())
        self._good.add(int(needed[0]))
        self._good.add(self._log.size)

    def _chain(
        self, start: int, window_bytes: int, *, notes: bool = True
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Positions and last offsets of batches from a position on, as far as sizes lead; notes where they fail."""
        log, at = self._log, start
        room = np.empty((2, _ROWS), np.int64)
        if notes:
            self._broken_at = None
        while True:
            window = log.window(at, min(at + max(window_bytes, kf.RECORD_BATCH_OVERHEAD), log.size))
            begin, status, n = at, _OUTPUT_FULL, 0
            while status == _OUTPUT_FULL:
                status, n, at = kernels.walk_chain(window, begin, at, log.size, log.size, *room)
                if n:
                    yield room[0, :n], room[1, :n]
            log.release(window, begin)
            if status != _NEED_MORE:
                if status == _HEADER_CUT and not notes:
                    # Kafka's tool looks into a header only to compare its offset
                    raise explain_end(log, at, log.size, self._options)
                if notes and status not in (_END, _HEADER_CUT):
                    self._broken_at = at
                return
            window_bytes = min(2 * window_bytes, _WINDOW)

    def _check_end(self, start: int) -> None:
        """Raise what is wrong on the way from a position to the end of the log."""
        if start not in self._good:
            kept = self._broken_at
            for positions, _ in self._chain(start, _FIRST_WINDOW):
                self._stray_bytes += int(positions[-1] - positions[0])
                if self._stray_bytes > _STRAY_BYTES:
                    raise self._index.insane("too many entries lead to places where no batch starts")
            broken_at, self._broken_at = self._broken_at, kept
        else:
            broken_at = self._broken_at
        if broken_at is not None:
            raise explain_end(self._log, broken_at, self._log.size, self._options)

    def _find(self, start: int, offset: int) -> tuple[int, int] | None:
        """Position and last offset of the first batch, from a position on, that ends at an offset or behind it."""
        for positions, last_offsets in self._chain(start, _FIRST_WINDOW, notes=False):
            rows = np.flatnonzero(last_offsets >= offset)
            if rows.size:
                return int(positions[rows[0]]), int(last_offsets[rows[0]])
        return None

    def _largest_timestamp(self, position: int) -> int:
        """The largest timestamp of the records of a batch, -1 for none.

        Raises
        ------
        CorruptionError
            Its records cannot be read.
        """
        batch = _batch_at(self._log, position, self._options)
        table = read_header(batch, position)
        if table.magic[0] < 2 and not table.codec[0]:
            own = int.from_bytes(batch[18:26].tobytes(), "big", signed=True) if table.magic[0] else kf.NO_TIMESTAMP
            return max(kf.NO_TIMESTAMP, own)
        if table.magic[0] < 0:
            raise error_from_status(STATUS["BAD_MAGIC"], path=self._log.path, position=position)
        if table.codec[0] > kf.Codec.ZSTD:
            raise unknown_codec(batch, self._log.path, position)
        if table.magic[0] >= 2 and table.records_count[0] == 0:
            return kf.NO_TIMESTAMP
        payload = self._payloads.decompress(batch, position, self._log.path)
        limits = self._options.limits
        status, largest = kernels.find_largest_timestamp(batch, payload, limits.max_headers_per_record)
        if status != _OK:
            base_offset = int(table.last_offset[0])
            raise error_from_status(status, path=self._log.path, position=position, base_offset=base_offset)
        return largest


def is_valid(batch: Bytes, table: BatchTable) -> bool:
    """Whether a batch is as long as it must be and its checksum that of its bytes."""
    if table.magic[0] >= 2:
        return bool(batch.size >= kf.RECORD_BATCH_OVERHEAD and checksum_crc32c(batch[21:]) == table.crc[0])
    return bool(checksum_crc32(batch[16:]) == table.crc[0])


def _batch_at(log: ByteSource, position: int, options: DumpOptions) -> Bytes:
    head = log.window(position, position + kf.LOG_OVERHEAD)
    size = kf.LOG_OVERHEAD + int.from_bytes(head[8:12].tobytes(), "big")
    if size > options.limits.max_batch_bytes:
        detail = f"the batch has {size} bytes, max_batch_bytes is {options.limits.max_batch_bytes}"
        raise LimitExceededError(Reason.BATCH_TOO_LARGE, detail, path=log.path, position=position, length=size)
    batch = log.window(position, position + size)
    if 2 <= int(batch[16]) <= 127 and size < kf.RECORD_BATCH_OVERHEAD:
        raise error_from_status(STATUS["SIZE_TOO_SMALL"], path=log.path, position=position)
    return batch


def dump_transaction_index(path: str) -> Iterator[bytes]:
    """Lines of a transaction index.

    Raises
    ------
    SidecarError
        An entry is of a version that Kafka does not have.
    """
    start_offset(os.path.basename(path))
    with PreadSource(path) as source:
        data = source.window(0, source.size)
        entries = data[: data.size // kf.TRANSACTION_INDEX_DTYPE.itemsize * kf.TRANSACTION_INDEX_DTYPE.itemsize].view(
            kf.TRANSACTION_INDEX_DTYPE
        )
        lines: list[str] = []
        for number, entry in enumerate(entries):
            # Kafka takes the high byte for the version
            version = int(entry["version"]) >> 8
            if version > 0:
                at = number * kf.TRANSACTION_INDEX_DTYPE.itemsize
                raise SidecarError(Reason.INDEX_ENTRY, f"version {version}; Kafka has 0", path=path, position=at)
            lines.append(
                f"version: {version} producerId: {entry['producer_id']} firstOffset: {entry['first_offset']}"
                f" lastOffset: {entry['last_offset']} lastStableOffset: {entry['last_stable_offset']}\n"
            )
        yield "".join(lines).encode()


def snapshot_entries(path: str, report: Report) -> list[dict[str, int | None]]:
    """Producers of a snapshot; none of one that is damaged, which is a finding: Kafka's tool goes on, too."""
    try:
        snapshot = read_snapshot(path)
    except SidecarError as error:
        report.findings.add(error.to_finding())
        return []
    rows: list[dict[str, int | None]] = []
    for entry in snapshot.entries:
        row: dict[str, int | None] = {name: int(entry[name]) for name in _PRODUCER}
        txn = int(entry["current_txn_first_offset"])
        row["current_txn_first_offset"] = None if txn < 0 else txn
        has_batch = int(entry["last_offset"]) >= 0
        for name in _BATCH:
            row[name] = int(entry[name]) if has_batch else None
        first = _first_sequence(int(entry["last_sequence"]), int(entry["offset_delta"])) if has_batch else None
        rows.append({**row, "first_sequence": first})
    return rows


_PRODUCER: Final = ("producer_id", "producer_epoch", "coordinator_epoch", "timestamp")
_BATCH: Final = ("last_sequence", "last_offset", "offset_delta")


def dump_snapshot(path: str, options: DumpOptions, report: Report) -> Iterator[bytes]:
    """Lines of a producer snapshot."""
    lines = []
    for row in snapshot_entries(path, report):
        txn, timestamp = row["current_txn_first_offset"], row["timestamp"]
        line = (
            f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']}"
            f" coordinatorEpoch: {row['coordinator_epoch']} currentTxnFirstOffset: "
        )
        if options.is_2_8:
            line += "None" if txn is None else f"Some({txn})"
        else:
            line += "OptionalLong.empty" if txn is None else f"OptionalLong[{txn}]"
            line += f" lastTimestamp: {timestamp}"
        if row["last_offset"] is not None:
            line += (
                f" firstSequence: {row['first_sequence']} lastSequence: {row['last_sequence']}"
                f" lastOffset: {row['last_offset']} offsetDelta: {row['offset_delta']} timestamp: {timestamp}"
            )
        elif options.is_2_8:
            line += " "
        lines.append(line + "\n")
    yield "".join(lines).encode()


def _first_sequence(last: int, delta: int) -> int:
    """`DefaultRecordBatch.decrementSequence`, in Java's int arithmetic."""
    first = last - delta if last >= delta else 2**31 - 1 - (delta - last) + 1
    return (first + 2**31) % 2**32 - 2**31


def _beside(path: str, suffix: str) -> str:
    """The file of the same segment with another suffix."""
    folder, name = os.path.split(path)
    return os.path.join(folder, name.split(".")[0] + suffix)
