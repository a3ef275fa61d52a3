"""The metadata log of a new cluster: its records, a snapshot of them for a first start, and the state of raft.

`NewCluster` makes the records that a controller would have written over time: features, settings and ACLs of the old
cluster, topics, producer ids.

Every version replays a snapshot at an offset above 0, as after a crash that followed a fetched snapshot. 4.3 does not
replay one at offset 0: its topics would be unknown, and their directories set aside as strays.
Mirrors `RecordsSnapshotWriter` and `FileQuorumStateStore`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.booting.staging import StagedPartition
from kafkalog.booting.topics import TopicPlan
from kafkalog.errors import Finding, Reason
from kafkalog.format import ControlRecordType
from kafkalog.protocol.encoder import encode_message, encode_metadata_record
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import cut_batches, encode_bytes
from kafkalog.repair.recovering.targets import Target
from kafkalog.state.cluster_image import BROKER, TOPIC, ClusterMetadata

EPOCH: Final = 1
"""Leader epoch of the snapshot; the first election makes it 2."""
_BATCH_BYTES, _BATCH_RECORDS = 500_000, 1000
_NEEDED: Final = {
    "ACLs": (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "anybody who reaches the broker may read and write everything without it. Add super.users for the broker, too",
    ),
    "SCRAM credentials": (
        "a listener with SASL, such as listener.name.NAME.sasl.enabled.mechanisms=SCRAM-SHA-512",
        "nobody can log in without it",
    ),
    "delegation tokens": (
        "delegation.token.secret.key=SECRET, the one of the old cluster",
        "without it, the broker logs an error for each token, and none is valid",
    ),
}
"""What `server.properties` needs for records of the old cluster, and why."""
_NEVER_CARRIED: Final = ("listener", "advertised.listeners", "ssl.")
"""Settings of single brokers that are about their old addresses and keys."""


@dataclass(slots=True)
class Node:
    """A node of the new cluster."""

    node_id: int
    folder: str
    """Where it is in the output, such as ``""`` or ``"node-1/"``."""
    host: str
    port: int
    controller_port: int
    directory_id: str
    log_dirs: str = "data"
    """The setting `log.dirs` of its `server.properties`; the last part is the name of its log dir in the output."""

    @property
    def data(self) -> str:
        """Its log dir in the output."""
        return f"{self.folder}{os.path.basename(self.log_dirs)}"

    def voter(self) -> dict[str, Any]:
        """The fields of its controller in Kafka's record.

        `directory_id` must be the `directory.id` of its metadata log dir, or it never elects.
        """
        return {
            "voterId": self.node_id,
            "voterDirectoryId": self.directory_id,
            "endpoints": [{"name": "CONTROLLER", "host": self.host, "port": self.controller_port}],
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
        }


@dataclass(slots=True)
class NewCluster:
    """The facts from which the records are made."""

    nodes: Sequence[Node]
    target: Target
    topics: Sequence[TopicPlan]
    placed: Mapping[kf.TopicPartition, Sequence[StagedPartition]]
    """All copies; the first leader comes first."""
    metadata: ClusterMetadata | None
    """Of the old cluster."""
    note: Callable[[Finding], object]
    carried: dict[str, int] = field(default_factory=dict)
    """Number of records from the old cluster, by kind."""
    next_producer_id: int = 0
    _directory_ids: dict[int, str] = field(init=False)
    """By the id of the node."""

    def __post_init__(self) -> None:
        self._directory_ids = {node.node_id: node.directory_id for node in self.nodes}

    def epoch(self, key: kf.TopicPartition) -> int:
        """The latest leader epoch of a partition that is known; the next leader gets a later one."""
        known = None if self.metadata is None else self.metadata.partition(key)
        epochs = [one.leader_epoch for one in self.placed.get(key, ())]
        return max([0, *epochs, -1 if known is None else known.leader_epoch])

    def level_records(self) -> list[bytes]:
        """The levels of features, as `kafka-storage format` writes them."""
        levels = self.target.levels.items()
        return [encode_metadata_record("FeatureLevel", 0, name=name, featureLevel=level) for name, level in levels]

    def records(self) -> list[bytes]:
        """The records of the metadata log, in an order in which each refers to earlier ones only."""
        records = self.level_records() + self._carried()
        for plan in self.topics:
            records.append(encode_metadata_record("Topic", 0, name=plan.name, topicId=plan.topic_id))
            wanted = min(len(self.nodes), max(plan.replication_factor, 3 if plan.is_internal else 1))
            for number in range(plan.n_partitions):
                records.append(self._partition_record(plan, number, wanted))
            for name, value in sorted(plan.settings.items()):
                records.append(_config(TOPIC, plan.name, name, value))
        if self.next_producer_id:
            fields = {"brokerId": self.nodes[0].node_id, "brokerEpoch": 0}
            next_id = self.next_producer_id
            records.append(encode_metadata_record("ProducerIds", 0, **fields, nextProducerId=next_id))
        return records

    def _partition_record(self, plan: TopicPlan, number: int, n_replicas: int) -> bytes:
        """A partition without a leader, as after a clean stop: a controller elects its in-sync replica later."""
        key = kf.TopicPartition(plan.name, number)
        ids = [*self._directory_ids]
        replicas = [*map(attrgetter("node_id"), self.placed.get(key, ()))]
        if not replicas:
            # its directory is on the first node if it is made here, else a broker makes it
            replicas = [ids[0] if number in {*plan.missing, *plan.committed} else ids[number % len(ids)]]
        at = ids.index(replicas[0])
        if n_replicas > len(replicas):
            others = [one for one in ids[at:] + ids[:at] if one not in replicas]
            replicas += others[: n_replicas - len(replicas)]
        return encode_metadata_record(
            "Partition",
            1,
            partitionId=number,
            topicId=plan.topic_id,
            replicas=replicas,
            # a shorter copy among them could be elected, and records would be lost
            isr=replicas[:1],
            leader=-1,
            leaderEpoch=self.epoch(key) if self.metadata is not None or key in self.placed else 0,
            partitionEpoch=0,
            directories=[*map(self._directory_ids.__getitem__, replicas)],
        )

    def _carried(self) -> list[bytes]:
        """Settings, ACLs, SCRAM credentials, quotas and tokens of the old cluster."""
        if self.metadata is None:
            return []
        old, counts = self.metadata, self.carried
        records, left_out = [], []
        own = {str(node.node_id) for node in self.nodes}
        for (kind, resource), settings in sorted(old.settings.items()):
            for name, value in sorted(settings.items()) if kind != TOPIC else ():
                is_own = kind != BROKER or not resource or resource in own
                if not is_own or (kind == BROKER and resource and name.startswith(_NEVER_CARRIED)):
                    left_out.append(f"{name} of broker {resource}")
                    continue
                records.append(_config(kind, resource, name, value))
        counts["settings of brokers, groups and clients"] = len(records)
        if left_out:
            detail = f"settings of single brokers are left out: {', '.join(left_out[:8])}"
            self.note(Finding(Reason.LEFT_OUT, detail, damage=False))
        parts = {
            "ACLs": [encode_metadata_record("AccessControlEntry", 0, **one) for one in old.acls.values()],
            "SCRAM credentials": [
                encode_metadata_record("UserScramCredential", 0, **one) for one in (old.credentials or {}).values()
            ],
            "quotas": [
                encode_metadata_record(
                    "ClientQuota",
                    0,
                    entity=[{"entityType": one, "entityName": name} for one, name in entity],
                    key=key,
                    value=value,
                    remove=False,
                )
                for entity, quotas in old.quotas.items()
                for key, value in quotas.items()
            ],
            "delegation tokens": [encode_metadata_record("DelegationToken", 0, **one) for one in old.tokens.values()],
        }
        for kind_name, some in parts.items():
            records += some
            counts[kind_name] = len(some)
            if some and kind_name in _NEEDED:
                line, why = _NEEDED[kind_name]
                detail = f"{len(some):,} {kind_name}: server.properties does not have {line}; {why}"
                self.note(Finding(Reason.METADATA_INCOMPLETE, detail, damage=False))
        self._note_levels(old)
        return records

    def _note_levels(self, old: ClusterMetadata) -> None:
        """Say which finalized features have another level than in the old cluster."""
        new = self.target.levels
        changed = [
            f"{name} {old.features.get(name, 0)} -> {new.get(name, 0)}"
            for name in sorted({*old.features, *new} - {"kraft.version"})
            if old.features.get(name, 0) != new.get(name, 0)
        ]
        if changed:
            detail = (
                f"levels of features change: {', '.join(changed)}. kafka-features.sh upgrade raises them, as far as the"
                " release has them"
            )
            self.note(Finding(Reason.METADATA_INCOMPLETE, detail, damage=False))


def _config(kind: int, resource: str, name: str, value: str) -> bytes:
    return encode_metadata_record("Config", 0, resourceType=kind, resourceName=resource, name=name, value=value)


def snapshot_name(n_records: int) -> str:
    """The file name of a snapshot with a number of records."""
    return kf.raft_snapshot_name(n_records + 1, EPOCH)


def encode_snapshot(
    records: Sequence[bytes], timestamp: int, voters: Sequence[dict[str, Any]], *, epoch: int = EPOCH
) -> bytes:
    """Encode a snapshot: a header with the voters, the records, a footer; `timestamp` (ms) is that of all batches.

    `voters` are those of a dynamic quorum; empty for a file without a quorum, such as `bootstrap.checkpoint`.
    """
    kinds = ControlRecordType
    head = [control(kinds.SNAPSHOT_HEADER, "SnapshotHeaderRecord", lastContainedLogTimestamp=timestamp)]
    if voters:
        head.append(control(kinds.KRAFT_VERSION, "KRaftVersionRecord", kRaftVersion=1))
        head.append(control(kinds.KRAFT_VOTERS, "VotersRecord", voters=voters))
    foot = [control(kinds.SNAPSHOT_FOOTER, "SnapshotFooterRecord")]
    body = [(None, value) for value in records]
    parts = [
        control_batch(0, head, timestamp, epoch),
        _batches(len(head), body, timestamp, epoch),
        control_batch(len(head) + len(body), foot, timestamp, epoch),
    ]
    return b"".join(parts)


def control(kind: ControlRecordType, name: str, **fields: Any) -> tuple[bytes, bytes]:
    """Key and value of a control record."""
    return (0).to_bytes(2, "big") + int(kind).to_bytes(2, "big"), encode_message(name, 0, fields)


def control_batch(offset: int, records: Sequence[tuple[bytes, bytes]], timestamp: int, epoch: int) -> bytes:
    """Encode one batch of control records of raft, which have no producer."""
    spec = BatchSpec(leader_epoch=epoch, is_control=True)
    return _encoded(_columns(offset, records, timestamp), np.array([0, len(records)]), spec)


def _batches(offset: int, records: Sequence[tuple[bytes | None, bytes]], timestamp: int, epoch: int) -> bytes:
    if not records:
        return b""
    columns = _columns(offset, records, timestamp)
    boundaries = cut_batches(columns, batch_size=_BATCH_BYTES, max_records=_BATCH_RECORDS)
    return _encoded(columns, boundaries, BatchSpec(leader_epoch=epoch))


def _encoded(columns: RecordColumns, boundaries: Any, spec: BatchSpec) -> bytes:
    data: bytes = encode_bytes(columns, boundaries, spec).tobytes()
    return data


def _columns(offset: int, records: Sequence[tuple[bytes | None, bytes]], timestamp: int) -> RecordColumns:
    n = len(records)
    return RecordColumns(
        n,
        {
            "offset": np.arange(offset, offset + n),
            "timestamp": np.full(n, timestamp, np.int64),
            "key": BinaryColumn.of([key for key, _ in records]),
            "value": BinaryColumn.of([value for _, value in records]),
        },
    )


def quorum_state(epoch: int = EPOCH) -> bytes:
    """The content of `quorum-state` of a dynamic quorum without a leader."""
    state = {
        "leaderId": -1,
        "leaderEpoch": epoch,
        "votedId": -1,
        "votedDirectoryId": "A" * 22,
        "data_version": 1,
    }
    return json.dumps(state, separators=(",", ":")).encode()
