"""The cluster's metadata as a user reads it: topics, brokers, settings and so on as rows, tables and JSON.

`kafkalog.state.cluster_metadata` reads the metadata log. Values of settings that may be secrets are hidden, and SCRAM
credentials have no keys here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits, NotKafkaError, Reason
from kafkalog.format import METADATA_DIRECTORY, METADATA_TOPIC, TopicPartition
from kafkalog.html import MOST_ROWS, PublicNames, table
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.parsing import Time, name_matcher, optional_integer
from kafkalog.protocol.releases import METADATA_VERSION, level_name, next_level
from kafkalog.state.cluster_image import BROKER, TOPIC, AssignedPartition, ClusterMetadata
from kafkalog.state.cluster_metadata import leading_metadata, read_cluster_metadata
from kafkalog.storage.location import Place, parent_of
from kafkalog.system_topics.hidden_values import shown_settings
from kafkalog.system_topics.kafka_commands import commands
from kafkalog.system_topics.reading import AsOf, check_known, name_of
from kafkalog.system_topics.strimzi_manifests import manifests
from kafkalog.text import counted

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

_RESOURCES: Final = {TOPIC: "topic", BROKER: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
_ACL_RESOURCES: Final = dict(
    enumerate(("unknown", "any", "topic", "group", "cluster", "transactional-id", "delegation-token", "user"))
)
_PATTERNS: Final = dict(enumerate(("unknown", "any", "match", "literal", "prefixed")))
_OPERATIONS: Final = dict(
    enumerate(
        (
            *("unknown", "any", "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action"),
            *("describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens"),
            "two-phase-commit",
        )
    )
)
_PERMISSIONS: Final = dict(enumerate(("unknown", "any", "deny", "allow")))
_PROTOCOLS: Final = dict(enumerate(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")))
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class Metadata(PublicNames):
    """The state of a cluster.

    Attributes
    ----------
    path : pathlib.Path
        The log dir.
    end_offset : int
        Offset after the last record that counts.
    timestamp : int
        Of that record, in ms; -1 for none.
    is_complete : bool
        False if records are missing from the metadata log: then topics, brokers and settings may be missing here.
    gaps : list of Finding
        Which records are missing.
    findings : list of Finding
        Damage, `gaps` included, and records that could not be decoded.

    Notes
    -----
    Each property below is a list of dicts; `to_arrow` makes tables of them.
    """

    def __init__(self, path: Place, image: ClusterMetadata, topics: Callable[[str], bool]) -> None:
        self.path, self.findings = path, list(image.findings)
        self.end_offset, self.timestamp = image.end_offset, image.timestamp
        self.is_complete, self.gaps = not image.gaps, list(image.gaps)
        self._image, self._wanted = image, topics

    def __repr__(self) -> str:
        n_partitions = sum(len(partitions) for _, partitions in self._assigned())
        parts = [
            repr(str(self.path)),
            f"up to offset {self.end_offset}",
            counted(len(self._assigned()), "topic"),
            counted(n_partitions, "partition"),
            counted(len(self._image.brokers), "broker"),
            counted(len(self._image.controllers), "controller"),
        ]
        return f"Metadata({', '.join(parts)}{'' if self.is_complete else ', incomplete'})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: topics, brokers, features, and what is missing."""
        parts = [table(repr(self), [], [])]
        for name in ("topics", "brokers", "features"):
            rows = getattr(self, name)
            if rows:
                parts.append(table(name, [*rows[0]], (_cells(row) for row in rows[:MOST_ROWS]), n_rows=len(rows)))
        if self.gaps:
            parts.append(table("missing records", ["path", "detail"], [[one.path, one.detail] for one in self.gaps]))
        return "\n".join(parts)

    @property
    def topics(self) -> list[Row]:
        """Topics: topic, topic_id, partitions, replication_factor, configs."""
        return [
            {
                "topic": name,
                "topic_id": self._image.topic_ids[name],
                "partitions": len(partitions),
                "replication_factor": max((len(one.replicas) for one in partitions.values()), default=0),
                "configs": shown_settings(self._image.settings.get((TOPIC, name), {})),
            }
            for name, partitions in self._assigned()
        ]

    @property
    def partitions(self) -> list[Row]:
        """Partitions: topic, partition, leader, leader_epoch, partition_epoch, replicas, isr and so on."""
        return [
            {
                "topic": name,
                "topic_id": self._image.topic_ids[name],
                "partition": number,
                **{column: getattr(one, column) for column in TABLES["partitions"].names[3:]},
            }
            for name, partitions in self._assigned()
            for number, one in partitions.items()
        ]

    @property
    def configs(self) -> list[Row]:
        """Settings changed by an administrator: resource_type, resource_name, name, value."""
        return [
            {"resource_type": name_of(_RESOURCES, kind), "resource_name": resource, "name": name, "value": value}
            for (kind, resource), settings in sorted(self._image.settings.items())
            if kind != TOPIC or self._wanted(resource)
            for name, value in sorted(shown_settings(settings).items())
        ]

    @property
    def brokers(self) -> list[Row]:
        """Brokers and controllers that are registered: id, role, endpoints, rack, fenced and so on."""
        rows = [_node(number, "broker", one) for number, one in sorted(self._image.brokers.items())]
        return rows + [_node(number, "controller", one) for number, one in sorted(self._image.controllers.items())]

    @property
    def voters(self) -> list[Row]:
        """Controllers that vote: id, directory_id, endpoints; none where `controller.quorum.voters` sets them."""
        return [
            {
                "id": one["voterId"],
                "directory_id": one["voterDirectoryId"],
                "endpoints": [f"{end['name']}://{end['host']}:{end['port']}" for end in one["endpoints"]],
            }
            for one in sorted(self._image.voters, key=lambda one: one["voterId"])
        ]

    @property
    def features(self) -> list[Row]:
        """Finalized features: name, level, version; the next level, its release, and nodes that do not support it."""
        rows = []
        for name, level in sorted(self._image.features.items()):
            step = next_level(name, level)
            rows.append(
                {
                    "name": name,
                    "level": level,
                    "version": level_name(level) if name == METADATA_VERSION else "",
                    "next_level": None if step is None else step[0],
                    "next_release": None if step is None else step[1],
                    "missing_nodes": [] if step is None else self._without(name, step[0]),
                }
            )
        return rows

    def _without(self, name: str, level: int) -> list[int]:
        """Ids of brokers and controllers that have registered without support for a level of a feature."""
        nodes = {**self._image.controllers, **self._image.brokers}
        most = {
            number: max((one["maxSupportedVersion"] for one in fields["features"] if one["name"] == name), default=0)
            for number, fields in nodes.items()
        }
        return sorted(number for number, supported in most.items() if supported < level)

    @property
    def acls(self) -> list[Row]:
        """Access control entries: resource and its pattern, principal, host, operation, permission."""
        return [
            {
                "id": number,
                "resource_type": name_of(_ACL_RESOURCES, one["resourceType"]),
                "resource_name": one["resourceName"],
                "pattern_type": name_of(_PATTERNS, one["patternType"]),
                "principal": one["principal"],
                "host": one["host"],
                "operation": name_of(_OPERATIONS, one["operation"]),
                "permission": name_of(_PERMISSIONS, one["permissionType"]),
            }
            for number, one in sorted(self._image.acls.items())
        ]

    @property
    def quotas(self) -> list[Row]:
        """Client quotas: entity (names by type, None for the default), key, value."""
        return [
            {"entity": dict(entity), "key": key, "value": value}
            for entity, limits in sorted(self._image.quotas.items(), key=str)
            for key, value in sorted(limits.items())
        ]

    @property
    def scram(self) -> list[Row]:
        """SCRAM credentials: user, mechanism, iterations."""
        return [
            {"user": user, "mechanism": name_of(_MECHANISMS, mechanism), "iterations": iterations}
            for (user, mechanism), iterations in sorted(self._image.scram.items())
        ]

    @property
    def tokens(self) -> list[Row]:
        """Delegation tokens: id, owner, requester, renewers, and when they were issued and end."""
        return [
            {
                "id": number,
                "owner": one["owner"],
                "requester": one["requester"],
                "renewers": list(one["renewers"]),
                "issue_timestamp": one["issueTimestamp"],
                "max_timestamp": one["maxTimestamp"],
                "expiration_timestamp": one["expirationTimestamp"],
            }
            for number, one in sorted(self._image.tokens.items())
        ]

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic; None if the cluster does not have it."""
        return self._image.topic_ids.get(topic)

    def as_dict(self) -> Row:
        """Return everything, for JSON."""
        front = {
            "path": str(self.path),
            "end_offset": self.end_offset,
            "timestamp": self.timestamp,
            "is_complete": self.is_complete,
            "gaps": [finding.as_dict() for finding in self.gaps],
        }
        return {**front, **{name: getattr(self, name) for name in TABLES}}

    def to_dict(self) -> Row:
        """Return everything, as `as_dict`; every result has this name."""
        return self.as_dict()

    def to_pandas(self, table: str = "partitions") -> pd.DataFrame:
        """One of the properties as a `pandas.DataFrame`; see `to_arrow`."""
        return self.to_arrow(table).to_pandas()

    def to_arrow(self, table: str = "partitions") -> pa.Table:
        """One of the properties as a table.

        Parameters
        ----------
        table : str
            Name of the property.
        """
        if table not in TABLES:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
        rows = [
            {name: list(value.items()) if isinstance(value, Mapping) else value for name, value in row.items()}
            for row in getattr(self, table)
        ]
        return pa.Table.from_pylist(rows, schema=TABLES[table])

    def to_commands(self, *, replication_factor: int | None = None) -> str:
        """Return a script for bash that makes topics, settings, quotas and ACLs again on an empty cluster.

        Parameters
        ----------
        replication_factor : int, optional
            Of all topics; default: as many replicas as each topic has.

        Notes
        -----
        The script ends with what Kafka's tools cannot express, as comments.
        """
        return "\n".join(commands(self, optional_integer("replication_factor", replication_factor, 1))) + "\n"

    def to_strimzi(self, *, cluster: str = "my-cluster", replication_factor: int | None = None) -> str:
        """Return `KafkaTopic` and `KafkaUser` manifests in YAML, for Strimzi's operators.

        Parameters
        ----------
        cluster : str
            Name of the `Kafka` resource that the topics and users belong to.
        replication_factor : int, optional
            Of all topics; default: as many replicas as each topic has.

        Notes
        -----
        The manifests end with what they cannot express, as comments.
        """
        replicas = optional_integer("replication_factor", replication_factor, 1)
        return "\n".join(manifests(self, cluster, replicas)) + "\n"

    def _assigned(self) -> list[tuple[str, dict[int, AssignedPartition]]]:
        return [(name, self._image.partitions(name)) for name in sorted(self._image.topic_ids) if self._wanted(name)]


_TEXT, _INT = pa.string(), pa.int32()
_INTS, _TEXTS, _MAP = pa.list_(_INT), pa.list_(_TEXT), pa.map_(_TEXT, _TEXT)
_ACL = ("id", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_REPLICAS = ("replicas", "isr", "removing_replicas", "adding_replicas", "elr", "last_known_elr")
TABLES: Final = {
    "topics": pa.schema(
        {"topic": _TEXT, "topic_id": _TEXT, "partitions": _INT, "replication_factor": _INT, "configs": _MAP}
    ),
    "partitions": pa.schema(
        {
            "topic": _TEXT,
            "topic_id": _TEXT,
            "partition": _INT,
            "leader": _INT,
            "leader_epoch": _INT,
            "partition_epoch": _INT,
            **dict.fromkeys(_REPLICAS, _INTS),
            "directories": _TEXTS,
        }
    ),
    "configs": pa.schema({"resource_type": _TEXT, "resource_name": _TEXT, "name": _TEXT, "value": _TEXT}),
    "brokers": pa.schema(
        {
            "id": _INT,
            "role": _TEXT,
            "endpoints": _TEXTS,
            "rack": _TEXT,
            "epoch": pa.int64(),
            "is_fenced": pa.bool_(),
            "in_controlled_shutdown": pa.bool_(),
            "incarnation_id": _TEXT,
            "log_dirs": _TEXTS,
            "cordoned_log_dirs": _TEXTS,
        }
    ),
    "voters": pa.schema({"id": _INT, "directory_id": _TEXT, "endpoints": _TEXTS}),
    "features": pa.schema(
        {
            "name": _TEXT,
            "level": pa.int16(),
            "version": _TEXT,
            "next_level": pa.int16(),
            "next_release": _TEXT,
            "missing_nodes": _INTS,
        }
    ),
    "acls": pa.schema(dict.fromkeys(_ACL, _TEXT)),
    "quotas": pa.schema({"entity": _MAP, "key": _TEXT, "value": pa.float64()}),
    "scram": pa.schema({"user": _TEXT, "mechanism": _TEXT, "iterations": _INT}),
    "tokens": pa.schema(
        {
            **dict.fromkeys(("id", "owner", "requester"), _TEXT),
            "renewers": _TEXTS,
            **dict.fromkeys(("issue_timestamp", "max_timestamp", "expiration_timestamp"), pa.timestamp("ms", tz="UTC")),
        }
    ),
}
"""The tables of `Metadata`, with the types of their columns."""


def metadata(
    path: Paths | LogDir,
    *,
    topics: str | Sequence[str] | None = None,
    end_offset: int | None = None,
    end_timestamp: Time | None = None,
    limits: Limits | None = None,
) -> Metadata:
    """Read the metadata of a cluster from `__cluster_metadata` and its snapshots.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogDir
        A log dir with `__cluster_metadata-0`, or that directory; of several the one that knows most.
    topics : str or sequence of str, optional
        Only these: names or globs such as ``orders-*``. Entries other than topics are always included.
    end_offset, end_timestamp, limits
        See `groups`.

    Returns
    -------
    Metadata

    Raises
    ------
    NotKafkaError
        There is no metadata log.
    UnknownNameError
        No topic has a name, or matches a glob, that was asked for, and it is the latest state that was.
    ValueError
        The files do not go back as far as `end_offset` or `end_timestamp`.

    Notes
    -----
    Records that a controller has written are taken, also those at the end that a majority of the controllers has
    perhaps not got yet. All records of a batch have the time of its start. A change may therefore appear up to
    `controller.quorum.append.linger.ms` (25 ms) too old. What brokers have in `server.properties` is in no metadata
    log.
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path, limits=limits or DEFAULT_LIMITS)
    as_of = AsOf.of(log_dir, [METADATA_TOPIC], end_offset, end_timestamp)
    known: list[tuple[Place, ClusterMetadata]] = []
    key = TopicPartition(METADATA_TOPIC, 0)
    roots = [*log_dir.paths, *([parent_of(log_dir.path_of(key).path)] if key in log_dir else [])]
    options: dict[str, Any] = {
        "end_offset": as_of.end_offset,
        "end_timestamp": as_of.end_timestamp,
        "limits": log_dir.limits,
    }
    for root in dict.fromkeys(roots):
        image = read_cluster_metadata(root, **options)
        if image is not None:
            known.append((root, image))
    if not known:
        where = ", ".join(map(str, log_dir.paths))
        raise NotKafkaError(
            Reason.NOT_KAFKA,
            f"no {METADATA_DIRECTORY} here: name the metadata log dir of a controller or broker",
            path=where,
        )
    place, leading, later = leading_metadata(known, **options)
    findings = [*leading.findings, *(one for root, image in known if root != place for one in image.findings)]
    if later:
        findings.append(Finding(Reason.METADATA_INCOMPLETE, later, path=str(place)))
    result = Metadata(place, leading, name_matcher(topics))
    result.findings = findings
    check_known("topic", topics, sorted(leading.topic_ids), as_of, findings)
    return result


def _cells(row: Row) -> list[object]:
    texts = (", ".join(map(str, value)) if isinstance(value, (list, dict)) else value for value in row.values())
    return [*texts]


def _node(number: int, role: str, fields: Mapping[str, Any]) -> Row:
    return {
        "id": number,
        "role": role,
        "endpoints": [
            f"{one['name']}://{one['host']}:{one['port']} ({name_of(_PROTOCOLS, one['securityProtocol'])})"
            for one in fields["endPoints"]
        ],
        "rack": fields.get("rack"),
        "epoch": fields.get("brokerEpoch"),
        "is_fenced": fields.get("fenced"),
        "in_controlled_shutdown": fields.get("inControlledShutdown"),
        "incarnation_id": fields["incarnationId"],
        "log_dirs": list(fields.get("logDirs", ())),
        "cordoned_log_dirs": list(fields.get("cordonedLogDirs") or ()),
    }
