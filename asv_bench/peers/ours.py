"""kafkalog itself as a side: open, read or map, check CRCs, decode into Arrow batches of its own, drop them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.errors import DEFAULT_LIMITS
from kafkalog.interchange.arrow_output import ArrowWriter, columns_needed, record_schema
from kafkalog.records.decode import RecordReader, decode
from kafkalog.records.header_walk import ALL_OFFSETS, walk_with
from kafkalog.storage.source import BufferSource
from peers import Side, consume, timed

COLUMNS = ("offset", "timestamp", "key", "value")


def streaming(path: str, **options: Any) -> Side:
    """`scan(path, **options).to_reader()` batch by batch; one thread unless `threads` says otherwise."""
    options = {"threads": 1, **options}
    return timed(lambda: consume(kafkalog.scan(path, **options).to_reader()))


def whole(read: Callable[..., Any], path: str, **options: Any) -> Side:
    """A function that gives all records at once, in two threads; the result is dropped."""

    def work() -> tuple[int, int]:
        found = read(path, threads=2, **options)
        return (found.n_records if isinstance(found, kafkalog.RecordColumns) else len(found)), -1

    return timed(work)


def viewing_memory(path: str) -> Side:
    """Four columns of a segment that is in memory, byte strings as views into it."""
    import pyarrow as pa

    source = BufferSource(Path(path).read_bytes())
    schema = record_schema(COLUMNS, pa.binary_view())
    names = columns_needed(schema)
    options: Any = {"offsets": ALL_OFFSETS, "check_crcs": True, "limits": DEFAULT_LIMITS, "window_bytes": 2**23}

    def work() -> tuple[int, int]:
        n_records = 0
        writer = ArrowWriter(schema)
        for window in walk_with(RecordReader(names, form="views", **options), source):
            if window.records is not None:
                n_records += len(writer.batch(window.records))
                continue
            first = 0
            while first < len(window.batches):
                decoded = decode(window, names, first=first, form="views")
                if decoded.error is not None:
                    raise decoded.error
                first += decoded.n_batches
                if decoded.columns is not None:
                    n_records += len(writer.batch(decoded.columns))
        return n_records, -1

    return timed(work)
