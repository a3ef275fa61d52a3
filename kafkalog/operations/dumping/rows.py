"""Turns what a dump reads into objects: one dict for each batch, record or mismatch.

Dicts include the values of headers, which the text omits. Field names are those of the batch table and the record
columns. Sizes, timestamps and offsets are numbers; keys and values are `bytes`, or the result of the decoder in the
options: a dict for a decoder of a topic.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.decode import walk_headers
from kafkalog._kernels.dump_walk import STATUSES
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import CorruptionError
from kafkalog.interchange.arrow_output import java_string
from kafkalog.operations.dumping import control
from kafkalog.operations.dumping.dump_walk import LogWalk, Step, error_at, is_known
from kafkalog.operations.dumping.options import DECODERS, DumpOptions
from kafkalog.operations.dumping.report import Report
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.printed import shown_record

Row = dict[str, Any]

_OK = STATUS["OK"]
_BATCH_FIELDS: Final = (
    "position",
    "size_in_bytes",
    "base_offset",
    "last_offset",
    "partition_leader_epoch",
    "magic",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)
_PAIRS: Final = {
    "offset": ("mismatch", "indexed_offset", "log_offset"),
    "timestamp": ("timestamp_mismatch", "indexed_timestamp", "log_timestamp"),
    "order": ("out_of_order", "indexed_timestamp", "previous_timestamp"),
    "missing": ("not_found", "indexed_offset", "log_offset"),
    "gap": ("non_consecutive", "offset", "next_offset"),
}


def rows_of_report(report: Report) -> Iterator[Row]:
    """Yield the mismatches that the tool lists at the end."""
    for kind, path, first, second in report.pairs():
        name, of_first, of_second = _PAIRS[kind]
        yield {"kind": "mismatch", "what": name, "path": path, of_first: first, of_second: second}


def rows_of_log(walk: LogWalk, options: DumpOptions) -> Iterator[Row]:
    """Yield the objects of a log's batches and records; raises the same errors as the text.

    A message that is shorter than its own fields is an error here, even where the text still has a line for it.
    """
    for step in walk.steps():
        n_shown = 0
        batches = step.batches
        records = _record_rows(step, options)
        headers = _batch_rows(batches[(batches["is_continued"] == 0) & is_known(batches)])
        for row, (is_continued, n_records) in enumerate(batches[["is_continued", "n_records"]].tolist()):
            if not is_continued:
                # of a batch that Kafka does not know there is no object; the text has half a line
                yield from itertools.islice(headers, 1)
            try:
                for found in itertools.islice(records, n_records):
                    yield found
                    n_shown += 1
            except (CorruptionError, ValueError) as error:
                walk.report_shown(step, row + 1, n_shown + 1)
                if isinstance(error, CorruptionError):
                    error.path, error.position, error.base_offset = walk.location(step, row)
                raise
        walk.report_shown(step)
    position = walk.position
    n = walk.trailing_bytes()
    if n:
        yield {"kind": "trailing_bytes", "position": position, "size_in_bytes": n}


def _batch_rows(batches: npt.NDArray[np.void]) -> Iterator[Row]:
    if not batches.size:
        return
    is_v2 = batches["magic"] >= 2
    attributes, horizon = batches["attributes"], batches["base_timestamp"]
    has_horizon = is_v2 & (attributes & kf.DELETE_HORIZON_BIT != 0) & (horizon != -1)
    for values, last_sequence, kind, is_transactional, is_control, has, codec, crc, is_valid in zip(
        zip(*(batches[name].tolist() for name in _BATCH_FIELDS), strict=True),
        batches["last_sequence"].tolist(),
        _timestamp_type(batches).tolist(),
        (is_v2 & (attributes & kf.TRANSACTIONAL_BIT != 0)).tolist(),
        _is_control(batches).tolist(),
        has_horizon.tolist(),
        (attributes & kf.CODEC_MASK).tolist(),
        batches["crc"].tolist(),
        (batches["is_valid"] != 0).tolist(),
        strict=True,
    ):
        found: Row = {"kind": "batch"}
        found.update(zip(_BATCH_FIELDS, values, strict=True))
        if found["magic"] < 2:
            if codec:
                # a compressed message of v0 or v1 has neither field
                found["base_offset"] = found["records_count"] = None
        elif found["base_sequence"] != -1:
            found["last_sequence"] = last_sequence
        found["timestamp_type"] = kind
        found["is_transactional"] = is_transactional
        found["is_control"] = is_control
        found["delete_horizon_ms"] = found["base_timestamp"] if has else None
        found["compression"] = kf.codec_name(codec)
        found["crc"] = crc
        found["is_valid"] = is_valid
        yield found


def _timestamp_type(batches: npt.NDArray[np.void]) -> npt.NDArray[np.int8]:
    bit = (batches["attributes"] & kf.TIMESTAMP_TYPE_BIT != 0).astype(np.int8)
    return np.where(batches["magic"] == 0, np.int8(-1), bit)


def _is_control(batches: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (batches["magic"] >= 2) & (batches["attributes"] & kf.CONTROL_BIT != 0)
    return found


def _record_rows(step: Step, options: DumpOptions) -> Iterator[Row]:
    """Yield the records of a step; raise ValueError for a key or value that is shorter than its decoder needs."""
    records, batches = step.records, step.batches
    if not records.size:
        return
    has_metadata, shows_contents = not options.skip_record_metadata, options.shows_contents
    of_batch = np.repeat(np.arange(batches.size), batches["n_records"])
    kinds = np.where(records["magic"] == 0, np.int8(-1), _timestamp_type(batches)[of_batch])
    start = int(records["start"][0])
    data = step.data[start : int(records["start"][-1] + records["size"][-1])].tobytes()
    for (
        offset,
        timestamp,
        kind,
        sequence,
        status,
        is_control,
        key_start,
        key_size,
        value_start,
        value_size,
        headers,
    ) in zip(
        records["offset"].tolist(),
        records["timestamp"].tolist(),
        kinds.tolist(),
        records["sequence"].tolist(),
        records["status"].tolist(),
        _is_control(batches)[of_batch].tolist(),
        (records["key_start"] - start).tolist(),
        records["key_size"].tolist(),
        (records["value_start"] - start).tolist(),
        records["value_size"].tolist(),
        _headers(step),
        strict=False,
    ):
        if status != _OK:
            raise error_at(status, None, 0, 0)
        key = None if key_size < 0 else data[key_start : key_start + key_size]
        value = None if value_size < 0 else data[value_start : value_start + value_size]
        found: Row = {"kind": "record", "offset": offset}
        if has_metadata:
            found["timestamp"] = timestamp
            found["timestamp_type"] = kind
            found["key_size"] = -1 if key is None else key_size
            found["value_size"] = -1 if value is None else value_size
            found["sequence"] = sequence
            if is_control:
                found["control"] = _control_fields(key, value)
        if shows_contents and not is_control:
            if options.topic is None:
                found["key"] = _decoded(key, options.key_decoder, offset)
                found["value"] = _decoded(value, options.value_decoder, offset)
            else:
                found |= _internal(options.topic, key, value)
        if has_metadata or shows_contents:
            found["headers"] = [(java_string(name), content) for name, content in headers]
        yield found


def _headers(step: Step) -> Iterator[Sequence[tuple[bytes, bytes | None]]]:
    """Yield the headers of each record of a step."""
    counts = np.ascontiguousarray(step.records["headers_count"])
    total = int(counts.sum(dtype=np.int64))
    if not total:
        return itertools.repeat(())
    spans = np.empty((4, total), np.int32)
    starts = np.ascontiguousarray(step.records["headers_start"])
    walk_headers(step.data, starts, counts, None, np.empty(counts.size + 1, np.int64), *spans)
    data = memoryview(step.data)
    pairs = (
        (bytes(data[key : key + key_size]), None if value_size < 0 else bytes(data[value : value + value_size]))
        for key, key_size, value, value_size in spans.T.tolist()
    )
    return (list(itertools.islice(pairs, count)) for count in counts.tolist())


def _control_fields(key: bytes | None, value: bytes | None) -> Row:
    """Parse a control record."""
    if key is None or len(key) < 4 or key[0] > 127:
        raise error_at(STATUSES["CONTROL_KEY"], None, 0, 0)
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in (kf.ControlRecordType.ABORT, kf.ControlRecordType.COMMIT):
        known = kind in kf.ControlRecordType.__members__.values()
        name = kf.ControlRecordType(kind).name if known else f"UNKNOWN({kind})"
        return {"type": name, **control.parse(kind, value)}
    if value is None or len(value) < 6 or value[0] > 127:
        raise error_at(STATUSES["CONTROL_VALUE"], None, 0, 0)
    epoch = int.from_bytes(value[2:6], "big", signed=True)
    return {"type": kf.ControlRecordType(kind).name, "coordinator_epoch": epoch}


def _internal(topic: str, key: bytes | None, value: bytes | None) -> Row:
    """Decode a record of an internal topic; one that cannot be decoded stays as it is, with the reason."""
    try:
        shown_key, shown = shown_record(topic, key, value)
    except MessageError as error:
        return {"key": key, "value": value, "not_decoded": str(error)}
    return {"key": shown_key, "value": shown}


def _decoded(value: bytes | None, decoder: str | None, offset: int) -> Any:
    """Decode bytes; without a decoder return them as they are."""
    if value is None or decoder is None:
        return value
    name = DECODERS[decoder]
    if name == "string":
        return java_string(value)
    size = 4 if name == "integer" else 8
    if len(value) < size:
        raise ValueError(f"offset {offset}: {len(value)} bytes where the {name} decoder needs {size}")
    return int.from_bytes(value[:size], "big", signed=True)
