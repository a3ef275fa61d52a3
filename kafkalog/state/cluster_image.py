"""Builds the state of a cluster, as its controllers keep it, from the records of the metadata log.

Mirrors `MetadataDelta` and the deltas of its parts (`TopicsDelta`, `ConfigurationsDelta`, `ClusterDelta` and so on),
and `PartitionRegistration.merge`. Records of a metadata transaction count once it has ended. The keys of SCRAM
credentials are kept only if they are asked for.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import ConfigWarning, Finding
from kafkalog.protocol.decoder import decode_message
from kafkalog.protocol.framing import decode_record
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.log_config import COMPACT, LogConfig, default_config, is_tiered_by

BROKER, TOPIC = 4, 2
OF_TOPIC, OF_BROKERS = "topic", "all brokers"
"""Types of resources that have settings (`ConfigResource.Type`)."""

_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_CHANGE: Final = -1

Fields = dict[str, Any]


@dataclass(slots=True)
class AssignedPartition:
    """A partition in the cluster metadata."""

    replicas: list[int]
    leader_epoch: int
    isr: list[int] = field(default_factory=list)
    """`replicas` and `isr` are ids of brokers: those with a replica, and those of them that are in sync."""
    removing_replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    """Both of a reassignment that is not finished."""
    leader: int = -1
    """-1 for none."""
    partition_epoch: int = -1
    """Rises with each change of the partition, as the leader epoch does with each change of the leader."""
    leader_recovery_state: int = 0
    """1 while a leader that was elected uncleanly recovers."""
    directories: list[str] = field(default_factory=list)
    """Id of the log dir of each replica; empty before Kafka 3.7."""
    elr: list[int] = field(default_factory=list)
    last_known_elr: list[int] = field(default_factory=list)
    """Eligible leader replicas (KIP-966), and the last known ones."""


_LISTS: Final = {
    "replicas": "replicas",
    "isr": "isr",
    "removing_replicas": "removingReplicas",
    "adding_replicas": "addingReplicas",
    "directories": "directories",
    "elr": "eligibleLeaderReplicas",
    "last_known_elr": "lastKnownElr",
}
"""Fields of `AssignedPartition` that are lists, and their names in records."""


@dataclass(eq=False)
class ClusterMetadata:
    """The state of a cluster. Registrations, ACLs and tokens have the fields of Kafka's records."""

    with_credentials: InitVar[bool] = False
    settings: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """Settings changed by an administrator, by resource type (`TOPIC`, `BROKER` and so on) and name. The name is empty
    for the defaults of all brokers."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    removed_topic_ids: set[str] = field(default_factory=set)
    """Those of topics that a record deletes. Records before a snapshot are not in it."""
    brokers: dict[int, Fields] = field(default_factory=dict)
    controllers: dict[int, Fields] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    """Finalized levels, ``metadata.version`` and ``kraft.version`` among them."""
    acls: dict[str, Fields] = field(default_factory=dict)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)
    """By the entity, pairs of type and name (None for the default)."""
    scram: dict[tuple[str, int], int] = field(default_factory=dict)
    """Iterations by user and mechanism."""
    credentials: dict[tuple[str, int], Fields] | None = None
    """The fields of SCRAM's records, keys included, by user and mechanism, if they are kept."""
    tokens: dict[str, Fields] = field(default_factory=dict)
    voters: list[Fields] = field(default_factory=list)
    """Controllers that vote; empty where `controller.quorum.voters` sets them."""
    next_producer_id: int = -1
    start_offset: int = 0
    """The offset of the snapshot that the state begins with; 0 if it has all records of the cluster."""
    sound_snapshot: str | None = None
    """The name of that snapshot, if it is whole, and gave no finding."""
    end_offset: int = 0
    """The offset after the last record."""
    timestamp: int = -1
    """The time of the last record, ms."""
    findings: list[Finding] = field(default_factory=list)
    """Errors in the metadata log, `gaps` among them."""
    torn: list[Finding] = field(default_factory=list)
    """Those about records of known versions that cannot be decoded, and the first one that contradicts earlier ones: no
    controller starts with them."""
    gaps: list[Finding] = field(default_factory=list)
    """Why the state is not complete: records that are missing from the metadata log, or cannot be read."""
    contradictions: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _partitions: dict[str, dict[int, AssignedPartition]] = field(default_factory=dict)
    _pending: list[tuple[Change, Fields]] | None = None

    def __post_init__(self, with_credentials: bool) -> None:
        self.credentials = {} if with_credentials else None

    def partition(self, key: kf.TopicPartition) -> AssignedPartition | None:
        """Return a partition; None if the cluster does not have it."""
        return self._partitions.get(self.topic_ids.get(key.topic, ""), {}).get(key.partition)

    def partitions(self, topic: str) -> dict[int, AssignedPartition]:
        """Return the partitions of a topic by number, sorted."""
        return dict(sorted(self._partitions.get(self.topic_ids.get(topic, ""), {}).items()))

    @property
    def is_complete(self) -> bool:
        """Whether this is all that the cluster has; if not, a topic that is not here may exist."""
        return self.end_offset > 0 and not self.gaps

    def why_stray(self, key: kf.TopicPartition, topic_id: str, node_id: int | None) -> str | None:
        """Return why a broker sets a partition's directory apart when it starts; None if it does not.

        None also where the state is not complete: a broker then has the missing records from the controllers.
        Source: LogManager.isStrayKraftReplica, Kafka 4.3.
        """
        if key.topic == kf.METADATA_TOPIC or not self.is_complete:
            return None
        known, assigned = self.topic_ids.get(key.topic), self.partition(key)
        if known is None:
            return "the cluster has no such topic"
        if known != topic_id:
            return f"its topic id is {topic_id}, but {known} in the cluster"
        if assigned is None or (node_id is not None and node_id not in assigned.replicas):
            return "the broker is not one of its replicas"
        return None

    @property
    def tiered_topics(self) -> list[str]:
        """The topics with segments in remote storage, sorted."""
        return [name for name in sorted(self.topic_ids) if self.is_tiered(name)]

    def is_tiered(self, topic: str) -> bool:
        """Whether a topic has segments in remote storage."""
        return is_tiered_by(self.settings.get((TOPIC, topic), {}))

    def setting_levels(self, topic: str, node_id: int | None = None) -> dict[str, dict[str, str]]:
        """Return the settings that count for a topic on a broker, by where they are: the first that has one decides.

        A topic has names of its own; brokers have theirs. What brokers have in `server.properties`, which comes behind
        these, is in no metadata log. Source: KafkaConfigSchema.
        """
        levels = {OF_TOPIC: self.settings.get((TOPIC, topic), {})}
        if node_id is not None:
            levels[f"broker {node_id}"] = self.settings.get((BROKER, str(node_id)), {})
        return {**levels, OF_BROKERS: self.settings.get((BROKER, ""), {})}

    def settings_of(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic on any broker, under the names that they have."""
        levels = self.setting_levels(topic).values()
        return {name: value for settings in reversed(levels) for name, value in settings.items()}

    def is_compacted(self, topic: str) -> bool | None:
        """Whether a topic is compacted, by itself or the default of all brokers; None if neither is set here."""
        own, shared = self.setting_levels(topic).values()
        policy = own.get("cleanup.policy", shared.get("log.cleanup.policy"))
        return None if policy is None else COMPACT in policy

    def log_config(self, topic: str) -> LogConfig | None:
        """Return a topic's settings, less values that no broker takes; None if the cluster does not have the topic."""
        if topic not in self.topic_ids:
            return None
        valid = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)  # the broker has them already
            for name, value in self.settings_of(topic).items():
                with contextlib.suppress(ValueError):
                    LogConfig.from_properties({name: value})
                    valid[name] = value
            try:
                return LogConfig.from_properties(valid)
            except ValueError:  # two that do not go together
                return default_config()

    def apply(self, value: bytes | None) -> None:
        """Apply the value of a metadata record; raises ValueError if it cannot be decoded, or is not valid."""
        record = decode_record(kf.METADATA_TOPIC, None, value)
        fields = record.value or {}
        change = _APPLY.get(record.type)
        if record.type == "BeginTransaction":
            # a metadata transaction counts only once it has ended: a failed controller leaves no part of it
            self._pending = []
        elif record.type == "AbortTransaction":
            self._pending = None
        elif record.type == "EndTransaction":
            pending, self._pending = self._pending or [], None
            for held_change, held in pending:
                held_change(self, held)
        elif change is not None and self._pending is not None:
            self._pending.append((change, fields))
        elif change is not None:
            change(self, fields)

    def apply_control(self, kind: int, value: bytes) -> None:
        """Apply the value of a control record of type `kind`: some are about the quorum."""
        if kind == kf.ControlRecordType.KRAFT_VERSION:
            level = decode_message("KRaftVersionRecord", 0, value, whole=False)["kRaftVersion"]
            self._feature({"name": "kraft.version", "featureLevel": level})
        elif kind == kf.ControlRecordType.KRAFT_VOTERS:
            self.voters = decode_message("VotersRecord", 0, value, whole=False)["voters"]

    def _note_unknown(self, what: str, number: object) -> None:
        """Note an id that no earlier record has: a controller fails on this one, and one before it is missing."""
        self.contradictions.append(f"refers to {what} {number}, which no earlier record defines")

    def _is_registered(self, broker: int, epoch: int) -> bool:
        """Whether a broker is registered with an epoch. Source: ClusterDelta.getBrokerOrThrow, Kafka 4.3."""
        if broker not in self.brokers:
            self._note_unknown("broker", broker)
            return False
        registered = self.brokers[broker]["brokerEpoch"]
        if registered != epoch:
            why = f"refers to epoch {epoch} of broker {broker}, which is registered with epoch {registered}"
            self.contradictions.append(why)
        return bool(registered == epoch)

    def _config(self, fields: Fields) -> None:
        resource = fields["resourceType"], fields["resourceName"]
        if fields["value"] is None:
            self.settings.get(resource, {}).pop(fields["name"], None)
        else:
            self.settings.setdefault(resource, {})[fields["name"]] = fields["value"]

    def _topic(self, fields: Fields) -> None:
        topic_id = parse_topic_id(fields["topicId"])
        if fields["name"] in self.topic_ids:  # source: ReplicationControlManager.replay, Kafka 4.3
            why = f"creates topic {fields['name']!r} with id {topic_id}, which exists with id"
            self.contradictions.append(f"{why} {self.topic_ids[fields['name']]}")
        self._names[topic_id] = fields["name"]
        self.topic_ids[fields["name"]] = topic_id

    def _remove_topic(self, fields: Fields) -> None:
        if fields["topicId"] not in self._names:
            self._note_unknown("topic id", fields["topicId"])
            return
        name = self._names.pop(fields["topicId"])
        self.removed_topic_ids.add(parse_topic_id(fields["topicId"]))
        self.settings.pop((TOPIC, name), None)
        self._partitions.pop(fields["topicId"], None)
        # a topic that was deleted and created again already has its name under the new id
        if self.topic_ids.get(name) == fields["topicId"]:
            del self.topic_ids[name]

    def _partition(self, fields: Fields) -> None:
        if fields["topicId"] not in self._names:
            self._note_unknown("topic id", fields["topicId"])
            return
        made = self._partitions.setdefault(fields["topicId"], {})[fields["partitionId"]] = AssignedPartition(
            fields["replicas"],
            leader=fields["leader"],
            leader_epoch=fields["leaderEpoch"],
            partition_epoch=fields["partitionEpoch"],
            leader_recovery_state=fields["leaderRecoveryState"],
        )
        for ours, theirs in _LISTS.items():
            setattr(made, ours, list(fields[theirs] or ()))

    def _partition_change(self, fields: Fields) -> None:
        if fields["topicId"] not in self._names:
            self._note_unknown("topic id", fields["topicId"])
            return
        partitions = self._partitions.get(fields["topicId"], {})
        if fields["partitionId"] not in partitions:
            self._note_unknown(f"{self._names[fields['topicId']]!r}, partition", fields["partitionId"])
            return
        known = partitions[fields["partitionId"]]
        for ours, theirs in _LISTS.items():
            if fields[theirs] is not None:
                setattr(known, ours, fields[theirs])
        # PartitionRegistration.merge: only a change of leader raises the leader epoch, any change the partition epoch
        if fields["leader"] != _NO_LEADER_CHANGE:
            known.leader = fields["leader"]
            known.leader_epoch += 1
        if fields["leaderRecoveryState"] != _NO_RECOVERY_CHANGE:
            known.leader_recovery_state = fields["leaderRecoveryState"]
        known.partition_epoch += 1

    def _clear_elr(self, fields: Fields) -> None:
        if fields["topicName"] and fields["topicName"] not in self.topic_ids:
            self._note_unknown("topic", fields["topicName"])
            return
        names = [fields["topicName"]] if fields["topicName"] else list(self.topic_ids)
        for name in names:
            for partition in self.partitions(name).values():
                partition.elr, partition.last_known_elr = [], []

    def _unregister_broker(self, fields: Fields) -> None:
        if self._is_registered(fields["brokerId"], fields["brokerEpoch"]):
            del self.brokers[fields["brokerId"]]

    def _fence(self, fields: Fields) -> None:
        if self._is_registered(fields["id"], fields["epoch"]):
            self.brokers[fields["id"]]["fenced"] = True

    def _unfence(self, fields: Fields) -> None:
        if self._is_registered(fields["id"], fields["epoch"]):
            self.brokers[fields["id"]]["fenced"] = False

    def _change_broker(self, fields: Fields) -> None:
        if not self._is_registered(fields["brokerId"], fields["brokerEpoch"]):
            return
        broker = self.brokers[fields["brokerId"]]
        # 0 means no change, here and below: 1 sets, -1 clears
        if fields["fenced"]:
            broker["fenced"] = fields["fenced"] > 0
        if fields["inControlledShutdown"]:
            broker["inControlledShutdown"] = fields["inControlledShutdown"] > 0
        if fields["logDirs"]:
            broker["logDirs"] = fields["logDirs"]
        if fields["cordonedLogDirs"] is not None:
            broker["cordonedLogDirs"] = fields["cordonedLogDirs"]

    def _feature(self, fields: Fields) -> None:
        # level 0 is how a feature is disabled
        if fields["featureLevel"]:
            self.features[fields["name"]] = fields["featureLevel"]
        else:
            self.features.pop(fields["name"], None)

    def _remove_acl(self, fields: Fields) -> None:
        if fields["id"] not in self.acls:
            self._note_unknown("ACL", fields["id"])
            return
        del self.acls[fields["id"]]

    def _quota(self, fields: Fields) -> None:
        # pairs in any order are the same entity
        entity = tuple(sorted(((one["entityType"], one["entityName"]) for one in fields["entity"]), key=str))
        limits = self.quotas.setdefault(entity, {})
        if fields["remove"]:
            limits.pop(fields["key"], None)
        else:
            limits[fields["key"]] = fields["value"]
        if not limits:
            del self.quotas[entity]

    def _scram(self, fields: Fields) -> None:
        self.scram[fields["name"], fields["mechanism"]] = fields["iterations"]
        if self.credentials is not None:
            self.credentials[fields["name"], fields["mechanism"]] = dict(fields)

    def _remove_scram(self, fields: Fields) -> None:
        self.scram.pop((fields["name"], fields["mechanism"]), None)
        if self.credentials is not None:
            self.credentials.pop((fields["name"], fields["mechanism"]), None)

    def _remove_token(self, fields: Fields) -> None:
        self.tokens.pop(fields["tokenId"], None)

    def _producer_ids(self, fields: Fields) -> None:
        self.next_producer_id = fields["nextProducerId"]


def _register(name: str, key: str) -> Change:
    """Keep a record as it is: where, and by which field."""

    def register(metadata: ClusterMetadata, fields: Fields) -> None:
        getattr(metadata, name)[fields[key]] = dict(fields)

    return register


Change = Callable[[ClusterMetadata, Fields], None]
_APPLY: Final[dict[str, Change]] = {
    "RegisterBroker": _register("brokers", "brokerId"),
    "RegisterController": _register("controllers", "controllerId"),
    "AccessControlEntry": _register("acls", "id"),
    "DelegationToken": _register("tokens", "tokenId"),
    "Config": ClusterMetadata._config,
    "Topic": ClusterMetadata._topic,
    "RemoveTopic": ClusterMetadata._remove_topic,
    "Partition": ClusterMetadata._partition,
    "PartitionChange": ClusterMetadata._partition_change,
    "ClearElr": ClusterMetadata._clear_elr,
    "UnregisterBroker": ClusterMetadata._unregister_broker,
    "FenceBroker": ClusterMetadata._fence,
    "UnfenceBroker": ClusterMetadata._unfence,
    "BrokerRegistrationChange": ClusterMetadata._change_broker,
    "FeatureLevel": ClusterMetadata._feature,
    "RemoveAccessControlEntry": ClusterMetadata._remove_acl,
    "ClientQuota": ClusterMetadata._quota,
    "UserScramCredential": ClusterMetadata._scram,
    "RemoveUserScramCredential": ClusterMetadata._remove_scram,
    "RemoveDelegationToken": ClusterMetadata._remove_token,
    "ProducerIds": ClusterMetadata._producer_ids,
}
"""What each type of record changes."""
