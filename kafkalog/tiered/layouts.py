"""Finds the copies of segments in remote storage: of LocalTieredStorage, of Aiven's plugin, or in plain log dirs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, NotKafkaError, Reason
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import read_leader_epochs
from kafkalog.storage.location import Location
from kafkalog.storage.source import ByteSource
from kafkalog.tiered.aiven import ChunkedSource, Keys, Manifest, index_size, open_index

EPOCHS_SUFFIX: Final = ".leader_epoch_checkpoint"
_LOG_FILES: Final = (
    *(kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX),
    *(kf.PRODUCER_SNAPSHOT_SUFFIX, EPOCHS_SUFFIX),
)
_AIVEN_FILES: Final = (kf.LOG_SUFFIX, ".indexes", ".rsm-manifest")
_N_THREADS: Final = 16


class PartitionId(NamedTuple):
    """A partition in remote storage."""

    topic: str
    topic_id: str
    """Empty if the layout does not have it."""
    partition: int


class Extent(NamedTuple):
    """What a copy says of its content."""

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

    @property
    def missing(self) -> list[str]:
        """The suffixes of objects that a complete copy has and this one lacks."""
        return [suffix for suffix in self.required if suffix not in self.files]

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
        """The bytes of the `.log`, or of a file that belongs to it; raises KafkalogError."""
        source: ByteSource = self.files[suffix].open()
        return source

    @cached_property
    def extent(self) -> Extent:
        """The last offset and the leader epochs, out of the copy itself; raises KafkalogError."""
        end = Segment(self.files[kf.LOG_SUFFIX], is_last=False, topic_partition=None).next_offset - 1
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
        """What the manifest says."""
        return Manifest(self.files[".rsm-manifest"], self.keys)

    def sizes(self) -> dict[str, int]:
        """See `Copy.sizes`."""
        indexes = {suffix: index_size(self.manifest, suffix) for suffix in self.manifest.places}
        return {kf.LOG_SUFFIX: self.manifest.size, **indexes}

    def open(self, suffix: str) -> ByteSource:
        """See `Copy.open`."""
        if suffix == kf.LOG_SUFFIX:
            return ChunkedSource(self.manifest, self.files[suffix])
        return open_index(self.manifest, self.files[".indexes"], suffix)

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

    def __init__(self, root: Location, keys: Keys) -> None:
        self._root, self._keys = root, keys
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
        return [found[key] for key in sorted(found)]


class LocalTieredLayout(Layout):
    """LocalTieredStorage of Apache Kafka: the files of a segment, with its start offset and id before the suffix."""

    name = "LocalTieredStorage"
    _name = re.compile(r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d+)-(?P<id>[\w-]{22})", re.ASCII)
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
            if not entry.is_directory or match is None:
                continue
            numbers = {one: found for one, found in (self._root / name).entries().items() if one.isdecimal()}
            for number in numbers:
                place = self._root / name / number
                yield PartitionId(self._topic(match["topic"], place), match["id"], int(number)), place

    def _topic(self, text: str, place: Location) -> str:
        """The topic in the name of a directory, which may begin with a part of the configured prefix."""
        for name in place.entries():
            if name.endswith(".rsm-manifest"):
                with _suppressed():
                    return Manifest(place / name, {}).topic or text
        return text


class PlainLayout(Layout):
    """A log dir: the files of a partition in a directory of its name."""

    name = "plain"
    _name = re.compile(r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d+)", re.ASCII)
    _file = re.compile(r"(?P<start>\d{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))", re.ASCII)
    _others = (kf.LEADER_EPOCH_CHECKPOINT, kf.PARTITION_METADATA)
    required = (kf.LOG_SUFFIX,)

    def copies(self, of: PartitionId) -> list[Copy]:
        """See `Layout.copies`. Leader epochs are those of the partition, if they were copied, too."""
        found = super().copies(of)
        place = self._directories.get(of)
        if place is not None and kf.LEADER_EPOCH_CHECKPOINT in place.entries():
            for copy in found:
                copy.files[EPOCHS_SUFFIX] = place / kf.LEADER_EPOCH_CHECKPOINT
        return found

    def _of(self, match: re.Match[str]) -> PartitionId:
        return PartitionId(match["topic"], "", int(match["partition"]))


def layout_of(root: Location, keys: Keys | None = None) -> Layout | None:
    """The layout of remote storage at a location, or up to three directories below it; None for none."""
    for place in _below(root, 3):
        names = [name for name, entry in place.entries().items() if entry.is_directory]
        kinds: tuple[type[Layout], ...] = (AivenLayout, LocalTieredLayout, PlainLayout)
        for kind in kinds:
            found = [name for name in names if kind._name.fullmatch(name)]
            if found and (kind is not AivenLayout or any(name.isdecimal() for name in (place / found[0]).entries())):
                return kind(place, keys or {})
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
