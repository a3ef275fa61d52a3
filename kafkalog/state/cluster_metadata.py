"""Read settings, ids and replicas of topics from `__cluster_metadata-0` of a log dir.

The metadata log is an ordinary log. Its records, and those of its newest snapshot (`OFFSET-EPOCH.checkpoint`, in the
same format), are decoded by `kafkalog.records.decode` and `kafkalog.messages`. The types that count here are Topic,
RemoveTopic, Config, Partition and PartitionChange; others are skipped. Mirrors `PartitionRegistration.merge`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits, Reason
from kafkalog.messages.framing import UnknownTypeError, decode_record
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import walk
from kafkalog.records.selection import Selection
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.storage.source import open_source

BROKER, TOPIC = 4, 2
"""Types of resources that have settings (`ConfigResource.Type`)."""

_NO_LEADER_CHANGE: Final = -2
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
        self._names: dict[str, str] = {}
        self._partitions: dict[tuple[str, int], AssignedPartition] = {}

    def partition(self, key: kf.TopicPartition) -> AssignedPartition | None:
        """Return a partition; None if the cluster does not have it."""
        return self._partitions.get((self.topic_ids.get(key.topic, ""), key.partition))

    def apply(self, value: bytes) -> None:
        """Apply the value of a metadata record; a type that is not known is skipped.

        Raises
        ------
        ValueError
            The record cannot be decoded, or is not valid.
        """
        try:
            record = decode_record(kf.METADATA_TOPIC, None, value)
        except UnknownTypeError:
            return
        fields = record.value or {}
        if record.type == "Config":
            resource = fields["resourceType"], fields["resourceName"]
            if fields["value"] is None:
                self.settings.get(resource, {}).pop(fields["name"], None)
            else:
                self.settings.setdefault(resource, {})[fields["name"]] = fields["value"]
        elif record.type == "Topic":
            topic_id = parse_topic_id(fields["topicId"])
            self._names[topic_id] = fields["name"]
            self.topic_ids[fields["name"]] = topic_id
        elif record.type == "RemoveTopic":
            name = self._names.pop(fields["topicId"], "")
            self.settings.pop((TOPIC, name), None)
            if self.topic_ids.get(name) == fields["topicId"]:
                del self.topic_ids[name]
        elif record.type == "Partition":
            where = fields["topicId"], fields["partitionId"]
            self._partitions[where] = AssignedPartition(fields["replicas"], fields["leaderEpoch"])
        elif record.type == "PartitionChange":
            known = self._partitions.get((fields["topicId"], fields["partitionId"]))
            if known is not None:
                known.leader_epoch += fields["leader"] != _NO_LEADER_CHANGE
                known.replicas = known.replicas if fields["replicas"] is None else fields["replicas"]


def read_cluster_metadata(
    log_dir: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS
) -> ClusterMetadata | None:
    """Read the metadata log of a log dir, from its newest snapshot on; None if the log dir has none.

    If a file is damaged, the error is added to the findings, and the rest of that file is not read. A record that
    cannot be decoded, as one of a newer Kafka's version, is a finding too.
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
                try:
                    metadata.apply(value)
                except ValueError as error:
                    if len(metadata.findings) < limits.max_findings:
                        metadata.findings.append(Finding(Reason.INTERNAL_RECORD, str(error), str(path), damage=False))
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
