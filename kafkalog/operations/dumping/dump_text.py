"""Turns what a dump reads into the lines that Kafka's tool prints.

The kernel prints batches and records. This module names files, completes the lines of Raft's control records and of
records of internal topics, and makes room for long lines.

Mirrors `DumpLogSegments`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels import dump_text as kernels
from kafkalog._kernels.dump_walk import STATUSES
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import CorruptionError, NotKafkaError, Reason
from kafkalog.operations.dumping.control import describe
from kafkalog.operations.dumping.dump_walk import LogWalk, Step, error_at
from kafkalog.operations.dumping.files import start_offset
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.protocol.printed import printed_record

OUT_BYTES: Final = 2**18
"""Bytes of text given at a time."""

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

_OK = STATUS["OK"]
_OUTPUT_FULL = STATUS["OUTPUT_FULL"]
_CONTROL = STATUSES["CONTROL"]
_DECODER = STATUSES["DECODER"]

_BATCH = kernels.STATE["batch"]
_RECORD = kernels.STATE["record"]
_LEFT = kernels.STATE["left"]
_NEEDED = kernels.STATE["needed"]


def title(name: str, *, is_2_8: bool) -> str:
    """Return the line after ``Dumping``: the start offset of a log, or the end offset and epoch of a Raft snapshot.

    Raises
    ------
    NotKafkaError
        The name of the file has no offset.
    """
    if name.endswith(kf.LOG_SUFFIX):
        offset = start_offset(name)
        return f"Starting offset: {offset}" if is_2_8 else f"Log starting offset: {offset}"
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    match = _SNAPSHOT_NAME.fullmatch(name)
    if match is None:
        raise NotKafkaError(Reason.NOT_KAFKA, "the name is not that of a Raft snapshot", path=name)
    return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"


def text_of_log(walk: LogWalk, options: DumpOptions) -> Iterator[bytes]:
    """Yield the lines of a log's batches and records, in pieces.

    Raises
    ------
    KafkalogError
        Where Kafka's tool throws, after the text that it has printed by then.
    ValueError
        A key or a value is shorter than its decoder needs.
    """
    out = np.empty(OUT_BYTES, np.uint8)
    state = np.zeros(kernels.STATE["size"], np.int64)
    how = (options.kernel_flags, *options.kernel_decoders)
    for step in walk.steps():
        state[:] = 0
        state[_LEFT] = -1
        status = _OUTPUT_FULL
        while status != _OK:
            status, n = kernels.format_rows(
                step.table.batch_bytes,
                step.n_batches,
                step.table.record_bytes,
                step.n_records,
                step.data,
                *how,
                out,
                state,
            )
            if n:
                yield out[:n].tobytes()
            if status == _OUTPUT_FULL:
                if state[_NEEDED] > out.size:
                    out = np.empty(int(state[_NEEDED]), np.uint8)
            elif status == _CONTROL:
                yield _rest_of_line(walk, step, int(state[_BATCH]), int(state[_RECORD]) - 1, options)
            elif status != _OK:
                walk.report_shown(step, int(state[_BATCH]) + 1, int(state[_RECORD]))
                path, position, base_offset = walk.location(step, int(state[_BATCH]))
                if status == _DECODER:
                    place = f"{path}@{position} base_offset={base_offset}"
                    raise ValueError(f"{place}: a key or a value is shorter than its decoder needs")
                raise error_at(status, path, position, base_offset)
        walk.report_shown(step)
    n = walk.trailing_bytes()
    if n:
        yield f"Found {n} invalid bytes at the end of {os.path.basename(walk.path)}\n".encode()


def _rest_of_line(walk: LogWalk, step: Step, batch_row: int, row: int, options: DumpOptions) -> bytes:
    """Return the rest of the line of a Raft control record, or of a record of an internal topic."""
    record, batch = step.records[row], step.batches[batch_row]
    key, value = (_part(step, int(record[f"{part}_start"]), int(record[f"{part}_size"])) for part in ("key", "value"))
    try:
        if options.topic is None or (batch["magic"] >= 2 and batch["attributes"] & kf.CONTROL_BIT):
            assert key is not None
            text = describe(int.from_bytes(key[2:4], "big", signed=True), value, is_2_8=options.is_2_8)
        else:
            text = _contents(options.topic, int(record["offset"]), key, value, options)
    except CorruptionError as error:
        walk.report_shown(step, batch_row + 1, row + 1)
        error.path, error.position, error.base_offset = walk.location(step, batch_row)
        raise
    return f"{text}\n".encode()


def _part(step: Step, start: int, size: int) -> bytes | None:
    """Return a key or a value; a negative size is null."""
    return None if size < 0 else step.data[start : start + size].tobytes()


def _contents(topic: str, offset: int, key: bytes | None, value: bytes | None, options: DumpOptions) -> str:
    """Return what a line says of key and value of a record of an internal topic."""
    shown = printed_record(topic, offset, key, value, is_2_8=options.is_2_8)
    parts = [f"{name}: {text}" for name, text in zip(("key", "payload"), shown, strict=True) if text is not None]
    # 2.8 has no bar in front of a payload
    if not options.skip_record_metadata or (options.is_2_8 and shown[0] is None):
        return "".join(f" {part}" for part in parts)
    return f"| {' '.join(parts)}" if parts else ""
