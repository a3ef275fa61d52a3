"""Producer state: the newest batch and the open transaction of each producer, from batches or from a snapshot file.

A snapshot is read as an array with one entry per producer. Like an index it is only a hint; the batches decide.
`ProducerState` replays batches as a broker does when it appends or recovers them, down to the bytes of the next
snapshot. Mirrors `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_crc32c
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits, Reason, SidecarError
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.decode import decode
from kafkalog.records.selection import Selection
from kafkalog.state.entries import WrittenWhole, entries_of
from kafkalog.state.transactions import TransactionReplay, UnendedTransaction
from kafkalog.storage.files import read_file
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
"""Default of a broker's `producer.id.expiration.ms`."""


class _ProducerColumns(WrittenWhole):
    __slots__ = ()

    # for editors and type checkers
    if TYPE_CHECKING:
        producer_id: npt.NDArray[np.int64]
        producer_epoch: npt.NDArray[np.int16]
        last_sequence: npt.NDArray[np.int32]
        last_offset: npt.NDArray[np.int64]
        offset_delta: npt.NDArray[np.int32]
        timestamp: npt.NDArray[np.int64]
        coordinator_epoch: npt.NDArray[np.int32]
        current_txn_first_offset: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class ProducerSnapshot(_ProducerColumns):
    """One `.snapshot` file: the newest batch and the open transaction of each producer."""

    end_offset: int | None
    """The offset in the file's name: the entries are the state after all batches below it."""
    entries: npt.NDArray[np.void]
    """PRODUCER_SNAPSHOT_DTYPE[n]. In file order, which is the order of a Java `HashMap`."""
    path: str | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Read a snapshot file; raises SidecarError for one that a broker does not load."""
        snapshot = read_snapshot(path, may_go_on=True)
        return cls(snapshot.end_offset, snapshot.entries, snapshot.path)

    @classmethod
    def from_columns(cls, end_offset: int, **columns: npt.ArrayLike) -> Self:
        """Make a snapshot of columns: those that `columns` returns.

        Parameters
        ----------
        end_offset : int
            The state is that after all batches below this offset.
        **columns : array_like of int
            All columns, of one length.

        Raises
        ------
        TypeError
            A column is missing, is not of a snapshot, or is not of whole numbers.
        ValueError
            Columns have several lengths, or a number does not fit its field.

        Examples
        --------
        >>> from kafkalog.state.producers import ProducerSnapshot
        >>> one = dict.fromkeys(ProducerSnapshot.empty().columns(), [-1]) | {"producer_id": [7], "producer_epoch": [0]}
        >>> ProducerSnapshot.from_columns(100, **one)
        ProducerSnapshot(1 producers, end_offset=100)
        """
        return cls(end_offset, entries_of(cls.__name__, kf.PRODUCER_SNAPSHOT_DTYPE, columns))

    @classmethod
    def empty(cls, end_offset: int | None = None) -> Self:
        """Return the snapshot without producers."""
        return cls(end_offset, np.empty(0, kf.PRODUCER_SNAPSHOT_DTYPE))

    def tobytes(self) -> bytes:
        """The content of the file, in the order of the entries."""
        return encode_snapshot(self.entries)

    def __repr__(self) -> str:
        return f"ProducerSnapshot({len(self)} producers, end_offset={self.end_offset})"


def read_snapshot(path: str | os.PathLike[str], *, may_go_on: bool = False) -> ProducerSnapshot:
    """Read a producer snapshot; with `may_go_on`, bytes may follow the entries: a broker does not read them.

    ``i16 version | u32 crc | i32 n | n x 46 bytes``. The CRC-32C covers everything after itself, so not the version.
    Raises SidecarError: `snapshot_version`, `snapshot_crc` or `snapshot_size`. Source:
    ProducerStateManager.readSnapshot, Kafka 4.3.
    """
    data = read_file(path, max_bytes=MAX_SNAPSHOT_BYTES)
    entries = parse_snapshot(data, path, may_go_on=may_go_on)
    return ProducerSnapshot(kf.parse_base_offset(os.path.basename(path)), entries, os.fspath(path))


def parse_snapshot(
    content: bytes, path: str | os.PathLike[str] | None = None, *, may_go_on: bool = False
) -> npt.NDArray[np.void]:
    """Parse the content of a snapshot file to PRODUCER_SNAPSHOT_DTYPE[n]; raises as `read_snapshot` does."""
    data = np.frombuffer(content, np.uint8)
    if data.size < _HEADER.itemsize:
        detail = f"{data.size} bytes are fewer than the {_HEADER.itemsize} of the header"
        raise SidecarError(Reason.SNAPSHOT_SIZE, detail, path=path, position=0)
    header = data[: _HEADER.itemsize].view(_HEADER)[0]
    if header["version"] != 1:
        raise SidecarError(Reason.SNAPSHOT_VERSION, f"version {header['version']}; Kafka has 1", path=path, position=0)
    if checksum_crc32c(data[_CRC_END:]) != header["crc"]:
        detail = "the checksum does not match the file's bytes"
        raise SidecarError(Reason.SNAPSHOT_CRC, detail, path=path, position=2)
    body = data[_HEADER.itemsize :]
    n = int(header["n_entries"])
    n_bytes = n * kf.PRODUCER_SNAPSHOT_DTYPE.itemsize
    if n_bytes != body.size and not (may_go_on and 0 <= n_bytes < body.size):
        detail = f"expected {n} entries of {kf.PRODUCER_SNAPSHOT_DTYPE.itemsize} bytes, found {body.size} bytes"
        raise SidecarError(Reason.SNAPSHOT_SIZE, detail, path=path, position=_CRC_END)
    return body[:n_bytes].view(kf.PRODUCER_SNAPSHOT_DTYPE)


def encode_snapshot(entries: npt.NDArray[np.void]) -> bytes:
    """Encode the content of a snapshot file from PRODUCER_SNAPSHOT_DTYPE[n], in the order of the entries.

    Source: ProducerStateManager.writeSnapshot, Kafka 4.3.
    """
    body = entries.size.to_bytes(4, "big") + entries.astype(kf.PRODUCER_SNAPSHOT_DTYPE).tobytes()
    crc: int = checksum_crc32c(np.frombuffer(body, np.uint8))
    return (1).to_bytes(2, "big") + crc.to_bytes(4, "big") + body


def hash_order(producer_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n]: producer ids by row number in the order in which a Java ``HashMap<Long, ...>`` gives them.

    They have to be in the order of insertion. Source: Long.hashCode, HashMap.hash; its low bits are the bucket.
    """
    n_buckets = _FIRST_BUCKETS
    while 4 * producer_ids.size > 3 * n_buckets:  # the load factor is 0.75
        n_buckets *= 2
    ids = producer_ids.astype(np.int64).view(np.uint64)
    hashed = (ids ^ (ids >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    bucket = (hashed ^ (hashed >> np.uint64(16))) & np.uint64(n_buckets - 1)
    return np.argsort(bucket, kind="stable")


def newest_snapshot(
    directory: Place,
    first: int,
    last: int,
    *,
    report: Callable[[KafkalogError], object] = lambda error: None,
    wanted: Callable[[int], bool] = lambda offset: True,
) -> ProducerSnapshot | None:
    """Return the newest readable snapshot of a partition with an offset from `first` to `last`, both included.

    None if none. `report` gets the error about each newer one that cannot be read: a broker deletes it and uses an
    older one. `wanted` returns whether the snapshot of an offset may be used.
    """
    names = kf.offsets_of(Listing.or_empty(directory).names, kf.PRODUCER_SNAPSHOT_SUFFIX)
    for name, offset in reversed(names.items()):
        if first <= offset <= last and wanted(offset):
            try:
                return read_snapshot(directory / name, may_go_on=True)
            except KafkalogError as error:
                report(error)
    return None


def kept_snapshots(
    offsets: Iterable[int], bases: Sequence[int], *, start: int, end: int, recovered_from: int | None = None
) -> list[int]:
    """Of the snapshots at some offsets, those that a broker keeps when it loads a log from `start` to `end`.

    `bases` are the base offsets of its segments, rising. Of the snapshots at none of them, only the last one is kept,
    and only after all of them. After `recovered_from`, the base offset of the first segment that is recovered, only
    those of `loaded_snapshots` are.
    Source: ProducerStateManager.removeStraySnapshots, ProducerStateManager.truncateAndReload, Kafka 4.3.

    >>> kept_snapshots([10, 15, 20, 25, 30, 40], [0, 10, 20, 30], start=10, end=40)
    [20, 30, 40]
    """
    rising, usual = sorted(offsets), {*bases}
    last_stray = max({*rising} - usual, default=-1)
    if last_stray >= max(bases, default=0):
        usual.add(last_stray)
    kept = [offset for offset in rising if start < offset <= end and offset in usual]
    if recovered_from is None:
        return kept
    loaded = loaded_snapshots(bases)
    return [offset for offset in kept if offset <= recovered_from or offset in loaded]


def loaded_snapshots(bases: Sequence[int]) -> frozenset[int]:
    """The base offsets at which a broker takes snapshots when it loads a log: those of its last two segments.

    Source: UnifiedLog.rebuildProducerState, Kafka 4.3.
    """
    return frozenset(bases[-2:])


def with_markers(
    window: Window, batches: BatchTable, *, limits: Limits = DEFAULT_LIMITS
) -> tuple[BatchTable, npt.NDArray[np.int32]]:
    """Decode the control records of batches.

    Returns the batches, and the coordinator epoch of each (int32[n]). The window must have its bytes. `control_type` is
    set in place, also for compressed control batches.
    """
    epochs = np.full(len(batches), kf.NO_EPOCH, np.int32)
    control = np.flatnonzero(batches.is_control)
    if control.size:
        batches.control_type[control], epochs[control] = read_markers(window, batches, control, limits=limits)
    return batches, epochs


def read_markers(
    window: Window, batches: BatchTable, rows: npt.NDArray[np.int64], *, limits: Limits = DEFAULT_LIMITS
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int32]]:
    """Decode the control batches at `rows`, including compressed ones; the window must have its bytes.

    Returns the type of the first record of each batch, -2 if there is none or it cannot be read, and the coordinator
    epoch of a transaction marker, -1 if there is none. Checksums are not compared. Key: ``i16 version | i16 type``;
    value: ``i16 version | i32 coordinatorEpoch``. Source: ControlRecordType.parseTypeId,
    EndTransactionMarker.deserialize, Kafka 4.3.
    """
    kinds = np.full(rows.size, kf.NO_CONTROL_RECORD, np.int16)
    epochs = np.full(rows.size, kf.NO_EPOCH, np.int32)
    done = 0
    while done < rows.size:
        chosen = batches[rows[done:]]
        decoded = decode(
            Window(window.data, window.start, chosen),
            ("key", "value", "batch_position"),
            selection=Selection(include_control=True),
            check_crcs=False,
            limits=limits,
        )
        if decoded.columns is not None:
            positions, at = np.unique(decoded.columns.batch_position, return_index=True)
            for number, record in zip(np.searchsorted(chosen.position, positions).tolist(), at.tolist(), strict=True):
                key, value = decoded.columns.key[record], decoded.columns.value[record]
                if key is not None and len(key) >= 4 and not key[0] & 0x80:
                    # a negative version is invalid; one above 0 is read as version 0
                    kinds[done + number] = int.from_bytes(key[2:4], "big", signed=True)
                if value is not None and len(value) >= 6 and not value[0] & 0x80:
                    epochs[done + number] = int.from_bytes(value[2:6], "big", signed=True)
        done += decoded.n_batches + (decoded.error is not None)  # skip a batch that cannot be decoded
    return kinds, epochs


class ProducerState:
    """The producers of a partition after the batches passed to `update` so far, in log order.

    Producers of the initial `snapshot` that have been idle for `expiration_ms` at `now_ms` are left out, unless they
    have a transaction open. A new producer has epoch, coordinator epoch and timestamp -1 and no batch. A batch of
    records sets epoch, batch (last sequence, last offset, offset delta) and timestamp. A marker sets epoch, coordinator
    epoch and timestamp. A change of the epoch clears the batch.

    A snapshot's entries are in the order of a Java ``HashMap<Long, ...>``: by bucket, and within a bucket in the order
    of insertion. Source: ProducerAppendInfo.append, ProducerStateEntry.update, ProducerStateManager, Kafka 4.3.
    """

    def __init__(
        self,
        snapshot: ProducerSnapshot | None = None,
        *,
        now_ms: int | None = None,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.transactions = TransactionReplay(limits=limits)
        self._row_of: dict[int, int] = {}  # row by producer id, in the order of insertion
        self._entries = np.empty(_FIRST_ENTRIES, _ENTRY_DTYPE)
        if snapshot is not None:
            self._load(snapshot.entries, now_ms, expiration_ms)

    def __len__(self) -> int:
        return len(self._row_of)

    def epoch_and_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence of a producer, each -1 if it has none; None for an unknown producer."""
        row = self._row_of.get(producer_id)
        if row is None:
            return None
        return int(self._entries["producer_epoch"][row]), int(self._entries["last_sequence"][row])

    def update(
        self,
        batches: BatchTable,
        *,
        log_position: npt.NDArray[np.int64] | None = None,
        coordinator_epoch: npt.NDArray[np.int32] | None = None,
    ) -> npt.NDArray[np.void]:
        """Update the state with the next batches.

        Returns the transactions that ended (ENDED_DTYPE[k]). `log_position` is as in `TransactionReplay.update`,
        `coordinator_epoch` (int32[n]) as `with_markers` returns it; default: unchanged.
        """
        rows = np.flatnonzero((batches.producer_id >= 0) & (batches.magic >= 2))
        if not rows.size:
            return self.transactions.update(batches, log_position, rows=rows)
        is_control = (batches.attributes[rows] & kf.CONTROL_BIT) != 0
        # A control batch that compaction emptied only makes its producer known: it has no marker to apply
        says = ~is_control | (batches.records_count[rows] != 0)
        entry = self._find(batches.producer_id[rows])
        rows, entry, is_data = rows[says], entry[says], ~is_control[says]
        if rows.size:
            self._set(batches, rows, entry, is_data, coordinator_epoch)
        return self.transactions.update(batches, log_position)

    def entries(self) -> npt.NDArray[np.void]:
        """PRODUCER_SNAPSHOT_DTYPE[n]: the entries of a snapshot taken now, in the order that a broker writes them."""
        found = self._entries[list(self._row_of.values())]
        found = found[hash_order(found["producer_id"])]
        snapshot = np.empty(found.size, kf.PRODUCER_SNAPSHOT_DTYPE)
        for name in _ENTRY_DTYPE.names or ():
            snapshot[name] = found[name]
        begun = {one.producer_id: one.first_offset for one in self.transactions.open_transactions()}
        snapshot["current_txn_first_offset"] = [begun.get(one, kf.NO_OFFSET) for one in found["producer_id"].tolist()]
        return snapshot

    def _load(self, entries: npt.NDArray[np.void], now_ms: int | None, expiration_ms: int) -> None:
        begun = entries["current_txn_first_offset"].astype(np.int64)
        if now_ms is not None:
            # ProducerStateManager.loadFromSnapshot: an open transaction keeps its producer, however long it was idle
            fresh = (now_ms - entries["timestamp"].astype(np.int64) < expiration_ms) | (begun >= 0)
            entries, begun = entries[fresh], begun[fresh]
        rows = self._find(entries["producer_id"].astype(np.int64))
        for name in _ENTRY_DTYPE.names or ():
            self._entries[name][rows] = entries[name]
        # ProducerStateManager.readSnapshot: without an offset there is no batch
        self._forget_batches(rows[entries["last_offset"] < 0])
        ids = entries["producer_id"].tolist()
        order = [row for row in np.argsort(begun, kind="stable").tolist() if begun[row] >= 0]
        # negative positions, so that they lie before all batches passed to `update`
        self.transactions.resume(
            [UnendedTransaction(ids[row], int(begun[row]), number - len(order)) for number, row in enumerate(order)]
        )

    def _find(self, producer_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the entry row of each batch's producer; new producers get an entry."""
        ids, at, inverse = np.unique(producer_ids, return_index=True, return_inverse=True)
        known = self._row_of
        for number in np.argsort(at).tolist():
            producer_id = int(ids[number])
            if producer_id in known:
                continue
            row = len(known)
            if row == self._entries.size:
                self._entries = np.concatenate([self._entries, np.empty(max(row, _FIRST_ENTRIES), _ENTRY_DTYPE)])
            self._entries[row] = (producer_id, *_NEW_ENTRY)
            known[producer_id] = row
        rows = np.array([known[producer_id] for producer_id in ids.tolist()], np.int64)
        return rows[inverse]

    def _forget_batches(self, rows: npt.NDArray[np.int64]) -> None:
        for name, none in zip(("last_sequence", "last_offset", "offset_delta"), _NEW_ENTRY[1:4], strict=True):
            self._entries[name][rows] = none

    def _set(
        self,
        batches: BatchTable,
        rows: npt.NDArray[np.int64],
        entry: npt.NDArray[np.int64],
        is_data: npt.NDArray[np.bool_],
        coordinator_epoch: npt.NDArray[np.int32] | None,
    ) -> None:
        """Update the entries of the producers of some batches."""
        # Sorted by producer, and by log order within. All that counts is the last data batch, the last marker and the
        # last change of the epoch of each producer, and which of these comes later
        order = np.argsort(entry, kind="stable")
        rows, entry, is_data = rows[order], entry[order], is_data[order]
        epoch = batches.producer_epoch[rows]
        n = np.arange(rows.size)
        is_first = np.concatenate([[True], entry[1:] != entry[:-1]])
        before = np.where(is_first, self._entries["producer_epoch"][entry], np.concatenate([epoch[:1], epoch[:-1]]))
        last = np.flatnonzero(np.concatenate([is_first[1:], [True]]))
        first = np.flatnonzero(is_first)
        last_data = np.maximum.accumulate(np.where(is_data, n, -1))[last]
        last_change = np.maximum.accumulate(np.where(epoch != before, n, -1))[last]
        last_marker = np.maximum.accumulate(np.where(is_data, -1, n))[last]

        of = self._entries
        each = entry[last]
        of["producer_epoch"][each] = epoch[last]
        of["timestamp"][each] = batches.max_timestamp[rows[last]]
        if coordinator_epoch is not None:
            marked = last_marker >= first
            of["coordinator_epoch"][each[marked]] = coordinator_epoch[rows[last_marker[marked]]]
        # sequences start at 0 in a new epoch: a broker forgets the batches of the old one
        self._forget_batches(each[last_change >= first])
        told = (last_data >= first) & (last_data >= last_change)
        row, each = rows[last_data[told]], each[told]
        delta = batches.last_offset[row] - batches.base_offset[row]
        base = batches.base_sequence[row].astype(np.int64)
        of["last_sequence"][each] = np.where(base < 0, -1, (base + delta) & kf.SEQUENCE_MASK)
        of["last_offset"][each] = batches.last_offset[row]
        of["offset_delta"][each] = delta


MAX_SNAPSHOT_BYTES = 2**30
_HEADER = np.dtype([("version", ">i2"), ("crc", ">u4"), ("n_entries", ">i4")])
_CRC_END = 6

_ENTRY_DTYPE = np.dtype(
    [
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("last_sequence", np.int32),
        ("last_offset", np.int64),
        ("offset_delta", np.int32),
        ("timestamp", np.int64),
        ("coordinator_epoch", np.int32),
    ]
)
_NEW_ENTRY = (kf.NO_EPOCH, -1, kf.NO_OFFSET, 0, kf.NO_TIMESTAMP, kf.NO_EPOCH)
_FIRST_ENTRIES = 64
_FIRST_BUCKETS = 16
