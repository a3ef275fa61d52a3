"""Finds the copies of segments in remote storage: of LocalTieredStorage, of Aiven's plugin, or in plain log dirs."""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, NotKafkaError, ReadError, Reason
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, max_index_entries
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import read_leader_epochs, read_offset_checkpoint
from kafkalog.storage.location import Location
from kafkalog.storage.source import ByteSource
from kafkalog.tiered.aiven import EPOCHS_SUFFIX, ChunkedSource, Keys, Manifest, index_size, open_index
from kafkalog.tiered.identity import Claim, SegmentIdentity

_LOG_FILES: Final = (
    *(kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX),
    *(kf.PRODUCER_SNAPSHOT_SUFFIX, EPOCHS_SUFFIX),
)
_INDEXES, _MANIFEST = ".indexes", ".rsm-manifest"
_AIVEN_FILES: Final = (kf.LOG_SUFFIX, _INDEXES, _MANIFEST)
_N_THREADS: Final = 16


AnyIndex = TypeVar("AnyIndex", OffsetIndex, TimeIndex)


class PartitionId(NamedTuple):
    """A partition in remote storage."""

    topic: str
    topic_id: str
    """Empty if the layout does not have it."""
    partition: int


class Extent(NamedTuple):
    """The content of a copy by its metadata: offsets, size, timestamps."""

    end_offset: int
    """The last one."""
    leader_epochs: dict[int, int]


@dataclass
class Copy:
    """The objects of one segment in remote storage."""

    of: PartitionId
    start_offset: int
    segment_id: str
    files: dict[str, Location] = field(default_factory=dict)
    """By suffix."""

    required: tuple[str, ...] = ()
    stop: int | None = None
    """The offset at which the next segment of a log dir begins."""
    is_last: bool = False
    """Whether it may be the active segment of a log dir."""
    next_start: int | None = None
    """The next higher start offset of a copy of the partition."""
    reported: Claim | None = None
    """What the metadata topic says of its `.log`."""

    @property
    def missing(self) -> list[str]:
        """The suffixes of objects that a complete copy has and this one lacks."""
        return [suffix for suffix in self.required if suffix not in self.files]

    @property
    def is_readable(self) -> bool:
        """Whether the objects are there that records are read from; brokers need all of them."""
        return kf.LOG_SUFFIX in self.files

    @property
    def n_bytes(self) -> int:
        """Bytes of all objects, as stored."""
        return sum(entry.size for entry in (one.status() for one in self.files.values()) if entry is not None)

    @property
    def log_bytes(self) -> int:
        """Bytes of the `.log`."""
        return self.sizes()[kf.LOG_SUFFIX]

    def sizes(self) -> dict[str, int]:
        """Bytes of the `.log` and the files that belong to it, by suffix."""
        found = ((suffix, one.status()) for suffix, one in self.files.items())
        return {suffix: entry.size for suffix, entry in found if entry is not None}

    def open(self, suffix: str) -> ByteSource:
        """The bytes of the `.log`, or of a file that belongs to it; raises KafkalogError.

        A `.log` that is another segment's is an error, so that its records are not taken for those of this one.
        """
        if suffix == kf.LOG_SUFFIX:
            self.check_identity()
        return self._open(suffix)

    def _open(self, suffix: str) -> ByteSource:
        source: ByteSource = self.files[suffix].open()
        return source

    def claims(self) -> list[Claim]:
        """What other places say of the `.log`; raises KafkalogError."""
        return [] if self.reported is None else [self.reported]

    def check_identity(self) -> None:
        """Raise `ReadError` if the `.log` is that of another segment."""
        if self._contradiction is not None:
            detail = f"it is the object of another segment: {self._contradiction}; look for the right one in the store"
            raise ReadError(Reason.OTHER_SEGMENT, detail, path=self.files[kf.LOG_SUFFIX])

    @cached_property
    def _contradiction(self) -> str | None:
        claims = self.claims() or [Claim("its name", self.start_offset, None, next_start=self.next_start)]
        with self._open(kf.LOG_SUFFIX) as source:
            offsets = times = None
            if not self.is_last:  # a broker that runs or crashed leaves indexes of zeros
                offsets = self._index(OffsetIndex, kf.INDEX_SUFFIX, source.size)
                times = self._index(TimeIndex, kf.TIME_INDEX_SUFFIX, source.size)
            return SegmentIdentity(source, claims, offsets, times).contradiction()

    def _index(self, kind: type[AnyIndex], suffix: str, log_bytes: int) -> AnyIndex | None:
        """An index, or None if there is none to read: records do not depend on it."""
        with _suppressed():
            if suffix in self.sizes():
                with self._open(suffix) as source:
                    most = max_index_entries(log_bytes) * kind.dtype.itemsize
                    return kind(source.window(0, min(source.size, most)), self.start_offset)
        return None

    @cached_property
    def extent(self) -> Extent:
        """The last offset and the leader epochs, out of the copy itself; raises KafkalogError.

        In a log dir, a segment reaches to the next one: the cleaner may have removed what is between.
        """
        self.check_identity()
        segment = Segment(self.files[kf.LOG_SUFFIX], is_last=self.is_last, topic_partition=None)
        end = max(segment.next_offset, self.stop or 0) - 1
        return Extent(end, dict(epochs_between(self.epochs, self.start_offset, end)))

    @cached_property
    def epochs(self) -> list[tuple[int, int]]:
        """The leader epochs from the log start to the segment's end, with their first offsets; none if unknown."""
        if EPOCHS_SUFFIX not in self.sizes():
            return []
        with self.open(EPOCHS_SUFFIX) as source:
            found = read_leader_epochs(source.path or "", source.window(0, source.size).tobytes())
        return [] if found is None else [(int(epoch), int(start)) for epoch, start in found.tolist()]


class AivenCopy(Copy):
    """A copy by Aiven's plugin."""

    keys: Keys = {}  # noqa: RUF012 - replaced, never changed

    @cached_property
    def manifest(self) -> Manifest:
        """What the manifest says; raises KafkalogError, also if it is the manifest of another segment."""
        manifest = Manifest(self.files[_MANIFEST], self.keys)
        named = (self.of.topic_id, self.of.partition, self.segment_id)
        if manifest.identity != named or manifest.start_offset != self.start_offset:
            topic_id, partition, segment_id = manifest.identity
            detail = (
                f"it is the object of another segment: {segment_id} at offset {manifest.start_offset} of partition"
                f" {partition} of topic {manifest.topic} ({topic_id}); look for the right one in the store"
            )
            raise ReadError(Reason.OTHER_SEGMENT, detail, path=self.files[_MANIFEST])
        return manifest

    def claims(self) -> list[Claim]:
        """See `Copy.claims`."""
        known = self.manifest
        claim = Claim("its manifest", known.start_offset, known.end_offset, known.size, known.max_timestamp)
        return [claim, *super().claims()]

    @property
    def is_readable(self) -> bool:
        """See `Copy.is_readable`."""
        return kf.LOG_SUFFIX in self.files and _MANIFEST in self.files

    def sizes(self) -> dict[str, int]:
        """See `Copy.sizes`."""
        places = self.manifest.places if _INDEXES in self.files else ()
        indexes = {suffix: index_size(self.manifest, suffix) for suffix in places}
        return {kf.LOG_SUFFIX: self.manifest.size, **indexes}

    def _open(self, suffix: str) -> ByteSource:
        if suffix == kf.LOG_SUFFIX:
            return ChunkedSource(self.manifest, self.files[suffix])
        return open_index(self.manifest, self.files[_INDEXES], suffix)

    @cached_property
    def extent(self) -> Extent:
        """See `Copy.extent`."""
        return Extent(self.manifest.end_offset, self.manifest.leader_epochs)


class Layout:
    """Where a plugin puts the objects of partitions: a directory for each."""

    name = ""
    _name: re.Pattern[str]
    _file: re.Pattern[str]
    _others: tuple[str, ...] = ()
    """Files of a partition that belong to no segment."""
    required: tuple[str, ...]
    kind: type[Copy] = Copy

    starts_at_epochs: bool = True
    """Whether a log starts at its first leader epoch, as a broker's tiered log does, whatever copies are below."""

    def __init__(self, root: Location, keys: Keys, prefix: str = "") -> None:
        self._root, self._keys, self._prefix = root, keys, prefix
        self.unknown: list[str] = []
        """Objects that belong to no segment."""

    def _places(self) -> Iterator[tuple[PartitionId, Location]]:
        for name, entry in self._root.entries().items():
            match = self._name.fullmatch(name)
            if entry.is_directory and match is not None:
                yield self._of(match), self._root / name

    def _of(self, match: re.Match[str]) -> PartitionId:
        return PartitionId(match["topic"], match["id"], int(match["partition"]))

    @cached_property
    def _directories(self) -> dict[PartitionId, Location]:
        return dict(self._places())

    @cached_property
    def log_starts(self) -> Mapping[kf.TopicPartition, int]:
        """The log start offsets that are stored with the copies."""
        return {}

    def partitions(self) -> list[PartitionId]:
        """The partitions with objects, or with what is left of them."""
        return sorted(self._directories)

    def copies(self, of: PartitionId) -> list[Copy]:
        """The copies of a partition's segments, complete or not, by start offset."""
        found: dict[tuple[int, str], Copy] = {}
        place = self._directories.get(of)
        for name in () if place is None else place.entries():
            match = self._file.fullmatch(name)
            assert place is not None
            if match is None and name not in self._others:
                self.unknown.append(str(place / name))
                continue
            if match is None:
                continue
            start, identity = int(match["start"]), match.groupdict().get("id") or ""
            if (start, identity) not in found:
                copy = found[start, identity] = self.kind(of, start, identity, required=self.required)
                copy.keys = self._keys  # type: ignore[attr-defined]
            found[start, identity].files[match["suffix"]] = place / name
        starts = sorted({start for start, _ in found})
        for (start, _), copy in found.items():
            copy.next_start = next(iter(starts[bisect_right(starts, start) :]), None)
        return [found[key] for key in sorted(found)]


class LocalTieredLayout(Layout):
    """LocalTieredStorage of Apache Kafka: the files of a segment, with its start offset and id before the suffix."""

    name = "LocalTieredStorage"
    _name = re.compile(rf"(?P<topic>{kf.TOPIC_PATTERN})-(?P<partition>\d+)-(?P<id>[\w-]{{22}})", re.ASCII)
    _file = re.compile(r"(?P<start>\d+)-(?P<id>[\w-]{22})(?P<suffix>\.\w+)", re.ASCII)
    required = _LOG_FILES


class AivenLayout(Layout):
    """Aiven's plugin: a directory for each topic, maybe with a prefix in its name, and in it one for each partition."""

    name = "Aiven"
    _name = re.compile(r"(?P<topic>[\w.-]{1,400})-(?P<id>[\w-]{22})", re.ASCII)
    _file = re.compile(r"(?P<start>\d{20})-(?P<id>[\w-]{22})(?P<suffix>\.[\w-]+)", re.ASCII)
    required = _AIVEN_FILES
    kind = AivenCopy

    def _places(self) -> Iterator[tuple[PartitionId, Location]]:
        for name, entry in self._root.entries().items():
            match = self._name.fullmatch(name)
            if not entry.is_directory or match is None or not name.startswith(self._prefix):
                continue
            numbers = {one: found for one, found in (self._root / name).entries().items() if one.isdecimal()}
            for number in numbers:
                place = self._root / name / number
                yield PartitionId(self._topic(match["topic"], place), match["id"], int(number)), place

    def _topic(self, text: str, place: Location) -> str:
        """The topic in the name of a directory, which may begin with a part of the configured prefix."""
        for name in place.entries():
            if name.endswith(_MANIFEST):
                with _suppressed():
                    manifest = Manifest(place / name, {})
                    if manifest.topic and text.endswith(manifest.topic):
                        return manifest.topic
        return text.removeprefix(self._prefix)


class PlainLayout(Layout):
    """A log dir: the files of a partition in a directory of its name."""

    starts_at_epochs = False  # messages of v0 and v1 have none

    name = "plain"
    _name = re.compile(rf"(?P<topic>{kf.TOPIC_PATTERN})-(?P<partition>\d+)", re.ASCII)
    _file = re.compile(r"(?P<start>\d{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))", re.ASCII)
    _others = (kf.LEADER_EPOCH_CHECKPOINT, kf.PARTITION_METADATA)
    required = (kf.LOG_SUFFIX,)

    def copies(self, of: PartitionId) -> list[Copy]:
        """See `Layout.copies`. Leader epochs are those of the partition, if they were copied, too."""
        place = self._directories.get(of)
        listed = {copy.start_offset: copy for copy in super().copies(of)}
        found = [copy for copy in listed.values() if copy.files.keys() != {kf.PRODUCER_SNAPSHOT_SUFFIX}]
        snapshots = {start: copy.files.pop(kf.PRODUCER_SNAPSHOT_SUFFIX, None) for start, copy in listed.items()}
        for copy, following in zip(found, [*found[1:], None], strict=True):
            copy.is_last = following is None
            copy.stop = None if following is None else following.start_offset
            # a snapshot has the offset after those that it knows
            after = self._end_of(copy) if copy.stop is None else copy.stop
            snapshot = snapshots.get(after)
            if snapshot is not None:
                copy.files[kf.PRODUCER_SNAPSHOT_SUFFIX] = snapshot
            if place is not None and kf.LEADER_EPOCH_CHECKPOINT in place.entries():
                copy.files[EPOCHS_SUFFIX] = place / kf.LEADER_EPOCH_CHECKPOINT
        return found

    @staticmethod
    def _end_of(copy: Copy) -> int:
        with _suppressed():
            return copy.extent.end_offset + 1 if copy.is_readable else -1
        return -1

    @cached_property
    def log_starts(self) -> Mapping[kf.TopicPartition, int]:
        """See `Layout.log_starts`."""
        place = self._root.entries().get(kf.LOG_START_OFFSET_CHECKPOINT)
        if place is None:
            return {}
        with _suppressed():
            return read_offset_checkpoint(self._root / kf.LOG_START_OFFSET_CHECKPOINT) or {}
        return {}

    def _of(self, match: re.Match[str]) -> PartitionId:
        return PartitionId(match["topic"], "", int(match["partition"]))


def layout_of(root: Location, keys: Keys | None = None) -> Layout | None:
    """The layout of remote storage at a location, or up to three directories below it; None for none.

    The location may also be a prefix that is no directory: Aiven's plugin puts one before the names of its objects.
    """
    for place in _below(root, 3):
        layout = _layout_in(place, keys or {}, "")
        if layout is not None:
            return layout
    if not root.entries() and root.key and root.name:
        return _layout_in(root.parent, keys or {}, root.name)
    return None


def _layout_in(place: Location, keys: Keys, prefix: str) -> Layout | None:
    """The layout of the directories in a location whose names begin with a prefix."""
    directories = (name for name, entry in place.entries().items() if entry.is_directory)
    names = [name for name in directories if name.startswith(prefix)]
    kinds: tuple[type[Layout], ...] = (AivenLayout,) if prefix else (AivenLayout, LocalTieredLayout, PlainLayout)
    for kind in kinds:
        found = [name for name in names if kind._name.fullmatch(name)]
        if found and (kind is not AivenLayout or any(name.isdecimal() for name in (place / found[0]).entries())):
            return kind(place, keys, prefix)
    return None


def find_layout(root: Location, keys: Keys | None = None) -> Layout:
    """The layout of remote storage at a location; raises `NotKafkaError` if nothing there looks like one."""
    found = layout_of(root, keys)
    if found is None:
        detail = "no directories of remote segments: name the root of the remote storage, or the configured prefix"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=root)
    return found


def _below(place: Location, depth: int) -> Iterator[Location]:
    yield place
    for name, entry in place.entries().items() if depth else ():
        if entry.is_directory:
            yield from _below(place / name, depth - 1)


def epochs_between(epochs: Sequence[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """The leader epochs of a range of offsets, with their first offsets in it."""
    begun = [(epoch, start) for epoch, start in epochs if start <= last]
    ends = [*(start for _, start in begun[1:]), last + 1]
    return [(epoch, max(start, first)) for (epoch, start), end in zip(begun, ends, strict=False) if end > first]


def prefetch(copies: list[Copy]) -> None:
    """Read what sizes depend on, of many copies at a time; errors come again where it is used."""

    def ask(copy: Copy) -> Any:
        with _suppressed():
            return copy.sizes()

    if any(isinstance(copy, AivenCopy) for copy in copies):
        with ThreadPoolExecutor(_N_THREADS) as pool:
            list(pool.map(ask, copies))


def _suppressed() -> Any:
    return contextlib.suppress(KafkalogError)
