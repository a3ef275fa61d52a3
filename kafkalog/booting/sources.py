"""Finds the partitions in the sources of a boot.

A source is a log dir, or a partition directory. Sources are only read. Other directories are left out.

The remote part of tiered topics is restored next to the local part, so that both are one copy. Which of the segments in
remote storage count is decided by the metadata topic of all sources together, and by the leader epochs of the copy.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    Limits,
    NotKafkaError,
    Reason,
    UnsafePathError,
)
from kafkalog.log.compaction import GapMeter
from kafkalog.log.log_dir import (
    LogDir,
    blank_disk,
    each_once,
    is_empty_disk,
    is_partition_directory,
    log_dirs_at,
)
from kafkalog.log.log_start import log_start
from kafkalog.log.partition import Partition
from kafkalog.log.same_clusters import same_clusters
from kafkalog.log.searching.missing import known_ends
from kafkalog.log.set_apart import about_only_copies, only_copies, packed_partitions, why_renamed
from kafkalog.operations.remote_storage import write_partitions
from kafkalog.state.checkpoints import known_properties, node_number, read_offset_checkpoint, read_topic_id
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import cluster_metadata, leading_metadata
from kafkalog.state.leader_epochs import LogProgress
from kafkalog.storage.broker_lock import refuse_if_locked
from kafkalog.storage.files import refuse_forbidden
from kafkalog.storage.listing import Listing, nearest
from kafkalog.storage.location import Location, kind_of, local_path
from kafkalog.storage.room import check_room
from kafkalog.storage.staging import staged_directory
from kafkalog.survey.next_steps import boot_step
from kafkalog.survey.origins import origins_of, read_origin
from kafkalog.survey.startup_files import about_unnamed, about_unnamed_segments
from kafkalog.system_topics.remote_log import remote_log
from kafkalog.tiered.joined import JoinedStore

_READ: Final = (
    *(kf.PARTITION_METADATA, kf.LEADER_EPOCH_CHECKPOINT),
    *(suffix + rest for suffix in kf.SEGMENT_SUFFIXES for rest in ("", kf.SWAP_SUFFIX)),
)
"""How the names of files end that a boot reads in a partition directory."""


@dataclass(eq=False)
class SourceRoot:
    """A log dir of a source, or the parent of a single partition directory."""

    path: Path
    is_log_dir: bool = False
    """Whether the caller named the log dir, not only partitions in it."""
    findings: list[Finding] = field(default_factory=list)
    _offsets: dict[str, dict[kf.TopicPartition, int]] = field(default_factory=dict)

    @cached_property
    def properties(self) -> dict[str, str]:
        """Its `meta.properties`; empty if there is none, or if it cannot be read."""
        return known_properties(self.path)

    @cached_property
    def is_at_hand(self) -> bool:
        """Whether its directory is there: a source may name one of another machine."""
        return kind_of(self.path) == "directory"

    @property
    def node_id(self) -> int | None:
        """The broker's id."""
        return node_number(self.properties)

    def offsets(self, name: str) -> dict[kf.TopicPartition, int]:
        """One of its offset checkpoints, which is read once; empty if there is none, or if it cannot be read."""
        if name not in self._offsets:
            self._offsets[name] = {}
            try:
                self._offsets[name] = read_offset_checkpoint(self.path / name) or {}
            except KafkalogError as error:
                self.findings.append(error.to_finding(damage=False))
        return self._offsets[name]


@dataclass(eq=False)
class Copy:
    """One copy of a partition."""

    key: kf.TopicPartition
    path: Path
    root: SourceRoot
    limits: Limits
    is_restored: bool = False
    """Whether it also has the segments of remote storage."""
    is_asked_for: bool = False
    """Whether the caller named its directory, which a broker has renamed, even next to its log dir: its topic may be a
    deleted one."""

    @cached_property
    def latest_epoch(self) -> int:
        """Its latest leader epoch; -1 if none is known."""
        with contextlib.suppress(KafkalogError):
            return Partition(self.path, limits=self.limits).epoch_cache.latest
        return kf.NO_EPOCH

    @property
    def first_base_offset(self) -> int:
        """The base offset of its first segment; 0 if it has none, or cannot be read."""
        with contextlib.suppress(KafkalogError, IndexError):
            return Partition(self.path, limits=self.limits).segments[0].base_offset
        return 0

    @cached_property
    def names(self) -> list[str]:
        """The names in the directory, from one listing."""
        return Listing(self.path).names

    def refuse_forbidden(self) -> None:
        """Raise ReadError if another user may read its directory, or a file in it that a boot reads."""
        refuse_forbidden([self.path / name for name in self.names if name.endswith(_READ)])

    @property
    def log_start_offset(self) -> int:
        """The log start offset, by the first segment and the checkpoint of the log dir."""
        return log_start(self.root.offsets(kf.LOG_START_OFFSET_CHECKPOINT).get(self.key), self.first_base_offset)

    @property
    def is_bare(self) -> bool:
        """Whether it has no segment, as if its `.log` files were lost; brokers create one with the directory."""
        return not any(name.removesuffix(kf.SWAP_SUFFIX).endswith(kf.LOG_SUFFIX) for name in self.names)

    @property
    def known_end(self) -> int:
        """The highest offset that its log once reached, from its other files."""
        return max(known_ends(self.path, self.key, self.names).values(), default=0)

    @property
    def has_horizons(self) -> bool:
        """Whether delete horizons, which only the log cleaner writes, prove that it was compacted."""
        return self._in_headers[0]

    @property
    def has_gaps(self) -> bool:
        """Whether a segment lacks offsets, as after compaction, other than those that were cut out of it."""
        densities = Partition(self.path, limits=self.limits).densities if self._in_headers[1] else ()
        return any(segment.has_gaps for segment in densities)

    @cached_property
    def _in_headers(self) -> tuple[bool, bool]:
        """Whether a batch has a delete horizon, and whether offsets are missing by the headers, intact or not."""
        has_horizons, meters = False, dict[int, GapMeter]()
        for window in Partition(self.path, limits=self.limits).iter_batches(on_corruption="skip"):
            base = window.segment.base_offset
            meters.setdefault(base, GapMeter(base)).feed(window.batches)
            has_horizons |= bool((window.batches.delete_horizon_ms >= 0).any())
        return has_horizons, any(meter.has_gaps for meter in meters.values())

    @cached_property
    def topic_id(self) -> str | None:
        """The topic id in `partition.metadata`; raises `SidecarError` if that is malformed."""
        return read_topic_id(self.path)


@dataclass(eq=False)
class Sources:
    """The partitions of all sources."""

    roots: list[SourceRoot] = field(default_factory=list)
    """The log dirs."""
    copies: dict[kf.TopicPartition, list[Copy]] = field(default_factory=dict)
    """All copies of each partition."""
    left_out: list[Finding] = field(default_factory=list)
    """Directories and links that are left out."""
    origins: dict[Path, list[SourceRoot]] = field(default_factory=dict)
    """The log dirs that the sources were made from, as other commands noted them, by the path of the output."""
    elsewhere: dict[kf.TopicPartition, str] = field(default_factory=dict)
    """Of partitions that no source has: what may have them, and what to do about it."""
    _apart: list[Path] = field(default_factory=list)
    """Directories that a broker has renamed and that are left out."""
    futures: dict[kf.TopicPartition, list[Copy]] = field(default_factory=dict)
    """Copies that a broker was making of partitions with another: no replicas, but they may have what that lost."""
    _futures: list[Copy] = field(default_factory=list)
    """All copies that a broker was making: they count where there is no other."""

    @classmethod
    def find(
        cls,
        paths: Sequence[str | os.PathLike[str]],
        limits: Limits = DEFAULT_LIMITS,
        *,
        include_stray: bool = False,
    ) -> Sources:
        """Find the partitions, with `include_stray` also in directories that a broker has renamed as strays.

        Raises NotKafkaError for a path that is no directory, and UnsafePathError for a log dir with a running broker.
        """
        found = cls()
        # real paths, since reports and origins name them
        named = [Path(os.path.realpath(path)) for path in each_once(map(Path, paths), found.left_out.append)]
        for path in named:
            kind = kind_of(path)
            if kind != "directory":
                what = "no such directory" if kind is None else "not a directory"
                detail = f"{what}: name log dirs (values of log.dirs), or partition directories such as orders-0"
                detail += nearest(path) if kind is None else ""
                raise NotKafkaError(Reason.NOT_KAFKA, detail, path=path)
            for root in log_dirs_at(path):
                found._add(root, limits, include_stray)
        if found._futures:
            found._add_futures()
        # a directory that a broker has renamed is not left out if it is named, next to its log dir
        found._note_apart([path for path in found._apart if path not in named])
        # without them, what they have would count as lost
        names = (*kf.LOG_DIR_FILES, *kf.OFFSET_CHECKPOINTS)
        refuse_forbidden([root.path / name for root in found.roots for name in names])
        return found

    def refuse_forbidden_ids(self, wants: Callable[[str], bool]) -> None:
        """Raise ReadError if another user may read the topic id of a copy: by it, a copy counts or is left out."""
        copies = [copy for key, some in self.copies.items() if wants(key.topic) for copy in some]
        refuse_forbidden([copy.path / kf.PARTITION_METADATA for copy in copies])

    def _add(self, path: Path, limits: Limits, include_stray: bool) -> None:
        try:
            log_dir = None if is_empty_disk(path) else LogDir(path, limits=limits)
        except NotKafkaError:
            log_dir = None
        if log_dir is None:
            self.left_out.append(blank_disk(path))
            self._root(path)
            return
        is_partition = is_partition_directory(path)
        root = self._root(path.parent if is_partition else path)
        root.is_log_dir |= not is_partition
        refuse_if_locked([root.path])
        for finding in log_dir.findings:
            # a broker would follow a link: its records would be missing without a word. A watermark only proves ends
            if os.path.basename(finding.path or "") != kf.HIGH_WATERMARK_CHECKPOINT:
                self.left_out.append(finding)
        directories = [(key, local_path(log_dir.path_of(key).path)) for key in log_dir]
        directories += self._strays(log_dir, include_stray) if any(log_dir.set_apart.values()) else []
        is_asked_for = is_partition and bool(why_renamed(path.name))
        for key, where in directories:
            if key.topic != kf.METADATA_TOPIC:
                self._add_copy(Copy(key, where, root, limits, is_asked_for=is_asked_for))
        for where in map(local_path, log_dir.set_apart["future"]):
            if (parsed := kf.parse_partition_directory(where.name)) is not None:
                self._futures.append(Copy(parsed.topic_partition, where, root, limits))
        if not is_partition:
            self._note_others(path)
        self.origins[path] = [SourceRoot(local_path(origin), is_log_dir=True) for origin in origins_of(path)]

    def _add_copy(self, copy: Copy) -> None:
        others = self.copies.setdefault(copy.key, [])
        same = [one for one in others if one.path == copy.path]
        for one in same:
            one.is_asked_for |= copy.is_asked_for
        others += [] if same else [copy]

    def _add_futures(self) -> None:
        """Take the copies that a broker was making of partitions without another one that has segments."""
        lone = [one for one in self._futures if all(map(_is_bare, self.copies.get(one.key, ())))]
        self._apart += [one.path for one in self._futures if one not in lone]
        for one in self._futures:
            same = [other for other in self.copies.get(one.key, ()) if other.path == one.path]
            if one not in lone and not same:
                self.futures.setdefault(one.key, []).append(one)
        for one in lone:
            self._add_copy(one)

    def leave_out_nameless(self) -> list[Finding]:
        """Take the directories out whose name is not that of a partition: a broker does not start with them."""
        found = []
        for key in [key for key in self.copies if kf.parse_partition_directory(str(key)) is None]:
            for copy in self.copies.pop(key):
                detail = "left out: it has segments, but no name of a partition. If you know it, name it TOPIC-N"
                found.append(Finding(Reason.LEFT_OUT, detail, path=str(copy.path)))
        return found

    def _strays(self, log_dir: LogDir, include_stray: bool) -> list[tuple[kf.TopicPartition, Path]]:
        """The strays to include; the other directories that a broker has renamed are left out."""
        strays = [*map(local_path, log_dir.set_apart["stray"])] if include_stray else []
        # futures are judged once all copies are known
        taken = {"future", *(["stray"] if include_stray else [])}
        others = [paths for kind, paths in log_dir.set_apart.items() if kind not in taken]
        self._apart += map(local_path, itertools.chain.from_iterable(others))
        parsed = [(kf.parse_partition_directory(path.name), path) for path in strays]
        return [(one.topic_partition, path) for one, path in parsed if one is not None]

    def _note_apart(self, directories: Sequence[Path]) -> None:
        """Note the renamed directories that are left out, and which of them hold the only copy of a partition."""
        only = {one.path: one for one in only_copies(directories, self.copies, [root.path for root in self.roots])}
        for directory in directories:
            detail = f"left out: {why_renamed(directory.name)}"
            if (lone := only.get(directory)) is not None:
                detail += f". {about_only_copies([lone])}"
                if lone.exists:
                    where = f". It is in {directory}, which a broker has renamed: name that directory, too"
                    self.elsewhere[lone.key] = where
            self.left_out.append(Finding(Reason.LEFT_OUT, detail, path=str(directory), damage=False))
        for key, (first, *others) in self.copies.items():
            if not others and first.path.name.endswith("-future"):
                detail = f"the only copy of {key} here: {why_renamed(first.path.name)}. It may lack the end of the log"
                self.left_out.append(Finding(Reason.UNPROVEN, detail, path=str(first.path)))

    @property
    def _all_roots(self) -> list[SourceRoot]:
        """The log dirs, and those that they were made from and that are at hand."""
        known = {root.path for root in self.roots}
        others = {root.path: root for roots in self.origins.values() for root in roots if root.path not in known}
        return [*self.roots, *(root for root in others.values() if root.is_at_hand)]

    def is_whole(self, log_dir: Path | None) -> bool:
        """Whether all partitions of a log dir are among the sources, also as an output that was made from all of it."""
        if any(root.is_log_dir and root.path == log_dir for root in self.roots):
            return True
        origins = [(read_origin(path), roots) for path, roots in self.origins.items()]
        return any(
            origin is not None and origin.is_whole and any(root.path == log_dir for root in roots)
            for origin, roots in origins
        )

    def log_starts(self, copies: Sequence[Copy]) -> dict[int, SourceRoot]:
        """The log start offsets in the checkpoints of a partition's copies, and of what these were made from."""
        found = {}
        for copy in copies:
            origins = [*self.origins.get(copy.path, ()), *self.origins.get(copy.root.path, ())]
            for root in (copy.root, *origins):
                start = root.offsets(kf.LOG_START_OFFSET_CHECKPOINT).get(copy.key)
                if start is not None:
                    found[start] = root
        return found

    def note_origins(self, *, has_metadata: bool) -> None:
        """Note groups and partitions of the log dirs where the sources come from, with the command that takes them."""
        topics = {key.topic for key in self.copies}
        for path, roots in self.origins.items():
            gone = [root.path for root in roots if not root.is_at_hand]
            if gone and not has_metadata:
                detail = f"it was made from {gone[0]}, which is not at hand: with its metadata log, or a copy of that"
                detail += ", settings and ACLs are carried over (--metadata DIR)"
                self.left_out.append(Finding(Reason.METADATA_INCOMPLETE, detail, path=str(path), damage=False))
            for root in roots if kf.CONSUMER_OFFSETS not in topics else ():
                if root.path not in gone and has_partitions_of(root.path, kf.CONSUMER_OFFSETS):
                    detail = f"the groups of {root.path}, which it was made from, are not here. To take them and all"
                    detail += f" other topics over: {boot_step([str(path), str(root.path)])}"
                    self.left_out.append(Finding(Reason.LEFT_OUT, detail, path=str(path), damage=False))

    def _note_others(self, root: Path) -> None:
        listing = Listing(root)
        for name, key in packed_partitions({*listing.names}).items():
            self.elsewhere[key] = f". {root / name} may have it: unpack it first"
        if lost := about_unnamed_segments(root):
            detail = f"left out: files next to the partitions{lost}"
            self.left_out.append(Finding(Reason.UNKNOWN_FILE, detail, path=str(root)))
        for name in listing.directories:
            if not listing.entries[name].is_symlink() and kf.parse_partition_directory(name) is None:
                detail = "left out: not a partition directory, and a broker does not start with it"
                detail += about_unnamed(root / name)
                self.left_out.append(Finding(Reason.UNKNOWN_FILE, detail, path=str(root / name), damage=False))

    def _root(self, path: Path) -> SourceRoot:
        for root in self.roots:
            if root.path == path:
                return root
        self.roots.append(SourceRoot(path))
        return self.roots[-1]

    def offsets(self, *names: str) -> dict[kf.TopicPartition, int]:
        """The highest offset of each partition in the checkpoints of all log dirs."""
        found: dict[kf.TopicPartition, int] = {}
        for root, name in product([root for root in self._all_roots if root.is_log_dir], names):
            for key, offset in root.offsets(name).items():
                found[key] = max(offset, found.get(key, 0))
        return found

    @staticmethod
    def _clusters(roots: Iterable[SourceRoot]) -> dict[str, Path]:
        """The cluster ids of log dirs, and the log dir of each."""
        return {root.properties["cluster.id"]: root.path for root in roots if "cluster.id" in root.properties}

    def cluster_id(self) -> str:
        """The cluster id of the log dirs, or of those that they were made from; raises if none is known."""
        known = self._clusters(self.roots) or self._clusters(self._all_roots)
        if not known:
            detail = "no cluster.id in a meta.properties of the sources: name the old cluster id (--cluster-id)"
            raise UnsafePathError(Reason.META_PROPERTIES, detail, path=self.roots[0].path if self.roots else None)
        if len(known) > 1:
            detail = f"the sources have several cluster ids, {', '.join(known)}: name the one to keep (--cluster-id)"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.roots[0].path)
        return next(iter(known))

    def metadata(
        self, others: Iterable[Path], limits: Limits, *, is_one_cluster: bool = False
    ) -> tuple[ClusterMetadata | None, Path | None, str]:
        """Return the metadata that lead, of the sources and other log dirs, where they are, and why later ones exist.

        Sources of different clusters are an UnsafePathError, unless the caller says that they are one.
        """
        clusters = self._clusters([root for root in self.roots if root.is_log_dir])
        if len(clusters) > 1:
            (first, one), (second, other) = list(clusters.items())[:2]
            detail = f"it is of cluster {second}, and {one} of cluster {first}"
            if not is_one_cluster and len(same_clusters(root.path for root in self.roots if root.is_log_dir)) > 1:
                detail += ". Boot each cluster on its own; if one was formatted again with another id, and both hold"
                detail += (
                    f" partitions of the same cluster, use --cluster-id {second} (cluster_id), or another id for the"
                )
                detail += " new cluster"
                raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=other)
            self.left_out.append(Finding(Reason.UNSAFE_PATH, detail, path=str(other), damage=False))
        known = []
        for path in [*others, *(root.path for root in self._all_roots)]:
            refuse_forbidden(_metadata_files(path / kf.METADATA_DIRECTORY))
            metadata = cluster_metadata(path, with_credentials=True, limits=limits)
            if metadata is not None and metadata.end_offset > 0:
                known.append((path, metadata))
        if not known:
            return None, None, ""
        where, leading, doubt = leading_metadata(known, with_credentials=True, limits=limits)
        return leading, Path(where), doubt


def _metadata_files(directory: Path) -> list[Path]:
    """The files of a metadata log, if it is there; raises ReadError if it cannot be listed."""
    names = Listing(directory).files if kind_of(directory) == "directory" else []
    return [directory / name for name in names if name.endswith((kf.LOG_SUFFIX, kf.RAFT_SNAPSHOT_SUFFIX))]


def _is_bare(copy: Copy) -> bool:
    with contextlib.suppress(KafkalogError):
        return copy.is_bare
    return False


def has_partitions_of(log_dir: Path, topic: str) -> bool:
    """Whether a log dir has a partition of a topic."""
    with contextlib.suppress(KafkalogError):
        return any(key.topic == topic for key in LogDir(log_dir))
    return False


def store_of(source: object) -> JoinedStore | None:
    """The remote storage of a `kafkalog.tiered_location`; None for other sources."""
    store = getattr(source, "store", None)
    return store if isinstance(store, JoinedStore) else None


def local_part(source: Any) -> str | os.PathLike[str] | None:
    """The log dir or partition directory of a source; None for remote storage alone."""
    store = store_of(source)
    return source if store is None else None if store.local is None else local_path(store.local / source.key)


class RemotePart:
    """The partitions of some sources that have segments in remote storage, written to a folder as whole copies."""

    def __init__(
        self,
        sources: Sources,
        store: JoinedStore,
        folder: Path,
        output: Path,
        limits: Limits,
        *,
        is_each: bool = False,
        is_copied: bool = True,
    ) -> None:
        """`is_each` is whether each copy of a partition becomes a whole one, and not only the most advanced.

        `is_copied` is whether they are copied once more, from the folder to the output of the boot.
        """
        self._is_each, self._output, self._is_copied = is_each, output, is_copied
        self._joined: dict[SourceRoot | None, LogDir] = {}
        self._sources, self._store, self._folder, self._limits = sources, store, folder, limits
        roots = [root.path for root in sources.roots if has_partitions_of(root.path, kf.REMOTE_LOG_METADATA)]
        self._metadata = remote_log(roots, limits=limits) if roots else None
        self._names: dict[str, str] = {}
        """The log dir, or the remote storage, that stands in a report for each folder."""

    def restore(
        self, wants: Callable[[str], bool], metadata: ClusterMetadata | None, note: Callable[[Finding], object]
    ) -> None:
        """Put whole copies in place of the local parts, and add those of partitions that are in no source.

        Of these, only those of topics that the metadata have: the others may have been deleted.
        """
        found = self._parts(wants, metadata)
        for copy in filter(None, chain(*(parts.values() for parts in found.values()))):
            copy.refuse_forbidden()
        places = [self._opened(root)[key].path for root, parts in found.items() for key in parts]
        # once next to the output, and once in it
        check_room(self._output, [*places, *(places if self._is_copied else ())], note, dry_run=False)
        for number, (root, parts) in enumerate(found.items()):
            folder = self._folder / f"{number}"
            self._write(root, parts, folder, note)
            for key, part in parts.items():
                known = self._sources.copies.setdefault(key, [])
                known[:] = [one for one in known if one is not part]
                home = root or self._sources.roots[0]
                known.append(Copy(key, folder / str(key), home, self._limits, is_restored=True))

    def _parts(
        self, wants: Callable[[str], bool], metadata: ClusterMetadata | None
    ) -> dict[SourceRoot | None, dict[kf.TopicPartition, Copy | None]]:
        """The local parts to complete, by their log dirs; None for partitions that are in no source."""
        by_root: dict[SourceRoot | None, dict[kf.TopicPartition, Copy | None]] = {}
        is_whole = any(root.is_log_dir for root in self._sources.roots)
        for key in sorted(filter(lambda key: wants(key.topic), self._store.remote_partitions)):
            copies = self._sources.copies.get(key, [])
            if len(copies) > 1 and not self._is_each:
                copies = [max(copies, key=lambda one: (LogProgress(one.latest_epoch, one.known_end), str(one.path)))]
            for copy in copies:
                by_root.setdefault(copy.root, {})[key] = copy
            topic_ids = {one.topic_id for one in self._store.remote_partitions[key]}
            is_known = metadata is None or metadata.topic_ids.get(key.topic) in topic_ids
            if is_whole and is_known and not copies:
                by_root.setdefault(None, {})[key] = None
        return by_root

    def _write(
        self,
        root: SourceRoot | None,
        keys: Iterable[kf.TopicPartition],
        folder: Path,
        note: Callable[[Finding], object],
    ) -> None:
        opened = self._opened(root)
        self._names[str(folder)] = self._store.joined_to(None).url if root is None else str(root.path)
        with staged_directory(folder) as staged:
            findings = write_partitions(opened, keys, staged, on_error=lambda error: note(error.to_finding()))
        for finding in dict.fromkeys(findings):
            # without a local part, nobody knows how much was not copied yet
            is_end = finding.reason is Reason.LOG_END_MISSING
            note(replace(finding, damage=True) if is_end else finding)

    def _opened(self, root: SourceRoot | None) -> LogDir:
        """The partitions in remote storage, joined to those of a log dir."""
        if root not in self._joined:
            store = self._store.joined_to(None if root is None else root.path)
            if self._metadata is not None:
                store.metadata = self._metadata
            self._joined[root] = LogDir(Location(store, ""), limits=self._limits)
        return self._joined[root]

    def named(self, text: str) -> str:
        """A text of a report, with the names of the log dirs instead of the folders."""
        for folder, name in self._names.items():
            text = text.replace(folder, name)
        return text
