"""Finds every intact batch of a file, however damaged: bytes to runs of batches.

`header_walk` ends at the first byte that does not start a batch. The search continues from there, byte by byte, to the
next batch with a correct checksum. The work is linear in the size of any file: checksums of long candidates are
combined from block checksums, which are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.resync as kernels
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.records.header_walk import LINKED as LINKED
from kafkalog.records.header_walk import search_batches
from kafkalog.storage.source import ByteSource

CHAINED: Final = kernels.KINDS["CHAINED"]
SEARCHED: Final = kernels.KINDS["SEARCHED"]
INSIDE: Final = kernels.KINDS["INSIDE"]
PLAIN: Final = kernels.KINDS["PLAIN"]

_FEW_GAPS: Final = 8


@dataclass(frozen=True, eq=False, slots=True)
class IntactRuns:
    """Batches, or runs of them, in the order of their positions."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    """Positions of its first byte and after its last."""
    first_offset: npt.NDArray[np.int64]
    last_offset: npt.NDArray[np.int64]
    """For a compressed v0 or v1 message, both are its last offset. For a damaged batch, both come from its
    header."""
    leader_epoch: npt.NDArray[np.int32]
    """-1 for v0 and v1."""
    kind: npt.NDArray[np.int8]
    """`CHAINED` begins at the end of an intact batch, or at the start. `SEARCHED` was found after damage. `PLAIN` is
    the same, but may come from inside a compressed message. `INSIDE` was found after damage, in the value of an
    enclosing record or message. `LINKED` is a damaged batch whose size field leads to an intact one, or to the end of
    the file."""
    n_batches: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return self.start.size

    def __getitem__(self, rows: slice | npt.NDArray[Any]) -> IntactRuns:
        return IntactRuns(*(getattr(self, one.name)[rows] for one in fields(self)))

    @classmethod
    def empty(cls) -> IntactRuns:
        """No rows."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, none, none.astype(np.int32), none.astype(np.int8), none)

    @classmethod
    def concatenate(cls, parts: list[IntactRuns]) -> IntactRuns:
        """The rows of several parts."""
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))

    def joined(self) -> IntactRuns:
        """Join adjacent intact batches of one kind and epoch into runs.

        Offsets increase within a run. They have no gaps, unless there are many, as in a compacted log.
        """
        if not len(self):
            return self
        is_new = np.ones(len(self), np.bool_)
        has_gap = (self.first_offset[1:] > self.last_offset[:-1] + 1) & (self.start[1:] == self.end[:-1])
        is_new[1:] = (
            (self.start[1:] != self.end[:-1])
            | (self.first_offset[1:] <= self.last_offset[:-1])
            | (self.last_offset[1:] < self.first_offset[1:])
            | (self.leader_epoch[1:] != self.leader_epoch[:-1])
            | (self.kind[1:] != self.kind[:-1])
            | (self.kind[1:] == LINKED)
        )
        # in a compacted log, a gap follows nearly every batch: do not make as many runs as batches
        if has_gap.sum() <= _FEW_GAPS + len(self) // 32:
            is_new[1:] |= has_gap
        first = np.flatnonzero(is_new)
        last = np.concatenate([first[1:], [len(self)]]) - 1
        return IntactRuns(
            self.start[first],
            self.end[last],
            self.first_offset[first],
            self.last_offset[last],
            self.leader_epoch[first],
            self.kind[first],
            np.add.reduceat(self.n_batches, first),
        )


def find_batches(
    source: ByteSource,
    *,
    start: int = 0,
    stop: int | None = None,
    is_damaged: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[IntactRuns]:
    """Find all intact batches, and the damaged ones between them with credible size fields.

    A batch is expected at `start`; `stop` counts as the end of the file. With `is_damaged`, the damaged batch at
    `start` is searched, although its size field may be right. Yields one row per batch, about one window of the file at
    a time. Rows do not overlap, and no batch lies between them. Offsets are not compared. Memory is bounded by four
    times `max_batch_bytes`, or by 8 MiB if batches are small.
    """
    stop = source.size if stop is None else stop
    for rows in search_batches(source, start, stop, is_damaged=is_damaged, limits=limits):
        position, size, first, last, epoch, kind = rows
        yield IntactRuns(position, position + size, first, last, epoch, kind, np.ones(position.size, np.int64))


def heaviest_rising(
    first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], weight: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Rows with the largest total weight, such that each begins after the end of the previous one."""
    if not first.size or ((first[1:] > last[:-1]).all() and (weight > 0).all()):
        return np.ones(first.size, np.bool_)
    ordered = np.sort(last)
    n = first.size
    chosen = np.empty(n, np.uint8)
    kernels.choose_rising(
        np.ascontiguousarray(weight, np.int64),
        np.searchsorted(ordered, first, side="left").astype(np.int64),
        np.searchsorted(ordered, last, side="right").astype(np.int64),
        np.empty(n + 1, np.int64),
        np.empty(n + 1, np.int32),
        np.empty(n, np.int32),
        chosen,
    )
    return chosen.astype(np.bool_)
