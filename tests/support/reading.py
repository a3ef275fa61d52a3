"""Reads bytes through the library's own stages, to be held against the twin (`reference.py`)."""

from __future__ import annotations

from typing import NamedTuple

from reference import Record

from kafkalog.errors import DEFAULT_LIMITS, KafkalogError
from kafkalog.records.columns import ALL_COLUMNS, RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import WINDOW_BYTES, walk
from kafkalog.records.selection import Selection
from kafkalog.storage.source import BufferSource

EVERYTHING = Selection(include_control=True)


class Reading(NamedTuple):
    """Columns up to the first problem, and the problem."""

    columns: RecordColumns
    error: KafkalogError | None

    def records(self):
        """The records as the twin gives them."""
        c = self.columns
        absent = (c.timestamp_type == -1) & (c.timestamp == -1)
        return [
            Record(*row)
            for row in zip(
                c.offset.tolist(),
                [None if none else stamp for none, stamp in zip(absent.tolist(), c.timestamp.tolist(), strict=True)],
                c.timestamp_type.tolist(),
                c.key.to_pylist(),
                c.value.to_pylist(),
                c.headers.to_pylist(),
                c.leader_epoch.tolist(),
                c.producer_id.tolist(),
                c.producer_epoch.tolist(),
                c.sequence.tolist(),
                c.is_transactional.tolist(),
                c.is_control.tolist(),
                c.compression.tolist(),
                c.batch_base_offset.tolist(),
                c.batch_position.tolist(),
                c.magic.tolist() if "magic" in c else [0] * c.n_records,
                strict=True,
            )
        ]


def read(
    source,
    columns=ALL_COLUMNS,
    *,
    selection=EVERYTHING,
    check_crcs=True,
    limits=DEFAULT_LIMITS,
    window_bytes=WINDOW_BYTES,
):
    """Everything up to the first problem."""
    if isinstance(source, bytes):
        source = BufferSource(source)
    parts = []
    error = None
    try:
        for window in walk(source, window_bytes=window_bytes, limits=limits):
            first = 0
            while first < len(window.batches) and error is None:
                decoded = decode(
                    window, columns, first=first, selection=selection, check_crcs=check_crcs, limits=limits
                )
                if decoded.columns is not None:
                    parts.append(decoded.columns)
                first += decoded.n_batches
                error = decoded.error
            if error is not None:
                break
    except KafkalogError as problem:
        error = problem
    return Reading(RecordColumns.concatenate(parts) if parts else RecordColumns.empty(columns), error)


def without_magic(records):
    """The library has no column for the magic of a record, and one way to say that there is no timestamp."""
    return [
        record._replace(magic=0, timestamp=None if record[1:3] == (-1, -1) else record.timestamp) for record in records
    ]
