"""Walk messages of formats v0 and v1 to spans, including the messages inside compressed ones (wrappers).

Mirrors `LegacyRecord` and `AbstractLegacyRecordBatch.DeepRecordsIterator`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.legacy as kernels
from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import CorruptionError, KafkalogError, Limits, Reason
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.codecs import Arena, decompress_into, unknown_codec
from kafkalog.records.spans import (
    MAX_ARENA,
    Spans,
    batch_error,
    concatenate_columns,
    locate_error,
    scratch,
    thread_arena,
    too_many_records,
)

_OK = STATUS["OK"]


def walk_legacy(
    window: Window, batches: BatchTable, *, check_crcs: bool, room: int, limits: Limits, path: str | None
) -> tuple[Spans | None, int, KafkalogError | None]:
    """Spans of the messages in batches of magic 0 or 1, the number of batches done, and the error about the next batch.

    It stops after `room` decompressed bytes; the caller continues with another call.
    """
    status, n_done, outer = outer_spans(window, batches, check_crcs=check_crcs)
    error: KafkalogError | None = None
    if status != _OK:
        codec_id = int(batches.attributes[n_done]) & kf.CODEC_MASK
        # report an unknown codec first: other errors may follow from it
        if status != STATUS["CRC_MISMATCH"] and codec_id > kf.LAST_CODEC:
            unknown = unknown_codec(codec_id)
            error = locate_error(unknown, batches, n_done, path)
        else:
            error = batch_error(status, batches, n_done, path)
    batches = batches[:n_done]
    if (batches.attributes & kf.CODEC_MASK).any():
        return _walk_wrappers(window, batches, outer, error, room, limits, path)
    spans = Spans(
        data=window.data,
        batches=batches,
        counts=np.ones(n_done, np.int64),
        offset=batches.last_offset,
        timestamp=batches.max_timestamp,
        **{name: column[:n_done] for name, column in outer._asdict().items()},
    )
    return spans, n_done, error


class OuterSpans(NamedTuple):
    """Spans of the outer messages of a window. The value of a compressed message is its compressed content."""

    key_start: npt.NDArray[np.int32]
    key_size: npt.NDArray[np.int32]
    value_start: npt.NDArray[np.int32]
    value_size: npt.NDArray[np.int32]


def outer_spans(window: Window, batches: BatchTable, *, check_crcs: bool) -> tuple[int, int, OuterSpans]:
    """Return a status, the number of messages before the first bad one, and their spans.

    The spans use memory of the thread, which the next call overwrites.
    """
    n = len(batches)
    outer = OuterSpans(*(scratch(name, n, np.int32) for name in OuterSpans._fields))
    status, n_done = kernels.walk_messages(
        window.data,
        batches.position - window.start,
        batches.size_in_bytes,
        batches.magic,
        batches.crc,
        check_crcs,
        *outer,
    )
    return status, n_done, outer


def _walk_wrappers(
    window: Window,
    batches: BatchTable,
    outer: OuterSpans,
    error: KafkalogError | None,
    room: int,
    limits: Limits,
    path: str | None,
) -> tuple[Spans | None, int, KafkalogError | None]:
    """Walk compressed wrappers and the uncompressed messages between them, which are copied to the same arena."""
    arena = thread_arena()
    parts: list[list[npt.NDArray[Any]]] = []
    codecs = (batches.attributes & kf.CODEC_MASK).tolist()
    for row, codec in enumerate(codecs):
        if arena.used >= room or arena.used > MAX_ARENA - limits.max_decompressed_bytes:
            error = None  # the bad batch was not reached: the next call finds it again
            break
        at = arena.used
        try:
            if not codec:
                parts.append(_plain_message(window, batches, row, outer, arena))
            else:
                size = int(outer.value_size[row])
                if size < 0:
                    raise CorruptionError(Reason.LEGACY_NULL_WRAPPER, "a compressed message has no value")
                payload = window.data[outer.value_start[row] : outer.value_start[row] + size]
                decompress_into(arena, codec, payload, magic=int(batches.magic[row]), limits=limits)
                parts.append(_message_set(batches, row, arena, at, limits, path))
        except KafkalogError as problem:
            arena.used = at  # the wrapper may have been decompressed before its messages turned out to be bad
            error = locate_error(problem, batches, row, path)
            break
    n_done = len(parts)
    if not parts:
        return None, n_done, error
    counts = np.zeros(len(batches), np.int64)
    counts[:n_done] = [part[0].size for part in parts]
    columns: dict[str, Any] = concatenate_columns(parts, _COLUMNS)
    spans = Spans(arena.data[: arena.used], batches, counts, **columns)
    return spans, n_done, error


_COLUMNS = (
    "offset",
    "timestamp",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "timestamp_type",
    "batch_base_offset",
)


def _plain_message(
    window: Window, batches: BatchTable, row: int, outer: OuterSpans, arena: Arena
) -> list[npt.NDArray[Any]]:
    at = arena.used
    key_size, value_size = int(outer.key_size[row]), int(outer.value_size[row])
    for start, size in ((int(outer.key_start[row]), key_size), (int(outer.value_start[row]), value_size)):
        if size > 0:
            arena.append(window.data[start : start + size])
    offset = batches.last_offset[row : row + 1]
    i32 = np.int32
    return [
        offset,
        batches.max_timestamp[row : row + 1],
        np.array([at], i32),
        np.array([key_size], i32),
        np.array([at + max(key_size, 0)], i32),
        np.array([value_size], i32),
        batches.timestamp_type[row : row + 1],
        offset,
    ]


def _message_set(
    batches: BatchTable, row: int, arena: Arena, start: int, limits: Limits, path: str | None
) -> list[npt.NDArray[Any]]:
    # room for the maximum number of messages in this many bytes
    n_most = (arena.used - start) // kf.LEAST_BATCH_BYTES
    capacity = min(n_most, limits.max_records_per_batch)
    offset, timestamp = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    timestamp_type = np.empty(capacity, np.int8)
    spans = [np.empty(capacity, np.int32) for _ in range(4)]
    status, n, _ = kernels.walk_message_set(
        arena.data,
        start,
        arena.used,
        int(batches.last_offset[row]),
        int(batches.magic[row]),
        int(batches.attributes[row]),
        int(batches.max_timestamp[row]),
        offset,
        timestamp,
        timestamp_type,
        *spans,
    )
    if status == STATUS["OUTPUT_FULL"]:
        raise too_many_records(batches, row, limits, path)
    if status != _OK:
        raise batch_error(status, batches, row, path)
    return [
        offset[:n],
        timestamp[:n],
        *(span[:n] for span in spans),
        timestamp_type[:n],
        np.full(n, offset[0], np.int64),
    ]
