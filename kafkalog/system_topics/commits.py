"""Committed offsets of many records of `__consumer_offsets` at once, a column at a time.

`kafkalog.protocol` decodes such a record alone, of any version, and says what is wrong with it. A topic has as many of
them as groups have partitions, so the versions that brokers write are read here in columns; other records, and those
that break off, are left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import kafkalog._kernels.commits as kernels
from kafkalog.format import TopicPartition
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.storage.source import Bytes

_PARTITION_BITS: Final = 32
_PARTITION_MASK: Final = 2**32 - 1
OUT_OF_RANGE: Final = (None, "past_end", "before_start")
"""How a committed offset lies outside of its log, by the number in a `Standing`."""
_BATCH_ROWS: Final = 2**16 - 1  # a text has less than 32 KiB: so many have less than the 2 GiB of an Arrow array

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


class Commits(NamedTuple):
    """Committed offsets, a column for each field."""

    group: pa.Array
    topic: pa.Array
    partition: Numbers
    offset: Numbers
    leader_epoch: Numbers
    metadata: pa.Array
    commit_timestamp: Numbers
    expire_timestamp: Numbers
    """-1 for none of its own."""


def read_commits(keys: BinaryColumn, values: BinaryColumn) -> tuple[Mask, Commits]:
    """Return which records are commits of versions 0 to 4, bool[n], and these commits in their order.

    Records that break off, or have text that is not UTF-8, are not among them.
    """
    n = len(keys)
    is_commit = np.empty(n, np.bool_)
    group, topic, metadata = (_Texts(n, strings.data.size) for strings in (keys, keys, values))
    partition, leader_epoch = np.empty((2, n), np.int32)
    offset, time, expiry = np.empty((3, n), np.int64)
    n_found = kernels.read_commits(
        _strings(keys),
        _strings(values),
        is_commit.view(np.uint8),
        group.texts,
        topic.texts,
        partition,
        offset,
        leader_epoch,
        metadata.texts,
        time,
        expiry,
    )
    texts = [one.array(n_found) for one in (group, topic, metadata)]
    numbers = [column[:n_found] for column in (partition, offset, leader_epoch)]
    return is_commit, Commits(texts[0], texts[1], *numbers, texts[2], time[:n_found], expiry[:n_found])  # type: ignore[call-arg]


def _strings(column: BinaryColumn) -> tuple[Numbers, Bytes, npt.NDArray[np.uint8] | None]:
    return column.offsets, column.data, None if column.validity is None else column.validity.view(np.uint8)


class _Texts:
    """Texts that the kernel fills in, and has found to be UTF-8."""

    def __init__(self, n: int, n_bytes: int) -> None:
        self._offsets, self._data = np.empty(n + 1, np.int64), np.empty(n_bytes, np.uint8)
        self.texts = kernels.Texts(self._offsets, self._data)

    def array(self, n: int) -> pa.Array:
        return pa.Array.from_buffers(pa.large_string(), n, [None, *map(pa.py_buffer, (self._offsets, self._data))])


class Standing(NamedTuple):
    """Where committed offsets stand in their logs: of one offset, or of columns."""

    is_known: Any
    """Whether there is an offset, so that it has a lag."""
    lag: Any
    """Records from there to the end of the log that are not done; negative for an offset past the end."""
    range_number: Any
    """In `OUT_OF_RANGE`."""

    @classmethod
    def of(cls, offset: Any, start: Any, end: Any, n_done: Any = 0) -> Standing:
        """By the start and the end offset of the log; `n_done` records after the offset are done already.

        Source: GroupCoordinatorService.describeShareGroupOffsets, KIP-1226, Kafka 4.3.
        """
        return cls(offset >= 0, end - offset - n_done, np.select([offset > end, offset < start], [1, 2], 0))


def is_expired(expiry: Any, since: Any, now_ms: int, retention_ms: int | None) -> Any:
    """Whether committed offsets have expired, for one of them or for columns.

    `expiry` is a time of its own, -1 for none: then the retention counts, from the time `since` on. None as
    `retention_ms`: it is not known, and nothing expires by it. Source: OffsetExpirationConditionImpl.isOffsetExpired,
    Kafka 4.3.
    """
    is_over = False if retention_ms is None else now_ms - since >= retention_ms
    return np.where(np.greater_equal(expiry, 0), np.less_equal(expiry, now_ms), is_over)


class CommittedOffsets:
    """Committed offsets of groups, sorted by group, topic and partition.

    `bounds_of` returns the log start and log end offsets of a partition; None if they are not known.
    """

    def __init__(self, commits: Commits, bounds_of: Callable[[TopicPartition], tuple[int, int] | None]) -> None:
        group, self._groups = _numbered(commits.group)
        topic, self._topics = _numbered(commits.topic)
        order = np.lexsort((commits.partition, topic, group))
        self._metadata = commits.metadata.dictionary_encode().take(pa.array(order))
        self._topic, self._partition = topic[order], commits.partition[order]
        self._offset, self._leader_epoch = commits.offset[order], commits.leader_epoch[order]
        self._time = commits.commit_timestamp[order]
        self._expiry = commits.expire_timestamp[order]
        names = self._topics.to_pylist()
        pairs = self._topic.astype(np.int64) << _PARTITION_BITS | (self._partition.astype(np.int64) & _PARTITION_MASK)
        known, pair_of = np.unique(pairs, return_inverse=True)
        wheres = zip((known >> _PARTITION_BITS).tolist(), known.astype(np.int32).tolist(), strict=True)
        found = [bounds_of(TopicPartition(names[number], partition)) for number, partition in wheres]
        bounds = np.array([one or (0, 0) for one in found], np.int64).reshape(-1, 2)[pair_of]
        self._has_end = np.array([one is not None for one in found], np.bool_)[pair_of]
        self._end = bounds[:, 1]
        is_known, self._lag, number = Standing.of(self._offset, bounds[:, 0], self._end)
        self._has_lag = self._has_end & is_known
        self._range = np.where(self._has_lag, number, 0)
        self._bounds = np.searchsorted(group[order], np.arange(len(self._groups) + 1))

    def groups(self) -> Iterator[tuple[str, slice]]:
        """Each group with its rows."""
        bounds = self._bounds.tolist()
        return zip(self._groups.to_pylist(), map(slice, bounds, bounds[1:]), strict=True)

    def lag_of(self, rows: slice) -> int | None:
        """Sum of the lags that are known; None if none is."""
        known = self._lag[rows][self._has_lag[rows]]
        return int(known.sum()) if known.size else None

    def may_expire(self, rows: slice, now_ms: int, since: int | None, retention_ms: int | None) -> bool:
        """Whether any offset has expired, as if no member consumed it; without `since`, each counts from its commit."""
        begin = self._time[rows] if since is None else since
        return bool(is_expired(self._expiry[rows], begin, now_ms, retention_ms).any())

    def rows(self, rows: slice) -> Iterator[tuple[Any, ...]]:
        """Topic, partition, offset, leader epoch, metadata, time, expiry, end, lag and `out_of_range` of each."""
        return zip(*(column[rows] for column in self._lists), strict=True)

    @cached_property
    def _lists(self) -> list[list[Any]]:
        names, texts = self._topics.to_pylist(), self._metadata.dictionary.to_pylist()
        topics = [names[number] for number in self._topic.tolist()]
        metadata = [texts[number] for number in self._metadata.indices.to_pylist()]
        numbers = [column.tolist() for column in (self._partition, self._offset, self._leader_epoch)]
        ends, lags = (
            [number if is_known else None for number, is_known in zip(column.tolist(), known.tolist(), strict=True)]
            for column, known in ((self._end, self._has_end), (self._lag, self._has_lag))
        )
        ranges = [OUT_OF_RANGE[number] for number in self._range.tolist()]
        expiries = [number if number >= 0 else None for number in self._expiry.tolist()]
        return [topics, *numbers, metadata, self._time.tolist(), expiries, ends, lags, ranges]

    def to_arrow(self, rows: Numbers, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Some rows; columns of the schema that are none of these are left to the caller."""
        for start in range(0, rows.size, _BATCH_ROWS):
            some = rows[start : start + _BATCH_ROWS]
            columns = {
                "topic": self._topics.take(pa.array(self._topic[some])),
                "partition": self._partition[some],
                "offset": self._offset[some],
                "leader_epoch": self._leader_epoch[some],
                "metadata": self._metadata.take(pa.array(some)).dictionary_decode(),
                "commit_timestamp": self._time[some],
                "expire_timestamp": pa.array(self._expiry[some], mask=self._expiry[some] < 0),
                "log_end_offset": pa.array(self._end[some], mask=~self._has_end[some]),
                "lag": pa.array(self._lag[some], mask=~self._has_lag[some]),
                "out_of_range": pa.array(OUT_OF_RANGE, pa.string()).take(pa.array(self._range[some])),
            }
            fields = [schema.field(name) for name in columns]
            arrays = [pa.array(column).cast(field.type) for column, field in zip(columns.values(), fields, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _numbered(texts: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The number of each text among those that occur, sorted, and these."""
    encoded = texts.dictionary_encode()
    names = encoded.dictionary
    order = pc.sort_indices(names)
    place = np.empty(len(names), np.int32)
    place[np.asarray(order)] = np.arange(len(names), dtype=np.int32)
    return place[np.asarray(encoded.indices)], names.take(order)
