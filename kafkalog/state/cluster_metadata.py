"""Read settings, ids and replicas of topics from `__cluster_metadata-0` of a log dir.

The metadata log is an ordinary log. Its records, and those of its newest snapshot (`OFFSET-EPOCH.checkpoint`, in the
same format), are decoded by `kafkalog.records.decode`. A record begins with its frame version, type and version, each
an unsigned varint. Records of other types than these are skipped::

    2  TopicRecord            name | topic id
    3  PartitionRecord        partition  i32 | topic id | replicas | in sync | being removed | being added | leader  i32
                              | leader epoch  i32 | ...
    4  ConfigRecord           resource type  i8 | resource name | name | value or null
    5  PartitionChangeRecord  partition  i32 | topic id | tagged fields: leader, replicas, ...
    9  RemoveTopicRecord      topic id

Strings and arrays are compact: an unsigned varint of the length plus one, then the items. Ids are 16 bytes. Mirrors
these records and `PartitionRegistration.merge`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import walk
from kafkalog.records.selection import Selection
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.compact_types import CompactReader
from kafkalog.storage.source import open_source

BROKER, TOPIC = 4, 2
"""Types of resources that have settings (`ConfigResource.Type`)."""

_TOPIC_RECORD: Final = 2
_PARTITION_RECORD: Final = 3
_CONFIG_RECORD: Final = 4
_PARTITION_CHANGE_RECORD: Final = 5
_REMOVE_TOPIC_RECORD: Final = 9
_NO_LEADER_CHANGE: Final = -2
_LEADER_TAG, _REPLICAS_TAG = 1, 2
_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


@dataclass(slots=True)
class AssignedPartition:
    """A partition in the cluster metadata.

    Attributes
    ----------
    replicas : list of int
        Ids of the brokers that have a replica.
    leader_epoch : int
        The newest leader epoch.
    """

    replicas: list[int]
    leader_epoch: int


class ClusterMetadata:
    """Settings, topics and partitions of a cluster.

    Attributes
    ----------
    settings : dict of (int, str) to dict of str to str
        Settings changed by an administrator, by resource type (`TOPIC`, `BROKER`) and name. The name is empty for the
        defaults of all brokers.
    topic_ids : dict of str to str
        Topic id by topic name.
    findings : list of Finding
        Errors in the metadata log.
    """

    def __init__(self) -> None:
        self.settings: dict[tuple[int, str], dict[str, str]] = {}
        self.topic_ids: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._names: dict[bytes, str] = {}
        self._partitions: dict[tuple[bytes, int], AssignedPartition] = {}
        self._ids: dict[str, bytes] = {}

    def partition(self, key: kf.TopicPartition) -> AssignedPartition | None:
        """Return a partition; None if the cluster does not have it."""
        topic_id = self._ids.get(key.topic)
        return None if topic_id is None else self._partitions.get((topic_id, key.partition))

    def apply(self, value: bytes) -> None:
        """Apply the value of a metadata record; a record that cannot be parsed is skipped."""
        try:
            self._apply(CompactReader(value))
        except ValueError:  # UnicodeDecodeError included
            return

    def _apply(self, reader: CompactReader) -> None:
        _, kind, _ = reader.uvarint(), reader.uvarint(), reader.uvarint()
        if kind == _CONFIG_RECORD:
            resource = (reader.take(1)[0], reader.string() or "")
            name, value = reader.string() or "", reader.string()
            if value is None:
                self.settings.get(resource, {}).pop(name, None)
            else:
                self.settings.setdefault(resource, {})[name] = value
        elif kind == _TOPIC_RECORD:
            name, topic_id = reader.string() or "", reader.take(16)
            self._names[topic_id] = name
            self.topic_ids[name] = parse_topic_id(topic_id)
            self._ids[name] = topic_id
        elif kind == _REMOVE_TOPIC_RECORD:
            topic_id = reader.take(16)
            name = self._names.pop(topic_id, "")
            self.settings.pop((TOPIC, name), None)
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
                _change(known, reader)


def _change(partition: AssignedPartition, reader: CompactReader) -> None:
    """Apply the tagged fields of a PartitionChangeRecord; a new leader raises the leader epoch by one."""
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        field = CompactReader(reader.take(size))
        if tag == _LEADER_TAG and field.int32() != _NO_LEADER_CHANGE:
            partition.leader_epoch += 1
        elif tag == _REPLICAS_TAG:
            partition.replicas = field.int32s()


def read_cluster_metadata(
    log_dir: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS
) -> ClusterMetadata | None:
    """Read the metadata log of a log dir, from its newest snapshot on; None if the log dir has none.

    If a file is damaged, the error is added to the findings, and the rest of that file is not read.
    """
    directory = Path(log_dir) / kf.METADATA_DIRECTORY
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return None
    metadata = ClusterMetadata()
    checkpoints = [match for name in names if (match := _CHECKPOINT.fullmatch(name))]
    start = 0
    paths = []
    if checkpoints:
        start = int(checkpoints[-1][1])
        paths.append((directory / checkpoints[-1][0], 0))
    paths += [
        (directory / name, start)
        for name in names
        if name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None
    ]
    for path, first in paths:
        try:
            for value in _values(path, first, limits):
                metadata.apply(value)
        except KafkalogError as error:
            metadata.findings.append(error.to_finding(damage=False))
    return metadata


def _values(path: Path, start: int, limits: Limits) -> Iterator[bytes]:
    with open_source(path, memory_map=False) as source:
        for window in walk(source, limits=limits):
            done = 0
            while done < len(window.batches):  # `decode` stops early once it has decompressed enough bytes
                decoded = decode(window, ("value",), first=done, selection=Selection(start_offset=start), limits=limits)
                if decoded.columns is not None:
                    yield from (value for value in decoded.columns.value if value is not None)
                if decoded.error is not None:
                    raise decoded.error
                done += decoded.n_batches
            source.release(window.data, window.start)
