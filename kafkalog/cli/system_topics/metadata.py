"""`kafkalog metadata`: prints the content of a cluster's metadata log."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.system_topics.state_options import AS_OF, print_history
from kafkalog.cli.terminal import shown_table
from kafkalog.cli.text import iso_seconds
from kafkalog.format import METADATA_TOPIC

if TYPE_CHECKING:
    from kafkalog.system_topics.metadata import Metadata

COMMAND: Final = Command(
    description="""\
List the content of a KRaft cluster's metadata log (__cluster_metadata-0 with its .checkpoint snapshots): brokers,
features and topics, or the tables of --show.

--as commands prints a script that makes the topics, settings, quotas and ACLs again on an empty cluster, and ends with
what Kafka's tools cannot express. --as strimzi prints manifests.

Values of settings that may be secrets are hidden. SCRAM credentials show user and mechanism, without keys.

--end-offset and --end-timestamp show the state right before that point. The log must have an earlier snapshot.""",
    examples="""\
  kafkalog metadata /var/lib/kafka
  kafkalog metadata /var/lib/kafka --show partitions,configs -t 'orders-*'
  kafkalog metadata /backup/kafka --show acls,quotas,scram --end-timestamp 2026-11-21T08:00Z
  kafkalog metadata /backup/kafka --json | jq -r 'select(.kind == "topics") | [.topic, .topic_id] | @tsv'
  kafkalog metadata /backup/kafka --as commands --replication-factor 3 > apply.sh
  kafkalog metadata /backup/kafka --as strimzi --cluster my-cluster > topics.yaml
  kafkalog metadata /backup/kafka --history | jq -c 'select(.type == "RemoveTopic")'""",
    options="""
  @limits
which tables:
  --show {topics,partitions,configs,brokers,voters,features,acls,quotas,scram,tokens},...
                         any of topics, partitions, configs, brokers, voters, features, acls, quotas, scram, tokens
                         (default: brokers, features, topics; with --json all)
  -t --topics T,...      only these topics: names or globs such as 'orders-*'; repeatable
  @as_of
output:
  --json    one object a line; "kind" is the table, or "gaps" for missing records; times in ms
  --as:form {commands,strimzi,json}    something to apply to a new cluster: commands of Kafka's tools, or KafkaTopic and
                                       KafkaUser manifests for Strimzi; json is --json
  --replication-factor N    with --as: of all topics (default: as many replicas as each topic has)
  --cluster NAME            with --as strimzi: the name of the Kafka resource (default: my-cluster)
""",
)
_APPLIED: Final = ("commands", "strimzi")
"""Forms that other tools apply to a new cluster."""
_SHOWN: Final = ("brokers", "features", "topics")
_ALL: Final = ("topics", "partitions", "configs", "brokers", "voters", "features", "acls", "quotas", "scram", "tokens")


def run(args: argparse.Namespace, console: Console) -> None:
    """Print the tables."""
    from kafkalog.system_topics.metadata import metadata

    _check_form(args)
    console.is_json |= args.form == "json"
    if args.history:
        return print_history(args, console, METADATA_TOPIC)
    with usage_errors():
        found = metadata(args.paths, **chosen(args, "topics", *AS_OF))
    console.findings(found.findings)
    if args.form in _APPLIED:
        console.lines(_to_apply(found, args).splitlines())
        return None
    console.show(_objects(found, args.show or _ALL), _lines(found, args.show or _SHOWN))
    return None


_LEAST: Final = (
    *("CORDONED LOG DIRS", "DIRECTORIES", "LAST KNOWN ELR", "ELR", "TOPIC ID", "PARTITION EPOCH"),
    *("LEADER RECOVERY STATE", "REMOVING REPLICAS", "ADDING REPLICAS", "RESOURCE TYPE", "PATTERN TYPE", "ID"),
    "ENDPOINTS",
)
"""Columns that a narrow terminal goes without, the first one first."""


def _objects(found: Metadata, shown: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield from ({"kind": "gaps", **finding.as_dict()} for finding in found.gaps)
    yield from ({"kind": name, **row} for name in shown for row in getattr(found, name))


def _lines(found: Metadata, shown: Sequence[str]) -> Iterator[str]:
    incomplete = "" if found.is_complete else "; incomplete: records are missing"
    yield f"{found.path}: up to offset {found.end_offset}, {iso_seconds(found.timestamp)}{incomplete}"
    for name in shown:
        rows = getattr(found, name)
        n_rows = str(len(rows)) if rows else "none" if found.is_complete else "none known"
        if name == "brokers" and rows:
            n_brokers = sum(row["role"] == "broker" for row in rows)
            n_rows = f"{n_brokers}, controllers: {len(rows) - n_brokers}"
        yield from ("", f"{name}: {n_rows}")
        if rows:
            header = [column.upper().replace("_", " ") for column in rows[0]]
            cells = [[_cell(value) for value in row.values()] for row in rows]
            is_number = [isinstance(value, int) and not isinstance(value, bool) for value in rows[0].values()]
            yield from shown_table([header, *cells], is_number, _LEAST, indent=2)


def _check_form(args: argparse.Namespace) -> None:
    is_applied = args.form in _APPLIED
    if args.replication_factor is not None and not is_applied:
        raise UsageError("--replication-factor goes with --as commands or --as strimzi")
    if args.cluster is not None and args.form != "strimzi":
        raise UsageError("--cluster goes with --as strimzi")
    if is_applied and args.json:
        raise UsageError("--json prints tables, and --as commands or strimzi text for other tools: name one of them")
    if is_applied and (args.show or args.history):
        raise UsageError("--show and --history print tables; --as commands and --as strimzi all that can be applied")


def _to_apply(found: Metadata, args: argparse.Namespace) -> str:
    with usage_errors():
        if args.form == "commands":
            return found.to_commands(replication_factor=args.replication_factor)
        return found.to_strimzi(cluster=args.cluster or "my-cluster", replication_factor=args.replication_factor)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name} (default)" if one is None else f"{name}={one}" for name, one in value.items()) or "-"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return str(value)
