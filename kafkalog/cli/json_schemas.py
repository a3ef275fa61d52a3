"""`kafkalog --json-schema COMMAND`: the JSON Schema of the lines, or of the object, that a command prints.

Programs may rely on it: later releases only add fields and objects. To rename or remove a field raises the version of
its command.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any, Final

DEFINITIONS: Final = """
place: topic text?, partition int?
finding: reason text, detail text, path text?, position int?, length int?, base_offset int?, last_offset int?,
    damage bool, n_records int?, certainty text?
loss: n_findings int, n_records int, certainty text?, n_unknown int, first_offset int?, last_offset int?
lost: path text, first_offset int?, end_offset int?, n_records int?, certainty text?, n_bytes int, reason text
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
batch: topic~ text?, partition~ int?, segment~ text, position~ int, size_in_bytes~ int, base_offset~ int,
    last_offset~ int, partition_leader_epoch~ int, magic~ int, crc~ int, attributes~ int, base_timestamp~ int,
    max_timestamp~ int, producer_id~ int, producer_epoch~ int, base_sequence~ int, records_count~ int,
    control_type~ int, codec~ int, timestamp_type~ int, is_transactional~ bool, is_control~ bool,
    delete_horizon_ms~ int, compression~ text
batch_group: n_batches int, n_records int, n_records_is_minimum bool, n_bytes int, mean_records number?,
    mean_bytes number, min_bytes int, p50_bytes int, p90_bytes int, p99_bytes int, max_bytes int,
    n_transactional int, n_idempotent int, n_control int
index_entry: path text, n_entries int, entry int?, timestamp~ int?, offset int?, position int?, is_right bool?
trace: +place, asked {any}, segment segment_step?, time_index index_entry?, offset_index index_entry?,
    position int?, batches_scanned int, batch batch_step?, offset int?, timestamp int?, leader_epoch int?, reason text?,
    findings [finding], record record?
batch_step: position int, size_in_bytes int, base_offset int?, last_offset int, magic int, codec text,
    max_timestamp int?, records_count int?
segment_step: path text, base_offset int, largest_timestamp int?, is_whole bool
dumped_file: kind =file, path text, base_offset int?
dumped_batch: kind =batch, position int, size_in_bytes int, base_offset int?, last_offset int,
    partition_leader_epoch int, magic int, base_timestamp int, max_timestamp int, producer_id int, producer_epoch int,
    base_sequence int, last_sequence~ int, records_count int?, timestamp_type int, is_transactional bool,
    is_control bool, delete_horizon_ms int?, compression text, crc int, is_valid bool
dumped_record: kind =record, offset int, timestamp~ int, timestamp_type~ int, key_size~ int, value_size~ int,
    sequence~ int, control~ control, key~ any, value~ any, not_decoded~ text, headers~ [any]
control: type text
dumped_bytes: kind =trailing_bytes, position int, size_in_bytes int
dumped_offset: kind =offset_index_entry, offset int, position int
dumped_time: kind =time_index_entry, timestamp int, offset int
dumped_aborted: kind =aborted_transaction, version int, producer_id int, first_offset int, last_offset int,
    last_stable_offset int
dumped_producer: kind =producer, producer_id int, producer_epoch int, coordinator_epoch int,
    current_txn_first_offset int?, timestamp int, last_offset int?, offset_delta int?, first_sequence int?,
    last_sequence int?
dumped_sanity: kind =sanity, passed bool
dumped_mismatch: kind =mismatch, what text, path text, indexed_offset~ int, log_offset~ int, indexed_timestamp~ int,
    log_timestamp~ int, previous_timestamp~ int, offset~ int, next_offset~ int
producer: producer_id int, producer_epoch int, last_sequence int, last_offset int, last_timestamp int,
    coordinator_epoch int, transaction_start_offset int?, transaction_start_timestamp int?, idle_ms int?,
    is_overdue bool, is_blocking bool
producers: +place, path text, last_stable_offset int, log_end_offset int, n_open int, n_overdue int,
    producers [producer]
epoch: epoch int, start_offset int, end_offset int
epochs: +place, source text, log_end_offset int, epochs [epoch], end_offsets [any], followers [any]
delivery: first_offset int, last_offset int, state text, delivery_count int
group_offset: topic text, partition int, offset int, leader_epoch int, metadata text, commit_timestamp int?,
    expire_timestamp int?, log_end_offset int?, lag int?, out_of_range text?, n_done int?, deliveries [delivery]
member: member_id text, client_id text?, client_host text?, instance_id text?, subscribed [text],
    assigned {[int]}, tasks {[int]}, epoch int, assignor text?
group: group text, type text, state text, lag int?, epoch int, protocol text?, members [member],
    offsets [group_offset], pending [group_offset]
state_record: topic text, partition int, offset int, timestamp int?, type text, version int?, key any, value any,
    producer_id int?, error text?
topic_partition: topic text, partition int
open_transaction: topic text, partition int, producer_id int, producer_epoch int, coordinator_epoch int,
    start_offset int, start_timestamp int?, last_timestamp int, idle_ms int?, n_held int, is_blocking bool,
    is_hanging bool, abort_command text?
transaction: transactional_id text?, state text?, producer_id int, producer_epoch int, timeout_ms int?,
    start_timestamp int?, last_update_timestamp int?, coordinator_partition int?, partitions [topic_partition],
    open [open_transaction], is_hanging bool
cluster_row: kind text
schema: subject text, version int, id int, type text, schema text, references [any], guid text, metadata any,
    rule_set any, deleted text?, offset int, timestamp int
spread: n int, mean number?, p50 int?, p99 int?, max int?
index: index_interval_bytes int?, size_in_bytes int, n_entries int, n_time_entries int?, gap_bytes spread,
    expected_scan_by_offset number?, worst_scan int, index_bytes int, index_bytes_per_log_byte number?,
    entries_per_mib number?
index_stats: path text, +place, segment text?, size_in_bytes int, n_batches int, n_segments int, n_unindexed int,
    index index?, what_if~ [index]
verified_segment: kind =segment, path text, +place, base_offset int, last_offset int, size_in_bytes int,
    n_batches int, ok bool, unreadable bool, findings [finding]
gap: start int, end int, is_compacted bool?
verified_partition: kind =partition, path text, +place, ok bool, unreadable bool, lost loss, losses [lost], gaps [gap],
    findings [finding]
verified_values: kind =values, ok bool, topic text?, column text, n_records int, n_undecoded int,
    first_partition int?, first_offset int?, first_reason text?, reasons {int}, path text?
verified: kind =total, path any, ok bool, damaged [text], unreadable [text], findings [finding], next [next_step]
problem: reason text, path text, detail text, position int?, effect text
segment_plan: name text, base_offset int, action text, n_bytes_before int, n_bytes int, finding finding?,
    expires text?, is_expired_early bool
rebuilt_file: path text, kind text, n_entries int, n_bytes int, change text, backup text?
partition_plan: path text, +place, verdict text, error text?, log_start_offset int,
    log_end_offset int, log_end_offset_before int?, stray text?, remarks [text], n_bytes int, n_bytes_lost int,
    unreadable [text], removed {text}, renamed {text}, losses [lost], problem finding?, segments [segment_plan],
    files [rebuilt_file]
compacted_partition: path text, +place, verdict text, error text?, log_start_offset int, log_end_offset int,
    log_end_offset_before int?, stray text?, remarks [text], n_bytes int, n_bytes_lost int, n_bytes_before int,
    unreadable [text],
    removed {text}, renamed {text}, losses [lost], problem finding?, segments [segment_plan], files [rebuilt_file],
    cleaned_to int?, n_records_before int, n_records int
preflight: is_clean bool, is_kraft bool, verdict text, n_bytes_read int, n_bytes_lost int, n_bytes_needed int,
    next [next_step], problems [problem], partitions [partition_plan], findings [finding], n_more_findings int
next_step: command [text], why text, after text
salvage: ok bool, is_written bool, partitions [salvaged_partition], findings [finding], n_more_findings int
salvaged_partition: path text, output text?, quarantine text?,
    start_offset int?, end_offset int?, segments [salvaged_segment], lost [hole], n_more_lost int, losses [lost],
    evidence [any], error text?, open_transactions [[int]], transactions_without_marker [[int]]
salvaged_segment: path text, base_offset int, size_in_bytes int, n_bytes_kept int, n_bytes_lost int,
    n_bytes_padding int, n_bytes_suspect int, n_batches_kept int, n_batches_suspect int, n_batches_undecodable int,
    n_records_kept int
hole: segment text, start int, end int, size_in_bytes int, reason text, first_offset int, end_offset int?,
    n_records int?, certainty text?, timestamp_before int?, timestamp_after int?, pieces [piece]
piece: start int, end int, is_suspect bool, reason text, quarantine_position int
merge: ok bool, is_written bool, partitions [merged_partition], findings [finding], n_more_findings int
merged_partition: output text, leader text?, start_offset int, end_offset int, replicas [merged_copy],
    ranges [merged_range], error text?
merged_copy: path text, last_epoch int?, start_offset int, end_offset int, n_batches int, n_batches_taken int,
    n_batches_left int, n_bytes_lost int, is_tail_lost bool, truncate_to int?, differs_from int?
merged_range: start_offset int, end_offset int?, source text?, n_batches int, size_in_bytes int, leader_epochs [int]?
diff: ok bool, equal_to int, a text, b text, start_offset int, end_offset_a int, end_offset_b int, n_batches int,
    offset int?, batch_a any, batch_b any, leader text?, truncate_to int?, is_kept bool?
boot: path text, release text, cluster_id text, is_written bool, ok bool, metadata text?, metadata_doubt text,
    carried {int}, next_producer_id int, n_groups int, n_commits int, nodes [boot_node], topics [boot_topic],
    partitions [boot_partition], open_transactions [boot_transaction], findings [finding], n_more_findings int,
    next_commands [text], next [next_step]
boot_node: node_id int, directory text, directory_id text, listener text, controller text
boot_topic: topic text, topic_id text, topic_id_from text, partitions int, partitions_from text,
    settings {boot_setting}, replaced_settings {text}, missing [boot_missing]
boot_setting: value text, from text
boot_missing: partition int, continues_at int
boot_partition: topic text, partition int, source text, node_id int, log_start_offset int, log_end_offset int,
    leader_epoch int, n_segments int, n_bytes int, is_leader bool
boot_transaction: topic text, partition int, producer_id int, start_offset int, ends_by_itself bool, command text
rescued_quorum: path text, node_id int, is_dynamic bool, end_offset int, leader_epoch int, timestamp int,
    voters [int], orphaned {[int]}, is_written bool, backup text?, next_steps [text]
converted: +place, path text, source text, start_offset int, end_offset int, n_batches_before int,
    n_batches_after int, n_batches_kept int, n_records_before int, n_records_after int, n_records_redacted int,
    n_records_dropped int, n_bytes_before int, n_bytes_after int, lost loss, findings [finding]
loaded: path text, topic text, partition int, n_records int, n_batches int, n_bytes int, first_offset int?,
    next_offset int?
findings_file: version int, command text, paths [text], exit_code int, partitions [partition_loss],
    findings [finding], n_more_findings int
partition_loss: path text, +loss
remote_storage: ok bool, layout text, faults [storage_fault], n_partitions int, n_copies int, n_bytes int,
    n_skipped int, wasted_bytes int
storage_fault: kind text, detail text, topic text?, partition int?, segment_id text?, first_offset int?,
    last_offset int?, n_bytes int, damage bool
any_object:
"""
"""Objects and their fields. ``?``: may be null. ``~``: may be absent. ``[T]``: a list. ``{T}``: an object of values T.
``+object`` includes its fields. ``=word`` is that word.
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
    "groups": "group | state_record",
    "transactions": "transaction | state_record",
    "metadata": "cluster_row | state_record",
    "schemas": "schema | state_record",
    "index-stats": "index_stats",
    "verify": "verified_segment | verified_partition | verified_values | verified",
    "tiered": "remote_storage",
    "preflight": "preflight",
    "recover": "partition_plan",
    "truncate": "partition_plan",
    "trim": "partition_plan",
    "compact": "compacted_partition",
    "salvage": "salvage",
    "merge": "merge",
    "diff": "diff",
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
    """The objects of commands that print tables, from the definitions of these."""
    if command not in ("report", "space"):
        return {}
    from kafkalog.reporting import contents, space
    from kafkalog.reporting.tables import tables_of

    tables = tables_of(contents.TABLES if command == "report" else space.TABLES)
    more = ["created int", "ok bool", "n_more {int}"] if command == "report" else []
    found = {command: ["version int", "paths [text]", "summary {any}", *more]}
    for table in tables.values():
        found[command].append(f"{table.name} [{command}_{table.name}]")
        found[f"{command}_{table.name}"] = [
            f"{name} {_KINDS.get(kind, 'int')}{'?' if name in table.nullable else ''}"
            for name, kind in table.columns.items()
        ]
    return found


def _object(name: str, objects: dict[str, list[str]]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for one in objects[name]:
        if one.startswith("+"):
            other = _object(one[1:], objects)
            properties |= other["properties"]
            required += other["required"]
            continue
        field, kind = one.split(" ")
        properties[field.rstrip("~")] = _type(kind)
        required += [] if field.endswith("~") else [field]
    return {"type": "object", "properties": properties, "required": required}


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
