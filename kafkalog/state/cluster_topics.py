"""Topic ids and replicas out of a log dir's `__cluster_metadata-0`: what a broker expects to find in its log dirs.

Mirrors `TopicRecord`, `RemoveTopicRecord`, `PartitionRecord`, `PartitionChangeRecord` and
`PartitionRegistration.merge`; other records are passed over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.cluster_metadata import MetadataReader, read_metadata

_TOPIC_RECORD: Final = 2
_PARTITION_RECORD: Final = 3
_PARTITION_CHANGE_RECORD: Final = 5
_REMOVE_TOPIC_RECORD: Final = 9
_NO_LEADER_CHANGE: Final = -2
_LEADER_TAG, _REPLICAS_TAG = 1, 2


@dataclass(slots=True)
class AssignedPartition:
    """A partition as the cluster's metadata have it.

    Attributes
    ----------
    replicas : list of int
        Ids of the brokers that hold it.
    leader_epoch : int
        The newest.
    """

    replicas: list[int]
    leader_epoch: int


class ClusterTopics:
    """Topics and partitions of a cluster.

    Attributes
    ----------
    topic_ids : dict of str to str
        By topic.
    findings : list of Finding
        Where the metadata log could not be read.
    """

    def __init__(self) -> None:
        self.topic_ids: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._names: dict[bytes, str] = {}
        self._partitions: dict[tuple[bytes, int], AssignedPartition] = {}
        self._ids: dict[str, bytes] = {}

    def partition(self, key: kf.TopicPartition) -> AssignedPartition | None:
        """A partition; None if there is no such one."""
        topic_id = self._ids.get(key.topic)
        return None if topic_id is None else self._partitions.get((topic_id, key.partition))

    def apply(self, value: bytes) -> None:
        """Take a record; one that cannot be understood is passed over."""
        try:
            self._apply(MetadataReader(value))
        except (IndexError, UnicodeDecodeError, ValueError):
            return

    def _apply(self, reader: MetadataReader) -> None:
        _, kind, _ = reader.uvarint(), reader.uvarint(), reader.uvarint()
        if kind == _TOPIC_RECORD:
            name, topic_id = reader.string() or "", reader.take(16)
            self.topic_ids[name] = parse_topic_id(topic_id)
            self._names[topic_id], self._ids[name] = name, topic_id
        elif kind == _REMOVE_TOPIC_RECORD:
            topic_id = reader.take(16)
            name = self._names.pop(topic_id, "")
            if self._ids.get(name) == topic_id:
                del self._ids[name], self.topic_ids[name]
        elif kind == _PARTITION_RECORD:
            number, topic_id, replicas = reader.int32(), reader.take(16), reader.int32s()
            for _ in range(3):
                reader.int32s()  # in sync, being removed, being added
            reader.int32()  # the leader
            self._partitions[topic_id, number] = AssignedPartition(replicas, reader.int32())
        elif kind == _PARTITION_CHANGE_RECORD:
            number, topic_id = reader.int32(), reader.take(16)
            known = self._partitions.get((topic_id, number))
            if known is not None:
                self._change(known, reader)

    def _change(self, partition: AssignedPartition, reader: MetadataReader) -> None:
        """All that changes is tagged; an election counts the epoch up."""
        for _ in range(reader.uvarint()):
            tag, size = reader.uvarint(), reader.uvarint()
            field = MetadataReader(reader.take(size))
            if tag == _LEADER_TAG and field.int32() != _NO_LEADER_CHANGE:
                partition.leader_epoch += 1
            elif tag == _REPLICAS_TAG:
                partition.replicas = field.int32s()


def read_cluster_topics(log_dir: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> ClusterTopics | None:
    """The topics that a log dir knows of; None where it has no metadata log."""
    topics = ClusterTopics()
    return topics if read_metadata(log_dir, topics.apply, topics.findings.append, limits=limits) else None
