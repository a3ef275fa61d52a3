"""Joins copied, encoded and empty batches into one window, in the order of the log.

Mirrors `DefaultRecordBatch.writeEmptyHeader` for batches that consist of a header only. This module does not encode
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import encode_batches


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
    is_v2, last = batches.magic >= 2, batches.last_offset
    spec = BatchSpec(
        timestamp_type=np.where(is_v2, batches.timestamp_type, 0),
        # an empty batch keeps its largest timestamp only, as the cleaner's does
        max_timestamp=batches.max_timestamp,
        leader_epoch=batches.partition_leader_epoch,
        producer_id=np.where(is_v2, batches.producer_id, -1),
        producer_epoch=np.where(is_v2, batches.producer_epoch, -1),
        base_sequence=np.where(is_v2, batches.base_sequence, -1),
        is_transactional=is_v2 & batches.is_transactional,
        is_control=is_v2 & batches.is_control,
        base_offset=np.where(batches.base_offset >= 0, batches.base_offset, last),
        last_offset=last,
    )
    return encode_batches(RecordColumns.empty(["offset"]), np.zeros(len(batches) + 1, np.int64), spec)


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
