"""The inputs of a load. Files of a directory by date are read in the order of offsets, which is not that of times."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa


class Source(NamedTuple):
    """An input of record batches: a table or a file.

    `batches` is called with a function that chooses the columns to read from a schema. `path` is for messages. `done`
    returns how many bytes of all inputs are read.
    """

    batches: Callable[[Callable[[pa.Schema], Sequence[str]]], Iterable[pa.RecordBatch]]
    path: str | None = None
    done: Callable[[], int] = lambda: 0
    schema: pa.Schema | None = None
    """The schema, if it is known without reading a batch; it is checked even if there are no batches."""


_KNOWN: tuple[str, ...] = ("topic", "partition")


def merged_by_offset(sources: Sequence[Source], paths: Sequence[str], *, is_kept: bool) -> list[Source]:
    """The sources; those in directories that other keys than topic and partition divide are one, in order of offsets.

    Without `is_kept` offsets do not count, and the sources stay.
    """
    groups: dict[str, dict[str, list[Source]]] = {}
    for source, path in zip(sources, paths, strict=True):
        directory = os.path.dirname(os.path.abspath(path))
        parts = [part for part in directory.split(os.sep) if "=" not in part or part.partition("=")[0] in _KNOWN]
        groups.setdefault(os.sep.join(parts), {}).setdefault(directory, []).append(source)
    found = []
    for directories in groups.values():
        streams = list(directories.values())
        if len(streams) < 2 or not is_kept:
            found += [one for stream in streams for one in stream]
            continue
        last = streams[-1][-1]
        found.append(Source(_merged(streams), last.path, last.done))
    return found


def _merged(streams: Sequence[Sequence[Source]]) -> Callable[..., Iterator[pa.RecordBatch]]:
    def batches(wanted: Callable[[pa.Schema], Sequence[str]]) -> Iterator[pa.RecordBatch]:
        chains = [_pieces(batch for source in stream for batch in source.batches(wanted)) for stream in streams]
        heads: list[tuple[tuple[str, int, int], int, _PartitionRecords]] = []
        for number, chain in enumerate(chains):
            _push(heads, number, chain)
        while heads:
            _, number, piece = heapq.heappop(heads)
            n = piece.n_before(heads[0][0]) if heads else len(piece.offsets)
            yield piece.batch.slice(0, n)
            if n < len(piece.offsets):
                rest = _PartitionRecords(piece.place, piece.offsets[n:], piece.batch.slice(n))
                heapq.heappush(heads, (rest.first, number, rest))
            else:
                _push(heads, number, chains[number])

    return batches


def _push(
    heads: list[tuple[tuple[str, int, int], int, _PartitionRecords]], number: int, chain: Iterator[_PartitionRecords]
) -> None:
    piece = next(chain, None)
    if piece is not None:
        heapq.heappush(heads, (piece.first, number, piece))


class _PartitionRecords:
    """Records of a partition."""

    def __init__(self, place: tuple[str, int], offsets: np.ndarray, batch: pa.RecordBatch) -> None:
        self.place, self.offsets, self.batch = place, offsets, batch

    @property
    def first(self) -> tuple[str, int, int]:
        return (*self.place, int(self.offsets[0]) if len(self.offsets) else -1)

    def n_before(self, other: tuple[str, int, int]) -> int:
        """How many records come before another one, at least one."""
        if self.place != other[:2]:
            return len(self.offsets)
        return max(int(np.searchsorted(self.offsets, other[2])), 1)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[_PartitionRecords]:
    """Record batches, cut where another partition begins."""
    for batch in batches:
        names, n = batch.schema.names, batch.num_rows
        if "offset" not in names or not n:
            yield _PartitionRecords(("", -1), np.full(n, -1, np.int64), batch)
            continue
        offsets = batch.column("offset").cast(pa.int64()).fill_null(-1).to_numpy()
        topics = batch.column("topic").to_pylist() if "topic" in names else [""] * n
        numbers = batch.column("partition").to_pylist() if "partition" in names else [-1] * n
        start = 0
        for row in range(1, n + 1):
            if row == n or (topics[row], numbers[row]) != (topics[start], numbers[start]):
                place = str(topics[start]), int(-1 if numbers[start] is None else numbers[start])
                yield _PartitionRecords(place, offsets[start:row], batch.slice(start, row - start))
                start = row
