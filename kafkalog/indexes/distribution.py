"""Distributions of many numbers in bounded memory: exact mean and maximum, percentiles within 1.6 %."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog.html import JsonFields

EXACT_BITS: Final = 7
"""Leading bits of a number that are kept; the relative error is below 1/64."""

_HALF: Final = 1 << EXACT_BITS - 1
_N_BUCKETS: Final = (64 - EXACT_BITS) * _HALF + 2 * _HALF

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
    """Counts numbers from 0 to 2**63 - 1 in logarithmic buckets."""

    __slots__ = ("_counts", "_sum", "largest", "n", "smallest")

    def __init__(self) -> None:
        self.n = self.largest = 0
        self.smallest = 2**63 - 1
        self._sum = 0.0
        self._counts: Numbers = np.zeros(0, np.int64)  # made when it is needed: many indexes have no entry

    def add(self, values: Numbers) -> None:
        """Count numbers, none negative."""
        if values.size:
            counts = np.bincount(bucket_numbers(values), minlength=_N_BUCKETS).astype(np.int64)
            total = float(values.sum(dtype=np.float64))
            self._combine(values.size, total, int(values.min()), int(values.max()), counts)

    def merge(self, other: Distribution) -> None:
        """Add the numbers of another distribution."""
        if other.n:
            self._combine(other.n, other._sum, other.smallest, other.largest, other._counts)

    def _combine(self, n: int, total: float, smallest: int, largest: int, counts: Numbers) -> None:
        self._counts = self._counts + counts if self.n else counts
        self.n += n
        self._sum += total
        self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)

    def histogram(self) -> tuple[Numbers, Numbers]:
        """Sizes in rising order, rounded down, and how many numbers have each."""
        used = np.flatnonzero(self._counts)
        return bucket_starts(used), self._counts[used]

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
    shift = _shifts(values)
    down: Numbers = (values >> shift) << shift
    return down


def bucket_numbers(values: Numbers) -> Numbers:
    """The bucket of each number."""
    shift = _shifts(values)
    numbers: Numbers = shift * _HALF + (values >> shift)
    return numbers


def bucket_starts(numbers: Numbers) -> Numbers:
    """The smallest number of each bucket."""
    shift = np.maximum(numbers // _HALF - 1, 0)
    starts: Numbers = (numbers - shift * _HALF) << shift
    return starts


def _shifts(values: Numbers) -> Numbers:
    """How many low bits of each number are dropped."""
    # The bit length comes from the exponent of the float. A number of more than 53 bits may be rounded up to the next
    # power of two, which the last line corrects.
    exponents = (values.astype(np.float64).view(np.int64) >> 52) - 1022
    shifts: Numbers = np.maximum(exponents - EXACT_BITS, 0)
    return shifts - ((values >> shifts < _HALF) & (shifts > 0))
