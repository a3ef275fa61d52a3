"""The last record of each key of an internal topic, as a coordinator keeps it that loads the topic.

`load_topic` reads and decodes them.

Offsets that were committed in a transaction count once its marker says so. Mirrors `CoordinatorLoaderImpl` and
`OffsetMetadataManager.replayEndTransactionMarker`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.errors import Finding, Reason
from kafkalog.format import TopicPartition
from kafkalog.internal.reading import AsOf, Report, read_topic
from kafkalog.log.log_dir import LogDir
from kafkalog.messages.decoder import MessageError
from kafkalog.messages.framing import InternalRecord, decode_record

_COMMIT: Final = 1

Rows = npt.NDArray[np.int64]


class LastRecord(NamedTuple):
    """The last record of a key."""

    partition: int
    offset: int
    timestamp: int
    """In ms."""
    value: bytes | None
    """None for a tombstone."""


class LastRecords:
    """The last record of each key.

    Attributes
    ----------
    by_key : dict of bytes to LastRecord
        In the order in which keys first appear; tombstones included.
    """

    def __init__(self) -> None:
        self.by_key: dict[bytes, LastRecord] = {}
        self._pending: defaultdict[tuple[int, int], list[tuple[bytes, LastRecord]]] = defaultdict(list)

    def feed(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take the next records, each batch of one partition, as `read_topic` gives them, control records among them.

        Among records of a key that count, the one of the highest offset stays. So it does not matter when a commit is
        seen, and a batch is taken at once.
        """
        for batch in batches:
            if not len(batch):
                continue
            if batch.column("is_transactional").true_count or batch.column("is_control").true_count:
                self._take_last_of_each(batch, self._counted(batch))
            else:
                self._take_last_of_each(batch, None)

    def _take_last_of_each(self, batch: pa.RecordBatch, counted: Rows | None) -> None:
        """Keep the last record of each key; `counted` are the rows that count, None for all."""
        keys = batch.column("key") if counted is None else batch.column("key").take(pa.array(counted))
        keys = keys.dictionary_encode()
        codes = keys.indices
        if codes.null_count:
            codes = codes.fill_null(len(keys.dictionary))
        last = np.zeros(len(keys.dictionary) + 1, np.int64)
        # of rows with the same code the last one stays
        last[codes.to_numpy(zero_copy_only=False)] = np.arange(len(batch)) if counted is None else counted
        for key, record in zip(keys.dictionary.to_pylist(), _records(batch, last[:-1]), strict=True):
            self.by_key[key] = record

    def _counted(self, batch: pa.RecordBatch) -> Rows:
        """Rows outside of transactions, and those whose transaction a marker in the same batch commits.

        Ends what a batch before has left open, and keeps what this one leaves open.
        """
        partition = batch.column("partition")[0].as_py()
        is_control, is_transactional = (
            batch.column(name).to_numpy(zero_copy_only=False) for name in ("is_control", "is_transactional")
        )
        producers = batch.column("producer_id").to_numpy(zero_copy_only=False)
        markers = np.flatnonzero(is_control)
        ends = batch.column("key").take(pa.array(markers)).to_pylist()
        is_commit = np.zeros(len(batch), np.bool_)
        is_commit[markers] = [key is not None and int.from_bytes(key[2:4], "big") == _COMMIT for key in ends]
        for row in markers.tolist() if self._pending else ():
            self._end((partition, int(producers[row])), is_commit=bool(is_commit[row]))
        # in the order of producers, and of offsets for each: the next marker is that of the transaction
        order = np.lexsort((np.arange(len(batch)), producers))
        places = np.where(is_control[order], np.arange(len(batch)), len(batch))
        following = np.minimum.accumulate(places[::-1])[::-1]
        found = following < len(batch)
        marker = order[np.minimum(following, len(batch) - 1)]
        found &= producers[marker] == producers[order]
        has_marker, commits = np.zeros(len(batch), np.bool_), np.zeros(len(batch), np.bool_)
        has_marker[order], commits[order] = found, found & is_commit[marker]
        of_transaction = is_transactional & ~is_control
        unended = np.flatnonzero(of_transaction & ~has_marker)
        keys = batch.column("key").take(pa.array(unended)).to_pylist()
        for key, record, producer in zip(keys, _records(batch, unended), producers[unended].tolist(), strict=True):
            if key is not None:
                self._pending[partition, producer].append((key, record))
        return np.flatnonzero(~is_control & (~of_transaction | commits))

    def _end(self, producer: tuple[int, int], *, is_commit: bool) -> None:
        for key, record in self._pending.pop(producer, ()):
            known = self.by_key.get(key)
            if is_commit and (known is None or known.offset < record.offset):
                self.by_key[key] = record


def _records(batch: pa.RecordBatch, rows: Rows) -> Iterable[LastRecord]:
    """The records of some rows."""
    some = batch.select(["partition", "offset", "timestamp", "value"]).take(pa.array(rows))
    timestamps = some.column("timestamp").cast(pa.int64()).fill_null(-1)
    columns = (some.column("partition"), some.column("offset"), timestamps, some.column("value"))
    return map(LastRecord, *(column.to_pylist() for column in columns))


def load_topic(log_dir: LogDir, topic: str, as_of: AsOf, report: Report) -> Iterator[tuple[InternalRecord, LastRecord]]:
    """Read a topic of a log dir, and decode the last record of each key; tombstones are left out.

    Records that cannot be decoded are reported, and are no damage.
    """
    if topic not in log_dir.topics:
        return
    last = LastRecords()
    last.feed(read_topic(log_dir, topic, as_of, report))
    for key, record in last.by_key.items():
        if record.value is None:
            continue
        try:
            decoded = decode_record(topic, key, record.value)
        except MessageError as error:
            report(undecoded(log_dir, TopicPartition(topic, record.partition), record.offset, error))
        else:
            yield decoded, record


def undecoded(log_dir: LogDir, where: TopicPartition, offset: int, error: Exception) -> Finding:
    """The finding about a record that cannot be decoded."""
    path = str(log_dir.path_of(where).path)
    return Finding(
        Reason.INTERNAL_RECORD, f"offset {offset} of {where}: {error}", path, base_offset=offset, damage=False
    )
