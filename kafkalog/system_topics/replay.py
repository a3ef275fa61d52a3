"""The last record of each key of an internal topic, as a coordinator keeps it that loads the topic.

`load_topic` reads and decodes them.

Offsets that were committed in a transaction count once its marker commits it. Mirrors `CoordinatorLoaderImpl` and
`OffsetMetadataManager.replayEndTransactionMarker`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.replay import LastRows
from kafkalog.errors import Finding, Reason
from kafkalog.format import CONSUMER_OFFSETS, ControlRecordType, TopicPartition
from kafkalog.log.log_dir import LogDir
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.framing import InternalRecord, decode_record
from kafkalog.records.byte_columns import BinaryColumn, ViewColumn, as_views
from kafkalog.records.columns import Column, RecordColumns
from kafkalog.storage.source import Bytes
from kafkalog.system_topics.reading import OF_TRANSACTIONS, AsOf, Report, TopicRecords, listed, read_records, read_topic

_COMMIT: Final = int(ControlRecordType.COMMIT)
_INLINE_BYTES: Final = 12
"""Byte strings up to this size are in their view."""
_AT_ONCE: Final = 2**30
Mask = npt.NDArray[np.bool_]
Take = Callable[[BinaryColumn, BinaryColumn], Mask]


class LastRecord(NamedTuple):
    """The last record of a key."""

    partition: int
    offset: int
    timestamp: int
    """In ms."""
    value: bytes | None
    """None for a tombstone."""
    is_pending: bool = False
    """Whether it does not count yet: its transaction is open."""


class LastRecords:
    """The last record of each key.

    Nothing is decoded here, and records that have been replaced take no memory.
    """

    def __init__(self) -> None:
        self._last = _rows()
        self._pending: dict[tuple[int, int], LastRows] = {}

    def feed(self, parts: Iterable[TopicRecords]) -> None:
        """Take the next records, as `read_topic` gives them, control records among them.

        Among records of a key that count, the one of the highest offset stays. So it does not matter when a commit is
        seen, and a part is taken at once.
        """
        for partition, columns in parts:
            if columns.n_records:
                counted = self._counted(partition, columns) if "is_control" in columns else None
                _feed(self._last, partition, columns, counted)

    def records(self, take: Take | None = None) -> Iterator[tuple[bytes, LastRecord]]:
        """Each key with its record, tombstones included, in the order in which keys first count; then pending ones.

        `take` gets the keys and values of those that count, all at once, and says which of them it has taken.
        """
        last = _columns(self._last)
        if take is not None and last.n_records:
            keys: BinaryColumn = last["key"]  # type: ignore[assignment]
            values: BinaryColumn = last["value"]  # type: ignore[assignment]
            last = last.take(np.flatnonzero(~take(keys, values)))
        for columns, is_pending in chain([(last, False)], zip(map(_columns, self._pending.values()), repeat(True))):
            lists = [listed(columns[name]) for name in ("key", "partition", "offset", "timestamp", "value")]
            yield from zip(lists[0], map(LastRecord, *lists[1:], repeat(is_pending)), strict=False)

    def _counted(self, partition: int, columns: RecordColumns) -> Mask:
        """Which rows are outside of transactions, or in one that a marker in the same part commits.

        Ends what a part before has left open, and keeps what this one leaves open.
        """
        all_of = [np.asarray(columns[name]) for name in OF_TRANSACTIONS]
        is_first = np.ones(columns.n_records, np.bool_)  # of rows that are alike; they are judged together
        is_first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in all_of])
        first = np.flatnonzero(is_first)
        producers, is_transactional, is_control = (column[first] for column in all_of)
        markers = np.flatnonzero(is_control)
        ends = listed(columns.take(first[markers])["key"])
        is_commit = np.zeros(first.size, np.bool_)
        is_commit[markers] = [key is not None and int.from_bytes(key[2:4], "big") == _COMMIT for key in ends]
        for row in markers.tolist() if self._pending else ():
            self._end((partition, int(producers[row])), is_commit=bool(is_commit[row]))
        # in the order of producers, and of offsets for each: the next marker is that of the transaction
        order = np.lexsort((np.arange(first.size), producers))
        places = np.where(is_control[order], np.arange(first.size), first.size)
        following = np.minimum.accumulate(places[::-1])[::-1]
        found = following < first.size
        marker = order[np.minimum(following, first.size - 1)]
        found &= producers[marker] == producers[order]
        has_marker, commits = np.zeros(first.size, np.bool_), np.zeros(first.size, np.bool_)
        has_marker[order], commits[order] = found, found & is_commit[marker]
        of_transaction = is_transactional & ~is_control
        unended = of_transaction & ~has_marker
        of_row = np.cumsum(is_first) - 1
        for producer in np.unique(producers[unended]).tolist():
            pending = self._pending.setdefault((partition, producer), _rows())
            _feed(pending, partition, columns, (unended & (producers == producer))[of_row])
        counted: Mask = (~is_control & (~of_transaction | commits))[of_row]
        return counted

    def _end(self, producer: tuple[int, int], *, is_commit: bool) -> None:
        pending = self._pending.pop(producer, None)
        if pending is not None and is_commit:
            columns = _columns(pending)
            for start, stop in _shares(columns):
                # a commit outside of the transaction may have come between its record and its marker
                _feed(self._last, producer[0], columns.slice(start, stop), only_newer=True)


def _rows() -> LastRows:
    # seeds of the hash: whoever chooses keys cannot make all of them collide
    return LastRows(secrets.randbits(64), secrets.randbits(64))


def _feed(
    rows: LastRows, partition: int, columns: RecordColumns, wanted: Mask | None = None, *, only_newer: bool = False
) -> None:
    offset, timestamp = (np.asarray(columns[name]) for name in ("offset", "timestamp"))
    mask = None if wanted is None else wanted.view(np.uint8)
    rows.feed(_views(columns["key"]), _views(columns["value"]), offset, timestamp, partition, mask, only_newer)


def _shares(columns: RecordColumns) -> Iterator[tuple[int, int]]:
    """Rows that are fed at once: views lead to 2 GiB at most."""
    size = np.asarray(columns["key"].offsets) + np.asarray(columns["value"].offsets)  # type: ignore[union-attr]
    start = 0
    while start < columns.n_records:
        stop = int(np.searchsorted(size, size[start] + _AT_ONCE, side="right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def _views(column: Column) -> tuple[Bytes, tuple[Bytes, ...], npt.NDArray[np.uint8] | None]:
    assert isinstance(column, (BinaryColumn, ViewColumn))
    column = as_views(column)
    return column.views, column.buffers, None if column.validity is None else column.validity.view(np.uint8)


def _columns(rows: LastRows) -> RecordColumns:
    n = rows.n_keys
    key_offsets, value_offsets = np.empty((2, n + 1), np.int64)
    keys, values = np.empty(rows.key_bytes, np.uint8), np.empty(rows.value_bytes, np.uint8)
    valid, partition = np.empty(n, np.bool_), np.empty(n, np.int32)
    offset, timestamp = np.empty((2, n), np.int64)
    n_null = rows.copy(key_offsets, keys, value_offsets, values, valid.view(np.uint8), offset, timestamp, partition)
    columns: dict[str, Column] = {"partition": partition, "offset": offset, "timestamp": timestamp}
    columns["key"] = BinaryColumn(key_offsets, keys)
    columns["value"] = BinaryColumn(value_offsets, values, valid if n_null else None)
    return RecordColumns(n, columns)


def load_topic(
    log_dir: LogDir,
    topic: str,
    as_of: AsOf,
    report: Report,
    take: Take | None = None,
    *,
    watch: Callable[[TopicRecords], None] | None = None,
) -> Iterator[tuple[InternalRecord, LastRecord]]:
    """Read a topic of a log dir, and decode the last record of each key; tombstones are left out.

    Records whose transaction is open come last; those that `take` has taken are left out, see `LastRecords.records`.
    Records that cannot be decoded are reported, and are no damage. `watch` gets all records of each partition, in
    order.
    """
    if topic not in log_dir.topics:
        return
    last = LastRecords()
    parts = read_topic(log_dir, topic, as_of, report, views=watch is None)
    if watch is not None:
        parts = _watched(parts, watch)
    last.feed(map(_with_current_keys, parts) if topic == CONSUMER_OFFSETS else parts)
    for key, record in last.records(take):
        if record.value is None:
            continue
        try:
            decoded = decode_record(topic, key, record.value)
        except MessageError as error:
            report(undecoded(log_dir, TopicPartition(topic, record.partition), record.offset, error))
        else:
            yield decoded, record


def _watched(parts: Iterator[TopicRecords], watch: Callable[[TopicRecords], None]) -> Iterator[TopicRecords]:
    for part in parts:
        watch(part)
        yield part
        # freed before the next ones are read
        del part


def _with_current_keys(part: TopicRecords) -> TopicRecords:
    """Give commits under the old version of the key (0) the current one (1), which has the same fields.

    So they replace each other. Source: GroupCoordinatorShard.convertLegacyOffsetCommitKey, Kafka 4.3.
    """
    keys = part.columns["key"]
    assert isinstance(keys, (BinaryColumn, ViewColumn))
    views = as_views(keys).views.reshape(-1, 16)
    # a size, then the first bytes of the key: its version, int16
    is_old = (np.ascontiguousarray(views[:, :4]).view("<i4").ravel() > 1) & ~views[:, 4:6].any(axis=1)
    if keys.validity is not None:
        is_old &= keys.validity
    if "is_control" in part.columns:
        is_old &= ~np.asarray(part.columns["is_control"])
    rows = np.flatnonzero(is_old)
    if not rows.size:
        return part
    current: Column
    if isinstance(keys, BinaryColumn):
        data = keys.data.copy()
        data[keys.offsets[rows] + 1] = 1
        current = BinaryColumn(keys.offsets, data, keys.validity)
    else:
        # one new buffer for all rows, as the kernel takes few; no broker of this decade writes such keys
        views, copied = views.copy(), bytearray()
        views[rows, 5] = 1
        numbers = views.view("<i4")
        for row, (size, _, buffer, position) in enumerate(numbers.tolist()):
            if size > _INLINE_BYTES:
                numbers[row, 2:] = 0, len(copied)
                copied += views[row, 4:8].tobytes() + keys.buffers[buffer][position + 4 : position + size].tobytes()
        current = ViewColumn(views.ravel(), (np.frombuffer(copied, np.uint8),), keys.validity)
    columns = RecordColumns(part.columns.n_records, {**part.columns, "key": current})
    return TopicRecords(part.partition, columns)


def decoded_records(log_dir: LogDir, topic: str, as_of: AsOf, report: Report) -> Iterator[InternalRecord]:
    """Read and decode all records of a topic but control records; those that cannot be decoded are reported."""
    for record in read_records(log_dir, topic, as_of, report):
        try:
            if not record.is_control:
                yield decode_record(topic, record.key, record.value)
        except MessageError as error:
            report(undecoded(log_dir, TopicPartition(topic, record.partition), record.offset, error))


def undecoded(log_dir: LogDir, where: TopicPartition, offset: int, error: Exception) -> Finding:
    """The finding about a record that cannot be decoded."""
    path = str(log_dir.path_of(where).path)
    return Finding(
        Reason.INTERNAL_RECORD, f"offset {offset} of {where}: {error}", path, base_offset=offset, damage=False
    )
