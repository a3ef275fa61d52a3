"""`kafkalog --json-schema COMMAND`: the JSON Schema of the lines, or of the object, that a command prints.

Programs may rely on it: later releases only add fields and objects. To rename or remove a field raises the version of
its command.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from kafkalog.result_kinds import kinds_of

DEFINITIONS: Final = """
place: topic text?, partition int?
finding: @errors.Finding
loss: @errors.Loss
lost: @survey.losses.Lost
summary: n_batches int, n_records int, n_records_is_minimum bool, n_readable_records int, n_readable_is_minimum bool,
    n_control_records int, first_timestamp int?, max_timestamp int?, magic [int], codecs [text], ok bool,
    findings [finding]
listed_partition: +place, kind text?, path text, topic_id text?, configs {text}?, stray text?, n_segments int,
    size_in_bytes int, log_start_offset int, log_end_offset int, high_watermark int?, leader_epoch int?, +summary
listed_segment: +place, kind text?, path text, size_in_bytes int, base_offset int, next_offset int, +summary
record: topic~ text?, partition~ int?, offset~ int, timestamp~ int?, timestamp_type~ int, key~ any, value~ any,
    headers~ [any], is_control~ bool, value_error~ text?, key_error~ text?
explanation: conditions {[any]}, n_partitions int, n_partitions_read int, n_segments int, n_segments_read int,
    n_bytes int, n_bytes_read int, n_batches int, n_batches_decoded int
batch_group: n_batches int, n_records int, n_records_is_minimum bool, n_bytes int, mean_records number?,
    mean_bytes number, min_bytes int, p50_bytes int, p90_bytes int, p99_bytes int, max_bytes int,
    n_transactional int, n_idempotent int, n_control int
index_entry: @operations.trace_lookup.IndexStep, entry int?, timestamp~ int?, is_right bool?
trace: @operations.trace_lookup.Trace, offset int?, timestamp int?, leader_epoch int?, reason text?, record record?
batch_step: @operations.trace_lookup.BatchStep, base_offset int?, max_timestamp int?, records_count int?
segment_step: @operations.trace_lookup.SegmentStep
producer: @system_topics.list_producers.ListedProducer
producers: +place, path text, last_stable_offset int, log_end_offset int, n_open int, n_overdue int,
    producers [producer]
epoch: epoch int, start_offset int, end_offset int
epochs: @operations.inspecting.PartitionEpochs, epochs [epoch], end_offsets [any], followers [any]
delivery: @system_topics.groups.Delivery
group_offset: @system_topics.groups.GroupOffset
member: @system_topics.groups.GroupMember
group: group text, type text, state text, lag int?, epoch int, protocol text?, members [member],
    offsets [group_offset], pending [group_offset]
state_record: @system_topics.history.StateRecord, type text, key any, value any
topic_partition: topic text, partition int
open_transaction: @system_topics.transactions.OpenTransaction, abort_command text?
transaction: @system_topics.transactions.Transaction
cluster_row: kind text
schema: @system_topics.schemas.Schema, type text, references [any], metadata any, rule_set any, deleted text?
spread: @indexes.distribution.Spread
index: @indexes.measures.IndexMeasures
index_stats: @indexes.statistics.IndexStatistics, what_if~ [index]
verified_segment: kind =segment, path text, +place, base_offset int, last_offset int, size_in_bytes int,
    n_batches int, ok bool, unreadable bool, findings [finding]
gap: @survey.losses.OffsetGap
verified_partition: kind =partition, path text, +place, ok bool, unreadable bool, lost loss, losses [lost], gaps [gap],
    findings [finding]
verified_values: kind =values, ok bool, @operations.verifying.values.VerifiedValues
verified: kind =total, path any, ok bool, damaged [text], unreadable [text], findings [finding], next [next_step]
problem: @survey.startup_root.StartProblem
segment_plan: @survey.startup.SegmentPlan
rebuilt_file: @survey.startup.RebuiltFile
partition_plan: @survey.startup.PartitionPlan
recovered: kind =total, path text, ok bool, n_bytes_lost int, is_clean bool, checkpoints [text], findings [finding],
    n_more_findings int, problems [problem], n_backup_files int, is_written bool, log_dirs [text], next [next_step]
compacted_partition: @repair.compacting.compacted_partitions.CompactedPartition
preflight: @repair.recovering.recovered_partitions.Preflight
next_step: @survey.next_steps.NextStep
salvage: @repair.salvaging.salvaged_partitions.SalvageReport, next [next_step]
salvaged_partition: @repair.salvaging.salvaged_partitions.SalvagedPartition, output text?, start_offset int?,
    end_offset int?, open_transactions [[int]], transactions_without_marker [[int]]
salvaged_segment: @repair.salvaging.salvaged_partitions.SalvagedSegment
evidence_file: @repair.salvaging.salvaged_partitions.EvidenceFile
hole: @repair.salvaging.salvaged_partitions.LostRange, open_transactions [[int]]
piece: @repair.salvaging.salvaged_partitions.LostPiece
merge: @repair.merging.merged_partitions.MergeReport, next [next_step]
merged_partition: @repair.merging.merged_partitions.MergedPartition, leader text?
merged_copy: @repair.merging.merged_partitions.MergedReplica, last_epoch int?
merged_range: @repair.merging.merged_partitions.MergedRange, leader_epochs [int]?
plan: @repair.rescue.plan.RescuePlan
plan_piece: @repair.rescue.plan.PlanPiece, leader_epochs [int]
replica_batch: @repair.diff.ReplicaBatch
diff: @repair.diff.ReplicaDiff, is_kept bool?
content_diff: @comparing.content.ContentDiff
topic_content: @comparing.content.TopicContent
content_range: @comparing.content.ContentRange
translated_offsets: @comparing.translation.TranslatedOffsets
translated_offset: @comparing.translation.TranslatedOffset
boot: path text, release text, cluster_id text, is_written bool, ok bool, doubts [text], metadata text?,
    metadata_doubt text,
    carried {int}, next_producer_id int, n_groups int, n_commits int, nodes [boot_node], topics [boot_topic],
    partitions [boot_partition], open_transactions [boot_transaction], findings [finding], n_more_findings int,
    next_commands [text], next [next_step]
boot_node: @booting.report.BootNode
boot_topic: topic text, topic_id text, topic_id_from text, partitions int, partitions_from text,
    settings {boot_setting}, replaced_settings {text}, n_expiring int, missing [boot_missing]
boot_setting: value text, from text
boot_missing: partition int, continues_at int
boot_partition: @booting.report.BootPartition
boot_transaction: @booting.report.BootTransaction
rescued_quorum: path text, node_id int, is_dynamic bool, end_offset int, leader_epoch int, timestamp int,
    voters [int], orphaned {[int]}, is_written bool, backup text?, next_steps [text]
converted: @operations.converting.converted_partitions.ConvertedPartition, n_records_dropped int
loaded: path text, @operations.loading.loaded_partitions.LoadedPartition, first_offset int?, next_offset int?
findings_file: version int, command text, paths [text], exit_code int, partitions [partition_loss],
    findings [finding], n_more_findings int, next [next_step]
partition_loss: path text, +loss
remote_storage: @operations.remote_storage.StorageReport
storage_fault: @operations.remote_storage.StorageFault, kind text
any_object:
"""
"""Objects and their fields. ``?``: may be null. ``~``: may be absent. ``[T]``: a list. ``{T}``: an object of values T.
``+object`` includes its fields, and ``@module.Class`` those of a class of results (see `result_kinds.kinds_of`); fields
after it replace them. ``=word`` is that word.
"""

OUTPUTS: Final = {
    "ls": "listed_partition | listed_segment",
    "cat": "record | explanation",
    "sql": "any_object",
    "batches": "batch | batch_group",
    "lookup": "trace",
    "dump": "dumped_file | dumped_batch | dumped_record | dumped_bytes | dumped_offset | dumped_time"
    " | dumped_aborted | dumped_producer | dumped_sanity | dumped_mismatch",
    "producers": "producers",
    "epochs": "epochs",
    "groups": "group | state_record | translated_offsets",
    "transactions": "transaction | state_record",
    "metadata": "cluster_row | state_record",
    "schemas": "schema | state_record",
    "index-stats": "index_stats",
    "verify": "verified_segment | verified_partition | verified_values | verified",
    "tiered": "remote_storage",
    "preflight": "preflight",
    "recover": "partition_plan | recovered",
    "truncate": "partition_plan",
    "trim": "partition_plan",
    "compact": "compacted_partition",
    "salvage": "salvage",
    "undelete": "undelete",
    "merge": "merge",
    "diff": "diff | content_diff",
    "boot": "boot | rescued_quorum",
    "reindex": "rebuilt_file",
    "convert": "converted",
    "load": "loaded",
    "report": "report",
    "space": "space",
    "findings-file": "findings_file",
}
"""The objects that each command prints with ``--json``; ``findings-file`` is the file of ``--report``."""
VERSIONS: Final[dict[str, int]] = {}
"""Versions above 1."""

_WORDS: Final = {"text": "string", "int": "integer", "number": "number", "bool": "boolean"}
_KINDS: Final = {
    "share": "number",
    "decimal": "number",
    "list": "[text]",
    "command": "text",
    "arguments": "[text]",
    "bool": "bool",
    "text": "text",
}


def json_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's output, or of the file of ``--report``."""
    names = OUTPUTS[command].split(" | ")
    objects = {**_objects(DEFINITIONS), **_of_tables(command)}
    used: dict[str, Any] = {}
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = _object(name, objects)
            waiting += re.findall(r'"#/\$defs/(\w+)"', json.dumps(used[name]))
    version = VERSIONS.get(command, 1)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kafkalog:{command}:{version}",
        "title": f"kafkalog {command}",
        "version": version,
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names],
        "$defs": used,
    }


def _objects(text: str) -> dict[str, list[str]]:
    """The fields of each object, as text."""
    found = {}
    for block in re.split(r"\n(?=\w)", text.strip()):
        name, _, fields = block.partition(":")
        found[name] = [" ".join(one.split()) for one in fields.split(",") if one.strip()]
    return found


def _of_tables(command: str) -> dict[str, list[str]]:
    """The objects of commands that print tables or rows, from the definitions of these."""
    if command == "batches":
        return {"batch": [*_batch_fields()]}
    if command == "dump":
        from kafkalog.operations.dumping.rows import ROWS

        return _objects(ROWS)
    if command not in ("report", "space", "undelete"):
        return {}
    from kafkalog.reporting import contents, space
    from kafkalog.reporting.tables import tables_of
    from kafkalog.undeleting import undelete

    definitions, more = {
        "report": (contents.TABLES, ["paths [text]", "created int", "ok bool", "n_more {int}"]),
        "space": (space.TABLES, ["paths [text]"]),
        "undelete": (
            undelete.TABLES,
            ["images [text]", "ok bool", "is_written bool", "findings [finding]", "next [next_step]"],
        ),
    }[command]
    tables = tables_of(definitions)
    found = {command: ["version int", "summary {any}", *more]}
    for table in tables.values():
        found[command].append(f"{table.name} [{command}_{table.name}]")
        found[f"{command}_{table.name}"] = [
            f"{name} {_KINDS.get(kind, 'int')}{'?' if name in table.nullable else ''}"
            for name, kind in table.columns.items()
        ]
    return found


def _batch_fields() -> Iterator[str]:
    from kafkalog.scanning.batch_scan import batch_schema

    for field in batch_schema():
        kind = {"string": "text", "bool": "bool"}.get(str(field.type), "int")
        yield f"{field.name}~ {kind}{'?' if field.name in ('topic', 'partition') else ''}"


def _object(name: str, objects: dict[str, list[str]]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for one in objects[name]:
        if one.startswith("+"):
            other = _object(one[1:], objects)
            properties |= other["properties"]
            required += other["required"]
            continue
        for field, kind in _fields_of(one[1:]) if one.startswith("@") else [one.split(" ")]:
            name = field.rstrip("~")
            properties[name] = _type(kind)
            required = [other for other in required if other != name] + ([] if field.endswith("~") else [name])
    return {"type": "object", "properties": properties, "required": required}


def _fields_of(path: str) -> Iterator[tuple[str, str]]:
    """The fields of a class of results, with the names of objects instead of those of classes."""
    module, _, name = path.rpartition(".")
    for field, kind in kinds_of(getattr(importlib.import_module(f"kafkalog.{module}"), name)).items():
        yield field, re.sub(r"[A-Z]\w+", lambda match: _OBJECTS.get(match[0]) or _snake_case(match[0]), kind)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_OBJECTS: Final = {name: one for one, name in re.findall(r"(?m)^(\w+):[^@\n]*@[\w.]+\.(\w+)", DEFINITIONS)}
"""The objects of classes of results."""


def _type(kind: str) -> dict[str, Any]:
    if kind.endswith("?"):
        return {"anyOf": [_type(kind[:-1]), {"type": "null"}]}
    if kind.startswith("["):
        return {"type": "array", "items": _type(kind[1:-1])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": _type(kind[1:-1])}
    if kind.startswith("="):
        return {"const": kind[1:]}
    if kind == "any":
        return {}
    return {"type": _WORDS[kind]} if kind in _WORDS else {"$ref": f"#/$defs/{kind}"}


class PrintSchema(argparse.Action):
    """Prints the schema of a command, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: Any = None) -> None:
        """Print the schema."""
        sys.stdout.write(json.dumps(json_schema(values), indent=1) + "\n")
        parser.exit()
