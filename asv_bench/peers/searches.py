"""Searches that keep few records, next to the least that any of them has to do: read the bytes and check CRCs.

Every side makes one pass over a segment with one thread; what it finds is compared with the other sides that search for
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import numpy as np
from shapes import BenchSegment

import kafkalog
from kafkalog._kernels import crc
from kafkalog.records.header_walk import walk
from peers import Side, consume, timed

KEEP_ONE_IN = 1000


def checksums(paths: Iterable[str | PathLike[str]], n_records: int) -> Side:
    """Read every batch of some segments and compare its checksum; nothing is decoded."""

    def work() -> tuple[int, int]:
        n_bad = 0
        for path in paths:
            with kafkalog.open(path, memory_map=False).open() as source:
                for window in walk(source):
                    batches = window.batches
                    valid = np.empty(len(batches), np.uint8)
                    crc.check_crcs(
                        window.data,
                        window.start,
                        batches.position,
                        batches.size_in_bytes,
                        batches.magic,
                        batches.crc,
                        valid,
                    )
                    n_bad += int(np.count_nonzero(valid == 0))
        if n_bad:
            raise ValueError(f"{n_bad} wrong CRCs")
        return n_records, -1

    return timed(work)


def search(segment: BenchSegment, **options: Any) -> Side:
    """A scan to record batches; it counts as having seen every record."""

    def work() -> tuple[int, int]:
        consume(kafkalog.scan(segment.path, threads=1, memory_map=False, **options).to_reader())
        return segment.n_records, -1

    return timed(work)


def prefix(segment: BenchSegment) -> bytes:
    """What about 1 key in 1,000 (A) or 2,000 (B, C) starts with."""
    return b"k777" if segment.shape == "A" else b"user-0000777"


def some_keys(segment: BenchSegment) -> list[bytes]:
    """The keys of 1 record in 1,000."""
    keys = kafkalog.read_numpy(segment.path, columns=["key"], threads=1).key
    return [key for row in range(0, len(keys), KEEP_ONE_IN) if (key := keys[row]) is not None]


def starts_with_prefix(segment: BenchSegment) -> Callable[..., Any]:
    """The same question as a plain function."""
    from kafkalog.functions import starts_with

    text = prefix(segment)

    def function(key: Any) -> bool:
        return starts_with(key, text)

    return function


def sides(segment: BenchSegment) -> dict[str, Side]:
    """Every side, the CRC pass first."""
    keys = some_keys(segment)
    found = {
        "CRC pass": checksums([segment.path], segment.n_records),
        "key ==": search(segment, filters=[("key", "==", keys[len(keys) // 2])]),
        "key in, 1 in 1,000": search(segment, filters=[("key", "in", keys)]),
        "key starts_with": search(segment, filters=[("key", "starts_with", prefix(segment))]),
    }
    try:
        found["where= starts_with"] = search(segment, where=starts_with_prefix(segment))
    except ImportError:
        pass
    else:
        same = [
            kafkalog.scan(segment.path, **options).count_rows()
            for options in (
                {"filters": [("key", "starts_with", prefix(segment))]},
                {"where": starts_with_prefix(segment)},
            )
        ]
        if same[0] != same[1] or not 0 < same[0] < segment.n_records / 100:
            raise ValueError(f"the two searches found {same} records")
    return found
