"""The programs that kafkalog's speed is compared with, each on the same segment files, and kafkalog as one of them.

A peer is a callable that makes one pass over a segment and returns a `Pass`: the CPU seconds it took and what it
saw. `compare` alternates the sides of a comparison and refuses a result when two sides disagree about the data.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Pass:
    """One pass over a segment: CPU seconds, records seen, and bytes of values (-1: this side did not look)."""

    cpu_seconds: float
    n_records: int
    value_bytes: int = -1


Side = Callable[[], Pass]


class DisagreementError(Exception):
    """Two sides of a comparison saw different records, so their times cannot be compared."""


def timed(work: Callable[[], tuple[int, int]]) -> Side:
    """A side that runs in this process, timed by the CPU seconds of all its threads.

    Parameters
    ----------
    work : callable
        Makes one pass; returns the number of records and the bytes of their values, or -1 if it does not know.
    """

    def side() -> Pass:
        gc.collect()
        start = time.process_time()
        n_records, value_bytes = work()
        return Pass(time.process_time() - start, n_records, value_bytes)

    return side


def consume(batches: Iterable[Any]) -> tuple[int, int]:
    """Take Arrow record batches one by one, keeping none: the records, and the bytes of `value` if that is there."""
    n_records = 0
    value_bytes = -1
    for batch in batches:
        n_records += batch.num_rows
        if "value" in batch.schema.names and batch.schema.field("value").type != "binary_view":
            values = batch.column("value")
            offsets = np.frombuffer(values.buffers()[1], np.int32)
            taken = int(offsets[values.offset + len(values)] - offsets[values.offset])
            value_bytes = max(value_bytes, 0) + taken
    return n_records, value_bytes


def compare(sides: Mapping[str, Side], rounds: int = 7, warmup: int = 1) -> dict[str, float]:
    """The least CPU seconds of each side, over rounds in which the sides take turns.

    A machine's speed drifts by more than what is measured: only sides that alternate in one run may be divided by
    each other, and the minimum is what drift disturbs least.

    Raises
    ------
    DisagreementError
        Two sides saw a different number of records, or different values.
    """
    best: dict[str, float] = {}
    seen: set[tuple[str, int]] = set()
    for turn in range(warmup + rounds):
        for name, side in sides.items():
            one = side()
            seen.add(("records", one.n_records))
            if one.value_bytes >= 0:
                seen.add(("value bytes", one.value_bytes))
            if turn >= warmup:
                best[name] = min(best.get(name, one.cpu_seconds), one.cpu_seconds)
    for what in ("records", "value bytes"):
        numbers = sorted(number for kind, number in seen if kind == what)
        if len(numbers) > 1:
            raise DisagreementError(f"{', '.join(sides)} disagree about the number of {what}: {numbers}")
    return best
