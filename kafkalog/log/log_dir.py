"""One or several log dirs: a mapping from topic-partition to `Partition`.

Mirrors the reading half of `LogManager`: it finds the partition directories and reads the checkpoints of the log dir.
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, SupportsIndex, TypeVar, overload

from kafkalog import format as kf
from kafkalog import html
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    Limits,
    NotKafkaError,
    ReadError,
    Reason,
    SidecarError,
)
from kafkalog.log import live
from kafkalog.log.partition import CheckpointedOffsets, Partition, nameless_key
from kafkalog.log.segment_files import open_segment
from kafkalog.log.set_apart import PACKED, packed_note, packed_partitions
from kafkalog.parsing import TopicPatterns, check_partitions
from kafkalog.read_methods import ReadMethods
from kafkalog.state.checkpoints import node_id_of, read_offset_checkpoint
from kafkalog.state.leader_epochs import LogProgress
from kafkalog.state.properties import read_properties
from kafkalog.storage.files import size_if_there
from kafkalog.storage.listing import Listing, broken_link, is_directory, nearest
from kafkalog.storage.location import (
    AnyPath,
    AnyPlace,
    Place,
    is_url,
    kind_of,
    list_ahead,
    list_directory,
    parent_of,
    place_of,
    real_path,
)
from kafkalog.storage.removals import removed_directory
from kafkalog.text import counted, first_names


@dataclass(frozen=True, slots=True)
class PartitionPath:
    """Where a partition is, and its offsets from the checkpoints of its log dir."""

    path: Place
    segments: tuple[Place, ...] | None = None
    """The `.log` files that the caller named; None for the whole directory."""
    checkpointed: CheckpointedOffsets | None = None
    """None if the checkpoints were not read."""


class LogDir(ReadMethods, Mapping[kf.TopicPartition, Partition], metaclass=html.PublicAbstract):
    """The partitions of one or several log dirs, sorted by topic and number. Each is opened on first access.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        Log dirs, partition directories or `.log` files, in any mixture.
    memory_map : {"auto", True, False}
    limits : Limits

    Attributes
    ----------
    paths : list of pathlib.Path
    set_apart : dict of str to list of pathlib.Path
        Directories that a broker has renamed with a suffix, by kind: `"delete"`, `"future"`, `"stray"`. They are not
        among the partitions.
    findings : list of Finding
        Partitions found twice, links that lead out of a log dir or in a circle, malformed checkpoints.

    Notes
    -----
    If a partition is found twice, as in the log dirs of several brokers, the copy with the highest leader epoch wins,
    then the longest, then the first.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        memory_map: bool | str = "auto",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        named = located(paths if isinstance(paths, Located) else list(paths))
        given = {place_of(path): path for path in named}
        self.set_apart: dict[str, list[Place]] = _by_kind()
        self.findings: list[Finding] = []
        self.paths = each_once(map(place_of, named), self.findings.append)
        self.limits = limits
        self._options: dict[str, Any] = {"memory_map": memory_map, "limits": limits}
        self._found: dict[kf.TopicPartition, PartitionPath] = {}
        self._copies: dict[kf.TopicPartition, list[PartitionPath]] = {}
        self._opened: dict[kf.TopicPartition, Partition] = {}
        self._replicas: dict[Place, list[str]] = {}
        self._blank: list[Place] = []
        self._brokers: dict[Place, str | None] = {}
        self._topic: str | None = None
        files: dict[Place, list[Place]] = {}
        for path in [*self.paths]:
            kind = kind_of(path)
            if kind == "directory" and len(self.paths) > 1 and is_blank(path):
                self._blank.append(path)
            elif kind == "directory":
                self._add_directory(path)
            elif kind is not None:
                # only to raise for a name that is no segment's
                open_segment(path)
                files.setdefault(path.absolute().parent, []).append(path)
            else:
                raise missing_path(given[path], self.paths)
        for directory, segments in files.items():
            self._add_partition(directory, tuple(segments), None, None)
        if self._blank and len(self._blank) == len(self.paths):
            raise no_kafka_files(self._blank[0])
        self.findings += map(blank_disk, self._blank)
        self._found = dict(sorted(self._found.items()))
        for root, names in self._replicas.items():
            shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
            what = f"{counted(len(names), 'partition')} ({shown}) that are also open as replicas of another broker"
            detail = f"{what}. {_WHICH_COUNTS}"
            self.findings.append(Finding(Reason.PARTITION_TWICE, detail, path=str(root), damage=False))

    @overload
    def __getitem__(self, key: tuple[str, int] | int) -> Partition: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: tuple[str, int] | int | str) -> Partition | LogDir:
        """Return the partition ``("orders", 0)`` or ``"orders-0"``, or all partitions of the topic ``"orders"``.

        ``log_dir["orders"][0]`` is a partition, too.
        """
        if isinstance(key, str) and key in self.topics and not self._has(key):
            return self._of_topic(key)
        key = self._key(key)
        if key not in self._opened:
            self._opened[key] = self._open(self._chosen(key))
        return self._opened[key]

    def _open(self, found: PartitionPath) -> Partition:
        # a .log that the caller named is read whole: no log start offset applies to it
        start = None if found.segments is None else 0
        options = {**self._options, "log_start_offset": start, "checkpointed": found.checkpointed}
        try:
            return Partition(found.path, segments=found.segments, **options)
        except ReadError as error:
            raise removed_directory(found.path) or error from None

    def list_ahead(self, keys: Iterable[kf.TopicPartition]) -> None:
        """List the directories of partitions together, if they are in a store and not open yet."""
        list_ahead(self._found[key].path for key in keys if key in self._found and key not in self._opened)

    def open_set_apart(self, path: Place) -> Partition:
        """Open one of the directories that a broker has renamed."""
        return self._open(PartitionPath(path))

    def _chosen(self, key: kf.TopicPartition) -> PartitionPath:
        """The copy of a partition that counts. Copies are compared once it is asked for."""
        copies = self._copies.get(key, [])
        if len(copies) > 1:
            copies[:] = [max(copies, key=self._progress)]
        return copies[0] if copies else self._found[key]

    def _progress(self, found: PartitionPath) -> LogProgress:
        """How far a copy has come; less than any other if it cannot be read."""
        try:
            one = self._open(found)
            return LogProgress(one.epoch_cache.latest, one.log_end_offset)
        except KafkalogError:
            return LogProgress(kf.NO_EPOCH - 1, -1)

    def _of_topic(self, topic: str) -> LogDir:
        """The partitions of one topic, which is named by this even if it is an internal one."""
        one = copy(self)
        one._found = {key: found for key, found in self._found.items() if key.topic == topic}
        one._topic = topic
        return one

    def _ipython_key_completions_(self) -> list[str]:
        """Return what a shell completes in ``log_dir["``: topics, then partitions."""
        return [*self.topics, *map(str, self)]

    def select(
        self,
        topics: Iterable[str] | str | None = None,
        partitions: Iterable[int] | int | None = None,
        *,
        internal: bool = True,
    ) -> list[kf.TopicPartition]:
        """Partitions of these topics with these numbers. They are not opened.

        Topics are names, globs such as ``orders.*``, and either of these after ``!`` for those to leave out. With
        `internal=False`, internal topics (`kafkalog.format.INTERNAL_TOPICS`) are left out, unless `topics` names
        them or the paths of this object include their directories or files.

        Raises
        ------
        ValueError
            There is no such topic, or none of the topics has a partition of this number.
        """
        patterns, numbered = TopicPatterns(topics), as_set(partitions)
        known = [*self, *self.keys_set_apart]
        patterns.check(list(dict.fromkeys(key.topic for key in known)))
        check_partitions(numbered, (key.partition for key in known if patterns.wants(key.topic)))
        named = TopicPatterns(topics, internal=internal)
        return [
            key
            for key in self
            if patterns.wants(key.topic) and (numbered is None or key.partition in numbered)
            if named.wants(key.topic) or self._is_named(key)
        ]

    @property
    def keys_set_apart(self) -> list[kf.TopicPartition]:
        """The partitions in `set_apart`."""
        found = [kf.parse_partition_directory(path.name) for paths in self.set_apart.values() for path in paths]
        return [one.topic_partition for one in found if one is not None]

    def _is_named(self, key: kf.TopicPartition) -> bool:
        """Whether a partition's directory, or files of it, are among `paths`."""
        found = self._found[key]
        return found.segments is not None or found.path in self.paths or key.topic == self._topic

    def path_of(self, key: kf.TopicPartition) -> PartitionPath:
        """Where a partition is. Opens it only if there are several copies of it."""
        return self._chosen(key)

    def __iter__(self) -> Iterator[kf.TopicPartition]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __bool__(self) -> bool:
        return bool(self._found)

    def __contains__(self, key: object) -> bool:
        """Whether there is a partition, or a topic of that name."""
        return self._has(key) or (isinstance(key, str) and key in self.topics)

    def _has(self, key: object) -> bool:
        return self._named(key) in self._found

    def _named(self, key: object) -> kf.TopicPartition | None:
        """The partition that a pair, ``topic-0`` or, of one topic, a number names, whether it is there or not."""
        if isinstance(key, str):
            directory = kf.parse_partition_directory(key)
            return directory and directory.topic_partition
        if isinstance(key, tuple) and len(key) == 2:
            return kf.TopicPartition(*key)
        if self._topic is None or not isinstance(key, SupportsIndex):
            return None
        return kf.TopicPartition(self._topic, operator.index(key))

    def _key(self, key: kf.TopicPartition | tuple[str, int] | str | int) -> kf.TopicPartition:
        """The partition of a key; raises KeyError if there is no such partition."""
        found = self._named(key)
        if found is not None and found in self._found:
            return found
        near = [str(one) for one in self._found if found is not None and one.topic == found.topic]
        near = near or [str(one) for one in self._found]
        shown = ", ".join(near[:8]) + (", ..." if len(near) > 8 else "")
        raise KeyError(f"no partition {key!r}; there are {shown or 'none'}: use log_dir[topic, number]")

    def __repr__(self) -> str:
        where = ", ".join(map(str, self.paths))
        topics = counted(len(self.topics), "topic") if self._topic is None else repr(self._topic)
        return f"LogDir({where!r}, {topics}, {counted(len(self), 'partition')})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a row for each partition."""
        return html.table(repr(self), _SHOWN, map(self._row, islice(self, html.MOST_ROWS)), n_rows=len(self))

    def _row(self, key: kf.TopicPartition) -> tuple[object, ...]:
        try:
            one = self[key]
        except KafkalogError as error:
            return str(key), None, None, None, str(error)
        return str(key), len(one.segments), one.size_in_bytes, one.log_start_offset, str(one.path)

    @property
    def topics(self) -> list[str]:
        """Names of the topics, sorted."""
        return html.Names(sorted({key.topic for key in self._found}), "log_dir")

    @property
    def is_live(self) -> bool:
        """Whether a broker holds the lock of one of the log dirs, so that files may change while they are read."""
        return any(live.is_live(path) for path in self.paths)

    def properties(self) -> dict[str, str]:
        """`meta.properties` of the first log dir that has one."""
        for path in self.paths:
            if properties := read_properties(path / kf.META_PROPERTIES):
                return properties
        return {}

    def _add_directory(self, root: Place) -> None:
        entries = list_directory(root)
        children = [(entry, kf.parse_partition_directory(entry.name)) for entry in entries if is_directory(entry)]
        if is_partition_directory(root, entries):
            self._add_partition(root, None, None, None)
            return
        partitions = (root / entry.name for entry, directory in children if directory)
        is_formatted = any(entry.name == kf.META_PROPERTIES for entry in entries)
        if not is_formatted and not any(map(_holds_log_files, partitions)):
            self._add_below(root)
            return
        packed = packed_note(root, {entry.name for entry in entries})
        self.findings += [] if packed is None else [packed]
        starts = self._offsets(root / kf.LOG_START_OFFSET_CHECKPOINT)
        watermarks = self._offsets(root / kf.HIGH_WATERMARK_CHECKPOINT)
        resolved = place_of(real_path(root))
        for entry in entries:
            is_link = kf.parse_partition_directory(entry.name) is not None and entry.is_symlink()
            if is_link and (detail := broken_link(entry)):
                self.findings.append(Finding(Reason.FILE_UNREADABLE, detail, path=str(root / entry.name)))
        for entry, directory in sorted(children, key=lambda child: child[0].name):
            path = root / entry.name
            if directory is None:
                if not entry.is_symlink() and _holds_segments(path):
                    detail = f"not read: it has segments, but {_NO_NAME}; name it to read them"
                    self.findings.append(Finding(Reason.UNKNOWN_FILE, detail, path=str(path), damage=False))
                continue
            # do not follow links out of the paths that were named: others may have made them
            if entry.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(resolved):
                target = os.path.realpath(path)
                detail = f"a link out of the log dir is not followed; name its target, {target}, to read it"
                self.findings.append(Finding(Reason.LINK_OUTSIDE, detail, path=str(path), damage=False))
            elif directory.kind is None:
                self._add_partition(path, None, starts, watermarks)
            elif not self._names(path):
                self.set_apart[directory.kind].append(path)

    def _names(self, path: Place) -> bool:
        """Whether a directory is named next to its log dir."""
        return len(self.paths) > 1 and real_path(path) in map(real_path, self.paths)

    def _add_below(self, root: Place) -> None:
        """Add the log dirs below the mount point of a volume, or of several."""
        below = log_dirs_below(root)
        if not below:
            raise no_kafka_files(root)
        at = self.paths.index(root)
        known = {real_path(path) for path in self.paths}
        below = [one for one in below if real_path(one) not in known]
        self.paths[at : at + 1] = below
        for one in below:
            self._add_directory(one)

    def _offsets(self, path: Place) -> dict[kf.TopicPartition, int]:
        try:
            return read_offset_checkpoint(path) or {}
        except (SidecarError, ReadError) as error:
            self.findings.append(error.to_finding())
            return {}

    def broker_of(self, root: Place) -> str | None:
        """The broker's id in the `meta.properties` of a log dir; None if that does not say."""
        if root not in self._brokers:
            properties: dict[str, str] = {}
            with contextlib.suppress(SidecarError, ReadError):
                properties = read_properties(root / kf.META_PROPERTIES) or {}
            self._brokers[root] = node_id_of(properties) or None
        return self._brokers[root]

    def _add_partition(
        self,
        path: Place,
        segments: tuple[Place, ...] | None,
        starts: Mapping[kf.TopicPartition, int] | None,
        watermarks: Mapping[kf.TopicPartition, int] | None,
    ) -> None:
        """`starts` and `watermarks` come from the checkpoints of the log dir; None if these were not read."""
        directory = kf.parse_partition_directory(path.name or path.absolute().name)
        key = directory.topic_partition if directory else nameless_key(path)
        checkpointed = None
        if starts is not None and watermarks is not None:
            checkpointed = CheckpointedOffsets(starts.get(key), watermarks.get(key))
        found = PartitionPath(path, segments, checkpointed)
        if key in self._found:
            first = self._found[key].path
            brokers = {self.broker_of(one.absolute().parent) for one in (first, path)}
            # replicas of several brokers are normal; one broker with a partition in two of its log dirs does not start
            is_replica = len(brokers) > 1 and None not in brokers
            if is_replica:
                self._replicas.setdefault(path.absolute().parent, []).append(str(key))
            else:
                detail = f"{key} is also at {first}; a broker would not start on both. {_WHICH_COUNTS}"
                self.findings.append(Finding(Reason.PARTITION_TWICE, detail, path=str(path)))
            self._copies.setdefault(key, [self._found[key]]).append(found)
            return
        self._found[key] = found


_SHOWN_NAMES: Final = 5
_LOST_AND_FOUND: Final = "lost+found"
_MOST_BELOW: Final = 100  # directories that an error looks into
_NO_NAME: Final = "its name is not a topic and a number, such as orders-0"
_WHICH_COUNTS: Final = "kafkalog reads the copy with the highest leader epoch, then the longest"
_SIDECARS: Final = frozenset({*kf.INDEX_SUFFIXES, kf.PRODUCER_SNAPSHOT_SUFFIX})
_PARTITION_FILES: Final = frozenset({kf.LEADER_EPOCH_CHECKPOINT, kf.PARTITION_METADATA})


_SHOWN: Final = ("partition", "segments", "bytes", "log start offset", "path")


def no_kafka_files(path: Place) -> NotKafkaError:
    """The error for a directory without partitions and without `meta.properties`; it names what may be meant."""
    detail = "no Kafka files here: name a log dir, a partition directory such as orders-0 in it, or a .log file"
    below = _below(path)
    for one in (path, *below, *itertools.chain.from_iterable(map(_below, below))):
        names = Listing.or_empty(one).names
        if one.name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(one.name) is not None:
            detail = f"no Kafka files here: {one} has the name of a segment, but it is a directory"
            break
        is_log_dir = kf.META_PROPERTIES in names or any(map(kf.parse_partition_directory, names))
        if one != path and _holds_segments(one):
            detail = f"no Kafka files here, but {one} has segments: {_NO_NAME}; name it to read them"
        elif one != path and is_log_dir:
            detail = f"no Kafka files here, but {one} looks like a log dir: name that"
        elif any(name.endswith(kf.PACKED_LOG_SUFFIXES) for name in names):
            detail = f"the .log files of {one} are compressed: unpack them first"
        elif packed := packed_partitions({*names}):
            detail = (
                f"no Kafka files here: {first_names([*packed])} in {one} has the name of a partition: unpack it first"
            )
        else:
            continue
        break
    return NotKafkaError(Reason.NOT_KAFKA, detail, path=path)


def log_dirs_below(path: Place, depth: int = 3) -> list[Place]:
    """The log dirs in a directory that is none, such as the mount point of a volume; empty if there are none.

    Strimzi has `data-0/kafka-log1` below its mount point, Bitnami's image `data`, and Helm charts `logs` or `topics`.
    Source: KafkaBrokerConfigurationBuilder.withLogDirs, Strimzi 1.2; kafka-env.sh, bitnami/kafka 3.4.
    """
    found: list[Place] = []
    below = _below(path) if depth else []
    for one in below:
        if is_log_dir(one):
            found.append(one)
        elif not one.name.startswith("."):
            # an archive may have all directories above: they are alone
            found += log_dirs_below(one, depth - (len(below) > 1))
    return found


def each_once(
    paths: Iterable[AnyPlace], note: Callable[[Finding], object], *, holds_renamed: bool = False
) -> list[AnyPlace]:
    """Paths without those that another of them has: the same directory, also through a link, or the log dir above.

    `note` gets a finding for each directory that is left out. A log dir has the directories that a broker has renamed
    only with `holds_renamed`: readers pass over them, unless they are named.
    """

    def is_held(directory: Place) -> bool:
        parsed = kf.parse_partition_directory(directory.name)
        return parsed is not None and (holds_renamed or parsed.kind is None)

    named = list(paths)
    if len(named) == 1:
        return named
    named = logs_among(named)
    given = [(path, place_of(real_path(path))) for path in named]
    first = {real: path for path, real in reversed(given)}
    found: dict[Place, AnyPlace] = {}
    for path, real in given:
        above: list[Place] = [parent_of(real)] if real.name.endswith(kf.LOG_SUFFIX) else []
        above += [parent_of(one) for one in [*above, real] if is_held(one)]
        other = first[real] if real in found else next((first[one] for one in above if one in first), None)
        if other is None:
            found[real] = path
        elif not real.name.endswith(kf.LOG_SUFFIX):
            detail = f"it is named twice: {other} is the same directory, or has it. It counts once"
            note(Finding(Reason.PARTITION_TWICE, detail, path=str(path), damage=False))
    return list(found.values())


_Named = TypeVar("_Named", bound=AnyPath)


def logs_among(paths: Iterable[_Named]) -> list[_Named]:
    """Paths without files that a broker has next to its partitions: a glob such as ``/var/lib/kafka/*`` names them."""
    named = list(paths)
    others = [path for path in named if not _is_next_to_partitions(path)]
    return others or named


def _is_next_to_partitions(path: AnyPath) -> bool:
    return os.path.basename(path) in _NEXT_TO_PARTITIONS and kind_of(path) == "file"


_NEXT_TO_PARTITIONS: Final = frozenset({*kf.LOG_DIR_FILES, *kf.OFFSET_CHECKPOINTS, kf.BOOTSTRAP_CHECKPOINT})


def log_dirs_at(path: Path) -> list[Path]:
    """The log dirs that a path stands for: itself, or those below if it is the mount point of a volume."""
    below = [] if is_log_dir(path) else [*map(Path, log_dirs_below(path))]
    return below if below and not is_partition_directory(path) else [path]


def is_log_dir(path: Place) -> bool:
    listing = Listing.or_empty(path)
    named = (name for name in listing.directories if kf.parse_partition_directory(name))
    return kf.META_PROPERTIES in listing.names or any(_holds_log_files(path / name) for name in named)


def check_log_dir(root: Place, directories: Iterable[Place]) -> None:
    """Raise if a directory is no log dir: it has no `meta.properties`, and no directory in it is a partition's."""
    if size_if_there(root / kf.META_PROPERTIES) is None and not any(map(is_partition_directory, directories)):
        raise no_kafka_files(root)


def _below(path: Place) -> list[Place]:
    listing = Listing.or_empty(path)
    return [path / name for name in listing.directories[:_MOST_BELOW] if not listing.entries[name].is_symlink()]


def _holds_segments(path: Place) -> bool:
    return any(map(_is_segment, Listing.or_empty(path).entries.values()))


_MOST_NAMED: Final = 5


def missing_path(path: str | os.PathLike[str], beside: Iterable[Place] = ()) -> ReadError:
    """The error for a path that does not exist; it may be meant as a topic of a log dir that it is in, or `beside`."""
    detail = "no such file or directory"
    topic = place_of(path).name
    for place in (place_of(path).parent, *beside):
        names = map(kf.parse_partition_directory, Listing.or_empty(place).directories)
        if any(name is not None and name.topic_partition.topic == topic for name in names):
            detail += f"; {place} has a topic of that name: open it with topics={topic!r} (-t {topic})"
            break
    if re.search(r"[*?[]", topic) and (topics := _topics_of_glob(place_of(path))):
        some = f" with topics={topics!r} (-t {','.join(topics)})" if topic != "*" else ", which has all"
        detail += f"; a path is no glob: open {place_of(path).parent}{some}"
    if near_by := _other_partitions(place_of(path)):
        detail += f"; {place_of(path).parent} has {near_by}"
    detail += _not_of_here(str(path))
    if ";" not in detail:
        detail += nearest(place_of(path))
    return ReadError(Reason.FILE_UNREADABLE, detail, path=path)


class Located(list[Any]):
    """Paths that were located just now: their listings are still right."""


def located(path: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """The path, or the paths, with a `Location` for each URL."""
    if isinstance(path, Located) or not any(map(is_url, path if isinstance(path, (list, tuple)) else [path])):
        return path
    # only here: whoever reads local files needs no other libraries
    from kafkalog.storage.stores import locate

    return locate(path, storage_options)


def as_set(wanted: Iterable[Any] | int | None) -> set[Any] | None:
    """A set of names or numbers, from one or several; None, which means all, stays None."""
    return None if wanted is None else {wanted} if isinstance(wanted, (str, int)) else set(wanted)


def _holds_log_files(path: Place) -> bool:
    """Whether a directory holds a file of a partition: a segment, or what is left of one that was lost."""
    try:
        return any(
            _is_segment(entry) or os.path.splitext(entry.name)[1] in _SIDECARS or entry.name in _PARTITION_FILES
            for entry in list_directory(path)
        )
    except ReadError:
        return True  # the directory exists but cannot be listed: reading it raises the error


def _is_segment(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a segment. Other files may end in `.log` too, such as a broker's own log files."""
    return (
        entry.name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(entry.name) is not None and not is_directory(entry)
    )


_IS_DIRECTORY: Final = operator.methodcaller("is_dir")


def is_partition_directory(path: Place, entries: list[os.DirEntry[str]] | None = None) -> bool:
    """Whether a directory holds segments, or is named like a partition and holds more than directories.

    A volume may have such a name, as data-0, and files next to its log dirs. A log dir is none, though somebody has put
    a segment next to its partitions; a partition stays one, though somebody has put a copy of another into it.
    """
    entries = list_directory(path) if entries is None else entries
    has_segments = any(map(_is_segment, entries))
    # most partitions have no directories
    with contextlib.suppress(OSError):  # of a link that leads in a circle
        if has_segments and not any(map(_IS_DIRECTORY, entries)):
            return True
    is_named_so = kf.parse_partition_directory(path.name or path.absolute().name) is not None
    if not has_segments and not is_named_so:
        return False
    below = [entry.name for entry in entries if is_directory(entry)]
    has_partitions = any(map(kf.parse_partition_directory, below))
    if has_segments:
        return not has_partitions or _is_a_partitions({entry.name for entry in entries}, is_named_so=is_named_so)
    if has_partitions or len(below) == len(entries) > 0:
        return False
    return not below or not log_dirs_below(path)


def _is_a_partitions(names: set[str], *, is_named_so: bool) -> bool:
    """Whether a directory with segments and these files is a partition, by what only one of the two kinds has."""
    return bool(names & _PARTITION_FILES) or (is_named_so and kf.META_PROPERTIES not in names)


def _by_kind() -> dict[str, list[Place]]:
    """No directory yet of each kind that a broker renames."""
    return {kind: [] for kind in kf.RENAMED_KINDS}


def is_empty_disk(path: Place) -> bool:
    """Whether a directory named like a partition has no file of one: a disk may be called disk-3.

    In a log dir, it is a partition whose files are gone.
    """
    return kf.parse_partition_directory(path.name) is not None and not (
        _holds_log_files(path) or is_log_dir(path) or is_log_dir(parent_of(path))
    )


def is_blank(path: Place) -> bool:
    """Whether a directory is a disk without any file of Kafka, and not a partition in a log dir."""
    is_named_so = kf.parse_partition_directory(path.name) is not None
    names = {name for name in Listing.or_empty(path).names if not name.endswith(PACKED)}
    return names <= {_LOST_AND_FOUND} and (not is_named_so or is_empty_disk(path))


def blank_disk(path: Place) -> Finding:
    """The note about a disk that was named next to others, and has nothing of Kafka."""
    packed = [name for name in Listing.or_empty(path).names if name.endswith(PACKED)]
    detail = "no Kafka files here: a disk that is empty, or not mounted. What it had is missing"
    if packed:
        detail = f"no Kafka files here, and {first_names(packed)} is not read: unpack it first, and name what is in it"
    return Finding(Reason.NOT_KAFKA, detail, path=str(path), damage=False)


def log_dir_of(path: Place) -> Place:
    """The log dir of a partition directory; any other path is its own, also an empty disk."""
    is_partition = is_partition_directory(path, [*Listing.or_empty(path).entries.values()])
    return parent_of(path) if is_partition and not is_empty_disk(path) else path


def _not_of_here(path: str) -> str:
    """The end of the message about a path that does not exist, if it is one of Windows, a pipe or a broker."""
    if re.match(r"[A-Za-z]:[\\/]", path):
        return f"; this is a path of Windows: in WSL it is /mnt/{path[0].lower()}{_unix_path(path[2:])}"
    if "\\" in path and kind_of(place_of(_unix_path(path))) is not None:
        return f"; did you mean {_unix_path(path)}?"
    if not path:
        return "; the path is empty: name a log dir, such as /var/lib/kafka, or . for the current directory"
    if path == "-":
        return "; logs are read from files, not from a pipe: name a log dir, a partition directory or a .log file"
    found = re.fullmatch(r"(.+)@(\d+)", path)
    if found is not None and kind_of(place_of(found[1])) is not None:
        return f"; the record is kafkalog cat {found[1]} --start-offset {found[2]} -n 1"
    if re.fullmatch(r"[\w.-]+:\d+", path):
        return "; kafkalog reads files, not brokers: name a log dir, such as /var/lib/kafka"
    return ""


def _unix_path(path: str) -> str:
    return path.replace("\\", "/")


def _topics_of_glob(path: Place) -> list[str]:
    """The topics that the last part of a path matches, or whose partition directories it does."""
    parsed = {name: kf.parse_partition_directory(name) for name in Listing.or_empty(path.parent).directories}
    topics = {name: one.topic_partition.topic for name, one in parsed.items() if one is not None}
    return sorted({topic for name, topic in topics.items() if fnmatch.filter((name, topic), path.name)})


def _other_partitions(path: Place) -> str:
    """The directories of the same topic next to one that does not exist, as text; empty if there are none."""
    asked = kf.parse_partition_directory(path.name)
    if asked is None:
        return ""
    named = {name: kf.parse_partition_directory(name) for name in Listing.or_empty(path.parent).directories}
    of_topic = {
        name: parsed.topic_partition.partition
        for name, parsed in named.items()
        if parsed is not None and parsed.topic_partition.topic == asked.topic_partition.topic
    }
    names = sorted(of_topic, key=of_topic.__getitem__)
    return ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if names[_MOST_NAMED:] else "")
