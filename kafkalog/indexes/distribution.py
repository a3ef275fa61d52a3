"""Distributions of many numbers in bounded memory: exact mean and maximum, percentiles within 1.6 %."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog.html import JsonFields

EXACT_BITS: Final = 7
"""Leading bits of a number that are kept; the relative error is below 1/64."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spread(JsonFields):
    """Summary of a distribution."""

    n: int
    """How many numbers there are; if 0, the other fields are None."""
    mean: float | None
    p50: int | None
    p99: int | None
    """Percentiles, rounded down to `EXACT_BITS` bits: exact below 128, else up to 1.6 % low."""
    max: int | None


class Distribution:
    """Counts numbers from 0 to 2**63 - 1, rounded down to `EXACT_BITS` bits."""

    def __init__(self) -> None:
        self.n = self.largest = 0
        self.smallest = 2**63 - 1
        self._sum = 0.0
        self._sizes = self._counts = np.zeros(0, np.int64)

    def add(self, values: Numbers) -> None:
        """Count numbers, none negative."""
        if values.size:
            self._combine(rounded(values), np.ones(values.size, np.int64))
            self.n += values.size
            self._sum += float(values.sum(dtype=np.float64))
            self.smallest, self.largest = min(self.smallest, int(values.min())), max(self.largest, int(values.max()))

    def merge(self, other: Distribution) -> None:
        """Add the numbers of another distribution."""
        self._combine(other._sizes, other._counts)
        self.n += other.n
        self._sum += other._sum
        self.smallest, self.largest = min(self.smallest, other.smallest), max(self.largest, other.largest)

    def _combine(self, sizes: Numbers, counts: Numbers) -> None:
        self._sizes, row = np.unique(np.concatenate([self._sizes, sizes]), return_inverse=True)
        added = np.concatenate([self._counts, counts])
        self._counts = np.zeros(self._sizes.size, np.int64)
        np.add.at(self._counts, row, added)

    def histogram(self) -> tuple[Numbers, Numbers]:
        """Sizes in rising order, rounded down, and how many numbers have each."""
        return self._sizes, self._counts

    def spread(self) -> Spread:
        """The summary; percentiles are nearest-rank."""
        if not self.n:
            return Spread(0, None, None, None, None)
        p50, p99 = (max(nearest_rank(*self.histogram(), percent), self.smallest) for percent in (50, 99))
        return Spread(self.n, self._sum / self.n, p50, p99, self.largest)


def nearest_rank(sizes: Numbers, counts: Numbers, percent: int) -> int:
    """The first of the rising sizes whose cumulative count reaches `percent`."""
    seen = np.cumsum(counts)
    wanted = -(-int(seen[-1]) * percent // 100)
    return int(sizes[np.searchsorted(seen, wanted, side="left")])


def rounded(values: Numbers) -> Numbers:
    """Numbers rounded down to `EXACT_BITS` bits."""
    # The bit length comes from the exponent of the float. A number of more than 53 bits may be rounded up to the next
    # power of two, which the third line corrects.
    exponents = (values.astype(np.float64).view(np.int64) >> 52) - 1022
    shift = np.maximum(exponents - EXACT_BITS, 0)
    shift -= (values >> shift < 1 << EXACT_BITS - 1) & (shift > 0)
    down: Numbers = (values >> shift) << shift
    return down
