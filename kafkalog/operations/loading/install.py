"""Installs a finished partition in the log dir of a stopped broker, so that the broker serves it as its own.

A broker identifies its partitions by topic id, and applies the offsets in the log dir's checkpoints to them. A copied
directory alone would be set aside as a stray, or lose data to the checkpoint of an older partition of that name.
Mirrors what `LogManager`, `UnifiedLog` and `LogLoader` check before they load a directory. The source is only read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    Finding,
    KafkalogError,
    Limits,
    NotKafkaError,
    OutputExistsError,
    ReadError,
    Reason,
    TruncatedTailError,
    UnsafePathError,
)
from kafkalog.html import HtmlReport
from kafkalog.log.directory import Directory
from kafkalog.log.partition import Partition
from kafkalog.operations.rebuilding.index_interval import index_interval
from kafkalog.operations.rebuilding.rebuilder import KINDS
from kafkalog.operations.rebuilding.reindex import reindex
from kafkalog.operations.verifying.verify import verify as verify_path
from kafkalog.state.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    encode_offset_checkpoint,
    encode_partition_metadata,
    parse_topic_id,
    read_offset_checkpoint,
    read_topic_id,
)
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.state.producers import read_snapshot
from kafkalog.state.properties import read_properties
from kafkalog.storage.atomic import resolve
from kafkalog.storage.broker_lock import hold_locks, hold_partitions, refuse_if_locked
from kafkalog.storage.copying import copy_file
from kafkalog.storage.files import file_status, read_if_there
from kafkalog.storage.listing import Listing
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.output_paths import check_stage_in, copy_ownership, has_directory, staging_directory
from kafkalog.storage.staging import StagedDirectory, staged_directory, staged_file
from kafkalog.survey.topics import TopicSettings
from kafkalog.writing.partition_writer import check_partition_name


@dataclass(slots=True)
class InstallReport(HtmlReport):
    """What was installed."""

    path: str
    """The partition's new directory."""
    topic_partition: kf.TopicPartition
    topic_id: str | None
    """The id by which the broker knows the topic; None if the log dir has no topic ids."""
    log_start_offset: int
    log_end_offset: int
    n_segments: int
    n_bytes: int
    """Number of `.log` files, and their bytes."""
    is_replaced: bool = False
    """Whether the partition's directory existed before."""
    is_rebuilt: bool = False
    """Whether indexes or snapshots were missing or wrong, and were rebuilt."""
    checkpoints: list[str] = field(default_factory=list)
    """Names of the log dir's checkpoints from which a line about the partition was removed."""
    findings: list[Finding] = field(default_factory=list)
    """Remarks, for example that leader epochs are newer than the cluster's."""


def install(
    partition_dir: str | os.PathLike[str],
    log_dir: str | os.PathLike[str],
    *,
    topic_id: str | bytes | uuid.UUID | None = None,
    replace: bool = False,
    verify: bool = True,
    stage_in: str | os.PathLike[str] | None = None,
    metadata_log_dir: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> InstallReport:
    """Copy a partition into a stopped broker's log dir, with the topic id that the broker expects.

    Parameters
    ----------
    partition_dir : path-like
        The partition, named ``TOPIC-N``. It is only read.
    log_dir : path-like
        One of the broker's `log.dirs`. The topic must exist in the cluster; an empty partition is replaced.
    topic_id : str, bytes or uuid.UUID, optional
        The topic id. Needed only if the log dir holds neither the cluster's metadata nor the partition.
    replace : bool
        Whether a partition with records may be replaced.
    verify : bool
        Whether to check all checksums and indexes of the partition first.
    stage_in : path-like, optional
        Directory outside the log dir, on its file system, to stage files in; default: beside the log dir.
    metadata_log_dir : path-like, optional
        The broker's `metadata.log.dir`; default: `log_dir`.
    limits : Limits
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes copied since the last call.

    Returns
    -------
    InstallReport

    Raises
    ------
    UnsafePathError
        A broker runs on either log dir; the cluster has no such topic or partition; this broker is not a replica of it.
    OutputExistsError
        The log dir has a partition with records, and `replace` is False.
    CorruptionError, TruncatedTailError
        The partition is damaged: a broker that was shut down cleanly would neither check nor cut it.
    WriteError
        The partition could not be written; the log dir is unchanged.

    Notes
    -----
    The log dir's `.kafka_cleanshutdown` is left alone. With that file a broker checks nothing when it starts. Missing
    or wrong indexes and snapshots are therefore rebuilt here; without the file the broker rebuilds them itself.

    First, lines about the partition are removed from the four checkpoints: an old log start offset would make the
    broker delete new records. Then the directory appears in one step. If the log starts inside its first segment, its
    log start offset is written to the checkpoint last. A crash leaves the partition as it was before, except for those
    lines, or complete. The broker's lock is held from start to end.

    Other replicas are not changed: install the same partition on all of them, or use a topic with one replica.

    Source: LogManager.loadLogs, LogManager.isStrayKraftReplica, LogLoader.load, Kafka 4.3.
    """
    source, root = resolve(partition_dir), resolve(log_dir)
    key = check_partition_name(source)
    target = root / str(key)
    given = None if topic_id is None else parse_topic_id(topic_id)
    if source == target:
        raise UnsafePathError(Reason.UNSAFE_PATH, "it is already in the log dir", path=source)
    # the source may be of a running broker, too: its files would change while they are copied
    refuse_if_locked([source.parent])
    with (
        hold_locks([root]),
        BrokerLogDir(
            root, topic_id=given, replace=replace, metadata_log_dir=metadata_log_dir, limits=limits
        ) as targets,
    ):
        known_id, is_replaced = targets.check(key)
        partition = Partition(source, limits=limits)
        _check_source(partition, verify)
        stage_in = staging_directory(target, stage_in)
        report = InstallReport(
            str(target),
            key,
            known_id,
            partition.log_start_offset,
            partition.log_end_offset,
            len(partition.segments),
            partition.size_in_bytes,
            is_replaced,
        )
        report.findings += _epoch_findings(partition, targets.cluster)
        with Checkpoints(root, stage_in) as checkpoints:
            with staged_directory(target, overwrite=is_replaced or None, stage_in=stage_in) as staged:
                _copy(partition, staged, progress)
                if known_id is not None:
                    with staged.create(kf.PARTITION_METADATA) as file:
                        file.write(encode_partition_metadata(known_id))
                report.is_rebuilt = _complete(partition, staged, root, limits)
                copy_ownership(staged.path, root)
                # before the directory appears: an old log start offset would delete new records
                report.checkpoints = checkpoints.remove_partitions({key})
            checkpoints.keep_removals()
            # and only after it: for the old partition this offset would be wrong
            if partition.log_start_offset > partition.segments[0].base_offset:
                checkpoints.set_log_start_offset(key, partition.log_start_offset)
    return report


def stray_note(log_dir: Path) -> str:
    """What a KRaft broker does with new partitions without a topic id in its log dir; "" for any other directory.

    Source: LogManager.isStrayKraftReplica, BrokerMetadataPublisher.initializeManagers, Kafka 4.3.
    """
    properties = read_properties(log_dir / kf.META_PROPERTIES)
    if properties is None or properties.get("version") == "0":
        return ""
    return (
        f"{log_dir} is a broker's own log dir (meta.properties), and without a topic id the broker renames these"
        " partitions to -stray and later deletes them: for topics that the cluster has, use install=True (--install),"
        " or give topic_id (--topic-id)"
    )


class BrokerLogDir:
    """Checks partitions against a stopped broker's log dir before they are installed.

    `check` writes nothing, so that many partitions can be checked before the first one is installed. Existing
    partitions stay locked against other writers until the ``with`` block ends. `cluster` is None without a metadata
    log. Raises NotKafkaError for a log dir without `meta.properties`.
    """

    def __init__(
        self,
        root: Path,
        *,
        topic_id: str | bytes | uuid.UUID | None = None,
        replace: bool = False,
        metadata_log_dir: str | os.PathLike[str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        meta = read_properties(root / kf.META_PROPERTIES)
        if meta is None:
            detail = "no meta.properties: name a log dir that a broker has formatted"
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=root)
        self._root, self._meta, self._replace, self._limits = root, meta, replace, limits
        self._given = None if topic_id is None else parse_topic_id(topic_id)
        self._metadata_dir = root if metadata_log_dir is None else Path(metadata_log_dir)
        self.cluster = cluster_metadata(self._metadata_dir, limits=limits)
        self._checked: dict[str, str | None] = {}
        self._locks = contextlib.ExitStack()

    def __enter__(self) -> BrokerLogDir:
        return self

    def __exit__(self, *error: object) -> None:
        self._locks.close()

    def check(self, key: kf.TopicPartition) -> tuple[str | None, bool]:
        """Lock a partition; return the topic id that the broker expects, and whether its directory exists."""
        known_id = self._expected_id(key)
        self._locks.enter_context(hold_partitions([self._root / str(key)]))
        # locked before it is looked at, so that nobody adds records in between
        is_there = _check_target(self._root / str(key), self._replace, self._limits)
        self._checked[str(key)] = known_id
        return known_id, is_there

    def complete(self, staged: Path) -> None:
        """Prepare a staged partition that was checked: write its topic id, and copy the mode of the directory."""
        known_id, target = self._checked[staged.name], self._root / staged.name
        if known_id is not None:
            with staged_file(staged / kf.PARTITION_METADATA, overwrite=True) as file:
                file.write(encode_partition_metadata(known_id))
        with contextlib.suppress(OSError, ReadError):  # there may be none yet
            staged.chmod(stat.S_IMODE(file_status(target).st_mode))

    def _expected_id(self, key: kf.TopicPartition) -> str | None:
        found: str | None
        cluster = self.cluster if self.cluster is not None and self.cluster.is_complete else None
        if cluster is not None and (key.topic in cluster.topic_ids or self._given is None):
            found = _assigned_id(self._root, key, cluster, self._meta)
        else:
            found = read_topic_id(self._root / str(key))
        if found is None and self._given is None and self._meta.get("version") != "0":
            detail = (
                f"the topic id is unknown: {self._metadata_dir} has no complete metadata log, and no partition of this"
                " topic; set the broker's metadata.log.dir (metadata_log_dir, --metadata-log-dir) or the id (topic_id,"
                " --topic-id)"
            )
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self._root / str(key))
        if None not in (found, self._given) and found != self._given:
            detail = f"the topic id is {found} here, not {self._given}"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self._root / str(key))
        return self._given if found is None else found


def _assigned_id(root: Path, key: kf.TopicPartition, cluster: ClusterMetadata, meta: dict[str, str]) -> str:
    found = cluster.topic_ids.get(key.topic)
    assigned = cluster.partition(key)
    if found is None:
        problem = f"the cluster has no topic {key.topic!r}: create it first"
    elif assigned is None:
        problem = f"the topic has no partition {key.partition}: add it first"
    elif meta.get("node.id", "").isdecimal() and meta["node.id"] not in map(str, assigned.replicas):
        problem = f"broker {meta['node.id']} is not among its replicas, {assigned.replicas}"
    else:
        return found
    raise UnsafePathError(
        Reason.UNSAFE_PATH, f"{problem}; a broker would set the partition aside", path=root / str(key)
    )


def _check_source(partition: Partition, verify: bool) -> None:
    """Raise for a partition that a broker would not serve, or not start on."""
    if not partition.segments:
        raise NotKafkaError(Reason.NOT_KAFKA, "it holds no segments", path=partition.path)
    for finding in partition.findings:
        if finding.reason is Reason.SWAP_FILE:
            detail = "the cleaner's output is half moved into place: let a broker finish that, or recover it"
            raise CorruptionError(finding.reason, detail, path=finding.path)
    if verify:
        for finding in verify_path(partition).findings:
            if (finding.path or "").endswith(kf.LOG_SUFFIX):
                _refuse(finding)
    partition.segments[-1].next_offset  # noqa: B018 - reading it adds findings about the segment's end
    for finding in partition.segments[-1].findings:
        _refuse(finding)


def _refuse(finding: Finding) -> None:
    kind = TruncatedTailError if finding.is_torn else CorruptionError
    detail = f"{finding.detail}; after a clean shutdown a broker does not check this, and may not start"
    raise kind.about(finding, detail)


def _check_target(target: Path, replace: bool, limits: Limits) -> bool:
    """Whether the partition exists; raises if it has records and may not be replaced."""
    if not has_directory(target):
        return False
    if target.is_symlink():
        raise UnsafePathError(Reason.UNSAFE_PATH, "the path is a link, which is not replaced", path=target)
    size = Partition(target, limits=limits).size_in_bytes
    if size and not replace:
        detail = f"the partition already has {size} bytes of records; replace=True (--replace) replaces it"
        raise OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=target)
    return True


def _epoch_findings(partition: Partition, cluster: ClusterMetadata | None) -> list[Finding]:
    key = partition.topic_partition
    assigned = cluster.partition(key) if cluster is not None and key is not None else None
    epochs = partition.leader_epochs
    if assigned is None or not epochs.size or int(epochs["epoch"].max()) <= assigned.leader_epoch:
        return []
    detail = (
        f"its leader epochs go to {epochs['epoch'].max()}, the cluster's to {assigned.leader_epoch}: the broker drops"
        " the later ones with a warning, and consumers may report truncated records"
    )
    return [Finding(Reason.EPOCH_ORDER, detail, path=str(partition.path), damage=False)]


def _copy(partition: Partition, staged: StagedDirectory, progress: Callable[[int], object]) -> None:
    """Copy the files of the partition, except those that a broker would delete."""
    bases = {segment.base_offset for segment in partition.segments}
    for segment in partition.segments:
        copy_file(segment.path, staged, kf.segment_file_name(segment.base_offset), progress=progress)
        for suffix in kf.INDEX_SUFFIXES:
            if segment.has_sidecar(suffix):
                copy_file(segment.sidecar_path(suffix), staged, kf.segment_file_name(segment.base_offset, suffix))
    directory = Directory(partition.path)
    for name, offset in directory.snapshots.items():
        if offset in {*bases, partition.log_end_offset}:
            copy_file(partition.path / name, staged, name)
    if kf.LEADER_EPOCH_CHECKPOINT in directory.files:
        copy_file(partition.path / kf.LEADER_EPOCH_CHECKPOINT, staged, kf.LEADER_EPOCH_CHECKPOINT)


def _complete(partition: Partition, staged: StagedDirectory, root: Path, limits: Limits) -> bool:
    """Rebuild indexes and snapshots if one of them is missing or wrong; returns whether they were rebuilt."""
    if (
        not _lacks_files(partition, staged.path)
        and verify_path(
            Partition(staged.path, log_start_offset=partition.log_start_offset, limits=limits), indexes_only=True
        ).ok
    ):
        return False
    interval = index_interval(partition, TopicSettings.of([root], limits=limits))
    reindex(staged.path, kinds=KINDS, in_place=True, index_interval_bytes=interval.n_bytes, limits=limits)
    return True


def _lacks_files(partition: Partition, path: Path) -> bool:
    needed = {
        kf.segment_file_name(one.base_offset, suffix) for one in partition.segments for suffix in kf.INDEX_SUFFIXES[:2]
    }
    if not needed.issubset(Listing(path).names):
        return True
    end = partition.log_end_offset
    if end == partition.segments[0].base_offset:
        return False
    try:
        read_snapshot(path / kf.segment_file_name(end, kf.PRODUCER_SNAPSHOT_SUFFIX))
    except KafkalogError:
        return True
    return False


class Checkpoints:
    """Changes a log dir's offset checkpoints; restores them if the ``with`` block raises before `keep_removals`."""

    def __init__(self, root: Path, stage_in: str | os.PathLike[str]) -> None:
        self._root, self._stage_in = root, stage_in
        self._old: dict[Path, bytes] = {}

    def __enter__(self) -> Checkpoints:
        for name in kf.OFFSET_CHECKPOINTS:
            read_offset_checkpoint(self._root / name)  # an unreadable one raises before anything is changed
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for path, content in self._old.items():
                with contextlib.suppress(KafkalogError):
                    self._write(path, content)

    def remove_partitions(self, keys: Container[kf.TopicPartition]) -> list[str]:
        """Remove the lines of partitions, and return the names of the checkpoints that were changed."""
        changed = []
        for name in kf.OFFSET_CHECKPOINTS:
            offsets = read_offset_checkpoint(self._root / name)
            kept = {key: offset for key, offset in (offsets or {}).items() if key not in keys}
            if offsets is not None and len(kept) < len(offsets):
                self._change(name, kept)
                changed.append(name)
        return changed

    def keep_removals(self) -> None:
        """Keep the removals: the partitions they belonged to no longer exist."""
        self._old.clear()

    def set_log_start_offset(self, key: kf.TopicPartition, offset: int) -> None:
        """Write the log start offset of a partition whose log starts inside its first segment."""
        offsets = read_offset_checkpoint(self._root / kf.LOG_START_OFFSET_CHECKPOINT) or {}
        self._change(kf.LOG_START_OFFSET_CHECKPOINT, {**offsets, key: offset})

    def _change(self, name: str, offsets: dict[kf.TopicPartition, int]) -> None:
        path = self._root / name
        old = read_if_there(path, max_bytes=MAX_CHECKPOINT_BYTES)
        if old is not None:
            self._old.setdefault(path, old)
        self._write(path, encode_offset_checkpoint(offsets))

    def _write(self, path: Path, content: bytes) -> None:
        with staged_file(path, overwrite=True, stage_in=self._stage_in, like=self._root) as file:
            file.write(content)


class LoadTarget(NamedTuple):
    """A directory to write partitions in, and a function to call with their keys when all are complete."""

    path: Path
    publish: Callable[[set[kf.TopicPartition]], object]


@contextlib.contextmanager
def load_target(
    log_dir: Path, stage_in: str | os.PathLike[str] | None, targets: BrokerLogDir | None
) -> Iterator[LoadTarget]:
    """Yield a directory to write partitions in; move them into the log dir when the block ends without an error.

    With `targets`, the log dir is that of a stopped broker, and existing partitions are replaced. Otherwise none of the
    partitions may exist. Raises UnsafePathError if `stage_in` lies where a broker would find the staged files.
    """
    if stage_in is not None:
        check_stage_in(stage_in)
    if not has_directory(log_dir):
        with staged_directory(log_dir, stage_in=stage_in) as staged:
            yield LoadTarget(staged.path, lambda _keys: None)
        return
    groups: list[list[Move]] = [[]]
    keys: set[kf.TopicPartition] = set()
    near = staging_directory(log_dir / "staged-0") if stage_in is None else stage_in
    with contextlib.nullcontext() if targets is None else Checkpoints(log_dir, near) as checkpoints:

        def prepare() -> None:
            # before the first partition is moved: a crash in between must not leave old offsets for new files
            if checkpoints is not None:
                checkpoints.remove_partitions(keys)

        with staged_additions(log_dir, groups, stage_in=near, prepare=prepare) as staged:

            def publish(loaded: set[kf.TopicPartition]) -> None:
                keys.update(loaded)
                for name in sorted(map(str, loaded)):
                    if targets is not None:
                        targets.complete(staged.path / name)
                    groups[0].append(Move(name, "add" if targets is None else "put"))
                copy_ownership(staged.path, log_dir)

            yield LoadTarget(staged.path, publish)
        if checkpoints is not None:
            checkpoints.keep_removals()
