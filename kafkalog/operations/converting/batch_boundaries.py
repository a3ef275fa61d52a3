"""Cuts the records of rewritten batches into batches again: their boundaries and the fields of their headers.

Without a batch size, every v2 batch and every compressed v0 or v1 message stays one batch, with its offsets, producer
and sequence numbers; uncompressed v0 and v1 messages are collected into batches as a producer would. With a batch size,
neighbouring batches with equal header fields are joined and cut again. Batches of a producer are joined only while
offsets and sequence numbers advance together, and its last batch never is. This module does not encode batches.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.format import TimestampType
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import cut_batches

_MAX_DELTA: Final = 2**31 - 1
_RECORD_OVERHEAD: Final = 32  # upper bound for the lengths and deltas of a record
_HEADER_OVERHEAD: Final = 10


class Cut(NamedTuple):
    """Batches to be encoded, in the order of their records."""

    boundaries: npt.NDArray[np.int64]
    """int64[m + 1]: rows of the records at which batches begin, and the end."""
    source_row: npt.NDArray[np.int64]
    """int64[m]: row of the source batch from which the first record of each comes."""
    codec: npt.NDArray[np.int8]
    """int8[m]: codec of each batch."""
    header: dict[str, npt.NDArray[Any]]
    """Fields of `BatchSpec`, one value per batch."""


class JoinRules(NamedTuple):
    """Facts, besides the headers, that decide whether source batches may be joined."""

    codec: npt.NDArray[np.int8]
    """int8[k]: codec of the output."""
    is_apart: npt.NDArray[np.bool_]
    """bool[k]: a batch that is not rewritten lies between this one and the one before."""
    is_needed: npt.NDArray[np.bool_]
    """bool[k]: the batch must keep its boundaries."""


def cut(
    records: RecordColumns,
    row: npt.NDArray[np.int64],
    batches: BatchTable,
    rules: JoinRules,
    *,
    batch_size: int | None,
    start_offset: int | None,
) -> Cut:
    """Cut records (at least one; offsets strictly increase) into batches.

    `row` (int64[n]) is the row of the source batch that each record comes from. `batch_size` is in bytes before
    compression. No batch begins below `start_offset`, the log start offset.
    """
    n = records.n_records
    offset, timestamp = records.offset, records.timestamp
    is_log_append = records.timestamp_type == TimestampType.LOG_APPEND_TIME
    new_row = np.concatenate([[True], row[1:] != row[:-1]])
    is_new = np.zeros(n, np.bool_)
    is_new[0] = True
    is_new[1:] = is_log_append[1:] != is_log_append[:-1]
    # a LogAppendTime batch has one timestamp for all its records
    is_new[1:] |= is_log_append[1:] & (timestamp[1:] != timestamp[:-1])
    is_new |= new_row & ~_joins(batches, rules, batch_size)[row]
    runs = np.append(np.flatnonzero(is_new), n)
    boundaries = _cut_runs(records, row, batches, rules, runs, batch_size)

    first, last = boundaries[:-1], boundaries[1:] - 1
    head, tail = row[first], row[last]
    is_v2 = batches.magic >= 2
    begins = new_row[first] & is_v2[head]
    ends = np.append(new_row[1:], True)[last]
    # a v2 batch keeps its offset range although records at its edges are dropped: sequence numbers count from its base
    base: npt.NDArray[np.int64] = np.where(begins, np.minimum(batches.base_offset[head], offset[first]), offset[first])
    if start_offset is not None:
        base = np.maximum(base, start_offset)
    stop = np.where(ends, np.maximum(batches.last_offset[tail], offset[last]), offset[last])
    too_wide = stop - base > _MAX_DELTA  # offset deltas are int32: such a batch shrinks to the offsets of its records
    base, stop = np.where(too_wide, offset[first], base), np.where(too_wide, offset[last], stop)
    sequence = batches.base_sequence[head].astype(np.int64)
    sequence = np.where(sequence < 0, -1, (sequence + (base - batches.base_offset[head])) & _MAX_DELTA)
    header: dict[str, npt.NDArray[Any]] = {
        "base_offset": base,
        "last_offset": stop,
        "leader_epoch": batches.partition_leader_epoch[head],
        "timestamp_type": is_log_append[first].astype(np.int8),
        "log_append_time": timestamp[first],
        "producer_id": batches.producer_id[head],
        "producer_epoch": batches.producer_epoch[head],
        "base_sequence": np.where(is_v2[head], sequence, -1).astype(np.int32),
        "is_transactional": batches.is_transactional[head],
        "delete_horizon_ms": batches.delete_horizon_ms[head],
    }
    return Cut(boundaries, head, rules.codec[head], header)


def _joins(batches: BatchTable, rules: JoinRules, batch_size: int | None) -> npt.NDArray[np.bool_]:
    """bool[k]: batches that may be joined with the batch before."""
    joins = np.zeros(len(batches), np.bool_)
    if batch_size is None:
        is_single = (batches.magic < 2) & (batches.codec == 0)
        joins[1:] = is_single[1:] & is_single[:-1]
    else:
        joins[1:] = True
    joins &= ~rules.is_apart
    joins[1:] &= ~rules.is_needed[1:] & ~rules.is_needed[:-1]
    columns = (
        batches.partition_leader_epoch,
        batches.producer_id,
        batches.producer_epoch,
        batches.is_transactional,
        batches.delete_horizon_ms,
        rules.codec,
    )
    for column in columns:
        joins[1:] &= column[1:] == column[:-1]
    delta = batches.last_offset - batches.base_offset
    next_sequence = (batches.base_sequence.astype(np.int64) + delta + 1) & _MAX_DELTA
    in_step = batches.base_sequence[1:] == next_sequence[:-1]
    in_step &= batches.base_offset[1:] == batches.last_offset[:-1] + 1
    # a broker checks that a producer's sequence numbers follow each other, batch by batch
    joins[1:] &= (batches.producer_id[1:] < 0) | in_step
    return joins


def _cut_runs(
    records: RecordColumns,
    row: npt.NDArray[np.int64],
    batches: BatchTable,
    rules: JoinRules,
    runs: npt.NDArray[np.int64],
    batch_size: int | None,
) -> npt.NDArray[np.int64]:
    """Boundaries of batches: those of the runs, and more inside runs that exceed a batch."""
    # single messages become batches of a producer's usual size
    limit = kf.BATCH_SIZE if batch_size is None else batch_size
    first, stop = runs[:-1], runs[1:]
    is_one = row[first] == row[stop - 1]
    whole = is_one & rules.is_needed[row[first]]
    if batch_size is None:
        whole |= is_one
    upto = _most_bytes(records)
    # an upper bound: what surely fits is not measured exactly
    whole |= (upto[stop] - upto[first] + kf.RECORD_BATCH_OVERHEAD <= limit) & (
        records.offset[stop - 1] - records.offset[first] <= _MAX_DELTA
    )
    parts = [first[:0]]
    done = 0
    for number in np.flatnonzero(~whole).tolist():
        begin, end = int(first[number]), int(stop[number])
        parts.append(first[done:number])
        inside = cut_batches(records.slice(begin, end), batch_size=limit, any_header_keys=True, first_row=begin)
        parts.append(np.asarray(inside[:-1], np.int64) + begin)
        done = number + 1
    return np.concatenate([*parts, first[done:], runs[-1:]])


def _most_bytes(records: RecordColumns) -> npt.NDArray[np.int64]:
    """int64[n + 1]: an upper bound of the bytes of all records before each one."""
    upto: npt.NDArray[np.int64] = (
        records.key.offsets + records.value.offsets + np.arange(records.n_records + 1) * _RECORD_OVERHEAD
    )
    headers = records.headers
    if len(headers.key):
        upto = upto + (headers.key.offsets + headers.value.offsets)[headers.offsets]
        upto += headers.offsets * _HEADER_OVERHEAD
    return upto
