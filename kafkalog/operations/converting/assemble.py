"""Joins copied, encoded and empty batches into one window, in the order of the log.

Mirrors `DefaultRecordBatch.writeEmptyHeader` for batches that consist of a header only. This module does not encode
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_crc32c
from kafkalog.records.batch_table import BatchTable, Window

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)
_CRC_END: Final = 21  # the checksum covers the bytes after itself, not the base offset or the leader epoch


class Part(NamedTuple):
    """Some batches of the output, in a window of their own."""

    order: npt.NDArray[np.int64]
    """int64[n]: row of the source batch that each one comes from; the output is sorted by it."""
    window: Window


def empty_batches(batches: BatchTable) -> Window:
    """Make batches without records that keep the offsets, producers and largest timestamps of the given ones.

    Legacy messages become v2 batches. The codec and the delete horizon are removed from the attributes.

    Source: DefaultRecordBatch.writeEmptyHeader, Kafka 4.3.
    """
    n = len(batches)
    last = batches.last_offset
    base = np.where(batches.base_offset >= 0, batches.base_offset, last)
    is_v2 = batches.magic >= 2
    bits = kf.TIMESTAMP_TYPE_BIT | kf.TRANSACTIONAL_BIT | kf.CONTROL_BIT
    headers = np.zeros(n, _HEADER)
    headers["base_offset"] = base
    headers["length"] = _HEADER.itemsize - kf.LOG_OVERHEAD
    headers["partition_leader_epoch"] = batches.partition_leader_epoch
    headers["magic"] = 2
    headers["attributes"] = batches.attributes & np.where(is_v2, bits, 0)
    headers["last_offset_delta"] = last - base
    # an empty batch keeps its largest timestamp only, as the cleaner's does
    headers["base_timestamp"] = kf.NO_TIMESTAMP
    headers["max_timestamp"] = batches.max_timestamp
    headers["producer_id"] = np.where(is_v2, batches.producer_id, -1)
    headers["producer_epoch"] = np.where(is_v2, batches.producer_epoch, -1)
    headers["base_sequence"] = np.where(is_v2, batches.base_sequence, -1)
    data = headers.view(np.uint8).reshape(n, _HEADER.itemsize)
    headers["crc"] = [checksum_crc32c(row[_CRC_END:]) for row in data]
    table = replace(
        BatchTable.empty(n),
        **{name: headers[name].astype(getattr(batches, name).dtype) for name in _SAME},
        position=np.arange(n) * _HEADER.itemsize,
        size_in_bytes=np.full(n, _HEADER.itemsize, np.int32),
        last_offset=last,
        control_type=np.where(headers["attributes"] & kf.CONTROL_BIT, kf.NO_CONTROL_RECORD, -1).astype(np.int16),
    )
    return Window(data.reshape(-1), 0, table)


_SAME: Final = (
    "base_offset",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)


def assemble(parts: Sequence[Part]) -> Window | None:
    """Join the batches of all parts in order, contiguous in one window; None if there are none."""
    parts = [part for part in parts if part.order.size]
    if not parts:
        return None
    # the common case, where nothing was dropped in between: no copy
    if len(parts) == 1 and (only := _run(parts[0].window)) is not None:
        return only
    order = np.argsort(np.concatenate([part.order for part in parts]), kind="stable")
    which = np.repeat(np.arange(len(parts)), [part.order.size for part in parts])[order]
    table = BatchTable.concatenate([part.window.batches for part in parts])[order]
    start = table.position - np.array([part.window.start for part in parts])[which]
    stop = start + table.size_in_bytes
    apart = np.flatnonzero((which[1:] != which[:-1]) | (start[1:] != stop[:-1])) + 1
    first = np.concatenate([[0], apart])
    last = np.concatenate([apart, [order.size]]) - 1
    data = np.concatenate(
        [
            parts[number].window.data[begin:end]
            for number, begin, end in zip(
                which[first].tolist(), start[first].tolist(), stop[last].tolist(), strict=True
            )
        ]
    )
    position = np.cumsum(table.size_in_bytes, dtype=np.int64) - table.size_in_bytes
    return Window(data, 0, replace(table, position=position))


def _run(window: Window) -> Window | None:
    """The window trimmed to its batches, without a copy; None if the batches are not contiguous."""
    batches = window.batches
    if (batches.position[1:] != batches.next_position[:-1]).any():
        return None
    first, stop = int(batches.position[0]), batches.end_position
    return Window(window.data[first - window.start : stop - window.start], first, batches)
