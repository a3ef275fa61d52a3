"""Routes the rows of a table to partitions, collects them, and passes them to one writer per partition.

A `Router` chooses the topic and partition of each row: by columns, or as Kafka's default partitioner does.
`WaitingRecords` keeps the records of each partition until they fill batches, then writes them. Mirrors
`KafkaProducer.partition` and `RecordAccumulator`. This module does not open or publish partition directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog import format as kf
from kafkalog.errors import Reason, UnsafePathError, UnwritableError
from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.arrow_input import SLICE_BYTES, ColumnReader
from kafkalog.interchange.arrow_values import integer_values, plain_column
from kafkalog.records.columns import RecordColumns, sized_slices
from kafkalog.records.partitioner import Partitioner, record_sizes
from kafkalog.storage.open_file_limit import allow_open_files, count_open_files
from kafkalog.writing.partition_writer import PartitionWriter, check_partition_name

WAITING_BYTES: Final = 32 * 2**20
"""Approximate bytes of waiting records over all partitions."""
_MOST_BYTES: Final = 2**20
_MOST_BATCHES: Final = 8

_FILES_PER_PARTITION: Final = 2
"""Files that a `PartitionWriter` has open: the `.log` and the staged directory."""
_INT_MAX: Final = 2**31 - 1


def check_topic(topic: str) -> None:
    """Check a topic's name, which becomes part of a path; UnsafePathError if it has a separator, or a broker refuses
    it.
    """
    name = str(kf.TopicPartition(topic, 0))
    path = Path(name)
    if path.name != name:
        raise UnsafePathError(Reason.UNSAFE_PATH, "not a valid topic name: it contains a path separator", path=topic)
    check_partition_name(path)


class Routed(NamedTuple):
    """Records of one partition, in the order of the input."""

    key: kf.TopicPartition
    columns: RecordColumns
    is_owned: bool
    """Whether the columns own their memory; else they share that of the input."""


class Router:
    """Chooses the topic and partition of each row of a table.

    ``n_partitions(topic)`` is called once for each topic. It returns the number of partitions over which `partitioner`,
    one of `PARTITIONERS`, spreads records; or None to use the column `partition`, and partition 0 without that column.
    `topic` is that of all records; default: the column `topic`. Records of topics for which ``wants(topic)`` is false
    are skipped, and counted in `left_out`.
    """

    def __init__(
        self,
        n_partitions: Callable[[str], int | None],
        *,
        topic: str | None = None,
        sticky_bytes: int = kf.BATCH_SIZE,
        partitioner: str = "kafka",
        wants: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self._n_partitions, self._topic, self._sticky_bytes = n_partitions, topic, sticky_bytes
        self._wants, self._partitioner = wants, partitioner
        self._partitioners: dict[str, Partitioner | None] = {}
        self.left_out: dict[str, int] = {}

    def register(self, topic: str) -> None:
        """Register a topic: check its name and look up its number of partitions.

        Topics that are not registered before are registered with their first record.
        """
        if topic not in self._partitioners:
            check_topic(topic)
            n = self._n_partitions(topic)
            how: dict[str, Any] = {"sticky_bytes": self._sticky_bytes, "name": self._partitioner}
            self._partitioners[topic] = None if n is None else Partitioner(n, **how)

    def route(
        self, columns: RecordColumns, batch: pa.RecordBatch, reader: ColumnReader, first_row: int = 0
    ) -> Iterator[Routed]:
        """Split the records of a batch by partition.

        `columns` are the records of `batch`, which has the columns `topic` and `partition` if they are needed.
        `first_row` is the row of its first record in the whole input, for messages. Raises UnwritableError for a null
        topic or partition, or a number that is out of range, and UnsafePathError for an invalid name.
        """
        n = columns.n_records
        if not n:
            return
        topics, codes = self._topics(batch, reader, first_row)
        numbers = self._numbers(columns, topics, codes, batch, reader, first_row)
        wanted = self._wanted_rows(topics, codes)
        if wanted is not None:
            columns, codes, numbers = columns.take(wanted), codes[wanted], numbers[wanted]
            n = wanted.size
            if not n:
                return
        order = np.lexsort((numbers, codes))  # stable: records of a partition stay in their order
        codes, numbers = codes[order], numbers[order]
        edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(numbers) != 0)) + 1
        starts = [0, *edges.tolist()]
        for start, stop in zip(starts, [*starts[1:], n], strict=True):
            key = kf.TopicPartition(topics[int(codes[start])], int(numbers[start]))
            if len(starts) > 1:
                yield Routed(key, columns.take(order[start:stop]), True)
            else:
                yield from (Routed(key, part, False) for part in sized_slices(columns, SLICE_BYTES))

    def _topics(
        self, batch: pa.RecordBatch, reader: ColumnReader, first_row: int
    ) -> tuple[list[str], npt.NDArray[np.int64]]:
        """The distinct topics of the batch, and the index of each record's topic among them (int64[n])."""
        if self._topic is not None:
            self.register(self._topic)
            return [self._topic], np.zeros(batch.num_rows, np.int64)
        name = reader.names["topic"]
        column = plain_column(batch, name, first_row)
        valid = validity(column)
        if valid is not None:
            bad = first_row + int(np.argmin(valid))
            detail = (
                f"null topic present in the data (column {name!r}, row {bad}). Use the topic option for setting one"
            )
            raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        coded = pc.dictionary_encode(column)
        names = coded.dictionary.to_pylist()
        # bytes that are not UTF-8 become a character that `check_topic` refuses
        topics = [each if isinstance(each, str) else each.decode("utf-8", "replace") for each in names]
        for topic in filter(self._wants, topics):
            self.register(topic)
        return topics, integer_values(coded.indices, name)[0]

    def _wanted_rows(self, topics: list[str], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The rows of wanted topics (int64); None if all are wanted. The others are counted in `left_out`."""
        left_out = [code for code, topic in enumerate(topics) if topic not in self._partitioners]
        if not left_out:
            return None
        for code in left_out:
            topic = topics[code]
            self.left_out[topic] = self.left_out.get(topic, 0) + int(np.count_nonzero(codes == code))
        return np.flatnonzero(~np.isin(codes, left_out))

    def _numbers(
        self,
        columns: RecordColumns,
        topics: list[str],
        codes: npt.NDArray[np.int64],
        batch: pa.RecordBatch,
        reader: ColumnReader,
        first_row: int,
    ) -> npt.NDArray[np.int64]:
        """The partition number of each record (int64[n])."""
        partitioners = [self._partitioners.get(topic) for topic in topics]
        if len(topics) == 1 and partitioners[0] is not None:
            return partitioners[0].assign(columns).astype(np.int64)
        numbers = np.zeros(columns.n_records, np.int64)
        if None in partitioners and "partition" in reader.names:
            numbers[:] = reader.integers("partition", batch, first_row)
            if numbers.max() > _INT_MAX:
                bad = first_row + int(np.argmax(numbers > _INT_MAX))
                detail = f"column {reader.names['partition']!r}, row {bad} is beyond {_INT_MAX}"
                raise UnwritableError(Reason.COLUMN_VALUE, detail, row=bad)
        for code, partitioner in enumerate(partitioners):
            if partitioner is not None:
                rows = np.flatnonzero(codes == code)
                numbers[rows] = partitioner.assign(columns.take(rows))
        return numbers


class RoutedPartition:
    """The waiting records of one partition, and counts of those that were written.

    Without a writer records are only counted: there are no batches, and `n_bytes` is that of the waiting records.
    `n_waiting` is in bytes, `next_offset` is one past the last written record, `max_timestamp` (ms) is of all records,
    and `has_append_times` tells whether some have LogAppendTime. `hint` is added to the error about offsets that do not
    increase.
    """

    def __init__(self, key: kf.TopicPartition, writer: PartitionWriter | None, *, hint: str) -> None:
        self.key = key
        self.n_waiting = self.n_records = self.n_batches = self.n_bytes = 0
        self.next_offset = self.first_offset = 0 if writer is None else writer.next_offset
        self.max_timestamp = kf.NO_TIMESTAMP
        self.has_append_times = False
        self._writer, self._hint = writer, hint
        self._parts: list[RecordColumns] = []
        self._last = self.next_offset - 1

    def give(self, columns: RecordColumns) -> None:
        """Add records to those that wait; UnwritableError if their offsets do not increase."""
        if self._parts and columns.keys() != self._parts[0].keys():
            self.flush()  # one input has offsets, or types of timestamps, and the next one has none
        self._check_offsets(columns)
        self._parts.append(columns)
        self.n_waiting += int(record_sizes(columns).sum())
        self.max_timestamp = max(self.max_timestamp, int(columns.timestamp.max()))
        self.has_append_times |= "timestamp_type" in columns and bool(columns.timestamp_type.any())

    def copy_last(self) -> None:
        """Copy the records that were added last, so that they do not keep the whole table alive."""
        self._parts[-1] = self._parts[-1].take(np.arange(self._parts[-1].n_records))

    def flush(self) -> None:
        """Write the waiting records."""
        n_waiting, self.n_waiting = self.n_waiting, 0
        if not self._parts:
            return
        columns, self._parts = RecordColumns.concatenate(self._parts), []
        offsets: Any = columns.get("offset")
        first = self.next_offset if offsets is None else int(offsets[0])
        last = first + columns.n_records - 1 if offsets is None else int(offsets[-1])
        if self._writer is None:
            self.n_bytes += n_waiting
        else:
            result = self._writer.append(columns, any_header_names=True)  # checked with the input
            self.n_batches += result.n_batches
            self.n_bytes += result.n_bytes
        if not self.n_records:
            self.first_offset = first
        self.n_records += columns.n_records
        self.next_offset = last + 1

    def _check_offsets(self, columns: RecordColumns) -> None:
        if "offset" not in columns:
            self._last += columns.n_records
            return
        offsets: Any = columns["offset"]
        before, self._last = self._last, int(offsets[-1])
        falls = np.flatnonzero(offsets <= np.concatenate([[before], offsets[:-1]]))
        if not falls.size:
            return
        at = int(falls[0])
        if not at and not self.n_records and not self._parts:
            detail = f"{self.key}: the input has offset {offsets[0]}, but the log continues at {before + 1}"
            raise UnwritableError(Reason.OFFSET_ORDER, detail)
        earlier = int(offsets[at - 1]) if at else before
        detail = f"{self.key}: offset {offsets[at]} after {earlier}: offsets must increase"
        error = UnwritableError(Reason.OFFSET_ORDER, detail)
        error.add_note(self._hint)
        raise error


class WaitingRecords:
    """The waiting records of all partitions, written when they fill batches.

    ``open_writer(key)`` is called at the first record of a partition. It returns the partition's writer, or None to
    count records only. `path` and `hint` are for messages.

    A partition is written when it has 1 MiB or eight batches, whichever is more; with many partitions already when it
    has its share of `WAITING_BYTES`, but never with less than a batch. Memory is bounded by `WAITING_BYTES`, or by one
    batch per partition if that is more.
    """

    def __init__(
        self,
        open_writer: Callable[[kf.TopicPartition], PartitionWriter | None],
        *,
        path: Path,
        batch_size: int,
        hint: str,
    ) -> None:
        self.partitions: dict[kf.TopicPartition, RoutedPartition] = {}
        self._open_writer, self._path, self._batch_size = open_writer, path, batch_size
        self._hint = hint
        self._n_files = count_open_files()

    def expect(self, n: int) -> None:
        """Raise the limit of open files for `n` more partitions; WriteError if the process may not open as many."""
        n_files = self._n_files + _FILES_PER_PARTITION * (len(self.partitions) + n)
        allow_open_files(n_files, path=self._path)

    def partition(self, key: kf.TopicPartition) -> RoutedPartition:
        """The partition of a key; it is opened on first use."""
        partition = self.partitions.get(key)
        if partition is None:
            # before the writer is opened: it would fail in the middle, with its lock held
            self.expect(1)
            writer = self._open_writer(key)
            partition = RoutedPartition(key, writer, hint=self._hint)
            self.partitions[key] = partition
        return partition

    def give(self, routed: Routed) -> None:
        """Add records to their partition, and write the partition if enough of them wait."""
        partition = self.partition(routed.key)
        partition.give(routed.columns)
        enough = min(max(_MOST_BYTES, _MOST_BATCHES * self._batch_size), WAITING_BYTES // len(self.partitions))
        if partition.n_waiting >= max(self._batch_size, enough):
            partition.flush()
        elif not routed.is_owned:
            partition.copy_last()

    def flush(self) -> None:
        """Write the waiting records of all partitions."""
        for key in sorted(self.partitions):
            self.partitions[key].flush()
