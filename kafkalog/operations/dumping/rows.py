"""Turns what a dump reads into objects: one dict for each batch, record or mismatch.

Dicts include the values of headers, which the text omits. Fields are named as columns of the batch table and of
records. Sizes, timestamps and offsets are numbers; keys and values are `bytes`, or the result of the decoder in the
options: a dict for a decoder of a topic.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import CorruptionError
from kafkalog.interchange.arrow_output import java_string
from kafkalog.operations.dumping.decoders import control_type, decoded, parse_control
from kafkalog.operations.dumping.log_walk import BatchRun, LogWalk
from kafkalog.operations.dumping.mismatches import Mismatches
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.printed import shown_record
from kafkalog.records.batch_table import sequences
from kafkalog.records.columns import RecordColumns

Row = dict[str, Any]

ROWS: Final = """
dumped_file: kind =file, path text, base_offset int?
dumped_batch: kind =batch, position int, size_in_bytes int, base_offset int?, last_offset int,
    partition_leader_epoch int, magic int, base_timestamp int, max_timestamp int, producer_id int, producer_epoch int,
    base_sequence int, records_count int?, last_sequence~ int, timestamp_type int, is_transactional bool,
    is_control bool, delete_horizon_ms int?, compression text, crc int, is_valid bool
dumped_record: kind =record, offset int, timestamp~ int, timestamp_type~ int, key_size~ int, value_size~ int,
    sequence~ int, control~ control, key~ any, value~ any, not_decoded~ text, headers~ [any]
dumped_bytes: kind =trailing_bytes, position int, size_in_bytes int
dumped_offset: kind =offset_index_entry, offset int, position int
dumped_time: kind =time_index_entry, timestamp int, offset int
dumped_aborted: kind =aborted_transaction, version int, producer_id int, first_offset int, last_offset int,
    last_stable_offset int
dumped_producer: kind =producer, producer_id int, producer_epoch int, coordinator_epoch int, timestamp int,
    current_txn_first_offset int?, last_sequence int?, last_offset int?, offset_delta int?, first_sequence int?
dumped_sanity: kind =sanity, passed bool
dumped_mismatch: kind =mismatch, what text, path text, indexed_offset~ int, log_offset~ int, indexed_timestamp~ int,
    log_timestamp~ int, previous_timestamp~ int, offset~ int, next_offset~ int
control: type text
"""
"""The objects of rows, in the notation of `kafkalog.cli.json_schemas`; ``~`` marks fields that a row may lack."""


@cache
def fields_of(kind: str) -> tuple[str, ...]:
    """Return the names of the fields of a kind of rows, in their order; before them is `kind` itself."""
    (row,) = (row for row in re.split(r"\n(?=\w)", ROWS) if f": kind ={kind}," in row)
    return tuple(field.split()[0].rstrip("~") for field in row.split(",")[1:])


_PAIRS: Final = {
    "offset": ("mismatch", "indexed_offset", "log_offset"),
    "timestamp": ("timestamp_mismatch", "indexed_timestamp", "log_timestamp"),
    "order": ("out_of_order", "indexed_timestamp", "previous_timestamp"),
    "missing": ("not_found", "indexed_offset", "log_offset"),
    "gap": ("non_consecutive", "offset", "next_offset"),
}


def rows_of_report(report: Mismatches) -> Iterator[Row]:
    """Yield the mismatches that the tool lists at the end."""
    for kind, path, first, second in report.pairs():
        name, of_first, of_second = _PAIRS[kind]
        yield {"kind": "mismatch", "what": name, "path": path, of_first: first, of_second: second}


def rows_of_log(walk: LogWalk, options: DumpOptions) -> Iterator[Row]:
    """Yield the objects of a log's batches and records; raises the same errors as the text."""
    for part in walk.parts():
        records = iter(()) if part.records is None else _record_rows(part, part.records, options)
        for number, (batch, n_records) in enumerate(zip(_batch_rows(part), part.counts.tolist(), strict=True)):
            try:
                found = [batch, *itertools.islice(records, n_records)]
            except (CorruptionError, ValueError) as error:
                if number:
                    walk.report_shown(part.first(number))
                if isinstance(error, CorruptionError):
                    walk.locate(error, part, number)
                raise
            yield from found
        walk.report_shown(part)
    if walk.trailing_bytes:
        yield {"kind": "trailing_bytes", "position": walk.position, "size_in_bytes": walk.trailing_bytes}


def _batch_rows(part: BatchRun) -> Iterator[Row]:
    batches = part.batches
    derived: dict[str, Any] = {
        "last_sequence": sequences(batches.last_offset, batches, np.arange(len(batches))),
        "compression": batches.codec,
        "is_valid": part.is_valid,
    }
    columns = {name: derived[name] if name in derived else getattr(batches, name) for name in fields_of("batch")}
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        found: Row = {"kind": "batch", **dict(zip(columns, values, strict=True))}
        if found["magic"] < 2 and found["compression"]:
            # a compressed message of v0 or v1 has neither field
            found["base_offset"] = found["records_count"] = None
        if found["last_sequence"] == -1:
            del found["last_sequence"]
        if found["delete_horizon_ms"] == kf.NO_TIMESTAMP:
            found["delete_horizon_ms"] = None
        found["compression"] = kf.codec_name(found["compression"])
        yield found


def _record_rows(part: BatchRun, records: RecordColumns, options: DumpOptions) -> Iterator[Row]:
    """Yield the records of a part; raise ValueError for a key or value that is shorter than its decoder needs."""
    has_metadata, shows_contents = not options.skip_record_metadata, options.shows_contents
    for offset, timestamp, timestamp_type, sequence, is_control, key, value, headers in zip(
        records.offset.tolist(),
        records.timestamp.tolist(),
        records.timestamp_type.tolist(),
        records.sequence.tolist(),
        part.batches.is_control[part.batch_rows()].tolist(),
        records.key.to_pylist(),
        records.value.to_pylist(),
        records.headers.to_pylist(),
        strict=True,
    ):
        found: Row = {"kind": "record", "offset": offset}
        if has_metadata:
            found["timestamp"] = timestamp
            found["timestamp_type"] = timestamp_type
            found["key_size"] = -1 if key is None else len(key)
            found["value_size"] = -1 if value is None else len(value)
            found["sequence"] = sequence
            if is_control:
                found["control"] = _control_fields(key, value)
        if shows_contents and not is_control:
            if options.topic is None:
                found["key"] = decoded(key, options.key_decoder, offset)
                found["value"] = decoded(value, options.value_decoder, offset)
            else:
                found |= _internal(options.topic, key, value)
        if has_metadata or shows_contents:
            found["headers"] = [(java_string(name), content) for name, content in headers]
        yield found


def _control_fields(key: bytes | None, value: bytes | None) -> Row:
    """Parse a control record."""
    kind = control_type(key)
    known = kind in kf.ControlRecordType.__members__.values()
    name = kf.ControlRecordType(kind).name if known else f"UNKNOWN({kind})"
    return {"type": name, **parse_control(key, value)}


def _internal(topic: str, key: bytes | None, value: bytes | None) -> Row:
    """Decode a record of an internal topic; one that cannot be decoded stays as it is, with the reason."""
    try:
        shown_key, shown = shown_record(topic, key, value)
    except MessageError as error:
        return {"key": key, "value": value, "not_decoded": str(error)}
    return {"key": shown_key, "value": shown}
