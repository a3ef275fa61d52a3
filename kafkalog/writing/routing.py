"""Records on their way to partitions: rows of a table are routed, wait for more of their kind, and are written.

A `Router` says which topic-partition each row goes to: by columns, or as Kafka's producers decide. `WaitingRecords`
keeps what it gives until there is enough for batches to be full, and hands it to a writer a partition. Mirrors
`KafkaProducer.partition` and `RecordAccumulator`. Where writers write, and how that is published, is not known here.
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
from kafkalog.interchange.arrow_input import ColumnReader, cut
from kafkalog.interchange.arrow_values import integer_values, plain_column
from kafkalog.records.columns import RecordColumns
from kafkalog.storage.open_file_limit import allow_open_files, count_open_files
from kafkalog.writing.partition_writer import PartitionWriter, check_partition_name
from kafkalog.writing.partitioner import STICKY_BYTES, Partitioner, record_sizes

WAITING_BYTES: Final = 32 * 2**20
"""Records of all partitions that wait for their batches to be full, about."""
_MOST_BYTES: Final = 2**20
_MOST_BATCHES: Final = 8

_FILES_PER_PARTITION: Final = 2
"""That a `PartitionWriter` has open: the `.log`, and the directory that is staged."""
_INT_MAX: Final = 2**31 - 1


def check_topic(topic: str) -> None:
    """Refuse what is no topic's name, and so could lead anywhere.

    Raises
    ------
    UnsafePathError
        A broker would not take it.
    """
    name = str(kf.TopicPartition(topic, 0))
    path = Path(name)
    if path.name != name:
        raise UnsafePathError(Reason.UNSAFE_PATH, "a topic's name is no path", path=topic)
    check_partition_name(path)


class Routed(NamedTuple):
    """Records of one partition, in the order that they came in."""

    key: kf.TopicPartition
    columns: RecordColumns
    is_owned: bool
    """Whether they have memory of their own, or share that of the input."""


class Router:
    """Says which topic-partition each row of a table goes to.

    Parameters
    ----------
    n_partitions : callable
        Asked once for each topic, by its name: the number of partitions that Kafka's default partitioner spreads
        records over, or None to go by the column `partition`, and to partition 0 where there is none.
    topic : str, optional
        Where all records go; default: the column `topic` says.
    sticky_bytes : int
        See `Partitioner`.
    wants : callable
        Asked for the topics of a column: whether its records are wanted. Others are counted and left out.

    Attributes
    ----------
    left_out : dict of str to int
        Records that were left out, by topic.
    """

    def __init__(
        self,
        n_partitions: Callable[[str], int | None],
        *,
        topic: str | None = None,
        sticky_bytes: int = STICKY_BYTES,
        wants: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self._n_partitions, self._topic, self._sticky_bytes = n_partitions, topic, sticky_bytes
        self._wants = wants
        self._partitioners: dict[str, Partitioner | None] = {}
        self.left_out: dict[str, int] = {}

    def meet(self, topic: str) -> None:
        """Take a topic for known; whoever says nothing of it is asked with its first record."""
        if topic not in self._partitioners:
            check_topic(topic)
            n = self._n_partitions(topic)
            self._partitioners[topic] = None if n is None else Partitioner(n, sticky_bytes=self._sticky_bytes)

    def route(
        self, columns: RecordColumns, batch: pa.RecordBatch, reader: ColumnReader, first_row: int = 0
    ) -> Iterator[Routed]:
        """The records of each partition.

        Parameters
        ----------
        columns : RecordColumns
            Those of the batch.
        batch : pyarrow.RecordBatch
        reader : ColumnReader
            Knows which of its columns is what.
        first_row : int
            Its place in the whole, for messages.

        Raises
        ------
        UnwritableError
            A topic or partition that is null, or a partition that none can be.
        UnsafePathError
            A name that is no topic's.
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
                yield from (Routed(key, part, False) for part in cut(columns))

    def _topics(
        self, batch: pa.RecordBatch, reader: ColumnReader, first_row: int
    ) -> tuple[list[str], npt.NDArray[np.int64]]:
        """Topics of the records, and which of them is whose."""
        if self._topic is not None:
            self.meet(self._topic)
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
        topics = [each if isinstance(each, str) else each.decode("utf-8", "replace") for each in names]
        for topic in filter(self._wants, topics):
            self.meet(topic)
        return topics, integer_values(coded.indices, name)[0]

    def _wanted_rows(self, topics: list[str], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Rows of topics that are wanted; None if all are."""
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
        """The partition of each record."""
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
    """A partition that is being written, or, without a writer, counted: its records that wait, and what was written.

    Parameters
    ----------
    key : TopicPartition
    writer : PartitionWriter or None
    sorts : bool
        Whether records that have offsets are put in order before they are written; else they have to come in order.
    hint : str
        What helps where they do not.

    Attributes
    ----------
    n_waiting : int
        Bytes of keys, values and headers that are not written yet, about.
    n_records, n_batches, n_bytes : int
        Written so far; without a writer there are no batches, and the bytes are those that waited.
    first_offset, next_offset : int
        Of the first record that was written, and behind the last.
    max_timestamp : int
        The largest of all records, ms; -1 for none.
    """

    def __init__(self, key: kf.TopicPartition, writer: PartitionWriter | None, *, sorts: bool, hint: str) -> None:
        self.key = key
        self.n_waiting = self.n_records = self.n_batches = self.n_bytes = 0
        self.next_offset = self.first_offset = 0 if writer is None else writer.next_offset
        self.max_timestamp = kf.NO_TIMESTAMP
        self._writer, self._sorts, self._hint = writer, sorts, hint
        self._parts: list[RecordColumns] = []
        self._last = self.next_offset - 1

    def give(self, columns: RecordColumns) -> None:
        """Keep records.

        Raises
        ------
        UnwritableError
            Their offsets do not rise.
        """
        if self._parts and ("offset" in columns) != ("offset" in self._parts[0]):
            self.flush()  # of two inputs, one of which has offsets
        if not self._sorts:
            self._check_offsets(columns)
        self._parts.append(columns)
        self.n_waiting += int(record_sizes(columns).sum())
        self.max_timestamp = max(self.max_timestamp, int(columns.timestamp.max()))

    def own(self) -> None:
        """Copy the records that came last: who waits must not keep a whole table in memory."""
        self._parts[-1] = self._parts[-1].take(np.arange(self._parts[-1].n_records))

    def flush(self) -> None:
        """Write what waits."""
        n_waiting, self.n_waiting = self.n_waiting, 0
        if not self._parts:
            return
        columns, self._parts = RecordColumns.concatenate(self._parts), []
        if self._sorts and "offset" in columns:
            columns = columns.take(np.argsort(columns.offset, kind="stable"))
            self._check_offsets(columns)
        first = int(columns.offset[0]) if "offset" in columns else self.next_offset
        last = int(columns.offset[-1]) if "offset" in columns else first + columns.n_records - 1
        if self._writer is None:
            self.n_bytes += n_waiting
        else:
            result = self._writer.append(columns)
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
            detail = f"{self.key}: offset {offsets[0]} is to be written, and the log goes on at {before + 1}"
            raise UnwritableError(Reason.OFFSET_ORDER, detail)
        earlier = int(offsets[at - 1]) if at else before
        detail = f"{self.key}: offset {offsets[at]} comes behind {earlier}: offsets have to rise"
        error = UnwritableError(Reason.OFFSET_ORDER, detail)
        error.add_note(self._hint)
        raise error


class WaitingRecords:
    """Partitions by their names, each with the records that wait until they fill batches.

    Parameters
    ----------
    open_writer : callable
        Makes the writer of a partition that is met first, or gives None where records are counted alone.
    path : path-like
        What the partitions are written to, for messages.
    batch_size : int
        Bytes that fill a batch.
    sorts, hint
        See `RoutedPartition`. What is to be sorted waits until the end, in memory.

    Attributes
    ----------
    partitions : dict of TopicPartition to RoutedPartition

    Notes
    -----
    Few partitions wait for a megabyte or eight batches each, many for a share of `WAITING_BYTES`, and any for a batch:
    memory is bounded by that, or by a batch a partition.
    """

    def __init__(
        self,
        open_writer: Callable[[kf.TopicPartition], PartitionWriter | None],
        *,
        path: Path,
        batch_size: int,
        sorts: bool = False,
        hint: str,
    ) -> None:
        self.partitions: dict[kf.TopicPartition, RoutedPartition] = {}
        self._open_writer, self._path, self._batch_size = open_writer, path, batch_size
        self._sorts, self._hint = sorts, hint
        self._n_files = count_open_files()

    def expect(self, n: int) -> None:
        """See to it that so many more partitions may come.

        Raises
        ------
        WriteError
            This process may not have as many files open as these are.
        """
        n_files = self._n_files + _FILES_PER_PARTITION * (len(self.partitions) + n)
        allow_open_files(n_files, path=self._path)

    def partition(self, key: kf.TopicPartition) -> RoutedPartition:
        """A partition, which is opened where it is met first."""
        partition = self.partitions.get(key)
        if partition is None:
            self.expect(1)
            writer = self._open_writer(key)
            partition = RoutedPartition(key, writer, sorts=self._sorts, hint=self._hint)
            self.partitions[key] = partition
        return partition

    def give(self, routed: Routed) -> None:
        """Keep records, and write those of their partition if there are enough now."""
        partition = self.partition(routed.key)
        partition.give(routed.columns)
        enough = min(max(_MOST_BYTES, _MOST_BATCHES * self._batch_size), WAITING_BYTES // len(self.partitions))
        if not self._sorts and partition.n_waiting >= max(self._batch_size, enough):
            partition.flush()
        elif not routed.is_owned:
            partition.own()

    def flush(self) -> None:
        """Write all that waits."""
        for key in sorted(self.partitions):
            self.partitions[key].flush()
