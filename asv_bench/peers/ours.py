"""kafkalog itself as a side: open, read or map, check CRCs, decode into Arrow batches of its own, drop them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkalog
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

    segment = kafkalog.open_buffer(Path(path).read_bytes())
    return timed(lambda: consume(segment.scan(columns=COLUMNS, threads=1, binary_type=pa.binary_view()).to_reader()))
