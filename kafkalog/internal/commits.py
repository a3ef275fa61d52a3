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

from kafkalog.format import TopicPartition
from kafkalog.interchange.arrow_output import binary_array
from kafkalog.records.columns import BinaryColumn

_LEGACY, _COMMIT = 0, 1
_WITH_EPOCH: Final = 3
_WITH_EXPIRY: Final = 1
_FLEXIBLE: Final = 4
_ID_TAG, _ID_BYTES = 0, 16
_SLACK: Final = 8
_PARTITION_BITS: Final = 32
_PARTITION_MASK: Final = 2**32 - 1
_UNKNOWN: Final = -1
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


def read_commits(keys: BinaryColumn, values: BinaryColumn) -> tuple[Mask, Commits]:
    """Read the records that are commits, of versions 0 to 4.

    Returns
    -------
    bool[n]
        Which records these are. Those that break off, or have text that is not UTF-8, are not among them.
    Commits
        In their order.
    """
    key, value = _Records(keys), _Records(values)
    kind, version = key.number(">i2"), value.number(">i2")
    is_legacy, is_flexible = kind == _LEGACY, version == _FLEXIBLE
    key.only(is_legacy | (kind == _COMMIT))
    value.only((version >= 0) & (version <= np.where(is_legacy, 0, _FLEXIBLE)))
    names = key.text(), key.text()
    partition = key.number(">i4")
    offset = value.number(">i8")
    epoch = np.where(version >= _WITH_EPOCH, value.number(">i4", version >= _WITH_EPOCH), -1)
    metadata = value.text(is_flexible)
    time = value.number(">i8")
    value.number(">i8", version == _WITH_EXPIRY)
    has_id = value.number("u1", is_flexible, at_most=1) == 1  # of tagged fields, a topic id may be there
    has_id &= is_flexible
    value.number("u1", has_id, at_most=_ID_TAG)
    value.only((value.number("u1", has_id) == _ID_BYTES) | ~has_id)
    value.skip(np.where(has_id, _ID_BYTES, 0))
    rows = np.flatnonzero(key.fits & value.fits)
    texts = [*(key.strings(name, rows) for name in names), value.strings(metadata, rows)]
    is_text = np.logical_and.reduce([some.is_valid().to_numpy(zero_copy_only=False) for some in texts])
    if not is_text.all():
        rows, texts = rows[is_text], [some.filter(pa.array(is_text)) for some in texts]
    is_commit = np.zeros(len(keys), np.bool_)
    is_commit[rows] = True
    numbers = [column[rows] for column in (partition, offset, epoch)]
    return is_commit, Commits(texts[0], texts[1], *numbers, texts[2], time[rows])  # type: ignore[call-arg]


class _Records:
    """A position in each of some byte strings.

    Attributes
    ----------
    fits : bool[n]
        Whether what was read so far lies within the byte string.
    """

    def __init__(self, column: BinaryColumn) -> None:
        # a number may be read behind the last byte string, and is dropped then
        self._data = np.concatenate([column.data, np.zeros(_SLACK, np.uint8)])
        self._at, self._stop = column.offsets[:-1].copy(), column.offsets[1:]
        self.fits = np.ones(len(column), np.bool_) if column.validity is None else column.validity.copy()

    def only(self, wanted: Mask) -> None:
        """Leave out the others."""
        self.fits &= wanted

    def number(self, kind: str, wanted: Mask | None = None, at_most: int | None = None) -> Numbers:
        """The next number; only where it is wanted, the others keep their position."""
        dtype = np.dtype(kind)
        size = dtype.itemsize if wanted is None else np.where(wanted, dtype.itemsize, 0)
        self.fits &= self._at + size <= self._stop
        # a record that has broken off reads at 0 from here on, so that no index leaves the buffer
        at = np.where(self.fits, self._at, 0)
        found: Numbers = self._data[at[:, None] + np.arange(dtype.itemsize)].view(dtype)[:, 0]
        found = found.astype(dtype.newbyteorder("="))
        self._at += size
        if at_most is not None:
            self.fits &= (found <= at_most) | (size == 0)
        return found

    def skip(self, sizes: Numbers) -> None:
        """Pass over bytes."""
        self._at += sizes
        self.fits &= self._at <= self._stop

    def text(self, is_compact: Mask | None = None) -> tuple[Numbers, Numbers]:
        """Where the next text begins and ends. Its length takes two bytes, or one where it is compact."""
        if is_compact is None:
            size = self.number(">i2").astype(np.int64)
        else:
            long, short = self.number(">i2", ~is_compact), self.number("u1", is_compact, at_most=0x7F)
            size = np.where(is_compact, short.astype(np.int64) - 1, long)
        self.fits &= (size >= 0) & (size <= self._stop - self._at)
        start = self._at.copy()
        self._at += np.where(self.fits, size, 0)
        return start, self._at.copy()

    def strings(self, bounds: tuple[Numbers, Numbers], rows: Numbers) -> pa.Array:
        """Texts of some records; null for those that are not UTF-8."""
        # every second one of these byte strings is a text, and those between are not asked for
        between = BinaryColumn(np.stack([bound[rows] for bound in bounds], axis=1).ravel(), self._data)
        texts = binary_array(between.take(np.arange(0, 2 * rows.size, 2)), pa.large_binary())
        try:
            return texts.cast(pa.large_string())
        except pa.ArrowInvalid:
            return pa.array([_text(text) for text in texts.to_pylist()], pa.large_string())


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class CommittedOffsets:
    """Committed offsets of groups, sorted by group, topic and partition.

    Parameters
    ----------
    commits : Commits
    end_of : callable
        Returns the log end offset of a partition; None if it is not known.
    """

    def __init__(self, commits: Commits, end_of: Callable[[TopicPartition], int | None]) -> None:
        group, self._groups = _numbered(commits.group)
        topic, self._topics = _numbered(commits.topic)
        order = np.lexsort((commits.partition, topic, group))
        self._metadata = commits.metadata.dictionary_encode().take(pa.array(order))
        self._topic, self._partition = topic[order], commits.partition[order]
        self._offset, self._leader_epoch = commits.offset[order], commits.leader_epoch[order]
        self._time = commits.commit_timestamp[order]
        names = self._topics.to_pylist()
        pairs = self._topic.astype(np.int64) << _PARTITION_BITS | (self._partition.astype(np.int64) & _PARTITION_MASK)
        known, pair_of = np.unique(pairs, return_inverse=True)
        wheres = zip((known >> _PARTITION_BITS).tolist(), known.astype(np.int32).tolist(), strict=True)
        found = [end_of(TopicPartition(names[number], partition)) for number, partition in wheres]
        ends = np.array([_UNKNOWN if end is None else end for end in found], np.int64)
        self._end = ends[pair_of] if ends.size else ends
        # a group may stand beyond a log that lost its end
        behind = np.maximum(self._end - self._offset, 0)
        self._lag = np.where((self._end >= 0) & (self._offset >= 0), behind, _UNKNOWN)
        self._bounds = np.searchsorted(group[order], np.arange(len(self._groups) + 1))

    def groups(self) -> Iterator[tuple[str, slice]]:
        """Each group with its rows."""
        bounds = self._bounds.tolist()
        return zip(self._groups.to_pylist(), map(slice, bounds, bounds[1:]), strict=True)

    def lag_of(self, rows: slice) -> int | None:
        """Sum of the lags that are known; None if none is."""
        lags = self._lag[rows]
        known = lags[lags >= 0]
        return int(known.sum()) if known.size else None

    def rows(self, rows: slice) -> Iterator[tuple[Any, ...]]:
        """Topic, partition, offset, leader epoch, metadata, time, log end offset and lag of each."""
        return zip(*(column[rows] for column in self._lists), strict=True)

    @cached_property
    def _lists(self) -> list[list[Any]]:
        names, texts = self._topics.to_pylist(), self._metadata.dictionary.to_pylist()
        topics = [names[number] for number in self._topic.tolist()]
        metadata = [texts[number] for number in self._metadata.indices.to_pylist()]
        numbers = [column.tolist() for column in (self._partition, self._offset, self._leader_epoch)]
        unknown = [[None if number < 0 else number for number in column.tolist()] for column in (self._end, self._lag)]
        return [topics, *numbers, metadata, self._time.tolist(), *unknown]

    def to_arrow(self, rows: Numbers, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Some rows; columns of the schema that are none of these are left to the caller."""
        for start in range(0, rows.size, _BATCH_ROWS):
            some = rows[start : start + _BATCH_ROWS]
            unknown = {"log_end_offset": self._end[some], "lag": self._lag[some]}
            columns = {
                "topic": self._topics.take(pa.array(self._topic[some])),
                "partition": self._partition[some],
                "offset": self._offset[some],
                "leader_epoch": self._leader_epoch[some],
                "metadata": self._metadata.take(pa.array(some)).dictionary_decode(),
                "commit_timestamp": self._time[some],
                **{name: pa.array(column, mask=column < 0) for name, column in unknown.items()},
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
