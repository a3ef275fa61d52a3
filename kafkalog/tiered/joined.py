"""A log dir whose partitions have their remote segments, too: `JoinedStore` shows both as one directory each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, NotKafkaError, ReadError, Reason, SidecarError
from kafkalog.log.log_dir import is_partition_directory, located
from kafkalog.state.checkpoints import (
    encode_checkpoint,
    encode_offset_checkpoint,
    encode_partition_metadata,
    read_leader_epochs,
    read_offset_checkpoint,
    read_topic_id,
)
from kafkalog.storage.files import open_source
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import AnyPath, Location, kind_of, list_directory, place_of, remote_place
from kafkalog.storage.source import BufferSource, ByteSource
from kafkalog.storage.store import Entry, Store
from kafkalog.storage.stores import location
from kafkalog.system_topics.remote_log import RemoteLog, remote_log
from kafkalog.text import offset_range
from kafkalog.tiered.aiven import Keys, check_keys
from kafkalog.tiered.chain import Hole, Link, ListingFinder, MetadataFinder, chain, cut_positions
from kafkalog.tiered.identity import Claim
from kafkalog.tiered.layouts import Copy, PartitionId, find_layout, prefetch


@dataclass(slots=True)
class Joined:
    """A partition: the copies that count, and what they lack."""

    key: kf.TopicPartition
    of: PartitionId | None
    copies: list[Copy] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    findings: list[Finding] = field(default_factory=list)
    first_local: int | None = None
    """The first offset of the local segments."""
    is_certain: bool = True
    """Whether the metadata topic says which copies count."""


class JoinedStore(Store):
    """A log dir together with remote storage.

    The segments of a partition that are local no more appear as files of the names that they had. Local files win.
    `local` is the log dir; None to read remote storage alone. `keys` are private keys by id, for encrypted segments.
    """

    def __init__(self, local: AnyPath | None, remote: Location, keys: Keys | None = None) -> None:
        self.local = None if local is None else place_of(local)
        self._remote, self._keys = remote, dict(keys or {})
        self._lock = threading.RLock()
        self.links: dict[str, Link] = {}
        """By the key of the file that stands for it."""
        self._files: dict[str, tuple[Entry, Callable[[], ByteSource]]] = {}
        self._partitions: dict[str, Joined] = {}
        check_keys(self._keys)
        self.layout = find_layout(remote, keys)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._keys:
            raise TypeError("other processes cannot open encrypted segments: kafkalog does not pass the keys on")
        return JoinedStore, (self.local, self._remote.fresh())

    def __repr__(self) -> str:
        return f"JoinedStore({str(self.local or '')!r}, {str(self._remote)!r})"

    @property
    def url(self) -> str:
        """The root of the remote storage."""
        return str(self._remote)

    def joined_to(self, local: AnyPath | None) -> JoinedStore:
        """The same remote storage with another log dir, or alone."""
        return JoinedStore(local, self._remote, self._keys)

    def url_of(self, key: str) -> str:
        """See `Store.url_of`: a local path for local files."""
        if self.local is not None and key not in self._files:
            return str(self.local / key) if key else str(self.local)
        return f"{self._remote}!/{key}" if key else str(self._remote)

    def list(self, directory: str) -> Sequence[Entry]:
        """See `Store.list`."""
        with self._lock:
            found = {entry.name: entry for entry in self._local_entries(directory)}
            directory_of = kf.parse_partition_directory(directory)
            if not directory:
                found |= self._root_files()
            elif directory_of is not None and directory_of.kind is None:
                self.joined(directory_of.topic_partition)
                files = self._files.items()
                joined = {key.partition("/")[2]: one for key, (one, _) in files if key.startswith(f"{directory}/")}
                found = {**joined, **found}
            return [*found.values()]

    def status(self, key: str) -> Entry | None:
        """See `Store.status`."""
        directory, _, name = key.rpartition("/")
        return next((entry for entry in self.list(directory) if entry.name == name), None)

    def open(self, key: str, entry: Entry) -> ByteSource:
        """See `Store.open`."""
        virtual = self._virtual(key)
        if virtual is not None:
            return virtual[1]()
        assert self.local is not None
        return open_source(self.local / key, memory_map=False)

    def is_tiered(self, key: str) -> bool:
        """See `Store.is_tiered`."""
        return self._virtual(key) is not None

    def _virtual(self, key: str) -> tuple[Entry, Callable[[], ByteSource]] | None:
        """The virtual file of a name; another process may have listed its directory."""
        directory = kf.parse_partition_directory(key.rpartition("/")[0])
        if directory is not None and directory.kind is None:
            self.joined(directory.topic_partition)
        return self._files.get(key)

    def findings_of(self, key: str) -> Sequence[Finding]:
        """See `Store.findings_of`; there are some of partitions."""
        joined = self._partitions.get(key)
        return [] if joined is None else joined.findings

    @cached_property
    def metadata(self) -> RemoteLog | None:
        """What the metadata topic in the log dir says; None without one."""
        if self.local is None:
            return None
        names = [entry.name for entry in list_directory(self.local)]
        return remote_log(self.local) if any(name.startswith(f"{kf.REMOTE_LOG_METADATA}-") for name in names) else None

    @cached_property
    def remote_partitions(self) -> dict[kf.TopicPartition, Sequence[PartitionId]]:
        """The partitions in remote storage. There are several of a name if its topic was deleted and made again."""
        found: dict[kf.TopicPartition, Any] = {}
        for one in self.layout.partitions():
            found.setdefault(kf.TopicPartition(one.topic, one.partition), []).append(one)
        return found

    def joined(self, key: kf.TopicPartition) -> Joined:
        """The copies of a partition that count."""
        with self._lock:
            name = f"{key.topic}-{key.partition}"
            if name not in self._partitions:
                self._partitions[name] = self._join(key, name)
            return self._partitions[name]

    def _local_entries(self, directory: str) -> Sequence[Entry]:
        if self.local is None:
            return []
        listing = Listing.or_empty(self.local / directory)
        directories, found = set(listing.directories), []
        for name in listing.names:
            status = listing.status(name)
            is_directory = name in directories
            size = 0 if is_directory else status.st_size
            found.append(Entry(name, size, None, status.st_mtime_ns, is_directory))
        return found

    def _root_files(self) -> dict[str, Entry]:
        """Directories of partitions that are not local, if none is; and the checkpoint of log start offsets."""
        if self.local is None:
            names = [f"{key.topic}-{key.partition}" for key in self.remote_partitions]
            directories = {name: Entry(name, is_directory=True) for name in names}
            if self.layout.log_starts:
                data = encode_offset_checkpoint(self.layout.log_starts)
                directories[kf.LOG_START_OFFSET_CHECKPOINT] = self._add(kf.LOG_START_OFFSET_CHECKPOINT, data)
            return directories
        path = self.local / kf.LOG_START_OFFSET_CHECKPOINT
        try:
            starts = read_offset_checkpoint(path)
        except (SidecarError, ReadError):
            return {}
        if starts is None:
            return {}
        for key in self.remote_partitions.keys() & starts.keys():
            starts[key] = max(starts[key], self._first_epoch(f"{key.topic}-{key.partition}"))
        return {path.name: self._add(path.name, encode_offset_checkpoint(starts))}

    def _first_epoch(self, name: str) -> int:
        """Where the first leader epoch begins: a broker cuts epochs with the log, and the checkpoint a minute later."""
        assert self.local is not None
        try:
            epochs = read_leader_epochs(self.local / name / kf.LEADER_EPOCH_CHECKPOINT)
        except (SidecarError, ReadError):
            return 0
        return int(epochs["start_offset"][0]) if epochs is not None and epochs.size else 0

    def _join(self, key: kf.TopicPartition, name: str) -> Joined:
        there = self.remote_partitions.get(key, [])
        topic_id, bases = None, list[int]()
        if self.local is not None:
            place = self.local / name
            names = [entry.name for entry in self._local_entries(name)]
            logs = (kf.parse_base_offset(one) for one in names if one.endswith(kf.LOG_SUFFIX))
            bases = [base for base in logs if base is not None]
            topic_id = read_topic_id(place)
        mine = [one for one in there if not topic_id or not one.topic_id or one.topic_id == topic_id]
        joined = Joined(key, mine[-1] if mine else None)
        if joined.of is None:
            return joined
        joined.copies = self.layout.copies(joined.of)
        joined.first_local = min(bases, default=None)
        self._find_links(joined, name, joined.first_local)
        self._add_files(joined, name)
        if self.local is None:
            self._add_partition_files(joined, name, several=len(mine) > 1)
        return joined

    def _find_links(self, joined: Joined, name: str, first_local: int | None) -> None:
        of, finder = joined.of, None
        assert of is not None
        if self.metadata is not None and of.topic_id:
            _report(self.metadata, joined.copies)
            finder = MetadataFinder(self.metadata, (of.topic_id, of.partition), joined.copies)
        joined.is_certain = finder is not None
        listed = None
        if finder is None:
            prefetch(joined.copies)
            listed = ListingFinder(joined.copies)
        if self.local is not None:
            epochs = read_leader_epochs(self.local / name / kf.LEADER_EPOCH_CHECKPOINT)
            joined.epochs = [] if epochs is None else [(int(epoch), int(start)) for epoch, start in epochs.tolist()]
            starts = read_offset_checkpoint(self.local / kf.LOG_START_OFFSET_CHECKPOINT) or {}
            start = max(starts.get(joined.key, 0), self._at_epochs(joined))
        if not joined.epochs:
            joined.epochs = _epochs_of(joined.copies, listed)
            start = self._at_epochs(joined)
        if self.local is None or not joined.epochs or not self.layout.starts_at_epochs:
            start = max(start, min((copy.start_offset for copy in joined.copies if copy.is_readable), default=0))
        if self.local is None:
            start = max(start, self.layout.log_starts.get(joined.key, 0))
        joined.start = start
        stop = kf.MAX_OFFSET if first_local is None else first_local
        chosen = finder or listed
        assert chosen is not None
        joined.links, joined.holes = chain(chosen, joined.epochs, start, stop)
        for hole in joined.holes:
            what = "has no copy" if hole.segment is None else f"lacks objects of the copy {hole.segment.segment_id}"
            detail = f"remote storage {what} of offsets {offset_range(hole.first, hole.last + 1)}"
            finding = Finding(Reason.SEGMENT_MISSING, detail, str(self._remote), base_offset=hole.first)
            joined.findings.append(replace(finding, last_offset=hole.last))
        if not joined.is_certain:
            detail = "without the metadata topic, each complete copy counts as finished"
            joined.findings.append(Finding(Reason.SEGMENT_MISSING, detail, str(self._remote), damage=False))

    def _at_epochs(self, joined: Joined) -> int:
        """Where the first leader epoch begins, if the log starts there."""
        return joined.epochs[0][1] if joined.epochs and self.layout.starts_at_epochs else 0

    def _add_files(self, joined: Joined, name: str) -> None:
        prefetch([link.copy for link in joined.links])
        for number, link in enumerate(joined.links):
            try:
                start, stop = cut_positions(link, is_first=not number)
                sizes = link.copy.sizes()
            except KafkalogError as error:
                # a segment that cannot be read, and not a gap
                key = f"{name}/{max(link.first, link.copy.start_offset):020d}{kf.LOG_SUFFIX}"
                self.links[key] = link
                self._files[key] = Entry(key.rpartition("/")[2]), partial(_raise, error)
                continue
            base = link.copy.start_offset if not start else link.first
            size = (sizes[kf.LOG_SUFFIX] if stop is None else stop) - start
            is_cut = start > 0 or stop is not None
            self._add_copy(f"{name}/{base:020d}{kf.LOG_SUFFIX}", link, kf.LOG_SUFFIX, size, (start, stop))
            # the entries of a copy's indexes are about the whole of it
            for suffix in () if is_cut else kf.INDEX_SUFFIXES:
                if suffix in sizes:
                    self._add_copy(f"{name}/{base:020d}{suffix}", link, suffix, sizes[suffix])
            # the state of producers is that after the segment
            if stop is None and kf.PRODUCER_SNAPSHOT_SUFFIX in sizes:
                file = f"{name}/{link.last + 1:020d}{kf.PRODUCER_SNAPSHOT_SUFFIX}"
                self._add_copy(file, link, kf.PRODUCER_SNAPSHOT_SUFFIX, sizes[kf.PRODUCER_SNAPSHOT_SUFFIX])

    def _add_copy(self, key: str, link: Link, suffix: str, size: int, cut: tuple[int, int | None] = (0, None)) -> None:
        self.links[key] = link
        opener = partial(link.copy.open, suffix) if cut == (0, None) else partial(_cut, link.copy, *cut)
        self._files[key] = Entry(key.rpartition("/")[2], size, link.copy.segment_id or None), opener

    def _add(self, key: str, data: bytes) -> Entry:
        entry = Entry(key.rpartition("/")[2], len(data))
        self._files[key] = entry, partial(BufferSource, data, path=self.url_of(key))
        return entry

    def _add_partition_files(self, joined: Joined, name: str, *, several: bool) -> None:
        """What a partition has besides segments, where nothing is local."""
        assert joined.of is not None
        if joined.epochs:
            self._add(f"{name}/{kf.LEADER_EPOCH_CHECKPOINT}", encode_checkpoint(joined.epochs))
        if joined.of.topic_id:
            self._add(f"{name}/{kf.PARTITION_METADATA}", encode_partition_metadata(joined.of.topic_id))
        detail = (
            "read from remote storage alone: segments that were not copied yet are missing, and deletions are unknown"
        )
        if several:
            detail += f"; of several topics with this name, this is the one with id {joined.of.topic_id}"
        joined.findings.append(Finding(Reason.LOG_END_MISSING, detail, str(self._remote), damage=False))


def _report(metadata: RemoteLog, copies: Sequence[Copy]) -> None:
    """Give copies what the metadata topic says of them."""
    segments = {segment.segment_id: segment for segment in metadata}
    for copy in copies:
        segment = segments.get(copy.segment_id)
        if segment is not None:
            copy.reported = Claim(
                "the metadata topic",
                *(segment.start_offset, segment.end_offset, segment.size_in_bytes, segment.max_timestamp),
            )


def _epochs_of(copies: list[Copy], listed: ListingFinder | None) -> list[tuple[int, int]]:
    """The chain of leader epochs, out of the copy with the last offset of the latest epoch."""
    best: tuple[int, int, list[tuple[int, int]]] | None = None
    for copy in copies:
        try:
            entries = copy.epochs if copy.is_readable else []
            if entries and (best is None or (entries[-1][0], copy.extent.end_offset) > best[:2]):
                best = entries[-1][0], copy.extent.end_offset, entries
        except KafkalogError:
            continue
    if best is not None:
        return best[2]
    return sorted(listed.epochs.items()) if listed is not None and listed.epochs else [(0, 0)]


def _raise(error: KafkalogError) -> ByteSource:
    raise error


def _cut(copy: Copy, start: int, stop: int | None) -> ByteSource:
    """Part of a copy's `.log`; it is read whole, which is rare."""
    with copy.open(kf.LOG_SUFFIX) as source:
        data = source.window(start, source.size if stop is None else stop)
        return BufferSource(data, path=source.path)


def tiered_location(
    path: AnyPath | None,
    remote: AnyPath,
    *,
    keys: Keys | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Location:
    """A log dir, or a partition of it, with its segments in remote storage: something to open or scan.

    Parameters
    ----------
    path : path-like or None
        The log dir or the partition directory; None to read remote storage alone.
    remote : path-like or URL
        The root of the remote storage.
    keys : mapping of str to str, optional
        Private keys of Aiven's plugin by id: PEM, or the paths of such files.
    storage_options : mapping, optional
        Options for the URL; see `kafkalog.location`.
    """
    text = os.fspath(remote)
    url = remote if remote_place(remote) or "://" in text else f"file://{os.path.abspath(text)}"
    place = location(url, storage_options=storage_options)
    if path is None:
        return Location(JoinedStore(None, place, keys), "")
    local = place_of(located(path, storage_options))
    kind = kind_of(local)
    if kind == "file":
        detail = "tiered storage is joined to a log dir or a partition directory, not to a single file"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=path)
    local = local.absolute()
    if kind == "directory" and is_partition_directory(local):
        return Location(JoinedStore(local.parent, place, keys), local.name)
    return Location(JoinedStore(local, place, keys), "")
