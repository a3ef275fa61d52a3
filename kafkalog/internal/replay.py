"""The last record of each key of an internal topic, as a coordinator keeps it that loads the topic.

`load_topic` reads and decodes them.

Offsets that were committed in a transaction count once its marker says so. Mirrors `CoordinatorLoaderImpl` and
`OffsetMetadataManager.replayEndTransactionMarker`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kafkalog.errors import Finding, Reason
from kafkalog.format import TopicPartition
from kafkalog.internal.reading import AsOf, Report, read_topic
from kafkalog.log.log_dir import LogDir
from kafkalog.messages.decoder import MessageError
from kafkalog.messages.framing import InternalRecord, decode_record

_COMMIT: Final = 1


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record of a key.

    Attributes
    ----------
    partition : int
    offset : int
    timestamp : int
        In ms.
    value : bytes or None
        None for a tombstone.
    """

    partition: int
    offset: int
    timestamp: int
    value: bytes | None


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
        """Take the next records, as `read_topic` gives them: control records among them."""
        for batch in batches:
            if not len(batch):
                continue
            if batch.column("is_transactional").true_count:
                self._take_one_by_one(batch)
            else:
                self._take_last_of_each(batch)

    def _take_last_of_each(self, batch: pa.RecordBatch) -> None:
        plain = np.flatnonzero(~batch.column("is_control").to_numpy(zero_copy_only=False))
        keys = batch.column("key").take(pa.array(plain)).dictionary_encode()
        codes = keys.indices.fill_null(len(keys.dictionary)).to_numpy(zero_copy_only=False)
        last = np.zeros(len(keys.dictionary) + 1, np.int64)
        last[codes] = plain  # of rows with the same code the last one stays
        rows = last[:-1]
        for key, record in zip(keys.dictionary.to_pylist(), _records(batch, rows), strict=True):
            self.by_key[key] = record

    def _take_one_by_one(self, batch: pa.RecordBatch) -> None:
        rows = np.arange(len(batch))
        columns = (batch.column(name).to_pylist() for name in ("key", "producer_id", "is_transactional", "is_control"))
        for record, key, producer_id, is_transactional, is_control in zip(_records(batch, rows), *columns, strict=True):
            producer = record.partition, producer_id
            if is_control:
                self._end(producer, is_commit=key is not None and int.from_bytes(key[2:4], "big") == _COMMIT)
            elif key is not None and is_transactional:
                self._pending[producer].append((key, record))
            elif key is not None:
                self.by_key[key] = record

    def _end(self, producer: tuple[int, int], *, is_commit: bool) -> None:
        for key, record in self._pending.pop(producer, ()):
            known = self.by_key.get(key)
            if is_commit and (known is None or known.offset < record.offset):
                self.by_key[key] = record


def _records(batch: pa.RecordBatch, rows: np.ndarray) -> Iterable[LastRecord]:
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
