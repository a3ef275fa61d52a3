"""Ways to read a partition that have to agree: sizes of windows, threads, mappings, forms of columns."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

import kafkalog
from kafkalog.errors import KafkalogError
from kafkalog.log import segment_stream
from kafkalog.log.lookups import list_offsets
from kafkalog.records.readers import batch_reader, header_reader, record_reader, record_windows
from kafkalog.scanning import execution

COLUMNS = (
    *("offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    *("batch_position", "producer_id", "segment"),
)
_WINDOWS = ("_MIN_WINDOW_BYTES", "_ALONE_BYTES", "_RUN_BYTES")


@contextmanager
def seams(n_bytes):
    """Windows of about so many bytes, and steps and buffers in proportion; None for the usual sizes."""
    if n_bytes is None:
        yield
        return
    sizes = {
        execution: {**dict.fromkeys(_WINDOWS, n_bytes), "_TOGETHER_BYTES": 4 * n_bytes},
        header_reader: {"_LEAST_ROWS": 2, "_MOST_ROWS": 4, "_FIRST_WINDOW_BYTES": n_bytes, "RUN_BYTES": 8 * n_bytes},
        batch_reader: {"RUN_BYTES": 4 * n_bytes, "_CHECKED_ROWS": 4, "_MOST_WINDOWS": 4},
        record_windows: {"_READ_BYTES": max(n_bytes // 4, 256)},
        record_reader: {"_LEAST_STEP": n_bytes, "_FIRST_STEP": n_bytes},
        segment_stream: {"WINDOW_AFTER_DAMAGE": 256},
        list_offsets: {"_FIRST_WINDOW_BYTES": 256},
    }
    with ExitStack() as stack:
        for module, numbers in sizes.items():
            stack.enter_context(mock.patch.multiple(module, **numbers))
        yield


class Outcome(NamedTuple):
    """What came of a query."""

    rows: list[dict[str, Any]]
    error: tuple[Any, ...] | None
    """Class, reason, path and position."""
    findings: list[tuple[Any, ...]]


def outcome(path, query, *, parts=None, **options):
    """The records of a query up to its error, and what was found wrong; `parts`: bytes of each part of a plan."""
    rows = []
    error = None
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan = kafkalog.scan(path, **{**query, **options})
        try:
            for one in [scan] if parts is None else scan.plan(target_bytes=parts):
                for batch in one.to_batches():
                    rows += _rows(batch)
                found += one.findings
        except KafkalogError as raised:
            error = (type(raised).__name__, raised.reason, raised.path, raised.position)
    findings = [(one.reason, one.path, one.position, one.base_offset, one.last_offset) for one in found]
    return Outcome(rows, error, findings)


def _rows(batch):
    """With timestamps as numbers: Python's end with the year 9999."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    if "timestamp" in columns:
        columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    return pa.RecordBatch.from_pydict(columns).to_pylist()


WAYS = (
    {"threads": 1, "memory_map": False},
    {"threads": 2, "memory_map": False},
    {"threads": 1, "memory_map": "auto"},
    {"threads": 1, "memory_map": True},
    {"threads": 2, "memory_map": True, "binary_type": pa.binary_view()},
    {"threads": 1, "memory_map": False, "binary_type": pa.large_binary()},
    {"threads": 1, "memory_map": False, "parts": 2**11},
)
