"""A segment: a `.log`, its indexes, and lookups whose results never depend on the indexes being right.

Mirrors the reading half of `LogSegment` and `FileRecords`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    FileChangedError,
    Finding,
    KafkalogError,
    LimitExceededError,
    Limits,
    Reason,
    SidecarError,
)
from kafkalog.html import PublicType
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex, max_index_entries
from kafkalog.indexes.statistics import SegmentMeter
from kafkalog.log.directory import Directory
from kafkalog.log.lookups.timestamp_search import TimestampSearch
from kafkalog.log.searching.odd_offsets import Witnesses
from kafkalog.log.segment_stream import SegmentRange, SegmentStream, StreamOptions
from kafkalog.read_methods import ReadMethods
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.header_walk import WINDOW_BYTES, intact_batch_at, is_chain
from kafkalog.records.readers.header_reader import HeaderReader
from kafkalog.state.checkpoints import checkpointed_offset
from kafkalog.state.entries import integers, times
from kafkalog.storage.files import open_source, size_if_there, size_of
from kafkalog.storage.location import Place, place_of, store_of
from kafkalog.storage.removals import DirectoryIdentity
from kafkalog.storage.source import ByteSource
from kafkalog.text import counted

AnyIndex = TypeVar("AnyIndex", OffsetIndex, TimeIndex, TransactionIndex)

_SUFFIXES: Final = {
    OffsetIndex: kf.INDEX_SUFFIX,
    TimeIndex: kf.TIME_INDEX_SUFFIX,
    TransactionIndex: kf.TRANSACTION_INDEX_SUFFIX,
}


class Segment(ReadMethods, metaclass=PublicType):
    """One `.log` file and its indexes. No file stays open between calls.

    Parameters
    ----------
    path : path-like
        The `.log`.
    memory_map : {"auto", True, False}
        Whether to map the `.log`; see `scan`.
    limits : Limits
    is_last : bool, optional
        Whether the segment is the last of its partition, where a partial last batch is normal. Default: True if the
        directory has no `.log` with a higher base offset.
    topic_partition : TopicPartition, optional
        Default: from the name of the directory.
    must_open : bool
        Whether to open the file now, and to raise if that fails. Otherwise it is opened when it is needed.
    part : SegmentRange, optional
        Read these bytes of the file only, as if it ended where they do.
    directory : DirectoryIdentity, optional
        Identity of its directory when that was listed; a file of another directory of that name is not opened.

    Attributes
    ----------
    path : pathlib.Path
    base_offset : int
        From the file name; 0 if the name is not an offset.
    findings : list of Finding
        Findings of the last walk that are not raised, such as a partial last batch.
    """

    _internal = (
        *("believed_entry", "earlier", "has_base_offset", "has_sidecar", "index_meter", "index_or_none", "is_batch_at"),
        *("is_in_memory", "is_preallocated", "iter_windows", "later", "max_index_entries", "moved_to"),
        *("next_base_offset", "offset_hint", "part", "read_index", "reopened", "sidecar_path", "witnesses"),
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        memory_map: bool | str = "auto",
        limits: Limits = DEFAULT_LIMITS,
        is_last: bool | None = None,
        topic_partition: kf.TopicPartition | None = None,
        must_open: bool = True,
        part: SegmentRange | None = None,
        directory: DirectoryIdentity | None = None,
    ) -> None:
        if memory_map not in ("auto", True, False):
            raise ValueError(f"memory_map must be 'auto', True or False, not {memory_map!r}")
        self.path = place_of(path)
        self.memory_map = memory_map
        self.limits, self.part, self.directory = limits, part, directory
        offset = kf.parse_base_offset(self.path.name)
        self.has_base_offset = offset is not None
        self.base_offset = offset or 0
        if part is not None:
            self.is_last = part.is_last and part.stop == part.size_in_bytes
        else:
            self.is_last = is_last_segment(self.path, offset) if is_last is None else is_last
        if topic_partition is None:
            name = kf.parse_partition_directory(self.path.absolute().parent.name)
            topic_partition = name.topic_partition if name else None
        self.topic_partition = topic_partition
        self.findings: list[Finding] = []
        self._was_there = not must_open  # what a listing named was
        if must_open and self.error is not None:
            raise self.error
        self._was_there = True

    @cached_property
    def _opened(self) -> tuple[KafkalogError | None, int, bool]:
        """The error, the size, and whether the file was preallocated; learned when one of these is first needed."""
        try:
            source = self.open()
        except KafkalogError as error:
            return error, size_of(self.path), False
        source.close()
        return None, source.size, source.is_preallocated

    @property
    def error(self) -> KafkalogError | None:
        """Why the file could not be opened."""
        return self._opened[0]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the `.log`."""
        return self._opened[1]

    @property
    def first_position(self) -> int:
        """Position of the first batch: 0, except in a `part`."""
        return 0 if self.part is None else self.part.start

    @property
    def is_preallocated(self) -> bool:
        """Whether the file was preallocated at its full size; see `ByteSource`."""
        return self._opened[2]

    @property
    def is_in_memory(self) -> bool:
        """Whether the bytes are in memory, and not in a file; see `kafkalog.open_buffer`."""
        return store_of(self.path).is_in_memory

    def __getstate__(self) -> dict[str, Any]:  # indexes are read again: they may be large, or mapped
        return {k: v for k, v in vars(self).items() if not isinstance(getattr(Segment, k, None), cached_property)}

    def __repr__(self) -> str:
        return f"Segment({str(self.path)!r}, base_offset={self.base_offset}, {counted(self.size_in_bytes, 'byte')})"

    def open(self) -> ByteSource:
        """The bytes of the `.log`; under its new name if a running broker renames it to delete it.

        Raises
        ------
        ReadError
            The file cannot be opened.
        LimitExceededError
            The file is larger than `limits.max_segment_bytes`: no broker wrote it.
        FileChangedError
            The size of the file has changed since a `part` of it was planned.
        """
        memory_map = False if self.memory_map == "auto" and self.is_last else self.memory_map
        source = open_source(self.path, memory_map=memory_map, was_there=self._was_there, identity=self.directory)
        if source.size > self.limits.max_segment_bytes:
            raise too_large(source, self.limits)
        if self.part is not None:
            self._end_at(self.part, source)
        return source

    def _end_at(self, part: SegmentRange, source: ByteSource) -> None:
        # Only the last segment may grow. It may also shrink if it was preallocated: a roll cuts the zeros off.
        least = part.start if part.is_preallocated else part.stop
        if source.size < least if part.is_last else source.size != part.size_in_bytes:
            detail = f"has {source.size} bytes, but had {part.size_in_bytes} when the read was planned; plan again"
            source.close()
            raise FileChangedError(Reason.FILE_CHANGED, detail, path=self.path)
        source.size = min(source.size, part.stop)

    def reopened(self) -> Segment:
        """The whole segment, if this is a part of one."""
        return Segment(self.path, limits=self.limits, is_last=False, must_open=False)

    def moved_to(self, path: Place, part: SegmentRange | None = None) -> Segment:
        """The closed segment of another path that has this one's records now, or a part of it."""
        return Segment(
            path,
            memory_map=self.memory_map,
            limits=self.limits,
            is_last=False,
            topic_partition=self.topic_partition,
            must_open=False,
            part=part,
            directory=self.directory,
        )

    def iter_windows(
        self,
        source: ByteSource,
        *,
        start: int = 0,
        previous_offset: int | None = None,
        **options: Unpack[StreamOptions],
    ) -> Iterator[Window]:
        """Windows of the segment from a batch boundary on; for the parameters see `SegmentStream`."""
        return SegmentStream(self, source, previous_offset, **options).windows(start)

    def witnesses(self) -> Witnesses:
        """Bounds for the segment's offsets from other files: its index, later segments, producer snapshots."""
        directory = Directory.or_empty(self.path.absolute().parent)
        following = directory.base_after(self.base_offset)
        # no next segment bounds the offsets of the last one: use its index
        index = None if following is not None else self.offset_hint
        ends = {*directory.snapshots.values(), *(() if following is not None else self._checkpointed_ends())}
        return Witnesses(index, following if self.has_base_offset else None, frozenset(ends))

    def _checkpointed_ends(self) -> Iterator[int]:
        """The ends of the log in the checkpoints of the log dir; a broker writes the end when it stops."""
        directory = self.path.absolute().parent
        named = kf.parse_partition_directory(directory.name)
        if named is not None and named.kind is None:
            for name in kf.END_CHECKPOINTS:
                if (end := checkpointed_offset(directory.parent / name, named.topic_partition)) is not None:
                    yield end

    def earlier(self, n: int) -> list[Segment]:
        """The last `n` segments before this one in the directory, by their names."""
        return self._neighbours(lambda offset: offset < self.base_offset)[-n:]

    def later(self, n: int) -> list[Segment]:
        """The first `n` segments after this one in the directory, by their names."""
        return self._neighbours(lambda offset: offset > self.base_offset)[:n]

    def _neighbours(self, is_wanted: Callable[[int], bool]) -> list[Segment]:
        directory = Directory.or_empty(self.path.absolute().parent)
        logs = sorted((offset, name) for name, offset in directory.logs.items() if is_wanted(offset))
        return [Segment(directory.path / name, limits=self.limits, is_last=False, must_open=False) for _, name in logs]

    @property
    def next_base_offset(self) -> int | None:
        """Base offset of the next segment in the directory, from its file name; None for the last segment."""
        return self.witnesses().next_base_offset

    def iter_batches(self, *, window_bytes: int = WINDOW_BYTES) -> Iterator[BatchTable]:
        """Batch tables, one per window of the file; together they have the rows of the whole segment.

        Yields
        ------
        BatchTable

        Raises
        ------
        KafkalogError
            See `iter_windows`. Tables before the damage are yielded first.
        """
        with self.open() as source:
            reader = HeaderReader(limits=self.limits)
            for window in self.iter_windows(source, window_bytes=window_bytes, reader=reader):
                source.release(window.data, window.start)
                yield window.batches

    @property
    def batches(self) -> BatchTable:
        """The whole batch table. Prefer `iter_batches` for a long segment of single-message batches."""
        return BatchTable.concatenate(list(self.iter_batches()))

    def sidecar_path(self, suffix: str) -> Place:
        """Place of another file of the segment, existing or not, given its suffix."""
        return self.path.with_name(kf.sidecar_name(self.path.name, suffix))

    def has_sidecar(self, suffix: str) -> bool:
        """Whether another file of the segment exists, given its suffix."""
        return size_if_there(self.sidecar_path(suffix)) is not None

    def read_index(self, kind: type[AnyIndex], *, is_bounded: bool = True, is_live: bool = False) -> AnyIndex | None:
        """An index of one of the three kinds, not cached; None if there is no such file.

        Parameters
        ----------
        kind : class
            `OffsetIndex`, `TimeIndex` or `TransactionIndex`.
        is_bounded : bool
            Whether to read no more entries than a `.log` of this size can have.
        is_live : bool
            Whether a running broker may truncate the index: then it is not mapped, whatever its size.

        Raises
        ------
        KafkalogError
            The index cannot be read.
        """
        path = self.sidecar_path(_SUFFIXES[kind])
        size = size_if_there(path)
        if size is None:
            return None
        if size > kf.MAX_SEGMENT_BYTES and not is_bounded:
            detail = f"{size} bytes; a broker cannot map an index of 2 GiB or more"
            raise SidecarError(Reason.INDEX_SIZE, detail, path=path)
        # a mapping holds a file descriptor for as long as the index is cached
        is_mapped = size > _READ_BYTES and not is_bounded and not is_live
        # the size of an index file is no proof of its content: a sparse file of a terabyte must not be read whole
        max_entries = self.max_index_entries if is_bounded else None
        return kind.open(path, self.base_offset, memory_map=is_mapped, max_entries=max_entries)

    @property
    def max_index_entries(self) -> int:
        """The most entries that an index of this segment can have."""
        return max_index_entries(self.size_in_bytes if self.error is None else self.limits.max_segment_bytes)

    def index_or_none(
        self, kind: type[AnyIndex], report: Callable[[Finding], object] = lambda finding: None
    ) -> AnyIndex | None:
        """Like `read_index`; an index that cannot be read is reported, and gives None."""
        try:
            return self.read_index(kind)
        except KafkalogError as error:
            report(error.to_finding())
            return None

    @cached_property
    def offset_index(self) -> OffsetIndex | None:
        """The `.index`; None if there is none."""
        return self.read_index(OffsetIndex)

    @cached_property
    def time_index(self) -> TimeIndex | None:
        """The `.timeindex`; None if there is none."""
        return self.read_index(TimeIndex)

    @cached_property
    def transaction_index(self) -> TransactionIndex | None:
        """The `.txnindex`; None if there is none, which is usual."""
        return self.read_index(TransactionIndex)

    @cached_property
    def offset_hint(self) -> OffsetIndex | None:
        """The `.index`, used only to speed up lookups; None also if it cannot be read."""
        try:
            return self.offset_index
        except KafkalogError:
            return None

    def index_meter(self, what_if: Sequence[int] = ()) -> SegmentMeter:
        """A meter of the indexes. An index that cannot be read is among its findings."""
        findings: list[Finding] = []
        # Not cached: those of all segments may not fit into memory. Without a base offset, entries mean nothing.
        is_named = self.has_base_offset
        meter = SegmentMeter(
            str(self.path),
            self.base_offset if is_named else None,
            self.index_or_none(OffsetIndex, findings.append) if is_named else None,
            self.index_or_none(TimeIndex, findings.append) if is_named else None,
            topic_partition=self.topic_partition,
            intervals=what_if,
        )
        meter.findings[:0] = findings
        return meter

    @property
    def next_offset(self) -> int:
        """The offset after the last whole batch, `base_offset` if there is none (`LogSegment.readNextOffset`).

        Raises
        ------
        KafkalogError
            The segment is damaged after the last index entry that checks out (`believed_entry`).
        """
        last = self.base_offset - 1
        with self.open() as source:
            start = self.position_for(source, 2**63 - 1)
            for window in self.iter_windows(source, start=start, reader=HeaderReader(limits=self.limits)):
                last = int(window.batches.last_offset[-1])
                source.release(window.data, window.start)
        return last + 1

    def position_for(self, source: ByteSource, offset: int) -> int:
        """Position of a batch at or before the one that holds an offset, from a checked index entry; else the first."""
        first = self.first_position
        if self.part is not None and offset <= self.part.first_offset:
            return first
        entry = self.believed_entry(source, offset)
        index = self.offset_hint
        return first if entry < 0 or index is None else max(int(index.position[entry]), first)

    def believed_entry(self, source: ByteSource, offset: int) -> int:
        """Number of the entry of the offset index from which to look for an offset; -1 for none.

        An entry counts if an intact batch (its checksum included) at or below `offset` starts at its position. Offsets
        increase, so all batches before it are also below `offset`. From there, batches must follow each other for one
        window: a record's value may contain whole batches, but other bytes follow them.
        """
        index = self.offset_hint
        if index is None or not len(index):
            return -1
        entry = int(index.floor([offset])[0])
        # if the floor entry is stale, try the entry before it
        for number in range(entry, max(entry - 2, -1), -1):
            position = int(index.position[number])
            if self.is_batch_at(source, position, offset) and is_chain(source, position):
                return number
        return -1

    def is_batch_at(self, source: ByteSource, position: int, offset: int) -> bool:
        """Whether an intact batch starts at a position, with a base offset at or below `offset`."""
        window, _ = intact_batch_at(source, position, self.limits.max_batch_bytes)
        if window is None:
            return False
        first = window.batches.first_offset
        source.release(window.data, position)
        return self.base_offset <= first <= offset

    def find_offsets(self, offsets: npt.ArrayLike) -> npt.NDArray[np.void]:
        """The batch that holds each offset, or the next batch if the offset is in a gap.

        Parameters
        ----------
        offsets : array-like of int64[m]
            In any order.

        Returns
        -------
        LOG_OFFSET_POSITION_DTYPE[m]
            `base_offset`, `last_offset`, `position`, `size_in_bytes` of the first batch whose last offset is at or
            above the given one; all -1 if the segment ends before it. `base_offset` is -1 for a compressed v0 or v1
            message.

        Raises
        ------
        KafkalogError
            The segment is damaged where it had to be scanned.

        Notes
        -----
        `np.searchsorted` gives the floor entries of the offset index. An entry counts only after the batch at its
        position proved intact; the headers are scanned from there. The result never depends on the index.
        Source: LogSegment.translateOffset, FileRecords.searchForOffsetFromPosition, Kafka 4.3.
        """
        queries = integers(offsets)
        result = np.full(queries.shape, -1, kf.LOG_OFFSET_POSITION_DTYPE)
        if not queries.size:
            return result
        order = np.argsort(queries, axis=None, kind="stable")
        targets = queries.ravel()[order]
        found = np.full(targets.size, -1, kf.LOG_OFFSET_POSITION_DTYPE)
        with self.open() as source:
            for start, first, last in self._scan_plan(source, targets):
                self._scan_offsets(source, start, targets[first:last], found[first:last])
        result.reshape(-1)[order] = found
        return result

    def _scan_plan(self, source: ByteSource, targets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
        """Yield (position to scan from, first query, end of queries) for sorted queries."""
        index = self.offset_hint
        if index is None or not len(index):
            yield 0, 0, targets.size
            return
        entry = index.floor(targets)
        cuts = np.flatnonzero(np.diff(entry)) + 1
        # a jump costs about as much as walking a few hundred headers: one walk is faster than many jumps
        if cuts.size > max(16, source.size // _BYTES_WORTH_A_JUMP):
            yield self.position_for(source, int(targets[0])), 0, targets.size
            return
        bounds = [0, *cuts.tolist(), targets.size]
        for first, last in itertools.pairwise(bounds):
            yield self.position_for(source, int(targets[first])), first, last

    def _scan_offsets(
        self, source: ByteSource, start: int, targets: npt.NDArray[np.int64], found: npt.NDArray[np.void]
    ) -> None:
        done = 0
        for window in self.iter_windows(source, start=start, reader=HeaderReader(limits=self.limits)):
            table = window.batches
            upto = int(np.searchsorted(targets, table.last_offset[-1], side="right"))
            row = np.searchsorted(table.last_offset, targets[done:upto], side="left")
            for name in found.dtype.names or ():
                found[name][done:upto] = getattr(table, name)[row]
            done = max(done, upto)
            source.release(window.data, window.start)
            if done == targets.size:
                return

    def find_timestamps(self, timestamps: npt.ArrayLike) -> npt.NDArray[np.void]:
        """The first record, by offset, at or after each timestamp.

        Parameters
        ----------
        timestamps : array-like of int64[m], datetime64[m] or aware datetimes
            Milliseconds, or times, those of datetime64 in UTC, in any order.

        Returns
        -------
        TIMESTAMP_AND_OFFSET_DTYPE[m]
            `timestamp`, `offset` and `leader_epoch` of the record; all -1 if there is none.

        Raises
        ------
        KafkalogError
            The segment is damaged before the last result.

        Notes
        -----
        Batch headers are walked, and batches that may hold a match are decoded (`TimestampSearch`). The time index is
        not used: proving it right would take the same walk. `Partition.offset_for_timestamp` searches a whole
        partition, and takes its log start offset into account.
        Source: FileRecords.searchForTimestamp, Kafka 4.3.
        """
        queries = times(timestamps)
        result = np.full(queries.shape, -1, kf.TIMESTAMP_AND_OFFSET_DTYPE)
        if not queries.size:
            return result
        order = np.argsort(queries, axis=None, kind="stable")
        search = TimestampSearch(queries.ravel()[order], limits=self.limits, path=str(self.path))
        with self.open() as source:
            for window in self.iter_windows(source, reader=HeaderReader(search.asks, limits=self.limits)):
                search.feed(window)
                source.release(window.data, window.start)
                if search.is_done:
                    break
        result.reshape(-1)[order] = search.found
        return result


_BYTES_WORTH_A_JUMP: Final = 2**20
_READ_BYTES: Final = 2**26


def is_last_segment(path: Place, base_offset: int | None) -> bool:
    """Whether no later segment is in the same directory, so that a torn tail is normal."""
    return base_offset is None or Directory.or_empty(path.absolute().parent).base_after(base_offset) is None


def too_large(source: ByteSource, limits: Limits) -> LimitExceededError:
    """Close a file that is larger than `max_segment_bytes`, and return the error about it."""
    source.close()
    detail = f"{source.size} bytes, max_segment_bytes is {limits.max_segment_bytes}"
    return LimitExceededError(Reason.SEGMENT_TOO_LARGE, detail, path=source.path, length=source.size)
