"""Rescues a quorum of controllers of which one survives: makes the survivor the only voter.

In a dynamic quorum, the voters are records of the metadata log: one appended control batch names the survivor alone. In
a static quorum, they are a setting, and nothing is written. The old files are backed up first.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.booting.metadata_log import control, control_batch
from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Limits, NotKafkaError, Reason, UnsafePathError
from kafkalog.log.partition import Partition
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.state.properties import read_properties
from kafkalog.storage.broker_lock import hold_locks, refuse_if_locked
from kafkalog.storage.copying import Backup
from kafkalog.storage.files import read_file
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import local_path
from kafkalog.storage.output_paths import check_outside, staging_directory
from kafkalog.storage.staging import staged_file
from kafkalog.survey.startup_root import root_problems

_LEVEL: Final = "kraft.version"


@leading_names
@dataclass(slots=True)
class QuorumRescue:
    """The result of `rescue_quorum`."""

    path: str
    """The log dir with the metadata log."""
    node_id: int
    is_dynamic: bool
    """Whether the voters are in the metadata log, not in `controller.quorum.voters`."""
    end_offset: int
    """The metadata log's end: records that the others committed later are lost."""
    leader_epoch: int
    timestamp: int
    """Of the last record, in ms; -1 for none."""
    voters: list[int] = field(default_factory=list)
    """Ids of the previous voters; empty if unknown."""
    orphaned: dict[str, list[int]] = field(default_factory=dict)
    """Partitions without a replica on this node, by topic: they will have no leader."""
    problems: list[str] = field(default_factory=list)
    """What else stops a start, with the file."""
    is_written: bool = False
    backup: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {**asdict(self), "next_steps": self.next_steps()}

    def next_steps(self) -> list[str]:
        """What to do next, in order."""
        steps = []
        if self.is_dynamic:
            steps.append("set controller.quorum.bootstrap.servers to this node's own controller listener")
        else:
            steps.append(f"set controller.quorum.voters={self.node_id}@HOST:PORT, with this node's controller listener")
        # without a quorum-state, a node takes the epoch of its log; the only voter needs no record of its vote
        verbs = ["move away" if kf.QUORUM_STATE in one else "repair" for one in self.problems]
        steps += [f"{verb} what stops the start: {one}" for verb, one in zip(verbs, self.problems, strict=True)]
        steps.append(f"start node {self.node_id}; never start the lost voters again with this cluster id")
        steps.append(
            "if partitions have no leader: kafka-leader-election.sh --bootstrap-server HOST:PORT"
            " --election-type UNCLEAN --all-topic-partitions"
        )
        return steps


def rescue_quorum(
    log_dir: str | os.PathLike[str],
    *,
    backup: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    stage_in: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> QuorumRescue:
    """Make the surviving controller of a quorum the only voter, so that it starts alone.

    Parameters
    ----------
    log_dir : path-like
        The `metadata.log.dir` of the survivor (the first of its log dirs unless that is set), or its
        `__cluster_metadata-0`.
    backup : path-like, optional
        A new directory for the files that are replaced. Needed unless `dry_run`, or for a static quorum.
    dry_run : bool
        Write nothing.
    stage_in : path-like, optional
        Directory on the same file system to write the new file in; default: next to the log dir.
    limits : Limits

    Returns
    -------
    QuorumRescue

    Raises
    ------
    NotKafkaError
        There is no metadata log, or no `meta.properties` with the ids of the node and its directory.
    UnsafePathError
        The node is running, or is not a voter.
    CorruptionError
        The metadata log is damaged, or incomplete.

    Notes
    -----
    Records that the lost majority committed after this node's last record are lost: choose the survivor with the
    highest `end_offset`. Records at the end of this log become committed even if no majority had them.

    Source: KRaftControlRecordStateMachine, VoterSet, Kafka 4.3.
    """
    root = Path(os.path.realpath(log_dir))
    root = root.parent if root.name == kf.METADATA_DIRECTORY else root
    directory = root / kf.METADATA_DIRECTORY
    refuse_if_locked([root])
    metadata = cluster_metadata(root, limits=limits)
    properties = read_properties(root / kf.META_PROPERTIES) or {}
    if metadata is None or not properties.get("node.id", "").isdecimal():
        detail = f"no {kf.METADATA_DIRECTORY} with a meta.properties next to it: name the survivor's metadata.log.dir"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=root)
    for finding in metadata.gaps:
        detail = f"{finding.detail}. Rescue another voter, or boot the partitions with kafkalog boot"
        raise CorruptionError.about(finding, detail)
    partition = Partition(directory, limits=limits)
    if not partition.segments or partition.log_end_offset < metadata.end_offset:
        detail = "the log ends before its newest snapshot: rescue another voter, or boot the partitions (kafkalog boot)"
        raise CorruptionError(Reason.LOG_END_MISSING, detail, path=directory)
    result = _described(root, int(properties["node.id"]), metadata, partition)
    result.problems = [f"{one.path}: {one.detail}" for one in root_problems([root], limits=limits)]
    directory_id = properties.get("directory.id", "")
    own = [one for one in metadata.voters if one["voterId"] == result.node_id]
    if result.is_dynamic and (not own or own[0]["voterDirectoryId"] != directory_id):
        detail = (
            f"node {result.node_id} with directory {directory_id or '-'} is not a voter; the voters are {result.voters}"
        )
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=root)
    if dry_run or not result.is_dynamic:
        return result
    if backup is None:
        raise ValueError("backup= names a directory for the files that are replaced; or use dry_run=True")
    check_outside(backup, [root], is_new=True)
    record = control(kf.ControlRecordType.KRAFT_VOTERS, "VotersRecord", voters=own)
    batch = control_batch(partition.log_end_offset, [record], time.time_ns() // 10**6, result.leader_epoch)
    with hold_locks([root]):
        _append(partition, batch, Backup(backup), staging_directory(root / kf.META_PROPERTIES, stage_in), limits)
    result.is_written, result.backup = True, os.fspath(backup)
    return result


def _append(partition: Partition, batch: bytes, backup: Backup, stage_in: Path, limits: Limits) -> None:
    """Replace the last segment by one that ends with a batch, in one step, and without a torn tail."""
    last = partition.segments[-1]
    size = 0
    with last.open() as source:
        for window in last.iter_windows(source, on_corruption="raise"):
            if len(window.batches):
                size = int(window.batches.next_position[-1])
            source.release(window.data, window.start)
    path = local_path(last.path)
    content = read_file(path, max_bytes=limits.max_segment_bytes)[:size]
    backup.keep(path, path.name)
    backup.sync()
    with staged_file(path, overwrite=True, stage_in=stage_in) as file:
        file.write(content + batch)


def _described(root: Path, node_id: int, metadata: ClusterMetadata, partition: Partition) -> QuorumRescue:
    snapshots = [one.epoch for one in kf.raft_snapshots(Listing(partition.path).names).values()]
    latest = max([0, partition.epoch_cache.latest, *snapshots])
    found = QuorumRescue(
        str(root),
        node_id,
        metadata.features.get(_LEVEL, 0) > 0,
        partition.log_end_offset,
        latest,
        metadata.timestamp,
        sorted(one["voterId"] for one in metadata.voters),
    )
    for topic in sorted(metadata.topic_ids):
        gone = [number for number, one in metadata.partitions(topic).items() if node_id not in one.replicas]
        if gone:
            found.orphaned[topic] = gone
    return found
