"""The metadata of a cluster as manifests for Strimzi, API version v1: `KafkaTopic`, `KafkaUser`, and its nodes.

Names that Kubernetes does not allow get another one. What the operators do not manage is listed with the reason.

Source: 043-Crd-kafkatopic.yaml, 044-Crd-kafkauser.yaml, SimpleAclRule, KafkaUserModel, Strimzi 1.2.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalog.format import INTERNAL_TOPICS
from kafkalog.system_topics.kafka_commands import (
    NO_PARTITIONS,
    OPERATIONS,
    Leftovers,
    Tables,
    entity_text,
    front,
    joined_acls,
    note_leftovers,
    operation_name,
    topic_settings,
)

_MOST_CHARACTERS: Final = 253
_POOL: Final = "kafka"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PLAIN: Final = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
_WORDS: Final = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
_RESOURCES: Final = {"topic": "topic", "group": "group", "cluster": "cluster", "transactional-id": "transactionalId"}
_PATTERNS: Final = {"literal": "literal", "prefixed": "prefix"}
_RATES: Final = {
    "producer_byte_rate": "producerByteRate",
    "consumer_byte_rate": "consumerByteRate",
    "request_percentage": "requestPercentage",
    "controller_mutation_rate": "controllerMutationRate",
}


@dataclass
class _User:
    """A user of Kafka, as far as a `KafkaUser` has it."""

    acls: list[dict[str, Any]] = field(default_factory=list)
    quotas: dict[str, float] = field(default_factory=dict)
    has_password: bool = False


def manifests(metadata: Tables, cluster: str, replication_factor: int | None = None) -> list[str]:
    """Return lines of YAML: a document for each topic and user, then as comments what they do not express."""
    if not _LABEL.fullmatch(cluster):
        raise ValueError(
            f"cluster={cluster!r}: it must be the name of a Kafka resource in Kubernetes, such as my-cluster"
        )
    left = Leftovers()
    how = (
        "Apply it with kubectl apply -f FILE in the namespace of the Kafka resource. Users with ACLs need",
        "spec.kafka.authorization of type simple there. The operator makes new passwords and certificates.",
    )
    lines = front(metadata, how)
    head = {"labels": {"strimzi.io/cluster": cluster}}
    taken: set[str] = set()
    for kind, name, spec in (*_topics(metadata, replication_factor, left, taken), *_users(metadata, left)):
        lines += ["---", *_yaml(_document(kind, {"name": name, **head}, spec))]
    for row in metadata.configs:
        if row["resource_type"] != "topic":
            whose = f"{row['resource_type']} {row['resource_name'] or '(all)'}"
            place = "spec.kafka.config of the Kafka resource, or kafka-configs.sh"
            left.append(f"{row['name']}={row['value']} of {whose}: {place}")
    note_leftovers(metadata, left)
    return [*lines, *left.lines()]


def cluster_manifests(
    cluster: str, node_ids: Sequence[int], n_bytes: int, metadata_version: str, settings: Mapping[str, object]
) -> list[str]:
    """Return lines of YAML: a node pool with nodes of given ids, and a `Kafka` resource that is paused.

    `n_bytes` is the size of the largest log dir; a volume is twice as large, in whole GiB.
    """
    volume = {"id": 0, "type": "persistent-claim", "size": f"{max(1, -(-2 * n_bytes // 2**30))}Gi"}
    volume |= {"deleteClaim": False, "kraftMetadata": "shared"}
    pool = {"replicas": len(node_ids), "roles": ["controller", "broker"]}
    pool["storage"] = {"type": "jbod", "volumes": [volume]}
    listener = {"name": "plain", "port": 9092, "type": "internal", "tls": False}
    kafka = {"metadataVersion": metadata_version, "listeners": [listener], "config": dict(settings)}
    ids = f"[{','.join(map(str, node_ids))}]"
    head = {"labels": {"strimzi.io/cluster": cluster}, "annotations": {"strimzi.io/next-node-ids": ids}}
    paused = {"annotations": {"strimzi.io/pause-reconciliation": "true"}}
    claims = ", ".join(f"data-0-{cluster}-{_POOL}-{node_id}" for node_id in node_ids)
    return [
        f"# The log dirs belong on the volumes of these claims, which must exist before: {claims}",
        "# Set the size to that of the claims. Add storage classes, listeners and operators as you need them.",
        "---",
        *_yaml(_document("KafkaNodePool", {"name": _POOL, **head}, pool)),
        "---",
        *_yaml(_document("Kafka", {"name": cluster, **paused}, {"kafka": kafka})),
    ]


def _document(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kafka.strimzi.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _topics(
    metadata: Tables, replication_factor: int | None, left: Leftovers, taken: set[str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    settings: dict[str, dict[str, str]] = {}
    for row in metadata.configs:
        if row["resource_type"] == "topic":
            settings.setdefault(row["resource_name"], {})[row["name"]] = row["value"]
    for row in metadata.topics:
        topic = row["topic"]
        if topic in INTERNAL_TOPICS:
            left.append(f"topic {topic} with {row['partitions']} partitions: brokers make it, by their own settings")
            continue
        if not row["partitions"]:
            left.append(f"topic {topic}: {NO_PARTITIONS}")
            continue
        name = _kubernetes_name(topic)
        while name in taken:
            name = _hashed(name)
        taken.add(name)
        spec: dict[str, Any] = {} if name == topic else {"topicName": topic}
        spec["partitions"] = row["partitions"]
        spec["replicas"] = replication_factor or row["replication_factor"]
        config = topic_settings(topic, settings.get(topic, {}), left)
        yield "KafkaTopic", name, {**spec, "config": config} if config else spec


def _kubernetes_name(name: str) -> str:
    """A name that Kubernetes allows, the same if it does; others end with a hash of the name, so that they differ."""
    if len(name) <= _MOST_CHARACTERS and _NAME.fullmatch(name):
        return name
    return _hashed(name)


def _hashed(name: str) -> str:
    parts = (part.strip("-") for part in re.sub(r"[^a-z0-9.]", "-", name.lower()).split("."))
    front = ".".join(filter(None, parts))[:200].rstrip("-.")
    return f"{front or 'x'}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _users(metadata: Tables, left: Leftovers) -> Iterator[tuple[str, str, dict[str, Any]]]:
    users: dict[str, _User] = {}
    for row in metadata.scram:
        if row["mechanism"] == "SCRAM-SHA-512":
            users.setdefault(row["user"], _User()).has_password = True
        else:
            left.append(f"SCRAM user {row['user']} with {row['mechanism']}: Strimzi has SCRAM-SHA-512 alone")
    _add_acls(metadata, users, left)
    _add_quotas(metadata, users, left)
    taken: set[str] = set()
    for name, user in sorted(users.items()):
        common = name.removeprefix("CN=")
        if not _NAME.fullmatch(common) or len(common) > _MOST_CHARACTERS or common in taken:
            what = ", ".join(filter(None, (f"{len(user.acls)} ACLs" if user.acls else "", *user.quotas)))
            why = "the name of a KafkaUser is that of the user, and Kubernetes allows no such name"
            left.append(f"user {name}{' with ' * bool(what)}{what}: {why}, or not twice; use --as commands for it")
            continue
        taken.add(common)
        spec: dict[str, Any] = {}
        if user.has_password or common != name:
            spec["authentication"] = {"type": "scram-sha-512" if user.has_password else "tls"}
        if user.acls:
            spec["authorization"] = {"type": "simple", "acls": user.acls}
        yield "KafkaUser", common, {**spec, "quotas": user.quotas} if user.quotas else spec


def _add_acls(metadata: Tables, users: dict[str, _User], left: Leftovers) -> None:
    columns = ("principal", "resource_type", "resource_name", "pattern_type", "host", "permission")
    for (principal, kind, name, pattern, host, permission), operations, told in joined_acls(metadata.acls, columns):
        user = principal.removeprefix("User:")
        is_cluster = kind != "cluster" or (name, pattern) == ("kafka-cluster", "literal")
        is_valid = {*operations} <= {*OPERATIONS.get(kind, ()), "all"} - {"two-phase-commit"}
        if (
            user in (principal, "*")
            or kind not in _RESOURCES
            or pattern not in _PATTERNS
            or not (is_cluster and is_valid)
        ):
            left.append(f"{told}: a KafkaUser has no such rule; use --as commands for it")
            continue
        resource = {"type": _RESOURCES[kind]}
        if kind != "cluster":
            resource |= {"name": name, "patternType": _PATTERNS[pattern]}
        rule = {"type": permission, "resource": resource, "host": host}
        rule["operations"] = [*map(operation_name, operations)]
        users.setdefault(user, _User()).acls.append(rule)


def _add_quotas(metadata: Tables, users: dict[str, _User], left: Leftovers) -> None:
    for row in metadata.quotas:
        user, key, value = row["entity"].get("user"), row["key"], row["value"]
        is_whole = math.isfinite(value) and (value.is_integer() or key == "controller_mutation_rate")
        if user and len(row["entity"]) == 1 and key in _RATES and is_whole and value >= 0:
            limit = int(value) if value.is_integer() else value
            users.setdefault(user, _User()).quotas[_RATES[key]] = limit
        else:
            whose = entity_text(row["entity"])
            left.append(f"quota {key}={value!r} of {whose}: a KafkaUser has no such quota; use --as commands for it")


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Lines of a YAML block."""
    items = value.items() if isinstance(value, dict) else (("-", one) for one in value)
    for key, inner in items:
        mark = indent + ("-" if key == "-" else f"{_scalar(key)}:")
        if isinstance(inner, (dict, list)) and inner:
            lines = [*_yaml(inner, indent + "  ")]
            if key == "-":
                lines[0] = f"{indent}- {lines[0].lstrip(' ')}"
                yield from lines
            else:
                yield mark
                yield from lines
        else:
            yield f"{mark} {_scalar(inner)}"


def _scalar(value: Any) -> str:
    """A scalar of YAML; text without unprintable characters, in quotes unless nothing else is meant by it."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)
