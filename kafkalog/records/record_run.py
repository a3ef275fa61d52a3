"""Runs of consecutive windows whose batches need no further checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafkalog._kernels.record_windows import RecordWindow


class RecordRun:
    """Record batches of consecutive windows, without their batch tables.

    It can be iterated once. Its end attributes describe the windows returned so far; `start` is its start in the file.
    `read_next` returns the next window of the run; None if another reader must continue.
    """

    attribute_bits, has_empty = 0, False

    def __init__(self, start: int, first: RecordWindow, read_next: Callable[[RecordRun], RecordWindow | None]) -> None:
        self.start, self.first_offset = start, first.first_offset
        self.n_batches = 0
        self._next: RecordWindow | None = first
        self._read_next = read_next
        self._reach(first)

    def _reach(self, window: RecordWindow) -> None:
        self.end_position, self.last_position = window.end_position, window.last_position
        self.end_offset = window.last_offset + 1

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[Any]:
        window, self._next = self._next, None
        while window is not None:
            self._reach(window)
            self.n_batches += window.n_batches
            batch = window.batch
            del window  # its memory can be reused for the next one
            if batch is not None:
                yield batch
            del batch
            window = self._read_next(self)
