"""Records one by one, as plain Python objects: for a look at a log, where `scan` is for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Unpack

import pyarrow as pa

from kafkalog.calls import leading_names
from kafkalog.log.open import Paths
from kafkalog.scanning.options import ScanOptions
from kafkalog.scanning.query import Opened
from kafkalog.scanning.scan import Scan


@leading_names
class Record(NamedTuple):
    """A record. `timestamp` is in milliseconds; None for a record of format v0, which has no timestamp."""

    topic: str | None
    partition: int | None
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def cat(path: Paths | Opened, *, tail: int | None = None, **options: Unpack[ScanOptions]) -> Iterator[Record]:
    """Yield records one by one, in the order of topic, partition and offset.

    This is convenient, and slow compared to `scan`, which reads into columns.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `open` returned
    tail : int, optional
        Only the last records, this many of each partition.
    **options
        See `scan`; without `columns`, `extract` and `binary_type`.

    Yields
    ------
    Record

    Examples
    --------
    >>> for record in kafkalog.cat("tests/golden/log_dir/p-multi-0", limit=2):
    ...     print(record.offset, record.key)
    0 b'...'
    1 b'...'
    """
    for name in ("columns", "extract", "binary_type"):
        if name in options:
            raise TypeError(f"cat yields whole records and has no option {name!r}; scan has it")
    scan = Scan(path, columns=Record._fields, **options)  # type: ignore[misc]
    return _records(scan.to_batches() if tail is None else iter(scan.tail(tail).to_batches()))


def _records(batches: Iterator[pa.RecordBatch]) -> Iterator[Record]:
    for batch in batches:
        columns: list[list[Any]] = [
            batch.column(name).cast(pa.int64()).to_pylist() if name == "timestamp" else batch.column(name).to_pylist()
            for name in Record._fields
        ]
        for *fields, headers in zip(*columns, strict=True):
            pairs = tuple((header["key"], header["value"]) for header in headers)
            yield Record._make([*fields, pairs])
