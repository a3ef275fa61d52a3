"""Measures the distances between the entries of an offset index, and the interval that they agree with.

A broker adds an entry when more than `index.interval.bytes` were appended since the previous entry. So the bytes before
the last append never exceed the interval, and with that append they do. That bounds the interval from both sides.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf

LARGEST_APPEND: Final = 2 * 2**20
"""A plausible size of one append. No entry points inside an append."""

# times the interval: a broker counts from 0 again after each restart, and there may be several in a row
_TOO_SPARSE: Final = 8
_LEAST_INTERVAL: Final = 512


class Gaps:
    """Collects the gaps between entries, and checks which interval they agree with."""

    def __init__(self, interval_bytes: int | None) -> None:
        self._interval_bytes = interval_bytes
        interval = kf.INDEX_INTERVAL_BYTES if interval_bytes is None else max(interval_bytes, _LEAST_INTERVAL)
        self._limit = _TOO_SPARSE * interval
        self._n = self._n_wide = self._widest = self._widest_short = 0
        self._at_least, self._below = -1, 2**62

    def add(self, gap: npt.NDArray[np.int64], last_size: npt.NDArray[np.int64], *, is_open: bool = False) -> None:
        """Add gaps: bytes from an entry to the next one, and the size of the last batch between them.

        Before that batch was appended, the bytes did not exceed the interval; with it they did, unless the log ends
        there (`is_open`).
        """
        if not gap.size:
            return
        short = gap - last_size
        self._n += gap.size
        self._n_wide += int((short > self._limit).sum())
        self._widest = max(self._widest, int(gap.max()))
        self._widest_short = max(self._widest_short, int(short.max()))
        self._at_least = max(self._at_least, int(short.max()))
        if not is_open:
            self._below = min(self._below, int(gap.min()))

    def finding(self) -> str:
        """The reason why the index is too sparse; empty if it is not."""
        is_wide = 2 * self._n_wide > self._n or self._widest_short > self._limit + LARGEST_APPEND
        if not is_wide or self._is_usual():
            return ""
        known = "the default" if self._interval_bytes is None else "the topic's setting"
        interval = kf.INDEX_INTERVAL_BYTES if self._interval_bytes is None else self._interval_bytes
        return (
            f"up to {self._widest} bytes without an entry where index.interval.bytes is {interval} ({known}): a broker"
            " scans them at every lookup"
        )

    def _is_usual(self) -> bool:
        if self._interval_bytes is not None:
            return False
        usual = [2**n for n in range(31)] + [10**n for n in range(10)]
        return self._n > 1 and any(self._at_least <= one < self._below for one in usual)
