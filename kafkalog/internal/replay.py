"""The last record of each key of an internal topic, as a coordinator keeps it that loads the topic.

`load_topic` reads and decodes them.

Offsets that were committed in a transaction count once its marker says so. Mirrors `CoordinatorLoaderImpl` and
`OffsetMetadataManager.replayEndTransactionMarker`.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog._kernels.replay import LastRows
from kafkalog.errors import Finding, Reason
from kafkalog.format import TopicPartition
from kafkalog.internal.reading import OF_TRANSACTIONS, AsOf, Report, TopicRecords, listed, read_records, read_topic
from kafkalog.log.log_dir import LogDir
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.framing import InternalRecord, decode_record
from kafkalog.records.columns import BinaryColumn, RecordColumns

_COMMIT: Final = 1
_KEPT: Final = ("offset", "timestamp", "value")
_MOST_KEPT: Final = 4
"""Records, for each key, before those that have been replaced are dropped."""
_LEAST_DROPPED: Final = 2**16

Rows = npt.NDArray[np.int64]
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

    Nothing is decoded here. Of a part's records, those that are the last ones of their keys in it are kept, until
    later ones have replaced most of them.
    """

    def __init__(self) -> None:
        # seeds of the hash: whoever chooses keys cannot make all of them collide
        self._keys = LastRows(secrets.randbits(64), secrets.randbits(64))
        self._kept: list[RecordColumns] = []
        self._n_kept = 0
        # by number of the key: where its record is among the kept ones, and its offset; -1 for none
        self._at = self._offset = np.empty(0, np.int64)
        self._pending: defaultdict[tuple[int, int], list[_Last]] = defaultdict(list)

    def feed(self, parts: Iterable[TopicRecords]) -> None:
        """Take the next records, as `read_topic` gives them, control records among them.

        Among records of a key that count, the one of the highest offset stays. So it does not matter when a commit is
        seen, and a part is taken at once.
        """
        for partition, columns in parts:
            if columns.n_records:
                counted = self._counted(partition, columns) if "is_control" in columns else None
                self._set(self._keep(partition, columns, counted))

    def records(self, take: Take | None = None) -> Iterator[tuple[bytes, LastRecord]]:
        """Each key with its record, tombstones included, in the order in which keys first appear; then pending ones.

        `take` gets the keys and values of those that count, all at once, and says which of them it has taken.
        """
        self._drop_replaced()
        numbers = np.flatnonzero(self._at >= 0)
        if take is not None and numbers.size:
            (part,) = self._kept
            values: BinaryColumn = part["value"]  # type: ignore[assignment]
            keys = BinaryColumn(np.empty(self._keys.n_keys + 1, np.int64), np.empty(self._keys.n_bytes, np.uint8))
            self._keys.copy_keys(keys.offsets, keys.data)
            taken = take(keys.take(numbers), values.take(self._at[numbers]))
            numbers = numbers[~taken]
        yield from self._records(numbers, self._at[numbers], is_pending=False)
        for last in chain.from_iterable(self._pending.values()):
            yield from self._records(last.numbers, last.kept, is_pending=True)

    def _records(self, numbers: Rows, kept: Rows, *, is_pending: bool) -> Iterator[tuple[bytes, LastRecord]]:
        for part in self._kept:
            of_keys = part.take(kept)
            lists = [listed(of_keys[name]) for name in ("partition", *_KEPT)]
            records = map(LastRecord, *lists, repeat(is_pending))
            yield from zip(map(self._keys.key, numbers.tolist()), records, strict=False)

    def _keep(self, partition: int, columns: RecordColumns, wanted: Mask | None) -> _Last:
        """Keep the last records of the keys of some rows; None for all."""
        keys: BinaryColumn = columns["key"]  # type: ignore[assignment]
        if keys.validity is not None:
            wanted = keys.validity if wanted is None else wanted & keys.validity
        numbers, rows = np.empty((2, len(keys)), np.int64)
        n = self._keys.feed(keys.offsets, keys.data, None if wanted is None else wanted.view(np.uint8), numbers, rows)
        numbers, rows = numbers[:n], rows[:n]
        if self._keys.n_keys > self._at.size:
            more = np.full(2 * self._keys.n_keys - self._at.size, -1)
            self._at, self._offset = np.concatenate([self._at, more]), np.concatenate([self._offset, more])
        # in a log that was not compacted most kept records have been replaced
        if self._n_kept > max(_MOST_KEPT * self._keys.n_keys, _LEAST_DROPPED):
            self._drop_replaced()
        held = RecordColumns(columns.n_records, {name: columns[name] for name in _KEPT}).take(rows)
        self._kept.append(RecordColumns(n, {**held, "partition": np.full(n, partition)}))
        self._n_kept += n
        return _Last(numbers, np.arange(self._n_kept - n, self._n_kept), np.asarray(columns["offset"])[rows])

    def _set(self, last: _Last) -> None:
        self._at[last.numbers], self._offset[last.numbers] = last.kept, last.offsets

    def _drop_replaced(self) -> None:
        """Keep only the last records of keys, and those of transactions that are open."""
        if self._kept:
            numbers = np.flatnonzero(self._at >= 0)
            pending = [last for lasts in self._pending.values() for last in lasts]
            kept = np.concatenate([self._at[numbers], *(last.kept for last in pending)])
            is_wanted = np.zeros(self._n_kept, np.bool_)
            is_wanted[kept] = True
            wanted = np.flatnonzero(is_wanted)
            places = (np.cumsum(is_wanted) - 1)[kept]
            bounds = np.cumsum([0, *(part.n_records for part in self._kept)])
            cuts = np.searchsorted(wanted, bounds)
            # part by part: most of what is kept has been replaced, and is not copied once more
            for i, part in enumerate(self._kept):
                self._kept[i] = part.take(wanted[cuts[i] : cuts[i + 1]] - bounds[i])
            self._kept = [RecordColumns.concatenate(self._kept)]
            self._n_kept = wanted.size
            self._at[numbers], *rest = np.split(
                places, np.cumsum([numbers.size, *(last.kept.size for last in pending)])
            )
            for last, found in zip(pending, rest, strict=False):
                last.kept[:] = found

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
            of_producer = (unended & (producers == producer))[of_row]
            self._pending[partition, producer].append(self._keep(partition, columns, of_producer))
        counted: Mask = (~is_control & (~of_transaction | commits))[of_row]
        return counted

    def _end(self, producer: tuple[int, int], *, is_commit: bool) -> None:
        for last in self._pending.pop(producer, ()):
            if is_commit:
                # a commit outside of the transaction may have come between its record and its marker
                is_newer = self._offset[last.numbers] < last.offsets
                self._set(_Last(*(column[is_newer] for column in last)))


class _Last(NamedTuple):
    """Records that are the last ones of their keys, in a part or in a transaction."""

    numbers: Rows
    """Of the keys."""
    kept: Rows
    """Where they are among the kept ones."""
    offsets: Rows


def load_topic(
    log_dir: LogDir, topic: str, as_of: AsOf, report: Report, take: Take | None = None
) -> Iterator[tuple[InternalRecord, LastRecord]]:
    """Read a topic of a log dir, and decode the last record of each key; tombstones are left out.

    Records whose transaction is open come last; those that `take` has taken are left out, see `LastRecords.records`.
    Records that cannot be decoded are reported, and are no damage.
    """
    if topic not in log_dir.topics:
        return
    last = LastRecords()
    last.feed(read_topic(log_dir, topic, as_of, report))
    for key, record in last.records(take):
        if record.value is None:
            continue
        try:
            decoded = decode_record(topic, key, record.value)
        except MessageError as error:
            report(undecoded(log_dir, TopicPartition(topic, record.partition), record.offset, error))
        else:
            yield decoded, record


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
