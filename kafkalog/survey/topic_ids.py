"""Finds the topic id of a partition directory without `partition.metadata`: a KRaft broker renames it to `-stray`.

The id comes from the cluster's metadata log, or from other partitions of the topic in the same log dirs.
Mirrors `LogManager.isStrayKraftReplica`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, MISSING, Finding, KafkalogError, Limits, Reason
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import known_topic_id, read_topic_id
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.storage.location import Place, parent_of
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.losses import remains
from kafkalog.survey.startup import PartitionPlan
from kafkalog.survey.startup_files import partition_directories
from kafkalog.survey.startup_root import is_kraft
from kafkalog.survey.topics import TopicSettings


@dataclass(frozen=True, slots=True)
class TopicIds:
    """Where a broker's topic ids can be found."""

    roots: Sequence[Place]
    metadata: ClusterMetadata | None
    is_kraft: bool
    """Whether the broker sets a partition without a topic id aside; one with ZooKeeper loads it."""
    is_log_dir: bool = True
    """Whether a whole log dir is looked at: a partition that was named is no stray."""

    @classmethod
    def of(
        cls,
        directories: Sequence[Place],
        metadata: str | os.PathLike[str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> TopicIds:
        """Where the ids of some partition directories are; the metadata log is read only if one lacks its id.

        `metadata` is another log dir with the metadata log. Raises NotKafkaError if it has none.
        """
        roots = list(dict.fromkeys(map(parent_of, directories)))
        if metadata is None and not any(map(has_no_topic_id, directories)):
            return cls(roots, None, is_kraft=False)
        image = TopicSettings.of(roots, metadata=metadata, limits=limits).metadata
        return cls(roots, image, image is not None or any(map(is_kraft, roots)))

    def lacks(self, directory: Place) -> kf.TopicPartition | None:
        """The partition of a directory, if a broker needs its topic id and finds no `partition.metadata`."""
        parsed = kf.parse_partition_directory(directory.absolute().name)
        return parsed.topic_partition if parsed is not None and self.is_kraft and has_no_topic_id(directory) else None

    def find(self, topic: str) -> str | None:
        """The id of a topic; None if it is not known, or several are."""
        known = None if self.metadata is None else self.metadata.topic_ids.get(topic)
        if known is not None or (self.metadata is not None and self.metadata.is_complete):
            return known
        found = (path for root in self.roots for path in partition_directories(root) if _is_of(path, topic))
        ids = {known_topic_id(path) for path in found if isinstance(path, Place)} - {None}
        return ids.pop() if len(ids) == 1 else None

    def why_stray(self, directory: Place) -> str | None:
        """Why a broker sets a directory without a topic id aside, and the way out; None if it has one."""
        key = self.lacks(directory)
        if key is None:
            return None
        known = self.find(key.topic)
        if known is not None:
            return f"it has no topic id ({kf.PARTITION_METADATA} is missing): kafkalog recover writes it, {known}"
        return (
            f"it has no topic id ({kf.PARTITION_METADATA} is missing). kafkalog recover --metadata DIR takes the id"
            f" from a log dir with {kf.METADATA_DIRECTORY}; kafkalog boot gives the topic a new one"
        )


def has_no_topic_id(directory: Place) -> bool:
    """Whether a partition directory that brokers load lacks `partition.metadata`."""
    parsed = kf.parse_partition_directory(directory.absolute().name)
    if parsed is None or parsed.kind is not None or parsed.topic_partition.topic == kf.METADATA_TOPIC:
        return False  # raft loads its log itself
    with contextlib.suppress(KafkalogError):  # other names in its lines, which a broker does not look at
        return read_topic_id(directory) is None
    return False


def _is_of(directory: Place | Finding, topic: str) -> bool:
    parsed = kf.parse_partition_directory(directory.name) if isinstance(directory, Place) else None
    return parsed is not None and parsed.kind is None and parsed.topic_partition.topic == topic


def add_stray_loss(row: PartitionPlan, segments: Iterable[Segment], state: LogDirState, why: str) -> Finding:
    """Count all records of a partition as lost, because a broker sets its directory aside; returns the finding."""
    row.stray = why
    row.lost = [one for one in row.lost if one.reason in MISSING]
    previous, intact = -1, list[Finding]()
    for segment in segments:
        contents, lost = remains(segment, 0, state, previous=previous)
        previous = max(previous, contents.last_offset)
        # the damage in it is lost already; the last one is about the intact batches
        is_whole = bool(lost) and lost[-1].path == str(segment.path) and lost[-1] not in contents.findings
        row.lost += lost[:-1] if is_whole else lost
        intact += [replace(lost[-1], reason=Reason.TOPIC_ID_MISSING)] if is_whole else []
    row.lost += intact
    detail = f"a broker renames the directory to -stray, and later deletes it: {why}"
    n_records = sum(one.n_records or 0 for one in intact)
    is_exact = all(one.certainty == "exact" for one in intact)
    return Finding(
        Reason.TOPIC_ID_MISSING,
        detail,
        path=row.path,
        base_offset=intact[0].base_offset if intact else None,
        last_offset=intact[-1].last_offset if intact else None,
        n_records=n_records,
        certainty="exact" if is_exact else "at_most",
    )
