"""The metadata of a cluster as commands of Kafka's tools that make it again on an empty cluster.

A command line is text for bash: names and values of a cluster are quoted, and have no unprintable character. What the
tools cannot express is listed with the reason.

Source: TopicCommand, ConfigCommand, AclCommand, Kafka 4.3.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite
from typing import Any, Final, Protocol

from kafkalog.format import INTERNAL_TOPICS
from kafkalog.html import visible
from kafkalog.state.log_config import is_setting
from kafkalog.state.properties import encode_properties
from kafkalog.storage.location import Place
from kafkalog.system_topics.hidden_values import HIDDEN
from kafkalog.text import iso_seconds

Row = dict[str, Any]


class Tables(Protocol):
    """What is read of a `Metadata`."""

    path: Place
    end_offset: int
    timestamp: int
    is_complete: bool

    @property
    def topics(self) -> list[Row]: ...
    @property
    def configs(self) -> list[Row]: ...
    @property
    def quotas(self) -> list[Row]: ...
    @property
    def acls(self) -> list[Row]: ...
    @property
    def scram(self) -> list[Row]: ...
    @property
    def tokens(self) -> list[Row]: ...
    @property
    def features(self) -> list[Row]: ...


NOT_CARRIED: Final = (
    "topic ids, leader epochs and producer ids: a new cluster has its own",
    "which brokers have which replicas: the controller of the new cluster places them",
    "server.properties of the brokers: no metadata log has it",
)
"""What no tool can set."""
GONE_SETTINGS: Final = ("message.format.version", "message.downconversion.enable")
"""Settings of topics that Kafka 4.0 removed."""
NO_PARTITIONS: Final = "its partitions are missing from the metadata log"
_LONG: Final = 100_000
_AT: Final = '--bootstrap-server "$BOOTSTRAP"'
_SIMPLE: Final = re.compile(r"[\w.:;/+*@%-]+", re.ASCII)
_KEY: Final = re.compile(r"[\w.-]+", re.ASCII)
_TYPES: Final = {"broker": "brokers", "client-metrics": "client-metrics", "group": "groups"}
_ENTITIES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}
_LIMITS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_QUOTAS: Final = (*_LIMITS, "connection_creation_rate")
_CONFIGURE: Final = ("describe-configs", "alter-configs")
OPERATIONS: Final = {
    "topic": {"read", "write", "create", "delete", "alter", "describe", *_CONFIGURE},
    "group": {"read", "delete", "describe", *_CONFIGURE},
    "cluster": {"create", "alter", "describe", "cluster-action", "idempotent-write", *_CONFIGURE},
    "transactional-id": {"write", "describe", "two-phase-commit"},
    "delegation-token": {"describe"},
    "user": {"create-tokens", "describe-tokens"},
}
"""Operations on each type of resource, besides all of them. Source: AclEntry.supportedOperations, Kafka 4.3."""


class Leftovers(list[str]):
    """What cannot be expressed, each with the reason."""

    def lines(self) -> list[str]:
        """As comments."""
        named = [f"#   {visible(one, _LONG)}" for one in dict.fromkeys((*self, *NOT_CARRIED))]
        return ["", "# Not expressed above:", *named]


def front(metadata: Tables, how: Sequence[str]) -> list[str]:
    """Comments about the origin of a file, and how to use it."""
    origin = f"From {visible(metadata.path, _LONG)}, up to offset {metadata.end_offset}"
    lines = [f"# {origin}, {iso_seconds(metadata.timestamp)}"]
    if not metadata.is_complete:
        lines.append("# INCOMPLETE: records are missing from this metadata log.")
    return [*lines, *(f"# {one}" for one in how)]


def is_trimmed(text: str) -> bool:
    """Whether a tool takes a text as it is: they remove blanks at both ends."""
    return text == text.strip("".join(map(chr, range(33)))) and "\0" not in text


def word(text: str) -> str:
    """Quote a word for bash, without unprintable characters."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(
        one
        if one.isprintable() and one not in "'\\"
        else "".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogatepass"))
        for one in text
    )
    return f"$'{escaped}'"


def commands(metadata: Tables, replication_factor: int | None = None) -> list[str]:
    """Return lines for bash: commands in an order that works, then as comments what they do not express."""
    left = Leftovers()
    how = (
        "Set BOOTSTRAP to a broker of an empty cluster, and run this file with bash. Options for a secured cluster",
        "(--command-config FILE) go into each line: sed 's/\"$BOOTSTRAP\"/& --command-config FILE/'.",
    )
    by_type: dict[str, dict[str, dict[str, str]]] = {}
    for row in metadata.configs:
        resources = by_type.setdefault(row["resource_type"], {})
        resources.setdefault(row["resource_name"], {})[row["name"]] = row["value"]
    topic_settings = by_type.pop("topic", {})
    parts = {
        "defaults of all brokers": _resources(by_type, "broker", left, names=("",)),
        "topics": _topics(metadata, topic_settings, replication_factor, left),
        "settings of groups": _resources(by_type, "group", left),
        "client metrics": _resources(by_type, "client-metrics", left),
        "quotas": _quotas(metadata, left),
        "ACLs: they need an authorizer.class.name in server.properties": _acls(metadata, left),
        "settings of single brokers: a command fails if the new cluster has no broker with this id": _resources(
            by_type, "broker", left
        ),
    }
    lines = [*front(metadata, how), 'BOOTSTRAP="${BOOTSTRAP:-localhost:9092}"']
    for heading, found in parts.items():
        if some := [*found]:
            lines += ["", f"# {heading}", *some]
    note_leftovers(metadata, left)
    return [*lines, *left.lines()]


def note_leftovers(metadata: Tables, left: Leftovers) -> None:
    """Add what neither tools nor manifests have: keys of credentials, tokens, and levels of features."""
    for row in metadata.scram:
        name, value = word(row["user"]), f"{row['mechanism']}=[iterations={row['iterations']},password=NEW]"
        left.append(
            f"the password of SCRAM user {row['user']}, which no metadata log has: set a new one with kafka-configs.sh"
            f" {_AT} --alter --entity-type users --entity-name={name} --add-config '{value}'"
        )
    left += [f"delegation token {row['id']} of {row['owner']}: its owner creates a new one" for row in metadata.tokens]
    levels = " ".join(f"{row['name']}={row['level']}" for row in metadata.features)
    left.append(f"levels of features, here {levels}: kafka-features.sh {_AT} upgrade raises them")


def _topics(
    metadata: Tables, settings: Mapping[str, Mapping[str, str]], replication_factor: int | None, left: Leftovers
) -> Iterator[str]:
    for row in sorted(metadata.topics, key=lambda row: (row["topic"] not in INTERNAL_TOPICS, row["topic"])):
        name = row["topic"]
        if not row["partitions"]:
            left.append(f"topic {name}: {NO_PARTITIONS}")
            continue
        known = topic_settings(name, settings.get(name, {}), left)
        at_once = {key: value for key, value in known.items() if value and not re.search(r"[=\s\[\]]", value)}
        n_replicas = replication_factor or row["replication_factor"]
        options = [f"--topic={word(name)}", f"--partitions {row['partitions']}", f"--replication-factor {n_replicas}"]
        options += [f"--config {word(f'{key}={value}')}" for key, value in at_once.items()]
        # brokers of a new cluster may have made their own topics already
        options += ["--if-not-exists"] * (name in INTERNAL_TOPICS)
        yield f"kafka-topics.sh {_AT} --create {' '.join(options)}"
        more = {key: value for key, value in known.items() if key not in at_once}
        if more:
            yield from _configure(f"--entity-type topics --entity-name={word(name)}", more)


def topic_settings(name: str, settings: Mapping[str, str], left: Leftovers) -> dict[str, str]:
    """The settings of a topic that brokers of 4.x take."""
    known = {}
    for key, value in settings.items():
        if key in GONE_SETTINGS:
            left.append(f"topic {name}: {key}={value}: Kafka 4.0 removed this setting")
        elif not is_setting(key):
            left.append(f"topic {name}: {key}={value}: Kafka knows no such setting")
        elif value == HIDDEN:
            left.append(f"topic {name}: {key}: its value may be a secret")
        else:
            known[key] = value
    return known


def _resources(
    by_type: Mapping[str, dict[str, dict[str, str]]], kind: str, left: Leftovers, names: Sequence[str] | None = None
) -> Iterator[str]:
    """The settings of the resources of a type; a resource is done once."""
    resources = by_type.get(kind, {})
    for name in [*resources] if names is None else [one for one in names if one in resources]:
        settings = resources.pop(name)
        whose = f"{kind} {name}" if name else f"all {kind}s"
        for key in [key for key, value in settings.items() if value == HIDDEN or not _KEY.fullmatch(key)]:
            is_secret = settings.pop(key) == HIDDEN
            why = "its value may be a secret" if is_secret else "kafka-configs.sh refuses this name of a setting"
            left.append(f"{key} of {whose}: {why}")
        if "\0" in name:
            left.append(f"settings of {whose}: no command line has a NUL")
        elif settings:
            yield from _configure(f"--entity-type {_TYPES[kind]} {_entity_option(name)}", settings)


def _configure(entity: str, settings: Mapping[str, str]) -> list[str]:
    """A command that sets settings: on the command line if each value is plain, else from its input."""
    line = f"kafka-configs.sh {_AT} --alter {entity}"
    if all(map(_SIMPLE.fullmatch, (*settings, *settings.values()))):
        return [f"{line} --add-config {','.join(f'{name}={value}' for name, value in settings.items())}"]
    return [f"{line} --add-config-file /dev/stdin <<'END'", *encode_properties(settings).splitlines(), "END"]


def _quotas(metadata: Tables, left: Leftovers) -> Iterator[str]:
    for entity, rows in groupby(metadata.quotas, lambda row: row["entity"]):
        limits = {row["key"]: row["value"] for row in rows}
        whose = entity_text(entity)
        is_plain = all(kind in _ENTITIES and name != "" and "\0" not in (name or "") for kind, name in entity.items())
        for key in [key for key, limit in limits.items() if key not in _QUOTAS or not is_plain or not isfinite(limit)]:
            why = "has no such quota or entity" if isfinite(limits[key]) else "takes finite numbers"
            left.append(f"quota {key}={limits.pop(key)} of {whose}: kafka-configs.sh {why}")
        if limits:
            named = " ".join(f"--entity-type {_ENTITIES[kind]} {_entity_option(name)}" for kind, name in entity.items())
            values = ",".join(f"{key}={value!r}" for key, value in limits.items())
            yield f"kafka-configs.sh {_AT} --alter {named} --add-config {values}"


def entity_text(entity: dict[str, str | None]) -> str:
    """The entity of a quota, as text."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())


def _entity_option(name: str | None) -> str:
    return f"--entity-name={word(name)}" if name else "--entity-default"


def _acls(metadata: Tables, left: Leftovers) -> Iterator[str]:
    columns = ("resource_type", "resource_name", "pattern_type", "principal", "host", "permission")
    for (kind, name, pattern, principal, host, permission), operations, told in joined_acls(metadata.acls, columns):
        why = acl_problem(kind, name, pattern, principal, host, operations)
        if why:
            left.append(f"{told}: {why}")
            continue
        option = {"cluster": "--cluster", "user": f"--user-principal={word(name)}"}.get(kind, f"--{kind}={word(name)}")
        allowed = " ".join(f"--operation {operation_name(one)}" for one in operations)
        of_pattern = "" if pattern == "literal" else f" --resource-pattern-type {pattern}"
        who = f"--{permission}-principal={word(principal)} --{permission}-host={word(host)}"
        yield f"kafka-acls.sh {_AT} --add {who} {allowed} {option}{of_pattern}"


def joined_acls(acls: Iterable[Row], columns: Sequence[str]) -> Iterator[tuple[tuple[str, ...], list[str], str]]:
    """Join access rules that differ in the operation alone, sorted by all other columns, in this order.

    Yields the values of these columns, the operations, and the rule as text.
    """

    def entry(row: Row) -> tuple[str, ...]:
        return tuple(row[column] for column in columns)

    for values, rows in groupby(sorted(acls, key=entry), entry):
        operations = [row["operation"] for row in rows]
        known = dict(zip(columns, values, strict=True))
        of = f"{known['resource_type']} {known['resource_name']} ({known['pattern_type']})"
        who = f"{known['permission']} {known['principal']} from {known['host']}"
        yield values, operations, f"ACL: {who} {', '.join(operations)} on {of}"


def acl_problem(kind: str, name: str, pattern: str, principal: str, host: str, operations: Sequence[str]) -> str:
    """Why kafka-acls.sh cannot add an entry; empty if it can."""
    if not all(map(is_trimmed, (name, principal, host))):
        return "kafka-acls.sh removes blanks at the ends of names, and no command line has a NUL"
    if ":" not in principal or kind not in OPERATIONS or pattern not in ("literal", "prefixed"):
        return "kafka-acls.sh has no such principal, resource or pattern"
    if kind == "cluster" and (name, pattern) != ("kafka-cluster", "literal"):
        return "kafka-acls.sh knows no other cluster than kafka-cluster"
    if not {*operations} <= {*OPERATIONS[kind], "all"}:
        return "kafka-acls.sh refuses this operation on this type of resource"
    return ""


def operation_name(operation: str) -> str:
    """The name of an operation in tools and manifests: ``describe-configs`` is ``DescribeConfigs``."""
    return "".join(map(str.capitalize, operation.split("-")))
